"""`dmlvk compare`: do all devices give the same bits, and what did an update change?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from dmlvk._common import files
from dmlvk.command_line.terminal import clear_errors, console
from dmlvk.conformance.comparison import markdown as markdown_page
from dmlvk.conformance.comparison import page, plain
from dmlvk.conformance.comparison.changes import CaseTiming, Figures
from dmlvk.conformance.comparison.findings import compare as compare_files
from dmlvk.conformance.comparison.runs import ComparisonError
from dmlvk.conformance.comparison.terminal import print_findings
from dmlvk.conformance.digests import recorded_digests

OUTPUT_FILE = click.Path(dir_okay=False, path_type=Path)
INPUT_FILE = click.Path(path_type=Path)  # the reader reports an unreadable file, in one line
# A record of `dmlvk bench` begins with its format. Its beginning, without spaces:
BENCH_START = b'{"format"'


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="RESULTS...", type=INPUT_FILE)
@click.option("--compare", "recorded", type=INPUT_FILE, help="Recorded digests; else those that come with dmlvk.")
@click.option("--html", type=OUTPUT_FILE, help="Write one page here that needs nothing beside itself.")
@click.option("--json", type=OUTPUT_FILE, help="Write all that is known here, for programs.")
@click.option("--markdown", type=OUTPUT_FILE, help="Write the tables here.")
@clear_errors
def compare(
    paths: tuple[Path, ...], recorded: Path | None, html: Path | None, json: Path | None, markdown: Path | None
) -> None:
    """Compare the results of any number of devices and runs.

    RESULTS are files of `dmlvk conformance --json`, and of `dmlvk bench --json` for what became slower. Every digest
    is held against every other one and against the recorded ones. Two runs of one device show what an update of the
    driver or of dmlvk broke and mended. Ends with status 1 if digests disagree.
    """
    for path in (html, json, markdown):
        if path is not None:
            files.require_place(path)
            _require_other(path, paths)
    results = [path for path in paths if not is_bench(path)]
    figures = _figures([path for path in paths if path not in results])
    findings = compare_files(results, figures, recorded_digests(recorded))
    if html is not None:
        files.write_text(html, page.page(findings))
    if json is not None:
        files.write_text(json, files.json_text(plain.record(findings), 1) + "\n")
    if markdown is not None:
        files.write_text(markdown, markdown_page.page(findings))
    print_findings(console(), findings)
    if findings.disagreements:
        sys.exit(1)


def _require_other(path: Path, inputs: tuple[Path, ...]) -> None:
    """Check that a report is not written over what it reports on."""
    for given in inputs:
        if path.exists() and files.is_same(path, given):
            raise ComparisonError(f"{path} is one of the files to compare: name another file for the report")


def is_bench(path: Path) -> bool:
    """Whether a file begins like a record of `dmlvk bench --json`."""
    return b"".join(files.first_bytes(path, 200).split()).startswith(BENCH_START)


def _figures(paths: list[Path]) -> list[Figures]:
    found: list[Figures] = []
    for k, path in enumerate(paths):
        for other in paths[:k]:
            if files.is_same(path, other):
                raise ComparisonError(f"{path} is given twice (first as {other}); name each file once")
        found.append(read_figures(path))
    return found


def read_figures(path: Path) -> Figures:
    """The figures of `dmlvk bench --json`.

    Raises ComparisonError: the record is of this format, but not whole.
    Raises OSError: the file cannot be read, or is of another format.
    """
    from dmlvk.benchmark.kinds import read

    record = read(path)
    try:
        device = record["device"]
        timings = {row["name"]: _timing(row) for row in record["cases"] if "seconds" in row}
        return Figures(
            str(path),
            str(device["name"]),
            str(device["driver"]),
            (int(device["vendor_id"]), int(device["device_id"])),
            str(record["versions"]["dmlvk"]),
            str(record["date"]),
            timings,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        problem = f"{type(error).__name__}: {error}"
        raise ComparisonError(f"{path} is not a whole record of `dmlvk bench --json`: {problem}") from error


def _timing(row: dict[str, Any]) -> CaseTiming:
    seconds = row["seconds"]
    numbers = [float(seconds[name]) for name in ("median", "first_quartile", "third_quartile")]
    if not numbers[0] > 0:
        raise ValueError(f"{row['name']} has a median of {numbers[0]} s")
    return CaseTiming(str(row["path"]), dict(row["sizes"]), *numbers)
