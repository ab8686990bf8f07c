"""Mistakes in the kernels of element-wise operators."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "sums in floats are never held against the table",
        "element_wise_quantized_linear_add/check.comp",
        (("        sum_table_words[4 * push.table_start + 3] = 0;\n", "        return;\n"),),
        ("element_wise_quantized_linear_add:pairs:scales=infinite;*path=sum",),
    ),
    Mutant(
        "the last step of a convolution adds the element beside",
        "quantized_linear_convolution_add/sum.glsl",
        (
            (
                "return address - push.output_start + push.addend_start;",
                "return (address - push.output_start + push.addend_start) ^ 4;",
            ),
        ),
        ("quantized_linear_convolution_add:last_step:*path=vectors*",),
    ),
    Mutant(
        "the addend is always the second operand",
        "quantized_linear_convolution_add/sum.glsl",
        (("return push.sum_table_start >> 31 != 0;", "return false;"),),
        ("quantized_linear_convolution_add:last_step:*path=vectors*",),
    ),
    Mutant(
        "the last step of a convolution looks up the entry beside",
        "quantized_linear_convolution_table/table.glsl",
        (("shared_table[byte / 4], int(8 * (byte % 4))", "shared_table[byte / 4], int(8 * (byte % 4 ^ 1))"),),
        ("quantized_linear_convolution_table:last_step:*path=vectors*",),
    ),
    Mutant(
        "the last step of a depthwise convolution looks up before the table is there",
        "quantized_linear_convolution/depthwise.glsl",
        (("            begin_table();\n", ""),),
        ("quantized_linear_convolution_table:depthwise",),
    ),
    Mutant(
        "what a convolution finishes in integers is not looked up",
        "quantized_linear_convolution/vectors.glsl",
        (("LOOKED_UP(exact_word(products, n, STRIDE))", "exact_word(products, n, STRIDE)"),),
        ("quantized_linear_convolution_table:last_step:*accumulators=wide;*path=vectors*",),
    ),
    Mutant(
        "a sum takes the entry beside its own in the table",
        "element_wise_quantized_linear_add/sums.glsl",
        (("sum_table_start() + 16 +", "sum_table_start() + 17 +"),),
        ("element_wise_quantized_linear_add:pairs:scales=ordinary;*path=table",),
    ),
    Mutant(
        "a sum of 2^31 saturates at its own end",
        "element_wise_quantized_linear_add/table.glsl",
        (("value.exponent >= 31 ? least : ", ""),),
        ("element_wise_quantized_linear_add:pairs:scales=large;*",),
    ),
    Mutant(
        "an estimate of a quotient is always certain",
        "element_wise_quantize_linear/estimate.comp",
        (("if (nearest < LEAST_CERTAIN || !has_number)", "if (!has_number)"),),
        ("element_wise_quantize_linear:thresholds",),
    ),
    Mutant(
        "what is no number is quantized as the largest",
        "element_wise_quantize_linear/estimate.comp",
        (("largest <= int(INFINITY_BITS) && ", ""),),
        ("element_wise_quantize_linear:thresholds",),
    ),
    Mutant(
        "negative floats are not bounded",
        "element_wise_quantize_linear/estimate.comp",
        (
            (
                "min(uint(min(int(x[slot]), floatBitsToInt(most))), floatBitsToUint(least))",
                "uint(min(int(x[slot]), floatBitsToInt(most)))",
            ),
        ),
        ("element_wise_quantize_linear:thresholds",),
    ),
    Mutant(
        "a workgroup takes the tables of the first one",
        "byte_table/tables.comp",
        (("load_tables(group * TABLES);", "load_tables(0);"),),
        ("byte_table:tables:*path=shared*",),
    ),
    Mutant(
        "the last vectors of a workgroup are left out",
        "byte_table/tables.comp",
        (("    while (first < count) {", "    if (first < count) {"),),
        ("byte_table:tables:*path=shared*",),
    ),
    Mutant(
        "a product is cut off in place of rounded",
        "element_wise_dequantize_linear/dequantize.glsl",
        (("    kept += (fraction & 0xFF) + (kept & 1) > 128 ? 1 : 0;\n", ""),),
        ("element_wise_dequantize_linear:exponents:*path=integers",),
    ),
    Mutant(
        "a mean's lanes begin at the plane's first element",
        "byte_table_mean/mean.glsl",
        (("LANES == 8 ? min((0u - number * push.count) % ALIGNMENT, push.count) : 0;", "0;"),),
        ("byte_table_mean:planes:lanes=8;*",),
    ),
    Mutant(
        "what is left of a plane of words is added before its lanes are joined",
        "byte_table_mean/words.comp",
        (("words & ~1u : words", "words : words"),),
        ("byte_table_mean:planes_of_words:lanes=8;*layout=NCHW;*",),
    ),
    Mutant(
        "a chunk of a plane of words begins before the plane",
        "byte_table_mean/words.comp",
        (("gl_LocalInvocationID.x % CHUNK - words_before(start);", "gl_LocalInvocationID.x % CHUNK;"),),
        ("byte_table_mean:planes_of_words:*layout=NCHW;*",),
    ),
    Mutant(
        "shares that are halves of a step round up",
        "byte_softmax/shares.glsl",
        (("low > its_low : (k & 1) != 0;", "low > its_low : true;"),),
        ("byte_softmax:rows:*table=equal;*",),
    ),
    Mutant(
        "a row's parts forget the sum",
        "byte_softmax/softmax.glsl",
        (("                    sum, row_of_group * TURN,", "                    0, row_of_group * TURN,"),),
        ("byte_softmax:rows:length=2050;*",),
    ),
    Mutant(
        "the squares of a row are rounded before they are added",
        "byte_layer_normalization/integers.comp",
        (("sum = fused(d, d, sum);", "sum = sum_of(sum, multiply(d, d));"),),
        ("byte_layer_normalization:last_bits",),
    ),
    Mutant(
        "an output next to a half of a step is an estimate",
        "byte_layer_normalization/integers.comp",
        (("error < LARGEST_ERROR && abs(steps - below - 0.5) > error", "error < LARGEST_ERROR"),),
        ("byte_layer_normalization:rows:*parameters=halves;*",),
    ),
    Mutant(
        "an interpolation takes places before the first row behind the last one",
        "byte_resample/resample.glsl",
        (("bits = int(bits) < 0 ? 0 : min(bits, last);", "bits = min(bits, last);"),),
        ("byte_resample:planes:*coordinates=half_pixel;*",),
    ),
    Mutant(
        "an interpolation compares with one threshold of two",
        "byte_resample/resample.glsl",
        (("            + (sum >= uintBitsToFloat(thresholds[least + 1]) ? 1 : 0);", ";"),),
        ("byte_resample:beside_a_line:*",),
    ),
    Mutant(
        "an interpolation keeps the numbers of the rows before",
        "byte_resample/resample.glsl",
        (("if (row.low != low_row) {", "if (low_row == NONE) {"),),
        ("byte_resample:planes:sides=large;*",),
    ),
    Mutant(
        "an interpolation takes the row above from the row before, though rows lie between",
        "byte_resample/resample.glsl",
        (("if (row.low == high_row)", "if (high_row != NONE)"),),
        ("byte_resample:beside_a_line:*coordinates=any;*",),
    ),
    Mutant(
        "an interpolation near a threshold is certain",
        "byte_resample/resample.glsl",
        (("if (least_rest < 2 * line.margin) {", "if (!line.is_even) {"),),
        ("byte_resample:planes:*",),
    ),
    Mutant(
        "an estimate of a share is always certain",
        "byte_softmax/rows.comp",
        (("(are_all || least_rest < 2 * MARGIN)", "are_all"),),
        ("byte_softmax:many_rows:*table=equal;*",),
    ),
    Mutant(
        "a word's second row has the first one's largest number",
        "byte_softmax/rows.comp",
        (("to_levels(largest_of[next])", "to_levels(largest_of[row])"),),
        ("byte_softmax:many_rows:*",),
    ),
    Mutant(
        "sums in integers round up",
        "windows/sum.glsl",
        (
            (
                "return rounded_to_binary32(high, low != 0, exponent, a.negative);",
                "return rounded_to_binary32(high | 1, true, exponent, a.negative);",
            ),
        ),
        ("byte_table_mean:planes:*table=sizes;path=integers;*",),
    ),
    Mutant(
        "a sum of floats with a denormal is not added again in integers",
        "element_wise_add/add.glsl",
        (("    return are_right ? value : added_one_by_one(a, b);", "    return value;"),),
        ("element_wise_add:kinds:*path=float32;*", "element_wise_add:kinds:*path=auto;*"),
    ),
    Mutant(
        "the sum of two zeros is always +0",
        "windows/sum.glsl",
        (("    return sum.mantissa == 0 ? a & b & 0x80000000 :", "    return sum.mantissa == 0 ? 0 :"),),
        ("element_wise_add:kinds:*path=integers;*",),
    ),
    Mutant(
        "a ReLU makes a NaN with a sign 0",
        "activation_relu/operation.comp",
        (("uvec4(0x7F800000)", "uvec4(0x7FFFFFFF)"),),
        ("activation_relu:form",),
    ),
    Mutant(
        "a gap between bytes is written",
        "element_wise/output_bytes.glsl",
        (
            (
                "            uint mask = ((1u << (8 * (end - begin))) - 1) << (8 * begin);",
                "            uint mask = 0xFFFFFFFFu;",
            ),
        ),
        ("byte_table:form",),
    ),
    Mutant(
        "a tensor does not return to the start of its row",
        "element_wise/loop_nest.glsl",
        (("                unit.offsets -= size_of(dimension) * strides_of(dimension);\n", ""),),
        ("element_wise_quantized_linear_add:broadcast", "byte_table:form"),
    ),
)
