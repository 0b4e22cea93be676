"""What the scripted kernel plays: which GPUs there are, which version speaks, what is refused.

The nodes are those of real topologies as far as they are known. Not here: how calls are answered
(`scripted`).
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from drivers.amd.layouts import cwsr
from drivers.amd.layouts.topology import ROOT, HeapType, LinkFlags, LinkType, target_name

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAVI: Final = {
    "simd_per_cu": 2,
    "simd_arrays_per_engine": 2,
    "cu_per_simd_array": 8,
    "max_waves_per_simd": 16,
    "max_slots_scratch_cu": 32,
    "wave_front_size": 32,
    "lds_size_in_kb": 64,
    "num_sdma_engines": 2,
    "num_sdma_queues_per_engine": 6,
    "num_cp_queues": 8,
    "num_xcc": 1,
}
_CDNA: Final = {
    "simd_per_cu": 4,
    "simd_arrays_per_engine": 1,
    "cu_per_simd_array": 10,
    "max_waves_per_simd": 8,
    "max_slots_scratch_cu": 32,
    "wave_front_size": 64,
    "lds_size_in_kb": 64,
    "num_sdma_engines": 2,
    "num_sdma_xgmi_engines": 14,
    "num_sdma_queues_per_engine": 8,
    "num_cp_queues": 24,
}
NODES: Final[Mapping[str, Mapping[str, int]]] = MappingProxyType(
    {
        "gfx1100": {**_NAVI, "gfx_target_version": 110000, "simd_count": 192, "array_count": 12},
        "gfx1103": {**_NAVI, "gfx_target_version": 110003, "simd_count": 24, "array_count": 2},
        "gfx1151": {**_NAVI, "gfx_target_version": 110501, "simd_count": 80, "array_count": 4},
        "gfx1201": {**_NAVI, "gfx_target_version": 120001, "simd_count": 128, "array_count": 8},
        "gfx942": {**_CDNA, "gfx_target_version": 90402, "simd_count": 1216, "array_count": 32, "num_xcc": 8},
        "gfx942-cpx": {
            **_CDNA,
            "gfx_target_version": 90402,
            "simd_count": 152,
            "array_count": 4,
            "num_xcc": 1,
        },
        "gfx90a": {**_CDNA, "gfx_target_version": 90010, "simd_count": 416, "array_count": 8, "num_xcc": 1},
        "gfx950": {**_CDNA, "gfx_target_version": 90500, "simd_count": 1024, "array_count": 32, "num_xcc": 8},
        "gfx1030": {**_NAVI, "gfx_target_version": 100300, "simd_count": 160, "array_count": 8},
        "gfx1300": {**_NAVI, "gfx_target_version": 130000, "simd_count": 160, "array_count": 8},
    }
)
"""Name -> the properties of its node."""
APUS: Final = frozenset({"gfx1103", "gfx1151"})
VRAM_BYTES: Final = 24 << 30
FIRST_GPU_ID: Final = 0x5A01
FIRST_RENDER_MINOR: Final = 128
COUNTER_KHZ: Final = 100_000


@dataclass(slots=True, kw_only=True)
class Script:
    """A machine with AMD GPUs."""

    gpus: tuple[str, ...] = ("gfx1100",)
    """Names in `NODES`."""
    version: tuple[int, int] = (1, 17)
    """Of the interface. Since 1.17 the geometry of queues is compared."""
    sizes_in_sysfs: bool = True
    """Nodes print cwsr_size and ctl_stack_size."""
    large_bar: bool = True
    links: bool = True
    """GPUs reach each other over XGMI."""
    missing: Mapping[str, int] = field(default_factory=dict[str, int])
    """Path of a node -> the errno of opening it."""
    hidden: tuple[int, ...] = ()
    """Numbers of GPUs that a device cgroup hides."""
    refuse: dict[str, int] = field(default_factory=dict[str, int])
    """Name of a call -> the errno that each one of it gets."""
    vram_free: int = VRAM_BYTES
    pci: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, "Mapping[str, str]"])
    """Slot on the PCI bus -> its files vendor, class and uevent."""
    topology: bool = True
    """Whether KFD has a topology at all."""
    evict_for_good: bool = True
    """After a page fault new queues do not run, as on Linux."""
    other_library: bool = False
    """Another KFD library of this process was first: runtime enabled, event page given."""

    def gpu_id(self, index: int) -> int:
        """Return the id of GPU `index`."""
        return FIRST_GPU_ID + index

    def areas(self, index: int) -> cwsr.Sizes:
        """Return what the kernel computes for the context-save area of GPU `index`."""
        node = NODES[self.gpus[index]]
        xccs = node["num_xcc"]
        return cwsr.sizes(
            target_name(node["gfx_target_version"]),
            units=node["simd_count"] // node["simd_per_cu"] // xccs,
            engines=node["array_count"] // node["simd_arrays_per_engine"] // xccs,
            xccs=xccs,
            lds_bytes=node["lds_size_in_kb"] << 10,
            checked=not self.sizes_in_sysfs and self.version >= (1, 17),
        )

    def files(self) -> dict[str, bytes | int]:
        """Return the files of sysfs: contents, or the errno of reading one."""
        out: dict[str, bytes | int] = {}
        for slot, rows in self.pci.items():
            out.update({f"/sys/bus/pci/devices/{slot}/{name}": text.encode() for name, text in rows.items()})
        if not self.topology:
            return out
        out[f"{ROOT}/generation_id"] = b"3\n"
        out[f"{ROOT}/nodes/0/gpu_id"] = b"0\n"
        out[f"{ROOT}/nodes/0/properties"] = b"cpu_cores_count 16\nsimd_count 0\n"
        for index, name in enumerate(self.gpus):
            path = f"{ROOT}/nodes/{index + 1}"
            out[f"{path}/name"] = f"{name}-card\n".encode()
            if index in self.hidden:
                out[f"{path}/gpu_id"] = errno.EPERM
                continue
            out[f"{path}/gpu_id"] = f"{self.gpu_id(index)}\n".encode()
            properties = {
                "cpu_cores_count": 0,
                **NODES[name],
                "vendor_id": 0x1002,
                "location_id": (index + 3) << 8,
                "domain": 0,
                "drm_render_minor": FIRST_RENDER_MINOR + index,
                "fw_version": 2400,
            }
            if self.sizes_in_sysfs:
                areas = self.areas(index)
                properties |= {"cwsr_size": areas.context, "ctl_stack_size": areas.control_stack}
            out[f"{path}/properties"] = _lines(properties)
            heap = HeapType.FB_PUBLIC if self.large_bar else HeapType.FB_PRIVATE
            bank = {"heap_type": int(heap), "size_in_bytes": VRAM_BYTES, "flags": 0, "width": 384}
            out[f"{path}/mem_banks/0/properties"] = _lines(bank)
            for other in range(len(self.gpus)):
                if self.links and other != index:
                    row = {"type": int(LinkType.XGMI), "node_from": index + 1, "node_to": other + 1}
                    row["flags"] = int(LinkFlags.ENABLED)
                    out[f"{path}/io_links/{other}/properties"] = _lines(row)
        return out


def _lines(values: Mapping[str, int]) -> bytes:
    return "".join(f"{name} {value}\n" for name, value in values.items()).encode()
