"""Fault reports, from events and exceptions of the kernel driver: page faults, resets, stopped queues.

For a page fault the kernel driver reports the page, but neither the GPU kernel nor the queue. `hcq.faults`
adds the submissions in flight and the oldest unfinished GPU kernel. An emulated GPU also reports the program
counter, from which `located` finds the GPU kernel and its source line.

Not here: waking a waiting thread (`events`), the line tables of code objects (`lines`), the text for users
(`hcq.faults.messages`). Next: `device`, which polls for faults.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, Literal

from drivers.amd.events import Report
from drivers.amd.layouts.aql import INACTIVE_TEXT, Inactive
from drivers.amd.layouts.events import (
    EXCEPTION_TEXT,
    MemoryError_,
    QueueException,
    ResetCause,
    ResetType,
    exceptions,
    kfd_hsa_hw_exception_data,
    kfd_hsa_memory_exception_data,
)
from drivers.amd.memory import AmdMemory
from drivers.amd.program import AmdProgram
from drivers.shared.memorymap import MemoryMap
from hcq.errors import FaultKind, FaultReport

_PAGE: Final = 4096
_COUNTER: Final = re.compile(r"; pc (0x[0-9a-f]+)")
"""The program counter in a report of the kernel driver."""
_NULL_BYTES: Final = 0x10000
"""Nothing is mapped below this address: an access there went through a null pointer."""
_MEMORY_ERRORS: Final[Mapping[int, str]] = MappingProxyType(
    {
        MemoryError_.SRAM_ECC: "an uncorrectable error of the GPU's memory",
        MemoryError_.POISON_CONSUMED: "the GPU read memory that is known to be corrupt",
        MemoryError_.GPU_HANG: "the GPU hangs",
    }
)
_KINDS: Final[Mapping[int, FaultKind]] = MappingProxyType(
    {
        **{
            code: FaultKind.ENGINE_EXCEPTION
            for code in QueueException
            if code < QueueException.PACKET_DISPATCH_DIM_INVALID
        },
        **{
            code: FaultKind.BAD_PACKET
            for code in QueueException
            if QueueException.PACKET_DISPATCH_DIM_INVALID <= code < QueueException.PREEMPTION_ERROR
        },
        QueueException.PREEMPTION_ERROR: FaultKind.HANG,
        QueueException.WAVE_MEMORY_VIOLATION: FaultKind.PAGE_FAULT,
        QueueException.DEVICE_MEMORY_VIOLATION: FaultKind.PAGE_FAULT,
        QueueException.DEVICE_FATAL_HALT: FaultKind.RESET,
    }
)
"""Exception -> kind; others are `FaultKind.QUEUE_ERROR`."""
_LOG: Final = "`dmesg | grep -E 'amdgpu|kfd'`"
_PAGE_CURE: Final = (
    "a kernel or a copy of this program did it: run it on amd-emu with HCQ_EMU_CHECKED=1, which names "
    "kernel and line; then start a new process, as Linux keeps this one off the GPU"
)
_QUEUE_CURE: Final = (
    "a kernel or packet of this program did it: run it on amd-emu with HCQ_EMU_CHECKED=1; Device.recover() "
    "goes on"
)
_RESET_CURE: Final = (
    f"start a new process: nothing of this one is valid on the GPU any more; {_LOG} names the process and "
    "ring that hung"
)
_MEMORY_CURE: Final = (
    f"start a new process; {_LOG} and /sys/class/drm/card*/device/ras/*_err_count show the errors, and a "
    "card that does it again needs replacing"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """State of the device when a fault is reported."""

    device: str
    """The device's name: "amd:0"."""
    memory: MemoryMap[AmdMemory]
    launched: tuple[str, ...]
    """Names of the GPU kernels that were encoded last, the oldest first."""
    stuck: str
    """The position of each ring, or of the faulting ring; "": all is read."""
    reports: tuple[str, ...]
    """Reports of the kernel driver (`Kernel.diagnostics`)."""
    programs: Sequence[AmdProgram] = ()
    """The loaded programs, in which program counters are looked up."""

    def report(
        self, kind: FaultKind, line: str, *, cure: str, queue: str | None = None, raw: tuple[object, ...]
    ) -> FaultReport:
        """Return a report: the message `line`, the GPU kernels encoded last, and the state of the device.

        `raw` are the values that the kernel driver reported.
        """
        names = tuple(dict.fromkeys(self.launched))
        last = f"\n  encoded last: {', '.join(names)}" if names else ""
        reports, places = located(self.reports, self.programs)
        kernel, source = places[0] if places else (None, "")
        return FaultReport(
            device=self.device,
            kind=kind,
            message=line + last,
            kernel=kernel,
            source=source,
            queue=queue,
            stuck_at=self.stuck,
            reports=reports,
            raw=raw,
            cure=cure,
        )


