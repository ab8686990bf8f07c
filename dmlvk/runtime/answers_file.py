"""What devices answered to known questions, remembered in the cache folder: see `dmlvk.runtime.self_test`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dmlvk._common.file_lock import FileLock
from dmlvk.device_profile import DeviceProfile
from dmlvk.runtime import device_files
from dmlvk.runtime.tuned_paths import kernels_hash

PREFIX = "self-test-"
# Another process may be asking, and a driver compiles for a while.
LONGEST_QUESTION_SECONDS = 60.0


@dataclass(frozen=True)
class Answer:
    """How a device answered.

    path: the kernel path that was asked.
    question: a hash of the plans that were run: kernels, specialization constants and grids.
    driver, kernels: with which driver and which kernels; others are asked anew.
    fault: what was wrong; empty if the answer was right.
    ends: how often a process ended in the middle of this question. `fault` is then empty too, until it is too often.
    date: ISO 8601, UTC.
    """

    path: str
    question: str
    driver: str
    kernels: str
    fault: str = ""
    ends: int = 0
    date: str = ""

    @property
    def is_final(self) -> bool:
        """Whether there is no reason to ask again."""
        return bool(self.fault) or not self.ends

    @classmethod
    def from_json(cls, entry: Any) -> Answer | None:
        """Read an entry of the file; None if it is not a valid entry."""
        try:
            answer = cls(**entry)
        except TypeError:
            return None
        texts = (answer.path, answer.question, answer.driver, answer.kernels, answer.fault, answer.date)
        return answer if isinstance(answer.ends, int) and all(isinstance(text, str) for text in texts) else None


class AnswersFile:
    """The answers of one device in the cache folder. What cannot be read or written is left out.

    driver: the device's driver today.
    """

    def __init__(self, profile: DeviceProfile) -> None:
        self.path = device_files.device_file(PREFIX, profile)
        self.driver = device_files.driver_of(profile)

    def answers(self) -> list[Answer]:
        """The answers with this driver and these kernels."""
        entries = device_files.read(self.path).get("answers")
        found = (Answer.from_json(entry) for entry in (entries if isinstance(entries, list) else ()))
        current = (self.driver, kernels_hash())
        return [answer for answer in found if answer is not None and (answer.driver, answer.kernels) == current]

    def answer(self, question: str) -> Answer | None:
        """The answer to a question; None if there is none."""
        return next((each for each in self.answers() if each.question == question), None)

    def keep(self, question: str, answer: Answer | None) -> None:
        """Write the answer to a question in place of an earlier one; None takes that away."""
        if self.path is None:
            return
        with suppress(OSError, NotImplementedError), device_files.locked(self.path):
            kept = [each for each in self.answers() if each.question != question]
            kept += [] if answer is None else [answer]
            device_files.write(self.path, {"answers": [asdict(each) for each in kept]})

    @contextmanager
    def asking(self, question: str) -> Iterator[None]:
        """Wait until no other process asks a question, and keep others from asking. It goes on without, if need be.

        The lock ends with its process. So who holds it knows that a process which began the question before has ended.
        """
        with ExitStack() as held:
            with suppress(OSError, NotImplementedError):  # the folder cannot be written
                if self.path is None:
                    raise FileNotFoundError
                self.path.parent.mkdir(parents=True, exist_ok=True)
                held.enter_context(FileLock(Path(f"{self.path}.{question}.lock"), LONGEST_QUESTION_SECONDS))
            yield


def faults(profile: DeviceProfile) -> dict[str, str]:
    """What was wrong with the answers of a device, by kernel path; only what is remembered."""
    return {answer.path: answer.fault for answer in AnswersFile(profile).answers() if answer.fault}
