"""Mistakes in the kernels of QUANTIZED_LINEAR_CONVOLUTION."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

PREFIX = "quantized_linear_convolution"
PREPARED_CASES = ("quantized_linear_convolution:depthwise_in_registers:*constants=owned*",)

MUTANTS = (
    Mutant(
        "halves are rounded away from zero",
        "quantized_linear_convolution/arithmetic.glsl",
        (
            (
                "        whole += rest + (whole & 1) > 1u << (shift - 1) ? 1 : 0;",
                "        whole += rest >= 1u << (shift - 1) ? 1 : 0;",
            ),
        ),
        ("quantized_linear_convolution:tie",),
    ),
    Mutant(
        "the sum is cut to 24 bits, not rounded",
        "quantized_linear_convolution/arithmetic.glsl",
        (("    kept += (((fraction & 0xFF) << 1) | sticky) + (kept & 1) > 256 ? 1 : 0;\n", ""),),
        ("quantized_linear_convolution:rounding:step=accumulator;*",),
    ),
    Mutant(
        "the product with the multiplier is not rounded to binary32",
        "quantized_linear_convolution/arithmetic.glsl",
        (("    kept += (((high & 0xFF) << 1) | (low != 0 ? 1 : 0)) + (kept & 1) > 256 ? 1 : 0;\n", ""),),
        ("quantized_linear_convolution:rounding:step=product;*",),
    ),
    Mutant(
        "denormal scales are taken for zero",
        "quantized_linear_convolution/arithmetic.glsl",
        (("    int dropped = 8 + max(0, -126 - exponent);", "    int dropped = exponent < -126 ? 33 : 8;"),),
        ("quantized_linear_convolution:scale",),
    ),
    Mutant(
        "an estimate of a quotient that is off by three is put right by one",
        "quantized_linear_convolution/multiplier.glsl",
        (
            ("* 8388608.0);", "* 8388608.0) - 3;"),
            ("    while (left >= int(divisor)) {", "    if (left >= int(divisor)) {"),
        ),
        ("quantized_linear_convolution:scale", "quantized_linear_convolution:rounding"),
    ),
    Mutant(
        "a sum wraps at 32 bits where the bias is added, in the packed products",
        "quantized_linear_convolution/product.glsl",
        (
            (
                "    Wide accumulator = add(channel.constant, widened(products));",
                "    Wide accumulator = widened(int(channel.constant.low) + products);",
            ),
        ),
        ("quantized_linear_convolution:bias", "quantized_linear_convolution:sum"),
        "integer",
    ),
    Mutant(
        "a sum wraps at 32 bits where the bias is added, in the direct kernel",
        f"{PREFIX}/direct.comp",
        (("scaled(add(wide[j], bias), mantissa", "scaled(widened(int(wide[j].low) + int(bias.low)), mantissa"),),
        ("quantized_linear_convolution:bias", "quantized_linear_convolution:sum"),
        "direct",
    ),
    Mutant(
        "more than 33,025 products wrap at 32 bits",
        f"{PREFIX}/direct.comp",
        (("                if (MANY_TAPS == 1)\n", "                if (MANY_TAPS == 3)\n"),),
        ("quantized_linear_convolution:sum",),
        "direct",
    ),
    Mutant(
        "padding holds 0 and not the zero point",
        f"{PREFIX}/pack_input.comp",
        (("    if (HAS_ZERO_POINT != 0 && !inside)", "    if (false)"),),
        ("quantized_linear_convolution:border", "quantized_linear_convolution:geometry"),
    ),
    Mutant(
        "columns of taps are all the first where runs are quads",
        f"{PREFIX}/pack_filter.comp",
        (("tap_column = in_run - tap_row * push.filter_width;", "tap_column = 0;"),),
        ("quantized_linear_convolution:types", "quantized_linear_convolution:geometry"),
        "integer",
    ),
    Mutant(
        "an unsigned filter read as signed, packed",
        f"{PREFIX}/pack_filter.comp",
        (("& 3))) & 0xFF) ^ FLIP;", "& 3))) & 0xFF);"),),
        ("quantized_linear_convolution:types:filter=u8;*",),
    ),
    Mutant(
        "an unsigned input read as signed, directly",
        f"{PREFIX}/direct.comp",
        (
            (
                "signed_byte(input_words[address >> 2], address, input_flip)",
                "signed_byte(input_words[address >> 2], address, 0)",
            ),
        ),
        ("quantized_linear_convolution:types:in=u8;*",),
        "direct",
    ),
    Mutant(
        "the sizes along rows and columns change places where they are pushed",
        f"{PREFIX}/direct.comp",
        (("uvec2(halves & 0xFFFF, halves >> 16)", "uvec2(halves >> 16, halves & 0xFFFF)"),),
        ("quantized_linear_convolution:general",),
        "general",
    ),
    Mutant(
        "the pushed type of the output is taken for the filter's",
        f"{PREFIX}/direct.comp",
        (("#define OUTPUT_UNSIGNED (unsigned_types() & 4)", "#define OUTPUT_UNSIGNED (unsigned_types() & 2)"),),
        ("quantized_linear_convolution:general",),
        "general",
    ),
    Mutant(
        "results wrap to a byte and do not saturate",
        "quantized_linear_convolution/store.glsl",
        (
            (
                "    return uint(OUTPUT_UNSIGNED != 0 ? clamp(value, 0, 255) : clamp(value, -128, 127)) & 0xFF;",
                "    return uint(value) & 0xFF;",
            ),
        ),
        ("quantized_linear_convolution:saturation",),
    ),
    Mutant(
        "four bytes across two words overwrite the rest of the second",
        "quantized_linear_convolution/store.glsl",
        (("0xFFFFFFFFu >> (32 - shift), packed", "0xFFFFFFFFu, packed"),),
        ("quantized_linear_convolution:pixels", "quantized_linear_convolution:types"),
    ),
    Mutant(
        "the filter's zero point forgotten",
        "quantized_linear_convolution/product.glsl",
        (("    accumulator = add(accumulator, widened(-channel.filter_zero_point * input_sum));\n", ""),),
        ("quantized_linear_convolution:zero_point",),
    ),
    Mutant(
        "the product of the zero points forgotten",
        "quantized_linear_convolution/product.glsl",
        (("int(push.taps) * result.filter_zero_point - filter_sum", "-filter_sum"),),
        ("quantized_linear_convolution:zero_point",),
    ),
    Mutant(
        "one of four products unsigned, in the integer kernels",
        "quantized_linear_convolution/dot_add.glsl",
        (("bitfieldExtract(int(a), 8, 8) *", "int(bitfieldExtract(a, 8, 8)) *"),),
        ("quantized_linear_convolution:types",),
        "integer",
    ),
    Mutant(
        "more products in a float than it holds exactly",
        f"{PREFIX}/registers_float.comp",
        (("const uint BLOCK = 256;", "const uint BLOCK = 25600;"),),
        ("quantized_linear_convolution:cancellation",),
        "float",
    ),
    Mutant(
        "a missing barrier between the steps of a tile",
        "quantized_linear_convolution/tile.glsl",
        (("        barrier();\n    }\n\n    // The parts of sum", "    }\n\n    // The parts of sum"),),
        ("quantized_linear_convolution:tiles",),
    ),
    Mutant(
        "a missing barrier before the input's sums are added",
        "quantized_linear_convolution/tile.glsl",
        (
            (
                "    input_tile[invocation] = uvec4(input_sum);\n    barrier();\n",
                "    input_tile[invocation] = uvec4(input_sum);\n",
            ),
        ),
        ("quantized_linear_convolution:tiles",),
    ),
    Mutant(
        "a missing barrier before the filter's sums are added",
        f"{PREFIX}/pack_filter.comp",
        (("    sums[gl_LocalInvocationID.x] = sum;\n    barrier();\n", "    sums[gl_LocalInvocationID.x] = sum;\n"),),
        ("quantized_linear_convolution:channels", "quantized_linear_convolution:types"),
    ),
    Mutant(
        "an owned filter is copied without atomics",
        f"{PREFIX}/copy.comp",
        (
            (
                "        atomicAnd(destination_words[destination >> 2], ~(0xFFu << shift));\n"
                "        atomicOr(destination_words[destination >> 2], value << shift);\n",
                "        uint old = destination_words[destination >> 2];\n"
                "        destination_words[destination >> 2] = (old & ~(0xFFu << shift)) | value << shift;\n",
            ),
        ),
        ("quantized_linear_convolution:owned",),
    ),
    Mutant(
        "sums of several dispatches forget their upper halves",
        f"{PREFIX}/requantize.comp",
        (("add(Wide(accumulators[first], accumulators[first + 1]),", "add(widened(int(accumulators[first])),"),),
        ("quantized_linear_convolution:sum", "quantized_linear_convolution:cut"),
    ),
    Mutant(
        "outputs of a cut group belong to the first group",
        f"{PREFIX}/direct.comp",
        (
            (
                "    uint group = (push.first_of_group + channel) / push.channels_of_group;",
                "    uint group = channel / push.channels_of_group;",
            ),
        ),
        ("quantized_linear_convolution:cut", "quantized_linear_convolution:groups"),
    ),
    Mutant(
        "depthwise: padding holds 0",
        f"{PREFIX}/depthwise_weights.glsl",
        (("    facts.border = (uint(input_zero_point(0)) & 0xFF) * 0x01010101;", "    facts.border = 0;"),),
        ("quantized_linear_convolution:depthwise", "quantized_linear_convolution:types"),
        "depthwise",
    ),
    Mutant(
        "depthwise: halves are rounded up, where float32 rounds to nearest even",
        "quantized_linear_convolution/float32.glsl",
        (("rounded = value + TO_INTEGER;", "rounded = floor(value + 0.5) + TO_INTEGER;"),),
        ("quantized_linear_convolution:tie",),
        "depthwise",
    ),
    Mutant(
        "depthwise: an exact last step takes the sum of a neighbour",
        "quantized_linear_convolution/depthwise.glsl",
        (("sum = i == c * COLUMNS + j ?", "sum = i == c * COLUMNS + (j ^ 1) ?"),),
        (
            "quantized_linear_convolution:tie",
            "quantized_linear_convolution:bias",
            "quantized_linear_convolution:depthwise",
        ),
        "depthwise",
    ),
    Mutant(
        "depthwise: weights that are packed lose their sign",
        f"{PREFIX}/depthwise_weights.glsl",
        (("uint(bitfieldExtract(word, int(10 * (i % 3)), 10))", "bitfieldExtract(uint(word), int(10 * (i % 3)), 10)"),),
        ("quantized_linear_convolution:depthwise",),
        "depthwise",
    ),
    Mutant(
        "depthwise, prepared: second words of weights are lost",
        f"{PREFIX}/depthwise_prepare.comp",
        (("(WEIGHT_ROWS + weights + n) * PANEL] = words.y;", "(WEIGHT_ROWS + weights + n) * PANEL] = 0;"),),
        PREPARED_CASES,
        "depthwise",
    ),
    Mutant(
        "depthwise, prepared: nobody hears of second words of weights",
        f"{PREFIX}/depthwise_prepare.comp",
        (("        properties |= words.y != 0 ? HAS_SECOND : 0;\n", ""),),
        PREPARED_CASES,
        "depthwise",
    ),
    Mutant(
        "depthwise, prepared: nobody hears of sums outside of 32 bits",
        f"{PREFIX}/depthwise_prepare.comp",
        (("    properties |= is_narrow(constant, TAP_ROWS * TAP_COLUMNS) ? 0 : NEEDS_INTEGERS;\n", ""),),
        PREPARED_CASES,
        "depthwise",
    ),
    Mutant(
        "depthwise, prepared: all channels are in the first panel",
        f"{PREFIX}/depthwise_channel.glsl",
        (("return (channel / PANEL * rows + row) * PANEL", "return row * PANEL"),),
        PREPARED_CASES,
        "depthwise",
    ),
    Mutant(
        "depthwise, prepared: padding holds what lies at the start of the memory",
        f"{PREFIX}/depthwise.glsl",
        (("is_inside ? masks[n % FETCHED] : 0", "masks[n % FETCHED]"),),
        PREPARED_CASES,
        "depthwise",
    ),
    Mutant(
        "depthwise of few registers, prepared: a quad's channels have the weights of its first one",
        f"{PREFIX}/depthwise_weights.glsl",
        (
            (
                "shared_weights[row * BLOCK_CHANNELS + place + c] = words[c];",
                "shared_weights[row * BLOCK_CHANNELS + place + c] = words[0];",
            ),
        ),
        ("quantized_linear_convolution:depthwise_of_few_registers",),
        "depthwise",
    ),
    Mutant(
        "depthwise of few registers: a quad's channels have the weights of its first one",
        "quantized_linear_convolution/depthwise.glsl",
        (
            (
                "weight = int(shared_weights[tap * BLOCK_CHANNELS + unit * CHANNELS + c]);",
                "weight = int(shared_weights[tap * BLOCK_CHANNELS + unit * CHANNELS]);",
            ),
        ),
        ("quantized_linear_convolution:depthwise_of_few_registers",),
        "depthwise",
    ),
    Mutant(
        "depthwise: halves are rounded up, as if the estimate were certain",
        "quantized_linear_convolution/estimate.glsl",
        (
            ("    float rounded = roundEven(value);", "    float rounded = floor(value + 0.5);"),
            ("    distance_to_integer = max(distance_to_integer, abs(value - rounded));\n", ""),
        ),
        ("quantized_linear_convolution:tie",),
        "depthwise",
    ),
)

# Mutants that only devices with matrix units for bytes run.
MATRIX_MUTANTS = (
    Mutant(
        "matrices: a missing barrier between the steps of a tile",
        "quantized_linear_convolution/matrix_steps.glsl",
        (("barrier();", "         ;"),),
        ("quantized_linear_convolution:types", "quantized_linear_convolution:channels"),
        "matrix",
    ),
    Mutant(
        "matrices, few registers: a step that is fetched ahead comes one too late",
        f"{PREFIX}/matrix_product.glsl",
        (("fetch_step(min(step + 2, end_step - 1));", "fetch_step(min(step + 1, end_step - 1));"),),
        ("quantized_linear_convolution:tiles_of_few_registers",),
    ),
    Mutant(
        "matrices, few registers: a step that is fetched when it is needed is the one before",
        f"{PREFIX}/matrix_product.glsl",
        (
            (
                "                fetch_step(step + 1);\n            put_step",
                "                fetch_step(step);\n            put_step",
            ),
        ),
        ("quantized_linear_convolution:tiles_of_few_registers",),
    ),
    Mutant(
        "matrices, few registers: the first slice of a step is multiplied again and again",
        f"{PREFIX}/matrix_steps.glsl",
        (("MULTIPLY_LOADED(step, k)", "MULTIPLY_LOADED(step, 0)"),),
        ("quantized_linear_convolution:tiles_of_few_registers",),
    ),
    Mutant(
        "matrices, few registers: channels are the first operand, and their constants lie as if pixels were",
        f"{PREFIX}/matrix.glsl",
        (
            (
                "(CHANNELS_FIRST ? gl_CooperativeMatrixLayoutColumnMajor : gl_CooperativeMatrixLayoutRowMajor)",
                "gl_CooperativeMatrixLayoutRowMajor",
            ),
        ),
        ("quantized_linear_convolution:tiles_of_few_registers",),
    ),
    Mutant(
        "matrices, few registers: what was loaded for places outside the input is not replaced",
        f"{PREFIX}/matrix_fetch.glsl",
        (("mix(uvec4(next_outside), next_input[f], bvec4(next_inside[f]))", "next_input[f]"),),
        ("quantized_linear_convolution:tiles_of_few_registers",),
    ),
    Mutant(
        "matrices: the border of an input in place holds 0",
        f"{PREFIX}/matrix_fetch.glsl",
        (
            (
                "                next_input[f] = uvec4(border ^ FLIP);",
                "                next_input[f] = uvec4(FLIP);",
            ),
        ),
        ("quantized_linear_convolution:channels", "quantized_linear_convolution:layout"),
        "matrix",
    ),
    Mutant(
        "matrices: what is fetched is stored in another order than the filter is packed in",
        "quantized_linear_convolution/matrix.glsl",
        (("    return (index & ~7u) | (index & 1) << 2 | (index >> 1 & 3);", "    return index;"),),
        ("quantized_linear_convolution:types", "quantized_linear_convolution:channels"),
        "matrix",
    ),
    Mutant(
        "matrices: planes are not turned over",
        f"{PREFIX}/matrix_fetch.glsl",
        (("uvec4 words = turned(next_input[4 * f + i]);", "uvec4 words = next_input[4 * f + i];"),),
        ("quantized_linear_convolution:whole_planes",),
        "matrix",
    ),
    Mutant(
        "halo: what does not wait in registers is not fetched for later blocks",
        f"{PREFIX}/halo.comp",
        (
            (
                "        [[unroll]] for (uint f = 0; f < 4; ++f)\n            stage(",
                "        if (block == 0) [[unroll]] for (uint f = 0; f < 4; ++f)\n            stage(",
            ),
        ),
        ("quantized_linear_convolution:halo",),
        "halo",
    ),
    Mutant(
        "matrices: halves are rounded up",
        "quantized_linear_convolution/float32.glsl",
        (("rounded = value + TO_INTEGER;", "rounded = floor(value + 0.5) + TO_INTEGER;"),),
        ("quantized_linear_convolution:tie",),
        "matrix",
    ),
    Mutant(
        "matrices: sums outside of 32 bits wrap",
        "quantized_linear_convolution/float32.glsl",
        (
            ("    return taps <= LARGEST_TAP_COUNT &&", "    return taps == 0 ||"),
            ("< 1 << 29;", "< 1 << 29 || true;"),
        ),
        ("quantized_linear_convolution:bias", "quantized_linear_convolution:sum"),
        "matrix",
    ),
    Mutant(
        "matrices: the sums of an input are left out",
        f"{PREFIX}/matrix_product.glsl",
        (("[e] -= zero_points[e] * of_pixels[e];", "[e] -= 0 * of_pixels[e];"),),
        ("quantized_linear_convolution:zero_point",),
        "matrix",
    ),
    Mutant(
        "matrices: what is added to the strips of a subgroup waits in one place for all of them",
        "quantized_linear_convolution_add/strips.glsl",
        (("tile[addend_place(n / STORES, i)] =", "tile[addend_place(0, i)] ="),),
        ("quantized_linear_convolution_add:strips",),
    ),
    Mutant(
        "halo: a row past the last one is taken for input",
        f"{PREFIX}/halo.comp",
        (
            (
                "    if (position < push.pixels && push.first_row + place.row < ROW_LIMIT",
                "    if (position < push.pixels && push.first_row + place.row <= ROW_LIMIT",
            ),
        ),
        ("quantized_linear_convolution:halo",),
        "halo",
    ),
    Mutant(
        "halo: what lies between rows is stored",
        f"{PREFIX}/halo.comp",
        (("place.row < ROWS && place.column < COLUMNS", "place.row < ROWS"),),
        ("quantized_linear_convolution:halo",),
        "halo",
    ),
    Mutant(
        "halo: the sums of an input leave its last tap out",
        f"{PREFIX}/halo.comp",
        (("tap_row < TAPS / RUNS_W; ++tap_row)", "tap_row + 1 < TAPS / RUNS_W; ++tap_row)"),),
        ("quantized_linear_convolution:halo",),
        "halo",
    ),
    Mutant(
        "halo: the next block of channels is stored over the one in use",
        f"{PREFIX}/halo.comp",
        (("        barrier();\n        if (block + 1", "        if (block + 1"),),
        ("quantized_linear_convolution:halo",),
        "halo",
    ),
)
