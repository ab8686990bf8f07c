"""All kernel paths of QUANTIZED_LINEAR_CONVOLUTION. A new path is an object of its own module, and a line here."""

from __future__ import annotations

from typing import Any

from dmlvk.planning.quantized_linear_convolution.depthwise import DepthwisePath
from dmlvk.planning.quantized_linear_convolution.direct import DirectPath
from dmlvk.planning.quantized_linear_convolution.general import GeneralPath
from dmlvk.planning.quantized_linear_convolution.halo import HaloPath
from dmlvk.planning.quantized_linear_convolution.matrix import MatrixPath
from dmlvk.planning.quantized_linear_convolution.packed_product import FloatPath, IntegerPath
from dmlvk.planning.quantized_linear_convolution.path import Path
from dmlvk.planning.quantized_linear_convolution.split_k import SplitKPath
from dmlvk.planning.quantized_linear_convolution.vectors import VectorsPath

# Of paths with the same estimate, the first is taken.
PATHS: tuple[Path[Any], ...] = (
    DepthwisePath(),
    HaloPath(),
    MatrixPath(),
    SplitKPath(),
    VectorsPath(),
    IntegerPath(),
    FloatPath(),
    DirectPath(),
    GeneralPath(),
)
PATH_NAMES = tuple(path.name for path in PATHS)
QUESTIONS = {path.name: path.questions for path in PATHS if path.questions}
# The paths whose tiles have names. `dmlvk tune` tries the tiles by their names.
PATHS_WITH_TILES = tuple(path.name for path in PATHS if path.example_tile)
