"""Devices with the forms of kernels that other chips get."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import dmlvk
from dmlvk.conformance.profiles import narrow


@pytest.fixture
def gpu(device: dmlvk.Device, form: str) -> Iterator[dmlvk.Device]:
    """The device as a GPU that gets a form: one of the conformance suite's profiles, a fixture of the module."""
    with dmlvk.Device(device.name, profile=narrow(device.profile, form)) as opened:
        yield opened
