"""A shim over the Vulkan library that counts objects and can make one call fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from dmlvk.vulkan.library import vk


class Shim:
    """Stands between dmlvk and the loader until the monkeypatch is undone.

    Attributes
    ----------
    calls : list of str
        Names of the calls that return a VkResult, in order.
    live : dict of str to set of int
        Handles of the objects that were created and not destroyed, by kind.
    allocated : Counter
        Number of objects allocated from pools, by call. They are destroyed with their pool.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from vulkan._vulkan import ffi, lib

        self._ffi = ffi
        self.calls: list[str] = []
        self.live: dict[str, set[int]] = {}
        self._seen: set[tuple[str, int]] = set()
        self.allocated: Counter[str] = Counter()
        self._fail_at: int | None = None
        self._code = 0
        for name in dir(lib):
            if name.startswith("vk"):
                try:
                    function = getattr(vk, name)
                    kind = ffi.typeof(getattr(lib, name))
                except (AttributeError, ffi.error):  # a function of an extension, which the loader does not export
                    continue
                monkeypatch.setattr(vk, name, self._wrap(name, function, kind.result.cname == "enum VkResult"))

    def fail(self, number: int, code: int) -> None:
        """Count calls anew from now on. Call `number` (0 is the first) returns the code and does nothing."""
        self.calls.clear()
        self._fail_at, self._code = number, code

    def work(self) -> None:
        """Let every call through again."""
        self._fail_at = None

    @property
    def live_count(self) -> dict[str, int]:
        """Number of live objects of each kind."""
        return {kind: len(handles) for kind, handles in self.live.items() if handles}

    def _wrap(self, name: str, function: Callable[..., Any], can_fail: bool) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            if can_fail:
                self.calls.append(name)
                if len(self.calls) - 1 == self._fail_at:
                    return self._code
            if name == "vkGetPipelineCacheData":  # a null cache crashes NVIDIA's driver, but no CPU driver
                assert arguments[1] != self._ffi.NULL, f"{name} of a pipeline cache that is destroyed"
            if name.startswith(("vkDestroy", "vkFreeMemory")):
                self._forget(name, arguments)
            result = function(*arguments)
            if can_fail and result == 0:
                self._remember(name, arguments)
            return result

        return call

    def _number(self, handle: Any) -> int:
        return int(self._ffi.cast("uintptr_t", handle))

    def _remember(self, name: str, arguments: tuple[Any, ...]) -> None:
        if name == "vkCreateComputePipelines":
            count = arguments[2]
            for i in range(count):
                self._add("Pipeline", arguments[-1][i])
        elif name.startswith("vkCreate") or name == "vkAllocateMemory":
            kind = name.removeprefix("vkCreate").removeprefix("vkAllocate")
            self._add(kind, arguments[-1][0])
        elif name.startswith("vkAllocate"):
            self.allocated[name] += 1

    def _add(self, kind: str, handle: Any) -> None:
        self.live.setdefault(kind, set()).add(self._number(handle))
        self._seen.add((kind, self._number(handle)))

    def _forget(self, name: str, arguments: tuple[Any, ...]) -> None:
        kind = name.removeprefix("vkDestroy").removeprefix("vkFree")
        handle = arguments[0] if kind in ("Device", "Instance") else arguments[1]
        # Objects that are older than the shim may go too: a failed test before this one has left them.
        if handle != self._ffi.NULL and (kind, self._number(handle)) in self._seen:
            # A handle that is not there was destroyed twice.
            self.live[kind].remove(self._number(handle))


@pytest.fixture
def shim(monkeypatch: pytest.MonkeyPatch) -> Shim:
    """The library with a shim over it."""
    return Shim(monkeypatch)
