"""One fresh process of `python -m bench.cold`: python -m bench.cold.process REQUEST RESULT

REQUEST is a file of JSON that `bench.cold.measurement` writes, beside the layers' data; RESULT is written.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

import numpy as np

import dmlvk
from bench.cold import ALL_CORES, FIRST_RESULT, ONE_THREAD
from dmlvk import QuantizedLinearConvolutionDesc
from dmlvk._common import files
from dmlvk._common.bits import equal_bits
from dmlvk.benchmark.cases.quantized_linear_convolution import Layer
from dmlvk.benchmark.networks.work import LayerWork, desc_of
from dmlvk.benchmark.records import Record, one_line
from dmlvk.runtime.compiled_operator import CompiledOperator
from dmlvk.runtime.tensor import Tensor

POISON = b"\xa5"

AnyResult = TypeVar("AnyResult")
CompiledConvolution = CompiledOperator[QuantizedLinearConvolutionDesc]


class ColdMeasurement:
    """The measurement of one process: it opens a device and compiles, calls and checks layers.

    layout: "nhwc" or "nchw".
    """

    def __init__(self, device: dmlvk.Device, batch: int, layout: str) -> None:
        self.device = device
        self.batch = batch
        self.layout = layout

    def desc(self, work: LayerWork) -> QuantizedLinearConvolutionDesc:
        """A layer whose constants are OWNED_BY_DML."""
        return desc_of(work.layer, self.batch, self.layout)

    def compiled(self, works: list[LayerWork], way: str) -> tuple[list[CompiledConvolution], list[float | None], float]:
        """All layers, compiled; the seconds of each, which threads that run at once do not have; and of all."""
        descs = [self.desc(work) for work in works]
        start = perf_counter()
        if way == ALL_CORES:
            operators = self.device.compile_all(descs)
            return operators, [None] * len(works), perf_counter() - start
        timed = [_timed(lambda desc=desc: self.device.compile(desc, wait=True)) for desc in descs]  # type: ignore[misc]
        return [operator for operator, _ in timed], [seconds for _, seconds in timed], perf_counter() - start

    def tensors(self, work: LayerWork) -> dict[str, Tensor]:
        """A layer's image and its output, which has no right byte yet."""
        desc = self.desc(work)
        image, output = self.device.tensor(desc.input_tensor), self.device.tensor(desc.output_tensor)
        image.write(work.batch(work.images, self.batch))
        output.write_bytes(POISON * output.desc.total_size_in_bytes)
        return {"input_tensor": image, "output_tensor": output}

    def called(self, operator: CompiledConvolution, work: LayerWork, tensors: dict[str, Tensor]) -> tuple[float, bool]:
        """The seconds until an operator's first result is there, and whether the result is right."""

        def call() -> None:
            operator.initialize(**work.constants)
            operator(**tensors).wait()

        _, seconds = _timed(call)
        expected = work.batch(work.expected, self.batch)
        return seconds, equal_bits(tensors["output_tensor"].numpy(), expected)

    def of_all(self, works: list[LayerWork], way: str) -> Record:
        """Compile all layers, then call each."""
        operators, compiled, together = self.compiled(works, way)
        rows = []
        for operator, work, seconds in zip(operators, works, compiled, strict=True):
            call_seconds, correct = self.called(operator, work, self.tensors(work))
            rows.append({"compile_seconds": seconds, "call_seconds": call_seconds, "correct": correct})
        return {"compile_seconds": together, "layers": rows}

    def of_each(self, works: list[LayerWork]) -> Record:
        """Compile and call each layer before the next. The first of them stands for what a process has run before."""
        rows = []
        for work in works:
            desc, tensors = self.desc(work), self.tensors(work)
            operator, seconds = _timed(lambda desc=desc: self.device.compile(desc))  # type: ignore[misc]
            call_seconds, correct = self.called(operator, work, tensors)
            rows.append({"compile_seconds": seconds, "call_seconds": call_seconds, "correct": correct})
        first, *others = rows
        together = sum(row["compile_seconds"] for row in others)
        return {"very_first": first, "compile_seconds": together, "layers": others}


def measure(request: Record, folder: Path) -> Record:
    """Do what a request says."""
    works = [_loaded(Layer(**layer), folder / f"{number}.npz") for number, layer in enumerate(request["layers"])]
    device, opened = _timed(lambda: dmlvk.Device(request["selector"]))
    with device:
        measurement = ColdMeasurement(device, request["batch"], request["layout"])
        cache = device.vulkan.pipelines.cache
        before = cache.added
        way = request["way"]
        assert way in (ONE_THREAD, ALL_CORES, FIRST_RESULT)
        # The first layer of a request is not one of the network's.
        found = measurement.of_each(works) if way == FIRST_RESULT else measurement.of_all(works[1:], way)
        return {"open_seconds": opened, "pipelines": cache.added - before, **found}


def save(work: LayerWork, path: Path) -> None:
    """Write a layer's data, for a process that is to measure it."""
    arrays: dict[str, Any] = {"images": work.images, "expected": work.expected, **work.constants}
    content = io.BytesIO()
    np.savez(content, **arrays)
    files.write_bytes(path, content.getvalue())


def _loaded(layer: Layer, path: Path) -> LayerWork:
    found: dict[str, Any] = files.read_arrays(path)
    images, expected = found.pop("images"), found.pop("expected")
    return LayerWork(layer, found, images, expected)


def _timed(call: Callable[[], AnyResult]) -> tuple[AnyResult, float]:
    start = perf_counter()
    result = call()
    return result, perf_counter() - start


def main(request: str, result: str) -> None:
    """Measure, and write the result; a device's refusal is a result too."""
    path = Path(request)
    try:
        found = measure(files.read_json(path), path.parent)
    except dmlvk.DeviceError as error:
        found = {"failure": one_line(error)}
    files.write_text(Path(result), json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
