"""Checks of graphs and kernels between passes. A `CompileError` names the node and the violated rule.

Not here: checks of user arguments (`graph`), checks of the linear form (`compiler.emit.linear`). Next:
`compiler.schedule.scheduler`, which calls these checks between passes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from compiler.dtype import dtypes
from compiler.ir import graph
from compiler.ir import ops as sets
from compiler.ir.ops import Ops
from compiler.ir.serialize import postorder
from compiler.ir.walk import slots_met
from hcq.errors import CompileError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from compiler.ir.uop import UOp


def verify_tensor(root: UOp) -> None:
    """Check that dtype and shape of every node of a tensor graph are those of its checked constructor.

    Index nodes are not checked. Raises `CompileError`, also for an operation that tensor graphs lack.
    """
    for x in postorder((root,)):
        if x.dtype is dtypes.index:
            continue
        same = constructed(x)
        if same.dtype is not x.dtype or same.shape != x.shape:
            raise CompileError(
                f"{x!r} over {list(x.src)}: its constructor gives {same.dtype.name}{list(same.shape)},"
                f" the node has {x.dtype.name}{list(x.shape)}"
            )


def constructed(x: UOp) -> UOp:
    """Return the result of the checked constructor for a node of a tensor graph.

    Raises `CompileError` if the constructor refuses it, or if tensor graphs have no such operation.
    """
    if x.op not in graph.MAKERS:
        raise CompileError(f"{x!r} is not an operation of tensor graphs; it belongs to kernels")
    try:
        return _made_again(x)
    except (UsageError, ValueError, TypeError, IndexError) as error:
        raise CompileError(f"{x!r} over {list(x.src)}: {error}") from error


def _made_again(x: UOp) -> UOp:
    return graph.MAKERS[x.op](x.op, list(x.src), _ARGUMENT[x.op](x) if x.op in _ARGUMENT else x.arg)


_ARGUMENT: Final[dict[str, Callable[[UOp], object]]] = {
    Ops.PARAM: lambda x: (*x.arg, x.dtype),
    Ops.CONST: lambda x: (x.arg, x.dtype),
    Ops.IOTA: lambda x: (x.dtype, x.arg),
    **dict.fromkeys((Ops.IVALUE, Ops.CAST, Ops.BITCAST), lambda x: x.dtype),
}
"""Operation -> the argument of its constructor, if that is not the node's own."""


def verify_kernel(ast: UOp) -> None:
    """Check a kernel AST against the rules of `compiler.ir.ops`; for a chain each part, and what they share.

    In a merged kernel sums inside sums may depend on their ranges, and a store with a mask may be over fewer
    ranges than others.

    Raises `CompileError`.
    """
    if ast.op is Ops.SINK and ast.arg and ast.src[0].op is Ops.SINK:
        _verify_chain(ast)
    else:
        _Kernel(ast).check()


def _verify_chain(ast: UOp) -> None:
    """Check the parts of a chain, the numbers of its buffers, and that matrices are stored before loads."""
    externals, shared = ast.arg
    ranges: set[UOp] = set()
    stored: set[int] = set()
    slots: set[int] = set()
    for part in ast.src:
        kernel = _Kernel(part, inside=True)
        kernel.check()
        loads = {x.src[0].arg for x in kernel.nodes if x.op is Ops.LOAD}
        early = sorted(slot for slot in loads - stored if slot >= externals)
        if early:
            why = f"loads buffers {early} of a chain that no part before stores"
            raise CompileError(why, ast=ast.render())
        stored |= {s.src[0].arg for s in part.src}
        slots |= loads | stored
        ranges |= {x for x in kernel.nodes if x.op is Ops.RANGE and x.arg[0] < shared}
    if not shared and (met := slots_met(ast.src)):
        raise CompileError(f"wanted one part for each result, saw buffers {sorted(met)}", ast=ast.render())
    if len(ranges) != shared or slots != set(range(len(slots))) or externals > len(slots):
        raise CompileError(
            f"wanted {shared} ranges that all parts share, and buffers from 0 without holes; saw "
            f"{sorted(r.arg for r in ranges)} and {sorted(slots)}",
            ast=ast.render(),
        )


