"""The roofline model: published peak rates of a GPU, and the least time of a launch from its counters.

Rates are peaks at the boost clock. Rates of matrix instructions are those without sparsity; where a data
sheet has several, the one with 32-bit accumulation. Work of a type without a published rate adds no time.

Not here: the counters and the occupancy (`counts`); the boards themselves, which are in the row of their
architecture (`emulator.nv.profiles`, `emulator.amd.profiles`). Next: docs/counters.md, which lists the rates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hcq.counters import Estimate

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hcq.counters import KernelCounters

ONCHIP_BYTES: Final = 128
"""Bytes that shared memory moves in a cycle: 32 banks of 4 bytes. The model gives first-level caches the
same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """One product. Rates are in units of 10^12 operations a second."""

    name: str
    parts: int
    """Number of multiprocessors, in AMD's terms compute units."""
    clock_mhz: int
    bandwidth: float
    """Peak bandwidth of global memory in 10^9 bytes a second."""
    vector: Mapping[str, float]
    """Element type -> rate of instructions that are no matrix instructions."""
    matrix: Mapping[str, float]
    """Element type of the factors -> rate of matrix instructions."""
    source: str
    """The publication that the rates are from."""
    joint: bool = True
    """Whether accesses to shared memory and to the first-level cache use the same data path."""


_INTEGERS: Final = {"iu8": "i8", "iu4": "i4", "bf8": "fp8"}
"""AMD's name of a matrix type -> the type that has its rate in `Board.matrix`."""


def estimates(boards: Iterable[Board], counts: KernelCounters) -> tuple[Estimate, ...]:
    """Return the least time of a launch of at least one workgroup on each board, in the order of `boards`."""
    return tuple(_estimate(board, counts) for board in boards)


def _estimate(board: Board, counts: KernelCounters) -> Estimate:
    """Return the times in seconds that arithmetic, memory and on-chip traffic each take alone.

    The model assumes that all workgroups are alike, so the multiprocessor with most of them takes longest.
    """
    rounds = -(-counts.groups // board.parts)
    share = rounds / counts.groups * board.parts
    """Workgroups of the multiprocessor with most of them, divided by the mean number."""
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
