"""The reports of a run, and the files that keep its results."""

from __future__ import annotations

import datetime
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from dmlvk.conformance.digests import compared, recorded_digests, write_digests
from dmlvk.conformance.reports.html import matrices_by_types, write_html
from dmlvk.conformance.reports.junit import write_junit
from dmlvk.conformance.results import Environment, Result, ResultsError, Run, Status
from dmlvk.conformance.results_file import ResultsWriter, read_results
from dmlvk.conformance.waivers import Waiver, WaiverReport

ENVIRONMENT = Environment(
    device="A <device> & more",
    driver="a driver 1.2",
    vulkan="1.3.4",
    driver_version="1.2",
    record={"deviceName": "A <device> & more"},
    features=("shaderInt8", "timelineSemaphore"),
    package="0.1.0",
    python="3.12",
    numpy="2.0",
    system="Linux",
    kernels={"slice1": "0123abcd"},
    date="2026-11-20T12:00:00+00:00",
    command="dmlvk conformance --device 'A <device>'",
)
RESULTS = [
    Result("slice1:a:it=1", "device", Status.PASS, "", "", "SLICE1", "uint8", "blocks", "00ff", 0.5),
    Result("slice1:a:it=2", "device", Status.FAIL, "difference", "1 < 2 \x00 & \x1b[0m", "SLICE1", "uint8", "blocks"),
    Result("slice1:a:it=3", "device", Status.NOT_SUPPORTED, "path:tiles", "no tiles", "SLICE1", "uint8", "tiles"),
    Result("slice1:a:it=4", "device", Status.FLAKY, "digest", "two", "SLICE1", "int64", "blocks", waiver="known"),
    Result("one_hot:b:it=1", "minimum", Status.DEVICE_LOST, "crash:SIGSEGV", "ended"),
    Result("one_hot:b:it=2", "minimum", Status.TIMEOUT, "timeout:8", "not done", seconds=8.0),
]


@pytest.fixture
def run() -> Run:
    made = Run(ENVIRONMENT)
    for result in RESULTS:
        made.add(result)
    return made


