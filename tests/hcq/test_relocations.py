"""The generated patch function against the readable loop."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcq.errors import UsageError
from hcq.params import Expr, Param, Patch, check_reach, reaches
from hcq.registry import wrap
from hcq.replay.relocations import SHORTEST, Placed, compile_bind, elements, rows
from hcq.validate.accesses import Intervals
from tests.hcq.fake import FakeDevice

SIZE = 8
WORDS = SIZE + 16 * 20


@st.composite
def plans(draw: st.DrawFn):
    """Patches that do not overlap, in two memories, for a few buffers and numbers, and rows of launches."""
    pointers = draw(st.lists(st.booleans(), min_size=1, max_size=5))
    taken: set[tuple[int, int]] = set()
    patches = []
    for _ in range(draw(st.integers(0, 12))):
        view, byte = draw(st.integers(0, 1)), draw(st.integers(0, 8 * SIZE - 9))
        lo, width = draw(st.integers(0, 31)), draw(st.integers(1, 64))
        bits = {(view, 8 * byte + lo + i) for i in range(width)}
        if bits & taken or 8 * byte + lo + width > 64 * SIZE:
            continue
        taken |= bits
        expr = (draw(st.integers(0, len(pointers) - 1)), draw(st.integers(0, 100)), draw(st.integers(0, 40)))
        patches.append((view, byte, lo, width, *expr))
    step, view = draw(st.sampled_from([1, 8, 16])), draw(st.integers(0, 1))
    for i in range(draw(st.sampled_from([0, SHORTEST - 1, SHORTEST, 20]))):
        pointers.append(True)
        patches.append((view, 8 * (SIZE + step * i), 0, 64, len(pointers) - 1, 0, 0))
    return pointers, patches


@pytest.mark.slow
@given(plans(), st.data())
def test_generated_binding_equals_the_loop(
    plan: tuple[list[bool], list[tuple[int, ...]]], data: st.DataObject
):
    pointers, raw = plan
    params = [Param(f"p{i}") for i in range(len(pointers))]
    patches = [Placed(p[0], p[1], p[2], p[3], Expr(params[p[4]], p[5], p[6])) for p in raw]
    noise = [array("L", [data.draw(st.integers(0, (1 << 64) - 1))]) * WORDS for _ in range(2)]
    views = [memoryview(array("L", memory)) for memory in noise]
    oracle = [memoryview(array("L", memory)) for memory in noise]
    built = elements(patches, params, views)
    with wrap(FakeDevice()) as device:
        bind = compile_bind(built, [0] * len(params), pointers, [[device]] * len(params), lambda _i, _v: None)
        buffers = [device.alloc(64) for _ in range(3)]
        current: list[object] = [None] * len(params)
        for _ in range(4):
            given_ = [data.draw(st.sampled_from(buffers) if p else st.integers(0, 1 << 40)) for p in pointers]
            bind(given_, current, views)
            for e in built:
                ns = [t.expr.evaluate(getattr(g := given_[t.param], "va", g)) >> t.shift for t in e.terms]
                bits = [(n & t.mask) << t.lo for n, t in zip(ns, e.terms, strict=True)]
                oracle[e.view][e.index] = sum(bits, e.base)
            assert [v.tolist() for v in views] == [v.tolist() for v in oracle]
            assert current == given_


@pytest.mark.parametrize("wrong", [None, 0, 3, 9])
def test_addresses_of_equal_launches_are_stored_at_once_and_each_is_checked(wrong: int | None):
    params = [Param(f"p{i}") for i in range(10)]
    memory = array("L", [7]) * 80
    plan = elements(
        [Placed(0, 64 * i, 0, 64, Expr(p)) for i, p in enumerate(params)], params, [memoryview(memory)]
    )
    assert rows(plan, [True] * 10) == [list(plan)]
    with wrap(FakeDevice()) as device:
        sets = [[device.alloc(64) for _ in params] for _ in range(2)]
        seen, current = [], [None] * 10
        bind = compile_bind(plan, [64] * 10, [True] * 10, [[device]] * 10, lambda i, _: seen.append(i))
        for given_ in sets:
            bind(given_, current, [memoryview(memory)])
        if wrong is not None:
            sets[0][wrong] = device.alloc(63)
        bind(sets[0], current, [memoryview(memory)])
        assert (memory[::8].tolist(), current) == ([one.va for one in sets[0]], sets[0])
        assert seen == ([] if wrong is None else [wrong])
        assert set(memory[1::8]) == {7}


def patch(expr: Expr, width: int) -> Patch:
    return Patch("words", 0, 0, width, expr)


def test_pieces_of_one_number_have_the_width_of_their_sum():
    a, b = Param("a"), Param("b")
    parts = [patch(Expr(a), 32), patch(Expr(a, shift=32), 17), patch(Expr(a), 32), patch(Expr(b), 8)]
    assert reaches(parts) == [49, 49, 32, 8]
    assert reaches([]) == []


def test_a_number_wider_than_its_location_is_refused():
    a = Param("a")
    check_reach(patch(Expr(a, add=1), 8), 8, 254)
    with pytest.raises(UsageError, match="a: 256 does not fit the 8 bits"):
        check_reach(patch(Expr(a, add=1), 8), 8, 255)


def test_adding_after_shifting_is_refused():
    with pytest.raises(UsageError, match="add before shifting"):
        (Param("a") >> 8) + 1


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 10)), max_size=20),
    st.integers(0, 50),
    st.integers(1, 5),
)
def test_intervals_find_what_a_set_of_bytes_finds(ranges: list[tuple[int, int]], begin: int, size: int):
    intervals, held = Intervals(), set()
    for at, length in ranges:
        intervals.add(at, at + length, "x")
        held |= set(range(at, at + length))
    assert (intervals.find(begin, begin + size) is not None) == bool(held & set(range(begin, begin + size)))
    joined = [list(range(b, e)) for b, e, _ in intervals]
    assert sorted(held) == [byte for part in joined for byte in part]
