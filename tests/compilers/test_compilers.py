"""The check of machine code finds faults, and its waivers only shrink. `make test-compilers` runs the check itself."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dmlvk.conformance.recorded import load
from dmlvk.planning.kernel_interface import kernel_interface
from tests.compilers import __main__ as compilers
from tests.compilers import record, sample, waivers
from tests.compilers.__main__ import main
from tests.compilers.chips import CHIPS, DOT_PRODUCTS, FLOAT_PRODUCTS, LOOPS_OVER_K, MATRICES, NVK, RADV, Chip
from tests.compilers.compiled import LIMITS, Compiled
from tests.compilers.loops import Loop, ProductCost, instructions, loops, product_cost
from tests.compilers.waivers import Waiver
from tools import mesa
from tools.debian import SetupError
from tools.drm_shims import build

MATRIX, DOT4 = MATRICES[0], DOT_PRODUCTS[0]
MOVER = "slice1/blocks"
AMPERE = CHIPS["nvk-ampere"]


def statistics(chip: Chip, *, spills: int = 0, scratch: int = 0) -> dict[str, int]:
    """A driver's statistics, under its own names."""
    driver = chip.driver
    said = dict.fromkeys(driver.spills, 0) | {driver.instructions: 900, driver.registers: 40, driver.occupancy: 16}
    said[driver.spills[-1]] = spills
    return said | ({} if driver.scratch is None else {driver.scratch: scratch})


def pipeline(
    chip: Chip,
    number: int,
    kernel: str,
    *,
    chosen: bool = True,
    mnemonics: Mapping[str, int] | None = None,
    **said: int,
) -> list[dict[str, Any]]:
    """The lines of a pipeline that was compiled."""
    found = {"mov": 7, "imma.m16n8k32": 9, "idp4.i8.i8": 9} if mnemonics is None else mnemonics
    names = {"kernel": kernel, "path": "a path", "chosen": chosen, "descriptor": "a layer", "specialization": [256]}
    executable = {"subgroup": 32, "statistics": statistics(chip, **said), "instructions": found}
    return [{"begun": number, **names}, {"finished": number, "seconds": 0.25, "executables": [executable]}]


def compiled(*pipelines: list[dict[str, Any]], chip: Chip = AMPERE) -> Compiled:
    lines = [line for each in pipelines for line in each]
    count = sum("begun" in line for line in lines)
    return Compiled.of(chip, [{"device": "NVK", "driver": "Mesa 26", "pipelines": count}, *lines])


def over(found: Compiled) -> dict[tuple[str, str], int]:
    return {key: number for key, number in found.measured().items() if number > LIMITS[key[1]]}


def test_nothing_is_over_a_limit_by_default() -> None:
    assert over(compiled(pipeline(AMPERE, 0, MATRIX), pipeline(AMPERE, 1, DOT4), pipeline(AMPERE, 2, MOVER))) == {}


@pytest.mark.parametrize("chip", CHIPS.values(), ids=str)
def test_spills_and_scratch_are_found_by_the_driver_s_own_names(chip: Chip) -> None:
    assert over(compiled(pipeline(chip, 0, MOVER, spills=3), chip=chip)) == {(MOVER, "spills"): 3}
    if chip.driver.scratch is not None:
        assert over(compiled(pipeline(chip, 0, MOVER, scratch=64), chip=chip)) == {(MOVER, "scratch"): 64}


def test_a_driver_that_does_not_say_is_no_pass() -> None:
    lines = pipeline(AMPERE, 0, MOVER)
    del lines[1]["executables"][0]["statistics"][NVK.spills[0]]
    with pytest.raises(KeyError, match=NVK.spills[0]):
        compiled(lines).measured()


def test_a_kernel_without_its_instruction_is_counted() -> None:
    found = compiled(pipeline(AMPERE, 0, MATRIX, mnemonics={"mov": 3}), pipeline(AMPERE, 1, MATRIX))
    assert over(found) == {(MATRIX, "without its instruction"): 1}
    assert over(compiled(pipeline(AMPERE, 0, MOVER, mnemonics={"mov": 3}))) == {}


def test_a_kernel_that_was_not_compiled_is_counted_even_if_its_path_is_forced() -> None:
    lines = pipeline(AMPERE, 0, MOVER, chosen=False)[:1]
    assert over(compiled(lines, pipeline(AMPERE, 1, MATRIX))) == {(MOVER, "not compiled"): 1}


def test_a_slow_compilation_is_over_the_limit() -> None:
    lines = pipeline(AMPERE, 0, MOVER)
    lines[1]["seconds"] = 31.0
    assert over(compiled(lines)) == {(MOVER, "seconds"): 31}