def test_json_lines_are_read_back(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "results.jsonl"
    with ResultsWriter(path) as writer:
        writer.write(ENVIRONMENT)
        for result in RESULTS:
            writer.write(result)
    assert read_results(path) == run


def test_of_a_case_that_ran_again_the_last_result_counts(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    for status in (Status.FAIL, Status.PASS):
        with ResultsWriter(path) as writer:
            writer.write(ENVIRONMENT)
            writer.write(Result("a:it=1", "device", status))
    assert read_results(path).results["device", "a:it=1"].status is Status.PASS


def test_a_line_cut_short_is_passed_over_and_written_over(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    with ResultsWriter(path) as writer:
        writer.write(RESULTS[0])
    with path.open("a") as file:
        file.write('{"kind": "resu')
    assert len(read_results(path).results) == 1
    with ResultsWriter(path) as writer:
        writer.write(RESULTS[1])
    assert len(read_results(path).results) == 2


@pytest.mark.parametrize(
    "line", ["not JSON", '{"kind": "result"}', '{"kind": "result", "name": 1, "status": "Odd"}', "[]"]
)
def test_other_files_are_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(f"\n{line}\n")
    with pytest.raises(ResultsError, match="line 2: not a line of conformance results"):
        read_results(path)


def test_a_run_succeeds_when_what_failed_is_waived(run: Run) -> None:
    assert not run.succeeded
    for result in RESULTS:
        if result.status not in (Status.PASS, Status.NOT_SUPPORTED, Status.FLAKY):
            del run.results[result.key]
    assert [result.name for result in run.failures] == ["slice1:a:it=4"]
    assert run.succeeded


def test_junit(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "report.xml"
    write_junit(path, run)
    root = ElementTree.parse(path).getroot()
    totals = {name: root.get(name) for name in ("tests", "failures", "errors", "skipped")}
    assert totals == {"tests": "6", "failures": "1", "errors": "2", "skipped": "2"}
    cases = {case.get("name"): [child.tag for child in case] for case in root.iter("testcase")}
    assert cases == {
        "slice1:a:it=1": [],
        "slice1:a:it=2": ["failure"],
        "slice1:a:it=3": ["skipped"],
        "slice1:a:it=4": ["skipped"],
        "one_hot:b:it=1": ["error"],
        "one_hot:b:it=2": ["error"],
    }
    (failure,) = root.iter("failure")
    assert failure.text == r"1 < 2 \x00 & \x1b[0m"
    assert {suite.get("name") for suite in root} == {"device.slice1", "minimum.one_hot"}


class Page(HTMLParser):
    """Collects open tags, references to other addresses, and the text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.references: list[str] = []
        self.text: list[str] = []
        self.continues = False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.continues = tag == "wbr"  # a name that may break there is one text
        if tag not in ("meta", "br", "link", "img", "wbr"):
            self.open.append(tag)
        self.references += [value or "" for name, value in attributes if name in ("src", "href", "action")]
        assert tag not in ("script", "link", "img", "iframe")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.continues:
            self.text[-1] += data
        else:
            self.text.append(data)
        self.continues = False


def test_html_needs_nothing_beside_itself(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "report.html"
    waiver = Waiver("a driver", "", ("slice1:mended:*",), "was wrong", datetime.date(2030, 1, 1))
    passing = replace(RESULTS[0], name="slice1:mended:x=1")
    waivers = WaiverReport(waived=(RESULTS[3],), passing=(passing,), unneeded=(waiver,))
    write_html(path, run, waivers, {"slice1:a": "Windows of all kinds."})
    source = path.read_text(encoding="utf-8")
    page = Page()
    page.feed(source)
    assert page.open == []
    assert page.references == []
    assert not re.search(r"https?://|url\(|@import", source)
    text = " ".join(" ".join(page.text).split())
    for shown in (
        ENVIRONMENT.device,
        "a driver 1.2",
        "Vulkan 1.3.4",
        "shaderInt8, timelineSemaphore",
        "0123abcd",
        ENVIRONMENT.command,
        "crash:SIGSEGV",
        "profile minimum",
        "1 < 2",
        "slice1:a 2 of 4 Windows of all kinds.",
        "path:tiles",
        "known",
        "slice1:mended:x=1 passes although it is waived",
        "slice1:mended:* nothing of it failed: it can go",
    ):
        assert shown in text, shown
    assert "There are failures." in text
    assert "<device>" not in source
    assert "1 &lt; 2" in source


def test_the_matrix_counts_operators_by_types_and_path(run: Run) -> None:
    device, minimum = matrices_by_types(run.results.values())
    assert (device.profile, device.operator, device.columns) == ("device", "SLICE1", ["blocks", "tiles"])
    cells = dict(device.rows)
    (of_int64, absent), (of_uint8, unsupported) = cells["int64"], cells["uint8"]
    assert absent is None
    assert of_int64 is not None and of_uint8 is not None and unsupported is not None
    assert (of_uint8.text, of_uint8.worst) == ("1 of 2", Status.FAIL)
    assert (of_int64.text, of_int64.worst) == ("1 of 1", Status.FLAKY)
    assert (unsupported.text, unsupported.worst) == ("–", Status.NOT_SUPPORTED)
    assert (minimum.profile, minimum.operator, minimum.columns) == ("minimum", "one_hot", ["any"])
    assert minimum.rows[0][0] == ""


def test_a_path_whose_sums_are_shared_is_no_column_of_its_own() -> None:
    """ "split_k/7": seven workgroups share a tile."""
    results = [
        Result(f"convolution:x={path}", "device", Status.PASS, operator="C", types="int8", path=path)
        for path in ("split_k", "split_k/7", "split_k/50", "direct", "")
    ]
    (found,) = matrices_by_types(results)
    assert found.columns == ["any", "direct", "split_k"]
    assert [cell.text for _, cells in found.rows for cell in cells if cell] == ["1", "1", "3"]


def test_digests_are_recorded_and_compared(tmp_path: Path) -> None:
    path = tmp_path / "digests.json"
    write_digests(path, RESULTS)
    digests = recorded_digests(path)
    assert digests == {"slice1:a:it=1": "00ff"}
    assert compared(RESULTS[0], digests) == RESULTS[0]
    assert compared(RESULTS[0], {}) == RESULTS[0]
    other = compared(RESULTS[0], {"slice1:a:it=1": "ff00"})
    assert (other.status, other.reason) == (Status.FAIL, "digest")
    assert "00ff is not the recorded ff00" in other.message
    assert compared(RESULTS[1], {"slice1:a:it=2": "ff00"}) == RESULTS[1]


@pytest.mark.parametrize("content", ["[]", "nothing", '{"a": 1}'])
def test_a_file_that_holds_no_digests(tmp_path: Path, content: str) -> None:
    path = tmp_path / "digests.json"
    path.write_text(content)
    with pytest.raises(ResultsError, match="not a file of digests"):
        recorded_digests(path)
