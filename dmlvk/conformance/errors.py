"""Errors in a request to the conformance suite that the user can correct."""

from __future__ import annotations


class ConformanceError(ValueError):
    """A pattern that names nothing, or a file that cannot be understood. The message says what would be right."""
