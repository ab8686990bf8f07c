"""Files damaged in all ways that dmlvk has to bear: anything may lie at the path of one of its files.

    @pytest.mark.parametrize("damage", damages(), ids=str)

gives each kind. `damage.make(path)` creates it at a path, and `damage.is_untouched()` tells afterwards whether it is
unchanged.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

DEPTH = 100_000


def is_named(path: str | Path, text: str) -> bool:
    """Whether a text names a path: as it is, or as Python's errors show it, with each backslash twice."""
    return str(path) in text or repr(str(path))[1:-1] in text


@dataclass
class Damage:
    """One kind of damage.

    Attributes
    ----------
    name : str
    put : callable
        Creates it at a path that does not exist.
    is_empty : bool
        Whether it holds nothing that could be lost: it may be written to, like a new file.
    is_regular : bool
        Whether it is a regular file.
    """

    name: str
    put: Callable[[Path], object]
    is_empty: bool = False
    is_regular: bool = True
    _before: tuple[object, ...] = field(default=(), init=False, repr=False)
    _path: Path = field(default=Path(), init=False, repr=False)

    def make(self, path: Path) -> None:
        """Create it at a path."""
        self.put(path)
        self._path = path
        self._before = _state(path)

    def is_untouched(self) -> bool:
        """Whether it is unchanged since it was created."""
        return _state(self._path) == self._before

    def __str__(self) -> str:
        return self.name


def _state(path: Path) -> tuple[object, ...]:
    """The state of a path, as far as it can be read without waiting."""
    if not os.path.lexists(path):
        return ("nothing",)
    status = path.lstat()
    link = os.readlink(path) if path.is_symlink() else ""
    if stat.S_ISREG(status.st_mode):
        with suppress(PermissionError), path.open("rb") as file:
            return status.st_mode, status.st_size, status.st_ino, file.read(1 << 20)
    inside = sorted((child.name, child.read_bytes()) for child in path.iterdir()) if path.is_dir() else []
    return status.st_mode, status.st_ino, link, inside


def _text(content: str | bytes) -> Callable[[Path], object]:
    data = content.encode() if isinstance(content, str) else content
    return lambda path: path.write_bytes(data)


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def _folder(path: Path) -> None:
    path.mkdir()
    (path / "letter.txt").write_bytes(b"dear reader")


def _link(target: str) -> Callable[[Path], object]:
    return lambda path: path.symlink_to(target)


def _circle(path: Path) -> None:
    path.symlink_to(path.name)


def _unreadable(path: Path) -> None:
    path.write_bytes(b"dear reader")
    path.chmod(0)


def _socket(path: Path) -> None:
    # The path of a socket has at most about a hundred characters.
    before = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(before)


def content_damages() -> list[Damage]:
    """Regular files whose content is not dmlvk's."""
    return [
        Damage("empty", _text(b""), is_empty=True),
        Damage("one brace", _text("{")),
        Damage("a letter", _text("Dear reader,\nhow are you?\n")),
        Damage("a letter of one line", _text("Dear reader")),
        Damage("others' JSON", _text('{"name": "mine", "version": 1}\n')),
        Damage("others' JSON without an end", _text('{"name": "mine", "version": 1}')),
        Damage("a list", _text("[]\n")),
        Damage("a number", _text("1\n")),
        Damage("null", _text("null\n")),
        Damage("binary", _text(bytes(range(256)) * 64)),
        Damage("zeros", _text(b"\0" * 5000)),
        Damage("UTF-16", _text("Dear reader,\nhow are you?\n".encode("utf-16"))),
        Damage("deep JSON lists", _text("[" * DEPTH + "]" * DEPTH + "\n")),
        Damage("deep JSON objects", _text('{"a":' * DEPTH + "1" + "}" * DEPTH + "\n")),
        Damage("deep JSON of ours", _text('{"format": 1, "kind": "result", "x": ' + "[" * DEPTH + "]" * DEPTH + "}\n")),
        # As deep as the parser can read, so that the code that walks over the result fails.
        *(
            Damage(f"JSON {depth} deep", _text('{"format": 1, "choices": ' + "[" * depth + "]" * depth + "}\n"))
            for depth in (300, 900, 960, 980)
        ),
        Damage("deep TOML lists", _text("waiver = " + "[" * DEPTH + "]" * DEPTH + "\n")),
        Damage("deep TOML tables", _text("a = " + "{a = " * DEPTH + "1" + "}" * DEPTH + "\n")),
        Damage("deep TOML keys", _text("a." * DEPTH + "a = 1\n")),
        Damage("a number of 5,000 digits", _text('{"format": ' + "1" * 5000 + "}\n")),
        Damage("half a surrogate pair", _text('{"kind": "\\ud800", "operator": "\\udfff", "size": 1}\n')),
    ]


def damages_of(whole: bytes) -> list[Damage]:
    """Damages made from a whole file that is not empty."""
    return [
        Damage("half of it", lambda path: path.write_bytes(whole[: len(whole) // 2])),
        Damage("one bit flipped", lambda path: path.write_bytes(bytes((whole[0] ^ 1,)) + whole[1:])),
        Damage("a letter behind it", lambda path: path.write_bytes(whole + b"\nDear reader")),
    ]


def special_damages() -> list[Damage]:
    """Things that are no files, and files that cannot be read. Windows has few of them."""
    made = [
        Damage("folder", _folder, is_regular=False),
        Damage("a terabyte of nothing", _sparse),
        Damage("unreadable", _unreadable),
    ]
    if hasattr(os, "mkfifo"):
        made += [
            Damage("FIFO", lambda path: os.mkfifo(path), is_regular=False),
            Damage("/dev/full", _link("/dev/full"), is_regular=False),
            Damage("/dev/zero", _link("/dev/zero"), is_regular=False),
            Damage("circle of links", _circle, is_regular=False),
            Damage("socket", _socket, is_regular=False),
        ]
    return made


def damages() -> list[Damage]:
    """All damages that any file of dmlvk can have."""
    return [*content_damages(), *special_damages()]
