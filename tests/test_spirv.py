"""The compiled kernels agree with their sources and need nothing that the poorest device lacks."""

from __future__ import annotations

import hashlib
import re
import struct
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from dmlvk._common import files
from dmlvk.errors import DeviceError
from dmlvk.runtime import kernel_modules
from dmlvk.runtime.kernel_modules import DEFINED, spirv, with_ids
from tools import compile_kernels, spirv_archive
from tools.compile_kernels import FLAGS, KERNELS, SPIRV, Compiled, archive_path
from tools.spirv_interface import FOR_READERS, LOCAL_SIZE_X, instructions, places, without_names

SOURCES = compile_kernels.kernel_sources()
MANIFEST = compile_kernels.read_manifest()
REMEDY = "run `make kernels` and commit dmlvk/spirv"

OP_CAPABILITY = 17
OP_ENTRY_POINT = 15
OP_TYPE_INT, OP_TYPE_FLOAT, OP_TYPE_POINTER = 21, 22, 32
OP_VARIABLE = 59
OP_FUNCTION_CALL = 57
OP_U_DIV, OP_SELECT = 134, 169
OP_COOPERATIVE_MATRIX_LOAD, OP_COOPERATIVE_MATRIX_STORE = 4457, 4458
CONSTANTS = {*range(41, 47), *range(48, 53)}  # OpConstantTrue to OpConstantNull, OpSpecConstantTrue to OpSpecConstantOp
WORKGROUP = 4  # a storage class
SHADER = 1
INT64 = 11

DOT_PRODUCT_INPUT_4X8_BIT_PACKED, DOT_PRODUCT = 6018, 6019
GROUP_NON_UNIFORM, GROUP_NON_UNIFORM_SHUFFLE = 61, 65
INT8, VULKAN_MEMORY_MODEL, COOPERATIVE_MATRIX = 39, 5345, 6022
ROUNDING_MODE_RTE = 4467
STORAGE_BUFFER_8_BIT = 4448

ON_MATRIX_UNITS = {
    INT8,
    VULKAN_MEMORY_MODEL,
    COOPERATIVE_MATRIX,
    GROUP_NON_UNIFORM,
    ROUNDING_MODE_RTE,
    DOT_PRODUCT_INPUT_4X8_BIT_PACKED,
    DOT_PRODUCT,
}

# Capabilities that a kernel may declare besides Shader, by the end of its name. Plans take these kernels only on
# devices with the features. A kernel that is not named here runs on every Vulkan 1.2 device.
FEATURE_KERNELS = {
    "_dequantize_linear/float32": {ROUNDING_MODE_RTE},
    "byte_resample/float32": {ROUNDING_MODE_RTE},
    "byte_softmax/float32": {ROUNDING_MODE_RTE},
    "byte_softmax/rows": {ROUNDING_MODE_RTE},
    "byte_table_mean/float32": {ROUNDING_MODE_RTE},
    "byte_table_mean/words": {ROUNDING_MODE_RTE},
    "element_wise_add/float32": {ROUNDING_MODE_RTE},
    **{f"_average_pooling/{path}_float32": {ROUNDING_MODE_RTE} for path in ("elements", "vectors", "rows")},
    "_dot4": {DOT_PRODUCT_INPUT_4X8_BIT_PACKED, DOT_PRODUCT},
    "benchmark/dot_product": {DOT_PRODUCT_INPUT_4X8_BIT_PACKED, DOT_PRODUCT},
    "benchmark/matrix": {INT8, VULKAN_MEMORY_MODEL, COOPERATIVE_MATRIX, GROUP_NON_UNIFORM},
    "_convolution/matrix": {*ON_MATRIX_UNITS, STORAGE_BUFFER_8_BIT},
    "_convolution/matrix_few_registers": {*ON_MATRIX_UNITS, STORAGE_BUFFER_8_BIT},
    "_convolution/halo": {*ON_MATRIX_UNITS, STORAGE_BUFFER_8_BIT},
    "_convolution/split_k": {*ON_MATRIX_UNITS, STORAGE_BUFFER_8_BIT},
    "_convolution/vectors_dot4": {VULKAN_MEMORY_MODEL, ROUNDING_MODE_RTE},
    "_convolution/vectors_dot4_mixed": {
        VULKAN_MEMORY_MODEL,
        ROUNDING_MODE_RTE,
        DOT_PRODUCT_INPUT_4X8_BIT_PACKED,
        DOT_PRODUCT,
    },
    "_convolution/vectors_float32": {VULKAN_MEMORY_MODEL, ROUNDING_MODE_RTE},
    "_convolution/vectors_integer": {VULKAN_MEMORY_MODEL},
    "depthwise_dot4": {ROUNDING_MODE_RTE},
    "registers_float": {INT64, GROUP_NON_UNIFORM, GROUP_NON_UNIFORM_SHUFFLE},
}


