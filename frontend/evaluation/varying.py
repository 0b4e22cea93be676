"""Numbers and places that differ from launch to launch are passed in memory: one kernel serves all of them.

A number beside a tensor, as in `x.clamp(0, c)`, and the place of a part, as in `x[i : i + 32]`, are part of
the structure of an expression, so that a loop over them would compile a kernel for each. Expressions that are
alike but for such numbers have one `skeleton`. `general` counts the launches before which a call, or a plan,
had a new number for its skeleton. From the fifth on, the new expression reads a parameter of shape () where
it differs from the one before, or a number has differed since then.

Loops within one launch, as over the steps of a sequence, are no such case: their numbers are the same ones at
each launch. Not here: numbers of operators, which need no trace (`trace.varies`). Next: `trace`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any, Final

from compiler.dtype import DType, dtypes
from compiler.ir.ops import Ops
from frontend.evaluation.expr import RULED, TABLE, Part, TensorExpr, inside, join, leaf_expr, source_expr
from frontend.stats import stats

CONSTANT_LIMIT: Final = 4
"""The most numbers of one site that become part of the structure."""
PLAIN: Final = frozenset({0, 1, -1, 2, 0.5})
"""Numbers that always become part of the structure."""
Numbers = list[tuple[float, DType]]
"""Numbers that are passed in memory, with their dtypes."""
CLASSES: Final = frozenset({int, float})
"""Classes of arguments that may vary."""
MOVING: Final = frozenset({Ops.SHRINK, Ops.PAD})
"""Movements whose place may vary; the shapes give their sizes."""
_NEXT: Final = count()
"""Gives each skeleton its number."""


def has_numbers(args: tuple[Any, ...]) -> bool:
    """Return whether arguments, or tuples among them, hold a number."""
    return any(a.__class__ in CLASSES or (isinstance(a, tuple) and has_numbers(a)) for a in args)


def skeleton(e: TensorExpr) -> int:
    """Return the number of an expression without its constants, places of parts and numbers of rules.

    Raises `TypeError` for an argument without a hash.
    """
    stack = [e]
    while stack:
        x = stack[-1]
        waiting = [s for s in x.src if s.skeleton is None]
        if waiting:
            stack += waiting
            continue
        stack.pop()
        if x.skeleton is None:
            arg = None if x.op is Ops.CONST or x.op in MOVING else x.arg[0] if x.op is RULED else x.arg
            key = skeleton, x.op, arg, x.maps, x.shape, x.dtype, x.device, *[s.skeleton for s in x.src]
            x.skeleton = TABLE.setdefault(key, next(_NEXT))
    assert e.skeleton is not None  # just computed
    return e.skeleton


def general(
    site: Any, parts: Sequence[Part], n: int, *, moving: bool, ruled: bool
) -> tuple[list[Part], Numbers] | None:
    """Count new expressions of a site over n joint leaves; None: they stay as they are.

    Else return the expressions, and the values of additional leaves n, n + 1, ... `moving`: parts may begin
    at parameters, through which gradients take longer. `ruled`: rules of gradients stay.
    """
    try:
        site = (general, site, *[(skeleton(e), leaves) for e, leaves in parts])
        last, launches, earlier = TABLE.get(site, (-1, 0, parts))
    except TypeError:  # an argument is not hashable, such as a list
        return None
    if last != stats.launches:
        launches += 1
        TABLE[site] = stats.launches, launches, parts
    if launches <= CONSTANT_LIMIT:
        return None
    found = _General(n, moving=moving, ruled=ruled)
    new = [found.of(old, part) for (old, _), part in zip(earlier, parts, strict=True)]
    if not found.values or None in new:
        return None
    seen = [found.marked[old, part] for (old, _), part in zip(earlier, parts, strict=True)]
    TABLE[site] = stats.launches, launches, seen
    return [part for part in new if part], found.values


class _General:
    """The comparison of expressions with earlier ones; `values` are the parameters of the new ones."""

    def __init__(self, n: int, *, moving: bool, ruled: bool) -> None:
        self._n = n
        self._moving = moving
        self._ruled = ruled
        self.values: Numbers = []
        self.marked: dict[tuple[TensorExpr, Part], Part] = {}
        """The new expressions with another number where one differed, now or before; one for each place."""
        self._done: dict[tuple[TensorExpr, Part], Part] = {}

    def of(self, old: TensorExpr, new: Part) -> Part | None:
        """Return the new expression with parameters where it differs from the old one; None if it cannot."""
        stack = [(old, new)]
        while stack:
            was, part = pair = stack[-1]
            sources = [(s, inside(part, i)) for i, s in enumerate(was.src)] if was is not part[0] else []
            waiting = [p for p in sources if p not in self._done]
            if waiting:
                stack += waiting
                continue
            stack.pop()
            if pair not in self._done:
                found = part if was is part[0] else self._one(was, part[0], [self._done[p] for p in sources])
                if found is None:
                    return None
                self._done[pair] = found
                self.marked[pair] = self._mark(was, part, [self.marked[p] for p in sources])
        return self._done[old, new]

    @staticmethod
    def _mark(was: TensorExpr, part: Part, sources: list[Part]) -> Part:
        e = part[0]
        if was is not e and e.op is Ops.CONST:
            if e.dtype is dtypes.bool:
                return leaf_expr((), e.dtype, e.device), (0,)
            return source_expr(Ops.CONST, 3 + next(_NEXT) % 120, e.dtype, e.device), ()
        return join(e.op, e.arg, *sources) if sources else part

    def _one(self, was: TensorExpr, e: TensorExpr, sources: list[Part]) -> Part | None:
        if e.op is Ops.CONST:
            return self._parameter(e.arg, e.dtype, e.device)
        if was.arg == e.arg:
            return join(e.op, e.arg, *sources)
        if e.op is RULED:
            return None if self._ruled else sources[0]
        return self._moved(was.arg, e, sources[0]) if self._moving else None

    def _parameter(self, value: float, dtype: DType, device: str) -> Part:
        self.values.append((value, dtype))
        return leaf_expr((), dtype, device), (self._n + len(self.values) - 1,)

    def _moved(self, before: Any, e: TensorExpr, part: Part) -> Part:
        """Return the SHRINK or PAD of a part, by a GATHER along each axis whose part begins elsewhere."""
        rest, sign = list(e.arg), 1 if e.op is Ops.SHRINK else -1
        for axis, ((was, _), (low, _)) in enumerate(zip(before, e.arg, strict=True)):
            n, size = part[0].shape[axis], e.shape[axis]
            if was != low:
                dtype = dtypes.int32 if max(n, size) <= dtypes.int32.max else dtypes.int64
                begin = join(Ops.RESHAPE, (1,), self._parameter(sign * low, dtype, e.device))
                place = source_expr(Ops.IOTA, ((size,), 0), dtype, e.device), ()
                index = join(Ops.ADD, None, place, join(Ops.EXPAND, (size,), begin))
                part = join(Ops.GATHER, axis, part, index)
                rest[axis] = (0, size) if e.op is Ops.SHRINK else (0, 0)
        return join(e.op, tuple(rest), part)
