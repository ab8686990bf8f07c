"""Draws the demo's contact sheet with Pillow: the photograph, then a section of results for each operator."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from dmlvk import files
from dmlvk.demo.measure import Measurement
from dmlvk.demo.panels import SENTENCES, View

COLUMNS = 4
CELL = 256  # the side in pixels of the square for a result
GAP = 28
MARGIN = 48

PAPER, INK, FAINT, RULE, BACKING = "#fbfaf7", "#1d1d1f", "#6b6b70", "#d9d6ce", "#efece4"
RIGHT, WRONG = "#2f7d4f", "#b3261e"


def draw_sheet(photo: np.ndarray, measurements: list[Measurement], device: str, path: Path) -> None:
    """Write the contact sheet as a PNG.

    Parameters
    ----------
    photo : np.ndarray
        The demo's input, {H,W,3} UINT8.
    measurements : list of Measurement
        The panels' results, in the order of the panels.
    device : str
        The device's name and driver, for the heading.
    path : Path
        The PNG file. If the name has another picture format's extension, the picture has that format.
    """
    from PIL import Image, ImageDraw, ImageFont

    def font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
        return ImageFont.load_default(size)

    sections: dict[str, list[tuple[Measurement, View]]] = {}
    for measurement in measurements:
        views = [(measurement, view) for view in measurement.panel.views]
        sections.setdefault(measurement.operator, []).extend(views)

    caption_lines = 3
    cell_height = CELL + 12 + 24 + caption_lines * 19 + 30
    width = 2 * MARGIN + COLUMNS * CELL + (COLUMNS - 1) * GAP
    heights = [74 + -(-len(section) // COLUMNS) * cell_height for section in sections.values()]
    header = 2 * MARGIN + CELL
    sheet = Image.new("RGB", (width, header + sum(heights) + MARGIN // 2), PAPER)
    draw = ImageDraw.Draw(sheet)

    _paste(sheet, photo, (MARGIN, MARGIN))
    left = MARGIN + CELL + GAP
    height, width_of_photo, channels = photo.shape
    correct = sum(measurement.correct for measurement in measurements)
    draw.text((left, MARGIN - 8), "dmlvk", INK, font(56))
    draw.text((left, MARGIN + 64), "DirectML's operators as Vulkan compute kernels, on a photograph", INK, font(22))
    draw.text((left, MARGIN + 108), f"Input: UINT8 {{{height}, {width_of_photo}, {channels}}} (NASA)", FAINT, font(18))
    draw.text((left, MARGIN + 136), f"Device: {device}", FAINT, font(18))
    verdict = f"{correct} of {len(measurements)} results equal the NumPy reference bit for bit"
    draw.text((left, MARGIN + 180), verdict, RIGHT if correct == len(measurements) else WRONG, font(22))

    top = header
    for (operator, section), section_height in zip(sections.items(), heights, strict=True):
        draw.line((MARGIN, top, width - MARGIN, top), RULE, 2)
        draw.text((MARGIN, top + 16), operator, INK, font(28))
        name_width = draw.textlength(operator, font(28))
        draw.text((MARGIN + name_width + 18, top + 24), SENTENCES.get(operator, ""), FAINT, font(19))
        for number, (measurement, view) in enumerate(section):
            row, column = divmod(number, COLUMNS)
            x = MARGIN + column * (CELL + GAP)
            y = top + 74 + row * cell_height
            _paste(sheet, view.picture(measurement.result), (x, y))
            y += CELL + 10
            draw.text((x, y), view.title, INK if measurement.correct else WRONG, font(17))
            draw.multiline_text((x, y + 25), view.caption, FAINT, font(15), spacing=4)
        top += section_height
    content = io.BytesIO()
    sheet.save(content, picture_format(path), optimize=True)
    files.write_bytes(path, content.getvalue())


def picture_format(path: Path) -> str:
    """The format of a picture of this name: PNG of "sheet.png".

    Raises
    ------
    FileError
        No picture can be written under this name.
    """
    from PIL import Image

    name = Image.registered_extensions().get(path.suffix.lower(), "")
    try:
        Image.new("RGB", (1, 1)).save(io.BytesIO(), name)
    except Exception as error:  # a format that is only read says so in its own way
        raise files.FileError(f"{path}: no picture can be written under this name; name it {path.stem}.png") from error
    return name


def _paste(sheet: object, picture: np.ndarray, corner: tuple[int, int]) -> None:
    """Put a picture in the middle of a cell: reduced to fit, or enlarged by a whole number to keep pixels square."""
    from PIL import Image

    assert isinstance(sheet, Image.Image)
    image = Image.fromarray(np.ascontiguousarray(picture))
    longest = max(image.size)
    if longest > CELL:
        size = (max(1, image.width * CELL // longest), max(1, image.height * CELL // longest))
        image = image.resize(size, Image.Resampling.LANCZOS)
    else:
        factor = CELL // longest
        image = image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)
    x, y = corner
    sheet.paste(BACKING, (x, y, x + CELL, y + CELL))
    sheet.paste(image, (x + (CELL - image.width) // 2, y + (CELL - image.height) // 2))
