"""Files that resources are read from, and files that they are written to: .npy, pictures, raw bytes."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk._common import files
from dmlvk.data_type import DataType
from dmlvk.dxdispatch.document import DocumentNode

Array = npt.NDArray[Any]

PICTURES = (".png", ".jpg")
CHANNEL_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
PIXEL_TYPES = (DataType.FLOAT32, DataType.FLOAT16)
# Of Pillow's formats, some are programs, which it runs: a name's extension says nothing.
PICTURE_FORMATS = ("PNG", "JPEG")
ALLOW = "--allow-path FOLDER, in Python allow_paths of dmlvk.dxdispatch.load, allows another folder"
INSIDE = f"a file in the model's folder or in the working directory, where links lead too; {ALLOW}"


def kind_of(path: str | Path) -> str:
    """ ".npy", ".png", ".jpg", or "" for raw bytes: the extension in lower case."""
    extension = Path(path).suffix.lower()
    return extension if extension == ".npy" or extension in PICTURES else ""


def path_name(node: DocumentNode) -> str:
    """A path that a model has as text, with this system's separators."""
    name = node.text("a path")
    if not name or "\0" in name:
        node.fail("must be a path")
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        node.fail("is no path: it has half a surrogate pair")
    # A model that was written on Windows may have its separators.
    return name if os.sep == "\\" else name.replace("\\", "/")


def resolved(node: DocumentNode) -> Path:
    """The file that a model names: beside the model, else in the working directory."""
    beside = Path(node.file).parent / path_name(node)
    return beside if os.path.exists(beside) else Path(node.text())


def readable_folders(node: DocumentNode, allowed: Sequence[Path]) -> list[Path]:
    """The folders in which a model's files may be."""
    return [Path(node.file).parent, Path(), *allowed]


def read_npy(node: DocumentNode, path: Path, folders: Sequence[Path]) -> Array:
    """The elements of a .npy file in one dimension. Bools become UINT8.

    Raises ModelError.
    """
    with _named(node):
        array = files.read_npy(path, None, within=folders)
    if not array.flags.c_contiguous:
        node.fail(f"{path} is in Fortran's order", "C order: numpy.save(path, numpy.ascontiguousarray(array))")
    if array.dtype == np.bool_:
        array = array.view(np.uint8)
    try:
        data_type = DataType.from_numpy(array.dtype)
    except TypeError as error:
        node.fail(f"{path}: {error}")
    return array.astype(data_type.numpy_dtype, copy=False).reshape(-1)


def read_raw(node: DocumentNode, path: Path, folders: Sequence[Path]) -> bytes:
    """The bytes of a file of any size, in one of the folders.

    Raises ModelError.
    """
    with _named(node):
        return files.read_bytes(path, None, within=folders)


@contextmanager
def _named(node: DocumentNode) -> Iterator[None]:
    """Raise an error of a file as the error of the model that names it."""
    try:
        yield
    except files.OutsideError as error:
        node.fail(f"the file cannot be read: {error}", INSIDE)
    except OSError as error:
        node.fail(f"the file cannot be read: {error}", "a file beside the model or in the working directory")


def read_picture(
    node: DocumentNode, path: Path, folders: Sequence[Path], data_type: DataType | None, sizes: Sequence[int], mode: str
) -> Array:
    """A picture as elements from 0 to 1, channel by channel.

    folders: in which it may be.
    data_type: FLOAT32 or FLOAT16.
    sizes: (1, channels, height, width), with 3 or 4 channels. The picture is scaled to them.
    mode: "scale".
    Raises ModelError: or Pillow is not installed.
    """
    if data_type not in PIXEL_TYPES:
        node.fail("a picture needs initialValuesDataType", "FLOAT32 or FLOAT16")
    if mode != "scale":
        node.fail(f"resampleMode is {mode!r}", '"scale"')
    if len(sizes) != 4 or sizes[0] != 1 or sizes[1] not in (3, 4) or 0 in sizes:
        node.fail("a picture needs resampleSize", "[1, 3 or 4 channels, height, width]")
    require_pillow(node)
    from PIL import Image

    content = read_raw(node, path, folders)
    try:
        with Image.open(io.BytesIO(content), formats=PICTURE_FORMATS) as picture:
            pixels = picture.convert(CHANNEL_MODES[sizes[1]])
            if pixels.size != (sizes[3], sizes[2]):
                pixels = pixels.resize((sizes[3], sizes[2]), Image.Resampling.BICUBIC)
            planes = np.asarray(pixels).transpose(2, 0, 1)
    except (OSError, ValueError, SyntaxError, MemoryError, Image.DecompressionBombError) as error:
        node.fail(f"{path} cannot be read as a picture: {error}")
    assert data_type is not None
    return (planes.astype(np.float32) / np.float32(255)).astype(data_type.numpy_dtype).reshape(-1)


def require_pillow(node: DocumentNode) -> None:
    """Raise a ModelError if Pillow is not installed."""
    try:
        import PIL.Image  # noqa: F401
    except ImportError:
        node.fail("pictures need Pillow", "it to be installed: pip install pillow, or dmlvk's extra 'demo'")


def picture_bytes(values: Array, kind: str) -> bytes:
    """Elements from 0 to 1 of sizes (channels, height, width) as a picture. What lies outside is clamped."""
    from PIL import Image

    wide = values.astype(np.float32)
    # NaN becomes 0, as in C++'s min and max.
    clamped = np.where(np.isnan(wide), np.float32(0), np.clip(wide, 0, 1)) * np.float32(255)
    pixels = clamped.astype(np.uint8).transpose(1, 2, 0)
    mode = CHANNEL_MODES[pixels.shape[2]]
    picture = Image.fromarray(pixels[:, :, 0] if mode == "L" else pixels)
    if kind == ".jpg" and mode == "RGBA":
        picture = picture.convert("RGB")  # JPEG has no transparency
    file = io.BytesIO()
    picture.save(file, "PNG" if kind == ".png" else "JPEG")
    return file.getvalue()
