"""Write graphs, schedules and the steps of a kernel as text, as DEBUG prints them.

Level 1 prints a line for each compiled kernel: its label, with the size of each axis and its kind. Level 2
adds graph and schedule of each launch, level 3 the loop nest of each kernel, level 4 its lines, level 5 its
LLVM IR, level 6 its assembly. From level 3 on kernels from the disk cache are printed, too.

Not here: the page of a run (`tools.view`), names alone (`ir.naming`). Next: `compiler.pipeline`, whose steps
are shown.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from compiler import llvm, winners
from compiler.emit import linear
from compiler.ir.naming import kernel_name
from compiler.ir.ops import Ops
from compiler.ir.serialize import kernel_key, postorder
from compiler.nest.loop_nest import Step
from compiler.pipeline import steps
from compiler.targets import target_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compiler.ir.uop import UOp
    from compiler.nest.loop_nest import LoopNest
    from compiler.schedule.item import BufRef, ScheduleItem
    from hcq.program import KernelImage


NEST, LINES, IR, ASSEMBLY = 3, 4, 5, 6
"""The lowest level that shows each form of a kernel."""


@dataclass(frozen=True, slots=True)
class Forms:
    """The forms of one kernel: the loop nest, and texts. A text above the requested level is ""."""

    name: str
    plan: LoopNest
    nest: str
    lines: str = ""
    ir: str = ""
    assembly: str = ""


def forms(ast: UOp, arch: str, *, level: int = ASSEMBLY) -> Forms:
    """Return the forms of a kernel up to a level; the kernel is lowered again for them.

    With `BEAM=n` its plan is the stored winner of a search. Raises as `compiler.pipeline.steps`, and
    `UnsupportedError` for an architecture without a target.
    """
    target = target_of(arch)
    made = steps(ast, target, choice=winners.choice_of(kernel_key(ast), target))
    return Forms(
        made.name,
        made.plan,
        made.plan.text(),
        linear.dump(made.lines) if level >= LINES else "",
        made.ir if level >= IR else "",
        llvm.emit_assembly(made.ir, target.machine()) if level >= ASSEMBLY else "",
    )


def graph(outputs: Sequence[UOp]) -> str:
    """Return a tensor graph as text, one node a line, sources first; outputs are marked."""
    numbers: dict[UOp, int] = {}
    roots = set(outputs)
    lines = []
    for node in postorder(outputs):
        numbers[node] = len(numbers)
        words = [f"%{numbers[node]}", "=", node.op, f"{node.dtype.name}{list(node.shape)}"]
        words += [f"%{numbers[s]}" for s in node.src]
        if node.arg is not None and node.op not in {Ops.RESHAPE, Ops.EXPAND}:
            words.append(f"{node.arg}")
        lines.append(" ".join(words) + ("  <- output" if node in roots else ""))
    return "\n".join(lines)


def reference(ref: BufRef) -> str:
    """Return a buffer of a schedule as text: `in0`, `temp1` or `out2`, with dtype and shape."""
    return f"{ref.kind}{ref.n} {ref.dtype.name}{list(ref.shape)}"


def moved(item: ScheduleItem) -> int:
    """Return the bytes of the buffers that a kernel loads or stores; a buffer of both counts twice.

    Matrices between the parts of a chain do not count.
    """
    loads = {n.src[0].arg for n in postorder((item.ast,)) if n.op is Ops.LOAD}
    both = loads | set(item.stores)
    twice = loads & set(item.stores)
    return sum([item.bufs[slot].nbytes for slot in (*both, *twice) if slot < len(item.bufs)])


def schedule(items: Sequence[ScheduleItem]) -> str:
    """Return a schedule as text, one kernel a line: name, bytes moved, stores <- loads."""
    lines = []
    for number, item in enumerate(items):
        stores = ", ".join([reference(ref) for ref in item.writes])
        loads = ", ".join([reference(b) for slot, b in enumerate(item.bufs) if slot not in item.stores])
        lines.append(f"{number:3d} {kernel_name(item.ast)} {moved(item):,} bytes: {stores} <- {loads}")
    total = sum([moved(item) for item in items])
    return "\n".join([*lines, f"{len(items)} kernels, {total:,} bytes moved"])


def kernel(ast: UOp, image: KernelImage, *, level: int, cached: bool, colour: bool) -> str:
    """Return what DEBUG prints for a kernel at a level: its label with facts, then its forms.

    `cached` says whether the kernel comes from the disk cache, `colour` whether the label has colours of a
    terminal.
    """
    made = forms(ast, image.arch, level=level)
    how = "from the cache" if cached else f"compiled for {image.arch}"
    facts = f"{how}, {len(image.code)} bytes, {image.group_ns} ns a workgroup"
    lines = [f"{label_text(made.name, made.plan, colour=colour)}: {facts}"]
    lines += [made.nest] * (level >= NEST) + [made.lines] * (level >= LINES)
    lines += [made.ir] * (level >= IR) + [made.assembly] * (level >= ASSEMBLY)
    return "\n".join(lines)


def report(text: str) -> None:
    """Print text to stderr."""
    print(text, file=sys.stderr)  # noqa: T201  # DEBUG output goes to stderr


WordKind = Literal["name", "grid", "loop", "thread", "unrolled", "vector", "sum"]
COLOURS: Final[dict[WordKind, str]] = {
    "name": "1", "grid": "34", "loop": "37", "thread": "36", "unrolled": "33", "vector": "32", "sum": "31",
}  # fmt: skip
"""The ANSI colour of each kind of word."""


def label_parts(name: str, plan: LoopNest) -> list[tuple[str, WordKind]]:
    """Return the words of a kernel's label with their kinds: the name, then the axes, outermost first.

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


def label_text(name: str, plan: LoopNest, *, colour: bool) -> str:
    """Return a kernel's label as text; `colour` adds ANSI colours by the kind of axis."""
    words = label_parts(name, plan)
    if not colour:
        return " ".join([word for word, _ in words])
    return " ".join([f"\x1b[{COLOURS[kind]}m{word}\x1b[0m" for word, kind in words])
