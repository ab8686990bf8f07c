"""What type checkers know of the one-liners: arrays give an array, and a Tensor among them a Tensor.

For them `python -m tools.stubs` writes the stub beside this file, from the functions in `functional.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def typed_as(signature: Any) -> Callable[[Any], Any]:
    """Give a function the type of a signature, for type checkers."""
    return lambda function: function


def __getattr__(name: str) -> None:
    """The signature of a function: an overload for each kind of arguments in the stub, nothing when a program runs."""
