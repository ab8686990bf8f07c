"""The NumPy one-liners: what they accept, what they default to, and that they are the operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dmlvk
from dmlvk import DescriptorError, TensorDesc
from tests.argument_values import HUGE, MOST_CHARACTERS

OFFSETS, SIZES, STRIDES = (1, 0), (3, 5), (-2, 3)
GENERATOR = np.random.default_rng(4)


class TestSlice1:
    array = np.arange(20, dtype=np.int16).reshape(4, 5)
    expected = array[3:0:-2, ::3]

    def run(self, input: Any, device: dmlvk.Device | None, **options: Any) -> Any:
        return dmlvk.slice1(
            input,
            input_window_offsets=OFFSETS,
            input_window_sizes=SIZES,
            input_window_strides=STRIDES,
            device=device,
            **options,
        )

    def test_the_output_is_all_that_the_window_gives(self, device: dmlvk.Device) -> None:
        output = self.run(self.array, device)
        assert type(output) is np.ndarray and output.dtype == np.int16
        np.testing.assert_array_equal(output, self.expected)

    def test_output_sizes_may_be_smaller(self, device: dmlvk.Device) -> None:
        np.testing.assert_array_equal(self.run(self.array, device, output_sizes=(1, 2)), self.expected[:1])

    def test_any_array_like(self, device: dmlvk.Device) -> None:
        np.testing.assert_array_equal(self.run(self.array.tolist(), device), self.expected)
        np.testing.assert_array_equal(self.run(np.asfortranarray(self.array), device), self.expected)
        np.testing.assert_array_equal(self.run(self.array[::-1][::-1], device), self.expected)
        swapped = self.run(self.array.astype(self.array.dtype.newbyteorder()), device)
        assert swapped.dtype == np.int16
        np.testing.assert_array_equal(swapped, self.expected)

    def test_a_tensor_gives_a_tensor(self, device: dmlvk.Device) -> None:
        output = self.run(device.tensor(self.array), None)
        assert isinstance(output, dmlvk.Tensor) and output.device is device
        np.testing.assert_array_equal(output.numpy(), self.expected)

    @pytest.mark.parametrize(
        ("change", "field"),
        [
            ({"input_window_strides": (1, 0)}, r"input_window_strides\[1\]"),
            ({"input_window_strides": (1,)}, "input_window_strides"),
            ({"input_window_sizes": (4, 5)}, r"input_window_sizes\[0\]"),
            ({"input_window_sizes": 3}, "input_window_sizes"),
            ({"output_sizes": (3, 2)}, r"output_tensor.sizes\[0\]"),
            ({"output_sizes": (0, 2)}, r"sizes\[0\]"),
        ],
    )
    def test_errors_name_the_field(self, change: dict[str, Any], field: str) -> None:
        window: dict[str, Any] = {
            "input_window_offsets": OFFSETS,
            "input_window_sizes": SIZES,
            "input_window_strides": STRIDES,
        }
        with pytest.raises(DescriptorError, match=field):
            dmlvk.slice1(self.array, **(window | change))

    def test_dtypes_without_a_data_type_are_refused(self) -> None:
        with pytest.raises(TypeError, match="bool has no DirectML data type"):
            self.run(np.zeros((4, 5), bool), None)


def test_an_array_without_dimensions_is_one_element(device: dmlvk.Device) -> None:
    window: dict[str, Any] = {f"input_window_{name}": (1,) for name in ("sizes", "strides")}
    assert dmlvk.slice1(5, input_window_offsets=(0,), **window, device=device).tolist() == [5]
    assert dmlvk.one_hot(np.int64(2), [0, 7], output_length=3, axis=0, device=device).tolist() == [0, 0, 7]


class TestOneHot:
    @pytest.mark.parametrize("values", [[0, 1], [0.0, 1.0], np.array([[0, 1]], np.uint8), np.zeros((1, 1, 1, 2))])
    def test_values_get_the_rank_of_the_indices(self, device: dmlvk.Device, values: Any) -> None:
        output = dmlvk.one_hot([[0], [2], [-1]], values, output_length=4, axis=1, device=device)
        assert output.dtype == np.asarray(values).dtype
        off, on = np.asarray(values).ravel()
        np.testing.assert_array_equal(output, np.where(np.eye(4)[[0, 2, 3]] == 1, on, off))

    def test_a_negative_axis_counts_from_the_last(self, device: dmlvk.Device) -> None:
        output = dmlvk.one_hot(np.array([[1, 0]], np.uint32), [0, 1], output_length=2, axis=-2, device=device)
        np.testing.assert_array_equal(output, [[0, 1], [1, 0]])

    def test_a_tensor_gives_a_tensor(self, device: dmlvk.Device) -> None:
        indices = device.tensor(np.array([[1], [0]]))
        output = dmlvk.one_hot(indices, [5.0, 6.0], output_length=2, axis=1)
        assert isinstance(output, dmlvk.Tensor)
        np.testing.assert_array_equal(output.numpy(), [[5, 6], [6, 5]])

    @pytest.mark.parametrize(
        ("change", "field"),
        [
            ({"axis": 2}, "axis = 2"),
            ({"axis": -3}, "axis = -3"),
            ({"axis": 0}, r"indices_tensor.sizes\[0\] = 2"),
            ({"output_length": 0}, "output_length = 0"),
            ({"values": [1.0]}, "values_tensor.sizes"),
            ({"values": np.zeros((2, 1, 2))}, "values_tensor.sizes"),
            ({"indices": [[1.0], [2.0]]}, "indices_tensor.data_type = 'FLOAT64'"),
        ],
    )
    def test_errors_name_the_field(self, change: dict[str, Any], field: str) -> None:
        arguments: dict[str, Any] = {"indices": [[1], [2]], "values": [0.0, 1.0], "output_length": 3, "axis": 1}
        with pytest.raises(DescriptorError, match=field):
            dmlvk.one_hot(**(arguments | change))


class TestDiagonalMatrix1:
    def run(self, *arguments: Any, value: Any = 7, **options: Any) -> Any:
        return dmlvk.diagonal_matrix1(*arguments, value=value, diagonal_fill_begin=0, diagonal_fill_end=1, **options)

    @pytest.mark.parametrize("value", [7, 7.0, np.float16(7), np.uint8(7)])
    def test_without_an_input_the_dtype_is_that_of_the_value(self, device: dmlvk.Device, value: Any) -> None:
        output = self.run(sizes=(3, 4), value=value, device=device)
        assert output.dtype == np.asarray(value).dtype
        np.testing.assert_array_equal(output, 7 * np.eye(3, 4))

    @pytest.mark.parametrize("dtype", ["uint16", np.uint16, np.dtype(np.uint16), dmlvk.DataType.UINT16])
    def test_the_dtype_may_be_given(self, device: dmlvk.Device, dtype: Any) -> None:
        output = self.run(sizes=(3, 4), dtype=dtype, device=device)
        assert output.dtype == np.uint16
        np.testing.assert_array_equal(output, 7 * np.eye(3, 4))

    def test_an_input_keeps_its_dtype_and_sizes(self, device: dmlvk.Device) -> None:
        array = np.arange(12, dtype=np.float32).reshape(3, 4)
        expected = np.where(np.eye(3, 4), 7, array)
        for options in ({}, {"dtype": np.float32}, {"sizes": (3, 4)}):
            output = self.run(array, device=device, **options)
            assert output.dtype == np.float32
            np.testing.assert_array_equal(output, expected)
        assert self.run(array.tolist(), dtype="f4", device=device).dtype == np.float32

    def test_a_tensor_gives_a_tensor(self, device: dmlvk.Device) -> None:
        output = self.run(device.tensor(np.ones((2, 2), np.uint16)))
        assert isinstance(output, dmlvk.Tensor)
        np.testing.assert_array_equal(output.numpy(), [[7, 1], [1, 7]])

    def test_errors(self) -> None:
        with pytest.raises(TypeError, match="needs input or sizes"):
            self.run()
        with pytest.raises(TypeError, match="bool has no DirectML data type"):
            self.run(sizes=(2, 2), value=True)
        with pytest.raises(DescriptorError, match="same DataType"):
            self.run(np.ones((2, 2)), dtype=np.int8)
        with pytest.raises(DescriptorError, match=r"input_tensor\.sizes"):
            self.run(np.ones((2, 2)), sizes=(2, 3))
        with pytest.raises(DescriptorError, match="value = 300"):
            self.run(sizes=(2, 2), value=300, dtype=np.uint8)


class TestQuantizedLinearConvolution:
    input = GENERATOR.integers(0, 256, (2, 4, 7, 6)).astype(np.uint8)
    filter = GENERATOR.integers(-128, 128, (3, 4, 3, 2)).astype(np.int8)
    scale = np.array([0.01, 0.02, 0.03], np.float32)
    bias = np.array([500, -500, 0], np.int32)

    def expected(self, output_dtype: Any = np.uint8) -> np.ndarray:
        """By the reference, with a descriptor that is written out."""
        arrays: dict[str, np.ndarray] = {
            "input_tensor": self.input,
            "input_scale_tensor": np.full((1, 1, 1, 1), 0.25, np.float32),
            "input_zero_point_tensor": np.full((1, 1, 1, 1), 130, np.uint8),
            "filter_tensor": self.filter,
            "filter_scale_tensor": self.scale.reshape(1, 3, 1, 1),
            "filter_zero_point_tensor": np.array([1, -2, 3], np.int8).reshape(1, 3, 1, 1),
            "bias_tensor": self.bias.reshape(1, 3, 1, 1),
            "output_scale_tensor": np.full((1, 1, 1, 1), 0.5, np.float32),
            "output_zero_point_tensor": np.full((1, 1, 1, 1), 100, output_dtype),
        }
        desc = dmlvk.QuantizedLinearConvolutionDesc(
            **{name: TensorDesc(array.dtype, array.shape) for name, array in arrays.items()},  # type: ignore[arg-type]
            output_tensor=TensorDesc(output_dtype, (2, 3, 4, 6)),
            strides=(2, 1),
            dilations=(1, 1),
            start_padding=(1, 0),
            end_padding=(1, 1),
            group_count=1,
        )
        return dmlvk.reference.run(desc, **arrays)

    def run(self, device: dmlvk.Device | None, **changes: Any) -> Any:
        arguments: dict[str, Any] = {
            "input": self.input,
            "input_scale": 0.25,
            "filter": self.filter,
            "filter_scale": self.scale,
            "output_scale": 0.5,
            "input_zero_point": 130,
            "filter_zero_point": [1, -2, 3],
            "bias": self.bias,
            "output_zero_point": 100,
            "strides": (2, 1),
            "start_padding": (1, 0),
            "end_padding": (1, 1),
            "device": device,
        }
        return dmlvk.quantized_linear_convolution(**(arguments | changes))

    @pytest.mark.parametrize(
        "changes",
        [
            {},
            {"input_scale": np.float64(0.25), "input_zero_point": np.uint8(130), "output_zero_point": np.array(100)},
            {"input_scale": np.array([0.25], np.float32), "output_scale": np.full((1, 1, 1, 1), 0.5)},
            {"filter_scale": [0.01, 0.02, 0.03], "filter_zero_point": np.array([1, -2, 3]).reshape(1, 3, 1, 1)},
            {"filter_scale": scale.reshape(1, 3, 1, 1), "bias": bias.reshape(1, 3, 1, 1)},
            {"filter_scale": scale.reshape(1, 3), "bias": bias.tolist()},
        ],
    )
    def test_scales_zero_points_and_bias_come_in_many_forms(
        self, device: dmlvk.Device, changes: dict[str, Any]
    ) -> None:
        output = self.run(device, **changes)
        assert output.dtype == np.uint8
        np.testing.assert_array_equal(output, self.expected())

    @pytest.mark.parametrize("changes", [{"input_scale": 1e300}, {"filter_scale": np.array([0.1, -1e39, 0.1])}])
    def test_a_scale_beyond_float32_is_refused(self, device: dmlvk.Device, changes: dict[str, Any]) -> None:
        with pytest.raises(
            dmlvk.DescriptorError, match=r"(1e\+300|-1e\+39).*range of FLOAT32.*at most 3\.4028235e\+38"
        ):
            self.run(device, **changes)

    def test_the_output_dtype_is_given_or_that_of_the_zero_point_or_of_the_input(self, device: dmlvk.Device) -> None:
        for changes in ({"output_dtype": np.int8}, {"output_zero_point": np.int8(100)}):
            output = self.run(device, **changes)
            assert output.dtype == np.int8
            np.testing.assert_array_equal(output, self.expected(np.int8))
        assert self.run(device, output_zero_point=None).dtype == np.uint8

    @pytest.mark.parametrize(
        "spatial", [{"strides": (2,), "end_padding": (1,)}, {"strides": (1, 2), "end_padding": (0, 1)}]
    )
    def test_rank_3_takes_arrays_of_one_or_two_elements(self, device: dmlvk.Device, spatial: dict[str, Any]) -> None:
        image, filters = self.input[:, :, 0], self.filter[:, :, 0]
        changes = {"start_padding": (0, 0), **spatial}
        output = self.run(device, input=image, filter=filters, bias=self.bias.reshape(1, 3, 1, 1), **changes)
        expected = self.run(
            device,
            input=image[:, :, np.newaxis],
            filter=filters[:, :, np.newaxis],
            strides=(1, 2),
            start_padding=(0, 0),
            end_padding=(0, 1),
        )
        np.testing.assert_array_equal(output, expected[:, :, 0])

    def test_groups(self, device: dmlvk.Device) -> None:
        output = self.run(
            device,
            filter=np.tile(self.filter[:, :1], (4, 1, 1, 1))[:4],
            filter_scale=0.02,
            filter_zero_point=None,
            bias=None,
            group_count=4,
        )
        assert output.shape == (2, 4, 4, 6)

    def test_a_tensor_gives_a_tensor(self, device: dmlvk.Device) -> None:
        output = self.run(None, filter=device.tensor(self.filter))
        assert isinstance(output, dmlvk.Tensor)
        np.testing.assert_array_equal(output.numpy(), self.expected())

    @pytest.mark.parametrize(
        ("changes", "error", "match"),
        [
            ({"input_scale": "1"}, TypeError, "input_scale must be a real number"),
            ({"input_scale": True}, TypeError, "input_scale must be a real number"),
            ({"output_scale": None}, TypeError, "output_scale must be a real number or an array of them, not None"),
            ({"bias": "2"}, TypeError, "bias must be an integer or an array of integers, not str '2'"),
            ({"filter": None}, TypeError, "filter = None: must be numbers or an array"),
            ({"input_zero_point": 1.5}, TypeError, "input_zero_point must be an integer"),
            ({"input_zero_point": 256}, DescriptorError, "input_zero_point = 256.*0 to 255"),
            ({"filter_zero_point": [0, -129, 0]}, DescriptorError, "filter_zero_point = -129"),
            ({"bias": 2**31}, DescriptorError, "bias = 2147483648"),
            ({"bias": [1, 2]}, DescriptorError, "bias_tensor.sizes"),
            ({"filter_scale": [1.0, 2.0]}, DescriptorError, "filter_scale_tensor.sizes"),
            ({"input_scale": [1.0, 2.0]}, DescriptorError, "input_scale_tensor.sizes"),
            ({"input": np.zeros((2, 4, 7, 6), np.int16)}, DescriptorError, "input_tensor.data_type = 'INT16'"),
            ({"input": np.zeros((4, 7), np.uint8)}, DescriptorError, "input_tensor.sizes"),
            ({"input": np.zeros((2, 4, 0, 6), np.uint8)}, DescriptorError, r"sizes\[2\] = 0"),
            ({"filter": np.zeros((3, 4, 3), np.int8)}, DescriptorError, "filter_tensor.sizes"),
            ({"output_dtype": np.float32}, DescriptorError, "output_dtype = 'FLOAT32': .* expected int8 or uint8"),
            ({"output_zero_point": 1.5}, TypeError, "output_zero_point must be an integer"),
            ({"strides": (0, 1)}, DescriptorError, r"strides\[0\] = 0"),
            ({"strides": 2}, DescriptorError, "strides = 2"),
            ({"dilations": (1,)}, DescriptorError, "dilations"),
            ({"dilations": (9, 1)}, DescriptorError, "larger than the padded input"),
            ({"group_count": 3}, DescriptorError, "group_count = 3"),
            ({"end_padding": (2**32 - 99, 2**32 - 99)}, DescriptorError, r"output_tensor.sizes = \(2, 3, .* at most"),
        ],
    )
    def test_errors(self, changes: dict[str, Any], error: type[Exception], match: str) -> None:
        with pytest.raises(error, match=match):
            self.run(None, **changes)


class TestOneLiners:
    ARRAY = np.arange(20, dtype=np.int16).reshape(4, 5)

    def test_iterators_are_read_once(self, device: dmlvk.Device) -> None:
        output = dmlvk.slice1(
            self.ARRAY,
            input_window_offsets=iter((1, 0)),
            input_window_sizes=iter((3, 5)),
            input_window_strides=iter((np.int8(-2), 3)),
            device=device,
        )
        np.testing.assert_array_equal(output, self.ARRAY[3:0:-2, ::3])

    @pytest.mark.parametrize("field", ["strides", "dilations", "start_padding", "end_padding"])
    @pytest.mark.parametrize("value", [1, (1, 1.0), (np.array(1), 1), ([1], 1), (HUGE, 1), "11", (1, -1)])
    def test_a_convolution_s_numbers(self, field: str, value: Any) -> None:
        x = np.zeros((1, 1, 4, 4), np.uint8)
        with pytest.raises(dmlvk.DescriptorError, match=field) as caught:
            dmlvk.quantized_linear_convolution(x, 1.0, x, 1.0, 1.0, **{field: value})
        assert len(str(caught.value)) < MOST_CHARACTERS


class TestPooling:
    """Values, windows by default, and indices as a second result."""

    def test_the_largest_elements_and_where_they_are(self, device: dmlvk.Device) -> None:
        image = np.arange(48, dtype=np.int16).reshape(1, 1, 6, 8)[:, :, ::-1]
        pooled = dmlvk.max_pooling2(image, window_size=(2, 2), strides=(2, 2), device=device)
        assert pooled.dtype == np.int16 and pooled.tolist() == image[:, :, ::2, 1::2].tolist()
        pooled, indices = dmlvk.max_pooling2(image, window_size=[3, 3], return_indices=True, device=device)
        assert indices.dtype == np.uint32 and image.ravel()[indices].tolist() == pooled.tolist()
        steps: dict[str, Any] = {"start_padding": (1, 0), "end_padding": (0, 1), "dilations": (2, 3)}
        pooled_apart = dmlvk.max_pooling2(image, window_size=(2, 2), **steps, device=device)
        around = np.pad(image, ((0, 0), (0, 0), (1, 0), (0, 1)), constant_values=-1)
        taps = [around[:, :, y : y + 5, x : x + 6] for y in (0, 2) for x in (0, 3)]
        assert pooled_apart.tolist() == np.max(taps, axis=0).tolist()
        tensors = dmlvk.max_pooling2(device.tensor(image), window_size=[3, 3], return_indices=True)
        assert [each.tolist() for each in tensors] == [pooled.tolist(), indices.tolist()]

    def test_means(self, device: dmlvk.Device) -> None:
        image = np.arange(64, dtype=np.uint8).reshape(1, 4, 4, 4)
        mean = dmlvk.quantized_linear_average_pooling
        whole = mean(image, 0.5, 1.0, window_size=(4, 4), output_zero_point=np.int8(-3), device=device)
        assert whole.dtype == np.int8
        assert whole.ravel().tolist() == [1, 9, 17, 25]  # 3.75, 11.75, ... to the nearest, less 3
        each = mean(image, [1, 2, 3, 4], [1, 2, 3, 4], window_size=(1, 1), strides=(3, 3), device=device)
        assert each.tolist() == image[:, :, ::3, ::3].tolist()
        padded: dict[str, Any] = {"window_size": (2, 2), "start_padding": (1, 1), "strides": (4, 4), "device": device}
        assert mean(image, 1.0, 1.0, **padded).ravel().tolist() == [0, 16, 32, 48]
        assert mean(image, 1.0, 1.0, **padded, include_padding=True).ravel().tolist() == [0, 4, 8, 12]

    def test_what_is_refused_names_the_function_s_argument(self, device: dmlvk.Device) -> None:
        image = np.zeros((1, 1, 4, 4), np.uint8)
        with pytest.raises(dmlvk.DescriptorError, match=r"average_pooling\.input_zero_point = 300"):
            dmlvk.quantized_linear_average_pooling(image, 1, 1, window_size=(2, 2), input_zero_point=300, device=device)
        with pytest.raises(dmlvk.DescriptorError, match=r"MaxPooling2Desc\.input_tensor\.data_type"):
            dmlvk.max_pooling2(image.astype(np.float32), window_size=(2, 2), device=device)
