"""Pages of figures: those of bench/results, each with its picture, and the notes of what was tried."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tools.debian import ROOT
from tools.documentation import links

RESULTS = ROOT / "bench" / "results"
# Where the pages are.
RESULTS_PAGES = links.DOCS / "made" / "results"


def pages() -> Iterator[tuple[str, str]]:
    """The name and the text of each page."""
    for path in sorted(RESULTS.glob("*.md")):
        yield path.stem, _page(path)
    yield "notes", copied(ROOT / "bench" / "NOTES.md", RESULTS_PAGES)


def copied(path: Path, page_folder: Path) -> str:
    """A file of the repository as a page in a folder of docs/."""
    return links.with_addresses(path.read_text(encoding="utf-8"), path.parent, page_folder)


def _page(path: Path) -> str:
    title, _, rest = path.read_text(encoding="utf-8").partition("\n")
    files = [file for file in sorted(RESULTS.glob(f"{path.stem}.*")) if file != path]
    named = ", ".join(f"[{file.name}]({links.address(file)})" for file in (path, *files))
    pictures = "".join(
        f"\n![{title.lstrip('# ')}](/../bench/results/{file.name})\n"
        for file in files
        if file.suffix in (".png", ".svg")
    )
    return f"{title}\n\nFiles: {named}.\n{pictures}{rest}"