def test_forced_paths_are_held_to_the_limits_on_amd_only() -> None:
    assert over(compiled(pipeline(AMPERE, 0, MOVER, chosen=False, spills=3))) == {}
    navi31 = CHIPS["amd-navi31"]
    found = compiled(pipeline(navi31, 0, MOVER, chosen=False, spills=3), chip=navi31)
    assert navi31.driver is RADV and over(found) == {(MOVER, "spills"): 3}


def test_a_run_that_stopped_early_or_checked_nothing_is_no_pass() -> None:
    with pytest.raises(ValueError, match="1 of 5"):
        Compiled.of(AMPERE, [{"device": "", "driver": "", "pipelines": 5}, *pipeline(AMPERE, 0, MOVER)])
    with pytest.raises(ValueError, match="0 of 0"):
        Compiled.of(AMPERE, [{"device": "", "driver": "", "pipelines": 0}])
    unchecked = list(compiled(pipeline(AMPERE, 0, MOVER)).unchecked())
    assert [line.rsplit(" ", 1)[-1] for line in unchecked] == ["idp4", "imma"]
    mute = compiled(pipeline(AMPERE, 0, MATRIX, mnemonics={}), pipeline(AMPERE, 1, DOT4))
    assert any("no machine code" in line for line in mute.unchecked())


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("(f0.any32h) dp4a (8)  g12<1>D  g3<8,8,1>D", "dp4a"),
        ("        dpas.8x8 (8)  g68<1>D  g68<1,1,0>D { align1 };", "dpas.8x8"),
        ("@!p0 r12..16 = imma.m16n8k32.i8.i8 r12..16 r4 r5  // delay=4", "imma.m16n8k32.i8.i8"),
        ("    p0    = isetp.lt.u32  r4 r5", "isetp.lt.u32"),
        ("(sy)(rpt1)dp4acc.unsigned.low r0.x, r1.x, r2.x, r0.x", "dp4acc.unsigned.low"),
        ("\tv_dot4_i32_iu8 v8, v0, v1, v8 ; cc1a0008", "v_dot4_i32_iu8"),
        ("\t v1: (precise)%358:v[8] = v_dot4_i32_iu8 %353:v[14]*[-1,1], %357:s[15]", "v_dot4_i32_iu8"),
    ],
)
def test_instructions_are_found_in_every_driver_s_text(text: str, name: str) -> None:
    assert instructions(f"L1:\n{text}\n{text}\n")[name] == 2


# Two products in a loop over slices, in a loop over K, in a loop over tiles, in the text of Intel's driver.
NESTED = """
        mov (8)                   r1            r32                               {$11.dst}
L0:
        mov (8)                   r2            r32
L43:
        cmp (8)        (lt)f0.0   null          r104              0x00000009      {I@2}
(f0.0)  if (8)                                jip:L45             uip:L45
        send.ugm (8)              r1      r38    null:0  0x00000000  0x62403500   {$4}  // wr:1+0, load.ugm.d32x4
L45:
        endif (8)                             L50
L50:
(W)     sync.nop (1)                            null                              {$4.src}
(W)     dpas.8x8 (8)              r1<0>:d       r1<0;0,0>:d       r43<0;0,0>:b      r51<0;0,0>:b {$4}
(W)     dpas.8x8 (8)              r9<0>:d       r9<0;0,0>:d       r43<0;0,0>:b      r51<0;0,0>:b {$4}
(~f0.0) while (8)                             L50
(W)     sync.nop (1)                            null                              {$5.src}
        while (8)                             L43
        while (8)                             L0
"""


def test_loops_are_found_with_those_inside_them() -> None:
    found = list(loops(NESTED))
    assert [(loop.first, loop.end, loop.count("dpas"), loop.count("sync.nop")) for loop in found] == [
        (6, 10, 2, 1),
        (2, 12, 2, 2),
        (1, 13, 2, 2),
    ]
    assert [loop.instructions["send.ugm"] for loop in found[1:]] == [1, 1]
    assert list(loops(NESTED.replace("while", "bra"))) == []


def test_a_loop_over_slices_counts_as_often_as_it_runs() -> None:
    """The loop that has a step's products by itself is the loop over K."""
    # The loop over K has 6 instructions beside the 4 of a slice, and a wait beside the slice's.
    expected = {2: ProductCost(4 / 2, 1 / 2), 4: ProductCost(14 / 4, 3 / 4), 6: ProductCost(18 / 6, 4 / 6)}
    for products, cost in expected.items():
        assert product_cost(loops(NESTED), "dpas", "sync.nop", products) == cost


