"""Names of others on their way to a person: through every command, and every form of a report.

A name may set a terminal's title, clear its screen, turn the order of letters, end a line, or be a heading, a picture,
a table's cell, an element. All that is shown of it is text.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from onnx import helper
from rich.table import Table
from rich.text import Text

import dmlvk
from dmlvk._common import files
from dmlvk._printable import markdown, markdown_code, printable, printable_data
from dmlvk.command_line import main
from dmlvk.command_line.terminal import PlainConsole
from dmlvk.conformance.case import Case
from dmlvk.conformance.comparison import markdown as comparison_markdown
from dmlvk.conformance.errors import ConformanceError
from dmlvk.conformance.reports.html import write_html
from dmlvk.conformance.reports.junit import write_junit
from dmlvk.conformance.results import Run, Status
from dmlvk.conformance.waivers import Waiver, WaiverReport
from dmlvk.errors import BindingError, DescriptorError, DeviceError, PathError
from dmlvk.runtime import device_files, tuned_paths
from tests.conformance.comparison.made_results import bench_record, environment, result, written
from tests.conformance.drill_cases import good_cases
from tests.dxdispatch.models import write

# One of each kind, beside letters that stay.
HOSTILE = {
    "title": "a\x1b]0;title\x07b",
    "screen": "a\x1b[2J\x1b[31mb",
    "clipboard": "a\x1b]52;c;aGk=\x1b\\b",
    "c1": "a\x9b31m\x9d0;x\x9cb",
    "return": "a\rError: forged",
    "line": "a\nError: forged\n# heading\n| x | y |",
    "separators": "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg",
    "order": "a\u202eb\u2066c\u200fd\u061ce",
    "invisible": "a\u200bb\ufeffc\U000e0041d\xade",
    "half": "a\ud800b\udfffc",
    "no character": "a\ufffeb\uffffc\U0010ffffd",
    "null": "a\0b\x7fc\x08d",
    "backticks": "a`b``c` <img src=x onerror=alert(1)>",
    "element": "</script></td><script>alert(1)</script>&amp;\"'",
    "table": "a | b\\| c |",
    "picture": "![a](http://example.com/x.png) [b](javascript:alert(1)) <http://example.com> www.example.com",
    "heading": "# a",
    "item": "- a",
    "number": "1. a",
    "rule": "---",
    "signs": "*a* _b_ ~~c~~ $d$ {{ e }} {% f %} [/red]:smile:",
    "long": "\x1b[2J" * 300,
}
# What stays: letters of all the world.
HONEST = ["slice1:window:type=uint8;step=1", "größe", "畳み込み　層", "свёртка", "a b", "x\xa0y", "e\u0301", "🙂"]


def is_clean(text: str, *, is_multiline: bool = True) -> bool:
    return printable(text, is_multiline=is_multiline) == text


@pytest.fixture(params=HOSTILE)
def name(request: pytest.FixtureRequest) -> str:
    return HOSTILE[request.param]


def run(*arguments: Any, status: int | None = None) -> Result:
    done = CliRunner().invoke(main, list(map(str, arguments)))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert is_clean(done.output), repr(done.output)
    assert "\nError: forged" not in done.output
    if done.exit_code:
        assert done.output.splitlines()[-1].startswith("Error: "), done.output
    if status is not None:
        assert done.exit_code == status, done.output
    return done


@given(st.text())
def test_printable_text(text: str) -> None:
    shown = printable(text)
    assert all(character.isprintable() or unicodedata.category(character) == "Zs" for character in shown)
    assert printable(shown) == shown
    shown.encode()
    assert len(shown.splitlines()) <= 1
    lines = printable(text, is_multiline=True)
    assert lines.count("\n") == text.count("\n")
    assert [line for line in lines.split("\n") if line] == [line for line in lines.splitlines() if line]


@pytest.mark.parametrize("text", HONEST)
def test_honest_names_stay_as_they_are(text: str) -> None:
    assert printable(text) == text


def test_escapes_are_pythons() -> None:
    assert printable("\x1b[2J\u202e\ud800\U000e0041\n") == r"\x1b[2J\u202e\ud800\U000e0041\n"
    data = {"\x1b": ["\u202e", 1, None, {"a": "b\nc"}]}
    assert printable_data(data) == {r"\x1b": [r"\u202e", 1, None, {"a": "b\nc"}]}


@pytest.mark.parametrize(
    "error",
    [
        lambda text: dmlvk.dxdispatch.ModelError(text, text, text, text, text),
        lambda text: DescriptorError(text, text, text, text, text),
        *(
            lambda text, kind=kind: kind(text)
            for kind in (BindingError, PathError, DeviceError, ConformanceError, files.FileError, files.OutsideError)
        ),
        lambda text: dmlvk.onnx.ModelError(text),
        lambda text: dmlvk.DeviceLostError(text),
    ],
)
def test_errors_are_clean(error: Any, name: str) -> None:
    import dmlvk.onnx  # noqa: F401

    made = error(name)
    assert is_clean(str(made), is_multiline=isinstance(made, DeviceError))
    assert str(made)


def structure(page: str) -> list[tuple[str, str]]:
    """What Markdown makes of a page: elements, without their text."""
    tokens = MarkdownIt("gfm-like", {"html": True, "linkify": False}).parse(page)
    flat = [each for token in tokens for each in (token, *(token.children or ()))]
    # Backslashes and entities that are characters are tokens of their own, beside text.
    return [(each.type, each.tag) for each in flat if each.type not in ("text", "text_special")]


@pytest.mark.parametrize("place", ["{}", "- {}", "## {}", "> {}", "| {} | b |\n|---|---|\n| {} | c |"])
def test_markdown_shows_a_text_as_it_is(place: str, name: str) -> None:
    assert structure(place.replace("{}", markdown(name))) == structure(place.replace("{}", "name"))
    if place != "| {} | b |\n|---|---|\n| {} | c |":
        assert structure(place.replace("{}", markdown_code(name))) == structure(place.replace("{}", "`name`"))


@pytest.mark.parametrize("text", ["`", "``", "a`b", " a", "`a", "a ``` b `", "x"])
def test_markdown_code_is_one_piece(text: str) -> None:
    (paragraph,) = [token for token in MarkdownIt().parse(f"- {markdown_code(text)}") if token.children]
    (code,) = list(paragraph.children or [])
    assert code.type == "code_inline"
    assert code.content.strip() == text.strip()


class Elements(HTMLParser):
    """The elements of a page with their attributes' names, and all its text."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "wbr" and not attrs:  # where a name may break into lines
            return
        self.tags.append((tag, tuple(key for key, _ in attrs)))
        self.texts += [value for _, value in attrs if value]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def hostile_run(name: str) -> Run:
    """A run in which every text is hostile."""
    found = environment("Red 9", path=name, command=name)
    found = replace(found, device=name, driver=name, vulkan=name, package=name, system=name)
    found = replace(found, distrusted_paths={name: name})
    made = Run(found)
    made.add(result("slice1:window:" + name, status=Status.FAIL, message=name, reason=name, profile=name))
    made.add(result("slice1:other:" + name, status=Status.NOT_SUPPORTED, message=name, reason=name))
    made.add(replace(result(name), operator=name, types=name, path=name))
    return made


