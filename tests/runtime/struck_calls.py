"""Public calls struck by an exception at one line after the other, as a program of its own: a crash is its end.

    python -m tests.runtime.struck_calls --device llvmpipe --variant staged --most 7

After each strike the process lives, the call's effect is whole or none, other calls give the right bits (on another
thread too), and closing returns; after closing, no Vulkan object and no memory is left.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dmlvk
from dmlvk.planning.quantized_linear_convolution.questions import convolution, question
from dmlvk.runtime import self_test, tensor
from dmlvk.vulkan.host_threads import core_count, in_background
from dmlvk.vulkan.instance import close_ownerless
from tests.dlpack import from_dlpack
from tests.strikes import Strike
from tests.vulkan.shim import Shim
from tests.vulkan.variants import copy_desc, open_variant

FOLDER = str(Path(dmlvk.__file__).parent)
DESC = dmlvk.TensorDesc("int32", (64,))
GAPS = dmlvk.TensorDesc("int32", (8, 8), (16, 2))
OWNED = dmlvk.TensorDesc("int32", (64,), flags=dmlvk.TensorFlags.OWNED_BY_DML)
VALUES = np.arange(64, dtype=np.int32)
INDICES = np.array([[1], [2], [0]], np.int32)
# Columns first, and so large that the device turns the layout here.
TURNED = dmlvk.TensorDesc("uint8", (70, 60), (1, 70))
TURNED_VALUES = np.random.default_rng(3).integers(0, 256, TURNED.sizes, np.uint8)
# Several pieces of the staging ring.
LARGE = np.random.default_rng(1).integers(0, 256, 9 << 20, np.uint8)
CONVOLUTION = dmlvk.QuantizedLinearConvolutionDesc(
    input_tensor=dmlvk.TensorDesc("int8", (1, 8, 6, 6)),
    input_scale_tensor=dmlvk.TensorDesc("float32", (1,)),
    filter_tensor=dmlvk.TensorDesc("int8", (8, 8, 3, 3), flags=dmlvk.TensorFlags.OWNED_BY_DML),
    filter_scale_tensor=dmlvk.TensorDesc("float32", (1,)),
    output_scale_tensor=dmlvk.TensorDesc("float32", (1,)),
    output_tensor=dmlvk.TensorDesc("int8", (1, 8, 4, 4)),
    strides=(1, 1),
    dilations=(1, 1),
    start_padding=(0, 0),
    end_padding=(0, 0),
    group_count=1,
)


class State:
    """A device with everything that a call can need. Work submitted by the constructor is done when it returns."""

    def __init__(self, name: str, variant: str) -> None:
        tensor.LEAST_SIZE_TURNED_ON_DEVICE = TURNED.total_size_in_bytes  # type: ignore[attr-defined]
        if "background" in variant:
            os.environ["DMLVK_BACKGROUND"] = "1"
        self.own = own = open_variant(NamedDevice(name), variant)  # type: ignore[arg-type]
        self.copy = own.compile(copy_desc(DESC))
        self.source, self.target, self.third = own.tensor(VALUES), own.tensor(VALUES * 0), own.tensor(VALUES * 0)
        self.gaps = own.tensor(GAPS)
        self.gaps.write(VALUES.reshape(8, 8))
        self.large = own.tensor(LARGE)
        self.turned = own.tensor(TURNED)
        self.turned.write(TURNED_VALUES)
        self.other = own.tensor(VALUES + 1000)
        self.known = self.copy(input_tensor=self.source, output_tensor=self.target)
        self.bindings = [
            self.copy.bind(input_tensor=self.source, output_tensor=self.target),
            self.copy.bind(input_tensor=self.target, output_tensor=self.third),
        ]
        own.submit(self.bindings)
        self.sequence = own.sequence(self.bindings)
        self.owning = own.compile(copy_desc(OWNED, DESC))
        self.owning.initialize(input_tensor=self.source)
        random = np.random.default_rng(2)
        self.convolved = {
            "input_tensor": own.tensor(random.integers(-128, 128, (1, 8, 6, 6), np.int8)),
            "input_scale_tensor": own.tensor(np.array([0.1], np.float32)),
            "filter_scale_tensor": own.tensor(np.array([0.2], np.float32)),
            "output_scale_tensor": own.tensor(np.array([3.0], np.float32)),
        }
        self.filters = [random.integers(-128, 128, (8, 8, 3, 3), np.int8) for _ in range(2)]
        self.convolution = own.compile(CONVOLUTION)
        self.convolution.initialize(filter_tensor=own.tensor(self.filters[0]))
        self.results = [
            dmlvk.reference.run(
                CONVOLUTION, filter_tensor=each, **{field: t.numpy() for field, t in self.convolved.items()}
            )
            for each in self.filters
        ]
        self.new_filter = own.tensor(self.filters[1])
        self.bound = self.bound_convolution()
        self.number = 0
        own.timestamps = False

    def bound_convolution(self) -> tuple[dmlvk.Binding, dmlvk.Tensor]:
        """A binding of the convolution and its output. Special kernels may take over from general ones at any use."""
        output = self.own.tensor(CONVOLUTION.output_tensor)
        return self.convolution.bind(**self.convolved, output_tensor=output), output

    def check(self) -> None:
        """Every kind of call gives the right bits."""
        own = self.own
        own.timestamps = False
        self.number += 1
        values = VALUES + self.number
        self.source.write(values)
        self.copy(input_tensor=self.source, output_tensor=self.target)
        expect(self.target.numpy(), values, "a known call")
        fresh = own.tensor(DESC)
        self.copy(input_tensor=self.source, output_tensor=fresh).wait()
        expect(fresh.numpy(), values, "a call with a new tensor")
        self.source.write(values + 1)
        own.submit(self.bindings)
        expect(self.third.numpy(), values + 1, "a list")
        self.source.write(values + 2)
        self.sequence.submit().wait()
        expect(self.third.numpy(), values + 2, "a replay")
        bindings = [self.copy.bind(input_tensor=fresh, output_tensor=self.third)]
        own.submit(bindings)
        expect(self.third.numpy(), values, "a binding")
        self.gaps.write(values.reshape(8, 8))
        expect(self.gaps.numpy().ravel(), values, "a tensor with gaps")
        expect(from_dlpack(self.source, device="cpu"), values + 2, "an export")
        output = own.tensor(CONVOLUTION.output_tensor)
        self.convolution(**self.convolved, output_tensor=output)
        if not any((output.numpy() == each).all() for each in self.results):
            raise SystemExit("an initialized convolution: neither the old filter nor the new one")
        binding, output = self.bound
        output.write(output.numpy() ^ 1)
        own.submit([binding])
        if not any((output.numpy() == each).all() for each in self.results):
            raise SystemExit("a bound convolution: neither the old filter nor the new one")
        own.wait()


class NamedDevice:
    """The attributes that `open_variant` needs of a device."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def profile(self) -> dmlvk.DeviceProfile:
        return next(info.profile for info in dmlvk.devices() if self.name.lower() in info.name.lower())


