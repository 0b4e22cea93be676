"""Generation of random tensor programs: values, steps, and their checks.

A program is a list of steps made from a seed while NumPy runs it in float64. A step whose meaning jumps
(a comparison, a rounding, argmax) is made only of values that are exact: integers, and floats that were
moved but never computed with.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]
Kinds = Sequence[tuple["Callable[[Maker], None]", int]]
"""(function that adds a step if it can, how often it is tried)."""
FLOATS = ("float32", "float32", "float32", "float16", "float64")
INTS = ("int32", "int32", "int64", "int16", "uint8")
MOST = 4000
"""Elements of a value."""
VIEWS = ("reshape", "permute", "shrink", "expand", "slice", "split")
"""Names, in front, of the steps whose results share elements with their source."""
LARGE = 80_000
"""Numbers of elements for kernels that several threads share, with ragged sizes."""


@dataclass(slots=True)
class Value:
    """The reference value of a step, computed by NumPy."""

    data: Array
    """float64, int64 or bool."""
    dtype: str
    exact: bool
    weight: float = 1.0
    """Factor by which rounding errors were magnified."""
    root: int = -1
    """The leaf that it shares elements with; -1 when there is none."""
    places: Array | None = None
    """The positions of its elements in that leaf."""

    @property
    def kind(self) -> str:
        return "b" if self.dtype == "bool" else "f" if self.dtype.startswith("float") else "i"

    @property
    def shape(self) -> Shape:
        return self.data.shape


@dataclass(slots=True)
class Step:
    """Append `tensor(sources)`; or give a leaf a new value, when `assign` >= 0; or realize."""

    name: str
    sources: tuple[int, ...]
    tensor: Callable[..., Any]
    numpy: Callable[..., Array]
    assign: int = -1
    realize: bool = False


@dataclass(slots=True)
class Program:
    """Leaves, steps, and the values that are compared."""

    seed: int
    leaves: list[tuple[Shape, str]]
    steps: list[Step] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    dtypes: list[str] = field(default_factory=list)
    tolerances: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"seed {self.seed}"] + [f"  v{i} = leaf {s} {d}" for i, (s, d) in enumerate(self.leaves)]
        at = len(self.leaves)
        for step in self.steps:
            sources = ", ".join([f"v{s}" for s in step.sources])
            if step.realize:
                lines.append(f"  realize {sources}")
            elif step.assign >= 0:
                lines.append(f"  v{step.assign}.assign({step.name}({sources}))")
            else:
                lines.append(f"  v{at} = {step.name}({sources})")
                at += 1
        return "\n".join([*lines, f"  -> {self.outputs}"])


def leaf_data(shape: Shape, dtype: str, rng: np.random.Generator) -> Array:
    """Return data whose floats are multiples of 1/8 up to 4, exact in every float dtype."""
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if dtype.startswith("float"):
        return rng.integers(-32, 33, shape) / 8.0
    return rng.integers(0 if dtype.startswith("u") else -9, 10, shape)


def ideal(x: Array) -> Array:
    """Return data in the types that the reference computes in."""
    return x.astype({"f": np.float64, "b": np.bool_}.get(x.dtype.kind, np.int64))


def shares(name: str, source: str, dtype: str) -> bool:
    """Return whether a step of a name gives what shares elements with its source, by the dtypes of both."""
    backwards = re.search(r"slice\([^)]*, -\d\)", name)  # what has a negative step is no view
    return (name.startswith(VIEWS) and not backwards) or (name == f"cast {dtype}" and source == dtype)


class Maker:
    """Makes one program; what it may do next depends on the values so far.

    `large` makes shapes that are cut up among threads; a `calm` program has no step whose meaning jumps, so
    its leaves may be any floats.
    """

    def __init__(
        self, seed: int, kinds: Kinds, *, steps: int, large: bool, calm: bool, floats: Sequence[str] = FLOATS
    ) -> None:
        self.r = random.Random(seed)
        self.most = LARGE if large else MOST
        rng = np.random.default_rng(seed)
        big = self.r.random() < 0.3
        sizes = (
            (1, 31, 64, 101, 130, 257) if large else (1, 2, 3, 5, 8, 17, 33) if big else (1, 2, 3, 4, 5, 7)
        )
        base = [self.r.choice(sizes) for _ in range(self.r.randint(1, 2 if large else 3 if big else 4))]
        self.program = Program(seed, [])
        self.values: list[Value] = []
        for _ in range(self.r.randint(1, 4)):
            shape = tuple(base)
            if self.r.random() < 0.4:
                shape = tuple([n if self.r.random() < 0.6 else 1 for n in base])
            if self.r.random() < 0.2:
                shape = shape[self.r.randint(0, len(shape)) :]
            draw = self.r.random()
            dtype = self.r.choice(floats) if draw < 0.75 else self.r.choice(INTS) if draw < 0.92 else "bool"
            self.program.leaves.append((shape, dtype))
            self.values.append(
                Value(
                    ideal(leaf_data(shape, dtype, rng)),
                    dtype,
                    exact=not calm or not dtype.startswith("float"),
                    root=len(self.values),
                    places=np.arange(prod(shape)).reshape(shape),
                )
            )
        wanted = self.r.randint(1, steps)
        for _ in range(40 * wanted):
            if len(self.program.steps) >= wanted:
                break
            self.r.choices(*zip(*kinds, strict=True))[0](self)
        n = len(self.values)
        self.program.outputs = sorted({n - 1, *[i for i in range(n) if self.r.random() < 0.3]})
        self.program.dtypes = [v.dtype for v in self.values]
        self.program.tolerances = [_tolerance(v) for v in self.values]

    def pick(self, kinds: str = "fib", *, rank: int = 0, exact: bool = False) -> int | None:
        """Return a value, late ones more often than early ones."""
        fit = [
            i
            for i, v in enumerate(self.values)
            if v.kind in kinds and v.data.ndim >= rank and (v.exact or not exact) and v.data.size
        ]
        return None if not fit else max(self.r.choice(fit), self.r.choice(fit))

    def add(
        self,
        name: str,
        sources: Sequence[int],
        tensor: Callable[..., Any],
        numpy: Callable[..., Any],
        dtype: str,
        *,
        exact: bool = False,
        weight: float = 1.0,
    ) -> None:
        """Append a step, unless its value would be too large in any sense."""
        with np.errstate(all="ignore"):
            data = np.asarray(numpy(*[self.values[s].data for s in sources]))
        largest = np.max(np.abs(data.astype(np.float64)), initial=0.0)
        limit = 60 if dtype in {"uint8", "float16"} else 1000
        if data.size > self.most or not np.isfinite(largest) or largest > limit:
            return
        if dtype.startswith("u") and np.min(data, initial=0) < 0:
            return
        rounding = max([self.values[s].weight for s in sources], default=1.0)
        coarse = max([_precision(self.values[s].dtype) for s in sources], default=0.0)
        if _precision(dtype) and coarse > _precision(dtype):
            rounding *= coarse / _precision(dtype)
        steps = self.program.steps
        steps.append(Step(name, tuple(sources), tensor, numpy))
        value = Value(ideal(data), dtype, exact, rounding * weight)
        first = self.values[sources[0]]
        if first.places is not None and shares(name, first.dtype, dtype):
            value.root = first.root
            value.places = first.places if name.startswith("cast") else numpy(first.places)
        self.values.append(value)

    def give(self, leaf: int, new: Value) -> None:
        """Give a leaf, and all that share elements with it, a new value."""
        for v in self.values:
            if v.root == leaf and v.places is not None:
                v.data, v.exact, v.weight = new.data.reshape(-1)[v.places], new.exact, new.weight


def _precision(dtype: str) -> float:
    return {"float16": 1e-3, "float32": 1e-7, "float64": 1e-10}.get(dtype, 1e-10 if dtype != "bool" else 0.0)


def _tolerance(v: Value) -> float:
    if v.kind != "f":
        return 0.0
    return min(0.05, {"float16": 8e-3, "float32": 2e-5, "float64": 1e-6}[v.dtype] * v.weight)
