"""Translates a kernel's machine code to a wave function: basic blocks, branches, barriers, initial registers.

Every error is an `IsaError` that names kernel, address and instruction. Source of the initial registers:
LLVM, AMDGPUUsage, "Initial Kernel Execution State".

Not here: single operations (`meanings`), the function's frame (`emulator.simt.wave_function`), the cache of
translated kernels (`programs`). Next: `values`, which reads and writes registers.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from emulator.amd.isa import (  # noqa: F401 - importing one registers what its instructions mean
    calls,
    compares,
    conversions,
    counted,
    division,
    indirect,
    lanes,
    matrix,
    memory,
    memory_atomics,
    modes,
    packed,
    program,
    scalar_memory,
    scalars,
    vector_floats,
    vector_integers,
)
from emulator.amd.isa.decode import one
from emulator.amd.isa.guesses import guesses, may_wait, polled
from emulator.amd.isa.instruction import EXEC, TTMP, VCC, Reg
from emulator.amd.isa.known_values import Known
from emulator.amd.isa.meanings import LANEWISE, MEANINGS, run_lanewise
from emulator.amd.isa.modes import KEEP_ALL
from emulator.amd.isa.observed_lanes import everywhere, unobserved
from emulator.amd.isa.orders import ACQUIRED, RELEASED, RELEASED_UNMARKED, orders
from emulator.amd.isa.registers_used import used
from emulator.amd.isa.values import IsaTranslator
from emulator.ir.findings import i32
from emulator.ir.report import ReportKind
from emulator.ir.state import PACKED_IDS, SPLIT_BARRIER
from emulator.sanitizers import sanitize
from emulator.simt import cluster_barrier
from emulator.simt.counting import Counting
from emulator.simt.wave_function import WaveBlock, WaveFunction

if TYPE_CHECKING:
    from emulator.amd.isa.instruction import CodeBlock, Instruction
    from emulator.amd.isa.opcodes import IsaTarget
    from emulator.ir.library import Library
    from emulator.ir.vector import IrValue
    from emulator.simt.blocks import Translation

_VECTORS, _SCALARS = 512, 128
"""Registers of a vector file, and scalar registers, that a wave function has."""
_BARRIERS = {"s_barrier", "s_barrier_wait"}
_BRANCHES = {
    "s_branch",
    "s_cbranch_scc0",
    "s_cbranch_scc1",
    "s_cbranch_vccz",
    "s_cbranch_vccnz",
    "s_cbranch_execz",
    "s_cbranch_execnz",
}
_EXEC = frozenset({("s", EXEC), ("s", EXEC + 1)})
_ALL = 0xFFFF
_FIRST_WAVE = 1 << 31
_WAVE_AT = 25
"""First of the five bits of TTMP8 in which gfx12 holds a wave's number in its workgroup."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelEntry:
    """The initial registers of a wave, from the kernel descriptor."""

    user_sgprs: int
    """Scalar registers that the launch sets: the first dwords of its parameters."""
    group_ids: tuple[bool, bool, bool] = (True, False, False)
    """Whether a wave gets its workgroup's x, y and z."""
    group_info: bool = False
    """Whether a wave gets the number of waves of its workgroup, and whether it is the first."""
    modes: int = KEEP_ALL
    """The floating-point mode (`modes.at_start`)."""
    code_address: bool = False
    """Whether the parameters end with the code's address, 8 bytes after the registers. Without it a kernel
    that reads its own address (`s_getpc_b64`) is refused."""


def read_kernel(
    code: bytes, target: IsaTarget, *, lanes: int, kernel: str, before: int = 0
) -> list[Instruction]:
    """Decode the instructions that a kernel can reach from its first byte.

    Returns them in the order of addresses. The kernel begins `before` bytes after the start of `code`.
    Functions that it calls may lie before it, at negative addresses. Raises `IsaError` for an unknown
    encoding, or an address outside of `code`.
    """
    found: dict[int, Instruction] = {}
    todo = [0]
    while todo:
        while todo:
            at = todo.pop()
            while at not in found:
                instruction = one(code, at, target, lanes=lanes, kernel=kernel, before=before)
                found[at] = instruction
                if instruction.stem in _BRANCHES:
                    todo.append(branch_target(instruction))
                if instruction.stem in ("s_branch", "s_endpgm", "s_setpc_b64"):
                    break
                at = instruction.next
        todo = [
            at
            for ways in _calls([found[at] for at in sorted(found)]).values()
            for at in ways
            if at not in found
        ]
    return [found[at] for at in sorted(found)]


