"""Tensor graphs that tests of the compiler share: layers, and a generator of random programs."""

from __future__ import annotations

from contextlib import contextmanager
from math import prod
from typing import TYPE_CHECKING

from compiler.dtype import DType, dtypes
from compiler.ir import graph as g
from compiler.ir.ops import Ops
from compiler.ir.uop import _table, trim_table

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Sequence

    from compiler.ir.uop import UOp

F32 = dtypes.float32


@contextmanager
def empty_table() -> Iterator[None]:
    """Run a test with an empty table of nodes, and restore the nodes of other tests afterwards."""
    saved = dict(_table)
    trim_table(0)
    try:
        yield
    finally:
        _table.update(saved)


def scalar_like(value: float, x: UOp) -> UOp:
    """Return a constant of x's shape and dtype."""
    return g.full(value, x.shape, x.dtype)


def over(x: UOp, shape: Sequence[int], axis: int) -> UOp:
    """Insert a reduced axis again, and repeat along it."""
    before = list(shape)
    before[axis] = 1
    return g.expand(g.reshape(x, before), shape)


def add(a: UOp, b: UOp) -> UOp:
    return g.binary(Ops.ADD, a, b)


def sub(a: UOp, b: UOp) -> UOp:
    return g.binary(Ops.SUB, a, b)


def mul(a: UOp, b: UOp) -> UOp:
    return g.binary(Ops.MUL, a, b)


def relu(x: UOp) -> UOp:
    return g.binary(Ops.MAX, x, scalar_like(0, x))


def total(x: UOp, axis: int) -> UOp:
    return g.reduce(x, Ops.ADD, (axis,))


def conv2d(x: UOp, w: UOp, b: UOp | None = None, *, stride: int = 1, padding: int = 0) -> UOp:
    n, c, _, _ = x.shape
    o, _, kh, kw = w.shape
    padded = g.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    v = g.window(padded, (2, 3), (kh, kw), (stride, stride), (1, 1))
    oy, ox = v.shape[2:4]
    full = (n, o, oy, ox, c, kh, kw)
    v = g.expand(g.reshape(g.permute(v, (0, 2, 3, 1, 4, 5)), (n, 1, oy, ox, c, kh, kw)), full)
    u = g.expand(g.reshape(w, (1, o, 1, 1, c, kh, kw)), full)
    y = g.reduce(mul(v, u), Ops.ADD, (4, 5, 6))
    return y if b is None else add(y, g.expand(g.reshape(b, (1, o, 1, 1)), y.shape))


def matmul(a: UOp, b: UOp) -> UOp:
    *p, i, k = a.shape
    j = b.shape[-1]
    full = (*p, i, j, k)
    r = len(full)
    left = g.expand(g.reshape(a, (*p, i, 1, k)), full)
    swapped = g.permute(b, (*range(r - 3), r - 2, r - 3))
    right = g.expand(g.reshape(swapped, (*p, 1, j, k)), full)
    return g.reduce(mul(left, right), Ops.ADD, (r - 1,))


def softmax(x: UOp) -> UOp:
    last = len(x.shape) - 1
    e = g.unary(Ops.EXP, sub(x, over(g.reduce(x, Ops.MAX, (last,)), x.shape, last)))
    return g.binary(Ops.DIV, e, over(total(e, last), x.shape, last))


def mean(x: UOp, axes: Sequence[int]) -> UOp:
    y = g.reduce(x, Ops.ADD, tuple(axes))
    return mul(y, scalar_like(1 / prod([x.shape[a] for a in axes]), y))


def layernorm(x: UOp, w: UOp | None = None, b: UOp | None = None) -> UOp:
    last = len(x.shape) - 1
    centred = sub(x, over(mean(x, (last,)), x.shape, last))
    variance = mean(mul(centred, centred), (last,))
    scale = g.unary(Ops.RECIP, g.unary(Ops.SQRT, add(variance, scalar_like(1e-5, variance))))
    y = mul(centred, over(scale, x.shape, last))
    if w is None or b is None:
        return y
    row = (1,) * last + (x.shape[-1],)
    return add(mul(y, g.expand(g.reshape(w, row), x.shape)), g.expand(g.reshape(b, row), x.shape))


