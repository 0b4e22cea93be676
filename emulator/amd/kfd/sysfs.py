"""What Linux says of the emulated GPUs: sysfs (KFD topology, IP discovery), and AMDGPU_INFO of render nodes.

All texts are made when the machine is opened. The `gpu_id` of a GPU that the device cgroup hides is refused
with EPERM. Source: Linux 6.12 kfd_topology.c and amdgpu_discovery.c (docs/sources-amd.md). Bandwidths,
latencies and caches are samples, not those of a board. Other ioctls of a render node are refused with their
name (Linux amdgpu_kms.c, amdgpu_info_ioctl).

A refused call raises `CallRefused`, with the errno of Linux.

Not here: open files (`process`), mmap of a node (`emulator.amd.machine.kernel`). Next:
`emulator.amd.profiles`, the properties of each GPU.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

from drivers.amd.layouts import drm
from drivers.amd.layouts.kfd import GPUVM_BASE, GPUVM_RESERVED_TOP
from drivers.amd.layouts.topology import (
    ALIAS,
    GPU_PROPERTIES,
    PROPERTIES,
    ROOT,
    Capability,
    DoorbellType,
    HeapType,
    LinkFlags,
    LinkType,
    Location,
)
from emulator.amd.kfd.gpu import VA_BITS
from emulator.amd.kfd.refusal import NotEmulated, refuse
from emulator.amd.profiles import BIF_SEGMENTS
from emulator.shared.backing import PAGE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emulator.amd.kfd.gpu import KfdGpu
    from emulator.amd.kfd.process import KfdFile, KfdFiles
    from emulator.amd.profiles import KernelProfile
    from emulator.shared.surprises import Rejections

_AMD: Final = 0x1002
"""AMD's PCI vendor id."""
_CPU_CORES: Final = 16
_GENERATION: Final = 2
_HIVE: Final = 0x5EED_0000_0001
_GC_BASES: Final = (0x0000_1260, 0x0000_A000, 0x0240_2C00)
_BLOCKS: Final = {
    "GC": (11, _GC_BASES),
    "SDMA0": (42, _GC_BASES),
    "SDMA1": (43, _GC_BASES),
    "NBIF": (108, BIF_SEGMENTS),
}
"""Name of an IP block -> (hardware id, bases of its segments in dwords), for the blocks that drivers read."""
_CACHES: Final = ((1, 32, 128), (2, 6144, 128))
"""(level, KiB, bytes of a line)."""


