"""The kinds of record, and how each is shown: as tables, as Markdown, as a picture."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from rich.console import Console

from dmlvk.benchmark import harness, picture, sections, tables
from dmlvk.benchmark import markdown as operators_markdown
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
    show : callable
        Prints a record on a terminal; its last argument says whether each dispatch has a row.
    page : callable
        The lines of a page of Markdown.
    draw : callable
        A picture in a format.
    is_correct : callable
        Whether all results were right.
    """

    show: Callable[[Record, Console, bool], None]
    page: Callable[[Record], Iterator[str]]
    draw: Callable[[Record, str], bytes]
    is_correct: Callable[[Record], bool]


def _show_operators(record: Record, terminal: Console, dispatches: bool) -> None:
    tables.show(record, terminal, dispatches=dispatches)


def _show_sections(
    found: Callable[..., Iterator[sections.Section]], record: Record, terminal: Console, dispatches: bool
) -> None:
    sections.show(found(record, dispatches=dispatches), terminal)


def _page_of_sections(found: Callable[..., Iterator[sections.Section]], options: str, record: Record) -> Iterator[str]:
    yield from sections.markdown(found(record))
    yield ""
    yield sections.origin(record, options.format(**record.get("network", {})))


KINDS: Mapping[str, Kind] = {
    OPERATORS: Kind(_show_operators, operators_markdown.page, picture.draw, harness.is_correct),
    MODEL: Kind(
        partial(_show_sections, model_tables.sections),
        partial(_page_of_sections, model_tables.sections, " --model"),
        model_picture.draw,
        model_tables.is_correct,
    ),
    NETWORK: Kind(
        partial(_show_sections, network_tables.sections),
        partial(_page_of_sections, network_tables.sections, " --network {name}"),
        network_picture.draw,
        network_tables.is_correct,
    ),
    COLD: Kind(
        partial(_show_sections, cold_tables.sections),
        partial(_page_of_sections, cold_tables.sections, " --cold --network {name}"),
        cold_picture.draw,
        cold_tables.is_correct,
    ),
    SWEEP: Kind(
        partial(_show_sections, sweep_tables.sections),
        partial(_page_of_sections, sweep_tables.sections, " --sweep"),
        sweep_picture.draw,
        sweep_tables.is_correct,
    ),
}


def kind_for(record: Record) -> Kind:
    """How a record is shown."""
    return KINDS[kind_of(record)]