def require_clean_page(page: str, honest: str) -> None:
    assert is_clean(page)
    found, expected = Elements(page), Elements(honest)
    # Types are words, and each word is a choice of the filter.
    assert sorted(tag for tag in found.tags if tag[0] != "option") == sorted(
        tag for tag in expected.tags if tag[0] != "option"
    )
    assert {tag for tag in found.tags if tag[0] == "option"} <= {("option", ()), ("option", ("value",))}
    # The data of the script is JSON: whatever it holds is shown by `textContent`.
    for text in found.texts:
        if text.startswith('{"devices"'):
            assert printable_data(json.loads(text)) == json.loads(text)


def test_the_report_in_html(name: str, tmp_path: Path) -> None:
    pages = []
    for text in (name, "name"):
        made = hostile_run(text)
        waiver = Waiver(text, "", (text,), text, datetime.date(2000, 1, 1))
        passing = (replace(result(text), waiver=text),)
        write_html(tmp_path / "x.html", made, WaiverReport(passing, passing, (waiver,), (waiver,)), {text: text})
        pages.append((tmp_path / "x.html").read_text(encoding="utf-8"))
    require_clean_page(*pages)


def test_the_report_in_xml(name: str, tmp_path: Path) -> None:
    write_junit(tmp_path / "x.xml", hostile_run(name), hostile_run("name"))
    root = ElementTree.parse(tmp_path / "x.xml").getroot()
    for element in root.iter():
        for text in (*element.attrib.values(), element.text or "", element.tail or ""):
            assert is_clean(text)
    assert any(printable(name.strip("\n")) in (each.get("message") or "") for each in root.iter())


