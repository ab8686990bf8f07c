"""The program that times what a new user waits for: what it keeps, and that it notices a message without a remedy."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tools import first_impressions, package
from tools.debian import SetupError
from tools.first_impressions import Place, Said, Session, last_line


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ("one\ntwo\n\n", "two"),
        ("an error\nmake: *** [Makefile:1: x] Error 1\nmake[1]: Leaving directory 'x'\n", "an error"),
        ("ERROR: no\n[notice] A new release of pip is available\n", "ERROR: no"),
        ("", ""),
    ],
)
def test_the_last_line(output: str, line: str) -> None:
    assert last_line(output) == line


def test_what_a_session_keeps(tmp_path: Path) -> None:
    session, place = Session(), Place("here", tmp_path)
    session.timed(place, "a step", sys.executable, "-c", "")
    program = "import sys; sys.exit('no loader: apt install libvulkan1')"
    session.refused(place, "a loader", "apt install", sys.executable, "-c", program)
    session.refused(place, "a moon", "apt install", sys.executable, "-c", "raise ValueError('no moon')")
    session.refused(place, "anything", "apt install", sys.executable, "-c", "print('apt install')")
    assert [step.what for step in session.times] == ["a step"] and session.times[0].seconds > 0
    assert [said.helps for said in session.messages] == [True, False, False]
    assert session.messages[1].line == "ValueError: no moon"
    assert session.messages[2].line.startswith("NOTHING: it went on with status 0")
    assert "| here | a moon | ValueError: no moon | NO |" in session.tables()
    with pytest.raises(SetupError, match="here: a bad step failed with status 3"):
        session.timed(place, "a bad step", sys.executable, "-c", "import sys; sys.exit(3)")


def test_a_path_in_another_root() -> None:
    place = Place("there", Path("/a/root/newcomer"), root=Path("/a/root"))
    assert place.path(Path("/a/root/newcomer/wheel.whl")) == "/newcomer/wheel.whl"
    assert Place("here", Path("/a")).path(Path("/a/b")) == str(Path("/a/b"))


def test_a_message_that_does_not_help_is_status_1(monkeypatch: pytest.MonkeyPatch) -> None:
    def step(session: Session) -> None:
        session.messages.append(Said("here", "a driver", "Segmentation fault", "apt install"))

    monkeypatch.setattr(first_impressions, "step_of", lambda part, source, session, *rest: lambda: step(session))
    monkeypatch.setattr(package, "build", lambda *arguments: [Path("wheel")])
    monkeypatch.setattr(sys, "argv", ["first_impressions"])
    with pytest.raises(SetupError, match="a message does not name its remedy"):
        first_impressions.main()


def test_a_part_that_is_not_there_is_refused_before_anything_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "build", lambda *arguments: [Path("wheel")])
    monkeypatch.setattr(first_impressions, "clone_and_run", lambda *arguments: pytest.fail("it was begun"))
    monkeypatch.setattr(sys, "argv", ["first_impressions", "clone", "debian"])
    with pytest.raises(
        SetupError, match="there is no part 'debian'; there are environment, clone, windows and debian:"
    ):
        first_impressions.main()
