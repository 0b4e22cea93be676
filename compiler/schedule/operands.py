"""Operands: kernels that load the same large buffer, and use no result of each other, become one.

The gradient of a layer's result is an operand of the gradients of its input, its weights and its bias: of two
products and a sum of columns. Each is a part in workgroups of its own, by the plan that it has alone, so its
results stay the same. The AST is that of a chain (`chains`) without common ranges: a SINK of the SINKs of the
parts with arg (buffers, 0), where no part uses a buffer that another one stores.

Not here: the plan (`compiler.plan.phases`). Next: `scheduler`, the caller, on a host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.dtype import dtypes
from compiler.ir.ops import Ops
from compiler.ir.uop import uop
from compiler.schedule.chains import with_buffers
from compiler.schedule.item import ScheduleItem
from compiler.schedule.rows import MOST_PARTS, NEAR, depends, may_be_part

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compiler.schedule.item import BufRef


def join_users(items: Sequence[ScheduleItem], least: int, most: int) -> list[ScheduleItem]:
    """Return the schedule with the kernels that load a buffer of at least `least` bytes as one.

    It is in the place of the first of them, and has at most `most` buffers.
    """
    done: list[tuple[list[ScheduleItem], set[BufRef]]] = []
    for item in items:
        loads = [ref for slot, ref in enumerate(item.bufs) if slot not in item.stores and ref.nbytes >= least]
        own: set[BufRef] = set(loads if loads and may_be_part(item) else ())
        found = _place(done, item, own, most) if own else None
        if found is None:
            done.append(([item], own))
        else:
            found[0].append(item)
            found[1].update(own)
    return [_beside(parts) if len(parts) > 1 else parts[0] for parts, _ in done]


def _place(
    done: Sequence[tuple[list[ScheduleItem], set[BufRef]]], item: ScheduleItem, own: set[BufRef], most: int
) -> tuple[list[ScheduleItem], set[BufRef]] | None:
    """Return the last kernel that an item can join, before all that are after it; None without one."""
    for parts, operands in done[: -NEAR - 1 : -1]:
        if any(depends(item, part) for part in parts):
            return None
        fits = len(parts) < MOST_PARTS and len({ref for p in (*parts, item) for ref in p.bufs}) <= most
        if fits and not own.isdisjoint(operands):
            return parts, operands
    return None


def _beside(parts: Sequence[ScheduleItem]) -> ScheduleItem:
    """Return some items as one."""
    stored = [ref for part in parts for ref in part.writes]
    refs = dict.fromkeys([*stored, *[ref for part in parts for ref in part.bufs]])
    slots = {ref: n for n, ref in enumerate(refs)}
    asts = tuple([with_buffers(part.ast, [slots[ref] for ref in part.bufs]) for part in parts])
    values = tuple([value for part in parts for value in part.values])
    ast = uop(Ops.SINK, dtypes.void, asts, (len(slots), 0))
    return ScheduleItem(ast, tuple(slots), tuple(range(len(stored))), values)
