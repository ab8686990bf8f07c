"""What the check of AMD machine code reads, and what it finds fault with. The check itself is `make test-compilers`."""

from __future__ import annotations

import pytest

from tests.compilers.amd import INSTRUCTIONS, missing, rows
from tests.compilers.radv_messages import MARK, shaders

MATRIX = "quantized_linear_convolution_matrix"


def messages(
    kernel: str, *instructions: str, spilled_vector: int = 0, spilled_scalar: int = 0, scratch: int = 0
) -> str:
    """As RADV of Mesa 25.0 prints them, in short."""
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
    (shader,) = shaders("nothing of ours\n" + messages("slice1", "v_add_nc_u32_e32 v1, v2, v3", "s_endpgm"))
    assert shader.name == "slice1 (256, 4)"
    assert (shader.kernel, shader.vector_registers, shader.instruction_count) == ("slice1", 48, 2349)
    assert shader.mnemonics == {"v_add_nc_u32_e32", "s_endpgm"}


def test_messages_without_statistics_or_machine_code_are_no_pass() -> None:
    with pytest.raises(ValueError, match="scratch size"):
        list(shaders(messages("slice1", "s_endpgm").replace("Scratch size", "Scratch room")))
    with pytest.raises(ValueError, match="machine code"):
        list(shaders(messages("slice1")))


def test_spills_and_arrays_in_memory_are_faults() -> None:
    assert faults("navi21", messages("slice1", "s_endpgm")) == []
    assert "spills 3 registers" in faults("navi21", messages("slice1", "s_endpgm", spilled_vector=3))[0]
    assert "spills 1 registers" in faults("navi21", messages("slice1", "s_endpgm", spilled_scalar=1))[0]
    assert "64 bytes" in faults("navi21", messages("slice1", "s_endpgm", scratch=64))[0]


@pytest.mark.parametrize("instruction", INSTRUCTIONS, ids=lambda instruction: instruction.mnemonic)
def test_a_kernel_without_its_instruction_is_a_fault(instruction: object) -> None:
    assert isinstance(instruction, type(INSTRUCTIONS[0]))
    for kernel in instruction.kernels:
        for generation in instruction.generations:
            said = messages(kernel, "v_mad_u32_u24 v0, v1, v2, v3", "s_endpgm")
            assert instruction.mnemonic in faults(generation, said)[0]
            assert faults(generation, messages(kernel, f"{instruction.mnemonic}i32_i8 v0, v1, v2")) == []
        assert faults("polaris10", messages(kernel, "s_endpgm")) == []


def test_nothing_compiled_is_no_pass() -> None:
    found = rows("navi31", shaders(messages(MATRIX, "v_wmma_i32_16x16x16_iu8 v[0:7], v[8:11], v[12:15], v[0:7]")))
    assert [fault for fault in missing(found, ["navi31"]) if "v_wmma" in fault] == []
    assert ["v_dot4" in fault for fault in missing(found, ["navi31"])] == [True]
    assert any("v_wmma" in fault for fault in missing([], ["navi31"]))
