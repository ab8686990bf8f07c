"""`bench.paths`: the choice of a kernel path, held against the times of every path on a GPU."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from click.testing import CliRunner

import dmlvk
from bench import paths
from dmlvk import planning, reference
from dmlvk._common.bits import equal_bits
from dmlvk.benchmark.cases.quantized_linear_convolution import Layer
from dmlvk.benchmark.networks import Network
from dmlvk.benchmark.networks.work import desc_of, work_of

FOLDER = Path(paths.__file__).parent / "results"
RESULTS = FOLDER / "nvidia-h200-paths.jsonl"
RANDOM = FOLDER / "nvidia-h200-random-paths.jsonl"


@pytest.mark.parametrize(
    ("file", "count", "worst_mean"),
    [
        pytest.param(RESULTS, 816 + 92, 1.06, id="networks"),
        pytest.param(RANDOM, 500 + 300, 1.08, id="random", marks=pytest.mark.nightly),
    ],
)
def test_choices_are_close_to_the_fastest_path(file: Path, count: int, worst_mean: float) -> None:
    """By recorded times; of a few choices there is none, because they were estimated to take far longer."""
    found = [choice for _, choice in paths.choices(file, "nvidia-h200")]
    measured = [choice.ratio for choice in found if choice.chosen in choice.seconds]
    assert len(found) == count and len(measured) > 0.97 * count
    assert math.exp(sum(map(math.log, measured)) / len(measured)) <= worst_mean
    assert max(measured) <= 2


def test_a_tuned_device_takes_the_fastest_path() -> None:
    """What an H200 chose for itself, by later times; those without matrices were not tuned."""
    found = [choice for _, choice in paths.choices(RESULTS, "nvidia-h200", is_tuned=True)]
    assert len(found) == 816 and max(choice.ratio for choice in found) < paths.TUNED_TOLERANCE


def test_a_late_choice_is_shown(tmp_path: Path) -> None:
    """As if the direct path had taken a hundredth of its time."""
    line = next(
        line
        for line in map(json.loads, RESULTS.read_text(encoding="utf-8").splitlines())
        if line["layer"]["groups"] == 1 and line["layer"]["kernel"] == 3 and line["batch"] == 64
    )
    file = tmp_path / "one.jsonl"
    file.write_text(json.dumps(line) + "\n", encoding="utf-8")
    found = CliRunner().invoke(paths.main, ["compare", str(file)])
    assert found.exit_code == 0 and "1 of 1 choices" in found.output and "direct" not in found.output
    line["seconds"]["direct"] = min(line["seconds"].values()) / 100
    file.write_text(json.dumps(line) + "\n", encoding="utf-8")
    found = CliRunner().invoke(paths.main, ["compare", str(file)])
    assert found.exit_code == 0 and "0 of 1 choices" in found.output and "direct" in found.output


def test_a_wrong_result_is_no_time(tmp_path: Path) -> None:
    line = json.loads(RESULTS.read_text(encoding="utf-8").splitlines()[0])
    file = tmp_path / "one.jsonl"
    file.write_text(json.dumps({**line, "wrong": ["direct"]}) + "\n", encoding="utf-8")
    found = CliRunner().invoke(paths.main, ["compare", str(file)])
    assert found.exit_code == 1 and "wrong by ['direct']" in found.output


def test_random_layers_are_measured_and_checked(device: dmlvk.Device, tmp_path: Path) -> None:
    layer, file = Layer(8, 5, 16, 3), tmp_path / "random.jsonl"
    run = paths.Run(layer, 1, "nhwc")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paths, "random_runs", lambda count, seed: [run][: count * (seed == 7)])
        arguments = ["measure", str(file), "--device", device.name, "--random", "1", "--seed", "7", "--path", "direct"]
        found = CliRunner().invoke(paths.main, arguments)
    assert found.exit_code == 0, found.output
    (line,) = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    assert Layer(**line["layer"]) == layer and line["seconds"]["direct"] > 0 and line["wrong"] == []
    data = paths.sampled_data_of(run)
    right = reference.run(desc_of(layer, 1, "nhwc"), input_tensor=data.image, **data.constants)
    assert data.is_right(right) and not data.is_right(right ^ 1)


def test_the_same_seed_gives_the_same_layers() -> None:
    assert paths.random_runs(9, 1) == paths.random_runs(20, 1)[:9] != paths.random_runs(9, 2)


@pytest.mark.parametrize("is_right", [True, False])
def test_a_wrong_result_is_a_failure(
    device: dmlvk.Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_right: bool
) -> None:
    network, file = Network("small", 16, 9), tmp_path / "one.jsonl"
    network.convolution(network.image, 24, 3)
    (layer,) = network.layers
    monkeypatch.setattr(paths, "NETWORKS", {"resnet50": lambda dimensions: network})
    monkeypatch.setattr(paths, "equal_bits", lambda found, expected: equal_bits(found, expected) and is_right)
    arguments = ["measure", str(file), "--device", device.name, "--layout", "nhwc", "--path", "direct"]
    found = CliRunner().invoke(paths.main, arguments)
    assert found.exit_code == (not is_right), found.output
    assert (f"{layer.name}, batch 1, nhwc: direct" in found.output) == (not is_right)
    (line,) = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    assert line["wrong"] == ([] if is_right else ["direct"]) and line["seconds"]["direct"] > 0


def test_every_path_of_a_layer_is_measured_and_checked(device: dmlvk.Device) -> None:
    layer = Layer(16, 9, 24, 3)
    with dmlvk.Device(device.name, timestamps=True) as own:
        run = paths.Run(layer, 2, "nhwc")
        jobs = paths.jobs(own, [run], ("direct", "integer", "halo"))
        assert [job.path for job in jobs] == ["direct", "integer"], "the driver has no matrices for the third"
        found = paths.measured(own, run, jobs, paths.data_of(run, work_of(layer)))
        assert list(found) == ["direct", "integer"]
        assert all(seconds > 0 and is_right for seconds, is_right in found.values())


def test_a_path_that_would_take_many_times_as_long_is_left_out(device: dmlvk.Device) -> None:
    run = paths.Run(Layer(64, 28, 64, 3), 1, "nhwc")
    assert {"direct", "integer"} < {job.path for job in paths.jobs(device, [run], paths.PATHS)}
    (job,) = paths.jobs(device, [run], paths.PATHS, within=1.0)
    assert job.path == planning.plan(desc_of(run.layer, 1, "nhwc"), device.profile).path


def test_the_least_of_several_times_counts(tmp_path: Path) -> None:
    line = json.loads(RESULTS.read_text(encoding="utf-8").splitlines()[0])
    slower = {path: 3 * seconds for path, seconds in line["seconds"].items()}
    first = next(iter(slower))
    file = tmp_path / "several.jsonl"
    lines = (line, {**line, "seconds": {first: line["seconds"][first] / 2}}, {**line, "seconds": slower})
    file.write_text("".join(json.dumps(each) + "\n" for each in lines), encoding="utf-8")
    ((_, choice),) = paths.choices(file, "nvidia-h200")
    assert choice.seconds == {**line["seconds"], first: line["seconds"][first] / 2}
