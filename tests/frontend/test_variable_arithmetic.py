"""Unbound variables are symbols of the compiler's index arithmetic."""

from __future__ import annotations

import pytest

from frontend import Variable
from hcq.errors import UsageError

A, B = Variable("a", 0, 10), Variable("b", 0, 10)


def test_a_division_drops_what_cannot_matter():
    x = (A * 40 + B) // 20
    assert (x.render(), x.min, x.max) == ("(a*2)", 0, 20)


def test_variables_fold_have_bounds_and_stand_on_either_side():
    assert ((A * 10).min, (A * 10).max) == (0, 100)
    assert ((A + B * 10) % 10).render() == "(a%10)"
    assert ((5 - A).min, (5 - A).max) == (-5, 5)
    assert (A * 2 - B).max == 20
    assert (-A + 3 + B - B).render() == (3 - A).render()
    assert (A.min, A.max, A.render()) == (0, 10, "a")


def test_an_invalid_index_is_refused():
    with pytest.raises((TypeError, UsageError)):
        A + 1.5
    with pytest.raises((TypeError, UsageError)):
        A * B
