"""Translation of a flat PTX kernel to a warp function: blocks, register liveness, control flow, barriers.

Not here: single instructions (`core` and its users), the function's frame (`emulator.simt.warp_function`).
Next: `blocks`, which splits a kernel into the basic blocks translated here.
"""

# ruff: noqa: ARG005, E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from emulator.ir.findings import i32
from emulator.ir.report import ReportKind
from emulator.ir.state import BARRIER, CLUSTER_BARRIER, REGISTER_POOL
from emulator.ir.vector import IrValue
from emulator.nv.ptx import (  # noqa: F401 - importing one registers what its instructions mean
    async_copies,
    atomics,
    bits,
    bulk,
    bulk_ring,
    compare,
    convert,
    counted,
    floats,
    integers,
    legal,
    mbarrier,
    memory,
    mma,
    roots,
    tensor_copies,
    warp,
    wgmma,
    wgmma_order,
    wmma,
)
from emulator.nv.ptx.blocks import ENDS, BasicBlock, blocks, guesses, polls, reads, warp_mask, writes
from emulator.nv.ptx.core import MEANINGS, Modifiers, PtxTranslator, meaning, operands
from emulator.nv.ptx.integers import CARRY
from emulator.nv.ptx.statements import TYPES, Operand, PtxError, PtxImm, PtxInstruction, PtxReg
from emulator.nv.ptx.syntax import WITH_COORDINATES
from emulator.sanitizers import read_groups, sanitize
from emulator.simt import cluster_barrier, register_pool
from emulator.simt.blocks import Convergence, Translation, WarpBlock
from emulator.simt.counting import Counting
from emulator.simt.dispatch import barrier_at
from emulator.simt.warp_function import WarpFunction

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emulator.ir.library import Library
    from emulator.nv.ptx.flat import Flat

_CLUSTERS = 90
"""The first architecture with clusters and setmaxnreg."""
_WAITING = {"atom", "red", "nanosleep", "mbarrier", "membar", "fence"}
"""Opcodes of kernels in which a loop may wait for another warp."""
_WAITING_WORDS = {"volatile", "acquire", "relaxed", "mmio", "try_wait", "test_wait"}
"""Modifiers of instructions in such kernels."""


def translate(lib: Library, flat: Flat, *, arch: int, counts: bool = False) -> Translation:
    """Return the warp function of a kernel, as LLVM IR, and what the engine needs to know of it.

    `arch` is the number of the target architecture, 80 for sm_80. With `counts` the code counts what it executes. Raises
    `PtxError`, with the line, for an instruction or modifier that is not supported.
    """
    cut = blocks(flat)
    registers = {name: TYPES[type_] for name, type_ in flat.registers.items()} | {CARRY: 1}
    lazy = _lazy_nans(flat)
    hazards = wgmma_order.hazards(cut) if lib.checks.shared_races else {}
    translators: list[PtxTranslator] = []  # filled below: the blocks that it emits must exist first
    made = []
    for number, block in enumerate(cut):
        uses, defs = _uses_and_defs(block)
        made.append(WarpBlock(
            emit=lambda wf, block=block, number=number: _emit(translators[0], block, number, hazards),  # type: ignore[misc]
            successors=block.successors, uses=uses, defs=defs, sleeps=number + 1 if block.sleeps else None,
            convergence=_convergence(translators, block.gathers), polls=polls(block),
        ))  # fmt: skip
    spins = any(
        i.opcode in _WAITING or _WAITING_WORDS & set(i.modifiers) for block in cut for i in block.instructions
    )  # fmt: skip
    areas, reserve = _areas(cut)
    wf = WarpFunction(lib, re.sub(r"[^\w.$-]", "_", flat.name), made, registers, spins=spins, reserve=reserve)
    if counts:
        wf.counting = Counting(wf, counted.SECTOR)
    translators.append(PtxTranslator(wf, flat, arch, lazy, areas))
    if lib.checks.shared_races or lib.checks.global_races:
        translators[0].guesses = guesses(cut)
    return wf.translate()


