"""The names in docstrings' types: where dmlvk's lead, which are plain words, and which are of other libraries."""

from __future__ import annotations

import re
from typing import Any

import dmlvk
from tools.documentation.sections import numpy_style

# A docstring says "Device", as a user does; its description is that of dmlvk.Device.
TYPES = {name: f"dmlvk.{name}" for name in dmlvk.__all__ if name[0].isupper()} | {
    "CooperativeMatrix": "dmlvk.device_profile.CooperativeMatrix",
    "ConvolutionGeometry": "dmlvk.operators.ConvolutionGeometry",
    "InferenceSession": "dmlvk.onnx.InferenceSession",
    "Limits": "dmlvk.device_profile.Limits",
    "OperatorDesc": "dmlvk.operators.OperatorDesc",
    "Plan": "dmlvk.planning.Plan",
    "Profile": "dmlvk.onnx.profile.Profile",
    "StepTimes": "dmlvk.onnx.profile.StepTimes",
    "DocumentNode": "dmlvk.dxdispatch.document.DocumentNode",
    "Finding": "dmlvk.onnx.checking.Finding",
    "DriverId": "dmlvk.device_profile.DriverId",
    "Resource": "dmlvk.dxdispatch.resources.Resource",
    "Dispatchable": "dmlvk.dxdispatch.dispatchables.Dispatchable",
    "Command": "dmlvk.dxdispatch.commands.Command",
    "Source": "dmlvk.dxdispatch.dispatchables.Source",
}
# What docstrings have in place of types, and other libraries' types under their short names.
WORDS = (
    "array", "arrays", "array_like", "bytes-like", "callable", "dtype", "iterable", "iterator", "mapping", "ndarray",
    "number", "path", "sequence", "tuples", "uint8", "2 int", "4 int", "ModelProto", "NodeProto", "NumPy scalar",
    "Path",
)  # fmt: skip
TYPES |= {word: f":emphasis:`{word}`" for word in WORDS}
# Nothing is read from the network to build the pages, so names of other libraries lead nowhere.
OF_OTHERS = [(r"py:.*", r"(numpy|torch|onnx|onnxruntime|dask|distributed|concurrent)\..*")]

# `Device.compile`, `Tensor`, `slice1`, `dmlvk.reference.run`: not behind a colon, which makes a role of it.
IN_BACKTICKS = re.compile(r"(?<![`:\w])`(?:dmlvk\.)?([A-Za-z]\w*(?:\.\w+)?)(\(\))?`(?!`)")
SEVERAL_NAMES = re.compile(r"^(\w+(?:, \w+)+) : (.*)$")


def connect(application: Any) -> None:
    """Have Sphinx read docstrings as they are meant."""
    application.connect("autodoc-process-docstring", prepare, priority=400)  # before napoleon


def prepare(application: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Write a docstring so that napoleon understands it.

    A property's first line may have a colon; napoleon would take what is before it for a type, but not in a second
    line. It takes one name an attribute. And two modules have a ModelError.
    """
    lines[:] = [IN_BACKTICKS.sub(_linked, line) for line in numpy_style(lines)]
    if what in ("property", "attribute"):
        lines[:1] = lines[0].split(" ", 1)
        return
    models = "dxdispatch" if name.startswith("dmlvk.dxdispatch") else "onnx"
    lines[:] = [re.sub(r"^ModelError\b", f"dmlvk.{models}.ModelError", line) for line in lines]
    if "Attributes" in lines:
        start = lines.index("Attributes")
        lines[start:] = _one_name_each(lines[start:])


def _linked(found: re.Match[str]) -> str:
    """A name in backticks as a link, if it is a public one."""
    first, _, member = found[1].partition(".")
    if first not in dmlvk.__all__ or (member and not hasattr(getattr(dmlvk, first), member)):
        return found[0]
    return f":py:obj:`{found[0].strip('`').removesuffix('()')} <dmlvk.{found[1]}>`"


def _one_name_each(lines: list[str]) -> list[str]:
    made: list[str] = []
    position = 0
    while position < len(lines):
        several = SEVERAL_NAMES.match(lines[position])
        position += 1
        if several is None:
            made.append(lines[position - 1])
            continue
        described = position
        while described < len(lines) and lines[described].startswith(" "):
            described += 1
        for name in several[1].split(", "):
            made += [f"{name} : {several[2]}", *lines[position:described]]
        position = described
    return made
