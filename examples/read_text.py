"""Reads the text in a photograph with three published networks, PP-OCR's, which it quantizes on the way.

    python -m tools.models                               # gets the networks and a photograph of a printed page, once
    python -m examples.read_text --output read_text.png

1. `detection` says for each pixel whether it belongs to text. Each connected group of such pixels is a line.
2. `direction` says of each line whether it stands on its head.
3. `recognition` says for each column of a line which character is there.

`dmlvk.onnx.quantize` makes integers of the networks. The ranges of their values come from pages of random words, which
go through the networks in floats; the photograph is not among them. Then the photograph is read on the device, and by
ONNX Runtime's CPU provider with the same quantized networks, and the frames a second of both are printed. It ends with
status 1 if the words that the device reads are not those of the page. Needs the extras `onnx` and `demo`.
"""

from __future__ import annotations

import difflib
import io
import string
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import networkx
import numpy as np

import dmlvk
import dmlvk.onnx
from dmlvk._common import files
from dmlvk.command_line.terminal import clear_errors
from dmlvk.demo import picture_format
from tools import models

if TYPE_CHECKING:
    from PIL import Image

# What is printed on the page. Its last line is cut by the photograph's edge.
PRINTED = [
    "Region-based segmentation",
    "Let us first determine markers of the coins and the",
    "background. These markers are pixels that we can label",
    "unambiguously as either object or background. Here,",
    "the markers are found at the two extreme parts of the",
    "histogram of grey values:",
    ">>> markers = np.zeros_like(coins)",
]
# How much of the text must be right: of all characters printed and read, spaces aside.
LEAST_SHARE = 0.9

ENLARGEMENT = 2  # of the photograph, whose letters are 9 pixels high
LINE_HEIGHT = 48
LINE_WIDTHS = 64  # widths of lines are multiples of this, so that few sizes are compiled
DIRECTION_WIDTH = 192
IS_TEXT, IS_A_LINE, IS_TURNED = 0.3, 0.5, 0.9  # probabilities
# The network marks the core of a line. The line is larger on each side by this factor of the core's height.
MARGIN = 0.8

BOX, PAPER, INK = (226, 87, 30), (24, 28, 36), (235, 238, 242)

# From a network's input to its output.
Network = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Line:
    """A line of text in a picture.

    Attributes:
        corners (ndarray): {4,2}, as x and y: upper left, lower left, lower right, upper right.
        text (str):
    """

    corners: np.ndarray
    text: str = ""


