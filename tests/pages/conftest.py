"""The browser of these tests, and checks that every page has to pass."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages.browser import Page
from tools.browser import get_browser

WIDTHS = (320, 400, 500, 760, 761, 900, 901, 1000, 1390, 1391, 1400, 2400)

# The names of cases are long words: in narrower windows they break anywhere.
LEAST_WIDTH_OF_NAMES = 500

# Every element that is seen, and whose text or border ends past the window or past the element that holds it.
CUT = """
[...document.querySelectorAll("main *")].filter((element) => {
  const box = element.getBoundingClientRect();
  const heading = element.closest("thead");
  const isHidden = heading && getComputedStyle(heading).position === "absolute";
  if (!box.width || !box.height || isHidden) return false;
  if (box.right > document.documentElement.clientWidth + 0.5 || box.left < -0.5) return true;
  const inline = getComputedStyle(element).display === "inline";
  return !inline && element.tagName !== "SELECT" && element.scrollWidth > element.clientWidth + 1;
}).map((element) => `${element.tagName} ${element.className}: ${element.textContent.slice(0, 60)}`)
"""

# Every cell of a table in which a word is broken into lines. A name may break behind its signs.
SQUEEZED = """
[...document.querySelectorAll("th, td")].filter((cell) => {
  const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const heading = node.parentElement.closest("thead");
    if (heading && getComputedStyle(heading).position === "absolute") continue;
    for (const word of node.textContent.matchAll(/[\\p{L}\\p{N}]+/gu)) {
      const range = document.createRange();
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      if (new Set([...range.getClientRects()].map((box) => Math.round(box.top))).size > 1) return true;
    }
  }
  return false;
}).map((cell) => `${cell.tagName} ${cell.className}: ${cell.textContent.slice(0, 60)}`)
"""

# The least contrast of text with its background, and the element that has it.
CONTRAST = """
(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return canvas.getImageData(0, 0, 1, 1).data;
  };
  const luminance = ([r, g, b]) => [r, g, b].map((value) => value / 255)
    .map((value) => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
    .reduce((sum, value, k) => sum + value * [0.2126, 0.7152, 0.0722][k], 0);
  const background = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const found = rgba(getComputedStyle(e).backgroundColor);
      if (found[3] === 255) return found;
    }
    return [255, 255, 255];
  };
  let least = [99, ""];
  for (const element of document.querySelectorAll("main *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !element.getBoundingClientRect().width || element.tagName === "SCRIPT") continue;
    const [a, b] = [luminance(rgba(getComputedStyle(element).color)), luminance(background(element))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const name = `${element.tagName} ${element.className}: ${element.textContent.slice(0, 60)}`;
    if (contrast < least[0]) least = [contrast, name];
  }
  return least;
})()
"""
# What WCAG asks of text of ordinary size.
LEAST_CONTRAST = 4.5


@pytest.fixture(scope="session")
def browser() -> Iterator[Page]:
    """An open page, whose console stays empty."""
    with Page(get_browser()) as page:
        yield page


@pytest.fixture(autouse=True)
def _nothing_in_the_console(browser: Page) -> Iterator[None]:
    browser.messages.clear()
    yield
    assert browser.messages == []


def check_widths(browser: Page, path: Path) -> None:
    """Check that nothing is cut at any width, and that all text can be read in light and dark."""
    for width in WIDTHS:
        browser.open(path, width)
        assert browser.value(CUT) == [], width
        assert browser.value("document.documentElement.scrollWidth") == width, width
        assert browser.value(CUT) == [], width
        if width >= LEAST_WIDTH_OF_NAMES:
            assert browser.value(SQUEEZED) == [], width
    for dark in (False, True):
        browser.open(path, 1000, dark=dark)
        is_light = browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(246, 247, 249)"
        assert is_light is not dark
        contrast, where = browser.value(CONTRAST)
        assert contrast >= LEAST_CONTRAST, where
