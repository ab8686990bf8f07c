"""What README and the documentation say about the project is true."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

import dmlvk
from dmlvk.command_line import main
from dmlvk.planning import KERNEL_PATHS
from tests.documentation.blocks import ROOT, pages
from tools.documentation import kernels, links, made_pages, whole_models

DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text(encoding="utf-8")
ENVIRONMENT_VARIABLES = (DOCS / "environment_variables.md").read_text(encoding="utf-8")
FOLDERS = ("dmlvk", "bench", "tools", "tests", "examples")
# Those of the system and of pytest.
OTHERS = {"LD_LIBRARY_PATH", "LOCALAPPDATA", "PYTEST_CURRENT_TEST"}


def sources(*folders: str, pattern: str = "") -> Iterator[tuple[Path, ast.Module]]:
    """The modules in which a pattern is found."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if re.search(pattern, path.read_text(encoding="utf-8")):
                yield path, tree_of(path)


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def read_variables(tree: ast.Module) -> Iterator[str]:
    """The environment variables that a module reads: os.environ.get(name), os.environ[name], name in os.environ, ...

    A name is a text, or a name of the module for one text or several.
    """
    constants = {
        target.id: [each.value for each in ast.walk(node.value) if isinstance(each, ast.Constant)]
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    # for name in NAMES: os.environ.get(name)
    for loop in ast.walk(tree):
        if isinstance(loop, ast.For) and isinstance(loop.target, ast.Name) and isinstance(loop.iter, ast.Name):
            constants.setdefault(loop.target.id, constants.get(loop.iter.id, []))

    def texts(node: ast.expr) -> Iterator[str]:
        values = constants.get(node.id, []) if isinstance(node, ast.Name) else [getattr(node, "value", None)]
        yield from (value for value in values if isinstance(value, str))

    def is_environment(node: ast.expr) -> bool:
        is_name = isinstance(node, ast.Name) and node.id == "environ"
        return is_name or (isinstance(node, ast.Attribute) and ast.unparse(node) == "os.environ")

    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and is_environment(node.value) and isinstance(node.ctx, ast.Load):
            yield from texts(node.slice)
        elif isinstance(node, ast.Compare) and is_environment(node.comparators[0]):
            yield from texts(node.left)
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func) if isinstance(node.func, ast.Attribute) else ""
            if called in ("os.environ.get", "os.environ.pop", "os.environ.setdefault", "os.getenv") and node.args:
                yield from texts(node.args[0])


def test_every_environment_variable_is_documented() -> None:
    read = {name for _, tree in sources(*FOLDERS, pattern=r"\b(environ|getenv)\b") for name in read_variables(tree)}
    documented = set(re.findall(r"^\| `([A-Z0-9_]+)` \|", ENVIRONMENT_VARIABLES, re.MULTILINE))
    assert {"DMLVK_DEVICE", "DMLVK_CACHE_DIR", "VK_DRIVER_FILES", "GLSLANG", "HYPOTHESIS_PROFILE"} <= read
    assert read - documented - OTHERS == set(), "docs/environment_variables.md lacks what the code reads"
    assert documented - read == set(), "docs/environment_variables.md has what no code reads"


def test_a_variable_that_is_read_in_any_way_is_found() -> None:
    code = "import os\nA = 'ONE'\nB = ('TWO', 'THREE')\nos.environ.get(A)\nfor b in B:\n    os.environ.get(b)\n"
    code += "os.environ['FOUR']\n'FIVE' in os.environ\nos.getenv('SIX')\nos.environ['SET'] = ''\n"
    assert set(read_variables(ast.parse(code))) == {"ONE", "TWO", "THREE", "FOUR", "FIVE", "SIX"}


