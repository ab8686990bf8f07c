"""Text from outside on its way to a person: what a terminal, a browser or a parser would obey becomes an escape.

Names in models, results, caches, drivers and file systems may hold anything: codes that set a terminal's title or write
its clipboard, marks that turn the order of letters, half characters that no encoding takes, a line end that begins a
line of its own. Every way to a person passes `printable`: the console, errors, and the pages that reports write.
"""

from __future__ import annotations

import unicodedata
from typing import ClassVar


class _Escapes(dict[int, str]):
    """For `str.translate`: each character, or its escape as Python's `repr` writes it. Remembers what it was asked."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        # Controls, formats such as marks of direction, surrogates, separators of lines, unassigned and private ones.
        # Spaces stay: no-break and ideographic spaces are parts of names.
        is_shown = character.isprintable() or unicodedata.category(character) == "Zs"
        shown = character if is_shown else character.encode("unicode_escape").decode()
        self[code] = shown
        return shown


_ESCAPES = _Escapes()
_LINES = _Escapes({10: "\n"})


def printable(text: str, *, is_multiline: bool = False) -> str:
    """A text with each character that is not to be shown as its escape, such as \\x1b: again the same if repeated.

    Parameters
    ----------
    text : str
    is_multiline : bool
        Whether line ends stay as they are. Otherwise they are escapes, so that the text is one line.
    """
    return text if text.isprintable() else text.translate(_LINES if is_multiline else _ESCAPES)


class CleanMessage(Exception):
    """An exception whose message may quote a file: as text, it is printable, and one line unless the class says not."""

    is_multiline: ClassVar[bool] = False

    def __str__(self) -> str:
        return printable(super().__str__(), is_multiline=self.is_multiline)
