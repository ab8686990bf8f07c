"""`compile_all` builds first what the driver has to compile, and returns the operators in the order of the list."""

from __future__ import annotations

import dmlvk
from dmlvk.benchmark.networks import NETWORKS, Dimensions
from dmlvk.benchmark.networks.work import desc_of
from dmlvk.planning import plan
from dmlvk.planning.plan import Dispatch, Plan
from dmlvk.runtime.implementation import new_pipelines_first
from tests import profiles

INT32 = dmlvk.DataType.INT32


def _plan(*sizes: int, initialization: int | None = None) -> Plan:
    def stage(size: int) -> tuple[Dispatch, ...]:
        return (Dispatch("kernel", (size,), (), (), (1, 1, 1)),)

    return Plan("path", tuple(map(stage, sizes)), () if initialization is None else (stage(initialization),))


def test_plans_with_pipelines_of_their_own_come_first() -> None:
    assert new_pipelines_first([]) == []
    plans = [_plan(1), _plan(1), _plan(2, 1), _plan(1, 2), _plan(3, initialization=1), _plan(1, initialization=4)]
    assert new_pipelines_first(plans) == [0, 2, 4, 5, 1, 3]


def test_a_network_s_pipelines_are_begun_at_once() -> None:
    """Sixteen threads begin all of ResNet-50's in NHWC. Every layer is built once."""
    layers = NETWORKS["resnet50"](Dimensions()).counts
    plans = [plan(desc_of(layer, 1, "nhwc"), profiles.load("nvidia-h200")) for layer in layers]
    order = new_pipelines_first(plans)
    assert sorted(order) == list(range(len(plans)))
    needed = [{(each.kernel, each.specialization) for each in each_plan.dispatches} for each_plan in plans]
    first = set().union(*(needed[number] for number in order[:16]))
    assert first == set().union(*needed)


def test_operators_come_in_the_order_of_the_list(device: dmlvk.Device) -> None:
    planes = [dmlvk.TensorDesc(INT32, (size, 7)) for size in (5, 9, 5, 3, 9, 11)]
    descs = [
        dmlvk.DiagonalMatrix1Desc(output_tensor=plane, value=1, diagonal_fill_begin=0, diagonal_fill_end=1)
        for plane in planes
    ]
    assert [operator.desc for operator in device.compile_all(descs)] == descs
