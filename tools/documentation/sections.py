"""The sections of dmlvk's docstrings, written as napoleon reads them: in NumPy's style.

    Args:
        size (int): Bytes.

becomes the section Parameters with the entry `size : int`. Text behind the sections becomes the section Notes, and
examples the section Examples.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

SECTIONS = {"Args:": "Parameters", "Attributes:": "Attributes", "Returns:": "Returns", "Yields:": "Yields"}
SECTIONS |= {"Raises:": "Raises", "Warns:": "Warns"}
INDENT = "    "
# `size (int or None): Bytes.` The type may be absent, and in Returns and Raises there is nothing but a type.
NAMED = re.compile(r"(?P<name>[*\w]+(?:, [*\w]+)*)(?: \((?P<type>.+?)\))?:(?: (?P<text>.*))?")
TYPED = re.compile(r"(?P<name>.+?)(?P<type>):(?: (?P<text>.*))?")


def numpy_style(lines: Sequence[str]) -> list[str]:
    """A docstring, without indentation, whose sections are in NumPy's style."""
    made: list[str] = []
    section = ""  # the one that goes on
    is_behind = False  # whether there have been sections
    for number, line in enumerate(lines):
        if line in SECTIONS and lines[number + 1 : number + 2] and lines[number + 1].startswith(INDENT):
            section, is_behind = line, True
            made += _heading(SECTIONS[line])
        elif section and (not line or line.startswith(INDENT)):
            made += _entry(line[len(INDENT) :], NAMED if section in ("Args:", "Attributes:") else TYPED)
        else:
            if line.startswith(">>> ") and "Examples" not in made:
                made += _heading("Examples")
            elif section:
                made += _heading("Notes")
            section = ""
            made.append(line)
    return made if is_behind or "Examples" in made else list(lines)


def _heading(name: str) -> list[str]:
    return ["", name, "-" * len(name)]


def _entry(line: str, form: re.Pattern[str]) -> Iterator[str]:
    """A line of a section: the first one of an entry, or one that goes on with its text."""
    found = form.fullmatch(line) if line and not line.startswith(" ") else None
    if found is None:
        yield line
        return
    yield f"{found['name']} : {found['type']}" if found["type"] else found["name"]
    if found["text"]:
        yield INDENT + found["text"]
