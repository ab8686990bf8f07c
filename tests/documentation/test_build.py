"""The documentation is built: a warning is an error, every public name is in it, and it needs no network to be read."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from tests.documentation.blocks import ROOT

pytestmark = pytest.mark.nightly

# Modules whose __all__ is public.
PUBLIC = ("dmlvk", "dmlvk.onnx", "dmlvk.dask", "dmlvk.dxdispatch", "dmlvk.cuda")
# torch is not installed where `make test` runs: its functions have the names of the one-liners.
TORCH = ("diagonal_matrix1", "one_hot", "quantized_linear_convolution", "slice1")
# Modules, whose names are listed one by one.
MODULES = {"dmlvk.dxdispatch", "dmlvk.reference", "dmlvk.onnx.backend"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the pages."""
    folder = tmp_path_factory.mktemp("documentation") / "html"
    command = [sys.executable, "-m", "tools.documentation.build", "--output", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return folder


def documented(folder: Path) -> set[str]:
    """The names in the inventory, which is compressed after four lines."""
    content = (folder / "objects.inv").read_bytes().split(b"\n", 4)[4]
    return {line.split(" ", 1)[0] for line in zlib.decompress(content).decode().splitlines()}


def test_every_public_name_is_in_the_reference(built: Path) -> None:
    names = documented(built)
    public = {f"{module}.{name}" for module in PUBLIC for name in importlib.import_module(module).__all__}
    public |= {f"dmlvk.torch.{name}" for name in TORCH}
    assert public - MODULES - names == set()
    for name in ("dmlvk.Device.compile", "dmlvk.Tensor.numpy", "dmlvk.Tensor.shape", "dmlvk.reference.run"):
        assert name in names


def test_types_are_links(built: Path) -> None:
    page = (built / "reference" / "devices.html").read_text(encoding="utf-8")
    assert re.search(r'<a class="reference internal" href="tensors.html#dmlvk.TensorDesc"[^>]*>', page)
    assert page.count('href="#dmlvk.DeviceError"') + page.count('href="errors.html#dmlvk.DeviceError"') >= 3


def test_nothing_is_loaded_from_elsewhere(built: Path) -> None:
    """Pages, styles and scripts, as a browser would load them from a folder without a network."""
    for path in built.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|iframe|source)[^>]* src=\"([^\"]*)\"", text)
        loaded += re.findall(r"<link[^>]* rel=\"(?:stylesheet|preload|icon|preconnect)\"[^>]* href=\"([^\"]*)\"", text)
        assert [each for each in loaded if re.match(r"(https?:)?//", each)] == [], path
    for path in built.rglob("*.css"):
        assert not re.search(r"url\([\"']?(https?:)?//|@import", path.read_text(encoding="utf-8")), path


def test_the_search_has_what_the_pages_have(built: Path) -> None:
    index = (built / "searchindex.js").read_text(encoding="utf-8")
    found = json.loads(index.removeprefix("Search.setIndex(").removesuffix(")"))
    assert {"owned_tensors", "kernels", "reference/devices", "made/results/nvidia-h200"} <= set(found["docnames"])
    assert "quantized_linear_convolution" in index


def test_a_picture_of_each_result_is_there(built: Path) -> None:
    records = list((ROOT / "bench" / "results").glob("*.json"))
    assert records
    for record in records:
        page = (built / "made" / "results" / f"{record.stem}.html").read_text(encoding="utf-8")
        assert f"_images/{record.stem}.png" in page
        assert (built / "_images" / f"{record.stem}.png").stat().st_size > 10_000
