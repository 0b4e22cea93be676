"""The operations of the intermediate representation: definition, sources and argument of each.

Two kinds of graphs use them. A frontend builds a *tensor graph* (`compiler.ir.graph` has its constructors),
whose nodes have shapes. The scheduler makes *kernel ASTs* of it, whose nodes are scalars with shape ().

Arithmetic that both graphs share is defined here once and for every target:

- integers wrap; FLOORDIV and MOD have Python's signs, and give 0 for a divisor of 0; SHL and SHR by the
  width or more, or by a negative amount, give 0 (SHR of a negative number gives -1); no operation traps
- float operations round once, to nearest even; NaN, infinities and signed zeros are kept (strict floating
  point)
- MAX and MIN give NaN when an operand is NaN; of two zeros of different sign they may give either
- with a NaN operand LT and EQ are false, and NE is true
- CAST float to integer truncates, saturates, and maps NaN to 0; integer to narrower integer wraps; anything
  to bool is `x != 0` (NaN is true); bool to number is 0 or 1; integer to float and float to narrower float
  round to nearest even

Not here: the node that carries an operation (`uop`), folding on Python numbers (`scalar`). To add one:
docs/how-to/add-an-elementwise-operation.md.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable


class Ops:
    """Names of operations: plain interned strings, compared by identity."""

    PARAM: Final = "PARAM"
    """The contents of a buffer before the schedule runs. arg=(slot, shape); row-major and contiguous."""
    CONST: Final = "CONST"
    """arg=value, exactly representable in dtype: bool, int or float by the dtype's kind. Both graphs;
    shape ()."""
    IOTA: Final = "IOTA"
    """The coordinate along one axis, int32 or int64. arg=(shape, axis)."""

    RESHAPE: Final = "RESHAPE"
    """Row-major reinterpretation. arg=shape."""
    PERMUTE: Final = "PERMUTE"
    """Axis i of the result is axis arg[i] of the source. arg=order."""
    EXPAND: Final = "EXPAND"
    """Repeat axes of size 1. arg=shape, same rank."""
    PAD: Final = "PAD"
    """Add zeros before and after each axis. arg=((before, after), ...), none negative."""
    SHRINK: Final = "SHRINK"
    """Keep begin <= i < end of each axis. arg=((begin, end), ...): numbers, or both index UOps (made of VARs)
    whose difference is a number."""
    FLIP: Final = "FLIP"
    """Reverse axes. arg=axes, ascending."""
    WINDOW: Final = "WINDOW"
    """Sliding windows: appends one axis per entry, out[..., o, ..., w] = x[..., o*stride + w*dilation, ...].
    arg=(axes, sizes, strides, dilations)."""

    NEG: Final = "NEG"
    ABS: Final = "ABS"
    RECIP: Final = "RECIP"
    """1 / x; floats."""
    SQRT: Final = "SQRT"
    EXP: Final = "EXP"
    EXP2: Final = "EXP2"
    LOG: Final = "LOG"
    LOG2: Final = "LOG2"
    EXPM1: Final = "EXPM1"
    """exp(x) - 1, accurate also for small x."""
    LOG1P: Final = "LOG1P"
    """log(1 + x), accurate also for small x."""
    SIN: Final = "SIN"
    COS: Final = "COS"
    TANH: Final = "TANH"
    FLOOR: Final = "FLOOR"
    CEIL: Final = "CEIL"
    TRUNC: Final = "TRUNC"
    ROUND: Final = "ROUND"
    """To the nearest integer, ties to even; floats stay floats."""
    NOT: Final = "NOT"
    """Logical for bool, bitwise for integers."""
    CAST: Final = "CAST"
    """Convert to the node's dtype, by the rules above."""
    BITCAST: Final = "BITCAST"
    """The same bits as another dtype of equal itemsize."""

    ADD: Final = "ADD"
    SUB: Final = "SUB"
    MUL: Final = "MUL"
    DIV: Final = "DIV"
    """True division; floats."""
    FLOORDIV: Final = "FLOORDIV"
    """Division of integers, rounded down."""
    MOD: Final = "MOD"
    """Remainder of integers, with the sign of the divisor."""
    FMOD: Final = "FMOD"
    """Floats: x - trunc(x / y) * y, exact, with the sign of x; NaN for infinite x or zero y."""
    POW: Final = "POW"
    """Floats: C's pow. Integers wrap; a negative exponent gives 0, except for the bases 1 and -1."""
    COPYSIGN: Final = "COPYSIGN"
    """Floats: the first with the sign of the second, also of zero and NaN."""
    MAX: Final = "MAX"
    MIN: Final = "MIN"
    AND: Final = "AND"
    OR: Final = "OR"
    XOR: Final = "XOR"
    SHL: Final = "SHL"
    SHR: Final = "SHR"
    """Arithmetic for signed integers, logical for unsigned."""
    LT: Final = "LT"
    """a < b; the result of LT, EQ and NE is bool."""
    EQ: Final = "EQ"
    NE: Final = "NE"

    WHERE: Final = "WHERE"
    """src=(condition, a, b): a where the bool condition is true, else b."""
    WITHIN: Final = "WITHIN"
    """src=(condition, a): a where the bool condition is true, any value elsewhere. A kernel whose stores all
    have one condition `coordinate < number` need not compute the rest (`compiler.emit.loop_limits`)."""

    REDUCE: Final = "REDUCE"
    """Tensor: arg=(op, axes), op one of ADD MUL MAX MIN; the result lacks the axes. An empty reduction gives
    the op's identity.

    Kernel: src=(value,) arg=(op, (range number, ...)): combines value over those RANGEs in any order. They
    appear only inside reductions. Two REDUCEs of which neither contains the other may name the very same
    ranges (then one loop can serve both); a REDUCE inside another's value (row scope) never shares a range
    with it, and depends on output ranges only."""
    DOT: Final = "DOT"
    """Kernel, made by `compiler.rewrite.packed_dot`: src=(words, words) of uint32, arg=the matrix operation:
    the sum of the products of their parts. Only as the value of a REDUCE with ADD."""
    GATHER: Final = "GATHER"
    """src=(x, indices) arg=axis: out.shape = x.shape[:axis] + indices.shape + x.shape[axis+1:]. Indices are
    int32 or int64; one outside [0, n) gives 0 and reads nothing."""
    CONTIGUOUS: Final = "CONTIGUOUS"
    """The same values, stored in their own buffer."""
    AFTER: Final = "AFTER"
    """The values of its first source, which has a buffer. Kernels that use them run after those that compute
    the other sources: what is recomputed from them does not stay in memory meanwhile."""
    ASSIGN: Final = "ASSIGN"
    """src=(target, value): the value, stored in place. The target is a PARAM, or SHRINK, RESHAPE, PERMUTE,
    FLIP of one."""

    SINK: Final = "SINK"
    """Root of a kernel. src=STOREs, all over the same output ranges. With arg=(externals, shared) the root of
    a chain: src=the SINKs of its parts (`compiler.schedule.chains`). With arg=(buffers, 0) the root of a
    merged kernel of STOREs (`compiler.schedule.recomputed`)."""
    STORE: Final = "STORE"
    """src=(BUFFER, index, value[, mask]); dtype void. Every output range appears in the index, so no element
    is stored twice."""
    BUFFER: Final = "BUFFER"
    """dtype=element, arg=slot: position in ScheduleItem.bufs and in the argument block. Numbered by first
    use, outputs first."""
    LOAD: Final = "LOAD"
    """src=(BUFFER, index[, mask]). A false mask gives 0 and reads nothing. A kernel that stores to a buffer
    loads from it only at the index it stores to (in-place update), before the store."""

    RANGE: Final = "RANGE"
    """arg=(number, size): loop variable, 0 <= r < size, size > 1. Output ranges come first: 0, 1, ...
    outermost first."""
    VAR: Final = "VAR"
    """arg=(name, lo, hi): a number given at launch, bounds inclusive; an int64 in the argument block after
    the buffers, in order of name."""
    SUM: Final = "SUM"
    """src=atoms, arg=((coefficient, ...), constant): sum(atom * coefficient) + constant. Atoms are distinct
    RANGE, VAR, IDIV, IMOD, INDEXOF, in structural order; coefficients are not 0."""
    IDIV: Final = "IDIV"
    """src=(x,) arg=c > 1: floor division. When x.vmin >= 0, an unsigned or truncating division is the
    same."""
    IMOD: Final = "IMOD"
    """src=(x,) arg=c > 1: floor modulo, 0 <= result < c."""
    ILT: Final = "ILT"
    """src=(x,) arg=c: the mask x < c."""
    IAND: Final = "IAND"
    """src=ILTs, at least two: their conjunction. A kernel has no mask that is always true or always false:
    these are CONSTs in `compiler.ir.index` alone."""
    INDEXOF: Final = "INDEXOF"
    """src=(integer value,) arg=(lo, hi): a computed value as an index atom (gather)."""
    IVALUE: Final = "IVALUE"
    """src=(index or mask,): an index as a value of dtype int32 or int64, a mask as a bool value. In tensor
    graphs: a scalar made of VARs."""


