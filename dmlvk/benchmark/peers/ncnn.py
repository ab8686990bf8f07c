"""ncnn on Vulkan: its int8 convolution, requantized to int8.

It is symmetric (no zero points), takes one image at a time and rounds halves away from zero. Its Python interface moves
data between host and device in each call. Therefore a long chain of convolutions is timed against a short one: the
difference contains convolutions alone. That works for layers whose output can be the next layer's input. The time of
one image counts for each image of the batch.
"""

from __future__ import annotations

import os
import statistics
import struct
import tempfile
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dmlvk._common import files
from dmlvk.benchmark.peers.peer import (
    OTHER_ARITHMETIC,
    OperatorPeer,
    Trial,
    UnsupportedError,
    missing_package,
    package_version,
)
from dmlvk.benchmark.timing import Times, time_on_host
from dmlvk.conformance.case import Workload
from dmlvk.operators import QuantizedLinearConvolutionDesc

SHORT, LONG = 1, 17  # convolutions in a chain
INT8_WEIGHTS = 0x000D4B38  # the tag before weights of one byte in ncnn's model format
REQUANTIZE = 101  # its int8_scale_term: scales for input, weights and output


class NCNN(OperatorPeer):
    """ncnn's Vulkan layers."""

    name = "ncnn"
    runs_on: ClassVar[str] = "Vulkan"
    operators = (QuantizedLinearConvolutionDesc,)

    def absence(self) -> str | None:
        missing = missing_package("ncnn")
        if missing:
            return missing
        import ncnn

        return None if ncnn.get_gpu_count() > 0 else "ncnn sees no Vulkan device"

    def version(self) -> str:
        return package_version("ncnn")

    def measure(self, workload: Workload, expected: npt.NDArray[Any], rounds: int) -> Trial:
        desc = workload.desc
        if not isinstance(desc, QuantizedLinearConvolutionDesc):
            raise UnsupportedError(f"{self.name} takes convolutions only")
        if desc.input_tensor.sizes[1:] != desc.output_tensor.sizes[1:]:
            raise UnsupportedError(f"{self.name} takes only layers whose output can be the next layer's input")
        short, long = (_time(desc, length, rounds) for length in (SHORT, LONG))
        share = desc.input_tensor.sizes[0] / (LONG - SHORT)
        before = statistics.median(short.seconds)
        seconds = tuple((after - before) * share for after in long.seconds)
        if min(seconds) <= 0:
            raise RuntimeError(f"{LONG} convolutions took no longer than {SHORT}: the times are too noisy")
        return Trial(Times(seconds), OTHER_ARITHMETIC)


def _time(desc: QuantizedLinearConvolutionDesc, length: int, rounds: int) -> Times:
    """A chain of convolutions on one image, from host to host."""
    import ncnn

    parameters, weights = _model(desc, length)
    image = np.random.default_rng(0).standard_normal(desc.input_tensor.sizes[1:], np.float32)
    with tempfile.TemporaryDirectory() as folder:
        files.write_text(Path(folder) / "chain.param", parameters)
        files.write_bytes(Path(folder) / "chain.bin", weights)
        network = ncnn.Net()
        network.opt.use_vulkan_compute = True
        if network.load_param(os.path.join(folder, "chain.param")) or network.load_model(
            os.path.join(folder, "chain.bin")
        ):
            raise RuntimeError("ncnn cannot load the model")
        source = ncnn.Mat(image)

        def step(_: int) -> None:
            extractor = network.create_extractor()
            extractor.input("blob0", source)
            status, _output = extractor.extract(f"blob{length}")
            if status:
                raise RuntimeError(f"ncnn failed with status {status}")

        times = time_on_host(step, rounds)
        network.clear()
    return times


def _model(desc: QuantizedLinearConvolutionDesc, length: int) -> tuple[str, bytes]:
    """ncnn's two files for a chain of the same convolution: its layers as text, its weights."""
    filters, channels, height, width = desc.filter_tensor.sizes
    count = filters * channels * height * width
    kind = "Convolution" if desc.group_count == 1 else "ConvolutionDepthWise"
    numbers = {
        0: filters, 1: width, 11: height, 2: desc.dilations[1], 12: desc.dilations[0], 3: desc.strides[1],
        13: desc.strides[0], 4: desc.start_padding[1], 14: desc.start_padding[0], 15: desc.end_padding[1],
        16: desc.end_padding[0], 5: 1, 6: count, 8: REQUANTIZE,
    }  # fmt: skip
    if desc.group_count > 1:
        numbers[7] = desc.group_count
    fields = " ".join(f"{key}={value}" for key, value in numbers.items())
    lines = ["7767517", f"{length + 1} {length + 1}", "Input input 0 1 blob0"]
    lines += [f"{kind} layer{i} 1 1 blob{i} blob{i + 1} {fields}" for i in range(length)]
    random = np.random.default_rng(1)
    data = random.integers(-127, 128, count, np.int8).tobytes()
    scales = filters if desc.group_count == 1 else desc.group_count
    layer = struct.pack("<I", INT8_WEIGHTS) + data + bytes(-count % 4)
    # The bias, then ncnn's scales: a float is multiplied by a scale to become a byte.
    layer += np.zeros(filters, np.float32).tobytes() + np.full(scales, 100, np.float32).tobytes()
    layer += np.float32(20).tobytes() + np.float32(2).tobytes()
    return "\n".join(lines) + "\n", layer * length
