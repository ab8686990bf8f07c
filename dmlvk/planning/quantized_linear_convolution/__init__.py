"""How QUANTIZED_LINEAR_CONVOLUTION runs: kernel paths, and the choice between them.

There are up to ten tensors, and some devices have only four storage buffers a stage. So most paths prepare operands
(`operands`, `packing`, `stages`): each output channel's parameters, the packed filter and the packed input. What is
OWNED_BY_DML is prepared once. `product` has what all products of packed operands share, `tiled_product` what those by
vectors of K do. All paths give the same bits. In the order of the registry:

depthwise
    Words straight from the tensors, where each output channel sees one input channel. On every device.
halo
    Matrix units, for filters of several taps at stride 1 over whole vectors of channels; the input under a tile lies in
    shared memory for all taps. On devices as for `matrix`.
matrix
    Matrix units, for all products. On devices that list matrices of INT8 and round float32 to nearest even: NVIDIA from
    Turing, AMD from RDNA 3, Intel's with matrix units, and Mesa 26's lavapipe, whose estimates never choose them.
split_k
    Matrix units, for products of few tiles: subgroups share the K of a tile. On those devices, where a GPU's subgroups
    have 32 invocations or more. It cuts K.
vectors
    The same product by packed dot products, float32 or 32-bit numbers: what GPUs without matrix units take, and Intel's
    for small ones. It needs Vulkan's memory model and eleven storage buffers a stage. It cuts K.
integer, float
    The packed product, by 32-bit multiplications on every device (taken by Kepler, which has not what `vectors` needs,
    and by SwiftShader, where it is faster), or by float32 multiplications in exact blocks on lavapipe.
direct
    One output at a time: for everything else, and for what is too large to be packed. On every device.
general
    The direct kernel on pipelines that all shapes share: never chosen here, but by the runtime for first results.

**The choice.** Each path that the device has, and that can take the convolution, makes an offer (`Offer.of`). A path by
vectors of K lists tiles, the best first (`TiledPath.seeds`), and takes the first that its kernel can have there
(`TileRules`), for each way to join groups. How many tiles are few, or many, it counts for each processor. `estimate`
says what each offer would take: the work over the rate of its unit, the bytes over the copy rate, waits and dispatches,
by the rates of `device_rates` (the device's own after `dmlvk tune --rates`, or else those of its class). The least is
taken. The same estimate, times a safety factor, cuts dispatches so that no watchdog strikes: `builder.boxes` halves
what takes too long, or what no window shows. `close_paths` names what is within a factor of the least, paths before
further tiles, eight at most: `Device.compile_all(tune=True)` measures those, and remembers the fastest.

A path is forced by its name; a tile ("matrix:128x128x64:64x64") and the number of workgroups that share the K of a tile
("split_k/4") may follow. Narrow groups are joined on the paths that pack the filter: see `product_geometry`.
"""

from dmlvk.planning.quantized_linear_convolution.choice import PATH_NAMES as PATHS
from dmlvk.planning.quantized_linear_convolution.choice import QUESTIONS, close_paths
from dmlvk.planning.quantized_linear_convolution.choice import plan_quantized_linear_convolution as plan

__all__ = ["PATHS", "QUESTIONS", "close_paths", "plan"]
