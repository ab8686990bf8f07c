"""Divisions in kernels, by numbers that only the planner knows: as multiplications."""

from __future__ import annotations


def quick_division(divisor: int) -> tuple[int, int]:
    """A multiplier below 2^32 and a shift: for n < 2^31, n // divisor == (n * multiplier >> 32) >> shift.

    There is none for the divisor 1, which the kernels handle themselves. Let multiplier * divisor = 2^(32 + shift) + e
    with 0 < e <= divisor. Then n * multiplier is 2^(32 + shift) times n / divisor + n * e / (divisor * 2^(32 + shift)).
    As divisor <= 2^(shift + 1), n * e is less than 2^(32 + shift). So the second term is less than 1 / divisor, and the
    sum does not reach the next whole number.
    """
    shift = max((divisor - 1).bit_length() - 1, 0)
    return ((1 << shift + 32) // divisor + 1) & 0xFFFFFFFF, shift


def reciprocals(*divisors: int) -> tuple[list[int], int]:
    """A number for each divisor, and a word with a shift of five bits for each, the first one's lowest.

    2 * n * number >> 32 + shift is n // divisor for all n below 2**31.
    """
    numbers, shifts = [], 0
    for place, divisor in enumerate(divisors):
        number, shift = (1 << 31, -1) if divisor == 1 else quick_division(divisor)
        numbers.append(number)
        shifts |= shift + 1 << 5 * place
    return numbers, shifts
