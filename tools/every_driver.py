"""Runs the conformance suite on every driver that can be found or fetched, and prints one table: driver by status.

The page build/conformance/devices.html has the same with every case.

The program finds all devices of this machine, including real GPUs. It fetches SwiftShader and the lavapipe of three
releases of Mesa if they are not found. It names each driver that cannot be fetched. The exit status is then not 0; nor
is it 0 if the output of a case is not the same to the bit on all drivers that run it, and in the manifest. The manifest
has the cases that run by default: with --full there are too many to list. The others are compared between the drivers.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

# If this file runs as a plain script, the checkout is not on the path yet.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from dmlvk.command_line.terminal import INTERRUPTED
from dmlvk.conformance.cases import all_cases
from dmlvk.conformance.comparison.findings import compare
from dmlvk.conformance.comparison.page import page
from dmlvk.conformance.digests import recorded_digests
from dmlvk.conformance.results import Run, Status
from dmlvk.conformance.results_file import read_results
from tools import drivers, mesa
from tools.debian import ROOT, SetupError

REPORTS = ROOT / "build" / "conformance"
PAGE = "devices.html"
SUMMARY_SECONDS = 30.0  # for a command that was interrupted
EXAMPLES = 5  # cases that are named if there are more

# Runs in another process, because the Vulkan loader reads its variables once.
QUERY = """
import json, dmlvk
print(json.dumps({
    "devices": [
        # Of a CPU driver the device is the driver, with the width of its vectors.
        info.driver if info.type == dmlvk.DeviceType.CPU else f"{info.name}, {info.driver}"
        for info in dmlvk.devices()
    ],
    "rejected": [f"{device.name}: {device.reason}" for device in dmlvk.rejected_devices()],
}))
"""


@dataclass(frozen=True)
class Driver:
    """One driver to run the suite on.

    Attributes:
        name (str): The names of the device and the driver; for a CPU driver its own name.
        selector (str): The argument of `dmlvk conformance --device`.
        python (str): The Python program to run.
        variables (mapping of str to str): Environment variables that lead the Vulkan loader to the driver.
    """

    name: str
    selector: str
    python: str = sys.executable
    variables: Mapping[str, str] = field(default_factory=dict)


def devices(python: str, variables: Mapping[str, str]) -> list[Driver]:
    """The devices that dmlvk finds. Devices that it leaves out are named in a message."""
    finished = subprocess.run(
        [python, "-c", QUERY], env={**os.environ, **variables}, cwd=ROOT, capture_output=True, text=True
    )
    if finished.returncode != 0:
        print(finished.stderr, file=sys.stderr)
        raise SetupError("the Vulkan devices cannot be listed; the message is above")
    answer = json.loads(finished.stdout)
    for rejected in answer["rejected"]:
        print(f"Left out: {rejected}")
    return [Driver(name, str(index), python, variables) for index, name in enumerate(answer["devices"])]


def only(description: Path) -> dict[str, str]:
    """The variables that show the Vulkan loader one driver and no other."""
    return {"VK_DRIVER_FILES": str(description), "VK_ICD_FILENAMES": str(description)}


def run_on(release: mesa.Release, *arguments: str, **variables: str) -> int:
    """Run a module of Python on a release of Mesa that is fetched if need be, and return its exit status.

    Raises:
        SetupError: The release is not available on this machine.
    """
    mesa.get(release)
    environment = {**os.environ, **only(release.description), "DMLVK_TEST_DEVICES": "llvmpipe", **variables}
    return subprocess.run([str(release.python), "-m", *arguments], cwd=ROOT, env=environment).returncode


def find_and_fetch() -> tuple[list[Driver], list[str]]:
    """All drivers, and one line for each driver that is not available."""
    found = devices(sys.executable, {})
    missing = []
    if not any("SwiftShader" in driver.name for driver in found):
        try:
            drivers.get_swiftshader()
            description = drivers.find_swiftshader()
            assert description is not None
            found += devices(sys.executable, only(description))
        except SetupError as error:
            missing.append(f"SwiftShader: {error}")
    for release in mesa.RELEASES:
        if any(f"{release.name}." in driver.name for driver in found):
            continue
        try:
            mesa.get(release)
            found += devices(str(release.python), only(release.description))
        except SetupError as error:
            missing.append(f"lavapipe of {release.name}: {error}")
    return found, missing


@dataclass(frozen=True)
class Outcome:
    """The result of the suite on one driver."""

    driver: str
    run: Run
    seconds: float
    exit_status: int
    results: Path | None = None


def run(number: int, driver: Driver, arguments: list[str]) -> Outcome:
    """Run the suite, with the command's own progress and summary on the terminal."""
    print(f"\n{driver.name}", flush=True)
    REPORTS.mkdir(parents=True, exist_ok=True)
    results = REPORTS / f"{number}-{re.sub('[^A-Za-z0-9.]+', '-', driver.name).strip('-')}.jsonl"
    results.unlink(missing_ok=True)
    reports = ["--json", str(results), "--html", str(results.with_suffix(".html"))]
    command = [driver.python, "-m", "dmlvk", "conformance", "--device", driver.selector, *reports, *arguments]
    start = time.monotonic()
    with subprocess.Popen(command, cwd=ROOT, env={**os.environ, **driver.variables}) as process:
        try:
            status = process.wait()
        except KeyboardInterrupt:  # a terminal sends it to the command as well, which ends with a summary
            try:
                process.wait(SUMMARY_SECONDS)
            except subprocess.TimeoutExpired:
                process.terminate()
            status = INTERRUPTED
    found = read_results(results) if results.exists() else Run()
    return Outcome(driver.name, found, time.monotonic() - start, status, results if found.results else None)


