"""`dmlvk bench`: the operators' speed, beside the device's best rates and the speed of other libraries."""

from __future__ import annotations

from pathlib import Path

import click

from dmlvk.command_line.terminal import PlainConsole, clear_errors, console

FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.option("--device", "selector", default=None, help="Index or part of a name; else $DMLVK_DEVICE, else the best.")
@click.option("--scheduler", metavar="ADDRESS", help="On every distinct device of a Dask cluster, as tcp://host:8786.")
@click.option("--operator", "operators", multiple=True, help="slice1, one_hot, ...; may be repeated. Default: all.")
@click.option(
    "--case",
    "patterns",
    multiple=True,
    metavar="PATTERN",
    help="Part of a name, with *, ? and []; may be repeated.",
)
@click.option("--type", "types", multiple=True, help="Data type, as UINT16; may be repeated.")
@click.option("--layout", "layouts", multiple=True, help="Of convolutions: nhwc or nchw. Default: both.")
@click.option("--path", default=None, help="Force a kernel path: direct, dot4, matrix:128x128x64:64x32, ...")
@click.option(
    "--filter",
    "filter_kind",
    type=click.Choice(["owned", "bound"]),
    default="owned",
    show_default=True,
    help="Convolution filters: given once, before (OWNED_BY_DML), or bound and packed each time.",
)
@click.option(
    "--size",
    type=click.Choice(["full", "small", "tiny"]),
    default=None,
    help="Default: full on a GPU, small on a CPU driver.",
)
@click.option("--batch", type=click.IntRange(1), default=None, help="Images of a convolution.")
@click.option("--megabytes", type=click.IntRange(1), default=None, help="Input of the others; a power of two.")
@click.option("--rounds", type=click.IntRange(1), default=20, show_default=True, help="Fewer where they take long.")
@click.option("--peer", "peers", multiple=True, help="torch, cupy, ...; none for none. Repeatable. Default: all.")
@click.option("--dispatches", is_flag=True, help="Also the time of each dispatch.")
@click.option("--list", "lists", is_flag=True, help="Only print the names of the cases.")
@click.option("--json", "json_path", type=FILE, default=None, help="Write all figures here.")
@click.option("--plot", "plot_path", type=FILE, default=None, help="Draw a roofline here, a PNG.")
@click.option("--markdown", "markdown_path", type=FILE, default=None, help="Write the tables here, as Markdown.")
@click.option("--from-json", "source", type=FILE, default=None, help="Measure nothing: take the figures of --json.")
@clear_errors
def bench(
    selector: str | None,
    scheduler: str | None,
    operators: tuple[str, ...],
    patterns: tuple[str, ...],
    types: tuple[str, ...],
    layouts: tuple[str, ...],
    path: str | None,
    filter_kind: str,
    size: str | None,
    batch: int | None,
    megabytes: int | None,
    rounds: int,
    peers: tuple[str, ...],
    dispatches: bool,
    lists: bool,
    json_path: Path | None,
    plot_path: Path | None,
    markdown_path: Path | None,
    source: Path | None,
) -> None:
    """Measure the operators' speed, with every result checked.

    Each case stands beside the mark of the same run (a plain copy, a plain fill, multiply-adds from registers) and
    beside other libraries on the same work, where they are installed. Times of Vulkan kernels are the GPU's own.

    Ends with status 1 if any result is not the reference's, bit for bit.
    """
    import io
    from dataclasses import replace

    import dmlvk
    from dmlvk import files
    from dmlvk.benchmark import harness, roofline
    from dmlvk.benchmark.cases import OPERATORS, SCALES, cases, select
    from dmlvk.benchmark.markdown import page
    from dmlvk.benchmark.peers import PEERS
    from dmlvk.benchmark.tables import show
    from dmlvk.command_line.terminal import require_names, shown_progress

    terminal = console()
    if scheduler is not None:
        if plot_path is not None or source is not None or lists:
            raise click.UsageError("--scheduler measures on many devices; leave out --plot, --from-json and --list")
        if megabytes is not None:
            require_power_of_two(megabytes)
        data_bytes = None if megabytes is None else megabytes << 20
        from dmlvk.benchmark.choice import Choice
        from dmlvk.command_line.bench_cluster import bench_cluster

        beside = [name for name in peers if name != "none"]
        choice = Choice(
            operators,
            patterns,
            types,
            layouts,
            path,
            filter_kind == "owned",
            size,
            batch,
            data_bytes,
            rounds,
            beside,
        )
        bench_cluster(
            scheduler, choice, selector, json_path=json_path, markdown_path=markdown_path, dispatches=dispatches
        )
        return
    if plot_path is not None:
        roofline.require_matplotlib()
        # A file name without an extension gets one.
        plot_path = plot_path if plot_path.suffix else plot_path.with_name(f"{plot_path.name}.png")
        files.require_place(plot_path)
        roofline.picture_format(plot_path)
    if markdown_path is not None:
        files.require_place(markdown_path)
    if json_path is not None and source is None and not lists:
        files.require_own(json_path, harness.read)

    def drawn(record: harness.Record) -> tuple[bytes, str]:
        """The picture and the page, if requested."""
        picture = b"" if plot_path is None else roofline.draw(record, roofline.picture_format(plot_path))
        return picture, "" if markdown_path is None else "\n".join(page(record)) + "\n"

    if source is not None:
        record = harness.read(source)
        try:
            picture, text = drawn(record)
            show(record, PlainConsole(file=io.StringIO()), dispatches=dispatches)
            harness.is_correct(record)
        except Exception as error:  # a record of the right format may still lack data that is shown
            problem = f"{type(error).__name__}: {error}"
            raise files.FileError(f"{source} is not a whole record of `dmlvk bench --json`: {problem}") from error
    else:
        require_names("--operator", operators, OPERATORS)
        require_names("--peer", peers, [*PEERS, "none"])
        with dmlvk.Device(selector, timestamps=True) as device:
            is_cpu = device.profile.device_type is dmlvk.DeviceType.CPU
            scale = SCALES[size or ("small" if is_cpu else "full")]
            if megabytes is not None:
                require_power_of_two(megabytes)
                scale = replace(scale, data_bytes=megabytes << 20)
            if batch is not None:
                scale = replace(scale, batch=batch)
            found = cases(replace(scale, filter_is_owned=filter_kind == "owned"))
            chosen = select(found, operators=operators, patterns=patterns, types=types, layouts=layouts, path=path)
            if lists:
                for case in chosen:
                    click.echo(case.name)
                return
            if not chosen:
                raise click.ClickException("no case matches the options; `dmlvk bench --list` prints the names")
            # On a CPU driver, peers that compile for Vulkan take minutes: they run only if requested.
            slow = [name for name, peer in PEERS.items() if is_cpu and peer.runs_on == "Vulkan" and name not in peers]
            left_out = dict.fromkeys((name for name in PEERS if name not in peers), "not asked for")
            if not peers:
                left_out = dict.fromkeys(slow, "left out on a CPU driver, unless --peer names it")
            taking_part = [name for name in PEERS if name not in left_out]
            settings = harness.Settings(scale, rounds, taking_part, left_out)

            def keep(record: harness.Record) -> None:
                if json_path is not None:
                    harness.write(record, json_path)

            with shown_progress(terminal, len(chosen) + 1) as progress:
                record = harness.run(device, chosen, settings, progress, keep)
        picture, text = drawn(record)
    if plot_path is not None:
        files.write_bytes(plot_path, picture)
    if markdown_path is not None:
        files.write_text(markdown_path, text)
    show(record, terminal, dispatches=dispatches)
    if not harness.is_correct(record):
        raise click.ClickException("a result is DIFFERENT from the expected one")


def require_power_of_two(megabytes: int) -> None:
    """End with a message that names the option if its value is no power of two."""
    if megabytes & (megabytes - 1):
        raise click.BadParameter(f"{megabytes} is not a power of two", param_hint="--megabytes")
