"""BYTE_TABLE_MEAN: planes of networks, channels last and first; large, and for one image."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from dmlvk import ByteTableMeanDesc, DataType, TensorDesc
from dmlvk.benchmark.cases.max_pooling2 import LAYOUTS, images_of, random_images
from dmlvk.benchmark.cases.scale import Scale
from dmlvk.conformance.case import Case, Workload
from dmlvk.conformance.cases.max_pooling2 import laid_out

# Side of a plane, and the lanes that ONNX Runtime's operators have.
SIDE = 28
LANES = {"GlobalAveragePool": 4, "ReduceMean": 8}
LARGE = 1 << 26


def workload(batch: int, lanes: int, layout: str) -> Workload:
    """Random images, and a table as a scale gives it."""
    source = laid_out(DataType.UINT8, (batch, 64, SIDE, SIDE), layout)
    desc = ByteTableMeanDesc(input_tensor=source, table_tensor=TensorDesc(DataType.FLOAT32, (256,)), lane_count=lanes)
    table = (np.arange(256) - 128).astype(np.float32) * np.float32(0.0437)
    return Workload(desc, {"input_tensor": random_images("byte_table_mean", source), "table_tensor": table})


def cases(scale: Scale) -> Iterator[Case]:
    """Cases of both operators of ONNX."""
    for name, lanes in LANES.items():
        for layout in LAYOUTS:
            for size, data in (("large", min(LARGE, scale.data_bytes)), ("image", 0)):
                build = partial(workload, images_of(data, 1, SIDE), lanes, layout)
                yield Case(f"byte_table_mean:{name}:layout={layout};size={size}", build, is_default=True)
