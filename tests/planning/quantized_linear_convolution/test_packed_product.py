"""The paths `integer` and `float`: what they need of a device and of a convolution."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dmlvk.planning.quantized_linear_convolution.choice import convolution_paths
from dmlvk.planning.quantized_linear_convolution.choice import plan_quantized_linear_convolution as plan
from dmlvk.planning.quantized_linear_convolution.stages import LARGEST_WORD_COUNT
from tests import profiles
from tests.planning.quantized_linear_convolution.descriptors import convolution


def test_float_path_wants_64_bit_integers() -> None:
    """The kernel of this path loads two words at once."""
    profile = profiles.load("lavapipe-22.3")
    assert "float" in convolution_paths(profile)
    assert "float" not in convolution_paths(replace(profile, features=profile.features - {"shaderInt64"}))


def test_a_forced_path_that_could_overflow_is_refused() -> None:
    channels = 4 * LARGEST_WORD_COUNT
    profile = profiles.load("swiftshader")
    assert plan(convolution(1, channels, (1, 1), 2, (1, 1)), profile, path="integer").path == "integer"
    with pytest.raises(ValueError, match=r"words of four taps .* = 32768, possible: at most 32767"):
        plan(convolution(1, channels + 1, (1, 1), 2, (1, 1)), profile, path="integer")