def expect(found: np.ndarray, expected: np.ndarray, what: str) -> None:
    if not np.array_equal(found, expected):
        raise SystemExit(f"{what}: {found} is not {expected}")


# Each makes one public call, or a few that belong together.
CALLS: dict[str, Callable[[State], Any]] = {
    "compile": lambda s: s.own.compile(copy_desc(dmlvk.TensorDesc("int32", (65 + s.number,)))),
    "compile a list": lambda s: compiled_anew(s),
    "compile a convolution": lambda s: compiled_convolution(s),
    "take over": lambda s: taken_over(s),
    "answer a question": lambda s: answered(s),
    "call with new tensors": lambda s: s.copy(input_tensor=s.source, output_tensor=s.own.tensor(DESC)),
    "call with known tensors": lambda s: s.copy(input_tensor=s.source, output_tensor=s.target),
    "bind": lambda s: s.copy.bind(input_tensor=s.source, output_tensor=s.own.tensor(DESC)),
    "submit a known list": lambda s: s.own.submit(s.bindings),
    "submit a new list": lambda s: s.own.submit([s.bindings[0], *s.bindings, *s.bindings[: s.number % 2]]),
    "submit one binding": lambda s: s.own.submit([s.copy.bind(input_tensor=s.source, output_tensor=s.target)]),
    "sequence": lambda s: s.own.sequence(s.bindings),
    "replay": lambda s: s.sequence.submit(),
    "tensor of an array": lambda s: s.own.tensor(VALUES),
    "tensor of a desc": lambda s: s.own.tensor(DESC),
    "tensor of a tensor": lambda s: s.own.tensor(s.gaps),
    "zeros": lambda s: s.own.zeros(64, "int32"),
    "a large tensor": lambda s: s.own.tensor(dmlvk.TensorDesc("uint8", (80 << 20,))),
    "buffer": lambda s: s.own.buffer(4096).tensor(DESC, 64),
    "write": lambda s: s.target.write(VALUES + 1000),
    "write with gaps": lambda s: s.gaps.write(VALUES.reshape(8, 8)),
    "write much": lambda s: s.large.write(LARGE[::-1]),
    "write a tensor": lambda s: s.target.write(s.other),
    "write turned": lambda s: s.turned.write(TURNED_VALUES ^ 1),
    "write bytes": lambda s: s.target.write_bytes((VALUES + 1000).tobytes()),
    "read": lambda s: s.target.numpy(),
    "read with gaps": lambda s: s.gaps.numpy(),
    "read much": lambda s: s.large.numpy(),
    "read turned": lambda s: s.turned.numpy(),
    "read into an array": lambda s: s.gaps.numpy(out=np.ones((8, 16), np.int32)[:, ::-2]),
    # Shared where the host reaches the memory, else copied; and dropped at once.
    "export": lambda s: from_dlpack(s.source, device="cpu"),
    "read bytes": lambda s: s.gaps.read_bytes(),
    "initialize": lambda s: s.owning.initialize(input_tensor=s.source),
    "initialize a filter": lambda s: s.convolution.initialize(filter_tensor=s.new_filter),
    "initialize with an array": lambda s: s.convolution.initialize(filter_tensor=s.filters[1]),
    "wait": lambda s: s.copy(input_tensor=s.source, output_tensor=s.target).wait(),
    "wait for the device": lambda s: s.own.wait(),
    "done": lambda s: s.copy(input_tensor=s.source, output_tensor=s.target).done,
    "timestamps": lambda s: measured(s).gpu_time,
    "timestamps of a sequence": lambda s: measured_sequence(s),
    "memory used": lambda s: s.own.memory_used,
    "free": lambda s: s.own.tensor(DESC).free(),
    "one-liner": lambda s: dmlvk.one_hot(INDICES, [0, 7], output_length=3, axis=1, device=s.own),
    "open": lambda s: dmlvk.Device(s.own.name),
    "close": lambda s: s.own.close(),
    "close under a view": lambda s: closed_under_a_view(s),
}
# After these calls, the tensor holds the first contents or the second ones, which are written.
WRITES: dict[str, tuple[Callable[[State], dmlvk.Tensor], np.ndarray, np.ndarray]] = {
    "write": (lambda s: s.target, VALUES, VALUES + 1000),
    "write a tensor": (lambda s: s.target, VALUES, VALUES + 1000),
    "write bytes": (lambda s: s.target, VALUES, VALUES + 1000),
    "write turned": (lambda s: s.turned, TURNED_VALUES, TURNED_VALUES ^ 1),
}
# After these calls, the device is closed or open.
CLOSES = ("close", "close under a view")
# These calls do not use the State's device, so a struck one leaves it as it was: a State serves for many strikes.
CALLS_WITHOUT_DEVICE = {"open"}


