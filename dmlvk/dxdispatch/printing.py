"""The text of a resource, as DxDispatch prints it: C++'s streams, with six significant digits.

One thing differs. DxDispatch prints INT8 and UINT8 as characters, because C++ has one type for both; here they are
numbers.
"""

from __future__ import annotations

import math

from dmlvk._printable import printable
from dmlvk.dxdispatch.resources import Resource


def is_printable(resource: Resource) -> bool:
    """Whether the resource's elements have one type."""
    return resource.data_type is not None


def printed(resource: Resource, memory: bytes, *, is_verbose: bool) -> str:
    """The line, or the lines, that the command prints; as many elements as there were initial values."""
    values = resource.values(memory)
    name = printable(resource.name)
    texts = [number_text(value) for value in values.tolist()]
    if not is_verbose:
        return f"Resource '{name}': {', '.join(texts)}"
    width = len(str(len(texts)))
    digits = 2 * values.dtype.itemsize
    bits = values.view(f"u{values.dtype.itemsize}").tolist()
    lines = [
        f"[{index:{width}}] {text} (0x{word:{digits}X})\n"
        for index, (text, word) in enumerate(zip(texts, bits, strict=True))
    ]
    return f"Resource '{name}':\n{''.join(lines)}"


def number_text(value: float | int) -> str:
    """A number as C++'s streams print it."""
    if isinstance(value, int):
        return str(value)
    if math.isnan(value):
        return "-nan" if math.copysign(1, value) < 0 else "nan"
    return f"{value:g}"
