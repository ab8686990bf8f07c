"""The cases: names are unique, data is the same each time, every rule has cases, and the default set is small."""

from __future__ import annotations

import ast
import itertools
import re
import traceback
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import dmlvk
from dmlvk import reference
from dmlvk.conformance.case import Case
from dmlvk.conformance.cases import BY_OPERATOR, SOURCES, all_cases, invalid, onnx_backend
from dmlvk.conformance.cases.combinations import Group, covering_pairs, data_name
from dmlvk.conformance.cases.invalid import base_content
from dmlvk.conformance.cases.invariance import GROUPS, WAYS
from dmlvk.conformance.digests import recorded_digests
from dmlvk.conformance.names import matches
from dmlvk.conformance.running.execution import digest
from dmlvk.data_type import DataType
from dmlvk.errors import DescriptorError
from dmlvk.operators import OperatorDesc
from dmlvk.operators.registry import OPERATORS
from dmlvk.operators.serialization import deserialize, serialize
from dmlvk.planning import KERNEL_PATHS
from tests.amount import THOROUGH
from tools.expected_digests import expected_refusals

CONVOLUTION = "quantized_linear_convolution"

DEFAULT = list(all_cases(default_only=True))
# Those that run on a device.
BUILT = [case for case in DEFAULT if case.refusal is None]
# ONNX's tests that its oldest supported releases lack.
NEWER_TESTS = {"test_onehot_out_of_range_indices", "test_onehot_with_bfloat16_values"}
BUILDABLE = [
    case for case in BUILT if case.groups[0] != "onnx" or case.name.rpartition("=")[2] in onnx_backend.backend_tests()
]
REMEDY = "run `python -m tools.expected_digests` and commit dmlvk/conformance/manifest.json"

