"""Cases of what must not change a result: the other images of a batch, the place of the tensors, other work.

The cases of one image, or of one operator's tensors, differ in the ways of `combinations.WAYS` alone, so that they have
one digest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from dmlvk.conformance.case import Way, Workload
from dmlvk.conformance.cases import diagonal_matrix1, one_hot, slice1
from dmlvk.conformance.cases.combinations import PLANNERS_CHOICE, Groups, Parameters, only
from dmlvk.conformance.cases.layouts import SIZES, TYPES, TYPES_BY_SIZE, lay_out
from dmlvk.conformance.cases.quantized_linear_convolution.convolution import (
    OPERATOR,
    PATHS,
    SAME,
    SHAPES,
    TYPE_PARAMETERS,
    CaseShape,
    convolution,
    suits,
)
from dmlvk.conformance.cases.values import random_array
from dmlvk.operators import Slice1Desc
from dmlvk.planning import KERNEL_PATHS

ALL_PATHS = (PLANNERS_CHOICE, *PATHS)
POSITIONS = ("first", "middle", "last")
WAYS: Mapping[str, Way] = {way.value: way for way in Way}
# Bytes from the start of a buffer to its tensor, for the way "other_offset".
OFFSETS = (1008, 272, 4128, 80, 16, 48, 528, 2064, 32, 144)


def batch(numbers: np.random.Generator, p: Parameters) -> Workload:
    """One image among others: its output is that of the image alone, wherever it stands in the batch."""
    layouts = {"input_tensor": p.layout, "output_tensor": p.layout}
    alone = convolution(numbers, p, replace(p.shape, batch=1))
    image = alone.inputs["input_tensor"]
    place = {"first": 0, "middle": p.images // 2, "last": p.images - 1}[p.position]
    images = random_array(numbers, lay_out(alone.desc.tensors["input_tensor"].data_type, (p.images, *image.shape[1:])))
    images = images.copy()
    images[place] = image[0]
    arrays = {**alone.inputs, "input_tensor": images}
    part = slice(place, place + 1)
    return convolution(numbers, p, replace(p.shape, batch=p.images), arrays=arrays, layouts=layouts, part=part)


def placed(workload: Workload, p: Parameters) -> Workload:
    """A workload, run in one of the ways."""
    if p.way is not Way.OTHER_OFFSET:
        return replace(workload, way=p.way)
    return replace(workload, way=p.way, offsets=dict(zip(workload.desc.tensors, OFFSETS, strict=False)))


def convolution_placement(numbers: np.random.Generator, p: Parameters) -> Workload:
    layouts = {"input_tensor": p.layout, "output_tensor": p.layout}
    return placed(convolution(numbers, p, p.shape, layouts=layouts), p)


def slice1_placement(numbers: np.random.Generator, p: Parameters) -> Workload:
    desc = slice1.describe(lay_out(p.type, (37, 70), p.input), (1, 3), (35, 64), (-1, p.step))
    return placed(slice1.random_workload(numbers, desc, p), p)


def one_hot_placement(numbers: np.random.Generator, p: Parameters) -> Workload:
    desc = one_hot.describe(p.index, p.type, SIZES[3], 1, output=p.output)
    return placed(one_hot.workload(numbers, desc, p), p)


def diagonal_matrix1_placement(numbers: np.random.Generator, p: Parameters) -> Workload:
    value = diagonal_matrix1.random_value(numbers, p.type)
    desc = diagonal_matrix1.describe(p.type, SIZES[3], (-5, 9), value, source="rows", output=p.output)
    return placed(diagonal_matrix1.workload(numbers, desc, p), p)


def _is_one_of_each(labels: Mapping[str, str]) -> bool:
    """Whether a combination makes sense: of a single image, one position."""
    return suits(labels) and (labels["images"] != "1" or labels["position"] == "first")


SOME_SHAPES = only(SHAPES, "odd", "vectors", "pointwise", "depthwise", "first_layer_small")
PLACEMENT = "The same tensors at other offsets, in one buffer, in a sequence, beside other work: the same output."
CONVOLUTIONS = Groups(OPERATOR)
CONVOLUTIONS.add(
    "batch",
    batch,
    **only(TYPE_PARAMETERS, "in", "out"),
    shape=SOME_SHAPES,
    layout=("packed", "channels_last"),
    images=(1, 2, 7, 32),
    position=POSITIONS,
    path=ALL_PATHS,
    keep=_is_one_of_each,
)
CONVOLUTIONS.add(
    "batch_of_parts",
    batch,
    shape={"many_steps": CaseShape(1, 144, (5, 7), 40, (3, 3), **SAME)},
    layout=("packed", "channels_last"),
    images=(1, 16),
    position=POSITIONS,
    path=("matrix", "split_k", "split_k/3", "vectors/3"),
    keep=_is_one_of_each,
    about="One image among others, where its sums are cut into shares: its output is that of the image alone.",
)
CONVOLUTIONS.add(
    "placement",
    convolution_placement,
    shape=SOME_SHAPES,
    layout=("packed", "channels_last"),
    way=WAYS,
    path=ALL_PATHS,
    keep=suits,
    about=PLACEMENT,
)
SLICES, ONE_HOTS, DIAGONALS = Groups("slice1"), Groups("one_hot"), Groups("diagonal_matrix1")
SLICES.add(
    "placement",
    slice1_placement,
    type=TYPES_BY_SIZE,
    input=("packed", "rows", "permuted"),
    step=(1, -2),
    way=WAYS,
    path=(PLANNERS_CHOICE, *KERNEL_PATHS[Slice1Desc]),
    about=PLACEMENT,
)
ONE_HOTS.add(
    "placement",
    one_hot_placement,
    index=only(TYPES, "uint32", "int64"),
    type=TYPES_BY_SIZE,
    output=("packed", "gaps"),
    way=WAYS,
    about=PLACEMENT,
)
DIAGONALS.add(
    "placement",
    diagonal_matrix1_placement,
    type=TYPES_BY_SIZE,
    output=("packed", "gaps"),
    way=WAYS,
    about=PLACEMENT,
)
GROUPS = (*CONVOLUTIONS, *SLICES, *ONE_HOTS, *DIAGONALS)
