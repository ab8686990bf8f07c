"""The page of the kernels: every kernel path, and the comment with which each kernel begins."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dmlvk.conformance.recorded import NAMES, load
from dmlvk.operators import QuantizedLinearConvolutionDesc
from dmlvk.operators.registry import CURRENT_OPERATORS
from dmlvk.planning import KERNEL_PATHS
from dmlvk.planning.quantized_linear_convolution.choice import PATHS
from dmlvk.planning.quantized_linear_convolution.path import ConvolutionPath as KernelPath
from tools.debian import ROOT
from tools.documentation import links

KERNELS = ROOT / "kernels"
MANIFEST = ROOT / "dmlvk" / "spirv" / "manifest.json"
# Kernels of no operator, and what they are.
OTHERS = {
    "data_movement": "What the movers share",
    "windows": "What pooling operators share",
    "element_wise": "What element-wise operators share",
    "benchmark": "The marks of `dmlvk bench`",
}


def page() -> Iterator[str]:
    """The lines of the page, below its first heading."""
    manifest = json.loads(MANIFEST.read_text(encoding="utf-8"))
    yield f"Compiled by {manifest['compiler']}."
    yield ""
    for desc in CURRENT_OPERATORS:
        yield f"## {desc.operator_name}"
        yield ""
        if desc is QuantizedLinearConvolutionDesc:
            yield from _convolution_paths()
        else:
            yield from _paths(desc.stem, KERNEL_PATHS[desc])
        yield from _folder(desc.stem, manifest["kernels"])
    for folder, title in OTHERS.items():
        yield f"## {title}"
        yield ""
        yield from _folder(folder, manifest["kernels"])


def _paths(stem: str, names: tuple[str, ...]) -> Iterator[str]:
    yield "Kernel paths, on every device:"
    yield ""
    for name in names:
        own = KERNELS / stem / f"{name}.comp"
        # A path with several kernels has its name at the end of theirs.
        paths = [own] if own.exists() else sorted(own.parent.glob(f"*_{name}.comp"))
        firsts = (markdown(header(path)).split("\n\n")[0] for path in paths)
        yield f"- `{name}`: {'. '.join(' '.join(first.split()).rstrip('.:') for first in firsts)}."
    yield ""


def _convolution_paths() -> Iterator[str]:
    yield (
        f"Kernel paths, in the order of the planner's registry, and on how many of the {len(NAMES)} recorded "
        "devices they can run:"
    )
    yield ""
    yield "| path | what it does | recorded devices |"
    yield "| --- | --- | --- |"
    for path in PATHS:
        yield f"| `{path.name}` | {' '.join(inspect.getdoc(type(path)).split())} | {_devices(path)} |"  # type: ignore[union-attr]
    yield ""


def _devices(path: KernelPath[Any]) -> str:
    found = [name for name in NAMES if path.obstacle_on(load(name)) is None]
    if len(found) == len(NAMES):
        return "all"
    if 2 * len(found) > len(NAMES):
        return f"{len(found)}: all but {', '.join(name for name in NAMES if name not in found)}"
    return f"{len(found)}: {', '.join(found)}"


def _folder(folder: str, manifest: dict[str, Any]) -> Iterator[str]:
    for path in sorted((KERNELS / folder).iterdir(), key=lambda path: (path.suffix != ".comp", path.name)):
        if path.suffix not in (".comp", ".glsl"):
            continue
        name = f"{folder}/{path.stem if path.suffix == '.comp' else path.name}"
        yield f"### `{name}`"
        yield ""
        yield markdown(header(path))
        yield ""
        if path.suffix == ".comp":
            compiled = manifest[name]
            for what, names in (
                ("Specialization constants", compiled["specialization_constants"]),
                ("Push constants", list(compiled["push_constants"])),
            ):
                yield f"{what}: {', '.join(f'`{each}`' for each in names) or 'none'}."
                yield ""
        yield f"[{path.relative_to(ROOT).as_posix()}]({links.address(path)})"
        yield ""


def header(path: Path) -> str:
    """The comment with which a kernel begins, without its slashes.

    Raises:
        ValueError: It begins with something else.
    """
    lines = path.read_text(encoding="utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if not line.startswith("#version") and line)
    comment: list[str] = []
    for line in lines[start:]:
        if not line.startswith("//"):
            break
        comment.append(line.removeprefix("//").removeprefix(" "))
    if not comment:
        raise ValueError(f"{path.relative_to(ROOT)} does not begin with a comment: {lines[start]!r}")
    return "\n".join(comment)


def markdown(comment: str) -> str:
    """A comment as Markdown: what is indented by four is text as it stands, unless it goes on in a list's item."""
    made: list[str] = []
    in_item = in_text = False
    for line in comment.splitlines():
        stripped = line.lstrip()
        indent = len(line) - len(stripped)
        if re.match(r"(-|\d+\.) ", stripped) and indent in (0, 2):
            in_item = True
        elif not stripped or indent == 0:
            in_item = False
        is_text = indent >= 4 and not in_item
        if is_text and not in_text:
            made += ["", "```text"]
        elif in_text and stripped and not is_text:
            made = [*_without_blank_end(made), "```", ""]
        in_text = is_text or (in_text and not stripped)
        made.append(line[4:] if is_text else line.replace("<", "&lt;").replace("*", r"\*"))
    return "\n".join([*_without_blank_end(made), "```"] if in_text else made).strip("\n")


def _without_blank_end(lines: list[str]) -> list[str]:
    while lines and not lines[-1]:
        lines = lines[:-1]
    return lines
