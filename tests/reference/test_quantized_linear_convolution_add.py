"""The reference of QUANTIZED_LINEAR_CONVOLUTION_ADD, against ONNX Runtime's two operators."""

from __future__ import annotations

import numpy as np
import pytest

from dmlvk.operators import QuantizedLinearConvolutionAddDesc
from dmlvk.reference import run
from dmlvk.tensor_desc import TensorDesc
from tests.onnx.models import model_of, onnx_runtime
from tests.onnx.test_fusion import parts


@pytest.mark.parametrize("order", ["first", "second"])
def test_onnx_runtime_s_bits(order: str) -> None:
    nodes, feeds, constants = parts(order)
    (expected,) = onnx_runtime(model_of(nodes, feeds, {"z": np.uint8}, constants), feeds, optimize=False)
    c = constants
    arrays = {
        "input_tensor": feeds["x"],
        "input_scale_tensor": c["x_scale"].reshape(1),
        "input_zero_point_tensor": c["x_zero"].reshape(1),
        "filter_tensor": c["w"],
        "filter_scale_tensor": c["w_scale"],
        "filter_zero_point_tensor": c["w_zero"],
        "bias_tensor": c["b"].reshape(1, -1, 1, 1),
        "output_scale_tensor": c["y_scale"].reshape(1),
        "output_zero_point_tensor": c["y_zero"].reshape(1),
        "addend_tensor": feeds["r"],
        "addend_scale_tensor": c["r_scale"].reshape(1),
        "addend_zero_point_tensor": c["r_zero"].reshape(1),
        "sum_scale_tensor": c["z_scale"].reshape(1),
        "sum_zero_point_tensor": c["r_zero"].reshape(1),
    }
    desc = QuantizedLinearConvolutionAddDesc(
        **{name: TensorDesc.of(array) for name, array in arrays.items()},
        strides=(1, 1),
        dilations=(1, 1),
        start_padding=(1, 1),
        end_padding=(1, 1),
        group_count=1,
        addend_comes_first=order == "second",
    )
    np.testing.assert_array_equal(run(desc, **arrays), expected, strict=True)
