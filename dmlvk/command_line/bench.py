"""`dmlvk bench`: the operators' speed, beside what the device can reach and what other libraries do."""

from __future__ import annotations

from pathlib import Path

import click

from dmlvk.command_line.terminal import clear_errors, console

FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.option("--device", "selector", default=None, help="Index or part of a name; else $DMLVK_DEVICE, else the best.")
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
    from dataclasses import replace

    import dmlvk
    from dmlvk.benchmark import harness, roofline
    from dmlvk.benchmark.cases import OPERATORS, SCALES, cases, select
    from dmlvk.benchmark.markdown import page
    from dmlvk.benchmark.peers import PEERS
    from dmlvk.benchmark.tables import show
    from dmlvk.command_line.terminal import require_names, shown_progress

    terminal = console()
    if plot_path is not None:
        roofline.require_matplotlib()
    if source is not None:
        try:
            record = harness.read(source)
        except ValueError as error:
            raise click.ClickException(str(error)) from None
    else:
        require_names("--operator", operators, OPERATORS)
        require_names("--peer", peers, [*PEERS, "none"])
        with dmlvk.Device(selector, timestamps=True) as device:
            is_cpu = device.profile.device_type is dmlvk.DeviceType.CPU
            scale = SCALES[size or ("small" if is_cpu else "full")]
            if megabytes is not None:
                if megabytes & (megabytes - 1):
                    raise click.BadParameter(f"{megabytes} is no power of two", param_hint="--megabytes")
                scale = replace(scale, data_bytes=megabytes << 20)
            if batch is not None:
                scale = replace(scale, batch=batch)
            found = cases(scale, filter_is_owned=filter_kind == "owned")
            chosen = select(found, operators=operators, patterns=patterns, types=types, layouts=layouts, path=path)
            if lists:
                for case in chosen:
                    click.echo(case.name)
                return
            if not chosen:
                raise click.ClickException("no case is of that kind; `dmlvk bench --list` names those that there are")
            # On a CPU driver those that compile for Vulkan take minutes: they wait to be asked.
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
    if plot_path is not None:
        roofline.draw(record, plot_path)
    if markdown_path is not None:
        markdown_path.write_text("\n".join(page(record)) + "\n", encoding="utf-8")
    show(record, terminal, dispatches=dispatches)
    if not harness.is_correct(record):
        raise click.ClickException("a result is DIFFERENT from what it must be")
