"""Exchanges between threads of a random kernel: what each declares, and what its NumPy mirror keeps.

Each exchange writes device IR that makes a 64-bit `%eN` out of a thread's value `%vN`, and mirrors the same
with numpy. It is free of races and of any order among threads, so its result is unique.

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
"""Exchanges in one kernel."""
Array = Any
"""A numpy array of one u64 a lane, shaped (workgroups, lanes)."""

U64 = np.uint64
WIDTHS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64}


@dataclass(slots=True)
class State:
    """What the threads of a grid have in common, as the mirror keeps it."""

    threads: int
    """Threads a workgroup; lanes beyond them fill the last warp and do not exist."""
    index: Array
    """Each lane's number in the grid."""
    alive: Array
    """Lanes that exist and have not left."""
    cells: Array
    """Shared memory: CELL_BYTES a lane, as bytes, shaped (workgroups, lanes * CELL_BYTES)."""
    bins: Array
    """Global memory: BINS words of 64 bits for each exchange."""
    out: Array
    """What each lane has stored at the end."""

    def warps(self, values: Array) -> Array:
        """Return values by warp: (workgroups, warps, 32)."""
        return values.reshape(values.shape[0], -1, 32)


class Exchange(abc.ABC):
    """One step between two functions; `n` numbers it in its kernel."""

    def __init__(self, rng: random.Random, n: int) -> None:
        self.rng, self.n = rng, n

    @abc.abstractmethod
    def device(self) -> str:
        """Return IR that reads `%v{n}` (and %t, %i, %i64, %lane, %outp, %bins) and defines `%e{n}`."""

    @abc.abstractmethod
    def mirror(self, v: Array, state: State) -> Array:
        """Return every lane's `%e{n}`."""

    def fill(self, text: str, **words: object) -> str:
        """Write a template: `$` is the exchange's number, which keeps names apart, `{word}` is given."""
        return text.format(**words).replace("$", str(self.n))
