"""The demo's panels: each is one operator on the photograph, with the views of its result.

A new operator joins with a function that returns its panels, named in `all_panels`.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import dmlvk
from dmlvk._common import files
from dmlvk.demo.palette import require_pillow
from dmlvk.operators.quantized_linear_convolution import output_size

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1

# Dark to light; one colour for each brightness level.
LEVEL_COLOURS = np.array(
    [[24, 32, 72], [86, 44, 110], [178, 58, 96], [232, 112, 72], [247, 183, 92], [253, 243, 200]], np.uint8
)


def _as_picture(result: np.ndarray) -> np.ndarray:
    """{H,W,3} unchanged, {H,W,1} and {H,W} in grey."""
    plane = result if result.ndim == 3 else result[..., None]
    return np.broadcast_to(plane, (*plane.shape[:2], 3))


@dataclass(frozen=True)
class PanelPicture:
    """One picture of a result.

    title, caption: what the picture shows, and the fields that cause it.
    picture: makes an {H,W,3} UINT8 picture of the result.
    """

    title: str
    caption: str
    picture: Callable[[np.ndarray], np.ndarray] = _as_picture


@dataclass(frozen=True)
class Panel:
    """One operator on the photograph.

    title: what it does to the photograph.
    inputs: the arrays for the descriptor's input tensors, by field name.
    views: the pictures of the result; a convolution has one for each of its filters.
    """

    title: str
    desc: Any
    inputs: dict[str, np.ndarray]
    views: tuple[PanelPicture, ...]


def photograph() -> np.ndarray:
    """The astronaut Eileen Collins, photographed by NASA (public domain): {512,512,3} UINT8, packed."""
    require_pillow()
    from PIL import Image

    with Image.open(io.BytesIO(files.packaged_bytes("dmlvk.demo", "astronaut.jpg"))) as image:
        return np.asarray(image.convert("RGB"))


def all_panels(photo: np.ndarray) -> dict[str, list[Panel]]:
    """The demo's panels by operator name; `SENTENCES` says what each operator does."""
    return {
        "SLICE1": slice1_panels(photo),
        "DIAGONAL_MATRIX1": diagonal_matrix1_panels(photo),
        "ONE_HOT": one_hot_panels(photo),
        "QUANTIZED_LINEAR_CONVOLUTION": quantized_linear_convolution_panels(photo),
    }


# Beneath each operator's name on the sheet.
SENTENCES = {
    "SLICE1": "copies a strided window of a tensor; negative strides start at the window's end",
    "DIAGONAL_MATRIX1": "fills a band of diagonals, or all but a band, and copies the rest",
    "ONE_HOT": "writes one value where the index says so and another everywhere else",
    "QUANTIZED_LINEAR_CONVOLUTION": "convolves 8-bit integers; input and output: scale 1/128, zero point 128",
}


def tensor_desc(array: np.ndarray) -> dmlvk.TensorDesc:
    """The array's own type, sizes and strides."""
    return dmlvk.TensorDesc.of(array, strides="array")


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
        return Panel(title, desc, {"input_tensor": photo}, (PanelPicture(title, caption),))

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

    The operator works on the last two dimensions, so it gets the photograph as {3,H,W}: the same bytes, with strides
    that give each element's place. The results are written in the photograph's own layout in the same way.
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
        view = PanelPicture(title, caption, lambda result: _as_picture(_channels_last(result)))
        return Panel(title, desc, inputs, (view,))

    return [
        panel("A band filled", planes, planes.shape, -60, 60, 255),
        panel("All but a band filled", planes, planes.shape, 120, -120, 0),
        panel("Upper triangle, green channel", grey, grey.shape, 1, INT32_MAX, 32),
        panel("Identity, no input", None, (16, 16), 0, 1, 255),
    ]


def _channels_last(result: np.ndarray) -> np.ndarray:
    return result.transpose(1, 2, 0) if result.ndim == 3 else result


