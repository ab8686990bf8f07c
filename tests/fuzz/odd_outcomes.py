"""What becomes of a model by ONNX Runtime and by dmlvk, and whether that is the same."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.fuzz.odd_models import OddModel
from tests.reference.onnx_runtime import ONNX_RUNTIME

# (what happened, outputs or words): "run", "refused" when loaded or "refused late", "wrong" for other exceptions.
Outcome = tuple[str, Any]
LONGEST_MESSAGE = 4000
# ONNX Runtime lays the outputs of an If's branches and of a Scan's body in memory that it takes before they run. Where
# its inference is wrong about their sizes, for a stale value_info or for axes [], it refuses the sizes that they have.
# No caller gives memory for outputs here, so these messages are always of its own plan.
OWN_PLANS = (
    ("The output OrtValue provided for output", "but the computed output shape for this run is"),
    ("while running Scan node", "Tensor shape.Size() must be >= 0"),
)
# What it has not made: kernels, an inference of shapes that reads what lies in a file (the sizes of a Reshape), and a
# Scan whose results have a shape that the inference does not find.
NOT_MADE = (
    "NOT_IMPLEMENTED",
    "Cannot parse data from external tensors",
    "Subgraph must have the shape set for all outputs",
)


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
    with TemporaryDirectory() as folder:
        return _compared(device, odd, _written(odd, Path(folder)))


def _written(odd: OddModel, folder: Path) -> bytes | str:
    """The model as a session takes it: its bytes, or the path of the model where files lie beside it."""
    if not odd.files:
        return odd.model
    for name, content in {**odd.files, "model.onnx": odd.model}.items():
        (folder / name).write_bytes(content)
    return str(folder / "model.onnx")


def _compared(device: str, odd: OddModel, model: bytes | str) -> Comparison:
    try:
        expected: Outcome = ONNX_RUNTIME.call("an odd model", by_onnx_runtime, model, odd.feeds, False)
    except pytest.fail.Exception:
        return Comparison("ended", None)  # which says nothing of the model
    try:
        found: Outcome = ONNX_RUNTIME.call("an odd model on dmlvk", by_dmlvk, device, model, odd.feeds)
    except pytest.fail.Exception as error:
        return Comparison(expected[0], str(error))
    if expected[0] == "refused late" and any(all(words in expected[1] for words in plan) for plan in OWN_PLANS):
        expected = "refused its own plan", expected[1]
    fault = fault_of(found, expected)
    if fault is not None and "loop" in odd.words and found[0] == expected[0] == "run":
        # A Loop of no turns stacks nothing, which has as many dimensions as ONNX Runtime's inference happens to know.
        fault = fault_of((found[0], _without_ranks(found[1])), (expected[0], _without_ranks(expected[1])))
    if fault is not None and found[0] != "wrong" and expected[0] == "run":
        # Fused convolutions have the bits of the optimized model. And ONNX Runtime's optimizer breaks some models: a
        # Loop of no turns in a branch that it takes out of its If.
        optimized = ONNX_RUNTIME.call("an odd model", by_onnx_runtime, model, odd.feeds, True)
        is_refused = found[0] != "run" and optimized[0] != "run"
        fault = None if is_refused or fault_of(found, optimized) is None else fault
    if fault is not None and expected[0] == "run" and _is_unsteady(model, odd.feeds, expected[1]):
        return Comparison("run, with other values each time", None)
    return Comparison(expected[0], fault)


def _is_unsteady(model: bytes | str, feeds: Mapping[str, Any], first: list[Any]) -> bool:
    """Whether ONNX Runtime itself gives other values at the next runs: some kernels leave outputs unwritten."""
    again: list[Outcome] = [ONNX_RUNTIME.call("an odd model", by_onnx_runtime, model, feeds, False) for _ in range(3)]
    return any(happened == "run" and not _equal(found, first) for happened, found in again)


def fault_of(found: Outcome, expected: Outcome) -> str | None:
    """The fault of what dmlvk did, beside what ONNX Runtime did; None if there is none."""
    (ours, mine), (theirs, right) = found, expected
    described = f"dmlvk {ours}: {_shown(mine)}\n    ONNX Runtime {theirs}: {_shown(right)}"
    if ours == "wrong":
        return described
    if ours != "run" and ("\n" in mine or not 10 <= len(mine) <= LONGEST_MESSAGE):
        return f"a message of {len(mine)} characters: {described}"
    if theirs == "refused its own plan" or (theirs != "run" and any(words in right for words in NOT_MADE)):
        return None
    if (ours == "run") != (theirs == "run") or (ours == "refused late" and theirs == "refused"):
        return described
    return None if ours != "run" or _equal(mine, right) else described


def _equal(found: Any, right: Any) -> bool:
    """Whether two outputs are the same, or two lists of them: a sequence is one too, and an optional may be None."""
    if isinstance(found, list) and isinstance(right, list):
        return len(found) == len(right) and all(map(_equal, found, right))
    if not isinstance(found, np.ndarray) or not isinstance(right, np.ndarray):
        return type(found) is type(right) and bool(found == right)
    if found.dtype != right.dtype or found.shape != right.shape:
        return False
    return np.array_equal(found, right) if found.dtype == object else found.tobytes() == right.tobytes()


def _without_ranks(found: list[Any]) -> list[Any]:
    """Outputs, of which those without elements have one dimension."""
    return [each.reshape(-1) if isinstance(each, np.ndarray) and not each.size else each for each in found]


def _overwritten(found: Any) -> Any:
    """A copy of an output; the output itself is overwritten with zeros."""
    if isinstance(found, list):
        return [_overwritten(each) for each in found]
    copy = found
    if isinstance(found, np.ndarray):
        copy = found.copy()
        found[...] = np.zeros((), found.dtype)
    return copy


def _shown(outcome: Any) -> str:
    if isinstance(outcome, str):
        return outcome[:600]
    if isinstance(outcome, list):
        return "[" + "; ".join(map(_shown, outcome)) + "]"
    if isinstance(outcome, np.ndarray):
        return f"{outcome.dtype} {outcome.shape} {outcome.reshape(-1)[:6]}"
    return repr(outcome)[:60]


def by_onnx_runtime(model: bytes | str, feeds: Mapping[str, Any], optimize: bool) -> Outcome:
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


def by_dmlvk(device: str, model: bytes | str, feeds: Mapping[str, Any]) -> Outcome:
    """In the oracle's process, where ONNX Runtime is the host's library."""
    import dmlvk
    from dmlvk.onnx import InferenceSession, ModelError

    permitted = (ModelError, dmlvk.DeviceError)
    happened = "refused"
    try:
        session = InferenceSession(model, _device(device))
        happened = "refused late"
        found = session.run(None, feeds)
        copies = _overwritten(found)
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
