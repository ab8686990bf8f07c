"""SLICE1: windows, steps, reversals and a change of layout, for every element size.

Inputs have the shape (N, 16, 1024, 512 / element size), that is, rows of 512 bytes. One case copies the whole input: it
shows how much slower the operator itself is than the plain copy kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk import DataType, Slice1Desc, TensorDesc
from dmlvk.benchmark.cases.scale import Scale
from dmlvk.conformance.case import Case, Workload, generator

DATA_TYPES = (DataType.UINT8, DataType.UINT16, DataType.UINT32, DataType.UINT64)
ROW_BYTES = 512
NHWC_CHANNELS = 32


@lru_cache(maxsize=1)
def random_elements(data_type: DataType, count: int) -> npt.NDArray[Any]:
    """Random bits, the same at each call. They are kept for the next case of the same size."""
    data = generator(data_type.name).bytes(count * data_type.size_in_bytes)
    return np.frombuffer(data, data_type.numpy_dtype)


def workload(tensor: TensorDesc, offsets: list[int], sizes: list[int], steps: list[int], index: Any) -> Workload:
    """A window of random data, and the same window as NumPy indexes it."""
    output = [1 + (size - 1) // abs(step) for size, step in zip(sizes, steps, strict=True)]
    desc = Slice1Desc(
        input_tensor=tensor,
        output_tensor=TensorDesc(tensor.data_type, output),
        input_window_offsets=offsets,
        input_window_sizes=sizes,
        input_window_strides=steps,
    )
    # The array has the tensor's own order in memory, so that nothing is transposed on the way to a device.
    order = sorted(range(len(tensor.sizes)), key=lambda dimension: -tensor.element_strides[dimension])
    memory = random_elements(tensor.data_type, int(np.prod(tensor.sizes)))
    data = memory.reshape([tensor.sizes[dimension] for dimension in order]).transpose(np.argsort(order))
    return Workload(desc, {"input_tensor": data}, expected=data[index])


def cases(scale: Scale) -> Iterator[Case]:
    """Cases whose inputs have as many bytes as the scale says."""
    data_bytes = scale.data_bytes
    rows = data_bytes // ROW_BYTES
    height = min(1024, rows)
    channels = min(16, rows // height)
    batch = rows // (height * channels)
    for data_type in DATA_TYPES:
        width = ROW_BYTES // data_type.size_in_bytes
        sizes, start, steps = [batch, channels, height, width], [0, 0, 0, 0], [1, 1, 1, 1]
        tensor, nhwc = TensorDesc(data_type, sizes), _channels_last(data_type, data_bytes)
        window = [batch, channels, height - 2, width - 8]
        for name, arguments in {
            "copy": (tensor, start, sizes, steps, np.s_[...]),
            "window": (tensor, [0, 0, 1, 3], window, steps, np.s_[:, :, 1:-1, 3:-5]),
            "innermost_step_2": (tensor, start, sizes, [1, 1, 1, 2], np.s_[..., ::2]),
            "row_step_2": (tensor, start, sizes, [1, 1, 2, 1], np.s_[..., ::2, :]),
            "innermost_reversed": (tensor, start, sizes, [1, 1, 1, -1], np.s_[..., ::-1]),
            "nhwc_to_nchw": (nhwc, start, list(nhwc.sizes), steps, np.s_[...]),
        }.items():
            is_default = name != "copy" or data_type is DataType.UINT32
            yield Case(f"slice1:{name}:type={data_type.name}", partial(workload, *arguments), is_default=is_default)


def _channels_last(data_type: DataType, data_bytes: int) -> TensorDesc:
    """A tensor (N, C, H, W) whose channels are innermost in memory."""
    pixels = data_bytes // data_type.size_in_bytes // NHWC_CHANNELS
    width = 64
    height = min(1024, pixels // width)
    sizes = [pixels // (width * height), NHWC_CHANNELS, height, width]
    strides = [height * width * NHWC_CHANNELS, 1, width * NHWC_CHANNELS, NHWC_CHANNELS]
    return TensorDesc(data_type, sizes, strides)
