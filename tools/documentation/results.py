"""Pages of figures: the records of bench/results, each as `dmlvk bench --from-json` shows it, with its picture."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import matplotlib

from dmlvk.benchmark.kinds import kind_for
from tools.debian import ROOT
from tools.documentation import links

RESULTS = ROOT / "bench" / "results"
FOLDER = links.DOCS / "made" / "results"


def pages() -> Iterator[tuple[str, str]]:
    """The name and the text of each page. Its picture is drawn beside it."""
    matplotlib.use("Agg")
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path in sorted(RESULTS.glob("*.json")):
        yield path.stem, _page(path)


def copied(path: Path, page_folder: Path) -> str:
    """A file of the repository as a page in a folder of docs/."""
    return links.with_addresses(path.read_text(encoding="utf-8"), path.parent, page_folder)


def _page(path: Path) -> str:
    record = json.loads(path.read_text(encoding="utf-8"))
    kind = kind_for(record)
    picture = kind.draw(record, "png")
    file = FOLDER / f"{path.stem}.png"
    # Sphinx copies a picture again when the file is newer.
    if not file.exists() or file.read_bytes() != picture:
        file.write_bytes(picture)
    title, *rest = kind.page(record)
    head = f"{title}\n\nMade from [{path.name}]({links.address(path)}).\n\n![{title.lstrip('# ')}]({file.name})\n"
    return "\n".join([head, *rest]) + "\n"
