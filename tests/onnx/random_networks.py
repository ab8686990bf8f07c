"""Random networks of the convolution's neighbours, in operators of bytes and as nodes that quantize around floats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx

import dmlvk
from dmlvk.onnx import InferenceSession, ModelError
from dmlvk.onnx.placement import Row
from tests.onnx.models import (
    HAS_THESE_NORMALIZATIONS,
    Array,
    Node,
    convolution,
    convolution_parameters,
    elements,
    model_of,
)

MICROSOFT = "com.microsoft."
MOST_ELEMENTS = 6000


class RandomNetwork:
    """A network that grows node by node from 8-bit values; each has a scale, a zero point and a shape.

    Parameters
    ----------
    seed : int or sequence of int
    quantizes_around_floats : bool
        Whether each operator is one of floats between DequantizeLinear and QuantizeLinear.
    """

    def __init__(self, seed: int | Sequence[int], quantizes_around_floats: bool) -> None:
        self.generator = np.random.default_rng(seed)
        self._around_floats = quantizes_around_floats
        g = self.generator
        self.nodes: list[Node] = []
        self.constants: dict[str, Array] = {}
        # By value: shape, scale, zero point.
        self.values: dict[str, tuple[tuple[int, ...], str, str]] = {}
        shape = (int(g.integers(1, 3)), int(g.integers(1, 9)), int(g.integers(1, 9)), int(g.integers(1, 9)))
        self.x = g.standard_normal(shape).astype(np.float32)
        scale, zero = self.parameters()
        self.nodes.append(("QuantizeLinear", ["x", scale, zero], ["v0"], {}))
        self.values["v0"] = (shape, scale, zero)
        steps = (
            [
                *(self.mapped_float, self.paired_float, self.pooled_max, self.joined_float, self.by_channel),
                *(self.averaged_float, self.resized, self.convolved_float, self.multiplied_float, self.padded_float),
                *(self.attended_float, *([self.normalized_float] if HAS_THESE_NORMALIZATIONS else [])),
                *(self.padded, self.chosen_float, self.extreme, self.extreme_float, self.summed_float),
            ]
            if quantizes_around_floats
            else [
                *(self.mapped, self.paired, self.pooled_max, self.averaged, self.joined, self.resized),
                *(self.convolved, self.multiplied, self.attended, self.mean_of_floats, self.padded, self.padded_float),
                *(self.pooled_function, self.chosen, self.chosen_float, self.extreme, self.extreme_float),
                *(self.summed_float, self.softmaxed),
            ]
        )
        for _ in range(int(g.integers(3, 9))):
            step: Callable[[], None] = steps[int(g.integers(len(steps)))]
            step()
        if not quantizes_around_floats and not any("QLinear" in operator for operator, _, _, _ in self.nodes):
            self.mapped()  # without such an operator it is a model of the other form
        self.outputs: dict[str, Any] = {}
        read = {name for _, reads, _, _ in self.nodes for name in reads}
        for name, (_, scale, zero) in list(self.values.items()):
            if name not in read:
                self.nodes.append(("DequantizeLinear", [name, scale, zero], [f"{name}_float"], {}))
                self.outputs[f"{name}_float"] = np.float32

    def model(self) -> onnx.ModelProto:
        return model_of(self.nodes, {"x": self.x}, self.outputs, self.constants, opset=17)

    def constant(self, array: Any, dtype: Any = np.float32) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array, dtype)
        return name

    def parameters(self, dtype: Any = None) -> tuple[str, str]:
        """A scale and a zero point. Some scales are multiples of others, so that results are ties."""
        g = self.generator
        dtype = dtype or (np.uint8, np.int8)[int(g.integers(2))]
        scale = g.choice([0.01, 0.02, 0.04, float(g.uniform(0.003, 0.06))])
        limits = np.iinfo(dtype)
        return self.constant(scale), self.constant(g.integers(limits.min, limits.max + 1), dtype)

    def pick(self) -> tuple[str, tuple[int, ...], str, str]:
        name = str(self.generator.choice(list(self.values)))
        return name, *self.values[name]

    def type_of(self, zero: str) -> Any:
        return self.constants[zero].dtype.type

    def set(self, shape: tuple[int, ...], scale: str, zero: str) -> str:
        name = f"v{len(self.values)}"
        self.values[name] = shape, scale, zero
        return name

    def mapped(self) -> None:
        """A function of one value, in operators of bytes."""
        name, shape, scale, zero = self.pick()
        out_scale, out_zero = self.parameters(self.type_of(zero))
        operator = str(self.generator.choice(["QLinearSigmoid", "QLinearLeakyRelu"]))
        attributes = {} if operator == "QLinearSigmoid" else {"alpha": 0.1}
        reads = [name, scale, zero, out_scale, out_zero]
        self.nodes.append((MICROSOFT + operator, reads, [self.set(shape, out_scale, out_zero)], attributes))

    def softmaxed(self) -> None:
        """The shares along an axis, in steps of 1/256."""
        name, shape, scale, zero = self.pick()
        dtype = self.type_of(zero)
        out = self.constant(1 / 256), self.constant(np.iinfo(dtype).min, dtype)
        axis = int(self.generator.integers(-len(shape), len(shape)))
        attributes = {"axis": axis, "opset": int(self.generator.choice([11, 13]))}
        reads = [name, scale, zero, *out]
        self.nodes.append((MICROSOFT + "QLinearSoftmax", reads, [self.set(shape, *out)], attributes))

    def paired(self) -> None:
        """An addition or a multiplication, of two values or of one and a part of another."""
        name, shape, scale, zero = self.pick()
        other = self._operand_beside(name)
        second = [other, *self.values[other][1:]]
        its_shape = self.values[other][0]
        if self.generator.random() < 0.3:
            its_shape = tuple(int(self.generator.choice([1, size])) for size in shape)[
                int(self.generator.integers(0, 4)) :
            ]
            second = [
                self.constant(elements(self.generator, self.type_of(zero), its_shape), self.type_of(zero)),
                scale,
                zero,
            ]
        operator = str(self.generator.choice(["QLinearAdd", "QLinearMul"]))
        out = self.parameters(self.type_of(zero))
        operands = [[name, scale, zero], second]
        if self.generator.random() < 0.5:
            operands.reverse()
        wide = tuple(np.broadcast_shapes(shape, its_shape))
        self.nodes.append((MICROSOFT + operator, [*operands[0], *operands[1], *out], [self.set(wide, *out)], {}))

    def _window(self, shape: tuple[int, ...], most_dilation: int = 1) -> tuple[dict[str, Any], tuple[int, ...]] | None:
        g = self.generator
        window = [int(g.integers(1, 4)) for _ in shape[2:]]
        dilations = [int(g.integers(1, most_dilation + 1)) for _ in window]
        pads = [int(g.integers(0, size)) for size in window] + [int(g.integers(0, size)) for size in window]
        strides = [int(g.integers(1, 3)) for _ in window]
        ceil = int(g.integers(2))
        spatial = []
        for k, size in enumerate(shape[2:]):
            padded = size + pads[k] + pads[k + 2] - (window[k] - 1) * dilations[k] - 1
            if padded < 0:
                return None
            count = (-(-padded // strides[k]) if ceil else padded // strides[k]) + 1
            if ceil and (count - 1) * strides[k] >= size + pads[k]:
                count -= 1
            spatial.append(count)
        attributes = {"kernel_shape": window, "pads": pads, "strides": strides, "ceil_mode": ceil}
        attributes |= {"dilations": dilations} if most_dilation > 1 else {}
        return attributes, (*shape[:2], *spatial)

    def pooled_max(self) -> None:
        name, shape, scale, zero = self.pick()
        found = self._window(shape, most_dilation=3)
        if found is not None:
            attributes, pooled = found
            self.nodes.append(("MaxPool", [name], [self.set(pooled, scale, zero)], attributes))

    def pooled_function(self) -> None:
        """The maximum of a function of bytes, quantized."""
        name, shape, _, zero = self.pick()
        found = self._window(shape)
        if found is not None:
            value = self._float(str(self.generator.choice(["Tanh", "Neg", "Reciprocal"])), [self._dequantized(name)])
            if self.generator.random() < 0.5:
                value = self._float("Mul", [value, self.constant(self.generator.uniform(-2, 2, (shape[1], 1, 1)))])
            self._quantized(self._float("MaxPool", [value], found[0]), found[1], self.type_of(zero))

    def _padding(self, shape: tuple[int, ...]) -> tuple[dict[str, str], str, tuple[int, ...]] | None:
        """The mode of a Pad, the constant of its pads, and the sizes of its output."""
        g = self.generator
        mode = str(g.choice(["constant", "reflect", "edge"]))
        most = [min(size, 4) if mode == "reflect" else 4 for size in shape]
        least = -1 if mode == "constant" and g.random() < 0.3 else 0
        pads = [int(g.integers(least, size)) if g.random() < 0.5 else 0 for size in (*most, *most)]
        padded = tuple(size + pads[k] + pads[k + 4] for k, size in enumerate(shape))
        if min(padded) < 1 or any(size + min(pads[k], 0) + min(pads[k + 4], 0) < 1 for k, size in enumerate(shape)):
            return None
        return ({"mode": mode}, self.constant(pads, np.int64), padded) if np.prod(padded) < MOST_ELEMENTS else None

    def padded(self) -> None:
        name, shape, scale, zero = self.pick()
        found = self._padding(shape)
        if found is not None:
            attributes, pads, padded = found
            reads = [name, pads]
            if attributes["mode"] == "constant" and self.generator.random() < 0.7:
                reads.append(zero if self.generator.random() < 0.5 else self.parameters(self.type_of(zero))[1])
            self.nodes.append(("Pad", reads, [self.set(padded, scale, zero)], attributes))

    def padded_float(self) -> None:
        """Elements around floats between conversions: zeros, or those of any number."""
        name, shape, scale, zero = self.pick()
        found = self._padding(shape)
        if found is not None:
            attributes, pads, padded = found
            reads = [self._dequantized(name), pads]
            if attributes["mode"] == "constant" and self.generator.random() < 0.5:
                reads.append(self.constant(float(self.generator.choice([0.0, 0.35, -9e4]))))
            made = self._float("Pad", reads, attributes)
            if self.generator.random() < 0.5:
                self._quantized(made, padded, self.type_of(zero))
            else:
                self.nodes.append(("QuantizeLinear", [made, scale, zero], [self.set(padded, scale, zero)], {}))

    def extreme_float(self) -> None:
        """The greatest or the least element along some dimensions, of dequantized bytes or of a function of them."""
        name, shape, _, zero = self.pick()
        g = self.generator
        value, operator = self._dequantized(name), str(g.choice(["GlobalMaxPool", "ReduceMax", "ReduceMin"]))
        if not self._around_floats and g.random() < 0.5:
            value = self._float("Neg", [value])
        axes = [2, 3] if operator == "GlobalMaxPool" else [k for k in range(4) if g.random() < 0.6] or [3]
        value = self._float(operator, [value], {} if operator == "GlobalMaxPool" else {"axes": axes})
        self._quantized(value, tuple(1 if k in axes else size for k, size in enumerate(shape)), self.type_of(zero))

    def extreme(self) -> None:
        name, shape, scale, zero = self.pick()
        axes = [k for k in range(4) if self.generator.random() < 0.6] or [1]
        reduced = tuple(1 if k in axes else size for k, size in enumerate(shape))
        operator = str(self.generator.choice(["ReduceMax", "ReduceMin"]))
        self.nodes.append((operator, [name], [self.set(reduced, scale, zero)], {"axes": axes}))

    def _condition(self, shape: tuple[int, ...]) -> str:
        """A constant that chooses among elements of a shape, or of a part of it."""
        its = tuple(int(self.generator.choice([1, size])) for size in shape)[int(self.generator.integers(3)) :]
        return self.constant(self.generator.integers(0, 2, its), np.bool_)

    def _operand_beside(self, name: str) -> str:
        """Another value of the type of one, to which it broadcasts."""
        shape, _, zero = self.values[name]
        return str(
            self.generator.choice([
                other for other, (its, _, its_zero) in self.values.items()
                if self.type_of(its_zero) == self.type_of(zero) and _broadcasts(shape, its)
            ])
        )  # fmt: skip

    def chosen(self) -> None:
        """One of two values by a condition, in operators of bytes."""
        name, shape, scale, zero = self.pick()
        other = self._operand_beside(name)
        wide = tuple(np.broadcast_shapes(shape, self.values[other][0]))
        operands = [[name, scale, zero], [other, *self.values[other][1:]]]
        if self.generator.random() < 0.3:
            kind = self.type_of(zero)
            operands[1] = [self.constant(int(self.generator.integers(0, 128)), kind), *self.parameters(kind)]
            wide = shape
        if self.generator.random() < 0.5:
            operands.reverse()
        out = (scale, zero) if self.generator.random() < 0.5 else self.parameters(self.type_of(zero))
        reads = [self._condition(wide), *operands[0], *operands[1], *out]
        self.nodes.append((MICROSOFT + "QLinearWhere", reads, [self.set(wide, *out)], {}))

    def chosen_float(self) -> None:
        name, shape, _, zero = self.pick()
        other = self._operand_beside(name)
        wide = tuple(np.broadcast_shapes(shape, self.values[other][0]))
        operands = [self._dequantized(name), self._dequantized(other)]
        if self.generator.random() < 0.3:
            operands[1], wide = self.constant(float(self.generator.choice([0.0, -1e9, 0.3]))), shape
        if self.generator.random() < 0.5:
            operands.reverse()
        self._quantized(self._float("Where", [self._condition(wide), *operands]), wide, self.type_of(zero))

    def averaged(self) -> None:
        name, shape, scale, zero = self.pick()
        out = self.parameters(self.type_of(zero))
        if self.generator.random() < 0.4:
            attributes, pooled, operator = {"channels_last": 0}, (*shape[:2], 1, 1), "QLinearGlobalAveragePool"
        else:
            found = self._window(shape)
            if found is None:
                return
            attributes, pooled = found
            attributes = {**attributes, "count_include_pad": int(self.generator.integers(2))}
            operator = "QLinearAveragePool"
        self.nodes.append((MICROSOFT + operator, [name, scale, zero, *out], [self.set(pooled, *out)], attributes))

    def mean_of_floats(self) -> None:
        """A mean of planes between conversions, behind a function now and then."""
        name, shape, _, zero = self.pick()
        value = self._dequantized(name)
        if self.generator.random() < 0.5:
            value = self._float("Div", [value, self.constant(6.0)])
        if self.generator.random() < 0.5:
            value = self._float("GlobalAveragePool", [value])
        else:
            value = self._float("ReduceMean", [value], {"axes": [2, 3]})
        self._quantized(value, (*shape[:2], 1, 1), self.type_of(zero))

    def joined(self) -> None:
        name, shape, scale, zero = self.pick()
        others = [
            [other, its_scale, its_zero] for other, (its, its_scale, its_zero) in self.values.items()
            if its == shape and self.type_of(its_zero) == self.type_of(zero)
        ]  # fmt: skip
        out = (scale, zero) if self.generator.random() < 0.5 else self.parameters(self.type_of(zero))
        second = others[int(self.generator.integers(len(others)))]
        joined = (shape[0], 2 * shape[1], *shape[2:])
        if np.prod(joined) < MOST_ELEMENTS:
            reads = [*out, name, scale, zero, *second]
            self.nodes.append((MICROSOFT + "QLinearConcat", reads, [self.set(joined, *out)], {"axis": 1}))

    def resized(self) -> None:
        """To the nearest element or between elements, by whole factors or to any sizes."""
        name, shape, scale, zero = self.pick()
        g = self.generator
        if g.random() < 0.5:
            factors = [1, 1, int(g.integers(1, 4)), int(g.integers(1, 4))]
            sizes = tuple(size * factor for size, factor in zip(shape, factors, strict=True))
            reads = [name, "", self.constant(factors)]
        else:
            sizes = (*shape[:2], int(g.integers(1, 12)), int(g.integers(1, 12)))
            reads = [name, "", "", self.constant(sizes, np.int64)]
        if np.prod(sizes) >= MOST_ELEMENTS:
            return
        coordinates = str(g.choice(["asymmetric", "half_pixel", "pytorch_half_pixel", "align_corners"]))
        nearest = str(g.choice(["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"]))
        attributes = {"mode": "nearest", "coordinate_transformation_mode": coordinates, "nearest_mode": nearest}
        if g.random() < 0.4:
            attributes["mode"] = "linear"
            if self._around_floats:
                reads[0] = self._dequantized(name)
                self._quantized(self._float("Resize", reads, attributes), sizes, self.type_of(zero))
                return
        self.nodes.append(("Resize", reads, [self.set(sizes, scale, zero)], attributes))

    def convolved(self) -> None:
        name, shape, scale, zero = self.pick()
        filters = int(self.generator.integers(1, 12))
        kind = self.type_of(zero)
        found = convolution_parameters(
            self.generator, (filters, shape[1], 1, 1), (kind, np.int8, kind), per_channel=True
        )
        found |= {"x_scale": self.constants[scale], "x_zero": self.constants[zero]}
        named = {key: self.constant(array, array.dtype) for key, array in found.items()}
        _, reads, _, _ = convolution(found, name)
        out = self.set((shape[0], filters, *shape[2:]), named["y_scale"], named["y_zero"])
        self.nodes.append(("QLinearConv", [name, *(named[key] for key in reads[1:])], [out], {}))

    def _parameters_of_product(
        self, filter_shape: tuple[int, ...], types: Any, scale: str, zero: str
    ) -> dict[str, str]:
        """The constants of a product, whose input has a scale and a zero point; half of them by channel."""
        by_channel = bool(self.generator.integers(2))
        found = convolution_parameters(self.generator, filter_shape, types, per_channel=by_channel, bias=True)
        found |= {"x_scale": self.constants[scale], "x_zero": self.constants[zero]}
        # Weights' zero points other than 0 are rare in files, and ONNX Runtime takes per channel only equal ones.
        return {key: self.constant(array, array.dtype) for key, array in found.items()}

    def multiplied(self) -> None:
        """A product of each last row with a matrix, or of each image as one row."""
        name, shape, scale, zero = self.pick()
        kind = self.type_of(zero)
        weights = np.int8 if kind == np.int8 else (np.uint8, np.int8)[int(self.generator.integers(2))]
        columns = int(self.generator.integers(1, 12))
        is_gemm = bool(self.generator.integers(2))
        depth = int(np.prod(shape[1:])) if is_gemm else shape[3]
        c = self._parameters_of_product((columns, depth), (kind, weights, kind), scale, zero)
        operands = [name, scale, zero, c["w"], c["w_scale"], c["w_zero"]]
        if not is_gemm:
            self._turn(c["w"])
            out = self.set((*shape[:3], columns), c["y_scale"], c["y_zero"])
            self.nodes.append(("QLinearMatMul", [*operands, c["y_scale"], c["y_zero"]], [out], {}))
            return
        attributes: dict[str, Any] = {"transB": int(self.generator.integers(2))}
        if not attributes["transB"]:
            self._turn(c["w"])
        if self.generator.random() < 0.3:
            attributes["alpha"] = 0.7
        bias = c["b"] if self.generator.random() < 0.5 else ""
        operands[0] = self._byte("Flatten", [name], {"axis": 1})
        product = self._byte(MICROSOFT + "QGemm", [*operands, bias, c["y_scale"], c["y_zero"]], attributes)
        out = self.set((shape[0], columns, 1, 1), c["y_scale"], c["y_zero"])
        self.nodes.append(("Reshape", [product, self.constant([shape[0], columns, 1, 1], np.int64)], [out], {}))

    def attended(self) -> None:
        """A product of each plane with itself or another of the same sizes, turned: two values of a run."""
        first, second, shape, out = self._planes()
        turned = self._byte("Transpose", [second], {"perm": [0, 1, 3, 2]})
        reads = [first, *self.values[first][1:], turned, *self.values[second][1:], *out]
        self.nodes.append(("QLinearMatMul", reads, [self.set((*shape[:3], shape[2]), *out)], {}))

    def attended_float(self) -> None:
        """As `attended`, in floats."""
        first, second, shape, out = self._planes()
        turned = self._float("Transpose", [self._dequantized(second)], {"perm": [0, 1, 3, 2]})
        product = self._float("MatMul", [self._dequantized(first), turned])
        made = self.set((*shape[:3], shape[2]), *out)
        self.nodes.append(("QuantizeLinear", [product, *out], [made], {}))

    def _planes(self) -> tuple[str, str, tuple[int, ...], tuple[str, str]]:
        """Two values of the same type and sizes, the sizes, and a scale and zero point of their product."""
        name, shape, scale, zero = self.pick()
        kind = self.type_of(zero)
        alike = [
            other for other, (sizes, _, point) in self.values.items() if sizes == shape and self.type_of(point) == kind
        ]
        other = str(self.generator.choice(alike))
        spread = self.constants[scale] * self.constants[self.values[other][1]] * np.float32(60 * shape[3] ** 0.5)
        middle = (int(np.iinfo(kind).max) + int(np.iinfo(kind).min) + 1) // 2
        return (
            name,
            other,
            shape,
            (self.constant(spread), self.constant(middle + int(self.generator.integers(-9, 10)), kind)),
        )

    def _turn(self, matrix: str) -> None:
        self.constants[matrix] = np.ascontiguousarray(self.constants[matrix].T)

    def _byte(self, operator: str, reads: list[str], attributes: dict[str, Any]) -> str:
        made = f"b{len(self.nodes)}"
        self.nodes.append((operator, reads, [made], attributes))
        return made

    def multiplied_float(self) -> None:
        """As `multiplied`, in floats. ONNX Runtime leaves MatMul of signed values as it is."""
        name, shape, scale, zero = self.pick()
        kind = self.type_of(zero)
        is_gemm = kind == np.int8 or bool(self.generator.integers(2))
        weights = np.int8 if kind == np.int8 else (np.uint8, np.int8)[int(self.generator.integers(2))]
        columns = int(self.generator.integers(1, 12))
        depth = int(np.prod(shape[1:])) if is_gemm else shape[3]
        c = self._parameters_of_product((columns, depth), (kind, weights, kind), scale, zero)
        attributes: dict[str, Any] = {"transB": int(self.generator.integers(2))} if is_gemm else {}
        if not attributes.get("transB"):
            self._turn(c["w"])
        rows = self._byte("Flatten", [name], {"axis": 1}) if is_gemm else name
        made = self._float("DequantizeLinear", [rows, scale, zero])
        matrix = self._float(
            "DequantizeLinear", [c["w"], c["w_scale"], c["w_zero"]], {"axis": 0 if attributes.get("transB") else 1}
        )
        reads = [made, matrix]
        if is_gemm and self.generator.random() < 0.5:
            reads.append(self._bias(c))
        elif is_gemm and self.generator.random() < 0.4:
            attributes["alpha"] = 0.7
        made = self._clamped(self._float("Gemm" if is_gemm else "MatMul", reads, attributes), c["y_zero"])
        if not is_gemm:
            out = self.set((*shape[:3], columns), c["y_scale"], c["y_zero"])
            self.nodes.append(("QuantizeLinear", [made, c["y_scale"], c["y_zero"]], [out], {}))
            return
        product = self._byte("QuantizeLinear", [made, c["y_scale"], c["y_zero"]], {})
        out = self.set((shape[0], columns, 1, 1), c["y_scale"], c["y_zero"])
        self.nodes.append(("Reshape", [product, self.constant([shape[0], columns, 1, 1], np.int64)], [out], {}))

    def _bias(self, c: dict[str, str]) -> str:
        product = self.constants[c["x_scale"]] * self.constants[c["w_scale"]]
        zero = self.constant(np.zeros(product.shape, np.int32), np.int32)
        return self._float("DequantizeLinear", [c["b"], self.constant(product), zero], {"axis": 0})

    def _clamped(self, name: str, zero: str) -> str:
        """A Relu now and then, where quantizing clamps as much."""
        if self.constants[zero] == np.iinfo(self.type_of(zero)).min or self.generator.random() < 0.7:
            return name
        self.constants[zero] = np.array(np.iinfo(self.type_of(zero)).min, self.type_of(zero))
        return self._float("Relu", [name])

    def convolved_float(self) -> None:
        name, shape, scale, zero = self.pick()
        filters = int(self.generator.integers(1, 12))
        kind = self.type_of(zero)
        c = self._parameters_of_product((filters, shape[1], 1, 1), (kind, np.int8, kind), scale, zero)
        self.constants[c["w_zero"]] = np.zeros_like(self.constants[c["w_zero"]])
        reads = [self._dequantized(name)]
        reads.append(self._float("DequantizeLinear", [c["w"], c["w_scale"], c["w_zero"]], {"axis": 0}))
        if self.generator.random() < 0.7:
            reads.append(self._bias(c))
        made = self._clamped(self._float("Conv", reads), c["y_zero"])
        out = self.set((shape[0], filters, *shape[2:]), c["y_scale"], c["y_zero"])
        self.nodes.append(("QuantizeLinear", [made, c["y_scale"], c["y_zero"]], [out], {}))

    def averaged_float(self) -> None:
        name, shape, _, zero = self.pick()
        value = self._dequantized(name)
        if self.generator.random() < 0.4:
            self._quantized(self._float("GlobalAveragePool", [value]), (*shape[:2], 1, 1), self.type_of(zero))
            return
        found = self._window(shape)
        if found is not None:
            attributes = {**found[0], "count_include_pad": int(self.generator.integers(2))}
            self._quantized(self._float("AveragePool", [value], attributes), found[1], self.type_of(zero))

    def _dequantized(self, name: str) -> str:
        _, scale, zero = self.values[name]
        made = f"f{len(self.nodes)}"
        self.nodes.append(("DequantizeLinear", [name, scale, zero], [made], {}))
        return made

    def _quantized(self, name: str, shape: tuple[int, ...], dtype: Any) -> None:
        out = self.parameters(dtype)
        self.nodes.append(("QuantizeLinear", [name, *out], [self.set(shape, *out)], {}))

    def _float(self, operator: str, reads: list[str], attributes: dict[str, Any] | None = None) -> str:
        made = f"f{len(self.nodes)}"
        self.nodes.append((operator, reads, [made], attributes or {}))
        return made

    def normalized_float(self) -> None:
        """A layer normalization from an axis on, whose rows have a multiple of 8 elements."""
        name, shape, _, zero = self.pick()
        axes = [k for k in range(4) if np.prod(shape[k:]) % 8 == 0]
        if axes:
            axis, g = int(self.generator.choice(axes)), self.generator
            parameters = [self.constant(g.normal(mean, 0.4, shape[axis:])) for mean in (1, 0)[: int(g.integers(1, 3))]]
            reads = [self._dequantized(name), *parameters]
            made = self._float("LayerNormalization", reads, {"axis": axis - (4 if g.random() < 0.5 else 0)})
            self._quantized(made, shape, self.type_of(zero))

    def mapped_float(self) -> None:
        """A chain of one to three functions of one value; SiLU and HardSwish among them."""
        name, shape, _, zero = self.pick()
        value = first = self._dequantized(name)
        for _ in range(int(self.generator.integers(1, 4))):
            operator = str(
                self.generator.choice(["Sigmoid", "Tanh", "Relu", "HardSigmoid", "Abs", "Clip", "Mul", "Add"])
            )
            if operator == "Clip":
                value = self._float("Clip", [value, self.constant(0.0), self.constant(1.0)])
            elif operator == "Mul" and value != first:
                value = self._float("Mul", [first, value])
            elif operator in ("Mul", "Add"):
                value = self._float(operator, [value, self.constant(0.7)])
            else:
                value = self._float(operator, [value])
        self._quantized(value, shape, self.type_of(zero))

    def paired_float(self) -> None:
        name, shape, _, zero = self.pick()
        other = self._operand_beside(name)
        operator = str(self.generator.choice(["Add", "Mul", "Sub", "Max"]))
        value = self._float(operator, [self._dequantized(name), self._dequantized(other)])
        wide = tuple(np.broadcast_shapes(shape, self.values[other][0]))
        self._quantized(value, wide, self.type_of(zero))

    def summed_float(self) -> None:
        """Sums of floats in a row, most of them quantized too, as in networks that carry floats from block to block."""
        name, shape, _, zero = self.pick()
        g, kind = self.generator, self.type_of(zero)
        total = self._dequantized(name)
        for turns in range(int(g.integers(1, 4)), 0, -1):
            operands = [total]
            for _ in range(int(g.integers(1, 3))):
                near = [each for each, (its, _, _) in self.values.items() if _broadcasts(shape, its)]
                other = str(g.choice(near)) if near else ""
                if other and g.random() < 0.8:
                    operands.append(self._dequantized(other))
                    shape = tuple(np.broadcast_shapes(shape, self.values[other][0]))
                else:
                    operands.append(self.constant(g.standard_normal((shape[1], 1, 1))))
            g.shuffle(operands)
            operator = "Sum" if len(operands) > 2 or g.random() < 0.5 else "Add"
            total = self._float(operator, operands)
            if g.random() < 0.6:
                total = self._float("Relu", [total])
            if turns == 1 or g.random() < 0.7:
                self._quantized(total, shape, kind)

    def joined_float(self) -> None:
        name, shape, _, zero = self.pick()
        joined = (shape[0], 2 * shape[1], *shape[2:])
        if np.prod(joined) < MOST_ELEMENTS:
            value = self._float("Concat", [self._dequantized(name), self._dequantized(name)], {"axis": 1})
            self._quantized(value, joined, self.type_of(zero))

    def by_channel(self) -> None:
        """BatchNormalization, or an operand for each channel."""
        name, shape, _, zero = self.pick()
        channels, kind = shape[1], self.type_of(zero)
        value = self._dequantized(name)
        if self.generator.random() < 0.5:
            parameters = [self._parameter((channels,), 0.5, 1.5, kind) for _ in range(4)]
            value = self._float("BatchNormalization", [value, *parameters])
        else:
            factor = self._parameter([(channels, 1, 1), ()][int(self.generator.integers(2))], -1, 2, kind)
            value = self._float(str(self.generator.choice(["Mul", "Add", "PRelu"])), [value, factor])
        self._quantized(value, shape, kind)

    def _parameter(self, shape: tuple[int, ...], low: float, high: float, kind: Any) -> str:
        """A constant of floats, or of bytes that are dequantized."""
        array = self.generator.uniform(low, high, shape)
        if self.generator.random() < 0.5:
            return self.constant(array)
        levels = self.constant(np.rint(array * 50), kind if low >= 0 else np.int8)
        return self._float("DequantizeLinear", [levels, self.constant(0.02)])


# Of the reasons of the host's nodes, those that a random network may have: a Resize of indices without any rule would
# be too many copies, in a chain of functions of one element ONNX Runtime may take its operands in turn, and a dilation
# may step over the whole of a small input.
HOST_RULES = ("copies", "a tensor has one element", "steps over the whole input")


def differences(
    seeds: Sequence[int | Sequence[int]], around_floats: bool, selector: str
) -> tuple[int, list[str], list[str]]:
    """Compare networks with ONNX Runtime, in a process in which it can be imported.

    Returns
    -------
    tuple of int, list of str and list of str
        How many networks ONNX Runtime runs, what differs, and the nodes that ran on the host with their reasons.
    """
    count = 0
    wrong: list[str] = []
    on_host: list[str] = []
    for seed in seeds:
        network = RandomNetwork(seed, around_floats)
        try:
            found, expected, rows = both(network.model(), {"x": network.x}, selector, around_floats)
        except RefusedByOracleError:  # its own inference of an average pool's sizes is wrong for some windows
            continue
        count += 1
        for name, array, right in zip(network.outputs, found, expected, strict=True):
            if array.dtype != right.dtype or array.shape != right.shape or not np.array_equal(array, right):
                wrong.append(f"seed {seed}: {name}")
        refused = [row for row in rows if row.where == "host" and not any(rule in row.reason for rule in HOST_RULES)]
        on_host += [f"seed {seed}: {row}" for row in refused]
    return count, wrong, on_host


class RefusedByOracleError(Exception):
    """ONNX Runtime does not run a model."""


def both(
    model: onnx.ModelProto, feeds: dict[str, Array], selector: str, optimize: bool
) -> tuple[list[Array], list[Array], list[Row]]:
    """A model's outputs here and by ONNX Runtime, in a process in which it can be imported, and where the nodes ran."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    if not optimize:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        expected = onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feeds)
    except Exception as error:
        raise RefusedByOracleError(str(error)) from error
    session = InferenceSession(model, _device(selector), placement="device")
    return session.run(None, feeds), expected, session.placement


def dispatched(model: onnx.ModelProto, feeds: dict[str, Array], selector: str) -> list[str]:
    """The operators of a run, in their order."""
    session = InferenceSession(model, _device(selector), placement="device")
    session.run(None, feeds)
    return [binding.operator_name for bindings in session._bindings() for binding in bindings]


def runs(model: onnx.ModelProto, feeds: Sequence[dict[str, Array]], selector: str) -> list[list[Array] | str]:
    """The outputs of runs of one session, or the words of their errors."""
    session = InferenceSession(model, _device(selector), placement="device")
    found: list[list[Array] | str] = []
    for given in feeds:
        try:
            found.append(session.run(None, given))
        except ModelError as error:
            found.append(str(error))
    return found


@cache
def _device(selector: str) -> dmlvk.Device:
    return dmlvk.Device(selector)


def _broadcasts(first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    return all(a == b or 1 in (a, b) for a, b in zip(first[::-1], second[::-1], strict=False))
