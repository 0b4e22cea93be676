"""Products of matrices (matmul of any rank, dot, linear, einsum) and their diagonals and triangles.

A matrix product is an elementwise product of broadcast tensors and one sum.

Shapes and numbers of axes that do not fit, and dtypes that do not promote, raise `UsageError`; arguments of
other classes raise `UsageTypeError`.

Not here: convolutions (`convolutions`), attention (`normalization`). Next: `products`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from compiler.dtype import DType, dtypes, promote
from compiler.ir.ops import Ops
from frontend.arguments.checks import Shape, axis_of, broadcast, whole
from frontend.arguments.conversion import converting, read, shown
from frontend.evaluation.base import T, TensorBase
from frontend.evaluation.constants import constant, convert, coordinate, number_like, suited, widened_float
from frontend.evaluation.trace import apply, composite, method
from frontend.evaluation.views import viewing
from frontend.ops import reductions
from frontend.ops.elementwise import add, mul, result_dtype
from frontend.ops.movement import reshape, transpose
from hcq.errors import UsageError, UsageIndexError, UsageTypeError


def _wide(dtype: DType) -> DType:
    """Return the dtype in which products of a dtype are added: at least 32 bits wide."""
    if dtype.bits >= 32:
        return dtype
    return dtypes.float32 if dtype.is_float else dtypes.uint32 if dtype.kind == "uint" else dtypes.int32


def contract(a: T, b: T, axes: Shape) -> T:
    """Return the sum over axes of the product of two tensors that broadcast to one shape, as `matmul`."""
    return summed(_wide_contract(a, b, axes), promote(a.expr.dtype, b.expr.dtype))


def summed(total: T, dtype: DType) -> T:
    """Return sums of products, added in 32 bits or more, in the factors' dtype; bools count, in int32."""
    return total if dtype is dtypes.bool else convert(total, dtype)


def _wide_contract(a: T, b: T, axes: Shape) -> T:
    shape = broadcast((a.expr.shape, b.expr.shape), "product")
    wide = _wide(promote(a.expr.dtype, b.expr.dtype))
    x, y = (apply(Ops.EXPAND, shape, convert(t, wide)) for t in (a, b))
    return apply(Ops.REDUCE, (Ops.ADD, axes), apply(Ops.MUL, None, x, y))


@composite
def matmul(self: T, other: T) -> T:
    """Return the matrix product over the last axis of self and the last but one of other.

    Leading axes broadcast. A vector counts as a row on the left and as a column on the right, and the result
    lacks that axis. Dtypes promote. 16-bit floats are added in float32 and rounded once; integers of fewer
    than 32 bits are added in 32, and the lowest kept: `x.int() @ y.int()` has all. Bools count, in int32.

        Tensor.rand(5, 2, 3) @ Tensor.rand(3, 4)      # (5, 2, 4)

    Raises `UsageError` for tensors of shape () and for sizes that do not fit.
    """
    found, dtype = wide_matmul(self, other), promote(self.expr.dtype, other.expr.dtype)
    return found if dtype is dtypes.bool else convert(found, dtype)  # `summed`, without its call


def wide_matmul(self: T, other: T) -> T:
    """Return `matmul` before it is rounded, inside a traced method: 16-bit floats give float32."""
    a, b = self.expr.shape, other.expr.shape
    if not a or not b:
        raise UsageError(
            f"matmul needs at least one axis on both sides, saw the shapes {a} and {b}; use * with a scalar"
        )
    inner = b[-2] if len(b) > 1 else b[0]
    if a[-1] != inner:
        raise UsageError(
            f"matmul of {a} with {b}: the last axis of the left, {a[-1]}, "
            f"must equal axis {-2 if len(b) > 1 else 0} of the right, {inner}"
        )
    left = reshape(self, (*a[:-1], 1, a[-1]) if len(a) > 1 else (1, 1, a[0]))
    columns = other if len(b) > 1 else reshape(other, (b[0], 1))
    rank = len(columns.expr.shape)
    turned = apply(Ops.PERMUTE, (*range(rank - 2), rank - 1, rank - 2), columns)
    full = turned.expr.shape
    right = reshape(turned, (*full[:-2], 1, *full[-2:]))
    ranks = max(len(left.expr.shape), len(right.expr.shape))
    left, right = (reshape(t, (1,) * (ranks - len(t.expr.shape)) + t.expr.shape) for t in (left, right))
    result = _wide_contract(left, right, (ranks - 1,))
    shape = result.expr.shape
    if len(b) == 1:
        shape = shape[:-1]
    if len(a) == 1:
        shape = shape[:-2] + shape[-1:] if len(b) > 1 else shape[:-1]
    return reshape(result, shape)


