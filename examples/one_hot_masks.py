"""Token ids and attention masks for a transformer: ONE_HOT, and DIAGONAL_MATRIX1 on the scores themselves.

    python -m examples.one_hot_masks --length 64 --window 16

Three things that every transformer has:

- Token ids become rows of a one-hot matrix, {batch, length, vocabulary}, whose product with a table of embeddings is
  the rows of that table. An id that the vocabulary does not have gives a row of zeros.
- A causal mask: DIAGONAL_MATRIX1 fills all diagonals above the main one with -infinity, DiagonalFillBegin 1 and
  DiagonalFillEnd INT32_MAX. It is given the scores as its input, so no mask of its own is kept in memory.
- A banded (sliding window) mask: a token sees itself and the `window - 1` tokens before it. With DiagonalFillBegin
  greater than DiagonalFillEnd, DIAGONAL_MATRIX1 fills everything but the band between them.

Each result is compared with NumPy's, bit for bit.
"""

from __future__ import annotations

import click
import numpy as np

import dmlvk
from dmlvk.command_line.terminal import clear_errors

INT32_MAX = 2**31 - 1


def one_hot_rows(ids: np.ndarray, vocabulary: int, device: dmlvk.Device) -> np.ndarray:
    """Token ids {batch,length} as one-hot rows {batch,length,vocabulary} of FLOAT32."""
    return dmlvk.one_hot(
        ids[..., None], np.array([[[0.0, 1.0]]], np.float32), output_length=vocabulary, axis=2, device=device
    )


def causal(scores: np.ndarray, device: dmlvk.Device) -> np.ndarray:
    """Scores {...,length,length} with -infinity wherever a token (a row) would see a later one (a column)."""
    return dmlvk.diagonal_matrix1(
        scores, value=-np.inf, diagonal_fill_begin=1, diagonal_fill_end=INT32_MAX, device=device
    )


def banded(scores: np.ndarray, window: int, device: dmlvk.Device) -> np.ndarray:
    """Scores with -infinity wherever a token would see a later one, or one that is `window` or more before it."""
    return dmlvk.diagonal_matrix1(
        scores, value=-np.inf, diagonal_fill_begin=1, diagonal_fill_end=1 - window, device=device
    )


def softmax(scores: np.ndarray) -> np.ndarray:
    """The weights of attention: each row's shares."""
    shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return shares / shares.sum(axis=-1, keepdims=True)


def _text(equal: bool) -> str:
    return "equal to NumPy's" if equal else "DIFFERENT from NumPy's"


@click.command()
@click.option("--device", "selector", default=None, help="Index or part of a name; else $DMLVK_DEVICE, else the best.")
@click.option("--batch", type=click.IntRange(1), default=2, show_default=True)
@click.option("--heads", type=click.IntRange(1), default=4, show_default=True)
@click.option("--length", type=click.IntRange(1), default=64, show_default=True, help="Tokens of a sequence.")
@click.option("--vocabulary", type=click.IntRange(2), default=1000, show_default=True)
@click.option("--window", type=click.IntRange(1), default=16, show_default=True, help="Tokens that a token sees.")
@clear_errors
def main(selector: str | None, batch: int, heads: int, length: int, vocabulary: int, window: int) -> None:
    """Encode token ids and mask attention scores on a device. Ends with status 1 if a result is not NumPy's."""
    random = np.random.default_rng(0)
    ids = random.integers(0, vocabulary, (batch, length)).astype(np.uint32)
    ids[0, 0] = vocabulary  # which it does not have
    table = random.standard_normal((vocabulary, 8)).astype(np.float32)
    scores = random.standard_normal((batch, heads, length, length)).astype(np.float32)
    row, column = np.indices((length, length))
    with dmlvk.Device(selector) as device:
        rows = one_hot_rows(ids, vocabulary, device)
        masked, in_window = causal(scores, device), banded(scores, window, device)
        name = device.name
    expected = (ids[..., None] == np.arange(vocabulary)).astype(np.float32)
    embedded = np.where((ids < vocabulary)[..., None], table[np.minimum(ids, vocabulary - 1)], 0)
    no_later = np.where(column > row, -np.inf, scores)
    near = np.where(column <= row - window, -np.inf, no_later)
    checks = {
        f"one-hot rows {rows.shape}": np.array_equal(rows, expected),
        "their product with the table of embeddings": np.array_equal(rows @ table, embedded),
        f"causal scores {masked.shape}": np.array_equal(masked, no_later),
        f"scores in a window of {window}": np.array_equal(in_window, near),
        "the weights of attention in that window": np.array_equal(softmax(in_window), softmax(near)),
    }
    click.echo(f"On {name}:")
    for what, is_right in checks.items():
        click.echo(f"  {what}: {_text(is_right)}")
    if not all(checks.values()):
        raise click.ClickException("a result is not NumPy's")


if __name__ == "__main__":
    main()
