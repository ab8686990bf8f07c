"""What the demo runs: each panel is one operator on the photograph, and how its result is looked at.

A new operator joins with a function that returns its panels, named in `all_panels`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import numpy as np

import dmlvk

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1

# Dark to light; one colour a brightness level.
LEVEL_COLOURS = np.array(
    [[24, 32, 72], [86, 44, 110], [178, 58, 96], [232, 112, 72], [247, 183, 92], [253, 243, 200]], np.uint8
)


def _as_picture(result: np.ndarray) -> np.ndarray:
    """{H,W,3} as it is, {H,W,1} and {H,W} in grey."""
    plane = result if result.ndim == 3 else result[..., None]
    return np.broadcast_to(plane, (*plane.shape[:2], 3))


@dataclass(frozen=True)
class Panel:
    """One operator on the photograph.

    Attributes
    ----------
    title, caption : str
        What is to be seen, and the fields that bring it about.
    desc : descriptor
        The operator.
    inputs : dict of str to np.ndarray
        The arrays for the descriptor's input tensors, by field name.
    picture : callable
        Makes an {H,W,3} UINT8 picture of the result.
    """

    title: str
    caption: str
    desc: Any
    inputs: dict[str, np.ndarray]
    picture: Callable[[np.ndarray], np.ndarray] = field(default=_as_picture)


def photograph() -> np.ndarray:
    """The astronaut Eileen Collins, photographed by NASA (public domain): {512,512,3} UINT8, packed."""
    try:
        from PIL import Image
    except ImportError as error:
        raise dmlvk.DeviceError('the demo needs Pillow to draw with: pip install "dmlvk[demo]"') from error
    with files("dmlvk.demo").joinpath("astronaut.jpg").open("rb") as file, Image.open(file) as image:
        return np.asarray(image.convert("RGB"))


def all_panels(photo: np.ndarray) -> dict[str, list[Panel]]:
    """The demo's panels by operator name, each operator with what it does in one sentence."""
    return {
        "SLICE1": slice1_panels(photo),
        "DIAGONAL_MATRIX1": diagonal_matrix1_panels(photo),
        "ONE_HOT": one_hot_panels(photo),
    }


# Beneath each operator's name on the sheet.
SENTENCES = {
    "SLICE1": "copies a strided window of a tensor; negative strides start at the window's end",
    "DIAGONAL_MATRIX1": "fills a band of diagonals, or all but a band, and copies the rest",
    "ONE_HOT": "writes one value where the index says so and another everywhere else",
}


