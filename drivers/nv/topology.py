"""The topology of a GPU: classes, units, engines and sizes, from queries of the resource manager.

The generation follows from the newest class of each kind that the device lists (nv.md 2.1), not from names.
Counts and sizes that no supported GPU has raise `BringUpError`, a query that the kernel driver refuses
`DriverError`.

Not here: the table of generations (`drivers.nv.layouts.chips`), the quirks (`quirks`). Next: `device`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from drivers.kernel import address_of
from drivers.nv.layouts import chips, controls
from drivers.nv.layouts.cubin import RESERVED_SHARED
from drivers.nv.layouts.host import SIGNAL_BITS
from drivers.nv.layouts.rm_classes import (
    NV0080_ALLOC_PARAMETERS,
    NV2080_ALLOC_PARAMETERS,
    RmClass,
    copy_engine,
)
from drivers.nv.layouts.status import UNUSABLE
from drivers.nv.quirks import DEFAULT, NvQuirks
from drivers.nv.refusals import mig_mode, unsupported_gpu
from drivers.nv.rm import Card, Rm
from drivers.shared.driver import device_info
from hcq.driver import DeviceInfo
from hcq.errors import BringUpError, DriverError, UnsupportedError

# Ranges that hold for every chip of the table in `chips`, whole or floor-swept. Without this check, a kernel
# driver with another layout of a reply would silently give wrong sizes or limits.
# Source: 48 or 64 warps for each SM from compute capability 8.0 to 12.x; nv.md 1.6 (512 SM records), 2.7
_WARPS: Final = range(32, 65)
_GPCS: Final = range(1, 33)
"""A mask of GPCs has 32 bits."""
_TPCS_PER_GPC: Final = range(1, 33)
_SMS_PER_TPC: Final = range(1, 5)
_MOST_SMS: Final = 512
_VRAM_BYTES: Final = range(1 << 30, 1 << 40)
_CLASSES: Final = range(1, 1025)


@dataclass(frozen=True, slots=True, kw_only=True)
class NvGpu:
    """The results of all queries of one GPU."""

    name: str
    uuid: bytes
    generation: chips.Generation
    gpfifo_class: int
    """The class of channels."""
    usermode_class: int
    """The class of the doorbell page."""
    compute_class: int
    copy_class: int
    sm_version: int
    """GR SM_VERSION: 0x900 for sm_90."""
    max_warps: int
    """Resident warps of an SM."""
    gpcs: int
    """`gpcs`, `tpcs_per_gpc` and `sms_per_tpc` are litter counts, the chip's maximum: sizes of memory that
    are computed from them suffice for every floor-swept chip."""
    tpcs_per_gpc: int
    sms_per_tpc: int
    sms: int
    """The number of SMs present."""
    gpc_sms: tuple[int, ...]
    """The number of SMs of each part in which a cluster of workgroups must lie, ascending; empty: not
    known."""
    vram_bytes: int
    bar1_bytes: int
    """The addresses through which the CPU maps video memory; without a resizable BAR 256 MiB."""
    copy_engines: tuple[int, ...]
    """NV2080 engine types of the copy engines outside the graphics run list, in order of use."""

    @property
    def wide_host(self) -> bool:
        """Whether the host engine of its channels has addresses of 57 bits and not 40."""
        return self.generation.wide_addresses and self.gpfifo_class >= chips.WIDE_CHANNEL

    @property
    def small_bar1(self) -> int:
        """The bytes of BAR1 where it cannot map all video memory; else 0."""
        return self.bar1_bytes if self.bar1_bytes < self.vram_bytes else 0

    @property
    def reports_get(self) -> bool:
        """Whether the user area of its channels reports the get index."""
        return self.gpfifo_class < chips.SILENT_CHANNEL

    @property
    def arch(self) -> str:
        """The compile target, such as "sm_90a"."""
        return self.sm + (self.chip.suffix if self.sm == self.chip.name else "")

    @property
    def sm(self) -> str:
        """The architecture without suffix, such as "sm_90"."""
        return f"sm_{chips.sm_number(self.sm_version)}"

    @property
    def chip(self) -> chips.NvChip:
        """The row of its compute capability."""
        return self.generation.chip(self.sm_version)

    def info(self, driver: str, index: int) -> DeviceInfo:
        """Return the public facts of the GPU."""
        chip = self.chip
        limits = {"max_groups_x": (1 << 31) - 1, "signal_bits": SIGNAL_BITS}
        limits["max_shared_bytes"] = (chip.carveouts_kib[-1] << 10) - RESERVED_SHARED
        limits |= {"max_cluster": chip.cluster} if chip.cluster else {}
        return device_info(driver, index, self.name, self.arch, self.vram_bytes, self.sms, limits)

    @property
    def litter_tpcs(self) -> int:
        """The number of TPCs for which local memory is sized."""
        return self.gpcs * self.tpcs_per_gpc


@dataclass(frozen=True, slots=True)
class Handles:
    """The device and subdevice objects, parents of all other objects of one GPU."""

    device: int
    subdevice: int


def open_objects(rm: Rm, card: Card) -> Handles:
    """Allocate device and subdevice of an opened GPU; they are freed with the client."""
    info: Any = rm.query(rm.root, controls.Control.NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2, gpuId=card.gpu_id)
    device = rm.alloc(
        rm.root,
        RmClass.NV01_DEVICE_0,
        NV0080_ALLOC_PARAMETERS(deviceId=info.deviceInstance, hClientShare=rm.root),
    )
    subdevice = rm.alloc(
        device, RmClass.NV20_SUBDEVICE_0, NV2080_ALLOC_PARAMETERS(subDeviceId=info.subDeviceInstance)
    )
    return Handles(device, subdevice)


def class_list(rm: Rm, device: int) -> tuple[int, ...]:
    """Return the classes that a device lists. Raises `BringUpError` if their number is implausible."""
    command = controls.Control.NV0080_CTRL_CMD_GPU_GET_CLASSLIST
    asked: Any = rm.query(device, command)
    if asked.numClasses not in _CLASSES:
        raise _implausible(rm, "", f"{asked.numClasses} classes")
    block = bytearray(4 * asked.numClasses)
    got: Any = rm.query(device, command, numClasses=asked.numClasses, classList=address_of(block))
    return tuple(memoryview(block).cast("I")[: min(asked.numClasses, got.numClasses)])


def gr_info(rm: Rm, subdevice: int, indices: Sequence[int]) -> list[int]:
    """Query values of the graphics engine by index. Raises `BringUpError` if the reply has other indices."""
    size = controls.NV2080_CTRL_GR_INFO.SIZE
    block = bytearray(b"".join(controls.NV2080_CTRL_GR_INFO.pack(index=index) for index in indices))
    rm.query(
        subdevice,
        controls.Control.NV2080_CTRL_CMD_GR_GET_INFO,
        grInfoListSize=len(indices),
        grInfoList=address_of(block),
    )
    replies = [controls.NV2080_CTRL_GR_INFO.from_bytes(block, i * size) for i in range(len(indices))]
    return _answers(rm, "graphics engine", indices, replies)


def fb_info(rm: Rm, subdevice: int, indices: Sequence[int]) -> list[int]:
    """Query values of the video memory by index; sizes are in KiB.

    Raises `BringUpError` if the reply has other indices.
    """
    asked = tuple(controls.NV2080_CTRL_FB_INFO(index=index) for index in indices)
    reply: Any = rm.query(
        subdevice,
        controls.Control.NV2080_CTRL_CMD_FB_GET_INFO_V2,
        fbInfoListSize=len(asked),
        fbInfoList=asked,
    )
    return _answers(rm, "memory", indices, reply.fbInfoList[: len(asked)])


def _answers(rm: Rm, what: str, indices: Sequence[int], replies: Sequence[Any]) -> list[int]:
    """Return the values of replies, whose indices must be those of the query."""
    came = [reply.index for reply in replies]
    if came != list(indices):
        asked = [*map(int, indices)]
        raise _implausible(rm, "", f"the {what} was queried for numbers {asked} and returned {came}")
    return [reply.data for reply in replies]


def copy_engines(rm: Rm, subdevice: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the indices of the copy engines outside the graphics run list, and of those on it.

    In each, engines that do not share their physical engines with another one are first: they copy faster.
    """
    caps: Any = rm.query(subdevice, controls.Control.NV2080_CTRL_CMD_CE_GET_ALL_CAPS)
    bits = {i: caps.capsTbl[i][0] for i in range(64) if caps.present >> i & 1}
    fastest = sorted(bits, key=lambda i: (bits[i] & controls.CE_SHARED_BIT, i))
    graphics = tuple(i for i in fastest if bits[i] & controls.GRCE_BIT)
    return tuple(i for i in fastest if i not in graphics), graphics


