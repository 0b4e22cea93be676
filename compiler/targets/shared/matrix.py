"""Descriptions of matrix operations: shape, element types, and the lane maps of the operands.

An operation computes D = A * B + D for an m x k, a k x n and an m x n matrix that the lanes of a warp hold
together, in registers of 32 bits. A register of A or B holds a *word*: two elements of 16 bits, or four
bytes, that are neighbours along k. The coordinates of the element in a register are sums of weighted digits
of the numbers of the lane and of the register: a lane map lists these digits.

Not here: which operation a kernel uses (`compiler.plan.shared_product`), the instruction's text
(`compiler.targets.shared.dialect`). Next: `compiler.targets.nvptx.matrix`, `compiler.targets.amdgcn.matrix`
and `compiler.targets.host.matrix`, the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from compiler.dtype import HALF, dtypes
from hcq.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compiler.dtype import DType

PIECE = 8
"""Values of 16 bits that one copy moves, and that a row of a fragment has."""


@dataclass(frozen=True, slots=True)
class Digit:
    """A digit of a number, and its weight in a coordinate: `number // step % size * weight`."""

    of: Literal["lane", "register"]
    step: int
    size: int
    weight: int


@dataclass(frozen=True, slots=True)
class LaneMap:
    """Where the elements of one operand are."""

    registers: int
    """Registers of 32 bits in each lane."""
    row: tuple[Digit, ...]
    """Digits of the coordinate along m (A, D) or n (B)."""
    column: tuple[Digit, ...]
    """Digits of the coordinate along k in words (A, B), or along n (D)."""

    def at(self, lane: int, register: int) -> tuple[int, int]:
        """Return the coordinates of the element in a register of a lane."""
        number = {"lane": lane, "register": register}
        row, column = [
            sum(number[d.of] // d.step % d.size * d.weight for d in digits)
            for digits in (self.row, self.column)
        ]
        return row, column


@dataclass(frozen=True, slots=True)
class SharedOperand:
    """How A (or B) lies in shared memory: panels of rows of 128 bytes."""

    turned: bool
    """Whether a row holds elements along m (n); else along k."""
    panel: int
    """Bytes between panels."""


@dataclass(frozen=True, slots=True)
class SharedProducts:
    """Successive operations on tiles in shared memory."""

    op: MatrixOp
    a: SharedOperand
    b: SharedOperand
    steps: int
    """Operations, each along the next elements of k."""


@dataclass(frozen=True, slots=True, eq=False)
class MatrixOp:
    """One matrix operation. Operations are compared by identity, so that lookups need not hash the fields."""

    name: str
    """The name of the instruction, for dumps."""
    intrinsic: str
    """LLVM's intrinsic; of an operation on shared memory, the instruction."""
    shape: tuple[int, int, int]
    """m, n and k."""
    dtype: DType
    """The type of the elements of A, and of B where `other` is None."""
    lanes: int
    """Lanes of the warp, or of the group of warps."""
    a: LaneMap
    """The lane maps of A, B and D; those of A and B are empty for operands in shared memory."""
    b: LaneMap
    d: LaneMap
    shared: bool = False
    """Whether A and B are tiles in shared memory, whose rows of 128 bytes are permuted in pieces of 16."""
    rows: bool = False
    """Whether fragments can be loaded as 8 x 8 matrices, of which each lane addresses a row of 16 bytes."""
    total: DType = dtypes.float32
    """The type of the accumulators."""
    other: DType | None = None
    """The type of the elements of B, if it is not that of A."""
    narrower: MatrixOp | None = None
    """The same operation on half as many columns, if there is one."""

    @property
    def depth(self) -> int:
        """The number of words along k."""
        return self.shape[2] * self.dtype.itemsize // 4


def check_rows(ops: Sequence[MatrixOp], warp: int, async_bytes: int) -> None:
    """Raise `CompileError` for a row that no plan of a target would ever use, with the rule that it breaks.

    `warp` and `async_bytes` are those of the target; a host has a warp of 1.
    """
    for op in ops:
        alike = [o for o in ops if not o.shared and (o.dtype, o.other) == (op.dtype, op.other)]
        sums, rule = dtypes.float32 if op.dtype.is_float else dtypes.int32, ""
        half = op.dtype in HALF and op.other is None and op.total is dtypes.float32
        if warp > 1 and not half:
            rule = "operands of one type, float16 or bfloat16, and sums of float32 (plan.matrix_product)"
        elif warp == 1 and not (op.total is sums and op.dtype.itemsize * op.shape[2] == 4):
            rule = f"k values in 32 bits, and sums of {sums.name} (rewrite.packed_dot)"
        elif op.shared and not (async_bytes == 2 * PIECE and alike and alike[0].rows):
            rule = "copies of 16 bytes, and an operation of a warp on the same type that has `rows`"
        elif not op.shared and alike[0] is not op:
            rule = f"one operation for each type, saw {alike[0].name} before it; remove one"
        if rule:
            row = f"{op.name} of {op.dtype.name} with sums of {op.total.name}"
            raise CompileError(f"no plan uses the matrix operation {row}: wanted {rule}")


def places(digits: Sequence[Digit], adjacent: int) -> tuple[dict[Digit, int], int, int]:
    """Return the order of the rows (or columns) of D in the block of a warp that makes `adjacent` operations.

    `digits` are those of D's coordinate. The result is (digit -> distance in the block from one of its values
    to the next, rows of a thread, rows of the block). The operations are innermost, then the digits of the
    register, then those of the lane.
    """
    strides: dict[Digit, int] = {}
    total = adjacent
    for digit in sorted(digits, key=lambda d: (d.of == "lane", d.weight)):
        if digit.of == "lane":
            continue
        strides[digit] = total
        total *= digit.size
    mine = total
    for digit in sorted(digits, key=lambda d: d.weight):
        if digit.of == "lane":
            strides[digit] = total
            total *= digit.size
    return strides, mine, total