def digests_of(outcomes: list[Outcome]) -> dict[str, list[set[str]]]:
    """By case, the digests of each driver on which it passed. Outputs whose values are open have no digest."""
    found: dict[str, list[set[str]]] = defaultdict(list)
    for outcome in outcomes:
        of_driver: dict[str, set[str]] = defaultdict(set)  # a case may run on several profiles of one device
        for result in outcome.run.results.values():
            if result.status is Status.PASS and result.digest:
                of_driver[result.name].add(result.digest)
        for name, digests in of_driver.items():
            found[name].append(digests)
    return found


def differences(outcomes: list[Outcome], recorded: Mapping[str, str], listed: Collection[str]) -> list[str]:
    """The differences between drivers, one line for each kind; empty if there are none.

    Args:
        outcomes (list of Outcome):
        recorded (mapping of str to str): The manifest: digests by case.
        listed (collection of str): The cases that the manifest has to have: those that run by default.
    """
    ran: dict[tuple[str, str], int] = defaultdict(int)
    for outcome in outcomes:
        for key in outcome.run.results:
            ran[key] += 1
    digests = {name: set().union(*found) for name, found in digests_of(outcomes).items()}
    kinds = {
        "not run on every driver": [name for (_, name), count in ran.items() if count < len(outcomes)],
        "of another digest on another driver": [name for name, found in digests.items() if len(found) > 1],
        "of another digest than the manifest's": [
            name for name, found in digests.items() if name in recorded and found - {recorded[name]}
        ],
        "run by default, but not in the manifest": [
            name for name in digests if name in listed and name not in recorded
        ],
    }
    lines = []
    for kind, names in kinds.items():
        if names:
            named = ", ".join(names[:EXAMPLES]) + (", ..." if len(names) > EXAMPLES else "")
            lines.append(f"{len(names)} cases are {kind}: {named}")
    failed = [outcome.driver for outcome in outcomes if outcome.exit_status != 0]
    if failed:
        lines.append(f"not all is well on {'; '.join(failed)}")
    if not digests:
        lines.append("no case passed anywhere")
    return lines


def agreements(outcomes: list[Outcome], recorded: Mapping[str, str]) -> list[str]:
    """What was compared with what, one line for each kind, if there are no differences."""
    digests = digests_of(outcomes)
    others = [found for name, found in digests.items() if name not in recorded]
    several = sum(len(found) > 1 for found in others)
    kinds = {
        "in the manifest: every driver that runs one gives the manifest's bits": len(digests) - len(others),
        "not in the manifest: all drivers that run one, two or more, give the same bits": several,
        "not in the manifest, and only one driver runs them: it gives the reference's bits": len(others) - several,
    }
    return [f"{count:,} cases are {kind}." for kind, count in kinds.items() if count]


def table(outcomes: list[Outcome]) -> Table:
    """A table of drivers by status."""
    shown = Table(title="Conformance", title_justify="left")
    shown.add_column("driver")
    for heading in (*(status.value for status in Status), "minutes"):
        shown.add_column(heading, justify="right")
    for outcome in outcomes:
        counts = outcome.run.counts()
        shown.add_row(outcome.driver, *(str(counts[status] or "") for status in Status), f"{outcome.seconds / 60:.1f}")
    return shown


def write_page(outcomes: list[Outcome]) -> None:
    """Write the page on which the results of all drivers can be sorted and filtered."""
    paths = [outcome.results for outcome in outcomes if outcome.results is not None]
    if paths:
        (REPORTS / PAGE).write_text(page(compare(paths, [], recorded_digests())), encoding="utf-8")


def check_arguments(arguments: list[str]) -> None:
    """Check that the arguments choose any case, before drivers are fetched, so that the error is shown once."""
    command = [sys.executable, "-m", "dmlvk", "conformance", "--list", *arguments]
    finished = subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if finished.returncode != 0:
        raise SetupError(finished.stderr.strip().removeprefix("Error: "))


def main() -> None:
    check_arguments(sys.argv[1:])
    drivers, missing = find_and_fetch()
    print("Drivers:", *(driver.name for driver in drivers), sep="\n  ")
    for line in missing:
        print(f"Missing: {line}")
    outcomes = []
    for number, driver in enumerate(drivers, 1):
        outcomes.append(run(number, driver, sys.argv[1:]))
        if outcomes[-1].exit_status == INTERRUPTED:
            break
    write_page(outcomes)
    print()
    (Console() if sys.stdout.isatty() else Console(width=200)).print(table(outcomes))
    if outcomes and outcomes[-1].exit_status == INTERRUPTED:
        print(
            f"Interrupted; {len(drivers) - len(outcomes)} drivers were not begun. Reports: {REPORTS.relative_to(ROOT)}"
        )
        sys.exit(INTERRUPTED)
    recorded, listed = recorded_digests(), {case.name for case in all_cases(default_only=True)}
    problems = [*(f"missing: {line}" for line in missing), *differences(outcomes, recorded, listed)]
    for line in problems:
        print(line)
    print(f"Reports: {REPORTS.relative_to(ROOT)}")
    if problems:
        sys.stdout.flush()  # in a file, the error would come before what it points to
        raise SetupError("not every case was found to give the same bits on every driver; see above")
    for line in agreements(outcomes, recorded):
        print(line)


if __name__ == "__main__":
    try:
        main()
    except SetupError as error:
        sys.exit(f"dmlvk: {error}")
