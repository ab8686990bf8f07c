"""Draws the demo's contact sheet with Pillow: the photograph, the operators, and a network beside them."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dmlvk._common import files
from dmlvk.demo.digits import Reading
from dmlvk.demo.grid import draw_digits, draw_lines
from dmlvk.demo.measure import PanelResult
from dmlvk.demo.palette import LIGHT, Palette, font, require_pillow
from dmlvk.demo.panels import SENTENCES, PanelPicture

if TYPE_CHECKING:
    from PIL import Image, ImageDraw

COLUMNS = 8
CELL = 200  # the side in pixels of the square for a result
GAP = 20
MARGIN = 40
HEADER = 156
TITLE = 56  # the height of a section's title
CAPTION = 24 + 3 * 18 + 26  # of a result's title and its caption of three lines
NETWORK_WIDTH = 400
ROWS_OF_SAMPLES = 3

NETWORK = ("Handwritten digits", "by an ONNX network")

Shown = tuple[PanelResult, PanelPicture]


def draw_sheet(
    photo: np.ndarray,
    measurements: list[PanelResult],
    reading: Reading | str,
    device: str,
    path: Path,
    palette: Palette = LIGHT,
) -> None:
    """Write the contact sheet as a PNG: the operators, and the network in a column at the right.

    photo: the demo's input, {H,W,3} UINT8.
    measurements: the panels' results, in the order of the panels.
    reading: what the network made of the digits, or the reason why it did not run.
    device: the device's name and driver, for the heading.
    path: the PNG file. If the name has another picture format's extension, the picture has that format.
    palette: the colours, those of a light page by default.
    """
    from PIL import Image

    sections: dict[str, list[Shown]] = {}
    for measurement in measurements:
        views = [(measurement, view) for view in measurement.panel.views]
        sections.setdefault(measurement.operator, []).extend(views)
    places, rows = _places({name: len(section) for name, section in sections.items()})

    network = _network(reading, palette)
    left = MARGIN + COLUMNS * (CELL + GAP) + 2 * GAP
    height = max(HEADER + rows * (TITLE + CELL + CAPTION), MARGIN + network.height) + MARGIN // 2
    sheet = Image.new("RGB", (left + NETWORK_WIDTH + MARGIN, height), palette.paper)
    _draw_header(sheet, photo, measurements, device, palette)
    for name, section in sections.items():
        _draw_section(sheet, name, section, *places[name], palette)
    sheet.paste(network, (left, MARGIN))
    content = io.BytesIO()
    sheet.save(content, picture_format(path), optimize=True)
    files.write_bytes(path, content.getvalue())


def _places(counts: Mapping[str, int]) -> tuple[dict[str, tuple[int, int]], int]:
    """The row and column of each section's first result, and the number of rows. Short sections share a row."""
    places, row, column = {}, 0, 0
    for name, count in counts.items():
        if column and column + count > COLUMNS:
            row, column = row + 1, 0
        places[name] = row, column
        row, column = row + (column + count - 1) // COLUMNS, (column + count - 1) % COLUMNS + 1
    return places, row + 1


def _draw_header(
    sheet: Image.Image, photo: np.ndarray, measurements: list[PanelResult], device: str, palette: Palette
) -> None:
    from PIL import ImageDraw

    draw = ImageDraw.Draw(sheet)
    side = HEADER - 2 * 24
    _paste(sheet, photo, (MARGIN, MARGIN), side, palette)
    left = MARGIN + side + GAP
    height, width, channels = photo.shape
    correct = sum(measurement.correct for measurement in measurements)
    draw.text((left, MARGIN - 12), "dmlvk", palette.ink, font(46))
    heading = "DirectML's operators as Vulkan compute kernels, on a photograph"
    draw.text((left + 166, MARGIN + 10), heading, palette.ink, font(22))
    text = f"Input: UINT8 {{{height}, {width}, {channels}}} (NASA). Device: {device}"
    draw.text((left, MARGIN + 50), text, palette.faint, font(18))
    verdict = f"{correct} of {len(measurements)} results equal the NumPy reference bit for bit"
    colour = palette.right if correct == len(measurements) else palette.wrong
    draw.text((left, MARGIN + 80), verdict, colour, font(22))


