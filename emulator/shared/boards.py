"""What a roofline knows of a GPU: published rates, and the least time that counted work takes by them.

Rates are peaks at the boost clock, of matrices without sparsity and with sums in 32 bits where a data sheet
tells them apart. A type without a published rate bounds nothing.

Not here: the counts, and what limits the warps in flight (`counts`); the boards themselves, which are in the
row of their architecture (`emulator.nv.profiles`, `emulator.amd.profiles`). Next:
docs/counters.md, which lists the rates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hcq.counters import Estimate

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hcq.counters import KernelCounters

ONCHIP_BYTES: Final = 128
"""Bytes that shared memory moves in a cycle: 32 banks of 4. First-level caches are taken to move as many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """One product. Rates are in units of 10^12 operations a second, bandwidth in 10^9 bytes a second."""

    name: str
    parts: int
    """Multiprocessors (compute units)."""
    clock_mhz: int
    bandwidth: float
    vector: Mapping[str, float]
    """Type -> rate outside matrix instructions."""
    matrix: Mapping[str, float]
    """Type of the factors -> rate of matrix instructions."""
    source: str
    """The publication that the rates are from."""
    joint: bool = True
    """Whether accesses to shared memory and to the first-level cache use the same data path."""


_INTEGERS: Final = {"iu8": "i8", "iu4": "i4", "bf8": "fp8"}
"""Names of AMD's matrix types -> the type whose rate they have."""


def estimates(boards: Iterable[Board], counts: KernelCounters) -> tuple[Estimate, ...]:
    """Return the least time of a launch on each of its architecture's boards."""
    return tuple(_estimate(board, counts) for board in boards)


def _estimate(board: Board, counts: KernelCounters) -> Estimate:
    """Return the longest of the times that arithmetic, memory and on-chip traffic take by themselves.

    Workgroups are taken to be alike: the fullest multiprocessor has its share of them, rounded up.
    """
    rounds = -(-counts.groups // board.parts)
    share = rounds / counts.groups * board.parts
    """How much longer the fullest multiprocessor takes than the mean one would."""
    vector = sum(n / (board.vector[t] * 1e12) for t, n in counts.flops.items() if t in board.vector)
    named = ((_INTEGERS.get(t, t), n) for t, n in counts.matrix.items())
    matrix = sum(n / (board.matrix[t] * 1e12) for t, n in named if t in board.matrix)
    memory = (counts.read + counts.written) / (board.bandwidth * 1e9)
    cycles = sum(one.units for one in counts.shared.values())
    lines = counts.moved / ONCHIP_BYTES
    onchip = (cycles + lines if board.joint else max(cycles, lines)) / (board.parts * board.clock_mhz * 1e6)
    times = {
        "compute": vector * share,
        "matrix": matrix * share,
        "memory": memory,
        "on-chip": onchip * share,
    }
    return Estimate(chip=board.name, parts=times)
