"""Words of errors: an unknown name is asked what it stands for, and the commonest mistakes are told what is right."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dmlvk
from dmlvk._common.arguments import named_arguments, similar
from dmlvk.operators.registry import OPERATORS
from dmlvk.runtime.array_protocol import ELSEWHERE

VECTOR = dmlvk.TensorDesc("float32", (8,))
ARRAY = np.random.default_rng(8).random(8, np.float32)
WINDOW: dict[str, Any] = {"input_window_offsets": (0,), "input_window_sizes": (8,), "input_window_strides": (1,)}
DESC = dmlvk.Slice1Desc(input_tensor=VECTOR, **WINDOW)
ONE_LINERS = (dmlvk.diagonal_matrix1, dmlvk.one_hot, dmlvk.quantized_linear_convolution, dmlvk.slice1)


@pytest.fixture(scope="module")
def used(device: dmlvk.Device) -> SimpleNamespace:
    tensor, output, operator = device.tensor(ARRAY), device.empty((8,)), device.compile(DESC)
    binding = operator.bind(input_tensor=tensor, output_tensor=output)
    submission = device.submit([binding])
    return SimpleNamespace(
        device=device, tensor=tensor, output=output, operator=operator, binding=binding, submission=submission
    )


def misspelt(name: str) -> str:
    """A name without its third letter."""
    return name[:2] + name[3:]


CALLS: dict[str, Callable[..., Any]] = {
    **{f"dmlvk.{each.__name__}": each for each in ONE_LINERS},
    "TensorDesc": dmlvk.TensorDesc,
    "TensorDesc.of": dmlvk.TensorDesc.of,
    "Device": dmlvk.Device,
    **{f"Device.{name}": getattr(dmlvk.Device, name) for name in ("tensor", "empty", "zeros", "buffer", "compile")},
    "Buffer.tensor": dmlvk.Buffer.tensor,
    **{desc.__name__: desc for desc in OPERATORS},
}


@pytest.mark.parametrize("call", CALLS)
def test_each_misspelt_argument_is_asked_what_it_means(call: str) -> None:
    function = CALLS[call]
    names = [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]
    assert names
    for name in names:
        if len(name) > 3:
            with pytest.raises(
                TypeError, match=rf"has no argument '{misspelt(name)}'; did you mean (\w+ or )*{name}\b"
            ):
                function(**{misspelt(name): None})
    with pytest.raises(TypeError, match=r"has no argument 'qqq'; it takes "):
        function(qqq=1)


@pytest.mark.parametrize(
    ("function", "given", "meant"),
    [
        (dmlvk.quantized_linear_convolution, "padding", "start_padding or end_padding"),
        (dmlvk.quantized_linear_convolution, "groups", "group_count"),
        (dmlvk.quantized_linear_convolution, "weight", "filter"),
        (dmlvk.QuantizedLinearConvolutionDesc, "pads", "start_padding or end_padding"),
        (dmlvk.one_hot, "depth", "output_length"),
        (dmlvk.slice1, "offsets", "input_window_offsets"),
        (dmlvk.TensorDesc, "shape", "sizes"),
        (dmlvk.TensorDesc, "dtype", "data_type"),
        (dmlvk.Device.empty, "dtype", "data_type"),
        (dmlvk.Device.tensor, "data_type", "dtype"),
    ],
)
def test_other_libraries_names_are_known(function: Callable[..., Any], given: str, meant: str) -> None:
    with pytest.raises(TypeError, match=rf"has no argument '{given}'; did you mean {meant}\?"):
        function(**{given: 1})


def test_a_type_error_of_the_function_itself_stays_as_it_is() -> None:
    @named_arguments
    def takes(number: int, *, other: int = 0) -> int:
        raise TypeError(f"{number} and {other}")

    with pytest.raises(TypeError, match=r"^1 and 2$"):
        takes(1, other=2)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        takes()  # type: ignore[call-arg]
    assert list(inspect.signature(takes).parameters) == ["number", "other"]


def test_a_descriptor_takes_its_fields_by_name() -> None:
    with pytest.raises(
        TypeError, match=r"Slice1Desc takes its fields by name, input_tensor=\.\.\.; they are input_tensor, "
    ):
        dmlvk.Slice1Desc(VECTOR)  # type: ignore[misc, call-arg]
    assert dataclasses.replace(DESC, input_window_strides=(-1,)).input_window_strides == (-1,)


def test_similar_names() -> None:
    names = ["input_tensor", "output_tensor", "axis"]
    assert similar("input_tenser", names) == "; did you mean input_tensor?"
    assert similar("axes", names) == "; did you mean axis?"
    assert similar("tensor", names) == "; did you mean input_tensor or output_tensor?"
    assert similar("quux", names) == similar("x" * 10**6, names) == similar("a", []) == ""


def test_tensors_of_operators_by_another_name(used: SimpleNamespace) -> None:
    for use in (used.operator, used.operator.bind, used.operator.initialize):
        for given in ("input", "input_tenser", "inputtensor"):
            takes = "none" if use == used.operator.initialize else "input_tensor, output_tensor"
            meant = "" if takes == "none" else r"; did you mean input_tensor\?"
            with pytest.raises(
                dmlvk.BindingError, match=f"SLICE1 has no tensor named {given}; it takes {takes}{meant}$"
            ):
                use(**{given: used.tensor, "output_tensor": used.output})
    with pytest.raises(
        dmlvk.BindingError, match=r"has no input input; expected input_tensor; did you mean input_tensor"
    ):
        dmlvk.reference.run(DESC, input=ARRAY)


@pytest.mark.parametrize(
    "wrong", [ARRAY, [DESC], {"a": 1}, None, "SLICE1", dmlvk.Slice1Desc, VECTOR], ids=lambda wrong: type(wrong).__name__
)
def test_what_is_no_descriptor_is_not_compiled(
    used: SimpleNamespace, wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    advice = (
        "compile_all" if isinstance(wrong, list) else "by calling it" if isinstance(wrong, type) else "dmlvk.slice1"
    )
    device = used.device
    calls = (device.compile, device.plan, device.is_ready, lambda desc: device.compile_all([desc]))
    for forced in ("", "blocks"):
        monkeypatch.setenv("DMLVK_KERNEL", forced)
        for call in calls:
            with pytest.raises(TypeError, match=rf"(?s)desc = .*is not an operator descriptor; .*{advice}"):
                call(wrong)
    with pytest.raises(TypeError, match=r"descs is a Slice1Desc, not a list of descriptors: compile\(desc\)"):
        used.device.compile_all(DESC)


@pytest.mark.parametrize("name", ["tensor", "operator", "binding", "submission"])
def test_what_is_no_list_of_bindings_is_not_submitted(used: SimpleNamespace, name: str) -> None:
    wrong = getattr(used, name)
    advice = (
        r"bound to a compiled operator: \[operator.bind" if name in ("tensor", "operator") else r"one as \[binding\]"
    )
    for call in (used.device.submit, used.device.sequence):
        with pytest.raises(
            TypeError, match=f"bindings is a {type(wrong).__name__}, not a list of Bindings; .*{advice}"
        ):
            call(wrong)
        if name != "binding":
            with pytest.raises(TypeError, match=r"bindings\[0\] is a .*, not a Binding; operator.bind\(input_tensor="):
                call([wrong])


@pytest.mark.parametrize("name", ["cpu", "to_numpy", "to", "detach", "get", "asnumpy", "data", "values", "download"])
def test_ways_of_other_libraries_to_the_host_name_ours(used: SimpleNamespace, name: str) -> None:
    with pytest.raises(AttributeError, match=rf"a dmlvk.Tensor has no attribute '{name}': tensor.numpy\(\) copies"):
        getattr(used.tensor, name)
    assert not hasattr(used.tensor, name)
    assert getattr(used.tensor, name, 5) == 5


def test_other_attributes_of_arrays_say_where_they_are(used: SimpleNamespace) -> None:
    own = set(dir(used.tensor))
    assert {"numpy", "write", "shape", "tolist", "item"} <= own
    for name in set(ELSEWHERE) - own:
        if not name.startswith("__"):
            with pytest.raises(AttributeError, match=rf"a dmlvk.Tensor has no attribute '{name}': "):
                getattr(used.tensor, name)
    for name, advice in (
        ("T", r"tensor.numpy\(\).T"),
        ("astype", r"tensor.numpy\(\).astype"),
        ("sizes", r"tensor.desc.sizes"),
        ("clone", r"device.tensor\(tensor\)"),
        ("copy_", r"tensor.write\(array\)"),
        ("cuda", r"torch.from_dlpack\(tensor\)"),
    ):
        with pytest.raises(AttributeError, match=advice):
            getattr(used.tensor, name)
    assert not own & {"T", "astype", "cpu", "sizes"}, "completion shows what is there"
    with pytest.raises(AttributeError, match=r"^'Tensor' object has no attribute 'quux'"):
        _ = used.tensor.quux
    np.testing.assert_array_equal(np.asarray(used.tensor), ARRAY)
    assert np.sum(np.asarray(used.tensor)) == np.sum(ARRAY)


@pytest.mark.parametrize("name", ["numpy", "result", "cpu", "get"])
def test_a_submission_says_where_the_result_is(used: SimpleNamespace, name: str) -> None:
    with pytest.raises(AttributeError, match=r"a dmlvk.\w*Submission has no attribute .*output.numpy\(\) waits for it"):
        getattr(used.submission, name)


def test_an_operator_is_called(used: SimpleNamespace) -> None:
    for name in ("run", "execute", "dispatch"):
        with pytest.raises(AttributeError, match=rf"no attribute '{name}': a call runs it: operator\(input_tensor="):
            getattr(used.operator, name)
