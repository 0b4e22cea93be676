"""The decoder of the report records that generated code writes; it returns `KernelReport`s.

Not here: writing the records (`emulator.ir.findings`). Next: `emulator.ir.report`, the reports.
"""

# ruff: noqa: PLR0917 - one finding's fields

from __future__ import annotations

import struct
from dataclasses import replace
from typing import TYPE_CHECKING

from emulator.ir.clusters import RANK_SHIFT
from emulator.ir.report import KernelReport, ReportKind
from emulator.ir.state import MAP_ATOMIC, MAP_WRITE, REPORT, REPORT_LIMIT, REPORTS_HEAD
from emulator.sanitizers.shadow_global import SAME_GROUP, race_place
from emulator.sanitizers.shadow_local import LOCAL_PARTY
from emulator.simt.work import unflatten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emulator.ir.state import Raw
    from emulator.shared.memory import AddressSpace
    from emulator.simt.engine import TranslatedProgram
    from emulator.simt.work import LaunchWork


_PROXIES = (ReportKind.MISSING_PROXY_FENCE, ReportKind.ASYNC_READ)
_PEERS = (ReportKind.UNSTARTED_PEER, ReportKind.UNORDERED_EXIT)


def decode(
    program: TranslatedProgram, work: LaunchWork, memory: AddressSpace, raw: Raw
) -> list[KernelReport]:
    """Return the reports in the buffer `raw`, at most one of each kind for an instruction.

    Reads of uninitialised memory come last, because a missing barrier causes them together with a race.
    """
    (count,) = struct.unpack_from("<I", raw)
    lanes = program.engine.settings.lanes
    found: dict[tuple[int, int], KernelReport] = {}
    for i in range(min(count, REPORT_LIMIT)):
        at = REPORTS_HEAD + i * REPORT.size
        kind, number, lane, group, warp, size, address, other = (
            REPORT.read(raw, name, at) for name in REPORT.types
        )
        flat = warp * lanes + lane
        site = program.translation.sites[number]
        what = ReportKind(kind)
        report = KernelReport(
            kind=what, kernel=program.translation.name, line=site.line, instruction=site.text,
            block=unflatten(group, work.grid), thread=unflatten(flat, work.block_of(group)),
            access=_access(what, other), address=address if size else None, size=size,
            nearest=_nearest(what, work, memory, address, group, other),
            other=_other(what, other, work, group, program),
        )  # fmt: skip
        found.setdefault((kind, number), report)
    return sorted(found.values(), key=lambda report: report.kind is ReportKind.UNINITIALISED)


def _access(kind: ReportKind, other: int) -> str:
    """Return in words how a record's access reads or writes; "" if the record does not say."""
    if kind in (
        ReportKind.SHARED_RACE,
        ReportKind.GLOBAL_RACE,
        ReportKind.UNINITIALISED,
        ReportKind.COPY_IN_FLIGHT,
        *_PROXIES,
        *_PEERS,
    ):
        other >>= 48
    return {1: "read", MAP_WRITE: "write", MAP_ATOMIC: "atomic"}.get(other, "")


def _nearest(
    kind: ReportKind, work: LaunchWork, memory: AddressSpace, address: int, group: int, other: int
) -> str:
    """Return in words which memory is nearest to a record's address; "" if it has none."""
    if kind in (ReportKind.OUT_OF_BOUNDS, ReportKind.FORBIDDEN, ReportKind.GLOBAL_RACE):
        return memory.nearest(address)
    local = kind is ReportKind.UNINITIALISED and other & 0xFFFF_FFFF == LOCAL_PARTY
    either = (ReportKind.UNINITIALISED, ReportKind.COPY_IN_FLIGHT)
    if kind in either and memory.find(address) is not None:
        return memory.nearest(address)
    shared = (
        ReportKind.SHARED_RACE, ReportKind.UNINITIALISED, ReportKind.COPY_IN_FLIGHT, ReportKind.EXITED_PEER,
        ReportKind.SHARED_OUT_OF_BOUNDS, *_PROXIES, *_PEERS,
    )  # fmt: skip
    if kind in shared and not local:
        return f"shared memory of {work.shared_bytes} bytes{_whose(work, group, address)}"
    if kind is ReportKind.LOCAL_OUT_OF_BOUNDS or local:
        return f"local memory of {work.local_bytes} bytes a thread"
    if kind is ReportKind.PARAM_OUT_OF_BOUNDS:
        return f"{len(work.params)} bytes of parameters"
    return ""


