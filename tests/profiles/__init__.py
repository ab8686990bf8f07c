"""Recorded devices, for planning without one: those that the package has."""

from dmlvk.conformance.recorded import NAMES, load

__all__ = ["NAMES", "load"]
