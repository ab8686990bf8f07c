"""QUANTIZED_LINEAR_CONVOLUTION on pipelines that are not special to its sizes: a new shape needs no compiler.

The runtime takes this path for a shape's first results, while the driver compiles the path that the planner chose.
"""

from __future__ import annotations

from dmlvk.planning.plan import GENERAL_PATH
from dmlvk.planning.quantized_linear_convolution.direct import DirectPath
from dmlvk.planning.quantized_linear_convolution.path import Obstacle, Problem

# Two sizes share a push constant.
LARGEST_SIZE = 0xFFFF


class GeneralPath(DirectPath):
    """The direct kernel with its sizes in push constants."""

    name = GENERAL_PATH
    is_general = True

    def obstacle_to(self, problem: Problem) -> Obstacle | None:
        geometry = problem.geometry
        largest = max(*geometry.filter_size, *geometry.strides, *geometry.dilations)
        if largest > LARGEST_SIZE:
            return Obstacle("the largest filter size, stride or dilation", largest, f"at most {LARGEST_SIZE}")
        return None
