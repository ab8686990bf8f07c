"""torch's compilers keep each operator whole, know its shape, and give the bits of a plain call."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

import dmlvk
import dmlvk.torch
from dmlvk import DescriptorError, DeviceError
from dmlvk.torch import devices
from tests.torch.tensors import random_tensor


class Sample(NamedTuple):
    """A function of tensors and a device that calls one operator, tensors of two sizes for it, and the operator."""

    call: Callable[..., Any]
    tensors: tuple[Any, ...]
    others: tuple[Any, ...]
    operator: Any


def slice1(x: Any, device: Any = None) -> Any:
    return dmlvk.torch.slice1(
        x,
        input_window_offsets=(0, 1),
        input_window_sizes=(x.shape[0], x.shape[1] - 1),
        input_window_strides=(-1, 2),
        device=device,
    )


def slice1_of_less(x: Any, device: Any = None) -> Any:
    return dmlvk.torch.slice1(
        x,
        input_window_offsets=(0, 0),
        input_window_sizes=(2, 3),
        input_window_strides=(1, 1),
        output_sizes=(1, 3),
        device=device,
    )


def diagonal_matrix1(x: Any, device: Any = None) -> Any:
    return dmlvk.torch.diagonal_matrix1(x, value=2**63 - 1, diagonal_fill_begin=1, diagonal_fill_end=0, device=device)


def diagonal_matrix1_of_sizes(x: Any, device: Any = None) -> Any:
    return dmlvk.torch.diagonal_matrix1(
        sizes=(x.shape[0], 1), value=0.1, diagonal_fill_begin=0, diagonal_fill_end=x.shape[1], device=device
    )


def one_hot(indices: Any, values: Any, device: Any = None) -> Any:
    length = indices.shape[0] + 3
    return dmlvk.torch.one_hot(indices, values, output_length=length, axis=-1, device=device)


def convolution(x: Any, filter: Any, filter_scale: Any, device: Any = None) -> Any:
    return dmlvk.torch.quantized_linear_convolution(
        x,
        0.02,
        filter,
        filter_scale,
        0.7,
        input_zero_point=120,
        output_zero_point=ZERO_POINT,
        filter_zero_point=FILTER_ZERO_POINT,
        bias=BIAS,
        strides=(2, 1),
        start_padding=(1, 1),
        device=device,
    )


def convolution_of_rank_3(x: Any, filter: Any, device: Any = None) -> Any:
    return dmlvk.torch.quantized_linear_convolution(x, 0.02, filter, 0.01, 0.7, strides=(2,), device=device)


def images(*sizes: int) -> Any:
    return random_tensor(sizes, torch.uint8)


def last(tensor: Any) -> Any:
    return tensor.to(memory_format=torch.channels_last)


FILTER = random_tensor((4, 3, 3, 2), torch.int8, 1)
SCALES = torch.linspace(0.01, 0.02, 4)
BIAS = torch.tensor([-700, 0, 5, 900], dtype=torch.int32)
ZERO_POINT = torch.tensor(-3, dtype=torch.int8)
FILTER_ZERO_POINT = torch.tensor([1, 0, -2, 5], dtype=torch.int8)
OPERATORS = torch.ops.dmlvk
CONVOLUTION = OPERATORS.quantized_linear_convolution.default
SAMPLES = {
    "slice1": Sample(slice1, (torch.randn(4, 6),), (torch.randn(5, 9),), OPERATORS.slice1.default),
    "slice1 of less": Sample(slice1_of_less, (torch.randn(4, 6),), (torch.randn(5, 9),), OPERATORS.slice1.default),
    "diagonal_matrix1": Sample(
        diagonal_matrix1,
        (random_tensor((2, 3, 4), torch.uint64),),
        (random_tensor((3, 5, 6), torch.uint64),),
        OPERATORS.diagonal_matrix1.default,
    ),
    "diagonal_matrix1 of sizes": Sample(
        diagonal_matrix1_of_sizes, (torch.randn(4, 6),), (torch.randn(5, 9),), OPERATORS.diagonal_matrix1.default
    ),
    "one_hot": Sample(
        one_hot,
        (torch.tensor([[1], [0], [-1]]), torch.tensor([0.5, 2.5])),
        (torch.tensor([[1], [0], [-1], [7], [2]]), torch.tensor([0.5, 2.5])),
        OPERATORS.one_hot.default,
    ),
    "convolution": Sample(
        convolution, (images(5, 3, 8, 7), FILTER, SCALES), (images(6, 3, 9, 10), FILTER, SCALES), CONVOLUTION
    ),
    "convolution of channels last": Sample(
        convolution,
        (last(images(5, 3, 8, 7)), FILTER, SCALES),
        (last(images(6, 3, 9, 10)), FILTER, SCALES),
        CONVOLUTION,
    ),
    "convolution of rank 3": Sample(
        convolution_of_rank_3, (images(5, 3, 8), FILTER[..., 0]), (images(6, 3, 9), FILTER[..., 0]), CONVOLUTION
    ),
}


@pytest.fixture(params=SAMPLES)
def sample(request: pytest.FixtureRequest) -> Sample:
    return SAMPLES[request.param]


@pytest.fixture
def default_device(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> dmlvk.Device:
    """The device of calls that name none."""
    monkeypatch.setattr(devices, "named_device", lambda _: device)
    return device


class Recorder:
    """A backend that keeps the graphs that it is given, and runs them as they are."""

    def __init__(self) -> None:
        self.graphs: list[Any] = []

    def __call__(self, module: Any, _: Any) -> Any:
        self.graphs.append(module.graph)
        return module.forward


def operators_of(graph: Any) -> list[Any]:
    """The operators of dmlvk that a graph calls."""
    targets = [node.target for node in graph.nodes if node.op == "call_function"]
    return [getattr(target, "default", target) for target in targets if "dmlvk" in str(target)]


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()


class Calls(TorchDispatchMode):
    """Keeps the arguments of calls of the operators."""

    def __init__(self) -> None:
        super().__init__()
        self.arguments: list[tuple[Any, Any]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function.namespace == "dmlvk":
            self.arguments.append((args, kwargs))
        return function(*args, **(kwargs or {}))


def test_torch_checks_each_operator(default_device: dmlvk.Device, sample: Sample) -> None:
    """Its schema, that it neither changes nor returns an input, and its shapes, symbolic ones included."""
    with Calls() as calls:
        sample.call(*sample.tensors)
    ((arguments, named),) = calls.arguments
    results = torch.library.opcheck(sample.operator, arguments, named)
    assert len(results) == 4 and set(results.values()) == {"SUCCESS"}


def test_compile_keeps_an_operator_whole(device: dmlvk.Device, sample: Sample) -> None:
    recorder = Recorder()
    compiled = torch.compile(sample.call, fullgraph=True, backend=recorder)
    found = compiled(*sample.tensors, device=device)
    (graph,) = recorder.graphs
    assert operators_of(graph) == [sample.operator]
    assert found.equal(sample.call(*sample.tensors, device=device))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compile_for_sizes_that_change(device: dmlvk.Device, sample: Sample, backend: str) -> None:
    compilations = []

    def counting(module: Any, inputs: Any) -> Any:
        compilations.append(module)
        return torch._dynamo.lookup_backend(backend)(module, inputs)

    compiled = torch.compile(sample.call, fullgraph=True, dynamic=True, backend=counting)
    for tensors in (sample.tensors, sample.others):
        found = compiled(*tensors, device=device)
        assert found.equal(sample.call(*tensors, device=device)) and found.is_contiguous()
    assert len(compilations) == 1


def test_numbers_that_change_are_not_compiled_anew(device: dmlvk.Device) -> None:
    recorder = Recorder()

    def call(x: Any, value: float, begin: int) -> Any:
        return dmlvk.torch.diagonal_matrix1(
            x, value=value, diagonal_fill_begin=begin, diagonal_fill_end=begin + 2, device=device
        )

    compiled = torch.compile(call, fullgraph=True, dynamic=True, backend=recorder)
    for value, begin in ((0.5, 1), (2.25, -3), (float("-inf"), 2)):
        assert compiled(torch.ones(5, 6), value, begin).equal(call(torch.ones(5, 6), value, begin))
    assert len(recorder.graphs) == 1


@pytest.mark.parametrize("strict", [False, True])
def test_export_keeps_an_operator_whole(default_device: dmlvk.Device, sample: Sample, strict: bool) -> None:
    class Model(torch.nn.Module):
        def forward(self, *tensors: Any) -> Any:
            return sample.call(*tensors)

    program = torch.export.export(Model(), sample.tensors, strict=strict)
    assert operators_of(program.graph) == [sample.operator]
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    loaded = torch.export.load(file)
    assert operators_of(loaded.graph) == [sample.operator]
    expected = sample.call(*sample.tensors)
    assert program.module()(*sample.tensors).equal(expected) and loaded.module()(*sample.tensors).equal(expected)


def test_export_for_any_batch(default_device: dmlvk.Device) -> None:
    class Model(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return convolution(x, FILTER, SCALES)

    batch = {"x": {0: torch.export.Dim("batch", min=2, max=64)}}
    program = torch.export.export(Model(), (images(5, 3, 8, 7),), dynamic_shapes=batch)
    x = images(9, 3, 8, 7)
    assert program.module()(x).equal(convolution(x, FILTER, SCALES))
    (node,) = [node for node in program.graph.nodes if node.target is CONVOLUTION]
    batch_size, *others = node.meta["val"].shape
    assert isinstance(batch_size, torch.SymInt) and others == [4, 4, 7]


def test_a_value_of_64_bits_without_a_sign(device: dmlvk.Device) -> None:
    """opcheck cannot pass such a number; compilers can."""

    class Model(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return dmlvk.torch.diagonal_matrix1(
                x, value=2**64 - 1, diagonal_fill_begin=0, diagonal_fill_end=1, device=device
            )

    x = random_tensor((3, 4), torch.uint64)
    expected = x.numpy().copy()
    np.fill_diagonal(expected, 2**64 - 1)
    compiled = torch.compile(Model(), fullgraph=True, backend="aot_eager")
    for call in (compiled, torch.export.export(Model(), (x,)).module()):
        np.testing.assert_array_equal(call(x).numpy(), expected)


class Outside(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return dmlvk.torch.slice1(
            x, input_window_offsets=(1, 0), input_window_sizes=(4, 6), input_window_strides=(1, 1)
        )


def test_a_mistake_is_found_when_a_program_is_exported() -> None:
    with pytest.raises(DescriptorError, match=r"input_window_sizes\[0\] = 4: .*expected at most 3"):
        torch.export.export(Outside(), (torch.randn(4, 6),), strict=False)


@pytest.mark.parametrize(
    "change",
    [
        {"strides": (0, 1)},
        {"strides": (1,)},
        {"dilations": (9, 9)},
        {"group_count": 2},
        {"filter": FILTER[..., 0]},
        {"filter_scale": torch.tensor([0.25, 0.5, 0.75])},
        {"output_zero_point": torch.tensor([1, 2])},
        {"output_dtype": torch.float16},
    ],
    ids=str,
)
def test_mistakes_in_a_convolution_are_found_without_elements(change: dict[str, Any]) -> None:
    given = {"input": images(5, 3, 8, 7), "filter": FILTER, "filter_scale": SCALES, "input_scale": 0.1}
    with FakeTensorMode() as mode:
        fake = {
            name: mode.from_tensor(value) if isinstance(value, torch.Tensor) else value
            for name, value in (given | {"output_scale": 0.1} | change).items()
        }
        with pytest.raises(DescriptorError, match="QuantizedLinearConvolutionDesc"):
            dmlvk.torch.quantized_linear_convolution(**fake)


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda x: dmlvk.torch.one_hot(x.long(), x[0, :2], output_length=3, axis=2), "axis"),
        (lambda x: dmlvk.torch.one_hot(x.long(), x[0, :2], output_length=3, axis=-3), "axis"),
        (lambda x: dmlvk.torch.one_hot(x.long(), x[0, :2], output_length=0, axis=1), r"sizes\[1\]"),
        (lambda x: dmlvk.torch.one_hot(x.long(), x[0, :2], output_length=3, axis=1), r"indices_tensor.sizes\[1\]"),
        (lambda x: slice1(x[0][None, None]), "input_window"),
        (lambda x: dmlvk.torch.diagonal_matrix1(x, value=1, diagonal_fill_begin=2**31, diagonal_fill_end=0), "begin"),
    ],
)
def test_other_mistakes_are_found_without_elements(call: Callable[..., Any], field: str) -> None:
    with FakeTensorMode(), pytest.raises(DescriptorError, match=field):
        call(torch.empty(4, 6))


def test_fake_tensors_have_the_shapes_of_results(default_device: dmlvk.Device, sample: Sample) -> None:
    result = sample.call(*sample.tensors)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = sample.call(*(mode.from_tensor(tensor) for tensor in sample.tensors))
    assert (fake.shape, fake.dtype, fake.stride()) == (result.shape, result.dtype, result.stride())
    assert fake.device == result.device


def test_symbols_reach_an_operator_traced_without_dynamo(default_device: dmlvk.Device) -> None:
    traced = make_fx(lambda x: slice1(x), tracing_mode="symbolic")(torch.randn(4, 6))
    assert operators_of(traced.graph) == [OPERATORS.slice1.default]
    x = torch.randn(7, 9)
    assert traced(x).equal(slice1(x))


def test_a_device_in_a_program_is_the_one_that_was_given(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    original = devices.operand

    def noting(name: str, tensor: Any, place: dmlvk.Device) -> Any:
        seen.append(place)
        return original(name, tensor, place)

    monkeypatch.setattr("dmlvk.torch.operators.operand", noting)
    compiled = torch.compile(slice1, fullgraph=True, backend="aot_eager")
    with dmlvk.Device(device.name) as other:
        for given in (device, other, device):
            assert compiled(torch.ones(3, 4), device=given).tolist() == [[1.0, 1.0]] * 3
        assert seen == [device, other, device]


def test_a_program_outlives_its_device_and_says_so(device: dmlvk.Device) -> None:
    class Model(torch.nn.Module):
        def __init__(self, place: dmlvk.Device) -> None:
            super().__init__()
            self.key = devices.device_key(place)

        def forward(self, x: Any) -> Any:
            return slice1(x, device=self.key)

    place = dmlvk.Device(device.name)
    program = torch.export.export(Model(place), (torch.ones(3, 4),)).module()
    assert program(torch.ones(3, 4)).shape == (3, 2)
    place.close()
    with pytest.raises(DeviceError, match="closed"):
        program(torch.ones(3, 4))
    del place
    with pytest.raises(DeviceError, match=r"is gone, or belongs to another process: .* set \$DMLVK_DEVICE"):
        program(torch.ones(3, 4))


def test_wrong_tensors_raise_in_compiled_code_as_they_do_outside(default_device: dmlvk.Device) -> None:
    compiled = torch.compile(slice1, backend="aot_eager")
    with pytest.raises(TypeError, match=r"input has dtype bool, .*: input.view\(torch.uint8\)"):
        compiled(torch.ones(3, 4, dtype=torch.bool))
    with pytest.raises(dmlvk.BindingError, match=r"pass input.detach\(\)"):
        compiled(torch.ones(3, 4, requires_grad=True))


def test_the_operator_itself_has_no_gradient(default_device: dmlvk.Device) -> None:
    x = torch.ones(3, 4, requires_grad=True)
    found = OPERATORS.slice1(x, input_window_offsets=(0, 0), input_window_sizes=(3, 4), input_window_strides=(1, 1))
    assert found.equal(x)
    with pytest.raises(RuntimeError, match="no autograd formula"):
        found.sum().backward()


def test_cuda_graphs_leave_the_operators_out() -> None:
    for name in dmlvk.torch.__all__:
        assert torch.Tag.cudagraph_unsafe in getattr(OPERATORS, name).default.tags
