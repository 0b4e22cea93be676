"""The GPUs that KFD lists in sysfs: properties, memory, links; and the facts that a render node returns.

Missing and unknown properties are accepted, because kernels differ in them. Nodes that a device cgroup hides
are left out.

Not here: the properties of a target (`layouts.chips`), the names of files and properties
(`drivers.amd.layouts.topology`). Next: `device`.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from drivers.amd.context import Geometry
from drivers.amd.layouts.chips import AmdChip
from drivers.amd.layouts.drm import (
    DRM_IOCTL_AMDGPU_INFO,
    InfoQuery,
    drm_amdgpu_info,
    drm_amdgpu_info_device,
)
from drivers.amd.layouts.topology import (
    ALIAS,
    ROOT,
    HeapType,
    LinkFlags,
    LinkType,
    Location,
    target_name,
)
from drivers.amd.refusals import info_refused
from drivers.kernel import Kernel, address_of
from drivers.shared.driver import device_info
from hcq.driver import DeviceInfo
from hcq.errors import BringUpError, DriverError

_SCANS: Final = 8
"""The most scans of a topology that changes during each of them."""
_TOPOLOGY_CURE: Final = (
    "\nhint: use the amdgpu of Linux 6.1 or newer, or a newer ROCm kernel module; `cat "
    f"{ROOT}/nodes/*/properties` shows what it says"
)


@dataclass(frozen=True, slots=True)
class IoLink:
    """A link between two nodes."""

    to: int
    """The other node's index."""
    type: int
    """A `LinkType`, or another number if the link is not one of GPUs."""
    flags: LinkFlags

    def carries_peers(self) -> bool:
        """Return whether GPUs can access each other's memory over the link."""
        return not self.flags & LinkFlags.NO_PEER_TO_PEER_DMA

    def __str__(self) -> str:
        return {int(LinkType.XGMI): "XGMI", int(LinkType.PCIEXPRESS): "PCIe"}.get(self.type, "link")


@dataclass(frozen=True, slots=True, kw_only=True)
class AmdGpu:
    """One GPU node."""

    node: int
    """Index of the node."""
    gpu_id: int
    """The id of KFD."""
    codename: str
    """"" if the kernel states none."""
    properties: Mapping[str, int]
    """Name -> value, as in sysfs."""
    visible_bytes: int
    """Video memory that the host can map."""
    private_bytes: int
    """Video memory that the host cannot map."""
    links: Mapping[int, IoLink] = field(default_factory=dict[int, IoLink])
    """Index of another node -> the link to it."""

    @property
    def version(self) -> int:
        """`gfx_target_version`: 90402 for gfx942; 0: missing."""
        return self.properties.get("gfx_target_version", 0)

    @property
    def arch(self) -> str:
        """The target's LLVM name."""
        return target_name(self.version)

    @property
    def vram_bytes(self) -> int:
        """Bytes of all video memory; the property `local_mem_size` is always 0."""
        return self.visible_bytes + self.private_bytes

    @property
    def pci(self) -> str:
        """PCI address, as "0000:03:00.0"."""
        at = Location.from_int(self.properties.get("location_id", 0) & 0xFFFF)
        return f"{self.properties.get('domain', 0):04x}:{at.BUS:02x}:{at.SLOT:02x}.{at.FUNCTION}"

    @property
    def name(self) -> str:
        """The name for errors, such as "gfx1100 navi31 at 0000:03:00.0"."""
        return f"{self.arch} {self.codename}".rstrip() + f" at {self.pci}"

    @property
    def render_minor(self) -> int:
        """The number of its render node; 0: it has none."""
        return self.properties.get("drm_render_minor", 0)

    def geometry(self) -> Geometry:
        """Return the counts of its units. Raises `BringUpError` if a property is missing or gives 0 units."""
        get = self.properties.get
        xccs = get("num_xcc", 0) or 1
        simds, per_unit = get("simd_count", 0), get("simd_per_cu", 0)
        arrays, per_engine = get("array_count", 0), get("simd_arrays_per_engine", 0)
        slots = get("max_slots_scratch_cu", 0)
        text = (
            f"{self.name}: simd_count {simds}, simd_per_cu {per_unit}, array_count {arrays}, "
            f"simd_arrays_per_engine {per_engine}, num_xcc {xccs}, max_slots_scratch_cu {slots}"
        )
        if not (per_unit and per_engine and slots):
            raise BringUpError(f"the topology cannot be true: {text}{_TOPOLOGY_CURE}")
        units, engines = simds // per_unit // xccs, arrays // per_engine // xccs
        if not (units and engines):
            raise BringUpError(f"the topology cannot be true: {text}{_TOPOLOGY_CURE}")
        return Geometry(xccs=xccs, compute_units=units, engines=engines, scratch_slots=slots)


def info(driver: str, index: int, gpu: AmdGpu, target: AmdChip, *, apu: bool, vram: int = 0) -> DeviceInfo:
    """Return the public facts of a GPU.

    `vram`: bytes of video memory that the kernel can allocate; it is used if the topology lists fewer, as for
    APUs. Raises `BringUpError` as `AmdGpu.geometry` does.
    """
    geometry = gpu.geometry()
    codename = f" {gpu.codename}" if gpu.codename not in {"", target.name} else ""
    name = f"AMD {target.name}{codename}" + (" (APU, memory shared with the host)" if apu else "")
    # Work-items of a dispatch packet have 32 bits.
    limits = {"max_groups_x": (1 << 22) - 1 if geometry.xccs > 1 else (1 << 31) - 1}
    limits |= {"max_shared_bytes": target.lds_bytes, "signal_bits": 32}
    units = geometry.compute_units * geometry.xccs
    return device_info(driver, index, name, target.name, max(vram, gpu.vram_bytes), units, limits)