def _calls(instructions: list[Instruction]) -> dict[int, tuple[int, ...]]:
    """Return address of a call or return -> the addresses where it may lead (`calls.leads`)."""
    if not any(i.stem in calls.JUMPS for i in instructions):
        return {}
    return calls.leads(instructions, {branch_target(i) for i in instructions if i.stem in _BRANCHES})


def branch_target(instruction: Instruction) -> int:
    """Return the address that a branch leads to."""
    offset = instruction.get("simm16")
    return instruction.next + 4 * (offset - 0x10000 if offset >> 15 else offset)


def cut(instructions: list[Instruction]) -> list[CodeBlock]:
    """Return basic blocks, the kernel's first one first: (instructions, addresses of the next blocks).

    A call or return whose targets are not known is followed by none. `instructions` are those of
    `read_kernel`.
    """
    called = _calls(instructions)
    leaders = {instructions[0].address}.union({0} if called else (), *called.values())
    for i in instructions:
        if i.stem in _BRANCHES:
            leaders |= {branch_target(i), i.next}
        elif i.address in called or i.stem in _BARRIERS or i.stem in ("s_endpgm", "s_trap"):
            leaders.add(i.next)
    blocks: list[CodeBlock] = []
    body: list[Instruction] = []
    for i in instructions:
        if body and i.address in leaders:
            body = []
        if not body:
            blocks.append((body, ()))
        body.append(i)
        last = i.stem
        follow: tuple[int, ...] = (i.next,)
        if last in ("s_endpgm", "s_trap"):
            follow = ()
        elif i.address in called:
            follow = called[i.address]
        elif last == "s_branch":
            follow = (branch_target(i),)
        elif last in _BRANCHES:
            follow = tuple(dict.fromkeys((branch_target(i), i.next)))
        blocks[-1] = (body, follow)
    return sorted(blocks, key=lambda block: block[0][0].address != 0) if called else blocks


def translate(lib: Library, name: str, code: bytes, target: IsaTarget, entry: KernelEntry) -> Translation:
    """Write the wave function of a kernel.

    Raises `IsaError` for an instruction or mode that is not supported. `name` names the kernel in reports and
    in the function; `entry` has the wave's first registers.
    """
    instructions = read_kernel(code, target, lanes=lib.lanes, kernel=name)
    return translate_instructions(lib, name, instructions, target, entry)


def translate_instructions(
    lib: Library, name: str, instructions: list[Instruction], target: IsaTarget, entry: KernelEntry, *,
    counts: bool = False,
) -> Translation:  # fmt: skip
    """Do as `translate`, for the result of `read_kernel` with `lib.lanes` lanes.

    With `counts` the function counts its instructions and accesses.
    """
    modes.check(entry.modes, None, name)
    blocks = cut(instructions)
    begun = modes.at_blocks(blocks, entry.modes, name)
    full = everywhere(blocks, lib.lanes)
    full |= unobserved(blocks, target.family, lib.lanes, full)
    spins = may_wait(blocks, target.family)
    translators: list[IsaTranslator] = []  # filled below: the blocks that it emits must exist first
    made = [
        WaveBlock(
            body[0].address,
            lambda _, body=body, follow=follow: _emit(  # type: ignore[misc]
                translators[0], body, follow, full, begun.get(body[0].address, entry.modes)
            ),
            follow,
        )
        for body, follow in blocks
    ]
    wf = WaveFunction(
        lib,
        re.sub(r"[^\w.$-]", "_", name),
        made,
        dict(_registers(lib.v("i32"))),
        lambda _: _begin(translators[0], entry),
        spins=spins,
    )
    if counts:
        wf.counting = Counting(wf, counted.LINE)
    code_at = 4 * entry.user_sgprs if entry.code_address else None
    translators.append(IsaTranslator(wf, target, name, code_at=code_at))
    translators[0].highest = highest_vector(instructions)
    if lib.checks.global_races:
        translators[0].orders = orders(blocks, target.family)
    if lib.checks.shared_races:
        translators[0].polled = polled(blocks, target.family)
    if lib.checks.global_races or lib.checks.shared_races:
        translators[0].guesses = guesses(blocks, target.family)
    return wf.translate()


