"""Count bank conflicts of a kernel's accesses to shared memory, from its linear form.

The integer lines on which an address depends are computed for each thread of the first warp, with loop
variables and workgroup numbers 0. An access needs one pass for every 128 bytes that its threads touch. It
needs more passes where threads of one pass touch different words of one of the 32 banks. An access of vectors
is served in groups of threads that together touch 128 bytes: 8 threads of 16 bytes each.

Not here: the layout of tiles (`compiler.plan.shared_product`). Next: `gpu_kernels`, the caller.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from compiler.dtype import DType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from compiler.emit.linear import Line

BANKS, WORD = 32, 4
"""Banks of shared memory, and the bytes of a word."""
PASS_BYTES = BANKS * WORD
_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "add": int.__add__, "sub": int.__sub__, "mul": int.__mul__, "and": int.__and__, "or": int.__or__,
    "xor": int.__xor__, "shl": int.__lshift__, "lshr": int.__rshift__, "ashr": int.__rshift__,
    "udiv": int.__floordiv__, "urem": int.__mod__,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Conflicts:
    """The passes of the accesses of one warp, each line of the kernel counted once."""

    accesses: int
    """Loads and stores of shared memory."""
    least: int
    """Passes that the accesses would need without conflicts."""
    passes: int
    """Passes that they need; the difference is the number of conflicts."""


def conflicts(lines: Sequence[Line], warp: int) -> Conflicts:
    """Return the passes of all loads and stores of shared memory by a warp of `warp` threads.

    `lines` is the linear form of a kernel. Raises `ValueError` for an address that depends on a loaded value,
    or on an operation other than the integer arithmetic of `_OPERATIONS`.
    """
    accesses = least = passes = 0
    values: dict[Line, list[int]] = {}
    for line in lines:
        if line.op not in ("load", "store", "copy", "fragments"):
            continue
        base = line.src[0]
        while base.op == "offset":
            base = base.src[0]
        if base.op not in ("shared", "dynamic"):
            continue
        stored = line.src[1] if line.op == "store" else line
        whole = line.op in ("copy", "fragments")  # 16 bytes a lane
        size = PASS_BYTES // 8 if whole else stored.dtype.itemsize * stored.lanes
        at = [_address(line.src[0], thread, values, warp) for thread in range(warp)]
        group = min(warp, max(1, PASS_BYTES // size))
        accesses += 1
        for first in range(0, warp, group):
            words = {a // WORD + n for a in at[first : first + group] for n in range(-(-size // WORD))}
            banks: dict[int, int] = {}
            for word in words:
                banks[word % BANKS] = banks.get(word % BANKS, 0) + 1
            least += -(-len(words) // BANKS)
            passes += max(banks.values())
    return Conflicts(accesses, least, passes)


def _address(line: Line, thread: int, values: dict[Line, list[int]], warp: int) -> int:
    """Return the byte offset of an address in its array, for one thread."""
    total = 0
    while line.op == "offset":
        assert isinstance(line.arg, DType)
        total += _value(line.src[1], thread, values, warp) * line.arg.itemsize
        line = line.src[0]
    return total


def _value(line: Line, thread: int, values: dict[Line, list[int]], warp: int) -> int:
    """Return the value of an integer line for one thread; `values` keeps those of all threads of the warp."""
    found = values.get(line)
    if found is None:
        found = values[line] = [_computed(line, t, values, warp) for t in range(warp)]
    return found[thread]


def _computed(line: Line, thread: int, values: dict[Line, list[int]], warp: int) -> int:
    """Compute the value of an integer line for one thread from its sources."""
    if line.op == "const":
        assert isinstance(line.arg, int)
        return line.arg
    if line.op == "thread":
        return thread
    if line.op in ("loop", "group", "variable", "phi"):
        return 0
    sources = [_value(s, thread, values, warp) for s in line.src]
    if line.op == "alu" and line.arg in _OPERATIONS:
        return _OPERATIONS[str(line.arg)](*sources)
    if line.op == "convert":
        return sources[0]
    raise ValueError(
        f"wanted an address of constants, threads and integer arithmetic, saw {line.op} {line.arg}; "
        f"try a kernel whose addresses in shared memory depend on no loaded value"
    )
