"""Products of matrices that are not large squares, and attention: few rows, odd sizes, batches, layouts.

A case is data. `with_numpy`, `with_torch` and `with_hcq` return a function that computes its results once.
Elements are float32 unless the case names another type.

Not here: the table (`tools.performance.__main__`). Next: `tools.performance.worker`, the clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from frontend import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """A product of `batch` pairs of an m x k and a k x n matrix."""

    m: int
    n: int
    k: int
    batch: tuple[int, ...] = ()
    layout: str = "AB"
    """A letter with an apostrophe is an operand that is stored transposed: "A'B", "AB'", "A'B'"."""
    gradients: bool = False
    """Whether the results are the gradients of both operands for a given gradient of the product.

    The layout is AB then.
    """
    dtype: Literal["float32", "bfloat16", "int8"] = "float32"
    """The type of both operands; the product of int8 is int32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Scaled dot-product attention of one sequence: query, key and value are (1, heads, tokens, width)."""

    heads: int
    tokens: int
    width: int
    causal: bool = False
    """Whether a token attends only to itself and earlier tokens."""


Case = Product | Attention


def _rows(n: int) -> dict[str, Case]:
    return {f"{m} x 4096 by 4096 x {n}": Product(m=m, n=n, k=4096) for m in (1, 2, 4, 8, 16, 32, 64)}


CASES: Final[dict[str, Case]] = {
    **_rows(4096),
    **_rows(1024),
    "64 x 4096 by 4096 x 4096, B transposed": Product(m=64, n=4096, k=4096, layout="AB'"),
    "1 x 4096 by 4096 x 4096, B transposed": Product(m=1, n=4096, k=4096, layout="AB'"),
    "1000 x 1000 by 1000 x 1000": Product(m=1000, n=1000, k=1000),
    "1023 x 1023 by 1023 x 1023": Product(m=1023, n=1023, k=1023),
    "333 x 777 by 777 x 555": Product(m=333, n=555, k=777),
    "100 x 100 by 100 x 100": Product(m=100, n=100, k=100),
    "128 x 128 by 128 x 128": Product(m=128, n=128, k=128),
    "8192 x 256 by 256 x 8": Product(m=8192, n=8, k=256),
    "16384 x 64 by 64 x 64": Product(m=16384, n=64, k=64),
    "64 x 16384 by 16384 x 64": Product(m=64, n=64, k=16384),
    "4096 x 4096 by 4096 x 1": Product(m=4096, n=1, k=4096),
    "512, A transposed": Product(m=512, n=512, k=512, layout="A'B"),
    "512, B transposed": Product(m=512, n=512, k=512, layout="AB'"),
    "1000, A transposed": Product(m=1000, n=1000, k=1000, layout="A'B"),
    "1000, B transposed": Product(m=1000, n=1000, k=1000, layout="AB'"),
    "1000, both transposed": Product(m=1000, n=1000, k=1000, layout="A'B'"),
    "128 x 1024 by 1024 x 1024, gradients": Product(m=128, n=1024, k=1024, gradients=True),
    "512, gradients": Product(m=512, n=512, k=512, gradients=True),
    "64 of 128 x 128 by 128 x 128": Product(m=128, n=128, k=128, batch=(64,)),
    "8 x 12 of 64 x 64 by 64 x 64": Product(m=64, n=64, k=64, batch=(8, 12)),
    "8 x 12 of 64 x 64 by 64 x 64, B transposed": Product(m=64, n=64, k=64, batch=(8, 12), layout="AB'"),
    "512 of 32 x 32 by 32 x 32": Product(m=32, n=32, k=32, batch=(512,)),
    "512, bfloat16": Product(m=512, n=512, k=512, dtype="bfloat16"),
    "512, int8 to int32": Product(m=512, n=512, k=512, dtype="int8"),
    "attention, 8 heads of 2048 x 64": Attention(heads=8, tokens=2048, width=64),
    "attention, 8 heads of 2048 x 64, causal": Attention(heads=8, tokens=2048, width=64, causal=True),
}
"""The cases by name."""


def inputs(case: Case) -> list[np.ndarray[Any, Any]]:
    """Return the operands as they are stored, of float32 or int8, the same in every process.

    They are query, key and value of attention; A, B and, with `gradients`, the gradient of a product.
    """
    rng = np.random.default_rng(0)
    if isinstance(case, Attention):
        shape = (1, case.heads, case.tokens, case.width)
        return [rng.standard_normal(shape, dtype=np.float32) for _ in range(3)]
    shapes = [(case.m, case.k), (case.k, case.n), (case.m, case.n)][: 3 if case.gradients else 2]
    if case.layout.startswith("A'"):
        shapes[0] = shapes[0][::-1]
    if case.layout.endswith("B'"):
        shapes[1] = shapes[1][::-1]
    if case.dtype == "int8":
        return [rng.integers(-127, 128, (*case.batch, *shape)).astype(np.int8) for shape in shapes]
    return [rng.standard_normal((*case.batch, *shape), dtype=np.float32) for shape in shapes]


def _turned(case: Product, a: Any, b: Any) -> tuple[Any, Any]:
    """Return the operands of any implementation as m x k and k x n matrices, as views."""
    if case.layout.startswith("A'"):
        a = a.swapaxes(-1, -2)
    if case.layout.endswith("B'"):
        b = b.swapaxes(-1, -2)
    return a, b


def with_numpy(case: Case) -> Callable[[], list[Any]] | None:
    """Return a function that computes a case in NumPy; None for attention and types other than float32."""
    if isinstance(case, Attention) or case.dtype != "float32":
        return None
    x, y, *given = inputs(case)
    a, b = _turned(case, x, y)
    if case.gradients:
        (g,) = given
        return lambda: [g @ b.swapaxes(-1, -2), a.swapaxes(-1, -2) @ g]
    return lambda: [a @ b]


def with_torch(case: Case) -> Callable[[], Any] | None:
    """Return a function that computes a case in PyTorch, None if it cannot; bfloat16 is converted before."""
    import torch  # noqa: PLC0415 - in its own environment only

    given = [torch.from_numpy(x) for x in inputs(case)]
    if isinstance(case, Attention):
        q, k, v = given
        attention = torch.nn.functional.scaled_dot_product_attention
        return lambda: attention(q, k, v, is_causal=case.causal)
    if case.dtype == "bfloat16":
        given = [x.bfloat16() for x in given]
    a, b = _turned(case, *given[:2])
    if case.gradients:
        g = given[2]
        return lambda: [g @ b.mT, a.mT @ g]
    if case.dtype == "int8":
        return lambda: torch._int_mm(a, b)  # noqa: SLF001 - its one product of int8
    return lambda: a @ b


def with_hcq(case: Case) -> Callable[[], list[Tensor]]:
    """Return a function that computes a case in this project, waits for it, and returns the results."""
    from frontend import Device, Tensor  # noqa: PLC0415 - PyTorch's environment lacks it

    given = [Tensor(x).realize() for x in inputs(case)]
    device = Device[given[0].device]
    if isinstance(case, Product) and case.dtype == "bfloat16":
        given = [x.cast("bfloat16").realize() for x in given]

    def run() -> list[Tensor]:
        if isinstance(case, Attention):
            q, k, v = given
            results = [q.scaled_dot_product_attention(k, v, is_causal=case.causal)]
        else:
            a, b = (x.cast("int32") if case.dtype == "int8" else x for x in _turned(case, *given[:2]))
            results = (a @ b).gradient(a, b, gradient=given[2]) if case.gradients else [a @ b]
        results[0].realize(*results[1:])
        device.synchronize()
        return results

    return run
