"""Push constants and specialization constants by name."""

from __future__ import annotations

import pytest

from dmlvk.planning.builder import DispatchBuilder
from dmlvk.planning.kernel_interface import KernelInterfaceError, kernel_interface
from dmlvk.planning.plan import Access, Dispatch

COPY = kernel_interface("benchmark/copy")
MOVE = kernel_interface("slice1/blocks")


def test_values_go_where_the_module_has_their_names() -> None:
    assert COPY.push_constant_words({"count": 3, "source_start": 1, "destination_start": -1}) == (1, 2**32 - 1, 3)
    words = {name: [0] * count if count > 1 else 0 for name, (_, count) in MOVE.push_constants.items()}
    assert MOVE.push_constant_words({**words, "output_strides": range(8)})[16:24] == tuple(range(8))
    assert MOVE.word_of("arguments[2]") == MOVE.push_constants["arguments"][0] + 2
    values = {name: number for number, name in enumerate(MOVE.specialization_constants)}
    assert MOVE.specialization(dict(reversed(values.items()))) == tuple(range(len(values)))


def copy_dispatch(specialization: dict[str, int], **push_constants: int) -> Dispatch:
    """A dispatch of benchmark/copy with these constants. Its windows set the two starts."""
    builder = DispatchBuilder("benchmark/copy")
    builder.window("input_tensor", (0, 64), 20, 4, "source_start", Access.READ)
    builder.window("output_tensor", (32, 64), 16, 4, "destination_start", Access.WRITE)
    builder.push(**push_constants)
    return builder.finish(specialization, (1, 1, 1), seconds=0.0)


def test_a_dispatch_has_the_constants_of_its_kernel() -> None:
    size = dict.fromkeys(COPY.specialization_constants, 64)
    dispatch = copy_dispatch(size, count=3)
    assert dispatch.push_constants == (5, 2**32 - 4, 3)
    assert [window.base_word for window in dispatch.windows] == [0, 1]
    assert dispatch.specialization == tuple(size.values())
    for specialization, push_constants, message in (
        (size, {}, r"push constants missing: \['count'\]"),
        (size, {"count": 3, "x": 1}, r"push constants missing: \[\], unknown: \['x'\]"),
        ({"RANK": 1}, {"count": 3}, "specialization constants missing: .*LOCAL_SIZE_X"),
        ({**size, "RANK": 1}, {"count": 3}, r"specialization constants missing: \[\], unknown: \['RANK'\]"),
    ):
        with pytest.raises(KernelInterfaceError, match=message):
            copy_dispatch(specialization, **push_constants)


def test_a_missing_or_unknown_name_is_an_error() -> None:
    for values in ({"count": 3, "source_start": 1}, {"count": 3, "source_start": 1, "destination_start": 0, "x": 1}):
        with pytest.raises(KernelInterfaceError, match="benchmark/copy: push constants missing"):
            COPY.push_constant_words(values)
    values = dict.fromkeys(MOVE.specialization_constants, 1)
    for changed in ({**values, "COUNT": 1}, {name: 1 for name in values if name != "RANK"}):
        with pytest.raises(KernelInterfaceError, match=r"COUNT|RANK"):
            MOVE.specialization(changed)
    with pytest.raises(KernelInterfaceError, match="output_start has 1 words, not 2"):
        MOVE.push_constant_words({name: [1, 2] for name in MOVE.push_constants})
    with pytest.raises(KernelInterfaceError, match="no push constant 'start'"):
        DispatchBuilder("benchmark/copy").window("input_tensor", (0, 16), 0, 1, "start", Access.READ)
    with pytest.raises(KernelInterfaceError, match="no kernel 'slice1/nothing'"):
        kernel_interface("slice1/nothing")