# Each rule of the operators' pages, and each point of their meaning that the pages leave open, with the cases that
# check it.
RULES = {
    # Element-wise operators
    "tables, every byte and every pair of bytes": ("byte_table:every", "byte_table:pairs"),
    "tables, one for each index along an axis": ("byte_table:axis", "byte_table:tables"),
    "windows of networks, the largest and the mean": (
        "max_pooling2:windows",
        "quantized_linear_average_pooling:windows:scales=equal;*",
    ),
    "a mean of floats, in each order, of numbers of all kinds": ("byte_table_mean:*",),
    "planes of bytes between elements, to coordinates and by thresholds of all kinds": (
        "byte_resample:planes",
        "byte_resample:beside_a_line",
        "byte_resample:form",
    ),
    "rows of bytes less their mean over their deviation, with numbers at the ends of their ranges": (
        "byte_layer_normalization:rows",
        "byte_layer_normalization:last_bits",
        "byte_layer_normalization:form",
    ),
    "shares of bytes in a sum of floats, of numbers of all kinds": ("byte_softmax:*",),
    "a sum of floats, of numbers of all kinds": ("element_wise_add:kinds", "element_wise_add:form"),
    "floats without those below 0": ("activation_relu:form",),
    "a sum of quantized tensors, sums between two integers": (
        "element_wise_quantized_linear_add:pairs:scales=half;*",
        "element_wise_quantized_linear_add:pairs:scales=eighths;*",
    ),
    "a sum of quantized tensors, odd scales": tuple(
        f"element_wise_quantized_linear_add:pairs:scales={scale};*"
        for scale in ("denormal", "overflowing", "zero", "by_zero", "infinite", "nan")
    ),
    "a sum of quantized tensors that broadcast": ("element_wise_quantized_linear_add:broadcast",),
    "a sum in the last step of a convolution": ("quantized_linear_convolution_add:last_step",),
    "a convolution and a sum, in every layout": ("quantized_linear_convolution_add:form",),
    "a sum after a kernel of convolutions that has none": ("quantized_linear_convolution_add:apart",),
    "a sum of strips that wait in shared memory": ("quantized_linear_convolution_add:strips",),
    "a table in the last step of a convolution": (
        "quantized_linear_convolution_table:last_step",
        "quantized_linear_convolution_table:depthwise",
    ),
    "a convolution and a table, in every layout": ("quantized_linear_convolution_table:form",),
    "a table that may change, and one after a kernel that has none": ("quantized_linear_convolution_table:apart",),
    "quantizing, where the result changes": ("element_wise_quantize_linear:thresholds",),
    "dequantizing, scales of every exponent": ("element_wise_dequantize_linear:exponents",),
    "scales and zero points of channels and of elements": (
        "element_wise_quantize_linear:parameters",
        "element_wise_dequantize_linear:parameters",
    ),
    # All operators
    "all eleven data types": ("slice1:layout", "one_hot:layout", "diagonal_matrix1:layout"),
    "ranks 1 to 8": ("slice1:layout:rank=1;*", "slice1:layout:rank=8;*", "one_hot:layout:rank=8;*"),
    "strides in elements, any order, with gaps": ("slice1:layout:output=gaps;*", "slice1:layout:input=permuted;*"),
    "a stride of 0 broadcasts": ("slice1:layout:input=broadcast;*", "diagonal_matrix1:layout:input=scalar;*"),
    "inputs may overlap themselves": (
        "slice1:layout:input=sheared;*",
        f"{CONVOLUTION}:layout:input=sheared;*",
    ),
    "outputs may interleave": ("slice1:layout:output=interleaved;*", "one_hot:layout:output=interleaved;*"),
    "gaps between strides keep their bytes": (
        "slice1:layout:output=rows;*",
        "slice1:rows_together",
        f"{CONVOLUTION}:layout:output=gaps;*",
    ),
    "the tail of TotalTensorSizeInBytes keeps its bytes": (
        "slice1:binding:tail=64;*",
        f"{CONVOLUTION}:binding:tail=5;*",
    ),
    "bindings at any multiple of 16": ("slice1:binding:offset=16;*", "one_hot:binding:offset=80;*"),
    "GuaranteedBaseOffsetAlignment": ("slice1:binding:alignment=4096;*", "diagonal_matrix1:binding:alignment=32;*"),
    "bits are copied": ("slice1:bits", "one_hot:bits", "diagonal_matrix1:bits"),
    "tensors past a storage buffer's range": (
        "slice1:cut",
        "one_hot:cut",
        "diagonal_matrix1:cut",
        f"{CONVOLUTION}:cut",
    ),
    "tensors past a memory segment": ("slice1:cut:limits=cut;*", f"{CONVOLUTION}:cut:limits=cut;*"),
    "more than 65,535 workgroups": ("slice1:long", "one_hot:long", "diagonal_matrix1:long"),
    "Vulkan's guaranteed limits and no more": (
        "slice1:cut:limits=floor;*",
        f"{CONVOLUTION}:cut:limits=cut_floor;*",
    ),
    "what a GPU would run, on any device": ("slice1:transpose:device=gpu;*", f"{CONVOLUTION}:tiles"),
    # SLICE1
    "SLICE1, the page's examples": ("slice1:page",),
    "SLICE1, windows from any element on": ("slice1:window",),
    "SLICE1, |stride| in MaxCopiedElements": ("slice1:long_stride", "slice1:window:step=-3;*"),
    "SLICE1, a negative stride starts at the window's end": ("slice1:window:step=-1;*", "slice1:smaller_output"),
    "SLICE1, outputs smaller than the window gives": ("slice1:smaller_output",),
    "SLICE1, strides of any magnitude": ("slice1:long_stride:step=-2147483648;*",),
    "SLICE1, rows that are columns of the input": ("slice1:transpose",),
    # ONE_HOT
    "ONE_HOT, the page's examples": ("one_hot:page",),
    "ONE_HOT, all 64 bits of an index": ("one_hot:index:value=2^32+1;*", "one_hot:index:value=2^63;*"),
    "ONE_HOT, a negative index counts from the end": ("one_hot:index:value=minus_one;*",),
    "ONE_HOT, and that once": ("one_hot:index:value=below_minus_depth;*", "one_hot:index:value=-2^63;*"),
    "ONE_HOT, unsigned indices are never negative": ("one_hot:index:type=uint64;value=2^64-1;*",),
    "ONE_HOT, OnValue along the fastest dimension larger than 1": ("one_hot:values",),
    "ONE_HOT, other values are ignored": ("one_hot:values:shape=cube;*",),
    "ONE_HOT, any axis": ("one_hot:layout:axis=first;*", "one_hot:layout:axis=middle;*", "one_hot:layout:axis=last;*"),
    "ONE_HOT, sequences of one element and of many": ("one_hot:depth:depth=1;*", "one_hot:depth:depth=65537;*"),
    # DIAGONAL_MATRIX1
    "DIAGONAL_MATRIX1, the page's examples": ("diagonal_matrix1:page",),
    "DIAGONAL_MATRIX1, Begin <= t < End": ("diagonal_matrix1:layout:band=strip;*",),
    "DIAGONAL_MATRIX1, Begin == End fills nothing": ("diagonal_matrix1:layout:band=empty;*",),
    "DIAGONAL_MATRIX1, Begin > End fills the others": ("diagonal_matrix1:layout:band=kept_strip;*",),
    "DIAGONAL_MATRIX1, INT32_MIN and INT32_MAX": (
        "diagonal_matrix1:ends:begin=min;*",
        "diagonal_matrix1:ends:end=max;*",
    ),
    "DIAGONAL_MATRIX1, zeros without an input": ("diagonal_matrix1:layout:input=absent;*",),
    "DIAGONAL_MATRIX1, the value's bits": ("diagonal_matrix1:value", "diagonal_matrix1:bits"),
    "DIAGONAL_MATRIX1, batches and shapes that are not square": ("diagonal_matrix1:shape",),
    # SLICE and DIAGONAL_MATRIX, which run the kernels of SLICE1 and DIAGONAL_MATRIX1
    "SLICE, all eleven data types, ranks 1 to 8": ("slice:form:form=float64_*", "slice:form:form=*_8;*"),
    "SLICE, up to the end of the input": ("slice:reach",),
    "SLICE, strides of 32 unsigned bits": ("slice:far",),
    "SLICE, the page's examples": ("slice:page",),
    "DIAGONAL_MATRIX, all eleven data types, ranks 2 to 4": (
        "diagonal_matrix:form:form=int8_*",
        "diagonal_matrix:form:form=*_4_*",
    ),
    "DIAGONAL_MATRIX, INT32_MIN and INT32_MAX are no open ends": (
        "diagonal_matrix:ends:offset=min;*",
        "diagonal_matrix:ends:offset=max;*",
    ),
    "DIAGONAL_MATRIX, the page's examples": ("diagonal_matrix:page",),
    # QUANTIZED_LINEAR_CONVOLUTION
    "convolution, INT8 and UINT8 independently": (f"{CONVOLUTION}:types",),
    "convolution, ranks 3 and 4": (
        f"{CONVOLUTION}:rank:rank=3;*",
        f"{CONVOLUTION}:rank:rank=4;*",
    ),
    "convolution, one or two spatial elements at rank 3": (f"{CONVOLUTION}:rank:rank=3;arrays=two;*",),
    "convolution, scales and zero points of rank 1 to 4": (
        f"{CONVOLUTION}:rank:scales=1;*",
        f"{CONVOLUTION}:rank:scales=4;*",
    ),
    "convolution, per channel or not, independently": (f"{CONVOLUTION}:optional:filter_scale=per_channel;*",),
    "convolution, absent zero points and bias": (f"{CONVOLUTION}:optional:bias=absent;*",),
    "convolution, per-channel views": (f"{CONVOLUTION}:views",),
    "convolution, cross-correlation with strides and dilations": (f"{CONVOLUTION}:geometry",),
    "convolution, padding is the zero point": (
        f"{CONVOLUTION}:border",
        f"{CONVOLUTION}:geometry",
    ),
    "convolution, groups": (
        f"{CONVOLUTION}:groups",
        f"{CONVOLUTION}:depthwise",
        f"{CONVOLUTION}:first_layer",
        f"{CONVOLUTION}:halo",
        f"{CONVOLUTION}:general",
        f"{CONVOLUTION}:joined_groups",
    ),
    "convolution, general kernels and special ones": (
        f"{CONVOLUTION}:general:path=general;*",
        f"{CONVOLUTION}:general:path=auto;*",
    ),
    "convolution, a take-over in the middle of a row of calls": (
        f"{CONVOLUTION}:take_over:constants=bound;*",
        f"{CONVOLUTION}:take_over:constants=owned;*",
    ),
    "convolution, zero points at the ends": (f"{CONVOLUTION}:zero_point",),
    "convolution, the sum is exact": (
        f"{CONVOLUTION}:sum",
        f"{CONVOLUTION}:bias",
        f"{CONVOLUTION}:cancellation",
        f"{CONVOLUTION}:parts_of_k",
        f"{CONVOLUTION}:parts_of_vectors",
        f"{CONVOLUTION}:split_k:bias=wide;*",
        f"{CONVOLUTION}:sums_of_parts",
        f"{CONVOLUTION}:parts_of_floats",
        f"{CONVOLUTION}:sums_of_floats",
    ),
    "convolution, the order of the multiplier's operations": (f"{CONVOLUTION}:order",),
    "convolution, denormals are kept": (f"{CONVOLUTION}:scale:magnitude=denormal_multiplier;*",),
    "convolution, each rounding to binary32": (f"{CONVOLUTION}:rounding",),
    "convolution, halves to even": (f"{CONVOLUTION}:tie",),
    "convolution, clamping to the output's type": (f"{CONVOLUTION}:saturation",),
    "convolution, undefined scales do no harm": (
        f"{CONVOLUTION}:undefined:place=filter;*",
        f"{CONVOLUTION}:undefined:place=last_channel;*",
    ),
    "convolution, OWNED_BY_DML": (f"{CONVOLUTION}:owned",),
    # All operators
    "descriptors that break a rule are refused": ("invalid",),
    "the same bits wherever the tensors lie and whatever else runs": (
        *(f"{operator}:placement:way={way};*" for operator in ("slice1", "one_hot", CONVOLUTION) for way in WAYS),
        "diagonal_matrix1:placement",
    ),
    "convolution, an image's bits do not depend on the batch": (
        f"{CONVOLUTION}:batch:images=1;*",
        f"{CONVOLUTION}:batch:images=32;position=last;*",
        *(
            f"{CONVOLUTION}:batch_of_parts:images={images};path={path}*;*"
            for images in (1, 16)
            for path in ("matrix", "split_k", "vectors")
        ),
    ),
    "what a declaration leaves open": tuple(
        group.name for groups in BY_OPERATOR.values() for group in groups if group.name.endswith(":form")
    ),
    # Tests that others wrote
    "ONNX's own tests": ("onnx",),
}


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_has_cases_by_default(rule: str) -> None:
    for pattern in RULES[rule]:
        assert any(matches(pattern, case) for case in DEFAULT), f"{pattern} chooses no case of the default set"


