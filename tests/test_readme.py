"""The README's examples run as they are, and its statements about the project are true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import dmlvk

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
# These run in `make test-torch`: tests/torch/test_readme.py.
TORCH_EXAMPLES = [block for block in BLOCKS if re.search(r"^import torch$", block, re.MULTILINE)]
EXAMPLES = [block for block in BLOCKS if block not in TORCH_EXAMPLES]


def test_readme_has_examples_of_each_way_of_use() -> None:
    code = "\n".join(EXAMPLES)
    for operator in ("slice1", "diagonal_matrix1", "one_hot", "quantized_linear_convolution"):
        assert f"dmlvk.{operator}(" in code
    for name in ("device.compile", "operator.initialize(", "device.sequence(", "reference.run"):
        assert name in code


@pytest.mark.parametrize("example", EXAMPLES, ids=[f"example{number}" for number in range(1, len(EXAMPLES) + 1)])
def test_example_runs(example: str, device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLVK_DEVICE", device.profile.name)
    exec(compile(example, "README.md", "exec"), {"__name__": "readme"})


def test_files_that_the_readme_names_are_there() -> None:
    for name in ("docs/demo.png", "LICENSE", "dmlvk/demo/ORIGIN.txt"):
        assert name in README
        assert (ROOT / name).is_file()
    for folder in re.findall(r"^    ((?:dmlvk|kernels|tests|bench|tools)[a-z/]*/) ", README, re.MULTILINE):
        assert (ROOT / folder).is_dir()


def test_every_benchmark_is_documented() -> None:
    """Every command in bench/ is in the README, and every command of the README exists."""
    commands = {path.stem for path in (ROOT / "bench").glob("*.py") if "__main__" in path.read_text(encoding="utf-8")}
    assert set(re.findall(r"-m bench\.([a-z0-9_]+)", README)) == commands


def test_every_kernel_path_is_documented(device: dmlvk.Device) -> None:
    """The README lists the paths that an operator names if a path does not exist."""
    vector = dmlvk.TensorDesc(dmlvk.DataType.UINT8, (1,))
    slice1 = dmlvk.Slice1Desc(
        input_tensor=vector,
        output_tensor=vector,
        input_window_offsets=(0,),
        input_window_sizes=(1,),
        input_window_strides=(1,),
    )
    cube, scale = dmlvk.TensorDesc(dmlvk.DataType.UINT8, (1, 1, 1)), dmlvk.TensorDesc(dmlvk.DataType.FLOAT32, (1,))
    convolution = dmlvk.QuantizedLinearConvolutionDesc(
        input_tensor=cube,
        input_scale_tensor=scale,
        filter_tensor=cube,
        filter_scale_tensor=scale,
        output_scale_tensor=scale,
        output_tensor=cube,
        strides=(1,),
        dilations=(1,),
        start_padding=(0,),
        end_padding=(0,),
        group_count=1,
    )
    for desc in (slice1, convolution):
        with pytest.raises(ValueError, match="it has '") as raised:
            device.compile(desc, path="none")
        for path in re.findall(r"'(\w+)'", str(raised.value).partition("it has ")[2]):
            assert f"| `{path}` |" in README, f"{desc.operator_name} has a path {path}"


def test_every_environment_variable_is_documented() -> None:
    """A variable that the package reads is in the README's table."""
    documented = set(re.findall(r"^\| `([A-Z_]+)` \|", README, re.MULTILINE))
    sources = (path.read_text(encoding="utf-8") for path in (ROOT / "dmlvk").rglob("*.py"))
    read = {name for source in sources for name in re.findall(r"""environ[^\n]*?["'](DMLVK_[A-Z_]+)["']""", source)}
    assert read <= documented
