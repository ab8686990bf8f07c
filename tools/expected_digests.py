"""Writes dmlvk/conformance/manifest.json: the digest of the expected output of each default case, one line a case.

The expected outputs come from `dmlvk.reference`, or from the case's own source, so that no device is needed. `dmlvk
conformance` compares every result with the digests. Cases whose output is left open have none. Needs the package onnx.
Also writes dmlvk/conformance/refusals.json: the invalid descriptors, each with the error that refuses it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

# If this file runs as a plain script, the checkout is not on the path yet.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from dmlvk.conformance.case import Case
from dmlvk.conformance.cases import all_cases
from dmlvk.conformance.cases.combinations import data_name
from dmlvk.conformance.cases.invalid import REFUSALS
from dmlvk.conformance.digests import write_digests
from dmlvk.conformance.profiles import DEVICE
from dmlvk.conformance.results import Result, Status
from dmlvk.conformance.running.execution import digest
from dmlvk.errors import DescriptorError
from dmlvk.operators.serialization import deserialize

FOLDER = Path(__file__).resolve().parent.parent / "dmlvk" / "conformance"
MANIFEST = FOLDER / "manifest.json"
PUBLISHED = FOLDER / REFUSALS


def expected_digests(cases: Iterable[Case]) -> dict[str, str]:
    """Digests of the cases that have one, by name. Cases that differ only in the way they are run share a digest."""
    by_data: dict[str, str] = {}
    digests = {}
    for case in cases:
        if case.refusal is not None:
            continue
        data = data_name(case.name)
        if data not in by_data:
            workload = case.build()
            by_data[data] = digest(workload.digested(workload.result())) if workload.is_defined else ""
        if by_data[data]:
            digests[case.name] = by_data[data]
    return digests


def expected_refusals(cases: Iterable[Case]) -> dict[str, Any]:
    """The invalid descriptors by case name, each with the error with which it is refused.

    Raises:
        ValueError: A descriptor is accepted.
    """
    refusals: dict[str, Any] = {}
    for case in cases:
        if case.refusal is None:
            continue
        content = case.refusal.content()
        try:
            deserialize(content)
        except DescriptorError as error:
            found = {"descriptor": error.descriptor, "field": error.field, "rule": error.rule}
            refusals[case.name] = {"error": found, "descriptor": content}
        else:
            raise ValueError(f"{case.name}: the descriptor is accepted: {content}")
    return refusals


def main() -> None:
    """Write the manifest and the table of refusals."""
    refusals = expected_refusals(all_cases(default_only=True))
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in refusals.items())
    PUBLISHED.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    print(f"{len(refusals)} refusals in {PUBLISHED.name}")
    digests = expected_digests(all_cases(default_only=True))
    write_digests(MANIFEST, (Result(name, DEVICE, Status.PASS, digest=value) for name, value in digests.items()))
    print(f"{len(digests)} digests in {MANIFEST.name}")


if __name__ == "__main__":
    main()