def compiled_anew(state: State) -> object:
    """Pipelines that the device does not keep, so that the driver's compiler runs, in several threads."""
    state.own.vulkan.pipelines._pipelines.clear()
    sizes = [(3 + state.number,), (3, 5 + state.number), (2, 3, 5 + state.number)]
    return state.own.compile_all(copy_desc(dmlvk.TensorDesc("uint8", each)) for each in sizes)


def compiled_convolution(state: State) -> object:
    """A convolution of a new size, called at once."""
    state.own.vulkan.pipelines._pipelines.clear()
    size = 7 + state.number % 50
    desc = replace(
        CONVOLUTION,
        input_tensor=dmlvk.TensorDesc("int8", (1, 8, size, 6)),
        output_tensor=dmlvk.TensorDesc("int8", (1, 8, size - 2, 4)),
    )
    operator = state.own.compile(desc)
    operator.initialize(filter_tensor=state.filters[0])
    tensors = {**state.convolved, "input_tensor": state.own.tensor(desc.input_tensor)}
    return operator(**tensors, output_tensor=state.own.tensor(desc.output_tensor))


def answered(state: State) -> object:
    """A convolution whose path answers a known question first, on a Device of its own."""
    own = state.own
    own._operators.clear()
    desc, asked = (convolution(4, 8, 3, 1, (5 + number + state.number % 50, 6), is_last=False) for number in (0, 1))
    path = own.plan(desc).path
    # A handler may compile meanwhile: at any moment, the paths are those of the SelfTest, if there is one.
    before, own.engine.self_test = own.engine.self_test, None
    patch = pytest.MonkeyPatch()
    try:
        # The other path is not compiled, so that the Device stays open.
        patch.setattr(self_test, "QUESTIONS", dict.fromkeys((path, "direct"), (question(asked),)))
        patch.setattr(self_test, "WITHOUT_UNITS", frozenset())
        patch.setenv("DMLVK_SELF_TEST", "always")
        forget_questions()
        own.engine.self_test = test = self_test.SelfTest()
        try:
            return own.compile(desc, wait=True)
        finally:
            own.engine.self_test = None
            test.close()
            if path in own.profile.distrusted_paths:
                raise SystemExit(f"an exception from outside was taken for a wrong answer: {test._known}")
    finally:
        try:
            patch.undo()
        finally:
            patch.undo()  # all of it, if an exception came in the middle of the first time
            forget_questions()
            own.engine.self_test = before


