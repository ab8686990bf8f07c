// What an invocation fetches of both operands, and stores to shared memory: vectors of the input, read in place by vectors
// or planes or packed before, and vectors of the packed filter. FETCHERS invocations fetch a step together, each with an
// index `fetcher`. Include this file after matrix_workgroup.glsl.

const uint STEPPED_ROWS = FETCHERS / STEP;
const uint INPUT_FETCHES = TILE_PIXELS / STEPPED_ROWS;
const bool FEW_TAPS = CHECK_BORDER != 0 && TAPS <= 32 && PIXEL_BYTES == 0;

// The places of the vectors that an invocation fetches.
uint fetcher;
uint operands_at;  // in shared memory, of the operands that the fetchers store
uint own_vector;
uint own_index;
uint sources[INPUT_FETCHES];
uint inside_taps[INPUT_FETCHES];  // with FEW_TAPS, a bit for each tap that lies inside the input
uint source_rows[INPUT_FETCHES];
uint source_columns[INPUT_FETCHES];
// The vectors as they lie in memory. Nothing is done with them before they are stored: see matrix_steps.glsl.
uvec4 next_input[INPUT_FETCHES];
#ifdef SPLIT_K
uint next_bytes[16 * INPUT_FETCHES];  // with BYTES
#endif
uvec4 next_filter[FILTER_FETCHES];

void begin_fetches() {
#ifdef SPLIT_K
    fetcher = gl_SubgroupInvocationID;
    operands_at = gl_SubgroupID * REGION;
#else
    fetcher = gl_LocalInvocationID.x;
    operands_at = 0;
#endif
    own_vector = fetcher % STEP;
    own_index = fetcher / STEP;
}

// The four pixels of the tile, and the vector of the step, that an invocation fetches from planes at its f-th turn.
uint plane_quad(uint f) {
    return (fetcher + f * FETCHERS) % (TILE_PIXELS / 4);
}

uint plane_vector(uint f) {
    return (fetcher + f * FETCHERS) / (TILE_PIXELS / 4);
}

// The pixel of the tile, and the vector of the step, that an invocation fetches as bytes at its f-th turn: neighbours
// fetch the same channel of neighbouring pixels.
uint byte_pixel(uint f) {
    return FETCHERS % TILE_PIXELS == 0 ? fetcher % TILE_PIXELS : (fetcher + f * FETCHERS) % TILE_PIXELS;
}

uint byte_vector(uint f) {
    return (fetcher + f * FETCHERS) / TILE_PIXELS;
}

// The row of both operands that an invocation stores at its f-th turn, except for pixels of planes.
uint row_of_fetch(uint f) {
    // Whole blocks of eight rows apart, which takes fewer instructions.
    if (STEPPED_ROWS % 8 == 0)
        return stored_row(own_index) + f * STEPPED_ROWS;
    return stored_row(own_index + f * STEPPED_ROWS);
}

// Whether the row, or the column, of a tap lies inside the input.
bool has_row(uint f, uint tap_row) {
    return source_rows[f] + tap_row * SIZE(DILATION_H, dilation_h) < SIZE(ROW_LIMIT, row_limit);
}

bool has_column(uint f, uint tap_column) {
    return source_columns[f] + tap_column * SIZE(DILATION_W, dilation_w) < SIZE(COLUMN_LIMIT, column_limit);
}

bool is_inside(uint f, uint tap_row, uint tap_column) {
    return has_row(f, tap_row) && has_column(f, tap_column);
}