def test_each_group_belongs_to_a_rule() -> None:
    patterns = [pattern for patterns in RULES.values() for pattern in patterns]
    groups = {":".join(case.groups) for case in DEFAULT}
    named = {":".join(case.groups) for case in DEFAULT if any(matches(pattern, case) for pattern in patterns)}
    sizes_around_what_kernels_are_made_of = {
        "slice1:short_rows",
        "one_hot:rows",
        "one_hot:rows_of_blocks",
        "one_hot:rows_of_bytes",
        "one_hot:whole_rows",
        "diagonal_matrix1:small_matrices",
        "slice1:transpose_whole_blocks",
        "slice1:transpose_narrow",
        "slice1:permutation",
        f"{CONVOLUTION}:channels",
        f"{CONVOLUTION}:pixels",
        f"{CONVOLUTION}:whole_planes",
        f"{CONVOLUTION}:words",
        f"{CONVOLUTION}:bytes",
        f"{CONVOLUTION}:tiles_of_vectors",
        f"{CONVOLUTION}:tiles_of_floats",
        f"{CONVOLUTION}:tiles_of_few_registers",
        f"{CONVOLUTION}:depthwise_in_registers",
        f"{CONVOLUTION}:depthwise_of_few_registers",
    }
    assert groups - named <= sizes_around_what_kernels_are_made_of


