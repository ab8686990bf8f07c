"""Ctrl-C: in a wait, and between the driver's taking of work and our noting of it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pytest

import dmlvk
from dmlvk.vulkan.library import vk
from tests.vulkan.variants import copy_desc, open_variant

DESC = dmlvk.TensorDesc(dmlvk.DataType.INT32, (64,))
VALUES = np.arange(64, dtype=np.int32)

# Windows has no signals between processes: there, Ctrl-C comes as a new thread that runs the process' own handler.
INTERRUPT = "signal.raise_signal, (signal.SIGINT,)" if os.name == "nt" else "os.kill, (os.getpid(), signal.SIGINT)"


@pytest.mark.parametrize("wait", ["submission.wait()", "a.numpy()", "a.write(values)", "device.wait()"])
def test_a_signal_during_a_wait(device: dmlvk.Device, wait: str) -> None:
    program = f"""
    import os, signal, threading, time
    import numpy as np, dmlvk
    from tests.runtime.busy import DESC, keep_busy
    from tests.vulkan.variants import copy_desc
    values = np.random.default_rng(1).integers(0, 256, DESC.sizes, np.uint8)
    with dmlvk.Device({device.name!r}) as device:
        submission, a = keep_busy(device, 0.5)
        threading.Timer(0.1, {INTERRUPT}).start()
        try:
            {wait}
        except KeyboardInterrupt:
            print("interrupted", "done" if submission.done else "running")
        submission.wait()
        a.write(values)
        b = device.tensor(DESC)
        device.compile(copy_desc(DESC))(input_tensor=a, output_tensor=b)
        assert (b.numpy() == values).all()
    print("closed")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "DMLVK_VALIDATE": "0"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted running\nclosed\n", "", 0)


@pytest.mark.parametrize("variant", ["direct", "staged", "staged-copy-queue"])
@pytest.mark.parametrize("reaches_the_driver", [True, False], ids=["after the driver", "before the driver"])
def test_an_interrupt_inside_a_submission(
    device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch, variant: str, reaches_the_driver: bool
) -> None:
    """Wherever it strikes, what may be running is kept, what comes later waits for it, and nothing hangs."""
    with open_variant(device, variant) as own:
        copy = own.compile(copy_desc(DESC))
        source, target, third = own.tensor(VALUES), own.tensor(DESC), own.tensor(DESC)
        bindings = [
            copy.bind(input_tensor=source, output_tensor=target),
            copy.bind(input_tensor=target, output_tensor=third),
        ]
        sequence = own.sequence(bindings)
        uses: list[Callable[[], object]] = [
            lambda: copy(input_tensor=source, output_tensor=own.tensor(DESC)),
            lambda: copy(input_tensor=source, output_tensor=target),
            lambda: own.submit(bindings),
            sequence.submit,
            lambda: own.tensor(DESC),
        ]
        if variant != "direct":
            uses += [lambda: source.write(VALUES), target.numpy]
        submit = vk.vkQueueSubmit

        def interrupted(*arguments: object) -> int:
            if reaches_the_driver:
                submit(*arguments)
            raise KeyboardInterrupt

        for number in range(3 * len(uses)):
            use = uses[number % len(uses)]
            monkeypatch.setattr(vk, "vkQueueSubmit", interrupted)
            with suppress(KeyboardInterrupt):
                use()
            if number % 2:  # and once more, where it is cleared up
                with pytest.raises(KeyboardInterrupt):
                    own.submit(bindings)
            monkeypatch.setattr(vk, "vkQueueSubmit", submit)
            if number % 3:
                source.write(VALUES + number)
                own.submit(bindings)
                np.testing.assert_array_equal(third.numpy(), VALUES + number)
        own.wait()
        for tensor in (source, target, third):
            tensor.free()
        bindings.clear()
        uses.clear()
        sequence = use = None  # type: ignore[assignment]
        own.wait()
        assert own.memory_used == 0
