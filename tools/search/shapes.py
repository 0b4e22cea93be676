"""The shapes over which the choice of the cost model is compared with an exhaustive search.

Products of many sizes, convolutions, sums along either axis, transposes, elementwise kernels, rows. The model
is fitted to `FIRST`; `SECOND` has other sizes of the same kinds and is for validation only.

Not here: the comparison (`choose`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tools.search.small import kernel_of, leaf, product

if TYPE_CHECKING:
    from compiler.ir.uop import UOp

Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The sizes of a list of shapes."""

    products: tuple[tuple[int, int, int], ...]
    """Rows, columns and products of one result."""
    turned: tuple[tuple[str, int, int, int], ...]
    """A capital letter is a transposed operand."""
    batched: tuple[tuple[int, int, int, int], ...]
    convolutions: tuple[tuple[int, int, int, int, int, int], ...]
    """Pictures, channels, side, filters, side of a filter, padding."""
    matrices: Pairs
    """Of sums along either axis, an added row, a chain."""
    transposed: Pairs
    rows: Pairs
    """Of softmax and layer norm."""
    exponentials: int
    largest: tuple[int, int]
    elements: int
    """Of a whole sum."""


FIRST = Sizes(
    products=(
        (64, 64, 64), (100, 100, 100), (128, 128, 128), (256, 256, 256), (384, 384, 384), (512, 512, 512),
        (33, 65, 129), (200, 333, 77), (500, 250, 125), (16, 512, 512), (8, 768, 768), (4, 512, 1024),
        (2, 300, 500), (1, 512, 512), (512, 16, 512), (1000, 8, 64), (512, 64, 32), (64, 512, 16),
        (32, 32, 2000), (197, 384, 192),
    ),
    turned=(
        ("aB", 256, 256, 256), ("Ab", 256, 256, 256), ("AB", 256, 256, 256), ("aB", 64, 384, 384),
        ("aB", 1, 512, 512), ("Ab", 100, 200, 300),
    ),
    batched=((8, 64, 64, 64), (16, 33, 40, 48), (32, 16, 64, 32)),
    convolutions=(
        (1, 16, 28, 32, 3, 1), (4, 3, 32, 16, 3, 1), (2, 32, 14, 64, 3, 1), (1, 64, 14, 64, 1, 0),
        (8, 1, 28, 32, 5, 2),
    ),
    matrices=((64, 1000), (300, 300), (1000, 64), (500, 777)),
    transposed=((128, 128), (300, 500), (777, 333), (1024, 256)),
    rows=((64, 256), (200, 777), (1000, 64)),
    exponentials=100_000,
    largest=(300, 500),
    elements=200_000,
)  # fmt: skip
SECOND = Sizes(
    products=(
        (48, 48, 48), (96, 160, 64), (150, 70, 210), (320, 320, 320), (600, 96, 300), (77, 513, 45),
        (24, 1024, 256), (6, 128, 2000), (3, 700, 400), (1, 1000, 300), (700, 12, 90), (40, 400, 40),
        (1200, 32, 32), (130, 514, 66), (300, 48, 700),
    ),
    turned=(
        ("aB", 200, 300, 150), ("Ab", 160, 90, 400), ("AB", 128, 192, 160), ("aB", 12, 640, 300),
        ("Ab", 500, 40, 100), ("AB", 70, 330, 50),
    ),
    batched=((4, 100, 100, 60), (12, 48, 20, 96), (64, 32, 32, 32)),
    convolutions=(
        (2, 16, 20, 24, 3, 1), (1, 48, 28, 48, 3, 1), (4, 8, 16, 32, 5, 2), (1, 32, 20, 96, 1, 0),
        (3, 3, 48, 12, 3, 1), (16, 1, 20, 16, 5, 0),
    ),
    matrices=((128, 600), (450, 210), (2000, 96), (90, 1500)),
    transposed=((256, 192), (411, 630), (1500, 64)),
    rows=((128, 512), (300, 100), (96, 1111)),
    exponentials=30_000,
    largest=(200, 320),
    elements=77_777,
)  # fmt: skip


def shapes(sizes: Sizes = FIRST) -> dict[str, UOp]:
    """Return the kernels of a list by name."""
    out = {f"product {m} x {n} x {k}": kernel_of(product(m, n, k, "ab")) for m, n, k in sizes.products}
    out |= {
        f"product {m} x {n} x {k} {layout}": kernel_of(product(m, n, k, layout))
        for layout, m, n, k in sizes.turned
    }
    out |= {
        f"{b} products {m} x {n} x {k}": kernel_of(leaf(b, m, k) @ leaf(b, k, n))
        for b, m, n, k in sizes.batched
    }
    for count, channels, side, filters, size, padding in sizes.convolutions:
        x, w = leaf(count, channels, side, side), leaf(filters, channels, size, size)
        name = f"convolution {count} x {channels} x {side}^2, {filters} filters {size}^2"
        out[name] = kernel_of(x.conv2d(w, padding=padding))
    for m, n in sizes.matrices:
        out[f"sum of rows {m} x {n}"] = kernel_of(leaf(m, n).sum(1))
        out[f"sum of columns {m} x {n}"] = kernel_of(leaf(m, n).sum(0))
        out[f"row added {m} x {n}"] = kernel_of(leaf(m, n) + leaf(n))
        out[f"chain {m} x {n}"] = kernel_of((leaf(m, n) * leaf(m, n) + 1.0).relu())
    out |= {f"transpose {m} x {n}": kernel_of(leaf(m, n).T.contiguous()) for m, n in sizes.transposed}
    for m, n in sizes.rows:
        out[f"softmax {m} x {n}"] = kernel_of(leaf(m, n).softmax(-1))
        out[f"layer norm {m} x {n}"] = kernel_of(leaf(m, n).layernorm())
    m, n = sizes.largest
    out[f"exponential {sizes.exponentials}"] = kernel_of(leaf(sizes.exponentials).exp())
    out[f"largest of rows {m} x {n}"] = kernel_of(leaf(m, n).amax(1))
    out[f"sum {sizes.elements}"] = kernel_of(leaf(sizes.elements).sum())
    return out
