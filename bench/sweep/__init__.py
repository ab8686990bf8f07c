"""`python -m bench.sweep`: random shapes, and those of them that are furthest from what bounds them."""

from __future__ import annotations

# What is drawn: the operators that have many shapes, by their stems.
OPERATORS = ("quantized_linear_convolution", "slice1")
