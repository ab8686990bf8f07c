"""How QUANTIZED_LINEAR_CONVOLUTION runs: kernel paths, and the choice between them.

There are up to ten tensors, and on some devices four storage buffers a stage, so most paths prepare: a table of
parameters for each output channel, the packed filter and the packed input. The paths, of which all give the same bits:

depthwise
    Straight from the tensors, by words of four neighbouring channels or columns: every output channel sees one input
    channel.
first_layer
    On matrix units, straight from an input of at most four channels.
halo
    The product on matrix units for filters of several taps at stride 1, whose tiles keep the input under them in shared
    memory. Inputs are read as they lie (NHWC) or turned to NHWC first.
matrix
    The product on matrix units (VK_KHR_cooperative_matrix). Inputs with whole vectors of channels are read as they lie
    (NHWC, and NCHW under filters of one tap) or turned to NHWC first; others are packed.
dot4, integer, float
    The packed product by packed dot products, by 32-bit multiplications, or by float32 multiplications in exact blocks.
direct
    One output at a time from the tensors as they lie: narrow groups, and operands that are too large for the others.
"""

from dmlvk.planning.quantized_linear_convolution.choice import plan_quantized_linear_convolution as plan
from dmlvk.planning.quantized_linear_convolution.registry import PATH_NAMES as PATHS

__all__ = ["PATHS", "plan"]
