"""The shapes over which the choice of the cost model is compared with an exhaustive search.

Products of many sizes, convolutions, sums along either axis, transposes, elementwise kernels, rows.

Not here: the comparison (`choose`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.schedule.scheduler import schedule
from frontend import Tensor
from frontend.expr import uops

if TYPE_CHECKING:
    from compiler.ir.uop import UOp

PRODUCTS = (
    (64, 64, 64), (100, 100, 100), (128, 128, 128), (256, 256, 256), (384, 384, 384), (512, 512, 512),
    (33, 65, 129), (200, 333, 77), (500, 250, 125), (16, 512, 512), (8, 768, 768), (4, 512, 1024),
    (2, 300, 500), (1, 512, 512), (512, 16, 512), (1000, 8, 64), (512, 64, 32), (64, 512, 16), (32, 32, 2000),
    (197, 384, 192),
)  # fmt: skip
"""Rows, columns and products of one result."""
TURNED = (("aB", 256, 256, 256), ("Ab", 256, 256, 256), ("AB", 256, 256, 256), ("aB", 64, 384, 384),
          ("aB", 1, 512, 512), ("Ab", 100, 200, 300))  # fmt: skip
"""A capital letter is a transposed operand."""
BATCHED = ((8, 64, 64, 64), (16, 33, 40, 48), (32, 16, 64, 32))
CONVOLUTIONS = (
    (1, 16, 28, 32, 3, 1), (4, 3, 32, 16, 3, 1), (2, 32, 14, 64, 3, 1), (1, 64, 14, 64, 1, 0),
    (8, 1, 28, 32, 5, 2),
)  # fmt: skip
"""Pictures, channels, side, filters, side of a filter, padding."""
MATRICES = ((64, 1000), (300, 300), (1000, 64), (500, 777))
TRANSPOSED = ((128, 128), (300, 500), (777, 333), (1024, 256))
ROWS = ((64, 256), (200, 777), (1000, 64))


def _x(*shape: int) -> Tensor:
    return Tensor.zeros(*shape, device="cpu").contiguous().realize()


def _ast(value: Tensor) -> UOp:
    return schedule(uops([(value.expr, tuple(range(len(value.leaves))))]))[-1].ast


def _product(layout: str, m: int, n: int, k: int) -> UOp:
    a = _x(m, k) if layout[0] == "a" else _x(k, m).T
    b = _x(k, n) if layout[1] == "b" else _x(n, k).T
    return _ast(a @ b)


def shapes() -> dict[str, UOp]:
    """Return the kernels by name."""
    out = {f"product {m} x {n} x {k}": _product("ab", m, n, k) for m, n, k in PRODUCTS}
    out |= {f"product {m} x {n} x {k} {layout}": _product(layout, m, n, k) for layout, m, n, k in TURNED}
    out |= {f"{b} products {m} x {n} x {k}": _ast(_x(b, m, k) @ _x(b, k, n)) for b, m, n, k in BATCHED}
    for count, channels, side, filters, size, padding in CONVOLUTIONS:
        x, w = _x(count, channels, side, side), _x(filters, channels, size, size)
        name = f"convolution {count} x {channels} x {side}^2, {filters} filters {size}^2"
        out[name] = _ast(x.conv2d(w, padding=padding))
    for m, n in MATRICES:
        out[f"sum of rows {m} x {n}"] = _ast(_x(m, n).sum(1))
        out[f"sum of columns {m} x {n}"] = _ast(_x(m, n).sum(0))
        out[f"row added {m} x {n}"] = _ast(_x(m, n) + _x(n))
        out[f"chain {m} x {n}"] = _ast((_x(m, n) * _x(m, n) + 1.0).relu())
    out |= {f"transpose {m} x {n}": _ast(_x(m, n).T.contiguous()) for m, n in TRANSPOSED}
    for m, n in ROWS:
        out[f"softmax {m} x {n}"] = _ast(_x(m, n).softmax(-1))
        out[f"layer norm {m} x {n}"] = _ast(_x(m, n).layernorm())
    out["exponential 100000"] = _ast(_x(100_000).exp())
    out["largest of rows 300 x 500"] = _ast(_x(300, 500).amax(1))
    out["sum 200000"] = _ast(_x(200_000).sum())
    return out
