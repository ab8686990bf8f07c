"""Reads and writes files safely: the file at a path need not be the expected one.

A path may lead to an endless FIFO, to a device that is never full, to a folder, or to someone's letters. All of dmlvk
reads and writes through these functions. They never wait for another program and never read without a bound. They
return the content, or raise an OSError that names the file.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

# Far more than dmlvk ever writes, and far less than would exceed a machine's memory.
MOST_BYTES = 1 << 28
# The greatest depth of JSON and TOML. Files of dmlvk are less than ten levels deep.
MOST_DEPTH = 64
# The time and memory of tomllib grow with the square of the number of parts of a dotted key.
MOST_DOTS = 1000
LONGEST_READ_SECONDS = 1.0 if sys.platform == "win32" else 0.0
# O_NONBLOCK: a FIFO is opened without waiting for its other end. O_NOCTTY: a terminal does not become ours.
_FLAGS = sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY"))
_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a block device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
}


class FileError(OSError):
    """A file is not of the expected kind. The message names the file and says what is wrong."""

    def __str__(self) -> str:
        return str(self.args[0])


def read_bytes(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """The content of a regular file.

    Raises
    ------
    OSError
        The file cannot be opened or read.
    FileError
        The file is no regular file, or larger than `most_bytes`.
    """
    with _opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        # Some files of the system have content and no size.
        content = b"" if size > most_bytes else file.read(most_bytes + 1)
        if max(len(content), size) > most_bytes:
            raise FileError(f"{str(path)!r} cannot be read: it has more than {most_bytes >> 20} MiB")
        return content


def first_bytes(path: Path, count: int) -> bytes:
    """The first bytes of a file of any size. Raises as `read_bytes` does."""
    with _opened(path) as file:
        return file.read(count)


def read_text(path: Path, most_bytes: int = MOST_BYTES) -> str:
    """The content of a regular file of UTF-8 text. Raises as `read_bytes` does."""
    try:
        return read_bytes(path, most_bytes).decode()
    except UnicodeDecodeError as error:
        raise FileError(f"{path}: it is not UTF-8 text: {error}") from error


def parse_json(text: str | bytes, place: str) -> Any:
    """JSON as Python's plain data. If the text is no JSON or nested too deep, a FileError begins with `place`."""
    try:
        return _shallow(json.loads(text), place)
    except RecursionError:
        raise _too_deep(place) from None
    except ValueError as error:
        raise FileError(f"{place}: it is not JSON: {error}") from error


def read_json(path: Path) -> Any:
    """A file of JSON. Raises as `read_bytes` does."""
    return parse_json(read_bytes(path), str(path))


def read_toml(path: Path) -> dict[str, Any]:
    """A file of TOML. Raises as `read_bytes` does."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    text = read_text(path)
    if max((line.count(".") for line in text.splitlines()), default=0) > MOST_DOTS:
        raise _too_deep(str(path))
    try:
        content: dict[str, Any] = _shallow(tomllib.loads(text), str(path))
    except RecursionError:
        raise _too_deep(str(path)) from None
    except ValueError as error:
        raise FileError(f"{path}: it is not TOML: {error}") from error
    return content


def _opened(path: Path) -> BinaryIO:
    handle = os.open(path, os.O_RDONLY | _FLAGS)
    try:
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode):
            raise FileError(f"{str(path)!r} cannot be read: it is {_kind(mode)}, not a file")
        return open(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def _shallow(value: Any, place: str) -> Any:
    """The same value, if its depth is limited, so that recursive code can walk over it."""
    level = [value]
    for _ in range(MOST_DEPTH):
        containers = [each for each in level if isinstance(each, (dict, list))]
        level = [child for each in containers for child in (each.values() if isinstance(each, dict) else each)]
        if not level:
            return value
    raise _too_deep(place)


def _too_deep(place: str) -> FileError:
    return FileError(f"{place}: it is nested too deeply")


def _kind(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), "something else")


def is_same(one: Path | None, other: Path | None) -> bool:
    """Whether two paths are equal, or lead to one file."""
    if one is None or other is None or one == other:
        return one == other
    return one.exists() and other.exists() and one.samefile(other)


def require_place(path: Path) -> None:
    """Check before any work that a file can be written at a path, as far as that can be known without writing.

    Raises
    ------
    OSError
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise FileError(f"{path} cannot be written: there is no folder {path.parent}") from None
        if not os.access(path.parent, os.W_OK):
            raise FileError(f"{path} cannot be written: no file can be made in the folder {path.parent}") from None
        return
    _require_writable(path, mode)
    if not os.access(path, os.W_OK):
        raise FileError(f"{path} cannot be written: it is read-only")


