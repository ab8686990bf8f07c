"""Random inputs for a model whose own are not at hand."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np
from onnx import TensorProto, helper

from dmlvk.onnx.arguments import NodeArgument
from dmlvk.onnx.errors import ModelError

# Bytes of an input that are made at random at most.
LARGEST = 1 << 33


def random_feed(generator: np.random.Generator, argument: NodeArgument, sizes: Sequence[int]) -> np.ndarray:
    """Random elements for an input: integers over their whole range, floats of the standard normal distribution.

    Raises ModelError: the input has no such type.
    """
    match = re.fullmatch(r"tensor\((\w+)\)", argument.type)
    element = getattr(TensorProto, match[1].upper(), TensorProto.UNDEFINED) if match else TensorProto.UNDEFINED
    if element in (TensorProto.UNDEFINED, TensorProto.STRING, TensorProto.COMPLEX64, TensorProto.COMPLEX128):
        raise ModelError(f"the input {argument.name!r} is {argument.type}, for which there are no random elements")
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(element))
    if math.prod(sizes) * dtype.itemsize > LARGEST:
        shape = f"{math.prod(sizes)} elements, {list(sizes)}"
        raise ModelError(f"the input {argument.name!r} has {shape}, which are too many to be made at random")
    if dtype.kind == "b":
        return generator.integers(0, 2, sizes).astype(bool)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return generator.integers(limits.min, limits.max, sizes, dtype, endpoint=True)
    if match is not None and "int" in match[1]:  # of 4 or 2 bits: one more bit is dropped
        return generator.integers(-8, 8, sizes).astype(np.int8).astype(dtype)
    return generator.standard_normal(sizes).astype(dtype)


def random_batch(
    generator: np.random.Generator, arguments: Sequence[NodeArgument], batch: int | None
) -> dict[str, np.ndarray]:
    """Random elements for all inputs of a model.

    batch: the size of first dimensions that may have any size; None for 1.
    Raises ModelError: no first dimension may have another size, another dimension has no size, or an input has no such
        type.
    """
    feeds = {}
    for argument in arguments:
        first, *others = argument.shape or [1]
        if not all(isinstance(size, int) for size in others):
            rule = "only its first dimension can be given a size here, so the others must have one in the model"
            raise ModelError(f"the input {argument.name!r} has the shape {argument.shape}: {rule}")
        sizes = [first if isinstance(first, int) else batch or 1, *(int(size) for size in others if size is not None)]
        feeds[argument.name] = random_feed(generator, argument, sizes if argument.shape else [])
    if batch is not None and feeds and not any(array.ndim and array.shape[0] == batch for array in feeds.values()):
        shapes = ", ".join(f"{argument.name!r} {argument.shape}" for argument in arguments)
        raise ModelError(f"no input can have {batch} as its first dimension; the shapes are {shapes}")
    return feeds
