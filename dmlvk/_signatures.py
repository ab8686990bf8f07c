"""What type checkers know of the one-liners: arrays give an array, and a Tensor among them a Tensor.

For them `python -m tools.stubs` writes the stub beside this file, from the functions in `functional.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dmlvk._common.arguments import named_arguments


def one_liner(signature: Any) -> Callable[[Any], Any]:
    """Give a function the type of a signature, for type checkers, and errors that name its arguments."""
    return named_arguments


def __getattr__(name: str) -> None:
    """The signature of a function: an overload for each kind of arguments in the stub, nothing when a program runs."""
