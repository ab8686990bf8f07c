"""The Device that known questions are asked on: one for all questions of a user's Device.

A GPU's driver takes a tenth of a second to open a device, and other threads' submissions wait for that. So the device
is opened once, for the first question, and closed with the last. The kernels of several questions are compiled on it at
the same time. The questions run one at a time: if the device is lost, or hangs, the question that ran is to blame, and
the others are asked again on another device.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from dmlvk.errors import DeviceError, OutOfMemoryError, ReentryError, ValidationError
from dmlvk.runtime.device_info import chosen, index_of
from dmlvk.runtime.engine import Engine
from dmlvk.vulkan.instance import ProcessEndError
from dmlvk.vulkan.interrupts.locks import RLock

# Compiles what a question needs.
Preparation: TypeAlias = "Callable[[Engine], None]"
# Runs on the device; returns what was wrong with the answer, or "".
Check: TypeAlias = "Callable[[Engine], str]"
# A question is asked again if another one has lost the device: each path has one.
MOST_DEVICES = 4


class AskedDevice:
    """An engine on the same device as a user's, and with the same profile, that is opened when it is needed."""

    def __init__(self) -> None:
        self._opening = RLock()
        self._asking = RLock()
        # Holds one entry: the thread that takes the entry out opens the device early.
        self._early = deque([True])
        self._device: Engine | None = None

    @property
    def is_begun(self) -> bool:
        """Whether some thread has begun to open the device."""
        return not self._early

    def open_early(self, user: Engine) -> None:
        """Open the device, if this is the first call and no question was asked. Other threads do not wait for it."""
        try:
            self._early.pop()
        except IndexError:
            return
        try:
            self._opened(user)
        except ValidationError:
            raise
        except DeviceError:  # the question meets the same error, and reports it
            pass

    def ask(self, user: Engine, prepare: Preparation, question: Check) -> str:
        """Ask a question, while no other one runs; returns what was wrong: the device's errors are wrong answers.

        Raises OutOfMemoryError: there is not enough memory for the question, which is no answer.
        Raises DeviceError: the user's Device was closed meanwhile, or the process ends: there is no answer.
        """
        if self._is_entered():  # a signal handler or a finalizer, in the middle of another question of this thread
            return self._asked_beside(user, prepare, question)
        self._early.clear()
        for _ in range(MOST_DEVICES):
            found = self._asked_once(user, prepare, question)
            if found is not None:
                return found
        return f"DeviceLostError: {MOST_DEVICES} devices were lost before the question could be asked"

    def close(self) -> None:
        """Close the device, if it is open; a later question opens another one."""
        own, self._device = self._device, None
        if own is not None:
            _close(own)

    def _is_entered(self) -> bool:
        own = self._device
        is_inside = self._opening._is_owned() or self._asking._is_owned()
        return is_inside or (own is not None and own.vulkan.is_entered)

    def _asked_beside(self, user: Engine, prepare: Preparation, question: Check) -> str:
        beside = AskedDevice()
        try:
            return beside.ask(user, prepare, question)
        finally:
            beside.close()

    def _asked_once(self, user: Engine, prepare: Preparation, question: Check) -> str | None:
        """What was wrong with the answer; None if another question has lost the device."""
        own: Engine | None = None
        try:
            try:
                own = self._opened(user)
                prepare(own)
            except OutOfMemoryError:
                self._forget(own)
                raise
            except DeviceError as error:
                return self._judged(user, own, error, has_run=False)
            with self._asking: return self._answer(user, own, question)  # noqa: E701  # fmt: skip
        finally:
            if own is not None and own is not self._device:
                _close(own)

    def _answer(self, user: Engine, own: Engine, question: Check) -> str | None:
        """As `_asked_once`, with the lock held under which questions run."""
        if own is not self._device and not user.is_closed:
            return None
        try:
            return question(own)
        except OutOfMemoryError:
            self._forget(own)
            raise
        except DeviceError as error:
            return self._judged(user, own, error, has_run=True)

    def _judged(self, user: Engine, own: Engine | None, error: DeviceError, *, has_run: bool) -> str | None:
        """What an error says of the question: see `_asked_once`. It is raised if it says nothing.

        own: on which it was asked; None if that could not be opened.
        has_run: whether the question ran. Before, it cannot have lost the device.
        """
        if user.is_closed:
            user.require_open()
        # A signal handler asks in the middle of another question, or no device can be opened any more.
        if isinstance(error, (ReentryError, ProcessEndError)):
            raise error
        current = self._device
        if current is not None and current.is_closed:  # nobody here closed it: the process ends
            raise error
        if own is not None and own is not current:
            return None
        if own is not None and (has_run or own.vulkan.is_lost):
            self._forget(own)
        if own is not None and not has_run and own.vulkan.is_lost:
            return None
        return " ".join(f"{type(error).__name__}: {error}".split())

    def _opened(self, user: Engine) -> Engine:
        with self._opening: return self._open(user)  # noqa: E701  # fmt: skip

    def _open(self, user: Engine) -> Engine:
        own = self._device
        if own is not None and not own.vulkan.is_lost:
            own.require_open()
            return own
        if own is not None:
            self.close()
        own = Engine(chosen(index_of(user)), profile=user.profile)
        self._device = own
        # Noted first: whoever closes the user's Device from now on finds it.
        if user.is_closed:
            self.close()
            user.require_open()
        return own

    def _forget(self, own: Engine | None) -> None:
        """Let the next question open another device."""
        if own is not None and self._device is own:
            self._device = None


def _close(own: Engine) -> None:
    """Close a device, whatever became of its work."""
    try:
        own.close()
    except ValidationError:
        raise
    except DeviceError:  # or a signal handler is in the middle of a call: the question closes it at its end
        pass