def compared(folder: Path, name: str) -> dict[str, str]:
    """All that `compare` writes of runs in which every text is hostile: two devices that differ, and an update."""
    folder.mkdir()
    entries = list(hostile_run(name).results.values())
    others = [replace(each, digest="ff" * 8) if each.digest else each for each in entries]
    first = hostile_run(name).environment
    assert first is not None
    written(folder / "a.jsonl", first, entries)
    written(folder / "b.jsonl", replace(first, driver_version="9", package=f"2{name}"), others)
    written(folder / "c.jsonl", replace(environment("Green 5"), path=name), others)
    bench_record(folder / "old.json", {name: 1.0, "b": 1.0}, date="2026-11-20")
    record = json.loads(bench_record(folder / "new.json", {name: 2.0, "b": 0.1}, date="2026-11-21").read_text())
    record["versions"]["dmlvk"] = record["device"]["driver"] = name
    (folder / "new.json").write_text(json.dumps(record))
    options = [f"--{form}={folder / 'page'}.{form}" for form in ("html", "markdown", "json")]
    inputs = [folder / each for each in ("a.jsonl", "b.jsonl", "c.jsonl", "old.json", "new.json")]
    done = CliRunner().invoke(main, list(map(str, ["compare", *inputs, *options])))
    assert isinstance(done.exception, SystemExit), done.exception  # the devices differ
    return {"terminal": done.output} | {
        form: (folder / f"page.{form}").read_text(encoding="utf-8") for form in ("html", "markdown", "json")
    }


