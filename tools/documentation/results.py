"""Pages of figures: those of bench/results, each with its picture, and the notes of what was tried."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tools.debian import ROOT
from tools.documentation import links

RESULTS = ROOT / "bench" / "results"


def pages() -> Iterator[tuple[str, str]]:
    """The name and the text of each page."""
    for path in sorted(RESULTS.glob("*.md")):
        yield path.stem, _page(path)
    notes = ROOT / "bench" / "NOTES.md"
    yield "notes", links.with_addresses(notes.read_text(encoding="utf-8"), notes.parent)


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
