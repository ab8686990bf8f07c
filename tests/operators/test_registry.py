"""The registry: every operator has its modules in every part of the package, under one stem."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import dmlvk
from dmlvk import operators, planning, reference
from dmlvk.benchmark import cases
from dmlvk.benchmark.peers import PEERS
from dmlvk.benchmark.work import random_inputs_of, work_of
from dmlvk.conformance import cases as conformance_cases
from dmlvk.operators import Slice1Desc, SliceDesc
from dmlvk.operators.declared import OperatorDesc
from dmlvk.operators.registry import CURRENT_OPERATORS, OPERATORS, parts
from dmlvk.runtime import bound_tensors
from tools import stubs


def parameters(function: object) -> tuple[str, ...]:
    """Names of parameters; keyword-only ones begin with a star."""
    assert callable(function)
    found = inspect.signature(function).parameters.values()
    return tuple(f"*{each.name}" if each.kind is each.KEYWORD_ONLY else each.name for each in found)


def stems() -> list[str]:
    return [desc.stem for desc in OPERATORS]


@pytest.mark.parametrize("operator", OPERATORS, ids=stems())
class TestEachOperator:
    def test_its_stem_is_directml_s_name_in_lower_case(self, operator: type[OperatorDesc]) -> None:
        assert operator.stem == operator.operator_name.lower()
        assert operator.__module__ == f"dmlvk.operators.{operator.stem}"

    def test_its_descriptor_is_public(self, operator: type[OperatorDesc]) -> None:
        name = operator.__name__
        assert name in dmlvk.__all__ and getattr(dmlvk, name) is operator
        assert name in operators.__all__

    def test_it_is_planned(self, operator: type[OperatorDesc]) -> None:
        assert parameters(planning.PLANNERS[operator]) == ("desc", "profile", "*path", "*offsets")

    def test_its_work_is_counted_and_it_has_random_inputs(self, operator: type[OperatorDesc]) -> None:
        desc = next(conformance_cases.BY_OPERATOR[operator][0].cases(True)).build().desc
        assert work_of(desc).bytes_written > 0
        arrays = random_inputs_of(desc, np.random.default_rng(0))
        described = {name: tensor for name, tensor in desc.tensors.items() if name in desc.input_fields}
        found = {name: (array.shape, array.dtype) for name, array in arrays.items()}
        assert found == {name: (each.sizes, each.data_type.numpy_dtype) for name, each in described.items()}

    def test_its_reference_takes_its_inputs(self, operator: type[OperatorDesc]) -> None:
        run = import_module(f"dmlvk.reference.{operator.stem}").run
        assert parameters(run) == ("desc", *(f"*{field}" for field in operator.input_fields))
        assert reference.OPERATORS[operator] is run

    def test_its_kernel_paths_are_known(self, operator: type[OperatorDesc]) -> None:
        paths = planning.KERNEL_PATHS[operator]
        assert paths and all(isinstance(path, str) for path in paths)

    def test_its_conformance_cases_bear_its_stem(self, operator: type[OperatorDesc]) -> None:
        assert {group.name.split(":")[0] for group in conformance_cases.BY_OPERATOR[operator]} == {operator.stem}

    def test_it_has_benchmark_cases_unless_it_has_a_successor(self, operator: type[OperatorDesc]) -> None:
        source = cases.SOURCES.get(operator)
        if operator.successor is not None:
            assert source is None
            return
        assert source is not None and parameters(source) == ("scale",)
        assert {case.groups[0] for case in source(cases.SCALES["tiny"])} == {operator.stem}

    def test_it_has_tests(self, operator: type[OperatorDesc]) -> None:
        tests = Path(__file__).parent.parent
        for wing in ("operators", "reference", "kernels"):
            folder = tests / wing / operator.stem
            assert (tests / wing / f"test_{operator.stem}.py").is_file() or list(folder.glob("test_*.py"))


def test_no_wing_has_a_module_of_an_operator_that_the_registry_lacks() -> None:
    shared = {
        "reference": {"bits", "pooling"},
        "conformance.cases": {
            *("broken_rules", "by_declaration", "combinations", "invalid", "invariance", "layouts"),
            *("onnx_backend", "values"),
        },
        "benchmark.cases": {"by_declaration", "scale"},
    }
    for wing, others in shared.items():
        folder = Path(*dmlvk.__path__, *wing.split("."))
        found = {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
        assert found - {"__init__"} - others <= set(stems()), wing


def test_every_descriptor_is_in_the_registry() -> None:
    def below(base: type[OperatorDesc]) -> set[type[OperatorDesc]]:
        return {each for sub in base.__subclasses__() for each in (sub, *below(sub))}

    # A class that is no operator holds what those that extend it share.
    ours = {desc for desc in below(OperatorDesc) if desc.__module__.startswith("dmlvk.") and hasattr(desc, "stem")}
    assert ours == set(OPERATORS)


def test_every_descriptor_is_compiled_as_what_it_is() -> None:
    assert bound_tensors.Compiled.__constraints__ == (*OPERATORS, OperatorDesc)


def test_type_checkers_know_the_operators() -> None:
    """The checkers themselves run on tests/typing_examples.py; here: the stubs are those of the declarations."""
    for path, text in stubs.stubs().items():
        assert path.read_text(encoding="utf-8") == text, "run `python -m tools.stubs`"
    (text,) = (text for path, text in stubs.stubs().items() if path.name == "bound_tensors.pyi")
    tensors = text[text.index("class OneHotInputTensors(") :]
    assert "    indices_tensor: Tensor\n    values_tensor: Tensor\n\nclass OneHotTensors(OneHotInput" in tensors


def test_a_successor_is_a_current_operator() -> None:
    current = set(CURRENT_OPERATORS)
    assert {operator.successor for operator in OPERATORS} - {None} <= current
    assert len(set(stems())) == len(OPERATORS)


def test_peers_have_operators_of_the_registry() -> None:
    for peer in PEERS.values():
        assert set(peer.operators) <= set(CURRENT_OPERATORS) and peer.operators, peer.name


class TestParts:
    """Where the part of an operator is found."""

    @pytest.fixture
    def wing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
        """Makes a package with modules."""

        def made(**modules: str) -> str:
            package = tmp_path / "a_wing"
            (package / "families").mkdir(parents=True)
            for name, text in {"__init__": "", "families/__init__": "", **modules}.items():
                (package / f"{name}.py").write_text(text, encoding="utf-8")
            monkeypatch.syspath_prepend(tmp_path)
            for name in [name for name in sys.modules if name.split(".")[0] == "a_wing"]:
                del sys.modules[name]
            return "a_wing"

        return made

    def test_an_operator_without_its_part_is_an_error(self) -> None:
        with pytest.raises(ImportError, match=r"SLICE1 has no plan: none of dmlvk\.vulkan\.slice1 defines it"):
            parts("dmlvk.vulkan", "plan", [Slice1Desc])
        with pytest.raises(ImportError, match=r"planning\.slice, .*\.slice1, .*families\.data_movement defines it"):
            parts("dmlvk.planning", "draw", [SliceDesc], is_shared=True)

    def test_its_own_module_comes_first_then_its_successor_s_then_its_family_s(self, wing: Callable[..., str]) -> None:
        texts = {"slice": "a = 1", "slice1": "a = 2; b = 2", "families/data_movement": "a = 3; b = 3; c = 3"}
        package = wing(**texts)
        found = [parts(package, name, [SliceDesc], is_shared=True, default=lambda _: 4)[SliceDesc] for name in "abcd"]
        assert found == [1, 2, 3, 4]
        alone = [parts(package, name, [SliceDesc], default=lambda desc: desc.stem)[SliceDesc] for name in "ab"]
        assert alone == [1, "slice"]

    def test_a_mistake_inside_a_module_is_raised(self, wing: Callable[..., str]) -> None:
        with pytest.raises(ModuleNotFoundError, match="no_such_package"):
            parts(wing(slice1="import no_such_package"), "a", [Slice1Desc], default=lambda _: None)


def test_the_registry_knows_no_other_wing() -> None:
    source = Path(inspect.getfile(parts)).read_text(encoding="utf-8")
    lines = [line.strip() for line in source.splitlines() if "dmlvk" in line]
    imported = [line for line in lines if line.startswith(("from", "import"))]
    assert imported == ["from dmlvk import operators", "from dmlvk.operators.declared import OperatorDesc"]
