"""Draws the demo's contact sheet with Pillow: the photograph, a section for each operator, and one of the network."""

from __future__ import annotations

import io
import textwrap
from pathlib import Path

import numpy as np

from dmlvk import files
from dmlvk.demo.digits import Reading
from dmlvk.demo.grid import draw_digits
from dmlvk.demo.measure import Measurement
from dmlvk.demo.palette import BACKING, FAINT, INK, PAPER, RIGHT, RULE, WRONG, font
from dmlvk.demo.panels import SENTENCES, View

COLUMNS = 4
CELL = 256  # the side in pixels of the square for a result
GAP = 28
MARGIN = 48
TITLE = 74  # the height of a section's title
LINE, CHARACTERS = 26, 110  # of a text over the whole width

NETWORK = ("Handwritten digits", "an ONNX network of 8-bit integers; below each picture is the network's answer")


def draw_sheet(
    photo: np.ndarray, measurements: list[Measurement], reading: Reading | str, device: str, path: Path
) -> None:
    """Write the contact sheet as a PNG.

    Parameters
    ----------
    photo : np.ndarray
        The demo's input, {H,W,3} UINT8.
    measurements : list of Measurement
        The panels' results, in the order of the panels.
    reading : Reading or str
        What the network made of the digits, or the reason why it did not run.
    device : str
        The device's name and driver, for the heading.
    path : Path
        The PNG file. If the name has another picture format's extension, the picture has that format.
    """
    from PIL import Image, ImageDraw

    sections: dict[str, list[tuple[Measurement, View]]] = {}
    for measurement in measurements:
        views = [(measurement, view) for view in measurement.panel.views]
        sections.setdefault(measurement.operator, []).extend(views)

    caption_lines = 3
    cell_height = CELL + 12 + 24 + caption_lines * 19 + 30
    width = 2 * MARGIN + COLUMNS * CELL + (COLUMNS - 1) * GAP
    heights = [TITLE + -(-len(section) // COLUMNS) * cell_height for section in sections.values()]
    digits = draw_digits(reading, width - 2 * MARGIN) if isinstance(reading, Reading) else None
    reason = [] if isinstance(reading, Reading) else textwrap.wrap(f"Not run: {reading}", CHARACTERS)
    last = TITLE + (14 + LINE * len(reason) if digits is None else digits.height)
    header = 2 * MARGIN + CELL
    sheet = Image.new("RGB", (width, header + sum(heights) + last + MARGIN // 2), PAPER)
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

    def title(name: str, sentence: str) -> None:
        draw.line((MARGIN, top, width - MARGIN, top), RULE, 2)
        draw.text((MARGIN, top + 16), name, INK, font(28))
        name_width = draw.textlength(name, font(28))
        draw.text((MARGIN + name_width + 18, top + 24), sentence, FAINT, font(19))

    top = header
    for (operator, section), section_height in zip(sections.items(), heights, strict=True):
        title(operator, SENTENCES.get(operator, ""))
        for number, (measurement, view) in enumerate(section):
            row, column = divmod(number, COLUMNS)
            x = MARGIN + column * (CELL + GAP)
            y = top + TITLE + row * cell_height
            _paste(sheet, view.picture(measurement.result), (x, y))
            y += CELL + 10
            draw.text((x, y), view.title, INK if measurement.correct else WRONG, font(17))
            draw.multiline_text((x, y + 25), view.caption, FAINT, font(15), spacing=4)
        top += section_height
    title(*NETWORK)
    if digits is None:
        for number, line in enumerate(reason):
            draw.text((MARGIN, top + TITLE + number * LINE), line, FAINT, font(19))
    else:
        sheet.paste(digits, (MARGIN, top + TITLE))
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
