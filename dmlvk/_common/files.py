"""Reads and writes files safely: the file at a path need not be the expected one.

A path may lead to an endless FIFO, to a device that is never full, to a folder, or to someone's letters. All of dmlvk
reads and writes through these functions. They never wait for another program, never read without a bound, and never
execute what they read. They return the content, or raise an OSError that names the file. Where another file says what
to read or write, the caller names the folders in which that may be.
"""

from __future__ import annotations

import io
import json
import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from pkgutil import get_data
from typing import TYPE_CHECKING, Any, BinaryIO

from dmlvk._printable import printable

if TYPE_CHECKING:
    import numpy.typing as npt

# Far more than dmlvk ever writes, and far less than would exceed a machine's memory.
MOST_BYTES = 1 << 28
# The greatest depth of JSON and TOML. Files of dmlvk are less than ten levels deep.
MOST_DEPTH = 64
# The time and memory of tomllib grow with the square of the number of parts of a dotted key.
MOST_DOTS = 1000
NPY_START, ZIP_START = b"\x93NUMPY", b"PK\x03\x04"
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
        return printable(str(self.args[0]))


class OutsideError(FileError):
    """A path leads out of the folders in which it has to stay."""


def read_bytes(path: Path, most_bytes: int | None = MOST_BYTES, *, within: Iterable[Path] | None = None) -> bytes:
    """The content of a regular file.

    most_bytes: the file's largest size; None for as much as fits into memory.
    within: the folders in which the file has to be, wherever links lead.
    Raises OSError: the file cannot be opened or read.
    Raises FileError: the file is no regular file, or larger than `most_bytes`, or elsewhere.
    """
    with _opened(path, within) as file:
        size = os.fstat(file.fileno()).st_size
        most = max(size, 1) if most_bytes is None else most_bytes
        try:
            # Some files of the system have content and no size.
            content = b"" if size > most else file.read(most + 1)
        except MemoryError:
            raise FileError(f"{str(path)!r} cannot be read: memory does not hold its {size} bytes") from None
        if max(len(content), size) > most:
            raise FileError(f"{str(path)!r} cannot be read: it has more than {most >> 20} MiB")
        return content


def read_part(path: Path, offset: int, count: int, folder: Path) -> bytes:
    """Some bytes of a file below a folder, none of whose parts is a link, and which has no second name elsewhere.

    Raises OSError, FileError: as `read_bytes` does, or the file is too short.
    """
    with _opened(path, [folder]) as file:
        status = os.fstat(file.fileno())
        expected = os.path.join(os.path.realpath(folder), os.path.relpath(path, folder))
        if os.path.normcase(os.path.realpath(path)) != os.path.normcase(expected):
            raise OutsideError(f"{str(path)!r} cannot be read: it leads over a link")
        if status.st_nlink > 1:
            raise OutsideError(f"{str(path)!r} cannot be read: it has another name elsewhere, a hard link")
        if offset + count > status.st_size:
            raise FileError(
                f"{str(path)!r} is too short: {count} bytes from byte {offset} are wanted, and it has {status.st_size}"
            )
        file.seek(offset)
        return file.read(count)


def first_bytes(path: Path, count: int) -> bytes:
    """The first bytes of a file of any size. Raises as `read_bytes` does."""
    with _opened(path) as file:
        return file.read(count)


def read_npy(
    path: Path, most_bytes: int | None = MOST_BYTES, *, within: Iterable[Path] | None = None
) -> npt.NDArray[Any]:
    """The array in a .npy file; an array of Python's objects, which would have to be executed, is refused.

    Raises OSError, FileError: as `read_bytes` does, or the file holds something other than one array.
    """
    import numpy as np

    content = read_bytes(path, most_bytes, within=within)
    if not content.startswith((NPY_START, ZIP_START)):  # NumPy would take it for a pickle, and say how to run that
        raise FileError(f"{str(path)!r} is no .npy file")
    try:
        array = np.load(io.BytesIO(content), allow_pickle=False)
    except Exception as error:  # what NumPy raises for a damaged header depends on where it stops
        problem = " ".join(str(error).split()) or type(error).__name__
        raise FileError(f"{str(path)!r} cannot be read as .npy: {problem}") from error
    if not isinstance(array, np.ndarray):
        raise FileError(f"{str(path)!r} is an archive of several arrays, where one array, a .npy, is expected")
    return array


def read_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """The arrays in a .npz file of dmlvk's own. Raises as `read_bytes` does."""
    return _arrays(read_bytes(path, None))


def _arrays(content: bytes) -> dict[str, npt.NDArray[Any]]:
    import numpy as np

    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        return dict(arrays)


def npy_bytes(array: npt.NDArray[Any]) -> bytes:
    """An array as a .npy file.

    Raises ValueError: it is an array of Python's objects.
    """
    import numpy as np

    content = io.BytesIO()
    np.save(content, array, allow_pickle=False)
    return content.getvalue()


