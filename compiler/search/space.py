"""The search space of one kernel on one target: the choices that have a plan, and the steps between them.

`estimated` is the choice of the cost model, `starts` are the estimates of every kind of plan, `every` is a
finite set for an exhaustive search, `moves` are the choices that differ from one in one factor. Choices whose
plans are equal count once in `every`.

Not here: making the plans (`compiler.pipeline.chosen`), timing them. Next: `beam`, which walks along the
moves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import permutations, product
from typing import TYPE_CHECKING

from compiler import pipeline
from compiler.nest.kernel_shape import analyse
from compiler.nest.operand_roles import candidates
from compiler.plan import contraction, device_contraction, tiling, winograd
from compiler.plan.choice import ProductChoice, SplitChoice, StagedChoice, TurnedChoice, WinogradChoice
from compiler.plan.cost import LINES
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from compiler.ir.uop import UOp
    from compiler.nest.kernel_shape import Family, KernelShape
    from compiler.nest.loop_nest import LoopNest
    from compiler.plan.choice import Choice, Copied, Form, Numbers
    from compiler.targets.shared.target import Target

COPIES = (2, 4, 8)
"""Unrolled copies of vectors along a range."""
ROWS = (2, 4)
"""Unrolled rows of another range."""
ROUNDS = (1, 2, 4, 8)
"""Unrolled rounds of a reduction."""
TILE_ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 13, 14)
TILE_VECTORS = (1, 2, 3, 4, 6)
LEAST_SUMS = 8
"""Accumulators from which on a register tile is in `every`, if the ranges allow as many."""
COMMON_TILES = ((6, 4), (12, 2))
"""Tiles that `every` combines with all copies and pieces."""
PIECES = (0, 256, 512)
"""Products of a piece of a sum."""
WORDS = (8, 16, 32)
"""Words along the sum of a tile in shared memory."""
COPIED: tuple[Copied, ...] = ("no", "all", "block")
GROUPS = (1, 2, 4, 8, 16)
"""Workgroups that `moves` tries."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A choice with its plan, and the kernel after the passes of the choice."""

    choice: Choice
    ast: UOp
    plan: LoopNest


