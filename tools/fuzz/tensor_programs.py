"""Random tensor programs as lines of Python, each in two dialects: tensors and NumPy.

A program is made from a seed while NumPy runs it. Every line is exact in both dialects - movement, casts,
integer and single-rounded float operations - except sums of floats, which end their line of descent and carry
a bound. A failing program is printed as a test.
"""

# ruff: noqa: E501 - tables of operations read best on one line

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tools.fuzz.tensor_values import DTYPES, FLOATS, INTS, Array, cast, leaf, total

if TYPE_CHECKING:
    from collections.abc import Callable

MOST: Final = 600
"""Elements of a value."""


@dataclass(frozen=True, slots=True)
class Line:
    """One statement; `makes` is the name that it binds, or that it writes in place."""

    makes: str
    needs: tuple[str, ...]
    tensor: str
    numpy: str
    kind: str = "new"
    """`leaf`, `new`, `write` (in place) or `sum` (compared within a bound)."""


@dataclass(frozen=True, slots=True)
class Program:
    """Leaves first, then the other lines."""

    seed: int
    lines: tuple[Line, ...]

    @property
    def leaves(self) -> tuple[Line, ...]:
        """The lines that make the inputs."""
        return tuple(line for line in self.lines if line.kind == "leaf")

    @property
    def body(self) -> tuple[Line, ...]:
        """The lines after the inputs."""
        return tuple(line for line in self.lines if line.kind != "leaf")

    def names(self) -> tuple[str, ...]:
        """Return every name that is bound, in order."""
        return tuple(dict.fromkeys(line.makes for line in self.lines))


def namespace() -> dict[str, Any]:
    """Return what the lines of both dialects may name."""
    return {"np": np, "cast": cast, "total": total, "nan": float("nan"), "inf": float("inf")}


def literal(data: Array) -> str:
    """Return the expression of an array."""
    return f"np.array({data.ravel().tolist()!r}, {str(data.dtype)!r}).reshape({data.shape!r})"


class Maker:
    """Makes the program of one seed."""

    def __init__(self, seed: int, *, steps: int = 10, views: bool = False) -> None:
        self.r = random.Random(seed)  # noqa: S311 - programs, not secrets
        self.rng = np.random.default_rng(seed)
        self.views = views
        """Write through views, as NumPy does; else only to what has no alias."""
        self.lines: list[Line] = []
        self.env = namespace()
        self.alias: dict[str, int] = {}
        """Name -> number of the memory that NumPy's array shares."""
        self.frozen: set[str] = set()
        """Sums: nothing is made of them."""
        self.unwritable: set[str] = set()
        """Expanded values, and what was made of them: elements may repeat."""
        sizes = [
            self.r.choice((0, 1, 1, 2, 3, 4, 5, 7))
            if self.r.random() < 0.5
            else self.r.choice((1, 2, 3, 4, 5, 7))
            for _ in range(self.r.randint(0, 3))
        ]
        for _ in range(self.r.randint(1, 3)):
            shape = tuple(n if self.r.random() < 0.75 else 1 for n in sizes)
            dtype = self.r.choice(DTYPES)
            self._leaf(leaf(self.rng, shape, dtype))
        for _ in range(steps * 5):
            if len(self.lines) >= steps:
                break
            self.r.choices(*zip(*KINDS, strict=True))[0](self)
        self.program = Program(seed, tuple(self.lines))

    def _leaf(self, data: Array) -> None:
        name = f"v{len(self.lines)}"
        text = literal(data)
        self.env[name] = data
        self.alias[name] = len(self.lines)
        self.lines.append(Line(name, (), f"{name} = Tensor({text})", f"{name} = {text}", "leaf"))

    # --- drawing

    def pick(self, kinds: str = "biuf", *, rank: int = 0, nonempty: bool = False) -> str | None:
        """Return the name of a value whose dtype is of one of `kinds`, late ones more often."""
        fit = [
            n
            for n in self.alias
            if n not in self.frozen
            and self.env[n].dtype.kind in kinds
            and self.env[n].ndim >= rank
            and (self.env[n].size or not nonempty)
        ]
        return fit[max(self.r.randrange(len(fit)), self.r.randrange(len(fit)))] if fit else None

    def mate(self, name: str) -> str | None:
        """Return a value of the same dtype that broadcasts with `name`."""
        x = self.env[name]
        fit = [
            n
            for n in self.alias
            if n not in self.frozen and self.env[n].dtype == x.dtype and _fits(self.env[n].shape, x.shape)
        ]
        return self.r.choice(fit) if fit else None

    # --- adding

    def add(
        self, needs: tuple[str, ...], tensor: str, numpy: str = "", *, view: bool = False, kind: str = "new"
    ) -> None:
        """Append `name = tensor`; `{0}` and `{1}` stand for the names needed.

        NumPy's value is copied unless it is a view that tensors share as well.
        """
        name = f"v{len(self.lines)}"
        code = (numpy or tensor).format(*needs)
        env = dict(self.env)
        with np.errstate(all="ignore"):
            value = eval(code, env)  # noqa: S307 - lines made here
        shares = False
        if kind == "sum":
            self.frozen.add(name)
            self.env[name] = value[0]
        else:
            value = np.asarray(value)
            if value.size > MOST or value.ndim > 5:
                return
            shares = view and self.views and np.shares_memory(value, self.env[needs[0]])
            if view and self.views and value.size and not shares:
                return  # NumPy copies where a tensor is a view all the same
            self.env[name] = value if shares else value.copy()
        if view and needs[0] in self.unwritable:
            self.unwritable.add(name)
        self.alias[name] = self.alias[needs[0]] if shares or (view and not self.views) else len(self.lines)
        copied = code if shares or kind == "sum" else f"np.array({code})"
        self.lines.append(Line(name, needs, f"{name} = {tensor.format(*needs)}", f"{name} = {copied}", kind))

    def write(self, target: str, needs: tuple[str, ...], tensor: str, numpy: str = "") -> None:
        """Append a statement that changes `target` in place."""
        code = (numpy or tensor).format(target, *needs)
        with np.errstate(all="ignore"):
            exec(code, dict(self.env))  # noqa: S102 - lines made here
        self.lines.append(Line(target, (target, *needs), tensor.format(target, *needs), code, "write"))

    def writable(self, name: str) -> bool:
        """Return whether `name` may be written in place: it shares nothing, or sharing is what is tested."""
        if name in self.frozen or name in self.unwritable:
            return False
        return self.views or sum(1 for other in self.alias.values() if other == self.alias[name]) == 1


