"""Random calls of dmlvk, as Python text: the text that is printed for a failure is the text that was run.

A call starts as a right one. Its numbers are of all the classes that Python and NumPy have for numbers. Some numbers
are then replaced by wrong ones. Their share is drawn once for each case, so that many cases have exactly one mistake
and many have none.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import dmlvk
from dmlvk.operators import OperatorDesc
from dmlvk.operators.declared import (
    DataTypeRule,
    ElementRule,
    IntegersRule,
    TensorRule,
)  # fmt: skip
from dmlvk.operators.drawing import drawn
from dmlvk.operators.registry import OPERATORS

DATA_TYPES = (
    "FLOAT32", "FLOAT16", "UINT32", "UINT16", "UINT8", "INT32", "INT16", "INT8", "FLOAT64", "UINT64", "INT64",
)  # fmt: skip
RANGES = {f"{sign}int{bits}": (0 if sign else -(2 ** (bits - 1)), 2 ** (bits - (not sign)) - 1)
          for bits in (8, 16, 32, 64) for sign in ("", "u")}  # fmt: skip
EXTREMES = (
    -1, 0, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**62, 2**63 - 1, 2**63,
    2**64 - 1, 2**64, 2**70, -(2**31), -(2**31) - 1, -(2**63),
)  # fmt: skip
NO_INTEGERS = (
    "True", "np.True_", "None", "1.0", "2.5", "math.nan", "math.inf", "np.float32(2)", "np.float16('nan')", "'3'",
    "b'3'", "''", "np.array(3)", "np.array([3])", "np.array([], np.int64)", "np.array('x')", "[2]", "(1,)", "{}", "{3}",
    "3j", "np.timedelta64(3, 's')", "np.datetime64('NaT')", "Fraction(3)", "Decimal(3)", "object()", "int", "range(3)",
    "10**5000", "-10**5000", "itertools.count(1)", "np.zeros(100_000, np.int64)", "'x' * 100_000", "[1] * 100_000",
    "np.array([10**5000])", "[[1, 2], [3]]", "np.ma.masked", "slice(3)", "...", "float('1e308')",
    "dmlvk.DataType.UINT8", "np.longdouble(3)", "memoryview(b'abc')", "[10**5000]", "type",
)  # fmt: skip

OUTPUT_IS_IMPLIED = tuple(desc.__name__ for desc in OPERATORS if desc.rules["output_tensor"].is_optional)


# Operators that a method of the generator draws; the rules of their fields draw all others.
WITH_A_METHOD = ("slice1", "one_hot", "diagonal_matrix1", "quantized_linear_convolution", "slice", "diagonal_matrix")


class Generator:
    """Draws one case.

    Parameters
    ----------
    seed, number : int
        The text depends on these two alone; it is the same in every process.
    """

    def __init__(self, seed: int, number: int) -> None:
        self.random = random.Random(f"{seed}:{number}")
        self.wildness = self.random.choice((0.0, 0.0, 0.03, 0.03, 0.1, 0.4))

    def case(self) -> str:
        """The text of a case. If it assigns a descriptor to `desc` without an error, the operator is also run."""
        kinds: Sequence[tuple[int, Callable[[], str]]] = (
            (3, lambda: f"desc = {self.operator()}"),
            (2, lambda: self.tensor(self.sizes(8))),
            (2, self.memory),
            (1, self.one_liner),
            (1, self.other),
        )
        return self.random.choices([draw for _, draw in kinds], [weight for weight, _ in kinds])[0]()

    def operator(self) -> str:
        """An operator's descriptor."""
        kinds = (
            *(self.slice1, self.one_hot, self.diagonal_matrix1, self.convolution),
            *(self.slice, self.diagonal_matrix),
        )
        others = [desc for desc in OPERATORS if desc.stem not in WITH_A_METHOD]
        place = self.random.randrange(len(kinds) + len(others))
        return kinds[place]() if place < len(kinds) else self.declared(others[place - len(kinds)])

    def declared(self, operator: type[OperatorDesc]) -> str:
        """An operator by the rules of its fields."""
        desc, arguments = drawn(operator, _Choices(self)), {}
        for name, rule in desc.rules.items():
            value = getattr(desc, name)
            if value is None or isinstance(rule, DataTypeRule):
                continue
            if isinstance(rule, TensorRule):
                arguments[name] = self.field(self.tensor(value.sizes, value.data_type.name, rule.is_output))
            elif isinstance(rule, IntegersRule):
                arguments[name] = self.integers(value)
            elif isinstance(rule, ElementRule):
                arguments[name] = self.value(rule.data_type(desc).name)
            else:
                arguments[name] = self.integer(value)
        return self.call(operator.__name__, **arguments)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def integer(self, value: int) -> str:
        """An integer as text, of any class that can hold it; sometimes another integer or one of NO_INTEGERS."""
        if self.chance(self.wildness):
            if self.chance(0.5):
                return self.random.choice(NO_INTEGERS)
            value = self.random.choice((*EXTREMES, value + 1, value - 1, 2 * value))
        if self.chance(0.3):
            kinds = [name for name, (low, high) in RANGES.items() if low <= value <= high]
            if kinds:
                return f"np.{self.random.choice(kinds)}({value})"
        return str(value)

    def integers(self, values: Sequence[int]) -> str:
        """A sequence of integers as text."""
        if self.chance(self.wildness / 2):
            return self.random.choice(NO_INTEGERS)
        if self.chance(self.wildness / 2):
            values = [*values, 1] if self.chance(0.5) else values[:-1]
        kinds = [n for n, (low, high) in RANGES.items() if all(low <= value <= high for value in values)]
        if kinds and self.chance(0.2):
            return f"np.array({list(values)}, np.{self.random.choice(kinds)})"
        items = ", ".join(self.integer(value) for value in values)
        return self.random.choice((f"[{items}]", f"({items}{',' if len(values) == 1 else ''})", f"iter([{items}])"))

    def sizes(self, most_dimensions: int, fewest: int = 1, largest: float = 0.04) -> list[int]:
        """Small sizes, one of which may be long. Few are as large as sizes may be; these are planned but not run."""
        found: list[int] = []
        most, choices = (
            (3000, (1, 2, 3, 5, 9, 300)) if not self.chance(largest) else (2**32 - 1, (1, 3, 300, 70_000, 2**32))
        )
        for _ in range(self.random.randint(fewest, most_dimensions)):
            found.append(self.random.randint(1, min(most // math.prod(found), self.random.choice(choices))))
        self.random.shuffle(found)
        return found

    def strides(self, sizes: Sequence[int], is_output: bool) -> list[int]:
        """Strides in any order of the dimensions, with gaps. Elements of an input may share memory."""
        found = [0] * len(sizes)
        step = self.random.choice((1, 1, 2, 3))
        for dimension in self.random.sample(range(len(sizes)), len(sizes)):
            found[dimension] = step
            step = step * sizes[dimension] + self.random.choice((0, 0, 1, 5))
        if not is_output and self.chance(0.3):
            found[self.random.randrange(len(found))] = self.random.choice((0, 1, 3))
        return found

    def tensor(self, sizes: Sequence[int], data_type: str | None = None, is_output: bool = False) -> str:
        """A TensorDesc."""
        name = data_type or self.random.choice(DATA_TYPES)
        kinds = (f"dmlvk.DataType.{name}", f"np.{name.lower()}", repr(name.lower()), str(DATA_TYPES.index(name) + 1))
        arguments = [self.random.choice(kinds), self.integers(sizes)]
        if self.chance(self.wildness / 4):
            arguments[0] = self.random.choice((*NO_INTEGERS, "'complex64'", "np.dtype('f4,i4')", "'('", "12", "0"))
        strides: Sequence[int] | None = None
        if self.chance(0.4):
            strides = self.strides(sizes, is_output)
            arguments.append(self.integers(strides))
        if self.chance(0.15):
            last = sum((size - 1) * stride for size, stride in zip(sizes, strides or sizes, strict=True))
            reach = last if strides else math.prod(sizes)
            arguments.append(f"total_size_in_bytes={self.integer(8 * (reach + 1) + self.random.choice((0, 3, 100)))}")
        if self.chance(0.15):
            alignment = self.random.choice((0, 8, 16, 32, 256))
            arguments.append(f"guaranteed_base_offset_alignment={self.integer(alignment)}")
        if self.chance(self.wildness):
            arguments.append(f"flags={self.integer(self.random.choice((0, 1)))}")
        return f"dmlvk.TensorDesc({', '.join(arguments)})"

    def field(self, tensor: str) -> str:
        """The TensorDesc that is given as text, or one of NO_INTEGERS."""
        return self.random.choice(NO_INTEGERS) if self.chance(self.wildness / 8) else tensor

    def call(self, name: str, **arguments: str) -> str:
        # Most descriptors say without it what their output is.
        if name in OUTPUT_IS_IMPLIED and self.chance(0.25):
            arguments.pop("output_tensor", None)
        elif self.chance(self.wildness / 8):
            arguments.pop(self.random.choice(["output_tensor", *arguments]), None)
        return f"dmlvk.{name}({', '.join(f'{key}={value}' for key, value in arguments.items())})"

    def slice1(self) -> str:
        """SLICE1: a window inside the input."""
        sizes, kind = self.sizes(8), self.random.choice(DATA_TYPES)
        offsets = [self.random.randrange(size) for size in sizes]
        window = [self.random.randint(1, size - offset) for size, offset in zip(sizes, offsets, strict=True)]
        strides = [self.random.choice((1, 1, -1, 2, -3, 2**31 - 1, -(2**31))) for _ in sizes]
        most = [1 + (size - 1) // abs(stride) for size, stride in zip(window, strides, strict=True)]
        output = [size if self.chance(0.7) else self.random.randint(1, size) for size in most]
        return self.call(
            "Slice1Desc",
            input_tensor=self.field(self.tensor(sizes, kind)),
            output_tensor=self.field(self.tensor(output, kind, is_output=True)),
            input_window_offsets=self.integers(offsets),
            input_window_sizes=self.integers(window),
            input_window_strides=self.integers(strides),
        )

    def slice(self) -> str:
        """SLICE inside the input; the output may be left out."""
        extents, kind = self.sizes(8), self.random.choice(DATA_TYPES)
        offsets = [self.random.randrange(extent) for extent in extents]
        strides = [self.random.choice((1, 1, 2, 3, 2**31 - 1, 2**32 - 1)) for _ in extents]
        sizes = [
            self.random.randint(1, 1 + (extent - 1 - offset) // stride)
            for extent, offset, stride in zip(extents, offsets, strides, strict=True)
        ]
        arguments = {
            "input_tensor": self.field(self.tensor(extents, kind)),
            "offsets": self.integers(offsets),
            "sizes": self.integers(sizes),
            "strides": self.integers(strides),
        }
        arguments["output_tensor"] = self.field(self.tensor(sizes, kind, is_output=True))
        return self.call("SliceDesc", **arguments)

    def one_hot(self) -> str:
        """ONE_HOT."""
        sizes, kind = self.sizes(8), self.random.choice(DATA_TYPES)
        axis = self.random.randrange(len(sizes))
        indices = [1 if k == axis else size for k, size in enumerate(sizes)]
        values = [1] * len(sizes)
        values[self.random.randrange(len(sizes))] = self.random.choice((2, 2, 3, 7))
        return self.call(
            "OneHotDesc",
            indices_tensor=self.field(self.tensor(indices, self.random.choice(("INT32", "INT64", "UINT32", "UINT64")))),
            values_tensor=self.field(self.tensor(values, kind)),
            output_tensor=self.field(self.tensor(sizes, kind, is_output=True)),
            axis=self.integer(axis),
        )

    def value(self, kind: str) -> str:
        """The value that DIAGONAL_MATRIX1 fills with."""
        if self.chance(self.wildness):
            return self.random.choice(NO_INTEGERS)
        if kind.startswith("FLOAT"):
            values = ("0.0", "-0.0", "1.5", "math.nan", "-math.inf", "2**24 + 1", "Fraction(1, 3)", "np.float16(0.1)",
                      "np.longdouble(1) / 3", "1e-45", "np.uint8(200)")  # fmt: skip
            return self.random.choice(values)
        return self.integer(self.random.choice((0, 1, 127, RANGES[kind.lower()][1])))

    def diagonal_matrix1(self) -> str:
        """DIAGONAL_MATRIX1."""
        sizes, kind = self.sizes(4, 2), self.random.choice(DATA_TYPES)
        limits = (0, 1, -1, 5, -7, 2**31 - 1, -(2**31), 300)
        arguments = {
            "output_tensor": self.field(self.tensor(sizes, kind, is_output=True)),
            "value": self.value(kind),
            "diagonal_fill_begin": self.integer(self.random.choice(limits)),
            "diagonal_fill_end": self.integer(self.random.choice(limits)),
        }
        if self.chance(0.6):
            arguments["input_tensor"] = self.field(self.tensor(sizes, kind))
        if self.chance(0.2):
            arguments["value_data_type"] = f"dmlvk.DataType.{kind}"
        return self.call("DiagonalMatrix1Desc", **arguments)

    def diagonal_matrix(self) -> str:
        """DIAGONAL_MATRIX."""
        sizes, kind = self.sizes(4, 2), self.random.choice(DATA_TYPES)
        values = ("0.0", "-0.0", "1.5", "10.6", "np.float32(3)", "np.array(7)", "b'\\0\\0\\x80?'")
        return self.call(
            "DiagonalMatrixDesc",
            output_tensor=self.field(self.tensor(sizes, kind, is_output=True)),
            offset=self.integer(self.random.choice((0, 1, -1, 5, -7, 2**31 - 1, -(2**31), 300))),
            value=self.value(kind) if self.chance(0.3) else self.random.choice(values),
        )

    def convolution(self) -> str:
        """QUANTIZED_LINEAR_CONVOLUTION, of rank 3 or 4."""
        spatial = self.random.choice((1, 2, 2))
        draw = self.random.randint
        groups = self.random.choice((1, 1, 2, 3))
        channels, filters = groups * draw(1, 5), groups * draw(1, 5)
        kernel = [draw(1, 4) for _ in range(spatial)]
        attributes = {
            "strides": [draw(1, 3) for _ in kernel],
            "dilations": [draw(1, 3) for _ in kernel],
            "start_padding": [draw(0, 3) for _ in kernel],
            "end_padding": [draw(0, 3) for _ in kernel],
        }
        reach = [1 + (size - 1) * d for size, d in zip(kernel, attributes["dilations"], strict=True)]
        padding = [a + b for a, b in zip(attributes["start_padding"], attributes["end_padding"], strict=True)]
        inputs = [max(1, r - p) + draw(0, 6) for r, p in zip(reach, padding, strict=True)]
        outputs = [
            (size + p - r) // stride + 1
            for size, p, r, stride in zip(inputs, padding, reach, attributes["strides"], strict=True)
        ]
        batch = draw(1, 2)
        kinds = {name: self.random.choice(("INT8", "UINT8")) for name in ("input", "filter", "output")}

        def parameter(kind: str, per_channel: bool) -> str:
            rank = draw(1, 4)
            many = [1, filters, 1, 1][:rank] if rank > 1 else [filters]
            return self.field(self.tensor(many if per_channel else [1] * rank, kind))

        arguments = {
            "input_tensor": self.field(self.tensor([batch, channels, *inputs], kinds["input"])),
            "filter_tensor": self.field(self.tensor([filters, channels // groups, *kernel], kinds["filter"])),
            "output_tensor": self.field(self.tensor([batch, filters, *outputs], kinds["output"], is_output=True)),
        }
        for name, kind in kinds.items():
            arguments[f"{name}_scale_tensor"] = parameter("FLOAT32", name == "filter" and self.chance(0.5))
            if self.chance(0.6):
                arguments[f"{name}_zero_point_tensor"] = parameter(kind, name == "filter" and self.chance(0.5))
        if self.chance(0.5):
            arguments["bias_tensor"] = self.field(self.tensor([1, filters, 1, 1][: 2 + spatial], "INT32"))
        numbers = {name: self.integers(values) for name, values in attributes.items()}
        return self.call("QuantizedLinearConvolutionDesc", **arguments, **numbers, group_count=self.integer(groups))

    def memory(self) -> str:
        """Buffers and tensors on the device with little memory. The tensors are also written to."""
        draw = self.random.randint
        if self.chance(0.3):
            return f"tensor = small.tensor({self.tensor(self.sizes(4))})"
        size, place = draw(1, 5000), 16 * draw(0, 20)
        tensor = self.tensor([draw(1, 300)], self.random.choice(("UINT8", "INT32")))
        offset = self.integer(place if self.chance(0.8) else draw(0, 6000))
        return f"tensor = small.buffer({self.integer(size)}).tensor({tensor}, {offset})"

    def one_liner(self) -> str:
        """The operators as functions."""
        draw = self.random.randint
        devices = ("device.name", "device.name.upper()", "0", "'no such device'", *NO_INTEGERS)
        device = self.random.choice(devices) if self.chance(self.wildness) else "device"
        if self.chance(0.3):
            numbers = ", ".join(
                f"{name}={self.integers([draw(0, 2)])}"
                for name in ("input_window_offsets", "input_window_sizes", "input_window_strides")
            )
            return f"dmlvk.slice1({self.array('[3, 4, 5]')}, {numbers}, device={device})"
        if self.chance(0.4):
            numbers = f"output_length={self.integer(draw(1, 9))}, axis={self.integer(draw(-2, 1))}"
            return f"dmlvk.one_hot({self.array('[[0], [1]]')}, {self.array('[0, 1]')}, {numbers}, device={device})"
        if self.chance(0.5):
            arguments = [
                f"sizes={self.integers(self.sizes(3, 2, largest=0.0))}",
                f"value={self.value('FLOAT32')}",
                f"diagonal_fill_begin={self.integer(draw(-3, 3))}",
                f"diagonal_fill_end={self.integer(draw(-3, 3))}",
                f"device={device}",
            ]
            if self.chance(0.5):
                arguments.append(f"dtype={self.random.choice(('np.float32', 'dmlvk.DataType.INT8', *NO_INTEGERS))}")
            return f"dmlvk.diagonal_matrix1({', '.join(arguments)})"
        right = ("np.zeros((1, 2, 5, 5), np.uint8)", "0.5", "np.zeros((3, 2, 2, 2), np.int8)", "[0.5, 1, 2]", "1")
        arrays = [self.array(text) for text in right]
        names = ("strides", "dilations", "start_padding", "end_padding")
        options = [f"{name}={self.integers([draw(1, 2), draw(1, 2)])}" for name in names if self.chance(0.4)]
        options += [f"{name}={self.array('3')}" for name in ("input_zero_point", "bias", "output_zero_point")
                    if self.chance(0.3)]  # fmt: skip
        if self.chance(0.2):
            options.append(f"group_count={self.integer(1)}")
        return f"dmlvk.quantized_linear_convolution({', '.join([*arrays, *options, f'device={device}'])})"

    def array(self, right: str) -> str:
        """The array that is given as text, or one of NO_INTEGERS."""
        return self.random.choice(NO_INTEGERS) if self.chance(self.wildness) else right

    def other(self) -> str:
        """Other calls that take numbers: waits, selectors, plans, profiles, calls of operators."""
        number, odd = self.integer(self.random.choice((0, 1, 16))), self.random.choice(NO_INTEGERS)
        limits = (
            "max_storage_buffer_range", "max_compute_work_group_count", "max_buffer_size",
            "min_storage_buffer_offset_alignment", "max_compute_shared_memory_size",
        )  # fmt: skip
        limit = f"{self.random.choice(limits)}={number}"
        tensor = self.random.choice((odd, "operands['input_tensor']", "operands['output_tensor']"))
        path = self.random.choice(("'tiles'", "'direct'", "'integer'", "'matrix:1x1x1:1x1'", "'x' * 5000", odd))
        # Endless iterators are excluded: `submit`, like `list`, reads an iterator to its end.
        listed = self.random.choice(("None", "2.5", "int", "{}", "binding", "[binding]", f"[binding, {odd}]"))
        return self.random.choice(
            (
                f"submission.wait({number})",
                f"submission.wait({odd})",
                f"choose({number})",
                f"choose({odd})",
                f"device.plan({self.operator()}, {path}, {{'input_tensor': {number}}})",
                f"p = device.profile; narrower(replace(p, limits=replace(p.limits, {limit})), p)",
                f"operator(**operands); operator(**{{**operands, 'input_tensor': {tensor}}})",
                f"operator.bind(**{{**operands, 'output_tensor': {tensor}}})",
                f"device.submit({listed})",
                f"operands['input_tensor'].write({odd})",
                f"device.tensor({odd})",
            )
        )


class _Choices:
    """What the rules of a declaration leave open, drawn by a generator; tensors are packed."""

    def __init__(self, generator: Generator) -> None:
        self._generator = generator

    def one_of(self, name: str, options: Sequence[Any]) -> Any:
        return self._generator.random.choice(options)

    def integer(self, name: str, low: int, high: int) -> int:
        return self._generator.random.randint(low, high)

    def sizes(self, name: str, rank: int) -> tuple[int, ...]:
        return tuple(self._generator.sizes(rank, rank, largest=0.0))

    def tensor(self, name: str, data_type: dmlvk.DataType, sizes: Sequence[int]) -> dmlvk.TensorDesc:
        return dmlvk.TensorDesc(data_type, sizes)

    def element(self, name: str, data_type: dmlvk.DataType) -> bytes:
        return self._generator.random.randbytes(data_type.size_in_bytes)