def _areas(cut: list[BasicBlock]) -> tuple[dict[str, int], int]:
    """Return the areas in a warp's reserved memory in which asynchronous operations keep their state.

    That is name ("copies", "bulk", "reads") -> offset, of those that the kernel needs, and the total bytes.
    """
    found: dict[str, int] = {}
    at = 0
    for name, uses, size in (
        ("copies", async_copies.uses, async_copies.AREA),
        ("bulk", bulk.uses, bulk_ring.AREA),
        ("reads", wgmma.uses, read_groups.AREA),
    ):
        if any(uses(i) for block in cut for i in block.instructions):
            found[name] = at
            at += size
    return found, at


def _convergence(translators: list[PtxTranslator], instruction: PtxInstruction | None) -> Convergence | None:
    """Return how the lanes of an instruction's mask converge before it; None without an instruction.

    `translators` contains the translator by the time that the code is emitted.
    """
    if instruction is None:
        return None

    def masks(_: WarpFunction) -> IrValue:
        t = translators[0]
        t.begin_block()
        t.instruction = instruction
        mask = warp_mask(instruction)
        assert mask is not None
        return t.bits(mask, 32)

    return Convergence(masks, instruction.line, instruction.text)


def _uses_and_defs(block: BasicBlock) -> tuple[frozenset[str], frozenset[str]]:
    """Return the registers that a block reads before it writes them, and those that it writes.

    An instruction with a guard also reads what it writes: other lanes keep the old value.
    """
    uses: set[str] = set()
    defs: set[str] = set()
    for instruction in block.instructions:
        read = {reg.name for reg in reads(instruction)}
        written = {reg.name for reg in writes(instruction)}
        if instruction.opcode in ("addc", "subc", "madc"):
            read.add(CARRY)
        if "cc" in instruction.modifiers:
            written.add(CARRY)
        if instruction.guard is not None:
            read |= written
        uses |= read - defs
        defs |= written
    return frozenset(uses), frozenset(defs)


def _lazy_nans(flat: Flat) -> frozenset[str]:
    """Return the registers that hold results of floating-point arithmetic only, also by way of mov.

    Their NaNs need not be made canonical when they are written: each use does that, if it depends on the bits.
    """
    sources: dict[str, list[Operand | None]] = {}
    for statement in flat.statements:
        if not isinstance(statement, PtxInstruction):
            continue
        for reg in writes(statement):
            entry = sources.setdefault(reg.name, [])
            if (
                statement.opcode == "mov"
                and len(statement.operands) == 2
                and isinstance(statement.operands[0], PtxReg)
            ):
                if not floats.is_neutral(statement.operands[1]):
                    entry.append(statement.operands[1])
            elif not floats.is_float_result(statement):
                entry.append(None)
    arithmetic = {
        r.name
        for s in flat.statements
        if isinstance(s, PtxInstruction) and floats.is_float_result(s)
        for r in writes(s)
    }
    lazy = {name for name, entry in sources.items() if None not in entry and (name in arithmetic or entry)}
    changed = True
    while changed:
        bad = {name for name in lazy if not all(isinstance(o, PtxReg) and o.name in lazy for o in sources[name])}
        changed = bool(bad)
        lazy -= bad
    return frozenset(lazy)


def _emit(
    t: PtxTranslator, block: BasicBlock, number: int, hazards: Mapping[int, tuple[ReportKind, ...]]
) -> None:
    """Write a block's instructions, with reports at those that have hazards, and its terminator."""
    t.begin_block()
    if t.wf.counting is not None:
        t.wf.counting.begin_block()
    last = block.instructions[-1] if block.instructions else None
    ended = last is not None and (last.opcode in ENDS or block.sleeps)
    for instruction in block.instructions[:-1] if ended else block.instructions:
        t.instruction = instruction
        for kind in hazards.get(id(instruction), ()):
            t.wf.report(kind, t.site(), t.wf.active)
        if instruction.guard is None:
            _one(t, instruction)
        else:
            with t.wf.guarded(_condition(t, instruction)):
                _one(t, instruction)
    if last is None or not ended:
        if block.successors:
            t.wf.jump(number + 1)
        else:
            t.wf.exit()
        return
    t.instruction = last
    _terminate(t, last, block, number)


