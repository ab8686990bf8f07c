"""PP-OCR's networks, quantized by ONNX Runtime in both formats, give its bits. `make test-models` fetches them.

Signed weights have 7 bits on x86 processors without VNNI, where ONNX Runtime saturates sums of two products to 16 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import dmlvk
from tests.models.networks import Findings, examine, quantize, saturates
from tests.models.text import text_pictures
from tests.reference.onnx_runtime import ONNX_RUNTIME
from tools import models

SECONDS = 900.0
# The convolutions of each network; two inputs of different sizes, as count, height and width.
NETWORKS = {
    "direction": (53, ((3, 48, 192), (1, 48, 96))),
    "detection": (62, ((1, 96, 128), (2, 64, 160))),
    "recognition": (38, ((2, 48, 160), (1, 48, 96))),
}

MOVERS = ("Slice", "Squeeze", "Transpose")
Examine = Callable[[str, str, dmlvk.Device], Findings]


@pytest.fixture(scope="module")
def examined(tmp_path_factory: pytest.TempPathFactory) -> Examine:
    """A function from a network's name, a format and a device to what they give."""
    folder = tmp_path_factory.mktemp("networks")

    @cache
    def quantized(name: str, format: str) -> Path:
        source = models.MODELS / models.NETWORKS[name]
        if not source.is_file():
            pytest.fail(f"{source} is missing: make test-models, or {models.how()}", pytrace=False)
        generator = np.random.default_rng(0)
        samples = [{"x": text_pictures(generator, 2, *NETWORKS[name][1][0][1:])} for _ in range(6)]
        target = folder / f"{name}_{format}.onnx"
        ONNX_RUNTIME.call(f"the quantization of {name}", quantize, source, target, format, samples, reduced())
        return target

    @cache
    def reduced() -> bool:
        return bool(ONNX_RUNTIME.call("a product", saturates))

    @cache
    def found(name: str, format: str, device: str) -> Findings:
        generator = np.random.default_rng(1)
        runs = [{"x": text_pictures(generator, *sizes)} for sizes in NETWORKS[name][1]]
        path = quantized(name, format)
        answer: Findings = ONNX_RUNTIME.call(f"{name} on {device}", examine, device, path, runs, seconds=SECONDS)
        return answer

    return lambda name, format, device: found(name, format, device.name)


def differences(pairs: list[tuple[str, str]]) -> list[str]:
    return [f"{name}: {text}" for name, text in pairs if text]


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("format", ["QOperator", "QDQ"])
def test_each_node_on_the_device_equals_onnx_runtimes(
    device: dmlvk.Device, examined: Examine, format: str, name: str
) -> None:
    findings = examined(name, format, device)
    assert findings.on_device.count("QLinearConv" if format == "QOperator" else "Conv") == NETWORKS[name][0]
    # What follows from sizes alone, up to six nodes a run, is known before; here it runs, beside those of the device.
    assert 2 * len(findings.on_device) <= len(findings.nodes) <= 2 * len(findings.on_device) + 12
    assert not differences(findings.nodes)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("format", ["QOperator", "QDQ"])
def test_convolutions_are_in_one_part(device: dmlvk.Device, examined: Examine, format: str, name: str) -> None:
    """At least nine of ten."""
    findings, total = examined(name, format, device), NETWORKS[name][0]
    assert findings.most_in_one_part >= 0.9 * total


@pytest.mark.parametrize("name", NETWORKS)
def test_a_model_of_integer_operators_has_the_bits_of_the_plain_run(
    device: dmlvk.Device, examined: Examine, name: str
) -> None:
    """All values on the way too, for both sizes; those inside a table are none.

    What moves elements before they are converted has no value of its own either.
    """
    findings = examined(name, "QOperator", device)
    for found, plain in zip(findings.found, findings.plain, strict=True):
        np.testing.assert_array_equal(found, plain, strict=True)
        assert np.unique(found).size > 1
    computed = [operator for operator, where in findings.places if where != "folded" and operator not in MOVERS]
    assert len(findings.values) >= 2 * len(computed)
    assert not differences(findings.values)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_model_of_quantized_floats_has_the_bits_of_the_optimized_run(
    device: dmlvk.Device, examined: Examine, name: str
) -> None:
    """Convolutions are fused as ONNX Runtime fuses them, and it fuses the rest in the parts that the host runs."""
    findings = examined(name, "QDQ", device)
    for found, optimized in zip(findings.found, findings.optimized, strict=True):
        np.testing.assert_array_equal(found, optimized, strict=True)
        assert np.unique(found).size > 1
    differing = [not np.array_equal(*pair) for pair in zip(findings.plain, findings.optimized, strict=True)]
    assert any(differing)  # so that the fusion is seen
