"""The interface of an exchange between the threads of a random kernel, and the state of its NumPy model.

An exchange is device IR that computes a 64-bit `%eN` from a thread's value `%vN`, and a NumPy function that
computes the same. It has no races and does not depend on the order of threads, so its result is unique.

Not here: the exchanges (`exchanges_memory`, `exchanges_warp`). Next: `cases`, a whole kernel.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import random

CELL_BYTES = 8
BINS = 8
MOST = 3
"""The largest number of exchanges in one kernel."""
Array = Any
"""A NumPy array with one u64 per lane, of shape (workgroups, lanes)."""

U64 = np.uint64
WIDTHS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64}


@dataclass(slots=True)
class State:
    """The shared state of the threads of a grid, in the NumPy model."""

    threads: int
    """Threads per workgroup; further lanes only fill the last warp."""
    index: Array
    """The index of each lane in the grid."""
    alive: Array
    """Whether each lane exists and has not exited."""
    cells: Array
    """Shared memory as bytes, of shape (workgroups, lanes * CELL_BYTES)."""
    bins: Array
    """Global memory: BINS words of 64 bits for each exchange."""
    out: Array
    """The result that each lane stored."""

    def warps(self, values: Array) -> Array:
        """Return values in the shape (workgroups, warps, 32)."""
        return values.reshape(values.shape[0], -1, 32)


class Exchange(abc.ABC):
    """One exchange between two functions; `n` is its number in the kernel."""

    def __init__(self, rng: random.Random, n: int) -> None:
        self.rng, self.n = rng, n

    @abc.abstractmethod
    def device(self) -> str:
        """Return IR that reads `%v{n}` (and %t, %i, %i64, %lane, %outp, %bins) and defines `%e{n}`."""

    @abc.abstractmethod
    def mirror(self, v: Array, state: State) -> Array:
        """Return `%e{n}` of every lane, computed with NumPy; it may change `state`."""

    def fill(self, text: str, **words: object) -> str:
        """Fill a template: `{word}` from the arguments, `$` with the exchange's number for unique names."""
        return text.format(**words).replace("$", str(self.n))
