"""Work that keeps a device busy for a while, however fast it is."""

from __future__ import annotations

import time

import dmlvk
from dmlvk.device_profile import DeviceType
from dmlvk.runtime.binding import Binding

# The time in which an idle GPU raises its clock. An H200's clock can be five times as high in the end.
WARM_UP_SECONDS = 1.0

DESC = dmlvk.TensorDesc(dmlvk.DataType.UINT8, (1 << 20,))
# A GPU reverses DESC in less time than recording that takes.
LARGE = dmlvk.TensorDesc(dmlvk.DataType.UINT8, (1 << 26,))


def keep_busy(own: dmlvk.Device, seconds: float = 0.4) -> tuple[dmlvk.Submission, dmlvk.Tensor]:
    """Submit work of about so many seconds; also returns the tensor, described by DESC, that the work writes last."""
    is_cpu = own.profile.device_type is DeviceType.CPU
    bindings, _ = _there_and_back(own, DESC if is_cpu else LARGE)
    own.submit(bindings).wait()
    count, elapsed = 1, 0.0
    warm = time.monotonic() + (0.0 if is_cpu else WARM_UP_SECONDS)
    # Enough work that the other costs of a submission do not matter.
    while elapsed < 0.04 or time.monotonic() < warm:
        if elapsed < 0.04:
            count *= 4
        start = time.monotonic()
        own.submit(bindings * count).wait()
        elapsed = time.monotonic() - start
    last, written = _there_and_back(own, DESC)
    return own.submit(bindings * int(1 + seconds * count / elapsed) + last), written


def _there_and_back(own: dmlvk.Device, desc: dmlvk.TensorDesc) -> tuple[list[Binding], dmlvk.Tensor]:
    """Two dispatches that each need the output of the other, and the output tensor of the second one."""
    reverse = own.compile(
        dmlvk.Slice1Desc(
            input_tensor=desc,
            output_tensor=desc,
            input_window_offsets=[0],
            input_window_sizes=desc.sizes,
            input_window_strides=[-1],
        )
    )
    a, b = own.tensor(desc), own.tensor(desc)
    return [reverse.bind(input_tensor=a, output_tensor=b), reverse.bind(input_tensor=b, output_tensor=a)], a
