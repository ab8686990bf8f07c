"""Mistakes in the kernels of QUANTIZED_LINEAR_CONVOLUTION that cut K, join groups or prepare channels."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

PREFIX = "quantized_linear_convolution"
PARTS = f"{PREFIX}/parts.glsl"
PARTS_CASES = ("quantized_linear_convolution:parts_of_k", "quantized_linear_convolution:parts_of_vectors")
VECTORS = f"{PREFIX}/vectors.glsl"
TILES_CASES = ("quantized_linear_convolution:tiles_of_vectors",)
FLOATS_CASES = tuple(f"quantized_linear_convolution:{kind}_of_floats" for kind in ("sums", "tiles", "parts"))
JOINED_CASES = ("quantized_linear_convolution:joined_groups",)

MUTANTS = (
    Mutant(
        "parts of K: an addition is lost",
        PARTS,
        (("    atomicAdd(part_sums[place], value,", "    if (part != 1)\n        atomicAdd(part_sums[place], value,"),),
        PARTS_CASES,
    ),
    Mutant(
        "parts of K: a part is added twice",
        PARTS,
        (
            (
                "    atomicAdd(part_sums[place], value,",
                "    atomicAdd(part_sums[place], part == 1 ? 2 * value : value,",
            ),
        ),
        PARTS_CASES,
    ),
    Mutant(
        "parts of K: the first to arrive does the last step",
        PARTS,
        (("    return arrived.x == SIZE(PARTS, parts) - 1;", "    return arrived.x == 0;"),),
        PARTS_CASES,
    ),
    Mutant(
        "parts of K: the number of those that arrived is left to the next dispatch",
        PARTS,
        (("            part_sums[counter] = 0;", "            part_sums[counter] = 1;"),),
        PARTS_CASES,
    ),
    Mutant(
        "parts of K: sums of the input are left to the next dispatch",
        PARTS,
        (("            part_sums[part_sums_at() + TILE_SUMS + i] = 0;\n", ""),),
        PARTS_CASES,
    ),
    Mutant(
        "sizes as push constants: a quotient is one bit off",
        f"{PREFIX}/matrix.glsl",
        (("    return high >> shift;", "    return high >> (shift + 1);"),),
        PARTS_CASES,
    ),
    Mutant(
        "parts of K by vectors: sums are left to the next dispatch",
        VECTORS,
        (("        part_sums[first + n * INVOCATIONS] = 0;", "        part_sums[first + n * INVOCATIONS] = sums[0];"),),
        PARTS_CASES,
    ),
    Mutant(
        "parts of K by vectors: what is left over after even parts is lost",
        VECTORS,
        (("PART_STEPS = (STEPS + PARTS - 1) / PARTS;", "PART_STEPS = STEPS < PARTS ? 1 : STEPS / PARTS;"),),
        PARTS_CASES,
    ),
    Mutant(
        "vectors of K: the other half of shared memory is multiplied",
        VECTORS,
        (("    uint pixel_rows = HALF_OF(step) * HALF_TILE", "    uint pixel_rows = HALF_OF(~step) * HALF_TILE"),),
        TILES_CASES,
    ),
    Mutant(
        "products of floats: sums go on past 2^24",
        VECTORS,
        (("EXACT_STEPS = (1 << 10) / (16 * STEP)", "EXACT_STEPS = (1 << 11) / (16 * STEP)"),),
        FLOATS_CASES,
    ),
    Mutant(
        "products of floats: partial sums begin with the last ones",
        VECTORS,
        (("        partial_sums[n] = 0.0;", "        partial_sums[n] += 0.0;"),),
        FLOATS_CASES,
    ),
    Mutant(
        "products of floats: bytes are taken for unsigned ones",
        f"{PREFIX}/matrix_workgroup.glsl",
        (("bitfieldExtract(bytes, 8, 8)", "float(bitfieldExtract(word, 8, 8))"),),
        FLOATS_CASES,
    ),
    Mutant(
        "vectors of K: the rows of four channels are taken for neighbours",
        VECTORS,
        (("tile[channel_rows + i * CHANNEL_GROUPS * ROW", "tile[channel_rows + i * ROW"),),
        TILES_CASES,
    ),
    Mutant(
        "vectors of K: channels past the last one are stored",
        f"{PREFIX}/store_word.glsl",
        (("    return channel >= push.first_channel && channel < push.channels;", "    return true;"),),
        TILES_CASES,
    ),
    Mutant(
        "joined groups: a channel of the next group counts",
        f"{PREFIX}/pack_filter.comp",
        (("4 * quad + i - first_own < push.channels)", "4 * quad + i - first_own <= push.channels)"),),
        JOINED_CASES,
    ),
    Mutant(
        "joined groups: zeros stand between them, not the zero point",
        f"{PREFIX}/pack_filter.comp",
        (("uint value = zero_point;", "uint value = 0;"),),
        JOINED_CASES,
    ),
    Mutant(
        "prepared channels: sums outside of 32 bits wrap",
        f"{PREFIX}/matrix_parameters.comp",
        (("(is_narrow(constant, push.taps) ? 0 : PANEL_NEEDS_INTEGERS)", "0"),),
        PARTS_CASES,
    ),
)