def forget_questions() -> None:
    for cached in (self_test._questions_of, self_test._question_of):
        cached.cache_clear()


def taken_over(state: State) -> object:
    """The same convolution anew: compiled and bound, waited for, and bound and submitted once more."""
    state.own.vulkan.pipelines._pipelines.clear()
    general = state.own.compile(CONVOLUTION)
    general.initialize(filter_tensor=state.filters[0])
    state.convolution = general
    state.bound = state.bound_convolution()
    state.own.submit([state.bound[0]])
    sequence = state.own.sequence([state.bound[0], state.bindings[0]])
    sequence.submit()
    general.wait_for_compiler()
    state.own.submit([state.bound[0]])
    sequence.submit()
    return sequence.submit()


def measured(state: State) -> dmlvk.Submission:
    state.own.timestamps = True
    return state.own.submit(state.bindings)


def measured_sequence(state: State) -> object:
    state.own.timestamps = True
    sequence = state.own.sequence(state.bindings)
    return sequence.submit().gpu_time, sequence.submit().gpu_time


def closed_under_a_view(state: State) -> None:
    """Close the device, look at the memory of one of its tensors, and drop the last view of it."""
    values = state.source.numpy()
    block = state.source.memory().segments[0].block
    shared = from_dlpack(state.source, device="cpu")
    try:
        state.own.close()
    finally:
        # Looked at first: memory that was freed may still hold the values.
        if any(handle.is_empty for handle in block.handles):
            raise SystemExit("the memory of a view is destroyed")
        expect(shared, values, "a view of a closed device")


