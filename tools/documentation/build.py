"""Builds the documentation: `make docs`. A warning, a broken link in it or a name that leads nowhere is an error."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from sphinx.cmd.build import main as sphinx

from tools.debian import ROOT
from tools.documentation.links import DOCS

OUTPUT = ROOT / "build" / "docs"
# -n: every name in a type leads to its description. -W, --keep-going: all warnings, and then an error.
OPTIONS = ["-n", "-W", "--keep-going", "-q", "-b", "html", "-j", "auto"]


def build(output: Path = OUTPUT) -> int:
    """Build the pages; 0 if there was no warning."""
    return int(sphinx([*OPTIONS, "-d", str(output.with_name(f"{output.name}-doctrees")), str(DOCS), str(output)]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=OUTPUT, help="folder of the pages")
    arguments = parser.parse_args()
    status = build(arguments.output)
    if status == 0:
        print(f"The documentation: {arguments.output / 'index.html'}")
    sys.exit(status)
