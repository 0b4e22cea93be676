"""ERF, a primitive of the frontend: the error function, with its own gradient rule.

For |x| below 1 it is x + x P(x²), else 1 - exp(Q(|x|)) with the sign of x, with |x| limited to 4 (float64:
6), where the result is 1. The polynomials P and Q are minimax on the relative error of the result, fitted in
50 digits. Coefficients were rounded one after the other from the lowest power on, and the others fitted again
after each. 16-bit floats are computed in float32. tests/frontend/test_error_function.py asserts the largest
errors in units of the last place.

Not here: the gradient (`frontend.autograd.elementwise`). Next: `frontend.ops.functions`, the method.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from compiler.dtype import dtypes
from compiler.ir import graph
from compiler.ir.ops import Ops

if TYPE_CHECKING:
    from compiler.ir.uop import UOp

ERF: Final = "ERF"

_SMALL_32: Final = (
    0.12837916612625122, -0.3761262595653534, 0.1128358244895935, -0.026853643357753754, 0.005187963135540485,
    -0.0008006803691387177, 7.842346531106159e-05,
)  # fmt: skip
_LARGE_32: Final = (
    0.0001882721553556621, -1.1295794248580933, -0.6332180500030518, -0.1084204688668251, 0.02520943246781826,
    -0.004205006640404463, 0.0004414313589222729, -2.169566687371116e-05,
)  # fmt: skip
_SMALL_64: Final = (
    0.1283791670955126, -0.3761263890318406, 0.1128379167096891, -0.026866170647603518, 0.005223977648531143,
    -0.0008548328300712486, 0.0001205537784787334, -1.4926687483116187e-05, 1.6478061928294987e-06,
    -1.6526627997023325e-07, 1.581677250011492e-08, -1.5739110179640051e-09, 1.3172745035667134e-10,
)  # fmt: skip
_LARGE_64: Final = (
    -5.06799913029056e-07, -1.1283740518970429, -0.6366437940500937, -0.10270298775349113,
    0.01898933014731514, 0.000411795377181641, -0.0019171607497274362, 0.0007716259547234099,
    -0.00013567197242224523, -1.995689394724175e-05, 2.2700905869409184e-05, -8.629784131726484e-06,
    2.126789492531094e-06, -3.717026538778185e-07, 4.621221430473296e-08, -3.915150364034492e-09,
    2.0343000573600816e-10, -4.901064923707259e-12,
)  # fmt: skip


def _polynomial(x: UOp, coefficients: tuple[float, ...]) -> UOp:
    """Return the polynomial with coefficients from the lowest power on."""
    result = graph.full(coefficients[-1], x.shape, x.dtype)
    for c in reversed(coefficients[:-1]):
        result = graph.binary(Ops.ADD, graph.binary(Ops.MUL, result, x), graph.full(c, x.shape, x.dtype))
    return result


def lower(x: UOp) -> UOp:
    """Return the error function of x, a float, as a graph of exponentials and arithmetic in its dtype.

    Raises `UsageError` for another dtype.
    """
    dtype = x.dtype
    if dtype.bits == 16:
        return graph.cast(lower(graph.cast(x, dtypes.float32)), dtype)
    wide = dtype is dtypes.float64
    one, end = graph.full(1.0, x.shape, dtype), graph.full(6.0 if wide else 4.0, x.shape, dtype)
    size = graph.binary(Ops.MIN, graph.unary(Ops.ABS, x), end)
    small = graph.binary(
        Ops.MUL, x, _polynomial(graph.binary(Ops.MUL, x, x), _SMALL_64 if wide else _SMALL_32)
    )
    rest = graph.unary(Ops.EXP, _polynomial(size, _LARGE_64 if wide else _LARGE_32))
    large = graph.binary(Ops.SUB, one, rest)
    negative = graph.binary(Ops.LT, x, graph.full(0.0, x.shape, dtype))
    signed = graph.where(negative, graph.unary(Ops.NEG, large), large)
    return graph.where(graph.binary(Ops.LT, size, one), graph.binary(Ops.ADD, x, small), signed)
