"""The table of NVIDIA's first-run mistakes and surprises, and the emulated kernel driver that injects them.

Sources of what a real driver and GPU do: nv.c of open-gpu-kernel-modules for errnos of open and ioctl,
nvstatuscodes.h for statuses, NVIDIA's catalog of Xid errors for codes and resolutions (docs/sources.md).

Not here: how a row is run and checked (`row`). Next: `emulator.shared.surprises`, the keys of a
row's tables.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any, Final

from drivers.nv.driver import NvDriver
from drivers.nv.layouts.status import NvStatus
from emulator.nv.machine import open_machine
from emulator.nv.reports import ChannelError, FindingKind
from emulator.shared.surprises import LOST, StatusReply
from hcq.errors import DeviceFault, OutOfMemoryError, SignalTimeout, UnsupportedError
from tests.support.surprises.row import Row, card

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from emulator.nv.machine.kernel import NvKernel

DEVICE: Final = "nv-emu"
_CTL, _GPU, _UVM = "open /dev/nvidiactl", "open /dev/nvidia0", "open /dev/nvidia-uvm"
_VRAM, _CHANNEL = "RM_ALLOC NV01_MEMORY_LOCAL_USER", "RM_ALLOC HOPPER_CHANNEL_GPFIFO_A"


class Machine:
    """An emulated NVIDIA GPU and its driver (`row.Machine`)."""

    def __init__(self, kernel: NvKernel) -> None:
        self._kernel = kernel

    def driver(self) -> NvDriver:
        """Return a new driver on the machine. Each has its own RM client, as a process has."""
        return NvDriver("nv", lambda _: self._kernel, emulated=True)

    def set(self, table: Mapping[str, object]) -> None:
        """Replace the surprises."""
        self._kernel.machine.surprises.table = table

    def leaks(self) -> list[str]:
        """Return open files, RM clients, pinned pages and used video memory."""
        machine = self._kernel.machine
        left = [file.path for file in self._kernel.files.values()] + [
            f"client {one:#x}" for one in machine.clients
        ]
        return (
            left
            + [f"pinned {one.label}" for one in machine.pinned]
            + [f"{machine.gpus[0].vram_used} bytes of video memory"] * bool(machine.gpus[0].vram_used)
        )


def machine(row: Row) -> Machine:
    """Return the machine of a row, with the row's surprises from the start."""
    return Machine(open_machine(surprises=row.at_open, **row.machine))


def _card(driver: str) -> dict[str, object]:
    return card("0000:01:00.0", driver, vendor=0x10DE, kind=0x030200, event="PCI_CLASS=30200")


def _xid(code: int) -> Callable[[Any, Any], None]:
    """Return a function that stops a channel with an Xid code, which its error notifier reports."""

    def stop(machine: Any, run: Any) -> None:
        machine.stop(run, ChannelError(code, FindingKind.HOST, "made by a test"))

    return stop


def _row_of_xid(code: int, name: str, what: str, cause: str, cure: str, **more: Any) -> Row:
    """Return the row of a channel that stops with an Xid code after a doorbell."""
    return Row(
        name=name,
        what=f"Xid {code}: {what}",
        later={"doorbell #1": _xid(code)},
        error=DeviceFault,
        cause=cause,
        evidence=rf"code {code} \(Xid\)",
        cure=cure,
        again=more.pop("again", "recover"),
        **more,
    )


_RESET: Final = r"hint: .*nvidia-smi --gpu-reset"