@functools.cache
def _registers(vector: str) -> dict[str, str]:
    """Return the IR types of all registers by name."""
    scalars = {f"s{n}": "i32" for n in range(_SCALARS)} | {"scc": "i1"}
    return scalars | {f"{file}{n}": vector for file in "va" for n in range(_VECTORS)}


def highest_vector(instructions: list[Instruction]) -> int:
    """Return the number of the highest vector register that code names; -1 for none."""
    parts = (part for one in instructions for part in (one, one.second) if part is not None)
    named = (operand for part in parts for operand in part.operands if isinstance(operand, Reg))
    return max((operand.index + operand.count - 1 for operand in named if operand.file == "v"), default=-1)


def _begin(t: IsaTranslator, entry: KernelEntry) -> None:
    """Set the registers that are defined when a wave starts."""
    c, wf = t.c, t.wf
    params = wf.of_thread("params")
    for n in range(entry.user_sgprs):
        wf.write(f"s{n}", c.load("i32", c.gep(params, 4 * n), align=4))
    ids = [wf.of_group(axis) for axis in "xyz"]
    if t.target.family == "gfx12":
        wf.write(f"s{TTMP + 9}", ids[0])
        wf.write(f"s{TTMP + 7}", c.op("or", ids[1], c.op("shl", ids[2], 16)))
        wf.write(f"s{TTMP + 8}", c.op("shl", wf.of_warp("index"), _WAVE_AT))
    else:
        at = entry.user_sgprs
        for wanted, value in zip(entry.group_ids, ids, strict=True):
            if wanted:
                wf.write(f"s{at}", value)
                at += 1
        if entry.group_info:
            first = c.select(c.icmp("eq", wf.of_warp("index"), 0), c.const("i32", _FIRST_WAVE), i32(0))
            wf.write(f"s{at}", c.op("or", first, wf.of_group("warps")))
    lanes_there = c.resize(wf.of_warp("live"), t.lanes)
    if t.lanes == 32:
        wf.write(f"s{EXEC}", lanes_there)
    else:
        wf.write(f"s{EXEC}", c.resize(lanes_there, 32))
        wf.write(f"s{EXEC + 1}", c.resize(c.op("lshr", lanes_there, 32), 32))
    wf.write("v0", wf.thread_id(PACKED_IDS))
    wf.write("scc", c.const("i1", 0))


def _emit(
    t: IsaTranslator, body: list[Instruction], follow: tuple[int, ...], full: frozenset[int], begun: int
) -> None:
    """Write a basic block that begins in float mode `begun`.

    At the addresses in `full` results need no mask.
    """
    t.known, t.modes = Known(), begun
    if t.wf.counting is not None:
        t.wf.counting.begin_block()
    for instruction in body[:-1]:
        write_instruction(t, instruction, unmasked=instruction.address in full)
    last = body[-1]
    t.begin(last, unmasked=last.address in full)
    if _ends(last):
        _count(t, last)
    if last.stem in _BRANCHES:
        _branch(t, last)
    elif last.stem in calls.JUMPS:
        _jump(t, last, follow)
    elif last.stem in _BARRIERS:
        _barrier(t, last)
    elif last.stem == "s_endpgm":
        t.wf.exit()
    elif last.stem == "s_trap":
        t.wf.report(ReportKind.TRAP, t.site(), i32(0))
        t.wf.exit()
    else:
        write_instruction(t, last, unmasked=last.address in full)
        t.wf.jump(last.next)
    if t.index_mode:
        raise t.error("index mode beyond the end of a basic block is not supported")


def _ends(last: Instruction) -> bool:
    return last.stem in _BRANCHES | _BARRIERS | calls.JUMPS or last.stem in ("s_endpgm", "s_trap")


def _count(t: IsaTranslator, instruction: Instruction) -> None:
    """Count an instruction, if the kernel counts."""
    if t.wf.counting is not None:
        lanes = t.active if counted.executes_in_lanes(t.stem) else None
        t.wf.counting.execute(counted.counted_as(instruction, t.target.family), lanes)