def count_sms(rm: Rm, subdevice: int, sms_per_tpc: int) -> tuple[int, tuple[int, ...]]:
    """Return the number of SMs after floor-sweeping, and `cluster_parts`.

    The second is empty if the kernel driver does not state the positions of the SMs.
    """
    try:
        order: Any = rm.query(subdevice, controls.Control.NV2080_CTRL_CMD_GR_GET_GLOBAL_SM_ORDER)
    except DriverError:
        # The record differs between branches (nv.md 1.5). The masks give the same number and do not differ.
        gpcs: Any = rm.query(subdevice, controls.Control.NV2080_CTRL_CMD_GR_GET_GPC_MASK)
        masks: list[Any] = [
            rm.query(subdevice, controls.Control.NV2080_CTRL_CMD_GR_GET_TPC_MASK, gpcId=gpc)
            for gpc in range(32)
            if gpcs.gpcMask >> gpc & 1
        ]
        tpcs: int = sum(mask.tpcMask.bit_count() for mask in masks)
        return sms_per_tpc * tpcs, ()  # the masks do not show virtual GPCs
    count: int = order.numSm
    return count, cluster_parts(order.globalSmId[:count])


def cluster_parts(positions: Sequence[Any]) -> tuple[int, ...]:
    """Return the number of SMs of each part of a GPU in which a cluster must lie, ascending.

    A part has one physical and one virtual GPC. TPCs that some GPCs have beyond the others may form virtual
    GPCs of one TPC (ctrl2080gr.h). It is not public whether the physical or the virtual GPC bounds a cluster.
    """
    return tuple(sorted(Counter((one.gpcId, one.virtualGpcId) for one in positions).values()))