def _condition(t: PtxTranslator, instruction: PtxInstruction) -> IrValue:
    """Return for each lane whether the instruction's guard, which it has, lets it execute."""
    assert instruction.guard is not None
    value = t.wf.read(instruction.guard.name)
    return t.c.not_(value) if instruction.negated else value


def _one(t: PtxTranslator, instruction: PtxInstruction) -> None:
    """Translate an instruction that does not end a block, for the active lanes. Raises `PtxError`."""
    _count(t, instruction)
    act = MEANINGS.get(
        ".".join((instruction.opcode, *instruction.modifiers[:1])), MEANINGS.get(instruction.opcode)
    )
    if act is None:
        what = WITH_COORDINATES.get(instruction.opcode, f"instruction {instruction.opcode}")
        verb = "are" if instruction.opcode in WITH_COORDINATES else "is"
        raise PtxError(instruction.line, f"{what} {verb} not supported: {instruction.text}")
    legal.check(instruction, t.arch)
    modifiers = Modifiers(instruction)
    act(t, instruction, modifiers)
    modifiers.done()
    if {"sync", "aligned"} <= set(instruction.modifiers):
        sanitize.lanes_met(t.wf)


def _count(t: PtxTranslator, instruction: PtxInstruction) -> None:
    """Count an instruction of the module, if the kernel counts; `blocks` adds barrier_result."""
    if t.wf.counting is not None and instruction.opcode != "barrier_result":
        t.wf.counting.execute(counted.operation(instruction), t.wf.active)


def _terminate(t: PtxTranslator, last: PtxInstruction, block: BasicBlock, number: int) -> None:
    """Translate the last instruction of block `number`: a branch, an exit, or a barrier at which lanes sleep."""
    modifiers = Modifiers(last)
    guard = _condition(t, last) if last.guard is not None else None
    _count(t, last)
    if block.sleeps:
        _barrier(t, last, modifiers, number)
    elif last.opcode == "bra":
        modifiers.flag("uni")
        if guard is None:
            t.wf.jump(block.successors[0])
        else:
            if t.wf.counting is not None:
                taken = t.c.op("and", t.wf.active, t.c.mask_bits(guard))
                t.wf.counting.divide(t.wf.active, taken)
            t.wf.branch(guard, block.successors[1], block.successors[0])
    elif last.opcode == "brx":
        modifiers.need("idx")
        modifiers.flag("uni")
        _branch_indexed(t, last, block, guard)
    else:
        modifiers.flag("uni")
        if last.opcode in ("trap", "brkpt"):  # no debugger is attached
            _trap(t, guard)
        t.wf.exit(guard, number + 1 if guard is not None and block.successors else None)
    modifiers.done()


def _trap(t: PtxTranslator, guard: IrValue | None) -> None:
    """Report the active lanes for which the guard is true (None: all of them)."""
    lanes = t.wf.active if guard is None else t.c.op("and", t.wf.active, t.c.mask_bits(guard))
    with t.c.when(t.c.icmp("ne", lanes, 0), likely=False):
        t.wf.report(ReportKind.TRAP, t.site(), lanes)


