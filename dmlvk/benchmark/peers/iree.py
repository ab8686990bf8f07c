"""IREE on Vulkan: ONNX's QLinearConv, compiled for the device. It takes one scale for the whole filter."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dmlvk._common import files
from dmlvk.benchmark.peers.onnx_runtime import model_of
from dmlvk.benchmark.peers.peer import (
    OTHER_ARITHMETIC,
    OperatorPeer,
    Trial,
    UnsupportedError,
    missing_package,
    package_version,
)
from dmlvk.benchmark.timing import time_on_host
from dmlvk.conformance.case import Workload
from dmlvk.operators import QuantizedLinearConvolutionDesc


class IREE(OperatorPeer):
    """IREE's compiler and runtime."""

    name = "iree"
    runs_on: ClassVar[str] = "Vulkan"
    operators = (QuantizedLinearConvolutionDesc,)

    def absence(self) -> str | None:
        missing = missing_package("iree.compiler", "iree.runtime", "onnx")
        if missing:
            return missing
        import iree.runtime

        return None if iree.runtime.get_driver("vulkan").query_available_devices() else "IREE sees no Vulkan device"

    def version(self) -> str:
        return package_version("iree-base-compiler")

    def measure(self, workload: Workload, expected: npt.NDArray[Any], rounds: int) -> Trial:
        import iree.compiler.tools
        import iree.runtime
        from iree.compiler.tools.import_onnx import __main__ as importer

        if not isinstance(workload.desc, QuantizedLinearConvolutionDesc):
            raise UnsupportedError(f"{self.name} takes convolutions only")
        scale = np.full((1, 1, 1, 1), 0.01, np.float32)
        inputs = {**workload.inputs, "filter_scale_tensor": scale}
        model, feeds = model_of(replace(workload, inputs=inputs), expected)
        with tempfile.TemporaryDirectory() as folder:
            onnx_file, mlir_file = Path(folder) / "model.onnx", Path(folder) / "model.mlir"
            files.write_bytes(onnx_file, model)
            importer.main(importer.parse_arguments([str(onnx_file), "-o", str(mlir_file)]))
            compiled = iree.compiler.tools.compile_file(
                str(mlir_file), input_type="onnx", target_backends=["vulkan-spirv"]
            )
        config = iree.runtime.Config("vulkan")
        context = iree.runtime.SystemContext(config=config)
        context.add_vm_module(iree.runtime.VmModule.copy_buffer(context.instance, compiled))
        (module,) = (value for name, value in context.modules.items() if name != "hal")
        (name,) = (name for name in module.vm_module.function_names if not name.startswith("__") and "$" not in name)
        function = module[name]
        arrays = [iree.runtime.asdevicearray(config.device, array) for array in feeds.values()]
        results: list[Any] = []

        def step(_: int) -> None:
            results[:] = [function(*arrays)]

        return Trial(time_on_host(step, rounds), OTHER_ARITHMETIC)