class Sysfs:
    """The texts of sysfs, by path."""

    def __init__(
        self, gpus: Sequence[KfdGpu], kernel: KernelProfile, host_bytes: int, rejections: Rejections
    ) -> None:
        """`host_bytes` is the system memory of the CPU node; `rejections`: see `Hardware`."""
        self._files: dict[str, str] = {}
        self._hidden: set[str] = set()
        """Paths that are refused with EPERM."""
        self._kernel, self._host_bytes = kernel, host_bytes
        self._missing = 4096 if rejections.refuses("save area in sysfs") else 0
        """Bytes by which the stated size of the context-save area is too small (quirk `cwsr_sizes`)."""
        self._topology("generation_id", f"{_GENERATION}\n")
        self._topology("system_properties", "platform_oem 0\nplatform_id 0\nplatform_rev 0\n")
        self._cpu(gpus, host_bytes)
        for gpu in gpus:
            self._gpu(gpu, gpus)
            self._discovery(gpu)
        self._folders = self._list()

    def _topology(self, path: str, text: str) -> None:
        for root in (ROOT, ALIAS):
            self._files[f"{root}/{path}"] = text

    def _cpu(self, gpus: Sequence[KfdGpu], host_bytes: int) -> None:
        reached = [gpu for gpu in gpus if gpu.profile.large_bar]  # a link to the others has no way back
        values = {"cpu_cores_count": _CPU_CORES, "mem_banks_count": 1, "io_links_count": len(reached)}
        self._node(0, 0, "", values, gpu=False)
        self._bank(0, HeapType.SYSTEM, host_bytes)
        for at, gpu in enumerate(reached):
            self._link("io_links", at, 0, gpu.node, LinkType.PCIEXPRESS)

    def _gpu(self, gpu: KfdGpu, gpus: Sequence[KfdGpu]) -> None:
        """Add the node of a GPU: properties, memory banks, caches and links."""
        profile, peers = gpu.profile, [other for other in gpus if other is not gpu and gpu.reaches(other)]
        xgmi = profile.xgmi_engines > 0
        area = profile.save_area(self._kernel)
        shared = profile.host_share(self._kernel, self._host_bytes)
        heap = HeapType.FB_PUBLIC if profile.large_bar else HeapType.FB_PRIVATE  # with a small BAR all of it
        values = {
            "simd_count": profile.units * profile.simds_per_unit,
            "mem_banks_count": 1,
            "caches_count": len(_CACHES),
            "io_links_count": 1 + (len(peers) if xgmi else 0),
            "p2p_links_count": 0 if xgmi else len(peers),
            "simd_id_base": 0x8000_0000 + (gpu.node << 12),
            "max_waves_per_simd": profile.waves_per_simd,
            "lds_size_in_kb": profile.target.lds_bytes >> 10,
            "wave_front_size": profile.wave_size,
            "array_count": profile.array_count,
            "simd_arrays_per_engine": profile.arrays_per_engine,
            "cu_per_simd_array": profile.units_per_array,
            "simd_per_cu": profile.simds_per_unit,
            "max_slots_scratch_cu": profile.scratch_slots,
            "gfx_target_version": profile.target.version,
            "vendor_id": _AMD,
            "device_id": profile.device_id,
            "location_id": int(Location(BUS=3 * gpu.node, SLOT=0, FUNCTION=0)),
            "drm_render_minor": gpu.minor,
            "hive_id": _HIVE if xgmi else 0,
            "num_sdma_engines": profile.sdma_engines,
            "num_sdma_xgmi_engines": profile.xgmi_engines,
            "num_sdma_queues_per_engine": profile.queues_per_engine,
            "num_cp_queues": profile.compute_pipes,
            "cwsr_size": area.context - self._missing,
            "ctl_stack_size": area.control_stack,
            "max_engine_clk_fcompute": profile.clock_mhz,
            "fw_version": profile.firmware,
            "capability": int(Capability(DOORBELL_TYPE=DoorbellType.V2_0, ASIC_REVISION=profile.revision)),
            "sdma_fw_version": profile.sdma_firmware,
            "unique_id": gpu.unique_id,
            "num_xcc": profile.xccs,
            "max_engine_clk_ccompute": profile.clock_mhz,
        }
        self._node(gpu.node, gpu.gpu_id, profile.label, values, gpu=True)
        if gpu.masked:
            self._hidden |= {f"{root}/nodes/{gpu.node}/gpu_id" for root in (ROOT, ALIAS)}
        self._bank(gpu.node, heap, shared or profile.vram_bytes)
        for at, (level, kib, line) in enumerate(_CACHES):
            text = f"processor_id_low {values['simd_id_base']}\nlevel {level}\nsize {kib}\n"
            text += f"cache_line_size {line}\n"
            rest = "cache_lines_per_tag 1\nassociation 16\nlatency 0\ntype 9\nsibling_map 1\n"
            self._topology(f"nodes/{gpu.node}/caches/{at}/properties", text + rest)
        self._link("io_links", 0, gpu.node, 0, LinkType.PCIEXPRESS)
        for at, peer in enumerate(peers):
            if xgmi:
                self._link("io_links", 1 + at, gpu.node, peer.node, LinkType.XGMI)
            else:
                self._link("p2p_links", at, gpu.node, peer.node, LinkType.PCIEXPRESS)

    def _node(self, node: int, gpu_id: int, name: str, values: dict[str, int], *, gpu: bool) -> None:
        names = [
            one
            for one in PROPERTIES
            if self._kernel.prints_save_area or one not in ("cwsr_size", "ctl_stack_size")
        ]
        text = "".join(f"{one} {values.get(one, 0)}\n" for one in (*names, *(GPU_PROPERTIES if gpu else ())))
        self._topology(f"nodes/{node}/properties", text)
        self._topology(f"nodes/{node}/gpu_id", f"{gpu_id}\n")
        self._topology(f"nodes/{node}/name", f"{name}\n")

    def _bank(self, node: int, heap: HeapType, size: int) -> None:
        text = f"heap_type {int(heap)}\nsize_in_bytes {size}\nflags 0\nwidth 64\nmem_clk_max 1250\n"
        self._topology(f"nodes/{node}/mem_banks/0/properties", text)

    def _link(self, folder: str, at: int, source: int, to: int, kind: LinkType) -> None:
        flags = LinkFlags.ENABLED
        text = (
            f"type {int(kind)}\nversion_major 0\nversion_minor 0\nnode_from {source}\nnode_to {to}\n"
            "weight 20\n"
            "min_latency 0\nmax_latency 0\nmin_bandwidth 312\nmax_bandwidth 31504\n"
            f"recommended_transfer_size 0\nrecommended_sdma_engine_id_mask 0\nflags {int(flags)}\n"
        )
        self._topology(f"nodes/{source}/{folder}/{at}/properties", text)

    def _discovery(self, gpu: KfdGpu) -> None:
        """Add the IP discovery of a GPU's render node: a folder for each block and instance."""
        profile = gpu.profile
        versions = {"GC": profile.gc_version, "NBIF": profile.nbif_version}
        for name, (number, bases) in _BLOCKS.items():
            if name == "SDMA1" and profile.sdma_engines == 1:
                continue
            major, minor, step = versions.get(name, profile.target.sdma)
            for instance in range(profile.xccs if name == "GC" else 1):
                values = {
                    "hw_id": f"{number}", "num_instance": f"{instance}", "major": f"{major}",
                    "minor": f"{minor}", "revision": f"{step}", "harvest": "0x0",
                    "num_base_addresses": f"{len(bases)}",
                    "base_addr": "\n".join(f"0x{base:08X}" for base in bases),
                }  # fmt: skip
                for key in (name, str(number)):
                    folder = f"/sys/class/drm/renderD{gpu.minor}/device/ip_discovery/die/0/{key}/{instance}"
                    self._files.update({f"{folder}/{what}": f"{text}\n" for what, text in values.items()})

    def _list(self) -> dict[str, set[str]]:
        folders: dict[str, set[str]] = {}
        for path in self._files:
            at = path
            while "/" in at[1:]:
                at, name = at.rsplit("/", 1)
                folders.setdefault(at, set()).add(name)
        return folders

    def read(self, path: str) -> bytes:
        """Return a file's text. Refuses a hidden path with EPERM, an unknown one with ENOENT."""
        if path in self._hidden:
            refuse(errno.EPERM, f"{path} is hidden by the device cgroup")
        if path not in self._files:
            refuse(errno.ENOENT, path)
        return self._files[path].encode()

    def list(self, path: str) -> list[str] | None:
        """Return the sorted names in a folder; None if `path` is no folder of sysfs."""
        found = self._folders.get(path.rstrip("/"))
        return None if found is None else sorted(found)