@composite
def rmatmul(self: T, other: T) -> T:
    """Return other @ self."""
    return matmul(other, self)


def dot(self: T, other: T) -> T:
    """Return the matrix product: see `matmul`."""
    return matmul(self, other)


@composite
def linear(self: T, weight: T, bias: T | None = None) -> T:
    """Return self @ weight + bias, rounded once; a weight of one axis is multiplied elementwise instead.

    self is (..., inputs), weight (inputs, outputs), the transpose of `nn.Linear`'s, bias (outputs,); the
    result is (..., outputs). Raises as `matmul`.
    """
    if bias is None:
        return matmul(self, weight) if len(weight.expr.shape) > 1 else mul(self, weight)
    y = wide_matmul(self, weight) if len(weight.expr.shape) > 1 else mul(widened_float(self), weight)
    return summed(add(y, widened_float(bias)), result_dtype(self, weight, bias))


def einsum(formula: Any, *operands: T | Sequence[T]) -> T:
    """Return the sum of products that a formula such as "bij,bjk->bik" describes.

    A letter that occurs twice in a term means a diagonal: "ii->i" is the diagonal of a matrix, "ii->" its
    trace. "..." stands for the other axes of a term. Without "->" the result has the letters that occur once,
    in alphabetical order. The operands are separate arguments or one list. At least one is a tensor; arrays
    and lists of numbers are converted to tensors. Instead of a formula, a list of numbers below 52 and of
    Ellipsis may follow each operand, and one for the result all of them.

        Tensor.einsum("bij,bjk->bik", a, b)      # the same as a @ b

    Raises `UsageError` when the formula does not fit the operands, or when a letter has two sizes,
    `UsageTypeError` for a formula that is no text or operands without a tensor.
    """
    if hasattr(formula, "expr"):
        formula, operands = _formula((formula, *operands))
    if not isinstance(formula, str):
        raise UsageTypeError(f"einsum needs a formula such as 'ij,jk->ik', saw {shown(formula)}")
    every = operands[0] if len(operands) == 1 and isinstance(operands[0], (list, tuple)) else operands
    like = next((x for x in every if hasattr(x, "expr")), None)
    if like is None:
        raise UsageTypeError(f"einsum {formula!r}: wanted a tensor for each term, saw {shown(operands)}")
    terms: list[T] = [read(linear, "weight", x, like) for x in every]
    return _einsum(*terms, formula=formula)


