"""Pictures of random text, some of them upside down, in the form in which PP-OCR's networks take them."""

from __future__ import annotations

import string

import numpy as np
from PIL import Image, ImageDraw, ImageFont

LETTERS = np.array(list(string.ascii_letters + string.digits + " .,"))
LINE = 48  # the height of a line, in pixels


def text_pictures(generator: np.random.Generator, count: int, height: int, width: int) -> np.ndarray:
    """FLOAT32 {count,3,height,width}, from -1 to 1."""
    pictures = []
    for _ in range(count):
        paper, letters = generator.integers(150, 256, 3), generator.integers(0, 110, 3)
        picture = Image.new("RGB", (width, height), tuple(int(part) for part in paper))
        draw = ImageDraw.Draw(picture)
        for top in range(0, height, LINE):
            corner = int(generator.integers(0, 10)), top + int(generator.integers(0, 6))
            words = "".join(generator.choice(LETTERS, 40))
            font = ImageFont.load_default(int(generator.integers(26, 40)))
            draw.text(corner, words, tuple(int(part) for part in letters), font)
        if generator.random() < 0.5:
            picture = picture.transpose(Image.Transpose.ROTATE_180)
        pictures.append(np.asarray(picture, np.float32))
    return (np.stack(pictures).transpose(0, 3, 1, 2) / np.float32(127.5) - 1).astype(np.float32)
