"""The dialect of JSON: comments, trailing commas, text after the root; and what is none of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dmlvk
from dmlvk.dxdispatch import ModelError
from tests.dxdispatch.models import initial, refusal, write

EMPTY = '"dispatchables": {}, "commands": []'
DIALECT = """\ufeff// a comment ends with its line, "even with quotes
{
    /* one of several
       lines: { [ */
    "resources": {
        "A": { "initialValuesDataType": "INT32", "initialValues": [3, /* between */ -4, 5,], }, // and at ends
    },
    "dispatchables": {},
    "commands": [],
    "ignored": {"whatever": [1.5e3, null, true]},
}
é is after the root { [ "
"""


def test_comments_trailing_commas_and_text_after_the_root(tmp_path: Path) -> None:
    model = dmlvk.dxdispatch.load(write(tmp_path, DIALECT))
    resource = model.resources["A"]
    np.testing.assert_array_equal(resource.result(resource.initial_memory), np.array([3, -4, 5], np.int32))
    assert "1 resources, 0 dispatchables, 0 commands" in repr(model)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["empty"]),
        ("[]", ["a model is an object"]),
        ("{\"resources\": {},\n  'single': 1}", ["line 2, column 3", "no JSON"]),
        ("{resources: {}}", ["line 1, column 2"]),
        ('{"resources": {}, "number": NaN}', ["no JSON", '"nan"']),
        ('{"resources": {}, "numbers": [1, -Infinity]}', ["no JSON", '"-inf"']),
        ('{"resources": {}, "number": 0x10}', ["no JSON"]),
        ('{"a": 1, "a": 2}', ["'a' stands twice"]),
        ("[" * 100_000, ["JSON"]),  # nested too deeply for newer RapidJSONs
        ('{"resources": {"A": ', ["no JSON"]),
        ('{"resources": {}', ["no JSON"]),
    ],
)
def test_text_that_is_no_such_json_is_refused(tmp_path: Path, text: str, words: list[str]) -> None:
    error = refusal(tmp_path, text)
    for word in words:
        assert word in str(error), str(error)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_bytes(b'{"a": "\xff\xfe"}')
    with pytest.raises(ModelError, match=r"model.json"):
        dmlvk.dxdispatch.load(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(dmlvk.dxdispatch.ModelError, match=r"missing\.json: the model cannot be read"):
        dmlvk.dxdispatch.load(tmp_path / "missing.json")


@pytest.mark.parametrize("key", ["resources", "dispatchables", "commands"])
@pytest.mark.parametrize("value", [None, 3, "text"])
def test_the_three_parts_are_required(tmp_path: Path, key: str, value: object) -> None:
    model: dict[str, object] = {"resources": {}, "dispatchables": {}, "commands": []}
    model[key] = value
    assert refusal(tmp_path, model).key == key
    del model[key]
    error = refusal(tmp_path, model)
    assert error.key == key
    assert "is missing" in str(error)


def test_numbers_keep_all_their_digits(tmp_path: Path) -> None:
    values = [2**64 - 1, 2**63, 0]
    found = initial(tmp_path, {"initialValuesDataType": "UINT64", "initialValues": values})
    assert found.tolist() == values
    decimal = 0.1234567890123456789
    (found,) = initial(tmp_path, {"initialValuesDataType": "FLOAT64", "initialValues": [decimal]})
    assert found == decimal


def test_a_name_with_dots_is_quoted_in_the_place(tmp_path: Path) -> None:
    error = refusal(tmp_path, {"resources": {"a.b": {}}, "dispatchables": {}, "commands": []})
    assert error.key == "resources['a.b'].initialValues"
