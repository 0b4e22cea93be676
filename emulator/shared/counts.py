"""The counters of a launch from the engine's raw slots, the kernel's occupancy, and a bound of its time.

The limits of occupancy are published; docs/counters.md names the source of each. A "multiprocessor" here is a
workgroup processor (two compute units) on AMD GPUs of RDNA, a compute unit on CDNA.

The bound is a roofline of published peak rates at the boost clock. Rates of matrix instructions are those
without sparsity; where a data sheet has several, the one with 32-bit accumulation. Work of a type without a
published rate adds no time.

Not here: the code that counts (`emulator.simt.counting`); boards and their rates, which are in the row of
their architecture (`emulator.nv.profiles`, `emulator.amd.profiles`).
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from emulator.simt.counting import BYTES, LANES, LEAST, RECORD, REQUESTS, SERIAL, UNITS
from hcq.counters import AccessCounts, Estimate, KernelCounters, Occupancy

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from emulator.simt.counting import Counted
    from emulator.simt.running import RawCounts
    from emulator.simt.work import LaunchWork

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
    named = [(_INTEGERS.get(t, t), n) for t, n in counts.matrix.items()]
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
    rates = {"memory": board.bandwidth * 1e9}
    rates |= {t: board.vector[t] * 1e12 for t, n in counts.flops.items() if n and t in board.vector}
    rates |= {f"{t} matrix": board.matrix[t] * 1e12 for t, n in named if n and t in board.matrix}
    return Estimate(chip=board.name, parts=times, rates=rates)


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiprocessorLimits:
    """The resources of one multiprocessor."""

    warps: int
    """The most resident warps."""
    groups: int
    """The most resident workgroups."""
    parts: int
    """Schedulers (SIMDs), each with an equal share of the warps and of the registers."""
    registers: int
    """Registers of one lane in a part, for all warps of the part."""
    granule: int
    """The number of registers of a lane that is allocated at once, for warps of 32 lanes."""
    shared: int
    """Bytes of shared memory."""
    shared_granule: int
    """The number of bytes of shared memory that is allocated at once."""
    reserved: int = 0
    """Bytes of shared memory of each workgroup that the system takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """The resources that a kernel takes of a multiprocessor, and its target."""

    kernel: str
    arch: str
    limits: MultiprocessorLimits
    boards: tuple[Board, ...]
    """The GPUs of the architecture whose least times are estimated."""
    lanes: int
    """Lanes of a warp."""
    registers: int
    """Registers of a thread, not rounded to the granule."""
    shared_bytes: int
    """Shared memory of a workgroup in bytes."""
    code: int = 0
    """Number of machine instructions of its code; 0 if unknown."""


def counters(counted: Counted, raw: RawCounts, work: LaunchWork, what: Resources) -> KernelCounters:
    """Return the counters of one launch: `counted` says what each of the `raw` slots counts."""
    sizes = Counter({work.threads: work.groups})
    if work.last is not None:
        sizes = Counter(math.prod(work.block_of(group)) for group in range(work.groups))
    warps = sum(-(-size // what.lanes) * count for size, count in sizes.items())
    threads = sum(size * count for size, count in sizes.items())
    found = KernelCounters(
        kernel=what.kernel, arch=what.arch, lanes=what.lanes, unit=counted.unit, launches=1,
        groups=work.groups, warps=warps, threads=threads, registers=what.registers,
        shared_bytes=what.shared_bytes, code=what.code,
    )  # fmt: skip
    _instructions(found, counted, raw)
    spaces = {"global": found.global_, "shared": found.shared, "local": found.local}
    for one in counted.accessed:
        slots = raw.slots[one.at : one.at + RECORD]
        access = AccessCounts(
            requests=slots[REQUESTS], lanes=slots[LANES], bytes=slots[BYTES], units=slots[UNITS],
            least=slots[LEAST], serial=slots[SERIAL],
        )  # fmt: skip
        spaces[one.space][one.what].add(access)
    found.divergent = sum(raw.slots[at] for at in counted.branches)
    found.copied = sum(raw.slots[at] for at in counted.copied)
    found.read = counted.unit * sum(read.bit_count() for read, _ in raw.touched)
    found.written = counted.unit * sum(written.bit_count() for _, written in raw.touched)
    found.lost = raw.lost
    found.occupancy = occupancy(what, work.threads)
    found.estimates = estimates(what.boards, found)
    return found


def _instructions(found: KernelCounters, counted: Counted, raw: RawCounts) -> None:
    """Add the executed instructions in `raw` to `found`."""
    for one in counted.executed:
        operation, warps = one.operation, raw.slots[one.warps]
        found.instructions[operation.kind] += warps
        if operation.kind == "branch":
            found.branches += warps
        if operation.matrix:
            found.matrix[operation.type] += operation.matrix * warps
        if one.lanes < 0:
            continue
        lanes = raw.slots[one.lanes]
        found.lane_instructions[operation.kind] += lanes
        if operation.flops:
            found.flops[operation.type] += operation.flops * lanes


def occupancy(what: Resources, threads: int) -> Occupancy:
    """Return the occupancy of a kernel with workgroups of `threads`; 0 workgroups if one needs too much."""
    limits = what.limits
    warps = -(-threads // what.lanes)
    wide = what.lanes // 32 if what.arch.startswith("gfx1") else 1
    granule = limits.granule // wide
    allocated = max(-(-what.registers // granule), 1) * granule * wide
    held = limits.registers // allocated * limits.parts
    shared = -(-(what.shared_bytes + limits.reserved) // limits.shared_granule) * limits.shared_granule
    most = {
        "workgroups": limits.groups,
        "warps": limits.warps // warps,
        "registers": held // warps,
        "shared memory": limits.shared // shared if shared else limits.groups,
    }
    groups = min(most.values())
    limited = tuple(name for name, count in most.items() if count == groups)
    return Occupancy(groups=groups, warps=groups * warps, most_warps=limits.warps, limits=limited)
