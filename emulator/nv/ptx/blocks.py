"""Basic blocks of a flat kernel, and the registers that each instruction reads and writes.

The lanes in the mask of a warp-wide operation (shfl.sync, vote.sync, ...) must converge before the operation executes.
So a block begins at such an operation (`BasicBlock.gathers`), and lanes wait there for the other lanes of the mask.

Also the loads whose value a compare-and-swap at the same address validates: the first guess of a loop of atomicCAS.
CUDA's programming guide builds other atomic operations from atomicCAS:
`old = *p; do { seen = old; old = atomicCAS(p, seen, f(seen)); } while (seen != old);`
The code relies on the first value only if the comparison finds it unchanged, so the plain load does not race with
atomics. A load counts as a guess if its register reaches the comparison, with the same address, on an unbranched path.
No store, barrier, fence or reduction may lie on that path.

Not here: inlining (`flat`), the order of blocks (`emulator.simt.schedule`). Next: `translate`, the translation of a block.
"""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

# ruff: noqa: E501 - summaries read best on one line

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from emulator.nv.ptx.statements import (
    TYPES,
    Args,
    Label,
    Mem,
    Not,
    Operand,
    Pair,
    PtxError,
    PtxInstruction,
    PtxReg,
    Special,
    Sym,
    Vec,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from emulator.nv.ptx.flat import Flat

NO_RESULT = {  # opcodes that write no register: their first operand is a source
    "st", "red", "bar", "barrier", "bra", "brx", "ret", "exit", "trap", "brkpt", "membar", "fence", "call", "prefetch", "prefetchu",
    "nanosleep", "pmevent", "stmatrix", "discard", "applypriority", "griddepcontrol", "setmaxnreg", "cp", "tensormap",
}  # fmt: skip
ENDS = {"bra", "brx", "ret", "exit", "trap", "brkpt"}
"""Opcodes that end a block."""


def registers_of(operand: Operand) -> Iterator[PtxReg]:
    """Yield the registers in an operand."""
    match operand:
        case PtxReg():
            yield operand
        case Mem(base, _, coordinates):
            for item in (base, *coordinates):
                if item is not None:
                    yield from registers_of(item)
        case Vec(items) | Args(items):
            for item in items:
                yield from registers_of(item)
        case Pair(first, second):
            yield from registers_of(first)
            yield from registers_of(second)
        case Not(reg):
            yield reg
        case _:
            return


def writes(instruction: PtxInstruction) -> list[PtxReg]:
    """Return the registers that an instruction writes."""
    if instruction.opcode in NO_RESULT or not instruction.operands:
        return []
    first = instruction.operands[0]
    return [] if isinstance(first, Mem) else list(registers_of(first))


def reads(instruction: PtxInstruction) -> list[PtxReg]:
    """Return the registers that an instruction reads, including its guard."""
    operands = instruction.operands
    found = [instruction.guard] if instruction.guard else []
    updates = instruction.opcode == "wgmma"  # D is added to
    for operand in operands[1:] if writes(instruction) and not updates else operands:
        found += registers_of(operand)
    return found


@dataclass(slots=True)
class BasicBlock:
    """Instructions with at most one branch, at the end; `successors` are block numbers."""

    labels: list[str]
    instructions: list[PtxInstruction] = field(default_factory=list)
    successors: tuple[int, ...] = ()
    sleeps: bool = False
    """Whether lanes wait for other lanes of their workgroup at its last instruction."""
    gathers: PtxInstruction | None = None
    """The warp-wide operation before which lanes must converge, at the head of the block; None if there is none."""


def sleeps(instruction: PtxInstruction) -> bool:
    """Return whether lanes wait at this instruction for other threads of their workgroup, or for registers."""
    words = instruction.modifiers
    if instruction.opcode == "setmaxnreg":
        return "inc" in words
    if instruction.opcode == "bar" and words[:1] not in (("sync",), ("red",), ("cta",)):
        return False
    return instruction.opcode in ("bar", "barrier") and "arrive" not in words


_REPEATABLE = {  # opcodes that write nothing but their result, which depends on their operands alone
    "bra", "nanosleep", "mov", "cvt", "cvta", "add", "sub", "mul", "mad", "and", "or", "xor", "not", "shl", "shr", "setp", "selp", "lop3",
}  # fmt: skip
_CHANGING = ("%clock", "%globaltimer")
"""Special registers that change by themselves."""


def polls(block: BasicBlock) -> bool:
    """Return whether a block only tests mbarriers and computes."""
    return block.gathers is None and not block.sleeps and all(_repeats(i) for i in block.instructions)


def _repeats(instruction: PtxInstruction) -> bool:
    if any(isinstance(o, Special) and o.name.startswith(_CHANGING) for o in instruction.operands):
        return False
    tests = instruction.opcode == "mbarrier" and instruction.modifiers[:1] in (("try_wait",), ("test_wait",))
    return tests or instruction.opcode in _REPEATABLE


def blocks(flat: Flat) -> list[BasicBlock]:
    """Split a kernel into basic blocks, the entry first; an empty last block exits.

    Raises `PtxError` for a branch to an unknown label or to no label, and for a brx.idx without its list.
    """
    found = [BasicBlock([])]
    for statement in _unguarded(flat.statements):
        if isinstance(statement, Label):
            if found[-1].instructions:
                found.append(BasicBlock([]))
            found[-1].labels.append(statement.name)
            continue
        result = _barrier_result(statement) if sleeps(statement) else None
        if result is not None:
            statement = replace(statement, operands=statement.operands[1:])  # noqa: PLW2901 - split in two
        if warp_mask(statement) is not None and not _converged(found[-1], statement):
            if found[-1].instructions:
                found.append(BasicBlock([]))
            found[-1].gathers = statement
        found[-1].instructions.append(statement)
        if statement.opcode in ENDS or sleeps(statement):
            found[-1].sleeps = sleeps(statement)
            found.append(BasicBlock([]))
        if result is not None:
            found[-1].instructions.append(result)
    where = {label: i for i, block in enumerate(found) for label in block.labels}
    for i, block in enumerate(found):
        block.successors = _successors(flat, block, i, where, len(found))
    return found


def warp_mask(instruction: PtxInstruction) -> Operand | None:
    """Return the operand with the member mask of a warp-wide operation; None for any other instruction."""
    opcode, words = instruction.opcode, instruction.modifiers
    named = "sync" in words and (opcode in ("shfl", "vote", "match", "redux", "elect") or "warp" in words)
    return instruction.operands[-1] if named and instruction.operands else None


def _unguarded(statements: list[PtxInstruction | Label]) -> Iterator[PtxInstruction | Label]:
    """Replace the predicate of a warp-wide operation or a barrier by a branch around it.

    Lanes with a false predicate must not take part, and lanes converge only at unpredicated operations.
    """
    for number, statement in enumerate(statements):
        if isinstance(statement, Label) or statement.guard is None or not _converges(statement):
            yield statement
            continue
        after = f"after@{number}"
        yield replace(
            statement, opcode="bra", modifiers=(), operands=(Sym(after),), negated=not statement.negated
        )
        yield replace(statement, guard=None, negated=False)
        yield Label(after, statement.line)


def _converges(instruction: PtxInstruction) -> bool:
    return warp_mask(instruction) is not None or sleeps(instruction)


def _converged(block: BasicBlock, instruction: PtxInstruction) -> bool:
    """Return whether the lanes of an instruction's mask have already converged at the head of its block."""
    mask = warp_mask(instruction)
    if block.gathers is None or warp_mask(block.gathers) != mask:
        return False
    return not any(reg == mask for before in block.instructions for reg in writes(before))


def _barrier_result(statement: PtxInstruction) -> PtxInstruction | None:
    """Return the instruction that reads the vote of a bar.red after the barrier; None for other barriers."""
    if "red" not in statement.modifiers:
        return None
    return replace(statement, opcode="barrier_result", operands=statement.operands[:2])


def _successors(
    flat: Flat, block: BasicBlock, number: int, where: dict[str, int], count: int
) -> tuple[int, ...]:
    """Return the numbers of the blocks that may follow, first that without a branch. Raises `PtxError`."""
    last = block.instructions[-1] if block.instructions else None
    following = (number + 1,) if number + 1 < count else ()

    def at(label: str, line: int) -> int:
        if label not in where:
            raise PtxError(line, f"branch to {label}, which is no label of this function")
        return where[label]

    if last is None or last.opcode not in ENDS:
        return following
    fall_through = following if last.guard else ()
    target = last.operands[-1] if last.operands else None
    if last.opcode == "bra":
        if not isinstance(target, Sym):
            raise PtxError(last.line, f"branch to {target}")
        return (*fall_through, at(target.name, last.line))
    if last.opcode == "brx":
        if not isinstance(target, Sym) or target.name not in flat.targets:
            raise PtxError(last.line, "brx.idx needs a .branchtargets list")
        return (*fall_through, *(at(label, last.line) for label in flat.targets[target.name]))
    return fall_through


_SPACES = frozenset({"global", "shared", "shared::cta", "shared::cluster"})
_OTHERS = frozenset({"volatile", "relaxed", "acquire", "mmio", "nc", "v2", "v4", "v8"})
"""Modifiers of loads that are not plain, not coherent with atomics, or of several elements."""
_STOPS = NO_RESULT - {"bra", "prefetch", "prefetchu", "nanosleep", "pmevent"}
"""Opcodes that end the search along a path."""


def guesses(cut: Sequence[BasicBlock]) -> frozenset[int]:
    """Return the `id`s of the load instructions of a kernel, in blocks from `blocks.blocks`, that are guesses."""
    if not any(_swaps(i) for block in cut for i in block.instructions):
        return frozenset()
    return frozenset(
        id(i)
        for number, block in enumerate(cut)
        for n, i in enumerate(block.instructions)
        if _loads(i) and _validated(i, _path(cut, number, n + 1))
    )


def _swaps(i: PtxInstruction) -> bool:
    return i.opcode == "atom" and "cas" in i.modifiers


def _loads(i: PtxInstruction) -> bool:
    """Return whether an instruction is a plain load of one element, from an address in a register."""
    if i.opcode != "ld" or i.guard is not None or _OTHERS & set(i.modifiers):
        return False
    target, at = i.operands[:2]
    return (
        isinstance(target, PtxReg)
        and isinstance(at, Mem)
        and isinstance(at.base, PtxReg)
        and at.base != target
    )


def _width(i: PtxInstruction) -> int:
    """Return the bits of the last type that an instruction names; 0 if it names none."""
    return next((TYPES[word] for word in reversed(i.modifiers) if word in TYPES), 0)


def _path(cut: Sequence[BasicBlock], number: int, begin: int) -> list[PtxInstruction]:
    """Return the instructions of block `number` from `begin` on, and of the blocks after it while there is one successor."""
    found, seen = list(cut[number].instructions[begin:]), {number}
    while len(cut[number].successors) == 1 and cut[number].successors[0] not in seen:
        number = cut[number].successors[0]
        seen.add(number)
        found += cut[number].instructions
    return found


def _validated(load: PtxInstruction, path: Sequence[PtxInstruction]) -> bool:
    """Return whether a compare-and-swap on the path after a load compares with the value that the load returned."""
    target, at = load.operands[:2]
    assert isinstance(target, PtxReg)
    assert isinstance(at, Mem)
    space, width, held = _SPACES & set(load.modifiers), _width(load), {target.name}
    for i in path:
        if _swaps(i) and i.guard is None and i.operands[1] == at and _SPACES & set(i.modifiers) == space:
            compared = i.operands[2]
            return _width(i) == width and isinstance(compared, PtxReg) and compared.name in held
        if i.opcode in _STOPS or sleeps(i):
            return False
        written = {one.name for one in writes(i)}
        if isinstance(at.base, PtxReg) and at.base.name in written:
            return False
        source = i.operands[1] if i.opcode == "mov" and i.guard is None and len(i.operands) > 1 else None
        if isinstance(source, PtxReg) and source.name in held:
            held |= written
        else:
            held -= written
    return False
