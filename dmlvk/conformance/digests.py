"""Recorded digests of outputs, with which any machine can be compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from dmlvk._common import files
from dmlvk.conformance.case import current_name
from dmlvk.conformance.results import Result, ResultsError, Status


def recorded_digests(path: Path | None = None) -> dict[str, str]:
    """Digests by case name, from a file or from the package.

    Raises ResultsError: the file is not a file of digests.
    Raises OSError: the file cannot be read.
    """
    if path is None:
        return dict(files.packaged_json("dmlvk.conformance", "manifest.json", {}))
    content = files.read_bytes(path)
    try:
        digests = files.parse_json(content, "it")
        if not all(isinstance(value, str) for value in digests.values()):
            raise ValueError("every digest must be a string")
    except (OSError, ValueError, AttributeError) as error:
        raise ResultsError(f"{path}: not a file of digests, {{case name: digest}}: {error}") from error
    return {current_name(name): value for name, value in digests.items()}


def write_digests(path: Path, results: Iterable[Result]) -> None:
    """Write the digests of the cases that passed, by name. Outputs whose values are open have no digest."""
    digests = {result.name: result.digest for result in results if result.status is Status.PASS and result.digest}
    files.write_text(path, files.json_text(dict(sorted(digests.items())), 0) + "\n")


def compared(result: Result, digests: Mapping[str, str]) -> Result:
    """Compare a result with recorded digests: a result that passes here but differs from its digest fails."""
    recorded = digests.get(result.name)
    if result.status is not Status.PASS or recorded in (None, result.digest):
        return result
    message = (
        f"the output is what the reference gives here, but its digest {result.digest} is not the recorded {recorded}: "
        "the case's data, the reference or NumPy differs"
    )
    return replace(result, status=Status.FAIL, reason="digest", message=message)