def _branch_indexed(t: PtxTranslator, last: PtxInstruction, block: BasicBlock, guard: IrValue | None) -> None:
    """Translate brx.idx; lanes with an index that is too large are reported."""
    index, c = t.bits(last.operands[0], 32), t.c
    taken = t.wf.active if guard is None else c.op("and", t.wf.active, c.mask_bits(guard))
    targets = block.successors if guard is None else block.successors[1:]
    ways: list[tuple[int, IrValue]] = []
    rest = taken
    for k, target in enumerate(targets):
        lanes = c.op("and", taken, c.mask_bits(c.icmp("eq", index, k)))
        ways.append((target, lanes))
        rest = c.op("xor", rest, lanes)
    with c.when(c.icmp("ne", rest, 0), likely=False):
        t.wf.report(ReportKind.BAD_BRANCH_INDEX, t.site(), rest)
    if guard is not None:
        ways.append((block.successors[0], c.op("xor", t.wf.active, taken)))
    if t.wf.counting is not None:
        most = c.zero(t.wf.lib.mask)
        for _, lanes in ways:
            most = c.intrinsic("umax", most, lanes)  # equal to the active lanes if all go one way
        t.wf.counting.divide(t.wf.active, most)
    t.wf.spread(ways)


def _uniform(t: PtxTranslator, operand: Operand) -> IrValue:
    """Return an operand that PTX requires to be the same in every lane, as a scalar: that of the first active lane."""
    if isinstance(operand, PtxImm):
        return IrValue("i32", str(operand.value))
    value = t.bits(operand, 32)
    first = t.c.resize(t.c.call("llvm.cttz.i32", "i32", t.wf.active, IrValue("i1", "false")), 32)
    return t.c.extract(value, t.c.op("and", first, 31))


def _barrier(t: PtxTranslator, last: PtxInstruction, m: Modifiers, number: int) -> None:
    """Translate the instructions at which lanes sleep: bar.sync, bar.red, barrier.cluster.wait and setmaxnreg.inc.

    They continue in the block after `number`.
    """
    if last.opcode == "setmaxnreg":
        m.need("inc")
        count, site = _register_count(t, last, m), t.site()
        sanitize.partial_barrier(t.wf, site)
        t.c.call(register_pool.check(t.wf.lib), "void", t.wf.warp, count, i32(site), IrValue("i1", "true"))
        t.wf.sleep(i32(REGISTER_POOL), count, number + 1, site)
        return
    if m.flag("cluster"):
        _cluster_wait(t, last, m, number)
        return
    m.one_of("cta")
    aligned = m.flag("aligned") or last.opcode == "bar"
    reduction = m.need("sync", "red") == "red"
    site = t.site()
    items = list(operands(t, last, *((2, 3) if reduction else (1, 2))))
    predicate = None
    if reduction:
        m.need("popc", "and", "or")
        m.need("u32", "pred")
        predicate = items.pop()
    which = t.c.intrinsic("umin", _uniform(t, items[0]), i32(CLUSTER_BARRIER - 1))
    count = _uniform(t, items[1]) if len(items) > 1 else IrValue("i32", "0")
    if predicate is not None:
        _vote_at_barrier(t, which, t.pred(predicate))
    t.wf.sleep(which, count, number + 1, site, aligned=aligned)


def _check_clusters(t: PtxTranslator) -> None:
    """Raise `PtxError` if the target has no clusters."""
    if t.arch < _CLUSTERS:
        raise t.error(f"barriers of clusters need sm_{_CLUSTERS}")


def _cluster_wait(t: PtxTranslator, last: PtxInstruction, m: Modifiers, number: int) -> None:
    """Translate barrier.cluster.wait."""
    m.need("wait")
    m.flag("acquire")
    operands(t, last, 0)
    site = t.site()
    _check_clusters(t)
    t.c.call(cluster_barrier.check(t.wf.lib), "void", t.wf.warp, t.wf.active, i32(site))
    t.wf.sleep(i32(CLUSTER_BARRIER), i32(0), number + 1, site, aligned=m.flag("aligned"))


