"""Whether a value is computed again at each use, or computed once and stored.

The decision compares numbers of evaluations, costs and bytes.

Not here: whether a reduction fits a kernel (`places`). Next: `fusion`, the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from compiler.schedule.analysis import EXPENSIVE, ranges_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from compiler.schedule.analysis import Evaluation, Fact, Facts, FusionLimits, KernelDraft

SLACK: Final = 1.3
"""The most evaluations per element of a value that counts as computed once; padding adds some."""
_RECOMPUTED: Final = 64
"""The highest cost of the repeated evaluations of an element that are cheaper than a large buffer: that costs
a store, and a load in each kernel."""
_AMORTISED: Final = 32
"""The fewest evaluations per element for which even a cheap division gets a buffer."""


def computed_twice(fact: Fact, facts: Facts, limits: FusionLimits) -> bool:
    """Return whether a costly value is evaluated more often than it has elements, or in several kernels.

    In a row that one worker computes, an element may be evaluated once for each loop over the row.
    """
    kernel = fact.entries[0].kernel
    costly = fact.own_cost > EXPENSIVE or fact.own_rows
    users = dict.fromkeys([e.kernel for e in fact.entries])
    if costly and len(users) > 1:
        return not _cheaper_than_memory(fact, users, facts, limits)
    times = [_evaluations(e) / fact.size for e in fact.entries]
    if not costly:
        return sum(times) >= _AMORTISED
    if kernel.row is not None and max(times) <= SLACK:
        row = set(kernel.out[: kernel.row])
        return not all(row <= ranges_of(e) for e in fact.entries)
    return sum(times) > SLACK


def _cheaper_than_memory(
    fact: Fact, users: Iterable[KernelDraft], facts: Facts, limits: FusionLimits
) -> bool:
    """Return whether it costs less to compute a value in several kernels than to store and load it.

    It does not if a kernel evaluates elements more than about once, or if a costly value is small or has
    repeated evaluations of a high cost. Else the bytes that all kernels but one load to compute the value are
    compared with the bytes of its store and of the loads in these kernels.
    """
    nbytes = fact.size * fact.node.dtype.itemsize
    costly = fact.own_cost > EXPENSIVE
    if costly and (nbytes < limits.near or fact.own_cost * (len(fact.entries) - 1) > _RECOMPUTED):
        return False
    if max([_evaluations(e) for e in fact.entries]) > fact.size * SLACK:
        return False
    more = [_bytes(fact.inner & ~kernel.leaves, facts) for kernel in users]
    return sum(more) - max(more) <= nbytes * len(more)


def _bytes(leaves: int, facts: Facts) -> int:
    """Return the bytes of a set of buffers."""
    total = 0
    while leaves:
        low = leaves & -leaves
        total += facts.leaf_bytes[low.bit_length() - 1]
        leaves ^= low
    return total


def _evaluations(entry: Evaluation) -> int:
    """Return how often an entry is evaluated; inner loops on which it does not depend do not repeat it."""
    used = ranges_of(entry)
    most = 0
    for scope in entry.scopes:
        times = inner = 1
        for r in scope:
            times *= r.arg[1]
            if r in used:
                inner = times
        most = max(most, inner)
    return most