void locate(uint first_pixel) {
    if (FETCH == PLANES) {
        [[unroll]] for (uint f = 0; f < INPUT_FETCHES / 4; ++f) {
            Pixel pixel = pixel_at(min(first_pixel + 4 * plane_quad(f), push.pixels - 4));
            sources[f] = group_start + pixel.image * SIZE(INPUT_STRIDE_N, input_stride_n)
                + (pixel.row * SIZE(COLUMNS, columns) + pixel.column) / 4
                + 16 * plane_vector(f) * SIZE(CHANNEL_STRIDE, channel_stride);
        }
        return;
    }
    [[unroll]] for (uint f = 0; f < INPUT_FETCHES; ++f) {
        uint position = FETCH == BYTES ? byte_pixel(f) : row_of_fetch(f);
        uint index = min(first_pixel + pixel_place(position), push.pixels - 1);
        if (EVEN_INPUT != 0) {
            sources[f] = group_start + index * SIZE(INPUT_STRIDE_W, input_stride_w);
            continue;
        }
        Pixel pixel = pixel_at(index);
        sources[f] = group_start + pixel.image * SIZE(INPUT_STRIDE_N, input_stride_n)
            + pixel.row * SIZE(INPUT_STRIDE_H, input_stride_h) + pixel.column * SIZE(INPUT_STRIDE_W, input_stride_w);
        source_rows[f] = push.first_row + pixel.row * SIZE(STRIDE_H, stride_h);
        source_columns[f] = push.first_column + pixel.column * SIZE(STRIDE_W, stride_w);
        inside_taps[f] = 0;
        if (FEW_TAPS) {
            // A tap is inside if its row and its column are.
            uint columns = 0;
            [[unroll]] for (uint i = 0; i < RUNS_W; ++i)
                columns |= (has_column(f, i) ? 1u : 0) << i;
            [[unroll]] for (uint i = 0; i < TAPS / RUNS_W; ++i)
                inside_taps[f] |= (has_row(f, i) ? columns : 0) << (i * RUNS_W);
        }
    }
}

// Where the pixels of an invocation are stored.
const uint PIXEL_ROUNDS = (TILE_PIXELS + INVOCATIONS - 1) / INVOCATIONS;
uint own_destinations[PIXEL_ROUNDS];

// Works out where the tile's pixels are stored, while the first operands are fetched. It has no condition, for the same
// reason as `fetch_channels`.
void locate_outputs(uint first_pixel) {
    [[unroll]] for (uint round = 0; round < PIXEL_ROUNDS; ++round) {
        uint index = min(first_pixel + round * INVOCATIONS + gl_LocalInvocationID.x, push.pixels - 1);
        uint start = push.output_start + group_channel * SIZE(OUTPUT_STRIDE_C, output_stride_c);
        if (EVEN_OUTPUT != 0) {
            own_destinations[round] = start + index * SIZE(OUTPUT_STRIDE_W, output_stride_w);
        } else {
            Pixel pixel = pixel_at(index);
            own_destinations[round] = start + pixel.image * SIZE(OUTPUT_STRIDE_N, output_stride_n)
                + pixel.row * SIZE(OUTPUT_STRIDE_H, output_stride_h)
                + pixel.column * SIZE(OUTPUT_STRIDE_W, output_stride_w);
        }
    }
}

// Stores that, and zeros where the pixels' sums are added up. Barriers have to follow.
void begin_pixels() {
    [[unroll]] for (uint round = 0; round < PIXEL_ROUNDS; ++round) {
        uint i = round * INVOCATIONS + gl_LocalInvocationID.x;
        if (TILE_PIXELS % INVOCATIONS == 0 || i < TILE_PIXELS) {
            destinations[i] = own_destinations[round];
            if (FILTER_ZERO_POINT != 0)
                input_sums[i] = 0;
        }
    }
}

// The value that becomes 0 when it is stored.
const uvec4 NOTHING = uvec4(FLIP);

#ifdef ONE_SET
// Intel's compiler waits in a branch for what is loaded there. So each vector is loaded, one outside the input or past the
// end of K from anywhere, and replaced when it is stored.
bool next_inside[INPUT_FETCHES];
uint next_outside;  // four bytes that replace a vector
#endif

void fetch_planes(uint step) {
    [[unroll]] for (uint f = 0; f < INPUT_FETCHES / 4; ++f) {
        uint source = sources[f] + 16 * STEP * step * SIZE(CHANNEL_STRIDE, channel_stride);
        [[unroll]] for (uint i = 0; i < 4; ++i)
            next_input[4 * f + i] = NOTHING;
        if (WHOLE_STEPS != 0 || step * STEP + plane_vector(f) < SIZE(VECTORS_OF_K, vectors_of_k)) {
            [[unroll]] for (uint i = 0; i < 4; ++i) {
                [[unroll]] for (uint j = 0; j < 4; ++j)
                    next_input[4 * f + i][j] = input_words[source + (4 * i + j) * SIZE(CHANNEL_STRIDE, channel_stride)];
            }
        }
    }
}

