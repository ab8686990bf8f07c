"""Values that are passed in place of numbers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

import dmlvk

UINT8, INT32, FLOAT16, FLOAT32, FLOAT64 = (
    dmlvk.DataType[name] for name in ("UINT8", "INT32", "FLOAT16", "FLOAT32", "FLOAT64")
)
HUGE = 10**5000  # Python refuses to print its digits
INTEGERS = [np.dtype(code).type for code in "bBhHiIlLqQ"]
NO_INTEGERS = {
    "bool": True,
    "numpy bool": np.True_,
    "float": 16.0,
    "numpy float": np.float64(16),
    "0-d array": np.array(16),
    "array of one": np.array([16]),
    "text": "16",
    "bytes": b"16",
    "None": None,
    "list": [16],
    "timedelta": np.timedelta64(16, "s"),
    "fraction": Fraction(16),
}
MOST_CHARACTERS = 2000  # the limit for a message
