"""Results are published: they name no user and no folder of the machine on which they were made."""

from __future__ import annotations

import platform
import re
import shlex
from collections.abc import Iterable
from pathlib import Path


def public_system() -> str:
    """The operating system with its version in numbers: "Linux 6.1.0 x86_64, glibc 2.36".

    Who builds a kernel may add any words to its version, such as a name.
    """
    version = platform.version() if platform.system() == "Windows" else platform.release()
    numbers = re.match(r"[\d.]*", version)
    library = " ".join(platform.libc_ver())
    parts = (platform.system(), numbers[0].rstrip(".") if numbers else "", platform.machine())
    return ", ".join(filter(None, (" ".join(filter(None, parts)), library.strip())))


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
