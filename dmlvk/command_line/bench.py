"""`dmlvk bench`: the speed of operators and models, beside the device's best rates and the speed of other libraries."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dmlvk._common import files
from dmlvk.command_line.bench_subject import MEASURE, BenchRequest, name_profiles, require_subject, required_cases
from dmlvk.command_line.clusters import connected
from dmlvk.command_line.terminal import INTERRUPTED, PlainConsole, clear_errors, console, echo, require_names

if TYPE_CHECKING:
    from dmlvk.benchmark.choice import Choice
    from dmlvk.benchmark.records import Record

FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(short_help="Measure the speed of operators or models.")
@click.option("--model", type=FILE, default=None, help="In place of operators: a model, .onnx, as a whole.")
@click.option("--network", default=None, help="In place of operators: all convolutions of resnet50, mobilenetv2, ...")
@click.option("--cold", is_flag=True, help="Of a network: the first calls, in fresh processes, with no cache and one.")
@click.option("--sweep", is_flag=True, help="In place of operators' cases: random shapes, the slowest ones first.")
@click.option("--seconds", type=click.FloatRange(0, min_open=True), default=60.0, show_default=True, help="Of --sweep.")
@click.option("--seed", type=int, default=1, show_default=True, help="Of --sweep: the same seed, the same shapes.")
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
@click.option("--json", "json_path", type=FILE, default=None, help="Write all figures here.")
@click.option("--plot", "plot_path", type=FILE, default=None, help="Draw a picture here, a PNG.")
@click.option("--markdown", "markdown_path", type=FILE, default=None, help="Write the tables here, as Markdown.")
@click.option("--from-json", "source", type=FILE, default=None, help="Measure nothing: take the figures of --json.")
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

    With --cold, the times are those for which the layers wait for the driver's compiler: all compiled in one thread
    and in as many as there are cores, and each called at once, with the driver's own caches off.

    With --sweep, random convolutions and SLICE1s are measured for some time. Those come first that are furthest from
    what bounds them: the copy of their bytes, or their operations on the fastest unit.

    Ends with status 1 if any result is not the reference's, bit for bit.
    """
    import io

    from dmlvk.benchmark import drawing, records
    from dmlvk.benchmark.kinds import kind_for

    subject = require_subject(context)
    request = BenchRequest(**options)  # type: ignore[arg-type]
    terminal, choice = console(), request.choice()
    json_path, plot_path, markdown_path = request.json_path, request.plot_path, request.markdown_path
    if request.scheduler is not None:
        if plot_path is not None or request.source is not None or request.lists or request.profiles:
            raise click.UsageError(
                "--scheduler measures on many devices; leave out --plot, --from-json, --profile and --list"
            )
        _bench_cluster(request, choice)
        return
    if plot_path is not None:
        drawing.require_matplotlib()
        if plot_path.name and not plot_path.suffix:
            plot_path = plot_path.with_name(f"{plot_path.name}.png")
        files.require_place(plot_path)
        drawing.picture_format(plot_path)
    if markdown_path is not None:
        files.require_place(markdown_path)
    if json_path is not None and request.source is None and not request.lists:
        files.require_own(json_path, records.read)

    def drawn(record: records.Record) -> tuple[bytes, str]:
        """The picture and the page, if requested."""
        kind = kind_for(record)
        picture = b"" if plot_path is None else kind.draw(record, drawing.picture_format(plot_path))
        return picture, "" if markdown_path is None else "\n".join(kind.page(record)) + "\n"

    kept: list[records.Record] = []

    def keep(record: records.Record) -> None:
        name_profiles(record, request.profiles)
        kept[:] = [record]
        if json_path is not None:
            records.write(record, json_path)

    is_interrupted = False
    if request.source is not None:
        record = records.read(request.source)
        try:
            picture, text = drawn(record)
            kind_for(record).show(record, PlainConsole(file=io.StringIO()), request.dispatches)
            kind_for(record).is_correct(record)
        except Exception as error:  # a record of the right format may still lack data that is shown
            problem = f"{type(error).__name__}: {error}"
            raise files.FileError(
                f"{request.source} is not a whole record of `dmlvk bench --json`: {problem}"
            ) from error
    else:
        try:
            found = MEASURE[subject](request, terminal, keep)
        except KeyboardInterrupt:
            if not kept:
                raise
            found, is_interrupted = kept[0], True
        if found is None:
            return
        record = found
        name_profiles(record, request.profiles)
        picture, text = drawn(record)
    if plot_path is not None:
        files.write_bytes(plot_path, picture)
    if markdown_path is not None:
        files.write_text(markdown_path, text)
    kind_for(record).show(record, terminal, request.dispatches)
    if is_interrupted:
        echo("Interrupted: these are the figures so far", is_error=True)
        context.exit(INTERRUPTED)
    if not kind_for(record).is_correct(record):
        raise click.ClickException("a result is DIFFERENT from the expected one")


def _bench_cluster(request: BenchRequest, choice: Choice) -> None:
    """Measure on every distinct device of a cluster, write the records and show them.

    Raises click.ClickException: no case is chosen, or a result is not the reference's.
    Raises ClusterError: as `dmlvk.benchmark.cluster.run`.
    """
    assert request.scheduler is not None
    json_path, markdown_path = request.json_path, request.markdown_path
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
