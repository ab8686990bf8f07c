"""Files that may be anything: what lies at a path need not be what belongs there.

A name may lead to a FIFO without an end, to a device that is never full, to a folder, to someone's letters. All of
dmlvk reads and writes through these functions: nothing here waits for another program, reads without a bound, or ends
in anything but its content or an OSError that names the file.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

# Far above all that dmlvk writes, far below what a machine cannot hold.
MOST_BYTES = 1 << 28
# Of JSON and TOML: ours are less than ten deep.
MOST_DEPTH = 64
# tomllib takes time and memory by the square of a dotted key's parts.
MOST_DOTS = 1000
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
    """A file is not what it has to be; the message names it and says what is wrong."""

    def __str__(self) -> str:
        return str(self.args[0])


def read_bytes(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """The content of a regular file.

    Raises
    ------
    OSError
        It cannot be opened or read.
    FileError
        It is no regular file, or larger than `most_bytes`.
    """
    with _opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        # Some files of the system have content and no size.
        content = b"" if size > most_bytes else file.read(most_bytes + 1)
        if max(len(content), size) > most_bytes:
            raise FileError(f"{str(path)!r} cannot be read: it has more than {most_bytes >> 20} MiB")
        return content


def first_bytes(path: Path, count: int) -> bytes:
    """What a file begins with, whatever its size. Raises as `read_bytes` does."""
    with _opened(path) as file:
        return file.read(count)


def read_text(path: Path, most_bytes: int = MOST_BYTES) -> str:
    """The content of a regular file of UTF-8 text. Raises as `read_bytes` does."""
    try:
        return read_bytes(path, most_bytes).decode()
    except UnicodeDecodeError as error:
        raise FileError(f"{path}: it is not UTF-8 text: {error}") from error


def parse_json(text: str | bytes, place: str) -> Any:
    """JSON as Python's plain data; a FileError that begins with the place where it is none, or nested too deep."""
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
    """The same value, which whatever walks over it can take without recursing for ever."""
    level = [value]
    for _ in range(MOST_DEPTH):
        containers = [each for each in level if isinstance(each, (dict, list))]
        level = [child for each in containers for child in (each.values() if isinstance(each, dict) else each)]
        if not level:
            return value
    raise _too_deep(place)


def _too_deep(place: str) -> FileError:
    return FileError(f"{place}: it is nested too deep")


def _kind(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), "something else")


def require_place(path: Path) -> None:
    """Before any work: that a file can be written at a path, as far as that can be known without writing.

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
            raise FileError(f"{path} cannot be written: the folder {path.parent} takes no new files") from None
        return
    _require_writable(path, mode)
    if not os.access(path, os.W_OK):
        raise FileError(f"{path} cannot be written: it is read-only")


def require_folder_place(path: Path, who: str = "") -> None:
    """Before any work: that a folder is at a path or can be made there, as far as its parents tell.

    Raises
    ------
    FileError
        Something else is there; the message begins with who named the path.
    """
    for folder in (path, *path.parents):
        if os.path.lexists(folder):
            if not folder.is_dir():
                raise FileError(f"{who}{path} cannot be written: {folder} is no folder")
            return


def require_own(path: Path, read: Callable[[Path], object]) -> None:
    """Before any work: that a file is not there, is empty, or holds what `read` can read, and so is ours to change.

    Raises
    ------
    FileError
        It holds something else; the message says what and that it is left as it is.
    """
    require_place(path)
    if not path.is_file() or not path.stat().st_size:
        return
    try:
        read(path)
    except (OSError, ValueError) as error:
        raise FileError(f"{path} is left as it is and nothing is run: {error}; name another file") from error


def open_to_write(path: Path, *, append: bool = False) -> BinaryIO:
    """Open a file to write anew or to append to. Of a FIFO the reader has to be there.

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
    # Pipes and devices such as /dev/null hold nothing that could be lost; a disk does.
    if stat.S_ISDIR(mode) or stat.S_ISBLK(mode) or stat.S_ISSOCK(mode):
        raise FileError(f"{path} cannot be written: it is {_kind(mode)}")


def write_bytes(path: Path, content: bytes | memoryview) -> None:
    """Write a file anew, in its place: links to it and its permissions stay.

    Raises
    ------
    OSError
        It always names the file: a full disk is noticed where the system no longer says which.
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
    """UTF-8; half a surrogate pair, which names of files and JSON can have, as its escape, which JSON reads back."""
    return text.encode(errors="backslashreplace")


def require_replaceable(path: Path) -> None:
    """That a file can be put at a path: nothing but a regular file is there, if anything."""
    with suppress(FileNotFoundError):
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise FileError(f"{path} cannot be written: it is {_kind(mode)}")


def replace_bytes(path: Path, content: bytes) -> None:
    """Put a regular file in place of another, or of none: a reader sees the old one or the new one, never a part.

    Raises
    ------
    OSError
        Also where something else than a regular file is in its place: it is left alone.
    """
    require_replaceable(path)
    import tempfile  # what reads its cache and adds nothing never needs it

    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".new")
    try:
        with open(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
