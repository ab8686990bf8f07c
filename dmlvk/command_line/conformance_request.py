"""What the command line asks of `dmlvk conformance`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dmlvk.conformance.case import Case, CaseSource
from dmlvk.conformance.names import SelectionError, case_source, parse_shard, select
from dmlvk.conformance.outputs import outputs_folder
from dmlvk.conformance.profiles import DEVICE, PROFILES
from dmlvk.conformance.running.runner import Item


@dataclass
class Request:
    """The request on the command line: see the options' help."""

    patterns: tuple[str, ...]
    list_names: bool
    plans: bool
    full: bool
    sample: int | None
    seed: int
    shard: str | None
    fraction: str | None
    path: str | None
    profiles: tuple[str, ...]
    device: str | None
    scheduler: str | None
    resume: Path | None
    timeout: float
    repeat: int
    soak: float | None
    jobs: int | None
    reruns: int
    validate: bool
    waivers: Path | None
    compare: Path | None
    json: Path | None
    keep_outputs: bool
    junit: Path | None
    html: Path | None
    export: Path | None
    export_all: bool
    export_dxdispatch: Path | None
    record_digests: Path | None
    cases: str

    @property
    def outputs(self) -> Path | None:
        """The folder in which outputs are kept, if they are."""
        place = self.json or self.resume
        return outputs_folder(place) if self.keep_outputs and place is not None else None

    def source(self) -> CaseSource:
        """All cases; if a path is forced, excluding the cases that force another."""
        source = case_source(self.cases)
        if self.path is None:
            return source
        return lambda default_only: (case for case in source(default_only) if case.path in (None, self.path))

    def chosen(self) -> list[Case]:
        """The chosen cases."""
        if self.shard is not None and self.fraction is not None:
            raise SelectionError("--shard and --fraction both choose a part: give one of them")
        chosen = select(
            self.source(),
            self.patterns,
            full=self.full,
            sample=self.sample,
            seed=self.seed,
            shard=None if self.shard is None else parse_shard(self.shard),
            fraction=None if self.fraction is None else parse_shard(self.fraction, "a fraction"),
        )
        if not chosen:
            raise SelectionError("no case is chosen: --cases lists none, or --path, --shard or --fraction leaves none")
        return chosen

    def items(self, chosen: list[Case]) -> list[Item]:
        """The chosen cases on each profile."""
        profiles = list(PROFILES) if "all" in self.profiles else list(dict.fromkeys(self.profiles)) or [DEVICE]
        return [(profile, case.name) for profile in profiles for case in chosen]