// Four words, of which those after the last one are that again.
uvec4 run_of_words(uint source, uint last) {
    return uvec4(input_words[source], input_words[source + min(1, last)], input_words[source + min(2, last)],
        input_words[source + min(3, last)]);
}

void fetch_runs(uint step) {
    uint vector = step * STEP + own_vector;
    uint run = TAPS == 1 ? 0 : QUOTIENT_BY(vector, RUN, run, 10);
    uint tap_row = run / RUNS_W;
    uint tap_column = run - tap_row * RUNS_W;
    uint in_run = vector - run * SIZE(RUN, run);
    uint offset = tap_row * SIZE(TAP_STRIDE_H, tap_stride_h) + tap_column * SIZE(TAP_STRIDE_W, tap_stride_w)
        + in_run * (FETCH == VECTORS ? 1 : 4);
    // Past the end of a run its last word is read again: nothing may follow it in memory.
    uint last_word = RUN_WORDS % 4 == 0 ? 3 : RUN_WORDS - 1 - 4 * in_run;
#ifdef ONE_SET
    bool has_vector = WHOLE_STEPS != 0 || vector < SIZE(VECTORS_OF_K, vectors_of_k);
    next_outside = CHECK_BORDER != 0 && has_vector ? border ^ FLIP : FLIP;
    [[unroll]] for (uint f = 0; f < INPUT_FETCHES; ++f) {
        bool inside = has_vector;
        if (CHECK_BORDER != 0)
            inside = inside && (FEW_TAPS ? (inside_taps[f] >> run & 1) != 0 : is_inside(f, tap_row, tap_column));
        next_inside[f] = inside;
        uint source = inside ? sources[f] + offset : 0;
        if (FETCH == VECTORS)
            next_input[f] = input_vectors[source];
        else
            next_input[f] = run_of_words(source, last_word);
    }
#else
    [[unroll]] for (uint f = 0; f < INPUT_FETCHES; ++f) {
        bool inside = WHOLE_STEPS != 0 || vector < SIZE(VECTORS_OF_K, vectors_of_k);
        next_input[f] = NOTHING;
        if (CHECK_BORDER != 0) {
            if (inside)
                next_input[f] = uvec4(border ^ FLIP);
            inside = inside && (FEW_TAPS ? (inside_taps[f] >> run & 1) != 0 : is_inside(f, tap_row, tap_column));
        }
        if (inside) {
            uint source = sources[f] + offset;
            if (FETCH == VECTORS)
                next_input[f] = input_vectors[source];
            else
                next_input[f] = run_of_words(source, last_word);
        }
    }
#endif
}

#ifdef SPLIT_K
void fetch_bytes(uint step) {
    [[unroll]] for (uint f = 0; f < INPUT_FETCHES; ++f) {
        uint vector = step * STEP + byte_vector(f);
        uint run = TAPS == 1 ? 0 : QUOTIENT_BY(vector, RUN, run, 10);
        uint tap_row = run / RUNS_W;
        uint first_byte = 16 * (vector - run * SIZE(RUN, run));
        bool is_step = WHOLE_STEPS != 0 || vector < SIZE(VECTORS_OF_K, vectors_of_k);
        [[unroll]] for (uint i = 0; i < 16; ++i) {
            uint byte = first_byte + i;
            uint tap_column = PIXEL_BYTES == 0 ? run - tap_row * RUNS_W : byte / max(PIXEL_BYTES, 1);
            uint channel = PIXEL_BYTES == 0 ? byte : byte % max(PIXEL_BYTES, 1);
            bool is_inside_tensor = is_step && (RUN_WORDS % 4 == 0 || byte < 4 * RUN_WORDS)
                && (PIXEL_CHANNELS == 0 || channel < PIXEL_CHANNELS);
            next_bytes[16 * f + i] = FLIP & 0xFF;
            if (CHECK_BORDER != 0) {
                if (is_inside_tensor)
                    next_bytes[16 * f + i] = (border ^ FLIP) & 0xFF;
                is_inside_tensor = is_inside_tensor
                    && (FEW_TAPS ? (inside_taps[f] >> run & 1) != 0 : is_inside(f, tap_row, tap_column));
            }
            if (is_inside_tensor)
                next_bytes[16 * f + i] = input_bytes[sources[f] + tap_row * SIZE(TAP_STRIDE_H, tap_stride_h)
                    + tap_column * SIZE(TAP_STRIDE_W, tap_stride_w) + channel * SIZE(CHANNEL_STRIDE, channel_stride)];
        }
    }
}
#endif