def test_outputs_have_the_tails_that_their_cases_name() -> None:
    """The bytes of a tail are bytes of the tensor, so that the runner sees that they stay."""
    tails = set()
    for case in all_cases(default_only=True):
        if (found := re.search(r"[:;]tail=(\d+)(;|$)", case.name)) is not None:
            output = case.build().desc.tensors["output_tensor"]
            assert output.total_size_in_bytes - output.minimum_size_in_bytes == int(found[1]), case.name
            tails.add((case.groups[0], int(found[1])))
    operators = ("slice1", "one_hot", "diagonal_matrix1", CONVOLUTION)
    assert tails == {(operator, tail) for operator in operators for tail in (0, 4, 5, 64)}


def test_names_are_unique_and_each_group_says_what_it_tests() -> None:
    """Of more than a million cases, by day each source's first. Those that run by default are the same ones."""
    most = None if THOROUGH else 6000
    about = {case.group: case.about for case in DEFAULT}
    names, defaults = [], []
    for source in SOURCES:
        for case in itertools.islice(source(False), most):
            names.append(case.name)
            about[case.group] = case.about
            if case.is_default:
                defaults.append(case.name)
    assert len(set(names)) == len(names) > (500_000 if THOROUGH else 20_000)
    seen = set(names)
    assert defaults == [case.name for case in DEFAULT if THOROUGH or case.name in seen]
    assert names[:5000] == [case.name for case in itertools.islice(all_cases(), 5000)], "they come in the same order"
    assert len(about) > 80
    for group, sentence in about.items():
        assert sentence.endswith(".") and "\n" not in sentence, group


