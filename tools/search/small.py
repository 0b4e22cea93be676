"""Small kernels of every class, of which every plan is run: ragged sizes, masks, several types.

Each is a function of a device's name that returns an expression of one kernel.

Not here: running them (tests/compiler/test_search_plans.py compares them with NumPy).
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


def _x(*shape: int, dtype: str = "float32") -> Tensor:
    """Return a leaf; its values do not matter."""
    x = Tensor.zeros(*shape, device="cpu").contiguous()
    return (x if dtype == "float32" else x.cast(dtype)).realize()


def _product(m: int, n: int, k: int, layout: str, dtype: str = "float32") -> Tensor:
    """Return a product; a capital letter is a transposed operand."""
    a = _x(m, k, dtype=dtype) if layout[0] == "a" else _x(k, m, dtype=dtype).T
    b = _x(k, n, dtype=dtype) if layout[1] == "b" else _x(n, k, dtype=dtype).T
    return a @ b


SMALL: dict[str, Callable[[], Tensor]] = {
    "add": lambda: _x(37, 51) + _x(37, 51),
    "chain": lambda: (_x(1000) * 2.0 + _x(1000)).exp().relu(),
    "row": lambda: _x(21, 70) + _x(70),
    "column": lambda: _x(21, 70) * _x(21, 1),
    "transpose": lambda: _x(33, 50).permute(1, 0).contiguous(),
    "permute": lambda: _x(5, 18, 20).permute(2, 0, 1).contiguous(),
    "integers": lambda: _x(300, dtype="int32") * 3 + _x(300, dtype="int32"),
    "cast": lambda: _x(29, 31, dtype="int8").cast("float32") * 0.5,
    "padded": lambda: _x(13, 17).pad(((2, 3), (1, 4))) + 1.0,
    "sum": lambda: _x(2000).sum(),
    "sum of rows": lambda: _x(19, 130).sum(1),
    "sum of columns": lambda: _x(130, 19).sum(0),
    "sum inside": lambda: _x(7, 40, 9).sum(1),
    "integer sum": lambda: _x(45, 33, dtype="int32").sum(0),
    "largest": lambda: _x(23, 77).amax(1),
    "mean square": lambda: (_x(20, 65) * _x(20, 65)).mean(1),
    "softmax": lambda: _x(9, 100).softmax(-1),
    "norm": lambda: _x(9, 96).layernorm(),
    "product": lambda: _product(33, 40, 37, "ab"),
    "turned right": lambda: _product(34, 33, 40, "aB"),
    "turned left": lambda: _product(40, 36, 24, "Ab"),
    "thin": lambda: _product(3, 200, 90, "ab"),
    "vector": lambda: _product(1, 130, 300, "ab"),
    "batched": lambda: _x(3, 20, 33) @ _x(3, 33, 24),
    "half": lambda: _product(36, 40, 48, "ab", dtype="float16"),
    "brain": lambda: _product(40, 33, 34, "aB", dtype="bfloat16"),
    "brain in rows": lambda: _product(33, 40, 38, "ab", dtype="bfloat16"),
    "bytes": lambda: _product(35, 40, 36, "ab", dtype="int8"),
    "bytes turned": lambda: _product(20, 37, 64, "AB", dtype="int8"),
    "bytes in quads": lambda: _product(33, 40, 44, "Ab", dtype="int8"),
    "bytes without a sign": lambda: _product(36, 41, 40, "aB", dtype="uint8"),
    "bytes of both kinds": lambda: _x(34, 48, dtype="int8") @ _x(48, 37, dtype="uint8"),
    "window of bytes": lambda: _x(2, 4, 9, 9, dtype="int8").cast("int32").conv2d(
        _x(8, 4, 3, 3, dtype="int8").cast("int32"), padding=1
    ),
    "window": lambda: _x(2, 3, 9, 9).conv2d(_x(8, 3, 3, 3), padding=1),
    "strided": lambda: _x(1, 4, 11, 11).conv2d(_x(12, 4, 3, 3), stride=2).relu(),
}  # fmt: skip


def ast_of(name: str) -> UOp:
    """Return the AST of a small kernel; "in place" updates its operand."""
    if name == IN_PLACE:
        shape = (40, 21)
        x = graph.param(0, shape, _x(1).dtype)
        y = graph.param(1, shape, _x(1).dtype)
        return schedule([graph.assign(x, graph.binary("ADD", x, y))])[-1].ast
    value = SMALL[name]()
    return schedule(uops([(value.expr, tuple(range(len(value.leaves))))]))[-1].ast


IN_PLACE = "in place"
NAMES = (*SMALL, IN_PLACE)