def _formula(arguments: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """Return the formula and the operands of operands that are each followed by the numbers of their axes."""
    lists = [*arguments[1::2], *arguments[len(arguments) // 2 * 2 :]]
    if any(
        not isinstance(r, (list, tuple)) or any(v is not ... and v not in range(52) for v in r) for r in lists
    ):
        raise UsageTypeError(
            f"einsum: wanted a list of numbers below 52 for each operand, saw {shown(lists)}"
        )
    terms = ["".join(["..." if v is ... else chr((65 if v < 26 else 71) + v) for v in r]) for r in lists]
    count = len(arguments) // 2
    return ",".join(terms[:count]) + "".join(["->" + t for t in terms[count:]]), arguments[: 2 * count : 2]


@composite
def _einsum(*operands: T, formula: str) -> T:
    text = _spelled_out(formula.replace(" ", ""), operands)
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if not arrow:
        counts = "".join(terms)
        right = "".join(sorted({c for c in counts if counts.count(c) == 1}))
    if len(terms) != len(operands) or not all(c.isalpha() for c in left.replace(",", "") + right):
        raise UsageError(
            f"einsum {formula!r}: wanted one term of letters for each of {len(operands)} operands"
        )
    sizes: dict[str, int] = {}
    for term, x in zip(terms, operands, strict=True):
        shape = x.expr.shape
        if len(term) != len(shape):
            raise UsageError(
                f"einsum {formula!r}: the term {term!r} must name each axis of the shape {shape} by a letter"
            )
        for letter, n in zip(term, shape, strict=True):
            if sizes.setdefault(letter, n) != n:
                raise UsageError(f"einsum {formula!r}: axis {letter!r} has sizes {sizes[letter]} and {n}")
    if len(set(right)) != len(right) or any(c not in sizes for c in right):
        raise UsageError(
            f"einsum {formula!r}: the result {right!r} must name axes of the operands, each once"
        )
    letters = right + "".join([c for c in sizes if c not in right])
    pairs = [_with_letters_once(x, term) for x, term in zip(operands, terms, strict=True)]
    operands, terms = tuple([x for x, _ in pairs]), [term for _, term in pairs]
    product = _aligned(operands[0], terms[0], letters)
    axes = tuple(range(len(right), len(letters)))
    if len(operands) == 1:
        return reductions.sum(product, axes) if axes else product
    for term, x in zip(terms[1:-1], operands[1:-1], strict=True):
        product = mul(product, _aligned(x, term, letters))
    return contract(product, _aligned(operands[-1], terms[-1], letters), axes)


def _spelled_out(text: str, operands: Sequence[TensorBase]) -> str:
    """Return a formula with letters for each "...": the axes that the other letters of a term leave."""
    if "..." not in text:
        return text
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    spare = [c for c in "ZYXWVUTSRQPONMLKJIHGFEDCBAzyxwvutsrqponmlkjihgfedcba" if c not in text]
    if len(terms) != len(operands):
        return text
    counts = [len(x.expr.shape) - len(t.replace("...", "")) for t, x in zip(terms, operands, strict=True)]
    most = max([n for n, t in zip(counts, terms, strict=True) if "..." in t], default=0)
    shared = "".join(spare[:most])
    terms = [
        t.replace("...", shared[most - n :] if n > 0 else "") for t, n in zip(terms, counts, strict=True)
    ]
    if arrow:
        right = right.replace("...", shared)
    else:
        letters = left.replace(",", "").replace("...", "")
        right = shared + "".join(sorted({c for c in letters if letters.count(c) == 1}))
    return f"{','.join(terms)}->{right}"


def _with_letters_once(x: T, term: str) -> tuple[T, str]:
    """Return the diagonal over the axes of each repeated letter, and the letters of its axes."""
    while len(set(term)) != len(term):
        letter = next(c for c in term if term.count(c) > 1)
        a = term.index(letter)
        b = term.index(letter, a + 1)
        x = diagonal(x, 0, a, b)
        term = term[:a] + term[a + 1 : b] + term[b + 1 :] + letter
    return x, term


def _aligned(x: T, term: str, letters: str) -> T:
    """Return x with one axis per letter: its own in the order of the letters, 1 for the others."""
    order = sorted(range(len(term)), key=lambda i: letters.index(term[i]))
    shape = x.expr.shape
    x = apply(Ops.PERMUTE, tuple(order), x)
    return apply(Ops.RESHAPE, tuple([shape[term.index(c)] if c in term else 1 for c in letters]), x)


@viewing
def diagonal(self: T, offset: int = 0, axis1: int = 0, axis2: int = 1) -> T:
    """Return a diagonal of two axes as a new last axis. A view.

    Its elements are at [i, i + offset] of the two axes; an offset outside the matrix gives no elements.
    Raises `UsageIndexError` for fewer than two axes and for an axis that does not exist, `UsageError` for the
    same axis twice.
    """
    shape = self.expr.shape
    if len(shape) < 2:
        raise UsageIndexError(f"diagonal needs at least two axes, saw the shape {shape}")
    a, b = axis_of(axis1, shape, "diagonal"), axis_of(axis2, shape, "diagonal")
    if a == b:
        raise UsageError(f"diagonal of {shape}: wanted two different axes, saw {axis1} and {axis2}")
    x = apply(Ops.PERMUTE, (*[i for i in range(len(shape)) if i not in {a, b}], a, b), self)
    return _diagonal(x, whole(offset, "diagonal, offset"))


def _diagonal(x: T, offset: int) -> T:
    """Return a diagonal of the last two axes.

    The n * n elements from the diagonal's start on, padded by n and reshaped to rows of n + 1, have the
    diagonal as their first column.
    """
    *before, rows, columns = x.expr.shape
    down, right = max(0, -offset), max(0, offset)
    n = max(0, min(rows - down, columns - right))
    outer = [(0, m) for m in before]
    if not n:
        empty = apply(Ops.SHRINK, (*outer, (0, 0), (0, min(columns, 1))), x)
        return apply(Ops.RESHAPE, (*before, 0), empty)
    x = apply(Ops.SHRINK, (*outer, (down, down + n), (right, right + n)), x)
    flat = apply(Ops.RESHAPE, (*before, n * n), x)
    longer = apply(Ops.PAD, (*[(0, 0)] * len(before), (0, n)), flat)
    turned = apply(Ops.RESHAPE, (*before, n, n + 1), longer)
    return apply(Ops.RESHAPE, (*before, n), apply(Ops.SHRINK, (*outer, (0, n), (0, 1)), turned))


@method
def diag(self: T, diagonal: int = 0) -> T:
    """Return the matrix that has a vector on a diagonal and zeros elsewhere; of a matrix, its diagonal.

    `diagonal` is 0 for the main diagonal, above 0 for one above it, below 0 for one below it. The diagonal of
    a matrix is a copy. Raises `UsageError` for any other rank.
    """
    shape = self.expr.shape
    offset = whole(diagonal, "diag, diagonal")
    if len(shape) == 2:
        return _diagonal(self, offset)
    if len(shape) != 1:
        raise UsageError(f"diag needs a vector or a matrix, saw the shape {shape}; diagonal() takes any rank")
    size = shape[0] + abs(offset)
    square = (size, size)
    along = apply(Ops.PAD, ((max(0, offset), max(0, -offset)),), self)
    x = apply(Ops.EXPAND, square, apply(Ops.RESHAPE, (1, size), along))
    row, column = coordinate(x, square, 0), coordinate(x, square, 1)
    hit = apply(Ops.EQ, None, apply(Ops.ADD, None, row, constant(x, offset, row.expr.dtype, square)), column)
    return apply(Ops.WHERE, None, hit, x, constant(x, 0, x.expr.dtype, square))


@method
def tril(self: T, diagonal: int = 0) -> T:
    """Return self with zeros above a diagonal of the last two axes; `diagonal` as of `diag`.

    Raises `UsageError` for fewer than two axes.
    """
    return _triangle(self, diagonal, lower=True)


@method
def triu(self: T, diagonal: int = 0) -> T:
    """Return self with zeros below a diagonal of the last two axes; `diagonal` as of `diag`.

    Raises `UsageError` for fewer than two axes.
    """
    return _triangle(self, diagonal, lower=False)


def _triangle(x: T, diagonal: int, *, lower: bool) -> T:
    shape = x.expr.shape
    rank = len(shape)
    if rank < 2:
        raise UsageError(f"{'tril' if lower else 'triu'} needs at least two axes, saw the shape {shape}")
    row, column = coordinate(x, shape, rank - 2), coordinate(x, shape, rank - 1)
    border = apply(Ops.ADD, None, row, constant(x, diagonal + (1 if lower else 0), row.expr.dtype, shape))
    before = apply(Ops.LT, None, column, border)
    zero = constant(x, 0, x.expr.dtype, shape)
    return apply(Ops.WHERE, None, before, *((x, zero) if lower else (zero, x)))


@converting
def fill_diagonal(self: T, fill_value: float, wrap: bool = False) -> T:  # noqa: FBT001, FBT002 - the field's signature
    """Return self with a number on its main diagonal.

    With `wrap`, the diagonal of a matrix with more rows than columns starts again one row below each square.
    self has two axes, or more of one size. Raises `UsageError` for other shapes.
    """
    shape = self.expr.shape
    if len(shape) < 2 or (len(shape) > 2 and len(set(shape)) > 1):
        raise UsageError(f"fill_diagonal_: wanted two axes, or several of one size, saw the shape {shape}")
    step = sum([prod(shape[i + 1 :]) for i in range(len(shape))])
    last = prod(shape) if wrap and len(shape) == 2 else (min(shape) - 1) * step + 1
    place = coordinate(self, (prod(shape),), 0)
    zero = number_like(place, 0)
    stride = number_like(place, max(1, step))
    on = apply(Ops.EQ, None, apply(Ops.MOD, None, place, stride), zero)
    before = apply(Ops.LT, None, place, number_like(place, last))
    mask = apply(Ops.RESHAPE, shape, apply(Ops.AND, None, on, before))
    value = constant(self, suited(fill_value, self.expr.dtype), self.expr.dtype, shape)
    return apply(Ops.WHERE, None, mask, value, self)


def symmetric(x: T, *, upper: bool) -> T:
    """Return symmetric matrices whose lower, or upper, triangle is that of x."""
    half = transpose(x, -1, -2) if upper else x
    return add(tril(half), transpose(tril(half, -1), -1, -2))


def adjoint(self: T) -> T:
    """Return the last two axes swapped. A view. Raises `UsageError` for fewer than two axes."""
    if len(self.expr.shape) < 2:
        raise UsageError(f"adjoint: wanted at least two axes, saw the shape {self.expr.shape}")
    return transpose(self, -2, -1)
