"""The search space of one kernel on one target: the choices that have a plan, and the steps between them.

`estimated` is the choice of the cost model, `starts` are the proposals of every planner, `moves` are the
choices that differ from one in one factor. Choices whose plans are equal count once.

Not here: the planners and their proposals (`compiler.plan.proposers`), a set of choices for an exhaustive
search (`tests.fuzz.plans.exhaustive`), timing plans (`trial`). Next: `beam`, which walks along moves.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations, product
from math import prod
from typing import TYPE_CHECKING, cast

from compiler.plan import contraction, online_product, proposers
from compiler.plan.block_splits import all_splits
from compiler.plan.choice import OnlineChoice, ProductChoice, SplitChoice, StagedChoice
from compiler.plan.cost import LINES
from compiler.plan.matrix_product import operands, product_of
from compiler.plan.proposal import prepared
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from compiler.ir.uop import UOp
    from compiler.nest.kernel_shape import Family, KernelShape
    from compiler.plan.choice import Choice, Copied, Numbers
    from compiler.plan.proposal import KernelForm, Proposal
    from compiler.targets.shared.target import Target

ROUNDS = (1, 2, 4, 8)
"""Unrolled rounds of a reduction."""
PIECES = (0, 256, 512)
"""Products of a piece of a sum."""
WORDS = (8, 16, 32)
"""Words along the sum of a tile in shared memory."""
COPIED: tuple[Copied, ...] = ("no", "all", "block")
GROUPS = (1, 2, 4, 8, 16)
"""Workgroups that `moves` tries."""


class Space:
    """The choices of one kernel on one target, as proposals: each with its plan."""

    def __init__(self, ast: UOp, target: Target) -> None:
        """Raises `UsageError` for a chain in parts (`compiler.schedule.chains`), which has one plan."""
        if ast.arg and target.threads == 1:
            raise UsageError("wanted a kernel of one part, saw a chain of several; try BEAM=0 for it")
        self.target = target
        self.kernel = prepared(ast)
        forms = () if ast.arg else proposers.FORMS
        made = {form: self.kernel.changed(form, target) for form in forms}
        self.forms = {form: kernel for form, kernel in made.items() if kernel is not None}

    def candidate(self, choice: Choice) -> Proposal | None:
        """Return the proposal of a choice; None where it has no plan. Raises as `proposers.chosen`."""
        return proposers.chosen(self.kernel, self.target, choice)

    def estimated(self) -> Proposal:
        """Return the proposal of the cost model, whose plan is that of `compiler.pipeline.planned`."""
        return proposers.best(self.kernel, self.target)

    def starts(self) -> list[Proposal]:
        """Return the estimated proposal, then every other one, also those that are not worth it."""
        return distinct([self.estimated(), *proposers.every(self.kernel, self.target)])

    def moves(self, choice: Choice) -> list[Proposal]:
        """Return the candidates that differ from a choice in one factor; none of a choice without factors."""
        found: Iterable[Choice] = ()
        if isinstance(choice, OnlineChoice):
            found = online_product.every_choice(self.kernel.ast, self.target)
        elif isinstance(choice, StagedChoice):
            found = self._staged_moves(choice)
        elif isinstance(choice, ProductChoice):
            found = self._product_moves(choice)
        elif isinstance(choice, SplitChoice):
            found = self._split_moves(choice)
        return distinct(self.made([c for c in found if c != choice]))

    def made(self, choices: Iterable[Choice]) -> Iterator[Proposal]:
        """Yield the proposals of the choices that have plans, each choice once."""
        for choice in dict.fromkeys(choices):
            made = self.candidate(choice)
            if made is not None:
                yield made

    def staged(self) -> Iterator[StagedChoice]:
        """Yield every division of a product with every number of words, those that do not fit included."""
        p = product_of(self.kernel.shape, self.target)
        if p is not None:
            op, _, _ = operands(p, self.target)
            for words, operation in product(WORDS, (None,) if op is None else (op, None)):
                for split in all_splits(p, operation, self.target):
                    yield replace(split.name, words=words)

    def _staged_moves(self, choice: StagedChoice) -> Iterator[StagedChoice]:
        """Yield the choices with another number of words, and those with other threads or another tile."""
        for other in self.staged():
            differences = (
                other.words != choice.words,
                (other.rows, other.columns) != (choice.rows, choice.columns),
                (other.high, other.wide) != (choice.high, choice.wide),
                other.depth != choice.depth,
            )
            if sum(differences) == 1 or (other.matrix != choice.matrix and other.words == choice.words):
                yield other

    def of_role(self, kernel: KernelForm, role: int, *, inside: bool) -> ProductChoice | None:
        """Return the choice with one of the choices of rows and columns, other factors estimated; or None."""
        choice = ProductChoice(form=kernel.form, role=role, rows=0, inside=inside)
        made = contraction.by_choice(kernel, self.target, choice)
        return None if made is None else cast("ProductChoice", made.choice)

    def _product_moves(self, choice: ProductChoice) -> Iterator[Choice]:
        kernel = self.forms[choice.form]
        for step in (-2, -1, 1, 2):
            if choice.rows + step >= 1:
                yield replace(choice, rows=choice.rows + step)
            if choice.vectors + step >= 1:
                yield replace(choice, vectors=choice.vectors + step)
        yield replace(choice, staged=not choice.staged)
        yield from [replace(choice, copied=copied) for copied in (*COPIED, "window")]
        yield from [replace(choice, piece=piece) for piece in (*PIECES, 128, 1024)]
        for role in range(min(len(kernel.roles), contraction.MOST_CANDIDATES)):
            for inside in (False, True):
                if (made := self.of_role(kernel, role, inside=inside)) is not None:
                    yield made
        yield from [replace(choice, groups=groups) for groups in GROUPS]

    def _split_moves(self, choice: SplitChoice) -> Iterator[SplitChoice]:
        kernel = self.forms[choice.form].shape
        found: list[SplitChoice] = []
        vectors = self.vectors(kernel)
        found += [replace(choice, vector=v, sums=_fitting(kernel, v, choice.sums)) for v in vectors]
        numbers = [int(r.arg[0]) for r in kernel.outputs]
        copies = dict(choice.upcast)
        for number, n in product(numbers, (1, 2, 3, 4, 6, 8, 16)):
            changed = {**copies, number: n}
            found.append(replace(choice, upcast=tuple(sorted((k, v) for k, v in changed.items() if v > 1))))
        found += [replace(choice, sums=sums) for sums in sums_of(kernel, choice.vector, self.target)]
        found += [replace(choice, order=order) for order in ((), *self.orders(kernel))]
        found += [replace(choice, threads=threads) for threads in self.threads(kernel)]
        if self.target.threads == 1:
            found += [replace(choice, groups=groups) for groups in GROUPS]
        yield from [c for c in found if self.fits(kernel, c) and self.sized(kernel, c)]

    def vectors(self, kernel: KernelShape) -> list[int]:
        """Return the numbers of the ranges along which vectors can be, and -1."""
        return [-1, *[int(r.arg[0]) for r in kernel.outputs if r.arg[1] > 1]]

    def threads(self, kernel: KernelShape) -> list[int]:
        """Return the most threads of a workgroup; 0 alone on a target without threads."""
        if self.target.threads == 1:
            return [0]
        sizes = [r.arg[1] for r in (*kernel.outputs, *[r for f in kernel.families for r in f.ranges])]
        out, threads = [], self.target.warp
        while threads <= self.target.threads and threads < 2 * max(sizes, default=1):
            out.append(threads)
            threads *= 2
        return out or [self.target.warp]

    def orders(self, kernel: KernelShape) -> list[tuple[int, ...]]:
        """Return the orders of two or three loops; none where sums of a kernel depend on a part of them."""
        numbers = [int(r.arg[0]) for r in kernel.outputs]
        apart = any(not family.free >= frozenset(kernel.outputs) for family in kernel.families)
        if apart or not 2 <= len(numbers) <= 3 or self.target.threads > 1:
            return []
        return list(permutations(numbers))

    def fits(self, kernel: KernelShape, choice: SplitChoice) -> bool:
        """Return whether blocks of the upcast ranges are possible without masks."""
        exact = kernel.in_place or self.target.threads > 1
        sizes = {int(r.arg[0]): r.arg[1] for r in kernel.outputs}
        width = 1 if self.target.threads > 1 else self.target.vector_bytes // max(4, kernel.widest)
        for number, n in choice.upcast:
            block = n * (width if number == choice.vector else 1)
            size = sizes.get(number, 0)
            if size % block and (size < block or exact):
                return False
        return all(number in sizes for number, _ in choice.upcast)

    def sized(self, kernel: KernelShape, choice: SplitChoice) -> bool:
        """Return whether the unrolled body has few operations, and the accumulators fit the registers."""
        copies = dict(choice.upcast)
        total = prod(copies.values())
        if total > 1 and total * (kernel.ops + len(kernel.loads) + len(kernel.stores)) > LINES:
            return False
        for family, (_, rounds) in zip(kernel.families, choice.sums, strict=bool(choice.sums)):
            sums = rounds * len(family.nodes) * prod([copies.get(int(r.arg[0]), 1) for r in family.free])
            if sums > self.target.registers or sums * (family.ops + len(family.loads)) > LINES:
                return False
        return True


def sums_of(kernel: KernelShape, vector: int, target: Target) -> list[Numbers]:
    """Return how sums can run: vectors along one of their ranges or none, and unrolled rounds.

    All families of a kernel run alike, as far as each can.
    """
    if not kernel.families:
        return [()]
    most = max([len(f.ranges) for f in kernel.families])
    out: dict[Numbers, None] = {}
    for place, rounds in product((-1, *range(most)), ROUNDS):
        out[tuple([_sum(f, vector, place, rounds, target) for f in kernel.families])] = None
    return list(out)


def _sum(family: Family, vector: int, place: int, rounds: int, target: Target) -> tuple[int, int]:
    """Return the vector range and the rounds of one family: its range number `place` in order of size."""
    along = any(r.arg[0] == vector for r in family.free)
    ranges = sorted(family.ranges, key=lambda r: (-r.arg[1], r.arg[0]))
    least = target.warp if target.threads > 1 else 4
    number = -1
    if not along and 0 <= place < len(ranges) and ranges[place].arg[1] >= least:
        number = int(ranges[place].arg[0])
    return number, rounds


def _fitting(kernel: KernelShape, vector: int, sums: Numbers) -> Numbers:
    """Return sums without vectors of their own where the vector range already runs along them."""
    out = []
    for family, (number, rounds) in zip(kernel.families, sums, strict=bool(sums)):
        along = any(r.arg[0] == vector for r in family.free)
        out.append((-1 if along else number, rounds))
    return tuple(out)


def distinct(found: Iterable[Proposal]) -> list[Proposal]:
    """Return proposals in order, each choice and each plan once; plans may differ in the estimated time."""
    out: list[Proposal] = []
    seen: set[object] = set()
    for one in found:
        plan = one.plan
        key = (
            one.ast,
            plan.axes,
            plan.steps,
            tuple(plan.reductions.items()),
            plan.rows,
            plan.threads,
            plan.matrix,
            plan.online,
        )
        if one.choice not in seen and key not in seen:
            out.append(one)
        seen |= {one.choice, key}
    return out
