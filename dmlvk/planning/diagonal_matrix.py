"""DIAGONAL_MATRIX: DIAGONAL_MATRIX1's plans."""

from dmlvk.planning.diagonal_matrix1 import PATHS, plan

__all__ = ["PATHS", "plan"]