@pytest.fixture(scope="module")
def harmless(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The same of runs in which no text is hostile."""
    return compared(tmp_path_factory.mktemp("harmless") / "a", "name")


def test_compare(name: str, harmless: dict[str, str], tmp_path: Path) -> None:
    found, expected = compared(tmp_path / "a", name), harmless
    assert sorted(structure(found["markdown"])) == sorted(structure(expected["markdown"]))
    require_clean_page(found["html"], expected["html"])
    assert all(is_clean(text) for text in found.values())
    # A program reads what there was.
    assert any(name in case for cases in json.loads(found["json"])["cases"].values() for case in cases)


def test_results_are_read_as_they_were_written(name: str, tmp_path: Path) -> None:
    from dmlvk.conformance.results_file import read_results

    path = written(tmp_path / "a.jsonl", environment(), [replace(result("slice1:x"), message=name)])
    assert is_clean(path.read_text())
    (read,) = read_results(path).results.values()
    assert read.message == name


def onnx_model(path: Path, name: str) -> None:
    shape = [2, 3]
    values = [helper.make_tensor_value_info(each, onnx.TensorProto.FLOAT, shape) for each in (name + "x", name + "y")]
    node = helper.make_node("Transpose", [name + "x"], [name + "t"], name=name)
    other = helper.make_node("Transpose", [name + "t"], [name + "y"], name=name + "2")
    graph = helper.make_graph([node, other], name or "g", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name=name)
    path.write_bytes(model.SerializeToString())


@pytest.mark.parametrize("kind", [kind for kind in HOSTILE if kind not in ("half", "no character")])
def test_run_of_an_onnx_model(kind: str, device: dmlvk.Device, tmp_path: Path) -> None:
    """The name of every part; an output's file bears it, in the folder; an input is given by it."""
    name = HOSTILE[kind]
    path, output = tmp_path / "model.onnx", tmp_path / "out"
    onnx_model(path, name)
    x = np.random.default_rng(1).normal(size=(2, 3)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    command = ["run", path, "--device", device.name, "--output", output]
    given_input = [] if "\0" in name or len(name) > 1000 else ["--input", f"{name}x={tmp_path / 'x.npy'}"]
    done = run(*command, *given_input)
    if done.exit_code == 0:
        (file,) = output.iterdir()
        assert is_clean(file.name, is_multiline=False)
        if given_input:
            np.testing.assert_array_equal(np.load(file), x)
    run(*command, "--input", f"{name[:5]}=x.npy" if "\0" not in name else "q=x.npy")
    run("run", tmp_path / f"{name}.onnx" if "\0" not in name and len(name) < 200 else "x.onnx", status=1)


def test_run_of_a_model_of_dxdispatch(name: str, device: dmlvk.Device, tmp_path: Path) -> None:
    short = name[:100]
    model = {
        "resources": {short: {"initialValuesDataType": "UINT8", "initialValues": [1, 2, 3, 4]}},
        "dispatchables": {},
        "commands": [
            {"type": "print", "resource": short},
            {"type": "print", "resource": short, "verbose": True},
            {"type": "writeFile", "resource": short, "targetPath": "x" + short.replace("\0", "").replace("/", "")},
        ],
    }
    path = write(tmp_path, model)
    if "\ud800" in name:  # RapidJSON refuses it
        run("run", path, "--device", device.name, status=1)
        return
    done = run("run", path, "--device", device.name, status=0)
    assert f"Resource '{printable(short)}': 1, 2, 3, 4" in done.output
    for change in ({"commands": [{"type": name}]}, {"dispatchables": {name: {"type": name}}}, {name: {name: name}}):
        run("run", write(tmp_path, {**model, **change}), "--device", device.name)
    resource = {"initialValuesDataType": "UINT8", "initialValues": {"sourcePath": name}}
    run("run", write(tmp_path, {**model, "resources": {name: resource}}), "--device", device.name, status=1)


def hostile_cases(kind: str, default_only: bool = False) -> Iterator[Case]:
    """Honest cases under hostile names, and one that cannot be built."""
    name = HOSTILE[kind]
    honest = next(iter(good_cases()))
    yield replace(honest, name=f"slice1:{name}:x", about=name)

    def fails() -> Any:
        raise ValueError(name)

    yield Case(f"slice1:{name}:y", fails, about=name)


# `--cases` names one of them.
line, order, null = (partial(hostile_cases, kind) for kind in ("line", "order", "null"))


@pytest.mark.parametrize("kind", ["line", "order", "null"])
def test_conformance(kind: str, device: dmlvk.Device, tmp_path: Path) -> None:
    cases = ["conformance", "--cases", f"tests.test_hostile_text:{kind}"]
    assert printable(HOSTILE[kind]) in run(*cases, "--list", status=0).output.replace("\\\\", "\\")
    forms = [f"--{form}={tmp_path / 'x'}.{form}" for form in ("json", "html", "junit")]
    places = [*forms, "--keep-outputs", "--export", tmp_path / "e", "--export-all"]
    done = CliRunner().invoke(main, [*cases, "--device", device.name, "--jobs", "1", *map(str, places)])
    assert done.exit_code == 1
    assert is_clean(done.output), repr(done.output)
    for form in ("json", "html", "junit"):
        assert is_clean((tmp_path / f"x.{form}").read_text(encoding="utf-8"))
    ElementTree.parse(tmp_path / "x.junit")
    for path in tmp_path.rglob("*"):
        assert is_clean(path.name, is_multiline=False)
    run(*cases, HOSTILE[kind].replace("\0", "") + "q", status=1)


@pytest.mark.parametrize("kind", ["line", "order", "backticks", "table"])
def test_bench_of_a_record(kind: str, tmp_path: Path) -> None:
    record = json.loads((Path(__file__).parents[1] / "bench" / "results" / "nvidia-h200-resnet50.json").read_text())

    record["runs"] = record["runs"][:1]
    record["runs"][0]["layers"] = record["runs"][0]["layers"][:3]

    def replaced(value: Any, text: str) -> Any:
        """The record with a text at the end of each text that nothing is looked up by."""
        if isinstance(value, list):
            return [replaced(each, text) for each in value]
        if isinstance(value, dict):
            named = {"name", "driver", "dmlvk", "python", "numpy", "failure", "compiler", "version", "runs_on"}
            return {
                key: each + text if key in named and isinstance(each, str) else replaced(each, text)
                for key, each in value.items()
            }
        return value

    pages = []
    for text in (HOSTILE[kind], "name"):
        (tmp_path / "x.json").write_text(json.dumps(replaced(record, text)))
        done = run("bench", "--from-json", tmp_path / "x.json", "--markdown", tmp_path / "x.md")
        assert done.exit_code == 0, done.output
        pages.append((tmp_path / "x.md").read_text(encoding="utf-8"))
    assert is_clean(pages[0])
    assert structure(pages[0]) == structure(pages[1])


def test_devices(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    info = dmlvk.devices()[0]
    made = replace(
        info, name=name, driver=name, profile=replace(info.profile, name=name, driver_name=name, driver_info=name)
    )
    monkeypatch.setattr(dmlvk, "devices", lambda: [made])
    assert is_clean(str(made), is_multiline=False)
    assert printable(name)[:4] in run("devices", status=0).output
    assert json.loads(run("devices", "--json", status=0).output)["devices"][0]["name"] == name


def test_tune(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a cache that somebody else filled, and of descriptors that somebody else recorded."""
    monkeypatch.setenv("DMLVK_CACHE_DIR", str(tmp_path))
    choice = tuned_paths.TunedPath(
        {"operator": name, "output_tensor": {"sizes": [name]}}, name, name, name, {name: 1.0}
    )
    content = {"format": device_files.FORMAT, "device": name, "choices": [choice.to_json()]}
    (tmp_path / f"{tuned_paths.PREFIX}1-2-00000000.json").write_text(json.dumps(content))
    assert run("tune", "--list", status=0).output.strip()
    (tmp_path / "d.jsonl").write_text(json.dumps({"operator": name}) + "\n")
    run("tune", "--descriptors", tmp_path / "d.jsonl", status=1)
    assert printable(name)[:20] in run("tune", "--clear", status=0).output


@pytest.mark.parametrize(
    "made", [lambda name: name, lambda name: Text(name), lambda name: Text.assemble((name, "red"))]
)
def test_the_console_of_a_terminal(made: Any, name: str) -> None:
    """A terminal obeys colours of ours, and nothing else."""
    output = StringIO()
    terminal = PlainConsole(file=output, force_terminal=True, width=100)
    table = Table(title=name, caption=name)
    table.add_column(name)
    table.add_row(made(name))
    terminal.print(table)
    terminal.print(made(name))
    seen = output.getvalue()
    for code in ("\x1b[0m", "\x1b[1m", "\x1b[3m", "\x1b[2;3m", "\x1b[31m", "\x1b[1;31m"):
        seen = seen.replace(code, "")
    ours = {"\x1b[2J", "\x1b]0", "\x1b]52"}
    assert not [code for code in ours if code in seen]
    assert "\x9b" not in seen
    assert "\u202e" not in seen
    assert "\r" not in seen


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_an_encoding_that_lacks_a_character(encoding: str, tmp_path: Path) -> None:
    resource = {"initialValuesDataType": "UINT8", "initialValues": [1]}
    commands = [{"type": "print", "resource": "größe 畳\u202e"}]
    path = write(tmp_path, {"resources": {"größe 畳\u202e": resource}, "dispatchables": {}, "commands": commands})
    command = [sys.executable, "-m", "dmlvk", "run", str(path)]
    done = subprocess.run(command, capture_output=True, env={**os.environ, "PYTHONIOENCODING": encoding}, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"Resource 'gr")


def test_the_page_of_a_comparison_in_markdown_has_no_other_way() -> None:
    """Every text of it passes one of the two functions: none is put between backticks by hand."""
    source = Path(comparison_markdown.__file__).read_text(encoding="utf-8")
    assert "`{" not in source