_NAMES = {
    drm.DRM_IOCTL_AMDGPU_GEM_CREATE: "GEM_CREATE",
    drm.DRM_IOCTL_AMDGPU_GEM_MMAP: "GEM_MMAP",
    drm.DRM_IOCTL_AMDGPU_GEM_VA: "GEM_VA",
}


def ioctl(kernel: KfdFiles, file: KfdFile, request: int, block: bytearray) -> None:
    """Run one ioctl of a render node; `block` is the caller's structure.

    The answer goes to its return_pointer. Raises `CallRefused` with the errno of Linux, and `NotEmulated` for
    a request or query that is not emulated.
    """
    if request != drm.DRM_IOCTL_AMDGPU_INFO:
        known = _NAMES.get(request)
        if known is not None:
            raise NotEmulated(errno.EOPNOTSUPP, f"AMDGPU {known} is not emulated; hardware may support it")
        refuse(errno.ENOTTY, f"render nodes have no ioctl {request:#x}")
    if len(block) < drm.drm_amdgpu_info.SIZE:
        refuse(errno.EFAULT, f"AMDGPU_INFO takes {drm.drm_amdgpu_info.SIZE} bytes, not {len(block)}")
    assert file.gpu is not None
    args = drm.drm_amdgpu_info.from_bytes(block)
    if not args.return_size or not args.return_pointer:
        refuse(errno.EINVAL, "AMDGPU_INFO without room for an answer")
    answer = _answer(kernel, file.gpu, int(args.query))
    kernel.process.user.write(args.return_pointer, answer[: args.return_size])


def _answer(kernel: KfdFiles, gpu: KfdGpu, query: int) -> bytes:
    """Return the whole answer to a query of AMDGPU_INFO; the caller cuts it to its return_size."""
    match query:
        case drm.InfoQuery.DEV_INFO:
            return _device(gpu)
        case drm.InfoQuery.TIMESTAMP:
            return kernel.process.hardware.clock(gpu).to_bytes(8, "little")
        case drm.InfoQuery.VRAM_USAGE:
            return gpu.vram_used.to_bytes(8, "little")
        case _ if query in frozenset(drm.InfoQuery):
            name = drm.InfoQuery(query).name
            raise NotEmulated(errno.EOPNOTSUPP, f"AMDGPU_INFO {name} is not emulated")
        case _:
            return refuse(errno.EINVAL, f"AMDGPU_INFO has no query {query:#x}")


def _device(gpu: KfdGpu) -> bytes:
    """Return drm_amdgpu_info_device of a GPU; fields that no profile states are 0."""
    profile = gpu.profile
    return drm.drm_amdgpu_info_device.pack(
        ids_flags=drm.IDS_FLAGS_FUSION if profile.target.apu else 0,
        device_id=profile.device_id,
        chip_rev=profile.revision,
        external_rev=profile.revision + 1,
        family=profile.family,
        num_shader_engines=profile.array_count // profile.arrays_per_engine,
        num_shader_arrays_per_engine=profile.arrays_per_engine,
        gpu_counter_freq=profile.counter_khz,
        max_engine_clock=profile.clock_mhz * 1000,
        cu_active_number=profile.units,
        virtual_address_offset=GPUVM_BASE,
        virtual_address_max=(1 << VA_BITS) - GPUVM_RESERVED_TOP,
        gart_page_size=PAGE,
        wave_front_size=profile.wave_size,
    )
