"""Drivers' bugs that dmlvk works around, as data: each with its driver, its versions, its effect and its test.

Code that depends on a driver's bug asks the quirk: ``quirks.LAVAPIPE_ENDS_LONG_LOOPS.applies_to(profile)``. A choice
that only makes a class of devices faster is not about a bug: it belongs in `dmlvk.planning.device_traits`.

To add a quirk: write the record, add it to `ALL`, and write the test that it names. The test fails, on the driver or
on a stand-in for it, as soon as dmlvk no longer works around the bug.
"""

from __future__ import annotations

from dataclasses import dataclass

from dmlvk.device_profile import DeviceProfile, DriverId

NOT_REPORTED = "not reported"


@dataclass(frozen=True)
class Versions:
    """A range of a driver's releases, as `DeviceProfile.driver_release` counts them.

    Attributes:
        first (tuple of int, optional): The oldest release in the range; (22, 3) includes all of 22.3. None: all older
            releases are in the range.
        before (tuple of int, optional): The first release after the range. None: no later release is known to be right.
    """

    first: tuple[int, ...] | None = None
    before: tuple[int, ...] | None = None

    def __contains__(self, release: tuple[int, ...]) -> bool:
        return (self.first is None or self.first <= release) and (self.before is None or release < self.before)


ANY_VERSION = Versions()


