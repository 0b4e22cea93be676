"""Where a reduction may be evaluated: as the main reduction of a kernel, or inside a row.

Not here: decisions about other values (`recomputation`, `fusion`). Next: `fusion`, the caller.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from compiler.schedule.analysis import is_contraction, is_trailing, ranges_of, reduced_sizes
from compiler.schedule.recomputation import SLACK

if TYPE_CHECKING:
    from compiler.ir.uop import UOp
    from compiler.schedule.analysis import Evaluation, Facts, FusionLimits, KernelDraft


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
