"""A sample of the fuzzing, calls in which it found faults, and faults that it has to find."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

import dmlvk
from dmlvk import reference
from tests.conftest import DEVICE_NAMES
from tests.fuzz.generate import Generator
from tests.fuzz.odd_models import odd_model
from tests.fuzz.odd_outcomes import Outcome, compared, fault_of
from tests.fuzz.run import Fuzzer
from tools.debian import ROOT

SAMPLE = 120
ODD_MODELS = 48

# Calls in which a fault was found once, by the fault.
FOUND = {
    "bindings that are nothing to go through, with Python's own message": "device.submit(1.0)",
    "another one": "device.submit(dmlvk.DataType.UINT8)",
    "a size that wrapped when it was padded": "tensor = small.buffer(np.uint32(4294967295)).tensor("
    "dmlvk.TensorDesc(np.uint8, [300]), 0)",
    "a duration, which NumPy says is an integer": "dmlvk.DiagonalMatrix1Desc(output_tensor=dmlvk.TensorDesc(np.uint64, "
    "(5, 1)), value=np.timedelta64(3, 's'), diagonal_fill_begin=0, diagonal_fill_end=1)",
    "an array in place of a tensor": "operator(**operands); operator(**{**operands, 'input_tensor': np.zeros(9)})",
}


@pytest.fixture(scope="module")
def fuzzer(device: dmlvk.Device) -> Iterator[Fuzzer]:
    opened = Fuzzer(device.name)
    yield opened
    opened.close()


def test_a_sample(fuzzer: Fuzzer) -> None:
    wrong = [found for found in (fuzzer.run(0, number) for number in range(SAMPLE)) if found is not None]
    assert wrong == []
    assert min(fuzzer.accepted, fuzzer.refused) > SAMPLE // 5 and fuzzer.compared > SAMPLE // 20


@pytest.mark.parametrize("text", FOUND.values(), ids=FOUND)
def test_what_was_found(fuzzer: Fuzzer, text: str) -> None:
    assert fuzzer.run_text(text) is None


def test_the_same_seed_gives_the_same_cases() -> None:
    program = "from tests.fuzz.generate import Generator; print([Generator(3, n).case() for n in range(50)])"
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == str([Generator(3, number).case() for number in range(50)])
    assert Generator(3, 1).case() != Generator(4, 1).case()


def test_odd_models() -> None:
    """On one device: what a model means does not depend on it."""
    found = [(number, compared(DEVICE_NAMES[0], odd_model(0, number))) for number in range(ODD_MODELS)]
    assert [(number, comparison.fault) for number, comparison in found if comparison.fault] == []
    happened = [comparison.happened for _, comparison in found]
    assert happened.count("run") > ODD_MODELS // 3 and happened.count("refused") > ODD_MODELS // 5


ONES, REASON = [np.ones(1)], "a reason that says enough"


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (("run", ONES), ("run", [np.zeros(1)])),
        (("run", ONES), ("run", [np.ones(1, np.float32)])),
        (("run", ONES), ("refused", REASON)),
        (("refused", REASON), ("run", ONES)),
        (("refused late", REASON), ("refused", REASON)),
        (("refused", "two\nlines of it"), ("refused", REASON)),
        (("wrong", "KeyError: 0"), ("refused", "NOT_IMPLEMENTED")),
        (("wrong", "KeyError: 0"), ("refused its own plan", REASON)),
    ],
)
def test_a_wrong_outcome_of_an_odd_model(found: Outcome, expected: Outcome) -> None:
    assert fault_of(found, expected) is not None
    assert fault_of(expected, expected) is None or "NOT_IMPLEMENTED" in expected[1]


class TestItFinds:
    """Each fault that a case may have, made on purpose."""

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("1 / 0", "ZeroDivisionError is none of the errors"),
            ("raise ValueError('x' * 3000)", "a ValueError of 3000 characters"),
            ("raise ValueError('short')", "a ValueError of 5 characters"),
            ("import time; time.sleep(0.02)", "it took 0."),
        ],
    )
    def test_it(self, fuzzer: Fuzzer, monkeypatch: pytest.MonkeyPatch, text: str, message: str) -> None:
        monkeypatch.setattr("tests.fuzz.run.LONGEST_SECONDS", 0.01)
        wrong = fuzzer.run_text(text)
        assert wrong is not None and message in wrong

    def test_an_error_that_nobody_meant(self, fuzzer: Fuzzer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("dmlvk.runtime.tensor.as_argument", lambda name, value, *rest: value)
        wrong = fuzzer.run_text("small.buffer(64).tensor(dmlvk.TensorDesc(5, (4,)), '16')")
        assert wrong is not None and "did not mean" in wrong

    def test_a_tensor_that_lies_in_another(self, fuzzer: Fuzzer) -> None:
        desc = dmlvk.TensorDesc(dmlvk.DataType.UINT8, (256,))
        overlapping = dmlvk.Tensor(fuzzer.small.engine, desc, fuzzer.canaries[0].memory())
        assert fuzzer._written(overlapping) == "writing changed another tensor"
        fuzzer.canaries[0].write(fuzzer.canary)

    def test_books_that_are_wrong(self, fuzzer: Fuzzer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(type(fuzzer.small.vulkan.memory), "used", property(lambda _: -1000))
        wrong = fuzzer.run_text("tensor = small.tensor(dmlvk.TensorDesc(5, (4,)))")
        assert wrong is not None and "memory_used is -" in wrong

    def test_a_repr_that_is_wrong(self, fuzzer: Fuzzer, monkeypatch: pytest.MonkeyPatch) -> None:
        text = "desc = dmlvk.DiagonalMatrixDesc(output_tensor=dmlvk.TensorDesc(5, (3, 4)), offset=1, value=7)"
        assert fuzzer.run_text(text) is None
        monkeypatch.setattr("dmlvk.operators.declared.element_text", lambda *arguments: "8.0")
        wrong = fuzzer.run_text(text)
        assert wrong is not None and "its repr makes another descriptor" in wrong

    def test_bits_that_are_wrong(self, fuzzer: Fuzzer, monkeypatch: pytest.MonkeyPatch) -> None:
        text = "desc = dmlvk.OneHotDesc(indices_tensor=dmlvk.TensorDesc(6, (3, 1)), values_tensor=dmlvk.TensorDesc(5, "
        text += "(1, 2)), output_tensor=dmlvk.TensorDesc(5, (3, 4)), axis=1)"
        assert fuzzer.run_text(text) is None
        monkeypatch.setitem(reference.OPERATORS, dmlvk.OneHotDesc, lambda desc, **arrays: np.zeros((3, 4), np.uint8))
        wrong = fuzzer.run_text(text)
        assert wrong is not None and "FAIL difference" in wrong
