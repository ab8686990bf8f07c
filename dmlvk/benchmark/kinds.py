"""The kinds of record, and how each is shown: as tables, as Markdown, as a picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from rich.console import Console

from dmlvk.benchmark import drawing, sections, tables
from dmlvk.benchmark.cold import tables as cold_tables
from dmlvk.benchmark.model import tables as model_tables
from dmlvk.benchmark.networks import tables as network_tables
from dmlvk.benchmark.records import COLD, MODEL, NETWORK, OPERATORS, SWEEP, Record, kind_of
from dmlvk.benchmark.sweep import tables as sweep_tables


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

    options: the options of `dmlvk bench` that measure it, with the fields of the record's network.
    """

    tables: Tables
    options: str

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
        yield sections.origin(record, self.options.format(**record.get("network", {})))


KINDS: Mapping[str, Kind] = {
    OPERATORS: Kind(tables, ""),
    MODEL: Kind(model_tables, " --model"),
    NETWORK: Kind(network_tables, " --network {name}"),
    COLD: Kind(cold_tables, " --cold --network {name}"),
    SWEEP: Kind(sweep_tables, " --sweep"),
}


def kind_for(record: Record) -> Kind:
    """How a record is shown."""
    return KINDS[kind_of(record)]
