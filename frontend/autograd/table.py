"""The gradient rule of each operation.

Next: `primitives` and `rules`, the rules; `engine`, the use.
"""

from __future__ import annotations

from typing import Any, Final

from compiler.ir.ops import Ops
from frontend.autograd import primitives, rules
from frontend.expr import CONV, INPUT, RULED, SEGMENT, STOP, VERSION
from frontend.ops import division, elementwise, functions, powers, trigonometry
from frontend.primitives.gather_scatter import SEGMENT_SUM, TAKE_ALONG_AXIS

ROWS: Final = (*functions.ROWS, *trigonometry.ROWS, *elementwise.ROWS, *division.ROWS, *powers.ROWS)
RULES: Final[dict[str, Any]] = {
    **{row.op: row.rule for row in ROWS if row.op is not None},
    Ops.CAST: primitives.cast,
    Ops.WHERE: primitives.select,
    Ops.WITHIN: primitives.within,
    Ops.RESHAPE: primitives.reshape,
    Ops.PERMUTE: primitives.permute,
    Ops.EXPAND: primitives.expand,
    Ops.PAD: primitives.pad,
    Ops.SHRINK: primitives.shrink,
    Ops.FLIP: primitives.flip,
    Ops.WINDOW: primitives.window,
    Ops.REDUCE: primitives.reduction,
    Ops.GATHER: primitives.gather,
    Ops.CONTIGUOUS: primitives.contiguous,
    STOP: primitives.constant,
    INPUT: primitives.first,
    SEGMENT: primitives.first,
    VERSION: primitives.first,
    Ops.AFTER: primitives.first,
    RULED: rules.ruled,
    CONV: primitives.convolution,
    TAKE_ALONG_AXIS: primitives.take_along_axis,
    SEGMENT_SUM: primitives.segment_sum,
}
"""Operation -> its rule. No gradient flows through integers, bools, comparisons, bits and BITCAST."""


def rule_of(op: str) -> Any:
    """Return the rule of an operation; None where no gradient flows."""
    return RULES.get(op)
