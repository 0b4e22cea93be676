"""Where a value may be evaluated: a reduction in a kernel or inside a row, any value again or in a buffer.

A reduction is the main one of a kernel, or runs inside a row. Whether a value is computed again at each use,
or computed once and stored, depends on numbers of evaluations, costs and bytes.

Not here: the decisions themselves (`fusion`, the caller).
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Final

from compiler.schedule.analysis import EXPENSIVE, is_contraction, is_trailing, ranges_of, reduced_sizes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from compiler.ir.uop import UOp
    from compiler.schedule.analysis import Evaluation, Fact, Facts, FusionLimits, KernelDraft


class Places:
    """Whether the reductions of one graph fit the kernels at which their results arrive."""

    def __init__(self, facts: Facts, limits: FusionLimits) -> None:
        self.facts = facts
        self.limits = limits
        self._contractions: dict[UOp, bool] = {}

    def weight(self, reduction: UOp) -> tuple[bool, int]:
        """Return a key by which reductions are placed, the largest first: contractions, then the longest."""
        return self._is_contraction(reduction), prod(reduced_sizes(reduction))

    def _is_contraction(self, reduction: UOp) -> bool:
        found = self._contractions.get(reduction)
        if found is None:
            found = self._contractions[reduction] = is_contraction(reduction)
        return found

    def take(self, entry: Evaluation, reduction: UOp, *, claim: bool) -> bool:
        """Return whether a reduction whose whole result reaches this entry may be in the entry's kernel.

        A *main* reduction is evaluated once for each output element. A *row* reduction depends on leading
        output ranges only, and every loop that repeats it runs along the row that it reduces. A contraction
        is in no kernel that updates a buffer in place, because its register tiles overlap at the edges. With
        `claim`, the kernel is marked as one with this reduction, if it may be there.
        """
        kernel = entry.kernel
        if kernel.updates and self._is_contraction(reduction):
            return False
        used = ranges_of(entry)
        prefix = len(used)
        if used != set(kernel.out[:prefix]):
            return False
        rows = prod([r.arg[1] for r in kernel.out[:prefix]])
        if rows > entry.fact.size * SLACK:
            return False
        leaves = kernel.leaves & ~self.facts.of[reduction].bit | self.facts.of[reduction].inner
        if leaves.bit_count() + len(kernel.stores) > self.limits.buffers:
            return False
        if prefix == len(kernel.out) and list(entry.scopes) == [kernel.out]:
            fits = self._fits_main(kernel, reduction, prefix)
            if fits and claim and kernel.main is None:
                kernel.main = reduction
        else:
            fits = self._fits_row(entry, reduction, prefix, rows)
            if fits and claim:
                kernel.row = prefix
        if fits and claim:
            kernel.leaves = leaves
        return fits

    def _fits_main(self, kernel: KernelDraft, reduction: UOp, prefix: int) -> bool:
        if kernel.row not in (None, prefix):
            return False
        return kernel.main is None or kernel.main is reduction or self.alike(kernel.main, reduction)

    def alike(self, a: UOp, b: UOp) -> bool:
        """Return whether two reductions can share a loop and loads, such as sums and sums of squares."""
        if a.src[0].shape != b.src[0].shape or a.arg[1] != b.arg[1]:
            return False
        if self._is_contraction(a) or self._is_contraction(b):
            return False
        size = prod(a.src[0].shape)
        return self.share(self.facts.of[a].inner, self.facts.of[b].inner, size)

    def share(self, a: int, b: int, size: int) -> bool:
        """Return whether two sets of leaves have a common buffer of at least `size` elements."""
        common = a & b
        sizes = self.facts.leaf_sizes
        while common:
            low = common & -common
            if sizes[low.bit_length() - 1] >= size:
                return True
            common ^= low
        return False

    def _fits_row(self, entry: Evaluation, reduction: UOp, prefix: int, rows: int) -> bool:
        kernel = entry.kernel
        length = prod(reduced_sizes(reduction))
        limits = self.limits
        if length > limits.row or (rows < limits.few_rows and length > limits.few_rows_row):
            return False
        if kernel.row not in (None, prefix) or self._is_contraction(reduction) or not is_trailing(reduction):
            return False
        if kernel.main is not None and kernel.main is not reduction:
            along = prod(reduced_sizes(kernel.main)) == length
            if prefix != len(kernel.out) or self._is_contraction(kernel.main) or not along:
                return False
        return all(prod([r.arg[1] for r in scope[prefix:]]) in (1, length) for scope in entry.scopes)


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
