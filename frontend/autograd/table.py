"""The gradient rule of each operation.

Next: `elementwise`, `primitives` and `rules`, the rules; `engine`, the use.
"""

from __future__ import annotations

from typing import Any, Final

from frontend.autograd import elementwise, primitives, rules
from frontend.evaluation.expr import RULED

RULES: Final[dict[str, Any]] = {**elementwise.RULES, **primitives.RULES, RULED: rules.ruled}
"""Operation -> its rule. No gradient flows through integers, bools, comparisons, bits and BITCAST."""


def rule_of(op: str) -> Any:
    """Return the rule of an operation; None for one without a rule, through which no gradient flows."""
    return RULES.get(op)
