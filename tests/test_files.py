"""Reading and writing files that may be anything."""

from __future__ import annotations

import os
import pickle
import re
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dmlvk._common import files
from tests.damaged_files import Damage, damages, special_damages


@pytest.mark.parametrize("damage", damages(), ids=str)
@pytest.mark.parametrize("read", [files.read_bytes, files.read_text, files.read_json, files.read_toml])
def test_reading_ends_in_content_or_in_an_error_that_names_the_file(
    read: Callable[[Path], object], damage: Damage, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    damage.make(path)
    try:
        read(path)
    except OSError as error:
        assert path.name in str(error)
        assert len(str(error)) < 1000
    else:
        assert damage.is_regular
    assert damage.is_untouched()


@pytest.mark.parametrize("damage", special_damages(), ids=str)
def test_only_a_file_is_replaced(damage: Damage, tmp_path: Path) -> None:
    path = tmp_path / "file"
    damage.make(path)
    if damage.is_regular:
        files.replace_bytes(path, b"new")
        assert path.read_bytes() == b"new"
    else:
        with pytest.raises(OSError, match="file"):
            files.replace_bytes(path, b"new")
        assert damage.is_untouched()
    assert [child.name for child in tmp_path.iterdir()] == ["file"]


def test_a_file_that_cannot_be_replaced_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        files.replace_bytes(tmp_path / "file", b"new")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.name == "nt", reason="a link there needs a privilege, and permissions are others")
def test_what_is_written_keeps_links_and_permissions(tmp_path: Path) -> None:
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_bytes(b"a long line")
    path.chmod(0o640)
    link.symlink_to(path)
    files.write_text(link, "new")
    assert path.read_bytes() == b"new"
    assert link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) & 0o200


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no FIFO")
def test_a_fifo_is_written_to_where_somebody_reads(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    with pytest.raises(OSError, match="fifo"):
        files.write_bytes(path, b"nobody there")
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        files.write_bytes(path, b"somebody")
        assert os.read(reader, 100) == b"somebody"
    finally:
        os.close(reader)


@pytest.mark.parametrize("text", ["[" * 100 + "]" * 100, '{"a": [' * 40 + "]}" * 40])
def test_json_is_as_deep_as_ours_can_be(text: str) -> None:
    with pytest.raises(files.FileError, match="here: it is nested too deeply"):
        files.parse_json(text, "here")
    assert files.parse_json("[" * 60 + "1" + "]" * 60, "here")


def test_half_a_surrogate_pair_survives() -> None:
    assert files.parse_json(files.encoded('"\ud800"'), "here") == "\ud800"


@pytest.mark.parametrize("name", ["absent/file", "file/below", "."])
def test_a_place_for_a_file_is_known_before(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=re.escape(str(tmp_path))):
        files.require_place(tmp_path / name)
    files.require_place(tmp_path / "new")
    files.require_place(tmp_path / "file")


def test_windows_refuses_to_replace_a_file_while_another_process_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    refusals = [PermissionError("in use"), PermissionError("in use")]
    replace = os.replace

    def refuse(source: str, target: Path) -> None:
        if refusals:
            raise refusals.pop()
        replace(source, target)

    monkeypatch.setattr(os, "replace", refuse)
    monkeypatch.setattr(files, "LONGEST_READ_SECONDS", 30.0)
    files.replace_bytes(path, b"new")
    assert path.read_bytes() == b"new"
    assert not refusals
    monkeypatch.setattr(files, "LONGEST_READ_SECONDS", 0.0)
    refusals.extend(PermissionError("in use") for _ in range(100))
    with pytest.raises(PermissionError):
        files.replace_bytes(path, b"newer")
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    "write",
    [files.write_bytes, files.replace_bytes, lambda path, content: files.write_inside(path.parent, path.name, content)],
    ids=["write", "replace", "inside"],
)
@pytest.mark.parametrize("old", [None, b"old"], ids=["new", "old"])
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_a_full_disk_leaves_no_half(
    write: Callable[[Path, bytes], object], old: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old file stays whole, nothing else is left, and the error names the file, which the system's does not."""
    path = tmp_path / "page.html"
    if old is not None:
        path.write_bytes(old)
    opened = os.open

    def full(name: object, flags: int, *arguments: object, **options: object) -> int:
        handle = opened(name, flags, *arguments, **options)  # type: ignore[arg-type]
        if flags & os.O_WRONLY:
            disk = opened("/dev/full", os.O_WRONLY)
            os.dup2(disk, handle)
            os.close(disk)
        return handle

    monkeypatch.setattr(os, "open", full)
    with pytest.raises(OSError, match=r"No space left.*page\.html"):
        write(path, b"x" * 100_000)
    monkeypatch.undo()
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == ({} if old is None else {path.name: old})


@pytest.mark.skipif(os.name == "nt", reason="permissions are others there")
def test_a_file_that_is_written_anew_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o604)
    files.write_bytes(path, b"new")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new", 0o604)
    files.write_bytes(tmp_path / ("x" * 255), b"the longest name")


def test_json_is_printable_ascii() -> None:
    value = {"\x1b\x7f\x9b\u202e\ud800": ["größe\n", 1.5, None]}
    text = files.json_text(value)
    assert text.isascii()
    assert text.isprintable()
    assert files.parse_json(text, "here") == value


def test_a_file_may_be_as_large_as_is_said_and_no_larger(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(11))
    assert files.read_bytes(path, 11) == bytes(11)
    with pytest.raises(files.FileError, match=r"'.*file' cannot be read: it has more than"):
        files.read_bytes(path, 10)


def test_a_pickle_is_no_array(tmp_path: Path) -> None:
    """NumPy's own words would say how to run it."""
    path = tmp_path / "array.npy"
    path.write_bytes(pickle.dumps([1, 2]))
    with pytest.raises(files.FileError, match=r"array\.npy' is no \.npy file$"):
        files.read_npy(path)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows takes so long a name only where it is set up to")
@pytest.mark.parametrize("has_handles", [True, False], ids=["as on Linux", "as on Windows"])
def test_folders_for_a_name_of_many_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_handles: bool) -> None:
    """More than Python lets a function call itself."""
    if not has_handles:
        monkeypatch.setattr(os, "supports_dir_fd", set())
    (tmp_path / "neighbour").write_bytes(b"")
    made = files.write_inside(tmp_path, "a/" * 1200 + "b", b"content")
    assert made.read_bytes() == b"content"
    made.unlink()
    os.removedirs(made.parent)  # pytest's own removal would call itself as often
    assert [path.name for path in tmp_path.iterdir()] == ["neighbour"]


def test_no_folder_is_left_of_a_name_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows, nothing says beforehand that a name is too long."""
    monkeypatch.setattr(os, "supports_dir_fd", set())
    monkeypatch.setattr(files, "require_replaceable", lambda path: None)
    (tmp_path / "there").mkdir()
    name = f"there/made/{'x' * 300}/b"
    with pytest.raises(OSError) as caught:
        files.write_inside(tmp_path, name, b"content")
    assert caught.value.filename == str(tmp_path / name)
    assert not list((tmp_path / "there").iterdir())