def test_a_default_run_takes_minutes() -> None:
    """A case on a device takes about a tenth of a second on a CPU driver; a refused descriptor takes no time."""
    assert 1000 <= len(BUILT) <= 430 * len(OPERATORS)
    assert len(DEFAULT) <= 460 * len(OPERATORS)


def test_every_kernel_path_is_forced() -> None:
    forced: dict[str, set[str]] = defaultdict(set)
    for case in DEFAULT:
        if case.path is not None:
            forced[case.groups[0]].add(re.split("[:/]", case.path)[0])  # without a tile's name and the parts of K
    assert forced == {desc.stem: set(KERNEL_PATHS[desc]) for desc in OPERATORS}


def test_every_data_type_has_every_rank() -> None:
    seen = {
        (case.groups[0], case.parameters["type"], case.parameters["rank"])
        for case in DEFAULT
        if case.groups[-1] == "layout" and "rank" in case.parameters
    }
    for operator, ranks in (("slice1", range(1, 9)), ("one_hot", range(1, 9)), ("diagonal_matrix1", range(2, 5))):
        for kind, rank in itertools.product(DataType, ranks):
            assert (operator, kind.name.lower(), str(rank)) in seen


def test_the_predecessors_have_every_data_type_and_rank() -> None:
    for operator, ranks in (("slice", range(1, 9)), ("diagonal_matrix", range(2, 5))):
        tensors = [case.build().desc.tensors["output_tensor"] for case in DEFAULT if case.groups == (operator, "form")]
        assert {tensor.data_type for tensor in tensors} == set(DataType)
        assert {tensor.rank for tensor in tensors} == set(ranks)


