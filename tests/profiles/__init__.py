"""The recorded devices of the package, for planning tests without a device."""

from dmlvk.conformance.recorded import NAMES, load

__all__ = ["NAMES", "load"]
