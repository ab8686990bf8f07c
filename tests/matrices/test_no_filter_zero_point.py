"""A kernel with the code for filter zero points gives the same where the convolution has none.

On NVIDIA some tiles have that code in any case: `device_traits.packs_registers_with_filter_zero_points`. Here lavapipe
has it too.
"""

from __future__ import annotations

import numpy as np
import pytest

import dmlvk
from dmlvk import TensorFlags
from dmlvk.planning import device_traits
from dmlvk.planning.kernel_interface import kernel_interface
from dmlvk.planning.quantized_linear_convolution import tiled_product
from dmlvk.planning.quantized_linear_convolution.tiled_product import KERNEL
from tests.kernels.quantized_linear_convolution.arrays import PLAIN, describe, quantized

CONSTANTS = ("filter_tensor", "filter_scale_tensor", "input_scale_tensor", "output_scale_tensor", "bias_tensor")


@pytest.mark.parametrize("is_owned", [False, True], ids=["bound", "owned"])
@pytest.mark.parametrize("taps", [1, 3])
def test_no_filter_zero_point(device: dmlvk.Device, taps: int, is_owned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_traits, "packs_registers_with_filter_zero_points", lambda profile: True)
    generator = np.random.default_rng(taps)
    arrays = quantized(
        generator.integers(0, 256, (2, 80, 9, 9)).astype(np.uint8),
        generator.integers(-128, 128, (72, 80, taps, taps)).astype(np.int8),
        filter_scale_tensor=generator.uniform(0.5, 2, (1, 72, 1, 1)).astype(np.float32),
        bias_tensor=generator.integers(-9999, 9999, (1, 72, 1, 1)).astype(np.int32),
        output_scale_tensor=np.array([900.0 * taps], np.float32),
    )
    padding = (taps // 2, taps // 2)
    flags = dict.fromkeys(CONSTANTS, TensorFlags.OWNED_BY_DML) if is_owned else {}
    desc = describe(arrays, np.uint8, {**PLAIN, "start_padding": padding, "end_padding": padding}, flags=flags)
    expected = dmlvk.reference.run(desc, **arrays)
    assert len(np.unique(expected)) > 100

    own = device.plan(desc, "matrix").dispatches[-1]
    assert own.kernel == KERNEL, "needs the lavapipe of Mesa 26: make test-matrices fetches it"
    known = dict(zip(kernel_interface(own.kernel).specialization_constants, own.specialization, strict=True))
    sums = known["SUBGROUP_PIXELS"] * known["SUBGROUP_CHANNELS"] // known["LANES"]
    monkeypatch.setattr(tiled_product, "SUMS_OF_SMALL_TILES", sums)
    product = device.plan(desc, "matrix").dispatches[-1]
    names = kernel_interface(product.kernel).specialization_constants
    assert product.specialization[names.index("FILTER_ZERO_POINT")] == 1

    operator = device.compile(desc, path="matrix")
    tensors = {name: device.tensor(array) for name, array in arrays.items()}
    if is_owned:
        operator.initialize(**{name: tensors[name] for name in CONSTANTS})
    output = device.tensor(desc.output_tensor)
    output.write_bytes(b"\xa5" * desc.output_tensor.total_size_in_bytes)
    bound = {name: tensor for name, tensor in tensors.items() if not (is_owned and name in CONSTANTS)}
    operator(**bound, output_tensor=output).wait()
    np.testing.assert_array_equal(output.numpy(), expected)
