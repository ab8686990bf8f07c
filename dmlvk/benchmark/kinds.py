"""The kinds of record, and how each is shown: as tables, as Markdown, as a picture."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from dmlvk.benchmark import drawing, harness, picture, sections, tables
from dmlvk.benchmark.cold import picture as cold_picture
from dmlvk.benchmark.cold import tables as cold_tables
from dmlvk.benchmark.model import picture as model_picture
from dmlvk.benchmark.model import tables as model_tables
from dmlvk.benchmark.networks import picture as network_picture
from dmlvk.benchmark.networks import tables as network_tables
from dmlvk.benchmark.records import COLD, MODEL, NETWORK, OPERATORS, SWEEP, Record, kind_of
from dmlvk.benchmark.sweep import picture as sweep_picture
from dmlvk.benchmark.sweep import tables as sweep_tables


@dataclass(frozen=True)
class Kind:
    """How one kind of record is shown.

    sections: the tables of a record; `dispatches` says whether each dispatch has a row.
    options: the options of `dmlvk bench` that measure it, with the fields of the record's network.
    figure_of: the figure of a record.
    is_correct: whether all results were right.
    """

    sections: Callable[..., Iterator[sections.Section]]
    options: str
    figure_of: Callable[[Record], Any]
    is_correct: Callable[[Record], bool]

    def show(self, record: Record, terminal: Console, dispatches: bool = False) -> None:
        """Print a record on a terminal."""
        sections.show(self.sections(record, dispatches=dispatches), terminal)

    def draw(self, record: Record, form: str) -> bytes:
        """A record's picture, in a format as `drawing.picture_format` returns it."""
        return drawing.content(self.figure_of(record), form)

    def page(self, record: Record) -> Iterator[str]:
        """The lines of a page of Markdown."""
        yield from sections.markdown(self.sections(record))
        yield ""
        yield sections.origin(record, self.options.format(**record.get("network", {})))


KINDS: Mapping[str, Kind] = {
    OPERATORS: Kind(tables.sections, "", picture.figure_of, harness.is_correct),
    MODEL: Kind(model_tables.sections, " --model", model_picture.figure_of, model_tables.is_correct),
    NETWORK: Kind(network_tables.sections, " --network {name}", network_picture.figure_of, network_tables.is_correct),
    COLD: Kind(cold_tables.sections, " --cold --network {name}", cold_picture.figure_of, cold_tables.is_correct),
    SWEEP: Kind(sweep_tables.sections, " --sweep", sweep_picture.figure_of, sweep_tables.is_correct),
}


def kind_for(record: Record) -> Kind:
    """How a record is shown."""
    return KINDS[kind_of(record)]
