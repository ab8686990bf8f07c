"""What becomes of a model by ONNX Runtime and by dmlvk, and whether that is the same."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.fuzz.odd_models import OddModel
from tests.reference.onnx_runtime import ONNX_RUNTIME

# (what happened, outputs or words): "run", "refused" when loaded or "refused late", "wrong" for other exceptions.
Outcome = tuple[str, Any]
LONGEST_MESSAGE = 4000
# ONNX Runtime lays the outputs of an If's branches in memory that it takes before they run. Where its inference is
# wrong about their sizes, for a stale value_info or for axes [], it refuses the sizes that the branch has. No caller
# gives memory for outputs here, so this message is always of its own plan.
OWN_PLAN = ("The output OrtValue provided for output", "but the computed output shape for this run is")


class Comparison(NamedTuple):
    """What a model's comparison found.

    Attributes
    ----------
    happened : str
        What ONNX Runtime did: "run", "run, with other values each time", "refused" when it was loaded or "refused
        late", "refused its own plan", or "ended" with its process.
    fault : str, optional
    """

    happened: str
    fault: str | None


def compared(device: str, odd: OddModel) -> Comparison:
    """The outcome of a model on a device beside that of ONNX Runtime. Both run in a process of their own."""
    try:
        expected: Outcome = ONNX_RUNTIME.call("an odd model", by_onnx_runtime, odd.model, odd.feeds, False)
    except pytest.fail.Exception:
        return Comparison("ended", None)  # which says nothing of the model
    try:
        found: Outcome = ONNX_RUNTIME.call("an odd model on dmlvk", by_dmlvk, device, odd.model, odd.feeds)
    except pytest.fail.Exception as error:
        return Comparison(expected[0], str(error))
    if expected[0] == "refused late" and all(words in expected[1] for words in OWN_PLAN):
        expected = "refused its own plan", expected[1]
    fault = fault_of(found, expected)
    if fault is not None and found[0] != "wrong" and expected[0] == "run":
        # Fused convolutions have the bits of the optimized model. And ONNX Runtime's optimizer breaks some models: a
        # Loop of no turns in a branch that it takes out of its If.
        optimized = ONNX_RUNTIME.call("an odd model", by_onnx_runtime, odd.model, odd.feeds, True)
        is_refused = found[0] != "run" and optimized[0] != "run"
        fault = None if is_refused or fault_of(found, optimized) is None else fault
    if fault is not None and expected[0] == "run" and _is_unsteady(odd, expected[1]):
        return Comparison("run, with other values each time", None)
    return Comparison(expected[0], fault)


def _is_unsteady(odd: OddModel, first: list[Any]) -> bool:
    """Whether ONNX Runtime itself gives other values at the next runs: some kernels leave outputs unwritten."""
    again: list[Outcome] = [
        ONNX_RUNTIME.call("an odd model", by_onnx_runtime, odd.model, odd.feeds, False) for _ in range(3)
    ]
    return any(happened == "run" and not _equal(found, first) for happened, found in again)


def fault_of(found: Outcome, expected: Outcome) -> str | None:
    """The fault of what dmlvk did, beside what ONNX Runtime did; None if there is none."""
    (ours, mine), (theirs, right) = found, expected
    described = f"dmlvk {ours}: {_shown(mine)}\n    ONNX Runtime {theirs}: {_shown(right)}"
    if ours == "wrong":
        return described
    if ours != "run" and ("\n" in mine or not 10 <= len(mine) <= LONGEST_MESSAGE):
        return f"a message of {len(mine)} characters: {described}"
    if theirs == "refused its own plan" or (theirs != "run" and "NOT_IMPLEMENTED" in right):
        return None
    if (ours == "run") != (theirs == "run") or (ours == "refused late" and theirs == "refused"):
        return described
    return None if ours != "run" or _equal(mine, right) else described


def _equal(found: list[Any], right: list[Any]) -> bool:
    return len(found) == len(right) and all(
        isinstance(a, np.ndarray)
        and isinstance(b, np.ndarray)
        and a.dtype == b.dtype
        and a.shape == b.shape
        and (np.array_equal(a, b) if a.dtype == object else a.tobytes() == b.tobytes())
        for a, b in zip(found, right, strict=True)
    )


def _shown(outcome: Any) -> str:
    if isinstance(outcome, str):
        return outcome[:600]
    return "; ".join(
        f"{a.dtype} {a.shape} {a.reshape(-1)[:6]}" if isinstance(a, np.ndarray) else repr(a)[:60] for a in outcome
    )


def by_onnx_runtime(model: bytes, feeds: Mapping[str, Any], optimize: bool) -> Outcome:
    """In the oracle's process."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    if not optimize:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        return "refused", str(error)
    try:
        return "run", session.run(None, feeds)
    except Exception as error:
        return "refused late", str(error)


def by_dmlvk(device: str, model: bytes, feeds: Mapping[str, Any]) -> Outcome:
    """In the oracle's process, where ONNX Runtime is the host's library."""
    import dmlvk
    from dmlvk.onnx import InferenceSession, ModelError

    permitted = (ModelError, dmlvk.DeviceError)
    happened = "refused"
    try:
        session = InferenceSession(model, _device(device))
        happened = "refused late"
        found = session.run(None, feeds)
        copies = [np.array(array) for array in found]
        for array in found:
            array[...] = np.zeros((), array.dtype)
        again = session.run(None, feeds)
        if not _equal(again, copies):
            return "wrong", f"the second run gives {_shown(again)}, the first {_shown(copies)}"
        return "run", copies
    except permitted as error:
        return happened, str(error)
    except Exception as error:
        return "wrong", f"{happened}, {type(error).__name__}: {str(error)[:1000]}"


@cache
def _device(name: str) -> Any:
    import dmlvk

    return dmlvk.Device(name)
