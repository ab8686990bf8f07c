"""cuDNN through torch: convolutions in float16 in both layouts, and torch's quantized convolution of signed bytes.

None of them is the same operator. float16 moves twice the bytes and gives float16. The quantized convolution has no
zero points, and one scale for the whole filter. Neither adds a bias here: torch would need a separate pass for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dmlvk.benchmark.peers.peer import OTHER_ARITHMETIC, OperatorPeer, Peer, Trial, UnsupportedError
from dmlvk.benchmark.peers.torch import cuda_absence, rotation_of, time_on_cuda
from dmlvk.conformance.case import Workload
from dmlvk.operators import QuantizedLinearConvolutionDesc

PrepareConvolution = Callable[[QuantizedLinearConvolutionDesc, int], Callable[[int], Any]]


class OnCuDNN(Peer):
    """cuDNN through torch: a peer of operators and of networks."""

    runs_on: ClassVar[str] = "CUDA"

    def absence(self) -> str | None:
        return cuda_absence()

    def version(self) -> str:
        import torch

        return f"{torch.backends.cudnn.version()}, torch {torch.__version__}"


class CuDNN(OnCuDNN, OperatorPeer):
    """One way to convolve with cuDNN."""

    operators = (QuantizedLinearConvolutionDesc,)

    def __init__(self, name: str, prepare: PrepareConvolution) -> None:
        self.name = name
        self._prepare = prepare

    def measure(self, workload: Workload, expected: npt.NDArray[Any], rounds: int) -> Trial:
        import torch

        if not isinstance(workload.desc, QuantizedLinearConvolutionDesc):
            raise UnsupportedError(f"{self.name} takes convolutions only")
        if any(start != end for start, end in zip(workload.desc.start_padding, workload.desc.end_padding, strict=True)):
            raise UnsupportedError(f"{self.name} takes only paddings that are the same on both sides")
        with torch.no_grad():
            step = self._prepare(workload.desc, rotation_of(workload.desc))
            return Trial(time_on_cuda(step, rounds), OTHER_ARITHMETIC)


def _random(sizes: tuple[int, ...], seed: int) -> Any:
    """Random numbers so small that sums stay in the range of float16."""
    import torch

    return torch.from_numpy(np.random.default_rng(seed).standard_normal(sizes, np.float32) * 0.05).cuda()


def _float16(desc: QuantizedLinearConvolutionDesc, count: int, layout: str) -> Callable[[int], Any]:
    import torch

    torch.backends.cudnn.benchmark = True  # cuDNN's fastest algorithm, found by trials
    memory_format = getattr(torch, layout)
    image, weight = (
        _random(tensor.sizes, seed).half().contiguous(memory_format=memory_format)
        for seed, tensor in enumerate((desc.input_tensor, desc.filter_tensor))
    )
    images = [image.clone(memory_format=torch.preserve_format) for _ in range(count)]
    results: list[Any] = [None] * count  # kept: each run then writes memory that no cache holds

    def step(number: int) -> None:
        results[number % count] = None
        results[number % count] = torch.nn.functional.conv2d(
            images[number % count], weight, None, desc.strides, desc.start_padding, desc.dilations, desc.group_count
        )

    return step


def _int8(desc: QuantizedLinearConvolutionDesc, count: int) -> Callable[[int], Any]:
    import torch

    if desc.group_count != 1:
        raise UnsupportedError(f"torch's quantized convolution is measured with 1 group only, not {desc.group_count}")
    os.environ.setdefault("TORCH_CUDNN_V8_API_ENABLED", "1")
    torch.backends.cudnn.benchmark = True

    def quantized(sizes: tuple[int, ...], seed: int) -> Any:
        values = _random(sizes, seed).contiguous(memory_format=torch.channels_last)
        return torch.quantize_per_tensor(values, 0.001, 0, torch.qint8)

    image, weight = quantized(desc.input_tensor.sizes, 0), quantized(desc.filter_tensor.sizes, 1)
    images = [image.clone() for _ in range(count)]
    packed = torch.ops.quantized.conv2d_prepack(
        weight, None, list(desc.strides), list(desc.start_padding), list(desc.dilations), 1
    )
    results: list[Any] = [None] * count

    def step(number: int) -> None:
        results[number % count] = None
        results[number % count] = torch.ops.quantized.conv2d(images[number % count], packed, 0.05, 0)

    return step


CUDNN_FLOAT16_NHWC = CuDNN("cudnn-fp16-nhwc", lambda desc, count: _float16(desc, count, "channels_last"))
CUDNN_FLOAT16_NCHW = CuDNN("cudnn-fp16-nchw", lambda desc, count: _float16(desc, count, "contiguous_format"))
CUDNN_INT8 = CuDNN("cudnn-int8", _int8)
