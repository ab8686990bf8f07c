"""Writes what type checkers have to know of each operator, from the operators' declarations.

    python -m tools.stubs            writes the files
    python -m tools.stubs --check    fails if a file is not what would be written

dmlvk/operators/descriptors.pyi names the descriptors, which the registry finds when the package is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

# If this file runs as a plain script, the checkout is not on the path yet.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from dmlvk.operators.registry import OPERATORS

PACKAGE = Path(__file__).resolve().parent.parent / "dmlvk"
WRITTEN_BY = "# Written by `python -m tools.stubs` from the operators' declarations."


def stubs() -> Mapping[Path, str]:
    """The text of each file."""
    return {PACKAGE / "operators" / "descriptors.pyi": descriptors()}


def descriptors() -> str:
    """The descriptors by name."""
    names = sorted((desc.__name__, desc.__module__) for desc in OPERATORS)
    imports = sorted(f"from {module} import {name} as {name}" for name, module in names)
    listed = ", ".join(f'"{name}"' for name, _ in names)
    lines = [WRITTEN_BY, *imports, "", "__all__ = [", *(f"    {name}," for name in listed.split(", ")), "]", ""]
    return "\n".join(lines)


def main() -> None:
    """Write the files, or check them."""
    stale = [path for path, text in stubs().items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    if "--check" in sys.argv[1:]:
        if stale:
            sys.exit(f"{', '.join(path.name for path in stale)}: run `python -m tools.stubs`")
        return
    for path in stale:
        path.write_text(stubs()[path], encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
