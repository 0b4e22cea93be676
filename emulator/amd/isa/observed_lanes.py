"""Instructions whose results need no mask: all lanes execute, or the other lanes are not read later.

A masked result keeps the old value in lanes that do not execute. The old value matters only if it is read
later. An instruction under a wider EXEC may read it, or one that reads other lanes than its own. Compilers
narrow EXEC, compute, and widen it again; most registers are then dead.

`everywhere` follows the first value of EXEC, and its copies in scalar registers, forwards through the code. A
lane that the workgroup does not have may then get results, too; its registers are undefined. `unobserved`
follows each vector register backwards: whether it is live, and whether it is live after EXEC may have widened.
An unknown instruction counts as a reader of all lanes.

Not here: the mask itself (`values`). Next: `translate`, the user.
"""

# ruff: noqa: E501 - tables of operations read best on one line

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from emulator.amd.isa.instruction import EXEC, VCC, Imm, Operand, Reg, canonical
from emulator.amd.isa.meanings import LANEWISE
from emulator.amd.isa.packed import PACKED
from emulator.amd.isa.registers_used import used

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from emulator.amd.isa.instruction import CodeBlock, Instruction

# Scalar instructions that write no scalar register.
_NO_DESTINATION = (
    "s_cmp",
    "s_bitcmp",
    "s_cbranch",
    "s_branch",
    "s_wait",
    "s_barrier",
    "s_setreg",
    "s_sendmsg",
)


def everywhere(blocks: list[CodeBlock], lanes: int) -> frozenset[int]:
    """Return the addresses of instructions at which EXEC surely has its value from the start of the wave.

    `lanes` of the wave are 32 or 64.
    """
    width = lanes // 32
    begins: dict[int, frozenset[int]] = {blocks[0][0][0].address: frozenset([EXEC])}
    by_address = {body[0].address: (body, follow) for body, follow in blocks}
    todo = [blocks[0][0][0].address]
    full: dict[int, bool] = {}
    while todo:
        body, follow = by_address[todo.pop()]
        known = begins[body[0].address]
        for instruction in body:
            full[instruction.address] = EXEC in known
            known = _after(instruction, known, width)
        for target in follow:
            merged = known if target not in begins else begins[target] & known
            if begins.get(target) != merged:
                begins[target] = merged
                todo.append(target)
    return frozenset(address for address, yes in full.items() if yes)


def _index(operand: Operand) -> int | None:
    return operand.index if isinstance(operand, Reg) and operand.file == "s" else None


def _after(i: Instruction, known: frozenset[int], width: int) -> frozenset[int]:
    """Return the scalar registers that hold the first value of EXEC after an instruction."""
    stem = i.stem
    if stem.startswith("v_cmpx"):
        return known - {EXEC, VCC}
    if not i.operands or stem.startswith(_NO_DESTINATION):
        return known
    written = {
        r
        for operand in i.operands[: 2 if stem.startswith("v_") else 1]
        if isinstance(operand, Reg) and operand.file == "s"
        for r in range(operand.index - 1, operand.index + operand.count)
    }
    whole = stem.endswith("b64" if width == 2 else "b32")
    d = _index(i.operands[0])
    sources = [_index(o) in known for o in i.operands[1:] if not isinstance(o, Imm)]
    if stem.endswith(("saveexec_b32", "saveexec_b64")):
        kept = known - written - {EXEC}
        if whole and EXEC in known and d is not None:
            kept |= {d}
        if whole and stem.startswith("s_or_save") and (EXEC in known or any(sources)):
            kept |= {EXEC}
        return kept
    after = known - written - ({EXEC} if "wrexec" in stem else set())
    if whole and d is not None:
        if stem.startswith("s_mov_b") and any(sources):
            return after | {d}
        if stem.startswith("s_or_b") and any(sources):
            return after | {d}
        if stem.startswith("s_and_b") and len(sources) == 2 and all(sources):
            return after | {d}
    return after


_INDIRECT = ("v_movrel", "s_set_gpr_idx", "v_swaprel")
"""Instructions whose register numbers are known only when they execute."""
_OWN_LANES = (
    "v_cmp", "v_add_co_", "v_sub_co_", "v_subrev_co_", "v_mad_u64_", "v_mad_i64_", "v_cndmask_", "v_mbcnt_", "v_div_",
    "v_pk_fma_f32", "v_pk_mul_f32", "v_pk_add_f32", "v_pk_mov_b32", "v_fma_mix", "v_swap_b32", "global_", "flat_",
    "scratch_", "buffer_", "ds_load_", "ds_store_", "ds_add_", "ds_sub_", "ds_and_", "ds_or_", "ds_xor_", "ds_min_",
    "ds_max_", "ds_inc_", "ds_dec_", "ds_cmpstore_", "ds_storexchg_",
)  # fmt: skip
"""Operations, beside `LANEWISE` and `PACKED`, in which each lane reads its own values only."""
# Instructions that can only remove lanes from EXEC.
_NARROWS = ("s_and_saveexec_", "s_and_not0_saveexec_", "s_and_not0_wrexec_")


@dataclass(frozen=True, slots=True)
class _Effect:
    """The effect of an instruction on vector registers. Sets of registers are integers, one bit each."""

    address: int
    reads: int
    others: int
    """Registers of which lanes that do not execute may be read."""
    written: int
    whole: int
    """Registers of which all 32 bits are written, in the lanes that execute."""
    widens: bool
    """Whether lanes may execute after it that did not before."""


def unobserved(blocks: list[CodeBlock], family: str, lanes: int, full: AbstractSet[int]) -> frozenset[int]:
    """Return the addresses of instructions whose results are not read in lanes that did not execute.

    `full` is the result of `everywhere`. Returns an empty set for code with indirect register access.
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
    """Return the effect of an instruction, of both halves if it is dual-issue."""
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
    """Return whether an instruction that writes EXEC can only remove lanes."""
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
