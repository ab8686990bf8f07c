"""Gets a Chromium without windows, which `make test-pages` shows the pages in.

A browser of the machine is used. Otherwise Debian's package chromium-headless-shell is unpacked into .drivers/ of the
checkout, with the libraries that the machine lacks: 100 MB to download, and nothing is installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

# If this file runs as a plain script, the checkout is not on the path yet.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.debian import DRIVERS, PackageFolder, SetupError, has_apt

FOLDER = DRIVERS / "browser"
PROGRAM = FOLDER / "chromium" / "chromium-headless-shell"
LIBRARIES = FOLDER / "libraries"
FONTS = FOLDER / "fonts"
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "msedge")
PACKAGES = ("chromium-headless-shell", "fonts-dejavu-core")
# Of these the machine's own are always used: a process has one C library, that of its dynamic linker.
OF_THE_C_LIBRARY = r"(ld-linux.*|lib(c|m|dl|pthread|rt|resolv|util|anl|nss_.*|nsl|mvec|BrokenLocale|thread_db))[.-]"

# Without the generic names, code would be shown in proportional letters.
FONTS_CONFIGURATION = """\
<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>/usr/share/fonts</dir><dir>{fonts}</dir><cachedir>{fonts}/cache</cachedir>
<alias><family>sans-serif</family><prefer><family>DejaVu Sans</family></prefer></alias>
<alias><family>serif</family><prefer><family>DejaVu Serif</family></prefer></alias>
<alias><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
</fontconfig>
"""


@dataclass(frozen=True)
class Browser:
    """A program, and the environment variables that it needs."""

    program: Path
    variables: Mapping[str, str] = field(default_factory=dict)


def find_browser() -> Browser | None:
    """The machine's browser, or the one in .drivers/."""
    for name in NAMES:
        found = shutil.which(name)
        if found is not None:
            return Browser(Path(found))
    if not PROGRAM.exists():
        return None
    folders = [str(LIBRARIES), os.environ.get("LD_LIBRARY_PATH", "")]
    variables = {
        "LD_LIBRARY_PATH": os.pathsep.join(filter(None, folders)),
        "FONTCONFIG_FILE": str(FONTS / "fonts.conf"),
    }
    return Browser(PROGRAM, variables)


def get_browser() -> Browser:
    """A browser; fetched if the machine has none.

    Raises:
        SetupError: With one line that says what to install.
    """
    found = find_browser()
    if found is None:
        if not has_apt():
            raise SetupError("no browser is found, and there is no apt-get to get one with: install Chromium or Chrome")
        _unpack()
        found = find_browser()
    if found is None:
        raise SetupError("this system's packages hold no chromium-headless-shell: install Chromium or Chrome")
    if found.program == PROGRAM:
        # Each time, because it names a folder of the checkout, which may have been moved.
        (FONTS / "fonts.conf").write_text(FONTS_CONFIGURATION.format(fonts=FONTS))
        _require_running(found)
    return found


def _require_running(browser: Browser) -> None:
    """Raise a SetupError, with the loader's words, if a library is missing."""
    command = [str(browser.program), "--version"]
    done = subprocess.run(command, env={**os.environ, **browser.variables}, capture_output=True, text=True)
    if done.returncode:
        raise SetupError(f"the browser in {FOLDER} does not start: {done.stderr.strip()}: install Chromium or Chrome")


def _unpack() -> None:
    if FOLDER.exists():
        shutil.rmtree(FOLDER)
    folder = FOLDER.with_name(FOLDER.name + ".part")
    if folder.exists():
        shutil.rmtree(folder)
    PackageFolder(DRIVERS / "packages-browser").unpack_with_dependencies(PACKAGES, _keep, folder)
    (folder / FONTS.name).mkdir(exist_ok=True)
    folder.rename(FOLDER)


def _keep(path: str) -> str | None:
    """Keep the browser's own folder, shared libraries other than the C library, and fonts.

    NSS and PulseAudio have libraries in folders of their own.
    """
    folder, _, name = path.rpartition("/")
    if path.startswith("usr/lib/chromium/"):
        unneeded = "/locales/" in path and name != "en-US.pak"
        return None if unneeded else f"chromium/{path.removeprefix('usr/lib/chromium/')}"
    if name.endswith(".ttf"):
        return f"{FONTS.name}/{name}"
    is_library = re.fullmatch(r"(usr/)?lib/[a-z0-9_]+-linux-gnu\w*(/(nss|pulseaudio))?", folder) and ".so" in name
    return f"{LIBRARIES.name}/{name}" if is_library and not re.match(OF_THE_C_LIBRARY, name) else None


if __name__ == "__main__":
    try:
        print("Browser:", get_browser().program)
    except SetupError as error:
        sys.exit(f"dmlvk: {error}")
