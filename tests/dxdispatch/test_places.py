"""Where a model of somebody else may read and write, whatever it names, and wherever links lead."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import dmlvk
from dmlvk._common import files
from dmlvk.command_line import main
from dmlvk.dxdispatch import ModelError
from tests.damaged_files import Damage, damages
from tests.dxdispatch.models import write

SECRET = bytes(np.random.default_rng(8).integers(1, 256, 16, np.uint8))
LINKS = pytest.mark.skipif(os.name == "nt", reason="a link there needs a privilege")


def reading(path: str, **more: Any) -> dict[str, Any]:
    resource = {"initialValuesDataType": "UINT8", "initialValues": {"sourcePath": path}, **more}
    return {"resources": {"A": resource}, "dispatchables": {}, "commands": []}


def writing(*paths: str) -> dict[str, Any]:
    return {
        "resources": {"A": {"initialValuesDataType": "UINT8", "initialValues": list(SECRET)}},
        "dispatchables": {},
        "commands": [{"type": "writeFile", "resource": "A", "targetPath": path} for path in paths],
    }


@dataclass
class Places:
    """A model's folder, a folder of others, and the paths by which a model tries to get from one to the other."""

    model: Path
    outside: Path

    def everything(self) -> dict[str, bytes]:
        """All files, so that a test sees what was written."""
        root = self.outside.parent
        return {
            str(path.relative_to(root)): path.read_bytes()
            for path in root.rglob("*")
            if path.is_file() and path.name != "model.json"
        }


@pytest.fixture
def places(tmp_path: Path) -> Places:
    found = Places(tmp_path / "models", tmp_path / "letters")
    for folder in (found.model, found.outside, tmp_path / "models too"):
        folder.mkdir()
    for folder in (found.outside, tmp_path / "models too"):
        (folder / "secret.bin").write_bytes(SECRET)
    if os.name != "nt":
        (found.model / "link.bin").symlink_to(found.outside / "secret.bin")
        (found.model / "link.npy").symlink_to("/proc/self/environ")
        (found.model / "folder").symlink_to(found.outside)
        (found.model / "twice").symlink_to("folder")
        (found.model / "up").symlink_to("..")
        (found.model / "dangling.bin").symlink_to(found.outside / "new.bin")
    return found


# Each leads to letters/secret.bin, a new file beside it, or a sibling whose name begins with that of the folder.
WAYS_OUT: dict[str, Callable[[Places], str]] = {
    "absolute": lambda places: str(places.outside / "secret.bin"),
    "absolute, new": lambda places: str(places.outside / "new.bin"),
    "up": lambda places: "../letters/secret.bin",
    "up, with other separators": lambda places: "..\\letters\\secret.bin",
    "up from below": lambda places: "a/b/../../../letters/secret.bin",
    "down and up": lambda places: "./x/../../letters/new.bin",
    "a sibling": lambda places: "../models too/secret.bin",
    "file link": lambda places: "link.bin",
    "folder link": lambda places: "folder/secret.bin",
    "folder link, new": lambda places: "folder/new/new.bin",
    "link of a link": lambda places: "twice/secret.bin",
    "link up": lambda places: "up/letters/secret.bin",
    "dangling link": lambda places: "dangling.bin",
}