def located(
    reports: Sequence[str], programs: Sequence[AmdProgram]
) -> tuple[tuple[str, ...], list[tuple[str, str]]]:
    """Find the GPU kernel and the source line of each program counter in `reports`.

    Return the reports with "; source: file.py:12; kernel: NAME" before each "; pc 0x...", and a list of
    (kernel, source) in the same order. If the code object records no source line, the report has no source,
    and the list has a text that says so. Program counters outside `programs` are left unchanged.
    """
    places: list[tuple[str, str]] = []

    def found(counter: re.Match[str]) -> str:
        va = int(counter[1], 16)
        program = next((one for one in programs if one.holds(va)), None)
        if program is None:
            return counter[0]
        name, why = program.image.name, "no source line"
        try:
            place = program.source_at(va)
        except ValueError as error:
            place, why = "", str(error)
        places.append((name, place or f"{va - program.va:#x} in the image of {name}, which has {why}"))
        return f"{'; source: ' * bool(place)}{place}; kernel: {name}{counter[0]}"

    return tuple(_COUNTER.sub(found, text) for text in reports), places


def of_memory(scene: Scene, data: kfd_hsa_memory_exception_data) -> FaultReport:
    """Return the report of a MEMORY event."""
    failure, va = data.failure, data.va
    if data.ErrorType:
        kind = FaultKind.HANG if data.ErrorType == MemoryError_.GPU_HANG else FaultKind.RESET
        what = _MEMORY_ERRORS.get(data.ErrorType, f"memory error {int(data.ErrorType)}")
        return scene.report(kind, what, cure=_MEMORY_CURE, raw=(data,))
    access: Literal["read", "write", "execute"] = "write" if failure.ReadOnly else "read"
    if failure.NoExecute:
        access = "execute"
    line = f"a GPU page fault: {_why(data)}; the kernel took all queues of this process off the GPU"
    report = scene.report(FaultKind.PAGE_FAULT, line, cure=_PAGE_CURE, raw=(data,))
    return replace(report, va=va, access=access, nearest=scene.memory.nearest(va))


def _why(data: kfd_hsa_memory_exception_data) -> str:
    failure, va = data.failure, data.va
    page = f"the page {va:#x} to {va + _PAGE - 1:#x}"
    if va < _NULL_BYTES:
        return f"{page} is next to address 0: a null pointer"
    if failure.NoExecute:
        return f"{page} is not executable"
    if failure.NotPresent:
        return f"{page} is not mapped"
    return f"{page} is mapped, but not for this access" + (": it is read-only" if failure.ReadOnly else "")


def of_reset(scene: Scene, data: kfd_hsa_hw_exception_data) -> FaultReport:
    """Return the report of an HW_EXCEPTION event."""
    hang, whole = data.reset_cause == ResetCause.GPU_HANG, data.reset_type == ResetType.WHOLE_GPU
    cause = (
        ("a hang" + " of this process or of another one" * whole) if hang else "an uncorrectable memory error"
    )
    what = "the whole GPU was reset" if whole else "a queue of this process was reset"
    cure = (_RESET_CURE if whole else _QUEUE_CURE) if hang else _MEMORY_CURE
    lost = "; what video memory held is lost" if data.memory_lost else ""
    kind = FaultKind.RESET if whole else FaultKind.HANG
    return scene.report(kind, f"{what} after {cause}{lost} (event HW_EXCEPTION)", cure=cure, raw=(data,))


def of_queue(scene: Scene, label: str, mask: int) -> FaultReport:
    """Return the report of a queue's exceptions; bit n of `mask` is the exception with code n + 1."""
    codes = exceptions(mask)
    texts = [EXCEPTION_TEXT.get(code, code.name.lower()) for code in codes]
    unknown = mask & ~sum(1 << code - 1 for code in codes)
    if unknown:
        texts.append(f"unknown exceptions {unknown:#x}")
    kind = next((_KINDS[code] for code in codes if code in _KINDS), FaultKind.QUEUE_ERROR)
    return scene.report(
        kind, f"the queue stopped: {', '.join(texts)}", queue=label, raw=tuple(codes), cure=_QUEUE_CURE
    )


_INACTIVE_KINDS: Final[Mapping[int, FaultKind]] = MappingProxyType(
    {
        Inactive.MEMORY_VIOLATION: FaultKind.PAGE_FAULT,
        Inactive.ILLEGAL_INSTRUCTION: FaultKind.ENGINE_EXCEPTION,
        Inactive.TRAP: FaultKind.ENGINE_EXCEPTION,
    }
)
"""Reason for which the packet processor stopped a queue -> kind; other reasons are `BAD_PACKET`."""


def of_inactive(scene: Scene, label: str, code: int) -> FaultReport:
    """Return the report of an AQL queue that the packet processor stopped; `code` has bits of `Inactive`."""
    texts = [text for bit, text in INACTIVE_TEXT.items() if code & bit] or [f"unknown code {code:#x}"]
    kind = next((found for bit, found in _INACTIVE_KINDS.items() if code & bit), FaultKind.BAD_PACKET)
    line = f"the packet processor stopped the queue: {', '.join(texts)}"
    return scene.report(kind, line, queue=label, raw=(Inactive(code),), cure=_QUEUE_CURE)


def of_copy_queue(scene: Scene, label: str) -> FaultReport:
    """Return the report of a copy queue of which the kernel driver reported a fault."""
    line = "the copy queue stopped"
    return scene.report(FaultKind.QUEUE_ERROR, line, queue=label, raw=(), cure=_QUEUE_CURE)


def final(report: Report) -> bool:
    """Return whether a report is a reset of the whole GPU, after which no handle of the process is valid."""
    return isinstance(report, kfd_hsa_hw_exception_data) and report.reset_type == ResetType.WHOLE_GPU
