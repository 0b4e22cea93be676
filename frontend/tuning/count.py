"""Count the operations that a kernel executes under a plan, from its linear form: a cost without a device.

Every line of a loop counts once for each iteration, for each warp (each vector on the host) and workgroup.
On an emulated GPU times mean nothing: a search compares these counts instead. The bounds of a loop that
depend on the workgroup are those of the first workgroup. Caches, latencies and bank conflicts are left out.

Not here: the time that a planner estimates (`compiler.plan.cost`). Next: `trial`, the caller.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from compiler.pipeline import steps

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from compiler.emit.linear import Line
    from compiler.ir.uop import UOp
    from compiler.plan.choice import Choice
    from compiler.targets.shared.target import Target

ACCESS = 4.0
"""The weight of an access to memory of 4 bytes a thread; wider ones count by their bytes."""
SHARED = 2.0
"""The same for memory of the workgroup."""
MATRIX = 16.0
BARRIER = 8.0
_FREE = frozenset(("const", "token", "endloop", "endif", "result", "join", "phi", "splat", "argument"))


def instructions(ast: UOp, target: Target, choice: Choice | None) -> float:
    """Return the weighted operations of all warps, divided by the processors that have work.

    `choice` None is the estimated plan. Raises as `compiler.pipeline.steps`.
    """
    made = steps(ast, target, choice=choice)
    groups = prod(made.plan.launch()[0])
    warps = -(-made.plan.threads // made.plan.warp)
    busy = min(groups, target.cores)
    return counted(made.lines) * warps * -(-groups // busy)


def counted(lines: Sequence[Line]) -> float:
    """Return the weighted operations of one warp of the first workgroup."""
    total, times = 0.0, [1]
    for line in lines:
        if line.op == "loop":
            first, end = (_value(s) for s in line.src)
            times.append(times[-1] * max(1, -(-(end - first) // int(str(line.arg)))))
            total += 2.0 * times[-1]
        elif line.op == "endloop":
            times.pop()
        total += times[-1] * _weight(line)
    return total


def _weight(line: Line) -> float:
    if line.op in _FREE:
        return 0.0
    if line.op == "matrix":
        return MATRIX
    if line.op == "barrier":
        return BARRIER
    if line.op in ("copy", "fragments"):
        return 1.0 + (ACCESS if line.op == "copy" else SHARED)
    if line.op in ("load", "store", "load_masked", "store_masked", "gather", "scatter"):
        base = line.src[0]
        while base.op == "offset":
            base = base.src[0]
        stored = line.src[-1] if line.op == "store" else line
        each = 0.0 if base.op == "scratch" else SHARED if base.op in ("shared", "dynamic") else ACCESS
        return 1.0 + each * max(1.0, stored.lanes * stored.dtype.itemsize / 16)
    return 1.0


_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "add": int.__add__, "sub": int.__sub__, "mul": int.__mul__, "shl": int.__lshift__,
    "ashr": int.__rshift__, "lshr": int.__rshift__, "sdiv": int.__floordiv__, "udiv": int.__floordiv__,
    "smin": min, "smax": max, "umin": min,
}  # fmt: skip


def _value(line: Line) -> int:
    """Return an integer register of the first workgroup, thread and iteration; 0 if it is not computed."""
    if line.op == "const" and isinstance(line.arg, int):
        return line.arg
    if line.op in ("alu", "call") and str(line.arg) in _OPERATIONS:
        left, right = (_value(s) for s in line.src)
        divides = line.arg in ("sdiv", "udiv")
        return 0 if divides and not right else int(_OPERATIONS[str(line.arg)](left, right))
    return _value(line.src[0]) if line.op == "convert" else 0
