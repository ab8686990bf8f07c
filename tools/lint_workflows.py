"""Checks the workflows under `.github/` and the example of one with actionlint, their shell scripts with shellcheck.

python -m tools.lint_workflows            # these workflows; without a network
python -m tools.lint_workflows FILE...    # others
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

from tools.debian import ROOT

ENDING = ".exe" if sys.platform == "win32" else ""
SCRIPTS = Path(sysconfig.get_path("scripts"))


def workflow_files() -> list[Path]:
    """Every workflow of the project, in an order that does not change."""
    return [*sorted((ROOT / ".github" / "workflows").glob("*.yml")), ROOT / "examples" / "conformance_ci.yml"]


def run_actionlint(files: list[Path]) -> int:
    """Check files; the exit status of actionlint: not 0 where it finds something, which it prints."""
    options = ["-no-color", "-shellcheck", str(SCRIPTS / f"shellcheck{ENDING}"), "-pyflakes="]
    command = [str(SCRIPTS / f"actionlint{ENDING}"), *options, *map(str, files)]
    return subprocess.run(command, stdin=subprocess.DEVNULL).returncode


if __name__ == "__main__":
    sys.exit(run_actionlint([Path(name) for name in sys.argv[1:]] or workflow_files()))
