"""The picture of a record of operators: what it draws, what it leaves out, and that nothing hides a point."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib
import pytest
from matplotlib.text import Text

from dmlvk.benchmark import drawing, tables
from dmlvk.benchmark.kinds import kind_for, read
from dmlvk.benchmark.networks import tables as network_tables
from dmlvk.benchmark.peers import PEERS
from dmlvk.benchmark.records import Record
from tests.amount import THOROUGH

matplotlib.use("Agg")
ROOT = Path(__file__).parents[2]
H200 = ROOT / "bench" / "results" / "nvidia-h200.json"
RESNET50 = H200.with_stem("nvidia-h200-resnet50")


@pytest.fixture(scope="module")
def record() -> Record:
    found: Record = json.loads(H200.read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def picture(record: Record) -> tuple[Any, list[Any], list[Any]]:
    return drawn(record)


@pytest.fixture(scope="module")
def few(record: Record) -> Record:
    """The record with some of its cases."""
    return {**record, "cases": record["cases"][::6]}


@pytest.fixture(scope="module")
def files(few: Record) -> dict[str, bytes]:
    """The picture of few cases in each form."""
    return {kind: kind_for(few).draw(few, kind) for kind in ("png", "svg")}


def labels(axes: Any) -> list[str]:
    return [label.get_text() for label in axes.get_yticklabels()]


def drawn(record: Record) -> tuple[Any, list[Any], list[Any]]:
    """The figure, its axes, and its legends."""
    figure = tables.figure_of(record)
    drawing.fit(figure)
    figure.draw_without_rendering()
    return figure, figure.axes, [legend for part in figure.subfigs for legend in part.legends]


def test_every_case_and_peer_has_a_point(record: Record, picture: tuple[Any, list[Any], list[Any]]) -> None:
    _, (convolutions, movement), _ = picture
    assert len(labels(convolutions)) == 20
    assert sum("filter zero point 3" in label for label in labels(convolutions)) == 10
    assert len(labels(movement)) == sum(not row["operations"] for row in record["cases"]) == 31
    assert labels(movement)[0] == "SLICE1 window, UINT8"
    rows = len(record["cases"])
    trials = sum("seconds" in trial for row in record["cases"] for trial in row.get("peers", ()))
    lines = sum(len(axes.lines) for axes in (convolutions, movement))
    # Each row of a panel has its rule and its mark.
    assert lines == rows + trials + 2 * (20 + 31)


def test_a_point_stands_at_its_rate(record: Record, picture: tuple[Any, list[Any], list[Any]]) -> None:
    _, (convolutions, _), _ = picture
    row = record["cases"][-1]
    rates = [float(line.get_xdata()[0]) for line in convolutions.lines if len(line.get_xdata()) == 1]
    assert row["operations_per_second"] / 1e12 in rates
    assert row["operations"] / row["mark"]["seconds"] / 1e12 in rates


def test_no_legend_covers_a_panel(picture: tuple[Any, list[Any], list[Any]]) -> None:
    _, panels, legends = picture
    assert len(legends) == 2
    for legend in legends:
        for axes in panels:
            assert not legend.get_window_extent().overlaps(axes.get_window_extent())


def test_legends_tell_the_points_apart_and_name_another_operator(picture: tuple[Any, list[Any], list[Any]]) -> None:
    _, _, legends = picture
    for legend in legends:
        looks = [(line.get_marker(), line.get_markeredgecolor(), line.get_mfc()) for line in legend.get_lines()]
        assert len(set(looks)) == len(looks)
    texts = [text.get_text() for text in legends[0].get_texts()]
    assert sum("another operator" in text for text in texts) == 3
    assert "cuDNN, NHWC: another operator, in float16" in texts


def test_all_peers_can_be_drawn() -> None:
    assert drawing.PEERS.keys() == PEERS.keys()
    assert len({(look.colour, look.marker) for look in drawing.PEERS.values()}) == len(drawing.PEERS)


@pytest.mark.parametrize("computing", [False, True])
def test_a_panel_without_rows_is_left_out(record: Record, computing: bool) -> None:
    part = {**record, "cases": [row for row in record["cases"] if bool(row["operations"]) == computing]}
    figure, panels, legends = drawn(part)
    assert len(panels) == len(legends) == 1
    assert figure.get_size_inches()[0] == drawing.WIDTH
    assert (figure.subfigs[0].get_suptitle() == "QUANTIZED_LINEAR_CONVOLUTION") == computing
    empty, panels, _ = drawn({**record, "cases": []})
    assert not panels and empty.get_size_inches()[0] == drawing.WIDTH


def test_a_picture_has_the_same_bytes_each_time(few: Record, files: dict[str, bytes]) -> None:
    for kind, content in files.items():
        assert kind_for(few).draw(few, kind) == content


def texts_of(figure: Any) -> list[Any]:
    """Titles, legends, and the labels of axes and rows."""
    figure.draw_without_rendering()
    numbers = {label for axes in figure.axes for label in axes.get_xticklabels(which="both")}
    texts = [text for text in figure.findobj(Text) if text not in numbers]
    return [text for text in texts if text.get_visible() and text.get_text().strip()]


@pytest.mark.parametrize("is_network", [False, True])
def test_no_text_is_cut_and_all_can_be_read_on_a_telephone(
    picture: tuple[Any, list[Any], list[Any]], is_network: bool
) -> None:
    figure = picture[0]
    if is_network:
        figure = network_tables.figure_of(json.loads(RESNET50.read_text(encoding="utf-8")))
        drawing.fit(figure)
    height, width = figure.bbox.height, figure.bbox.width
    assert width == 600
    seen = texts_of(figure)
    assert len(seen) > 50
    for text in seen:
        assert text.get_fontsize() >= 9, text
        box = text.get_window_extent()
        assert box.x0 >= 0 and box.x1 <= width and box.y0 >= 0 and box.y1 <= height, (text, box)


def test_a_long_title_is_broken(record: Record) -> None:
    device = {**record["device"], "name": "a name of many words " * 6}
    figure = tables.figure_of({**record, "device": device})
    drawing.fit(figure)
    title = figure._suptitle
    figure.draw_without_rendering()
    assert title.get_text().count("\n") >= 2 and title.get_window_extent().width <= 600


def test_a_drawing_has_a_dark_form(files: dict[str, bytes]) -> None:
    drawing_of_lines = files["svg"].decode()
    assert "prefers-color-scheme: dark" in drawing_of_lines
    ElementTree.fromstring(drawing_of_lines)
    assert b"prefers-color-scheme" not in files["png"]


def on_a_cpu(record: Record) -> Record:
    """The record as a CPU's driver would have it: peers on the CPU, rates a thousandth."""
    found = copy.deepcopy(record)
    found["device"]["type"] = "CPU"
    found["peers"] = {"onnxruntime": {"version": "1.0", "runs_on": "CPU"}}
    for row in found["cases"]:
        for trial in row.get("peers", ())[:1]:
            trial["peer"] = "onnxruntime"
        row["peers"] = row.get("peers", [])[:1]
        row["operations_per_second"] /= 1000
    return found


