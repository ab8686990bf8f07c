"""How QUANTIZED_LINEAR_CONVOLUTION runs: kernel paths, and the choice between them.

There are up to ten tensors, and some devices have only four storage buffers a stage. So most paths prepare operands:
a table of parameters for each output channel, the packed filter and the packed input. All paths give the same bits:

depthwise
    Straight from the tensors, by words of four neighbouring channels or columns: every output channel sees one input
    channel.
first_layer
    On matrix units, straight from an input of at most four channels.
halo
    The product on matrix units for filters of several taps at stride 1. Its tiles keep the input under them in shared
    memory. Inputs are read in place (NHWC) or converted to NHWC first.
matrix
    The product on matrix units (VK_KHR_cooperative_matrix). Inputs with whole vectors of channels are read in place
    (NHWC, and NCHW under filters of one tap) or converted to NHWC first. Other inputs are packed. If there are few
    tiles and a large K, several workgroups share the K of a tile.
dot4, integer, float
    The packed product by packed dot products, by 32-bit multiplications, or by float32 multiplications in exact blocks.
direct
    One output at a time, from the tensors in place. For groups of a single channel, and for operands too large for the
    other paths.
general
    The direct kernel on pipelines that all shapes share: never chosen here, but by the runtime for first results.

Narrow groups are joined on the paths that pack the filter: see `product_geometry`.
"""

from dmlvk.planning.quantized_linear_convolution.choice import plan_quantized_linear_convolution as plan
from dmlvk.planning.quantized_linear_convolution.registry import PATH_NAMES as PATHS
from dmlvk.planning.quantized_linear_convolution.registry import PATHS_TO_ASK

__all__ = ["PATHS", "PATHS_TO_ASK", "plan"]
