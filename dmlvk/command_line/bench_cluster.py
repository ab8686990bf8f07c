"""`dmlvk bench --scheduler`: every distinct device of a cluster is measured; and the records of such a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dmlvk._common import files
from dmlvk.command_line.bench_subject import required_cases
from dmlvk.command_line.clusters import connected
from dmlvk.command_line.terminal import console, require_names

if TYPE_CHECKING:
    from dmlvk.benchmark.choice import Choice
    from dmlvk.benchmark.records import Record


def bench_cluster(
    address: str,
    choice: Choice,
    selector: str | None,
    *,
    json_path: Path | None,
    markdown_path: Path | None,
    dispatches: bool,
) -> None:
    """Measure on a cluster, write the records and show them.

    Raises
    ------
    click.ClickException
        No case is chosen, or a result is not the reference's.
    ClusterError
        As `dmlvk.benchmark.cluster.run`.
    """
    with connected(address) as client:
        from dmlvk.benchmark import cluster, harness
        from dmlvk.benchmark.kinds import kind_for
        from dmlvk.benchmark.peers import PEERS

        require_names("--peer", choice.peers, PEERS)
        required_cases(choice, is_cpu=False)
        for path in (json_path, markdown_path):
            if path is not None:
                files.require_place(path)
        if json_path is not None:
            files.require_own(json_path, cluster.read)

        def keep(records: list[Record]) -> None:
            if json_path is not None:
                cluster.write(records, json_path)

        records = cluster.run(client, choice, selector, keep)
    if markdown_path is not None:
        files.write_text(
            markdown_path, "\n".join(line for record in records for line in (*kind_for(record).page(record), "")) + "\n"
        )
    for record in records:
        kind_for(record).show(record, console(), dispatches)
    if not all(harness.is_correct(record) for record in records):
        raise click.ClickException("a result is DIFFERENT from the expected one")
