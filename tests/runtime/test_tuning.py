"""`Device.compile_all(tune=True)`: what is measured, what is remembered, and that bits stay the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dmlvk
from dmlvk import DataType, TensorDesc, TensorFlags, planning
from dmlvk.device_profile import DeviceType
from dmlvk.operators import QuantizedLinearConvolutionTableDesc
from dmlvk.planning.quantized_linear_convolution.choice import CLOSE, MOST_CLOSE
from dmlvk.runtime import tuning
from dmlvk.runtime.engine import Engine
from dmlvk.runtime.tuned_paths import TunedPaths, read
from dmlvk.runtime.tuning import Tuning
from tests import profiles

OWNED = TensorFlags.OWNED_BY_DML


def layer(channels: int, filters: int, *, is_owned: bool = False) -> dmlvk.QuantizedLinearConvolutionDesc:
    flags = OWNED if is_owned else TensorFlags.NONE
    scale = TensorDesc(DataType.FLOAT32, [1, 1, 1, 1], flags=flags)
    return dmlvk.QuantizedLinearConvolutionDesc(
        input_tensor=TensorDesc(DataType.UINT8, [1, channels, 6, 5]),
        input_scale_tensor=scale,
        filter_tensor=TensorDesc(DataType.INT8, [filters, channels, 3, 3], flags=flags),
        filter_scale_tensor=TensorDesc(DataType.FLOAT32, [1, filters, 1, 1], flags=flags),
        output_scale_tensor=scale,
        strides=(1, 1),
        dilations=(1, 1),
        start_padding=(1, 1),
        end_padding=(1, 1),
        group_count=1,
    )


@pytest.fixture
def own(device: dmlvk.Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dmlvk.Device]:
    """A device that remembers nothing yet, and takes two paths for close."""
    monkeypatch.setenv("DMLVK_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(planning, "close_paths", lambda desc, profile: ["integer", "direct"])
    with dmlvk.Device(device.name) as opened:
        yield opened


def run(device: dmlvk.Device, desc: dmlvk.QuantizedLinearConvolutionDesc) -> tuple[str, np.ndarray]:
    """The path taken, and the result."""
    (operator,) = device.compile_all([desc])
    random = np.random.default_rng(5)
    arrays = {
        field: tuning.random_data(random, tensor) for field, tensor in desc.tensors.items() if field != "output_tensor"
    }
    tensors = {field: device.tensor(desc.tensors[field]) for field in desc.tensors}
    for field, array in arrays.items():
        tensors[field].write(array)
    operator(**tensors).wait()
    found = tensors["output_tensor"].numpy()
    assert np.array_equal(found, dmlvk.reference.run(desc, **arrays))
    return operator.plan.path, found


@pytest.mark.parametrize("fastest", ["direct", "integer"])
def test_the_fastest_path_is_remembered_and_taken(
    own: dmlvk.Device, fastest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    desc, asked = layer(8, 12), []

    def times(engine: Engine, each: Any, paths: list[str], operators: object) -> tuning.Tuning:
        asked.append(each)
        return tuning.Tuning(each, paths[0], {path: 1.0 if path == fastest else 2.0 for path in paths}, {})

    _, before = run(own, desc)
    monkeypatch.setattr(tuning, "_measured", times)
    shown: list[tuple[int, int]] = []
    own.compile_progress = lambda done, total: shown.append((done, total))
    own.compile_all([desc, desc], tune=True)
    assert asked == [desc], "alike layers are measured once"
    assert shown[:5] == [(done, 4) for done in range(5)], "two paths, each of which is compiled and measured"
    own.compile_all([desc], tune=True)
    assert asked == [desc], "what is remembered is not measured again"
    path, after = run(own, desc)
    assert path == fastest if fastest == "direct" else path != "direct", "the first of those close is the planner's own"
    assert np.array_equal(before, after)
    with dmlvk.Device(own.name) as other:
        assert run(other, desc)[0] == path


def test_a_measurement_takes_all_paths_and_keeps_what_it_has(
    own: dmlvk.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = layer(4, 8, is_owned=True), layer(3, 8), layer(5, 8)
    inner, count = tuning._measured, 0

    def interrupted(*arguments: Any) -> tuning.Tuning:
        nonlocal count
        count += 1
        if count == 3:
            raise KeyboardInterrupt
        found = inner(*arguments)
        assert set(found.seconds) == {"integer", "direct"} and all(seconds >= 0 for seconds in found.seconds.values())
        return found

    monkeypatch.setattr(tuning, "_measured", interrupted)
    with pytest.raises(KeyboardInterrupt):
        own.compile_all([first, second, third], tune=True)
    known = TunedPaths(own.profile)
    assert [known.has(desc) for desc in (first, second, third)] == [True, True, False]


def test_an_interrupt_while_paths_compile_keeps_what_it_has(own: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    layers = [layer(channels, 8) for channels in (3, 4, 5)]
    monkeypatch.setattr(tuning, "core_count", lambda: 1)
    monkeypatch.setattr(tuning, "_measured", lambda _, desc, paths, __: Tuning(desc, "", dict.fromkeys(paths, 1.0), {}))
    inner, last = own.compile, layers[-1]

    def interrupted(desc: dmlvk.QuantizedLinearConvolutionDesc, **options: Any) -> object:
        if desc == last:
            raise KeyboardInterrupt
        return inner(desc, **options)

    monkeypatch.setattr(own, "compile", interrupted)
    with pytest.raises(KeyboardInterrupt):
        own.compile_all(layers, tune=True)
    known = TunedPaths(own.profile)
    assert [known.has(desc) for desc in layers] == [True, True, False]


def test_a_path_of_other_bits_is_not_taken(own: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    desc, inner = layer(4, 8), own.compile

    def compiled(desc: Any, path: str | None = None, wait: bool = False) -> Any:
        operator = inner(desc, path=path, wait=wait)
        if path == "direct":
            bind = operator.bind
            monkeypatch.setattr(operator, "bind", lambda **tensors: bind(**_to_another_output(own, tensors)))
        return operator

    monkeypatch.setattr(own, "compile", compiled)
    with pytest.warns(RuntimeWarning, match="path 'direct': gives other bits than path 'integer' on .* is not taken"):
        own.compile_all([desc], tune=True)
    (choice,) = read(TunedPaths(own.profile).file)
    assert choice.path is None and set(choice.seconds) == {tuning.PLANNER}


def _to_another_output(device: dmlvk.Device, tensors: dict[str, dmlvk.Tensor]) -> dict[str, dmlvk.Tensor]:
    other = device.tensor(tensors["output_tensor"].desc)
    return {**tensors, "output_tensor": other}


def test_a_device_that_plans_for_another_profile_has_nothing_to_remember(device: dmlvk.Device) -> None:
    with dmlvk.Device(device.name, profile=device.profile) as own, pytest.raises(ValueError, match="another profile"):
        own.compile_all([layer(4, 8)], tune=True)


def test_close_paths_begin_with_the_planners_choice() -> None:
    for name in ("nvidia-h200", "intel-dg2", "amd-navi21", "adreno-660", "swiftshader"):
        profile = profiles.load(name)
        for desc in (layer(64, 64), layer(64, 64, is_owned=True), layer(3, 64)):
            found = planning.close_paths(desc, profile)
            assert found[0] == planning.plan(desc, profile).path
            assert 1 <= len(found) <= MOST_CLOSE and len(set(found)) == len(found)
            least = planning.plan(desc, profile).seconds
            for path in found[1:]:
                assert planning.plan(desc, profile, path=path).seconds <= 1.01 * CLOSE * least
    assert any(":" in path for path in planning.close_paths(layer(64, 64), profiles.load("nvidia-h200")))


def test_tiles_of_a_convolution_with_a_table_are_close_paths_too() -> None:
    plain, profile = layer(64, 64), profiles.load("nvidia-h200")
    given = {each.name: getattr(plain, each.name) for each in fields(plain) if each.init}
    table = TensorDesc(DataType.UINT8, [256], flags=OWNED)
    desc = QuantizedLinearConvolutionTableDesc(**given, table_tensor=table)
    assert planning.close_paths(desc, profile) == planning.close_paths(plain, profile)
    assert planning.plan(desc, profile).path == planning.close_paths(desc, profile)[0]


@pytest.mark.parametrize(("device_type", "rounds"), [(DeviceType.DISCRETE_GPU, None), (DeviceType.CPU, 5)])
def test_turns_go_on_until_the_clock_of_a_gpu_is_up(
    monkeypatch: pytest.MonkeyPatch, device_type: DeviceType, rounds: int | None
) -> None:
    """At a part of its clock, here for a fifth of a second without a change, products are slower than bytes."""
    now, turns = 0.0, {"products": 0, "bytes": 0}

    def timed(_: object, sequence: tuple[list[str], int]) -> float:
        nonlocal now
        ((name, *_), runs) = sequence[0], len(sequence[0])
        taken = runs * (2e-5 if name == "bytes" else 1e-4 if now < 0.2 else 1e-5)
        now, turns[name] = now + taken, turns[name] + 1
        return taken

    monkeypatch.setattr(tuning, "_timed", timed)

    def sequence(_: object, bindings: list[str]) -> tuple[list[str], int]:
        return bindings, len(bindings)

    monkeypatch.setattr(tuning, "_sequence", sequence)
    monkeypatch.setattr("time.perf_counter", lambda: now)
    engine: Any = SimpleNamespace(profile=SimpleNamespace(device_type=device_type))
    bindings: Any = {"products": "products", "bytes": "bytes"}
    times = tuning.times_in_turns(engine, bindings, 5)
    if rounds is None:
        assert times == pytest.approx({"products": 1e-5, "bytes": 2e-5})
        assert now < 0.2 + tuning.STEADY_SECONDS + 0.02
    else:
        assert set(turns.values()) == {1 + rounds}
