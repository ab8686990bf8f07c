"""The chips to compile for, and where each one's driver says what of its machine code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

DOT_PRODUCTS = (
    "quantized_linear_convolution/vectors_dot4",
    "quantized_linear_convolution/vectors_dot4_mixed",
    "quantized_linear_convolution_add/vectors_dot4",
    "quantized_linear_convolution_add/vectors_dot4_mixed",
)
# What a device multiplies with that has no instruction for dot products.
FLOAT_PRODUCTS = (
    "quantized_linear_convolution/vectors_float32",
    "quantized_linear_convolution_add/vectors_float32",
)
MATRICES = (
    "quantized_linear_convolution/matrix",
    "quantized_linear_convolution/matrix_few_registers",
    "quantized_linear_convolution/split_k",
    "quantized_linear_convolution/halo",
    "quantized_linear_convolution_add/matrix",
    "quantized_linear_convolution_add/matrix_few_registers",
    "quantized_linear_convolution_add/split_k",
)
# On chips whose loops are found, the kernels whose loop over K is looked at.
LOOPS_OVER_K = (
    "quantized_linear_convolution/matrix_few_registers",
    "quantized_linear_convolution_add/matrix_few_registers",
)


@dataclass(frozen=True)
class Driver:
    """A driver of Mesa.

    Attributes
    ----------
    name : str
        As its library is called.
    instructions, registers, scratch, occupancy : str
        Names of the driver's statistics.
    spills : tuple of str
        Statistics whose sum is the number of spilled registers.
    has_machine_code : bool
        Whether the driver gives the text of the machine code.
    wait : str
        The beginning of the name of the instruction that only waits for registers. Empty if no loops are found in the
        driver's text.
    """

    name: str
    instructions: str
    registers: str
    occupancy: str
    spills: tuple[str, ...]
    scratch: str | None
    has_machine_code: bool = True
    wait: str = ""


ANV = Driver(
    "intel",
    "Instructions",
    "Max live registers",
    "Max dispatch width",
    ("Spills",),
    "Scratch Memory Size",
    wait="sync.nop",
)
TURNIP = Driver(
    "freedreno", "Instruction Count", "Registers used", "Max Waves Per Core", ("STP Count", "LDP Count"), None
)
NVK = Driver("nouveau", "Instruction count", "Number of GPRs", "Max warps/SM", ("Spills to memory",), "SLM size")
HONEYKRISP = Driver("asahi", "Instructions", "GPRs", "Threads", ("Spills",), "Scratch", has_machine_code=False)
RADV = Driver(
    "radeon", "Instructions", "VGPRs", "Subgroups per SIMD", ("Spilled SGPRs", "Spilled VGPRs"), "Scratch size"
)


@dataclass(frozen=True)
class Chip:
    """A GPU that a driver compiles for without having it.

    Attributes
    ----------
    name : str
    driver : Driver
    environment : mapping
        The variables that name the chip to the driver, or to what stands in for the kernel's part of it.
    dot_product, matrix_product : str
        The beginnings of the names of the instructions that the kernels of dot products and of matrices have to
        contain; empty if the chip or the driver has none.
    holds_every_path : bool
        Whether the limits are also for kernel paths that the planner does not take by itself.
    """

    name: str
    driver: Driver
    environment: Mapping[str, str]
    dot_product: str = ""
    matrix_product: str = ""
    holds_every_path: bool = False
    instructions: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        products = [(DOT_PRODUCTS, self.dot_product), (MATRICES, self.matrix_product)]
        wanted = {kernel: mnemonic for kernels, mnemonic in products for kernel in kernels if mnemonic}
        object.__setattr__(self, "instructions", wanted)


def _intel(platform: str, dot_product: str = "", matrix_product: str = "") -> Chip:
    # Panther Lake's driver asks for the second variable.
    variables = {"INTEL_STUB_GPU_PLATFORM": platform, "INTEL_FORCE_PROBE": "*"}
    return Chip(f"intel-{platform}", ANV, variables, dot_product, matrix_product)


def _amd(family: str, dot_product: str = "", matrix_product: str = "") -> Chip:
    return Chip(f"amd-{family}", RADV, {"RADV_FORCE_FAMILY": family}, dot_product, matrix_product, True)


_ALL = (
    _intel("skl"),  # Skylake
    _intel("tgl", dot_product="dp4a"),  # Tiger Lake
    _intel("dg2", dot_product="dp4a", matrix_product="dpas"),  # Arc A
    _intel("lnl", dot_product="dp4a", matrix_product="dpas"),  # Lunar Lake
    _intel("bmg", dot_product="dp4a", matrix_product="dpas"),  # Arc B
    _intel("ptl", dot_product="dp4a", matrix_product="dpas"),  # Panther Lake
    Chip("adreno-618", TURNIP, {"FD_GPU_ID": "618"}),
    Chip("adreno-660", TURNIP, {"FD_GPU_ID": "660"}, "dp4acc"),
    Chip("adreno-740", TURNIP, {"FD_GPU_ID": "740"}, "dp4acc"),
    Chip("adreno-830", TURNIP, {"ADRENO_CHIP_ID": "0x44050001"}, "dp4acc"),
    Chip("nvk-turing", NVK, {"NOUVEAU_CHIPSET": "162"}, "idp4", "imma"),
    Chip("nvk-ampere", NVK, {"NOUVEAU_CHIPSET": "172"}, "idp4", "imma"),
    Chip("nvk-ada", NVK, {"NOUVEAU_CHIPSET": "192"}, "idp4", "imma"),
    Chip("nvk-blackwell", NVK, {"NOUVEAU_CHIPSET": "1b2"}, "idp4", "imma"),
    Chip("apple-m1", HONEYKRISP, {"ASAHI_CHIP": "8103"}),
    Chip("apple-m2", HONEYKRISP, {"ASAHI_CHIP": "8112"}),
    # GCN 4, GCN 5, RDNA 1, 2, 3 and 4. RADV 25.0 has matrices on RDNA 3 only. RDNA 2 also has v_dot4c_, which
    # accumulates into its destination.
    _amd("polaris10"),
    _amd("vega10"),
    _amd("navi10"),
    _amd("navi21", dot_product="v_dot4"),
    _amd("navi31", dot_product="v_dot4", matrix_product="v_wmma_"),
    _amd("gfx1201", dot_product="v_dot4"),
)
CHIPS = {chip.name: chip for chip in _ALL}