def one_hot_panels(photo: np.ndarray) -> list[Panel]:
    """A label map of brightness levels, {1,H,W}, as one plane for each level, {levels,H,W}."""
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
        inputs = {"indices_tensor": indices, "values_tensor": values}
        return Panel(title, desc, inputs, (PanelPicture(title, caption, picture),))

    def coloured(result: np.ndarray) -> np.ndarray:
        return np.einsum("lhw,lc->hwc", result // 255, LEVEL_COLOURS, dtype=np.uint8)

    def planes(result: np.ndarray) -> np.ndarray:
        """The planes in rows of three, with grey lines between them."""
        small = np.pad(result[:, ::4, ::4], ((0, 0), (2, 2), (2, 2)), constant_values=128)
        rows = [np.concatenate(list(small[start : start + 3]), axis=1) for start in range(0, level_count, 3)]
        return _as_picture(np.concatenate(rows, axis=0))

    unsigned = levels.astype(np.uint32)[None]
    # Negative indices count once from the end: the same labels in reverse order.
    signed = -1 - levels.astype(np.int64)[None]
    outside = np.where(levels == 2, 2**32 + 1, levels).astype(np.uint64)[None]
    return [
        panel("A colour for each plane", "UINT32 indices\naxis 0", unsigned, coloured),
        panel("The planes themselves", "UINT32 indices\naxis 0", unsigned, planes),
        panel("Negative indices", "INT64 indices -1 ... -6\ncount from the end", signed, coloured),
        panel("One level out of range", "UINT64 index 2^32 + 1\nis off in every plane", outside, coloured),
    ]


# The photograph's bytes stand for real numbers from -1 to just below 1, (byte - 128) / 128, and so do the results'.
# Padding is a real 0: middle grey.
PIXEL_SCALE, PIXEL_ZERO_POINT = 1 / 128, 128

# The shares of red, green and blue in the brightness that the eye sees.
BRIGHTNESS = np.array([0.299, 0.587, 0.114])


def quantized_linear_convolution_panels(photo: np.ndarray) -> list[Panel]:
    """A bank of edge filters, and filters that leave a picture in colour."""
    # Correlated with the photograph as they stand: a rise in brightness to the right or downwards gives more than grey.
    smooth, rise, bend = np.array([1, 4, 6, 4, 1]) / 16, np.array([-1, -2, 0, 2, 1]) / 2, np.array([1, 0, -2, 0, 1])
    across, down = np.outer(smooth, rise), np.outer(rise, smooth)
    itself = np.pad([[1.0]], 2)
    bank = {
        "Sobel, left to right": across,
        "Sobel, top to bottom": down,
        "Laplacian": np.outer(smooth, bend) + np.outer(bend, smooth),
        "Emboss": itself / 2 + 2 * (across + down),
    }
    over_all_channels = np.stack([np.multiply.outer(BRIGHTNESS, plane) for plane in bank.values()])
    desc, inputs = convolution(photo, over_all_channels)

    def plane(title: str, number: int) -> PanelPicture:
        return PanelPicture(
            title, _filter_caption(desc, inputs, [number]), lambda result: _as_picture(result[0, number])
        )

    views = tuple(plane(title, number) for number, title in enumerate(bank))
    panels = [Panel("Four edge filters at once", desc, inputs, views)]

    def in_colour(title: str, filters: np.ndarray, **options: Any) -> None:
        desc, inputs = convolution(photo, filters, **options)
        caption = _filter_caption(desc, inputs, range(len(filters)))
        view = PanelPicture(title, caption, lambda result: result[0].transpose(1, 2, 0))
        panels.append(Panel(title, desc, inputs, (view,)))

    bell = np.exp(-((np.arange(-7, 8) / 4) ** 2) / 2)
    in_colour("Gaussian blur, half size", _each_channel(np.outer(bell, bell) / bell.sum() ** 2), strides=(2, 2))
    in_colour("Motion blur", _each_channel(np.full((1, 31), 1 / 31)))
    in_colour("Sharpen", _each_channel(np.array([[0, -1, 0], [-1, 5, -1], [0, -1, 0]])), dilations=(2, 2))
    sepia = np.array([[0.393, 0.769, 0.189], [0.349, 0.686, 0.168], [0.272, 0.534, 0.131]])
    # The matrix is made for black at 0 and white at 1, not for black at -1: the bias corrects for that.
    in_colour("Sepia", sepia[:, :, None, None], bias=sepia.sum(axis=1) - 1)
    return panels


def convolution(
    photo: np.ndarray,
    filters: np.ndarray,
    *,
    strides: tuple[int, int] = (1, 1),
    dilations: tuple[int, int] = (1, 1),
    bias: np.ndarray | None = None,
) -> tuple[dmlvk.QuantizedLinearConvolutionDesc, dict[str, np.ndarray]]:
    """Quantize filters and lay them over the photograph, padded so that a stride of 1 keeps its size.

    photo: {H,W,3} UINT8; the operator is shown its bytes as {1,3,H,W}.
    filters: real numbers, {M,3,h,w} or, for a filter that sees one channel, {3,1,h,w}. They become INT8 where any is
        negative and UINT8 otherwise, with a scale for each output channel that makes the largest 127 or 255.
    bias: real numbers, {M}.
    """
    height, width, channels = photo.shape
    count, seen, *filter_size = filters.shape
    largest, data_type = (127, np.int8) if filters.min() < 0 else (255, np.uint8)
    scale = (np.abs(filters).max(axis=(1, 2, 3)) / largest).astype(np.float32).reshape(1, count, 1, 1)
    quantized = np.rint(filters / scale.reshape(count, 1, 1, 1)).astype(data_type)
    pixel_scale = np.full((1, 1, 1, 1), PIXEL_SCALE, np.float32)
    pixel_zero_point = np.full((1, 1, 1, 1), PIXEL_ZERO_POINT, np.uint8)
    inputs = {
        "input_tensor": photo.transpose(2, 0, 1)[None],
        "input_scale_tensor": pixel_scale,
        "input_zero_point_tensor": pixel_zero_point,
        "filter_tensor": quantized,
        "filter_scale_tensor": scale,
        "output_scale_tensor": pixel_scale,
        "output_zero_point_tensor": pixel_zero_point,
    }
    if bias is not None:
        inputs["bias_tensor"] = np.rint(bias.reshape(scale.shape) / (pixel_scale * scale)).astype(np.int32)
    padding = [(size - 1) * dilation // 2 for size, dilation in zip(filter_size, dilations, strict=True)]
    spatial = zip((height, width), filter_size, strides, dilations, padding, padding, strict=True)
    rows, columns = (output_size(*dimension) for dimension in spatial)
    tensors = {field: tensor_desc(array) for field, array in inputs.items()}
    # Given once, before the first dispatch, and rearranged then into the kernel's layout.
    tensors["filter_tensor"] = replace(tensors["filter_tensor"], flags=dmlvk.TensorFlags.OWNED_BY_DML)
    channels_last = (rows * columns * count, 1, columns * count, count)
    desc = dmlvk.QuantizedLinearConvolutionDesc(
        **tensors,
        output_tensor=dmlvk.TensorDesc(dmlvk.DataType.UINT8, (1, count, rows, columns), channels_last),
        strides=strides,
        dilations=dilations,
        start_padding=padding,
        end_padding=padding,
        group_count=channels // seen,
    )
    return desc, inputs


def _each_channel(plane: np.ndarray) -> np.ndarray:
    """The same filter for red, green and blue, each by itself: {3,1,h,w}."""
    return np.stack([plane[None]] * 3)


def _filter_caption(
    desc: dmlvk.QuantizedLinearConvolutionDesc, inputs: dict[str, np.ndarray], channels: Sequence[int]
) -> str:
    """A caption that says what made these output channels."""
    sizes = ", ".join(map(str, desc.filter_tensor.sizes))
    scales = dict.fromkeys(f"{inputs['filter_scale_tensor'][0, channel, 0, 0]:.3g}" for channel in channels)
    extras = [f"group_count {desc.group_count}"] if desc.group_count > 1 else []
    extras += [f"{name} {value}" for name in ("strides", "dilations") if (value := getattr(desc, name)) != (1, 1)]
    if "bias_tensor" in inputs:
        extras.append(f"bias {', '.join(map(str, inputs['bias_tensor'].ravel()))}")
    lines = [
        f"filter {desc.filter_tensor.data_type.name} {{{sizes}}}",
        f"{'filter scale' if len(scales) == 1 else 'scales'} {', '.join(scales)}",
        ", ".join(extras) or f"output channel {channels[0]}",
    ]
    return "\n".join(lines)
