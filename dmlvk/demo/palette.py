"""The colours and the letters of the demo's pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dmlvk.errors import DeviceError

if TYPE_CHECKING:
    from PIL import ImageFont

PAPER, INK, FAINT, RULE, BACKING = "#fbfaf7", "#1d1d1f", "#6b6b70", "#d9d6ce", "#efece4"
RIGHT, WRONG = "#2f7d4f", "#b3261e"


def require_pillow() -> None:
    """Check that there is something to draw with.

    Raises
    ------
    DeviceError
        Pillow is not installed; the message says what to install.
    """
    try:
        import PIL  # noqa: F401
    except ImportError as error:
        raise DeviceError('the demo needs Pillow to draw with: pip install "dmlvk[demo]"') from error


def font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Pillow's own letters, of a height in pixels."""
    from PIL import ImageFont

    return ImageFont.load_default(size)