@dataclass(frozen=True, kw_only=True)
class Quirk:
    """A bug of one or several drivers.

    Attributes:
        name (str): Unique.
        drivers (frozenset of DriverId): The drivers that have the bug; empty for a bug in a tool that makes SPIR-V.
        versions (Versions): The releases of these drivers to which the quirk applies.
        seen_with (str): The releases in which the bug was seen.
        effect (str): What goes wrong.
        remedy (str): How dmlvk works around it.
        reported (str): Where the bug was reported or described, or `NOT_REPORTED`.
        test (str): The test that shows it: a file and a test in it, as pytest takes them.
        is_asked (bool): Whether code asks `applies_to`. If not, all devices get the remedy, because it costs little.
        limit (int, optional): The largest safe number; `effect` says what it counts.
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
INTEL_MESA = frozenset({DriverId.INTEL_OPEN_SOURCE_MESA})
LAVAPIPE = frozenset({DriverId.MESA_LLVMPIPE})
# The drivers of Mesa that have recorded profiles.
MESA = LAVAPIPE | {
    DriverId.MESA_RADV,
    DriverId.INTEL_OPEN_SOURCE_MESA,
    DriverId.MESA_TURNIP,
    DriverId.MESA_NVK,
    DriverId.MESA_HONEYKRISP,
}

LAVAPIPE_COMPILES_AT_THE_FIRST_CALL = Quirk(
    name="lavapipe-compiles-at-the-first-call",
    drivers=LAVAPIPE,
    seen_with="Mesa 22.3.6",
    effect="A pipeline is created in milliseconds, but its first dispatch takes seconds: only then does LLVM compile.",
    remedy="When an operator is compiled, its kernels are dispatched once with no workgroups. LLVM then compiles them, "
    "where the queue runs; so in the background that waits for a pause between calls.",
    test="tests/runtime/test_compiled_operator.py::test_a_first_call_does_not_wait_for_a_compiler",
    is_asked=True,
)
INTEL_MATRIX_LOADS_GIVE_THE_FIRST_TILE = Quirk(
    name="intel-matrix-loads-give-the-first-tile",
    drivers=INTEL_MESA,
    versions=Versions(before=(26, 2)),
    seen_with="Mesa before 26.2.0 on an Arc B390, by others; never with dmlvk",
    effect="Cooperative matrices that are loaded from shared memory at different offsets are all the first tile.",
    remedy="A path on matrix units is taken after it has answered a question of several tiles.",
    reported="Mesa's issue 15932",
    test="tests/runtime/test_self_test.py::test_a_wrong_answer_takes_the_path_away",
    is_asked=False,
)
INTEL_UNEQUAL_MATRIX_WORK_FAILS = Quirk(
    name="intel-unequal-matrix-work-fails",
    drivers=INTEL_MESA,
    versions=Versions(first=(26, 1)),
    seen_with="Mesa 26.2.3, by others; 26.0.8 was good; never with dmlvk",
    effect="Workgroups that multiply matrices unequally often most likely fail if they share a core.",
    remedy="A path on matrix units is taken after it has answered a question several times, and the same each time.",
    reported="https://github.com/ggml-org/llama.cpp/pull/24406",
    test="tests/runtime/test_self_test.py::test_an_answer_that_changes_is_wrong",
    is_asked=False,
)
INTEL_TIMESTAMPS_COME_EARLY = Quirk(
    name="intel-timestamps-come-early",
    drivers=INTEL_MESA,
    versions=Versions(before=(26, 2)),
    seen_with="Mesa 26.1.4 on an Arc B390, by others; never with dmlvk",
    effect="A timestamp at the bottom of the pipe can be taken before the dispatch before it has ended.",
    remedy="`dmlvk bench` holds the timestamps against the host's clock, and says where they cannot be true.",
    test="tests/benchmark/test_timing.py::test_timestamps_that_cannot_be_true_are_told",
    is_asked=False,
)
LAVAPIPE_ENDS_LONG_LOOPS = Quirk(
    name="lavapipe-ends-long-loops",
    drivers=LAVAPIPE,
    seen_with="Mesa 22.3.6",
    effect="After 65,535 iterations in all, the loops of an invocation end without an error: a sum of 131,068 taps has "
    "only the first 65,535.",
    remedy="An invocation of the direct kernel makes at most 60,000 iterations; another dispatch adds the other taps.",
    reported="not reported; the limit is LP_MAX_TGSI_LOOP_ITERATIONS in Mesa's gallivm/lp_bld_limits.h",
    test="tests/kernels/quantized_linear_convolution/test_arithmetic.py::test_sums_past_32_bits_do_not_wrap",
    is_asked=True,
    limit=60_000,
)
LAVAPIPE_KEEPS_DESTROYED_PIPELINES = Quirk(
    name="lavapipe-keeps-destroyed-pipelines",
    drivers=LAVAPIPE,
    seen_with="Mesa 22.3.6",
    effect="If a destroyed pipeline was used, its one to three megabytes are not freed before the next submission.",
    remedy="After a pipeline is dropped for a newer one, dmlvk makes an empty submission.",
    reported="not reported; it is lvp_queue::pipeline_destroys in Mesa's lavapipe",
    test="tests/runtime/test_growth.py::test_thousands_of_different_convolutions",
    is_asked=False,
)
LAVAPIPE_LEAVES_SUBGROUPS_BEHIND = Quirk(
    name="lavapipe-leaves-subgroups-behind",
    drivers=LAVAPIPE,
    versions=Versions(first=(26,)),
    seen_with="Mesa 26.2.6",
    effect="If the subgroups of a workgroup do not all reach the same subgroup barriers, the later subgroups do not do "
    "their work.",
    remedy="All subgroups of a matrix kernel reach the same barriers.",
    test="tests/kernels/quantized_linear_convolution/test_every_path.py::test_channels_last_on_every_path",
    is_asked=False,
)
LAVAPIPE_LOSES_STORES_AFTER_LOOPS = Quirk(
    name="lavapipe-loses-stores-after-loops",
    drivers=LAVAPIPE,
    versions=Versions(before=(26,)),
    seen_with="Mesa 22.3.6; 26.2.6 was good",
    effect="If only some invocations of a workgroup take two loops, one after the other, some of their stores long "
    "after that are lost.",
    remedy="In kernels without matrices, what only some invocations do is under a condition in an unrolled loop.",
    test="tests/kernels/quantized_linear_convolution/test_parts_of_k.py::test_a_call_leaves_nothing_to_the_next",
    is_asked=False,
)
MESA_WAITS_FOR_THREADS_AT_EXIT = Quirk(
    name="mesa-waits-for-threads-at-exit",
    drivers=MESA,
    seen_with="lavapipe of Mesa 22.3.6",
    effect="A forked child of a process with an open device crashes when it ends: the driver then waits for threads "
    "that the child does not have.",
    remedy="A forked child ends without running the exit handlers that it inherited.",
    test="tests/runtime/test_fork.py::test_what_a_forked_child_may_do",
    is_asked=False,
)
NVIDIA_SHARED_MEMORY_LOSES_THE_DEVICE = Quirk(
    name="nvidia-shared-memory-loses-the-device",
    drivers=NVIDIA,
    seen_with="580.159.04",
    effect="A kernel that declares more than 49,152 bytes of shared memory loses the device. The driver should refuse "
    "the pipeline.",
    remedy="No tile takes more shared memory, whatever maxComputeSharedMemorySize says.",
    test="tests/planning/test_device_traits.py::test_nvidia_s_shared_memory_ends_at_48_kib_whatever_the_limit",
    is_asked=True,
    limit=48 << 10,
)
NVIDIA_SLEEPING_WAITS_SLOW_SUBMISSIONS = Quirk(
    name="nvidia-sleeping-waits-slow-submissions",
    drivers=NVIDIA,
    seen_with="580.159.04 on Linux; Windows was not measured",
    effect="In half of the processes in which a thread slept in one of the driver's waits, submissions that signal a "
    "timeline semaphore begin to take 23 us in place of 3, for a moment or until the process ends.",
    remedy="On Linux a wait polls the timeline, sleeps outside the driver, and polls again.",
    reported="https://github.com/HansKristian-Work/vkd3d-proton/pull/2952 avoids that driver's timelines too; "
    "docs/decisions/waits.md has the measurement",
    test="tests/runtime/test_waiting.py::TestNapping::test_is_for_nvidia_s_driver_on_linux",
    is_asked=True,
)
NVIDIA_CRASHES_ON_A_NULL_CACHE = Quirk(
    name="nvidia-crashes-on-a-null-cache",
    drivers=NVIDIA,
    seen_with="580.159.04",
    effect="A call of vkGetPipelineCacheData for VK_NULL_HANDLE ends the process. CPU drivers tolerate it.",
    remedy="A pipeline cache is read only while it exists, even if an exception interrupted the closing of the device.",
    test="tests/vulkan/test_pipeline_cache.py::test_a_destroyed_cache_is_not_read",
    is_asked=False,
)
NVIDIA_MATRIX_LOADS_WANT_WHOLE_VECTORS = Quirk(
    name="nvidia-matrix-loads-want-whole-vectors",
    drivers=NVIDIA,
    seen_with="580.159.04",
    effect="A cooperative matrix that is loaded from a shared array gets wrong elements if the array does not begin at "
    "a multiple of 16 bytes.",
    remedy="All shared variables of matrix kernels are arrays or whole 16-byte vectors.",
    test="tests/test_spirv.py::test_shared_memory_of_matrix_kernels_is_in_whole_vectors",
    is_asked=False,
)
SAMSUNG_MATRIX_OPERANDS_FROM_BUFFERS = Quirk(
    name="samsung-matrix-operands-from-buffers",
    drivers=SAMSUNG,
    seen_with="Xclipse, by others; never with dmlvk",
    effect="A store of a cooperative matrix is miscompiled if its stride comes from a buffer. A loop around matrix "
    "products crashes the compiler if its number of iterations comes from a buffer.",
    remedy="Strides and numbers of iterations are specialization constants; elsewhere some are push constants.",
    reported="ExecuTorch, backends/vulkan/runtime/graph/ops/glsl/linear_dq8ca_qw_coopmat.glsl",
    test="tests/planning/quantized_linear_convolution/test_matrix_sizes.py::test_samsung_s_compiler_gets_constants",
    is_asked=True,
)
SPIRV_OPT_BREAKS_MATRIX_KERNELS = Quirk(
    name="spirv-opt-breaks-matrix-kernels",
    drivers=frozenset(),
    seen_with="SPIRV-Tools of the Vulkan SDK 1.3.296, by others",
    effect="Kernels with cooperative matrices give wrong results after spirv-opt has optimized them.",
    remedy="No optimizer is run on the SPIR-V.",
    reported="https://github.com/ggml-org/llama.cpp/issues/10734",
    test="tests/test_spirv.py::test_no_optimizer_has_run",
    is_asked=False,
)
SWIFTSHADER_SPECIALIZES_LAST = Quirk(
    name="swiftshader-specializes-last",
    drivers=SWIFTSHADER,
    seen_with="5.0.0",
    effect="The driver optimizes a module before it inserts the values of the specialization constants, so code for "
    "all of their values remains: SLICE1, DIAGONAL_MATRIX1 and ONE_HOT take 4 to 20 times as long.",
    remedy="dmlvk replaces specialization constants by plain constants before the driver gets a module.",
    test="tests/vulkan/test_specialization.py::test_swiftshader_alone_is_handed_plain_constants",
    is_asked=True,
)
SWIFTSHADER_SHARES_THREADS_BETWEEN_DEVICES = Quirk(
    name="swiftshader-shares-threads-between-devices",
    drivers=SWIFTSHADER,
    seen_with="5.0.0",
    effect="A new device in a forked child waits forever for threads that only the parent has.",
    remedy="A forked child loads the Vulkan loader and the drivers anew.",
    test="tests/runtime/test_fork.py::test_what_a_forked_child_may_do",
    is_asked=False,
)
SWIFTSHADER_OVERWRITES_LANES_OUT_OF_A_LOOP = Quirk(
    name="swiftshader-overwrites-lanes-out-of-a-loop",
    drivers=SWIFTSHADER,
    seen_with="5.0.0",
    effect="If a loop tests its condition at the end of an iteration, a lane that has left the loop gets the result of "
    "the other lanes' last iteration.",
    remedy="The loop over the rows of a block tests its condition before each iteration.",
    test="tests/kernels/test_slice1.py::test_any_window_of_any_layout",
    is_asked=False,
)

ALL: tuple[Quirk, ...] = (
    LAVAPIPE_COMPILES_AT_THE_FIRST_CALL,
    INTEL_MATRIX_LOADS_GIVE_THE_FIRST_TILE,
    INTEL_UNEQUAL_MATRIX_WORK_FAILS,
    INTEL_TIMESTAMPS_COME_EARLY,
    LAVAPIPE_ENDS_LONG_LOOPS,
    LAVAPIPE_KEEPS_DESTROYED_PIPELINES,
    LAVAPIPE_LEAVES_SUBGROUPS_BEHIND,
    LAVAPIPE_LOSES_STORES_AFTER_LOOPS,
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
