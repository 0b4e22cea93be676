"""The comparison of plans: its ratios do not depend on the speed of the processor, and its list of shapes."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, cast

from compiler.plan.choice import brief
from compiler.targets import arch_for, target_of
from frontend.tuning.space import Space
from tools.search import choose, exhaustive, small
from tools.search.shapes import FIRST, SECOND, shapes

if TYPE_CHECKING:
    from tools.search.timing import Batch


class Clock:
    """A processor whose speed changes every few samples by up to a fifth, and that others interrupt."""

    def __init__(self) -> None:
        self.random = random.Random(1)
        self.left, self.speed = 0, 1.0

    def sample(self, ns: float) -> float:
        if self.left == 0:
            self.left, self.speed = self.random.randrange(5, 100), self.random.choice((1.0, 1.0, 1.0, 0.8))
        self.left -= 1
        return ns * self.speed * (3.0 if self.random.random() < 0.05 else 1.0)


class Plan:
    """A stand-in for `Batch`: a plan of known time on such a processor."""

    def __init__(self, clock: Clock, ns: float) -> None:
        self.clock, self.ns = clock, ns

    def sample(self) -> float:
        return self.clock.sample(self.ns)


def test_ratios_are_right_on_a_processor_whose_speed_changes() -> None:
    clock = Clock()
    plans = [Plan(clock, ns) for ns in (100.0, 130.0, 95.0, 101.0, 102.0, 103.0, 300.0)]
    batches = cast("list[Batch]", plans)
    fastest = choose._fastest(batches)  # the part that selects
    assert len(fastest) == choose.LAST
    assert fastest[0] == 2
    chosen, best, itself = choose._in_turn([batches[0], batches[2], batches[0]])
    assert abs(choose.ratio(chosen, best) - 100 / 95) < 1e-9
    assert choose.ratio(chosen, itself) == 1.0


def test_comparison_of_a_small_kernel_names_the_plans() -> None:
    ast = small.ast_of("integers")
    with choose.opened() as device:
        found = choose.compared(device, "integers", ast)
        every = exhaustive.every(Space(ast, target_of(arch_for(device.info))))
    assert found.plans == len(every) > 1
    assert found.chosen == brief(every[0].choice)
    assert found.best in {brief(candidate.choice) for candidate in every}
    assert found.ratio >= 1.0
    assert min(found.chosen_ns, found.best_ns, found.noise) > 0


def test_summary_states_shares_and_noise() -> None:
    one = choose.Compared(
        shape="a", plans=2, chosen_ns=1.0, best_ns=1.0, ratio=1.05, noise=1.01, chosen="x", best="y"
    )
    other = choose.Compared(
        shape="b", plans=2, chosen_ns=1.4, best_ns=1.0, ratio=1.4, noise=0.98, chosen="x", best="y"
    )
    text, good = choose.summary([one] * 9)
    assert good
    assert "100% within 10%" in text
    text, good = choose.summary([one] * 19 + [other])
    assert not good
    assert "95% within 10%" in text
    assert "the farthest b at 1.40" in text
    assert "2.0% at most" in text


def test_no_shape_is_in_both_lists() -> None:
    first, second = shapes(FIRST), shapes(SECOND)
    assert len(first) >= 60
    assert len(second) >= 40
    assert not set(first.values()) & set(second.values())