Value = bool | int | float
FLOATS: Final = frozenset({"float"})
INTEGERS: Final = frozenset({"int", "uint"})
BITS: Final = INTEGERS | {"bool"}
NUMBERS: Final = INTEGERS | FLOATS
ANY: Final = NUMBERS | {"bool"}


@dataclass(frozen=True, slots=True)
class Cost:
    """The approximate cost of one operation, for planners and for the scheduler."""

    instructions: float
    """Vector instructions, for the planners of a kernel."""
    weight: int
    """Simple operations, for the scheduler; a load counts as two."""
    branches: bool = False
    """Whether its code branches for rare inputs. Code for several elements of a GPU thread cannot branch."""


SIMPLE: Final = Cost(1.0, 1)
QUOTIENT: Final = Cost(8.0, 4)
INTEGER_QUOTIENT: Final = Cost(20.0, 6)
POLYNOMIAL: Final = Cost(22.0, 20)


@dataclass(frozen=True, slots=True)
class Elementwise:
    """An elementwise operation with one or two sources; `Ops` documents it under its name.

    `kinds` are the kinds of dtype (`DType.kind`) of its sources. Two sources have the same dtype, which is
    also the result's, except for a `predicate`, whose result is bool. `floats` and `whole` compute it on
    Python numbers, for constant folding: `floats` exactly or rounded once, or None if the device may round
    differently; `whole` on unbounded integers and bools, which are wrapped afterwards. A `transcendental`
    operation is computed by polynomials. An `exact` operation on float16 or bfloat16, computed in float32,
    has a result that needs no rounding. `oracle` is the NumPy function for tests; None if the tests have
    their own. Scheduler and planners read `cost`.

    `compiler.emit.isel` has the instructions of an operation, by name.
    """

    op: str
    sources: int
    kinds: frozenset[str]
    floats: Callable[..., Value | None] | None = None
    whole: Callable[..., Value] | None = None
    predicate: bool = False
    transcendental: bool = False
    exact: bool = False
    oracle: str | None = None
    cost: Cost = field(kw_only=True)