def _vote_at_barrier(t: PtxTranslator, which: IrValue, vote: IrValue) -> None:
    """Add the votes of the active lanes to barrier `which`; `barrier_result` reads the outcome."""
    c = t.c
    bar = barrier_at(c, t.wf.group, which)
    yes = c.op("and", c.mask_bits(vote), t.wf.active)
    no = c.op("xor", yes, t.wf.active)
    BARRIER.store(
        c, bar, "count", c.op("add", BARRIER.load(c, bar, "count"), c.resize(c.intrinsic("ctpop", yes), 32))
    )
    for field, lanes in (("some", yes), ("every", no)):
        BARRIER.store(
            c, bar, field, c.op("or", BARRIER.load(c, bar, field), c.resize(c.icmp("ne", lanes, 0), 32))
        )


@meaning("barrier_result")
def _barrier_result(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    """Read the vote of a barrier that has opened; `blocks.blocks` puts this after bar.red."""
    c = t.c
    how = m.need("popc", "and", "or")
    m.rest.clear()
    d, which = operands(t, i, 2)
    bar = barrier_at(c, t.wf.group, _uniform(t, which))
    if how == "popc":
        t.write(d, t.wf.uniform(BARRIER.load(c, bar, "last_count")))
    else:
        seen = BARRIER.load(c, bar, "last_every" if how == "and" else "last_some")
        t.write(d, t.wf.uniform(c.icmp("eq" if how == "and" else "ne", seen, 0)))


@meaning("bar", "barrier")
def _other_barriers(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    """Translate the barriers at which lanes do not sleep: bar.arrive, bar.warp.sync and barrier.cluster.arrive."""
    if m.flag("warp"):
        m.need("sync")
        warp.participants(t, operands(t, i, 1)[0])
        t.c.emit("fence seq_cst")
        return
    if m.flag("cluster"):
        m.need("arrive")
        relaxed = m.one_of("release", "relaxed") == "relaxed"
        operands(t, i, 0)
        site = t.site()
        _check_clusters(t)
        aligned, lanes = m.flag("aligned"), t.wf.active
        with t.c.when(t.c.icmp("ne", lanes, 0)):
            if aligned:
                sanitize.arrives_partly(t.wf, site)
            t.c.call(
                cluster_barrier.arrive(t.wf.lib, releases=not relaxed), "void", t.wf.warp, lanes, i32(site)
            )
        return
    m.one_of("cta")
    m.flag("aligned")
    m.need("arrive")
    which, count = operands(t, i, 2)
    t.wf.arrive(_uniform(t, which), _uniform(t, count), t.site())


@meaning("nanosleep")
def _nanosleep(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    m.need("u32")
    operands(t, i, 1)
    t.c.emit("fence seq_cst")


@meaning("setmaxnreg")
def _release_registers(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    """Translate setmaxnreg.dec."""
    m.need("dec")
    count, site = _register_count(t, i, m), t.site()
    sanitize.partial_barrier(t.wf, site)
    with t.c.when(t.c.icmp("ne", t.wf.active, 0)):
        t.c.call(register_pool.check(t.wf.lib), "void", t.wf.warp, count, i32(site), IrValue("i1", "false"))
        t.c.call(register_pool.give(t.wf.lib), "void", t.wf.warp, count)


def _register_count(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> IrValue:
    """Consume the modifiers of setmaxnreg; return its number of registers. Raises `PtxError` if that is invalid."""
    for word in ("sync", "aligned", "u32"):
        m.need(word)
    (count,) = operands(t, i, 1)
    if t.arch < _CLUSTERS:
        raise t.error("setmaxnreg needs sm_90a or a later architecture")
    if not isinstance(count, PtxImm) or count.value % 8 or not 24 <= count.value <= 256:
        raise t.error("the number of registers must be a constant multiple of 8 from 24 to 256")
    return i32(count.value)


@meaning("pmevent", "griddepcontrol")
def _machine_hints(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    """Translate hints: profiler marks, dependent launch (grids never overlap here)."""
    del t, i
    m.rest.clear()
