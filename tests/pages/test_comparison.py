"""The page of `dmlvk compare` in a browser: it filters, sorts, and fits every window."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from dmlvk.command_line import main
from dmlvk.conformance.comparison.findings import Findings, compare, matrices_by_device
from dmlvk.conformance.comparison.page import page as page_of
from dmlvk.conformance.results import Result, Status
from tests.conformance.comparison.made_results import environment, result, written
from tests.pages.browser import Page
from tests.pages.conftest import CUT, SQUEEZED, check_widths

LONG = "quantized_linear_convolution:halo:in=u8;filter=s8;out=u8;batch=3;channels=144;filters=70;groups=2;width=15"
TYPES = ("uint8", "int64", "float32")


def entries(device: int) -> list[Result]:
    """170 results with every status; the third device is wrong in some."""
    statuses = list(Status)
    made = []
    for number in range(150):
        operator, path = (("slice1", ("blocks", "tiles")), ("one_hot", ("blocks", "rows", "words")))[number % 2]
        name = f"{operator}:layout:number={number};type={TYPES[number % 3]};path={path[number % len(path)]}"
        status = statuses[number % len(statuses)] if number % 11 == 0 else Status.PASS
        digest = f"{number:016x}" if status in (Status.PASS, Status.FAIL) else ""
        wrong = device == 2 and number % 40 == 7
        found = result(name, "ff" * 8 if wrong else digest, Status.FAIL if wrong else status, message="It failed. " * 9)
        made.append(found)
    made += [
        result(
            f"{LONG};number={number};path=matrix:128x128x64:64x32", "ab" * 8, path="matrix", profile="no-float64",
            seconds=0.1 * (number * 7 % 20),
        )
        for number in range(20)
    ]  # fmt: skip
    return made


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    folder = tmp_path_factory.mktemp("results")
    files = [
        written(folder / f"{number}.jsonl", environment(device), entries(number))
        for number, device in enumerate(("Red 9", "Green 5", "Blue <1>"))
    ]
    newer = environment("Red 9", driver_version="27.0.1-devel-with-a-long-name", package="0.2.0")
    files.append(written(folder / "newer.jsonl", newer, entries(1)[5:]))
    return compare(files, [], {})


@pytest.fixture(scope="module")
def path(findings: Findings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "compare.html"
    path.write_text(page_of(findings), encoding="utf-8")
    return path


@pytest.fixture(params=[400, 1600])
def page(request: pytest.FixtureRequest, browser: Page, path: Path) -> Page:
    browser.open(path, request.param)
    return browser


def count(page: Page) -> int:
    """The cases that the filter leaves, as the page says."""
    return int(page.value("document.getElementById('count').textContent").split()[0])


def texts(page: Page, selector: str) -> list[str]:
    found = page.value(f"[...document.querySelectorAll({selector!r})].map((e) => e.innerText.trim())")
    return [str(each) for each in found]


def names(page: Page) -> list[str]:
    return texts(page, "#cases tbody td:first-child code")


def test_nothing_is_cut_and_all_can_be_read(browser: Page, path: Path) -> None:
    check_widths(browser, path)


def test_all_devices_of_the_project_fit(browser: Page, tmp_path: Path) -> None:
    """Their cases force tiles, which stand under their path: with a column for each, the page was far too wide."""
    runs = sorted((Path(__file__).parents[2] / "docs" / "devices").glob("*.jsonl"))
    done = CliRunner().invoke(main, ["compare", *map(str, runs), "--html", str(tmp_path / "devices.html")])
    assert done.exit_code == 0, done.output
    for width in (400, 1000, 1400):
        browser.open(tmp_path / "devices.html", width)
        assert browser.value("document.documentElement.scrollWidth") == width
        assert browser.value(CUT) == [], width
        assert browser.value(SQUEEZED) == [], width
    headings = texts(browser, ".matrix thead th")
    assert "matrix" in headings and not any(sign in heading for heading in headings for sign in ":/")


def test_all_cases_can_be_seen(page: Page) -> None:
    assert count(page) == 170
    assert len(names(page)) == 100
    page.click("#more")
    assert len(set(names(page))) == 170
    assert page.value("document.getElementById('more').hidden") is True


def test_matrices_are_those_of_the_results(page: Page, findings: Findings) -> None:
    shown = {}
    for card in page.value(
        "[...document.querySelectorAll('#matrices .card')].map((card) => [card.querySelector('h3').textContent,"
        " [...card.querySelectorAll('tbody tr')].map((row) => [row.querySelector('th').textContent,"
        " [...row.querySelectorAll('td')].map((cell) => cell.textContent)])])"
    ):
        shown[card[0]] = card[1]
    expected = {
        matrix.operator: [[label, [cell.text if cell else "" for cell in cells]] for label, cells in matrix.rows]
        for matrix in matrices_by_device(findings.runs)
    }
    assert shown == expected


@pytest.mark.parametrize(
    ("choice", "value", "expected"),
    [
        ("operator", "ONE_HOT", 75),
        ("path", "words", 25),
        ("path", "matrix", 20),
        ("type", "int64", 50),
        ("vendor", "Intel", 170),
        ("status", "differs", 4),
        ("status", "DeviceLost", 2),
    ],
)
def test_a_choice_filters(page: Page, findings: Findings, choice: str, value: str, expected: int) -> None:
    page.choose(f"[name={choice}]", value)
    assert count(page) == expected
    kept = [run.label for run in findings.runs if choice != "vendor" or run.vendor == value]
    assert texts(page, "#devices tbody tr:not([hidden]) b") == kept
    chips = texts(page, "#cases .chip")
    assert chips
    if choice == "vendor":
        assert all(chip.startswith("Blue <1> 26.1.0") for chip in chips)
    if choice == "path":
        assert all(f" · {value}" in chip for chip in chips)
    page.click("[type=reset]")
    assert page.value("new Promise((done) => setTimeout(() => done(1), 50))") == 1
    assert count(page) == 170


def test_what_is_typed_filters(page: Page) -> None:
    page.enter("[name=text]", "one_hot NUMBER=1")
    assert count(page) == len([k for k in range(1, 150, 2) if str(k).startswith("1")])
    page.enter("[name=text]", " nothing")
    assert count(page) == 0
    assert names(page) == []


def test_filters_are_added_up(page: Page) -> None:
    page.choose("[name=operator]", "SLICE1")
    page.choose("[name=type]", "int64")
    page.choose("[name=status]", "bad")
    slice1 = [found for device in range(3) for found in entries(device) if found.operator == "SLICE1"]
    bad = {found.name for found in slice1 if found.types == "int64" and not found.is_good}
    assert set(names(page)) == bad != set()


@pytest.mark.parametrize("key", ["operator", "types", "devices", "digest"])
def test_headings_sort(browser: Page, path: Path, key: str) -> None:
    browser.open(path, 1600)
    before = names(browser)
    browser.click(f"#cases th[data-key={key}] button")
    assert browser.value(f"document.querySelector('#cases th[data-key={key}]').ariaSort") == "ascending"
    first = names(browser)
    column = {"operator": "td:nth-child(2)", "types": "td:nth-child(3)"}.get(key)
    if column is not None:
        values = texts(browser, f"#cases tbody {column}")
        assert values == sorted(values)
    if key == "digest":
        assert texts(browser, "#cases tbody tr:nth-child(-n+5) td:last-child") == ["2 digests"] * 4 + ["0" * 16]
    browser.click(f"#cases th[data-key={key}] button")
    assert browser.value(f"document.querySelector('#cases th[data-key={key}]').ariaSort") == "descending"
    assert names(browser) != first
    browser.choose("[name=order]", "name")
    assert names(browser) == before


def test_the_slowest_first(page: Page) -> None:
    page.choose("[name=order]", "seconds")
    assert [name.partition("number=")[2].partition(";")[0] for name in names(page)[:3]] == ["17", "14", "11"]


def test_devices_are_sorted(browser: Page, path: Path) -> None:
    browser.open(path, 1600)
    browser.click("#devices th:nth-child(2) button")
    assert texts(browser, "#devices tbody td:nth-child(2)") == ["AMD", "AMD", "Intel", "NVIDIA"]
    browser.click("#devices th:nth-child(8) button")
    browser.click("#devices th:nth-child(8) button")
    numbers = [int(text) for text in texts(browser, "#devices tbody td:nth-child(8)")]
    assert numbers == sorted(numbers, reverse=True) and len(set(numbers)) > 1


def test_messages_are_text_and_no_markup(page: Page) -> None:
    page.choose("[name=status]", "bad")
    assert page.value("document.querySelector('#cases .chip').title").count("It failed.") > 1
    assert page.value("document.querySelectorAll('#cases b, #cases script').length") == 0
