"""The program that trains the network of digits, whole: `make test-models` installs scikit-learn for it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np

from dmlvk.demo.digits import NETWORK, PICTURES, unseen_pictures

ROOT = Path(__file__).parents[2]
# Sums of doubles differ between processors in their last bits. After the training, that may turn a doubtful answer.
DOUBTFUL = 3


def test_the_program_makes_the_committed_network(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "examples.digits.train", "--output", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=600)
    assert done.returncode == 0, done.stderr
    right, total = map(int, re.findall(r"accuracy in integers: (\d+) of (\d+)", done.stdout)[0])
    readme = (ROOT / "examples" / "digits" / "README.md").read_text(encoding="utf-8")
    promised, out_of = map(int, re.findall(r"(\d+) of (\d+)", readme)[0])
    assert total == out_of
    assert abs(right - promised) <= DOUBTFUL
    assert (tmp_path / NETWORK).stat().st_size < 100_000
    with np.load(tmp_path / PICTURES) as arrays:
        for made, committed in zip((arrays["pictures"], arrays["labels"]), unseen_pictures(), strict=True):
            np.testing.assert_array_equal(made, committed, strict=True)


def test_no_picture_of_the_test_trains() -> None:
    from examples.digits.train import digits, split

    pictures, labels = digits()
    (training, training_labels), (test, test_labels) = split(pictures, labels)
    assert len(training) + len(test) == len(pictures) == len(training_labels) + len(test_labels) == 1797
    committed, committed_labels = unseen_pictures()
    np.testing.assert_array_equal(test, committed)
    np.testing.assert_array_equal(test_labels, committed_labels)
    assert not {picture.tobytes() for picture in training} & {picture.tobytes() for picture in committed}
