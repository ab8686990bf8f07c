"""SLICE: SLICE1's plans."""

from dmlvk.planning.slice1 import PATHS, plan

__all__ = ["PATHS", "plan"]
