"""The table of AMD's first-run mistakes and surprises, and the emulated kernel and GPU that inject them.

Sources of what a real kernel and GPU do: Linux amdkfd and amdgpu. docs/sources-amd.md has them, with the
facts on events and resets.

Not here: how a row is run and checked (`row`). Next: `emulator.shared.surprises`, the keys of a
row's tables.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any, Final

from drivers.amd.driver import AmdDriver
from drivers.amd.layouts.events import (
    EventType,
    MemoryError_,
    QueueException,
    ResetCause,
    ResetType,
    kfd_hsa_hw_exception_data,
    kfd_hsa_memory_exception_data,
)
from drivers.amd.layouts.kfd import ENOTSUPP
from drivers.amd.layouts.topology import ROOT
from emulator.amd.engines.engines import AmdEngines
from emulator.amd.machine import open_machine
from emulator.amd.reports import FindingKind, MemoryFault, QueueFault
from emulator.shared.surprises import LOST, After
from emulator.simt.engine import Settings
from hcq.errors import DeviceFault, HcqError, OutOfMemoryError, SignalTimeout, UnsupportedError, UsageError
from tests.support.surprises.row import Row, card

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from emulator.amd.machine.kernel import AmdKernel

DEVICE: Final = "amd-emu"
_KFD, _RENDER = "open /dev/kfd", "open /dev/dri/renderD128"
_NODES, _NODE = f"{ROOT}/nodes", f"{ROOT}/nodes/1"
_TWO: Final = {"profiles": ("gfx1100", "gfx1100"), "other": 1}
"""Options of a row with a second GPU, number 1, which must still work."""


_SKIPPED: Final = {f"list {_NODES}": ["0"]}
"""The surprise that KFD lists no GPU, only the CPU's node."""


class Machine:
    """Emulated AMD GPUs and their driver (`row.Machine`)."""

    def __init__(self, kernel: AmdKernel) -> None:
        self._kernel = kernel
        self._driver = AmdDriver("amd", lambda _: kernel, lasting=False, emulated=True)

    def driver(self) -> AmdDriver:
        """Return the driver, the same each time: KFD has one client for all devices of a process."""
        return self._driver

    def set(self, table: Mapping[str, object]) -> None:
        """Replace the surprises."""
        self._kernel.machine.surprises.table = table

    def leaks(self) -> list[str]:
        """Return open files, and objects that the process left to KFD to free."""
        left = [file.path for file in self._kernel.files.values()]
        return left + [f"{one.kind} {one.what}" for one in self._kernel.machine.leaks]


def machine(row: Row) -> Machine:
    """Return the machine of a row, with the row's surprises from the start."""
    given = {name: value for name, value in row.machine.items() if name not in ("profiles", "other")}
    profiles = row.machine.get("profiles", ("gfx1100",))
    return Machine(open_machine(*profiles, surprises=row.at_open, engines=AmdEngines(Settings()), **given))


def _card(driver: str) -> dict[str, object]:
    return card("0000:03:00.0", driver, vendor=0x1002, kind=0x030000, event="PCI_ID=1002:744C")


def with_property(name: str, value: int) -> Callable[[bytes], bytes]:
    """Return a function that replaces a number in a file of properties."""

    def change(text: bytes) -> bytes:
        lines = text.decode().splitlines()
        return "".join(
            f"{name} {value}\n" if one.split()[0] == name else one + "\n" for one in lines
        ).encode()

    return change


def _page_fault(va: int, *, writes: bool) -> Callable[[Any, Any], None]:
    return lambda machine, queue: machine.memory_fault(
        queue, MemoryFault(va, "made by a test", writes=writes)
    )


def _memory_error(kind: MemoryError_) -> Callable[[Any, Any], None]:
    """Return a function that reports a memory error as RAS does: by a MEMORY event without an address."""

    def fire(machine: Any, queue: Any) -> None:
        payload = kfd_hsa_memory_exception_data.pack(gpu_id=queue.gpu.gpu_id, ErrorType=kind)
        machine.process.events.fire(EventType.MEMORY, payload)

    return fire


