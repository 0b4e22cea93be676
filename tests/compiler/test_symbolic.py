"""Index arithmetic: canonical forms, bounds, and agreement with Python's integers on random programs."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from compiler.ir import index as symbolic
from compiler.ir.index import Variable
from compiler.ir.serialize import node_text
from hcq.errors import UsageError
from tests.children import python

if TYPE_CHECKING:
    from collections.abc import Callable

    from compiler.ir.uop import UOp

Env = dict["UOp", int]
A, B = Variable("a", 0, 10), Variable("b", 0, 10)
K, J, LONG = symbolic.loop(0, 8), symbolic.loop(1, 8), symbolic.loop(0, 100)


def test_multiplication_scales_the_bounds() -> None:
    assert ((A * 10).min, (A * 10).max) == (0, 100)
    assert (((A * 40 + B) // 20).min, ((A * 40 + B) // 20).max) == (0, 20)


@pytest.mark.parametrize(
    ("x", "wanted"),
    [
        (LONG // 7 * 7 + LONG % 7, LONG), (K * 3 + J - K * 3, J), (symbolic.loop(5, 1), symbolic.ZERO),
        (K < 8, symbolic.TRUE), (K >= 8, symbolic.FALSE), (symbolic.both(K < 5, K < 3, symbolic.TRUE), K < 3),
        (J * 8 + K, K + J * 8),
    ],
)  # fmt: skip
def test_equal_arithmetic_is_one_node(x: UOp, wanted: UOp) -> None:
    assert x is wanted


@pytest.mark.parametrize(
    ("x", "text"),
    [
        ((Variable("n", 0, 9) + B * 10) % 10, "n"), ((A + B * 10) % 10, "(a%10)"),
        ((A * 40 + B) // 20, "(a*2)"), (K * 4 + 2 < 9, "(idx0<2)"),
    ],
)  # fmt: skip
def test_what_cannot_carry_is_dropped(x: UOp, text: str) -> None:
    assert x.render() == text


def test_a_tighter_mask_implies_a_weaker_one() -> None:
    i, j = symbolic.loop(0, 8), symbolic.loop(1, 8)
    assert symbolic.implies(symbolic.both(i < 3, j < 2), i < 5)
    assert not symbolic.implies(i < 5, i < 3)


def test_equal_arithmetic_has_equal_text_in_every_process() -> None:
    program = (
        "from compiler.ir import index as symbolic\n"
        "a, i, j = symbolic.Variable('a', 0, 9), symbolic.loop({0}, 31), symbolic.loop({1}, 31)\n"
        "x = {2}\n"
        "print(symbolic.both(x // 3 % 5 + i // 4 * 7 + j % 6 < 9, i % 5 < 2, j // 3 < 4).render())\n"
    )
    texts = set()
    for order in ("i + a * 2 + j * 3", "j * 3 + i + a * 2"):
        texts.add(python("-c", program.format(0, 1, order)).stdout)
    assert len(texts) == 1


def test_a_variable_with_crossed_bounds_is_refused() -> None:
    with pytest.raises(UsageError, match=r"'n'.*5\.\.3"):
        Variable("n", 5, 3)


def test_division_by_a_negative_number_is_refused() -> None:
    with pytest.raises(UsageError, match="must be positive, not -2"):
        _ = symbolic.loop(0, 8) // -2


def test_arithmetic_between_two_indices_names_the_wrong_one() -> None:
    with pytest.raises(UsageError, match="right side of `%`"):
        _ = symbolic.loop(0, 8) % symbolic.loop(1, 8)  # type: ignore[operator]


def random_program(choose: random.Random) -> None:
    """Build random arithmetic beside Python functions of the same meaning; compare on random points."""
    sizes = [choose.choice([1, 2, 3, 4, 5, 7, 8, 12, 16]) for _ in range(4)]
    ranges = [symbolic.loop(i, n) for i, n in enumerate(sizes)]
    pool: list[tuple[UOp, Callable[[Env], int]]] = [
        (r, (lambda env, r=r: env.get(r, 0))) for r in (*ranges, Variable("v", -3, 9))
    ]
    for _ in range(choose.randint(1, 12)):
        (a, f), (b, g) = choose.choice(pool), choose.choice(pool)
        c = choose.choice([1, 2, 3, 4, 6, 8, 12, 16, 24, 56])
        kind = choose.randrange(6)
        if kind == 0:
            pool.append((a + b, lambda env, f=f, g=g: f(env) + g(env)))
        elif kind == 1:
            m = choose.choice([-1, 1]) * c
            pool.append((a * m, lambda env, f=f, m=m: f(env) * m))
        elif kind == 2:
            pool.append((a // c, lambda env, f=f, c=c: f(env) // c))
        elif kind == 3:
            pool.append((a % c, lambda env, f=f, c=c: f(env) % c))
        elif kind == 4:
            pool.append((a + (c - 8), lambda env, f=f, c=c: f(env) + c - 8))
        else:
            mask = symbolic.both(a < c, symbolic.ge(b, c - 8))
            for _ in range(3):
                env = point(choose, ranges)
                assert symbolic.evaluate(mask, env) == (f(env) < c and g(env) >= c - 8), mask.render()
    for _ in range(6):
        env = point(choose, ranges)
        for x, f in pool:
            value = symbolic.evaluate(x, env)
            assert value == f(env), node_text(x)
            assert x.vmin <= value <= x.vmax, node_text(x)


def point(choose: random.Random, ranges: list[UOp]) -> Env:
    env = {r: choose.randrange(r.arg[1]) for r in ranges if r is not symbolic.ZERO}
    env[Variable("v", -3, 9)] = choose.randint(-3, 9)
    return env


def test_random_programs_agree_with_integers() -> None:
    choose = random.Random(3)
    for _ in range(500):
        random_program(choose)


@pytest.mark.slow
def test_many_random_programs_agree_with_integers() -> None:
    choose = random.Random(4)
    for _ in range(6_000):
        random_program(choose)


def test_substitution_of_ranges_agrees_with_evaluation() -> None:
    i, j = symbolic.loop(0, 6), symbolic.loop(1, 4)
    flat = symbolic.loop(2, 24)
    x = (i * 4 + j) % 5 * 3 + i
    moved = symbolic.substitute(x, {i: flat // 4, j: flat % 4}, {})
    for n in range(24):
        assert symbolic.evaluate(moved, {flat: n}) == symbolic.evaluate(x, {i: n // 4, j: n % 4})
