"""The kinds of record, and how each is shown: as tables, as Markdown, as a picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console

from dmlvk._common import files
from dmlvk._printable import printable_data
from dmlvk.benchmark import drawing, sections, tables
from dmlvk.benchmark.model import tables as model_tables
from dmlvk.benchmark.networks import tables as network_tables
from dmlvk.benchmark.records import FORMAT, MODEL, NETWORK, OPERATORS, Record


class Tables(Protocol):
    """The module of a kind."""

    def sections(self, record: Record, *, dispatches: bool = False) -> Iterator[sections.Section]:
        """The tables of a record; `dispatches` says whether each dispatch has a row."""

    def figure_of(self, record: Record) -> Any:
        """The figure of a record."""

    def is_correct(self, record: Record) -> bool:
        """Whether all results were right."""


@dataclass(frozen=True)
class Kind:
    """How one kind of record is shown.

    command: what measures it, with the fields of the record's network.
    list_name: of the record's list.
    """

    tables: Tables
    command: str
    list_name: str

    def is_correct(self, record: Record) -> bool:
        """Whether all results were right."""
        return self.tables.is_correct(record)

    def show(self, record: Record, terminal: Console, dispatches: bool = False) -> None:
        """Print a record on a terminal."""
        sections.show(self.tables.sections(record, dispatches=dispatches), terminal)

    def draw(self, record: Record, form: str) -> bytes:
        """A record's picture, in a format as `drawing.picture_format` returns it."""
        return drawing.content(self.tables.figure_of(record), form)

    def page(self, record: Record) -> Iterator[str]:
        """The lines of a page of Markdown."""
        yield from sections.markdown(self.tables.sections(record))
        yield ""
        yield sections.origin(record, self.command.format(**record.get("network", {})))


KINDS: Mapping[str, Kind] = {
    OPERATORS: Kind(tables, "dmlvk bench", "cases"),
    MODEL: Kind(model_tables, "dmlvk bench --model", "batches"),
    NETWORK: Kind(network_tables, "dmlvk bench --network {name}", "runs"),
}


def kind_for(record: Record, kinds: Mapping[str, Kind] = KINDS) -> Kind:
    """How a record is shown."""
    return kinds[record.get("kind", OPERATORS)]


def read(path: Path, kinds: Mapping[str, Kind] = KINDS) -> Record:
    """Read a record of one of some kinds. Its texts are printable, so that a picture, a page and a table can show them.

    Raises OSError: the file cannot be read, or is not a record of this format.
    """
    record = printable_data(files.read_json(path))
    kind = kinds.get(str(record.get("kind", OPERATORS))) if isinstance(record, dict) else None
    if kind is None or record.get("format") != FORMAT or not isinstance(record.get(kind.list_name), list):
        raise files.FileError(f"{path} is not a record of `dmlvk bench --json`, format {FORMAT}")
    return record
