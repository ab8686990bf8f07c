"""A photograph through filters in a loop, as a camera's frames would go, with the frame rate.

    python -m examples.photograph_filters --frames 60 --output filtered.png

For each frame the device copies a window of the photograph (SLICE1, which mirrors it), blurs it and finds its edges
(two QUANTIZED_LINEAR_CONVOLUTIONs). What makes a loop fast:

- Operators are compiled once, and their filters are OWNED_BY_DML: they are given once, and rearranged then.
- Tensors are made once. A frame is written into the first, and the last is read into an array that is there already.
- The three dispatches are recorded once, as a sequence, and replayed: a frame costs one submission.

The first and the last frame are compared with the reference in NumPy, bit for bit. Needs the extra `demo`.
"""

from __future__ import annotations

import io
import time
from dataclasses import dataclass, replace
from pathlib import Path

import click
import numpy as np

import dmlvk
from dmlvk._common import files
from dmlvk.command_line.terminal import clear_errors
from dmlvk.demo import photograph, picture_format

# The photograph's bytes stand for real numbers from -1 to just below 1: (byte - 128) / 128.
SCALE, ZERO_POINT = np.full((1, 1, 1, 1), 1 / 128, np.float32), np.full((1, 1, 1, 1), 128, np.uint8)
BELL = np.array([1, 4, 6, 4, 1])
BLUR = np.outer(BELL, BELL) / 256
LAPLACIAN = np.array([[0, -1, 0], [-1, 4, -1], [0, -1, 0]])


