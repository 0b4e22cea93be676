"""All uses of differentiable methods that are recorded, and the methods that have no gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tools.gradients import movement, networks, numbers, pairs, reductions

if TYPE_CHECKING:
    from tools.gradients.case import Case

CASES: Final[tuple[Case, ...]] = (
    *numbers.CASES,
    *pairs.CASES,
    *reductions.CASES,
    *movement.CASES,
    *networks.CASES,
)
