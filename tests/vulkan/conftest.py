"""Fixtures of these tests."""

from tests.vulkan.shim import shim

__all__ = ["shim"]
