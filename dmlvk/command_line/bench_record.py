"""Where a command that measures writes its record, as what, and how it shows it."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dmlvk._common import files
from dmlvk.command_line.terminal import INTERRUPTED, PlainConsole, console, echo

if TYPE_CHECKING:
    from dmlvk.benchmark.kinds import Kind
    from dmlvk.benchmark.records import Keep, Record

FILE = click.Path(dir_okay=False, path_type=Path)


@dataclass(frozen=True)
class Outputs:
    """The files of a record: see the options' help."""

    json_path: Path | None
    plot_path: Path | None
    markdown_path: Path | None
    source: Path | None


RECORD_OPTIONS = {
    "source": ("--from-json", "Measure nothing: take the figures of --json."),
    "markdown_path": ("--markdown", "Write the tables here, as Markdown."),
    "plot_path": ("--plot", "Draw a picture here, a PNG."),
    "json_path": ("--json", "Write all figures here."),
}


def record_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the options of `Outputs`, which it takes as `outputs`."""

    @wraps(command)
    def with_outputs(*arguments: Any, **options: Any) -> None:
        outputs = Outputs(**{name: options.pop(name) for name in RECORD_OPTIONS})
        command(*arguments, outputs=outputs, **options)

    for field, (name, text) in RECORD_OPTIONS.items():
        with_outputs = click.option(name, field, type=FILE, default=None, help=text)(with_outputs)
    return with_outputs


def measured_and_shown(
    context: click.Context,
    outputs: Outputs,
    measure: Callable[[Keep], Record | None],
    kinds: Mapping[str, Kind] | None = None,
    *,
    dispatches: bool = False,
    writes: bool = True,
) -> None:
    """Measure, unless there is a source; write the record, its picture and its page, and show it.

    measure: calls its argument with the record so far, which counts if the user interrupts. None: it has only listed
        what there is.
    kinds: of the records that the command measures; by default those of `dmlvk bench`.
    dispatches: whether each dispatch is shown.
    writes: whether a record will be written.
    Raises click.ClickException: a result is not the reference's.
    """
    from dmlvk.benchmark import drawing, records
    from dmlvk.benchmark.kinds import KINDS, kind_for, read

    known = KINDS if kinds is None else kinds
    plot_path, json_path, markdown_path = outputs.plot_path, outputs.json_path, outputs.markdown_path
    if plot_path is not None:
        drawing.require_matplotlib()
        if plot_path.name and not plot_path.suffix:
            plot_path = plot_path.with_name(f"{plot_path.name}.png")
        files.require_place(plot_path)
        drawing.picture_format(plot_path)
    if markdown_path is not None:
        files.require_place(markdown_path)
    if json_path is not None and outputs.source is None and writes:
        files.require_own(json_path, lambda path: read(path, known))

    def drawn(record: Record) -> tuple[bytes, str]:
        """The picture and the page, if requested."""
        kind = kind_for(record, known)
        picture = b"" if plot_path is None else kind.draw(record, drawing.picture_format(plot_path))
        return picture, "" if markdown_path is None else "\n".join(kind.page(record)) + "\n"

    kept: list[Record] = []

    def keep(record: Record) -> None:
        kept[:] = [record]
        if json_path is not None:
            records.write(record, json_path)

    is_interrupted = False
    if outputs.source is not None:
        record = read(outputs.source, known)
        try:
            picture, text = drawn(record)
            kind_for(record, known).show(record, PlainConsole(file=io.StringIO()), dispatches)
            kind_for(record, known).is_correct(record)
        except Exception as error:  # a record of the right format may still lack data that is shown
            problem = f"{type(error).__name__}: {error}"
            raise files.FileError(
                f"{outputs.source} is not a whole record of `dmlvk bench --json`: {problem}"
            ) from error
    else:
        try:
            found = measure(keep)
        except KeyboardInterrupt:
            if not kept:
                raise
            found, is_interrupted = kept[0], True
        if found is None:
            return
        record = found
        picture, text = drawn(record)
    if plot_path is not None:
        files.write_bytes(plot_path, picture)
    if markdown_path is not None:
        files.write_text(markdown_path, text)
    kind_for(record, known).show(record, console(), dispatches)
    if is_interrupted:
        echo("Interrupted: these are the figures so far", is_error=True)
        context.exit(INTERRUPTED)
    if not kind_for(record, known).is_correct(record):
        raise click.ClickException("a result is DIFFERENT from the expected one")
