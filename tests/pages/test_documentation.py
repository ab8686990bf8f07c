"""The documentation in a browser, from a folder and without a network: it fits, it can be read, the search finds."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.pages.browser import Page
from tests.pages.conftest import CONTRAST, LEAST_CONTRAST

ROOT = Path(__file__).parents[2]
PAGES = (
    "index.html", "getting_started_linux.html", "owned_tensors.html", "nouns.html", "kernels.html", "errors.html",
    "commands.html", "clusters.html", "reference/devices.html", "reference/functions.html", "figures.html",
    "quantizing.html", "reference/submissions.html", "made/results/nvidia-h200.html", "devices/table.html",
    "made/contributing.html",
)  # fmt: skip
WIDTHS = (400, 1400)
# What users look for, and the page that has to be the first that is found.
FIRST = {
    "accuracy": "quantizing",
    "AMD": "getting_started_linux",
    "Android": "faq",
    "attention": "onnx",
    "benchmark": "speed",
    "cache": "environment_variables",
    "channels last": "quantizing",
    "conformance": "conformance_suite",
    "CUDA": "interchange",
    "dask": "clusters",
    "determinism": "exactness",
    "device lost": "errors",
    "Docker": "getting_started_linux",
    "error": "errors",
    "first call": "speed",
    "fp16": "faq",
    "GPU not found": "getting_started_linux",
    "headless": "getting_started_linux",
    "install": "getting_started_linux",
    "int4": "faq",
    "license": "faq",
    "macOS": "faq",
    "MaxPool": "onnx",
    "memory": "errors",
    "MobileNet": "faq",
    "no device found": "getting_started_linux",
    "onnx": "onnx",
    "out of memory": "errors",
    "pip install": "getting_started_linux",
    "PyTorch": "interchange",
    "QDQ": "quantizing",
    "quantize": "quantizing",
    "quantizing": "quantizing",
    "Raspberry Pi": "faq",
    "slow": "speed",
    "Softmax": "quantizing",
    "telemetry": "faq",
    "thread safe": "faq",
    "tune": "speed",
    "uninstall": "getting_started_linux",
    "warm up": "speed",
    "Windows": "getting_started_windows",
    "wrong result": "faq",
    "WSL": "getting_started_linux",
    "YOLO": "faq",
    "zero point": "operators",
}
# What ends past the window, and what holds it does not scroll by itself.
CUT = """
[...document.querySelectorAll("article *")].filter((element) => {
  const box = element.getBoundingClientRect();
  if (!box.width || !box.height || box.right <= document.documentElement.clientWidth + 0.5) return false;
  for (let e = element.parentElement; e; e = e.parentElement)
    if (["auto", "scroll", "hidden"].includes(getComputedStyle(e).overflowX)) return false;
  return true;
}).map((element) => `${element.tagName} ${element.className}: ${element.textContent.slice(0, 60)}`)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("documentation") / "html"
    command = [sys.executable, "-m", "tools.documentation.build", "--output", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=300)
    return folder


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_the_window(browser: Page, folder: Path, name: str, width: int) -> None:
    browser.open(folder / name, width)
    assert browser.value(CUT) == []
    assert browser.value("document.documentElement.scrollWidth") == width


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", PAGES)
def test_all_text_can_be_read(browser: Page, folder: Path, name: str, dark: bool) -> None:
    browser.open(folder / name, 1400, dark=dark)
    background = browser.value("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, background.strip("rgb()").split(", "))) < 3 * 64) is dark
    contrast, where = browser.value(CONTRAST.replace('"main *"', '"article *"'))
    assert contrast >= LEAST_CONTRAST, where


def test_the_search_finds_the_right_page_first(browser: Page, folder: Path) -> None:
    browser.open(folder / "search.html", 1000)
    for _ in range(100):
        if browser.value("Boolean(Search._index)"):
            break
        time.sleep(0.1)
    ranked = "((words) => Search._performSearch(...Search._parseQuery(words)).reverse().map((each) => each[0]))"
    found = {words: browser.value(f"{ranked}({words!r})") for words in FIRST}
    assert {words: (pages or [None])[0] for words, pages in found.items()} == FIRST


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("words", "page"), [("OWNED_BY_DML", "owned_tensors"), ("second GPU", "choosing_a_device")])
def test_the_search_finds(browser: Page, folder: Path, words: str, page: str, width: int) -> None:
    browser.open(folder / "index.html", width)
    browser.enter("input.sidebar-search", words)
    browser.value("document.querySelector('form.sidebar-search-container').requestSubmit()")
    found: list[str] = []
    for _ in range(100):
        time.sleep(0.1)
        found = browser.value("[...document.querySelectorAll('#search-results li a')].map((a) => a.href)") or []
        if any(f"/{page}.html" in address for address in found):
            return
    pytest.fail(f"the search for {words!r} found {found}")


@pytest.mark.parametrize(("name", "least"), [("getting_started_linux", 1700), ("quantizing", 360)])
def test_a_picture_can_be_read_on_a_telephone(browser: Page, folder: Path, name: str, least: int) -> None:
    """A sheet of small letters scrolls in its paragraph; on a wide page it fits the text."""
    picture = "document.querySelector('article img').clientWidth"
    browser.open(folder / f"{name}.html", 400)
    assert browser.value(picture) >= least
    browser.open(folder / f"{name}.html", 1400)
    assert 360 < browser.value(picture) < 1000


def test_a_sheet_has_a_dark_form(browser: Page, folder: Path) -> None:
    for dark, name in ((False, "demo.png"), (True, "demo_dark.png")):
        browser.open(folder / "getting_started_linux.html", 1400, dark=dark)
        assert browser.value("document.querySelector('article img').currentSrc").endswith(f"/{name}")
        assert browser.value("document.querySelector('article img').naturalWidth") > 0


def test_the_drawing_is_there(browser: Page, folder: Path) -> None:
    browser.open(folder / "nouns.html", 400)
    assert browser.value("document.querySelector('article img').naturalWidth") > 0


def test_code_has_letters_of_one_width(browser: Page, folder: Path) -> None:
    browser.open(folder / "index.html", 1400)
    widths = browser.value("""
    ["iiii", "mmmm"].map((text) => {
      const code = document.querySelector("article pre").appendChild(document.createElement("span"));
      code.textContent = text;
      return code.getBoundingClientRect().width;
    })
    """)
    assert widths[0] == widths[1] > 0
