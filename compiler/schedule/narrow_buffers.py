"""Store rounded values in the type to which they were rounded: half the bytes, and operands of 16 bits.

Users of a float16 result that compute in float32 share its conversion, so a temporary buffer often holds
float32(float16(x)). It holds float16 afterwards, and its users convert what they load: the same values.

Not here: values that are not rounded. Next: `scheduler`, the caller, on targets with matrix units.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from compiler.dtype import HALF
from compiler.ir.ops import Ops
from compiler.ir.uop import UOp, uop
from compiler.ir.walk import ordered, rebuilt
from compiler.schedule.item import BufRef, ScheduleItem, TempRef

if TYPE_CHECKING:
    from collections.abc import Sequence


def narrow_buffers(items: Sequence[ScheduleItem]) -> list[ScheduleItem]:
    """Return the schedule with each buffer of widened values of 16 bits in their own type."""
    made: dict[BufRef, BufRef] = {}
    for item in items:
        last = item.ast.src[-1] if item.ast.src[0].op is Ops.SINK else item.ast  # of a chain
        stores = {store.src[0].arg: store for store in last.src}
        for slot, value in zip(item.stores if item.values else (), item.values, strict=True):
            ref, store, node = item.bufs[slot], stores.get(slot), _stored(value)
            wide = store is not None and store.src[2].op is Ops.CAST and node.op is Ops.CAST
            if wide and store is not None and isinstance(ref, TempRef):
                narrow = store.src[2].src[0].dtype
                if narrow in HALF and node.src[0].dtype is narrow and ref.dtype.is_float:
                    made[ref] = replace(ref, dtype=narrow)
    return [_narrowed(item, made) if not made.keys().isdisjoint(item.bufs) else item for item in items]


def _narrowed(item: ScheduleItem, made: dict[BufRef, BufRef]) -> ScheduleItem:
    """Return an item with buffers of other types."""
    types = {n: made[ref].dtype for n, ref in enumerate(item.bufs) if ref in made}

    def change(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is Ops.BUFFER and node.arg in types:
            return uop(Ops.BUFFER, types[node.arg], (), node.arg)
        if node.op is Ops.LOAD and node.src[0].arg in types:
            return uop(Ops.CAST, node.dtype, (uop(Ops.LOAD, types[node.src[0].arg], src),))
        if node.op is Ops.STORE and node.src[0].arg in types:
            return uop(Ops.STORE, node.dtype, (*src[:2], src[2].src[0], *src[3:]))
        return None

    bufs = tuple([made.get(ref, ref) for ref in item.bufs])
    pairs = zip(item.stores if item.values else (), item.values, strict=True)
    values = tuple([_stored(node).src[0] if slot in types else node for slot, node in pairs])
    return ScheduleItem(rebuilt(ordered(item.ast), change)[item.ast], bufs, item.stores, values)


def _stored(node: UOp) -> UOp:
    """Return the node whose value a CONTIGUOUS stores."""
    return _stored(node.src[0]) if node.op is Ops.CONTIGUOUS else node
