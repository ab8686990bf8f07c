"""ONNX Runtime on the CPU, on a whole model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from dmlvk.benchmark.peers.peer import missing_package, package_version
from dmlvk.benchmark.timing import Times, time_on_host


class ONNXRuntime:
    """Its optimized run on all cores, and its plain run for comparison."""

    name = "onnxruntime"
    runs_on: ClassVar[str] = "CPU"

    def absence(self) -> str | None:
        """Why it cannot run here; None if it can."""
        return missing_package("onnxruntime")

    def version(self) -> str:
        return package_version("onnxruntime", "onnxruntime-gpu", "onnxruntime-directml")

    def measure(
        self, path: Path, feeds: Mapping[str, Any], rounds: int
    ) -> tuple[Times, dict[str, Any], dict[str, Any]]:
        """The times of the optimized run, and the outputs of the plain run and of the optimized one, by name."""
        plain, _ = _session(path, optimizes=False)
        plain_outputs = plain.run(None, dict(feeds))
        del plain
        optimized, names = _session(path, optimizes=True)
        results: list[Any] = []

        def step(_: int) -> None:
            results[:] = optimized.run(None, dict(feeds))

        times = time_on_host(step, rounds)
        return times, dict(zip(names, plain_outputs, strict=True)), dict(zip(names, results, strict=True))


def _session(path: Path, optimizes: bool) -> tuple[Any, list[str]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimizes else levels.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return session, [output.name for output in session.get_outputs()]
