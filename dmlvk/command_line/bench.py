"""`dmlvk bench`: the speed of operators and models, beside the device's best rates and the speed of other libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dmlvk._common import files
from dmlvk.command_line.bench_record import FILE, measured_and_shown, record_options
from dmlvk.command_line.bench_subject import MEASURE, BenchRequest, name_profiles, require_subject, required_cases
from dmlvk.command_line.clusters import connected
from dmlvk.command_line.terminal import clear_errors, console, require_names

if TYPE_CHECKING:
    from dmlvk.benchmark.choice import Choice
    from dmlvk.benchmark.records import Keep, Record


@click.command(short_help="Measure the speed of operators or models.")
@click.option("--model", type=FILE, default=None, help="In place of operators: a model, .onnx, as a whole.")
@click.option("--network", default=None, help="In place of operators: all convolutions of resnet50, mobilenetv2, ...")
@click.option("--device", "selector", default=None, help="Index or part of a name; else $DMLVK_DEVICE, else the best.")
@click.option(
    "--profile",
    "profiles",
    multiple=True,
    metavar="NAME",
    help="Of operators and networks: as on a lesser device, no-matrix or no-dot-product, ...; repeatable.",
)
@click.option("--scheduler", metavar="ADDRESS", help="On every distinct device of a Dask cluster, as tcp://host:8786.")
@click.option("--operator", "operators", multiple=True, help="SLICE1, one_hot, ...; may be repeated. Default: all.")
@click.option(
    "--case",
    "patterns",
    multiple=True,
    metavar="PATTERN",
    help="Part of a name, with *, ? and []; may be repeated.",
)
@click.option("--type", "types", multiple=True, help="Data type, as UINT16; may be repeated.")
@click.option("--layout", "layouts", multiple=True, help="Of convolutions: nhwc or nchw. Default: both.")
@click.option("--path", default=None, help="Force a kernel path: direct, vectors, matrix:128x128x64:64x32, ...")
@click.option(
    "--filter",
    "filter_kind",
    type=click.Choice(["owned", "bound"]),
    default="owned",
    show_default=True,
    help="Convolution filters: given once, before (OWNED_BY_DML), or bound and packed each time.",
)
@click.option(
    "--parameters",
    "parameters_kind",
    type=click.Choice(["owned", "bound"]),
    default="owned",
    show_default=True,
    help="Their scales, zero points and biases: given once, or bound and worked out each time.",
)
@click.option(
    "--size",
    type=click.Choice(["full", "small", "tiny"]),
    default=None,
    help="Default: full on a GPU, small on a CPU driver.",
)
@click.option(
    "--batch",
    "batches",
    type=click.IntRange(1),
    multiple=True,
    help="Images of a convolution; of a model or a network, and then repeatable.",
)
@click.option("--megabytes", type=click.IntRange(1), default=None, help="Input of the others; a power of two.")
@click.option("--rounds", type=click.IntRange(1), default=20, show_default=True, help="Fewer where they take long.")
@click.option("--peer", "peers", multiple=True, help="torch, cupy, ...; none for none. Repeatable. Default: all.")
@click.option("--dispatches", is_flag=True, help="Also the time of each dispatch.")
@click.option("--list", "lists", is_flag=True, help="Only print the names of the cases.")
@record_options
@clear_errors
@click.pass_context
def bench(context: click.Context, /, **options: object) -> None:
    """Measure the speed of operators, of a whole model, or of all layers of a network, with every result checked.

    Each case stands beside the mark of the same run (a plain copy, a plain fill, multiply-adds from registers) and
    beside other libraries on the same work, where they are installed. Times of Vulkan kernels are the GPU's own.

    A model runs on random inputs, beside ONNX Runtime on the CPU: the run as a whole, and how much of it is the
    GPU's, the bus's and the host's.

    A network's convolutions run each alone and all in their order, each waiting for the one before, in several batches
    and both layouts, beside what was predicted and the time of a dispatch that does nothing.

    Ends with status 1 if any result is not the reference's, bit for bit.
    """
    subject = require_subject(context)
    request = BenchRequest(**options)  # type: ignore[arg-type]
    choice, outputs = request.choice(), request.outputs
    if request.scheduler is not None:
        if outputs.plot_path is not None or outputs.source is not None or request.lists or request.profiles:
            raise click.UsageError(
                "--scheduler measures on many devices; leave out --plot, --from-json, --profile and --list"
            )
        _bench_cluster(request, choice)
        return

    def measure(keep: Keep) -> Record | None:
        def named(record: Record) -> None:
            name_profiles(record, request.profiles)
            keep(record)

        record = MEASURE[subject](request, console(), named)
        if record is not None:
            name_profiles(record, request.profiles)
        return record

    measured_and_shown(context, outputs, measure, dispatches=request.dispatches, writes=not request.lists)


def _bench_cluster(request: BenchRequest, choice: Choice) -> None:
    """Measure on every distinct device of a cluster, write the records and show them.

    Raises click.ClickException: no case is chosen, or a result is not the reference's.
    Raises ClusterError: as `dmlvk.benchmark.cluster.run`.
    """
    assert request.scheduler is not None
    json_path, markdown_path = request.outputs.json_path, request.outputs.markdown_path
    with connected(request.scheduler) as client:
        from dmlvk.benchmark import cluster
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

        records = cluster.run(client, choice, request.selector, keep)
    if markdown_path is not None:
        files.write_text(
            markdown_path, "\n".join(line for record in records for line in (*kind_for(record).page(record), "")) + "\n"
        )
    for record in records:
        kind_for(record).show(record, console(), request.dispatches)
    if not all(kind_for(record).is_correct(record) for record in records):
        raise click.ClickException("a result is DIFFERENT from the expected one")
