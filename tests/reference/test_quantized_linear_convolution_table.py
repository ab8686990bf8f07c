"""The reference of QUANTIZED_LINEAR_CONVOLUTION_TABLE, against ONNX Runtime's two operators."""

from __future__ import annotations

import numpy as np

from dmlvk.operators import QuantizedLinearConvolutionTableDesc
from dmlvk.reference import run
from dmlvk.tensor_desc import TensorDesc
from tests.onnx.models import model_of, onnx_runtime
from tests.onnx.test_fusion import parts


def test_onnx_runtime_s_bits() -> None:
    """A LeakyRelu of all bytes makes the table, and one of the convolution's output the result."""
    (first, _), feeds, c = parts()
    x = {"x": feeds["x"]}
    activation = (
        "com.microsoft.QLinearLeakyRelu",
        ["y", "y_scale", "y_zero", "z_scale", "r_zero"],
        ["z"],
        {"alpha": 0.1},
    )
    (expected,) = onnx_runtime(model_of([first, activation], x, {"z": np.uint8}, c), x, optimize=False)
    every = {"y": np.arange(256, dtype=np.uint8)}
    (table,) = onnx_runtime(model_of([activation], every, {"z": np.uint8}, c), every, optimize=False)
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
        "table_tensor": table,
    }
    desc = QuantizedLinearConvolutionTableDesc(
        **{name: TensorDesc.of(array) for name, array in arrays.items()},
        strides=(1, 1),
        dilations=(1, 1),
        start_padding=(1, 1),
        end_padding=(1, 1),
        group_count=1,
    )
    np.testing.assert_array_equal(run(desc, **arrays), expected, strict=True)
