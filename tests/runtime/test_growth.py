"""Memory stays constant once the caches are full. Each test is a separate process with memory of its own."""

from __future__ import annotations

import os
import sys
import textwrap

import pytest

import dmlvk
from dmlvk.vulkan import pipelines
from tests.amount import THOROUGH
from tests.programs import python

# Fewer than by default, so that they are soon as many as there may be.
OPERATORS_KEPT = 24 if THOROUGH else 8
PIPELINES_KEPT = pipelines.PIPELINES_KEPT_ON_CPU if THOROUGH else 8
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/statm")

PROGRAM = """
import gc, itertools, resource, sys
import dmlvk
from dmlvk.runtime import device as devices
from dmlvk.vulkan import pipelines

pipelines.PIPELINES_KEPT_ON_CPU = int(sys.argv.pop())
devices.OPERATORS_KEPT_ON_CPU = int(sys.argv.pop())
name, series, total, measured_from = *sys.argv[1:3], *map(int, sys.argv[3:])


def convolution(channels, filters, height, size, stride, dilation, groups):
    def tensor(kind, *sizes):
        return dmlvk.TensorDesc(kind, sizes)
    extent = (size - 1) * dilation + 1
    return dmlvk.QuantizedLinearConvolutionDesc(
        input_tensor=tensor("int8", 1, channels, height, 12), input_scale_tensor=tensor("float32", 1),
        filter_tensor=tensor("int8", filters, channels // groups, size, size),
        filter_scale_tensor=tensor("float32", 1), output_scale_tensor=tensor("float32", 1),
        output_tensor=tensor("int8", 1, filters, (height - extent) // stride + 1, (12 - extent) // stride + 1),
        strides=(stride, stride), dilations=(dilation, dilation), start_padding=(0, 0), end_padding=(0, 0),
        group_count=groups,
    )


def dense():
    # Some eighty pipelines among them, of which a new one comes now and then.
    for number in itertools.count():
        channels, filters = 1 + number % 40, 1 + number * 7 % 40
        yield convolution(channels, filters, 8 + number % 61, 3, 1 + number % 3, 1, 1)


def depthwise():
    # A pipeline each, large and small ones by turns.
    for height, size, stride, dilation in itertools.product(range(12, 400), (3, 1, 2), (1, 2), (1, 2)):
        yield convolution(8, 8, height, size, stride, dilation, 8)


def memory():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 2**20


with dmlvk.Device(name) as device:
    for number, desc in enumerate(itertools.islice(globals()[series](), total)):
        device.compile(desc)
        if number == measured_from:
            before = memory()
    handles = len(device.vulkan.context.handles._live)
    print(round(memory() - before), device.vulkan.pipelines.count, device.vulkan.pipelines.cache.added, handles)
"""


@pytest.mark.parametrize("series", ["dense", "depthwise"])
def test_thousands_of_different_convolutions(device: dmlvk.Device, series: str) -> None:
    # By day so many that operators are dropped. Few depthwise ones, whose pipelines take long to compile, are also more
    # than are kept.
    sizes = [3000, 1000] if THOROUGH else {"dense": [400, 200], "depthwise": [36, 20]}[series]
    limits = [OPERATORS_KEPT, PIPELINES_KEPT]
    done = python(
        *("-c", textwrap.dedent(PROGRAM), device.name, series, *sizes, *limits),
        env={**os.environ, "DMLVK_VALIDATE": "0"},
        timeout=None if THOROUGH else 300,
    )
    assert done.returncode == 0, done.stderr
    grown, kept, built, handles = map(int, done.stdout.split())
    assert kept <= PIPELINES_KEPT
    if device.name.startswith("llvmpipe") and (
        THOROUGH or series == "depthwise"
    ):  # SwiftShader does with two for either series
        assert built > 2 * PIPELINES_KEPT, "the limit was not reached"
    assert handles <= OPERATORS_KEPT + PIPELINES_KEPT + 64
    # If no memory were freed, each pipeline would take one to three megabytes on lavapipe.
    assert grown <= 16, f"{grown} MiB"


def test_operators_hold_their_pipelines(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipelines, "PIPELINES_KEPT_ON_CPU", 1)
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
