"""BYTE_LAYER_NORMALIZATION: rows of 8-bit numbers less their mean, over their deviation. It is dmlvk's own operator."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from dmlvk.data_type import DataType
from dmlvk.operators.byte_softmax import limits_of
from dmlvk.operators.declared import (
    EIGHT_BIT_TYPES,
    Choices,
    OperatorDesc,
    element,
    integer,
    operator,
    result,
    same_as,
    source,
)
from dmlvk.tensor_desc import TensorDesc

# Squares are added up in as many sums.
LANES = 8
# With rows and scales of these ranges, the sum of a row is exact in binary64, and no step whose last bit matters is
# denormal or infinite.
LONGEST_ROW = 1 << 20
RANGES = {"input_scale": 20, "output_scale": 20, "epsilon": 60}
ZERO_POINTS = ("input_zero_point", "output_zero_point")


@operator("BYTE_LAYER_NORMALIZATION", number=19, family="windows")
class ByteLayerNormalizationDesc(OperatorDesc):
    """A row's numbers less their mean, over their deviation, times a scale, plus a bias. DirectML has no such operator.

    A row is what lies along the last dimension: n elements. An element stands for x = f32(input scale * (element -
    zero point)). Each step rounds to binary32, nearest even:

    - mean = f32(sum of x / n), rounded once, and d = f32(x - mean).
    - Eight sums: d of element i goes to sum i % 8, one after the other, as f32(d * d + sum), rounded once. They are
      joined: sum l with l + 4, of these l with l + 2, and the last two.
    - v = f32(f32(sum of squares / n) + epsilon), and the factor is f32(1 / f32(sqrt(v))).
    - y = f32(f32(d * factor) * scale + bias), rounded once.
    - output = clamp(nearest_even(f32(y / output scale)) + zero point).

    This is LayerNormalization between DequantizeLinear and QuantizeLinear as ONNX Runtime computes it from its version
    1.30 on, on processors with FMA. Older versions, and others, round otherwise: a few bytes in a million differ.
    DirectML's MEAN_VARIANCE_NORMALIZATION does not say how it rounds.

    Args:
        input_tensor (TensorDesc): INT8 or UINT8; {rows, n}, where n is a multiple of 8, at most 2^20.
        scale_tensor (TensorDesc): FLOAT32 {n}. What is infinite or no number in it counts as 0.
        bias_tensor (TensorDesc): FLOAT32 {n}, where the same counts as 0.
        output_tensor (TensorDesc, optional): Has the data type and the sizes of the input. By default it is packed.
        epsilon (float): From 2^-60 to 2^60; FLOAT32.
        input_scale (float): From 2^-20 to 2^20; FLOAT32.
        input_zero_point (int): The element of the input that stands for 0.
        output_scale (float): Of the output, in the range of `input_scale`.
        output_zero_point (int): The element of the output that stands for 0.

    >>> desc = dmlvk.ByteLayerNormalizationDesc(
    ...     input_tensor=dmlvk.TensorDesc("int8", [1, 8]),
    ...     scale_tensor=dmlvk.TensorDesc("float32", [8]),
    ...     bias_tensor=dmlvk.TensorDesc("float32", [8]),
    ...     epsilon=1e-5,
    ...     input_scale=0.1,
    ...     input_zero_point=0,
    ...     output_scale=0.02,
    ...     output_zero_point=0,
    ... )
    >>> ones = np.ones(8, np.float32)
    >>> row = np.int8([[1, 2, 3, 4, 5, 6, 7, 8]])
    >>> dmlvk.reference.run(desc, input_tensor=row, scale_tensor=ones, bias_tensor=0 * ones)
    array([[-76, -55, -33, -11,  11,  33,  55,  76]], dtype=int8)
    """

    input_tensor: TensorDesc = source(EIGHT_BIT_TYPES, rank=2)
    scale_tensor: TensorDesc = source(DataType.FLOAT32, rank=1)
    bias_tensor: TensorDesc = source(DataType.FLOAT32, rank=1)
    output_tensor: TensorDesc = result(same_as("input_tensor"), sizes=same_as("input_tensor"), default=None)
    epsilon: Any = element(DataType.FLOAT32, kept_as="epsilon_bytes")
    input_scale: Any = element(DataType.FLOAT32, kept_as="input_scale_bytes")
    input_zero_point: int = integer(-128, 255, "must be a number of the type of input_tensor")
    output_scale: Any = element(DataType.FLOAT32, kept_as="output_scale_bytes")
    output_zero_point: int = integer(-128, 255, "must be a number of the type of input_tensor")
    epsilon_bytes: bytes = field(init=False, repr=False)
    input_scale_bytes: bytes = field(init=False, repr=False)
    output_scale_bytes: bytes = field(init=False, repr=False)

    @classmethod
    def tied(cls, choose: Choices, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Rows of a multiple of 8 elements, a scale and a bias for each, and numbers of the ranges."""
        data_type = fields["input_tensor"].data_type
        length = LANES * choose.integer("lanes", 1, 12)
        tied: dict[str, Any] = {
            "input_tensor": choose.tensor("input_tensor", data_type, (choose.integer("rows", 1, 9), length))
        }
        for name in ("scale_tensor", "bias_tensor"):
            tied[name] = choose.tensor(name, DataType.FLOAT32, (length,))
        for name, exponent in RANGES.items():
            tied[name] = choose.one_of(name, (0.0437, 1e-5, 2.0**-exponent, 2.0**exponent))
        for name in ZERO_POINTS:
            tied[name] = choose.integer(name, *limits_of(data_type))
        return tied

    def check(self) -> None:
        """Check the rows' length, the sizes that follow from it, and the zero points' range."""
        sizes = self.input_tensor.sizes
        if sizes[1] % LANES or sizes[1] > LONGEST_ROW:
            self._fail("input_tensor.sizes", sizes, f"must have rows of a multiple of {LANES}, at most {LONGEST_ROW}")
        for name in ("scale_tensor", "bias_tensor"):
            given = self.tensors[name].sizes
            if given != sizes[1:]:
                self._fail(f"{name}.sizes", given, "must have one element for each one of a row", str(sizes[1:]))
        low, high = limits_of(self.input_tensor.data_type)
        for name in ZERO_POINTS:
            if not low <= getattr(self, name) <= high:
                rule = f"must be a number of {self.input_tensor.data_type}, from {low} to {high}"
                self._fail(name, getattr(self, name), rule)

    def check_output(self) -> None:
        """Check the ranges of the numbers."""
        for name, exponent in RANGES.items():
            (number,) = struct.unpack("<f", getattr(self, f"{name}_bytes"))
            if not 2.0**-exponent <= number <= 2.0**exponent:
                self._fail(name, getattr(self, name), f"must be from 2^-{exponent} to 2^{exponent}")
