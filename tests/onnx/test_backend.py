"""ONNX's backend interface: its functions, and ONNX's own node tests of all operators of the device."""

from __future__ import annotations

import pkgutil
import sys
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import dmlvk
from dmlvk.onnx import ModelError, backend
from dmlvk.onnx.registry import ENTRIES

OPERATORS = {operator for domain, operator in ENTRIES if not domain}
# Tests whose only node of the device runs on the host, with the reason that the placement gives.
ON_HOST = {
    "test_gather_0": "not constant",
    "test_gather_1": "not constant",
    "test_gather_2d_indices": "not constant",
    "test_gather_negative_indices": "not constant",
    "test_identity_sequence": "no tensor",
    "test_identity_opt": "no tensor",
    "test_onehot_with_axis": "its indices are float32",
    "test_onehot_with_negative_axis": "its indices are float32",
    "test_onehot_with_bfloat16_values": "no tensors of bfloat16",
    "test_reshape_allowzero_reordered": "has no elements",
    "test_slice_start_out_of_bounds": "has no elements",
    "test_split_zero_size_splits_opset13": "has no elements",
    "test_split_zero_size_splits_opset18": "has no elements",
    "test_triu_zero": "has no elements",
    "test_tril_zero": "has no elements",
}
# Tests that an older release of onnx does not have.
NEW_IN = {"test_onehot_with_bfloat16_values": (1, 23)}
# Operators of which the device has a part: see tests/onnx/test_neighbours.py.
NEIGHBOURS = {
    *(
        "Add",
        "DequantizeLinear",
        "LayerNormalization",
        "MaxPool",
        "QuantizeLinear",
        "ReduceMax",
        "ReduceMin",
        "Relu",
        "Resize",
        "Sub",
        "Sum",
        "Where",
    )
}


@cache
def node_tests() -> dict[str, Any]:
    """ONNX's tests of one node, whose operator the device has."""
    from onnx.backend.test.case import node

    # A module has the tests of the operator in its name. Those of others, made in Python, take seconds.
    wanted = {"clip", *(operator.lower() for operator in OPERATORS)}  # a Clip without bounds is an Identity
    for module in pkgutil.iter_modules(node.__path__):
        if module.name not in wanted and not module.ispkg:
            name = f"{node.__name__}.{module.name}"
            sys.modules.setdefault(name, ModuleType(name))
    state = np.random.get_state()
    with np.errstate(all="ignore"):
        cases = node.collect_testcases(None)
    np.random.set_state(state)
    return {
        case.name: case
        for case in cases
        if len(case.model.graph.node) == 1
        and case.model.graph.node[0].op_type in OPERATORS
        and (case.model.graph.node[0].op_type not in NEIGHBOURS or _has_numpy_types(case))
    }


def _has_numpy_types(case: Any) -> bool:
    arrays = [array for inputs, outputs in case.data_sets for array in (*inputs, *outputs)]
    return all(isinstance(array, np.ndarray) and array.dtype.kind in "fiub" for array in arrays)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_onnx_own_node_tests(device: dmlvk.Device) -> None:
    tests = node_tests()
    neighbours: set[tuple[str, str]] = set()
    assert {case.model.graph.node[0].op_type for case in tests.values()} >= OPERATORS
    for name, case in tests.items():
        prepared = backend.prepare(case.model, device)
        for inputs, outputs in case.data_sets:
            for found, expected in zip(prepared.run(inputs), outputs, strict=True):
                if isinstance(expected, list):
                    for one, other in zip(found, expected, strict=True):
                        np.testing.assert_array_equal(one, other, name)
                else:
                    assert np.asarray(found).dtype == np.asarray(expected).dtype, name
                    exact = case.model.graph.node[0].op_type not in NEIGHBOURS
                    tolerance = {} if exact else {"rtol": case.rtol, "atol": case.atol}
                    np.testing.assert_allclose(found, expected, **({"rtol": 0} | tolerance), err_msg=name)
        rows = [row for row in prepared.session.placement if row.op_type in OPERATORS]
        reason = "elements of float16" if "qlinearmatmul" in name and "float16" in name else ON_HOST.get(name)
        if case.model.graph.node[0].op_type in NEIGHBOURS:
            neighbours |= {(row.op_type, row.where) for row in rows}
        elif reason is None:
            assert {row.where for row in rows} <= {"device", "view"}, (name, rows)
        else:
            assert all(row.where == "host" and reason in row.reason for row in rows), (name, rows)
    assert ("MaxPool", "device") in neighbours  # of the others, the tests have other types, or scales that a run gives
    release = tuple(int(part) for part in onnx.__version__.split(".")[:2])
    assert {name for name in ON_HOST if release >= NEW_IN.get(name, (0, 0))} <= tests.keys()


def test_a_node(device: dmlvk.Device) -> None:
    x = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    node = helper.make_node("Transpose", ["x"], ["y"])
    (found,) = backend.run_node(node, [x], device)
    np.testing.assert_array_equal(found, x.T)
    (found,) = backend.run_node(node, x, device, outputs_info=[(np.float32, (5, 3))])
    np.testing.assert_array_equal(found, x.T)
    with pytest.raises(ModelError, match="2 inputs given; the node '' has 1: x"):
        backend.run_node(node, [x, x], device)


def test_a_model(device: dmlvk.Device) -> None:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Transpose", ["x"], ["y"])], "g", [value("x", 1, [3, 5])], [value("y", 1, [5, 3])]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    x = np.random.default_rng(1).standard_normal((3, 5)).astype(np.float32)
    for inputs in (x, [x], {"x": x}):
        outputs = backend.run_model(model, inputs, device)
        np.testing.assert_array_equal(outputs.y, x.T)
    assert backend.is_compatible(model, device)
    del model.graph.node[:]
    assert not backend.is_compatible(model, device)
    with pytest.raises(ModelError, match="0 inputs given; the model has 1: x"):
        backend.run_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), [], device)


def test_devices() -> None:
    assert backend.supports_device("CPU") and backend.supports_device("VULKAN") and backend.supports_device("VULKAN:0")
    assert not backend.supports_device("CUDA") and not backend.supports_device("VULKAN:99")
    with pytest.raises(ModelError, match="device 'CUDA' is not there"):
        backend.prepare(onnx.ModelProto(), "CUDA")