@dataclass(frozen=True)
class Reader:
    """The three networks, and the characters that the last one knows."""

    detection: Network
    direction: Network
    recognition: Network
    characters: list[str]

    def __call__(self, picture: Image.Image) -> list[Line]:
        """The lines of text in a picture, from the top to the bottom."""
        height, width = (-(-side // 32) * 32 for side in (picture.height, picture.width))
        planes = as_planes(picture.resize((width, height)))
        scale = np.array([picture.width / width, picture.height / height])
        places = [corners * scale for corners in lines_of(self.detection(planes)[0, 0])]
        if not places:
            return []
        pieces = [cut_out(picture, corners) for corners in places]
        # The network knows short lines, so it is asked about both ends of each.
        ends = [in_a_line(end, DIRECTION_WIDTH) for piece in pieces for end in ends_of(piece)]
        answers = self.direction(np.concatenate(ends))
        turned = answers[:, 1].reshape(-1, 2).min(axis=1) > IS_TURNED
        pieces = [piece.rotate(180) if is_turned else piece for piece, is_turned in zip(pieces, turned, strict=True)]
        widest = -(-max(piece.width for piece in pieces) // LINE_WIDTHS) * LINE_WIDTHS
        columns = self.recognition(np.concatenate([in_a_line(piece, widest) for piece in pieces]))
        texts = [self._text(best) for best in columns.argmax(axis=2)]
        return [Line(corners, text) for corners, text in zip(places, texts, strict=True) if text]

    def _text(self, best: np.ndarray) -> str:
        """What the columns of a line say: one character each, 0 for none; the same again is the same character."""
        changes = np.flatnonzero(np.diff(best, prepend=0))
        return "".join(self.characters[number] for number in best[changes] if number).strip()


def ends_of(piece: Image.Image) -> tuple[Image.Image, Image.Image]:
    """The first and the last columns of a piece, at most DIRECTION_WIDTH."""
    width = min(piece.width, DIRECTION_WIDTH)
    return piece.crop((0, 0, width, LINE_HEIGHT)), piece.crop((piece.width - width, 0, piece.width, LINE_HEIGHT))


def as_planes(picture: Image.Image) -> np.ndarray:
    """FLOAT32 {1,3,height,width} from -1 to 1, blue first."""
    pixels = np.asarray(picture.convert("RGB"), np.float32)[..., ::-1]
    return np.ascontiguousarray(pixels.transpose(2, 0, 1)[None] / np.float32(127.5) - np.float32(1))


def in_a_line(piece: Image.Image, width: int) -> np.ndarray:
    """A piece at the left of FLOAT32 {1,3,LINE_HEIGHT,width}; 0 beside it."""
    planes = as_planes(piece)
    return np.pad(planes, [(0, 0), (0, 0), (0, 0), (0, width - planes.shape[3])])


def lines_of(probabilities: np.ndarray) -> list[np.ndarray]:
    """The corners of the lines of text in a picture of probabilities {H,W}, from the top to the bottom."""
    text = np.pad(probabilities > IS_TEXT, 1)[1:-1]
    steps = np.diff(text.astype(np.int8), axis=1)
    rows, starts = np.nonzero(steps == 1)
    ends = np.nonzero(steps == -1)[1]
    touching = networkx.Graph()
    touching.add_nodes_from(range(len(rows)))
    first = np.searchsorted(rows, np.arange(len(text) + 1))
    for row in range(1, len(text)):
        for lower in range(first[row], first[row + 1]):
            for upper in range(first[row - 1], first[row]):
                if starts[lower] < ends[upper] and starts[upper] < ends[lower]:
                    touching.add_edge(lower, upper)
    found = []
    for group in networkx.connected_components(touching):
        runs = sorted(group)
        x = np.concatenate([np.arange(starts[run], ends[run]) for run in runs])
        y = np.repeat(rows[runs], ends[runs] - starts[runs])
        if probabilities[y, x].mean() > IS_A_LINE and np.ptp(y) > 2 and np.ptp(x) > 2:
            found.append(corners_of(x, y))
    return sorted(found, key=lambda corners: float(corners[:, 1].mean()))


def corners_of(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The corners of the turned rectangle around pixels, with its margin."""
    slope = np.polyfit(x, y, 1)[0] if np.ptp(x) > np.ptp(y) else 0.0
    along = np.array([1.0, slope]) / np.hypot(1, slope)
    across = np.array([-along[1], along[0]])
    pixels = np.stack([x + 0.5, y + 0.5], axis=1)
    left, right = (pixels @ along).min(), (pixels @ along).max()
    top, bottom = (pixels @ across).min(), (pixels @ across).max()
    margin = MARGIN * (bottom - top)
    sides = [(left - margin, top - margin), (left - margin, bottom + margin)]
    sides += [(right + margin, bottom + margin), (right + margin, top - margin)]
    return np.array([a * along + b * across for a, b in sides])


def cut_out(picture: Image.Image, corners: np.ndarray) -> Image.Image:
    """The rectangle between four corners, LINE_HEIGHT high; taller than wide ones lie on their side."""
    from PIL import Image

    width, height = (float(np.hypot(*(corners[end] - corners[0]))) for end in (3, 1))
    size = max(8, round(width / height * LINE_HEIGHT)), LINE_HEIGHT
    return picture.transform(size, Image.Transform.QUAD, corners.ravel().tolist(), Image.Resampling.BICUBIC)


def pages(count: int) -> Iterator[Image.Image]:
    """Pages of random words on uneven paper, some turned a little, which show the networks' ranges."""
    from PIL import Image, ImageDraw, ImageFont

    generator = np.random.default_rng(0)
    letters = list(string.ascii_letters + string.ascii_lowercase * 3 + string.digits + ".,:->=_()")
    for _ in range(count):
        width, height = 768, 384
        light = np.add.outer(np.linspace(0, generator.integers(0, 90), height), np.linspace(0, 40, width))
        paper = generator.integers(225, 256, 3) - light[..., None]
        page = Image.fromarray(paper.clip(0, 255).astype(np.uint8))
        draw = ImageDraw.Draw(page)
        top = 20
        while top < height - 50:
            size = int(generator.integers(18, 36))
            words = ["".join(generator.choice(letters, generator.integers(1, 11))) for _ in range(9)]
            ink = tuple(int(part) for part in generator.integers(0, 90, 3))
            draw.text((20, top), " ".join(words)[: int(generator.integers(10, 54))], ink, ImageFont.load_default(size))
            top += int(size * 1.7)
        yield page.rotate(float(generator.uniform(-3, 3)), Image.Resampling.BICUBIC, fillcolor=(200, 200, 200))


def characters_of(path: Path) -> list[str]:
    """The characters that the recognition knows, from its file. The first stands for none, the last is a space."""
    import onnx

    (entry,) = (each for each in onnx.load(path).metadata_props if each.key == "character")
    return ["", *entry.value.splitlines(), " "]


def network(session: Any, feeds: list[dict[str, np.ndarray]] | None = None) -> Network:
    """A session with one input and one output as a function, which appends what it is given to `feeds`."""
    (source,) = session.get_inputs()

    def run(planes: np.ndarray) -> np.ndarray:
        if feeds is not None:
            feeds.append({source.name: planes})
        result: np.ndarray = session.run(None, {source.name: planes})[0]
        return result

    return run


def quantized_networks(folder: Path, count: int, device: dmlvk.Device) -> dict[str, bytes]:
    """The networks of a folder, quantized with what they meet as pages are read in floats.

    Weights have 7 bits, so that ONNX Runtime's sums are exact on every processor.
    """
    paths = {name: folder / models.NETWORKS[name] for name in models.NETWORKS}
    met: dict[str, list[dict[str, np.ndarray]]] = {name: [] for name in paths}
    floats = {name: network(dmlvk.onnx.InferenceSession(path, device), met[name]) for name, path in paths.items()}
    reader = Reader(**floats, characters=characters_of(paths["recognition"]))
    for page in pages(count):
        reader(page)
    return {
        name: dmlvk.onnx.quantize(path, met[name], weight_bits=7).SerializeToString() for name, path in paths.items()
    }


def share_read(lines: list[Line]) -> float:
    """The share of the printed and the read characters that agree, in their order. Spaces do not count."""
    printed, read = ("".join("".join(texts).split()) for texts in (PRINTED, [line.text for line in lines]))
    return difflib.SequenceMatcher(None, printed, read, autojunk=False).ratio()


def drawn(picture: Image.Image, lines: list[Line]) -> Image.Image:
    """The picture with a box around each line, and below it the words where they were read."""
    from PIL import Image, ImageDraw, ImageFont

    sheet = Image.new("RGB", (picture.width, 2 * picture.height), PAPER)
    sheet.paste(picture)
    draw = ImageDraw.Draw(sheet)
    for line in lines:
        draw.polygon([tuple(corner) for corner in line.corners.tolist()], outline=BOX, width=3)
        width, height = (float(np.hypot(*(line.corners[end] - line.corners[0]))) for end in (3, 1))
        trial = ImageFont.load_default(100)
        size = min(0.8 * height, 100 * 0.95 * width / draw.textlength(line.text, trial))
        left, middle = line.corners[:2].mean(axis=0)
        place = max(0.0, left) + 0.03 * width, middle + picture.height
        draw.text(place, line.text, INK, ImageFont.load_default(size), anchor="lm")
    return sheet


def frames_a_second(reader: Reader, picture: Image.Image, frames: int) -> float:
    """How many times a second a picture is read, from the picture to the words."""
    reader(picture)
    start = time.perf_counter()
    for _ in range(frames):
        reader(picture)
    return frames / (time.perf_counter() - start)


@click.command()
@click.option("--device", "selector", default=None, help="Index or part of a name; else $DMLVK_DEVICE, else the best.")
@click.option("--models", "folder", type=click.Path(path_type=Path), default=models.MODELS, help="Of tools.models.")
@click.option("--pages", "count", type=click.IntRange(1), default=8, show_default=True, help="That show the ranges.")
@click.option("--frames", type=click.IntRange(1), default=10, show_default=True, help="Number of readings.")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="A picture of the words, a PNG.")
@clear_errors
def main(selector: str | None, folder: Path, count: int, frames: int, output: Path | None) -> None:
    """Read the text in a photograph on a device. Ends with status 1 if the words are not those of the page."""
    if missing := models.missing(folder):
        raise click.ClickException(f"{folder} lacks {', '.join(missing)}: python -m tools.models")
    try:
        import onnxruntime
        from PIL import Image
    except ImportError as error:
        raise click.ClickException(f"{error}: pip install 'dmlvk[onnx,demo]'") from error
    kind = ""
    if output is not None:
        files.require_place(output)
        kind = picture_format(output)
    photograph = Image.open(folder / models.PHOTOGRAPH).convert("RGB")
    picture = photograph.resize((photograph.width * ENLARGEMENT, photograph.height * ENLARGEMENT))
    click.echo(f"Quantizing {', '.join(models.NETWORKS)} with {count} pages of random words")
    characters = characters_of(folder / models.NETWORKS["recognition"])
    with dmlvk.Device(selector) as device:
        networks = quantized_networks(folder, count, device)
        sessions = {name: dmlvk.onnx.InferenceSession(model, device) for name, model in networks.items()}
        reader = Reader(**{name: network(session) for name, session in sessions.items()}, characters=characters)
        lines = reader(picture)
        for line in lines:
            click.echo(f"  {line.text}")
        share = share_read(lines)
        click.echo(f"{100 * share:.1f}% of the page's characters were read")
        for name, session in sessions.items():
            places = [row.where for row in session.placement]
            click.echo(f"{name}: {len(places) - places.count('host')} of {len(places)} nodes on the device")
        peers = {
            name: network(onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]))
            for name, model in networks.items()
        }
        own, peer = (
            frames_a_second(each, picture, frames) for each in (reader, Reader(**peers, characters=characters))
        )
        click.echo(f"Frames a second: {own:.2f} by dmlvk on {device.name}, {peer:.2f} by ONNX Runtime on the CPU")
        if device.profile.device_type is dmlvk.DeviceType.CPU:
            click.echo("This device is a driver on the CPU, which is for tests: ONNX Runtime is faster on a CPU")
    if output is not None:
        content = io.BytesIO()
        drawn(picture, lines).save(content, kind)
        files.write_bytes(output, content.getvalue())
        click.echo(f"Picture: {output}")
    if share < LEAST_SHARE:
        raise click.ClickException(f"less than {LEAST_SHARE:.0%} of the page's characters were read")


if __name__ == "__main__":
    main()