class _Kernel:
    def __init__(self, ast: UOp, *, inside: bool = False) -> None:
        self.ast = ast
        self.inside_chain = inside
        """Whether the kernel is a part of a chain; then the chain numbers the buffers."""
        self.nodes = postorder((ast,))
        self.free: dict[UOp, frozenset[int]] = {}
        self.inside: dict[UOp, frozenset[int]] = {}

    def fail(self, x: UOp, why: str) -> CompileError:
        return CompileError(f"{x!r} over {list(x.src)}: {why}", ast=self.ast.render())

    def check(self) -> None:
        if self.ast.op is not Ops.SINK or not self.ast.src:
            raise CompileError(f"a kernel is a SINK of STOREs, not {self.ast!r} over {list(self.ast.src)}")
        for x in self.nodes:
            self._one(x)
            self._ranges(x)
        self._stores()
        self._numbers()

    def _one(self, x: UOp) -> None:
        if x.shape != ():
            raise self.fail(x, f"nodes of kernels are scalars, its shape is {x.shape}")
        op = x.op
        if op in sets.ELEMENTWISE:
            self._value(x)
        elif op is Ops.CONST:
            return
        elif op in _RULES:
            why = _RULES[op](x)
            if why:
                raise self.fail(x, why)
        else:
            raise self.fail(x, "is not an operation of kernels")

    def _value(self, x: UOp) -> None:
        if not all(_is_value(s) for s in x.src):
            raise self.fail(
                x, "sources of arithmetic must be values; IVALUE turns an index or a mask into one"
            )
        try:
            same = _made_again(x)
        except (UsageError, ValueError, TypeError) as error:
            raise self.fail(x, str(error)) from error
        if same.dtype is not x.dtype:
            raise self.fail(x, f"must have dtype {same.dtype.name}")

    def _ranges(self, x: UOp) -> None:
        """Compute the free ranges of a node, and the ranges reduced inside it."""
        free = frozenset().union(*[self.free[s] for s in x.src])
        inside = frozenset().union(*[self.inside[s] for s in x.src])
        if x.op is Ops.RANGE:
            free = frozenset((x.arg[0],))
        elif x.op is Ops.REDUCE:
            own = frozenset(x.arg[1])
            if not own <= free:
                raise self.fail(x, f"its value does not depend on ranges {sorted(own - free)}")
            if own & inside:
                raise self.fail(x, f"ranges {sorted(own & inside)} are reduced inside its value already")
            free -= own
            inside |= own
        self.free[x], self.inside[x] = free, inside

    def _stores(self) -> None:
        """Check that all stores have the same ranges, write different elements, and fit loads and REDUCEs."""
        outs = self.free[self.ast.src[0].src[1]]
        stored = {s.src[0] for s in self.ast.src}
        for store in self.ast.src:
            if store.op is not Ops.STORE:
                raise self.fail(store, "a SINK has STOREs only")
            index = self.free[store.src[1]]
            if index != outs and not (self.ast.arg and len(store.src) > 3 and index < outs):
                raise self.fail(
                    store, f"stores over ranges {sorted(index)}, another store over {sorted(outs)}"
                )
            if not self.free[store.src[2]] <= outs:
                extra = sorted(self.free[store.src[2]] - outs)
                raise self.fail(store, f"ranges {extra} of its value are neither stored over nor reduced")
        if len({s.src[0].arg for s in self.ast.src}) != len(stored):
            raise self.fail(self.ast, "one slot is stored to as two dtypes")
        places = {(s.src[0], s.src[1]) for s in self.ast.src}
        if len(places) != len(self.ast.src):
            raise self.fail(self.ast, "two stores write the same elements")
        for x in self.nodes:
            if x.op is Ops.LOAD and x.src[0] in stored and (x.src[0], x.src[1]) not in places:
                raise self.fail(x, "loads a stored buffer at another place than it is stored to")
            if x.op is Ops.REDUCE and frozenset(x.arg[1]) & outs:
                raise self.fail(x, f"reduces output ranges {sorted(frozenset(x.arg[1]) & outs)}")
            inner = [y for y in postorder(x.src) if y.op is Ops.REDUCE] if x.op is Ops.REDUCE else []
            if not self.ast.arg and any(not self.free[y] <= outs for y in inner):
                raise self.fail(x, "a reduction inside it depends on more than output ranges")

    def _numbers(self) -> None:
        ranges = [x for x in self.nodes if x.op is Ops.RANGE]
        if sorted(r.arg[0] for r in ranges) != list(range(len(ranges))):
            raise CompileError(
                f"ranges must be numbered 0..{len(ranges) - 1}, once each: {ranges}", ast=self.ast.render()
            )
        outs = self.free[self.ast.src[0].src[1]]
        if outs != frozenset(range(len(outs))):
            raise CompileError(
                f"output ranges must come first, they are {sorted(outs)}", ast=self.ast.render()
            )
        slots = sorted({x.arg for x in self.nodes if x.op is Ops.BUFFER})
        if slots != list(range(len(slots))) and not self.inside_chain:
            raise CompileError(
                f"buffers must be numbered from 0 without holes: {slots}", ast=self.ast.render()
            )


def _is_value(x: UOp) -> bool:
    return x.dtype not in (dtypes.index, dtypes.void) and x.op is not Ops.BUFFER and x.op not in sets.MASK


