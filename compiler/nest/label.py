"""Make labels of planned kernels: the name, and the size of each axis with its kind, for terminals and pages.

Not here: names alone (`ir.naming`), the whole nest as text (`loop_nest`). Next: `compiler.show`, which prints
labels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from compiler.nest.loop_nest import Step

if TYPE_CHECKING:
    from compiler.ir.uop import UOp
    from compiler.nest.loop_nest import LoopNest

WordKind = Literal["name", "grid", "loop", "thread", "unrolled", "vector", "sum"]
COLOURS: Final[dict[WordKind, str]] = {
    "name": "1", "grid": "34", "loop": "37", "thread": "36", "unrolled": "33", "vector": "32", "sum": "31",
}  # fmt: skip
"""The ANSI colour of each kind of word."""


def parts(name: str, plan: LoopNest) -> list[tuple[str, WordKind]]:
    """Return the words of a label with their kinds: the name, then the axes, outermost first.

    A word is a letter and a number: `g16` is 16 workgroups, `l4` a loop of 4 iterations, `t32` 32 threads,
    `u8` 8 unrolled vectors or values, `v16` a vector of 16 lanes, and `r512` a reduction of 512 values. Parts
    of size 1 have no word, except reductions.
    """
    found: list[tuple[str, WordKind]] = [(name, "name")]
    left: dict[UOp, int] = {axis.range: axis.count for axis in plan.axes}
    for step in plan.steps:
        if isinstance(step, Step) and step.range in left:
            count = -(-left[step.range] // step.size)
            left[step.range] = step.size
            if count > 1:
                found.append((f"g{count}", "grid") if step.kind == "group" else (f"l{count}", "loop"))
    for reduction in plan.reductions.values():
        found += [(f"r{r.arg[1]}", "sum") for r in reduction.ranges]
        found += [(f"t{reduction.threads}", "thread")] * (reduction.threads > 1)
        found += [(f"u{reduction.unroll}", "unrolled")] * (reduction.unroll > 1)
        found += [(f"v{reduction.lanes}", "vector")] * (reduction.lanes > 1)
    for axis in plan.axes:
        found += [(f"t{t.size}", "thread") for t in axis.threads]
        found += [(f"u{axis.upcast}", "unrolled")] * (axis.upcast > 1)
        found += [(f"v{axis.lanes}", "vector")] * (axis.lanes > 1)
    return found


def text(name: str, plan: LoopNest, *, colour: bool) -> str:
    """Return a label as text; `colour` adds ANSI colours by the kind of axis."""
    words = parts(name, plan)
    if not colour:
        return " ".join([word for word, _ in words])
    return " ".join([f"\x1b[{COLOURS[kind]}m{word}\x1b[0m" for word, kind in words])
