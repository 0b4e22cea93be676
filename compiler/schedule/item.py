"""The result of the scheduler: kernels, and the buffers of each.

Not here: the scheduler (`scheduler`). Next: `frontend.evaluation.plan`, which compiles and launches the
items.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compiler.dtype import DType
    from compiler.ir.uop import Shape, UOp


@dataclass(frozen=True, slots=True)
class BufRef:
    """A buffer of a schedule, with its number among those of its kind."""

    n: int
    dtype: DType
    shape: Shape
    kind: ClassVar[str]
    """A short name for reports and keys."""

    @property
    def nbytes(self) -> int:
        """The bytes that a kernel may access."""
        return prod(self.shape) * self.dtype.itemsize


class ParamRef(BufRef):
    """The buffer behind a PARAM of the tensor graph; the number is the PARAM's slot."""

    __slots__ = ()
    kind = "in"


class TempRef(BufRef):
    """A temporary buffer, numbered in the order of the kernels that store it."""

    __slots__ = ()
    kind = "temp"


class OutRef(BufRef):
    """The buffer of an output of the schedule, row-major and contiguous, written completely."""

    __slots__ = ()
    kind = "out"


@dataclass(frozen=True, slots=True)
class ScheduleItem:
    """One kernel: its AST, and the buffer for each BUFFER slot.

    `stores` has the slots that it writes; a slot that it also loads is updated in place. `values` has the
    node of the tensor graph whose value each of them gets; it is empty where they are parts of such values.
    """

    ast: UOp
    bufs: tuple[BufRef, ...]
    stores: tuple[int, ...]
    values: tuple[UOp, ...]

    @property
    def writes(self) -> tuple[BufRef, ...]:
        """The buffers that the kernel stores to."""
        return tuple([self.bufs[slot] for slot in self.stores])


def needed(items: Sequence[ScheduleItem]) -> list[ScheduleItem]:
    """Return the items without those whose results nothing loads; folding can remove all loads."""
    wanted: set[BufRef] = set()
    kept: list[ScheduleItem] = []
    for item in reversed(items):
        if any(not isinstance(ref, TempRef) or ref in wanted for ref in item.writes):
            wanted.update(item.bufs)
            kept.append(item)
    kept.reverse()
    return kept