def read(kernel: Kernel) -> list[AmdGpu]:
    """Return the GPUs, in the order of their nodes; empty if KFD lists none.

    Raises `DriverError` with a hint if there is no topology, and without one if a file of it cannot be read;
    `BringUpError` if it changes during every scan or a file that must hold a number does not.
    """
    root = _root(kernel)
    for _ in range(_SCANS):
        before = _generation(kernel, root)
        try:
            gpus = _scan(kernel, root)
        except DriverError:
            if _generation(kernel, root) == before:
                raise
            continue
        if _generation(kernel, root) == before:
            return gpus
    raise BringUpError(f"{root} changed during each of {_SCANS} scans")


def _root(kernel: Kernel) -> str:
    try:
        kernel.list_dir(f"{ROOT}/nodes")
    except DriverError as first:
        with contextlib.suppress(DriverError):
            kernel.list_dir(f"{ALIAS}/nodes")
            return ALIAS
        cure = "the module amdgpu is not loaded (modprobe amdgpu), or the container hides /sys"
        raise DriverError(first.call, first.status, first.status_name, arguments=ROOT, hint=cure) from None
    return ROOT


def _generation(kernel: Kernel, root: str) -> int:
    return _number(kernel, f"{root}/generation_id")


def _scan(kernel: Kernel, root: str) -> list[AmdGpu]:
    found = []
    for node in sorted(int(name) for name in kernel.list_dir(f"{root}/nodes") if name.isdecimal()):
        path = f"{root}/nodes/{node}"
        try:
            gpu_id = _number(kernel, f"{path}/gpu_id")
            # The kernel also hides a node's properties from processes that may not use the GPU.
            properties = _properties(kernel, f"{path}/properties") if gpu_id else {}
        except DriverError as error:
            if error.status in (errno.EPERM, errno.EACCES):
                continue
            raise
        if gpu_id:
            found.append(_gpu(kernel, path, node, gpu_id, properties))
    return found


def _gpu(kernel: Kernel, path: str, node: int, gpu_id: int, properties: dict[str, int]) -> AmdGpu:
    banks = [
        _properties(kernel, f"{path}/mem_banks/{bank}/properties")
        for bank in _numbers(kernel, path, "mem_banks")
    ]
    sizes = {
        kind: sum(b.get("size_in_bytes", 0) for b in banks if b.get("heap_type") == kind) for kind in HeapType
    }
    links: dict[int, IoLink] = {}
    for folder in (
        "p2p_links",
        "io_links",
    ):  # direct links are in both; io_links takes precedence
        for number in _numbers(kernel, path, folder):
            row = _properties(kernel, f"{path}/{folder}/{number}/properties")
            to = row.get("node_to", -1)
            links[to] = IoLink(to, row.get("type", 0), LinkFlags(row.get("flags", 0)))
    return AmdGpu(
        node=node,
        gpu_id=gpu_id,
        codename=_text(kernel, f"{path}/name"),
        properties=properties,
        visible_bytes=sizes[HeapType.FB_PUBLIC],
        private_bytes=sizes[HeapType.FB_PRIVATE],
        links=links,
    )


def _numbers(kernel: Kernel, path: str, folder: str) -> list[str]:
    try:
        return [name for name in kernel.list_dir(f"{path}/{folder}") if name.isdecimal()]
    except DriverError as error:
        if error.status == errno.ENOENT:  # p2p_links came with Linux 6.0
            return []
        raise


def _number(kernel: Kernel, path: str) -> int:
    text = kernel.read_file(path).decode(errors="replace").strip()
    if not text.isdecimal():
        raise BringUpError(f"{path}: wanted a number, saw {text!r}")
    return int(text)


def _text(kernel: Kernel, path: str) -> str:
    try:
        return kernel.read_file(path).decode(errors="replace").strip()
    except DriverError as error:
        if error.status == errno.ENOENT:
            return ""
        raise


def _properties(kernel: Kernel, path: str) -> dict[str, int]:
    """Return the "name value" lines of a file; lines of another form are left out."""
    out = {}
    for line in kernel.read_file(path).decode(errors="replace").splitlines():
        name, _, value = line.strip().partition(" ")
        if value.strip().isdecimal():
            out[name] = int(value)
    return out


_WAVES: Final = frozenset({32, 64})


def ask(kernel: Kernel, fd: int) -> drm_amdgpu_info_device:
    """Return the reply of the render node `fd` to DEV_INFO.

    Raises `DriverError` with a hint if the kernel refuses the query, `BringUpError` for an impossible reply.
    """
    answer = bytearray(drm_amdgpu_info_device.SIZE)
    block = bytearray(
        drm_amdgpu_info(
            return_pointer=address_of(answer), return_size=len(answer), query=InfoQuery.DEV_INFO
        ).to_bytes()
    )
    try:
        kernel.ioctl(fd, DRM_IOCTL_AMDGPU_INFO, block)
    except DriverError as error:
        raise info_refused(error) from None
    info = drm_amdgpu_info_device.from_bytes(answer)
    if info.wave_front_size not in _WAVES:
        raise BringUpError(
            f"DEV_INFO: wanted waves of 32 or 64 lanes, saw {info.wave_front_size}; try a newer kernel"
        )
    if not info.gpu_counter_freq:
        raise BringUpError("DEV_INFO: wanted a frequency of the GPU's counter, saw 0; try a newer kernel")
    return info
