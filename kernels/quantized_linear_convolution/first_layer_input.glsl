// The input of first_layer.comp in shared memory: overlapping rows in copies that begin a few pixels apart.

// Pairs of pixels that are staged for a row of the input. If copies are whole pairs apart, a pair belongs to all.
const uint PAIRS = STRIDE_W % 2 == 0 ? COPY + (PHASES - 1) * STRIDE_W / 2 : PHASES * COPY;
// Pairs that an invocation loads at a time.
const uint TOGETHER = 4;

uint column_of_pair(uint pair) {
    return STRIDE_W % 2 == 0 ? 2 * pair : pair / COPY * STRIDE_W + 2 * (pair % COPY);
}

void stage_pair(uint row, uint pair, uvec2 pixels) {
    if (STRIDE_W % 2 != 0) {
        staged[row * PAIRS + pair] = pixels;
        return;
    }
    [[unroll]] for (uint q = 0; q < PHASES; ++q) {
        uint place = pair - q * STRIDE_W / 2;
        if (place < COPY)
            staged[(row * PHASES + q) * COPY + place] = pixels;
    }
}

// All loads of a round are started before the first loaded word is used.
void stage_input(uint plane, uint first_row, uint first_column, uint border) {
    [[dont_unroll]] for (uint first = 0; first < STAGED_ROWS * PAIRS; first += TOGETHER * SUBGROUPS * LANES) {
        uint words[TOGETHER * 2 * INPUT_CHANNELS];
        [[unroll]] for (uint n = 0; n < TOGETHER; ++n) {
            uint i = first + n * SUBGROUPS * LANES + gl_LocalInvocationID.x;
            uint row = first_row + i / PAIRS;
            [[unroll]] for (uint p = 0; p < 2; ++p) {
                uint column = first_column + column_of_pair(i % PAIRS) + p;
                uint address = plane + row * push.input_stride_h + column * push.input_stride_w;
                bool inside = i < STAGED_ROWS * PAIRS && row < push.row_limit && column < push.column_limit;
                [[unroll]] for (uint c = 0; c < INPUT_CHANNELS; ++c) {
                    uint place = (2 * n + p) * INPUT_CHANNELS + c;
                    words[place] = 0;
                    if (inside)
                        words[place] = input_words[(address + c * push.input_stride_c) >> 2];
                }
            }
        }
        [[unroll]] for (uint n = 0; n < TOGETHER; ++n) {
            uint i = first + n * SUBGROUPS * LANES + gl_LocalInvocationID.x;
            uint row = first_row + i / PAIRS;
            uvec2 pixels;
            [[unroll]] for (uint p = 0; p < 2; ++p) {
                uint column = first_column + column_of_pair(i % PAIRS) + p;
                uint address = plane + row * push.input_stride_h + column * push.input_stride_w;
                uint bytes = 0;
                [[unroll]] for (uint c = 0; c < INPUT_CHANNELS; ++c) {
                    uint word = words[(2 * n + p) * INPUT_CHANNELS + c];
                    uint shift = 8 * ((address + c * push.input_stride_c) & 3);
                    bytes |= ((word >> shift & 0xFF) ^ FLIP) << (8 * c);
                }
                pixels[p] = row < push.row_limit && column < push.column_limit ? bytes : border;
            }
            if (i < STAGED_ROWS * PAIRS)
                stage_pair(i / PAIRS, i % PAIRS, pixels);
        }
    }
}

// Computes sum(x') under a unit's pixels. Bytes that stand for no channel are 0.
void add_up_input(uint row, uint unit, uint sums_start) {
    for (uint i = gl_SubgroupInvocationID; i < UNIT; i += LANES) {
        uint pixel = i % MATRIX_M * 4 + i / MATRIX_M;
        uint copy = pixel % PHASES;
        int sum = 0;
        for (uint k = 0; k < FILTER_HEIGHT; ++k) {
            uint line = ((row * STRIDE_H + k) * PHASES + copy) * COPY + (unit * UNIT + pixel) / PHASES * STEP;
            for (uint s = 0; s < FILTER_WIDTH; ++s) {
                uvec2 pixels = staged[line + s / 2];
                sum += dotPacked4x8EXT(int((s & 1) != 0 ? pixels.y : pixels.x), 0x01010101);
            }
        }
        input_sums[sums_start + i] = sum;
    }
}
