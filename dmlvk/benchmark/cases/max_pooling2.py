"""MAX_POOLING2: the windows of networks, channels last and first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from dmlvk import DataType, MaxPooling2Desc, TensorDesc, reference
from dmlvk.benchmark.cases.scale import Scale
from dmlvk.conformance.case import Case, Workload, generator
from dmlvk.conformance.cases.max_pooling2 import laid_out

CHANNELS = 64
# The number of different images. A larger batch repeats them, so the reference computes only these.
DIFFERENT_IMAGES = 4
# Window, stride, padding, and the height and width of an image: the first pool of ResNets, and those of VGG.
WINDOWS = {"3x3_stride_2": (3, 2, 1, 112), "2x2_stride_2": (2, 2, 0, 112), "3x3_stride_1": (3, 1, 1, 28)}
LAYOUTS = ("NHWC", "NCHW")


def pooled(window: int, stride: int, padding: int) -> dict[str, Any]:
    """The fields of windows that are alike along both dimensions."""
    fields = {"window_size": window, "strides": stride, "start_padding": padding, "end_padding": padding}
    return {**{name: (value, value) for name, value in fields.items()}, "dilations": (1, 1)}


def images_of(data_bytes: int, element_size: int, side: int) -> int:
    """The number of images that fit into `data_bytes`."""
    return max(1, data_bytes // (CHANNELS * side * side * element_size))


def random_images(name: str, tensor: TensorDesc) -> np.ndarray[Any, Any]:
    """Random elements, in the tensor's own order in memory; images repeat after DIFFERENT_IMAGES."""
    batch, *image = tensor.sizes
    count = min(batch, DIFFERENT_IMAGES)
    order = (0, 2, 3, 1) if tensor.element_strides[1] == 1 else (0, 1, 2, 3)
    shape = [(count, *image)[k] for k in order]
    data = generator(name).bytes(int(np.prod(shape)) * tensor.data_type.size_in_bytes)
    different = np.frombuffer(data, tensor.data_type.numpy_dtype).reshape(shape)
    return np.resize(different, (batch, *shape[1:])).transpose(np.argsort(order))


def repeating(desc: Any, images: np.ndarray[Any, Any], **parameters: np.ndarray[Any, Any]) -> Workload:
    """An operator on images that repeat: the reference computes those that differ."""
    different = images[:DIFFERENT_IMAGES]
    few = replace(
        desc,
        input_tensor=TensorDesc(desc.input_tensor.data_type, different.shape),
        output_tensor=TensorDesc(desc.output_tensor.data_type, (len(different), *desc.output_tensor.sizes[1:])),
    )
    expected = reference.run(few, input_tensor=different, **parameters)
    return Workload(desc, {"input_tensor": images, **parameters}, np.resize(expected, desc.output_tensor.sizes))


def workload(data_type: DataType, batch: int, window: tuple[int, int, int, int], layout: str) -> Workload:
    """Random images, and the reference's output for those that differ."""
    size, stride, padding, side = window
    sizes, fields = (batch, CHANNELS, side, side), pooled(size, stride, padding)
    output = MaxPooling2Desc(input_tensor=TensorDesc(data_type, sizes), **fields).output_tensor.sizes
    source = laid_out(data_type, sizes, layout)
    desc = MaxPooling2Desc(input_tensor=source, output_tensor=laid_out(data_type, output, layout), **fields)
    return repeating(desc, random_images("max_pooling2", source))


def cases(scale: Scale) -> Iterator[Case]:
    """Cases whose inputs have about as many bytes as the scale says."""
    for data_type in (DataType.INT8, DataType.UINT16):
        for name, window in WINDOWS.items():
            for layout in LAYOUTS:
                batch = images_of(scale.data_bytes, data_type.size_in_bytes, window[3])
                build = partial(workload, data_type, batch, window, layout)
                parameters = f"type={data_type.name};layout={layout}"
                yield Case(f"max_pooling2:{name}:{parameters}", build, is_default=data_type is DataType.INT8)
