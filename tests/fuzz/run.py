"""Runs a case and reports a wrong outcome."""

from __future__ import annotations

import itertools
import linecache
import math
import time
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

import dmlvk
from dmlvk.conformance.case import Case, Workload
from dmlvk.conformance.results import Status
from dmlvk.conformance.running.execution import Devices, execute
from dmlvk.operators import OperatorDesc
from dmlvk.runtime.elements import element_view
from dmlvk.vulkan.narrower_profile import narrower
from dmlvk.vulkan.physical_device import choose
from tests.fuzz.generate import Generator
from tests.layouts import random_bytes
from tests.vulkan.variants import copy_desc

PERMITTED = (dmlvk.DescriptorError, dmlvk.BindingError, dmlvk.DeviceError, OverflowError, TypeError, ValueError)
LONGEST_MESSAGE = 2000
LONGEST_SECONDS = 10.0
# Operators run on the device and in NumPy only if their tensors have at most this many bytes.
SMALL = 1 << 20
SMALL_SEGMENTS = 64
# The devices are opened anew after so many runs, because pipelines are kept as long as their device.
RUNS_A_DEVICE = 400
PACKAGE = Path(dmlvk.__file__).parent


class Fuzzer:
    """The devices, tensors and operators that the cases use.

    Parameters
    ----------
    selector : str
        As `dmlvk.Device` takes it.

    Attributes
    ----------
    accepted, refused, compared : int
        Numbers of cases: without an error, with a permitted error, and run and compared with the reference.
    """

    def __init__(self, selector: str) -> None:
        self.accepted = self.refused = self.compared = 0
        self._selector = selector
        self._open()

    def _open(self) -> None:
        self.device = dmlvk.Device(self._selector)
        # Little memory, so that a wrong size exceeds it at once. Two tensors beside the cases' tensors are guards.
        limits = replace(
            self.device.profile.limits, max_memory_allocation_size=1 << 20, max_memory_allocation_count=SMALL_SEGMENTS
        )
        self.small = dmlvk.Device(self._selector, profile=replace(self.device.profile, limits=limits))
        self.canary = random_bytes(1, 256)
        self.canaries = [self.small.tensor(self.canary) for _ in range(2)]
        self.devices = Devices(self._selector)
        desc = dmlvk.TensorDesc(dmlvk.DataType.INT32, (4, 8))
        self.operator = self.device.compile(copy_desc(desc))
        self.operands = {name: self.device.tensor(desc) for name in ("input_tensor", "output_tensor")}
        self._runs = 0

    def close(self) -> None:
        """Close the devices."""
        self.devices.close()
        self.small.close()
        self.device.close()

    def run(self, seed: int, number: int) -> str | None:
        """Run a case. Returns the fault and the case's text, or None."""
        text = Generator(seed, number).case()
        try:
            wrong = self.run_text(text, f"fuzz:{seed}:{number}")
        except Exception as error:
            wrong = f"{type(error).__name__}: {str(error)[:LONGEST_MESSAGE]}"
        return None if wrong is None else f"case {number} of seed {seed}: {wrong}\n    {text}"

    def run_text(self, text: str, name: str = "fuzz") -> str | None:
        """Run a case that is given as text. Returns the fault, or None."""
        names: dict[str, Any] = {
            "dmlvk": dmlvk, "np": np, "math": math, "itertools": itertools, "Fraction": Fraction, "Decimal": Decimal,
            "replace": replace, "choose": choose, "narrower": narrower,
            "device": self.device, "small": self.small, "operator": self.operator, "operands": dict(self.operands),
            "submission": self.operator(**self.operands), "binding": self.operator.bind(**self.operands),
        }  # fmt: skip
        start = time.perf_counter()
        wrong = None
        try:
            exec(text, names)
        except PERMITTED as error:
            self.refused += 1
            wrong = unhelpful(error)
        except Exception as error:
            wrong = f"{type(error).__name__} is none of the errors that it may be: {str(error)[:300]}"
        else:
            self.accepted += 1
        seconds = time.perf_counter() - start
        if wrong is None and seconds > LONGEST_SECONDS:
            wrong = f"it took {seconds:.1f} s"
        if wrong is None and "tensor" in names:
            wrong = self._written(names["tensor"])
        if wrong is None and "desc" in names:
            wrong = self._run(names["desc"], name)
        return wrong

    def _written(self, tensor: dmlvk.Tensor) -> str | None:
        """Write a whole tensor, and check the other tensors and `memory_used`. Returns the fault, or None."""
        size = tensor.desc.total_size_in_bytes
        content = random_bytes(size % 1000, size).tobytes()
        tensor.write_bytes(content)
        if tensor.read_bytes() != content:
            return "what was written is not what is read"
        if any(canary.read_bytes() != self.canary.tobytes() for canary in self.canaries):
            return "writing changed another tensor"
        if not size <= self.small.memory_used <= SMALL_SEGMENTS << 20:
            return f"memory_used is {self.small.memory_used}"
        return None

    def _run(self, desc: OperatorDesc, name: str) -> str | None:
        if eval(repr(desc), dict(vars(dmlvk))) != desc:
            return f"its repr makes another descriptor: {desc}"
        self.device.plan(desc)
        if sum(tensor.total_size_in_bytes for tensor in desc.tensors.values()) > SMALL:
            return None
        if self._runs >= RUNS_A_DEVICE:
            self.close()
            self._open()
        self._runs += 1
        inputs = inputs_of(desc, name)
        result = execute(Case(name, lambda: Workload(desc, inputs)), self.devices, "device", 1)
        self.compared += 1
        return None if result.status is Status.PASS else f"{result.status.name} {result.reason}: {result.message}"


def inputs_of(desc: OperatorDesc, name: str) -> Mapping[str, np.ndarray]:
    """Elements for every input. Elements that share memory are equal."""
    random = np.random.default_rng(list(name.encode()))
    inputs = {}
    for field in desc.input_fields:
        tensor = desc.tensors.get(field)
        if tensor is None:
            continue
        dtype = tensor.data_type.numpy_dtype
        count = tensor.total_size_in_bytes // dtype.itemsize + 1
        memory = np.frombuffer(random.bytes(count * dtype.itemsize), dtype).copy()
        if field.endswith("scale_tensor"):
            memory = (10.0 ** random.uniform(-6, 3, count)).astype(dtype)
        elif field == "indices_tensor":
            small = random.integers(0, 20, count) - (10 if tensor.data_type.is_signed_integer else 0)
            memory = np.where(random.integers(0, 4, count) > 0, small.astype(dtype), memory)
        inputs[field] = element_view(tensor, memory.view(np.uint8)).copy()
    return inputs


def unhelpful(error: Exception) -> str | None:
    """The fault of a permitted error: a wrong length, or an error that dmlvk did not raise on purpose."""
    message = str(error)
    if not 10 <= len(message) <= LONGEST_MESSAGE:
        return f"a {type(error).__name__} of {len(message)} characters: {message[:300]}"
    assert error.__traceback__ is not None
    innermost: TracebackType = error.__traceback__
    while innermost.tb_next is not None:
        innermost = innermost.tb_next
    file, line = innermost.tb_frame.f_code.co_filename, innermost.tb_lineno
    is_ours = Path(file).is_relative_to(PACKAGE)
    if is_ours and "raise " not in linecache.getline(file, line) and "np.asarray(" not in linecache.getline(file, line):
        return f"a {type(error).__name__} that {Path(file).name}:{line} did not mean: {message[:300]}"
    return None
