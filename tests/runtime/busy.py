"""Work that keeps a device busy for a while, however fast it is."""

from __future__ import annotations

import time

import dmlvk

DESC = dmlvk.TensorDesc(dmlvk.DataType.UINT8, (1 << 20,))


def keep_busy(own: dmlvk.Device, seconds: float = 0.4) -> tuple[dmlvk.Submission, dmlvk.Tensor]:
    """Submit work of about so many seconds; with a tensor that it writes last."""
    reverse = own.compile(
        dmlvk.Slice1Desc(
            input_tensor=DESC,
            output_tensor=DESC,
            input_window_offsets=[0],
            input_window_sizes=DESC.sizes,
            input_window_strides=[-1],
        )
    )
    a, b = own.tensor(DESC), own.tensor(DESC)
    bindings = [reverse.bind(input_tensor=a, output_tensor=b), reverse.bind(input_tensor=b, output_tensor=a)]
    own.submit(bindings).wait()
    count, elapsed = 1, 0.0
    # So much of it that what a submission costs besides does not count, and that an idle GPU has raised its clock.
    while elapsed < 0.04:
        count *= 4
        start = time.monotonic()
        own.submit(bindings * count).wait()
        elapsed = time.monotonic() - start
    return own.submit(bindings * int(1 + seconds * count / elapsed)), a