def _fits(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    try:
        np.broadcast_shapes(a, b)
    except ValueError:
        return False
    return True


# --- elementwise -------------------------------------------------------------------------------------------


def binary(m: Maker) -> None:
    """Add, subtract, multiply; divide floats; combine bits; compare; the greater and the smaller."""
    a = m.pick()
    b = m.mate(a) if a is not None else None
    if a is None or b is None:
        return
    kind = m.env[a].dtype.kind
    if kind == "b":
        m.add((a, b), m.r.choice(("{0} & {1}", "{0} | {1}", "{0} ^ {1}")))
    elif kind == "f":
        row = m.r.choice(
            (
                ("{0} + {1}", ""),
                ("{0} - {1}", ""),
                ("{0} * {1}", ""),
                ("{0} / {1}", ""),
                ("{0}.maximum({1}) + 0.0", "np.maximum({0}, {1}) + {0}.dtype.type(0)"),
                ("{0}.minimum({1}) + 0.0", "np.minimum({0}, {1}) + {0}.dtype.type(0)"),
            )
        )
        m.add((a, b), *row)
    else:
        row = m.r.choice(
            (
                ("{0} + {1}", ""),
                ("{0} - {1}", ""),
                ("{0} * {1}", ""),
                ("{0} & {1}", ""),
                ("{0} ^ {1}", ""),
                ("{0}.maximum({1})", "np.maximum({0}, {1})"),
                ("{0}.minimum({1})", "np.minimum({0}, {1})"),
                ("{0} // ({1} | 1)", ""),
                ("{0} % ({1} | 1)", ""),
            )
        )
        m.add((a, b), *row)


def compare(m: Maker) -> None:
    """Compare two values of one dtype."""
    a = m.pick("iuf")
    b = m.mate(a) if a is not None else None
    if a is not None and b is not None:
        m.add((a, b), f"{{0}} {m.r.choice(('<', '<=', '>', '>=', '==', '!='))} {{1}}")


def unary(m: Maker) -> None:
    """Negate, take the absolute value, square; the classes of floats; logical and bitwise not."""
    a = m.pick()
    if a is None:
        return
    kind = m.env[a].dtype.kind
    rows = {
        "b": (("~{0}", ""), ("{0}.logical_not()", "~{0}")),
        "i": (
            ("-{0}", ""),
            ("{0}.abs()", "np.abs({0})"),
            ("~{0}", ""),
            ("{0}.square()", "{0} * {0}"),
            ("{0} << 3", ""),
            ("{0} >> 2", ""),
        ),
        "u": (("~{0}", ""), ("{0} << 3", ""), ("{0} >> 2", ""), ("{0} + 7", "{0} + {0}.dtype.type(7)")),
        "f": (
            ("-{0}", ""),
            ("{0}.abs()", "np.abs({0})"),
            ("{0}.isnan()", "np.isnan({0})"),
            ("{0}.isinf()", "np.isinf({0})"),
            ("{0}.isfinite()", "np.isfinite({0})"),
            ("{0}.floor()", "np.floor({0})"),
            ("{0}.ceil()", "np.ceil({0})"),
            ("{0}.trunc()", "np.trunc({0})"),
            ("{0}.sqrt()", "np.sqrt({0})"),
            ("{0}.relu() + 0.0", "np.maximum({0}, {0}.dtype.type(0)) + {0}.dtype.type(0)"),
        ),
    }
    m.add((a,), *m.r.choice(rows[kind]))


def choose(m: Maker) -> None:
    """Choose by a mask."""
    c, a = m.pick("b"), m.pick()
    b = m.mate(a) if a is not None else None
    if c is None or a is None or b is None:
        return
    shapes = [m.env[n].shape for n in (a, b, c)]
    if _fits(np.broadcast_shapes(*shapes[:2]), shapes[2]):
        m.add((c, a, b), "{0}.where({1}, {2})", "np.where({0}, {1}, {2})")


def convert(m: Maker) -> None:
    """Cast, often twice; reinterpret the bits."""
    a = m.pick()
    if a is None:
        return
    dtype = str(m.env[a].dtype)
    if m.r.random() < 0.15 and dtype != "bool":
        size = m.env[a].dtype.itemsize
        to = m.r.choice([d for d in (*INTS, *FLOATS) if np.dtype(d).itemsize == size])
        if not (to in FLOATS and dtype in FLOATS):
            to = to if to in INTS else dtype
            if to == dtype:
                return  # a view of the whole, not a reinterpretation
            m.add((a,), f"{{0}}.bitcast({to!r})", f"{{0}}.copy().view({to!r})")
        return
    others = [d for d in DTYPES if d != dtype]
    first, second = m.r.choice(others), m.r.choice(DTYPES)
    if m.r.random() < 0.5:
        m.add((a,), f"{{0}}.cast({first!r})", f"cast({{0}}, {first!r})")
    else:
        m.add((a,), f"{{0}}.cast({first!r}).cast({second!r})", f"cast(cast({{0}}, {first!r}), {second!r})")


# --- movement ----------------------------------------------------------------------------------------------


def same(m: Maker) -> None:
    """Views that change nothing."""
    a = m.pick()
    if a is None:
        return
    x = m.env[a]
    order = tuple(range(x.ndim))
    rows = [
        (f"{{0}}.cast({str(x.dtype)!r})", "{0}[...]"),
        (f"{{0}}.reshape({x.shape!r})", "{0}[...]"),
        (f"{{0}}.permute({order!r})", "{0}[...]"),
        (f"{{0}}.expand({x.shape!r})", "{0}[...]"),
    ]
    if x.ndim:
        rows.append(("{0}[:]", "{0}[:]"))
    m.add((a,), *m.r.choice(rows), view=True)


def reshape(m: Maker) -> None:
    """Another shape of as many elements."""
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
    """Permute, flip, pad, expand, repeat, roll, cut."""
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
    """Return the text of a basic key."""
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
    """Concatenate or stack values of one dtype."""
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


# --- reductions --------------------------------------------------------------------------------------------


def reduce(m: Maker) -> None:
    """Exact reductions: integer sums, the greatest and smallest, any and all; and sums of floats, which end."""
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


# --- in place ----------------------------------------------------------------------------------------------


def write(m: Maker) -> None:
    """Assign the whole, add to it, or write a part."""
    a = m.pick()
    if a is None or not m.writable(a):
        return
    x = m.env[a]
    like = [
        n
        for n in m.alias
        if n not in m.frozen
        and m.env[n].dtype == x.dtype
        and m.env[n].shape == x.shape
        and m.alias[n] != m.alias[a]
    ]
    draw = m.r.random()
    if draw < 0.4 and like:
        b = m.r.choice(like)
        m.write(a, (b,), "{0}.assign({1})", "{0}[...] = {1}")
    elif draw < 0.7 and like and x.dtype.kind != "b":
        b = m.r.choice(like)
        op = m.r.choice(("+", "-", "*"))
        m.write(a, (b,), f"{{0}} {op}= {{1}}", f"np.copyto({{0}}, {{0}} {op} {{1}})" if not m.views else "")
    elif x.ndim and x.dtype.kind != "b":
        number = m.r.choice((0, 1, 5))
        m.write(a, (), f"{{0}}[{key(m, x.shape)}] = {number}")


KINDS: Final[tuple[tuple[Callable[[Maker], None], int], ...]] = (
    (binary, 5),
    (compare, 1),
    (unary, 3),
    (choose, 1),
    (convert, 4),
    (same, 2),
    (reshape, 3),
    (move, 5),
    (join, 2),
    (reduce, 2),
    (write, 4),
)
