"""Chains of kernels: a product, a function of its rows and a product of the result become one kernel.

The matrices between them, for example the weights of attention, then never exist as a whole: a workgroup
computes some rows in scratch memory and uses them at once. The AST of a chain is a SINK of the SINKs of its
parts, in order, with arg (externals, shared). Slots from `externals` on are the matrices that only later
parts load. The first `shared` ranges are the same in all parts: for each of their values, a part loads from
these matrices only what earlier parts stored for the same values.

Not here: how many rows are computed at once (`compiler.plan.phases`). Next: `scheduler`, the caller.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from compiler.dtype import dtypes
from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.ir.uop import UOp, uop
from compiler.ir.walk import by_number, ordered, ranges_in, slots_between
from compiler.rewrite.online_softmax import keys_of
from compiler.rewrite.range_merging import replace_ranges, split_ranges
from compiler.schedule.item import ParamRef, ScheduleItem, TempRef

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from compiler.schedule.item import BufRef


ROW_BYTES = 64 << 10
"""The most bytes of one row of all matrices, unless rows can be computed in pieces; a block has at least 32
rows."""


def join_chains(
    items: Sequence[ScheduleItem], fits: Callable[[UOp], bool] | None = None
) -> list[ScheduleItem]:
    """Return the schedule with every chain as one item, at the place of its last part.

    `fits` returns whether a chain may be one; by default its rows must be short, or computed in pieces.
    """
    writers: dict[BufRef, int] = {}
    readers: dict[BufRef, list[int]] = {}
    for n, item in enumerate(items):
        for slot, ref in enumerate(item.bufs):
            if slot in item.stores:
                writers[ref] = n
            else:
                readers.setdefault(ref, []).append(n)
    only = {
        ref: writers[ref] for ref, users in readers.items() if isinstance(ref, TempRef) and len(users) == 1
    }
    made: dict[int, ScheduleItem] = {}
    gone: set[int] = set()
    for n, item in enumerate(items):
        chain = _chain(items, n, only) if is_product(item.ast) else None
        # If the last product of a chain were the first one of the next, neither would compute it.
        if chain is not None and made.keys().isdisjoint(chain) and may_wait(items, chain):
            one = joined([items[k] for k in chain], fits)
            if one is not None:
                made[n] = one
                gone.update(chain[:-1])
    return [made.get(n, item) for n, item in enumerate(items) if n not in gone]


def is_product(ast: UOp) -> bool:
    """Return whether a kernel is one sum of products."""
    sums = [n for n in ordered(ast) if n.op is Ops.REDUCE]
    return len(sums) == 1 and sums[0].arg[0] == "ADD" and sums[0].src[0].op is Ops.MUL


def _chain(
    items: Sequence[ScheduleItem], last: int, only: Mapping[TempRef, int]
) -> tuple[int, int, int] | None:
    """Return the numbers of the items of the chain that ends with item `last`; None if there is none.

    `only` gives the item that stores each temporary buffer with one reader.
    """
    for ref in items[last].bufs:
        middle = only.get(ref) if isinstance(ref, TempRef) else None
        if middle is None or not _links(items[middle]) or is_product(items[middle].ast):
            continue
        for source in items[middle].bufs:
            first = only.get(source) if isinstance(source, TempRef) else None
            if first is not None and _links(items[first]) and is_product(items[first].ast):
                return first, middle, last
    return None


def _links(item: ScheduleItem) -> bool:
    """Return whether an item can be inside a chain: one result, and no variables."""
    return len(item.stores) == 1 and not any(n.op is Ops.VAR for n in ordered(item.ast))


def may_wait(items: Sequence[ScheduleItem], chain: Sequence[int]) -> bool:
    """Return whether all parts can run in the place of the last: no item between stores what they load."""
    loads = {
        ref.n
        for n in chain
        for slot, ref in enumerate(items[n].bufs)
        if slot not in items[n].stores and isinstance(ref, ParamRef)
    }
    between = items[chain[0] : chain[-1] + 1]
    stored = {ref.n for item in between for ref in item.writes if isinstance(ref, ParamRef)}
    return not loads & stored


def joined(
    parts: Sequence[ScheduleItem],
    fits: Callable[[UOp], bool] | None,
    outside: Collection[BufRef] = (),
) -> ScheduleItem | None:
    """Return the chain of some items as one item; None if the rows of its matrices do not match.

    A part loads any number of matrices of earlier parts. Those in `outside` are also results of the chain.
    None also if a matrix is not stored whole before it is loaded, and if `fits` refuses the chain. Without
    `fits`, None if its matrices have more than `ROW_BYTES` for each row and it has no range of keys.
    """
    stored = dict.fromkeys([ref for part in parts[:-1] for ref in part.writes])
    inner = [[ref for ref in stored if ref in part.bufs and ref not in part.writes] for part in parts]
    kept = [ref for ref in stored if ref not in outside and any(ref in refs for refs in inner)]
    values: dict[BufRef, UOp] = {}
    for part in (parts[-1], *parts[:-1]):
        pairs = zip(part.writes, part.values, strict=True)
        values |= {ref: value for ref, value in pairs if ref not in kept}
    externals = dict.fromkeys(values)
    for part in parts:
        externals.update(dict.fromkeys([ref for ref in part.bufs if ref not in kept]))
    slots = {ref: n for n, ref in enumerate([*externals, *kept])}
    asts: list[UOp] = []
    sizes: tuple[int, ...] = ()
    rows: dict[BufRef, tuple[int, ...]] = {}  # the strides of the shared ranges in each matrix
    for part, refs in zip(reversed(parts), reversed(inner), strict=True):
        places = {ref: part.bufs.index(ref) for ref in (*refs, *part.writes)}
        if part is parts[-1]:
            found = _of_last(split_ranges(part.ast) or part.ast, {places[ref] for ref in refs})
            if found is None:
                return None
            ast, sizes = found
        else:
            strides = {places[ref]: rows[ref] for ref in part.writes if ref in rows}
            aligned = _aligned(part.ast, sizes, strides) if strides else None
            if aligned is None:
                return None
            ast = aligned
        for ref in refs:
            loaded = _loaded(ast, sizes, places[ref])
            if loaded is None or rows.setdefault(ref, loaded) != loaded:
                return None
        asts.insert(0, with_buffers(ast, [slots[ref] for ref in part.bufs]))
    if not _all_stored(asts, len(externals), len(sizes)):
        return None
    ast = uop(Ops.SINK, dtypes.void, tuple(asts), (len(externals), len(sizes)))
    long = sum([ref.nbytes for ref in rows]) > ROW_BYTES * prod(sizes)
    if (long and not (len(kept) == 2 == len(asts) - 1 and keys_of(asts))) if fits is None else not fits(ast):
        return None
    return ScheduleItem(ast, tuple(externals), tuple(range(len(values))), tuple(values.values()))


def _outputs(ast: UOp) -> list[UOp]:
    """Return the output ranges by number."""
    return by_number(ranges_in(ast)[ast.src[0].src[1]])


def _of_last(ast: UOp, slots: Collection[int]) -> tuple[UOp, tuple[int, ...]] | None:
    """Return the last part with the shared ranges first, and their sizes; None if it loads no whole rows.

    Shared are the output ranges in the index of every load of a matrix; a load of one element for each result
    is no load of rows. The other factor of a product must not depend on the innermost of them, so that
    several rows can be used together.
    """
    loads = [n for n in ordered(ast) if n.op is Ops.LOAD and n.src[0].arg in slots]
    outputs, free = _outputs(ast), ranges_in(ast)
    shared = [r for r in outputs if all(r in free[n] for n in loads)]
    if any(free[store.src[1]] != free[ast.src[0].src[1]] for store in ast.src):
        return None
    if not shared or all(free[n] == set(outputs) for n in loads):
        return None
    terms, _ = symbolic.terms_of(min([n.src[1] for n in loads], key=lambda at: len(free[at])))
    if any(r not in terms for r in shared):
        return None
    shared.sort(key=lambda r: -terms[r])
    if is_product(ast) and all(shared[-1] in free[x] for x in factors(ast)):
        return None
    env = {r: symbolic.loop(k, r.arg[1]) for k, r in enumerate(shared)}
    return _renumbered(ast, outputs, env), tuple([int(r.arg[1]) for r in shared])


def factors(ast: UOp) -> tuple[UOp, ...]:
    """Return the factors of a product."""
    return next(n for n in ordered(ast) if n.op is Ops.REDUCE).src[0].src


def _nested(terms: dict[UOp, int], rows: Sequence[UOp]) -> bool:
    """Return whether an index is the start of a row plus an offset in it; `rows` is outermost first."""
    if not all(atom.op is Ops.RANGE and c > 0 for atom, c in terms.items()):
        return False
    span = 1 + sum([c * (r.arg[1] - 1) for r, c in terms.items() if r not in rows])
    for r in reversed(rows):
        if terms[r] < span:
            return False
        span = terms[r] * r.arg[1]
    return True


def _aligned(ast: UOp, sizes: Sequence[int], rows: Mapping[int, Sequence[int]]) -> UOp | None:
    """Return a part that stores matrices, with the shared ranges; None if they do not count its rows.

    `rows` has the strides of the shared ranges in a matrix, by slot. The part has as many results with the
    shared ranges as before, so each is computed once.
    """
    free, slot = ranges_in(ast), max(rows, key=lambda slot: rows[slot][-1])
    if any(free[store.src[1]] != free[ast.src[0].src[1]] for store in ast.src):
        return None
    row = rows[slot][-1]
    start = symbolic.dot([symbolic.loop(k, n) for k, n in enumerate(sizes)], rows[slot])
    ast = _cut_at_rows(ast, slot, row)
    terms, constant = symbolic.terms_of(_store_to(ast, slot).src[1])
    if constant or not all(atom.op is Ops.RANGE and c > 0 for atom, c in terms.items()):
        return None
    within = {r: c for r, c in terms.items() if c * r.arg[1] <= row}
    if sum([c * (r.arg[1] - 1) for r, c in within.items()]) >= row:
        return None
    env = {r: symbolic.mod(symbolic.div(start, c), r.arg[1]) for r, c in terms.items() if r not in within}
    if prod(sizes) * prod([r.arg[1] for r in within]) != prod([r.arg[1] for r in terms]):
        return None
    made = _renumbered(ast, _outputs(ast), env, len(sizes))
    stored, _ = symbolic.terms_of(_store_to(made, slot).src[1])
    if not all(atom.op is Ops.RANGE for atom in stored):
        return None
    own = {r: c for r, c in stored.items() if r.arg[0] < len(sizes)}
    return made if own == symbolic.terms_of(start)[0] else None


def _store_to(ast: UOp, slot: int) -> UOp:
    """Return the STORE of a part to a buffer."""
    return next(store for store in ast.src if store.src[0].arg == slot)


def _cut_at_rows(ast: UOp, slot: int, row: int) -> UOp:
    """Return a part with each range that counts both rows of `row` elements and places in a row cut in two.

    A copy of a matrix has such a range: its rows and columns have become one loop. The part is unchanged if a
    range cannot be cut.
    """
    terms, _ = symbolic.terms_of(_store_to(ast, slot).src[1])
    both = [r for r, c in terms.items() if r.op is Ops.RANGE and 0 < c < row < c * r.arg[1]]
    if not all(row % terms[r] == 0 and terms[r] * r.arg[1] % row == 0 for r in both):
        return ast
    first = 1 + max([int(n.arg[0]) for n in ordered(ast) if n.op is Ops.RANGE], default=0)
    env: dict[UOp, UOp] = {}
    for n, r in enumerate(both):
        columns = row // terms[r]
        rows = symbolic.loop(first + 2 * n, r.arg[1] // columns)
        env[r] = symbolic.dot((rows, symbolic.loop(first + 2 * n + 1, columns)), (columns, 1))
    return replace_ranges(ast, env) if env else ast


def _loaded(ast: UOp, sizes: Sequence[int], slot: int) -> tuple[int, ...] | None:
    """Return the strides of the shared ranges in a matrix that a part loads; None if it loads other rows."""
    loads = [n for n in ordered(ast) if n.op is Ops.LOAD and n.src[0].arg == slot]
    ranges = [symbolic.loop(k, n) for k, n in enumerate(sizes)]
    found: set[tuple[int, ...]] = set()
    for load in loads:
        terms, constant = symbolic.terms_of(load.src[1])
        if constant or len(load.src) > 2 or not all(r in terms for r in ranges) or not _nested(terms, ranges):
            return None
        found.add(tuple([terms[r] for r in ranges]))
    return found.pop() if len(found) == 1 else None


def _all_stored(parts: Sequence[UOp], externals: int, shared: int) -> bool:
    """Return whether each part loads from the matrices only what earlier parts store in the same row.

    This is proved from the finished parts alone, so it does not depend on how their ranges were found. A row
    is stored without gaps if its strides, in order, are the products of the sizes before. Then a load is
    within the row for all values of its ranges if its last element is.
    """
    matrices = {s.src[0].arg for part in parts for s in part.src if s.src[0].arg >= externals}
    between = slots_between(parts) | matrices
    rows: dict[int, tuple[dict[UOp, int], int]] = {}
    for part in parts:
        for load in [n for n in ordered(part) if n.op is Ops.LOAD and n.src[0].arg in between]:
            found = _row_of(load.src[1], shared)
            if found is None or load.src[0].arg not in rows:
                return False
            start, within = rows[load.src[0].arg]
            if found[0] != start or sum([c * (r.arg[1] - 1) for r, c in found[1].items()]) >= within:
                return False
        for store in [s for s in part.src if s.src[0].arg in between]:
            found = _row_of(store.src[1], shared)
            if found is None or len(found[0]) != shared:
                return False
            count = 1
            for r, c in sorted(found[1].items(), key=lambda item: item[1]):
                if c != count:
                    return False
                count *= r.arg[1]
            if count > min(found[0].values()):
                return False
            rows[store.src[0].arg] = found[0], count
    return True


def _row_of(index: UOp, shared: int) -> tuple[dict[UOp, int], dict[UOp, int]] | None:
    """Return the strides of the shared ranges, and of the others; None if the index is no sum of ranges."""
    terms, constant = symbolic.terms_of(index)
    if constant or not all(atom.op is Ops.RANGE and c > 0 for atom, c in terms.items()):
        return None
    first = {r: c for r, c in terms.items() if r.arg[0] < shared}
    return first, {r: c for r, c in terms.items() if r not in first}


def _renumbered(ast: UOp, outputs: Sequence[UOp], env: dict[UOp, UOp], first: int = 0) -> UOp:
    """Return a part with ranges replaced as in `env`, and the others numbered from `first` on, outputs first.

    By default `first` is the number of ranges in `env`.
    """
    first = first or len(env)
    ranges = [n for n in ordered(ast) if n.op is Ops.RANGE and n not in env]
    ranges.sort(key=lambda r: (r not in outputs, int(r.arg[0])))
    return replace_ranges(ast, env | {r: symbolic.loop(first + k, r.arg[1]) for k, r in enumerate(ranges)})


def with_buffers(ast: UOp, slots: Mapping[Any, Any] | Sequence[Any]) -> UOp:
    """Return a kernel in which buffer k has the arg `slots[k]`."""
    done: dict[UOp, UOp] = {}
    for n in ordered(ast):
        arg = slots[n.arg] if n.op is Ops.BUFFER else n.arg
        done[n] = uop(n.op, n.dtype, tuple([done[s] for s in n.src]), arg)
    return done[ast]
