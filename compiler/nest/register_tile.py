"""The register tile of a contraction: rows and vectors of results that are in registers while a sum runs.

Not here: panels, loops and workgroups (`plan.contraction`). Next: `plan.contraction_tile`, which chooses a
tile for a kernel.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compiler.targets.shared.target import Target

MOST_ROWS, MOST_VECTORS = 16, 6
MOST_VECTORS_FIRST = 7
"""Vectors of a tile at most, if they are read from the first-level cache."""
LATENCY = 4.5
"""Cycles until an accumulator can be used again."""
ROUND_CYCLES = 0.4
"""Cycles of the loop itself for one product of each output of a tile."""
SECOND_LEVEL_BYTES = 24.0
"""Bytes per cycle from the second-level cache, where panels of the streamed operand are."""
BROADCASTS_PER_CYCLE = 2.0
"""Loads of one element to all lanes, per cycle."""
WAYS = 8
"""Rows of an operand that a first-level cache holds together at any distance."""
FEWEST = 4
"""Strided vectors are transposed in registers if they are at least 1 / FEWEST of a square."""
APART = 2
"""Elements between neighbours of a row of a transposed square that is stored with gaps."""
COPY_CYCLES = 1.5
"""Cycles of one value of a panel that is copied by values."""


def tile(
    m: int, n: int, lanes: int, target: Target, *, near: bool = False, first: bool = False
) -> tuple[int, int]:
    """Return the rows and vectors of the fastest register tile for m x n outputs.

    The accumulators, the vectors of one round and one broadcast value must fit the registers. More rows than
    `WAYS` are first copied, for all columns, unless they are `near` one another in memory. `first` says that
    the streamed operand is in the first-level cache.
    """
    best = (-1.0, 1, 1)
    most = MOST_VECTORS_FIRST if first else MOST_VECTORS
    candidates = _candidates(target.registers, most, *_rates(target, first=first))
    for rows, vectors, each in candidates:
        if rows > m or vectors * lanes >= n + lanes:
            continue
        copied = rows > WAYS and not near
        part = 0.5 if copied else 0.25  # broadcasts are from the first level, vectors from the second
        reuse = 1 - 0.125 * (part * rows + vectors) / (rows * vectors)
        cycles = -(-n // (vectors * lanes)) * each + copied * COPY_CYCLES * rows
        score = reuse * m * n / (-(-m // rows) * cycles)
        if score > best[0] + 1e-9:
            best = score, rows, vectors
    return best[1:]


@lru_cache(maxsize=8)
def _candidates(registers: int, most: int, *rates: float) -> list[tuple[int, int, float]]:
    """Return the tiles that fit the registers: rows, vectors, and cycles of one product of each output."""
    return [
        (rows, vectors, _cycles(rows, vectors, *rates))
        for rows, vectors in product(range(1, MOST_ROWS + 1), range(1, most + 1))
        if rows * vectors + vectors + 1 <= registers
    ]


def tile_cycles(rows: int, vectors: int, target: Target, *, first: bool = False) -> float:
    """Return the cycles of one product of each output: multiply-adds, loads, or the latency of a chain.

    `first` says that the vectors are in the first-level cache.
    """
    return _cycles(rows, vectors, *_rates(target, first=first))


def _rates(target: Target, *, first: bool) -> tuple[float, float, float]:
    """Return multiply-adds per cycle, bytes of a vector from the second-level cache, and loads per cycle."""
    return target.fma_per_cycle, 0.0 if first else target.vector_bytes, target.loads_per_cycle


def _cycles(
    rows: int, vectors: int, fma_per_cycle: float, vector_bytes: float, loads_per_cycle: float
) -> float:
    return ROUND_CYCLES + max(
        rows * vectors / fma_per_cycle,
        vectors * vector_bytes / SECOND_LEVEL_BYTES,
        vectors / loads_per_cycle + rows / BROADCASTS_PER_CYCLE,
        LATENCY,
    )
