"""Results are published: they name no user and no folder of the machine on which they were made."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from pathlib import Path


def without_home(text: str) -> str:
    """A text in which "~" stands for the user's own folder."""
    try:
        home = str(Path.home())
    except RuntimeError:  # there is none
        return text
    return text.replace(home, "~") if len(home) > 1 else text


def public_command(words: Iterable[str]) -> str:
    """A command line for a shell, in which each file has its name without the folders above it."""
    return shlex.join(re.sub(r"[^=]*[/\\]", "", word) for word in words)
