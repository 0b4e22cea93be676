"""Lines of tensor programs that reduce, sort or scan along an axis.

Not here: a whole program (`tensor_programs`), other kinds of lines (`tensor_kinds` lists them).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.fuzz.tensor_programs import Maker


def reduce(m: Maker) -> None:
    """Append a reduction: sums of integers, extremes, any, all, or a sum of floats with an error bound."""
    a = m.pick(nonempty=True)
    if a is None:
        return
    x = m.env[a]
    axis = None if not x.ndim or m.r.random() < 0.3 else m.r.randrange(x.ndim)
    where = "" if axis is None else str(axis)
    if x.dtype.kind == "b":
        name = m.r.choice(("any", "all"))
        m.add((a,), f"{{0}}.{name}({where})", f"np.{name}({{0}}, {axis})")
    elif x.dtype.kind in "iu":
        rows = (
            (f"{{0}}.cast('int64').sum({where})", f"{{0}}.astype('int64').sum({axis})"),
            (f"{{0}}.amax({where})", f"{{0}}.max({axis})"),
            (f"{{0}}.amin({where})", f"{{0}}.min({axis})"),
        )
        m.add((a,), *m.r.choice(rows))
    elif m.r.random() < 0.5:
        name = m.r.choice(("max", "min"))
        m.add((a,), f"{{0}}.a{name}({where}) + 0.0", f"{{0}}.{name}({axis}) + {{0}}.dtype.type(0)")
    else:
        m.add((a,), f"{{0}}.sum({where})", f"total({{0}}, {axis})", kind="sum")


def along(m: Maker) -> None:
    """Append an exact operation along an axis: sort, argmax, cumulative sum, product, matrix product."""
    a = m.pick("iuf", rank=1, nonempty=True)
    if a is None:
        return
    x = m.env[a]
    axis = m.r.randrange(x.ndim)
    rows = [
        (f"{{0}}.sort({axis})[0]", f"np.sort({{0}}, {axis}, kind='stable')"),
        (f"{{0}}.argsort({axis})", f"np.argsort({{0}}, {axis}, kind='stable').astype('int64')"),
        (f"{{0}}.argmax({axis})", f"np.argmax({{0}}, {axis}).astype('int64')"),
        (f"{{0}}.argmin({axis})", f"np.argmin({{0}}, {axis}).astype('int64')"),
    ]
    if x.dtype.kind in "iu":
        wide, as_wide = "{0}.cast('int64')", "{0}.astype('int64')"
        rows += [
            (f"{{0}}.sort({axis}, descending=True)[0]", f"np.flip(np.sort({{0}}, {axis}), {axis})"),
            (f"{wide}.cumsum({axis})", f"{as_wide}.cumsum({axis})"),
            (f"{wide}.prod({axis})", f"{as_wide}.prod({axis})"),
        ]
        if x.ndim == 2:
            rows.append((f"{wide}.matmul({wide}.transpose(0, 1))", f"{as_wide} @ {as_wide}.T"))
    m.add((a,), *m.r.choice(rows))