class Space:
    """The choices of one kernel on one target."""

    def __init__(self, ast: UOp, target: Target) -> None:
        """Raises `UsageError` for a chain of kernels (`compiler.schedule.chains`), which has one plan."""
        if ast.arg:
            raise UsageError("wanted a kernel of one part, saw a chain of several; try BEAM=0 for it")
        self.target = target
        self.ast = pipeline.prepared(ast)
        forms: tuple[Form, ...] = ("plain", *pipeline.CHANGED)
        made = {form: pipeline.changed(self.ast, form, target) for form in forms}
        self._kernels = {form: analyse(x) for form, x in made.items() if x is not None}

    def candidate(self, choice: Choice) -> Candidate | None:
        """Return a choice with its plan; None where it has none."""
        found = pipeline.chosen(self.ast, self.target, choice)
        return None if found is None else Candidate(choice, *found)

    def estimated(self) -> Candidate:
        """Return the candidate of the cost model, whose plan is that of `pipeline.planned`."""
        staged = device_contraction.estimated(self.ast, self.target)
        if staged is not None:
            return self._certain(staged)
        turned = self.candidate(TurnedChoice())
        if turned is not None:
            return turned
        found, *others = [self._certain(self._likely(form)) for form in self._kernels]
        for other in others:
            if other.plan.nanoseconds < pipeline.WORTH_CHANGING * found.plan.nanoseconds:
                found = other
        fewer = self.candidate(WinogradChoice())
        if fewer is not None and winograd.is_worth(fewer.plan, found.plan):
            return fewer
        return found

    def starts(self) -> list[Candidate]:
        """Return the estimated candidate, then the estimate of every other kind of plan."""
        choices: list[Choice] = [self.estimated().choice]
        for form, kernel in self._kernels.items():
            made = contraction.estimated(kernel, self.target)
            choices += [] if made is None else [replace(made, form=form)]
            choices.append(replace(tiling.estimated(kernel, self.target), form=form))
        return self._distinct([*choices, WinogradChoice()])

    def every(self) -> list[Candidate]:
        """Return a finite set of candidates, the estimated one first, for an exhaustive search.

        Tiles in shared memory: every division with every number of words. Register tiles: every tile of
        `TILE_ROWS` by `TILE_VECTORS` with the estimated copies, and all copies and pieces with three tiles.
        Splits: every vector range, with the unrolled copies `COPIES` along it, `ROWS` along another range, or
        a square; every range of vectors of the sums with `ROUNDS`; both orders of two loops; of sums of
        products with many rows only the estimated one.
        """
        choices: list[Choice] = [c.choice for c in self.starts()]
        choices += self._staged()
        for form, kernel in self._kernels.items():
            products = [replace(c, form=form) for c in self._products(kernel)]
            choices += products
            if not products and not any(isinstance(c, StagedChoice) for c in choices):
                choices += [replace(c, form=form) for c in self._splits(kernel)]
        return self._distinct(choices)

    def moves(self, choice: Choice) -> list[Candidate]:
        """Return the candidates that differ from a choice in one factor."""
        if isinstance(choice, StagedChoice):
            found: Iterable[Choice] = self._staged_moves(choice)
        elif isinstance(choice, ProductChoice):
            found = self._product_moves(choice)
        elif isinstance(choice, TurnedChoice | WinogradChoice):
            found = ()
        else:
            found = self._split_moves(choice)
        return self._distinct([c for c in found if c != choice])

    def _likely(self, form: Form) -> Choice:
        """Return the estimated choice of a form of the kernel."""
        kernel = self._kernels[form]
        made = contraction.estimated(kernel, self.target)
        plan = None if made is None else contraction.chosen(kernel, self.target, made)
        if made is None or plan is None or tiling.split_instead(kernel, self.target, plan) is not None:
            return replace(tiling.estimated(kernel, self.target), form=form)
        return replace(made, form=form)

    def _certain(self, choice: Choice) -> Candidate:
        found = self.candidate(choice)
        assert found is not None, f"the estimated choice {choice} has a plan"
        return found

    def _distinct(self, choices: Iterable[Choice]) -> list[Candidate]:
        """Return the candidates of the choices that have plans, each plan once."""
        out: list[Candidate] = []
        seen: set[object] = set()
        for choice in choices:
            if choice in seen:
                continue
            seen.add(choice)
            made = self.candidate(choice)
            if made is None or (key := (made.ast, _key(made.plan))) in seen:
                continue
            seen.add(key)
            out.append(made)
        return out

    def _staged(self) -> Iterator[StagedChoice]:
        for words, choice in product(WORDS, device_contraction.choices(self.ast, self.target)):
            yield replace(choice, words=words)

    def _staged_moves(self, choice: StagedChoice) -> Iterator[StagedChoice]:
        """Yield the choices with another number of words, and those with other threads or another tile."""
        for other in self._staged():
            differences = (
                other.words != choice.words,
                (other.rows, other.columns) != (choice.rows, choice.columns),
                (other.high, other.wide) != (choice.high, choice.wide),
                other.depth != choice.depth,
            )
            if sum(differences) == 1 or (other.matrix != choice.matrix and other.words == choice.words):
                yield other

    def _products(self, kernel: KernelShape) -> Iterator[ProductChoice]:
        """Yield the register tiles of `every`."""
        best = contraction.estimated(kernel, self.target)
        if best is None:
            return
        for role, c in enumerate(candidates(kernel)[: contraction.MOST_CANDIDATES]):
            inside = contraction.estimated_of(kernel, self.target, role, inside=True)
            if inside is not None:
                yield inside
            made = contraction.estimated_of(kernel, self.target, role, inside=False)
            if made is None:
                continue
            yield made
            if role != best.role:
                continue
            m, _, _ = c.size
            for rows, vectors in product(TILE_ROWS, TILE_VECTORS):
                if rows * vectors >= min(LEAST_SUMS, m) and rows <= m:
                    yield replace(made, rows=rows, vectors=vectors)
                    yield replace(made, rows=rows, vectors=vectors, staged=not made.staged)
            for tile in dict.fromkeys([(made.rows, made.vectors), *COMMON_TILES]):
                for staged, copied, piece in product((False, True), COPIED, PIECES):
                    yield replace(
                        made, rows=tile[0], vectors=tile[1], staged=staged, copied=copied, piece=piece
                    )

    def _product_moves(self, choice: ProductChoice) -> Iterator[Choice]:
        kernel = self._kernels[choice.form]
        for step in (-2, -1, 1, 2):
            if choice.rows + step >= 1:
                yield replace(choice, rows=choice.rows + step)
            if choice.vectors + step >= 1:
                yield replace(choice, vectors=choice.vectors + step)
        yield replace(choice, staged=not choice.staged)
        yield from [replace(choice, copied=copied) for copied in (*COPIED, "window")]
        yield from [replace(choice, piece=piece) for piece in (*PIECES, 128, 1024)]
        for role in range(min(len(candidates(kernel)), contraction.MOST_CANDIDATES)):
            for inside in (False, True):
                if (made := contraction.estimated_of(kernel, self.target, role, inside=inside)) is not None:
                    yield replace(made, form=choice.form)
        yield from [replace(choice, groups=groups) for groups in GROUPS]

    def _splits(self, kernel: KernelShape) -> Iterator[SplitChoice]:
        """Yield the splits of `every`."""
        for vector in self._vectors(kernel):
            for upcast in self._upcasts(kernel, vector):
                for sums in _sums(kernel, vector, self.target):
                    choice = SplitChoice(vector=vector, upcast=upcast, sums=sums)
                    if not self._sized(kernel, choice):
                        continue
                    yield from [replace(choice, threads=threads) for threads in self._threads(kernel)]
                    yield from [replace(choice, order=order) for order in self._orders(kernel)]

    def _split_moves(self, choice: SplitChoice) -> Iterator[SplitChoice]:
        kernel = self._kernels[choice.form]
        found: list[SplitChoice] = []
        vectors = self._vectors(kernel)
        found += [replace(choice, vector=v, sums=_fitting(kernel, v, choice.sums)) for v in vectors]
        numbers = [int(r.arg[0]) for r in kernel.outputs]
        copies = dict(choice.upcast)
        for number, n in product(numbers, (1, 2, 3, 4, 6, 8, 16)):
            changed = {**copies, number: n}
            found.append(replace(choice, upcast=tuple(sorted((k, v) for k, v in changed.items() if v > 1))))
        found += [replace(choice, sums=sums) for sums in _sums(kernel, choice.vector, self.target)]
        found += [replace(choice, order=order) for order in ((), *self._orders(kernel))]
        found += [replace(choice, threads=threads) for threads in self._threads(kernel)]
        if self.target.threads == 1:
            found += [replace(choice, groups=groups) for groups in GROUPS]
        yield from [c for c in found if self._fits(kernel, c) and self._sized(kernel, c)]

    def _vectors(self, kernel: KernelShape) -> list[int]:
        """Return the numbers of the ranges along which vectors can be, and -1."""
        return [-1, *[int(r.arg[0]) for r in kernel.outputs if r.arg[1] > 1]]

    def _threads(self, kernel: KernelShape) -> list[int]:
        """Return the most threads of a workgroup; 0 alone on a target without threads."""
        if self.target.threads == 1:
            return [0]
        sizes = [r.arg[1] for r in (*kernel.outputs, *[r for f in kernel.families for r in f.ranges])]
        out, threads = [], self.target.warp
        while threads <= self.target.threads and threads < 2 * max(sizes, default=1):
            out.append(threads)
            threads *= 2
        return out or [self.target.warp]

    def _orders(self, kernel: KernelShape) -> list[tuple[int, ...]]:
        """Return the orders of two or three loops; none where sums of a kernel depend on a part of them."""
        numbers = [int(r.arg[0]) for r in kernel.outputs]
        apart = any(not family.free >= frozenset(kernel.outputs) for family in kernel.families)
        if apart or not 2 <= len(numbers) <= 3 or self.target.threads > 1:
            return []
        return list(permutations(numbers))

    def _upcasts(self, kernel: KernelShape, vector: int) -> list[Numbers]:
        """Return the unrolled copies for a vector range: along it, another one, both, or a square."""
        out: list[Numbers] = [()]
        others = [int(r.arg[0]) for r in kernel.outputs if r.arg[0] != vector]
        if vector >= 0:
            out += [((vector, n),) for n in COPIES]
        out += [((a, m),) for a in others for m in ROWS]
        if vector >= 0:
            lanes = self.target.vector_bytes // max(4, kernel.widest)
            out += [((u, lanes),) for u in others if self.target.threads == 1 and lanes not in ROWS]
            out += [tuple(sorted(((a, m), (vector, n)))) for a in others for m in ROWS for n in (2, 4)]
        return [u for u in out if self._fits(kernel, SplitChoice(vector=vector, upcast=u))]

    def _fits(self, kernel: KernelShape, choice: SplitChoice) -> bool:
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

    def _sized(self, kernel: KernelShape, choice: SplitChoice) -> bool:
        """Return whether the unrolled body has few operations, and the accumulators fit the registers."""
        copies = dict(choice.upcast)
        total = 1
        for n in copies.values():
            total *= n
        if total > 1 and total * (kernel.ops + len(kernel.loads) + len(kernel.stores)) > LINES:
            return False
        for family, (_, rounds) in zip(kernel.families, choice.sums, strict=bool(choice.sums)):
            sums = rounds * len(family.nodes)
            for r in family.free:
                sums *= copies.get(int(r.arg[0]), 1)
            if sums > self.target.registers or sums * (family.ops + len(family.loads)) > LINES:
                return False
        return True


def _sums(kernel: KernelShape, vector: int, target: Target) -> list[Numbers]:
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


def _key(plan: LoopNest) -> tuple[object, ...]:
    """Return what distinguishes plans: all fields but the estimated time."""
    return plan.axes, plan.steps, tuple(plan.reductions.items()), plan.rows, plan.threads, plan.matrix
