"""`dmlvk demo`: the operators on a photograph and a network on digits, each result checked."""

from __future__ import annotations

from dmlvk.demo.digits import Reading, missing_package, read_digits
from dmlvk.demo.grid import draw_digits
from dmlvk.demo.measure import PanelResult, measure
from dmlvk.demo.palette import DARK, LIGHT
from dmlvk.demo.panels import Panel, PanelPicture, all_panels, photograph
from dmlvk.demo.sheet import draw_sheet, picture_format

__all__ = [
    "DARK",
    "LIGHT",
    "Panel",
    "PanelPicture",
    "PanelResult",
    "Reading",
    "all_panels",
    "draw_digits",
    "draw_sheet",
    "measure",
    "missing_package",
    "photograph",
    "picture_format",
    "read_digits",
]
