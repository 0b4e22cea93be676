"""The result of the scheduler: kernels and the buffers they run on.

Not here: the scheduler (`scheduler`). Next: `frontend.plan`, which compiles and launches the items.
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
        """Bytes that a kernel may touch."""
        return prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class TempRef:
    """A temporary buffer of one schedule; numbered in order of production (`schedule.memory`)."""

    n: int
    dtype: DType
    shape: Shape

    @property
    def nbytes(self) -> int:
        """Bytes that the buffer needs."""
        return prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class OutRef:
    """Output number `n` of the schedule, row-major and contiguous, written whole."""

    n: int
    dtype: DType
    shape: Shape

    @property
    def nbytes(self) -> int:
        """Bytes that the buffer needs."""
        return prod(self.shape) * self.dtype.itemsize


BufRef = ParamRef | TempRef | OutRef


@dataclass(frozen=True, slots=True)
class ScheduleItem:
    """One kernel: its AST, and the buffer for each BUFFER slot.

    `stores` lists the written slots; a written slot that is also loaded is updated in place.
    """

    ast: UOp
    bufs: tuple[BufRef, ...]
    stores: tuple[int, ...]

    @property
    def writes(self) -> tuple[BufRef, ...]:
        """The buffers that the kernel stores to."""
        return tuple([self.bufs[slot] for slot in self.stores])
