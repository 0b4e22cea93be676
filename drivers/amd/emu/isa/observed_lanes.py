"""Find instructions whose results need no mask: later code does not read their lanes that do not execute.

A masked result keeps what the register held in lanes that do not execute. That matters only if one of these
lanes is read later: by an instruction under a wider EXEC, or by one that reads other lanes than its own.
Compilers' code narrows EXEC, computes, and widens it again; most registers are then dead.

Followed backwards through the code, for each vector register: whether it is live, and whether it is live
where EXEC may have been widened since. Unknown instructions count as readers of all lanes.

Not here: where all lanes execute (`full_lanes`). Next: `translate`, the user.
"""

# ruff: noqa: E501 - tables of operations read best on one line

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from drivers.amd.emu.isa.instruction import canonical
from drivers.amd.emu.isa.meanings import LANEWISE
from drivers.amd.emu.isa.operands import EXEC, Reg
from drivers.amd.emu.isa.packed import PACKED
from drivers.amd.emu.isa.registers_used import used

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from drivers.amd.emu.isa.instruction import Instruction
    from drivers.amd.emu.isa.operands import Operand

Block = tuple[list["Instruction"], tuple[int, ...]]

_INDIRECT = ("v_movrel", "s_set_gpr_idx", "v_swaprel")
"""Instructions whose registers are computed when they execute."""
_OWN_LANES = (
    "v_cmp", "v_add_co_", "v_sub_co_", "v_subrev_co_", "v_mad_u64_", "v_mad_i64_", "v_cndmask_", "v_mbcnt_", "v_div_",
    "v_pk_fma_f32", "v_pk_mul_f32", "v_pk_add_f32", "v_pk_mov_b32", "v_fma_mix", "v_swap_b32", "global_", "flat_",
    "scratch_", "buffer_", "ds_load_", "ds_store_", "ds_add_", "ds_sub_", "ds_and_", "ds_or_", "ds_xor_", "ds_min_",
    "ds_max_", "ds_inc_", "ds_dec_", "ds_cmpstore_", "ds_storexchg_",
)  # fmt: skip
"""Operations, apart from `LANEWISE` and `PACKED`, in which each executing lane reads its own values alone."""
_NARROWS = ("s_and_saveexec_", "s_and_not0_saveexec_", "s_and_not0_wrexec_")


@dataclass(frozen=True, slots=True)
class _Effect:
    """The effect of an instruction on vector registers: sets as integers, one bit a register."""

    address: int
    reads: int
    others: int
    """Registers of which it may read lanes that do not execute."""
    written: int
    whole: int
    """Registers that it writes whole in the lanes that execute."""
    widens: bool
    """Whether lanes may execute after it that did not before."""


def unobserved(blocks: list[Block], family: str, lanes: int, full: AbstractSet[int]) -> frozenset[int]:
    """Return the addresses of instructions after which their lanes that did not execute are not read.

    `full` are the addresses at which every lane executes that the wave began with.
    """
    if any(i.stem.startswith(_INDIRECT) for body, _ in blocks for i in body):
        return frozenset()
    effects = {body[0].address: [_effect(i, family, lanes) for i in reversed(body)] for body, _ in blocks}
    before: dict[int, list[int]] = {body[0].address: [] for body, _ in blocks}
    for body, follow in blocks:
        for target in follow:
            before[target].append(body[0].address)
    follows = {body[0].address: follow for body, follow in blocks}
    begins = dict.fromkeys(effects, (0, 0))
    todo = [body[0].address for body, _ in blocks]
    masked: dict[int, bool] = {}
    while todo:
        at = todo.pop()
        live = wide = 0
        for target in follows[at]:
            live |= begins[target][0]
            wide |= begins[target][1]
        for e in effects[at]:
            if e.widens:
                wide |= live
            if e.address in full:
                live &= ~e.whole
                wide &= ~e.whole
            else:
                masked[e.address] = bool(e.written & wide)
                live = (live & ~(e.whole & ~wide)) | (e.written & wide)
            live |= e.reads
            wide |= e.others
        if begins[at] != (live, wide):
            begins[at] = (live, wide)
            todo += before[at]
    return frozenset(address for address, needed in masked.items() if not needed)


def _effect(i: Instruction, family: str, lanes: int) -> _Effect:
    """Return the effect of an instruction, of both parts if it is dual."""
    read, written = used(i, family)
    parts = [i] if i.second is None else [i, i.second]
    stems = [canonical(part.stem, family).replace("v_dual_", "v_") for part in parts]
    moved = bool(i.get("dpp") or i.get("dpp8"))
    own = not moved and all(
        stem in LANEWISE or stem in PACKED or stem.startswith(_OWN_LANES) for stem in stems
    )
    whole = own and not i.get("sdwa") and not any("16" in stem or "mix" in stem for stem in stems)
    written_bits, read_bits = _bits(written), _bits(read)
    if not whole:
        read_bits |= written_bits
    return _Effect(
        address=i.address,
        reads=read_bits,
        others=0 if own else read_bits,
        written=written_bits,
        whole=written_bits if whole else 0,
        widens=bool({("s", EXEC), ("s", EXEC + 1)} & written) and not _narrows(i, stems[0], lanes),
    )


def _bits(registers: set[tuple[str, int]]) -> int:
    """Return a set of vector registers as an integer; accumulation registers begin at bit 512."""
    total = 0
    for file, number in registers:
        if file != "s":
            total |= 1 << (number + (512 if file == "a" else 0))
    return total


def _narrows(i: Instruction, stem: str, lanes: int) -> bool:
    """Return whether an instruction that writes EXEC only removes lanes."""
    if stem.startswith("v_cmpx"):
        return True
    if not stem.endswith(f"b{lanes}"):
        return False
    if stem.startswith(_NARROWS):
        return True
    if not stem.startswith("s_and") or "exec_" in stem:
        return False
    _, a, b = i.operands
    if stem == f"s_and_not1_b{lanes}":
        return _is_exec(a)
    if stem == f"s_and_not0_b{lanes}":
        return _is_exec(b)
    return stem == f"s_and_b{lanes}" and (_is_exec(a) or _is_exec(b))


def _is_exec(operand: Operand) -> bool:
    return isinstance(operand, Reg) and operand.file == "s" and operand.index == EXEC