def uuid_of(rm: Rm, subdevice: int) -> bytes:
    """Return the 16 bytes that identify the GPU to UVM."""
    reply: Any = rm.query(
        subdevice, controls.Control.NV2080_CTRL_CMD_GPU_GET_GID_INFO, flags=controls.GID_BINARY_SHA1
    )
    return bytes(reply.data[: controls.GID_BYTES])


def gpu_name(rm: Rm, subdevice: int) -> str:
    """Return the product name."""
    reply: Any = rm.query(subdevice, controls.Control.NV2080_CTRL_CMD_GPU_GET_NAME_STRING)
    return str(reply.gpuNameString)


def choose(
    name: str, classes: Sequence[int], choices: NvQuirks = DEFAULT
) -> tuple[chips.Generation, int, int, int]:
    """Return the generation and the channel, doorbell and copy class that follow from a class list.

    Raises `UnsupportedError` for an unsupported GPU, MIG mode, a list without a channel, doorbell or copy
    class, and a class of `choices` that is not listed.
    """
    present = set(classes)
    row = next(
        (row for compute, row in sorted(chips.GENERATIONS.items(), reverse=True) if compute in present), None
    )
    if row is None and not any(
        c in chips.CLASS_NAMES and c & 0xFF == chips.COMPUTE_LOW_BYTE for c in present
    ):
        raise mig_mode(name)  # a divided GPU lists no compute class to a client without an instance
    if row is None:
        raise unsupported_gpu(name, classes)
    gpfifo = _class(name, "channel", choices.channel_class, chips.GPFIFO_CLASSES, present & {*row.gpfifo})
    usermode = _class(
        name, "doorbell", choices.doorbell_class, chips.USERMODE_CLASSES, present & {*row.usermode}
    )
    copy = next((c for c in chips.COPY_CLASSES if c in present and c in row.copy), None)
    if gpfifo is None or usermode is None or copy is None:
        raise UnsupportedError(
            f"{name}: a {row.name} without a matching channel, doorbell or copy class; "
            f"seen: {', '.join(f'{c:#x}' for c in classes)}"
        )
    return row, gpfifo, usermode, copy


def _class(name: str, what: str, wanted: str, known: Sequence[int], there: set[int]) -> int | None:
    """Return the chosen class, or the newest one that is listed; None if none is."""
    if wanted == "newest":
        return next((c for c in known if c in there), None)
    if int(wanted, 16) in there:
        return int(wanted, 16)
    listed = ", ".join(f"{c:x}" for c in known if c in there) or "none"
    raise UnsupportedError(f"{name} has no {what} class {wanted}; it lists {listed}")


