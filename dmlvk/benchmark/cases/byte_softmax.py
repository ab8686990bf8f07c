"""BYTE_SOFTMAX: the scores of classifiers, of many images and of one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from dmlvk import ByteSoftmaxDesc, DataType, TensorDesc
from dmlvk.benchmark.cases.scale import Scale
from dmlvk.conformance.case import Case, Workload, generator
from dmlvk.conformance.cases.values import random_array

# The numbers of classes of ImageNet and of the digits, and the elements of large cases.
CLASSES = (1000, 10)
LARGE = 1 << 26


def workload(count: int, classes: int) -> Workload:
    """Random scores, and a table as a scale gives it."""
    scores = TensorDesc(DataType.UINT8, (1, count, classes))
    desc = ByteSoftmaxDesc(
        input_tensor=scores,
        table_tensor=TensorDesc(DataType.FLOAT32, (256,)),
        output_steps=256,
        output_zero_point=0,
    )
    table = np.exp((np.arange(256) - 255) * 0.0437).astype(np.float32)
    return Workload(desc, {"input_tensor": random_array(generator("byte_softmax"), scores), "table_tensor": table})


def cases(scale: Scale) -> Iterator[Case]:
    """Cases of both numbers of classes."""
    for classes in CLASSES:
        for size, elements in (("large", min(LARGE, scale.data_bytes)), ("image", classes)):
            build = partial(workload, max(1, elements // classes), classes)
            yield Case(f"byte_softmax:classes={classes};size={size}", build, is_default=True)
