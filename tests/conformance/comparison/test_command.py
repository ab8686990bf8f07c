"""`dmlvk compare`: what agrees, what does not, what changed, and one clear line for each wrong file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from dmlvk.command_line import main
from dmlvk.conformance.outputs import keep_output, outputs_folder
from dmlvk.conformance.results import FORMAT, Status
from dmlvk.conformance.results_file import read_results
from dmlvk.conformance.running.execution import digest
from tests.conformance.comparison.made_results import (
    FIRST,
    KERNELS,
    SECOND,
    THIRD,
    bench_record,
    environment,
    result,
    results,
    written,
)
from tests.conftest import DEVICE_NAMES
from tests.damaged_files import Damage, damages, is_named


def compare(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["compare", *map(str, arguments)])


def plain(finished: Result) -> str:
    return " ".join(finished.output.split())


@pytest.fixture
def red(tmp_path: Path) -> Path:
    return written(tmp_path / "red.jsonl", environment("Red 9"))


@pytest.fixture
def green(tmp_path: Path) -> Path:
    return written(tmp_path / "green.jsonl", environment("Green 5"))


class TestAgreement:
    """Every digest is held against every other."""

    def test_equal_digests_end_with_status_0(self, red: Path, green: Path) -> None:
        finished = compare(red, green)
        assert finished.exit_code == 0, finished.output
        assert "All 6 digests agree: the same bits for 2 outputs" in plain(finished)
        assert "Red 9 26.1.0" in finished.output
        assert "Green 5 580.1" in finished.output

    def test_another_digest_on_another_device(self, red: Path, tmp_path: Path) -> None:
        other = [*results()[:2], result(THIRD, "ff" * 8)]
        finished = compare(red, written(tmp_path / "other.jsonl", environment("Green 5"), other))
        assert finished.exit_code == 1
        assert "Disagreement one_hot:layout:type=int64 b2b2b2b2b2b2b2b2: Red 9 26.1.0 (blocks)" in plain(finished)
        assert "ffffffffffffffff: Green 5 580.1 (blocks)" in plain(finished)
        assert "1 of 2 outputs are not the same everywhere." in plain(finished)

    def test_another_digest_on_another_path_or_profile_of_one_device(self, tmp_path: Path) -> None:
        found = [result(FIRST, "a1" * 8), result(SECOND, "a2" * 8), result(FIRST, "a3" * 8, profile="minimum")]
        finished = compare(written(tmp_path / "one.jsonl", environment(), found))
        assert finished.exit_code == 1
        for side in ("a1a1a1a1a1a1a1a1: Red 9 26.1.0 (blocks)", "(tiles)", "(blocks, minimum)"):
            assert side in plain(finished)

    def test_a_digest_that_is_not_the_recorded_one(self, red: Path, tmp_path: Path) -> None:
        recorded = tmp_path / "recorded.json"
        recorded.write_text(json.dumps({FIRST: "c3" * 8}))
        finished = compare(red, "--compare", recorded)
        assert finished.exit_code == 1
        assert "c3c3c3c3c3c3c3c3: recorded" in plain(finished)
        recorded.write_text(json.dumps({SECOND: "a1" * 8, "absent:it=1": "00"}))
        assert compare(red, "--compare", recorded).exit_code == 0

    def test_the_recorded_digests_that_come_with_dmlvk_take_part(self, tmp_path: Path) -> None:
        name = "slice1:page:example=1"
        finished = compare(written(tmp_path / "one.jsonl", environment(), [result(name, "12" * 8)]))
        assert finished.exit_code == 1
        assert "recorded" in finished.output

    def test_nothing_to_compare_is_said(self, tmp_path: Path) -> None:
        failed = result(FIRST, "", Status.DEVICE_LOST, reason="crash:SIGSEGV")
        finished = compare(written(tmp_path / "one.jsonl", environment(), [failed]))
        assert finished.exit_code == 0
        assert "there is nothing to compare" in plain(finished)


class TestElements:
    """The first differing element, where outputs were kept."""

    NAME = "slice1:page:example=1"

    def files(self, folder: Path, *, keeps_first: bool = True) -> tuple[Path, Path]:
        right = np.array([[2, 4], [10, 12]], np.float32).reshape(1, 1, 2, 2)
        wrong = right.copy()
        wrong[0, 0, 1, 0] = -10
        paths = []
        for device, array, is_kept in (("Red 9", right, keeps_first), ("Green 5", wrong, True)):
            status = Status.PASS if array is right else Status.FAIL
            found = result(self.NAME, digest(array), status, path="blocks")
            path = written(folder / f"{device}.jsonl", environment(device), [found])
            if is_kept:
                keep_output(outputs_folder(path), found, array)
            paths.append(path)
        return paths[0], paths[1]

    def test_it_is_named_with_both_sides(self, tmp_path: Path) -> None:
        finished = compare(*self.files(tmp_path))
        assert finished.exit_code == 1
        assert (
            "1 of 4 elements differ, the first at (0, 0, 1, 0): 10.0 (0x41200000) on Red 9 26.1.0 (blocks), "
            "-10.0 (0xc1200000) on Green 5 580.1 (blocks)." in plain(finished)
        )

    def test_the_reference_stands_in_for_what_passed(self, tmp_path: Path) -> None:
        finished = compare(*self.files(tmp_path, keeps_first=False))
        assert "the first at (0, 0, 1, 0): 10.0 (0x41200000) on Red 9 26.1.0" in plain(finished)

    def test_without_outputs_the_message_says_it(self, tmp_path: Path) -> None:
        right = written(tmp_path / "right.jsonl", environment(), [result(FIRST)])
        failed = result(FIRST, "ff" * 8, Status.FAIL, message="2 of 9 elements differ, the first at (1, 1).\nmore")
        wrong = written(tmp_path / "wrong.jsonl", environment("Green 5"), [failed])
        assert "On Green 5 580.1 (blocks): 2 of 9 elements differ, the first at (1, 1). " in plain(
            compare(right, wrong)
        )

    def test_an_output_of_another_run_does_not_count(self, tmp_path: Path) -> None:
        right, wrong = self.files(tmp_path)
        (kept,) = outputs_folder(wrong).iterdir()
        np.save(kept, np.zeros((1, 1, 2, 2), np.float32))
        assert "elements differ" not in plain(compare(right, wrong))
        kept.write_bytes(b"no array")
        assert compare(right, wrong).exit_code == 1

    def test_a_run_keeps_them(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "run.jsonl"
        command = ["conformance", "--device", DEVICE_NAMES[0], "--jobs", "1", "--json", str(path), "--keep-outputs"]
        monkeypatch.setattr("sys.argv", ["dmlvk", *command, "slice1:page"])
        finished = CliRunner().invoke(main, [*command, "slice1:page"])
        assert finished.exit_code == 0, finished.output
        arrays = {kept.name: np.load(kept) for kept in outputs_folder(path).iterdir()}
        results_of = read_results(path).results
        assert {name: digest(array) for name, array in arrays.items()} == {
            f"slice1_page_example={number}.npy": results_of["device", f"slice1:page:example={number}"].digest
            for number in (1, 2)
        }
        text = path.read_text()
        assert str(tmp_path) not in text, "results name no folder"
        assert "--jobs 1 --json run.jsonl --keep-outputs slice1:page" in text

    def test_outputs_need_results_to_lie_beside(self) -> None:
        finished = CliRunner().invoke(main, ["conformance", "--keep-outputs", "slice1:page"])
        assert finished.exit_code == 1
        assert "--keep-outputs needs --json FILE" in finished.output


class TestChanges:
    """Two runs of one device."""

    def test_what_an_update_broke_and_mended(self, tmp_path: Path) -> None:
        failed = result(THIRD, "", Status.FAIL, reason="exception:RuntimeError")
        before = written(tmp_path / "before.jsonl", environment(), [*results()[:2], failed])
        lost = result(SECOND, "", Status.DEVICE_LOST, reason="VK_ERROR_DEVICE_LOST")
        newer = environment(driver_version="27.0.0", kernels={**KERNELS, "slice1/tiles": "dd"}, package="0.2.0")
        after = written(tmp_path / "after.jsonl", newer, [results()[0], lost, results()[2]])
        finished = compare(after, before)
        assert finished.exit_code == 0
        assert (
            "Red 9 27.0.0 after Red 9 26.1.0 (driver 26.1.0, now 27.0.0; dmlvk 0.1.0, now 0.2.0; kernels: slice1/tiles "
            "differs), 3 cases of both: 1 broke, 1 mended, 0 changed otherwise" in plain(finished)
        )
        assert f"Broke {SECOND}: Pass, now DeviceLost: VK_ERROR_DEVICE_LOST" in plain(finished)
        assert f"Mended {THIRD}: Fail, now Pass" in plain(finished)

    @pytest.mark.parametrize(
        ("changes", "older", "newer"),
        [
            ({"driver_version": "3.10.0"}, "Red 9 3.10.0", "Red 9 26.1.0"),
            ({"package": "0.0.9"}, "Red 9 26.1.0, dmlvk 0.0.9", "Red 9 26.1.0, dmlvk 0.1.0"),
            ({}, "Red 9 26.1.0, 2026-11-20", "Red 9 26.1.0, 2026-11-22"),
        ],
    )
    def test_the_older_driver_dmlvk_or_run_comes_first(
        self, tmp_path: Path, changes: dict[str, str], older: str, newer: str
    ) -> None:
        """An older driver may have been run later."""
        first = environment(**changes)
        second = replace(environment(), date="2026-11-22T01:00:00+00:00")
        if changes:
            first, second = replace(first, date=second.date), replace(second, date=first.date)
        files = [written(tmp_path / "second.jsonl", second), written(tmp_path / "first.jsonl", first)]
        assert f"{newer} after {older} (" in plain(compare(*files))

    def test_runs_of_other_devices_are_not_changes(self, red: Path, green: Path) -> None:
        assert " after " not in compare(red, green).output

    def test_what_became_slower(self, tmp_path: Path) -> None:
        old = {"slice1:a": 64e-6, "slice1:b": 50e-6, "slice1:c": 40e-6, "gone": 1e-6}
        new = {"slice1:a": 80e-6, "slice1:b": 50.4e-6, "slice1:c": 20e-6}
        before = bench_record(tmp_path / "before.json", old, date="2026-11-20")
        after = bench_record(tmp_path / "after.json", new, date="2026-11-21", package="0.2.0")
        finished = compare(after, before)
        assert finished.exit_code == 0, finished.output
        assert "3 cases of both: 1 slower, 1 faster" in plain(finished)
        assert "Slower slice1:a: 1.25 times as long: 80.0 us, was 64.0 us" in plain(finished)
        assert "Faster slice1:c: 0.50 times as long" in plain(finished)

    def test_figures_of_other_sizes_are_not_compared(self, tmp_path: Path) -> None:
        before = bench_record(tmp_path / "before.json", {"slice1:a": 64e-6}, date="2026-11-20")
        after = bench_record(tmp_path / "after.json", {"slice1:a": 99e-6}, date="2026-11-21")
        after.write_text(after.read_text().replace("64,\n     64", "64,\n     128").replace(" 64\n", " 128\n"))
        assert "0 cases of both: 0 slower" in plain(compare(before, after))


class TestPartlyComparable:
    """What makes files comparable in part only is said, and they are compared where they meet."""

    def test_different_cases(self, red: Path, tmp_path: Path) -> None:
        other = written(tmp_path / "other.jsonl", environment("Green 5"), [results()[2], result("one_hot:page:it=1")])
        finished = compare(red, other)
        assert finished.exit_code == 0
        assert "hold different cases (Red 9 26.1.0 3, Green 5 580.1 2); 1 are common to all" in plain(finished)
        assert "All 4 digests agree: the same bits for 2 outputs" in plain(finished)

    def test_other_kernels(self, red: Path, tmp_path: Path) -> None:
        kernels = {**KERNELS, "slice1/tiles": "xx", "slice1/new": "yy"}
        other = written(tmp_path / "other.jsonl", environment("Green 5", kernels=kernels))
        finished = compare(red, other)
        assert finished.exit_code == 0
        text = "Green 5 580.1 ran other kernels than Red 9 26.1.0: slice1/new and slice1/tiles differ."
        assert text in plain(finished)

    def test_a_file_that_is_cut_off(self, red: Path, green: Path) -> None:
        content = green.read_bytes()
        green.write_bytes(content[: content.rindex(b'"status"')])
        finished = compare(red, green)
        assert finished.exit_code == 0
        assert f"{green} is cut off in the middle of a line: its 2 whole results are compared." in plain(finished)

    def test_parts_of_one_run_are_put_together(self, tmp_path: Path) -> None:
        parts = [written(tmp_path / f"part{k}.jsonl", environment(), [each]) for k, each in enumerate(results())]
        record = tmp_path / "out.json"
        finished = compare(*parts, "--json", record)
        assert "are parts of one run: Red 9 26.1.0, 3 results." in plain(finished)
        assert len(json.loads(record.read_text())["devices"]) == 1

    def test_results_of_the_format_before_are_read(self, red: Path, green: Path) -> None:
        text = red.read_text()
        assert f'"format": {FORMAT}, ' in text
        red.write_text(text.replace(f'"format": {FORMAT}, ', ""))
        assert compare(red, green).exit_code == 0

    def test_equal_names_are_told_apart(self, red: Path, tmp_path: Path) -> None:
        again = written(tmp_path / "again.jsonl", replace(environment(), date="2026-11-22T00:00:00+00:00"))
        third = written(tmp_path / "third.jsonl", replace(environment(), date="2026-11-22T01:00:00+00:00"))
        record = tmp_path / "out.json"
        assert compare(red, again, third, "--json", record).exit_code == 0
        assert [device["label"] for device in json.loads(record.read_text())["devices"]] == [
            "Red 9 26.1.0, 2026-11-20",
            "Red 9 26.1.0, 2026-11-22, again",
            "Red 9 26.1.0, 2026-11-22, third",
        ]


def refused(finished: Result, *texts: str) -> None:
    assert finished.exit_code in (1, 2), finished.output
    (line,) = finished.output.splitlines()
    assert line.startswith("Error: ")
    for text in texts:
        assert is_named(text, line)


def _later_format(path: Path) -> None:
    path.write_text(path.read_text().replace(f'"format": {FORMAT}', '"format": 99'))


def _without_environment(path: Path) -> None:
    path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))


def _without_results(path: Path) -> None:
    path.write_text(path.read_text().splitlines(keepends=True)[0])


def _cut_environment(path: Path) -> None:
    path.write_text(path.read_text()[:300])


WRONG: dict[str, tuple[Callable[[Path], object], str]] = {
    "later format": (_later_format, "results of format 99, written by dmlvk 0.1.0; this dmlvk"),
    "no environment": (_without_environment, "does not say on which device it was made"),
    "no result": (_without_results, "holds no result"),
    "cut in the first line": (_cut_environment, "does not say on which device it was made"),
    "empty": (lambda path: path.write_text(""), "is empty"),
    "blank": (lambda path: path.write_text("\n \n"), "is empty"),
    "absent": (lambda path: path.unlink(), "No such file"),
    "other JSON": (lambda path: path.write_text('{"a": 1}'), "line 1: not a line of conformance results"),
    "text": (lambda path: path.write_text("Dear Sir,\n"), "line 1: not a line of conformance results"),
    "bench of another format": (lambda path: path.write_text('{"format": 9, "cases": []}'), "is not a record of"),
    "bench without figures": (
        lambda path: path.write_text('{\n "format": 1, "cases": [{"name": "a", "seconds": {}}], "device": {}}'),
        "is not a whole record of `dmlvk bench --json`: KeyError",
    ),
}


class TestWrongFiles:
    """One clear line each."""

    @pytest.mark.parametrize("kind", WRONG)
    def test_a_file_that_cannot_be_compared(self, kind: str, red: Path, green: Path) -> None:
        damage, message = WRONG[kind]
        damage(green)
        refused(compare(red, green), str(green), message)

    @pytest.mark.parametrize("damage", damages(), ids=str)
    def test_a_damaged_file(self, damage: Damage, red: Path, tmp_path: Path) -> None:
        path = tmp_path / "damaged.jsonl"
        damage.make(path)
        refused(compare(red, path), "damaged.jsonl")
        assert damage.is_untouched()

    def test_the_same_file_twice(self, red: Path, tmp_path: Path) -> None:
        refused(compare(red, red), "red.jsonl is given twice")
        (tmp_path / "folder").mkdir()
        refused(compare(red, tmp_path / "folder" / ".." / "red.jsonl"), "is given twice")
        copy = tmp_path / "copy.jsonl"
        copy.write_bytes(red.read_bytes())
        refused(compare(red, copy), "copy.jsonl is a copy of")
        figures = bench_record(tmp_path / "bench.json", {"a": 1.0}, date="2026-11-20")
        refused(compare(red, figures, figures), "bench.json is given twice")

    @pytest.mark.parametrize("option", ["--html", "--json", "--markdown"])
    def test_a_report_does_not_replace_what_it_reports_on(self, option: str, red: Path, green: Path) -> None:
        before = red.read_bytes()
        refused(compare(red, green, option, red), "is one of the files to compare")
        assert red.read_bytes() == before
        refused(compare(red, green, option, red.parent / "absent" / "file"), "absent")

    def test_no_file(self) -> None:
        refused(compare(), "Missing argument 'RESULTS...'")


def test_plain_data_holds_everything(red: Path, green: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    other = written(tmp_path / "other.jsonl", environment("Blue <1>"), [result(THIRD, "ff" * 8, Status.FAIL)])
    assert compare(red, green, other, "--json", path).exit_code == 1
    record = json.loads(path.read_text())
    assert record["agree"] is False
    assert [device["vendor"] for device in record["devices"]] == ["AMD", "NVIDIA", "Intel"]
    (found,) = record["disagreements"]
    assert [len(side["holders"]) for side in found["sides"]] == [2, 1]
    cells = record["cases"]["device"][THIRD]
    assert {label: cell["status"] for label, cell in cells.items()} == {
        "Red 9 26.1.0": "Pass",
        "Green 5 580.1": "Pass",
        "Blue <1> 26.1.0": "Fail",
    }


def test_markdown_has_tables_of_devices_and_paths(red: Path, green: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.md"
    failed = result(THIRD, "ff" * 8, Status.FAIL, message="1 of 2 | *elements*")
    other = written(tmp_path / "other.jsonl", environment("Blue <1>"), [result(FIRST, "a1" * 8), failed])
    assert compare(red, green, other, "--markdown", path).exit_code == 1
    text = path.read_text()
    assert "| Blue \\<1\\> 26.1.0 | 1 |  |" in text, "one case of SLICE1 on blocks, none on tiles"
    assert "| Red 9 26.1.0 | 1 | 1 |" in text
    assert "| Blue \\<1\\> 26.1.0 | 1 of 1 |" in text
    assert "1 of 2 \\| \\*elements\\*" in text
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(widths) == 1, table
