"""Waivers: the failures that they cover, their expiry, and errors in waiver files."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from dmlvk.conformance.results import Environment, Result, Status
from dmlvk.conformance.running.runner import Item, run_again
from dmlvk.conformance.waivers import Flake, Waiver, WaiverError, apply_waivers, further_runs, read_waivers

TODAY = datetime.date(2026, 11, 20)
ENVIRONMENT = Environment(
    device="a device",
    driver="llvmpipe Mesa 22.3.6 (LLVM 15.0.6)",
    vulkan="1.3.230",
    driver_version="22.3.6",
    record={},
    features=(),
    package="0",
    python="3",
    numpy="2",
    system="Linux",
    kernels={},
)
GOOD = """
[[waiver]]
driver = "LLVMpipe"
versions = ">=22.3,<23"
cases = ["slice1:*:type=u8;*", "one_hot"]
reason = "a shift that is wrong"
expires = 2027-06-30
"""
FAILED = Result("slice1:window:rank=2;type=u8", "device", Status.FAIL, "difference")


def read(tmp_path: Path, text: str) -> list[Waiver]:
    path = tmp_path / "waivers.toml"
    path.write_text(text)
    return read_waivers(path)[0]


def test_a_waived_failure_keeps_its_status_and_gets_the_reason(tmp_path: Path) -> None:
    (waiver,) = read(tmp_path, GOOD)
    others = [
        replace(FAILED, name="slice1:window:rank=2;type=s8"),
        replace(FAILED, name="one_hot:axis:it=1", status=Status.FLAKY),
        replace(FAILED, name="one_hot:axis:it=2", status=Status.NOT_SUPPORTED),
    ]
    report = apply_waivers([waiver], ENVIRONMENT, [FAILED, *others], TODAY)
    assert report.waived == (
        replace(FAILED, waiver="a shift that is wrong"),
        replace(others[1], waiver="a shift that is wrong"),
    )
    assert report.unneeded == ()
    assert report.expired == ()


def test_a_waived_case_that_passes_is_reported(tmp_path: Path) -> None:
    passed = replace(FAILED, status=Status.PASS, reason="")
    report = apply_waivers(read(tmp_path, GOOD), ENVIRONMENT, [passed], TODAY)
    assert report.waived == ()
    assert [result.name for result in report.passing] == [FAILED.name]
    assert [waiver.reason for waiver in report.unneeded] == ["a shift that is wrong"]


@pytest.mark.parametrize("failing_first", [True, False])
def test_a_waiver_that_some_of_its_cases_need_cannot_go(tmp_path: Path, failing_first: bool) -> None:
    passed = replace(FAILED, name="one_hot:axis:it=1", status=Status.PASS, reason="")
    results = [FAILED, passed] if failing_first else [passed, FAILED]
    report = apply_waivers(read(tmp_path, GOOD), ENVIRONMENT, results, TODAY)
    assert [result.name for result in report.passing] == [passed.name]
    assert report.unneeded == ()


def test_a_waiver_holds_on_its_last_day_and_not_after(tmp_path: Path) -> None:
    (waiver,) = read(tmp_path, GOOD)
    assert apply_waivers([waiver], ENVIRONMENT, [FAILED], waiver.expires).waived
    late = apply_waivers([waiver], ENVIRONMENT, [FAILED], waiver.expires + datetime.timedelta(days=1))
    assert late.waived == ()
    assert late.expired == (waiver,)


@pytest.mark.parametrize(
    ("versions", "applies"),
    [
        ("", True),
        (">=22.3", True),
        (">=22.3.6", True),
        (">22.3.6", False),
        ("<22.3.10", True),
        ("==22.3.6.0", True),
        ("<=22", False),
        (">=22.3,<23", True),
        (">=23", False),
    ],
)
def test_versions_are_numbers(tmp_path: Path, versions: str, applies: bool) -> None:
    (waiver,) = read(tmp_path, GOOD.replace(">=22.3,<23", versions))
    assert waiver.applies_to(ENVIRONMENT) is applies


def test_another_driver(tmp_path: Path) -> None:
    (waiver,) = read(tmp_path, GOOD)
    assert not waiver.applies_to(replace(ENVIRONMENT, driver="NVIDIA 580.159.04"))


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('driver = "LLVMpipe"\n', "", "waiver 1: driver = None"),
        ("expires = 2027-06-30", 'expires = "soon"', "expires = 'soon'; it must be a date"),
        ("expires = 2027-06-30", "expires = 2027-06-30T00:00:00", "it must be a date"),
        ('reason = "a shift that is wrong"', 'reason = ""', "reason is empty"),
        ('["slice1:*:type=u8;*", "one_hot"]', '"slice1:*"', "it must be a list of patterns"),
        ('["slice1:*:type=u8;*", "one_hot"]', "[1]", "it must be a list of patterns"),
        (">=22.3,<23", "~22", "'~22' is no comparison"),
        ("reason", "because", "there is no field 'because'"),
        ("[[waiver]]", "[[waivers]]", "[[waiver]] and [[flake]] tables and nothing else"),
        ("[[waiver]]", "[[flake]]\nruns = 0", "flake 1: runs = 0; it must be a number of further runs"),
        ("[[waiver]]", "[[flake]]\nruns = true", "flake 1: runs = True"),
        ("[[waiver]]", "[[flake]]\nrun = 2", "flake 1: there is no field 'run'"),
        ("expires = 2027-06-30", "expires = 2027-06-30\nruns = 2", "waiver 1: there is no field 'runs'"),
        ("[[waiver]]", "[[waiver", "waivers.toml: "),
    ],
)
def test_a_wrong_file_says_where(tmp_path: Path, before: str, after: str, message: str) -> None:
    with pytest.raises(WaiverError) as raised:
        read(tmp_path, GOOD.replace(before, after))
    assert message in str(raised.value)
    assert str(tmp_path) in str(raised.value)


def test_the_example_in_the_documentation_is_one(tmp_path: Path) -> None:
    from dmlvk.conformance import waivers

    assert waivers.__doc__ is not None
    example = waivers.__doc__.partition("[[waiver]]")[2]
    path = tmp_path / "waivers.toml"
    path.write_text(f"[[waiver]]{example}")
    assert [len(found) for found in read_waivers(path)] == [1, 1]


FLAKE = GOOD.replace("[[waiver]]", "[[flake]]") + "runs = 2\n"
FLAKY = replace(FAILED, status=Status.FLAKY, reason="again:2")


def read_flake(tmp_path: Path) -> Flake:
    path = tmp_path / "flakes.toml"
    path.write_text(FLAKE)
    waivers, (flake,) = read_waivers(path)
    assert waivers == []
    return flake


class TestFlakes:
    """Known flakes: run again, excused if they pass then, and never without a word."""

    def test_a_failed_case_has_further_runs(self, tmp_path: Path) -> None:
        flake = read_flake(tmp_path)
        other = replace(FAILED, name="slice1:window:rank=2;type=s8")
        assert further_runs([flake], ENVIRONMENT, FAILED, TODAY) == 2
        assert further_runs([flake], ENVIRONMENT, FAILED, TODAY, 5) == 5
        assert further_runs([flake], ENVIRONMENT, other, TODAY) == 0
        assert further_runs([flake], replace(ENVIRONMENT, driver="another"), FAILED, TODAY) == 0
        assert further_runs([flake], ENVIRONMENT, FAILED, flake.expires + datetime.timedelta(days=1)) == 0

    def test_it_is_excused_only_if_it_passed_on_a_further_run(self, tmp_path: Path) -> None:
        flake = read_flake(tmp_path)
        report = apply_waivers([], ENVIRONMENT, [FLAKY], TODAY, [flake])
        assert report.waived == (replace(FLAKY, waiver="a shift that is wrong"),)
        assert apply_waivers([], ENVIRONMENT, [FAILED], TODAY, [flake]).waived == ()
        late = apply_waivers([], ENVIRONMENT, [FLAKY], flake.expires + datetime.timedelta(days=1), [flake])
        assert (late.waived, late.expired) == ((), (flake,))

    def test_runs_end_when_the_case_passes_or_none_is_left(self) -> None:
        results = [replace(FAILED, name=f"slice1:window:it={name}") for name in ("second", "third", "never", "none")]
        failed = {result.key: result for result in results}
        asked: list[list[str]] = []

        def run(items: Sequence[Item]) -> Iterator[Result]:
            asked.append([name.partition("it=")[2] for _, name in items])
            for profile, name in items:
                passes = name.endswith(("second", "third")[: len(asked)])
                status = Status.PASS if passes else Status.FAIL
                yield Result(name, profile, status, "" if passes else "other")

        most = dict.fromkeys([result.key for result in results[:3]], 3)
        found = {result.name.partition("it=")[2]: result for result in run_again(run, failed, most)}
        assert asked == [["second", "third", "never"], ["third", "never"], ["never"]]
        assert {name: (result.status, result.reason) for name, result in found.items()} == {
            "second": (Status.FLAKY, "again:2"),
            "third": (Status.FLAKY, "again:3"),
            "never": (Status.FAIL, "difference"),
        }
        assert "it passed on run 3; the first run was Fail difference" in found["third"].message
        assert "failed in each of 4 runs" in found["never"].message