def _is_index(x: UOp) -> bool:
    return x.dtype is dtypes.index and (x.op in sets.INDEX or x.op is Ops.CONST)


def _sum(x: UOp) -> str:
    coefficients, _ = x.arg
    if len(coefficients) != len(x.src) or 0 in coefficients or not x.src:
        return "wanted one coefficient, not 0, for each atom"
    if len(set(x.src)) != len(x.src):
        return "an atom occurs twice"
    if not all(_is_index(s) and s.op not in (Ops.SUM, Ops.CONST) for s in x.src):
        return "its sources must be atoms: RANGE, VAR, IDIV, IMOD, INDEXOF"
    if [(s.order, s.id) for s in x.src] != sorted((s.order, s.id) for s in x.src):
        return "atoms must be in structural order"
    return ""


def _less(x: UOp) -> str:
    if x.dtype is not dtypes.bool or len(x.src) != 1 or not _is_index(x.src[0]):
        return "wanted a bool over one index"
    low, high = x.src[0].vmin, x.src[0].vmax
    return "" if low < x.arg <= high else f"is decided: the index is in {low}..{high}"


def _number(x: UOp) -> str:
    (source,) = x.src
    if source.op in sets.MASK:
        return "" if x.dtype is dtypes.bool else "a mask as a value is bool"
    good = _is_index(source) and x.dtype in (dtypes.int32, dtypes.int64)
    return "" if good else "wanted an index as int32 or int64, or a mask as bool"


def _load(x: UOp) -> str:
    if len(x.src) not in (2, 3) or x.src[0].op is not Ops.BUFFER or not _is_index(x.src[1]):
        return "wanted BUFFER, index and perhaps a mask"
    if len(x.src) == 3 and x.src[2].op not in sets.MASK:
        return f"its mask is {x.src[2]!r}; leave out one that always holds"
    if x.dtype is not x.src[0].dtype:
        return f"must have the buffer's dtype {x.src[0].dtype.name}"
    return "" if len(x.src) == 3 or x.src[1].vmin >= 0 else f"reads at {x.src[1].vmin} without a mask"


def _store(x: UOp) -> str:
    if len(x.src) not in (3, 4) or x.src[0].op is not Ops.BUFFER or not _is_index(x.src[1]):
        return "wanted BUFFER, index, value and perhaps a mask"
    if x.src[2].dtype is not x.src[0].dtype or not _is_value(x.src[2]):
        return f"stores {x.src[2].dtype.name} to a buffer of {x.src[0].dtype.name}"
    return "" if x.src[1].vmin >= 0 else f"writes at {x.src[1].vmin}"


def _reduce(x: UOp) -> str:
    if x.arg[0] not in sets.REDUCERS or not x.arg[1] or len(set(x.arg[1])) != len(x.arg[1]):
        return "wanted (ADD, MUL, MAX or MIN, range numbers)"
    return "" if len(x.src) == 1 and x.src[0].dtype is x.dtype else "must have its value's dtype"


def _rule(holds: Callable[[UOp], bool], wanted: str) -> Callable[[UOp], str]:
    return lambda x: "" if holds(x) else wanted


_DIVIDED: Final = _rule(
    lambda x: len(x.src) == 1 and _is_index(x.src[0]) and x.arg > 1, "wanted one index and a divisor above 1"
)
_RULES: Final[dict[str, Callable[[UOp], str]]] = {
    Ops.RANGE: _rule(
        lambda x: not x.src and x.arg[1] > 1 and x.arg[0] >= 0, "wanted a number and a size above 1"
    ),
    Ops.VAR: _rule(lambda x: not x.src and x.arg[1] <= x.arg[2], "wanted (name, lo, hi) with lo <= hi"),
    Ops.SUM: _sum,
    Ops.IDIV: _DIVIDED,
    Ops.IMOD: _DIVIDED,
    Ops.ILT: _less,
    Ops.IAND: _rule(
        lambda x: len(x.src) > 1 and all(s.op is Ops.ILT for s in x.src), "wanted two or more comparisons"
    ),
    Ops.INDEXOF: _rule(
        lambda x: len(x.src) == 1 and x.src[0].dtype.is_int and len(x.arg) == 2,
        "wanted one integer value and bounds",
    ),
    Ops.IVALUE: _number,
    Ops.BUFFER: _rule(lambda x: not x.src and isinstance(x.arg, int) and x.arg >= 0, "wanted a slot"),
    Ops.LOAD: _load,
    Ops.STORE: _store,
    Ops.REDUCE: _reduce,
    Ops.SINK: _rule(lambda x: bool(x.src), "is empty"),
}
"""Operation of kernels -> what is wrong with a node; "" if nothing."""
