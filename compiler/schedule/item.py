"""The result of the scheduler: kernels, and the buffers of each.

Not here: the scheduler (`scheduler`). Next: `frontend.evaluation.plan`, which compiles and launches the
items.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compiler.dtype import DType
    from compiler.ir.uop import Shape, UOp


@dataclass(frozen=True, slots=True)
class ParamRef:
    """The buffer behind PARAM `slot` of the tensor graph."""

    slot: int
    dtype: DType
    shape: Shape

    @property
    def nbytes(self) -> int:
        """The bytes that a kernel may access."""
        return prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class TempRef:
    """A temporary buffer of one schedule, numbered in the order of the kernels that store it."""

    n: int
    dtype: DType
    shape: Shape

    @property
    def nbytes(self) -> int:
        """The size of the buffer in bytes."""
        return prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class OutRef:
    """The buffer of output number `n` of the schedule, row-major and contiguous, written completely."""

    n: int
    dtype: DType
    shape: Shape

    @property
    def nbytes(self) -> int:
        """The size of the buffer in bytes."""
        return prod(self.shape) * self.dtype.itemsize


BufRef = ParamRef | TempRef | OutRef


@dataclass(frozen=True, slots=True)
class ScheduleItem:
    """One kernel: its AST, and the buffer for each BUFFER slot.

    `stores` has the slots that it writes; a slot that it also loads is updated in place. `values` has the
    node of the tensor graph whose value each of them gets.
    """

    ast: UOp
    bufs: tuple[BufRef, ...]
    stores: tuple[int, ...]
    values: tuple[UOp, ...]

    @property
    def writes(self) -> tuple[BufRef, ...]:
        """The buffers that the kernel stores to."""
        return tuple([self.bufs[slot] for slot in self.stores])
