"""The functions on torch tensors give the reference's bits, and torch's own results, for all types and layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import dmlvk
import dmlvk.torch
from dmlvk import DataType, TensorDesc
from tests.torch.tensors import DTYPES, LAYOUTS, assert_same_bits, random_tensor

WINDOW = {
    "input_window_offsets": (1, 0, 2),
    "input_window_sizes": (3, 5, 4),
    "input_window_strides": (-2, 3, 1),
}


def described(tensor: Any) -> TensorDesc:
    return TensorDesc(DataType.from_numpy(tensor.numpy().dtype), tensor.shape)


def expected_slice1(tensor: Any, sizes: tuple[int, ...] = (2, 2, 4)) -> np.ndarray:
    desc = dmlvk.Slice1Desc(
        input_tensor=described(tensor), output_tensor=TensorDesc(described(tensor).data_type, sizes), **WINDOW
    )
    return dmlvk.reference.run(desc, input_tensor=tensor.numpy())


class TestSlice1:
    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_every_type_keeps_its_bits(self, device: dmlvk.Device, dtype: Any) -> None:
        tensor = random_tensor((4, 5, 6), dtype)
        found = dmlvk.torch.slice1(tensor, **WINDOW, device=device)
        assert_same_bits(found, expected_slice1(tensor))
        own = tensor.view(torch.uint8).reshape(4, 5, 6, -1)[1:4, :, 2:][::2].flip(0)[:, ::3]
        assert found.view(torch.uint8).reshape(own.shape).equal(own)

    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.int64], ids=str)
    def test_every_layout(self, device: dmlvk.Device, layout: str, dtype: Any) -> None:
        tensor = LAYOUTS[layout](random_tensor((4, 5, 6), dtype))
        before = tensor.numpy().tobytes()
        assert_same_bits(dmlvk.torch.slice1(tensor, **WINDOW, device=device), expected_slice1(tensor))
        assert tensor.numpy().tobytes() == before

    def test_output_sizes_may_be_smaller(self, device: dmlvk.Device) -> None:
        tensor = random_tensor((4, 5, 6), torch.int16)
        found = dmlvk.torch.slice1(tensor, **WINDOW, output_sizes=[1, 2, 3], device=device)
        assert_same_bits(found, expected_slice1(tensor, (1, 2, 3)))

    def test_numbers_of_numpy_and_sizes_of_torch(self, device: dmlvk.Device) -> None:
        tensor = random_tensor((3, 4), torch.int32)
        found = dmlvk.torch.slice1(
            tensor,
            input_window_offsets=np.zeros(2, np.uint8),
            input_window_sizes=tensor.shape,
            input_window_strides=(stride for stride in (np.int8(-1), np.int8(1))),
            device=device,
        )
        assert found.equal(tensor.flip(0))

    def test_a_tensor_without_dimensions_is_one_element(self, device: dmlvk.Device) -> None:
        window = {"input_window_offsets": (0,), "input_window_sizes": (1,), "input_window_strides": (1,)}
        assert dmlvk.torch.slice1(torch.tensor(2.5), **window, device=device).tolist() == [2.5]


class TestDiagonalMatrix1:
    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_every_type(self, device: dmlvk.Device, dtype: Any) -> None:
        tensor = random_tensor((2, 4, 5), dtype)
        value: float = {torch.uint64: 2**64 - 3, torch.int64: -(2**63), torch.uint8: 250}.get(dtype, 7)
        if dtype.is_floating_point:
            value = 1 / 3
        desc = dmlvk.DiagonalMatrix1Desc(
            input_tensor=described(tensor),
            output_tensor=described(tensor),
            value=value,
            diagonal_fill_begin=1,
            diagonal_fill_end=-1,
        )
        found = dmlvk.torch.diagonal_matrix1(
            tensor, value=value, diagonal_fill_begin=1, diagonal_fill_end=-1, device=device
        )
        assert_same_bits(found, dmlvk.reference.run(desc, input_tensor=tensor.numpy()))

    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_every_layout(self, device: dmlvk.Device, layout: str) -> None:
        tensor = LAYOUTS[layout](torch.randn(3, 4, 5))
        found = dmlvk.torch.diagonal_matrix1(
            tensor, value=0.0, diagonal_fill_begin=-(2**31), diagonal_fill_end=1, device=device
        )
        assert found.equal(torch.triu(tensor, 1))

    @pytest.mark.parametrize(
        ("value", "dtype", "expected"),
        [
            (2, None, torch.int64),
            (2.5, None, torch.float32),
            (2, torch.uint8, torch.uint8),
            (2.5, DataType.FLOAT16, torch.float16),
            (2, np.dtype("uint16"), torch.uint16),
            (np.float64(2.5), torch.float64, torch.float64),
            (np.int16(-2), torch.int16, torch.int16),
        ],
    )
    def test_without_an_input(self, device: dmlvk.Device, value: Any, dtype: Any, expected: Any) -> None:
        found = dmlvk.torch.diagonal_matrix1(
            sizes=(3, 5), value=value, diagonal_fill_begin=0, diagonal_fill_end=1, dtype=dtype, device=device
        )
        assert_same_bits(found, (np.eye(3, 5) * float(value)).astype(str(expected).removeprefix("torch.")))

    def test_the_default_type_of_torch_counts(self, device: dmlvk.Device) -> None:
        torch.set_default_dtype(torch.float64)
        try:
            found = dmlvk.torch.diagonal_matrix1(
                sizes=(2, 2), value=0.1, diagonal_fill_begin=0, diagonal_fill_end=1, device=device
            )
        finally:
            torch.set_default_dtype(torch.float32)
        assert found.dtype == torch.float64 and found[0, 0] == 0.1


class TestOneHot:
    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_every_type_of_values(self, device: dmlvk.Device, dtype: Any) -> None:
        indices = torch.tensor([[2, -1, 0, 5]]).T
        values = random_tensor((2,), dtype)
        desc = dmlvk.OneHotDesc(
            indices_tensor=TensorDesc(DataType.INT64, (4, 1)),
            values_tensor=TensorDesc(described(values).data_type, (1, 2)),
            output_tensor=TensorDesc(described(values).data_type, (4, 5)),
            axis=1,
        )
        found = dmlvk.torch.one_hot(indices, values, output_length=5, axis=-1, device=device)
        expected = dmlvk.reference.run(desc, indices_tensor=indices.numpy(), values_tensor=values.numpy()[None])
        assert_same_bits(found, expected)

    @pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint32, torch.uint64], ids=str)
    @pytest.mark.parametrize("axis", [0, 1, 2])
    def test_every_type_of_indices_as_torch_has_it(self, device: dmlvk.Device, dtype: Any, axis: int) -> None:
        indices = torch.from_numpy(np.random.default_rng(axis).integers(0, 7, (3, 5)))
        values = torch.tensor([-0.5, 2.25], dtype=torch.float64)
        found = dmlvk.torch.one_hot(
            indices.to(dtype).unsqueeze(axis), values, output_length=7, axis=axis, device=device
        )
        hot = torch.nn.functional.one_hot(indices, 7).movedim(-1, axis)
        assert found.equal(values[hot])

    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_every_layout_of_indices(self, device: dmlvk.Device, layout: str) -> None:
        indices = LAYOUTS[layout](torch.from_numpy(np.random.default_rng(8).integers(0, 5, (4, 1, 6))))
        found = dmlvk.torch.one_hot(indices, torch.tensor([[[9]], [[3]]]), output_length=5, axis=1, device=device)
        hot = torch.nn.functional.one_hot(indices[:, 0], 5).movedim(-1, 1)
        assert found.equal(torch.tensor([9, 3])[hot])

    def test_an_index_without_dimensions(self, device: dmlvk.Device) -> None:
        found = dmlvk.torch.one_hot(torch.tensor(1), torch.tensor([4, 8]), output_length=3, axis=0, device=device)
        assert found.tolist() == [4, 8, 4]

    def test_values_of_a_higher_rank(self, device: dmlvk.Device) -> None:
        found = dmlvk.torch.one_hot(
            torch.tensor([1]), torch.tensor([[[[4, 8]]]]), output_length=3, axis=0, device=device
        )
        assert found.tolist() == [4, 8, 4]