@cache
def messages() -> frozenset[str]:
    """All texts in the package, with "..." for what a message fills in."""
    found = set()
    for _, tree in sources("dmlvk"):
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                parts = (part.value if isinstance(part, ast.Constant) else "..." for part in node.values)
                found.add("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return frozenset(found)


def test_messages_that_the_page_of_errors_names_are_in_the_package() -> None:
    text = (DOCS / "errors.md").read_text(encoding="utf-8")
    headings = re.findall(r"^### (.*)$", text, re.MULTILINE)
    assert len(headings) >= 20
    for heading in headings:
        if heading == "A model's message":
            continue
        for part in re.split(r" / |\.\.\.", heading):
            words = part.strip(" ;:,")
            assert any(words in message for message in messages()), f"{heading}: no message has {words!r}"


def test_every_exception_is_on_the_page_of_errors_or_in_the_reference() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in (DOCS / "errors.md", DOCS / "reference" / "errors.rst"))
    for module in ("dmlvk/errors.py", "dmlvk/dask/errors.py", "dmlvk/dxdispatch/errors.py", "dmlvk/vulkan/library.py"):
        for node in ast.parse((ROOT / module).read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and node.name.endswith(("Error", "Warning")):
                assert node.name in text, f"{module}: {node.name}"


def test_every_kernel_and_path_is_on_the_page_of_kernels() -> None:
    page = "\n".join(kernels.page())
    for path in (*kernels.KERNELS.rglob("*.comp"), *kernels.KERNELS.rglob("*.glsl")):
        stem = path.relative_to(kernels.KERNELS).with_suffix("" if path.suffix == ".comp" else path.suffix)
        assert f"\n### `{stem.as_posix()}`\n" in page
        assert kernels.header(path).splitlines()[0][:40].replace("<", "&lt;").replace("*", r"\*") in page
    for names in KERNEL_PATHS.values():
        for name in names:
            assert f"\n| `{name}` |" in page or f"\n- `{name}`: " in page


def test_a_kernel_without_a_header_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "ROOT", tmp_path)
    kernel = tmp_path / "bare.comp"
    kernel.write_text("#version 460\n\nvoid main() {}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"bare\.comp does not begin with a comment"):
        kernels.header(kernel)


def test_a_kernels_header_becomes_markdown() -> None:
    comment = "SLICE1: a * b\n\nMaths:\n    y = x\n\n    z = y\nThen <this>.\n  - one\n    more\n  - two\n"
    assert kernels.markdown(comment) == (
        "SLICE1: a \\* b\n\nMaths:\n\n```text\ny = x\n\nz = y\n```\n\nThen &lt;this>.\n  - one\n    more\n  - two"
    )


def test_readme_is_short_and_its_table_and_picture_are_those_of_the_figures() -> None:
    assert README.count("\n") <= 200
    assert whole_models.written(README) == README, "run python -m tools.documentation.whole_models --write"
    assert whole_models.PICTURE.read_text(encoding="utf-8") == whole_models.picture()
    rows = list(whole_models.table(whole_models.shown()))[2:]
    assert 1 <= len(rows) <= 6
    for figure in whole_models.figures():
        assert all(figure[name] for name in ("device", "driver", "date", "processor"))


def test_a_record_becomes_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = whole_models.figures()
    copy = tmp_path / "figures.jsonl"
    copy.write_text(whole_models.FIGURES.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(whole_models, "FIGURES", copy)
    first = known[0]
    steps = [
        {"where": "device", "gpu_seconds": 0.125, "bytes_to_device": 10, "bytes_from_device": 20},
        {"where": "host", "gpu_seconds": None, "bytes_to_device": 0, "bytes_from_device": 0},
        {"where": "outputs", "gpu_seconds": None, "bytes_to_device": 0, "bytes_from_device": 1200},
    ]
    trial = {"peer": "onnxruntime", "seconds": {"median": 0.5}, "outputs": [{"result": "equal"}]}
    torch = [
        {"peer": "torch-compile", "seconds": {"median": 0.75}, "gpu_seconds": 0.5},
        {"peer": "torch-graph", "error": "no graph"},
    ]
    record = {
        "kind": "model",
        "date": "2027-01-02",
        "device": {"name": first["device"], "driver": first["driver"]},
        "host": {"processors": 3},
        "model": {"file": f"{first['model']}.onnx"},
        "batches": [
            {
                "batch": first["batch"],
                "seconds": {"median": 0.25},
                "alone_seconds": 0.1,
                "mapped_seconds": 0.2,
                "peers": [trial, *torch],
                "steps": steps,
            }
        ],
    }
    whole_models.add(record)
    found = whole_models.figures()
    assert len(found) == len(known)
    traffic = {"parts": 2, "device_ms": 125, "bytes_to_device": 10, "bytes_from_device": 1220}
    measured = {
        "dmlvk_ms": 250,
        "onnxruntime_ms": 500,
        "date": "2027-01-02",
        "processor": "3 cores",
        "alone_ms": 100,
        "mapped_ms": 200,
    }
    theirs = {"peers_ms": {"torch-compile": 750}, "peers_alone_ms": {"torch-compile": 500}}
    assert found[0] == {**first, **measured, **traffic, **theirs}
    end = "| 2.0 | 200 | 125 | 100 | 750 | not recorded | 500 | not recorded | 2 | 10 | 1,220 |"
    assert any(line.endswith(end) for line in whole_models.page())
    trial["outputs"] = [{"result": "wrong"}]
    with pytest.raises(ValueError, match="a wrong output"):
        whole_models.add(record)


def test_the_table_of_onnx_operators_is_that_of_the_registry() -> None:
    rows = "\n".join(whole_models.operators())
    for name in ("QLinearConv", "MaxPool", "QLinearAdd", "Reshape"):
        assert f"| {name} |" in rows
    assert "| Reshape | ONNX | a view" in rows and "| Softmax |" not in rows


def test_one_version_everywhere() -> None:
    first = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert first is not None and first[1] == dmlvk.__version__
    assert f"({dmlvk.__version__})" in README
    named = re.compile(r"dmlvk[-=]+(\d+\.\d+\.\d+\w*)")
    assert {version for path in pages() for version in named.findall(path.read_text("utf-8"))} <= {dmlvk.__version__}


def test_addresses_of_the_repository_lead_to_files_of_it() -> None:
    """README is read on package indexes too, so its links and pictures are addresses. Their start is pyproject's."""
    raw = links.REPOSITORY.replace("github.com", "raw.githubusercontent.com") + f"/{links.BRANCH}/"
    assert re.findall(r"\]\((?!https://)[^)]*\)", README) == []
    assert f'<img src="{raw}' in README
    for path in (ROOT / "README.md", *sorted(DOCS.rglob("*.md"))):
        if made_pages.FOLDER in path.parents:
            continue
        for address in re.findall(
            r"https://(?:raw\.githubusercontent|github)\.com/[^\s)\"'>`]*", path.read_text("utf-8")
        ):
            if "/dmlvk" not in address:
                continue
            assert address.startswith((links.REPOSITORY, raw)), f"{path.name}: {address} is not of {links.REPOSITORY}"
            place = re.sub(r"^https://[^/]+/[^/]+/[^/]+/?((blob|tree)/)?", "", address).partition("#")[0]
            if place.startswith(f"{links.BRANCH}/"):
                assert (ROOT / place.removeprefix(f"{links.BRANCH}/")).exists(), f"{path.name}: {address}"


def test_links_between_pages_lead_to_headings() -> None:
    """Sphinx checks the links of its pages; README's and CONTRIBUTING's lead to pages as GitHub shows them."""
    for anchor in re.findall(rf"{re.escape(links.REPOSITORY)}/blob/{links.BRANCH}/docs/(\w+\.md)#([\w-]+)", README):
        text = (DOCS / anchor[0]).read_text(encoding="utf-8")
        headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        assert anchor[1] in {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_a_link_out_of_the_documentation_becomes_an_address(tmp_path: Path) -> None:
    made = links.with_addresses("[a](../bench/paths.py#x) [b](onnx.md) [c](../examples) [d](https://x.y/z)", DOCS)
    assert made == (
        f"[a]({links.REPOSITORY}/blob/main/bench/paths.py#x) [b](onnx.md) [c]({links.REPOSITORY}/tree/main/examples) "
        "[d](https://x.y/z)"
    )
    made = links.with_addresses("[a](docs/onnx.md) [b](LICENSE)", ROOT, DOCS / "made")
    assert made == f"[a](../onnx.md) [b]({links.REPOSITORY}/blob/main/LICENSE)"
    with pytest.raises(ValueError, match=r"leads to nowhere\.md, which is not there"):
        links.with_addresses("[a](../nowhere.md)", DOCS)


def test_every_benchmark_is_documented() -> None:
    """Every command in bench/ is on the page about speed, and every command that a page names exists."""
    commands = {path.stem for path in (ROOT / "bench").glob("*.py") if "__main__" in path.read_text(encoding="utf-8")}
    commands |= {path.parent.name for path in (ROOT / "bench").glob("*/__main__.py")}
    named = {name for path in pages() for name in re.findall(r"-m bench\.([a-z0-9_]+)", path.read_text("utf-8"))}
    assert named == commands


@pytest.mark.parametrize("path", pages(), ids=lambda path: path.name)
def test_commands_and_their_options_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for command_line in re.findall(r"(?:^ {4,}|`)dmlvk ([a-z][^`\n]*)", text, re.MULTILINE):
        name, *words = command_line.partition("#")[0].split()
        assert name in main.commands, command_line
        command = main.commands[name]
        assert isinstance(command, click.Command)
        known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        assert {word.partition("=")[0] for word in words if word.startswith("--")} <= known | {"--help"}, command_line


def test_folders_that_the_page_of_the_tree_names_are_there() -> None:
    tree = (DOCS / "tree.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^    ((?:[a-z_]+/)+|dmlvk/[a-z]+\.py) ", tree, re.MULTILINE))
    assert all((ROOT / name).exists() for name in named)
    packages = {f"dmlvk/{path.parent.name}/" for path in (ROOT / "dmlvk").glob("*/__init__.py")}
    top = {f"{name}/" for name in ("kernels", "examples", "tests", "bench", "docs", "tools")}
    assert packages | top <= named
