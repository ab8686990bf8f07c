"""The page of `dmlvk compare`, as text. `make test-pages` shows it in a browser."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from dmlvk.conformance.comparison.findings import Findings, compare, matrices_by_device
from dmlvk.conformance.comparison.page import page, rows
from dmlvk.conformance.results import Status
from tests.conformance.comparison.made_results import FIRST, THIRD, environment, result, results, written

# Elements that have no end.
EMPTY = ("meta", "br", "input")


class Source(HTMLParser):
    """Collects what a browser would find: open elements, references to elsewhere, the scripts, the text."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.references: list[str] = []
        self.scripts: list[str] = []
        self.text = ""
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag not in EMPTY:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append("")
        self.references += [value or "" for name, value in attributes if name in ("src", "href", "action", "srcset")]
        assert not [name for name, _ in attributes if name.startswith("on")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        elif self.open and self.open[-1] != "style":
            self.text += data


@pytest.fixture
def findings(tmp_path: Path) -> Findings:
    failed = result(THIRD, "ff" * 8, Status.FAIL, message="</script><b>1 < 2</b> & <!-- more")
    waits = result("one_hot:layout:type=int8;path=rows", "", Status.TIMEOUT)
    files = [
        written(tmp_path / "red.jsonl", environment("Red 9")),
        written(tmp_path / "green.jsonl", environment("Green 5"), [*results(), waits]),
        written(tmp_path / "blue.jsonl", environment("Blue <1>"), [*results()[:2], failed]),
    ]
    return compare(files, [], {})


def test_it_needs_nothing_beside_itself(findings: Findings) -> None:
    source = page(findings)
    found = Source(source)
    assert found.open == []
    assert found.references == []
    assert not re.search(r"https?:|url\(|@import|fetch\(|XMLHttpRequest|import\(", source)
    assert "<b>1" not in source
    assert "Blue <1>" not in source.replace("Blue \\u003c1>", "")
    for shown in ("Blue <1> 26.1.0", "Green 5 580.1", "2026-11-20", "1 of 2 outputs are not the same everywhere."):
        assert shown in found.text, shown


def test_it_holds_every_result(findings: Findings) -> None:
    data = json.loads(Source(page(findings)).scripts[0])
    assert data == rows(findings)
    cells = {
        (row[0], data["devices"][cell[0]]["label"]): (data["statuses"][cell[1]], data["paths"][cell[2]], cell[3])
        for row in data["rows"]
        for cell in row[4]
    }
    expected = {
        (found.name, run.label): (found.status.value, found.path, found.digest)
        for run in findings.runs
        for found in run.results.values()
    }
    assert cells == expected
    assert [data["operators"][row[2]] for row in data["rows"] if row[0] == FIRST] == ["SLICE1"]


def test_every_choice_is_one_of_the_data(findings: Findings) -> None:
    options = re.findall(r"<option>(.*?)</option>", page(findings))
    for choice in ("SLICE1", "ONE_HOT", "tiles", "blocks", "uint8", "int64", "AMD", "NVIDIA", "Intel", "Timeout"):
        assert options.count(choice) == 1, choice
    assert "Flaky" not in options, "no result has it"


def test_matrices_have_only_an_operators_own_paths(findings: Findings) -> None:
    found = {matrix.operator: matrix for matrix in matrices_by_device(findings.runs)}
    assert found["SLICE1"].columns == ["blocks", "tiles"]
    assert found["ONE_HOT"].columns == ["blocks", "rows"]
    (red, red_cells), (green, green_cells), (_, blue_cells) = found["ONE_HOT"].rows
    assert (red, green) == ("Red 9 26.1.0", "Green 5 580.1")
    assert red_cells[1] is None and green_cells[1] is not None
    assert green_cells[1].counts[Status.TIMEOUT] == 1
    assert blue_cells[0] is not None and blue_cells[0].counts[Status.FAIL] == 1
