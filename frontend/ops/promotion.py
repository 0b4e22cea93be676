"""Which dtype the result of several operands has: PyTorch's rule of categories.

Bool, integers and floats are three categories. Tensors with axes decide first, tensors of shape () after
them, Python's numbers last: who comes later changes the dtype only where its category is a higher one. Among
equals `compiler.dtype.promote` decides. So `half * Tensor(0.5)` and `half * 0.5` are float16,
`int8 + Tensor(1000)` is int8, and `int8 * 0.5` is float32.

Differences to PyTorch: a Python int beside bool gives int32 (there int64), as everywhere here; unsigned
integers of 16 to 64 bits promote, where PyTorch refuses: to the signed type that holds both, uint64 with a
signed one to float64, as NumPy has it.

Not here: promotion of two dtypes (`compiler.dtype`), explicit casts (`casts`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.dtype import DType, dtypes, promote
from frontend.ops.arguments import number_dtype

if TYPE_CHECKING:
    from frontend.ops.sources import Number
    from frontend.tensor_base import TensorBase


def result_dtype(*operands: TensorBase | Number) -> DType:
    """Return the dtype of an elementwise result of tensors and numbers."""
    wide: DType | None = None
    scalar: DType | None = None
    numbers: list[Number] = []
    for x in operands:
        if isinstance(x, (int, float)):
            numbers.append(x)
        elif x.expr.shape:
            wide = x.expr.dtype if wide is None else promote(wide, x.expr.dtype)
        else:
            scalar = x.expr.dtype if scalar is None else promote(scalar, x.expr.dtype)
    found = scalar if wide is None else wide if scalar is None else beside(wide, scalar)
    for number in sorted(numbers, key=lambda n: isinstance(n, float)):
        found = number_dtype(number, dtypes.bool if found is None else found)
    assert found is not None  # there is at least one operand
    return found


def beside(wide: DType, scalar: DType) -> DType:
    """Return the dtype of a tensor with axes beside one of shape ()."""
    category = {"bool": 0, "int": 1, "uint": 1, "float": 2}
    return scalar if category[scalar.kind] > category[wide.kind] else wide
