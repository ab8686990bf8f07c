"""Memory stays flat once the caches are full; each test is a process of its own, whose memory is its alone."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

import dmlvk

THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/statm")

PROGRAM = """
import gc, itertools, resource, sys
import dmlvk
from dmlvk.runtime import device as device_module
from dmlvk.vulkan import pipelines as pipelines_module

name, kept, total, measured_from = sys.argv[1], *map(int, sys.argv[2:])
if kept:
    device_module.OPERATOR_CACHE_SIZE = pipelines_module.PIPELINES_KEPT = kept


def descriptors():
    # Depthwise ones have a pipeline each, of the filter's size, strides and more.
    for size, stride, dilation, height in itertools.product((3, 5, 1, 2, 4), (1, 2), (1, 2), range(12, 400)):
        def tensor(kind, *sizes):
            return dmlvk.TensorDesc(kind, sizes)
        extent = (size - 1) * dilation + 1
        yield dmlvk.QuantizedLinearConvolutionDesc(
            input_tensor=tensor("int8", 1, 8, height, 12), input_scale_tensor=tensor("float32", 1),
            filter_tensor=tensor("int8", 8, 1, size, size), filter_scale_tensor=tensor("float32", 1),
            output_scale_tensor=tensor("float32", 1),
            output_tensor=tensor("int8", 1, 8, (height - extent) // stride + 1, (12 - extent) // stride + 1),
            strides=(stride, stride), dilations=(dilation, dilation), start_padding=(0, 0), end_padding=(0, 0),
            group_count=8,
        )


def memory():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 2**20


with dmlvk.Device(name) as device:
    for number, desc in enumerate(itertools.islice(itertools.cycle(descriptors()), total)):
        device.compile(desc)
        if number == measured_from:
            before = memory()
    handles = len(device.vulkan.handles._live)
    print(round(memory() - before), device.vulkan.pipelines.count, handles)
"""


def test_thousands_of_different_convolutions(device: dmlvk.Device) -> None:
    # With caches a tenth the size, a tenth of the work shows whether what is beyond them is given back.
    sizes = [0, 3000, 1000] if THOROUGH else [32, 400, 120]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), device.name, *map(str, sizes)],
        env={**os.environ, "DMLVK_VALIDATE": "0"},
        capture_output=True,
        text=True,
        timeout=None if THOROUGH else 300,
    )
    assert done.returncode == 0, done.stderr
    grown, pipelines, handles = map(int, done.stdout.split())
    assert pipelines <= (sizes[0] or 512)
    assert handles <= 2 * (sizes[0] or 512) + 64
    # A megabyte and more for each pipeline, on lavapipe, if none were given back.
    assert grown <= 64, f"{grown} MiB"


def test_operators_hold_their_pipelines(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    from dmlvk.vulkan import pipelines

    monkeypatch.setattr(pipelines, "PIPELINES_KEPT", 1)
    with dmlvk.Device(device.name) as own:
        desc = dmlvk.TensorDesc("int32", (64,))
        kinds = [dmlvk.TensorDesc(kind, (8, 8)) for kind in ("uint8", "int16", "float32", "int64")]
        operators = [
            own.compile(
                dmlvk.DiagonalMatrix1Desc(output_tensor=kind, value=1, diagonal_fill_begin=0, diagonal_fill_end=1)
            )
            for kind in kinds
        ]
        assert own.vulkan.pipelines.count == 1
        for kind, operator in zip(kinds, operators, strict=True):
            target = own.tensor(kind)
            operator(output_tensor=target)
            assert (target.numpy() == [[int(x == y) for x in range(8)] for y in range(8)]).all()
        assert own.tensor(desc).numpy().shape == (64,)
