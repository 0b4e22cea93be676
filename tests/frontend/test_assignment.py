"""Assignment: in place if no other tensor aliases the old contents, invisible to other tensors."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from frontend import Tensor, dtypes
from frontend.evaluation.printing import described
from frontend.evaluation.realize import PENDING
from hcq.errors import UsageError


def memory(t: Tensor) -> object:
    return t.realize().leaves[0].buffer


def test_assign_is_lazy_and_stores_in_place():
    w = Tensor([1.0, 2.0])
    before = memory(w)
    w.assign(w * 3)
    assert "assigned, pending" in described(w)
    assert memory(w) is before
    assert w.tolist() == [3.0, 6.0]


def test_a_pending_expression_keeps_the_old_value():
    w = Tensor([1.0, 2.0])
    before = memory(w)
    old = w * 10
    w.assign(w + 1).realize()
    assert memory(w) is before
    assert old.tolist() == [10.0, 20.0]
    assert w.tolist() == [2.0, 3.0]


def test_views_follow_and_copies_keep_the_old_value():
    w = Tensor([1.0, 2.0])
    views = [w.detach(), w.reshape(2, 1), w[0], w.detach().realize(), Tensor(w), Tensor(w).realize()]
    w.assign(w + 1).realize()
    new, old = [2.0, 3.0], [1.0, 2.0]
    assert [v.tolist() for v in views] == [new, [[2.0], [3.0]], 2.0, new, old, old]


def test_assigning_twice_before_realizing():
    w = Tensor([1.0])
    before = memory(w)
    w.assign(w + 1)
    w.assign(w * 10)
    assert w.tolist() == [20.0]
    assert memory(w) is before


def test_expressions_built_after_an_assign_use_the_new_value():
    w = Tensor([1.0])
    w.assign(w + 1)
    y = w * 10
    w.assign(w + 1)
    assert (y.tolist(), w.tolist()) == ([20.0], [3.0])


def test_two_tensors_swap():
    a, b = Tensor([1.0]), Tensor([2.0])
    old_a = a + 0
    a.assign(b)
    b.assign(old_a)
    Tensor.realize(a, b)
    assert (a.tolist(), b.tolist()) == ([2.0], [1.0])


def test_a_joint_realize_reads_old_values():
    w = Tensor([1.0, 2.0])
    loss = (w * w).sum()
    w.assign(w - 0.5)
    Tensor.realize(loss, w)
    assert loss.item() == 5.0
    assert w.tolist() == [0.5, 1.5]


def test_assigning_reads_other_places_of_itself():
    w = Tensor([1.0, 2.0, 3.0, 4.0])
    before = memory(w)
    w.assign(w.flip(0) + w.roll(1)).realize()
    assert w.tolist() == [8.0, 4.0, 4.0, 4.0]
    assert memory(w) is before


def test_aliases_are_assigned_independently():
    a = Tensor([1.0])
    b = Tensor(a).realize()
    a.assign(a + 1)
    b.assign(b + 10)
    Tensor.realize(a, b)
    assert (a.tolist(), b.tolist()) == ([2.0], [11.0])


def test_assigning_a_realized_tensor_copies_it():
    a, b = Tensor([1.0]), Tensor([5.0])
    before = memory(a)
    a.assign(b).realize()
    b.assign(b * 2).realize()
    assert memory(a) is before
    assert (a.tolist(), b.tolist()) == ([5.0], [10.0])


def test_assigning_to_a_pending_tensor_just_replaces_it():
    a = Tensor([1.0]) + 1
    a.assign(Tensor([7.0]))
    assert a.tolist() == [7.0]
    c = Tensor.zeros(2)
    c += 1
    assert c.tolist() == [1.0, 1.0]


def test_in_place_operators():
    t = Tensor([8.0, 4.0])
    same = t
    t += 1
    t -= Tensor([1.0, 1.0])
    t *= 3
    t /= 2
    t **= 2
    assert t is same
    assert t.tolist() == [144.0, 36.0]
    i = Tensor([7])
    i //= 2
    i %= 2
    i |= 4
    i ^= 1
    i &= 6
    assert i.tolist() == [4]
    m = Tensor([[1.0, 1.0], [0.0, 1.0]])
    m @= m
    assert m.tolist() == [[1.0, 2.0], [0.0, 1.0]]


def test_assign_broadcasts_and_checks():
    w = Tensor([1.0, 2.0])
    w.assign(5)
    assert w.tolist() == [5.0, 5.0]
    w.assign(Tensor([1.5]))
    assert w.tolist() == [1.5, 1.5]
    with pytest.raises(UsageError, match=r"shape \(2,\), the value \(2, 2\)"):
        w.assign(Tensor.zeros(2, 2))
    with pytest.raises(UsageError, match="int64; cast"):
        w.assign(Tensor([1, 2]))
    assert w.dtype is dtypes.float32


def test_a_dropped_assignment_leaves_no_state():
    w = Tensor([1.0])
    number = id(w)
    w.assign(w + 1)
    assert number in PENDING
    gone = weakref.ref(w)
    del w
    gc.collect()
    assert gone() is None
    assert number not in PENDING


def test_a_used_parameter_is_copied_once_not_every_time():
    w = Tensor([1.0])
    held = w + 1
    for _ in range(3):
        w.assign(w * 2).realize()
    assert (held.tolist(), w.tolist()) == ([2.0], [8.0])


def test_nothing_is_pending_once_realized():
    a, b = Tensor([1.0]), Tensor([1.0]) + 1
    a.assign(a + 1)
    b.assign(Tensor([7.0]))
    c = Tensor.zeros(1)
    c += 1
    Tensor.realize(a, b, c)
    assert not {id(a), id(b), id(c)} & set(PENDING)


def test_threads_beyond_the_end_read_nothing_that_other_workgroups_write():
    x = Tensor(np.arange(20, dtype=np.float32).reshape(5, 4), device="nv-emu:checked").realize()
    x[:, :3] = x[:, :3] * 2 + 1  # a race is reported as a fault of the device
    want = np.arange(20.0).reshape(5, 4)
    want[:, :3] = want[:, :3] * 2 + 1
    np.testing.assert_array_equal(x.numpy(), want)