def test_the_page_has_what_the_terminal_has(record: Record) -> None:
    """The peers' times, also those of a CPU beside a CPU's driver; and how it was made."""
    text = "\n".join(kind_for(record).page(on_a_cpu(record)))
    row = next(row for row in on_a_cpu(record)["cases"] if "seconds" in row["peers"][0])
    assert f"| {row['work']} | {row['peers'][0]['seconds']['median'] * 1e3:.3g}" in text
    assert "| best peer, ms | times as fast |" in text and " onnxruntime | " in text
    assert "Measured by `dmlvk bench` with dmlvk" in text
    gpu = "\n".join(kind_for(record).page(record))
    assert all(f" {peer} | " in gpu for peer in ("torch-compile", "cudnn-fp16-nhwc"))
    named = "another operator, with other types or without zero points: cudnn-fp16-nhwc, cudnn-fp16-nchw, cudnn-int8"
    assert named in gpu
    assert "no limit of the hardware" not in gpu
    fast = copy.deepcopy(record)
    fast["cases"][0]["mark"]["fraction"] = 2.6
    assert "more than 100% of the mark: a mark is a plain kernel" in "\n".join(kind_for(fast).page(fast))


def test_a_slow_device_has_a_unit_of_its_own(record: Record, picture: tuple[Any, list[Any], list[Any]]) -> None:
    _, (convolutions, _), _ = drawn(on_a_cpu(record))
    assert convolutions.get_xlabel().startswith("GOPS")
    _, (convolutions, _), _ = picture
    assert convolutions.get_xlabel().startswith("TOPS")


def test_each_record_of_the_results_can_be_shown() -> None:
    found = sorted(H200.parent.glob("*.json"))
    assert len(found) >= 3
    drawn = set()
    for path in found:
        record = read(path)
        page = "\n".join(kind_for(record).page(record))
        assert record["device"]["name"] in page and page.count("\n| ") > 20, path.name
        if THOROUGH or kind_for(record) not in drawn:  # by day one of each kind
            drawn.add(kind_for(record))
            assert len(kind_for(record).draw(record, "png")) > 10_000
