"""Links from the documentation to files outside docs/: on a page they lead to the repository.

In the sources such a link is a path, which a reader of the repository can follow: `[digits](../examples/digits)`.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

from tools.debian import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DOCS = ROOT / "docs"
BRANCH = "main"
# The repository's owner stands in pyproject.toml alone.
REPOSITORY = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Repository"]

A_LINK = re.compile(r"\]\((?![a-z]+:|#)([^)\s#]+)((?:#[^)\s]*)?)\)")


def address(path: Path) -> str:
    """The address of a file or folder of the repository."""
    kind = "tree" if path.is_dir() else "blob"
    return f"{REPOSITORY}/{kind}/{BRANCH}/{path.relative_to(ROOT).as_posix()}"


def with_addresses(text: str, folder: Path, page_folder: Path | None = None) -> str:
    """The source of a page of docs/, in which links out of docs/ are addresses.

    Args:
        text (str): Markdown.
        folder (Path): The file's, from which its links start.
        page_folder (Path, optional): The page's in docs/, if it is made of a file elsewhere: links to other pages then
            start there.

    Raises:
        ValueError: A link leads to no file of the repository.
    """

    def replace(link: re.Match[str]) -> str:
        path = Path(os.path.normpath(folder / link[1]))
        if path.is_relative_to(DOCS):
            place = link[1] if page_folder is None else Path(os.path.relpath(path, page_folder)).as_posix()
            return f"]({place}{link[2]})"
        if not path.is_relative_to(ROOT):
            return link[0]
        if not path.exists():
            raise ValueError(f"{link[0]} leads to {path.relative_to(ROOT)}, which is not there")
        return f"]({address(path)}{link[2]})"

    return A_LINK.sub(replace, text)


def connect(application: Any) -> None:
    """Have Sphinx read pages with addresses."""

    def read(application: Any, name: str, source: list[str]) -> None:
        source[0] = with_addresses(source[0], (DOCS / name).parent)

    application.connect("source-read", read)
