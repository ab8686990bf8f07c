"""The kernel paths of a device, and checks of a convolution on them."""

from __future__ import annotations

import re

import numpy as np

import dmlvk
from dmlvk import QuantizedLinearConvolutionDesc
from dmlvk.planning.quantized_linear_convolution.choice import convolution_paths
from tests.kernels.harness import check
from tests.layouts import random_bytes, view

# The paths that take any convolution that is not too large, and the paths that take only some.
PATHS = ("matrix", "split_k", "vectors", "integer", "float", "direct", "general")
MADE_FOR_SOME = ("depthwise", "halo")


def run(
    device: dmlvk.Device,
    desc: QuantizedLinearConvolutionDesc,
    arrays: dict[str, np.ndarray],
    expected: np.ndarray,
    path: str | None,
    seed: int = 0,
) -> None:
    """Check on one path, or on all paths of the device if the path is None."""
    inputs = {}
    for name, array in arrays.items():
        tensor = desc.tensors[name]
        inputs[name] = random_bytes(seed, tensor.total_size_in_bytes)
        view(inputs[name], tensor)[...] = array.view(f"u{array.itemsize}")
    for each in (path,) if path else (None, *(path for path in paths_of(device) if takes(device, desc, path))):
        check(device, desc, expected, inputs, offset=16 * (seed % 19), seed=seed, path=each)


def paths_of(device: dmlvk.Device) -> tuple[str, ...]:
    return convolution_paths(device.profile)


def takes(device: dmlvk.Device, desc: QuantizedLinearConvolutionDesc, path: str) -> bool:
    """Whether a path that takes only some convolutions takes this one on a device; the other paths take any.

    If not, the error has to name the path's obstacle, what is possible, and the paths that can.
    """
    if path in MADE_FOR_SOME:
        try:
            device.plan(desc, path)
        except dmlvk.PathError as error:
            rule = rf"cannot take path '{path}' here: \w.* = .*, possible: .+; these can: .*'direct'"
            assert re.search(rule, str(error)), error
            return False
    return True


def one_path(device: dmlvk.Device, desc: QuantizedLinearConvolutionDesc, number: int) -> str:
    """A path made for such convolutions if there is one, otherwise any path."""
    paths = [path for path in paths_of(device) if takes(device, desc, path)]
    made_for_it = [path for path in paths if path in MADE_FOR_SOME]
    return (made_for_it or paths)[number % len(made_for_it or paths)]
