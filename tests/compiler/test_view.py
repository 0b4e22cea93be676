"""Views: what they show agrees with NumPy, for any chain of movement."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.ir import index as symbolic
from compiler.ir.view import ShapeTracker, View
from hcq.errors import UsageError


def test_a_transposed_matrix_read_flat_renders_as_one_expression() -> None:
    view = ShapeTracker.from_shape((10, 10)).permute((1, 0)).reshape((5, 2, 5, 2)).reshape((100,))
    assert view.expr_idxs()[0].render() == "(((idx0%10)*10)+(idx0//10))"


def test_permuting_more_axes_than_there_are_names_order_and_shape() -> None:
    with pytest.raises(UsageError, match=r"\(1, 0\).*\(10,\)"):
        ShapeTracker.from_shape((10,)).permute((1, 0))


def test_a_fresh_view_is_contiguous() -> None:
    assert ShapeTracker.from_shape((3, 1, 4)).contiguous


def test_a_reshaped_view_is_contiguous() -> None:
    assert ShapeTracker.from_shape((3, 4)).reshape((2, 6)).contiguous


def test_a_shrunk_view_is_not_contiguous() -> None:
    assert not ShapeTracker.from_shape((3, 4)).shrink(((0, 2), (0, 4))).contiguous


def test_a_permutation_undone_is_contiguous() -> None:
    assert ShapeTracker.from_shape((3, 4)).permute((1, 0)).permute((1, 0)).contiguous


def test_strides_of_a_permuted_view() -> None:
    assert ShapeTracker.from_shape((3, 4, 5)).permute((2, 0, 1)).real_strides() == (1, 20, 5)


def test_a_flipped_axis_has_a_negative_stride() -> None:
    assert ShapeTracker.from_shape((3, 4)).flip((1,)).real_strides() == (4, -1)


def test_an_expanded_axis_has_stride_zero() -> None:
    assert ShapeTracker.from_shape((3, 1)).expand((3, 7)).real_strides() == (1, 0)


def test_an_axis_across_a_transposition_has_no_stride() -> None:
    assert ShapeTracker.from_shape((3, 4)).permute((1, 0)).reshape((12,)).real_strides() == (None,)


def test_a_strided_view_is_one_view() -> None:
    view = ShapeTracker.from_shape((4, 6)).shrink(((1, 3), (2, 6))).permute((1, 0)).view
    assert view == View((4, 2), (1, 6), 8)


def test_padding_becomes_the_mask_of_a_view() -> None:
    view = ShapeTracker.from_shape((4, 6)).pad(((1, 0), (0, 2))).view
    assert view == View((5, 8), (6, 1), -6, ((1, 5), (0, 6)))


def test_a_view_that_needs_division_is_not_one_view() -> None:
    assert ShapeTracker.from_shape((3, 4)).permute((1, 0)).reshape((12,)).view is None


def test_stride_keeps_every_second_element() -> None:
    view = ShapeTracker.from_shape((7,)).stride((2,))
    assert (view.shape, view.real_strides()) == ((4,), (2,))


@st.composite
def chains(draw: st.DrawFn) -> tuple[ShapeTracker, np.ndarray]:
    """A view, and the array it shows: elements of a base that counts from 1, so that padding is told apart as
    0."""
    shape = draw(st.lists(st.integers(1, 5), min_size=0, max_size=4).map(tuple))
    view = ShapeTracker.from_shape(shape)
    shown = np.arange(1, prod(shape) + 1).reshape(shape)
    for _ in range(draw(st.integers(0, 6))):
        kind = draw(
            st.sampled_from(("reshape", "permute", "expand", "pad", "shrink", "flip", "stride", "window"))
        )
        view, shown = moved(draw, kind, view, shown)
    return view, shown


def moved(
    draw: st.DrawFn, kind: str, view: ShapeTracker, shown: np.ndarray
) -> tuple[ShapeTracker, np.ndarray]:
    shape = view.shape
    rank = len(shape)
    if kind == "reshape":
        sizes = list(shape)
        draw(st.randoms(use_true_random=False)).shuffle(sizes)
        if len(sizes) > 1 and draw(st.booleans()):
            sizes = [sizes[0] * sizes[1], *sizes[2:], 1]
        return view.reshape(sizes), shown.reshape(sizes)
    if kind == "permute":
        order = draw(st.permutations(range(rank)))
        return view.permute(order), shown.transpose(order)
    if kind == "expand":
        sizes = [draw(st.integers(1, 3)) if n == 1 else n for n in shape]
        return view.expand(sizes), np.broadcast_to(shown, sizes)
    if kind == "pad" and prod(shape) < 500:
        pairs = [(draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in shape]
        return view.pad(pairs), np.pad(shown, pairs) if rank else shown
    if kind == "shrink":
        begins = [draw(st.integers(0, n - 1)) for n in shape]
        pairs = [(b, draw(st.integers(b + 1, n))) for b, n in zip(begins, shape, strict=True)]
        return view.shrink(pairs), shown[tuple(slice(b, e) for b, e in pairs)]
    if kind == "flip":
        axes = [a for a in range(rank) if draw(st.booleans())]
        return view.flip(axes), np.flip(shown, axes)
    if kind == "stride":
        steps = [draw(st.sampled_from((1, 2, 3, -1, -2))) for _ in shape]
        return view.stride(steps), shown[tuple(slice(None, None, s) for s in steps)]
    if kind == "window" and rank and prod(shape) < 500:
        axis = draw(st.integers(0, rank - 1))
        size = draw(st.integers(1, shape[axis]))
        got = np.lib.stride_tricks.sliding_window_view(shown, size, axis)
        return view.window((axis,), (size,), (1,), (1,)), got
    return view, shown


@settings(max_examples=60, deadline=None)
@given(chains())
def test_any_chain_of_movement_matches_numpy(case: tuple[ShapeTracker, np.ndarray]) -> None:
    view, shown = case
    assert view.shape == shown.shape
    index, mask = view.expr_idxs()
    for at in list(np.ndindex(shown.shape))[:200]:
        env = {symbolic.loop(axis, n): i for axis, (i, n) in enumerate(zip(at, shown.shape, strict=True))}
        seen = symbolic.evaluate(index, env) + 1 if symbolic.evaluate(mask, env) else 0
        assert seen == shown[at], (view.render(), at)


@settings(max_examples=40, deadline=None)
@given(chains())
def test_strides_of_any_chain_are_steps_in_the_base(case: tuple[ShapeTracker, np.ndarray]) -> None:
    view, shown = case
    for axis, stride in enumerate(view.real_strides()):
        if stride is None or shown.shape[axis] < 2:
            continue
        a, b = np.take(shown, 0, axis), np.take(shown, 1, axis)
        valid = (a != 0) & (b != 0)
        assert np.all((b - a)[valid] == stride)


@settings(max_examples=40, deadline=None)
@given(chains())
def test_one_view_equals_its_chain(case: tuple[ShapeTracker, np.ndarray]) -> None:
    view, shown = case
    one = view.view
    if one is None:
        return
    index, mask = one.expr_idxs()
    for at in list(np.ndindex(shown.shape))[:100]:
        env = {symbolic.loop(axis, n): i for axis, (i, n) in enumerate(zip(at, shown.shape, strict=True))}
        seen = symbolic.evaluate(index, env) + 1 if symbolic.evaluate(mask, env) else 0
        assert seen == shown[at]
