"""The text of a model: JSON with comments and trailing commas, and its values with their places.

RapidJSON reads it, with the same extensions as in DxDispatch. So text that is accepted here is accepted there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from dmlvk._common import files
from dmlvk._common.arguments import integer_of
from dmlvk.dxdispatch.errors import MISSING, ModelError

# How the library says that text follows the root. DxDispatch stops at the root's end, but the library has no such mode.
TEXT_AFTER_THE_ROOT = re.compile(r"at offset (\d+): The document root must not be followed")
PLAIN_NAME = re.compile(r"[\w-]+")


@dataclass(frozen=True)
class DocumentNode:
    """A value of a model, with its place for messages.

    Attributes:
        file (str): The model's file.
        key (str): The place, such as "resources.x.initialValues[3]".
        value (object): Python's plain data.
    """

    file: str
    key: str
    value: Any

    def fail(self, rule: str, expected: str | None = None) -> NoReturn:
        """Raise a ModelError about this value."""
        raise ModelError(self.file, self.key, self.value, rule, expected)

    def child_key(self, name: str) -> str:
        """The place of a member of this object."""
        if not PLAIN_NAME.fullmatch(name):
            return f"{self.key}[{name!r}]"
        return f"{self.key}.{name}" if self.key else name

    def mapping(self) -> dict[str, Any]:
        """The value as an object."""
        if not isinstance(self.value, dict):
            self.fail("must be an object", "{...}")
        return self.value

    def get(self, name: str) -> DocumentNode | None:
        """A member of this object; None without it."""
        members = self.mapping()
        return DocumentNode(self.file, self.child_key(name), members[name]) if name in members else None

    def require(self, name: str, expected: str | None = None) -> DocumentNode:
        """A member of this object that has to be there."""
        found = self.get(name)
        if found is None:
            raise ModelError(self.file, self.child_key(name), MISSING, "is missing", expected)
        return found

    def members(self) -> Iterator[tuple[str, DocumentNode]]:
        """The members of this object with their names, in the order of the file."""
        for name, value in self.mapping().items():
            yield name, DocumentNode(self.file, self.child_key(name), value)

    def sequence(self, expected: str = "[...]") -> Sequence[Any]:
        """The value as a list."""
        if not isinstance(self.value, list):
            self.fail("must be a list", expected)
        return self.value

    def items(self, expected: str = "[...]") -> Iterator[DocumentNode]:
        """The elements of this list."""
        for index, value in enumerate(self.sequence(expected)):
            yield DocumentNode(self.file, f"{self.key}[{index}]", value)

    def text(self, expected: str | None = None) -> str:
        """The value as text."""
        if not isinstance(self.value, str):
            self.fail("must be text", expected)
        return self.value

    def integer(self, low: int, high: int) -> int:
        """The value as an integer in [low, high]. DxDispatch takes no 1.0 for a 1."""
        integer = integer_of(self.value)
        if integer is None or not low <= integer <= high:
            self.fail("must be an integer in range", f"an integer from {low} to {high}")
        return integer

    def integers(self, low: int, high: int) -> tuple[int, ...]:
        """The value as a list of integers in [low, high]."""
        return tuple(item.integer(low, high) for item in self.items("a list of integers"))

    def boolean(self) -> bool:
        """The value as true or false."""
        if not isinstance(self.value, bool):
            self.fail("must be true or false", "true or false")
        return self.value

    def one_of(self, names: Sequence[str], prefix: str = "") -> str:
        """The value as one of some names, with or without a prefix."""
        text = self.text(f"one of {', '.join(names)}").removeprefix(prefix)
        if text not in names:
            self.fail("is not known here", f"one of {', '.join(names)}")
        return text

    def names(self, names: Sequence[str], prefix: str = "") -> list[str]:
        """The value as a name or a list of names: DirectML's flags."""
        if isinstance(self.value, list):
            return [item.one_of(names, prefix) for item in self.items()]
        return [self.one_of(names, prefix)]


def read_document(path: Path) -> DocumentNode:
    """The root of a model.

    Raises ModelError: the file is no such JSON, or cannot be read.
    """
    try:
        content = files.read_bytes(path)
    except OSError as error:
        raise ModelError(str(path), "", MISSING, f"the model cannot be read: {error.strerror or error}") from error
    root = DocumentNode(str(path), "", _parsed(str(path), content))
    if not isinstance(root.value, dict):
        raise ModelError(
            root.file, "", MISSING, "a model is an object", '{"resources": ..., "dispatchables": ..., ...}'
        )
    return root


def _parsed(file: str, content: bytes) -> Any:
    import rapidjson  # type: ignore[import-not-found, unused-ignore]  # a compiled library, which only models need

    class Decoder(rapidjson.Decoder):
        """Refuses a name that stands twice in an object: RapidJSON finds the first of them, Python keeps the last."""

        def start_object(self) -> Any:
            return []

        def end_object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
            members: dict[str, Any] = {}
            for name, value in pairs:
                if name in members:
                    raise ModelError(file, "", MISSING, f"the name {name!r} stands twice in one object")
                members[name] = value
            refuse_bare_names(members.values())
            return members

    def refuse_bare_names(values: Iterable[Any]) -> None:
        """Refuse NaN and Infinity without quotes, which DxDispatch does not read."""
        for value in values:
            if type(value) is list:
                refuse_bare_names(value)
            elif type(value) is float and not math.isfinite(value):
                rule = f"it is no JSON: {value} without quotes is no number"
                raise ModelError(file, "", MISSING, rule, '"nan", "inf" or "-inf"')

    modes = rapidjson.PM_COMMENTS | rapidjson.PM_TRAILING_COMMAS
    # NM_NAN, because the library (1.25) takes trailing commas in this mode alone.
    decoder = Decoder(number_mode=rapidjson.NM_NAN, parse_mode=modes)
    # Editors on Windows begin a file with this mark, and RapidJSON does not know it.
    content = content.removeprefix(b"\xef\xbb\xbf")
    try:
        try:
            return decoder(content)
        except rapidjson.JSONDecodeError as error:
            end = TEXT_AFTER_THE_ROOT.search(str(error))
            if end is None:
                raise
            return decoder(content[: int(end[1])])
    except RecursionError:
        raise ModelError(file, "", MISSING, "the JSON is nested too deeply") from None
    except ValueError as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(file, "", MISSING, f"{_place(content, error)}it is no JSON: {error}") from error


def _place(content: bytes, error: Exception) -> str:
    """The line and column of an error, both counted from 1."""
    offset = re.search(r"at offset (\d+)", str(error))
    if offset is None:
        return ""
    before = content[: int(offset[1])]
    return f"line {before.count(10) + 1}, column {len(before) - before.rfind(10)}: "
