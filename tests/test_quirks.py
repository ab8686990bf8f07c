"""Drivers' bugs as data: the quirks of each device. No other code asks for a device's driver or vendor."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from dmlvk import quirks
from dmlvk.conformance.recorded import NAMES, load
from dmlvk.device_profile import DriverId, VendorId
from dmlvk.quirks import ALL, Quirk, Versions
from dmlvk.runtime.device_info import VENDORS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "dmlvk"

# The only files that may compare a driver or a vendor, and the purpose.
MAY_ASK = {
    "quirks.py",
    "device_profile.py",
    "vulkan/narrower_profile.py",  # refuses lavapipe's own kernels elsewhere
    "planning/device_traits.py",  # speed and shared memory of classes of devices
    "runtime/device_info.py",  # names of vendors
}
# The only other files that may read a driver's or a vendor's number. They store it, and do not compare it with one.
MAY_READ = {
    "benchmark/records.py",  # records it with the figures
    "runtime/device_files.py",  # names a file by it
    "vulkan/pipeline_cache.py",  # identifies a file by it
}
IDENTITIES = ("driver_id", "vendor_id")
# Fields whose text names the driver of a device.
NAMES_OF_DEVICES = ("driver_name", "driver_info")
# Words in names of devices and drivers.
MAKERS = re.compile(
    r"nvidia|geforce|\bamd|radeon|radv|\bati\b|\bintel|iris|\barc\b|llvmpipe|lavapipe|swiftshader|mesa|qualcomm|adreno"
    r"|\bmali\b|apple|samsung|xclipse",
    re.IGNORECASE,
)
LOOK_UPS = ("get", "startswith", "endswith", "find", "index", "count", "match", "search", "fullmatch")


@pytest.mark.parametrize("quirk", ALL, ids=lambda quirk: quirk.name)
def test_a_quirk_names_a_test_that_exists(quirk: Quirk) -> None:
    file, *names = quirk.test.split("::")
    scope: ast.AST = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    for name in names:
        (scope,) = (
            node
            for node in ast.iter_child_nodes(scope)
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name == name
        )
    assert isinstance(scope, ast.FunctionDef)
    assert scope.name.startswith("test_")


@pytest.mark.parametrize("quirk", ALL, ids=lambda quirk: quirk.name)
def test_a_quirk_is_whole(quirk: Quirk) -> None:
    for text in (quirk.effect, quirk.remedy, quirk.seen_with, quirk.reported):
        assert text.strip() == text != ""
    assert quirk.effect[0].isupper()
    assert quirk.effect.endswith(".")
    assert quirk.remedy.endswith(".")
    assert quirk.drivers or not quirk.is_asked


def test_all_quirks_are_in_all_under_names_of_their_own() -> None:
    records = [value for value in vars(quirks).values() if isinstance(value, Quirk)]
    assert sorted(records, key=lambda quirk: quirk.name) == sorted(ALL, key=lambda quirk: quirk.name)
    assert len({quirk.name for quirk in ALL}) == len(ALL)


@pytest.mark.parametrize(
    ("versions", "release", "is_in"),
    [
        (Versions(), (1, 0, 0), True),
        (Versions(first=(22, 3)), (22, 2, 9), False),
        (Versions(first=(22, 3)), (22, 3, 0), True),
        (Versions(first=(22, 3)), (26, 0, 1), True),
        (Versions(before=(25,)), (24, 9, 9), True),
        (Versions(before=(25,)), (25, 0, 0), False),
        (Versions((22, 3), (25, 1)), (25, 0, 7), True),
        (Versions((22, 3), (25, 1)), (25, 1, 0), False),
        (Versions((580, 159, 4), (590,)), (580, 159, 4, 0), True),
        (Versions((580, 159, 4), (590,)), (580, 159, 3, 9), False),
        (Versions(first=(22, 3, 1)), (22, 3, 1), True),
        (Versions(before=(25, 1, 0)), (25, 1, 0), False),
    ],
)
def test_a_range_of_versions_has_its_first_and_not_its_last(
    versions: Versions, release: tuple[int, ...], is_in: bool
) -> None:
    assert (release in versions) is is_in


@pytest.mark.parametrize(
    ("name", "release"),
    [
        ("lavapipe-22.3", (22, 3, 6)),  # its driverVersion is 1
        ("lavapipe-25.0", (25, 0, 7)),
        ("amd-navi31", (26, 2, 6)),
        ("nvidia-h200", (580, 159, 4, 0)),
        ("nvk-ada", (26, 2, 6)),
        ("swiftshader", (5, 0, 0)),
    ],
)
def test_the_release_of_a_driver_is_as_its_maker_counts(name: str, release: tuple[int, ...]) -> None:
    assert load(name).driver_release == release


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        (
            "lavapipe-22.3",
            {
                quirks.LAVAPIPE_COMPILES_AT_THE_FIRST_CALL,
                quirks.LAVAPIPE_ENDS_LONG_LOOPS,
                quirks.LAVAPIPE_KEEPS_DESTROYED_PIPELINES,
                quirks.LAVAPIPE_LOSES_STORES_AFTER_LOOPS,
                quirks.MESA_WAITS_FOR_THREADS_AT_EXIT,
            },
        ),
        (
            "lavapipe-26.2",
            {
                quirks.LAVAPIPE_COMPILES_AT_THE_FIRST_CALL,
                quirks.LAVAPIPE_ENDS_LONG_LOOPS,
                quirks.LAVAPIPE_KEEPS_DESTROYED_PIPELINES,
                quirks.LAVAPIPE_LEAVES_SUBGROUPS_BEHIND,
                quirks.MESA_WAITS_FOR_THREADS_AT_EXIT,
            },
        ),
        (
            "nvidia-h200",
            {
                quirks.NVIDIA_SHARED_MEMORY_LOSES_THE_DEVICE,
                quirks.NVIDIA_SLEEPING_WAITS_SLOW_SUBMISSIONS,
                quirks.NVIDIA_CRASHES_ON_A_NULL_CACHE,
                quirks.NVIDIA_MATRIX_LOADS_WANT_WHOLE_VECTORS,
            },
        ),
        ("nvk-ada", {quirks.MESA_WAITS_FOR_THREADS_AT_EXIT}),
        ("intel-ptl", {quirks.INTEL_UNEQUAL_MATRIX_WORK_FAILS, quirks.MESA_WAITS_FOR_THREADS_AT_EXIT}),
        (
            "swiftshader",
            {
                quirks.SWIFTSHADER_SPECIALIZES_LAST,
                quirks.SWIFTSHADER_SHARES_THREADS_BETWEEN_DEVICES,
                quirks.SWIFTSHADER_OVERWRITES_LANES_OUT_OF_A_LOOP,
            },
        ),
    ],
)
def test_which_quirks_a_recorded_device_has(device: str, expected: set[Quirk]) -> None:
    assert set(quirks.of(load(device))) == expected


def test_a_quirk_is_of_its_drivers_and_versions_alone() -> None:
    quirk = replace(quirks.LAVAPIPE_ENDS_LONG_LOOPS, versions=Versions(first=(25,)))
    found = [name for name in NAMES if quirk.applies_to(load(name))]
    assert found == ["lavapipe-25.0", "lavapipe-26.2"]
    samsung = replace(load("amd-navi31"), driver_id=DriverId.SAMSUNG_PROPRIETARY, driver_info="")
    assert quirks.of(samsung) == (quirks.SAMSUNG_MATRIX_OPERANDS_FROM_BUFFERS,)


@pytest.mark.parametrize(
    ("release", "first_tile", "unequal_work"),
    [("26.0.8", True, False), ("26.1.4", True, True), ("26.2.0", False, True), ("26.2.3", False, True)],
)
def test_the_releases_of_intel_s_faults(release: str, first_tile: bool, unequal_work: bool) -> None:
    profile = replace(load("intel-bmg"), driver_info=f"Mesa {release}")
    assert quirks.INTEL_MATRIX_LOADS_GIVE_THE_FIRST_TILE.applies_to(profile) is first_tile
    assert quirks.INTEL_UNEQUAL_MATRIX_WORK_FAILS.applies_to(profile) is unequal_work


@cache
def sources() -> list[tuple[str, ast.Module]]:
    """The package's modules, parsed once for all tests."""
    return [
        (path.relative_to(PACKAGE).as_posix(), ast.parse(path.read_text(encoding="utf-8")))
        for path in sorted(PACKAGE.rglob("*.py"))
    ]


