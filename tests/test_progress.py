"""The progress bars of the commands that compile many kernels: on a terminal, and nowhere else."""

from __future__ import annotations

import importlib
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result

import dmlvk
import dmlvk.demo
from dmlvk.command_line import main
from dmlvk.command_line.terminal import COMPILED, PlainConsole, shown_parts, shown_progress
from dmlvk.demo.panels import slice1_panels
from dmlvk.operators.serialization import serialize
from tests.dxdispatch.models import copy_model, write
from tests.onnx.models import convolution as convolution_node
from tests.onnx.models import convolution_parameters, model_of
from tests.runtime.convolutions import convolution

# "2/3 0:00:01": how much is done, and since when.
BAR = re.compile(r"\d+/\d+ +\d:\d\d:\d\d")
IMAGE = np.zeros((1, 3, 6, 5), np.uint8)


class Screen:
    """What is drawn on a terminal."""

    def __init__(self) -> None:
        self._file = io.StringIO()
        self.console = PlainConsole(file=self._file, force_terminal=True, width=100)

    @property
    def text(self) -> str:
        """Everything that was ever drawn, without colours."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self._file.getvalue())


@pytest.fixture
def screen() -> Screen:
    return Screen()


def test_steps_and_their_parts(screen: Screen) -> None:
    with shown_progress(screen.console, 3) as step:
        step("one [name]")
        show = step.parts("pieces")
        for done in range(3):
            show(done, 2)
        screen.console.print("printed beside it")
        step("another name")
    assert "one [name]" in screen.text
    assert "0/3" in screen.text and "1/3" in screen.text and "-1" not in screen.text
    assert re.search(r"0/2 .*pieces", screen.text)
    assert "printed beside it" in screen.text
    later = screen.text.partition("printed beside it")[2]
    assert "another name" in later
    assert "pieces" not in later


def test_a_bar_for_parts_alone_ends_with_them(screen: Screen) -> None:
    with shown_parts(screen.console, "pieces") as show:
        for round_number in range(2):
            for done in range(4):
                show(done, 3)
            assert sys.stdout is not screen.console.file
            long = f"{round_number} " + "wide " * 60
            screen.console.file.write(f"{long}\n")
    assert len(re.findall("0/3 .*pieces", screen.text)) == 2
    assert "wide " * 60 in screen.text


@pytest.mark.parametrize("bar", [lambda c: shown_progress(c, 3), lambda c: shown_parts(c, "pieces")])
def test_nothing_is_drawn_without_a_terminal(bar: Any) -> None:
    file = io.StringIO()
    with bar(PlainConsole(file=file)) as told:
        show = told.parts("pieces") if hasattr(told, "parts") else told
        for done in range(4):
            show(done, 3)
    assert file.getvalue() == ""


def test_compiling_many_is_told(device: dmlvk.Device) -> None:
    calls: list[tuple[int, int]] = []
    with dmlvk.Device(device.name) as own:
        own.compile_progress = lambda done, total: calls.append((done, total))
        own.compile_all(convolution(8, size, owned=False).desc for size in (5, 6, 7))
        own.compile(convolution(8, 8, owned=False).desc)
        assert sorted(calls) == [(done, 3) for done in range(4)]
        assert calls[0] == (0, 3)
        own.compile_progress = None
        own.compile_all([convolution(8, 5, owned=False).desc])
    assert len(calls) == 4


COPIED = {"initialValuesDataType": "UINT8", "initialValues": [1, 2, 3]}
COMMANDS: dict[str, tuple[list[str], list[str]]] = {
    "run_onnx": (["run", "MODEL.onnx"], [COMPILED, "run 1"]),
    "run": (["run", "MODEL.json"], [COMPILED]),
    "bench": (["bench", "--model", "MODEL.onnx", "--rounds", "1", "--peer", "none"], [COMPILED, "a run"]),
    "tune": (["tune", "--descriptors", "DESCRIPTORS", "--rounds", "1"], ["paths compiled or measured"]),
    "demo": (["demo", "--output", "PICTURE.png"], ["a network"]),
}


def files(folder: Path) -> dict[str, Path]:
    """What the commands read and write."""
    places = {name: folder / name.lower() for name in ("DESCRIPTORS", "PICTURE.png", "MODEL.onnx")}
    parameters = convolution_parameters(np.random.default_rng(0), (4, 3, 3, 3))
    onnx.save(model_of([convolution_node(parameters)], {"x": IMAGE}, {"y": np.uint8}, parameters), places["MODEL.onnx"])
    places["DESCRIPTORS"].write_text(json.dumps(serialize(convolution(8, 5, owned=False).desc)), encoding="utf-8")
    places["MODEL.json"] = write(folder, copy_model("UINT8", 3, COPIED))
    return places


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "pipe"])
@pytest.mark.parametrize("name", COMMANDS)
def test_commands_that_compile_many(
    device: dmlvk.Device, screen: Screen, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, terminal: bool
) -> None:
    monkeypatch.setattr(dmlvk.demo, "all_panels", lambda photo: {"SLICE1": slice1_panels(photo)[:2]})
    monkeypatch.setattr(dmlvk.demo, "missing_package", lambda: "left out")
    arguments, texts = COMMANDS[name]
    monkeypatch.setenv("DMLVK_CACHE_DIR", str(tmp_path / "cache"))
    places = {name: str(path) for name, path in files(tmp_path).items()}
    if terminal:
        monkeypatch.setattr(importlib.import_module(f"dmlvk.command_line.{name}"), "console", lambda: screen.console)
    given = [places.get(argument, argument) for argument in arguments]
    done: Result = CliRunner().invoke(main, [*given, "--device", device.name])
    assert done.exit_code == 0, done.output
    for text in texts:
        assert text in screen.text or not terminal
    assert bool(BAR.search(screen.text)) == terminal
    assert not BAR.search(done.output)
    assert "\x1b" not in done.output


def test_lines_where_the_output_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from dmlvk.command_line import terminal

    plain = PlainConsole(file=io.StringIO(), force_terminal=False)
    with shown_progress(plain, 2) as step:
        step("one")
    assert capsys.readouterr().err == ""  # not so soon
    monkeypatch.setattr(terminal, "LINE_SECONDS", 0.0)
    with shown_progress(plain, 2) as step:
        step("one [name]")
        step.parts("pieces")(1, 7)
        step("two")
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["0 s: 0 of 2, one [name]", "0 s: 1 of 7 pieces", "0 s: 1 of 2, two"]
