// Blocks of rows of the output: an invocation makes ROWS rows, one below the other. What a row of the input gives is found once
// for all of them that have it as a row of taps.
//
// Include this file after window.glsl. The kernel defines ROWS and MOST_TAP_ROWS.

// Rows of taps of the ROWS rows of a block.
const uint TAP_ROWS = (ROWS - 1) * STRIDE_H + WINDOW_H;
// Rows of taps from one block to the next, and those that a block shares with the one before.
const uint NEW_ROWS = ROWS * STRIDE_H;
const uint SHARED_ROWS = WINDOW_H > STRIDE_H ? WINDOW_H - STRIDE_H : 0;
// Windows without depth and dilation have their rows of taps one below the other.
const bool HAS_STRIPS = WINDOW_D == 1 && DILATION_H == 1 && TAP_ROWS <= MOST_TAP_ROWS;

// From the row of taps at position `top` to the row-th one below it: in place of one outside the input, the nearest one inside.
uint row_distance(int top, uint row) {
    return uint(clamp(top + int(row), 0, push.limit_h - 1) - top) * push.input_stride_h;
}

// The row of taps that the k-th step takes for a row of the output. Rows of the output share two rows with the next one, if
// their windows are three rows and the stride is one: every other one takes them from the last to the first, so that both
// compare these two with each other, and compilers do so once.
uint tap_row(uint output_row, uint k) {
    return output_row * STRIDE_H + (output_row % 2 == 0 ? WINDOW_H - 1 - k : k);
}