# All that tests here look at; a tenth of a module.
READ = FOR_READERS | CONSTANTS
READ |= {OP_CAPABILITY, OP_ENTRY_POINT, OP_TYPE_INT, OP_TYPE_FLOAT, OP_TYPE_POINTER, OP_VARIABLE, OP_FUNCTION_CALL}
READ |= {OP_U_DIV, OP_SELECT, OP_COOPERATIVE_MATRIX_LOAD, OP_COOPERATIVE_MATRIX_STORE}


@cache
def instructions_of(kernel: str) -> Sequence[tuple[int, tuple[int, ...]]]:
    """The opcode and the operands of a kernel's instructions whose opcode is in READ."""
    return [each for each in instructions(spirv(kernel)) if each[0] in READ]


def test_there_are_kernels() -> None:
    assert SOURCES


def test_manifest_names_the_kernels_that_have_sources() -> None:
    assert sorted(MANIFEST["kernels"]) == sorted(SOURCES), REMEDY


def test_manifest_names_the_compiler() -> None:
    name, version = MANIFEST["compiler"].split()
    assert name == "glslang"
    assert tuple(int(part) for part in version.split(".")) >= compile_kernels.OLDEST_COMPILER


def test_spirv_folder_holds_the_kernels_and_nothing_else() -> None:
    expected = {f"{spirv_archive.archive_of(kernel)}.xz" for kernel in SOURCES} | {"manifest.json"}
    assert {path.relative_to(SPIRV).as_posix() for path in SPIRV.rglob("*") if path.is_file()} == expected, REMEDY


@pytest.mark.parametrize("kernel", SOURCES)
def test_spirv_was_compiled_from_this_source(kernel: str) -> None:
    entry = MANIFEST["kernels"][kernel]
    assert entry["source_sha256"] == compile_kernels.source_sha256(SOURCES[kernel]), f"{kernel} changed: {REMEDY}"
    assert entry["flags"] == FLAGS, REMEDY
    assert entry["spirv_sha256"] == hashlib.sha256(spirv(kernel)).hexdigest(), REMEDY


@pytest.mark.parametrize("kernel", SOURCES)
def test_manifest_names_the_constants_that_the_module_declares(kernel: str) -> None:
    entry = MANIFEST["kernels"][kernel]
    push_constants, constants = entry["push_constants"], entry["specialization_constants"]
    local_size_x = constants.index(LOCAL_SIZE_X) if LOCAL_SIZE_X in constants else None
    assert places(spirv(kernel)) == {
        "push_constants": list(push_constants.values()),
        "specialization_constants": list(range(len(constants))),
        LOCAL_SIZE_X: local_size_x,
    }, REMEDY
    # A reader finds each name in the source.
    text = "".join(path.read_text(encoding="utf-8") for path in compile_kernels.source_files(SOURCES[kernel]))
    for name in (*push_constants, *constants[1:]):
        assert re.search(rf"\b{name}\b", text), name


@pytest.mark.parametrize("kernel", SOURCES)
def test_modules_have_no_names(kernel: str) -> None:
    """They would be a sixth of the kernels, and no driver needs them."""
    module = instructions_of(kernel)
    assert not FOR_READERS & {opcode for opcode, _ in module}, REMEDY


HEADER = (0x07230203, 0x10500, 0x8000B, 9, 0)
KEPT = [(2 << 16 | OP_CAPABILITY, SHADER), (3 << 16 | 3, 2, 460), (2 << 16 | 19, 2)]  # also OpSource and OpTypeVoid
NAMES = [(3 << 16 | 5, 4, 0x6E), (4 << 16 | 6, 7, 0, 0x6D), (2 << 16 | 4, 0x65)]


def made_module(*parts: tuple[int, ...]) -> bytes:
    words = [word for part in (HEADER, *parts) for word in part]
    return struct.pack(f"<{len(words)}I", *words)


BARE, NAMED = made_module(*KEPT), made_module(NAMES[2], *KEPT[:2], *NAMES, *KEPT[2:], NAMES[0])


def test_only_names_are_removed() -> None:
    assert without_names(BARE) == BARE
    assert without_names(NAMED) == BARE