@LINKS
@pytest.mark.parametrize("way", WAYS_OUT)
def test_reads_stay_in_the_folder(way: str, places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(places.model)
    path = write(places.model, reading(WAYS_OUT[way](places)))
    with pytest.raises(ModelError) as caught:
        dmlvk.dxdispatch.load(path)
    assert caught.value.key == "resources.A.initialValues.sourcePath"
    assert SECRET.hex() not in str(caught.value)


@LINKS
@pytest.mark.parametrize("output", [None, "output"])
@pytest.mark.parametrize("way", WAYS_OUT)
def test_writes_stay_in_the_folder(way: str, output: str | None, places: Places, device: dmlvk.Device) -> None:
    folder = places.model
    if output is not None:
        # The folder for outputs has the same links.
        folder = places.model.rename(places.outside.parent / output)
        places.model.mkdir()
    before = places.everything()
    path = write(places.model, writing("first.bin", WAYS_OUT[way](places)))
    lines: list[str] = []
    with pytest.raises(ModelError) as caught:
        dmlvk.dxdispatch.load(path).run(device, output_folder=None if output is None else folder, log=lines.append)
    assert caught.value.key == "commands[1].targetPath"
    assert "--allow-path" in str(caught.value)
    assert places.everything() == before
    assert lines == []


@LINKS
def test_paths_that_stay_inside_are_taken(places: Places, device: dmlvk.Device) -> None:
    (places.model / "below").mkdir()
    (places.model / "inner").symlink_to("below")
    (places.model / "below" / "was.bin").write_bytes(b"old")
    (places.model / "file.bin").symlink_to("below/was.bin")
    targets = [
        "a.bin",
        "x/y/../z.bin",
        "inner/b.bin",
        "file.bin",
        str(places.model / "c.bin"),
        "folder/../models/d.bin",
    ]
    path = write(places.model, writing(*targets))
    dmlvk.dxdispatch.load(path).run(device, log=lambda line: None)
    for name in ("a.bin", "x/z.bin", "below/b.bin", "below/was.bin", "c.bin", "d.bin"):
        assert (places.model / name).read_bytes() == SECRET, name
    assert (places.model / "file.bin").is_symlink()
    for name in ("a.bin", "x/../x/z.bin", "inner/b.bin", "file.bin", str(places.model / "c.bin")):
        resource = dmlvk.dxdispatch.load(write(places.model, reading(name))).resources["A"]
        assert resource.content.tobytes() == SECRET


@LINKS
def test_a_hard_link_keeps_its_content(places: Places, device: dmlvk.Device) -> None:
    (places.model / "hard.bin").hardlink_to(places.outside / "secret.bin")
    model = writing("hard.bin")
    model["resources"]["A"]["initialValues"] = [7] * 16
    dmlvk.dxdispatch.load(write(places.model, model)).run(device, log=lambda line: None)
    assert (places.model / "hard.bin").read_bytes() == bytes([7] * 16)
    assert (places.outside / "secret.bin").read_bytes() == SECRET


@LINKS
def test_a_caller_may_allow_a_folder(places: Places, device: dmlvk.Device) -> None:
    source, target = str(places.outside / "secret.bin"), "../letters/new/written.bin"
    model = reading(source) | {"commands": writing(target)["commands"]}
    path = write(places.model, model)
    with pytest.raises(ModelError):
        dmlvk.dxdispatch.load(path, allow_paths=[places.outside / "else", places.model])
    dmlvk.dxdispatch.load(path, allow_paths=[str(places.outside)]).run(device, log=lambda line: None)
    assert (places.outside / "new" / "written.bin").read_bytes() == SECRET
    (places.outside / "new" / "written.bin").unlink()
    command = ["run", str(path), "--device", device.name]
    refused = CliRunner().invoke(main, command)
    assert refused.exit_code == 1
    assert "--allow-path FOLDER" in refused.output
    allowed = CliRunner().invoke(main, [*command, "--allow-path", str(places.outside)])
    assert allowed.exit_code == 0, allowed.output
    assert (places.outside / "new" / "written.bin").read_bytes() == SECRET


@LINKS
def test_a_link_that_takes_a_folders_place_is_not_followed(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the check and the writing, a folder becomes a link to elsewhere."""
    (places.model / "below").mkdir()
    place_inside = files.place_inside

    def then_swapped(*arguments: Any) -> tuple[Path, Path]:
        found = place_inside(*arguments)
        (places.model / "below").rmdir()
        (places.model / "below").symlink_to(places.outside)
        return found

    monkeypatch.setattr(files, "place_inside", then_swapped)
    with pytest.raises(OSError, match=r"below/x\.bin"):
        files.write_inside(places.model, "below/x.bin", b"new")
    assert not (places.outside / "x.bin").exists()


@LINKS
def test_a_file_that_becomes_a_link_is_not_read(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    path = places.model / "honest.bin"
    path.write_bytes(b"honest")
    opened = os.open

    def swapped(name: Any, *arguments: Any, **options: Any) -> int:
        if Path(name) == path:  # the check has passed
            path.unlink()
            path.symlink_to(places.outside / "secret.bin")
            try:
                return opened(name, *arguments, **options)
            finally:
                path.unlink()
                path.write_bytes(b"honest")
        return opened(name, *arguments, **options)

    monkeypatch.setattr(os, "open", swapped)
    with pytest.raises(files.OutsideError, match="changed in this moment"):
        files.read_bytes(path, within=[places.model])


@pytest.mark.parametrize("name", ["", "a\0b", "half \ud800", ".", "..", "x" * 5000, "a/" * 3000 + "b"])
def test_what_is_no_path(name: str, tmp_path: Path, device: dmlvk.Device) -> None:
    with pytest.raises(ModelError) as caught:
        dmlvk.dxdispatch.load(write(tmp_path, reading(name)))
    assert str(caught.value).isprintable()
    lines: list[str] = []
    try:
        dmlvk.dxdispatch.load(write(tmp_path, writing(name))).run(device, log=lines.append)
    except ModelError as error:
        assert str(error).isprintable()
    else:
        assert lines[0].startswith("Failed to write resource to file")
    assert [path.name for path in tmp_path.iterdir()] == ["model.json"]


@pytest.mark.parametrize("kind", [".npy", ".bin", ".png"])
@pytest.mark.parametrize("damage", [each for each in damages() if not each.is_empty], ids=str)
def test_a_file_that_a_model_reads_may_be_anything(damage: Damage, kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    damage.make(folder / f"file{kind}")
    model = reading(f"file{kind}")
    if kind == ".png":
        model["resources"]["A"] |= {"initialValuesDataType": "FLOAT32", "resampleSize": [1, 3, 4, 4]}
    try:
        dmlvk.dxdispatch.load(write(folder, model))
    except ModelError as error:
        assert str(error).isprintable()
        assert len(str(error)) < 1500
    else:
        assert kind == ".bin"
        assert damage.is_regular
    assert damage.is_untouched()


@pytest.mark.parametrize("damage", [each for each in damages() if not each.is_empty], ids=str)
def test_a_model_may_be_anything(damage: Damage, tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    damage.make(path)
    with pytest.raises(ModelError) as caught:
        dmlvk.dxdispatch.load(path)
    assert str(caught.value).isprintable()
    assert str(path) in str(caught.value)
    assert damage.is_untouched()


def test_a_picture_that_is_a_program_is_not_run(tmp_path: Path) -> None:
    """Pillow hands PostScript to Ghostscript, whatever the file is called."""
    (tmp_path / "a.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 4 4\n%%EndComments\n(x) run\n")
    model = reading("a.png", resampleSize=[1, 3, 4, 4])
    model["resources"]["A"]["initialValuesDataType"] = "FLOAT32"
    with pytest.raises(ModelError, match="cannot identify image"):
        dmlvk.dxdispatch.load(write(tmp_path, model))


def test_a_resource_is_as_large_as_its_tensor(tmp_path: Path) -> None:
    """The memory is rounded up to 4 bytes; the rounding is no element."""

    def model(count: int, **more: Any) -> dict[str, Any]:
        desc = {"DataType": "UINT8", "Sizes": [16]}
        made = writing()
        made["resources"]["A"] = {"initialValuesDataType": "UINT8", "initialValues": [1] * count, **more}
        made["resources"]["B"] = {"initialValuesDataType": "UINT8", "initialValues": [1] * 16}
        made["dispatchables"]["x"] = {
            "type": "DML_OPERATOR_SLICE1",
            "desc": {
                "InputTensor": desc,
                "OutputTensor": desc,
                "DimensionCount": 1,
                "InputWindowOffsets": [0],
                "InputWindowSizes": [16],
                "InputWindowStrides": [1],
            },
        }
        bindings = {"InputTensor": "A", "OutputTensor": "B"}
        made["commands"] = [{"type": "dispatch", "dispatchable": "x", "bindings": bindings}]
        return made

    for count in (13, 14, 15):
        with pytest.raises(ModelError, match=f"end at byte 16, and the resource 'A' has initial values of {count}"):
            dmlvk.dxdispatch.load(write(tmp_path, model(count)))
    dmlvk.dxdispatch.load(write(tmp_path, model(16)))
    dmlvk.dxdispatch.load(write(tmp_path, model(3, sizeInBytes=16)))
