"""Writes the pages and parts of pages that are made of the sources, to docs/made/."""

from __future__ import annotations

from tools.debian import ROOT
from tools.documentation import commands, kernels, operator_speed, operators, results, whole_models
from tools.documentation.links import DOCS

FOLDER = DOCS / "made"
# Files that are pages as they stand.
WHOLE = ("CONTRIBUTING", "CHANGELOG", "SECURITY")


def write() -> None:
    """Write what has changed, so that Sphinx reads only that anew, and remove what is made no more."""
    parts = {
        "kernels.md": kernels.page,
        "commands.md": commands.page,
        "operators.md": operators.table,
        "operator_speed.md": operator_speed.table,
        "whole_models.md": whole_models.page,
        "onnx_operators.md": whole_models.operators,
        "descriptors.txt": operators.descriptors,
    }
    made = {name: "\n".join(lines()) for name, lines in parts.items()}
    made |= {f"{name.lower()}.md": results.copied(ROOT / f"{name}.md", FOLDER) for name in WHOLE}
    made |= {f"results/{name}.md": text for name, text in results.pages()}
    for path in [path for path in FOLDER.rglob("*") if path.suffix in (".md", ".txt")]:
        if path.relative_to(FOLDER).as_posix() not in made:
            path.unlink()
    for name, text in made.items():
        path = FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8", newline="\n")
