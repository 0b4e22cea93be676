"""Attention on targets whose workgroups have threads: the passes that join, divide and recompute its kernels.

Apart from `scheduler`, because a process whose device is a host needs none of it. Not here: joins on a host
(`chains`, `rows`, `operands`). Next: `scheduler`, the caller; `compiler.plan.online_product`, the plans.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from compiler.plan import online_product
from compiler.schedule.chains import join_chains
from compiler.schedule.narrow_buffers import narrow_buffers
from compiler.schedule.recomputed import recompute_weights
from compiler.schedule.split_keys import split_keys

if TYPE_CHECKING:
    from compiler.schedule.item import ScheduleItem
    from compiler.targets.shared.target import Target


def join_attention(items: list[ScheduleItem], target: Target) -> list[ScheduleItem]:
    """Return the schedule with chains as one kernel each where the target has a plan for it."""
    parts = partial(online_product.parts, target=target)
    items = split_keys(join_chains(items, lambda chain: parts(chain) > 0), target)
    if len(items) == 1:
        return items
    # What follows changes buffers between kernels.
    return recompute_weights(narrow_buffers(items), lambda chain: parts(chain) == 1)
