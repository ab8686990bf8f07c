"""The page of `dmlvk conformance --html` in a browser."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from dmlvk.conformance.cases import all_cases
from dmlvk.conformance.reports.html import write_html
from dmlvk.conformance.results import Result, Run, Status
from dmlvk.conformance.waivers import Waiver, WaiverReport
from dmlvk.planning import KERNEL_PATHS
from tests.conformance.comparison.made_results import environment
from tests.pages.browser import Page
from tests.pages.conftest import check_widths

PATHS = sorted({path for paths in KERNEL_PATHS.values() for path in paths})
CONVOLUTION = "QUANTIZED_LINEAR_CONVOLUTION"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with every status, every path, several profiles, waivers and long names."""
    statuses = list(Status)
    run = Run(environment("Blue <1>", features=("shaderInt8", "vulkanMemoryModelAvailabilityVisibilityChains") * 20))
    groups = {}
    for number, case in enumerate(list(all_cases(default_only=True))[::3]):
        groups[case.group] = case.about
        is_convolution = case.name.startswith("quantized")
        status = statuses[number // 7 % len(statuses)] if number % 7 == 0 else Status.PASS
        result = Result(
            case.name,
            "no-subgroup-size-control" if number % 5 == 0 else "device",
            status,
            "" if status is Status.PASS else f"reason:{status.value}",
            "" if status is Status.PASS else "A long message about bytes. " * 12,
            CONVOLUTION if is_convolution else case.groups[0].upper(),
            "uint8 int8 uint8" if is_convolution and number % 2 else "float32",
            case.path or PATHS[number % len(PATHS)],
            seconds=0.25,
        )
        run.add(result)
    waiver = Waiver("driver", ">=22.3", ("slice1:*:type=uint8;*",), "A reason. " * 20, datetime.date(2030, 1, 1))
    report = WaiverReport(tuple(run.failures[:3]), tuple(run.failures[3:5]), (waiver,), (waiver,))
    path = tmp_path_factory.mktemp("pages") / "report.html"
    write_html(path, run, report, groups)
    return path


def test_nothing_is_cut_and_all_can_be_read(browser: Page, path: Path) -> None:
    check_widths(browser, path)


@pytest.mark.parametrize("width", [500, 1600])
def test_each_operator_has_a_matrix_of_its_own_paths(browser: Page, path: Path, width: int) -> None:
    browser.open(path, width)
    found = browser.value(
        "[...document.querySelectorAll('.matrices .card')].map((card) => [card.querySelector('h3').textContent,"
        " card.querySelectorAll('thead th').length - 1,"
        " card.querySelector('h3').getBoundingClientRect().height])"
    )
    assert [row[0] for row in found].count(CONVOLUTION) == 2, "one for each profile"
    for operator, columns, height in found:
        shown = browser.value(
            f"[...document.querySelectorAll('.matrices .card')].find((e) => e.textContent.includes({operator!r}))"
            ".querySelectorAll('td span').length"
        )
        assert 1 <= columns <= len(PATHS) and shown >= columns
        assert height < 60, "the operator's name stands in one line above its rows"
