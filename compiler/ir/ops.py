"""The operations of the intermediate representation: what each means, its sources and its argument.

Two graphs share them. A *tensor graph* is what a frontend builds (`compiler.ir.graph` has its constructors):
nodes have a shape. A *kernel AST* is what the scheduler makes of it and the back half compiles: nodes are
scalars, shape ().

Arithmetic that both graphs share is defined here once and for every target:

- integers wrap around; FLOORDIV and MOD follow Python's signs; by zero they give 0; SHL and SHR by the width
  or more give 0 (SHR of a negative number: -1), and a negative amount counts as too large; nothing traps
- float operations round once, to nearest even; NaN, infinities and signed zeros are kept (strict floating
  point)
- MAX and MIN give NaN when an operand is NaN; of two zeros of different sign they may give either
- LT, EQ, NE are false, false, true when an operand is NaN
- CAST float to integer truncates, saturates, and maps NaN to 0; integer to narrower integer wraps; anything
  to bool is `x != 0` (NaN is true); bool to number is 0 or 1; integer to float and float to narrower float
  round to nearest even
"""

from __future__ import annotations

from typing import Final


class Ops:
    """Names of operations: plain interned strings, compared by identity."""

    # -- leaves of tensor graphs -------------------------------------------------------------------
    PARAM: Final = "PARAM"
    """Contents that a buffer had before the schedule runs. arg=(slot, shape); row-major and contiguous."""
    CONST: Final = "CONST"
    """arg=value, exactly representable in dtype: bool, int or float as the dtype's kind says. Both graphs;
    shape ()."""
    IOTA: Final = "IOTA"
    """The coordinate along one axis, int32 or int64. arg=(shape, axis)."""

    # -- movement (tensor graphs only): no arithmetic, no copy -------------------------------------
    RESHAPE: Final = "RESHAPE"
    """Row-major reinterpretation. arg=shape."""
    PERMUTE: Final = "PERMUTE"
    """out axis i is source axis arg[i]. arg=order."""
    EXPAND: Final = "EXPAND"
    """Repeat axes of size 1. arg=shape, same rank."""
    PAD: Final = "PAD"
    """Put zeros around. arg=((before, after), ...), none negative."""
    SHRINK: Final = "SHRINK"
    """Keep begin <= i < end of each axis. arg=((begin, end), ...): numbers, or both index UOps (made of VARs)
    whose difference is a number."""
    FLIP: Final = "FLIP"
    """Reverse axes. arg=axes, ascending."""
    WINDOW: Final = "WINDOW"
    """Sliding windows: appends one axis per entry, out[..., o, ..., w] = x[..., o*stride + w*dilation, ...].
    arg=(axes, sizes, strides, dilations)."""

    # -- unary, elementwise (both graphs) ----------------------------------------------------------
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
    """exp(x) - 1, also where x is so small that exp(x) rounds to 1."""
    LOG1P: Final = "LOG1P"
    """log(1 + x), also where x is so small that 1 + x rounds to 1."""
    SIN: Final = "SIN"
    COS: Final = "COS"
    TANH: Final = "TANH"
    FLOOR: Final = "FLOOR"
    CEIL: Final = "CEIL"
    TRUNC: Final = "TRUNC"
    ROUND: Final = "ROUND"
    """To the nearest integer, ties to even; floats stay floats."""
    NOT: Final = "NOT"
    """Logical for bool, every bit for integers."""
    CAST: Final = "CAST"
    """Convert to the node's dtype, by the rules above."""
    BITCAST: Final = "BITCAST"
    """The same bits as another dtype of equal itemsize."""

    # -- binary, elementwise; sources have equal shape and dtype -----------------------------------
    ADD: Final = "ADD"
    SUB: Final = "SUB"
    MUL: Final = "MUL"
    DIV: Final = "DIV"
    """True division; floats."""
    FLOORDIV: Final = "FLOORDIV"
    """Integers, rounded down."""
    MOD: Final = "MOD"
    """Integers, the sign of the divisor."""
    FMOD: Final = "FMOD"
    """Floats: x - trunc(x / y) * y, exactly, with the sign of x; NaN where x is infinite or y is 0."""
    POW: Final = "POW"
    """Floats: as C's pow. Integers: wraps around; a negative power is 0, or 1 or -1 where the base is one."""
    MAX: Final = "MAX"
    MIN: Final = "MIN"
    AND: Final = "AND"
    OR: Final = "OR"
    XOR: Final = "XOR"
    SHL: Final = "SHL"
    SHR: Final = "SHR"
    """Arithmetic for signed integers, logical for unsigned."""
    LT: Final = "LT"
    """a < b; gives bool, as do EQ and NE."""
    EQ: Final = "EQ"
    NE: Final = "NE"

    WHERE: Final = "WHERE"
    """src=(condition, a, b): a where the bool condition holds, else b."""

    # -- tensor graphs: what is not elementwise ----------------------------------------------------
    REDUCE: Final = "REDUCE"
    """Tensor: arg=(op, axes), op one of ADD MUL MAX MIN; the axes leave the shape. An empty reduction gives
    the op's identity.

    Kernel: src=(value,) arg=(op, (range number, ...)): combines value over those RANGEs in any order. They
    appear only inside reductions. Two REDUCEs of which neither contains the other may name the very same
    ranges (then one loop can serve both); a REDUCE inside another's value (row scope) never shares a range
    with it, and depends on output ranges only."""
    GATHER: Final = "GATHER"
    """src=(x, indices) arg=axis: out.shape = x.shape[:axis] + indices.shape + x.shape[axis+1:]. Indices are
    int32 or int64; one outside [0, n) gives 0 and reads nothing."""
    CONTIGUOUS: Final = "CONTIGUOUS"
    """The same values in a buffer of their own."""
    ASSIGN: Final = "ASSIGN"
    """src=(target, value): the value, stored in place. The target is a PARAM, or SHRINK, RESHAPE, PERMUTE,
    FLIP of one."""

    # -- kernel ASTs: structure --------------------------------------------------------------------
    SINK: Final = "SINK"
    """Root of a kernel. src=STOREs, all over the same output ranges."""
    STORE: Final = "STORE"
    """src=(BUFFER, index, value[, mask]); dtype void. Every output range appears in the index, so no element
    is stored twice."""
    BUFFER: Final = "BUFFER"
    """dtype=element, arg=slot: position in ScheduleItem.bufs and in the argument block. Numbered by first
    use, outputs first."""
    LOAD: Final = "LOAD"
    """src=(BUFFER, index[, mask]). A false mask gives 0 and reads nothing. A kernel that stores to a buffer
    loads from it only at the index it stores to (in-place update), before the store."""

    # -- kernel ASTs: index arithmetic; dtype index, masks dtype bool ------------------------------
    RANGE: Final = "RANGE"
    """arg=(number, size): loop variable, 0 <= r < size, size > 1. Output ranges come first: 0, 1, ...
    outermost first."""
    VAR: Final = "VAR"
    """arg=(name, lo, hi): a number given at launch, bounds inclusive; one int64 of the argument block after
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
    """src=ILTs: conjunction, at least two. (A mask that always holds is left out; CONST true and false stay
    inside `symbolic`.)"""
    INDEXOF: Final = "INDEXOF"
    """src=(integer value,) arg=(lo, hi): a computed value as an index atom (gather)."""
    IVALUE: Final = "IVALUE"
    """src=(index or mask,): an index as a value of dtype int32 or int64, a mask as a bool value. In tensor
    graphs: a scalar made of VARs."""


UNARY: Final = frozenset((
    Ops.NEG, Ops.ABS, Ops.RECIP, Ops.SQRT, Ops.EXP, Ops.EXP2, Ops.LOG, Ops.LOG2, Ops.EXPM1, Ops.LOG1P,
    Ops.SIN, Ops.COS, Ops.TANH, Ops.FLOOR, Ops.CEIL, Ops.TRUNC, Ops.ROUND, Ops.NOT,
))  # fmt: skip
CASTS: Final = frozenset((Ops.CAST, Ops.BITCAST))
COMPARE: Final = frozenset((Ops.LT, Ops.EQ, Ops.NE))
BINARY: Final = COMPARE | {
    Ops.ADD, Ops.SUB, Ops.MUL, Ops.DIV, Ops.FLOORDIV, Ops.MOD, Ops.FMOD, Ops.POW, Ops.MAX, Ops.MIN,
    Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR,
}  # fmt: skip
ELEMENTWISE: Final = UNARY | CASTS | BINARY | {Ops.WHERE}
MOVEMENT: Final = frozenset((Ops.RESHAPE, Ops.PERMUTE, Ops.EXPAND, Ops.PAD, Ops.SHRINK, Ops.FLIP, Ops.WINDOW))
REDUCERS: Final = frozenset((Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN))
INDEX: Final = frozenset((Ops.RANGE, Ops.VAR, Ops.SUM, Ops.IDIV, Ops.IMOD, Ops.INDEXOF))
MASK: Final = frozenset((Ops.ILT, Ops.IAND))
TRANSCENDENTAL: Final = frozenset((
    Ops.EXP, Ops.EXP2, Ops.LOG, Ops.LOG2, Ops.EXPM1, Ops.LOG1P, Ops.SIN, Ops.COS, Ops.TANH,
))  # fmt: skip
FLOAT_ONLY: Final = TRANSCENDENTAL | {
    Ops.RECIP, Ops.SQRT, Ops.FLOOR, Ops.CEIL, Ops.TRUNC, Ops.ROUND, Ops.DIV, Ops.FMOD,
}  # fmt: skip
INT_ONLY: Final = frozenset((Ops.FLOORDIV, Ops.MOD, Ops.SHL, Ops.SHR))
BITWISE: Final = frozenset((Ops.AND, Ops.OR, Ops.XOR, Ops.NOT))
NUMBER_ONLY: Final = frozenset((Ops.NEG, Ops.ABS, Ops.ADD, Ops.SUB, Ops.MUL, Ops.POW))
NAMES: Final = frozenset(v for k, v in vars(Ops).items() if k.isupper())
