"""Calls dmlvk with random numbers of all kinds, 100,000 times on each test driver, with 3,000 odd models of ONNX, and
with 3,000 random networks of quantized operators.

    python -m tests.fuzz [--device NAME ...] [--count 100000] [--seed 0] [--case NUMBER]
                         [--models 3000] [--model NUMBER] [--networks 3000]

The same seed gives the same cases. A case may raise dmlvk's errors, with messages of bounded length and in bounded
time. An operator that is accepted is also run, if it is small, and compared with dmlvk.reference bit for bit, between
guard bytes. A failed case is printed as code; --case runs it again. The exit status is 1 if a case failed.

An odd model runs on the first device with the bits of ONNX Runtime, or both refuse it. --model runs one and prints it.
So does a random network (`tests.onnx.random_networks`), all of whose nodes the device has to run; half of the networks
quantize around floats.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from tests.fuzz.generate import Generator
from tools import drivers
from tools.debian import ROOT

DRIVERS = ("llvmpipe", "SwiftShader")
# Keeps the cases away from the user's cache and tuned paths.
CACHE = "DMLVK_CACHE_DIR"
# Cases of one process. The memory that drivers and caches keep is freed when the process ends.
CHUNK = 5000
MODELS_A_PROCESS = 500
# One call of the oracle's process, which has two minutes, runs half of them.
NETWORKS_A_PROCESS = 40
# A case may take seconds. A case that takes minutes hangs.
PATIENCE_SECONDS = 240.0


def main() -> int:
    """Run the cases that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", action="append", help="part of a device's name; repeatable; default: both drivers")
    parser.add_argument("--count", type=int, default=100_000, help="cases on each device")
    parser.add_argument("--seed", type=int, default=0, help="the same seed, the same cases")
    parser.add_argument("--case", type=int, help="run this one case only, and print it")
    parser.add_argument("--models", type=int, default=3000, help="odd models of ONNX on the first device")
    parser.add_argument("--model", type=int, help="run this one odd model only, and print it")
    parser.add_argument("--networks", type=int, default=3000, help="random quantized networks on the first device")
    parser.add_argument("--worker", nargs=2, metavar=("FIRST", "JOURNAL"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    devices = arguments.device or DRIVERS
    if arguments.worker:
        return work(devices[0], arguments.seed, int(arguments.worker[0]), arguments.count, Path(arguments.worker[1]))
    if arguments.model is not None:
        return show_model(devices[0], arguments.seed, arguments.model)
    if arguments.case is not None:
        return max(show(device, arguments.seed, arguments.case) for device in devices)
    failures = 0
    with Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    ) as progress:
        for device in devices:
            task = progress.add_task(f"{device}, seed {arguments.seed}", total=arguments.count)
            first = 0
            while first < arguments.count:
                count = min(CHUNK, arguments.count - first)
                failed, first = run_chunk(progress, task, device, arguments.seed, first, count)
                failures += failed
        failures += run_models(progress, devices[0], arguments.seed, arguments.models)
        failures += run_networks(progress, devices[0], arguments.seed, arguments.networks)
    print(f"{failures} failed")
    return 1 if failures else 0


def run_chunk(progress: Progress, task: TaskID, device: str, seed: int, first: int, count: int) -> tuple[int, int]:
    """Run cases in a process of their own. Returns the number of failed cases and the number of the next case."""
    with tempfile.TemporaryDirectory() as folder:
        journal, output = Path(folder) / "journal", Path(folder) / "output"
        journal.write_text(str(first))
        command = [sys.executable, "-m", "tests.fuzz", "--device", device, "--seed", str(seed), "--count", str(count)]
        with output.open("w") as file:
            command += ["--worker", str(first), str(journal)]
            process = subprocess.Popen(command, cwd=ROOT, stdout=file, env={**os.environ, CACHE: folder})
            seen, since = "", time.monotonic()
            while process.poll() is None:
                time.sleep(0.2)
                reached = journal.read_text().strip()
                if reached != seen:
                    seen, since = reached, time.monotonic()
                    progress.update(task, completed=int(reached or first))
                elif time.monotonic() - since > PATIENCE_SECONDS:
                    process.kill()
        text = output.read_text()
        number = int(journal.read_text())
    failed = sum(line.startswith("FAILED") for line in text.splitlines())
    following = first + count
    if process.returncode != int(failed > 0):
        # The process ended in the case that it had begun.
        text += f"FAILED case {number} of seed {seed}: the process ended with status {process.returncode}\n"
        text += f"    {Generator(seed, number).case()}"
        failed, following = failed + 1, number + 1
    progress.update(task, completed=following)
    progress.console.print(text.strip(), markup=False, highlight=False, soft_wrap=True)
    return failed, following


def work(device: str, seed: int, first: int, count: int, journal: Path) -> int:
    """Run cases in this process. The journal gets the number of each case before it begins."""
    from tests.fuzz.run import Fuzzer

    fuzzer = Fuzzer(device)
    failed = False
    with journal.open("r+b", buffering=0) as notes:
        for number in range(first, first + count):
            os.lseek(notes.fileno(), 0, os.SEEK_SET)
            notes.write(f"{number:<20}".encode())
            wrong = fuzzer.run(seed, number)
            if wrong is not None:
                failed = True
                print(f"FAILED {wrong}", flush=True)
    fuzzer.close()
    print(f"{device}: {fuzzer.accepted} accepted, {fuzzer.refused} refused, {fuzzer.compared} run and compared")
    return int(failed)


def run_models(progress: Progress, device: str, seed: int, count: int) -> int:
    """Compare odd models with ONNX Runtime. Returns the number of failed ones."""
    from tests.fuzz.odd_models import odd_model
    from tests.fuzz.odd_outcomes import compared
    from tests.reference.onnx_runtime import ONNX_RUNTIME

    task = progress.add_task(f"odd models, {device}, seed {seed}", total=count)
    happened = Counter[str]()
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ[CACHE] = folder
        for number in range(count):
            if number % MODELS_A_PROCESS == 0:
                ONNX_RUNTIME.close()
            odd = odd_model(seed, number)
            found = compared(device, odd)
            happened[found.happened] += 1
            if found.fault is not None:
                failed += 1
                text = f"FAILED model {number} of seed {seed} ({'; '.join(odd.words)}):\n    {found.fault}"
                progress.console.print(text, markup=False, highlight=False, soft_wrap=True)
            progress.update(task, completed=number + 1)
        ONNX_RUNTIME.close()
    progress.console.print(f"{device}: {dict(happened)} by ONNX Runtime, {failed} otherwise by dmlvk")
    return failed


def run_networks(progress: Progress, device: str, seed: int, count: int) -> int:
    """Compare random quantized networks with ONNX Runtime. Returns the number of faults."""
    from tests.onnx.random_networks import differences
    from tests.reference.onnx_runtime import ONNX_RUNTIME

    task = progress.add_task(f"networks, {device}, seed {seed}", total=count)
    failed = ran = 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ[CACHE] = folder
        for first in range(0, count, NETWORKS_A_PROCESS):
            ONNX_RUNTIME.close()
            for around_floats in (False, True):
                seeds = [
                    [seed, number] for number in range(first + around_floats, min(first + NETWORKS_A_PROCESS, count), 2)
                ]
                found, wrong, on_host = ONNX_RUNTIME.call("networks", differences, seeds, around_floats, device)
                ran += found
                failed += len(wrong) + len(on_host)
                for text in (*wrong, *on_host):
                    progress.console.print(f"FAILED network of {text}", markup=False, highlight=False, soft_wrap=True)
            progress.update(task, completed=min(first + NETWORKS_A_PROCESS, count))
        ONNX_RUNTIME.close()
    progress.console.print(f"{device}: {ran} networks run, {failed} faults")
    return failed


def show_model(device: str, seed: int, number: int) -> int:
    """Run one odd model, and print it and its outcome."""
    import onnx

    from tests.fuzz.odd_models import odd_model
    from tests.fuzz.odd_outcomes import compared
    from tests.reference.onnx_runtime import ONNX_RUNTIME

    odd = odd_model(seed, number)
    print(onnx.printer.to_text(onnx.load_from_string(odd.model)))
    print("; ".join(odd.words))
    found = compared(device, odd)
    ONNX_RUNTIME.close()
    print(f"{device}: {found.fault or 'nothing is wrong'}; by ONNX Runtime: {found.happened}")
    return int(found.fault is not None)


def show(device: str, seed: int, number: int) -> int:
    """Run one case, and print it and its outcome."""
    from tests.fuzz.run import Fuzzer

    print(Generator(seed, number).case())
    with tempfile.TemporaryDirectory() as folder:
        os.environ[CACHE] = folder
        fuzzer = Fuzzer(device)
        wrong = fuzzer.run(seed, number)
        fuzzer.close()
    print(f"{device}: {'nothing is wrong' if wrong is None else wrong}")
    return int(wrong is not None)


if __name__ == "__main__":
    # Before dmlvk opens the Vulkan loader. As in the tests, DMLVK_TEST_DEVICES selects devices of this machine instead.
    if "DMLVK_TEST_DEVICES" not in os.environ:
        os.environ.update(drivers.environment())
    sys.exit(main())