def workload_bits(case: Case) -> tuple[OperatorDesc, dict[str, bytes]]:
    workload = case.build()
    return workload.desc, {field: np.ascontiguousarray(array).tobytes() for field, array in workload.inputs.items()}


def test_a_case_is_the_same_each_time_and_on_each_path() -> None:
    by_data: dict[str, list[Case]] = defaultdict(list)
    for case in BUILDABLE[::7] + [case for case in DEFAULT if case.groups[-1] in ("tie", "owned", "page", "placement")]:
        if "images" in case.parameters:
            continue  # the other images differ
        by_data[data_name(case.name)].append(case)
    for cases in by_data.values():
        first = workload_bits(cases[0])
        for case in cases:
            assert workload_bits(case) == first


def test_no_data_is_all_zeros() -> None:
    for case in BUILDABLE[::11]:
        inputs = case.build().inputs
        assert not inputs or any(np.ascontiguousarray(array).view(np.uint8).any() for array in inputs.values())


def test_an_image_of_a_batch_has_one_digest() -> None:
    """The digest of a batch's image is that of the image alone, by the reference."""
    by_data: dict[str, set[str]] = defaultdict(set)
    for kind, step in ((":batch", 37), (":batch_of_parts", 3)):
        group = next(group for group in GROUPS if group.name.endswith(kind))
        for case in itertools.islice(group.cases(), 0, None, step):
            workload = case.build()
            by_data[data_name(case.name)].add(digest(workload.digested(workload.result())))
    assert {len(digests) for digests in by_data.values()} == {1}
    assert len(set.union(*by_data.values())) == len(by_data) > 20


class TestReference:
    """The reference gives the outputs that ONNX's tests and the operators' pages expect."""

    @pytest.mark.parametrize("name", [case.name for case in BUILDABLE if case.groups[0] == "onnx"])
    def test_it_gives_what_onnx_expects(self, name: str) -> None:
        workload = onnx_backend.build(name.rpartition("=")[2])
        assert workload.expected is not None
        found = reference.run(workload.desc, **workload.inputs)
        assert found.tobytes() == np.ascontiguousarray(workload.expected).tobytes()

    def test_onnx_has_no_other_tests_of_these_operators(self) -> None:
        ours = {case.name.rpartition("=")[2] for case in onnx_backend.cases()}
        without_elements = {"test_triu_zero", "test_tril_zero", "test_slice_start_out_of_bounds"}
        found = set(onnx_backend.backend_tests())
        assert found - without_elements <= ours and ours - found <= NEWER_TESTS

    @pytest.mark.parametrize("operator", ["slice1", "one_hot", "diagonal_matrix1", "slice", "diagonal_matrix"])
    def test_it_gives_what_the_pages_print(self, operator: str) -> None:
        pages = [case.build() for case in DEFAULT if case.groups == (operator, "page")]
        assert pages
        for workload in pages:
            found = reference.run(workload.desc, **workload.inputs)
            np.testing.assert_array_equal(found, workload.result())