def on_another_thread(work: Callable[[], None]) -> None:
    """Do the work on another thread; a thread that waits for a lock for ever ends the process."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    if thread.is_alive():
        faulthandler.dump_traceback()
        raise SystemExit("another thread waits for ever")
    if errors:
        raise errors[0]


class Striker:
    """Strikes calls at every line, each time on a new State if the call uses one.

    With `most`, it strikes at most that many lines of a call, chosen by the seed, and one State serves all calls that
    leave it open: opening a device takes half a second on some drivers.
    """

    def __init__(self, name: str, variant: str, most: int | None, seed: int, shim: Shim) -> None:
        self._name = name
        self._variant = variant
        self._most = most
        self._seed = seed
        self._shim = shim
        self._state: State | None = None

    def _open(self) -> State:
        if self._state is None:
            self._state = State(self._name, self._variant)
            self._state.check()
        return self._state

    def close(self) -> None:
        """Close the State; it must leave nothing."""
        if self._state is None:
            return
        on_another_thread(self._state.own.close)
        if not self._state.own.is_closed:
            raise SystemExit("close returned, and the device is open")
        self._state = None
        gc.collect()
        close_ownerless()
        left = {kind: count for kind, count in self._shim.live_count.items() if kind != "Instance"}
        if left:
            raise SystemExit(f"not destroyed: {left}")

    def strike_all(self, call: str) -> int:
        """Strike one call at one line after the other; returns the number of strikes."""
        number = struck = 0
        step = 1
        if self._most is not None:
            if call in CLOSES:
                self.close()  # closing a State that many calls have used takes more lines
            state = self._open()  # outside of what is counted
            with Strike(sys.maxsize, FOLDER) as count:
                CALLS[call](state)
            del state
            step = max(1, count.lines // self._most)
            number = self._seed % step
            if call in CLOSES:
                self.close()
        while True:
            faulthandler.dump_traceback_later(120, exit=True)
            strike = Strike(number, FOLDER)
            try:
                self._strike(call, strike)
            except BaseException as error:
                print(f"{call}, line {number}: {strike.place}\n    {type(error).__name__}: {error}", file=sys.stderr)
                raise
            if not strike.has_struck:
                return struck
            struck += 1
            number += step

    def _strike(self, call: str, strike: Strike) -> None:
        state = self._open()
        if call in CALLS_WITHOUT_DEVICE:  # what earlier calls left is not this call's
            if "background" in self._variant:
                finish_background()
            gc.collect()
            close_ownerless()
        alive = dict(self._shim.live_count)
        if call in WRITES:
            written, old, new = WRITES[call]
            written(state).write(old)
        state.own.wait()
        with strike:
            CALLS[call](state)
        if call in WRITES:
            now = written(state).numpy()
            if not (np.array_equal(now, old) or np.array_equal(now, new)):
                raise SystemExit("half of the elements are written")
        if call not in CLOSES:
            state.check()
            on_another_thread(state.check)
        if call in CALLS_WITHOUT_DEVICE:
            gc.collect()
            close_ownerless()
            if self._shim.live_count != alive:
                raise SystemExit(f"objects beside the State's: {self._shim.live_count}, before the call {alive}")
        elif call in CLOSES or self._most is None:
            del state
            self.close()


def finish_background() -> None:
    """Wait until the background has done all that it was asked for."""
    others = max(2, core_count()) - 1
    barrier = threading.Barrier(1 + others)

    def meet() -> None:
        barrier.wait(60)

    for _ in range(others):
        in_background(meet)
    barrier.wait(60)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", required=True)
    parser.add_argument("--variant", required=True)
    parser.add_argument("--most", type=int, help="lines struck of each call; all of them by default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--call", choices=list(CALLS), action="append")
    arguments = parser.parse_args()
    # An exception in a finalizer ends there; Python would print it.
    sys.unraisablehook = lambda _: None
    dmlvk.devices()  # the instance is made before anything strikes
    gc.freeze()  # each collection after a strike walks what came since, not all modules
    with pytest.MonkeyPatch.context() as patch:
        shim = Shim(patch)
        striker = Striker(arguments.device, arguments.variant, arguments.most, arguments.seed, shim)
        for call in arguments.call or CALLS:
            if call == "close under a view" and "staged" in arguments.variant:
                continue  # there is nothing to view: that would be "close" once more
            print(f"{call}: {striker.strike_all(call)}", flush=True)
        striker.close()


if __name__ == "__main__":
    main()