def _reset(cause: ResetCause, kind: ResetType, *, lost: bool = False) -> Callable[[Any, Any], None]:
    """Return a function that reports a reset of the GPU by an HW_EXCEPTION event."""

    def fire(machine: Any, queue: Any) -> None:
        payload = kfd_hsa_hw_exception_data.pack(
            reset_type=kind, reset_cause=cause, memory_lost=lost, gpu_id=queue.gpu.gpu_id
        )
        machine.process.events.fire(EventType.HW_EXCEPTION, payload)

    return fire


def _exception(code: QueueException) -> Callable[[Any, Any], None]:
    return lambda machine, queue: machine.stop(queue, QueueFault(FindingKind.HOST, "made by a test", code))


def _call(name: str, number: int, what: str, cause: str, cure: str, **more: Any) -> Row:
    """Return the row of the ioctl `call` that fails with errno `number` while a device opens."""
    call = more.pop("call")
    shown = "ENOTSUPP" if number == ENOTSUPP else errno.errorcode[number]
    return Row(
        name=name,
        what=what,
        at_open={call: number},
        cause=cause,
        evidence=f"{call} failed with {shown}",
        cure=cure,
        error=OutOfMemoryError if number == errno.ENOMEM else more.pop("error", HcqError),
        **more,
    )


def _fault(  # noqa: PLR0917 - a line of a table
    name: str, what: str, happens: object, cause: str, evidence: str, cure: str, **more: Any
) -> Row:
    """Return the row of a fault after a doorbell; the second GPU must still work.

    `happens` is a function of the emulated machine and the queue.
    """
    return Row(
        name=name,
        what=what,
        later={"doorbell #1": happens},
        error=DeviceFault,
        cause=cause,
        evidence=evidence,
        cure=cure,
        again=more.pop("again", "new"),
        machine=_TWO,
        **more,
    )


_LOG: Final = r"dmesg \| grep -E 'amdgpu\|kfd'"

