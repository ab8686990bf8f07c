"""The colours and the letters of the demo's pictures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dmlvk.errors import DeviceError

if TYPE_CHECKING:
    from PIL import ImageFont


@dataclass(frozen=True, kw_only=True)
class Palette:
    """The colours of a picture, as HTML writes them: of the paper, of letters, and of what says right or wrong."""

    paper: str
    ink: str
    faint: str
    rule: str
    backing: str
    right: str
    wrong: str


LIGHT = Palette(
    paper="#fbfaf7", ink="#1d1d1f", faint="#6b6b70", rule="#d9d6ce", backing="#efece4", right="#2f7d4f", wrong="#b3261e"
)
DARK = Palette(
    paper="#131416", ink="#e8e6e1", faint="#a3a3a8", rule="#3a3b3e", backing="#232428", right="#6cc592", wrong="#ff8a80"
)


def require_pillow() -> None:
    """Check that there is something to draw with.

    Raises DeviceError: pillow is not installed; the message says what to install.
    """
    try:
        import PIL  # noqa: F401
    except ImportError as error:
        raise DeviceError('the demo needs Pillow to draw with: pip install "dmlvk[demo]"') from error


def font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Pillow's own letters, of a height in pixels."""
    from PIL import ImageFont

    return ImageFont.load_default(size)
