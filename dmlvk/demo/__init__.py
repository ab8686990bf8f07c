"""`dmlvk demo`: the operators on a photograph, each result checked against the NumPy reference."""

from __future__ import annotations

from dmlvk.demo.measure import Measurement, measure
from dmlvk.demo.panels import Panel, View, all_panels, photograph
from dmlvk.demo.sheet import draw_sheet, picture_format

__all__ = ["Measurement", "Panel", "View", "all_panels", "draw_sheet", "measure", "photograph", "picture_format"]
