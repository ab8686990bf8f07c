"""What layers lose one after the other is measured for every way to run them, and each layer is checked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import dmlvk
from bench import chain_losses
from dmlvk.benchmark.cases.quantized_linear_convolution import Layer
from dmlvk.benchmark.networks import chain
from dmlvk.runtime.binding import Binding

LAYERS = [Layer(16, 9, 24, 1), Layer(24, 9, 16, 3), Layer(16, 9, 24, 1)]


@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
def test_losses(device: dmlvk.Device, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The layers in order, with their own weights, with others, and with those of the first layer of the same form."""
    taken: list[list[Binding]] = []
    variants_of = chain_losses.variants_of

    def noted(*chains: list[Binding]) -> object:
        taken.extend(chains)
        return variants_of(*chains)

    monkeypatch.setattr(chain_losses, "variants_of", noted)
    found = chain_losses.losses(device, LAYERS, 2, layout, 3)
    assert list(found)[-2:] == [chain_losses.ORDERED, chain_losses.FLUSHED] and len(found) == 6
    # Differences of two times may be less than nothing on a busy machine.
    assert all(seconds > 0 for row, seconds in found.items() if "after itself" not in row)
    ordered, others, shared = ([{name for name, *_ in each.reads} for each in bindings] for bindings in taken)
    assert len(ordered) == len(others) == len(shared) == 3
    for number in range(3):
        both = ordered[number] & others[number]
        assert len(both) == 1, "only the image is the same"
    assert shared[0] == ordered[0] and shared[1] == ordered[1]
    assert shared[2] == shared[0] and ordered[2] != ordered[0]


def test_variants() -> None:
    names = "ordered", "others", "shared"
    chains: list[Any] = [[f"{name} {n}" for n in range(2)] for name in names]
    variants: dict[str, list[Any]] = chain_losses.variants_of(*chains)
    assert variants[chain_losses.TWICE] == ["ordered 0", "ordered 0", "ordered 1", "ordered 1"]
    assert variants[chain_losses.AFTER_OTHERS] == ["others 0", "ordered 0", "others 1", "ordered 1"]
    assert [variants[row][1] for row in (chain_losses.ORDERED, chain_losses.OTHERS, chain_losses.SHARED)] == [
        f"{name} 1" for name in names
    ]


def test_a_wrong_layer_is_told(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = chain.compiled

    def with_another_bias(
        device: dmlvk.Device, desc: dmlvk.QuantizedLinearConvolutionDesc, constants: dict[str, np.ndarray]
    ) -> chain.LayerOperator:
        if desc.filter_tensor.sizes[2] == 3:
            constants = {**constants, "bias_tensor": constants["bias_tensor"] + np.int32(20_000)}
        return compiled(device, desc, constants)

    monkeypatch.setattr(chain_losses, "compiled", with_another_bias)
    monkeypatch.setattr(chain_losses, "NETWORKS", {"resnet50": lambda _: SimpleNamespace(layers=LAYERS)})
    arguments = ["resnet50", "--device", device.name, "--layout", "nhwc", "--rounds", "1"]
    result = CliRunner().invoke(chain_losses.main, arguments)
    assert result.exit_code == 1
    assert f"wrong outputs of {LAYERS[1].name}" in result.output