@dataclass(frozen=True)
class Filter:
    """A convolution of each channel by itself, as a descriptor and the contents of its inputs besides the picture."""

    desc: dmlvk.QuantizedLinearConvolutionDesc
    inputs: dict[str, np.ndarray]

    @classmethod
    def of(cls, picture: dmlvk.TensorDesc, plane: np.ndarray) -> Filter:
        """A filter of real numbers {h,w} over a picture {1,C,H,W}, quantized to INT8."""
        channels, size = picture.sizes[1], len(plane)
        step = np.float32(np.abs(plane).max() / 127)
        weights = np.rint(plane / step).astype(np.int8)
        inputs: dict[str, np.ndarray] = {
            "input_scale_tensor": SCALE,
            "input_zero_point_tensor": ZERO_POINT,
            "filter_tensor": np.broadcast_to(weights, (channels, 1, size, size)),
            "filter_scale_tensor": np.full((1, 1, 1, 1), step, np.float32),
            "output_scale_tensor": SCALE,
            "output_zero_point_tensor": ZERO_POINT,
        }
        tensors = {field: dmlvk.TensorDesc.of(array) for field, array in inputs.items()}
        tensors["filter_tensor"] = replace(tensors["filter_tensor"], flags=dmlvk.TensorFlags.OWNED_BY_DML)
        margin = [size // 2] * 2
        desc = dmlvk.QuantizedLinearConvolutionDesc(
            input_tensor=picture,
            output_tensor=picture,
            **tensors,
            strides=[1, 1],
            dilations=[1, 1],
            start_padding=margin,
            end_padding=margin,
            group_count=channels,
        )
        return cls(desc, inputs)

    def compiled(self, device: dmlvk.Device) -> dmlvk.CompiledOperator:
        """Compiled, with its filter."""
        operator = device.compile(self.desc)
        operator.initialize(filter_tensor=device.tensor(self.inputs["filter_tensor"]))
        return operator

    def expected(self, picture: np.ndarray) -> np.ndarray:
        """The reference's result."""
        return dmlvk.reference.run(self.desc, input_tensor=picture, **self.inputs)


class Filters:
    """The three operators on a device.

    Args:
        device (Device):
        height, width (int): Of a frame.
    """

    def __init__(self, device: dmlvk.Device, height: int, width: int) -> None:
        frame = dmlvk.TensorDesc("uint8", (height, width, 3))
        # The convolutions see the same bytes as {1,C,H,W}.
        picture = dmlvk.TensorDesc("uint8", (1, 3, height, width), (height * width * 3, 1, width * 3, 3))
        self.mirror = dmlvk.Slice1Desc(
            input_tensor=frame,
            output_tensor=frame,
            input_window_offsets=[0, 0, 0],
            input_window_sizes=[height, width, 3],
            input_window_strides=[1, -1, 1],
        )
        self.blur, self.edges = Filter.of(picture, BLUR), Filter.of(picture, LAPLACIAN)
        self._input = device.tensor(frame)
        mirrored = device.buffer(frame.total_size_in_bytes)
        blurred, self._output = device.tensor(picture), device.tensor(picture)
        self._sequence = device.sequence(
            [
                device.compile(self.mirror).bind(input_tensor=self._input, output_tensor=mirrored.tensor(frame)),
                self._bound(device, self.blur, mirrored.tensor(picture), blurred),
                self._bound(device, self.edges, blurred, self._output),
            ]
        )
        self._result = np.empty((1, 3, height, width), np.uint8)

    @staticmethod
    def _bound(device: dmlvk.Device, filter: Filter, source: dmlvk.Tensor, target: dmlvk.Tensor) -> dmlvk.Binding:
        constants = {field: device.tensor(array) for field, array in filter.inputs.items() if field != "filter_tensor"}
        return filter.compiled(device).bind(input_tensor=source, output_tensor=target, **constants)

    def __call__(self, frame: np.ndarray) -> np.ndarray:
        """A frame {H,W,3} of UINT8, filtered: {1,3,H,W}. The same array each time."""
        self._input.write(frame)
        self._sequence.submit()
        self._output.numpy(out=self._result)
        return self._result

    def expected(self, frame: np.ndarray) -> np.ndarray:
        """The reference's result."""
        mirrored = dmlvk.reference.run(self.mirror, input_tensor=frame)
        return self.edges.expected(self.blur.expected(mirrored.transpose(2, 0, 1)[None]))


def window(photo: np.ndarray, side: int, number: int) -> np.ndarray:
    """What a camera sees that moves over the photograph: the frame of a number."""
    most = photo.shape[0] - side + 1
    return photo[number * 3 % most :, number * 7 % most :][:side, :side]


@click.command()
@click.option("--device", "selector", default=None, help="Index or part of a name; else $DMLVK_DEVICE, else the best.")
@click.option("--frames", type=click.IntRange(1), default=30, show_default=True)
@click.option("--side", type=click.IntRange(8, 512), default=256, show_default=True, help="Of a frame, in pixels.")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="A picture of the last frame, a PNG.")
@clear_errors
def main(selector: str | None, frames: int, side: int, output: Path | None) -> None:
    """Filter a photograph's frames on a device. Ends with status 1 if the first or the last is not the reference's."""
    kind = ""
    if output is not None:
        files.require_place(output)
        kind = picture_format(output)
    photo = photograph()
    wrong = []
    with dmlvk.Device(selector) as device:
        filters = Filters(device, side, side)
        first = filters(window(photo, side, 0)).copy()
        start = time.perf_counter()
        for number in range(frames):
            result = filters(window(photo, side, number))
        seconds = time.perf_counter() - start
        click.echo(f"{frames / seconds:,.1f} frames of {side} x {side} a second on {device.name}, to and from the host")
    for number, found in ((0, first), (frames - 1, result)):
        if not np.array_equal(found, filters.expected(window(photo, side, number))):
            wrong.append(str(number))
    if output is not None:
        from PIL import Image

        content = io.BytesIO()
        Image.fromarray(np.ascontiguousarray(result[0].transpose(1, 2, 0))).save(content, kind)
        files.write_bytes(output, content.getvalue())
        click.echo(f"Picture: {output}")
    if wrong:
        raise click.ClickException(f"differs from the NumPy reference: frame {' and '.join(wrong)}")
    click.echo("The first and the last frame equal the NumPy reference bit for bit")


if __name__ == "__main__":
    main()
