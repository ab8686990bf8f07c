"""SLICE: counted in the same way as SLICE1."""

from dmlvk.benchmark.work.slice1 import random_inputs, work

__all__ = ["random_inputs", "work"]
