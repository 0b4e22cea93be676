"""The verifier of waits: good code gives no report, code without one of its waits does."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from emulator.amd.isa import programs
from emulator.amd.isa.decode import decode
from emulator.amd.isa.instruction import Instruction, Reg, Word
from emulator.amd.isa.opcodes import target
from emulator.amd.isa.translate import read_kernel
from emulator.amd.isa.waits import missing_waits, waited
from emulator.ir.report import ReportKind, parse
from tests.emulator.amd_isa import ir
from tests.emulator.amd_isa.conftest import compiled

if TYPE_CHECKING:
    from emulator.amd.isa.instruction import Operand

HALVES = """
@l = internal addrspace(3) global [1024 x half] undef, align 16
define amdgpu_kernel void @k(ptr addrspace(1) %p, ptr addrspace(1) %q, ptr addrspace(1) %r) {
  %x = load half, ptr addrspace(1) %p
  %y = load half, ptr addrspace(1) %q
  %z = load half, ptr addrspace(1) %r
  store half %x, ptr addrspace(3) @l
  store half %y, ptr addrspace(3) getelementptr (half, ptr addrspace(3) @l, i32 256)
  %product = fmul half %z, 0xH4200
  store half %product, ptr addrspace(3) getelementptr (half, ptr addrspace(3) @l, i32 512)
  ret void
}
"""
KERNELS = {
    "reduction": ir.REDUCTION,
    "scratch": ir.SCRATCH,
    "histogram": ir.HISTOGRAM,
    "shuffle": ir.SHUFFLE,
    "halves": HALVES,
}
_ORDERS_STORES = {
    "gfx1100": {"s_waitcnt_vscnt null, 0x0"},
    "gfx1201": {"s_wait_storecnt 0x0"},
    "gfx942": {"s_waitcnt vmcnt(0)"},
}
"""Waits that make stores visible: no register depends on them."""


def _instructions(text: str, name: str) -> list[Instruction]:
    kernel = programs.kernels(compiled(text, name), name)["k"]
    return read_kernel(kernel.code, kernel.target, lanes=kernel.lanes, kernel="k")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["gfx1100", "gfx1201", "gfx942"])
def test_only_code_without_its_waits_is_reported(name: str) -> None:
    family = target(name).family
    for kernel in KERNELS.values():
        code = _instructions(kernel, name)
        assert missing_waits(code, family, kernel="k") == []
        for number, instruction in enumerate(code):
            if not waited(instruction, family):
                continue
            without = list(code)
            opcode = replace(instruction.opcode, name="s_nop")
            without[number] = replace(instruction, opcode=opcode, name="s_nop")
            assert missing_waits(without, family, kernel="k") or instruction.text in _ORDERS_STORES[name], (
                instruction.text
            )


def _code(words: str, name: str = "gfx1100") -> list[Instruction]:
    return decode(b"".join(int(w, 16).to_bytes(4, "little") for w in words.split()), target(name))


LOAD_0, LOAD_1, ADD_0 = "DC520000 007C0004", "DC520000 017C0004", "06060500"
"""global_load_b32 v0 and v1, v[4:5], off; v_add_f32 v3, v0, v2."""


def test_a_report_names_instruction_register_counter_and_access() -> None:
    code = _code(f"BF800000 {LOAD_0} {ADD_0} BFB00000")
    (found,) = missing_waits(code, "gfx11", kernel="k")
    assert (found.kind, found.kernel, found.line) == (ReportKind.MISSING_WAIT, "k", 12)
    assert (found.instruction, found.thread) == (code[2].text, None)
    assert found.other == f"line 4: {code[1].text}; v0 needs a wait for vmcnt"
    assert parse(f"{found}; pc 0x10") == [(found, "")]


@pytest.mark.parametrize(("count", "reports"), [(0, 0), (1, 0), (2, 1)])
def test_loads_return_in_order(count: int, reports: int) -> None:
    wait = f"{0xBF8903F7 | count << 10:08X}"
    found = missing_waits(_code(f"{LOAD_0} {LOAD_1} {wait} {ADD_0} BFB00000"), "gfx11", kernel="k")
    assert len(found) == reports


@pytest.mark.parametrize(("count", "reports"), [(0, 0), (1, 1)])
def test_scalar_loads_return_in_any_order(count: int, reports: int) -> None:
    """s_load_b32 s0, s_load_b32 s1, s_waitcnt lgkmcnt(count), s_mov_b32 s2, s0."""
    wait = f"{0xBF89FC07 | count << 4:08X}"
    words = f"F4000002 F8000000 F4000042 F8000000 {wait} BE820000 BFB00000"
    assert len(missing_waits(_code(words), "gfx11", kernel="k")) == reports


def test_stores_to_lds_must_have_arrived_at_a_barrier() -> None:
    store, wait, barrier = "D8340000 00000100", "BF89FC07", "BFBD0000"
    assert missing_waits(_code(f"{store} {wait} {barrier} BFB00000"), "gfx11", kernel="k") == []
    (found,) = missing_waits(_code(f"{store} {barrier} BFB00000"), "gfx11", kernel="k")
    assert found.other.endswith("; LDS needs a wait for lgkmcnt")
    (found,) = missing_waits(_code(f"{store} {barrier} {wait} BFB00000"), "gfx11", kernel="k")
    assert found.instruction == "s_barrier"


def test_stores_to_lds_of_the_turn_before_must_have_arrived_at_a_barrier() -> None:
    """A loop of s_barrier, ds_store_b32, s_cbranch_scc1, with and without a wait at its begin."""
    store, wait, barrier = "D8340000 00000100", "BF89FC07", "BFBD0000"
    assert missing_waits(_code(f"{wait} {barrier} {store} BFA2FFFB BFB00000"), "gfx11", kernel="k") == []
    (found,) = missing_waits(_code(f"{barrier} {store} BFA2FFFC BFB00000"), "gfx11", kernel="k")
    assert found.line == 0
    assert found.other.startswith("line 4: ds_store_b32")


@pytest.mark.parametrize(("wait", "reports"), [("BF8903F7", 0), ("BF800000", 1)])
def test_what_a_buffer_atomic_gives_back_needs_a_wait(wait: str, reports: int) -> None:
    """buffer_atomic_add_u32 v0, off, s[8:11], 0 glc, in place of its data."""
    assert (
        len(missing_waits(_code(f"E0D44000 80020000 {wait} {ADD_0} BFB00000"), "gfx11", kernel="k"))
        == reports
    )


def test_a_wait_on_one_of_two_ways_is_not_enough() -> None:
    """The branch over the wait leads to the use as well."""
    words = f"{LOAD_0} BFA10001 BF8903F7 {ADD_0} BFB00000"
    assert len(missing_waits(_code(words), "gfx11", kernel="k")) == 1


FAMILIES = {"gfx1100": "gfx11", "gfx1201": "gfx12"}
SPACES = ("global", "flat", "scratch", "buffer")
LOADS = {
    f"{space}_load_d16_{hi}{kind}": "h" if hi else "l"
    for space in SPACES
    for hi in ("", "hi_")
    for kind in ("u8", "i8", "b16")
} | {f"ds_load_{kind}_d16{hi}": "h" if hi else "l" for hi in ("", "_hi") for kind in ("u8", "i8", "u16")}
"""Loads that write one half of their register, and which."""
STORES = (
    {f"{space}_store_b{bits}": "l" for space in (*SPACES, "ds") for bits in (8, 16)}
    | {f"{space}_store_d16_hi_b{bits}": "h" for space in SPACES for bits in (8, 16)}
    | {f"ds_store_b{bits}_d16_hi": "h" for bits in (8, 16)}
)
"""Stores that read one half of their register, and which."""
WHOLE_STORES = ("global_store_b32", "ds_store_b32", "flat_store_b64", "scratch_store_b128")


def _made(name: str, address: int, stem: str, *operands: Operand) -> Instruction:
    """Return an instruction of a target."""
    opcode = next(o for o in target(name).opcodes.values() if o.stem == stem)
    return Instruction(address, 8, opcode, stem, operands)


def _access(name: str, address: int, stem: str, data: Reg, pointer: Reg) -> Instruction:
    opcode = next(o for o in target(name).opcodes.values() if o.stem == stem)
    by_field: dict[str, Operand] = dict.fromkeys(("vdst", "vdata", "data0"), replace(data))
    by_field |= dict.fromkeys(("vaddr", "addr", "off"), pointer)
    operands = (by_field.get(slot.field, Word("off")) for slot in opcode.operands)
    return _made(name, address, stem, *operands)


def _reports(name: str, *code: Instruction) -> list[int]:
    end = _code("BFB00000", name)[0]
    found = missing_waits([*code, replace(end, address=code[-1].next)], FAMILIES[name], kernel="k")
    return [report.line for report in found]


POINTER = Reg("v", 20, 2)


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_a_store_of_a_half_waits_for_loads_of_this_half_alone(name: str) -> None:
    for load, written in LOADS.items():
        first = _access(name, 0, load, Reg("v", 7), POINTER)
        for store, read in STORES.items():
            second = _access(name, 8, store, Reg("v", 7), POINTER)
            assert _reports(name, first, second) == ([8] if read == written else []), (load, store)
        for store in WHOLE_STORES:
            second = _access(name, 8, store, Reg("v", 6, 4), POINTER)
            assert _reports(name, first, second) == [8], (load, store)


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_loads_into_the_halves_of_a_register_do_not_wait_for_each_other(name: str) -> None:
    """A load into the same half by another counter may arrive first and be overwritten."""
    for load, half in LOADS.items():
        first = _access(name, 0, load, Reg("v", 7), POINTER)
        for other, second_half in LOADS.items():
            second = _access(name, 8, other, Reg("v", 7), POINTER)
            same = other.startswith("flat") or load.startswith("ds") == other.startswith("ds")
            early = half == second_half and (load.startswith("flat") or not same)
            assert _reports(name, first, second) == ([8] if early else []), (load, other)


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_an_address_is_a_whole_register(name: str) -> None:
    for load in LOADS:
        first = _access(name, 0, load, Reg("v", 7), POINTER)
        for store in STORES:
            for pointer in (Reg("v", 6, 2), Reg("v", 7, 2), Reg("v", 7)):
                second = _access(name, 8, store, Reg("v", 7), pointer)
                assert _reports(name, first, second) == [8], (load, store, pointer)


@pytest.mark.parametrize("name", sorted(FAMILIES))
@pytest.mark.parametrize("half", ["l", "h", ""])
def test_arithmetic_waits_for_both_halves(name: str, half: str) -> None:
    """Where it uses a half, the GPU writes 32 bits back (`hasD16Writes32BitVgpr` of LLVM)."""
    used = Reg("v", 7, half=half)
    other = Reg("v", 9, half=half)
    stem = "v_add_f16" if half else "v_add_f32"
    for load in LOADS:
        first = _access(name, 0, load, Reg("v", 7), POINTER)
        for operands in ((other, used, other), (other, other, used), (used, other, other)):
            assert _reports(name, first, _made(name, 8, stem, *operands)) == [8], load
        assert _reports(name, first, _made(name, 8, stem, other, other, other)) == []


def test_halves_of_gfx9_are_not_tracked() -> None:
    """LLVM knows no 16-bit registers there: with ECC a D16 load clears the other half."""
    opcodes = {o.stem: o for o in target("gfx942").opcodes.values()}
    load = Instruction(0, 8, opcodes["global_load_short_d16_hi"], "", (Reg("v", 7), POINTER, Word("off")))
    store = Instruction(8, 8, opcodes["global_store_short"], "", (POINTER, Reg("v", 7), Word("off")))
    end = Instruction(16, 4, opcodes["s_endpgm"], "", ())
    assert [r.line for r in missing_waits([load, store, end], "gfx9", kernel="k")] == [8]
