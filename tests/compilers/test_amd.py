"""The check of AMD machine code reads RADV's messages and finds faults. `make test-compilers` runs the check itself."""

from __future__ import annotations

import pytest

from tests.compilers.amd import INSTRUCTIONS, left_out, missing, rows
from tests.compilers.radv_messages import MARK, shaders

MATRIX = "quantized_linear_convolution/matrix"
DOT4 = "quantized_linear_convolution/tile_dot4"
MATRICES = ["VK_KHR_cooperative_matrix"]


def messages(
    kernel: str, *instructions: str, spilled_vector: int = 0, spilled_scalar: int = 0, scratch: int = 0
) -> str:
    """Messages as RADV of Mesa 25.0 prints them, shortened."""
    lines = [
        f"{MARK}{kernel} (256, 4)",
        "shader: MESA_SHADER_COMPUTE",
        "\tcon 32 %1 = v_wmma_named_in_passing",
        "disasm:",
    ]
    lines += ["BB0:", *(f"\t{instruction:60}; be9e01f0" for instruction in instructions), "", "Compute Shader:"]
    lines += ["*** SHADER STATS ***", "SGPRs: 128", "VGPRs: 48", f"Spilled SGPRs: {spilled_scalar}"]
    lines += [f"Spilled VGPRs: {spilled_vector}", f"Scratch size: {scratch}", "Instructions: 2349", "*****", ""]
    return "\n".join(lines)


def faults(generation: str, said: str) -> list[str]:
    return [fault for row in rows(generation, shaders(said)) for fault in row.faults]


def test_messages_are_read() -> None:
    (shader,) = shaders("nothing of ours\n" + messages("slice1/blocks", "v_add_nc_u32_e32 v1, v2, v3", "s_endpgm"))
    assert shader.name == "slice1/blocks (256, 4)"
    assert (shader.kernel, shader.vector_registers, shader.instruction_count) == ("slice1/blocks", 48, 2349)
    assert shader.mnemonics == {"v_add_nc_u32_e32", "s_endpgm"}


def test_messages_without_statistics_or_machine_code_are_no_pass() -> None:
    with pytest.raises(ValueError, match="scratch size"):
        list(shaders(messages("slice1/blocks", "s_endpgm").replace("Scratch size", "Scratch room")))
    with pytest.raises(ValueError, match="machine code"):
        list(shaders(messages("slice1/blocks")))


def test_spills_and_arrays_in_memory_are_faults() -> None:
    assert faults("navi21", messages("slice1/blocks", "s_endpgm")) == []
    assert "spills 3 registers" in faults("navi21", messages("slice1/blocks", "s_endpgm", spilled_vector=3))[0]
    assert "spills 1 registers" in faults("navi21", messages("slice1/blocks", "s_endpgm", spilled_scalar=1))[0]
    assert "64 bytes" in faults("navi21", messages("slice1/blocks", "s_endpgm", scratch=64))[0]


@pytest.mark.parametrize("instruction", INSTRUCTIONS, ids=lambda instruction: instruction.mnemonic)
def test_a_kernel_without_its_instruction_is_a_fault(instruction: object) -> None:
    assert isinstance(instruction, type(INSTRUCTIONS[0]))
    for kernel in instruction.kernels:
        for generation in instruction.generations:
            said = messages(kernel, "v_mad_u32_u24 v0, v1, v2, v3", "s_endpgm")
            assert instruction.mnemonic in faults(generation, said)[0]
            assert faults(generation, messages(kernel, f"{instruction.mnemonic}_i32_i8 v0, v1, v2")) == []
        assert faults("polaris10", messages(kernel, "s_endpgm")) == []


@pytest.mark.parametrize("generation", ["navi21", "navi31", "gfx1201"])
def test_packed_dot_products_in_all_their_forms(generation: str) -> None:
    for line in ("v_dot4_i32_iu8 v8, v0, v1, v8", "v_dot4c_i32_i8_e32 v3, v4, v5"):
        assert faults(generation, messages(DOT4, line)) == []


def test_machine_code_that_llvm_does_not_know_is_read() -> None:
    """For a GPU that is newer than the driver's LLVM, RADV prints the code in its own form."""
    said = messages(
        DOT4,
        "s2: %0:s[0-1],  s1: %10080:scc = s_lshl_b32 %1:s[0], 7",
        "v1: (precise)%358:v[8] = v_dot4_i32_iu8 %353:v[14]*[-1,1], %357:s[15]*[-1,1], %304:v[8]",
        "v2b: %7:v[1][0:16] = v_min_u16 %6:v[1][0:16], 3",
        "s_delay_alu valu_dep_1",
    )
    (shader,) = shaders(said)
    assert shader.mnemonics == {"s_lshl_b32", "v_dot4_i32_iu8", "v_min_u16", "s_delay_alu"}
    assert faults("gfx1201", said) == []


def test_nothing_compiled_is_no_pass() -> None:
    found = rows("navi31", shaders(messages(MATRIX, "v_wmma_i32_16x16x16_iu8 v[0:7], v[8:11], v[12:15], v[0:7]")))
    assert [fault for fault in missing(found, {"navi31": []}) if "v_wmma" in fault] == []
    assert ["v_dot4" in fault for fault in missing(found, {"navi31": []})] == [True]
    for generation, extensions in (("navi31", []), ("navi31", MATRICES), ("gfx1201", MATRICES)):
        assert any("v_wmma" in fault for fault in missing([], {generation: extensions}))
        assert list(left_out({generation: extensions})) == []


def test_a_driver_that_is_too_old_for_a_gpu_s_matrices_is_named() -> None:
    assert not any("v_wmma" in fault for fault in missing([], {"gfx1201": []}))
    assert [line.partition(":")[0] for line in left_out({"navi31": [], "gfx1201": []})] == ["gfx1201"]