ROWS: Final = (
    Row(
        name="no-module",
        what="a card without a driver: the module is not loaded, or Secure Boot refuses it",
        at_open={_CTL: errno.ENOENT, **_card("")}, cause="the card 0000:01:00.0, which no driver owns",
        evidence="open /dev/nvidiactl failed with ENOENT", cure="modprobe nvidia.*Secure Boot",
    ),
    Row(
        name="no-gpu", what="no NVIDIA card at all", at_open={_CTL: errno.ENOENT},
        cause="no NVIDIA GPU is here", evidence="/dev/nvidiactl failed with ENOENT",
        cure="modprobe nvidia nvidia-uvm.*--gpus all",
    ),
    Row(
        name="nouveau", what="another driver owns the card (nouveau, vfio-pci)",
        at_open={_CTL: errno.ENOENT, **_card("nouveau")}, cause="the card 0000:01:00.0, which nouveau owns",
        evidence="/dev/nvidiactl failed with ENOENT", cure="blacklist the other driver and reboot",
    ),
    Row(
        name="wsl", what="the Windows Subsystem for Linux, which has /dev/dxg only",
        at_open={_CTL: errno.ENOENT, "list /dev": ["dxg", "null"]},
        cause="this is WSL, whose only GPU node is /dev/dxg", evidence="/dev/nvidiactl failed with ENOENT",
        cure="run on Linux itself",
    ),
    Row(
        name="no-root", what="the nodes belong to a group of which the user is no member",
        at_open={_CTL: errno.EACCES}, cause="you may not open /dev/nvidiactl",
        evidence="failed with EACCES", cure="add your user to the group that owns it, or run as root",
    ),
    Row(
        name="container-policy", what="a container whose device cgroup forbids the GPU, or an excluded GPU",
        at_open={_GPU: errno.EPERM}, cause="the container or device policy forbids it.*excluded",
        evidence="open /dev/nvidia0 failed with EPERM", cure="pass the GPU through.*NVreg_ExcludedGpus",
    ),
    Row(
        name="container-node", what="a container without the GPU's node",
        at_open={_GPU: errno.ENOENT, **_card("nvidia")},
        cause="which nvidia owns: only the node is missing",
        evidence="open /dev/nvidia0 failed with ENOENT", cure="--gpus",
    ),
    Row(
        name="seccomp", what="a filter of system calls refuses ioctls on the nodes",
        at_open={"NV_ESC_CARD_INFO": errno.EPERM}, cause="a filter of system calls",
        evidence=r"NV_ESC_CARD_INFO \(all\) failed with EPERM", cure="seccomp=unconfined",
    ),
    Row(
        name="stale-node", what="the node exists, its driver does not", at_open={_CTL: errno.ENXIO},
        cause="the node exists but has no driver", evidence="failed with ENXIO",
        cure="modprobe nvidia nvidia-uvm",
    ),
    Row(
        name="node-of-another-driver", what="the node's major number is that of another driver now",
        at_open={"NV_ESC_*": errno.ENOTTY}, cause="the node is not NVIDIA's, its major number changed",
        evidence="failed with ENOTTY", cure="nvidia-modprobe -c 0 -u",
    ),
    Row(
        name="no-uvm", what="nvidia-uvm is not loaded", at_open={_UVM: errno.ENOENT},
        cause="its node is missing", evidence="open /dev/nvidia-uvm failed with ENOENT",
        cure="modprobe nvidia nvidia-uvm",
    ),
    Row(
        name="firmware", what="GSP firmware is missing or of another version: the GPU is not brought up",
        at_open={_GPU: errno.EIO}, cause="could not bring the GPU up.*GSP",
        evidence="open /dev/nvidia0 failed with EIO", cure=r"dmesg \| grep NVRM.*install the driver again",
    ),
    Row(
        name="branch", what="a driver branch whose structures are not known",
        at_open={
            "read /proc/driver/nvidia/version": b"NVRM version: NVIDIA UNIX Open Kernel Module  615.78.08\n",
        },
        error=UnsupportedError, cause="its structures are not known here",
        evidence=r"NVIDIA driver 615\.78\.08", cure="install a driver of branch 570, 580, 590, 595",
    ),
    Row(
        name="structure", what="a build of a known branch with another structure",
        at_open={"RM_ALLOC HOPPER_CHANNEL_GPFIFO_A": StatusReply(NvStatus.INVALID_PARAM_STRUCT)},
        cause="not what this driver branch expects",
        evidence=r"GPFIFO_A failed with NV_ERR_INVALID_PARAM_STRUCT \(0x3a\)", cure="hcq bringup --to 3",
    ),
    Row(
        name="sandbox-class", what="a sandbox that does not list a class",
        at_open={"RM_ALLOC HOPPER_USERMODE_A": StatusReply(NvStatus.INVALID_CLASS)},
        cause="a sandbox filters it", evidence="HOPPER_USERMODE_A failed with NV_ERR_INVALID_CLASS",
        cure="try outside the sandbox",
    ),
    Row(
        name="mig", what="MIG mode without an instance",
        at_open={"RM_CONTROL NV2080_CTRL_CMD_GR_GET_INFO": StatusReply(NvStatus.INVALID_STATE)},
        error=UnsupportedError, cause="seems to be in MIG mode",
        evidence="GR_GET_INFO failed with NV_ERR_INVALID_STATE", cure="nvidia-smi -mig 0",
    ),
    Row(
        name="held", what="the GPU is taken out of use, or held by another process",
        at_open={_GPU: errno.EBUSY}, cause="taken out of use or held by another process",
        evidence="open /dev/nvidia0 failed with EBUSY", cure="nvidia-smi.*try again",
    ),
    Row(
        name="rights", what="no right to the device object (a container's or MIG's capabilities)",
        at_open={"RM_ALLOC NV01_DEVICE_0": StatusReply(NvStatus.INSUFFICIENT_PERMISSIONS)},
        cause="needs root, or the container has no right", evidence="NV_ERR_INSUFFICIENT_PERMISSIONS",
        cure="--gpus",
    ),
    Row(
        name="no-channels", what="other processes have all channels",
        at_open={_CHANNEL: StatusReply(NvStatus.INSUFFICIENT_RESOURCES)}, error=OutOfMemoryError,
        cause="out of channels", evidence="NV_ERR_INSUFFICIENT_RESOURCES",
        cure="end processes that use the GPU",
    ),
    Row(
        name="no-video-memory", what="another process has the video memory",
        later={_VRAM: StatusReply(NvStatus.NO_MEMORY)}, does="alloc", error=OutOfMemoryError,
        cause="64 MiB of video memory were asked for",
        evidence="NV01_MEMORY_LOCAL_USER failed with NV_ERR_NO_MEMORY",
        cure="close buffers, or check with nvidia-smi",
    ),
    Row(
        name="small-bar", what="BAR1 of 256 MiB is full, or confidential computing forbids the mapping",
        at_open={"NVOS33_PARAMETERS": StatusReply(NvStatus.NO_MEMORY)}, error=OutOfMemoryError,
        cause="BAR1 is full or too small", evidence="RM_MAP_MEMORY failed with NV_ERR_NO_MEMORY",
        cure="Resizable BAR",
    ),
    Row(
        name="locked-memory", what="pages of this process cannot be pinned",
        at_open={"NVOS02_PARAMETERS": StatusReply(NvStatus.INVALID_ADDRESS)}, cause="cannot be pinned",
        evidence="OS_DESCRIPTOR failed with NV_ERR_INVALID_ADDRESS", cure="ulimit -l",
    ),
    Row(
        name="files", what="the limit of open files", at_open={_UVM: errno.EMFILE},
        cause="too many files open", evidence="failed with EMFILE", cure="ulimit -n",
    ),
    Row(
        name="fabric-manager", what="NVSwitches without their manager",
        at_open={"UVM_REGISTER_GPU": StatusReply(NvStatus.FABRIC_MANAGER_NOT_PRESENT)},
        cause="NVSwitches have no manager", evidence="NV_ERR_FABRIC_MANAGER_NOT_PRESENT",
        cure="systemctl start nvidia-fabricmanager",
    ),
    Row(
        name="gsp-timeout", what="the firmware does not answer a call (Xid 119 in the log)",
        at_open={"RM_CONTROL NVA06C_CTRL_CMD_GPFIFO_SCHEDULE": StatusReply(NvStatus.TIMEOUT)},
        cause=r"firmware \(GSP\) does not answer", evidence="GPFIFO_SCHEDULE failed with NV_ERR_TIMEOUT",
        cure=_RESET,
    ),
    Row(
        name="lost-at-open", what="the GPU is off the bus when it is opened",
        at_open={"RM_CONTROL NV2080_CTRL_CMD_GR_GET_INFO": StatusReply(NvStatus.GPU_IS_LOST)},
        cause="does not answer on PCI Express any more", evidence="NV_ERR_GPU_IS_LOST",
        cure="power the machine off",
    ),
    Row(
        name="resetting", what="another process resets the GPU",
        at_open={"RM_ALLOC NV01_DEVICE_0": StatusReply(NvStatus.GPU_IN_FULLCHIP_RESET)},
        cause="being reset, by another process", evidence="NV_ERR_GPU_IN_FULLCHIP_RESET",
        cure="close the device and open it again",
    ),
    Row(
        name="reset-required", what="an earlier error left the GPU unusable",
        at_open={_CHANNEL: StatusReply(NvStatus.RESET_REQUIRED)},
        cause="an earlier error left the GPU unusable", evidence="NV_ERR_RESET_REQUIRED", cure=_RESET,
    ),
    Row(
        name="suspended", what="the GPU sleeps",
        later={"RM_ALLOC *": StatusReply(NvStatus.GPU_NOT_FULL_POWER)}, does="alloc",
        cause="the GPU sleeps", evidence="NV_ERR_GPU_NOT_FULL_POWER", cure="after the resume",
    ),
    Row(
        name="forked", what="a forked child uses its parent's descriptors",
        later={"NV_ESC_RM_ALLOC": errno.EBADF}, does="alloc",
        cause="forked from the one that opened the device", evidence="NV_ESC_RM_ALLOC .* failed with EBADF",
        cure="open it here, or spawn",
    ),
    Row(
        name="off-the-bus", what="registers read as all ones, and no notifier is written",
        later={"clock": LOST, "doorbell": LOST}, error=DeviceFault, cause="the GPU has fallen off the bus",
        evidence="TIME_1 reads 0xffffffff", cure="power the machine off and on", again="new", others=False,
    ),
    Row(
        name="doorbell-lost", what="a doorbell does not arrive: the ring is never read",
        later={"doorbell #1": LOST}, error=SignalTimeout,
        cause="the doorbell did not reach the GPU, or its scheduler",
        evidence=r"fetched \d+ of \d+ submissions, put index \d+", cure="hcq bringup", again="retry",
    ),
    _row_of_xid(
        13, "xid-13", "an exception of a kernel", "graphics engine exception", "HCQ_EMU_CHECKED=1.*recover",
    ),
    _row_of_xid(
        31, "xid-31", "a page fault", "MMU fault: a page that is not mapped", "HCQ_EMU_CHECKED=1.*recover",
    ),
    _row_of_xid(32, "xid-32", "a malformed push buffer", "host error", "HCQ_EMU_CHECKED=1.*recover"),
    _row_of_xid(
        43, "xid-43", "stopped after another error", "stopped after another error",
        "another error came first",
    ),
    _row_of_xid(
        45, "xid-45", "removed, such as by a reset of another process", "the channel was removed",
        "reset the GPU: .*dmesg",
    ),
    _row_of_xid(
        48, "xid-48", "an uncorrectable memory error", "uncorrectable memory error", _RESET, again="new",
    ),
    _row_of_xid(63, "xid-63", "rows of memory were remapped", "remapped to spare rows", "ROW_REMAPPER"),
    _row_of_xid(
        69, "xid-69", "a bad method", "a bad method of the graphics class", "HCQ_EMU_CHECKED=1.*recover",
    ),
    _row_of_xid(74, "xid-74", "a link failed", "NVLink", "nvidia-smi nvlink -e", again="new"),
    _row_of_xid(
        79, "xid-79", "off the bus", "fallen off the bus", "power the machine off and on", again="new",
    ),
    _row_of_xid(
        94, "xid-94", "a contained memory error", "contained memory error: only",
        "start this program again",
    ),
    _row_of_xid(
        95, "xid-95", "an uncontained memory error", "uncontained memory error", _RESET, again="new",
    ),
    _row_of_xid(109, "xid-109", "a kernel that does not end", "context switch timeout", "names the loop"),
    _row_of_xid(
        119, "xid-119", "the firmware does not answer", r"firmware \(GSP\) does not answer", _RESET,
        again="new",
    ),
    _row_of_xid(154, "xid-154", "a reset is wanted", "must be reset", "recovery action", again="new"),
    _row_of_xid(
        168, "xid-unknown", "a code of a newer driver", "see the list of Xid codes",
        "docs.nvidia.com/deploy/xid-errors",
    ),
)  # fmt: skip
"""All rows, in the order of a first run."""