@pytest.mark.parametrize("products", [1, 3])
def test_loops_that_do_not_have_the_products_of_a_step_are_an_error(products: int) -> None:
    with pytest.raises(ValueError, match=r"loops have \[2, 2, 2\] instructions dpas: none of them does the"):
        product_cost(loops(NESTED), "dpas", "sync.nop", products)
    with pytest.raises(ValueError, match=r"loops have \[\] instructions dpas"):
        product_cost([], "dpas", "sync.nop", 4)
    apart = [Loop(0, 4, {"dpas.8x8": 2, "mov": 2}), Loop(0, 9, {"dpas.8x8": 3, "mov": 6})]
    with pytest.raises(ValueError, match=r"\[2, 3\]"):
        product_cost(apart, "dpas", "sync.nop", 4)


FEW_REGISTERS = LOOPS_OVER_K[0]


def with_loops(chip: Chip, number: int, *, outer: int, few_steps: int = 0) -> list[dict[str, Any]]:
    """A pipeline of the kernel for few registers on a chip of Intel's, with 8 products in each step of two slices."""
    constants = {
        **dict.fromkeys(kernel_interface(FEW_REGISTERS).specialization_constants, 0),
        "MATRIX_M": 8,
        "MATRIX_N": 8,
        "MATRIX_K": 32,
        "STEP": 4,
        "FEW_STEPS": few_steps,
        "SUBGROUP_PIXELS": 32,
        "SUBGROUP_CHANNELS": 8,
    }
    begun, finished = pipeline(chip, number, FEW_REGISTERS, mnemonics={"mov": 7, "dpas.8x8": 4})
    begun["specialization"] = list(constants.values())
    inner = {"first": 100, "end": 160, "instructions": {"dpas.8x8": 4, "sync.nop": 20, "mov": 36}}
    around = {"first": 10, "end": 10 + outer, "instructions": {"dpas.8x8": 4, "sync.nop": 60, "mov": outer - 64}}
    finished["executables"][0]["loops"] = [] if few_steps else [inner, around]
    return [begun, finished]


def test_the_loop_over_k_is_held_to_a_limit_on_intel() -> None:
    dg2 = CHIPS["intel-dg2"]
    found = compiled(with_loops(dg2, 0, outer=420), with_loops(dg2, 1, outer=240), chip=dg2)
    assert over(found) == {}
    assert [found.product_cost(each) for each in found.pipelines] == [ProductCost(60, 10), ProductCost(37.5, 10)]
    assert any("in the loop over K 1 in 38 to 60 (10 waits)" in cell for row in record.rows(found) for cell in row)
    assert "60.0 in the loop over K for each product, 10.0 of them waits" in next(record.lines(found))
    assert over(compiled(with_loops(dg2, 0, outer=421), chip=dg2)) == {(FEW_REGISTERS, "instructions a product"): 61}


def test_a_kernel_without_a_loop_over_k_has_no_number() -> None:
    dg2, missing = CHIPS["intel-dg2"], f"intel-dg2: no {FEW_REGISTERS} with a loop over K was compiled"
    found = compiled(with_loops(dg2, 0, outer=420, few_steps=1), chip=dg2)
    assert (FEW_REGISTERS, "instructions a product") not in found.measured()
    assert missing in found.unchecked()
    assert missing not in compiled(with_loops(dg2, 0, outer=420), chip=dg2).unchecked()


WAIVER = Waiver("nvk-ampere", MATRIX, "spills", 5, "tiles of 128x128 need more registers than there are")


def test_a_waiver_allows_its_number_and_no_more() -> None:
    assert list(waivers.faults("nvk-ampere", {(MATRIX, "spills"): 5}, [WAIVER])) == []
    (fault,) = waivers.faults("nvk-ampere", {(MATRIX, "spills"): 6}, [WAIVER])
    assert "6, and at most 5" in fault
    (fault,) = waivers.faults("nvk-ada", {(MATRIX, "spills"): 5}, [WAIVER])
    assert "5, and at most 0" in fault


@pytest.mark.parametrize("measured", [{(MATRIX, "spills"): 0}, {}])
def test_a_waiver_that_is_not_needed_is_a_fault(measured: dict[tuple[str, str], int]) -> None:
    (fault,) = waivers.faults("nvk-ampere", measured, [WAIVER])
    assert "not needed" in fault
    assert list(waivers.shrunk("nvk-ampere", measured, [WAIVER])) == []
    assert list(waivers.faults("nvk-ada", measured, [WAIVER])) == []


