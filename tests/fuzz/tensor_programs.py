"""Random tensor programs as lines of Python, each in two dialects: tensors and NumPy.

A program is made from a seed, with the kinds of lines in `tensor_kinds`, while NumPy executes it. Every line
has an exact result in both dialects: movement, casts, integer operations, and float operations with one
rounding. Sums of floats are the exception: they have an error bound, and no other line uses them. So are
programs with a `dtype`, of functions of floats: NumPy computes in float64, and all errors are bounded.

Not here: the kinds of lines (`tensor_kinds`), running and comparing (`tensors`).
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tests.fuzz import slopes, tensor_functions, tensor_graphs
from tests.fuzz.tensor_values import DTYPES, Array, brief, byte, cast, leaf, total

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Kinds = Sequence[tuple[Callable[["Maker"], None], int]]

MOST: Final = 1200
"""The largest number of elements of a value."""
GROWTH: Final = 4.0
"""By how much a line makes errors larger, in a program with a dtype."""
LARGEST: Final = {"float16": 60.0, "float32": 1000.0, "float64": 1000.0}
"""The largest value of a program with a dtype."""
SIZES: Final = (0, 1, 1, 1, 2, 2, 3, 4, 5, 7, 8, 16, 17)
"""Sizes of axes, unless a maker is given others: none, one, two, primes, powers of two."""


@dataclass(frozen=True, slots=True)
class Line:
    """One statement; `makes` is the name that it binds or writes in place, `needs` the names that it uses."""

    makes: str
    needs: tuple[str, ...]
    tensor: str
    numpy: str
    kind: str = "new"
    """`leaf`, `bound` (a variable), `new`, `write` (in place) or `sum` (compared within a bound)."""
    bounds: tuple[int, int] = (0, 0)
    """The range of a variable, both ends included."""
    weight: float = 1.0
    """In a program with a dtype, by how much errors have grown."""

    @property
    def given(self) -> bool:
        """Whether it defines an input."""
        return self.kind in {"leaf", "bound"}


@dataclass(frozen=True, slots=True)
class Program:
    """The lines of a program, inputs first."""

    seed: int
    lines: tuple[Line, ...]
    dtype: str = ""
    """The dtype of all tensors, where NumPy computes in float64; "" where it computes as tensors do."""
    movable: bool = True
    """Whether a result may be copied to other places of a mesh: no view of it is written."""

    @property
    def leaves(self) -> tuple[Line, ...]:
        """The lines that define the inputs."""
        return tuple(line for line in self.lines if line.given)

    @property
    def body(self) -> tuple[Line, ...]:
        """The lines after the inputs."""
        return tuple(line for line in self.lines if not line.given)

    def names(self) -> tuple[str, ...]:
        """Return the names of all tensors, in order."""
        return tuple(dict.fromkeys(line.makes for line in self.lines if line.kind != "bound"))


def namespace() -> dict[str, Any]:
    """Return the names that the lines of both dialects use."""
    modules = (slopes, tensor_graphs, tensor_functions)
    functions = (cast, brief, byte, total, *[f for module in modules for f in module.FUNCTIONS])
    names = {f.__name__: f for f in functions}
    return {"np": np, "nan": float("nan"), "inf": float("inf"), **names}


def literal(data: Array) -> str:
    """Return an array as a Python expression."""
    return f"np.array({data.ravel().tolist()!r}, {str(data.dtype)!r}).reshape({data.shape!r})"


class Maker:
    """Makes the program of one seed, from weighted kinds of lines and leaves of some dtypes.

    With `most`, leaves are small integers, and lines with a greater value than `most` are left out. With
    `wide`, tensors are of that dtype, and NumPy's values of float64, none greater than `LARGEST`.
    """

    def __init__(
        self,
        seed: int,
        kinds: Kinds,
        *,
        dtypes: Sequence[str] = DTYPES,
        steps: int = 10,
        sizes: Sequence[int] = SIZES,
        few: Sequence[int] = (),
        views: bool = False,
        most: float = 0,
        wide: str = "",
        elements: int = MOST,
    ) -> None:
        self.r = random.Random(seed)  # noqa: S311 - programs, not secrets
        self.rng = np.random.default_rng(seed)
        self.views = views
        """Whether views are written; otherwise only tensors without an alias are."""
        self.most = most
        self.wide = wide
        self.elements = elements
        """The largest number of elements of a value."""
        self.weights: dict[str, float] = {}
        """Name -> by how much its errors have grown."""
        self.few = few
        """Sizes that all axes of matrices have; empty: the usual ones."""
        self.lines: list[Line] = []
        self.env = namespace()
        self.alias: dict[str, int] = {}
        """Name -> number of the memory; equal numbers share memory."""
        self.inputs: set[str] = set()
        self.frozen: set[str] = set()
        """Sums of floats, which no other line uses."""
        self.unwritable: set[str] = set()
        """Expanded values and their views, whose elements may share memory."""
        chosen = [self.r.choice(few or sizes) for _ in range(self.r.randint(0, 3))]
        while math.prod(chosen) > elements:
            chosen.pop()
        for _ in range(self.r.randint(1, 3)):
            shape = tuple(n if self.r.random() < 0.75 else 1 for n in chosen)
            dtype = self.r.choice(dtypes)
            if wide:
                key = f"np.random.default_rng(({seed}, {len(self.lines)}))"
                self.leaf(eval(text := f"plain({key}, {shape!r})", self.env), text)  # noqa: S307 - made here
            else:
                data = slopes.leaf(self.rng, shape, dtype) if most else leaf(self.rng, shape, dtype)
                self.leaf(np.asarray(data))
        for _ in range(steps * 5):
            if len(self.lines) >= steps:
                break
            self.r.choices(*zip(*kinds, strict=True))[0](self)
        self.program = Program(seed, tuple(self.lines), wide, not views)

    def leaf(self, data: Array, text: str = "") -> str:
        """Append an input with some values; return its name. `text` gives them, or else a literal."""
        name = f"v{len(self.lines)}"
        text = text or literal(data)
        self.env[name] = data
        self.inputs.add(name)
        self.alias[name] = len(self.lines)
        given = f"{text}.astype({self.wide!r})" if self.wide else text
        self.lines.append(Line(name, (), f"{name} = Tensor({given})", f"{name} = {text}", "leaf"))
        return name

    def bound(self, high: int) -> str:
        """Append a `Variable` from 0 to `high`, bound to a random value; return its name."""
        name, value = f"k{len(self.lines)}", self.r.randint(0, high)
        text = f"{name} = Variable({name!r}, 0, {high}).bind({value})"
        self.env[name] = value
        self.lines.append(Line(name, (), text, f"{name} = {value}", "bound", (0, high)))
        return name

    def pick(self, kinds: str = "biuf", *, rank: int = 0, nonempty: bool = False) -> str | None:
        """Return the name of a random value of a dtype kind in `kinds`, rather a later one, or None."""
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
        """Return the name of a value of the same dtype that broadcasts with `name`, or None."""
        x = self.env[name]
        fit = [
            n
            for n in self.alias
            if n not in self.frozen and self.env[n].dtype == x.dtype and fits(self.env[n].shape, x.shape)
        ]
        return self.r.choice(fit) if fit else None

    def add(
        self, needs: tuple[str, ...], tensor: str, numpy: str = "", *, view: bool = False, kind: str = "new"
    ) -> None:
        """Append `name = tensor`, where `{0}` and `{1}` stand for the names in `needs`.

        NumPy's value is copied unless it is a view in both dialects.
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
            if value.size > self.elements or value.ndim > 5 or (self.wide and grown(value, self.wide)):
                return
            if self.most and value.size and np.abs(value).max() > self.most:
                return
            shares = view and self.views and np.shares_memory(value, self.env[needs[0]])
            if view and self.views and value.size and not shares:
                return  # NumPy copies where a tensor is a view
            self.env[name] = value if shares else value.copy()
        if view and needs[0] in self.unwritable:
            self.unwritable.add(name)
        self.alias[name] = self.alias[needs[0]] if shares or (view and not self.views) else len(self.lines)
        copied = code if shares or kind == "sum" else f"np.array({code}, order='C')"
        text = tensor.format(*needs)
        weight = self.weights[name] = self._grown(needs)
        self.lines.append(Line(name, needs, f"{name} = {text}", f"{name} = {copied}", kind, weight=weight))

    def _grown(self, needs: tuple[str, ...]) -> float:
        """Return the growth of the errors of what is computed from some values."""
        return GROWTH * max([self.weights.get(name, 1.0) for name in needs], default=1.0)

    def write(self, target: str, needs: tuple[str, ...], tensor: str, numpy: str = "") -> None:
        """Append a statement that writes `target` in place."""
        code = (numpy or tensor).format(target, *needs)
        before = self.env[target].copy()
        with np.errstate(all="ignore"):
            exec(code, dict(self.env))  # noqa: S102 - lines made here
        large = self.most and self.env[target].size and np.abs(self.env[target]).max() > self.most
        if large or (self.wide and grown(self.env[target], self.wide)):
            self.env[target][...] = before
            return
        weight = self.weights[target] = self._grown((target, *needs))
        text = tensor.format(target, *needs)
        self.lines.append(Line(target, (target, *needs), text, code, "write", weight=weight))

    def writable(self, name: str) -> bool:
        """Return whether `name` may be written in place: it has no alias, or aliases are tested (`views`)."""
        if name in self.frozen or name in self.unwritable or (self.most and name in self.inputs):
            return False
        return self.views or sum(1 for other in self.alias.values() if other == self.alias[name]) == 1


def grown(value: Array, dtype: str) -> bool:
    """Return whether a value of a program with a dtype is too large to be compared, or no number."""
    return not bool(np.abs(value).max(initial=0.0) <= LARGEST[dtype])


def fits(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Return whether two shapes broadcast."""
    try:
        np.broadcast_shapes(a, b)
    except ValueError:
        return False
    return True
