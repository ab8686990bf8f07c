"""Random torch tensors in many layouts, and a comparison by bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

import dmlvk

DTYPES = [getattr(torch, data_type.name.lower()) for data_type in dmlvk.DataType]


def random_tensor(sizes: Sequence[int], dtype: Any, seed: int = 0) -> Any:
    """A packed tensor of random bits: NaNs of all payloads, denormals and negative zeros among them."""
    data_type = dmlvk.DataType.from_numpy(str(dtype).removeprefix("torch."))
    content = np.random.default_rng(seed).bytes(int(np.prod(sizes)) * data_type.size_in_bytes)
    return torch.from_numpy(np.frombuffer(content, data_type.numpy_dtype).reshape(sizes).copy())


def _channels_last(tensor: Any) -> Any:
    """The dimension after the first one is the last one in memory, for any rank."""
    return tensor.movedim(1, -1).contiguous().movedim(-1, 1)


def _gaps(tensor: Any) -> Any:
    """Every other element of a tensor twice as wide, from its second row on."""
    sizes = (tensor.shape[0] + 1, *tensor.shape[1:-1], 2 * tensor.shape[-1])
    wide = torch.full(sizes, 77, dtype=torch.uint8).to(tensor.dtype)
    view = wide[1:, ..., ::2]
    view.copy_(tensor)
    return view


# Ways to lay the elements of a tensor of rank 2 and more in memory.
LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "packed": lambda tensor: tensor,
    "transposed": lambda tensor: tensor.transpose(0, -1).contiguous().transpose(0, -1),
    "channels last": _channels_last,
    "gaps": _gaps,
    "broadcast": lambda tensor: tensor[:1].expand(tensor.shape),
    "offset": lambda tensor: torch.cat([tensor.flatten()[:3], tensor.flatten()])[3:].reshape(tensor.shape),
    "overlapping": lambda tensor: tensor.flatten().as_strided(tensor.shape, (1,) * tensor.ndim),
}


def assert_same_bits(found: Any, expected: np.ndarray) -> None:
    """A packed tensor on the CPU with the type, sizes and bits of an array."""
    assert isinstance(found, torch.Tensor) and found.device.type == "cpu"
    assert found.is_contiguous() and not found.requires_grad
    assert tuple(found.shape) == expected.shape
    assert str(found.dtype) == f"torch.{expected.dtype.name}"
    assert found.numpy().tobytes() == np.ascontiguousarray(expected).tobytes()
