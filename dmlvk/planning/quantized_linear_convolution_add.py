"""QUANTIZED_LINEAR_CONVOLUTION_ADD: the sum is the last step of the convolution's kernel, if that has a form with one.

The paths are those of the convolution. A path whose kernel has no such form, or an addend that does not lie as the
output does, or a device with few storage buffers: the convolution's output goes to scratch memory, and a kernel of
ELEMENT_WISE_QUANTIZED_LINEAR_ADD adds to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from dmlvk.device_profile import DeviceProfile
from dmlvk.planning import element_wise_quantized_linear_add as addition
from dmlvk.planning.builder import Arena, PlanBuilder
from dmlvk.planning.kernel_interface import has_kernel, kernel_interface
from dmlvk.planning.last_step import HAS_TABLE, OUTPUT, in_last_step, is_output, moved, stored_in_scratch
from dmlvk.planning.plan import NO_OFFSETS, PERSISTENT, SCRATCH, Access, Dispatch, Plan, Window
from dmlvk.planning.quantized_linear_convolution import PATHS as PATHS
from dmlvk.planning.quantized_linear_convolution.choice import paths_close_to_best, plan_problem
from dmlvk.planning.quantized_linear_convolution.path import Problem

if TYPE_CHECKING:
    from dmlvk.operators import QuantizedLinearConvolutionAddDesc

FOLDER = "quantized_linear_convolution"
FOLDER_WITH_SUM = "quantized_linear_convolution_add"
ADDEND = "addend_tensor"
BLOCK_SIZE = addition.BLOCK_SIZE
# As kernels/quantized_linear_convolution_add/sum.glsl has it.
ADDEND_BINDING = 11


def plan(
    desc: QuantizedLinearConvolutionAddDesc,
    profile: DeviceProfile,
    *,
    path: str | None = None,
    offsets: Mapping[str, int],
) -> Plan:
    """Plan a QUANTIZED_LINEAR_CONVOLUTION_ADD."""
    # If the sum is apart, the convolution's output lies elsewhere.
    convolved = {field: offset for field, offset in offsets.items() if field != OUTPUT}
    convolution = plan_problem(Problem(desc.convolution, profile, convolved, has_sum=True), path)
    by_field = {name: offsets[field] for name, field in desc.sum_fields.items() if field in offsets}
    builder = PlanBuilder(
        profile,
        by_field,
        scratch=Arena(SCRATCH, convolution.scratch_size),
        persistent=Arena(PERSISTENT, convolution.persistent_size),
    )
    table = addition.SumTable.of(desc.sum, builder, is_checked=True)
    stages = None
    if _lies_alike(desc, offsets):
        stages = in_last_step(convolution.stages, profile, lambda dispatch: _with_sum(desc, dispatch, table))
    names = {name: (field, 0) for name, field in desc.sum_fields.items()}
    before = moved(table.before_each_run, names)
    if stages is None:
        stages = _apart(desc, profile, convolution.stages, builder, table)
    return replace(
        convolution,
        stages=(*before, *stages),
        initialization=(*convolution.initialization, *moved(table.once, names)),
        scratch_size=builder.scratch.size,
        persistent_size=builder.persistent.size,
    )


def close_paths(desc: QuantizedLinearConvolutionAddDesc, profile: DeviceProfile, *, every: bool = False) -> list[str]:
    """As for the convolution, whose tiles make most of the time."""
    return paths_close_to_best(Problem(desc.convolution, profile, NO_OFFSETS, has_sum=True), every=every)


def _lies_alike(desc: QuantizedLinearConvolutionAddDesc, offsets: Mapping[str, int]) -> bool:
    """Whether an element of the addend lies in its tensor where that of the output does, and no segment ends there."""
    return (
        desc.addend_tensor.element_strides == desc.output_tensor.element_strides
        and OUTPUT not in offsets
        and ADDEND not in offsets
    )


@cache
def _names_of_words(kernel: str) -> tuple[str, ...]:
    """The push constant that each word belongs to. The kernels of convolutions have no arrays of them."""
    interface = kernel_interface(kernel)
    return tuple(sorted(interface.push_constants, key=lambda name: interface.push_constants[name][0]))


def _with_sum(desc: QuantizedLinearConvolutionAddDesc, dispatch: Dispatch, table: addition.SumTable) -> Dispatch | None:
    """The dispatch of the kernel with a sum in place of that of a convolution's kernel; None if there is none.

    It has two more bindings: the addend, through the window of the output, and the table.
    """
    kernel = dispatch.kernel.replace(FOLDER, FOLDER_WITH_SUM, 1)
    if not has_kernel(kernel):
        return None
    interface = kernel_interface(kernel)
    names = _names_of_words(dispatch.kernel)
    output = next(filter(is_output, dispatch.windows))
    pushed = dict(zip(names, dispatch.push_constants, strict=True))
    # The bit above the table's start: see sum.glsl.
    first = int(desc.addend_comes_first) << 31
    pushed |= {"addend_start": pushed[names[output.base_word]], "sum_table_start": first}
    constants = dict(
        zip(kernel_interface(dispatch.kernel).specialization_constants, dispatch.specialization, strict=True)
    )
    # One kernel adds, the other looks up: in the same place it has another constant.
    constants.pop(HAS_TABLE)
    constants |= {"SUM_UNSIGNED_TYPES": addition.unsigned_types(desc.sum)}
    windows = tuple(
        replace(window, base_word=interface.word_of(names[window.base_word])) for window in dispatch.windows
    )
    # A convolution whose K is not shared leaves the last binding before these out.
    unread = replace(windows[0], base_word=interface.word_of("part_sums_start"))
    windows = (
        *windows,
        *[unread] * (ADDEND_BINDING - len(windows)),
        Window(ADDEND, output.offset, output.size, Access.READ, interface.word_of("addend_start"), output.base_unit),
        Window(
            table.view.tensor,
            table.view.start,
            addition.TABLE_SIZE,
            Access.READ,
            interface.word_of("sum_table_start"),
            BLOCK_SIZE,
        ),
    )
    return replace(
        dispatch,
        kernel=interface.kernel,
        specialization=interface.specialization(constants),
        push_constants=interface.push_constant_words(pushed),
        windows=windows,
        bytes_moved=dispatch.bytes_moved + output.size,
    )


def _apart(
    desc: QuantizedLinearConvolutionAddDesc,
    profile: DeviceProfile,
    stages: tuple[tuple[Dispatch, ...], ...],
    builder: PlanBuilder,
    table: addition.SumTable,
) -> tuple[tuple[Dispatch, ...], ...]:
    """A convolution's stages, with its output in scratch memory, and one that adds."""
    # As planned, the output is whole in a segment, or begins one.
    start = builder.allocate(builder.scratch, desc.output_tensor.total_size_in_bytes)
    sums = addition.sums(desc.sum, profile, table, builder.offsets, in_floats=addition.has_floats(profile))
    names = {name: (field, 0) for name, field in desc.sum_fields.items()}
    names["b_tensor" if desc.addend_comes_first else "a_tensor"] = (SCRATCH, start)
    return (*stored_in_scratch(stages, start), *moved((sums,), names))
