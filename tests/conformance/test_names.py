"""Choosing cases by their names."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from dmlvk.command_line.conformance import conformance
from dmlvk.conformance import waivers
from dmlvk.conformance.case import Case
from dmlvk.conformance.cases import all_cases
from dmlvk.conformance.costs import UNKNOWN, CaseCosts, cost_of, recorded_costs
from dmlvk.conformance.digests import recorded_digests
from dmlvk.conformance.names import CaseFinder, SelectionError, case_source, matches, parse_shard, select
from dmlvk.conformance.results import Result, Status
from tests.conformance.drill_cases import good_cases, workload


def case(name: str) -> Case:
    return Case(name, lambda: workload(name))


CASES = list(good_cases())


@pytest.mark.parametrize(
    "pattern",
    [
        "slice1",
        "slice1:*",
        "slice1:window:rank=3;type=u8;path=tiles",
        "slice1:window:type=u8;*",
        "slice1:*:path=tiles;type=u?;*",
        "*:rank=3;*",
        "*tiles",
    ],
)
def test_a_pattern_names_a_case(pattern: str) -> None:
    assert matches(pattern, case("slice1:window:rank=3;type=u8;path=tiles"))


@pytest.mark.parametrize(
    "pattern",
    ["slice", "slice1:win", "one_hot:*", "slice1:*:type=s8;*", "slice1:*:types=u8;*", "slice1:*:type=u8;path=x;*", ""],
)
def test_a_pattern_does_not_name_another(pattern: str) -> None:
    assert not matches(pattern, case("slice1:window:rank=3;type=u8;path=tiles"))


def test_only_default_cases_unless_asked_for() -> None:
    default = [each.name for each in CASES if each.is_default]
    assert [each.name for each in select(good_cases)] == default
    assert len(default) < len(CASES)
    assert len(select(good_cases, full=True)) == len(CASES)
    # A pattern that matches no default case selects the other cases.
    assert [each.name for each in select(good_cases, ["slice1:good:number=11;*"])] == [
        f"slice1:good:type={label};number=11" for label in ("u8", "f16", "s64")
    ]


def test_several_patterns_add_up_without_repetition() -> None:
    chosen = select(good_cases, ["slice1:good:type=u8;*", "slice1:*:type=u8;number=1", "slice1:good:type=s64;number=2"])
    assert len(chosen) == len({each.name for each in chosen}) == 7


def test_a_pattern_that_names_nothing_says_what_there_is() -> None:
    with pytest.raises(SelectionError, match=r"'slice2:good'; there are .*slice1:good"):
        select(good_cases, ["slice2:good"])


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("slice1:*:type=u9;*", "type is never 'u9' there; it is one of u8, f16, s64$"),
        ("slice1:*:typ=u8;*", "have no parameter 'typ'; they have type, number$"),
        ("slice1:good:type=u8;number=77", r"number is never '77' there; it is one of 0, 1, .*, \.\.\.$"),
    ],
)
def test_a_pattern_with_a_wrong_parameter_says_what_there_is(pattern: str, message: str) -> None:
    def many(default_only: bool) -> Iterator[Case]:
        yield from good_cases(default_only)
        yield from (case(f"slice1:good:type=u8;number={number}") for number in range(20, 30))

    with pytest.raises(SelectionError, match=message):
        select(many, [pattern])


def test_patterns_in_the_documentation_name_cases() -> None:
    root = Path(__file__).parents[2]
    pages = [(root / name).read_text(encoding="utf-8") for name in ("docs/conformance_suite.md", "docs/conformance.md")]
    texts = [*pages, waivers.__doc__ or ""]
    patterns = [p for text in texts for p in re.findall(r'(?:dmlvk conformance |cases = \[)"([^"]+)"', text)]
    patterns += re.findall('"(slice1[^"]*)"', f"{conformance.help} {matches.__doc__}")
    assert len(patterns) >= 6
    for pattern in patterns:
        assert select(all_cases, [pattern]), pattern


def test_a_sample_depends_on_the_seed_alone() -> None:
    def names(count: int, seed: int) -> list[str]:
        return [each.name for each in select(good_cases, sample=count, seed=seed, full=True)]

    first = names(9, 7)
    assert first == names(9, 7)
    assert first != names(9, 8)
    assert len(set(first)) == 9
    # The same draw on every machine and in every version.
    assert names(2, 7) == ["slice1:good:type=u8;number=6", "slice1:good:type=s64;number=9"]
    assert len(names(1000, 7)) == len(CASES)


@pytest.mark.parametrize("count", [1, 2, 5, 8, 40])
def test_shards_are_a_partition(count: int) -> None:
    shards = [select(good_cases, full=True, shard=(number, count)) for number in range(1, count + 1)]
    names = [each.name for shard in shards for each in shard]
    assert sorted(names) == sorted(each.name for each in CASES)
    assert max(map(len, shards)) - min(map(len, shards)) <= 1


@pytest.mark.parametrize("count", [1, 2, 7, 40])
def test_fractions_are_a_partition_into_equal_times(count: int) -> None:
    default = list(all_cases(True))
    parts = [select(lambda default_only: iter(default), fraction=(number, count)) for number in range(1, count + 1)]
    names = [each.name for part in parts for each in part]
    order = {each.name: place for place, each in enumerate(default)}
    assert sorted(names) == sorted(order)
    for part in parts:
        assert [order[each.name] for each in part] == sorted(order[each.name] for each in part)
    loads = [sum(map(cost_of, part)) for part in parts]
    dearest = max(map(cost_of, default))
    assert max(loads) - min(loads) <= dearest
    assert max(loads) <= max(dearest, 1.1 * sum(loads) / count)


def test_fractions_depend_on_recorded_costs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    dear = {"slice1:good:type=s64;number=0": 35, "slice1:good:type=u8;number=1": 20}
    known = CaseCosts({"slice1:good": {"": 10}}, dear)
    monkeypatch.setattr("dmlvk.conformance.costs.recorded_costs", lambda: known)
    patterns = [f"slice1:good:number={number};*" for number in range(3)]
    parts = [select(good_cases, patterns, fraction=(number, 3)) for number in (1, 2, 3)]
    assert [[each.name.removeprefix("slice1:good:type=") for each in part] for part in parts] == [
        ["s64;number=0", "s64;number=2"],
        ["u8;number=1", "f16;number=1", "u8;number=2"],
        ["u8;number=0", "f16;number=0", "s64;number=1", "f16;number=2"],
    ]


def test_every_group_has_a_cost() -> None:
    # Drivers on CPUs lack the paths on matrix units, or emulate them a thousand times slower than a GPU runs them.
    without = {
        f"quantized_linear_convolution:{kind}" for kind in ("halo", "parts_of_k", "split_k", "bytes", "sums_of_parts")
    }
    groups = {each.group for each in all_cases(True) if each.refusal is None} - without
    assert groups <= recorded_costs().groups.keys(), "run the suite, and tools.case_costs on its results"
    unknown = case("nobody:knows:it=1")
    assert cost_of(unknown) == UNKNOWN
    refused = next(each for each in all_cases(True) if each.refusal is not None)
    assert cost_of(refused) == 1


def test_a_sample_is_sharded_as_well() -> None:
    halves = [select(good_cases, full=True, sample=11, seed=3, shard=(number, 2)) for number in (1, 2)]
    assert sorted(each.name for half in halves for each in half) == sorted(
        each.name for each in select(good_cases, full=True, sample=11, seed=3)
    )


@pytest.mark.parametrize("text", ["0/3", "4/3", "2", "2/", "a/b", "-1/3", ""])
def test_a_shard_is_one_of_n(text: str) -> None:
    assert parse_shard("2/8") == (2, 8)
    with pytest.raises(SelectionError, match="I/N"):
        parse_shard(text)
    with pytest.raises(SelectionError, match="a fraction must be I/N"):
        parse_shard(text, "a fraction")


@pytest.mark.parametrize("name", ["nonsense", "no.such.module:cases", "dmlvk.conformance.names:absent", ""])
def test_a_source_that_is_not_there(name: str) -> None:
    with pytest.raises(SelectionError, match="MODULE:FUNCTION"):
        case_source(name)


def test_former_names_still_name_their_cases(tmp_path: Path) -> None:
    former, current = "qlinearconv:tie", "quantized_linear_convolution:tie"
    chosen = select(all_cases, [former])
    assert chosen and all(case.name.startswith(f"{current}:") for case in chosen)
    name = chosen[0].name
    assert CaseFinder(all_cases).find(name.replace(current, former)).name == name
    waiver = waivers.Waiver("any", "", (f"{former}:*",), "known", datetime.date.max)
    assert waiver.names(Result(name, "device", Status.FAIL))
    written = Result(name.replace(current, former), "device", Status.PASS).to_json()
    assert Result.from_json(written).name == name
    digests = tmp_path / "digests.json"
    digests.write_text(json.dumps({name.replace(current, former): "00"}))
    assert recorded_digests(digests) == {name: "00"}


def test_an_operator_may_be_in_upper_case() -> None:
    assert matches("SLICE1:window:*", case("slice1:window:type=u8"))
    assert matches("Slice1", case("slice1:window:type=u8"))
    assert not matches("SLICE1:WINDOW:*", case("slice1:window:type=u8"))
    chosen = [each.name for each in select(good_cases, ["SLICE1:good:number=11;*"])]
    assert len(chosen) == 3 and chosen == [each.name for each in select(good_cases, ["slice1:good:number=11;*"])]