ROWS: Final = (
    Row(
        name="no-module", what="a card without a driver: amdgpu is not loaded, or its firmware is missing",
        at_open={_KFD: errno.ENOENT, **_card("")}, cause="the card 0000:03:00.0, which no driver owns",
        evidence="open /dev/kfd failed with ENOENT", cure="modprobe amdgpu.*firmware that is missing",
    ),
    Row(
        name="no-gpu", what="no AMD card at all", at_open={_KFD: errno.ENOENT}, cause="no AMD GPU is here",
        evidence="open /dev/kfd failed with ENOENT", cure="modprobe amdgpu",
    ),
    Row(
        name="vfio", what="another driver owns the card (vfio-pci)", at_open=_card("vfio-pci") | _SKIPPED,
        error=UsageError, cause="which vfio-pci owns", evidence="the kernel's topology lists no GPU",
        cure="take it from vfio-pci",
    ),
    Row(
        name="atomics",
        what="KFD skips the card: PCI Express atomics are missing, or MEC firmware is too old",
        at_open=_card("amdgpu") | _SKIPPED, error=UsageError,
        cause="which amdgpu owns: KFD does not support it or could not start",
        evidence="the kernel's topology lists no GPU",
        cure="PCI rejects atomics.*another slot or newer linux-firmware",
    ),
    Row(
        name="wsl", what="the Windows Subsystem for Linux, which has /dev/dxg only",
        at_open={_KFD: errno.ENOENT, "list /dev": ["dxg", "null"]},
        cause="this is WSL, whose only GPU node is /dev/dxg", evidence="open /dev/kfd failed with ENOENT",
        cure="run on Linux itself",
    ),
    Row(
        name="no-group", what="the user is not in the group render", at_open={_KFD: errno.EACCES},
        cause="you may not open /dev/kfd", evidence="failed with EACCES", cure="usermod -aG render",
    ),
    Row(
        name="no-group-render", what="the same at the render node", at_open={_RENDER: errno.EACCES},
        cause="you may not open /dev/dri/renderD128", evidence="failed with EACCES",
        cure="usermod -aG render",
    ),
    Row(
        name="container-policy", what="a container whose device cgroup forbids the node",
        at_open={_KFD: errno.EPERM},
        cause="the container, its device policy or a 32-bit process forbids it",
        evidence="failed with EPERM", cure="--device /dev/kfd --device /dev/dri",
    ),
    Row(
        name="container-node", what="a container with /dev/kfd and without /dev/dri",
        at_open={_RENDER: errno.ENOENT, **_card("amdgpu")}, cause="its node is missing",
        evidence="open /dev/dri/renderD128 failed with ENOENT", cure="--device /dev/dri",
    ),
    Row(
        name="container-sysfs", what="a container that hides /sys", at_open={"list /sys/*": errno.ENOENT},
        cause="the container hides /sys", evidence=f"failed with ENOENT .*{ROOT}", cure="modprobe amdgpu",
    ),
    Row(
        name="cgroup", what="the device cgroup hides the GPU's properties", machine={"masked": (0,)},
        error=UsageError, cause="a container must be given", evidence="lists no GPU",
        cure="/dev/kfd and /dev/dri", again="never",
    ),
    Row(
        name="seccomp", what="a filter of system calls refuses ioctls",
        at_open={"GET_VERSION": errno.EPERM}, cause="a filter of system calls",
        evidence="KFD GET_VERSION failed with EPERM", cure="seccomp=unconfined",
    ),
    Row(
        name="stale-node", what="the node exists, its driver does not", at_open={_KFD: errno.ENXIO},
        cause="the node exists but no driver answers", evidence="failed with ENXIO", cure="modprobe amdgpu",
    ),
    Row(
        name="resetting", what="the GPU is being reset, or the machine suspends, while /dev/kfd is opened",
        at_open={_KFD: errno.EAGAIN}, cause="the GPU is being reset, or the machine suspends",
        evidence="failed with EAGAIN", cure=f"try again.*{_LOG}",
    ),
    Row(
        name="locked", what="the same on kernels that answer EINVAL", at_open={_KFD: errno.EINVAL},
        cause="closed for a reset", evidence="failed with EINVAL", cure="try again",
    ),
    Row(
        name="files", what="the limit of open files", at_open={_RENDER: errno.EMFILE},
        cause="too many files open", evidence="failed with EMFILE", cure="ulimit -n",
    ),
    Row(
        name="unsupported-target", what="a GPU that is not driven (an integrated one, an old one)",
        at_open={f"read {_NODE}/properties": with_property("gfx_target_version", 100306)},
        error=UnsupportedError, cause="gfx1036", evidence="gfx1036", cure="gfx1100",
    ),
    Row(
        name="topology", what="properties that cannot be true (another KFD module)",
        at_open={f"read {_NODE}/properties": with_property("simd_per_cu", 0)}, error=HcqError,
        cause="the topology cannot be true", evidence="simd_per_cu 0", cure="hint: .*kernel module",
    ),
    Row(
        name="no-render-node", what="a GPU without a render node",
        at_open={f"read {_NODE}/properties": with_property("drm_render_minor", 0)}, error=UnsupportedError,
        cause="has no render node", evidence="the topology names none", cure="pass /dev/dri through",
    ),
    Row(
        name="unplugged", what="the GPU is removed, or does not come back from a suspend",
        at_open={"0xc0206445": errno.ENODEV, "0x40206445": errno.ENODEV},
        cause="the GPU was removed, or did not come back",
        evidence="AMDGPU_INFO DEV_INFO failed with ENODEV", cure="start a new process",
    ),
    _call(
        "rocm-in-process", errno.EBUSY, "ROCm or HIP is loaded in this process", "another KFD library",
        "a process of its own", call="ACQUIRE_VM",
    ),
    _call(
        "partition", errno.EINVAL, "the partition mode of an MI300 was changed: the GPU has gone",
        "partition mode was changed", "open it again", call="ACQUIRE_VM",
    ),
    _call(
        "event-page", errno.EINVAL, "another KFD library owns the event page", "has an event page already",
        "a process of its own", call="CREATE_EVENT",
    ),
    _call(
        "no-memory-at-open", errno.ENOMEM, "the limit of KFD's system memory, or video memory is full",
        "memory", "close", call="ALLOC_MEMORY_OF_GPU",
    ),
    _call(
        "page-tables", errno.ENOMEM, "the page tables find no room", "page tables found no room",
        "close buffers", call="MAP_MEMORY_TO_GPU",
    ),
    _call(
        "geometry", errno.EINVAL, "the kernel refuses the sizes of a queue's memory",
        "compares ring, pointer page", _LOG, call="CREATE_QUEUE",
    ),
    _call(
        "no-queues", errno.ENOSPC, "this process has all its queues", "all the queues that one may have",
        "close devices", call="CREATE_QUEUE",
    ),
    _call(
        "no-hardware-queues", errno.EPERM, "other programs have all hardware queues",
        "all queues of the GPU are in use", "close other programs", call="CREATE_QUEUE",
    ),
    _call(
        "old-kernel-queue", ENOTSUPP, "a type of queue that the kernel does not know",
        "does not know this type", "a newer one", call="CREATE_QUEUE",
    ),
    _call(
        "mes-hang", errno.ETIMEDOUT, "the scheduler firmware hangs (MES; old firmware)",
        "MES.*does not answer", "newer linux-firmware", call="CREATE_QUEUE",
    ),
    _call(
        "scheduler-reset", errno.EIO, "the scheduler is stopped for a reset",
        "being reset or its scheduler", _LOG, call="CREATE_QUEUE",
    ),
    Row(
        name="doorbell-page", what="the doorbell page cannot be mapped",
        at_open={"mmap doorbell": errno.EPERM}, cause="a filter of system calls",
        evidence="mmap failed with EPERM", cure="seccomp",
    ),
    Row(
        name="no-video-memory", what="another program has the video memory",
        later={"ALLOC_MEMORY_OF_GPU": errno.ENOMEM}, does="alloc", error=OutOfMemoryError, cause="are free",
        evidence="ALLOC_MEMORY_OF_GPU failed with ENOMEM", cure="mem_info_vram_used|close", machine=_TWO,
    ),
    Row(
        name="forked", what="a forked child uses its parent's descriptors",
        later={"ALLOC_MEMORY_OF_GPU": errno.EBADF}, does="alloc",
        cause="forked from the one that opened the device", evidence="failed with EBADF",
        cure="open it here, or spawn", machine=_TWO,
    ),
    Row(
        name="doorbell-lost", what="a doorbell does not arrive: the ring is never read",
        later={"doorbell #1": LOST}, error=SignalTimeout,
        cause="the doorbell did not reach the GPU, or its scheduler", evidence=r"read \d+ of \d+ words",
        cure="hcq bringup", again="retry", machine=_TWO,
    ),
    _fault(
        "page-fault-read", "a kernel or copy reads what is not mapped",
        _page_fault(0x7_0000_1000, writes=False), "a GPU page fault: the page .* is not mapped",
        "0x700001000", "HCQ_EMU_CHECKED=1.*new process",
    ),
    _fault(
        "page-fault-write", "the same at a store", _page_fault(0x7_0000_1000, writes=True),
        "a GPU page fault", r"0x700001000 \(write\)", "HCQ_EMU_CHECKED=1.*new process",
    ),
    _fault(
        "null-pointer", "an access next to address 0", _page_fault(0, writes=True), "a null pointer",
        r"0x0 \(write\)", "HCQ_EMU_CHECKED=1.*new process",
    ),
    _fault(
        "hang", "the GPU is reset after a hang of this or another process",
        _reset(ResetCause.GPU_HANG, ResetType.WHOLE_GPU),
        "the whole GPU was reset after a hang of this process or of another", "event HW_EXCEPTION",
        f"start a new process.*{_LOG}",
    ),
    _fault(
        "hang-memory-lost", "the same, and video memory is gone",
        _reset(ResetCause.GPU_HANG, ResetType.WHOLE_GPU, lost=True), "what video memory held is lost",
        "memory_lost=True", "start a new process",
    ),
    _fault(
        "queue-reset", "one queue of this process is reset",
        _reset(ResetCause.GPU_HANG, ResetType.PER_ENGINE), "a queue of this process was reset after a hang",
        "PER_ENGINE", "recover", again="recover",
    ),
    *(
        _fault(
            name,
            what,
            _exception(code),
            text,
            "the queue stopped",
            "HCQ_EMU_CHECKED=1.*recover",
            again="recover",
            does="compute",
        )
        for name, what, code, text in (
            (
                "illegal-instruction",
                "code of another GPU, or a jump into data",
                QueueException.WAVE_ILLEGAL_INSTRUCTION,
                "illegal instruction",
            ),
            (
                "aperture",
                "an address outside of LDS, scratch and memory",
                QueueException.WAVE_APERTURE_VIOLATION,
                "aperture",
            ),
            (
                "packet",
                "a packet that the processor does not know",
                QueueException.PACKET_UNSUPPORTED,
                "packet",
            ),
            (
                "preemption",
                "a wave that cannot be preempted: a hang",
                QueueException.PREEMPTION_ERROR,
                "preempt",
            ),
        )
    ),
    Row(
        name="interrupt-lost",
        what="interrupts are lost: the value is there, the event is not; waits read memory",
        later={"interrupt": LOST}, error=None, machine=_TWO,
    ),
    Row(
        name="small-bar", what="the PCI window is smaller than the video memory",
        machine={"small_bar": True}, does="visible", error=UnsupportedError,
        cause="its PCI window is smaller than the memory",
        evidence="the topology lists none that is visible", cure="Resizable BAR",
    ),
    Row(
        name="addresses-in-use", what="another library has the addresses as shared virtual memory",
        later={"ALLOC_MEMORY_OF_GPU": errno.EADDRINUSE}, does="alloc",
        cause="in use as shared virtual memory", evidence="failed with EADDRINUSE",
        cure="a process of its own", machine=_TWO,
    ),
    Row(
        name="destroy-hang", what="the scheduler does not let go of a queue (MES hang)",
        later={"DESTROY_QUEUE": After(errno.ETIME)}, does="close", cause="MES.*does not answer",
        evidence="DESTROY_QUEUE failed with ETIME", cure="amdgpu_gpu_recover", machine=_TWO,
    ),
    Row(
        name="wait-refused", what="a wait for events is refused: the GPU is reset",
        later={"WAIT_EVENTS": errno.EIO}, cause="being reset or its scheduler",
        evidence="WAIT_EVENTS failed with EIO", cure=_LOG, machine=_TWO,
    ),
    _fault(
        "ecc", "a reset after an uncorrectable memory error", _reset(ResetCause.ECC, ResetType.WHOLE_GPU),
        "an uncorrectable memory error", "ECC", "err_count",
    ),
    _fault(
        "ecc-sram", "an uncorrectable error of the GPU's SRAM", _memory_error(MemoryError_.SRAM_ECC),
        "an uncorrectable error of the GPU's memory", "SRAM_ECC", "err_count",
    ),
    _fault(
        "ecc-poison", "memory that is known to be corrupt is read",
        _memory_error(MemoryError_.POISON_CONSUMED), "known to be corrupt", "POISON_CONSUMED", "err_count",
    ),
)  # fmt: skip
"""All rows, in the order of a first run."""