class TestRefusals:
    """The invalid descriptors and the published table of them."""

    @pytest.mark.parametrize("operator", OPERATORS)
    def test_each_is_a_valid_descriptor_but_for_one_change(self, operator: type[OperatorDesc]) -> None:
        assert serialize(deserialize(base_content(operator))) == base_content(operator)

    def test_the_table_is_that_of_the_errors(self) -> None:
        assert invalid.recorded_refusals() == expected_refusals(DEFAULT), REMEDY

    def test_every_rule_of_the_operators_is_broken(self) -> None:
        """Each place in the operators' code that makes an error makes that of a case."""
        places = set()
        for module in sorted((Path(dmlvk.__file__).parent / "operators").glob("*.py")):
            tree = ast.parse(module.read_text(encoding="utf-8"))
            for node in ast.walk(tree):
                if not isinstance(node, ast.Call):
                    continue
                names = getattr(node.func, "attr", ""), getattr(node.func, "id", "")
                if {"_fail", "DescriptorError"} & set(names):
                    places.add((module.name, node.lineno))
        met = set()
        for case in DEFAULT:
            if case.refusal is not None:
                with pytest.raises(DescriptorError) as caught:
                    deserialize(case.refusal.content())
                frames = traceback.extract_tb(caught.value.__traceback__)
                met |= {(Path(frame.filename).name, frame.lineno) for frame in frames}
        assert len(places) >= 40
        assert places - met == set()


class TestManifest:
    """The recorded digests."""

    def test_it_has_the_cases_that_run_by_default(self) -> None:
        undefined = {case.name for case in DEFAULT if case.groups[-1].startswith("undefined")}
        assert recorded_digests().keys() == {case.name for case in BUILT} - undefined, REMEDY

    def test_digests_are_those_of_what_is_expected(self) -> None:
        digests = recorded_digests()
        for case in BUILDABLE[::9]:
            workload = case.build()
            if workload.is_defined:
                assert digests[case.name] == digest(workload.digested(workload.result())), f"{case.name}: {REMEDY}"

    def test_paths_share_a_digest(self) -> None:
        digests: dict[str, set[str]] = defaultdict(set)
        for name, value in recorded_digests().items():
            digests[data_name(name)].add(value)
        assert {len(values) for values in digests.values()} == {1}


class TestCoveringPairs:
    """How the default combinations are chosen."""

    VALUES = (("a", "b", "c", "d"), ("x", "y", "z"), ("1", "2"), ("+", "-"))
    NAMED: ClassVar = dict(zip("abcd", VALUES, strict=True))

    @pytest.mark.parametrize(
        "keep",
        [
            lambda labels: not (labels["a"] == "a" and labels["b"] == "x"),
            lambda labels: labels["b"] == "x" or labels["d"] == "+" or labels["c"] != "2",
            lambda labels: "2" not in labels.values() or labels["a"] in "ab",
            lambda labels: False,
        ],
    )
    def test_every_pair_that_may_meet_meets(self, keep: Any) -> None:
        taken = covering_pairs(self.NAMED, keep)
        kept = [labels for labels in itertools.product(*self.VALUES) if keep(dict(zip("abcd", labels, strict=True)))]
        assert taken <= set(kept)
        for i, j in itertools.combinations(range(len(self.VALUES)), 2):
            assert {(labels[i], labels[j]) for labels in taken} == {(labels[i], labels[j]) for labels in kept}

    def test_what_nothing_asks_for_is_not_tried(self) -> None:
        """A pair that never meets is found out without a look at all combinations of the others."""
        count = 0

        def keep(labels: Mapping[str, str]) -> bool:
            nonlocal count
            count += 1
            return not (labels["a"] == "a" and labels["b"] == "x")

        covering_pairs({**self.NAMED, **{str(n): ("0", "1", "2") for n in range(8)}}, keep)
        assert count < 200, "of 314,928 combinations"

    def test_they_are_few(self) -> None:
        assert len(covering_pairs(self.NAMED, lambda labels: True)) <= 4 * 3 + 2

    def test_a_group_lists_them_alone_as_in_the_whole(self) -> None:
        group = Group("g:h", lambda numbers, p: None, self.NAMED)  # type: ignore[arg-type,return-value]
        alone = [case.name for case in group.cases(default_only=True)]
        assert alone == [case.name for case in group.cases() if case.is_default]
        assert len(alone) < len(list(group.cases())) == 48