def _other(kind: ReportKind, other: int, work: LaunchWork, group: int, program: TranslatedProgram) -> str:
    """Return in words with what a record is in conflict; "" if there is nothing."""
    party = other & 0xFFFF_FFFF
    same = kind is ReportKind.GLOBAL_RACE and other & SAME_GROUP
    if kind in (ReportKind.SHARED_RACE, *_PROXIES) or same:
        number, thread = race_place(party)
        site = program.translation.sites[number]
        block = group if same else peer_of(work, group, other >> 32 & 0xFFFF)
        where = f" of block {unflatten(block, work.grid)}" if block != group else ""
        return f"line {site.line}: {site.text}; thread {unflatten(thread, work.block_of(block))}{where}"
    if kind is ReportKind.GLOBAL_RACE:
        return f"block {unflatten(party, work.grid)}"
    if kind is ReportKind.CLUSTER_DEADLOCK and party:
        rank, warp = divmod(party - 1, -(-work.threads // program.engine.settings.lanes))
        there = unflatten(peer_of(work, group, rank), work.grid)
        return f"warp {warp} of block {there}, which has not arrived"
    if kind is ReportKind.REGISTER_DEADLOCK:
        return f"{party} more registers a thread, of which the pool has {other >> 32}"
    if kind is ReportKind.BAD_REGISTER_COUNT:
        return f"{party} registers a thread"
    if kind is ReportKind.BARRIER_DEADLOCK and other >> 63:
        size = (party ^ 1 << 31) - (1 << 31)
        return f"mbarrier that waits for {other >> 32 & 0x7FFF_FFFF} arrivals and {size} bytes"
    if kind in (ReportKind.BARRIER_DEADLOCK, ReportKind.DIVERGENT_BARRIERS, ReportKind.BAD_BARRIER):
        return f"barrier {other}"
    return ""


def _whose(work: LaunchWork, group: int, address: int) -> str:
    """Return a description of the workgroup whose rank a cluster address has; "" if it has no valid rank."""
    rank = (address >> RANK_SHIFT) - 1
    if rank < 0 or rank >= work.cluster_groups:
        return ""
    return f" of block {unflatten(peer_of(work, group, rank), work.grid)}"


def peer_of(work: LaunchWork, group: int, rank: int) -> int:
    """Return the flat number of the workgroup of rank `rank` in the cluster of workgroup `group`."""
    shape = work.cluster or (1, 1, 1)
    first = tuple(at - at % size for at, size in zip(unflatten(group, work.grid), shape, strict=True))
    x, y, z = (a + b for a, b in zip(first, unflatten(rank, shape), strict=True))
    return x + work.grid[0] * (y + work.grid[1] * z)


def hang(program: TranslatedProgram, timeout_s: float, loops: Sequence[KernelReport] = ()) -> KernelReport:
    """Return the report of a kernel that was ended after `timeout_s` seconds of CPU time.

    `loops` are reports of the loops in which warps were. The result is the first of them, or names no
    instruction.
    """
    ended = f"ended after {timeout_s} s of CPU time"
    if loops:
        return replace(loops[0], instruction=f"{loops[0].instruction} ({ended})")
    return KernelReport(
        kind=ReportKind.HANG,
        kernel=program.translation.name,
        line=0,
        instruction=ended,
        block=(0, 0, 0),
        thread=(0, 0, 0),
        access="",
        address=None,
        size=0,
        nearest="",
    )
