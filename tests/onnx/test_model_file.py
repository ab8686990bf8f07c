"""Models as files of others: what is wrong with one is one clean line when it is loaded, and nothing waits or runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dmlvk.onnx import ModelError, model_file
from tests.damaged_files import Damage, damages

WEIGHTS = np.random.default_rng(5).normal(size=4).astype(np.float32)
# A name that sets a terminal's title, clears the screen, turns the order of letters, and ends the line.
HOSTILE = "\x1b]0;title\x07\x1b[2J\u202e\x9b31m\nError: forged\r"


def model(weights: onnx.TensorProto | None = None) -> onnx.ModelProto:
    if weights is None:
        weights = numpy_helper.from_array(WEIGHTS, "w")
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", values[:1], values[1:], [weights])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def refusal(given: onnx.ModelProto | str | Path) -> str:
    with pytest.raises(ModelError) as caught:
        model_file.load(given)
    text = str(caught.value)
    assert text.isprintable(), text
    return text


def constant(tensor: onnx.TensorProto) -> onnx.ModelProto:
    """A model in which a tensor is a node's attribute, in a graph within a node."""
    made = model()
    branch = helper.make_graph(
        [helper.make_node("Constant", [], ["c"], value=tensor)], "b", [], [helper.make_empty_tensor_value_info("c")]
    )
    made.graph.node.append(helper.make_node("If", ["x"], ["z"], then_branch=branch, else_branch=branch))
    return made


def sparse(tensor: onnx.TensorProto) -> onnx.ModelProto:
    made = model()
    indices = numpy_helper.from_array(np.arange(4), "i")
    held = onnx.SparseTensorProto(values=tensor, indices=indices, dims=[9])
    made.graph.node.append(helper.make_node("Constant", [], ["c"], sparse_value=held))
    return made


def tensor(**changes: object) -> onnx.TensorProto:
    made = numpy_helper.from_array(WEIGHTS, "w")
    for name, value in changes.items():
        if name == "dims":
            made.dims[:] = value  # type: ignore[index]
        else:
            made.ClearField("raw_data")
            if name == "float_data":
                made.float_data.extend(value)  # type: ignore[arg-type]
            else:
                setattr(made, name, value)
    return made


BAD_TENSORS = {
    "two elements for one": (tensor(dims=[1]), "has 16 bytes in raw_data, and a tensor FLOAT [1] has 4"),
    "too few bytes": (tensor(raw_data=b"abc"), "has 3 bytes in raw_data"),
    "too few numbers": (tensor(float_data=[1.0, 2.0]), "has 2 elements in float_data, and a tensor FLOAT [4] has 4"),
    "no data": (tensor(float_data=[]), "has 0 elements"),
    "no type": (tensor(data_type=0), "the data type 0"),
    "unknown type": (tensor(data_type=77), "the data type 77"),
    "raw text": (tensor(data_type=TensorProto.STRING, raw_data=b"abcd"), "has 0 elements in string_data"),
    "negative size": (tensor(dims=[-4]), "a size is 0 or more"),
    "huge sizes": (tensor(dims=[2**62, 2**62]), "bytes in raw_data"),
}


@pytest.mark.parametrize("place", [model, constant, sparse])
@pytest.mark.parametrize("name", BAD_TENSORS)
def test_a_tensor_has_the_elements_of_its_sizes(
    name: str, place: Callable[[onnx.TensorProto], onnx.ModelProto]
) -> None:
    bad, words = BAD_TENSORS[name]
    assert words in refusal(place(bad))


@pytest.mark.parametrize("name", sorted(onnx.TensorProto.DataType.keys()))
def test_whole_tensors_of_every_type_are_taken(name: str) -> None:
    """Stored in both ways that ONNX has: 3 elements, an odd number, of which small ones share a byte."""
    number = TensorProto.DataType.Value(name)
    if number == TensorProto.UNDEFINED:
        return
    values = [b"a", b"b", b"c"] if name == "STRING" else [1, 0, 1]
    made = [helper.make_tensor("w", number, [3], values)]
    if name != "STRING":
        made.append(numpy_helper.from_array(numpy_helper.to_array(made[0]), "w"))
    for each in made:
        model_file._require_whole(each, "here")
        each.dims[:] = [9]
        with pytest.raises(ModelError, match="'w' has"):
            model_file._require_whole(each, "here")


@pytest.mark.parametrize("values", ["input", "output", "value_info"])
def test_a_data_type_that_there_is_not(values: str) -> None:
    made = model()
    made.graph.value_info.append(helper.make_tensor_value_info("q", TensorProto.FLOAT, [4]))
    kind = getattr(made.graph, values)[0].type
    kind.tensor_type.elem_type = 77
    assert "the data type 77" in refusal(made)
    kind.sequence_type.elem_type.tensor_type.elem_type = -5
    assert "the data type -5" in refusal(made)


def test_an_input_without_a_data_type() -> None:
    made = model()
    made.graph.input[0].type.tensor_type.elem_type = 0
    assert "the input 'x' has no data type" in refusal(made)