_SHAPES = ((), (1,), (4,), (3, 4), (4, 3), (2, 3, 4), (1, 4), (3, 1), (6, 2), (12,), (2, 1, 6), (4, 4))
_UNARY = (Ops.NEG, Ops.ABS, Ops.TANH, Ops.SIN, Ops.FLOOR, Ops.COS)
_BINARY = (Ops.ADD, Ops.SUB, Ops.MUL, Ops.MAX, Ops.MIN)


class Program:
    """Return a random tensor graph; the same state of `choose` gives the same graph."""

    def __init__(
        self, choose: random.Random, *, length: int, assigns: bool = False, dtype: DType = dtypes.float64
    ) -> None:
        self.choose = choose
        self.dtype = dtype
        self.assigned: set[UOp] = set()
        self.pool: list[UOp] = [
            g.param(i, choose.choice(_SHAPES), dtype) for i in range(choose.randint(1, 4))
        ]
        self.pool.append(g.full(choose.choice((0, 1, -2)), choose.choice(_SHAPES), dtype))
        for _ in range(length):
            if assigns and choose.random() < 0.1:
                self.assign()
            node = self.step(self.pick())
            if prod(node.shape) <= 2000 and len(node.shape) <= 6:
                self.pool.append(node)

    def pick(self) -> UOp:
        recent = self.pool[-6:] if self.choose.random() < 0.7 else self.pool
        return self.choose.choice(recent)

    def outputs(self) -> list[UOp]:
        assigns = [x for x in self.pool if x.op is Ops.ASSIGN and self.choose.random() < 0.5]
        return [self.pool[-1], *[self.pick() for _ in range(self.choose.randint(0, 2))], *assigns]

    def assign(self) -> UOp:
        """Assign to a part of a parameter that was not assigned before; the result joins the pool."""
        free = [x for x in self.pool if x.op is Ops.PARAM and x not in self.assigned]
        if not free:
            return self.pick()
        target = self.choose.choice(free)
        self.assigned.add(target)
        for _ in range(self.choose.randint(0, 2)):
            if target.shape:
                target = self.choose.choice((self.shrink, self.permute, self.flip, self.reshape))(target)
        node = g.assign(target, self.matching(target.shape))
        self.pool.append(node)
        return node

    def matching(self, shape: Sequence[int]) -> UOp:
        """Return a value of the pool, moved to a shape."""
        choose = self.choose
        fitting = [x for x in self.pool if x.shape == tuple(shape)]
        if fitting and choose.random() < 0.7:
            return choose.choice(fitting)
        x = self.pick()
        if prod(x.shape) == prod(shape):
            return g.reshape(x, shape)
        if len(x.shape) == len(shape) and all(n in (1, m) for n, m in zip(x.shape, shape, strict=True)):
            return g.expand(x, shape)
        kept = [a for a, n in enumerate(shape) if (n,) == x.shape]
        if kept:
            return g.expand(g.reshape(x, [n if a == kept[0] else 1 for a, n in enumerate(shape)]), shape)
        scalar = g.reduce(x, choose.choice((Ops.ADD, Ops.MAX)), range(len(x.shape)))
        return g.expand(g.reshape(scalar, (1,) * len(shape)), shape)

    def step(self, x: UOp) -> UOp:
        rank = len(x.shape)
        steps = [
            self.unary,
            self.binary,
            self.binary,
            self.where,
            self.reshape,
            self.contiguous,
            self.coordinate,
        ]
        if rank:
            steps += [
                self.permute, self.expand, self.pad, self.shrink, self.flip, self.reduce, self.reduce,
                self.window,
            ]  # fmt: skip
            steps += [self.rows, self.gather, self.matmul]
        return self.choose.choice(steps)(x)

    def unary(self, x: UOp) -> UOp:
        return g.unary(self.choose.choice(_UNARY if x.dtype.is_float else (Ops.NEG, Ops.ABS, Ops.NOT)), x)

    def binary(self, x: UOp) -> UOp:
        return g.binary(self.choose.choice(_BINARY), x, self.matching(x.shape))

    def where(self, x: UOp) -> UOp:
        y = self.matching(x.shape)
        return g.where(
            g.binary(self.choose.choice((Ops.LT, Ops.NE)), x, y),
            y,
            scalar_like(self.choose.choice((0, 2)), x),
        )

    def reshape(self, x: UOp) -> UOp:
        n = prod(x.shape)
        shapes = [s for s in _SHAPES if prod(s) == n] + [(n,), (1, n, 1)]
        return g.reshape(x, self.choose.choice(shapes))

    def contiguous(self, x: UOp) -> UOp:
        return g.contiguous(x) if self.choose.random() < 0.3 else self.unary(x)

    def coordinate(self, x: UOp) -> UOp:
        if not x.shape:
            return self.unary(x)
        i = g.iota(x.shape, self.choose.randrange(len(x.shape)))
        if self.choose.random() < 0.5:
            i = g.binary(
                self.choose.choice((Ops.MOD, Ops.FLOORDIV, Ops.ADD)),
                i,
                scalar_like(self.choose.randint(1, 3), i),
            )
        return self.binary(g.cast(i, self.dtype))

    def permute(self, x: UOp) -> UOp:
        order = list(range(len(x.shape)))
        self.choose.shuffle(order)
        return g.permute(x, order)

    def expand(self, x: UOp) -> UOp:
        if 1 not in x.shape:
            x = g.reshape(x, (*x.shape, 1))
        return g.expand(x, [self.choose.randint(1, 4) if n == 1 else n for n in x.shape])

    def pad(self, x: UOp) -> UOp:
        return g.pad(x, [(self.choose.randint(0, 2), self.choose.randint(0, 2)) for _ in x.shape])

    def shrink(self, x: UOp) -> UOp:
        bounds = []
        for n in x.shape:
            begin = self.choose.randrange(n) if n else 0
            bounds.append((begin, self.choose.randint(begin + 1, n) if n else 0))
        return g.shrink(x, bounds)

    def flip(self, x: UOp) -> UOp:
        return g.flip(x, self.choose.sample(range(len(x.shape)), self.choose.randint(1, len(x.shape))))

    def reduce(self, x: UOp) -> UOp:
        axes = self.choose.sample(range(len(x.shape)), self.choose.randint(1, len(x.shape)))
        return g.reduce(x, self.choose.choice((Ops.ADD, Ops.ADD, Ops.MAX, Ops.MIN)), axes)

    def window(self, x: UOp) -> UOp:
        axis = self.choose.randrange(len(x.shape))
        size = self.choose.randint(1, min(3, x.shape[axis]))
        dilation = 1 if size * 2 > x.shape[axis] else self.choose.randint(1, 2)
        return g.window(x, (axis,), (size,), (self.choose.randint(1, 2),), (dilation,))

    def rows(self, x: UOp) -> UOp:
        return self.choose.choice((softmax, layernorm))(x) if x.dtype.is_float else self.integral(x)

    def integral(self, x: UOp) -> UOp:
        op = self.choose.choice((Ops.FLOORDIV, Ops.MOD, Ops.XOR, Ops.SHL, Ops.SHR))
        return g.binary(op, x, self.choose.choice((self.matching(x.shape), scalar_like(3, x))))

    def gather(self, x: UOp) -> UOp:
        axis = self.choose.randrange(len(x.shape))
        shape = self.choose.choice(((3,), (2, 2), ()))
        at: UOp = g.full(self.choose.randint(-1, 3), shape, dtypes.int32)
        if shape and self.choose.random() < 0.8:
            at = g.binary(Ops.ADD, at, g.iota(shape, 0))
            if self.choose.random() < 0.5:
                at = g.cast(self.matching(shape), dtypes.int32)
        return g.gather(x, at, axis)

    def matmul(self, x: UOp) -> UOp:
        flat = g.reshape(x, (x.shape[0], prod(x.shape[1:])))
        return matmul(flat, self.matching((flat.shape[1], 3)))
