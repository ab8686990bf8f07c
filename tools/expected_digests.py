"""Writes dmlvk/conformance/manifest.json: the digest of what each default case has to give, a line a case.

The digests come from `dmlvk.reference`, or from where a case's expected output comes from, so that no device is needed;
`dmlvk conformance` holds every result against them. Cases whose output is left open have none. Needs the package onnx.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

# Also run as a plain script: then the checkout is not on the path yet.
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
    """Digests by name, of the cases that have one; those that differ in how they are run alone share it."""
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