@pytest.mark.parametrize("damage", [each for each in damages() if not each.is_empty], ids=str)
def test_a_model_file_may_be_anything(damage: Damage, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    damage.make(path)
    assert str(path) in refusal(path)
    assert damage.is_untouched()


@pytest.mark.parametrize("name", ["a\0b.onnx", "half \ud800.onnx", HOSTILE, "", "x" * 5000])
def test_a_path_may_be_any_text(name: str) -> None:
    assert "cannot be read" in refusal(name)


def external(folder: Path, **entries: str) -> onnx.ModelProto:
    """A model whose weights lie in a file. The folder of the model is below the one given."""
    below = folder / "below"
    below.mkdir(exist_ok=True)
    for place in (below / "w.bin", folder / "outside.bin"):
        place.write_bytes(b"1234" + WEIGHTS.tobytes())
    made = onnx.TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": "w.bin", "offset": "4", **entries}.items():
        made.external_data.add(key=key, value=value)
    return model(made)


def saved(folder: Path, **entries: str) -> Path:
    path = folder / "below" / "model.onnx"
    content = external(folder, **entries).SerializeToString()
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("entries", [{}, {"length": "16"}, {"length": "0"}, {"location": "./w.bin"}, {"checksum": "x"}])
def test_external_data(entries: dict[str, str], tmp_path: Path) -> None:
    np.testing.assert_array_equal(model_file.load(saved(tmp_path, **entries)).constants["w"], WEIGHTS)


def test_elements_beside_external_data_do_not_count(tmp_path: Path) -> None:
    made = external(tmp_path)
    node = helper.make_node("Constant", [], ["unused"], value=made.graph.initializer[0])
    node.attribute[0].t.float_data.extend([7.0] * 4)
    made.graph.node.append(node)
    path = tmp_path / "below" / "model.onnx"
    path.write_bytes(made.SerializeToString())
    (constant,) = [node for node in model_file.load(path).proto.graph.node if node.op_type == "Constant"]
    np.testing.assert_array_equal(numpy_helper.to_array(constant.attribute[0].t), WEIGHTS)


def test_external_data_with_an_entry_twice(tmp_path: Path) -> None:
    path = saved(tmp_path)
    made = onnx.load_model_from_string(path.read_bytes())
    made.graph.initializer[0].external_data.add(key="location", value="w.bin")
    path.write_bytes(made.SerializeToString())
    assert "it has 2 entries of 'location'; expected one" in refusal(path)


BAD_ENTRIES = [
    {"unknown": "x"},
    {"checksum": ""},
    {"length": "12"},
    {"length": "1000"},
    {"length": "-16"},
    {"length": "sixteen"},
    {"length": "9" * 5000},
    {"offset": "8"},
    {"offset": "-4"},
    {"offset": "1" * 30},
    {"offset": ""},
    {"location": ""},
    {"location": "."},
    {"location": "absent.bin"},
    {"location": "../outside.bin"},
    {"location": "../below/../outside.bin"},
    {"location": "a\0b"},
    {"location": HOSTILE},
    {"location": "/dev/zero"},
    {"location": "fifo"},
    {"location": "link.bin"},
    {"location": "inner.bin"},
    {"location": "folder/w.bin"},
    {"location": "hard.bin"},
    {"location": "zero.bin"},
]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no FIFO, and links need a privilege")
@pytest.mark.parametrize("entries", BAD_ENTRIES, ids=str)
def test_wrong_external_data(entries: dict[str, str], tmp_path: Path) -> None:
    path = saved(tmp_path, **entries)
    below = path.parent
    os.mkfifo(below / "fifo")
    (below / "link.bin").symlink_to(tmp_path / "outside.bin")
    (below / "inner.bin").symlink_to("real.bin")
    (below / "real.bin").write_bytes((below / "w.bin").read_bytes())
    (below / "zero.bin").symlink_to("/dev/zero")
    (below / "folder").symlink_to(below)
    os.link(tmp_path / "outside.bin", below / "hard.bin")
    text = refusal(path)
    assert "the external data of the tensor 'w' (location " in text
    assert len(text) < 1000 + len(str(path)) * 4


def test_absolute_external_data(tmp_path: Path) -> None:
    assert "a path from the model's folder" in refusal(saved(tmp_path, location=str(tmp_path / "below" / "w.bin")))


@pytest.mark.parametrize("place", ["graph", "op_type", "domain", "input", "attribute", "tensor", "dimension"])
def test_a_name_in_an_error_is_printable(place: str) -> None:
    """`refusal` checks it: what ONNX's own checker quotes too."""
    made = model()
    if place == "graph":
        made.graph.name = HOSTILE
        del made.graph.node[:]
    elif place == "attribute":
        made.graph.node[0].attribute.append(helper.make_attribute(HOSTILE, 3))
    elif place == "tensor":
        made.graph.initializer[0].name = HOSTILE
        made.graph.initializer[0].dims[:] = [1]
    elif place == "dimension":
        made.graph.input[0].type.tensor_type.shape.dim[0].dim_param = HOSTILE
        made.graph.node[0].op_type = "Absolutely"
    elif place == "input":
        made.graph.node[0].input[0] = HOSTILE
    else:
        setattr(made.graph.node[0], place, HOSTILE)
    refusal(made)
