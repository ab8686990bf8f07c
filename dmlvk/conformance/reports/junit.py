"""A run as JUnit XML for continuous-integration services: one suite for each group of cases and profile."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from dmlvk._common import files
from dmlvk._printable import printable
from dmlvk.conformance.results import PASSED, Result, Run, Status


def write_junit(path: Path, *runs: Run) -> None:
    """Write one run, or those of several devices, whose names their suites then have.

    Fail and Flaky are failures, DeviceLost and Timeout errors, NotSupported and what is waived skipped.

    Raises OSError.
    """
    everything = [result for run in runs for result in run.results.values()]
    root = ElementTree.Element("testsuites", _totals(everything), name="dmlvk conformance")
    for run in runs:
        device = "" if len(runs) == 1 or run.environment is None else f"{run.environment.device}."
        suites: dict[str, list[Result]] = {}
        for result in run.results.values():
            suites.setdefault(f"{device}{result.profile}.{result.name.partition(':')[0]}", []).append(result)
        for name, results in suites.items():
            suite = ElementTree.SubElement(root, "testsuite", _totals(results), name=name)
            if run.environment is not None:
                suite.set("timestamp", run.environment.date)
                suite.append(_properties(run))
            for result in results:
                suite.append(_test_case(result))
    # XML cannot hold control characters, not even escaped.
    for element in root.iter():
        element.attrib.update({name: printable(value) for name, value in element.attrib.items()})
        element.text = None if element.text is None else printable(element.text, is_multiline=True)
    ElementTree.indent(root)
    files.write_bytes(path, ElementTree.tostring(root, encoding="utf-8", xml_declaration=True))


def _kind(result: Result) -> str:
    """The name of the element for a result's details; none for Pass."""
    if result.status in PASSED:
        return ""
    if result.waiver or result.status is Status.NOT_SUPPORTED:
        return "skipped"
    return "failure" if result.status in (Status.FAIL, Status.FLAKY) else "error"


def _totals(results: list[Result]) -> dict[str, str]:
    kinds = [_kind(result) for result in results]
    return {
        "tests": str(len(results)),
        "failures": str(kinds.count("failure")),
        "errors": str(kinds.count("error")),
        "skipped": str(kinds.count("skipped")),
        "time": f"{sum(result.seconds for result in results):.3f}",
    }


def _properties(run: Run) -> ElementTree.Element:
    element = ElementTree.Element("properties")
    environment = run.environment
    assert environment is not None
    for name in ("device", "driver", "vulkan", "package", "python", "numpy", "system", "command"):
        ElementTree.SubElement(element, "property", name=name, value=getattr(environment, name))
    return element


def _test_case(result: Result) -> ElementTree.Element:
    name, group = result.name, result.name.rpartition(":")[0].replace(":", ".")
    element = ElementTree.Element(
        "testcase", name=name, classname=f"{result.profile}.{group}", time=f"{result.seconds:.3f}"
    )
    kind = _kind(result)
    if kind:
        waived = f" (waived: {result.waiver})" if result.waiver else ""
        message = f"{result.status.value} {result.reason}{waived}"
        details = ElementTree.SubElement(element, kind, message=message, type=result.status.value)
        details.text = result.message
    return element