void fetch_step(uint step) {
#ifdef SPLIT_K
    if (FETCH == BYTES)
        fetch_bytes(step);
    else
#endif
        if (FETCH == PLANES)
        fetch_planes(step);
    else
        fetch_runs(step);
#ifdef SPLIT_K
    step = min(step, step_count() - 1);  // past the end of K the input is 0, and any filter will do
#endif
    uint source = panel + step * STEP * TILE_CHANNELS + fetcher;
    [[unroll]] for (uint f = 0; f < FILTER_FETCHES; ++f)
        next_filter[f] = filter_vectors[source + f * FETCHERS];
}

// Copies next_input, with planes as vectors of channels. next_input itself does not change: if it changed under a
// condition, both versions of it would take registers.
void arrange_input(out uvec4 vectors[INPUT_FETCHES]) {
#ifdef SPLIT_K
    if (FETCH == BYTES) {
        [[unroll]] for (uint f = 0; f < INPUT_FETCHES; ++f) {
            [[unroll]] for (uint i = 0; i < 4; ++i) {
                uint at = 16 * f + 4 * i;
                vectors[f][i] =
                    next_bytes[at] | next_bytes[at + 1] << 8 | next_bytes[at + 2] << 16 | next_bytes[at + 3] << 24;
            }
        }
        return;
    }
#endif
    if (FETCH != PLANES) {
        [[unroll]] for (uint f = 0; f < INPUT_FETCHES; ++f)
#ifdef ONE_SET
            vectors[f] = mix(uvec4(next_outside), next_input[f], bvec4(next_inside[f]));
#else
            vectors[f] = next_input[f];
#endif
        return;
    }
    [[unroll]] for (uint f = 0; f < INPUT_FETCHES / 4; ++f) {
        [[unroll]] for (uint i = 0; i < 4; ++i) {
            uvec4 words = turned(next_input[4 * f + i]);
            [[unroll]] for (uint j = 0; j < 4; ++j)
                vectors[4 * f + j][i] = words[j];
        }
    }
}

// The position, and the vector of the step, of an arranged vector.
uint position_of_fetch(uint f) {
    if (FETCH == PLANES)
        return pixel_position(4 * plane_quad(f / 4) + f % 4);
    return FETCH == BYTES ? byte_pixel(f) : row_of_fetch(f);
}

uint vector_of_fetch(uint f) {
    if (FETCH == PLANES)
        return plane_vector(f / 4);
    return FETCH == BYTES ? byte_vector(f) : own_vector;
}

void put_step(uint step) {
    uint half_tile = operands_at + HALF_OF(step) * HALF_TILE;
    uvec4 vectors[INPUT_FETCHES];
    arrange_input(vectors);
    [[unroll]] for (uint f = 0; f < INPUT_FETCHES; ++f) {
        vectors[f] ^= FLIP;
        // The bytes after a run in memory are multiplied by zeros of the filter, but they must not count in sum(x').
        if (FETCH == WORDS && RUN_WORDS % 4 != 0)
            vectors[f] = mix(uvec4(0), vectors[f],
                lessThan(4 * ((step * STEP + own_vector) % SIZE(RUN, run)) + uvec4(0, 1, 2, 3), uvec4(RUN_WORDS)));
        put(half_tile + position_of_fetch(f) * ROW, vector_of_fetch(f), STORED(vectors[f]));
    }
    [[unroll]] for (uint f = 0; f < FILTER_FETCHES; ++f)
        put(half_tile + (TILE_PIXELS + row_of_fetch(f)) * ROW, own_vector, next_filter[f]);
    if (counts) {
        [[unroll]] for (uint f = 0; f < INPUT_FETCHES; ++f)
            atomicAdd(input_sums[position_of_fetch(f)], sum_of_bytes(vectors[f]));
    }
}