def test_what_is_compiled_again() -> None:
    """A changed source, other flags, a lost or changed module, and one with names, as an earlier version wrote it."""

    def is_current(module: bytes, described: bytes = BARE, source: str = "1", flags: object = FLAGS) -> bool:
        entry = {"source_sha256": source, "flags": flags, "spirv_sha256": hashlib.sha256(described).hexdigest()}
        return compile_kernels._is_current(Compiled(entry, module), "1")

    assert is_current(BARE)
    assert not is_current(BARE, source="2")
    assert not is_current(BARE, flags=[])
    assert not is_current(BARE, NAMED)
    assert not is_current(NAMED, BARE)
    assert not is_current(NAMED, NAMED)
    assert not compile_kernels._is_current(None, "1")


def test_kernels_whose_archive_is_lost_or_damaged_count_as_lost(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(compile_kernels, "SPIRV", tmp_path)
    modules = {"whole/a": BARE, "whole/b": NAMED, "damaged/c": BARE, "lost/d": BARE}
    (tmp_path / "whole.xz").write_bytes(spirv_archive.compressed([BARE, NAMED]))
    (tmp_path / "damaged.xz").write_bytes(b"damaged")
    read = compile_kernels.read_compiled(spirv_archive.places(modules))
    assert {kernel: compiled.module for kernel, compiled in read.items()} == {"whole/a": BARE, "whole/b": NAMED}


def test_archives_have_less_than_a_tenth_of_the_modules_size() -> None:
    """Only if equal code has equal words, whatever its ids are. With ids in place of distances it is a sixth."""
    archives = {archive_path(spirv_archive.archive_of(kernel)) for kernel in SOURCES}
    assert sum(path.stat().st_size for path in archives) < 0.1 * sum(len(spirv(kernel)) for kernel in SOURCES)


def test_distances_hold_whatever_a_module_has() -> None:
    """Also for what no kernel has: instructions that nobody knows, operands that look like ids, uses of later ids."""
    random = np.random.default_rng(5)
    for _ in range(200):
        opcodes = [*random.integers(0, 260, 20), spirv_archive.OP_FUNCTION, *random.integers(0, 260, 60)]
        operands = [random.choice([*range(1, 60), 1 << 31], random.integers(0, 6)) for _ in opcodes]
        module = made_module(
            *(
                (len(words) + 1 << 16 | int(opcode), *map(int, words))
                for opcode, words in zip(opcodes, operands, strict=True)
            )
        )
        assert with_ids(b"more" + spirv_archive.with_distances(module), 4, len(module)) == module
    with pytest.raises(ValueError, match="begins as distances do"):
        spirv_archive.with_distances(made_module((2 << 16 | OP_CAPABILITY, DEFINED << 24)))


@pytest.mark.parametrize("kernel", SOURCES)
def test_kernel_starts_with_a_comment(kernel: str) -> None:
    """A reader needs the maths, the loops, the layout and the reasons before the first line of code."""
    lines = [line for line in SOURCES[kernel].read_text(encoding="utf-8").splitlines() if line.strip()]
    first = next(line for line in lines if not line.startswith("#version"))
    assert first.startswith(("//", "/*"))
    starts = ("layout", "void", "#extension", "#include", "const")
    code = next(number for number, line in enumerate(lines) if line.startswith(starts))
    assert code >= 5, f"{kernel} explains itself in {code} lines"


@pytest.mark.parametrize("kernel", SOURCES)
def test_kernel_needs_no_optional_feature(kernel: str) -> None:
    """Shader is the only capability: no Int64, Int8, Int16, Float16, Float64, 8-bit or 16-bit storage."""
    allowed = {SHADER}
    for ending, capabilities in FEATURE_KERNELS.items():
        if kernel.replace("_convolution_add/", "_convolution/").endswith(ending):
            allowed |= capabilities
    module = instructions_of(kernel)
    assert {operands[0] for opcode, operands in module if opcode == OP_CAPABILITY} <= allowed


@pytest.mark.parametrize("kernel", SOURCES)
def test_shared_memory_of_matrix_kernels_is_in_whole_vectors(kernel: str) -> None:
    """NVIDIA's loads of matrices read wrong values from an array that does not begin at a multiple of 16 bytes."""
    module = instructions_of(kernel)
    if (OP_CAPABILITY, (COOPERATIVE_MATRIX,)) not in module:
        return
    scalars = {operands[0] for opcode, operands in module if opcode in (OP_TYPE_INT, OP_TYPE_FLOAT)}
    to_scalars = {
        operands[0]
        for opcode, operands in module
        if opcode == OP_TYPE_POINTER and operands[1] == WORKGROUP and operands[2] in scalars
    }
    assert not [
        operands
        for opcode, operands in module
        if opcode == OP_VARIABLE and operands[2] == WORKGROUP and operands[0] in to_scalars
    ]


MATRIX_KERNELS = [kernel for kernel in SOURCES if (OP_CAPABILITY, (COOPERATIVE_MATRIX,)) in instructions_of(kernel)]


def test_there_are_matrix_kernels() -> None:
    assert len(MATRIX_KERNELS) >= 4


@pytest.mark.parametrize("kernel", MATRIX_KERNELS)
def test_strides_of_matrices_can_be_constants(kernel: str) -> None:
    """See quirks.SAMSUNG_MATRIX_OPERANDS_FROM_BUFFERS: a constant, or one of two values that a constant chooses."""
    module = instructions_of(kernel)
    constants = {operands[1] for opcode, operands in module if opcode in CONSTANTS}
    # In their order, so that operands are known before their result. Of a choice, only the value for constants counts.
    for opcode, operands in module:
        if (opcode == OP_SELECT and operands[2] in constants and operands[3] in constants) or (
            opcode == OP_U_DIV and set(operands[2:]) <= constants
        ):
            constants.add(operands[1])
    # Operands of a load: type, result, pointer, layout, stride. Operands of a store: pointer, matrix, layout, stride.
    strides = [operands[4] for opcode, operands in module if opcode == OP_COOPERATIVE_MATRIX_LOAD]
    strides += [operands[3] for opcode, operands in module if opcode == OP_COOPERATIVE_MATRIX_STORE]
    assert strides
    assert set(strides) <= constants


@pytest.mark.parametrize("kernel", MATRIX_KERNELS)
def test_no_optimizer_has_run(kernel: str) -> None:
    """See quirks.SPIRV_OPT_BREAKS_MATRIX_KERNELS. The optimizer would have inlined the functions."""
    assert not any(flag.startswith("-O") for flag in MANIFEST["kernels"][kernel]["flags"])
    module = instructions_of(kernel)
    if not kernel.startswith("benchmark/"):  # it has no function besides main
        assert any(opcode == OP_FUNCTION_CALL for opcode, _ in module)


@pytest.mark.parametrize("kernel", SOURCES)
def test_kernel_has_one_entry_point_called_main(kernel: str) -> None:
    entries = [operands for opcode, operands in instructions_of(kernel) if opcode == OP_ENTRY_POINT]
    # Operands: execution model, function, name, interface.
    names = [struct.pack(f"<{len(operands)}I", *operands)[8:].split(b"\0")[0] for operands in entries]
    assert names == [b"main"]


def test_hash_of_a_kernel_changes_with_a_file_that_it_includes(tmp_path: Path) -> None:
    for folder in ("operator", "shared"):
        (tmp_path / folder).mkdir()
    source = tmp_path / "operator" / "kernel.comp"
    outer, inner = tmp_path / "shared" / "outer.glsl", tmp_path / "shared" / "inner.glsl"
    source.write_text('// A kernel.\n#include "shared/outer.glsl"\n')
    outer.write_text('#include "inner.glsl"\n')
    inner.write_text("int a;\n")
    assert compile_kernels.source_files(source) == sorted([source, outer, inner])
    before = compile_kernels.source_sha256(source)
    inner.write_bytes(b"int a;\r\n")
    assert compile_kernels.source_sha256(source) == before, "line ends are not part of a source"
    inner.write_text("int b;\n")
    assert compile_kernels.source_sha256(source) != before


def test_every_include_is_used() -> None:
    used = {path for source in SOURCES.values() for path in compile_kernels.source_files(source)}
    # Its kernel stands on the page that shows how to add an operator, and a test compiles it.
    used |= {KERNELS / "element_wise" / "operation.glsl"}
    assert set(KERNELS.rglob("*.glsl")) <= used


def test_the_package_reads_the_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = next(iter(SOURCES))
    with pytest.raises(DeviceError, match=r"no/kernel, .* is missing from this installation"):
        spirv("no/kernel")
    monkeypatch.setattr(kernel_modules, "_archive", kernel_modules._archive.__wrapped__)
    uncached = spirv.__wrapped__
    whole = archive_path(spirv_archive.archive_of(kernel)).read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(kernel_modules, "compiled_kernels", lambda: {"no/kernel": {"archive": "no"}})
        with pytest.raises(DeviceError, match=r"no\.xz, .* is missing from this installation"):
            uncached("no/kernel")
    for damaged in (whole[:-20], b"", b"\0" * 100, whole[:100] + b"\xff" + whole[101:]):
        monkeypatch.setattr(files, "packaged_bytes", lambda package, name, content=damaged: content)
        with pytest.raises(DeviceError, match="is damaged in this installation"):
            uncached(kernel)
    # As Python is where no liblzma was installed when it was built.
    monkeypatch.setitem(sys.modules, "lzma", None)
    with pytest.raises(DeviceError, match=r"was built without its module lzma.*liblzma-dev"):
        uncached(kernel)
