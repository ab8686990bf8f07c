"""`dmlvk run MODEL.onnx`: an ONNX model, the places of its nodes, and their check."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from rich.table import Table
from rich.text import Text

from dmlvk._common import files
from dmlvk._printable import printable
from dmlvk.command_line.terminal import (
    COMPILED,
    INTERRUPTED,
    Steps,
    console,
    echo,
    ended_early,
    one_line,
    shown_progress,
)
from dmlvk.device_profile import DeviceType

if TYPE_CHECKING:
    from dmlvk.onnx import Difference, InferenceSession
    from dmlvk.onnx.checking import Finding
    from dmlvk.onnx.profile import Profile

Feeds = dict[str, np.ndarray]
# Elements of an input for which random ones are made, if it is not given.
MOST_RANDOM = 1 << 28
# In a file's name.
UNSAFE = r"[^\w.-]"
COLOURS = {"device": "green", "view": "green", "folded": "cyan", "host": "yellow"}


def run_onnx(
    model: Path,
    selector: str | None,
    inputs: Sequence[str],
    output: Path | None,
    check: bool,
    fuse_qdq: bool,
    repeat: int | None = None,
) -> None:
    """Run a model on given or random inputs, and print where its nodes run.

    inputs: each "name=file.npy". The second file of a name belongs to the second run, and so on. Without any, the
        inputs are random, and a dimension of any size is 1.
    output: the folder for the outputs, "name.npy"; where there are several runs, "0_name.npy" and so on.
    check: compare each node on the device with the host's library on the same inputs.
    repeat: the number of runs of each; the bits of all outputs are compared with those of the first run.
    Raises click.ClickException: the model or an input is wrong, or the check finds a difference. Nothing is written
        then.
    """
    if output is not None:
        files.require_folder_place(output)
    try:
        from dmlvk.onnx import InferenceSession, ModelError
        from dmlvk.onnx.checking import check as check_session
    except ImportError as error:
        raise click.ClickException(one_line(error)) from error
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*runs on this machine's processor")  # the last line says it
            session = InferenceSession(model, device=selector, fuse_qdq=fuse_qdq)
        runs = _runs(session, inputs)
        terminal = console()
        results: list[list[Any]] = []
        findings: dict[str, Finding] = {}
        differences: list[Difference] = []
        ran = 0
        with shown_progress(terminal, len(runs)) as step:
            session.device.compile_progress = step.parts(COMPILED)
            for number, feeds in enumerate(runs):
                step(f"run {number + 1}")
                results.append(session.run(None, feeds))
                for finding in check_session(session, feeds) if check else ():
                    # Of several runs, the first that differs.
                    if findings.get(finding.name) is None or findings[finding.name].is_equal:
                        findings[finding.name] = finding
                if repeat:
                    found, ran = _repeated(session, feeds, repeat, step)
                    differences += found
                    if ran < repeat:
                        break
            step("times")
            profile = session.profiled(runs[-1])[1]
    except ModelError as error:
        raise click.ClickException(one_line(error)) from error
    terminal.print(_table(session, model, findings if check else None))
    described = "; ".join(f"{each.name}, {each.type} {each.shape}" for each in session.get_inputs())
    terminal.print(f"Inputs: {described}.", soft_wrap=True)
    wrong = [finding for finding in findings.values() if finding.is_equal is False]
    if wrong:
        text = "; ".join(f"{finding.name}: {finding.text}" for finding in wrong[:3])
        raise click.ClickException(f"{len(wrong)} nodes differ from the host's: {text}")
    if differences:
        if output is not None:
            for each in differences:
                for kind, array in (("first", each.first), (f"run_{each.run}", each.found)):
                    name = f"{re.sub(UNSAFE, '_', each.output)}_{kind}.npy"
                    terminal.print(f"Kept: {files.write_inside(output, name, files.npy_bytes(array))}", soft_wrap=True)
        advice = "" if output is not None else "; --output FOLDER keeps both arrays"
        raise click.ClickException(f"the same run gave other bits: {differences[0]}{advice}")
    if repeat:
        terminal.print(f"Each of {ran:,} runs gave the same bits.")
        if ran < repeat:
            echo(f"Interrupted after {ran:,} of {repeat:,} runs", is_error=True)
            raise click.exceptions.Exit(INTERRUPTED)
    terminal.print(time_line(session, profile), soft_wrap=True)
    if output is not None:
        for name, content in _files(session, results):
            path = files.write_inside(output, name, content)
            terminal.print(f"Output: {path}", soft_wrap=True)


def _repeated(
    session: InferenceSession, feeds: Mapping[str, Any], runs: int, step: Steps
) -> tuple[list[Difference], int]:
    """The differences of repeated runs, and the number of runs, which Ctrl-C ends early."""
    show = step.parts("runs repeated")
    ran = 1

    with ended_early() as is_ended:

        def after(number: int, of: int) -> bool:
            nonlocal ran
            ran = number
            show(number, of)
            return not is_ended.is_set()

        return session.repeat(feeds, runs, after), ran


def time_line(session: InferenceSession, profile: Profile) -> str:
    """Where the time of a run went, and what would make it shorter."""
    parts = {
        "the device's nodes": sum(step.seconds for step in profile.steps if step.where == "device"),
        "the host's nodes": sum(step.seconds for step in profile.steps if step.where == "host"),
        "copies between them": sum(step.to_device_seconds + step.from_device_seconds for step in profile.steps),
        "Python": profile.rest_seconds,
    }
    text = ", ".join(f"{name} {seconds * 1e3:,.2f} ms" for name, seconds in parts.items() if seconds > 0)
    return f"A run of {profile.seconds * 1e3:,.2f} ms: {text}. {_advice(session, max(parts, key=parts.__getitem__))}"


def _advice(session: InferenceSession, longest: str) -> str:
    """What would make a run shorter whose time is mostly in one of its parts."""
    rows = session.placement
    on_host = [row.op_type for row in rows if row.where == "host"]
    if not any(row.where == "device" for row in rows):
        if any("Quantize" in row.op_type or row.op_type.startswith("QLinear") for row in rows):
            return "No node runs on the device; the column of reasons says why."
        return "The model is in floats, which ONNX Runtime runs on the CPU: dmlvk quantize makes integers of it."
    if session.device.profile.device_type is DeviceType.CPU:
        return f"{session.device.name} runs on this machine's processor: a GPU would be faster, and so is ONNX Runtime."
    if longest == "the host's nodes":
        names = ", ".join(dict.fromkeys(on_host))
        return f"Fewer nodes on the host would make it faster: {names}."
    if longest == "copies between them":
        return "Smaller inputs and outputs would make it faster, or two runs at once (session.map)."
    if longest == "Python":
        return "Larger batches would make it faster for each input."
    return "dmlvk bench --model shows each step; dmlvk tune looks for faster kernels."


def random_feeds(session: InferenceSession) -> Feeds:
    """Random inputs of a model; a dimension of any size is 1."""
    from dmlvk.onnx import ModelError
    from dmlvk.onnx.random_feeds import random_feed

    generator = np.random.default_rng(0)
    feeds = {}
    for each in session.get_inputs():
        sizes = [size if isinstance(size, int) else 1 for size in each.shape]
        if math.prod(sizes) > MOST_RANDOM or min(sizes, default=0) < 0:
            rule = f"its sizes are {sizes}, for which there are no random elements"
            raise ModelError(f"the input {each.name!r}: {rule}: pass --input")
        try:
            feeds[each.name] = random_feed(generator, each, sizes)
        except ModelError as error:
            raise ModelError(f"{error}: pass --input") from error
    return feeds


def _runs(session: InferenceSession, inputs: Sequence[str]) -> list[Feeds]:
    """The inputs of each run."""
    if not inputs:
        return [random_feeds(session)]
    given: dict[str, list[np.ndarray]] = {}
    names = [each.name for each in session.get_inputs()]
    for text in inputs:
        name, place = _named(text, names)
        try:
            array = files.read_npy(Path(place), None)
        except OSError as error:
            raise click.BadParameter(f"{name!r}: {error}", param_hint="--input") from error
        given.setdefault(name, []).append(array)
    counts = {name: len(arrays) for name, arrays in given.items()}
    if len(set(counts.values())) > 1:
        raise click.BadParameter(f"each input has one file for each run; there are {counts}", param_hint="--input")
    return [{name: arrays[k] for name, arrays in given.items()} for k in range(next(iter(counts.values())))]


def _named(text: str, names: Sequence[str]) -> tuple[str, str]:
    """The name and the file of "name=file.npy". Both may contain "=": the longest name of an input counts."""
    if "=" not in text:
        raise click.BadParameter(f"{text!r} is not NAME=FILE.npy", param_hint="--input")
    known = [name for name in names if text.startswith(f"{name}=")]
    if not known:
        there = ", ".join(map(repr, names)) or "none"
        raise click.BadParameter(f"{text!r} names no input of the model; its inputs are {there}", param_hint="--input")
    name = max(known, key=len)
    return name, text[len(name) + 1 :]


def _table(session: InferenceSession, model: Path, findings: dict[str, Finding] | None) -> Table:
    title = f"{model.name} on {session.device.name}"
    table = Table(title=title, title_justify="left", caption_justify="left")
    for heading in ("node", "operator", "where", *(() if findings is None else ("check",)), "reason"):
        table.add_column(heading, overflow="fold")
    rows = session.placement
    for row in rows:
        cells: list[str | Text] = [row.name, row.op_type, Text(row.where, COLOURS.get(row.where, ""))]
        if findings is not None:
            cells.append(_verdict(findings.get(row.name)))
        table.add_row(*cells, row.reason)
    counts = {where: sum(row.where == where for row in rows) for where in COLOURS}
    memory, traffic = session.memory, session.traffic
    on_device = (
        f"The run has {traffic.parts} part{'s' * (traffic.parts != 1)}; {traffic.bytes_to_device:,} bytes go to "
        f"the device and {traffic.bytes_from_device:,} come back. Values on the device take {memory.peak:,} bytes; "
        f"beside each other they would take {memory.sum:,}."
    )
    table.caption = (
        ", ".join(f"{count} {where}" for where, count in counts.items() if count)
        + f". {on_device if memory.peak else 'Nothing runs on the device.'}"
    )
    return table


def _verdict(finding: Finding | None) -> Text:
    if finding is None:
        return Text("")
    if finding.is_equal is None:
        return Text(printable(finding.text), "yellow")
    return Text("equal", "green") if finding.is_equal else Text("DIFFERS", "red")


def _files(session: InferenceSession, results: list[list[Any]]) -> Iterator[tuple[str, bytes]]:
    """The outputs as .npy files by name. Characters that are not safe in a file's name become "_"."""
    taken: set[str] = set()
    for number, outputs in enumerate(results):
        for described, array in zip(session.get_outputs(), outputs, strict=True):
            stem = re.sub(UNSAFE, "_", described.name)
            stem = stem if len(results) == 1 else f"{number}_{stem}"
            # Some file systems take two names that differ in their case for one.
            while stem.casefold() in taken:
                stem += "_"
            taken.add(stem.casefold())
            try:
                content = files.npy_bytes(np.asarray(array))
            except (TypeError, ValueError) as error:
                raise click.ClickException(f"the output {described.name!r} cannot be a .npy file: {error}") from error
            yield f"{stem}.npy", content
