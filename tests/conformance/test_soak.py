"""The soak: one recorded run of a case is replayed, and a run with other bits is found."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from dmlvk.command_line import main
from dmlvk.conformance.names import OUR_CASES, CaseFinder, case_source
from dmlvk.conformance.outputs import keep_both
from dmlvk.conformance.results import Result, Status
from dmlvk.conformance.running.execution import Devices, execute
from dmlvk.conformance.running.ways import PlacedTensor


@pytest.fixture
def name() -> str:
    return next(
        case.name for case in case_source(OUR_CASES)(True) if case.name.startswith("one_hot:") and not case.path
    )


def test_a_replay_with_other_bits_is_found(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CaseFinder(case_source(OUR_CASES)).find(name)
    devices = Devices("llvmpipe")
    try:
        assert execute(case, devices, "device", 1, soak=0.05).status is Status.PASS
        real, reads = PlacedTensor.read, [0]

        def wrong(self: PlacedTensor) -> np.ndarray:
            content = real(self).copy()
            reads[0] += 1
            if reads[0] >= 5:
                content[self.placement.start] ^= 1
            return content

        monkeypatch.setattr(PlacedTensor, "read", wrong)
        found = execute(case, devices, "device", 1, soak=5.0, outputs=tmp_path)
    finally:
        devices.close()
    assert found.status is Status.FLAKY and found.reason == "soak"
    assert "of one recorded run gave an output_tensor of other bits than the first run: 1 of" in found.message
    (kept,) = tmp_path.iterdir()
    assert str(kept) in found.message
    with np.load(kept) as both:
        first, other = both["first"], both["found"]
    assert first.shape == other.shape and (first != other).sum() == 1


def test_without_a_folder_both_arrays_are_in_a_temporary_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    arrays = np.arange(3), np.arange(3) + 1
    path = keep_both(None, Result("slice1:a", "device", Status.FLAKY), *arrays)
    assert path.parent.parent == tmp_path
    with np.load(path) as both:
        for name, array in zip(("first", "found"), arrays, strict=True):
            np.testing.assert_array_equal(both[name], array, strict=True)


def test_the_option(name: str) -> None:
    done = CliRunner().invoke(main, ["conformance", name, "--device", "llvmpipe", "--soak", "0.2", "--jobs", "1"])
    assert done.exit_code == 0, done.output
    done = CliRunner().invoke(main, ["conformance", name, "--soak", "0"])
    assert done.exit_code == 2 and "--soak" in done.output
