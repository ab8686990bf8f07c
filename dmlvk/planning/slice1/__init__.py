"""SLICE1: a strided copy, widened to 16-byte elements if possible.

blocks
    Each invocation writes one 16-byte block of the output and reads the elements for it. For any layout.
elements
    Each invocation copies a few elements, or words of several elements, that lie apart. For steps of more than one
    element, whose loads touch fewer lines then, and for short rows, which need no blocks across rows.
tiles
    If rows of the output are columns of the input, workgroups transpose tiles in shared memory. Short rows or columns
    are several dimensions that follow each other without a gap.
boxes
    For dimensions in any other order, workgroups move boxes by way of shared memory: some coordinates of each
    dimension, which are long pieces of the output and of the input alike.

Pieces that another path does not suit are copied in blocks.
"""

from dmlvk.planning.slice1.choice import PATH_NAMES as PATHS
from dmlvk.planning.slice1.choice import plan_slice1 as plan

__all__ = ["PATHS", "plan"]
