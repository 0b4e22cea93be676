"""Graphs of a program with other sizes: `python -m tests.fuzz.shrunk [--seed N] [--rounds N] [-m] PROGRAM`.

Runs the program, and compares the kernels of each of its graphs with their operations one by one, as
`HCQ_CHECK=1` does, but with all sizes shrunk to 1, 2 or 3 and with drawn values: mistakes of joined and split
kernels show at sizes that a program need not have. Differences go to stderr, and the exit status is 1.

Any graph whose shapes fit has defined values, so the new sizes need no meaning. Equal sizes become equal
ones, which are drawn; that of a window stays; one that a reshape makes of others becomes their product, and
borders and slices keep their width where they can. A graph that does not fit then is left out.

Next: `frontend.check`, which compares. Not here: random programs (`tests.fuzz.tensors`).
"""

from __future__ import annotations

import argparse
import math
import runpy
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from compiler.compile import compile_many
from compiler.dtype import dtypes
from compiler.ir.movement import groups
from compiler.ir.ops import Ops
from compiler.ir.serialize import postorder
from compiler.ir.uop import UOp, uop
from compiler.ir.verify import constructed
from compiler.schedule.scheduler import limits_on, schedule
from compiler.targets import target_of
from frontend.check import Check
from frontend.device import Device
from frontend.evaluation.launch import KernelLaunch
from frontend.evaluation.plan import LaunchPlan
from hcq.errors import CheckError, CompileError
from tools.arguments import command, natural, positive

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compiler.schedule.item import BufRef

MOST: Final = 3
"""The largest size that is drawn."""


class _Sizes(dict[int, int]):
    """The new size for each old one."""

    def __init__(self, nodes: Sequence[UOp], rng: np.random.Generator) -> None:
        super().__init__({0: 0, 1: 1})
        self.rng = rng
        self.factors: dict[int, list[int]] = {}
        for n in nodes:
            if n.op is Ops.WINDOW:
                self.update({size: size for size in n.arg[1]})
            if n.op is Ops.RESHAPE and 0 not in n.shape:
                for old, new in groups(n.src[0].shape, n.shape):
                    sides = [[k for i in old if (k := n.src[0].shape[i]) > 1]]
                    sides.append([k for i in new if (k := n.shape[i]) > 1])
                    if {len(side) == 1 for side in sides} == {True, False}:
                        (whole,), parts = sorted(sides, key=len)
                        self.factors.setdefault(whole, parts)

    def __missing__(self, size: int) -> int:
        parts = self.factors.get(size)
        drawn = int(self.rng.integers(1, MOST + 1))
        self[size] = new = math.prod([self[k] for k in parts]) if parts else drawn
        return new

    def argument(self, node: UOp, src: Sequence[UOp]) -> Any:
        """Return the argument of a node of other sources."""
        op, arg = node.op, node.arg
        if op is Ops.PARAM:
            return arg[0], tuple([self[n] for n in arg[1]])
        if op is Ops.IOTA:
            return tuple([self[n] for n in arg[0]]), arg[1]
        if op in {Ops.RESHAPE, Ops.EXPAND}:
            return tuple([self[n] for n in arg])
        if op in {Ops.PAD, Ops.SHRINK}:
            sides = zip(arg, src[0].shape, node.src[0].shape, strict=True)
            return tuple([self._ends(op, *side) for side in sides])
        return arg

    def _ends(self, op: str, ends: tuple[int, int], n: int, old: int) -> tuple[int, int]:
        """Return the border or the bounds of a slice for an axis of n elements that had `old`."""
        low, high = ends
        size = old + low + high if op is Ops.PAD else high - low
        new = n if size == old else self.setdefault(size, max(1, n + size - old))
        low = min(low, abs(new - n))
        return low, new - n - low if op is Ops.PAD else low + new


def shrunk(outputs: Sequence[UOp], rng: np.random.Generator) -> list[UOp] | None:
    """Return outputs of other sizes; None where the sizes do not fit, or there are Variables."""
    nodes = postorder(outputs)
    if any(n.dtype is dtypes.index for n in nodes):
        return None
    sizes, made = _Sizes(nodes, rng), dict[UOp, UOp]()
    try:
        for n in nodes:
            src = tuple([made[s] for s in n.src])
            new = made[n] = constructed(uop(n.op, n.dtype, src, sizes.argument(n, src)))
            for old, size in zip(n.shape, new.shape, strict=True):
                sizes.setdefault(old, size)
    except (CompileError, ValueError):
        return None
    return [made[n] for n in outputs]