def mentions(node: ast.AST, names: tuple[str, ...]) -> bool:
    """Whether an expression reads an attribute or a variable of one of these names."""
    return any(
        (isinstance(part, ast.Attribute) and part.attr in names) or (isinstance(part, ast.Name) and part.id in names)
        for part in ast.walk(node)
    )


def questions(tree: ast.AST) -> Iterator[int]:
    """Lines that ask which driver or vendor a device has: enumerations, numbers, comparisons, look-ups, matches."""
    # Khronos's own vendor numbers begin at 0x10001, which is also a size in conformance cases.
    numbers = {*(number for number in VENDORS if number < 1 << 16), *VendorId}
    for node in ast.walk(tree):
        is_question = mentions(node, ("DriverId", "VendorId")) if isinstance(node, (ast.Attribute, ast.Name)) else False
        if isinstance(node, ast.Constant):
            is_question = type(node.value) is int and node.value in numbers
        elif isinstance(node, ast.Compare):
            is_question = mentions(node, IDENTITIES + NAMES_OF_DEVICES) or names_a_maker(node)
        elif isinstance(node, ast.Subscript):
            is_question = mentions(node.slice, IDENTITIES)
        elif isinstance(node, ast.Match):
            is_question = mentions(node.subject, IDENTITIES)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            is_question = node.func.attr in LOOK_UPS and (
                mentions(node, IDENTITIES + NAMES_OF_DEVICES) or names_a_maker(node)
            )
        if is_question:
            yield node.lineno  # type: ignore[attr-defined]  # all of these have one


