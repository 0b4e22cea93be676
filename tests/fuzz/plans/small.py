"""Small kernels of every class, of which every plan is run: ragged sizes, masks, several types.

Each is a function that returns a pending tensor, whose last kernel is meant.

Not here: the runs (`__main__`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.ir import graph
from compiler.schedule.scheduler import schedule
from frontend import Tensor
from frontend.evaluation.expr import uops

if TYPE_CHECKING:
    from collections.abc import Callable

    from compiler.ir.uop import UOp


def leaf(*shape: int, dtype: str = "float32") -> Tensor:
    """Return a tensor in memory. It is all zeros: only its shape and dtype count."""
    x = Tensor.zeros(*shape, device="cpu").contiguous()
    return (x if dtype == "float32" else x.cast(dtype)).realize()


def product(m: int, n: int, k: int, layout: str, dtype: str = "float32") -> Tensor:
    """Return the product of matrices of m x k and k x n; a capital letter in `layout` is a transposed one."""
    a = leaf(m, k, dtype=dtype) if layout[0] == "a" else leaf(k, m, dtype=dtype).T
    b = leaf(k, n, dtype=dtype) if layout[1] == "b" else leaf(n, k, dtype=dtype).T
    return a @ b if dtype not in {"int8", "uint8"} else a.cast("int32") @ b.cast("int32")


def gradient(pictures: tuple[int, ...], filters: tuple[int, ...], stride: int, *, of_filters: bool) -> Tensor:
    """Return the gradient of a padded convolution for its pictures, or for its filters."""
    x, w = leaf(*pictures), leaf(*filters)
    wanted = w if of_filters else x
    wanted.requires_grad = True
    result = x.conv2d(w, stride=stride, padding=1)
    result.backward(leaf(*result.shape))
    assert wanted.grad is not None
    return wanted.grad


SMALL: dict[str, Callable[[], Tensor]] = {
    "add": lambda: leaf(37, 51) + leaf(37, 51),
    "chain": lambda: (leaf(1000) * 2.0 + leaf(1000)).exp().relu(),
    "row": lambda: leaf(21, 70) + leaf(70),
    "column": lambda: leaf(21, 70) * leaf(21, 1),
    "transpose": lambda: leaf(33, 50).permute(1, 0).contiguous(),
    "permute": lambda: leaf(5, 18, 20).permute(2, 0, 1).contiguous(),
    "integers": lambda: leaf(300, dtype="int32") * 3 + leaf(300, dtype="int32"),
    "cast": lambda: leaf(29, 31, dtype="int8").cast("float32") * 0.5,
    "padded": lambda: leaf(13, 17).pad(((2, 3), (1, 4))) + 1.0,
    "sum": lambda: leaf(2000).sum(),
    "sum of rows": lambda: leaf(19, 130).sum(1),
    "sum of columns": lambda: leaf(130, 19).sum(0),
    "sum inside": lambda: leaf(7, 40, 9).sum(1),
    "integer sum": lambda: leaf(45, 33, dtype="int32").sum(0),
    "largest": lambda: leaf(23, 77).amax(1),
    "mean square": lambda: (leaf(20, 65) * leaf(20, 65)).mean(1),
    "softmax": lambda: leaf(9, 100).softmax(-1),
    "norm": lambda: leaf(9, 96).layernorm(),
    "product": lambda: product(33, 40, 37, "ab"),
    "turned right": lambda: product(34, 33, 40, "aB"),
    "turned left": lambda: product(40, 36, 24, "Ab"),
    "thin": lambda: product(3, 200, 90, "ab"),
    "vector": lambda: product(1, 130, 300, "ab"),
    "batched": lambda: leaf(3, 20, 33) @ leaf(3, 33, 24),
    "half": lambda: product(36, 40, 48, "ab", dtype="float16"),
    "brain": lambda: product(40, 33, 34, "aB", dtype="bfloat16"),
    "brain in rows": lambda: product(33, 40, 38, "ab", dtype="bfloat16"),
    "eight bits": lambda: product(33, 40, 38, "aB", dtype="float8_e4m3fn"),
    "bytes": lambda: product(35, 40, 36, "ab", dtype="int8"),
    "bytes that stay bytes": lambda: leaf(33, 40, dtype="int8") @ leaf(40, 44, dtype="int8"),
    "bytes turned": lambda: product(20, 37, 64, "AB", dtype="int8"),
    "bytes in quads": lambda: product(33, 40, 44, "Ab", dtype="int8"),
    "bytes without a sign": lambda: product(36, 41, 40, "aB", dtype="uint8"),
    "bytes of both kinds": lambda: leaf(34, 48, dtype="int8") @ leaf(48, 37, dtype="uint8"),
    "window of bytes": lambda: leaf(2, 4, 9, 9, dtype="int8").cast("int32").conv2d(
        leaf(8, 4, 3, 3, dtype="int8").cast("int32"), padding=1
    ),
    "window": lambda: leaf(2, 3, 9, 9).conv2d(leaf(8, 3, 3, 3), padding=1),
    "many channels": lambda: leaf(1, 16, 12, 12).conv2d(leaf(16, 16, 3, 3), padding=1).relu(),
    "gradient of filters": lambda: gradient((2, 16, 12, 12), (16, 16, 3, 3), 1, of_filters=True),
    "gradient with stride": lambda: gradient((2, 8, 14, 14), (16, 8, 3, 3), 2, of_filters=False),
    "largest of columns": lambda: leaf(77, 23).amax(0),
    "cumulated": lambda: leaf(7, 65).cumsum(1),
    "strided": lambda: leaf(1, 4, 11, 11).conv2d(leaf(12, 4, 3, 3), stride=2).relu(),
}  # fmt: skip


def kernel_of(value: Tensor) -> UOp:
    """Return the AST of the last kernel that a pending tensor needs."""
    return schedule(uops([(value.expr, tuple(range(len(value.leaves))))]))[-1].ast


def ast_of(name: str) -> UOp:
    """Return the AST of a kernel of `NAMES`; `IN_PLACE` adds a tensor to its own operand."""
    if name == IN_PLACE:
        shape = (40, 21)
        x = graph.param(0, shape, leaf(1).dtype)
        y = graph.param(1, shape, leaf(1).dtype)
        return schedule([graph.assign(x, graph.binary("ADD", x, y))])[-1].ast
    return kernel_of(SMALL[name]())


IN_PLACE = "in place"
NAMES = (*SMALL, IN_PLACE)
