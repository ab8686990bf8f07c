"""Drivers' bugs that dmlvk goes around, as data: each with its driver, its versions, its reason and its test.

Code that depends on a driver's bug asks the quirk: ``quirks.LAVAPIPE_ENDS_LONG_LOOPS.applies_to(profile)``. What one
class of devices is merely faster with is no bug: that is in `dmlvk.planning.device_traits`.

To add a quirk: write the record, add it to `ALL`, and write the test that it names. The test fails, on the driver or
on a stand-in for it, as soon as dmlvk no longer goes around the bug.
"""

from __future__ import annotations

from dataclasses import dataclass

from dmlvk.device_profile import DeviceProfile, DriverId

NOT_REPORTED = "not reported"


@dataclass(frozen=True)
class Versions:
    """A range of a driver's releases, as `DeviceProfile.driver_release` counts them.

    Attributes
    ----------
    first : tuple of int, optional
        The oldest release in the range, (22, 3) for all of 22.3. None: there is no oldest one.
    before : tuple of int, optional
        The first newer release that is out of the range again. None: no release is known to be right.
    """

    first: tuple[int, ...] | None = None
    before: tuple[int, ...] | None = None

    def __contains__(self, release: tuple[int, ...]) -> bool:
        return (self.first is None or self.first <= release) and (self.before is None or release < self.before)


ANY_VERSION = Versions()


@dataclass(frozen=True, kw_only=True)
class Quirk:
    """A bug of one or several drivers.

    Attributes
    ----------
    name : str
        Unique.
    drivers : frozenset of DriverId
        The drivers that have the bug. Empty for a bug in a tool that makes SPIR-V.
    versions : Versions
        The releases of these drivers that `applies_to` counts in.
    seen_with : str
        The releases that the bug was seen with.
    effect : str
        What goes wrong.
    remedy : str
        How dmlvk goes around it.
    reported : str
        Where the bug was reported or described, or `NOT_REPORTED`.
    test : str
        The test that shows it: a file and a test in it, as pytest takes them.
    is_asked : bool
        Whether code asks `applies_to`. Else the remedy costs so little that all devices get it.
    limit : int, optional
        The largest number that is safe; `effect` says of what.
    """

    name: str
    drivers: frozenset[DriverId]
    versions: Versions = ANY_VERSION
    seen_with: str
    effect: str
    remedy: str
    reported: str = NOT_REPORTED
    test: str
    is_asked: bool
    limit: int | None = None

    def applies_to(self, profile: DeviceProfile) -> bool:
        """Whether a device's driver has the bug."""
        return profile.driver_id in self.drivers and profile.driver_release in self.versions


def of(profile: DeviceProfile) -> tuple[Quirk, ...]:
    """The quirks that apply to a device, in the order of `ALL`."""
    return tuple(quirk for quirk in ALL if quirk.applies_to(profile))


NVIDIA = frozenset({DriverId.NVIDIA_PROPRIETARY})
SAMSUNG = frozenset({DriverId.SAMSUNG_PROPRIETARY})
SWIFTSHADER = frozenset({DriverId.GOOGLE_SWIFTSHADER})
LAVAPIPE = frozenset({DriverId.MESA_LLVMPIPE})
# Those of Mesa's drivers that there are recorded profiles of.
MESA = LAVAPIPE | {
    DriverId.MESA_RADV,
    DriverId.INTEL_OPEN_SOURCE_MESA,
    DriverId.MESA_TURNIP,
    DriverId.MESA_NVK,
    DriverId.MESA_HONEYKRISP,
}

