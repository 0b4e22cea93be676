"""Findings about an emulated kernel: faults, which end the kernel, and sanitizer findings, which do not.

Not here: findings about the driver (`emulator.shared.machine_report`). Next: `emulator.simt.launch`, which
makes findings from the records that generated code writes.
"""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

import enum
import re
from dataclasses import dataclass


class ReportKind(enum.IntEnum):
    """The kind of a finding. Kinds below SHARED_RACE end the kernel, or keep it from starting; the others come from optional sanitizers."""

    OUT_OF_BOUNDS = 1
    MISALIGNED = 2
    FORBIDDEN = 3
    SHARED_OUT_OF_BOUNDS = 4
    LOCAL_OUT_OF_BOUNDS = 5
    PARAM_OUT_OF_BOUNDS = 6
    TRAP = 7
    BARRIER_DEADLOCK = 8
    DIVERGENT_BARRIERS = 9
    BAD_BARRIER = 10
    BAD_BRANCH_INDEX = 11
    HANG = 12
    BAD_MBARRIER = 13
    ABSENT_LANE = 14
    BAD_MATRIX = 15
    BAD_DESCRIPTOR = 16
    BAD_TENSOR_MAP = 17
    EXITED_PEER = 18
    CLUSTER_DEADLOCK = 19
    CLUSTER_ARRIVED_TWICE = 20
    CLUSTER_NOT_ARRIVED = 21
    REGISTER_DEADLOCK = 22
    BAD_REGISTER_COUNT = 23
    MISSING_WAIT = 24
    SHARED_RACE = 32
    GLOBAL_RACE = 33
    UNINITIALISED = 34
    PARTIAL_BARRIER = 35
    COPY_IN_FLIGHT = 36
    MISSING_PROXY_FENCE = 37
    ASYNC_READ = 38
    UNWAITED_WGMMA = 39
    MISSING_WGMMA_FENCE = 40
    UNSTARTED_PEER = 41
    UNORDERED_EXIT = 42

    @property
    def fatal(self) -> bool:
        """Whether the finding ends the kernel."""
        return self < ReportKind.SHARED_RACE

    @property
    def text(self) -> str:
        """The kind as text."""
        return _TEXTS[self]