def names_a_maker(node: ast.AST) -> bool:
    """Whether an expression has text with a maker's name."""
    return any(
        isinstance(part, ast.Constant) and isinstance(part.value, str) and MAKERS.search(part.value)
        for part in ast.walk(node)
    )


def readings(tree: ast.AST) -> Iterator[int]:
    """Lines that read a driver's or a vendor's number, whatever they do with it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in IDENTITIES and isinstance(node.ctx, ast.Load):
            yield node.lineno
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
            names = [each.value for each in node.args if isinstance(each, ast.Constant)]
            if set(names) & {*IDENTITIES, *NAMES_OF_DEVICES}:
                yield node.lineno


def test_nothing_else_reads_a_driver_s_or_a_vendor_s_number() -> None:
    found = {file: list(readings(tree)) for file, tree in sources() if file not in MAY_ASK}
    assert {file for file, lines in found.items() if lines} == MAY_READ, found


@pytest.mark.parametrize(
    "code",
    [
        "driver = profile.driver_id",
        "{profile.vendor_id} & FAST",
        "is_fast(device.profile.driver_id)",
        "getattr(profile, 'driver_id') == 4",
        "getattr(profile, 'driver_name')",
    ],
)
def test_the_scan_for_readings_finds(code: str) -> None:
    assert list(readings(ast.parse(code)))


def test_nothing_else_asks_which_driver_or_vendor_a_device_has() -> None:
    found = {f"dmlvk/{file}:{line}" for file, tree in sources() if file not in MAY_ASK for line in questions(tree)}
    assert not found, "make it a quirk (dmlvk/quirks.py) or a trait (dmlvk/planning/device_traits.py)"


@pytest.mark.parametrize(
    "code",
    [
        "profile.driver_id == 13",
        "if 4 != device.profile.driver_id: pass",
        "is_fast = profile.driver_id in (3, 4)",
        "DriverId.MESA_LLVMPIPE",
        "profile.vendor_id == VENDOR",
        "NVIDIA = 0x10DE",
        "speed = SPEEDS[profile.vendor_id]",
        "speed = SPEEDS.get(profile.driver_id, 1)",
        "match profile.vendor_id:\n    case 1: pass",
        "profile.driver_name == 'NVIDIA'",
        "'Mesa' in profile.driver_info",
        "profile.driver_name.startswith('Mesa')",
        "AMD = 0x1002",
        "'NVIDIA' in profile.name",
        "device.name.lower().startswith('llvmpipe')",
        "re.search('GeForce RTX', device.name)",
    ],
)
def test_the_scan_finds(code: str) -> None:
    assert list(questions(ast.parse(code)))


def test_code_asks_the_quirks_that_say_so() -> None:
    """Quirks that no code asks have `is_asked` = False: their remedies apply to all devices."""
    asked = {
        node.attr
        for file, tree in sources()
        if file != "quirks.py"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "quirks"
    }
    named = {value: name for name, value in vars(quirks).items() if isinstance(value, Quirk)}
    assert {quirk.name for quirk in ALL if named[quirk] in asked} == {quirk.name for quirk in ALL if quirk.is_asked}
