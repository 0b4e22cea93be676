"""Planted mistakes: a changed line of the compiler, and a program that it makes wrong.

`HCQ_CHECK=1 python -m tests.frontend.planted --planted NAME` runs the program of a mistake with the modules
as they would be with it, and prints the first line of the error. Without --planted it runs the programs of
all that are named, one after another, with the modules as they are.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

BEFORE = """
import numpy as np
from frontend import Tensor, Variable
rng = np.random.default_rng(0)
def a(*shape):
    return Tensor(rng.standard_normal(shape).astype(np.float32)).realize()
"""


@dataclass(frozen=True, slots=True)
class Mistake:
    """Text of modules that is replaced, and a program."""

    changes: tuple[tuple[str, str, str], ...]
    """(module, text, its replacement) of each; the text is there once."""
    program: str


def one(module: str, old: str, new: str, program: str) -> Mistake:
    """Return the mistake of one change."""
    return Mistake(((module, old, new),), program)


CHAINS, SCHEDULER, LOWER = (
    "compiler.schedule.chains",
    "compiler.schedule.scheduler",
    "compiler.schedule.lower",
)
PARTS = "compiler.plan.winograd_parts"
PICTURES = "x, w = a(4, 32, 28, 28), a(32, 32, 3, 3)\nx.conv2d(w, padding=1).realize()"
GRADIENT = """
x, w, g = a(8, 32, 28, 28), a(32, 32, 3, 3), a(8, 32, 28, 28)
w.requires_grad = True
x.conv2d(w, padding=1).backward(g)
w.grad.realize()
"""
ATTENTION = """
q, k, v = a(1, 2, 100, 16), a(1, 2, 2048, 16), a(1, 2, 2048, 24)
k = (k * Tensor(np.linspace(0, 4, 2048, dtype=np.float32)).reshape(1, 1, -1, 1)).realize()
q.scaled_dot_product_attention(k, v).realize()
"""
STRIDED = """
x, w, g = a(2, 16, 33, 33), a(32, 16, 3, 3), a(2, 32, 17, 17)
x.requires_grad = True
x.conv2d(w, stride=2, padding=1).backward(g)
x.grad.realize()
"""

MISTAKES: dict[str, Mistake] = {
    "chain of rows of one matrix": Mistake(
        (
            (CHAINS, "if prod(sizes) * prod([r.arg[1] for r in within]) != ", "if 0 and "),
            (CHAINS, "if not _all_stored(asts, len(externals), len(sizes)):", "if 0:"),
            (CHAINS, "    ast = _cut_at_rows(ast, slot, row)\n", ""),
        ),
        "s, x, p, o = a(2, 1, 1), a(2, 1, 4), a(4, 4), a(4, 4)\n((s @ (x @ p)) @ o).realize()",
    ),
    "chain that begins with the last product of another": one(
        CHAINS, " and made.keys().isdisjoint(chain)", "",
        "x, p, q, r, s = a(5, 8), a(8, 3), a(3, 4), a(4, 4), a(4, 2)\n"
        "((((x.softmax(-1) @ p).softmax(-1) @ q).softmax(-1) @ r).softmax(-1) @ s).realize()",
    ),
    "last rows of a chain beyond the matrix": one(
        "compiler.plan.phases", 'else "overlap"\n    axes = (*[', 'else "masked"\n    axes = (*[',
        ATTENTION.replace("100", "101"),
    ),
    "sum of a softmax in pieces not scaled": one(
        "compiler.rewrite.online_softmax", "_scaled(self._load(self.total), factor, summed)",
        "_scaled(self._load(self.total), const(1.0, _F32), summed)", ATTENTION,
    ),
    "values of a softmax in pieces not scaled": one(
        "compiler.rewrite.online_softmax", "_scaled(self._load(self.values, at), factor, ",
        "_scaled(self._load(self.values, at), const(1.0, _F32), ", ATTENTION,
    ),
    "remainders of a sum one off": one(
        "compiler.rewrite.residue_classes",
        "env[one.summed] = symbolic.dot((inner,), (one.stride,), partner)",
        "env[one.summed] = symbolic.dot((inner,), (one.stride,), 0)", STRIDED,
    ),
    "parts of a split maximum added": one(
        "compiler.schedule.scheduler", "graph.reduce(graph.contiguous(partial), op, ",
        "graph.reduce(graph.contiguous(partial), Ops.ADD, ", "a(1 << 17).max().realize()",
    ),
    "parts of a split sum cut short": one(
        "compiler.schedule.scheduler", "    return graph.reduce(graph.contiguous(partial), op, ",
        "    graph.contiguous = lambda x: graph.shrink(x, [(0, n - 1) for n in x.shape])\n"
        "    return graph.reduce(graph.contiguous(partial), op, ", "a(1 << 17).sum().realize()",
    ),
    "sum over a repeated axis not multiplied": one(
        "compiler.ir.fold", "    if times == 1 or op is Ops.MAX", "    if times or op is Ops.MAX",
        "a(4, 1).expand(4, 5).sum(1).realize()",
    ),
    "remainder of a sum not added": one(
        "compiler.emit.reductions", "count = -(-left // wide)", "count = left // wide or 1",
        "a(3, 1003).sum(1).realize()",
    ),
    "identity of a maximum": one(
        "compiler.emit.reductions", "isel.identity(self.b, node.arg[0], node.dtype, wide)",
        "isel.identity(self.b, Ops.ADD, node.dtype, wide)", "(-a(5, 40).abs()).amax(1).realize()",
    ),
    "mask of a border one short": one(
        "compiler.ir.movement", "masks.append(ge(x, 0))", "masks.append(ge(x, 1))",
        "(a(5, 6).pad(((1, 2), (2, 1))) + 1).realize()",
    ),
    "border one long": one(
        "compiler.ir.movement", "masks.append(lt(x, n))", "masks.append(lt(x, n + 1))",
        "(a(5, 6).pad(((1, 2), (2, 1))) + 1).realize()",
    ),
    "mask left out of a constant": one(
        LOWER, "known.setdefault(mask, {})) is zero:", "known.setdefault(mask, {})) is not None:",
        "(a(5).pad(((1, 1),)) + 1).shrink(((0, 6),)).pad(((0, 2),)).realize()",
    ),
    "transform of a picture": one(PARTS, "_sub(d, b), _sub(b, e)]", "_sub(b, d), _sub(b, e)]", PICTURES),
    "transform of filters": one(PARTS, "_sub(ends, b), _HALF), d]", "_sub(ends, b), _HALF), a]", PICTURES),
    "transform of results": one(
        PARTS, "_sub(_sub(m[1], m[2]), m[3])", "_sub(_sub(m[1], m[2]), m[2])", PICTURES
    ),
    "half in the filters": one(PARTS, "_HALF = const(0.5,", "_HALF = const(0.501,", PICTURES),
    "total of the gradient of filters": one(PARTS, "_sub(ends, m[3])", "_add(ends, m[3])", GRADIENT),
    "reader ordered after the store in place": one(
        SCHEDULER, "        for k in before:\n            grouping.order.after(k, writer)\n", "",
        "x, z, w = a(300), a(40, 300), a(300)\n"
        "y = z.sum(0).contiguous().exp().sum().contiguous() + x[:7]\nx.assign(w * 2)\ny.realize(x)",
    ),
    "store in place of what is read elsewhere": one(
        SCHEDULER, "if late or _reads_elsewhere(", "if late or not _reads_elsewhere(",
        "x = a(300)\nx.assign(x.flip(0) * 2).realize()",
    ),
    "memory of a source given to its result": one(
        "compiler.schedule.memory", "if born <= last and first <= gone:", "if born < last and first < gone:",
        "x = a(500).contiguous() + 1\ny = x.contiguous().flip(0).contiguous()\n"
        "(y + y.flip(0).contiguous().cumsum(0)).realize()",
    ),
    "neighbouring ranges that are no one range merged": one(
        LOWER, "all(s.get(a, 0) == s.get(b, 0) * b.arg[1] for s in sums)",
        "all(s.get(a, 0) >= s.get(b, 0) * b.arg[1] for s in sums)", "(a(4, 6)[:, :3] + 1).realize()",
    ),
    "one identity for sibling reductions": one(
        "compiler.emit.reductions", "isel.identity(self.b, node.arg[0], node.dtype, wide)",
        "isel.identity(self.b, self.family[0].arg[0], node.dtype, wide)",
        "x = (-a(5, 40).abs()).realize()\nx.sum(1).realize(x.amax(1))",
    ),
    "size of a row bounded one short": one(
        "compiler.emit.loop_limits", "line = b.add(b.mul(line, limit.factor), b.index(limit.plus))",
        "line = b.add(b.mul(line, limit.factor), b.index(limit.plus - 1))",
        "n = Variable('n', 1, 1000).bind(601)\na(1000, 37)[:n].sum(0).realize()",
    ),
}  # fmt: skip


class _Changed(SourceFileLoader):
    """A loader that replaces text of the modules."""

    changes: tuple[tuple[str, str, str], ...] = ()

    def get_data(self, path: str) -> bytes:
        """Return the changed source."""
        text = super().get_data(path).decode()
        for module, old, new in self.changes:
            if module == self.name:
                if text.count(old) != 1:
                    raise ValueError(f"{module} has {text.count(old)} times, not once: {old}")
                text = text.replace(old, new)
        return text.encode()

    def path_stats(self, path: str) -> dict[str, int]:
        """Refuse bytecode."""
        raise OSError(path)


class Finder:
    """Finds the changed modules."""

    def __init__(self, changes: tuple[tuple[str, str, str], ...]) -> None:
        self.changes = changes

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a changed module; None for others."""
        if name not in {module for module, _, _ in self.changes}:
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = loader = _Changed(name, spec.loader.path)
            loader.changes = self.changes
        return spec


def main() -> int:
    """Run the program of one mistake, or those of several without their mistakes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="+", metavar="NAME", help="a key of MISTAKES")
    parser.add_argument("--planted", action="store_true", help="with the mistake")
    options = parser.parse_args()
    if unknown := set(options.names) - set(MISTAKES):
        parser.error(f"no such mistakes: {sorted(unknown)}")
    if options.planted:
        if len(options.names) > 1:
            parser.error("--planted takes one name: modules are changed before they are imported")
        sys.meta_path.insert(0, Finder(MISTAKES[options.names[0]].changes))
    from hcq.errors import CheckError  # here, as modules are changed before they are imported

    for name in options.names:
        try:
            exec(BEFORE + MISTAKES[name].program, {})
        except CheckError as error:
            sys.stdout.write(f"{error}\n".partition("\n")[0] + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
