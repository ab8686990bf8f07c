"""Fixtures of these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import dmlvk
from tests.vulkan.shim import shim
from tests.vulkan.variants import VARIANTS, open_variant

__all__ = ["shim"]


@pytest.fixture(params=VARIANTS)
def own(request: pytest.FixtureRequest, device: dmlvk.Device) -> Iterator[dmlvk.Device]:
    """The device opened in each variant."""
    with open_variant(device, request.param) as opened:
        yield opened