def packaged_bytes(package: str, name: str) -> bytes:
    """A file that is part of dmlvk, beside the modules of a package."""
    content = get_data(package, name)
    assert content is not None, "whatever loaded this module also reads what lies beside it"
    return content


def packaged_text(package: str, name: str) -> str:
    """As `packaged_bytes`, of UTF-8 text."""
    return packaged_bytes(package, name).decode().replace("\r\n", "\n")


def packaged_json(package: str, name: str, absent: Any = None) -> Any:
    """The data in a JSON file of the package. A missing file, which a tool has yet to make, is `absent`, if given."""
    try:
        return json.loads(packaged_bytes(package, name))
    except FileNotFoundError:
        if absent is None:
            raise
        return absent


def packaged_arrays(package: str, name: str) -> dict[str, npt.NDArray[Any]]:
    """As `packaged_bytes`, of a .npz file."""
    return _arrays(packaged_bytes(package, name))


def read_text(path: Path) -> str:
    """The content of a regular file of UTF-8 text. Raises as `read_bytes` does."""
    try:
        return read_bytes(path).decode()
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


def _opened(path: Path, within: Iterable[Path] | None = None) -> BinaryIO:
    """A regular file, open to read. Opening alone starts something in some devices, so a folder is checked before."""
    folders = None if within is None else list(within)
    try:
        if folders is not None:
            _require_within(path, folders)
        handle = os.open(path, os.O_RDONLY | _FLAGS)
    except ValueError as error:  # a null character, or half a surrogate pair
        raise FileError(f"{str(path)!r} is no path: {error}") from error
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise FileError(f"{str(path)!r} cannot be read: it is {_kind(status.st_mode)}, not a file")
        if folders is not None and not os.path.samestat(status, os.stat(_require_within(path, folders))):
            raise OutsideError(f"{str(path)!r} cannot be read: it was changed in this moment")
        return open(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def _require_within(path: Path, folders: Iterable[Path]) -> Path:
    """Where a path leads, links followed.

    Raises OutsideError: that is in none of the folders.
    Raises ValueError: it is no path.
    """
    real = Path(os.path.realpath(path))
    if not any(real.is_relative_to(os.path.realpath(folder)) for folder in folders):
        raise OutsideError(f"{str(path)!r} leads out of the folders that are allowed, to {str(real)!r}")
    return real


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

    Raises OSError.
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

    Raises FileError: something else is there. The message begins with `who`, the source of the path.
    """
    for folder in (path, *path.parents):
        if os.path.lexists(folder):
            if not folder.is_dir():
                raise FileError(f"{who}{path} cannot be written: {folder} is not a folder")
            return


def require_own(path: Path, read: Callable[[Path], object]) -> None:
    """Check before any work that a file may be changed: it is absent or empty, or `read` can read it.

    Raises FileError: the file holds something else. The message says what, and that the file is left as it is.
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

    Raises OSError.
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
    """Write a file anew: a reader sees the old or the new file, never a part. Its mode and links that lead to it stay.

    What is no regular file, such as a pipe, is written to in place. So is a file in a folder that takes no new file.

    Raises OSError: the error always names the file. The system itself does not name it when it notices a full disk.
    """
    try:
        real = os.path.realpath(path)
        try:
            mode = os.stat(real).st_mode
        except FileNotFoundError:
            mode = None
        with _naming(path):
            if mode is None or stat.S_ISREG(mode):
                _require_writable_file(path, real)
                with suppress(_NoNewFileError):
                    return _replace_content(real, content, 0o666, mode)
            with open_to_write(path) as file:
                file.write(content)
    except ValueError as error:
        raise FileError(f"{str(path)!r} is no path: {error}") from error


def write_inside(folder: Path, name: str | Path, content: bytes | memoryview, also: Iterable[Path] = ()) -> Path:
    """Write a file whose name another file gives: nothing outside the folder is changed, wherever links lead.

    Folders that are missing are made. A file that is there is replaced, not written into, so that a second name of it,
    a hard link, keeps the old content.

    folder: a relative name belongs to it.
    also: further folders, below which the file may be.
    Returns the file.
    Raises OutsideError: the file would be elsewhere.
    Raises OSError: it cannot be written. The error names it.
    """
    path = folder / name
    real, root = place_inside(folder, name, also)
    with _naming(path), ExitStack() as stack:
        require_replaceable(real)  # also before folders are made for a path that is too long
        _require_writable_file(path, str(real))
        root.mkdir(parents=True, exist_ok=True)
        # A link that takes a folder's place between the check and now is not followed.
        parent = stack.enter_context(_folder_below(root, real.relative_to(root).parts[:-1]))
        _replace_content(real.name if parent is not None else str(real), content, 0o666, None, parent)
    return path


def place_inside(folder: Path, name: str | Path, also: Iterable[Path] = ()) -> tuple[Path, Path]:
    """Where `write_inside` would write, and the folder above that it may write below. Raises as it does."""
    path = folder / name
    try:
        roots = [Path(os.path.realpath(each)) for each in (folder, *also)]
        real = _require_within(path, roots)
    except ValueError as error:
        raise FileError(f"{str(path)!r} is no path: {error}") from error
    if real in roots:
        raise FileError(f"{str(path)!r} cannot be written: it is a folder")
    return real, next(root for root in roots if real.is_relative_to(root))


@contextmanager
def _folder_below(root: Path, parts: Iterable[str]) -> Iterator[int | None]:
    """A handle of a folder below another, made where it is missing, no part of which is a link; None on Windows."""
    if os.open not in os.supports_dir_fd or os.mkdir not in os.supports_dir_fd:
        _make_folders(root, parts)
        yield None
        return
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(root, flags & ~os.O_NOFOLLOW)
    try:
        for part in parts:
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=handle)
            below = os.open(part, flags, dir_fd=handle)
            os.close(handle)
            handle = below
        yield handle
    finally:
        os.close(handle)


