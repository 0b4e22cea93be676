"""Lines of tensor programs that move elements: views, slices, copies, concatenation, variable indices.

Not here: a whole program (`tensor_programs`), other kinds of lines (`tensor_kinds` lists them).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.fuzz.tensor_programs import Maker


def same(m: Maker) -> None:
    """Append a view with the same shape and elements."""
    a = m.pick()
    if a is None:
        return
    x = m.env[a]
    order = tuple(range(x.ndim))
    rows = [
        (f"{{0}}.cast({m.wide or str(x.dtype)!r})", "{0}[...]"),
        (f"{{0}}.reshape({x.shape!r})", "{0}[...]"),
        (f"{{0}}.permute({order!r})", "{0}[...]"),
        (f"{{0}}.expand({x.shape!r})", "{0}[...]"),
    ]
    if x.ndim:
        rows.append(("{0}[:]", "{0}[:]"))
    m.add((a,), *m.r.choice(rows), view=True)


def reshape(m: Maker) -> None:
    """Append a reshape."""
    a = m.pick()
    if a is None:
        return
    n: int = m.env[a].size
    shape: list[int] = []
    while n > 1 and len(shape) < 3:
        d = m.r.choice([d for d in range(1, n + 1) if n % d == 0])
        shape.append(d)
        n //= d
    shape.append(n)
    m.r.shuffle(shape)
    m.add((a,), f"{{0}}.reshape({tuple(shape)!r})", view=True)


def move(m: Maker) -> None:
    """Append a permutation, flip, pad, expansion, repetition, roll or slice."""
    a = m.pick(rank=1)
    if a is None:
        return
    x, r = m.env[a], m.r
    what = r.choice(("permute", "permute", "flip", "pad", "expand", "repeat", "roll", "cut", "cut", "cut"))
    if what == "permute":
        order = tuple(r.sample(range(x.ndim), x.ndim))
        m.add((a,), f"{{0}}.permute({order})", f"{{0}}.transpose({order})", view=True)
    elif what == "flip":
        axes = tuple(sorted(r.sample(range(x.ndim), r.randint(1, x.ndim))))
        m.add((a,), f"{{0}}.flip({axes})", f"np.flip({{0}}, {axes})")
    elif what == "pad":
        pads = tuple((r.randint(0, 2), r.randint(0, 2)) for _ in x.shape)
        m.add((a,), f"{{0}}.pad({pads})", f"np.pad({{0}}, {pads})")
    elif what == "expand":
        shape = (r.randint(1, 3), *(r.choice((2, 3)) if n == 1 else n for n in x.shape))
        m.add((a,), f"{{0}}.expand({shape})", f"np.broadcast_to({{0}}, {shape})", view=True)
        if m.lines[-1].tensor.endswith(f".expand({shape})"):
            m.unwritable.add(m.lines[-1].makes)
    elif what == "repeat":
        times = tuple(r.randint(1, 3) for _ in x.shape)
        m.add((a,), f"{{0}}.repeat({times})", f"np.tile({{0}}, {times})")
    elif what == "roll":
        by, axis = r.randint(-4, 4), r.randrange(x.ndim)
        m.add((a,), f"{{0}}.roll({by}, {axis})", f"np.roll({{0}}, {by}, {axis})")
    else:
        cut = key(m, x.shape)
        m.add((a,), f"{{0}}[{cut}]", f"{{0}}[{cut}, ...]", view=True)


def key(m: Maker, shape: tuple[int, ...]) -> str:
    """Return the text of a random basic index of a shape."""
    parts = []
    for n in shape[: m.r.randint(1, len(shape))]:
        draw = m.r.random()
        if draw < 0.25 and n:
            parts.append(str(m.r.randrange(-n, n)))
        elif draw < 0.3:
            parts += ["None", ":"]
        else:
            low, high = sorted((m.r.randint(0, n), m.r.randint(0, n)))
            parts.append(
                m.r.choice((":", f"{low}:{high}", f"{low}:", f":{high}", f"{low}:{n}:2", f"-{low + 1}:"))
            )
    return ", ".join(parts)


def join(m: Maker) -> None:
    """Append a concatenation or a stack of values of one dtype."""
    a = m.pick(rank=1)
    if a is None:
        return
    x = m.env[a]
    axis = m.r.randrange(x.ndim)
    like = [
        n
        for n in m.alias
        if n not in m.frozen
        and m.env[n].dtype == x.dtype
        and m.env[n].ndim == x.ndim
        and all(i == axis or p == q for i, (p, q) in enumerate(zip(m.env[n].shape, x.shape, strict=True)))
    ]
    b = m.r.choice(like)
    if m.env[b].shape == x.shape and m.r.random() < 0.4:
        m.add((a, b), f"{{0}}.stack({{1}}, axis={axis})", f"np.stack(({{0}}, {{1}}), {axis})")
    else:
        m.add((a, b), f"{{0}}.cat({{1}}, axis={axis})", f"np.concatenate(({{0}}, {{1}}), {axis})")


def at_variable(m: Maker) -> None:
    """Append an index or a slice at a `Variable`."""
    a = m.pick(rank=1, nonempty=True)
    if a is None:
        return
    shape = m.env[a].shape
    axis = m.r.randrange(len(shape))
    before = ":, " * axis
    if m.r.random() < 0.4:
        m.add((a, m.bound(shape[axis] - 1)), f"{{0}}[{before}{{1}}]", f"{{0}}[{before}{{1}}, ...]", view=True)
    else:
        width = m.r.randint(1, shape[axis])
        k = m.bound(shape[axis] - width)
        m.add((a, k), f"{{0}}[{before}{{1}}:{{1}} + {width}]", view=True)


def at_index(m: Maker) -> None:
    """Append an index by a tensor, in which indices may be negative."""
    a, i = m.pick(rank=1, nonempty=True), m.pick("iu")
    if a is None or i is None:
        return
    n = len(m.env[a])
    low = m.r.choice((0, -n))
    index = f"{{1}}.cast('int64') % {n - low} + {low}", f"cast({{1}}, 'int64') % {n - low} + {low}"
    m.add((a, i), f"{{0}}[{index[0]}]", f"{{0}}[{index[1]}]")