def drawn(rng: np.random.Generator, ref: BufRef) -> bytes:
    """Return the bytes of drawn elements for a parameter."""
    count = math.prod(ref.shape)
    if ref.dtype is dtypes.bfloat16:
        bits = rng.standard_normal(count, np.float32).view(np.uint32) >> np.uint32(16)
        return bits.astype(np.uint16).tobytes()
    if not ref.dtype.computes:
        return rng.integers(0, 256, count).astype(np.uint8).tobytes()
    values = rng.standard_normal(count) if ref.dtype.is_float else rng.integers(0, MOST + 1, count)
    return values.astype(ref.dtype.numpy).tobytes()


@dataclass
class Tally:
    """What was compared: an audit hook, which adds to it."""

    seed: int
    rounds: int
    """Times that the sizes of each graph are drawn."""
    plans: int = 0
    """Graphs that the program computed."""
    compared: int = 0
    wrong: int = 0
    busy: bool = False

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        """Compare the graph of a plan."""
        if event != "frontend.plan" or self.busy:
            return
        self.busy, (outputs, _, name, arch) = True, args
        self.plans += 1
        try:
            for number in range(self.rounds):
                rng = np.random.default_rng((self.seed, self.plans, number))
                small = shrunk(outputs, rng)
                if small is not None:
                    self.compared += 1
                    self._compare(small, rng, name, arch)
        finally:
            self.busy = False

    def _compare(self, outputs: Sequence[UOp], rng: np.random.Generator, name: str, arch: str) -> None:
        device = Device[name]
        items = schedule(outputs, limits=limits_on(target_of(arch)))
        refs: dict[tuple[str, int], BufRef] = {}
        kernels = []
        for item, made in zip(items, compile_many([item.ast for item in items], arch), strict=True):
            keys = [(ref.kind, ref.n) for ref in item.bufs]
            refs.update(zip(keys, item.bufs, strict=True))
            sizes = tuple([ref.nbytes for ref in item.bufs])
            partial = any(n.op is Ops.WITHIN for n in postorder((item.ast,)))
            program = device.program(made.image)
            kernels.append(
                KernelLaunch(
                    program, made.groups, made.threads, tuple(keys), sizes, item.stores, None, partial
                )
            )
        inputs, stored = (tuple([n for way, n in refs if way == end]) for end in ("in", "out"))
        given = [device.write(drawn(rng, refs["in", n])) for n in inputs]
        given += [device.alloc(refs["out", n].nbytes) for n in stored]
        partial = any(kernel.partial for kernel in kernels)
        plan = LaunchPlan(device, tuple(kernels), inputs, (), stored, None, partial=partial)
        try:
            Check(outputs, items, device).compare(plan, given)
        except CheckError as error:
            self.wrong += 1
            sys.stderr.write(f"with all sizes shrunk: {error}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a program; return 1 if any kernel differs."""
    parser = command("tests.fuzz.shrunk", __doc__)
    parser.add_argument("--seed", type=natural, default=0, help="of sizes and values (default: %(default)s)")
    parser.add_argument(
        "--rounds", type=positive, default=1, help="sizes of each graph (default: %(default)s)"
    )
    parser.add_argument("-m", dest="module", action="store_true", help="PROGRAM is a module: pytest, say")
    parser.add_argument("program", help="a Python program, or with -m a module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of the program")
    options = parser.parse_args(argv)
    tally = Tally(options.seed, options.rounds)
    sys.addaudithook(tally)
    sys.argv = [options.program, *options.arguments]
    run = runpy.run_module if options.module else runpy.run_path
    try:
        run(options.program, run_name="__main__")
    except SystemExit as end:
        status = end.code
    else:
        status = 0
    sys.stderr.write(
        f"{tally.plans} graphs, {tally.compared} compared with all sizes shrunk, {tally.wrong} differ\n"
    )
    return int(bool(tally.wrong or status))


if __name__ == "__main__":
    sys.exit(main())
