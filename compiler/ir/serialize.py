"""Nodes as text: readable index arithmetic, and the canonical text of a kernel for its cache key.

The canonical text has one line for each node: operation, dtype, numbers of the lines of its sources,
argument. Lines are in depth-first order from the root. The text depends only on the structure, not on ids,
hash seeds or the process. `parse_kernel` reads it, for example in a worker process.

Not here: names of kernels (`naming`). Next: `compiler.cache`, keys that also cover target and compiler.
"""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any, Final, TypeVar

from compiler.dtype import by_name, dtypes
from compiler.ir.ops import INDEX, MASK, NAMES, Ops
from compiler.ir.uop import UOp, const, uop
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Sequence

Node = TypeVar("Node")


def node_text(x: UOp) -> str:
    """Return index arithmetic as an expression, other nodes as canonical text."""
    if x.op in INDEX or x.op in MASK or (x.op is Ops.CONST and x.dtype is dtypes.index):
        return _expression(x, {})
    return kernel_key(x)


def _expression(x: UOp, memo: dict[UOp, str]) -> str:
    found = memo.get(x)
    if found is None:
        found = memo[x] = _expression_of(x, memo)
    return found


def _expression_of(x: UOp, memo: dict[UOp, str]) -> str:
    """Return the text of an index or a mask, whose sources `memo` may have."""
    op = x.op
    if op is Ops.CONST:
        return str(x.arg)
    if op is Ops.RANGE:
        return f"idx{x.arg[0]}"
    if op is Ops.VAR:
        return str(x.arg[0])
    if op is Ops.INDEXOF:
        return f"indexof({x.src[0]!r})" if x.src else f"computed{x.arg[-1]}"
    if op is Ops.SUM:
        coefficients, constant = x.arg
        terms = sorted(zip(x.src, coefficients, strict=True), key=lambda t: -abs(t[1]))
        texts = [_expression(a, memo) if c == 1 else f"({_expression(a, memo)}*{c})" for a, c in terms]
        if constant:
            texts.append(str(constant))
        text = texts[0]
        for t in texts[1:]:
            text = f"({text}+{t})"
        return text
    if op is Ops.IAND:
        return "(" + "&".join([_expression(s, memo) for s in x.src]) + ")"
    symbol = {Ops.IDIV: "//", Ops.IMOD: "%", Ops.ILT: "<"}.get(op)
    if symbol is None:
        return repr(x)
    return f"({_expression(x.src[0], memo)}{symbol}{x.arg})"


def postorder(roots: Iterable[UOp]) -> list[UOp]:
    """Return every node under the roots once, sources before users, in an order of the structure alone."""
    done: set[UOp] = set()
    order: list[UOp] = []
    stack = list(roots)
    stack.reverse()
    while stack:
        x = stack[-1]
        if x in done:
            stack.pop()
            continue
        waiting = False
        for s in reversed(x.src):
            if s not in done:
                if s.src:
                    stack.append(s)
                    waiting = True
                else:
                    done.add(s)
                    order.append(s)
        if not waiting:
            stack.pop()
            done.add(x)
            order.append(x)
    return order


def unknown_under(
    roots: Sequence[Node], known: Container[Node], sources: Callable[[Node], Sequence[Node]]
) -> list[Node]:
    """Return the nodes under some roots that are not in `known`, sources before users.

    Nodes that only known nodes use are left out. `sources` returns the sources of a node.
    """
    done: set[Node] = set()
    order: list[Node] = []
    stack = [*reversed(roots)]
    while stack:
        x = stack[-1]
        if x in done or x in known:
            stack.pop()
            continue
        waiting = [s for s in sources(x) if s not in done and s not in known]
        if waiting:
            stack += reversed(waiting)
        else:
            stack.pop()
            done.add(x)
            order.append(x)
    return order


def kernel_key(kernel: UOp) -> str:
    """Return the canonical text of a kernel, which is equal for equal kernels in every process."""
    numbers: dict[UOp, int] = {}
    lines: list[str] = []
    for x in postorder((kernel,)):
        numbers[x] = len(numbers)
        src = " ".join([str(numbers[s]) for s in x.src])
        lines.append(f"{x.op}|{x.dtype.name}|{src}|{_argument(x.arg)}")
    return "\n".join(lines)


def _argument(arg: Any) -> str:
    if arg is None:
        return ""
    if arg.__class__ is float:
        return "nan" if math.isnan(arg) else arg.hex()
    return repr(arg)


_FLOATS: Final = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


def parse_kernel(text: str) -> UOp:
    """Return the kernel of a canonical text.

    Raises `UsageError` for a line without its four parts, an unknown operation or dtype, and an empty text;
    `ValueError`, `SyntaxError`, `TypeError` or `IndexError` for a malformed argument or source. The kernel is
    not verified.
    """
    from ast import literal_eval  # noqa: PLC0415 - slow to import, and used only by workers

    nodes: list[UOp] = []
    for number, line in enumerate(text.split("\n")):
        parts = line.split("|")
        if len(parts) != 4 or parts[0] not in NAMES:
            raise UsageError(f"line {number} of a kernel text is not `OP|dtype|sources|argument`: {line!r}")
        op, dtype = sys.intern(parts[0]), by_name(parts[1])
        src = tuple([nodes[int(i)] for i in parts[2].split()])
        if op is Ops.CONST and dtype.is_float:
            nodes.append(const(_FLOATS[parts[3]] if parts[3] in _FLOATS else float.fromhex(parts[3]), dtype))
        else:
            nodes.append(uop(op, dtype, src, _interned(literal_eval(parts[3])) if parts[3] else None))
    if not nodes:
        raise UsageError("the kernel text is empty")
    return nodes[-1]


def _interned(arg: Any) -> Any:
    """Intern the operation names in an argument, because they are compared by identity."""
    if arg.__class__ is tuple:
        return tuple([_interned(a) for a in arg])
    return sys.intern(arg) if arg.__class__ is str else arg