def require_folder_place(path: Path, who: str = "") -> None:
    """Check before any work that a folder exists at a path or can be made there, as far as its parents tell.

    Raises
    ------
    FileError
        Something else is there. The message begins with `who`, the source of the path.
    """
    for folder in (path, *path.parents):
        if os.path.lexists(folder):
            if not folder.is_dir():
                raise FileError(f"{who}{path} cannot be written: {folder} is not a folder")
            return


def require_own(path: Path, read: Callable[[Path], object]) -> None:
    """Check before any work that a file may be changed: it is absent or empty, or `read` can read it.

    Raises
    ------
    FileError
        The file holds something else. The message says what, and that the file is left as it is.
    """
    require_place(path)
    if not path.is_file() or not path.stat().st_size:
        return
    try:
        read(path)
    except (OSError, ValueError) as error:
        raise FileError(f"{path} is left as it is and nothing is run: {error}; name another file") from error


def open_to_write(path: Path, *, append: bool = False) -> BinaryIO:
    """Open a file to write anew or to append to. A FIFO must already have a reader.

    Raises
    ------
    OSError
    """
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | _FLAGS | (os.O_APPEND if append else 0), 0o666)
    try:
        mode = os.fstat(handle).st_mode
        _require_writable(path, mode)
        if stat.S_ISREG(mode) and not append:
            os.ftruncate(handle, 0)
        if hasattr(os, "O_NONBLOCK"):
            os.set_blocking(handle, True)
        return open(handle, "wb")
    except BaseException:
        os.close(handle)
        raise


def _require_writable(path: Path, mode: int) -> None:
    # Pipes and devices such as /dev/null hold no data that could be lost. A disk does.
    if stat.S_ISDIR(mode) or stat.S_ISBLK(mode) or stat.S_ISSOCK(mode):
        raise FileError(f"{path} cannot be written: it is {_kind(mode)}")


def write_bytes(path: Path, content: bytes | memoryview) -> None:
    """Write a file anew, in place: its permissions and the links to it stay.

    Raises
    ------
    OSError
        The error always names the file. The system itself does not name it when it notices a full disk.
    """
    try:
        with open_to_write(path) as file:
            file.write(content)
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def write_text(path: Path, text: str) -> None:
    """Write a file of UTF-8 text anew. Raises as `write_bytes` does."""
    write_bytes(path, encoded(text))


def encoded(text: str) -> bytes:
    """Text as UTF-8. Half a surrogate pair, which file names and JSON can hold, becomes an escape that JSON reads."""
    return text.encode(errors="backslashreplace")


def require_replaceable(path: Path) -> None:
    """Check that a file can be put at a path: either no file or a regular file is there."""
    with suppress(FileNotFoundError):
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise FileError(f"{path} cannot be written: it is {_kind(mode)}")


def _replace(source: str, path: Path) -> None:
    """As os.replace, which Windows refuses while another process reads the file: that takes a moment."""
    end = time.monotonic() + LONGEST_READ_SECONDS
    while True:
        try:
            return os.replace(source, path)
        except PermissionError:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)


def replace_bytes(path: Path, content: bytes) -> None:
    """Put a regular file at a path, or replace the one there: a reader sees the old or the new file, never a part.

    Raises
    ------
    OSError
        Also if something other than a regular file is at the path. It is left alone.
    """
    require_replaceable(path)
    import tempfile  # a program that only reads its cache never needs this module

    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".new")
    try:
        with open(handle, "wb") as file:
            file.write(content)
        _replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
