"""How QUANTIZED_LINEAR_CONVOLUTION runs: kernel paths, and the choice between them.

There are up to ten tensors, and some devices have only four storage buffers a stage. So most paths prepare operands:
a table of parameters for each output channel, the packed filter and the packed input. All paths give the same bits.
What a path needs and when it is fast is said in the docstring of its class; in short:

depthwise
    Words straight from the tensors, where every output channel sees one input channel.
halo
    Matrix units, for filters of several taps at stride 1, with the input under a tile in shared memory.
matrix
    Matrix units, for all products.
split_k
    Matrix units, for products of few tiles. It cuts K.
vectors
    The same product without matrix units. It cuts K.
integer, float
    The packed product by 32-bit multiplications, or by float32 multiplications in exact blocks.
direct
    One output at a time, for everything else.
general
    The direct kernel on pipelines that all shapes share: never chosen here, but by the runtime for first results.

Where a path cuts K, several workgroups can share the K of a tile: "split_k/4".
Narrow groups are joined on the paths that pack the filter: see `product_geometry`.
"""

from dmlvk.planning.quantized_linear_convolution.choice import plan_quantized_linear_convolution as plan
from dmlvk.planning.quantized_linear_convolution.registry import PATH_NAMES as PATHS
from dmlvk.planning.quantized_linear_convolution.registry import PATHS_TO_ASK

__all__ = ["PATHS", "PATHS_TO_ASK", "plan"]