def _div(a: float, b: float) -> float:
    if b == 0:
        if a == 0 or math.isnan(a):
            return math.nan
        return math.copysign(math.inf, a) * math.copysign(1.0, b)
    return a / b


def _fmod(a: float, b: float) -> float:
    return math.nan if b == 0 or math.isinf(a) else math.fmod(a, b)


def _sqrt(x: float) -> float:
    return math.sqrt(x) if x >= 0 else x if x == 0 else math.nan


def _extreme(choose: Callable[[float, float], float]) -> Callable[[float, float], float]:
    return lambda a, b: math.nan if math.isnan(a) or math.isnan(b) else choose(a, b)


def _whole(rule: Callable[[float], int]) -> Callable[[float], float]:
    """Return a rounding function that keeps infinities, NaN and the sign of zero."""
    return lambda x: math.copysign(rule(x), x) if math.isfinite(x) else x


def _pow(a: int, b: int) -> int:
    if b >= 0:
        return pow(a, b, 1 << _WIDEST)
    return a ** (b & 1) if abs(a) == 1 else 0


def _shl(a: int, b: int) -> int:
    return a << b if 0 <= b < _WIDEST else 0


def _shr(a: int, b: int) -> int:
    return a >> b if 0 <= b < _WIDEST else -(a < 0)


_WIDEST: Final = 64


def _transcendental(op: str, point: float, result: float, *, cost: Cost = POLYNOMIAL) -> Elementwise:
    """Return the row of a function with NumPy's name.

    It is folded only at `point`, where the result is exact.
    """

    def floats(x: float) -> float | None:
        if x != point:
            return None
        return math.copysign(result, x) if result == 0 == point else result

    return Elementwise(op, 1, FLOATS, floats, transcendental=True, oracle=op.lower(), cost=cost)


