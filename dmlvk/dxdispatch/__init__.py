"""Models of DxDispatch, the program by which DirectML is debugged: JSON files with resources, operators and commands.

The format is that of microsoft/DirectML's DxDispatch. docs/dxdispatch.md says what differs.
"""

from dmlvk.dxdispatch.errors import ModelError
from dmlvk.dxdispatch.model import Model, load

__all__ = ["Model", "ModelError", "load"]
