"""A record of the harness as a picture: a roofline of the convolutions, and the data movement beside its marks."""

from __future__ import annotations
from pathlib import Path
from typing import Any
def require_matplotlib() -> None: ...
def draw(record: dict[str, Any], path: Path) -> None: ...