_ROWS: Final = (
    Elementwise(Ops.NEG, 1, NUMBERS, operator.neg, operator.neg, exact=True, oracle="negative", cost=SIMPLE),
    Elementwise(Ops.ABS, 1, NUMBERS, abs, abs, exact=True, oracle="abs", cost=SIMPLE),
    Elementwise(Ops.RECIP, 1, FLOATS, lambda x: _div(1.0, x), oracle="reciprocal", cost=QUOTIENT),
    Elementwise(Ops.SQRT, 1, FLOATS, _sqrt, oracle="sqrt", cost=QUOTIENT),
    _transcendental(Ops.EXP, 0, 1),
    _transcendental(Ops.EXP2, 0, 1),
    _transcendental(Ops.LOG, 1, 0),
    _transcendental(Ops.LOG2, 1, 0),
    _transcendental(Ops.EXPM1, 0, 0),
    _transcendental(Ops.LOG1P, 0, 0),
    _transcendental(Ops.SIN, 0, 0, cost=replace(POLYNOMIAL, branches=True)),
    _transcendental(Ops.COS, 0, 1, cost=replace(POLYNOMIAL, branches=True)),
    _transcendental(Ops.TANH, 0, 0),
    Elementwise(Ops.FLOOR, 1, FLOATS, _whole(math.floor), exact=True, oracle="floor", cost=SIMPLE),
    Elementwise(Ops.CEIL, 1, FLOATS, _whole(math.ceil), exact=True, oracle="ceil", cost=SIMPLE),
    Elementwise(Ops.TRUNC, 1, FLOATS, _whole(math.trunc), exact=True, oracle="trunc", cost=SIMPLE),
    Elementwise(Ops.ROUND, 1, FLOATS, _whole(round), exact=True, oracle="rint", cost=SIMPLE),
    Elementwise(
        Ops.NOT, 1, BITS, whole=lambda x: not x if isinstance(x, bool) else ~x, oracle="invert", cost=SIMPLE
    ),
    Elementwise(Ops.ADD, 2, NUMBERS, operator.add, operator.add, oracle="add", cost=SIMPLE),
    Elementwise(Ops.SUB, 2, NUMBERS, operator.sub, operator.sub, oracle="subtract", cost=SIMPLE),
    Elementwise(Ops.MUL, 2, NUMBERS, operator.mul, operator.mul, oracle="multiply", cost=SIMPLE),
    Elementwise(Ops.DIV, 2, FLOATS, _div, oracle="divide", cost=QUOTIENT),
    Elementwise(Ops.FLOORDIV, 2, INTEGERS, whole=lambda a, b: a // b if b else 0, cost=INTEGER_QUOTIENT),
    Elementwise(Ops.MOD, 2, INTEGERS, whole=lambda a, b: a % b if b else 0, cost=INTEGER_QUOTIENT),
    Elementwise(
        Ops.FMOD, 2, FLOATS, _fmod, exact=True, oracle="fmod", cost=replace(INTEGER_QUOTIENT, branches=True)
    ),
    Elementwise(Ops.COPYSIGN, 2, FLOATS, math.copysign, exact=True, oracle="copysign", cost=SIMPLE),
    Elementwise(Ops.POW, 2, NUMBERS, whole=_pow, cost=Cost(60.0, 40, branches=True)),
    Elementwise(Ops.MAX, 2, ANY, _extreme(max), max, exact=True, oracle="maximum", cost=SIMPLE),
    Elementwise(Ops.MIN, 2, ANY, _extreme(min), min, exact=True, oracle="minimum", cost=SIMPLE),
    Elementwise(Ops.AND, 2, BITS, whole=operator.and_, oracle="bitwise_and", cost=SIMPLE),
    Elementwise(Ops.OR, 2, BITS, whole=operator.or_, oracle="bitwise_or", cost=SIMPLE),
    Elementwise(Ops.XOR, 2, BITS, whole=operator.xor, oracle="bitwise_xor", cost=SIMPLE),
    Elementwise(Ops.SHL, 2, INTEGERS, whole=_shl, cost=SIMPLE),
    Elementwise(Ops.SHR, 2, INTEGERS, whole=_shr, cost=SIMPLE),
    Elementwise(Ops.LT, 2, ANY, operator.lt, operator.lt, predicate=True, oracle="less", cost=SIMPLE),
    Elementwise(Ops.EQ, 2, ANY, operator.eq, operator.eq, predicate=True, oracle="equal", cost=SIMPLE),
    Elementwise(Ops.NE, 2, ANY, operator.ne, operator.ne, predicate=True, oracle="not_equal", cost=SIMPLE),
)
ROWS: Final = {row.op: row for row in _ROWS}
"""The elementwise operations by name, except CAST, BITCAST, WHERE and WITHIN: their sources differ in
dtype."""

UNARY: Final = frozenset(row.op for row in _ROWS if row.sources == 1)
BINARY: Final = frozenset(row.op for row in _ROWS if row.sources == 2)
COMPARE: Final = frozenset(row.op for row in _ROWS if row.predicate)
TRANSCENDENTAL: Final = frozenset(row.op for row in _ROWS if row.transcendental)
COSTLY: Final = frozenset(row.op for row in _ROWS if row.cost.weight > SIMPLE.weight)
BRANCHING: Final = frozenset(row.op for row in _ROWS if row.cost.branches)
CASTS: Final = frozenset((Ops.CAST, Ops.BITCAST))
ELEMENTWISE: Final = UNARY | CASTS | BINARY | {Ops.WHERE, Ops.WITHIN}
MOVEMENT: Final = frozenset((Ops.RESHAPE, Ops.PERMUTE, Ops.EXPAND, Ops.PAD, Ops.SHRINK, Ops.FLIP, Ops.WINDOW))
REDUCERS: Final = frozenset((Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN))
INDEX: Final = frozenset((Ops.RANGE, Ops.VAR, Ops.SUM, Ops.IDIV, Ops.IMOD, Ops.INDEXOF))
MASK: Final = frozenset((Ops.ILT, Ops.IAND))
NAMES: Final = frozenset(v for k, v in vars(Ops).items() if k.isupper())
