"""A quantized network that reads handwritten digits: its run on a device, and the check of all its values.

`examples/digits` trains it and says more. The data: ORIGIN.txt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

import dmlvk
from dmlvk._common import files

if TYPE_CHECKING:
    from dmlvk.onnx import Row
    from dmlvk.onnx.checking import Finding

# The network, and the pictures with labels on which it is tested; both lie beside this file.
NETWORK, PICTURES = "digits.onnx", "digits.npz"
MOST_INK = 16


@dataclass(frozen=True)
class Accuracy:
    """How many answers are right."""

    right: int
    total: int

    @classmethod
    def of(cls, answers: np.ndarray, labels: np.ndarray) -> Accuracy:
        return cls(int(np.count_nonzero(answers == labels)), len(labels))

    def __str__(self) -> str:
        return f"{self.right} of {self.total} ({self.right / self.total:.1%})"


@dataclass(frozen=True)
class Reading:
    """What the network makes of the test's pictures.

    pictures: {n,8,8} UINT8, ink from 0 to 16.
    labels: {n}, the digits that were meant.
    answers: {n}, the digits that the network reads.
    placement: where each node runs.
    values: for each value of the run, whether it equals that of ONNX Runtime to the bit.
    """

    pictures: np.ndarray
    labels: np.ndarray
    answers: np.ndarray
    placement: list[Row]
    values: list[Finding]

    @property
    def accuracy(self) -> Accuracy:
        return Accuracy.of(self.answers, self.labels)

    @property
    def different(self) -> list[Finding]:
        """The values that differ from ONNX Runtime's."""
        return [finding for finding in self.values if not finding.is_equal]


def network() -> bytes:
    """The ONNX model: "pictures", FLOAT32 {n,1,8,8} of ink from 0 to 1, to "probabilities", FLOAT32 {n,10}."""
    return files.packaged_bytes("dmlvk.demo", NETWORK)


def unseen_pictures() -> tuple[np.ndarray, np.ndarray]:
    """Pictures that the training has not seen, {n,8,8} UINT8 of ink from 0 to 16, and their labels, {n} UINT8."""
    arrays = files.packaged_arrays("dmlvk.demo", PICTURES)
    return arrays["pictures"], arrays["labels"]


def ink(pictures: np.ndarray) -> np.ndarray:
    """Pictures {n,8,8} of ink from 0 to 16, as the network takes them."""
    return pictures[:, None].astype(np.float32) / np.float32(MOST_INK)


def missing_package() -> str:
    """The reason why the network cannot run here; "" if it can."""
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
    except ImportError as error:
        return f"it needs the packages onnx and onnxruntime: pip install 'dmlvk[onnx]' ({' '.join(str(error).split())})"
    return ""


def read_digits(device: dmlvk.Device) -> Reading:
    """Run the network on a device, and compare each value with a run of ONNX Runtime.

    Raises ImportError: the package onnx is not installed.
    Raises ModelError: the network cannot run.
    Raises DeviceError: the device could not run the network.
    """
    from dmlvk.onnx import InferenceSession
    from dmlvk.onnx.checking import check_values

    pictures, labels = unseen_pictures()
    feeds = {"pictures": ink(pictures)}
    session = InferenceSession(network(), device)
    (probabilities,) = session.run(None, feeds)
    return Reading(pictures, labels, probabilities.argmax(axis=1), session.placement, check_values(session, feeds))