def _make_folders(root: Path, parts: Iterable[str]) -> None:
    """Make folders below another, each in the one before; none is left if one cannot be made.

    `Path.mkdir` and `os.makedirs` call themselves once for each folder, which a long name makes too often for Python.
    """
    folder, made = root, []
    try:
        for part in parts:
            folder = folder / part
            with suppress(FileExistsError):
                folder.mkdir()
                made.append(folder)
    except OSError:
        for each in reversed(made):
            with suppress(OSError):  # another program uses it
                each.rmdir()
        raise


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Name the file that a caller knows in an error about it: not a temporary one beside it, nor none."""
    try:
        yield
    except OSError as error:
        if error.errno is not None:
            error.filename, error.filename2 = str(path), None
        raise


def write_text(path: Path, text: str) -> None:
    """Write a file of UTF-8 text anew. Raises as `write_bytes` does."""
    write_bytes(path, encoded(text))


def json_text(value: Any, indent: int | None = None, default: Callable[[Any], Any] | None = None) -> str:
    """A value as JSON in printable ASCII: a program reads the same value, and a terminal finds no code to obey."""
    return json.dumps(value, indent=indent, default=default).replace("\x7f", "\\u007f")


def encoded(text: str) -> bytes:
    """Text as UTF-8. Half a surrogate pair, which file names and JSON can hold, becomes an escape that JSON reads."""
    return text.encode(errors="backslashreplace")


def require_replaceable(path: Path) -> None:
    """Check that a file can be put at a path: either no file or a regular file is there."""
    with suppress(FileNotFoundError):
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise FileError(f"{path} cannot be written: it is {_kind(mode)}")


def _require_writable_file(path: Path, real: str) -> None:
    """Refuse a read-only file, although its folder would let another file take its place."""
    if os.path.exists(real) and not os.access(real, os.W_OK):
        raise FileError(f"{path} cannot be written: it is read-only")


class _NoNewFileError(Exception):
    """The file can be changed, but no file can be added to its folder, so the file cannot be replaced."""


def replace_bytes(path: Path, content: bytes) -> None:
    """Put a regular file at a path, or replace the one there: a reader sees the old or the new file, never a part.

    Only its owner can read it: it is a file of dmlvk's own.

    Raises OSError: also if something other than a regular file is at the path. It is left alone. The error names the
        file.
    """
    require_replaceable(path)
    with _naming(path):
        _replace_content(str(path), content, 0o600)


def _replace_content(
    path: str, content: bytes | memoryview, mode: int, kept_mode: int | None = None, folder: int | None = None
) -> None:
    """Write a temporary file beside the path, then put it there.

    mode: of a new file; the system takes away what the user does not want.
    kept_mode: of the file that is replaced.
    folder: the handle of the folder to which the path belongs.
    Raises _NoNewFileError: `kept_mode` is given, and the folder takes no further file.
    Raises OSError.
    """
    # The start of the name alone: a name may have the greatest length already.
    start, name = os.path.split(path)
    temporary = os.path.join(start, f"{name[:40]}.{os.urandom(6).hex()}.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS
    try:
        handle = os.open(temporary, flags, mode, dir_fd=folder)
    except PermissionError as error:
        if kept_mode is None:
            raise
        raise _NoNewFileError from error
    try:
        with open(handle, "wb") as file:
            if kept_mode is not None and hasattr(os, "fchmod"):
                os.fchmod(handle, stat.S_IMODE(kept_mode))
            file.write(content)
        _replace(temporary, path, folder)
    except BaseException:
        os.unlink(temporary, dir_fd=folder)
        raise


def _replace(source: str, path: str, folder: int | None) -> None:
    """As os.replace, which Windows refuses while another process reads the file: that takes a moment."""
    end = time.monotonic() + LONGEST_READ_SECONDS
    while True:
        try:
            if folder is not None:
                return os.replace(source, path, src_dir_fd=folder, dst_dir_fd=folder)
            return os.replace(source, path)
        except PermissionError:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)