LAVAPIPE_ENDS_LONG_LOOPS = Quirk(
    name="lavapipe-ends-long-loops",
    drivers=LAVAPIPE,
    seen_with="Mesa 22.3.6",
    effect="The loops of an invocation end after 65,535 iterations in all, without an error: a sum of 131,068 taps is "
    "that of the first 65,535.",
    remedy="A dispatch of the direct kernel takes at most 60,000 iterations; another dispatch adds the other taps.",
    reported="not reported; the limit is LP_MAX_TGSI_LOOP_ITERATIONS in Mesa's gallivm/lp_bld_limits.h",
    test="tests/kernels/quantized_linear_convolution/test_arithmetic.py::test_sums_past_32_bits_do_not_wrap",
    is_asked=True,
    limit=60_000,
)
LAVAPIPE_KEEPS_DESTROYED_PIPELINES = Quirk(
    name="lavapipe-keeps-destroyed-pipelines",
    drivers=LAVAPIPE,
    seen_with="Mesa 22.3.6",
    effect="A destroyed pipeline that was used keeps its one to three megabytes until the next submission.",
    remedy="An empty submission follows each pipeline that is dropped for a newer one.",
    reported="not reported; it is lvp_queue::pipeline_destroys in Mesa's lavapipe",
    test="tests/runtime/test_growth.py::test_thousands_of_different_convolutions",
    is_asked=False,
)
LAVAPIPE_LEAVES_SUBGROUPS_BEHIND = Quirk(
    name="lavapipe-leaves-subgroups-behind",
    drivers=LAVAPIPE,
    versions=Versions(first=(26,)),
    seen_with="Mesa 26.2.6",
    effect="Where the subgroups of a workgroup do not all reach the same subgroup barriers, the work of the later "
    "subgroups is left undone.",
    remedy="All subgroups of a matrix kernel go through the same barriers.",
    test="tests/kernels/quantized_linear_convolution/test_first_layer.py::test_first_layers_on_matrix_units",
    is_asked=False,
)
MESA_WAITS_FOR_THREADS_AT_EXIT = Quirk(
    name="mesa-waits-for-threads-at-exit",
    drivers=MESA,
    seen_with="lavapipe of Mesa 22.3.6",
    effect="A forked child of a process with an open device crashes at its end: the driver waits there for threads "
    "that the child does not have.",
    remedy="A forked child ends without the exit handlers that it inherited.",
    test="tests/runtime/test_fork.py::test_what_a_forked_child_may_do",
    is_asked=False,
)
NVIDIA_SHARED_MEMORY_LOSES_THE_DEVICE = Quirk(
    name="nvidia-shared-memory-loses-the-device",
    drivers=NVIDIA,
    seen_with="580.159.04",
    effect="A kernel that declares more than 49,152 bytes of shared memory loses the device, where the pipeline should "
    "be refused.",
    remedy="No tile takes more, whatever maxComputeSharedMemorySize says.",
    test="tests/planning/test_device_traits.py::test_nvidia_s_shared_memory_ends_at_48_kib_whatever_the_limit",
    is_asked=True,
    limit=48 << 10,
)
NVIDIA_SLEEPING_WAITS_SLOW_SUBMISSIONS = Quirk(
    name="nvidia-sleeping-waits-slow-submissions",
    drivers=NVIDIA,
    seen_with="580.159.04 on Linux; Windows was not measured",
    effect="In half of the processes whose threads slept in a wait of the driver, submissions that signal a timeline "
    "come to take 23 us in place of 3, for a moment or to the end.",
    remedy="On Linux a wait looks at the timeline, sleeps outside the driver, and looks again.",
    reported="https://github.com/HansKristian-Work/vkd3d-proton/pull/2952 goes around that driver's timelines too; "
    "measured by python -m bench.sleeping_waits",
    test="tests/runtime/test_waiting.py::TestNapping::test_is_for_nvidia_s_driver_on_linux",
    is_asked=True,
)
NVIDIA_CRASHES_ON_A_NULL_CACHE = Quirk(
    name="nvidia-crashes-on-a-null-cache",
    drivers=NVIDIA,
    seen_with="580.159.04",
    effect="Reading a pipeline cache that is null (vkGetPipelineCacheData) ends the process; CPU drivers bear it.",
    remedy="A cache is read only while there is one, also after an exception in the middle of closing a device.",
    test="tests/vulkan/test_pipeline_cache.py::test_a_destroyed_cache_is_not_read",
    is_asked=False,
)
NVIDIA_MATRIX_LOADS_WANT_WHOLE_VECTORS = Quirk(
    name="nvidia-matrix-loads-want-whole-vectors",
    drivers=NVIDIA,
    seen_with="580.159.04",
    effect="A cooperative matrix that is loaded from a shared array holds something else where the array does not "
    "begin at a multiple of 16 bytes.",
    remedy="All shared variables of matrix kernels are arrays or whole 16-byte vectors.",
    test="tests/test_spirv.py::test_shared_memory_of_matrix_kernels_is_in_whole_vectors",
    is_asked=False,
)
SAMSUNG_MATRIX_OPERANDS_FROM_BUFFERS = Quirk(
    name="samsung-matrix-operands-from-buffers",
    drivers=SAMSUNG,
    seen_with="Xclipse, by others; never by dmlvk",
    effect="Stores of cooperative matrices whose stride comes from a buffer are miscompiled, and a loop around their "
    "products whose number of rounds comes from one crashes the compiler.",
    remedy="Strides and numbers of rounds are specialization constants.",
    reported="ExecuTorch, backends/vulkan/runtime/graph/ops/glsl/linear_dq8ca_qw_coopmat.glsl",
    test="tests/test_spirv.py::test_strides_of_matrices_are_constants",
    is_asked=False,
)
SPIRV_OPT_BREAKS_MATRIX_KERNELS = Quirk(
    name="spirv-opt-breaks-matrix-kernels",
    drivers=frozenset(),
    seen_with="SPIRV-Tools of the Vulkan SDK 1.3.296, by others",
    effect="Kernels with cooperative matrices that spirv-opt has optimized give wrong results.",
    remedy="No optimizer runs over the SPIR-V.",
    reported="https://github.com/ggml-org/llama.cpp/issues/10734",
    test="tests/test_spirv.py::test_no_optimizer_has_run",
    is_asked=False,
)
SWIFTSHADER_SPECIALIZES_LAST = Quirk(
    name="swiftshader-specializes-last",
    drivers=SWIFTSHADER,
    seen_with="5.0.0",
    effect="The module is optimized before the specialization constants have values, so that code for all of their "
    "values stays: SLICE1, DIAGONAL_MATRIX1 and ONE_HOT take 4 to 20 times as long.",
    remedy="Modules are given to the driver with plain constants in place of specialization constants.",
    test="tests/vulkan/test_specialization.py::test_swiftshader_alone_is_handed_plain_constants",
    is_asked=True,
)
SWIFTSHADER_SHARES_THREADS_BETWEEN_DEVICES = Quirk(
    name="swiftshader-shares-threads-between-devices",
    drivers=SWIFTSHADER,
    seen_with="5.0.0",
    effect="A new device in a forked child waits for ever for threads that only its parent has.",
    remedy="A forked child loads the loader and the drivers anew.",
    test="tests/runtime/test_fork.py::test_what_a_forked_child_may_do",
    is_asked=False,
)
SWIFTSHADER_OVERWRITES_LANES_OUT_OF_A_LOOP = Quirk(
    name="swiftshader-overwrites-lanes-out-of-a-loop",
    drivers=SWIFTSHADER,
    seen_with="5.0.0",
    effect="Where a loop asks behind its round whether there is another, a lane that has left the loop gets the result "
    "of the other lanes' last round.",
    remedy="The loop over the rows of a block asks before each round.",
    test="tests/kernels/test_slice1.py::test_any_window_of_any_layout",
    is_asked=False,
)

ALL: tuple[Quirk, ...] = (
    LAVAPIPE_ENDS_LONG_LOOPS,
    LAVAPIPE_KEEPS_DESTROYED_PIPELINES,
    LAVAPIPE_LEAVES_SUBGROUPS_BEHIND,
    MESA_WAITS_FOR_THREADS_AT_EXIT,
    NVIDIA_SHARED_MEMORY_LOSES_THE_DEVICE,
    NVIDIA_SLEEPING_WAITS_SLOW_SUBMISSIONS,
    NVIDIA_CRASHES_ON_A_NULL_CACHE,
    NVIDIA_MATRIX_LOADS_WANT_WHOLE_VECTORS,
    SAMSUNG_MATRIX_OPERANDS_FROM_BUFFERS,
    SPIRV_OPT_BREAKS_MATRIX_KERNELS,
    SWIFTSHADER_SPECIALIZES_LAST,
    SWIFTSHADER_SHARES_THREADS_BETWEEN_DEVICES,
    SWIFTSHADER_OVERWRITES_LANES_OUT_OF_A_LOOP,
)
