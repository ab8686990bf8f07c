"""dmlvk reads and writes all files by `dmlvk._common.files`, and prints by one function: held over its source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "dmlvk"
# They run in a folder that was exported, without dmlvk.
WITHOUT_DMLVK = {"conformance/replay.py", "conformance/check.py"}
# Module: why it opens something itself.
OPENS = {
    "_common/files.py": "everybody else's way",
    "command_line/terminal.py": "the null device, in place of a closed pipe",
    "command_line/standard_streams.py": "the null device, in place of a closed stream",
    "conformance/running/worker.py": "the pipes to its parent",
}
# Module: why it has methods of these names beside paths.
TENSORS = {
    "dxdispatch/model.py": "tensors",
    "demo/measure.py": "tensors",
    "conformance/running/execution.py": "tensors",
    "conformance/running/runner.py": "a runner, which opens a device",
    "command_line/conformance.py": "a runner, which opens a device",
}
# Module: why it prints itself.
PRINTS = {
    "command_line/terminal.py": "everybody else's way",
    "runtime/debug.py": "DMLVK_DEBUG, for whoever develops; it passes `printable`",
}
CALLS = {"open", "io.open", "os.open", "os.fdopen", "codecs.open", "Image.open", "shutil.copy", "shutil.copyfile"}
CALLS |= {f"np.{name}" for name in ("load", "save", "savez", "savez_compressed", "loadtxt", "savetxt", "genfromtxt")}
CALLS |= {f"np.{name}" for name in ("fromfile", "memmap")} | {"pickle.load", "pickle.loads", "marshal.loads"}
CALLS |= {f"onnx.{name}" for name in ("load", "save", "load_model", "save_model")} | {"json.load", "json.dump"}
METHODS = {"read_text", "write_text", "read_bytes", "write_bytes", "open", "tofile", "touch"}
# These work on bytes that are already in memory.
IN_MEMORY = {"np.load", "np.save", "np.savez", "Image.open"}


@cache
def modules() -> list[tuple[str, ast.Module]]:
    named = [(path.relative_to(PACKAGE).as_posix(), path) for path in sorted(PACKAGE.rglob("*.py"))]
    return [(name, ast.parse(path.read_bytes())) for name, path in named if name not in WITHOUT_DMLVK]


@cache
def calls(tree: ast.Module) -> list[tuple[str, ast.Call]]:
    return [(dotted(node.func), node) for node in ast.walk(tree) if isinstance(node, ast.Call)]


def dotted(node: ast.expr) -> str:
    """The source of an expression. `ast.unparse` takes a tenth of a millisecond for each."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ast.unparse(node)


def reads_memory(call: ast.Call) -> bool:
    """Whether the first argument is in memory: io.BytesIO(...), or a name that was made so."""
    first = ast.unparse(call.args[0]) if call.args else ""
    return first.startswith("io.BytesIO(") or first in ("content", "file")


def opens_itself(name: str, tree: ast.Module) -> Iterator[str]:
    knows_paths = any(
        isinstance(node, ast.ImportFrom)
        and node.module in ("pathlib", "importlib", "importlib.resources")
        and any(alias.name in ("Path", "resources", "files") for alias in node.names)
        for node in ast.walk(tree)
    )
    for called, call in calls(tree):
        receiver, _, method = called.rpartition(".")
        if called in IN_MEMORY and reads_memory(call):
            continue
        if called in CALLS or (
            knows_paths and method in METHODS and receiver and receiver != "files" and name not in TENSORS
        ):
            yield f"{name}, line {call.lineno}: {called}"


def prints_itself(name: str, tree: ast.Module) -> Iterator[str]:
    for called, call in calls(tree):
        if called in ("print", "click.echo", "click.secho", "Console", "sys.stdout.write", "sys.stderr.write"):
            yield f"{name}, line {call.lineno}: {called}"


@pytest.mark.parametrize(("allowed", "found"), [(OPENS, opens_itself), (PRINTS, prints_itself)], ids=["files", "print"])
def test_there_is_one_way(allowed: dict[str, str], found: object) -> None:
    assert callable(found)
    everything = {name: list(found(name, tree)) for name, tree in modules()}
    assert not {name: lines for name, lines in everything.items() if lines and name not in allowed}
    assert not [name for name in allowed if not everything[name]], "a reason for nothing"


@pytest.mark.parametrize(
    "line",
    [
        "open(path)",
        "os.open(path, 0)",
        "np.load(path)",
        "onnx.load(path)",
        "from pathlib import Path\nPath(x).read_bytes()",
        "from pathlib import Path\npath.write_text(y)",
        "from importlib import resources\nresources.files('x').joinpath('y').read_text()",
    ],
)
def test_another_way_is_noticed(line: str) -> None:
    assert list(opens_itself("made.py", ast.parse(line)))