def _draw_section(sheet: Image.Image, name: str, section: list[Shown], row: int, column: int, palette: Palette) -> None:
    """Draw an operator's name and its results, from a row and column on."""
    from PIL import ImageDraw

    draw = ImageDraw.Draw(sheet)
    for number, (measurement, view) in enumerate(section, column):
        down, across = divmod(number, COLUMNS)
        x = MARGIN + across * (CELL + GAP)
        y = HEADER + (row + down) * (TITLE + CELL + CAPTION)
        if number == column:
            right = MARGIN + min(column + len(section), COLUMNS) * (CELL + GAP) - GAP
            _draw_title(draw, (name, SENTENCES.get(name, "")), (x, y), right, palette)
        y += TITLE
        _paste(sheet, view.picture(measurement.result), (x, y), CELL, palette)
        draw.text((x, y + CELL + 8), view.title, palette.ink if measurement.correct else palette.wrong, font(14))
        draw.multiline_text((x, y + CELL + 30), view.caption, palette.faint, font(13), spacing=4)


def _draw_title(
    draw: ImageDraw.ImageDraw, title: tuple[str, str], corner: tuple[int, int], right: int, palette: Palette
) -> None:
    """Draw a rule up to the right edge, and below it a name and a sentence."""
    x, y = corner
    name, sentence = title
    draw.line((x, y, right, y), palette.rule, 2)
    draw.text((x, y + 14), name, palette.ink, font(23))
    draw.text((x + draw.textlength(name, font(23)) + 14, y + 21), sentence, palette.faint, font(15))


def _network(reading: Reading | str, palette: Palette) -> Image.Image:
    """The column of the network, or of the reason why it did not run."""
    from PIL import Image, ImageDraw

    if isinstance(reading, Reading):
        digits = draw_digits(reading, NETWORK_WIDTH, ROWS_OF_SAMPLES, palette=palette)
    else:
        digits = draw_lines([(f"Not run: {reading}", palette.faint)], NETWORK_WIDTH, palette)
    column = Image.new("RGB", (NETWORK_WIDTH, TITLE + digits.height), palette.paper)
    _draw_title(ImageDraw.Draw(column), NETWORK, (0, 0), NETWORK_WIDTH, palette)
    column.paste(digits, (0, TITLE))
    return column


def picture_format(path: Path) -> str:
    """The format of a picture of this name: PNG of "sheet.png".

    Raises FileError: no picture can be written under this name.
    Raises DeviceError: pillow is not installed.
    """
    require_pillow()
    from PIL import Image

    name = Image.registered_extensions().get(path.suffix.lower(), "")
    try:
        Image.new("RGB", (1, 1)).save(io.BytesIO(), name)
    except Exception as error:  # a format that is only read says so in its own way
        raise files.FileError(f"{path}: no picture can be written under this name; name it {path.stem}.png") from error
    return name


def _paste(sheet: Image.Image, picture: np.ndarray, corner: tuple[int, int], side: int, palette: Palette) -> None:
    """Put a picture in the middle of a square: reduced to fit, or enlarged by a whole number to keep pixels square."""
    from PIL import Image

    image = Image.fromarray(np.ascontiguousarray(picture))
    longest = max(image.size)
    if longest > side:
        size = (max(1, image.width * side // longest), max(1, image.height * side // longest))
        image = image.resize(size, Image.Resampling.LANCZOS)
    else:
        factor = side // longest
        image = image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)
    x, y = corner
    sheet.paste(palette.backing, (x, y, x + side, y + side))
    sheet.paste(image, (x + (side - image.width) // 2, y + (side - image.height) // 2))
