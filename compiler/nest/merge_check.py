"""Verify a merged kernel: the elements that it reads and stores are those of its chain.

The obligation of a chain that is one kernel with an online softmax (`rewrite.online_softmax.merged`), checked
from the finished kernel alone: a wrong merge would compute other values and report nothing.

Not here: plans in parts (`nest_check.verify_parts`), the values themselves (`HCQ_CHECK=1`). Next:
`compiler.pipeline`, the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.ir.serialize import kernel_key
from compiler.ir.walk import bound_ranges, ordered, ranges_in
from compiler.rewrite.range_merging import replace_ranges
from hcq.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from compiler.ir.uop import UOp
    from compiler.nest.loop_nest import Online
    from compiler.rewrite.online_softmax import Merged


def verify_merged(chain: UOp, ast: UOp, online: Online | Merged) -> None:
    """Raise `CompileError` unless a merged kernel reads and stores the elements that its chain does.

    Checked are the first and the last place of each range, and all middle places together: the operands that
    the scores, the weights and the product of an output use there, with their masks, found by way of the
    elements of the matrices between the parts. The largest score must be that of the same scores.
    """
    scores, middle, last = chain.src
    free = ranges_in(ast)
    assert online.largest is not None
    (key,), (depth,) = (bound_ranges(n, free) for n in (online.weighted[0], online.scores[0]))
    (inner,) = bound_ranges(next(n for n in ordered(scores) if n.op is Ops.REDUCE), ranges_in(scores))
    (row,) = bound_ranges(online.largest, free)
    same = [store.src[:2] for store in last.src] == [store.src[:2] for store in ast.src]
    problems = [] if same else ["wanted the stores of the last part"]
    if replace_ranges(online.largest.src[0], {row: key}) is not online.score:
        problems.append("wanted the largest score of a row, saw that of other scores")
    ranges = [*{r: None for s in ast.src for r in free[s]}, key, depth]
    weights = next(n for n in ordered(last) if n.op is Ops.LOAD and n.src[0].arg == middle.src[0].src[0].arg)
    loaded = next(n for n in ordered(middle) if n.op is Ops.LOAD and n.src[1] is middle.src[0].src[1])
    for point in _points(ranges):
        at = {r: n for r, n in point.items() if r is not depth}
        wanted = _read(last, at, {weights})
        at = _place(middle, _number(weights.src[1], at))
        at = _place(scores, _number(loaded.src[1], at)) | {inner: point[depth]}
        wanted |= _read(scores, at, set())
        found = _read(ast, point, {online.largest})
        if wanted != found:
            problems.append(f"at {list(point.values())}: wanted {sorted(wanted)}, saw {sorted(found)}")
    if problems:
        raise CompileError(f"the merged kernel is wrong: {'; '.join(problems[:4])}", ast=kernel_key(ast))


def _points(ranges: Sequence[UOp]) -> Iterator[dict[UOp, int]]:
    """Yield some places of ranges: the first, each range's last one, all last ones, all middle ones."""
    last = {r: int(r.arg[1]) - 1 for r in ranges}
    yield dict.fromkeys(ranges, 0)
    yield from (dict.fromkeys(ranges, 0) | {r: last[r]} for r in ranges)
    yield last
    yield {r: (n + 1) // 2 for r, n in last.items()}


def _at(x: UOp, point: Mapping[UOp, int]) -> UOp:
    return symbolic.substitute(x, {r: symbolic.const(n) for r, n in point.items()}, {})


def _number(index: UOp, point: Mapping[UOp, int]) -> int:
    """Return an index at a place. Raises `CompileError` if it depends on more."""
    found = _at(index, point)
    if found.op is not Ops.CONST:
        raise CompileError(f"wanted an index of known ranges, saw {found} between the parts of a chain")
    return int(found.arg)


def _place(part: UOp, element: int) -> dict[UOp, int]:
    """Return the place of a part's ranges at which it stores an element."""
    return _element(part.src[0], element)


def _element(store: UOp, element: int) -> dict[UOp, int]:
    """Return the place of a STORE's ranges at which it stores an element."""
    terms, _ = symbolic.terms_of(store.src[1])
    place: dict[UOp, int] = {}
    for r, c in sorted(terms.items(), key=lambda item: -item[1]):
        place[r], element = divmod(element, c)
    return place


def _read(ast: UOp, point: Mapping[UOp, int], without: set[UOp]) -> set[str]:
    """Return the elements and the indices that a kernel reads at a place, but those under some nodes."""
    stack, seen, found = [s.src[2] for s in ast.src], set(without), set[str]()
    while stack:
        n = stack.pop()
        if n in seen:
            continue
        seen.add(n)
        if n.op is Ops.LOAD or n.op is Ops.IVALUE:
            at = [_at(x, point) for x in n.src[n.op is Ops.LOAD :]]
            found.add(f"b{n.src[0].arg}{[x.arg for x in at]}" if n.op is Ops.LOAD else f"{at[0].arg}")
        else:
            stack += n.src
    return found


def verify_recomputed(
    old: UOp, new: UOp, key: UOp, stores: Mapping[Any, UOp], rows: AbstractSet[object]
) -> None:
    """Raise `CompileError` unless a new STORE reads the elements that an old one reads, through buffers.

    Both are of one sum, that of the new one over `key`. `stores` has the STORE of each buffer between
    kernels; a BUFFER's arg is any name of it. Sums over a whole row, and in the new kernel loads of `rows`,
    which hold their values, are not compared. Checked are the places of `verify_merged`, at one place of the
    sums inside.
    """
    (summed,) = [n for n in ordered(old) if n.op is Ops.REDUCE]
    (other,) = bound_ranges(summed, ranges_in(old))
    problems = [] if old.src[0] is new.src[0] else ["wanted the buffer of the old result"]
    for point in _points([*ranges_in(new)[new.src[1]], key]):
        before = _element(old, _number(new.src[1], point)) | {other: point[key]}
        wanted = _through(old.src[2], before, stores, set())
        found = _through(new.src[2], _inside(new) | point, {}, rows)
        if wanted != found:
            problems.append(f"at {list(point.values())}: wanted {sorted(wanted)}, saw {sorted(found)}")
    if problems:
        raise CompileError(f"the merged kernel is wrong: {'; '.join(problems[:4])}", ast=new.render())


def _inside(store: UOp) -> dict[UOp, int]:
    """Return the second place of all ranges, for the sums inside others."""
    return {r: 1 for r in ordered(store) if r.op is Ops.RANGE}


def _through(
    value: UOp, point: Mapping[UOp, int], stores: Mapping[Any, UOp], rows: AbstractSet[object]
) -> set[str]:
    """Return the elements and masks that a value reads, those of buffers between kernels by their stores."""
    stack: list[tuple[UOp, Mapping[UOp, int]]] = [(value, point)]
    found: set[str] = set()
    seen: set[tuple[UOp, tuple[int, ...]]] = set()
    while stack:
        n, at = stack.pop()
        key = n, tuple(at.values())
        if key in seen:
            continue
        seen.add(key)
        if n.op is Ops.LOAD and n.src[0].arg in stores:
            store = stores[n.src[0].arg]
            stack.append((store.src[2], _inside(store) | _element(store, _number(n.src[1], at))))
        elif n.op is Ops.LOAD and n.src[0].arg not in rows:
            found.add(f"{n.src[0].arg} {_number(n.src[1], at)}")
        elif n.op is Ops.IVALUE:
            found.add(str(_at(n.src[0], at).arg))
        elif n.op is not Ops.LOAD and (n.op is not Ops.REDUCE or n.src[0].op is Ops.MUL):
            stack += [(s, at) for s in n.src]
    return found
