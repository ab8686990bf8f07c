"""BYTE_TABLE: one table, a table of pairs, and a table for each channel in both layouts; large, and for one image."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from dmlvk import ByteTableDesc, DataType, TensorDesc
from dmlvk.benchmark.cases.scale import Scale
from dmlvk.conformance.case import Case, Workload, generator
from dmlvk.conformance.cases.values import random_array

# The sizes of an image, by layout, and the dimension of its channels with the images'.
IMAGES = {"NCHW": ((256, 56, 56), 1), "NHWC": ((56, 56, 256), 3)}
# The bytes that a large case reads and writes.
LARGE = 1 << 26
PER_IMAGE = 256 * 56 * 56


def batches(scale: Scale, bytes_per_element: int) -> Iterator[tuple[str, int]]:
    """The number of images of a large case, which moves about LARGE bytes, and of one image; with a name."""
    yield "large", max(1, min(LARGE, scale.data_bytes) // (bytes_per_element * PER_IMAGE))
    yield "image", 1


def workload(sizes: Sequence[int], kind: str, axis: int) -> Workload:
    """Random bytes, and tables of random bytes."""
    tensor = TensorDesc(DataType.UINT8, sizes)
    is_pair, is_each = kind == "pairs", kind == "each_channel"
    length = 65536 if is_pair else 256
    desc = ByteTableDesc(
        input_tensor=tensor,
        second_input_tensor=tensor if is_pair else None,
        table_tensor=TensorDesc(DataType.UINT8, (sizes[axis], length) if is_each else (length,)),
        output_tensor=tensor,
        axis=axis if is_each else None,
    )
    numbers = generator(f"byte_table {sizes} {kind}")
    return Workload(
        desc, {name: random_array(numbers, desc.tensors[name]) for name in desc.tensors if "output" not in name}
    )


def cases(scale: Scale) -> Iterator[Case]:
    """Cases of each kind of table."""
    for kind, bytes_per_element in (("bytes", 2), ("pairs", 3), ("each_channel", 2)):
        for layout, (image, axis) in IMAGES.items():
            for size, count in batches(scale, bytes_per_element):
                build = partial(workload, (count, *image), kind, axis)
                yield Case(f"byte_table:{kind}:layout={layout};size={size}", build, is_default=True)