def test_waivers_only_shrink() -> None:
    for needed, kept in ((3, 3), (9, 5)):
        found = list(waivers.shrunk("nvk-ampere", {(MATRIX, "spills"): needed}, [WAIVER]))
        assert found == [replace(WAIVER, at_most=kept)]
    assert list(waivers.shrunk("nvk-ada", {}, [WAIVER])) == [WAIVER]


def test_the_list_is_read_as_it_is_written() -> None:
    text = waivers.FILE.read_text(encoding="utf-8")
    found = waivers.read(text)
    assert waivers.write(found) == text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"chip": "voodoo"}, "voodoo"),
        ({"what": "slowness"}, "slowness"),
        ({"at_most": 0}, "by itself"),
        ({"reason": " "}, "no reason"),
    ],
)
def test_an_entry_that_is_none_is_an_error(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        waivers.read(waivers.write([WAIVER]).replace(*_edit(change)))
    with pytest.raises(ValueError, match="two entries"):
        waivers.read(waivers.write([WAIVER, WAIVER]))


def _edit(change: dict[str, Any]) -> tuple[str, str]:
    ((name, value),) = change.items()
    before = getattr(WAIVER, name)
    quote = "" if isinstance(before, int) else '"'
    return f"{name} = {quote}{before}{quote}", f"{name} = {quote}{value}{quote}"


def test_the_page_keeps_the_other_chips_parts_and_the_order_of_chips() -> None:
    page = ""
    for name in ("nvk-ampere", "intel-dg2", "nvk-ampere"):
        chip = CHIPS[name]
        page = record.page(page, compiled(pipeline(chip, 0, MATRIX), chip=chip), "2026-11-23")
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == ["intel-dg2", "nvk-ampere"]
    assert page.count("| convolution/matrix | 1 | 900 | 40 | 16 | 0 | 0 |") == 2
    assert "imma: 1, 1 in 100 |" in page


def test_the_record_has_every_chip() -> None:
    found = re.findall(r"^## (.*)$", record.FILE.read_text(encoding="utf-8"), re.MULTILINE)
    assert found == list(CHIPS)


def test_an_unknown_chip_is_an_error_that_lists_the_chips() -> None:
    result = CliRunner().invoke(main, ["--chip", "intel-dg2 voodoo"])
    assert result.exit_code == 2 and "voodoo is no chip" in result.output and "apple-m2" in result.output


# `make test-compilers` compiles the whole sample for every chip.
AT_NIGHT = ("intel-skl", "nvk-turing", "apple-m1", "amd-navi31")


@pytest.mark.parametrize(
    "name", ["intel-dg2", "adreno-660", *(pytest.param(name, marks=pytest.mark.nightly) for name in AT_NIGHT)]
)
def test_the_sample_has_the_kernels_that_are_checked(name: str) -> None:
    chosen = {each.dispatch.kernel for each in sample.dispatches(load(name), chosen_alone=True)}
    has_matrices = bool(CHIPS[name].matrix_product)
    assert (not chosen.isdisjoint(MATRICES)) == has_matrices
    products = DOT_PRODUCTS if CHIPS[name].dot_product else FLOAT_PRODUCTS
    assert has_matrices or not chosen.isdisjoint(products)
    assert len(chosen) > 12


def test_every_chip_has_a_driver_and_what_stands_in_for_the_kernel() -> None:
    drivers = {chip.driver.name for chip in CHIPS.values()} - {RADV.name}
    assert drivers == set(build.SHIMS) == set(mesa.COMPILERS.drivers)
    sources = {path.stem for path in Path(build.__file__).parent.glob("*.c")}
    assert sources == drivers


@pytest.mark.parametrize(("apt", "compiler", "said"), [(False, "cc", "Debian"), (True, None, "install gcc")])
def test_shims_that_cannot_be_built_say_what_to_do(
    apt: bool, compiler: str | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "FOLDER", tmp_path)
    monkeypatch.setattr(build, "has_apt", lambda: apt)
    monkeypatch.setattr("tools.drm_shims.build.shutil.which", lambda name: compiler)
    with pytest.raises(SetupError, match=said):
        build.get("intel")


def test_a_chip_whose_driver_does_not_start_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    program = [sys.executable, "-c", "raise SystemExit('no device here')"]
    monkeypatch.setattr(compilers, "command", lambda chip: (program, dict(os.environ)))
    result = CliRunner().invoke(main, ["--chip", "apple-m1"])
    assert result.exit_code == 1 and "no device here" in result.output
