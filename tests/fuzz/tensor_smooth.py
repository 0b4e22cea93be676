"""Lines of differentiated tensor programs: values and slopes of small integers are exact.

At ties maximum and minimum share the slope, as in PyTorch; the slope of an absolute value at 0 is 0.

Not here: a whole program (`tensor_programs`), other kinds of lines (`tensor_kinds` lists them).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.fuzz.tensor_programs import Maker


def binary(m: Maker) -> None:
    """Append an addition, subtraction, multiplication, maximum, minimum or selection."""
    a = m.pick("f")
    b = m.mate(a) if a is not None else None
    if a is None or b is None:
        return
    rows = (
        ("{0} + {1}", ""),
        ("{0} - {1}", ""),
        ("{0} * {1}", ""),
        ("{0} * {1}", ""),
        ("{0}.maximum({1})", "greater({0}, {1})"),
        ("{0}.minimum({1})", "lesser({0}, {1})"),
        ("({0} > {1}).where({0}, {1} * 2)", "np.where({0} > {1}, {0}, {1} * 2)"),
    )
    m.add((a, b), *m.r.choice(rows))


def unary(m: Maker) -> None:
    """Append a negation, square, absolute value, relu, scaling or `detach`."""
    a = m.pick("f")
    if a is None:
        return
    rows = (
        ("-{0}", ""),
        ("{0}.square()", "{0} * {0}"),
        ("{0}.abs()", "positive({0}) + positive(-{0})"),
        ("{0}.relu()", "positive({0})"),
        ("{0} * 3 - 1", ""),
        ("{0} / 2", ""),
        ("{0}.detach() + {0}", "held({0}) + {0}"),
    )
    m.add((a,), *m.r.choice(rows))


def convert(m: Maker) -> None:
    """Append a cast to the other float dtype."""
    a = m.pick("f")
    if a is not None:
        to = "float32" if m.env[a].dtype == "float64" else "float64"
        m.add((a,), f"{{0}}.cast({to!r})", f"retyped({{0}}, {to!r})")


def reduce(m: Maker) -> None:
    """Append a sum, cumulative sum, maximum, minimum, sort or matrix product."""
    a = m.pick("f", rank=1, nonempty=True)
    if a is None:
        return
    x = m.env[a]
    axis = m.r.randrange(x.ndim)
    rows = [
        (f"{{0}}.sum({axis})", ""),
        ("{0}.sum()", ""),
        (f"{{0}}.cumsum({axis})", ""),
        (f"{{0}}.amax({axis})", f"greatest({{0}}, {axis})"),
        (f"{{0}}.amin({axis})", f"-greatest(-{{0}}, {axis})"),
        (f"{{0}}.sort({axis})[0]", f"np.sort({{0}}, {axis}, kind='stable')"),
    ]
    if x.ndim == 2:
        rows += [("{0}.matmul({0}.transpose(0, 1))", "{0} @ {0}.T")] * 2
    m.add((a,), *m.r.choice(rows))


def gather(m: Maker) -> None:
    """Append an index along the first axis; elements may occur more than once."""
    a = m.pick("f", rank=1, nonempty=True)
    if a is not None:
        index = f"arange({m.r.randint(1, 5)}) * {m.r.randint(0, 3)} % {len(m.env[a])}"
        m.add((a,), f"{{0}}[Tensor.{index}]", f"{{0}}[np.{index}]")
