"""The kinds of record, and how each is shown: as tables, as Markdown, as a picture."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from rich.console import Console

from dmlvk.benchmark import harness, picture, sections, tables
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

    Attributes
    ----------
    sections : callable
        The tables of a record; `dispatches` says whether each dispatch has a row.
    options : str
        The options of `dmlvk bench` that measure it, with the fields of the record's network.
    draw : callable
        A picture in a format.
    is_correct : callable
        Whether all results were right.
    """

    sections: Callable[..., Iterator[sections.Section]]
    options: str
    draw: Callable[[Record, str], bytes]
    is_correct: Callable[[Record], bool]

    def show(self, record: Record, terminal: Console, dispatches: bool = False) -> None:
        """Print a record on a terminal."""
        sections.show(self.sections(record, dispatches=dispatches), terminal)

    def page(self, record: Record) -> Iterator[str]:
        """The lines of a page of Markdown."""
        yield from sections.markdown(self.sections(record))
        yield ""
        yield sections.origin(record, self.options.format(**record.get("network", {})))


KINDS: Mapping[str, Kind] = {
    OPERATORS: Kind(tables.sections, "", picture.draw, harness.is_correct),
    MODEL: Kind(model_tables.sections, " --model", model_picture.draw, model_tables.is_correct),
    NETWORK: Kind(network_tables.sections, " --network {name}", network_picture.draw, network_tables.is_correct),
    COLD: Kind(cold_tables.sections, " --cold --network {name}", cold_picture.draw, cold_tables.is_correct),
    SWEEP: Kind(sweep_tables.sections, " --sweep", sweep_picture.draw, sweep_tables.is_correct),
}


def kind_for(record: Record) -> Kind:
    """How a record is shown."""
    return KINDS[kind_of(record)]
