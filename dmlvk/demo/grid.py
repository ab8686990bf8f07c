"""Draws what a network makes of digits: the figures, some pictures with their answers, and all that it gets wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from dmlvk.demo.digits import MOST_INK, Reading
from dmlvk.demo.palette import LIGHT, Palette, font

if TYPE_CHECKING:
    from PIL import Image

SIDE = 64  # of a digit, in pixels
LEAST_GAP = 16
ROWS_OF_SAMPLES = 2
LETTERS = 19
LINE, HEADING, BELOW = 30, 36, 60  # the heights of a line of text, a row's heading, and an answer


def draw_digits(
    reading: Reading, width: int, rows_of_samples: int = ROWS_OF_SAMPLES, *, palette: Palette = LIGHT
) -> Image.Image:
    """The picture of a reading.

    width: pixels; the height follows from the number of wrong answers.
    rows_of_samples: how many rows of pictures stand above those that are read wrong.
    palette: the colours, those of a light page by default.
    """
    from PIL import Image, ImageDraw

    columns = (width + LEAST_GAP) // (SIDE + LEAST_GAP)
    wrong = np.flatnonzero(reading.answers != reading.labels)
    samples = np.arange(min(rows_of_samples * columns, len(reading.pictures)))
    parts = [(f"The first {len(samples)} of the pictures", samples)]
    if wrong.size:
        parts.append((f"All {wrong.size} that it reads wrong", wrong))
    lines = draw_lines(_lines(reading, palette), width, palette)
    heights = [HEADING + -(-len(chosen) // columns) * (SIDE + BELOW) for _, chosen in parts]
    image = Image.new("RGB", (width, lines.height + sum(heights)), palette.paper)
    image.paste(lines, (0, 0))
    draw = ImageDraw.Draw(image)
    top = lines.height
    for (heading, chosen), height in zip(parts, heights, strict=True):
        draw.text((0, top + 6), heading, palette.ink, font(17))
        _draw_rows(image, reading, chosen, (columns, top + HEADING), palette)
        top += height
    return image


def draw_lines(lines: Sequence[tuple[str, str]], width: int, palette: Palette) -> Image.Image:
    """Texts with their colours below each other, each broken into as many lines as the width asks for."""
    from PIL import Image, ImageDraw

    measure = ImageDraw.Draw(Image.new("RGB", (1, 1)))
    broken: list[tuple[str, str]] = []
    for text, colour in lines:
        line = ""
        for word in text.split():
            if line and measure.textlength(f"{line} {word}", font(LETTERS)) > width:
                broken.append((line, colour))
                line = word
            else:
                line = f"{line} {word}".strip()
        broken.append((line, colour))
    image = Image.new("RGB", (width, LINE * len(broken)), palette.paper)
    draw = ImageDraw.Draw(image)
    for number, (line, colour) in enumerate(broken):
        draw.text((0, LINE * number), line, colour, font(LETTERS))
    return image


def _lines(reading: Reading, palette: Palette) -> list[tuple[str, str]]:
    equal = len(reading.values) - len(reading.different)
    places = {place: [row.op_type for row in reading.placement if row.where in place] for place in PLACES}
    return [
        (f"{reading.accuracy} of the pictures are read right; the training has not seen them", palette.ink),
        (
            f"{equal} of {len(reading.values)} values of the run equal ONNX Runtime's bit for bit",
            palette.wrong if reading.different else palette.right,
        ),
        ("; ".join(f"{PLACES[place]}: {_counted(names)}" for place, names in places.items() if names), palette.faint),
    ]


PLACES = {("device", "view"): "On the device", ("host",): "on the host"}


def _counted(names: Sequence[str]) -> str:
    counts = {name: names.count(name) for name in names}
    return ", ".join(f"{count} {name}" if count > 1 else name for name, count in counts.items())


def _draw_rows(
    image: Image.Image, reading: Reading, chosen: np.ndarray, place: tuple[int, int], palette: Palette
) -> None:
    """Draw digits from the left to the right, in this many columns from a height on, with the answers below them."""
    from PIL import Image, ImageDraw

    draw = ImageDraw.Draw(image)
    columns, top = place
    blank, stroke = (np.array(_components(colour)) for colour in (palette.backing, palette.ink))
    for index, number in enumerate(chosen):
        row, column = divmod(index, columns)
        x = column * (image.width - SIDE) // max(columns - 1, 1)
        y = top + row * (SIDE + BELOW)
        share = reading.pictures[number][..., None] / MOST_INK
        digit = Image.fromarray(np.rint(blank + (stroke - blank) * share).astype(np.uint8))
        image.paste(digit.resize((SIDE, SIDE), Image.Resampling.NEAREST), (x, y))
        answer, label = int(reading.answers[number]), int(reading.labels[number])
        middle = x + SIDE // 2
        colour = palette.right if answer == label else palette.wrong
        draw.text((middle, y + SIDE + 4), str(answer), colour, font(19), anchor="ma")
        if answer != label:
            draw.text((middle, y + SIDE + 28), f"it is {label}", palette.faint, font(14), anchor="ma")


def _components(colour: str) -> tuple[int, int, int]:
    from PIL import ImageColor

    red, green, blue = ImageColor.getrgb(colour)[:3]
    return red, green, blue
