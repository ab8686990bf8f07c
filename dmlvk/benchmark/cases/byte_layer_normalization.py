"""BYTE_LAYER_NORMALIZATION: the rows of vision transformers, of many images, of eight and of one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from dmlvk import ByteLayerNormalizationDesc, DataType, TensorDesc, reference
from dmlvk.benchmark.cases.scale import Scale
from dmlvk.conformance.case import Case, Workload, generator
from dmlvk.conformance.cases.byte_layer_normalization import parameters_of
from dmlvk.conformance.cases.values import random_array

# The tokens of an image and the numbers of each, and the elements of large cases.
TOKENS, LENGTH = 197, 768
LARGE = 1 << 26


def workload(rows: int) -> Workload:
    """Random bytes, scales and biases, and the reference's output for the rows that differ."""
    numbers, different = generator("byte_layer_normalization"), TensorDesc(DataType.UINT8, (8 * TOKENS, LENGTH))
    few = ByteLayerNormalizationDesc(
        input_tensor=different,
        scale_tensor=TensorDesc(DataType.FLOAT32, (LENGTH,)),
        bias_tensor=TensorDesc(DataType.FLOAT32, (LENGTH,)),
        epsilon=1e-5,
        input_scale=0.0371,
        input_zero_point=119,
        output_scale=0.0213,
        output_zero_point=128,
    )
    elements = random_array(numbers, different)
    parameters = parameters_of("ordinary", few, elements, numbers)
    expected = reference.run(few, input_tensor=elements, **parameters)
    tensor = TensorDesc(DataType.UINT8, (rows, LENGTH))
    desc = replace(few, input_tensor=tensor, output_tensor=tensor)
    arrays = {"input_tensor": np.resize(elements, tensor.sizes), **parameters}
    return Workload(desc, arrays, np.resize(expected, tensor.sizes))


def cases(scale: Scale) -> Iterator[Case]:
    """Cases of some numbers of rows."""
    large = max(1, min(LARGE, scale.data_bytes) // LENGTH)
    for name, rows in (("large", large), ("images", 8 * TOKENS), ("image", TOKENS)):
        yield Case(f"byte_layer_normalization:size={name}", partial(workload, rows), is_default=True)
