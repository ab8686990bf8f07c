"""The descriptors of all operators by name. For type checkers, `python -m tools.stubs` writes the stub beside it."""

from dmlvk.operators.registry import OPERATORS

globals().update({desc.__name__: desc for desc in OPERATORS})
__all__ = [desc.__name__ for desc in OPERATORS]
