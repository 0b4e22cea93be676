"""Lines of tensor programs of the wider API: lists and masks as indices, methods in place, einsum, selection.

Each function appends at most one line to the program that a `Maker` builds. All results are exact. Indices
are written as lists, so that these lines are not captured.

Not here: a whole program and `Maker` (`tensor_programs`), other kinds of lines (`tensor_kinds` lists them).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.fuzz.tensor_programs import Maker


def _places(m: Maker, n: int, *, distinct: bool = False) -> list[int]:
    """Return some places of an axis, some of them counted from its end."""
    count = m.r.randint(1, min(n, 4))
    found = m.r.sample(range(n), count) if distinct else [m.r.randrange(n) for _ in range(count)]
    return [i - n if m.r.random() < 0.3 else i for i in found]


def _list_key(m: Maker, shape: tuple[int, ...], *, distinct: bool = False) -> str:
    """Return the text of an index with one or two lists."""
    axis = m.r.randrange(len(shape))
    first = _places(m, shape[axis], distinct=distinct)
    parts = [":"] * axis + [str(first)]
    if axis + 1 < len(shape) and m.r.random() < 0.4:
        rows = shape[axis + 1]
        parts.append(str([m.r.randrange(rows) for _ in first]) if m.r.random() < 0.6 else f"1:{rows}")
    return ", ".join(parts)


def at_lists(m: Maker) -> None:
    """Append elements at lists of indices, or where a mask holds."""
    a = m.pick(rank=1, nonempty=True)
    if a is None:
        return
    x = m.env[a]
    if m.r.random() < 0.6:
        key = _list_key(m, x.shape)
        m.add((a,), f"{{0}}[{key}]")
    elif x.dtype.kind != "b":
        m.add((a,), "{0}[{0} > 1]")
    else:
        m.add((a,), "{0}[{0}]")


def write_at_lists(m: Maker) -> None:
    """Write a number at lists of indices, or where a mask holds."""
    a = m.pick("iuf", rank=1, nonempty=True)
    if a is None or not m.writable(a):
        return
    number = m.r.choice((0, 1, 5))
    if m.r.random() < 0.5:
        m.write(a, (), f"{{0}}[{_list_key(m, m.env[a].shape, distinct=True)}] = {number}")
    else:
        m.write(a, (), f"{{0}}[{{0}} {m.r.choice('<>')} 2] = {number}")


def in_place(m: Maker) -> None:
    """Change a tensor by a method with `_`."""
    a = m.pick("iuf")
    if a is None or not m.writable(a):
        return
    dtype = str(m.env[a].dtype)
    rows = [
        ("{0}.masked_fill_({0} < 3, 2)", "np.copyto({0}, 2, where={0} < 3)"),
        ("{0}.zero_()", "{0}[...] = 0"),
        ("{0}.fill_(7)", "{0}[...] = 7"),
        ("{0}.mul_({0})", "np.multiply({0}, {0}, out={0})"),
        ("{0}.sub_({0}, alpha=2)", f"{{0}}[...] = {{0}} - np.array(2, {dtype!r}) * {{0}}"),
        ("{0}.eq_({0})", "{0}[...] = {0} == {0}"),
        ("{0}.relu_()", "{0}[...] = np.where({0} < 0, 0, {0})"),
    ]
    if m.env[a].dtype.kind == "i":
        rows += [("{0}.neg_()", "np.negative({0}, out={0})"), ("{0}.abs_()", "np.abs({0}, out={0})")]
    if m.env[a].dtype.kind in "iu":
        rows += [
            ("{0}.clamp_(1, 9)", "np.clip({0}, 1, 9, out={0})"),
            ("{0}.bitwise_not_()", "np.invert({0}, out={0})"),
            ("{0}.remainder_(5)", "np.remainder({0}, 5, out={0})"),
        ]
        rows = [row for row in rows if "relu" not in row[0]]
    m.write(a, (), *m.r.choice(rows))


def einsum(m: Maker) -> None:
    """Append sums of products of integers, which wrap alike."""
    a = m.pick("iu", rank=1)
    if a is None:
        return
    x = m.env[a]
    rows = {
        1: ("i,i->i", "i,i->", "i,j->ij", "i,j->"),
        2: ("ij,kj->ik", "ij,ij->j", "ij,ij->", "ij,kl->jl", "ij,kj->"),
        3: ("abc,abd->acd", "abc,abc->b", "abc,dec->ad"),
    }
    if x.ndim not in rows:
        return
    wide, as_wide = "{0}.cast('int64')", "{0}.astype('int64')"
    formula = m.r.choice(rows[x.ndim])
    m.add(
        (a,),
        f"Tensor.einsum({formula!r}, {wide}, {wide})",
        f"np.einsum({formula!r}, {as_wide}, {as_wide})",
    )


def select(m: Maker) -> None:
    """Append a selection, a count or a rearrangement along an axis."""
    a = m.pick("iuf", rank=1, nonempty=True)
    if a is None:
        return
    x = m.env[a]
    r, axis = m.r, m.r.randrange(x.ndim)
    n = x.shape[axis]
    by = r.randint(-2, 2)
    rows = [
        (f"{{0}}.count_nonzero({axis})", f"np.count_nonzero({{0}}, {axis}).astype('int64')"),
        (f"{{0}}.repeat_interleave(2, {axis})", f"np.repeat({{0}}, 2, {axis})"),
        (f"{{0}}.index_select({axis}, Tensor({[0, n - 1]}))", f"np.take({{0}}, {[0, n - 1]}, {axis})"),
        (f"{{0}}.sort({axis})[1]", f"np.argsort({{0}}, {axis}, kind='stable').astype('int64')"),
        (f"{{0}}.topk(1, {axis}, largest=False)[0]", f"np.sort({{0}}, {axis}).take([0], {axis})"),
        ("{0}.where({0} > 2, 1)", "np.where({0} > 2, {0}, np.array(1, {0}.dtype))"),
        ("({0} > 1).logical_xor({0} < 5)", "np.logical_xor({0} > 1, {0} < 5)"),
        ("{0}.isnan() | ({0} == 3)", "np.isnan({0}) | ({0} == 3)"),
        ("{0}.unsqueeze(-1).squeeze(-1).clone()", "{0}[...]"),
        ("{0}.flatten().diag_embed()", "np.diag({0}.ravel())"),
        (f"{{0}}.take_along_dim({{0}}.argsort({axis}), {axis})",
         f"np.take_along_axis({{0}}, np.argsort({{0}}, {axis}, kind='stable'), {axis})"),
    ]  # fmt: skip
    if x.ndim == 2:
        rows += [
            (f"{{0}}.tril({by})", f"np.tril({{0}}, {by})"),
            (f"{{0}}.triu({by})", f"np.triu({{0}}, {by})"),
            (f"{{0}}.diagonal({by}).clone()", f"np.diagonal({{0}}, {by})"),
            ("{0}.rot90()", "np.rot90({0})"),
        ]
    if x.dtype.kind in "iu":
        rows += [
            (f"{{0}}.cummax({axis})[0]", f"np.maximum.accumulate({{0}}, {axis})"),
            (f"{{0}}.cummin({axis})[0]", f"np.minimum.accumulate({{0}}, {axis})"),
            (f"{{0}}.diff(dim={axis})", f"np.diff({{0}}, axis={axis})"),
            ("{0}.unique()", "np.unique({0})"),
            (f"{{0}}.kthvalue(1, {axis})[0]", f"{{0}}.min({axis})"),
            ("{0}.median()", "np.sort({0}.ravel())[({0}.size - 1) // 2]"),
            ("{0}.fmod(7)", "np.fmod({0}, 7)"),
            ("{0}.outer({0})" if x.ndim == 1 else "{0}.flip(0)",
             "np.outer({0}, {0})" if x.ndim == 1 else "np.flip({0}, 0)"),
        ]  # fmt: skip
    m.add((a,), *r.choice(rows))
