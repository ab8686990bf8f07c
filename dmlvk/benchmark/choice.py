"""The cases that a run on several devices measures, and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dmlvk.benchmark.cases import SCALES, Scale, cases, select
from dmlvk.conformance.case import Case


@dataclass(frozen=True)
class Choice:
    """The cases of a run and how they are measured. The scale is the default one of each device if it is None."""

    operators: Sequence[str] = ()
    patterns: Sequence[str] = ()
    types: Sequence[str] = ()
    layouts: Sequence[str] = ()
    path: str | None = None
    filter_is_owned: bool = True
    parameters_are_owned: bool = True
    size: str | None = None
    batch: int | None = None
    data_bytes: int | None = None
    rounds: int = 20
    peers: Sequence[str] = ()

    def scale(self, is_cpu: bool) -> Scale:
        """The sizes of the cases on a device."""
        scale = SCALES[self.size or ("small" if is_cpu else "full")]
        if self.data_bytes is not None:
            scale = replace(scale, data_bytes=self.data_bytes)
        if self.batch is not None:
            scale = replace(scale, batch=self.batch)
        return replace(scale, filter_is_owned=self.filter_is_owned, parameters_are_owned=self.parameters_are_owned)

    def chosen(self, is_cpu: bool) -> list[Case]:
        """The cases on a device."""
        return list(
            select(
                cases(self.scale(is_cpu)),
                operators=self.operators,
                patterns=self.patterns,
                types=self.types,
                layouts=self.layouts,
                path=self.path,
            )
        )