def tensor_desc(array: np.ndarray) -> dmlvk.TensorDesc:
    """The array's own type, sizes and strides."""
    strides = [stride // array.itemsize for stride in array.strides]
    return dmlvk.TensorDesc(dmlvk.DataType.from_numpy(array.dtype), array.shape, strides)


def slice1_panels(photo: np.ndarray) -> list[Panel]:
    """Windows of the photograph as {H,W,3}."""
    height, width, channels = photo.shape

    def panel(title: str, offsets: list[int], sizes: list[int], strides: list[int]) -> Panel:
        output_sizes = [(size - 1) // abs(stride) + 1 for size, stride in zip(sizes, strides, strict=True)]
        desc = dmlvk.Slice1Desc(
            input_tensor=tensor_desc(photo),
            output_tensor=dmlvk.TensorDesc(dmlvk.DataType.UINT8, output_sizes),
            input_window_offsets=offsets,
            input_window_sizes=sizes,
            input_window_strides=strides,
        )
        caption = f"offsets {tuple(offsets)}\nsizes {tuple(sizes)}\nstrides {tuple(strides)}"
        return Panel(title, caption, desc, {"input_tensor": photo})

    whole, everything = [0, 0, 0], [height, width, channels]
    return [
        panel("Crop", [0, 128, 0], [256, 256, channels], [1, 1, 1]),
        panel("Flip left to right", whole, everything, [1, -1, 1]),
        panel("Half turn, channels reversed", whole, everything, [-1, -1, -1]),
        panel("Every 16th pixel", whole, everything, [16, 16, 1]),
        panel("Helmet, mirrored, every 4th pixel", [256, 256, 0], [256, 256, channels], [4, -4, 1]),
        panel("Crop upside down", [0, 128, 0], [256, 256, channels], [-1, 1, 1]),
        panel("Red channel", whole, [height, width, 1], [1, 1, 1]),
        panel("Blue channel", [0, 0, 2], [height, width, 1], [1, 1, 1]),
    ]


def diagonal_matrix1_panels(photo: np.ndarray) -> list[Panel]:
    """Bands of diagonals over the photograph.

    The operator works on the last two dimensions, so the photograph is shown to it as {3,H,W}: the same bytes, and
    strides that say where each element lies. The results are written in the photograph's own layout in the same way.
    """
    planes = photo.transpose(2, 0, 1)
    grey = photo[..., 1]

    def panel(title: str, source: np.ndarray | None, sizes: tuple[int, ...], begin: int, end: int, value: int) -> Panel:
        output = dmlvk.TensorDesc(dmlvk.DataType.UINT8, sizes)
        if source is not None and source.ndim == 3:
            output = tensor_desc(source)
        desc = dmlvk.DiagonalMatrix1Desc(
            input_tensor=None if source is None else tensor_desc(source),
            output_tensor=output,
            value=value,
            diagonal_fill_begin=begin,
            diagonal_fill_end=end,
        )
        names = {INT32_MIN: "INT32_MIN", INT32_MAX: "INT32_MAX"}
        caption = f"begin {names.get(begin, begin)}\nend {names.get(end, end)}\nvalue {value}"
        inputs = {} if source is None else {"input_tensor": source}
        return Panel(title, caption, desc, inputs, lambda result: _as_picture(_channels_last(result)))

    return [
        panel("A band filled", planes, planes.shape, -60, 60, 255),
        panel("All but a band filled", planes, planes.shape, 120, -120, 0),
        panel("Upper triangle, green channel", grey, grey.shape, 1, INT32_MAX, 32),
        panel("Identity, no input", None, (16, 16), 0, 1, 255),
    ]


def _channels_last(result: np.ndarray) -> np.ndarray:
    return result.transpose(1, 2, 0) if result.ndim == 3 else result


def one_hot_panels(photo: np.ndarray) -> list[Panel]:
    """A label map of brightness levels, {1,H,W}, as one plane a level, {levels,H,W}."""
    level_count = len(LEVEL_COLOURS)
    weights = np.array([299, 587, 114], np.uint32)
    brightness = photo.astype(np.uint32) @ weights // 1000
    # Levels with about as many pixels each, so that every plane has something to show.
    borders = np.quantile(brightness, np.arange(1, level_count) / level_count)
    levels = np.digitize(brightness, borders)
    values = np.array([[[0, 255]]], np.uint8)

    def panel(title: str, caption: str, indices: np.ndarray, picture: Callable[[np.ndarray], np.ndarray]) -> Panel:
        desc = dmlvk.OneHotDesc(
            indices_tensor=tensor_desc(indices),
            values_tensor=tensor_desc(values),
            output_tensor=dmlvk.TensorDesc(dmlvk.DataType.UINT8, (level_count, *indices.shape[1:])),
            axis=0,
        )
        return Panel(title, caption, desc, {"indices_tensor": indices, "values_tensor": values}, picture)

    def coloured(result: np.ndarray) -> np.ndarray:
        return np.einsum("lhw,lc->hwc", result // 255, LEVEL_COLOURS, dtype=np.uint8)

    def planes(result: np.ndarray) -> np.ndarray:
        """The planes in rows of three, with grey lines between them."""
        small = np.pad(result[:, ::4, ::4], ((0, 0), (2, 2), (2, 2)), constant_values=128)
        rows = [np.concatenate(list(small[start : start + 3]), axis=1) for start in range(0, level_count, 3)]
        return _as_picture(np.concatenate(rows, axis=0))

    unsigned = levels.astype(np.uint32)[None]
    # Negative indices count once from the end: the same labels the other way round.
    signed = -1 - levels.astype(np.int64)[None]
    outside = np.where(levels == 2, 2**32 + 1, levels).astype(np.uint64)[None]
    return [
        panel("A colour for each plane", "UINT32 indices\naxis 0", unsigned, coloured),
        panel("The planes themselves", "UINT32 indices\naxis 0", unsigned, planes),
        panel("Negative indices", "INT64 indices -1 ... -6\ncount from the end", signed, coloured),
        panel("One level out of range", "UINT64 index 2^32 + 1\nis off in every plane", outside, coloured),
    ]
