"""Mistakes in the kernels of QUANTIZED_LINEAR_CONVOLUTION."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

PREFIX = "quantized_linear_convolution"

MUTANTS = (
    Mutant(
        "halves are rounded away from zero",
        "include/quantized_arithmetic.glsl",
        (
            (
                "        whole += rest + (whole & 1) > 1u << (shift - 1) ? 1 : 0;",
                "        whole += rest >= 1u << (shift - 1) ? 1 : 0;",
            ),
        ),
        ("qlinearconv:tie",),
    ),
    Mutant(
        "the sum is cut to 24 bits, not rounded",
        "include/quantized_arithmetic.glsl",
        (("    kept += (((fraction & 0xFF) << 1) | sticky) + (kept & 1) > 256 ? 1 : 0;\n", ""),),
        ("qlinearconv:rounding:step=accumulator;*",),
    ),
    Mutant(
        "the product with the multiplier is not rounded to binary32",
        "include/quantized_arithmetic.glsl",
        (("    kept += (((high & 0xFF) << 1) | (low != 0 ? 1 : 0)) + (kept & 1) > 256 ? 1 : 0;\n", ""),),
        ("qlinearconv:rounding:step=product;*",),
    ),
    Mutant(
        "denormal scales are taken for zero",
        "include/quantized_arithmetic.glsl",
        (("    int dropped = 8 + max(0, -126 - exponent);", "    int dropped = exponent < -126 ? 33 : 8;"),),
        ("qlinearconv:scale",),
    ),
    Mutant(
        "an estimate of a quotient that is off by three is put right by one",
        "include/quantized_multiplier.glsl",
        (
            ("* 8388608.0);", "* 8388608.0) - 3;"),
            ("    while (left >= int(divisor)) {", "    if (left >= int(divisor)) {"),
        ),
        ("qlinearconv:scale", "qlinearconv:rounding"),
    ),
    Mutant(
        "a sum wraps at 32 bits where the bias is added, in the packed products",
        "include/quantized_product.glsl",
        (
            (
                "    Wide accumulator = add(channel.constant, widened(products));",
                "    Wide accumulator = widened(int(channel.constant.low) + products);",
            ),
        ),
        ("qlinearconv:bias", "qlinearconv:sum"),
        "dot4",
    ),
    Mutant(
        "a sum wraps at 32 bits where the bias is added, in the direct kernel",
        f"{PREFIX}_direct.comp",
        (("scaled(add(wide[j], bias), mantissa", "scaled(widened(int(wide[j].low) + int(bias.low)), mantissa"),),
        ("qlinearconv:bias", "qlinearconv:sum"),
        "direct",
    ),
    Mutant(
        "more than 33,025 products wrap at 32 bits",
        f"{PREFIX}_direct.comp",
        (("                if (MANY_TAPS == 1)\n", "                if (MANY_TAPS == 3)\n"),),
        ("qlinearconv:sum",),
        "direct",
    ),
    Mutant(
        "padding holds 0 and not the zero point",
        f"{PREFIX}_pack_input.comp",
        (("    if (HAS_ZERO_POINT != 0 && !inside)", "    if (false)"),),
        ("qlinearconv:border", "qlinearconv:geometry"),
    ),
    Mutant(
        "an unsigned filter read as signed, packed",
        f"{PREFIX}_pack_filter.comp",
        (("& 3))) & 0xFF) ^ FLIP;", "& 3))) & 0xFF);"),),
        ("qlinearconv:types:filter=u8;*",),
    ),
    Mutant(
        "an unsigned input read as signed, directly",
        f"{PREFIX}_direct.comp",
        (
            (
                "signed_byte(input_words[address >> 2], address, INPUT_FLIP)",
                "signed_byte(input_words[address >> 2], address, 0)",
            ),
        ),
        ("qlinearconv:types:in=u8;*",),
        "direct",
    ),
    Mutant(
        "results wrap to a byte and do not saturate",
        "include/quantized_store.glsl",
        (
            (
                "    return uint(OUTPUT_UNSIGNED != 0 ? clamp(value, 0, 255) : clamp(value, -128, 127)) & 0xFF;",
                "    return uint(value) & 0xFF;",
            ),
        ),
        ("qlinearconv:saturation",),
    ),
    Mutant(
        "four bytes across two words overwrite the rest of the second",
        "include/quantized_store.glsl",
        (("0xFFFFFFFFu >> (32 - shift), packed", "0xFFFFFFFFu, packed"),),
        ("qlinearconv:pixels", "qlinearconv:types"),
    ),
    Mutant(
        "the filter's zero point forgotten",
        "include/quantized_product.glsl",
        (("    accumulator = add(accumulator, widened(-channel.filter_zero_point * input_sum));\n", ""),),
        ("qlinearconv:zero_point",),
    ),
    Mutant(
        "the product of the zero points forgotten",
        "include/quantized_product.glsl",
        (("int(push.taps) * result.filter_zero_point - filter_sum", "-filter_sum"),),
        ("qlinearconv:zero_point",),
    ),
    Mutant(
        "one of four products unsigned, in the integer kernels",
        "include/quantized_product.glsl",
        (("bitfieldExtract(int(a), 8, 8) *", "int(bitfieldExtract(a, 8, 8)) *"),),
        ("qlinearconv:types",),
        "integer",
    ),
    Mutant(
        "more products in a float than it holds exactly",
        f"{PREFIX}_registers_float.comp",
        (("const uint BLOCK = 256;", "const uint BLOCK = 25600;"),),
        ("qlinearconv:cancellation",),
        "float",
    ),
    Mutant(
        "a missing barrier between the steps of a tile",
        "include/quantized_tile.glsl",
        (("        barrier();\n    }\n\n    // The parts of sum", "    }\n\n    // The parts of sum"),),
        ("qlinearconv:tiles",),
    ),
    Mutant(
        "a missing barrier before the input's sums are added",
        "include/quantized_tile.glsl",
        (
            (
                "    input_tile[invocation] = uvec4(input_sum);\n    barrier();\n",
                "    input_tile[invocation] = uvec4(input_sum);\n",
            ),
        ),
        ("qlinearconv:tiles",),
    ),
    Mutant(
        "a missing barrier before the filter's sums are added",
        f"{PREFIX}_pack_filter.comp",
        (("    sums[gl_LocalInvocationID.x] = sum;\n    barrier();\n", "    sums[gl_LocalInvocationID.x] = sum;\n"),),
        ("qlinearconv:channels", "qlinearconv:types"),
    ),
    Mutant(
        "an owned filter is copied without atomics",
        f"{PREFIX}_copy.comp",
        (
            (
                "        atomicAnd(destination_words[destination >> 2], ~(0xFFu << shift));\n"
                "        atomicOr(destination_words[destination >> 2], value << shift);\n",
                "        uint old = destination_words[destination >> 2];\n"
                "        destination_words[destination >> 2] = (old & ~(0xFFu << shift)) | value << shift;\n",
            ),
        ),
        ("qlinearconv:owned",),
    ),
    Mutant(
        "sums of several dispatches forget their upper halves",
        f"{PREFIX}_requantize.comp",
        (("add(Wide(accumulators[first], accumulators[first + 1]),", "add(widened(int(accumulators[first])),"),),
        ("qlinearconv:sum", "qlinearconv:cut"),
    ),
    Mutant(
        "outputs of a cut group belong to the first group",
        f"{PREFIX}_direct.comp",
        (
            (
                "    uint group = (push.first_of_group + channel) / push.channels_of_group;",
                "    uint group = channel / push.channels_of_group;",
            ),
        ),
        ("qlinearconv:cut", "qlinearconv:groups"),
    ),
    Mutant(
        "depthwise: padding holds 0",
        "include/quantized_depthwise.glsl",
        (("    uint border = (uint(input_zero_point(0)) & 0xFF) * 0x01010101;", "    uint border = 0;"),),
        ("qlinearconv:depthwise", "qlinearconv:types"),
        "depthwise",
    ),
    Mutant(
        "depthwise: halves are rounded up, where float32 rounds to nearest even",
        "include/quantized_float32.glsl",
        (("rounded = value + TO_INTEGER;", "rounded = floor(value + 0.5) + TO_INTEGER;"),),
        ("qlinearconv:tie",),
        "depthwise",
    ),
    Mutant(
        "depthwise: halves are rounded up, as if the estimate were certain",
        "include/quantized_estimate.glsl",
        (
            ("    float rounded = roundEven(value);", "    float rounded = floor(value + 0.5);"),
            ("    distance_to_integer = max(distance_to_integer, abs(value - rounded));\n", ""),
        ),
        ("qlinearconv:tie",),
        "depthwise",
    ),
)

# What only devices with matrices of bytes run.
MATRIX_MUTANTS = (
    Mutant(
        "matrices: a missing barrier between the steps of a tile",
        "include/quantized_matrix_steps.glsl",
        (("barrier();", "         ;"),),
        ("qlinearconv:types", "qlinearconv:channels"),
        "matrix",
    ),
    Mutant(
        "matrices: the border of an input in place holds 0",
        f"{PREFIX}_matrix.comp",
        (("                next_input[f] = uvec4(border ^ FLIP);", "                next_input[f] = uvec4(FLIP);"),),
        ("qlinearconv:channels", "qlinearconv:layout"),
        "matrix",
    ),
    Mutant(
        "matrices: what is fetched is stored in another order than the filter is packed in",
        "include/quantized_matrix.glsl",
        (("    return (index & ~7u) | (index & 1) << 2 | (index >> 1 & 3);", "    return index;"),),
        ("qlinearconv:types", "qlinearconv:channels"),
        "matrix",
    ),
    Mutant(
        "matrices: planes are not turned over",
        f"{PREFIX}_matrix.comp",
        (("uvec4 words = turned(next_input[4 * f + i]);", "uvec4 words = next_input[4 * f + i];"),),
        ("qlinearconv:whole_planes",),
        "matrix",
    ),
    Mutant(
        "halo: what does not wait in registers is not fetched for later blocks",
        f"{PREFIX}_halo.comp",
        (
            (
                "        [[unroll]] for (uint f = 0; f < 4; ++f)\n            stage(",
                "        if (block == 0) [[unroll]] for (uint f = 0; f < 4; ++f)\n            stage(",
            ),
        ),
        ("qlinearconv:halo",),
        "halo",
    ),
    Mutant(
        "matrices: halves are rounded up",
        "include/quantized_float32.glsl",
        (("rounded = value + TO_INTEGER;", "rounded = floor(value + 0.5) + TO_INTEGER;"),),
        ("qlinearconv:tie",),
        "matrix",
    ),
    Mutant(
        "matrices: sums outside of 32 bits wrap",
        "include/quantized_float32.glsl",
        (
            ("    return taps <= LARGEST_TAP_COUNT &&", "    return taps == 0 ||"),
            ("< 1 << 29;", "< 1 << 29 || true;"),
        ),
        ("qlinearconv:bias", "qlinearconv:sum"),
        "matrix",
    ),
    Mutant(
        "matrices: the sums of an input are left out",
        f"{PREFIX}_matrix.comp",
        (("[e] -= zero_points[e] * of_pixels[e];", "[e] -= 0 * of_pixels[e];"),),
        ("qlinearconv:zero_point",),
        "matrix",
    ),
    Mutant(
        "first layer: padding holds 0",
        f"{PREFIX}_first_layer.comp",
        (
            (
                "        border |= (uint(input_zero_point(0)) & 0xFF) << (8 * c);",
                "        border |= 0;",
            ),
        ),
        ("qlinearconv:first_layer", "qlinearconv:types"),
        "first_layer",
    ),
    Mutant(
        "first layer: a missing barrier after the input is staged",
        f"{PREFIX}_first_layer.comp",
        (("STRIDE_W, border);\n        barrier();\n", "STRIDE_W, border);\n"),),
        ("qlinearconv:first_layer", "qlinearconv:types"),
        "first_layer",
    ),
    Mutant(
        "halo: a row past the last one is taken for input",
        f"{PREFIX}_halo.comp",
        (
            (
                "    if (position < push.pixels && push.first_row + place.row < ROW_LIMIT",
                "    if (position < push.pixels && push.first_row + place.row <= ROW_LIMIT",
            ),
        ),
        ("qlinearconv:halo",),
        "halo",
    ),
    Mutant(
        "halo: what lies between rows is stored",
        f"{PREFIX}_halo.comp",
        (("place.row < ROWS && place.column < COLUMNS", "place.row < ROWS"),),
        ("qlinearconv:halo",),
        "halo",
    ),
    Mutant(
        "halo: the sums of an input leave its last tap out",
        f"{PREFIX}_halo.comp",
        (("tap_row < TAPS / RUNS_W; ++tap_row)", "tap_row + 1 < TAPS / RUNS_W; ++tap_row)"),),
        ("qlinearconv:halo",),
        "halo",
    ),
    Mutant(
        "halo: the next block of channels is stored over the one in use",
        f"{PREFIX}_halo.comp",
        (("        barrier();\n        if (block + 1", "        if (block + 1"),),
        ("qlinearconv:halo",),
        "halo",
    ),
)
