"""Writes dmlvk/conformance/manifest.json: the digest of the expected output of each default case, one line a case.

The expected outputs come from `dmlvk.reference`, or from the case's own source, so that no device is needed. `dmlvk
conformance` compares every result with the digests. Cases whose output is left open have none. Needs the package onnx.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

# If this file runs as a plain script, the checkout is not on the path yet.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from dmlvk.conformance.case import Case
from dmlvk.conformance.cases import all_cases
from dmlvk.conformance.cases.combinations import data_name
from dmlvk.conformance.digests import write_digests
from dmlvk.conformance.profiles import DEVICE
from dmlvk.conformance.results import Result, Status
from dmlvk.conformance.running.execution import digest

MANIFEST = Path(__file__).resolve().parent.parent / "dmlvk" / "conformance" / "manifest.json"


def expected_digests(cases: Iterable[Case]) -> dict[str, str]:
    """Digests of the cases that have one, by name. Cases that differ only in the way they are run share a digest."""
    by_data: dict[str, str] = {}
    digests = {}
    for case in cases:
        data = data_name(case.name)
        if data not in by_data:
            workload = case.build()
            by_data[data] = digest(workload.result()) if workload.is_defined else ""
        if by_data[data]:
            digests[case.name] = by_data[data]
    return digests


def main() -> None:
    """Write the manifest."""
    digests = expected_digests(all_cases(default_only=True))
    write_digests(MANIFEST, (Result(name, DEVICE, Status.PASS, digest=value) for name, value in digests.items()))
    print(f"{len(digests)} digests in {MANIFEST.name}")


if __name__ == "__main__":
    main()
