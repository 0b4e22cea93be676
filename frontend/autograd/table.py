"""The gradient rule of each operation.

Next: `primitives` and `rules`, the rules; `engine`, the use.
"""

from __future__ import annotations

from typing import Any, Final

from frontend.autograd import primitives, rules
from frontend.expr import RULED
from frontend.ops import division, elementwise, functions, powers, special

ROWS: Final = (*functions.ROWS, *special.ROWS, *elementwise.ROWS, *division.ROWS, *powers.ROWS)
RULES: Final[dict[str, Any]] = {
    **{row.op: row.gradient for row in ROWS if row.op is not None},
    **primitives.RULES,
    RULED: rules.ruled,
}
"""Operation -> its rule. No gradient flows through integers, bools, comparisons, bits and BITCAST."""


def rule_of(op: str) -> Any:
    """Return the rule of an operation; None where no gradient flows."""
    return RULES.get(op)
