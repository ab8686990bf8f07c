"""The registry: every operator has its modules in every part of the package, under one stem."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

import pytest

import dmlvk
from dmlvk import operators, planning, reference
from dmlvk.benchmark import cases
from dmlvk.benchmark.peers import PEERS
from dmlvk.operators.registry import CURRENT_OPERATORS, OPERATORS, Operator, parts
from dmlvk.operators.rules import OperatorDesc
from dmlvk.runtime import bound_tensors
from dmlvk.runtime.compiled_operator import CompiledOperator

# The functions that a part of the package uses from each operator's module, with their parameters.
FUNCTIONS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("dmlvk.planning", "plan"): ("desc", "profile", "*path", "*offsets"),
    ("dmlvk.conformance.cases", "cases"): ("default_only",),
    ("dmlvk.benchmark.work", "work"): ("desc",),
    ("dmlvk.benchmark.work", "random_inputs"): ("desc", "random"),
}


def parameters(function: object) -> tuple[str, ...]:
    """Names of parameters; keyword-only ones begin with a star."""
    assert callable(function)
    found = inspect.signature(function).parameters.values()
    return tuple(f"*{each.name}" if each.kind is each.KEYWORD_ONLY else each.name for each in found)


def stems() -> list[str]:
    return [operator.stem for operator in OPERATORS]


@pytest.mark.parametrize("operator", OPERATORS, ids=stems())
class TestEachOperator:
    def test_its_stem_is_directml_s_name_in_lower_case(self, operator: Operator) -> None:
        assert operator.stem == operator.desc.operator_name.lower()
        assert operator.desc.__module__ == f"dmlvk.operators.{operator.stem}"

    def test_its_descriptor_is_public(self, operator: Operator) -> None:
        name = operator.desc.__name__
        assert name in dmlvk.__all__ and getattr(dmlvk, name) is operator.desc
        assert name in operators.__all__

    @pytest.mark.parametrize(("wing", "name"), FUNCTIONS)
    def test_each_wing_has_its_function(self, operator: Operator, wing: str, name: str) -> None:
        assert parameters(getattr(import_module(f"{wing}.{operator.stem}"), name)) == FUNCTIONS[wing, name]

    def test_its_reference_takes_its_inputs(self, operator: Operator) -> None:
        run = import_module(f"dmlvk.reference.{operator.stem}").run
        assert parameters(run) == ("desc", *(f"*{field}" for field in operator.desc.input_fields))
        assert reference.OPERATORS[operator.desc] is run

    def test_its_kernel_paths_are_known(self, operator: Operator) -> None:
        paths = planning.KERNEL_PATHS[operator.desc]
        assert paths and all(isinstance(path, str) for path in paths)

    def test_its_conformance_cases_bear_its_stem(self, operator: Operator) -> None:
        default = list(import_module(f"dmlvk.conformance.cases.{operator.stem}").cases(True))
        assert {case.groups[0] for case in default} == {operator.stem}

    def test_it_has_benchmark_cases_unless_it_has_a_successor(self, operator: Operator) -> None:
        source = cases.SOURCES.get(operator.desc)
        if operator.successor is not None:
            assert source is None
            return
        assert source is not None and parameters(source) == ("scale",)
        assert {case.groups[0] for case in source(cases.SCALES["tiny"])} == {operator.stem}

    def test_type_checkers_know_its_tensors(self, operator: Operator) -> None:
        """The checkers themselves run on tests/typing_examples.py; here: no operator is left out."""
        desc = operator.desc
        name = desc.__name__.removesuffix("Desc")
        inputs, tensors = (getattr(bound_tensors, f"{name}{kind}") for kind in ("Inputs", "Tensors"))
        assert tuple(inputs.__annotations__) == desc.input_fields and not inputs.__required_keys__
        assert tuple(tensors.__annotations__) == desc.input_fields + desc.output_fields
        assert tensors.__required_keys__ == frozenset(desc.output_fields)
        source = inspect.getsource(CompiledOperator)
        for method, kind in (("__call__", "Tensors"), ("bind", "Tensors"), ("initialize", "Inputs")):
            pattern = rf"self: CompiledOperator\[{name}Desc\], \*\*tensors: Unpack\[{name}{kind}\]"
            assert re.search(rf"def {method}\(\s*{pattern}\s*\)", source), method

    def test_it_has_tests(self, operator: Operator) -> None:
        tests = Path(__file__).parent.parent
        for wing in ("operators", "reference", "kernels"):
            folder = tests / wing / operator.stem
            assert (tests / wing / f"test_{operator.stem}.py").is_file() or list(folder.glob("test_*.py"))


def test_no_wing_has_a_module_of_an_operator_that_the_registry_lacks() -> None:
    shared = {
        "planning": {
            "builder",
            "data_movement",
            "device_rates",
            "device_traits",
            "division",
            "grid",
            "kernel_interface",
            "loop_nest",
            "plan",
        },
        "reference": {"bits"},
        "conformance.cases": {"combinations", "invalid", "invariance", "layouts", "onnx_backend", "values"},
        "benchmark.work": {"base"},
        "benchmark.cases": {"scale"},
        "operators": {"element", "feature_level", "registry", "rules", "serialization"},
    }
    without_cases = set(stems()) - {operator.stem for operator in CURRENT_OPERATORS}
    for wing, others in shared.items():
        folder = Path(*dmlvk.__path__, *wing.split("."))
        found = {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
        expected = set(stems()) - (without_cases if wing == "benchmark.cases" else set())
        assert found - {"__init__"} - others == expected, wing


def test_every_descriptor_is_in_the_registry() -> None:
    def below(base: type[OperatorDesc]) -> set[type[OperatorDesc]]:
        return {each for sub in base.__subclasses__() for each in (sub, *below(sub))}

    ours = {desc for desc in below(OperatorDesc) if desc.__module__.startswith("dmlvk.")}
    assert ours == {operator.desc for operator in OPERATORS}


def test_every_descriptor_is_compiled_as_what_it_is() -> None:
    assert bound_tensors.Compiled.__constraints__ == (*(operator.desc for operator in OPERATORS), OperatorDesc)


def test_a_successor_is_a_current_operator() -> None:
    current = {operator.desc for operator in CURRENT_OPERATORS}
    assert {operator.successor for operator in OPERATORS} - {None} <= current
    assert len(set(stems())) == len(OPERATORS)


def test_peers_have_what_the_registry_has() -> None:
    current = {operator.desc for operator in CURRENT_OPERATORS}
    for peer in PEERS.values():
        assert set(peer.operators) <= current and peer.operators, peer.name
    assert {desc for peer in PEERS.values() for desc in peer.operators} == current


def test_an_operator_without_its_part_is_an_error() -> None:
    with pytest.raises(ImportError, match=r"dmlvk\.vulkan\.slice1"):
        parts("dmlvk.vulkan", "plan")
    with pytest.raises(AttributeError, match="draw"):
        parts("dmlvk.planning", "draw")


def test_the_registry_knows_no_other_wing() -> None:
    source = Path(inspect.getfile(Operator)).read_text(encoding="utf-8")
    imported = {line.split()[1] for line in source.splitlines() if line.startswith(("from dmlvk", "import dmlvk"))}
    assert imported == {f"dmlvk.operators.{stem}" for stem in (*stems(), "rules")}