_TEXTS = {
    ReportKind.OUT_OF_BOUNDS: "access outside every allocation",
    ReportKind.MISALIGNED: "misaligned access",
    ReportKind.FORBIDDEN: "access that the mapping forbids",
    ReportKind.SHARED_OUT_OF_BOUNDS: "access outside shared memory",
    ReportKind.LOCAL_OUT_OF_BOUNDS: "access outside local memory",
    ReportKind.PARAM_OUT_OF_BOUNDS: "access outside the parameters",
    ReportKind.TRAP: "trap",
    ReportKind.BARRIER_DEADLOCK: "barrier that not all threads can reach",
    ReportKind.DIVERGENT_BARRIERS: "lanes of one warp wait at different barriers",
    ReportKind.BAD_BARRIER: "barrier number or thread count that does not exist",
    ReportKind.BAD_BRANCH_INDEX: "branch index outside its table",
    ReportKind.HANG: "kernel did not end in time",
    ReportKind.BAD_MBARRIER: "mbarrier used in a state it cannot be in",
    ReportKind.ABSENT_LANE: "warp operation names lanes that do not take part",
    ReportKind.BAD_MATRIX: "matrix operation with unequal copies of an operand",
    ReportKind.BAD_DESCRIPTOR: "matrix descriptor with a base offset, or of memory outside shared memory",
    ReportKind.BAD_TENSOR_MAP: "tensor map that this copy cannot use: rank, element type, steps, alignment, swizzle or fill",
    ReportKind.EXITED_PEER: "access to the shared memory of a workgroup that has exited",
    ReportKind.CLUSTER_DEADLOCK: "barrier of a cluster that not all its threads can reach",
    ReportKind.CLUSTER_ARRIVED_TWICE: "second arrival at the barrier of a cluster without a wait between",
    ReportKind.CLUSTER_NOT_ARRIVED: "wait at the barrier of a cluster without an arrival before",
    ReportKind.REGISTER_DEADLOCK: "setmaxnreg.inc that waits for registers which no warp can release",
    ReportKind.BAD_REGISTER_COUNT: "setmaxnreg that the registers of the warp do not allow",
    ReportKind.MISSING_WAIT: "access to memory that was not waited for",
    ReportKind.SHARED_RACE: "race in shared memory",
    ReportKind.GLOBAL_RACE: "race in global memory",
    ReportKind.UNINITIALISED: "read of uninitialized memory",
    ReportKind.PARTIAL_BARRIER: "barrier reached by only part of the warp",
    ReportKind.COPY_IN_FLIGHT: "memory of an asynchronous copy used before it was waited for",
    ReportKind.MISSING_PROXY_FENCE: "memory read by an asynchronous operation without fence.proxy.async since it was written",
    ReportKind.ASYNC_READ: "memory overwritten that an asynchronous operation reads, before it was waited for",
    ReportKind.UNWAITED_WGMMA: "register of a wgmma used before wgmma.wait_group",
    ReportKind.MISSING_WGMMA_FENCE: "register of a wgmma written without wgmma.fence since",
    ReportKind.UNSTARTED_PEER: "shared memory of another workgroup accessed before a barrier shows that it has started",
    ReportKind.UNORDERED_EXIT: "shared memory of another workgroup accessed without an order before that workgroup exits",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelReport:
    """One finding: kernel, instruction, thread, address, and the allocation nearest to the address."""

    kind: ReportKind
    kernel: str
    """The kernel's name."""
    line: int
    """The PTX line, or the byte offset in machine code."""
    instruction: str
    """The text of the instruction."""
    block: tuple[int, int, int] | None
    thread: tuple[int, int, int] | None
    """Workgroup and thread in it, each x, y, z. Both None for a finding about the code, before any thread runs."""
    access: str
    """"read", "write", "atomic", or "" if the finding is about no access."""
    address: int | None
    """The address accessed; None if the finding is about no access."""
    size: int
    """Bytes of the access; 0 if the finding is about no access."""
    nearest: str
    """A description of the allocation nearest to the address; "" if there is none."""
    other: str = ""
    """A description of the other access of a race, or of the operation that was not waited for; "" if there is none."""

    def __str__(self) -> str:
        where = (
            ""
            if self.address is None
            else f" at {self.address:#x} ({self.access or 'access'} of {self.size} bytes)"
        )
        text = f"{self.kind.text}{where} in {self.kernel}, line {self.line}: {self.instruction}"
        if self.thread is not None:
            text += f"; thread {self.thread} of block {self.block}"
        if self.nearest:
            text += f"; nearest: {self.nearest}"
        return text + (f"; against {self.other}" if self.other else "")


_PATTERN = re.compile(
    rf"(?P<kind>{'|'.join(re.escape(text) for text in _TEXTS.values())})"
    r"(?: at 0x(?P<address>[0-9a-f]+) \((?P<access>\w+) of (?P<size>\d+) bytes\))?"
    r" in (?P<kernel>[^,\n]+), line (?P<line>\d+): (?P<instruction>[^\n]*?)"
    r"(?:; thread \((?P<tx>\d+), (?P<ty>\d+), (?P<tz>\d+)\) of block \((?P<bx>\d+), (?P<by>\d+), (?P<bz>\d+)\))?"
    r"(?:; nearest: (?P<nearest>[^;\n]*))?"
    r"(?:; against (?P<other>[^\n]*?))?"
    r"(?=; source: |; kernel: |; pc |; at |; PTX line |\n|$)(?:; source: (?P<source>[^;\n]*))?"
    r"(?:; kernel: (?P<name>[^;\n]*))?"
)


def parse(text: str) -> list[tuple[KernelReport, str]]:
    """Return each finding that a text contains in the form of `str(KernelReport)`, with its "file:line".

    The text may continue a finding with "; source: FILE:LINE" and "; kernel: NAME". Without the first, "file:line" is "".
    The second replaces the name of the kernel.
    """
    found = []
    for one in _PATTERN.finditer(text):
        kind = next(kind for kind, words in _TEXTS.items() if words == one["kind"])
        report = KernelReport(
            kind=kind,
            kernel=one["name"] or one["kernel"],
            line=int(one["line"]),
            instruction=one["instruction"],
            block=_point(one, "b"),
            thread=_point(one, "t"),
            access="" if one["access"] in {None, "access"} else one["access"],
            address=int(one["address"], 16) if one["address"] else None,
            size=int(one["size"] or 0),
            nearest=one["nearest"] or "",
            other=one["other"] or "",
        )
        found.append((report, one["source"] or ""))
    return found


def _point(found: re.Match[str], what: str) -> tuple[int, int, int] | None:
    """Return the x, y and z of a thread ("t") or a block ("b") from a match of `_PATTERN`; None if it has none."""
    if found[f"{what}x"] is None:
        return None
    return int(found[f"{what}x"]), int(found[f"{what}y"]), int(found[f"{what}z"])