def query_gpu(rm: Rm, handles: Handles, choices: NvQuirks = DEFAULT) -> NvGpu:
    """Query the topology of an opened GPU.

    Raises `UnsupportedError` for an unsupported GPU or MIG mode, and for one without a copy engine of its
    own; `BringUpError` for implausible values unless `choices.plausible` is False.
    """
    name = gpu_name(rm, handles.subdevice)
    row, gpfifo, usermode, copy = choose(name, class_list(rm, handles.device), choices)
    try:
        sm_version, max_warps, gpcs, tpcs, sms_per_tpc = gr_info(
            rm,
            handles.subdevice,
            (
                controls.GrInfo.SM_VERSION,
                controls.GrInfo.MAX_WARPS_PER_SM,
                controls.GrInfo.LITTER_NUM_GPCS,
                controls.GrInfo.LITTER_NUM_TPC_PER_GPC,
                controls.GrInfo.LITTER_NUM_SM_PER_TPC,
            ),
        )
    except DriverError as error:
        # A client without a GPU instance has no graphics engine to query (nv.md 9.20).
        if error.status in UNUSABLE:
            raise
        raise mig_mode(name, str(error).partition("\n")[0]) from error
    separate, _ = copy_engines(rm, handles.subdevice)
    if not separate:
        raise UnsupportedError(f"{name} has no copy engine outside the graphics run list, for copy queues")
    sms, parts = count_sms(rm, handles.subdevice, sms_per_tpc)
    vram, bar1 = fb_info(rm, handles.subdevice, (controls.FbInfo.TOTAL_RAM_SIZE, controls.FbInfo.BAR1_SIZE))
    gpu = NvGpu(
        name=name or row.name,
        uuid=uuid_of(rm, handles.subdevice),
        generation=row,
        gpfifo_class=gpfifo,
        usermode_class=usermode,
        compute_class=row.compute,
        copy_class=copy,
        sm_version=sm_version,
        max_warps=max_warps,
        gpcs=gpcs,
        tpcs_per_gpc=tpcs,
        sms_per_tpc=sms_per_tpc,
        sms=sms,
        # A part larger than a GPC means that the reply holds no positions.
        gpc_sms=parts if parts and parts[-1] <= tpcs * sms_per_tpc else (),
        vram_bytes=vram << 10,
        bar1_bytes=bar1 << 10,
        copy_engines=_rotated(tuple(copy_engine(i) for i in separate), choices.copy_engine),
    )
    if choices.plausible and (wrong := _implausible_values(gpu)):
        raise _implausible(rm, gpu.name, wrong)
    return gpu


def _implausible(rm: Rm, name: str, what: str) -> BringUpError:
    """Return the error for an implausible reply."""
    return BringUpError(
        f"{name or 'the GPU'}: the reply of driver {rm.version} is implausible: {what}\n"
        f"hint: this build of the driver may have other structures than branch {rm.branch}; "
        "`hcq bringup --to 5 --json` shows the replies; "
        'opening it as "nv:plausible=false" accepts it'
    )


def _implausible_values(gpu: NvGpu) -> str:
    """Describe the values that no supported GPU has; "" if all are plausible."""
    row, per_gpc, per_tpc = gpu.generation, gpu.tpcs_per_gpc, gpu.sms_per_tpc
    room = min(gpu.litter_tpcs * per_tpc, _MOST_SMS)
    fine = {
        f"SM version {gpu.sm_version:#x} on a {row.name}, which has {row.sm_version:#x}": (
            chips.sm_number(gpu.sm_version) // 10 == chips.sm_number(row.sm_version) // 10
        ),
        f"{gpu.max_warps} warps an SM": gpu.max_warps in _WARPS,
        f"{gpu.gpcs} GPCs": gpu.gpcs in _GPCS,
        f"{per_gpc} TPCs a GPC": per_gpc in _TPCS_PER_GPC,
        f"{per_tpc} SMs a TPC": per_tpc in _SMS_PER_TPC,
        f"{gpu.sms} SMs, but {gpu.gpcs} GPCs of {per_gpc} TPCs of {per_tpc} SMs allow at most {room}": (
            1 <= gpu.sms <= room
        ),
        f"{gpu.vram_bytes} bytes of video memory": gpu.vram_bytes in _VRAM_BYTES,
        "a UUID of zeros": any(gpu.uuid),
    }
    return "; ".join(text for text, is_fine in fine.items() if not is_fine)


def _rotated(engines: tuple[int, ...], first: str) -> tuple[int, ...]:
    """Return the engines, rotated so that the chosen one is first."""
    at = {"first": 0, "second": 1, "last": -1}[first] % len(engines)
    return engines[at:] + engines[:at]