def _branch(t: IsaTranslator, last: Instruction) -> None:
    """Write a branch on SCC, or on whether VCC or EXEC is 0."""
    target = branch_target(last)
    how = last.stem.removeprefix("s_cbranch_")
    if last.stem == "s_branch" or target == last.next:
        t.wf.jump(target)
    elif how.startswith("scc"):
        yes, no = (target, last.next) if how == "scc1" else (last.next, target)
        t.wf.branch(t.scc(), yes, no)
    else:
        mask = t.mask_at(EXEC if how.startswith("exec") else VCC)
        zero: IrValue = t.c.icmp("eq", mask, 0)
        yes, no = (target, last.next) if how.endswith("z") and not how.endswith("nz") else (last.next, target)
        t.wf.branch(zero, yes, no)


def _jump(t: IsaTranslator, last: Instruction, ways: tuple[int, ...]) -> None:
    """Continue at the address in the last operand; a call writes its return address to the first.

    `ways` are the addresses where it may lead; the wave is checked against them.
    """
    if not ways:
        raise t.error("the target of this jump is not known: the code does not compute a function's address")
    start, c = scalars.code_start(t), t.c
    at = c.op("sub", t.scalar(last.operands[-1], 64), start)
    if last.stem == calls.CALL:
        t.set_scalar(last.operands[0], c.op("add", start, last.next))
    t.wf.switch(at, ways, t.site())


def _barrier(t: IsaTranslator, last: Instruction) -> None:
    """Wait for the whole workgroup; on gfx12 the wave has signalled before."""
    number = 0
    if last.stem == "s_barrier_wait":
        if last.get("simm16") != _ALL:
            raise t.error("only the workgroup's barrier (-1) is supported")
        number = SPLIT_BARRIER
    t.wf.sleep(number, last.next, t.site())


def _signal(t: IsaTranslator) -> None:
    """s_barrier_signal: this wave has reached the barrier. A second signal before the wait is reported."""
    if str(t.instruction.operands[0]) != "-1":
        raise t.error("only the workgroup's barrier (-1) is supported")
    t.c.call(cluster_barrier.signal(t.lib), "void", t.wf.warp, i32(t.site()))


MEANINGS["s_barrier_signal"] = _signal


def write_instruction(t: IsaTranslator, instruction: Instruction, *, unmasked: bool) -> None:
    """Write the code of one instruction that does not end a block."""
    t.begin(instruction, unmasked=unmasked)
    _count(t, instruction)
    masks = t.wf.counting is not None and not _EXEC.isdisjoint(used(instruction, t.target.family)[1])
    before = t.active if masks else None
    order = t.orders.get(instruction.address)
    if order in (RELEASED, RELEASED_UNMARKED):
        sanitize.released(t.wf, sanitize.OrderScope.ALL)
    _write(t, instruction)
    if order == ACQUIRED:
        sanitize.acquired(t.wf, sanitize.OrderScope.ALL)
    if t.wf.counting is not None and before is not None:
        t.wf.counting.narrow(before, t.active)


def _write(t: IsaTranslator, instruction: Instruction) -> None:
    if instruction.second is None:
        _one(t)
        return
    with t.together():
        _one(t)
        t.instruction = instruction.second
        _one(t)
    t.instruction = instruction


def _one(t: IsaTranslator) -> None:
    """Write the code of one operation by the table that defines it. Raises `IsaError` if none does."""
    stem = t.stem.replace("v_dual_", "v_")
    if modes.unknown(stem, t.modes):
        raise t.error(f"no public source documents it in float mode {t.modes:#x}; try {KEEP_ALL:#x}")
    if indirect.move(t):
        return
    if t.instruction.get("dpp") or t.instruction.get("dpp8"):
        lanes.apply_dpp(t)
    if stem in packed.PACKED:
        packed.run_packed(t)
        return
    act = MEANINGS.get(stem)
    if act is not None:
        act(t)
        return
    entry = LANEWISE.get(stem)
    if entry is None:
        raise t.error("this instruction is not supported")
    run_lanewise(t, entry)
