"""Text from outside on its way to a person: what a terminal, a browser or a parser would obey becomes an escape.

Names in models, results, caches, drivers and file systems may hold anything: codes that set a terminal's title or write
its clipboard, marks that turn the order of letters, half characters that no encoding takes, a line end that begins a
line of its own. Every way to a person passes `printable`: the console, errors, and the pages that reports write.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any, ClassVar


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

    is_multiline: whether line ends stay as they are. Otherwise they are escapes, so that the text is one line.
    """
    return text if text.isprintable() else text.translate(_LINES if is_multiline else _ESCAPES)


def markdown(text: str) -> str:
    """A text that Markdown shows as it is, in one line: in a paragraph, a heading, an item, the cell of a table."""
    # Within a word an underscore means nothing.
    shown = re.sub(r"([\\`*<>|\[\]~$&]|(?<!\w)_|_(?!\w))", r"\\\1", printable(" ".join(text.split())))
    # At the start of a line: a heading, an item, a rule.
    shown = re.sub(r"^(?=(#{1,6}|[+-]) |-{3,}$)", r"\\", shown)
    shown = re.sub(r"^(\d+)(?=[.)] )", r"\1\\", shown)
    # What some make a link of, though nobody wrote one.
    return re.sub(r"(?i)\b(https?|ftp|mailto|xmpp|www)([:.])", r"\1\\\2", shown)


def markdown_code(text: str) -> str:
    """A text between backticks, as it is and in one line: with more of them than it has itself."""
    shown = printable(" ".join(text.split()))
    fence = "`" * (max(map(len, re.findall("`+", shown)), default=0) + 1)
    # Else the text's own backtick would belong to the fence; Markdown takes one space away on each side.
    space = " " if not shown or "`" in (shown[0], shown[-1]) else ""
    return f"{fence}{space}{shown}{space}{fence}"


def printable_data(value: Any) -> Any:
    """Plain data, as JSON holds it, in which every text and every name is printable; texts may have several lines."""
    if isinstance(value, str):
        return printable(value, is_multiline=True)
    if isinstance(value, dict):
        return {printable_data(name): printable_data(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [printable_data(each) for each in value]
    return value


class CleanMessage(Exception):
    """An exception whose message may quote a file: as text, it is printable, and one line unless the class says not."""

    is_multiline: ClassVar[bool] = False

    def __str__(self) -> str:
        return printable(super().__str__(), is_multiline=self.is_multiline)
