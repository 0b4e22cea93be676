"""The emulated GPUs and versions of the kernel driver, as rows of data.

No other module of the emulator tests a name. Sources: docs/sources-amd.md (sample nodes, with dumps of a
7900 XTX and an R9700); Linux kfd_queue.c and kfd_chardev.c for the checks of each kernel.

Not here: the texts that describe a GPU to its driver (`emulator.amd.kfd.sysfs`). Next:
`emulator.amd.kfd.gpu`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from drivers.amd.layouts import cwsr
from drivers.amd.layouts.chips import CHIPS, AmdChip, Generation
from drivers.amd.layouts.kfd import GATES, QUEUES_PER_PROCESS, QUEUES_PER_PROCESS_9_4_3
from emulator.shared.counts import Board, MultiprocessorLimits
from hcq.errors import UnsupportedError

if TYPE_CHECKING:
    from drivers.amd.layouts.cwsr import Sizes

_GIB: Final = 1 << 30
SMALL_BAR: Final = 256 << 20
"""Bytes of the PCI window of a GPU without resizable BAR."""
BIF_SEGMENTS: Final = (0x0000_0000, 0x0000_0014, 0x0000_0D20)
"""Bases of the segments of the bus interface's registers, in dwords."""
HDP_FLUSH: Final = (BIF_SEGMENTS[2] + 0x106, BIF_SEGMENTS[2] + 0x107)
"""The registers GPU_HDP_FLUSH_REQ and GPU_HDP_FLUSH_DONE of NBIO 4.3, 7.9 and 7.11 and NBIF 6.3.1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelProfile:
    """Checks and messages of one version of the kernel driver."""

    name: str
    minor: int
    """The version of the interface is 1.minor."""
    geometry: bool
    """Whether CREATE_QUEUE wants each buffer to be one whole mapping of the right size."""
    equal_save_area: bool
    """Whether `ctx_save_restore_size` must equal the kernel's own number; else it may be larger."""
    prints_save_area: bool
    """Whether sysfs has `cwsr_size` and `ctl_stack_size`."""
    apus_use_gtt: bool = True
    """Whether an APU's video memory is memory of the host, up to TTM's limit (since 6.10, 89773b85599a)."""

    def has(self, gate: str) -> bool:
        """Return whether the interface has the feature `gate`, a key of `drivers.amd.layouts.kfd.GATES`."""
        return (1, self.minor) >= GATES[gate]


KERNELS: Final = {
    row.name: row
    for row in (
        KernelProfile(
            name="6.1", minor=11, geometry=False, equal_save_area=False, prints_save_area=False,
            apus_use_gtt=False,
        ),
        KernelProfile(name="6.12", minor=17, geometry=True, equal_save_area=True, prints_save_area=False),
        KernelProfile(name="6.12.107", minor=17, geometry=True, equal_save_area=False, prints_save_area=True),
    )
}  # fmt: skip
"""Version of Linux -> profile; "6.12" is the strictest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProfile:
    """The properties of one emulated GPU."""

    target: AmdChip
    label: str
    """The node's name in the topology."""
    device_id: int
    units: int
    """Compute units of all XCCs together."""
    simds_per_unit: int
    array_count: int
    """Shader arrays of all XCCs together."""
    arrays_per_engine: int
    units_per_array: int
    waves_per_simd: int
    scratch_slots: int
    """Waves of a compute unit that may have scratch (`max_slots_scratch_cu`)."""
    wave_size: int
    """Lanes of a wave, as sysfs states it."""
    sdma_engines: int
    xgmi_engines: int
    """SDMA engines for links between GPUs; 0 without xGMI."""
    queues_per_engine: int
    """Queues of one SDMA engine."""
    compute_pipes: int
    """The property `num_cp_queues`."""
    xccs: int
    vram_bytes: int
    visible_bytes: int
    """Video memory that the CPU can reach; less than all of it is a small BAR (`SMALL_BAR`)."""
    mes: bool
    """Whether MES schedules the queues: the write pointer then lies in GTT of the same GPU."""
    gc_version: tuple[int, int, int]
    nbif_version: tuple[int, int, int]
    family: int
    limits: MultiprocessorLimits
    """Resources of one compute unit; on RDNA of one workgroup processor."""
    boards: tuple[Board, ...]
    """Products with this GPU and their published rates."""
    counter_khz: int = 100_000
    clock_mhz: int = 2400
    revision: int = 0
    firmware: int = 2000
    sdma_firmware: int = 24

    @property
    def name(self) -> str:
        """LLVM's name of the target."""
        return self.target.name

    @property
    def engines(self) -> int:
        """Shader engines of one XCC."""
        return self.array_count // self.arrays_per_engine // self.xccs

    @property
    def large_bar(self) -> bool:
        """Whether the CPU reaches all video memory."""
        return self.visible_bytes >= self.vram_bytes

    def host_share(self, kernel: KernelProfile, host_bytes: int) -> int:
        """Return the bytes of the host's memory that serve as video memory; 0: the GPU has its own.

        On an APU they are TTM's limit, half of the host's memory.
        """
        return host_bytes // 2 if self.target.apu and kernel.apus_use_gtt else 0

    @property
    def queue_limit(self) -> int:
        """How many queues a process may have on this GPU."""
        many = self.gc_version in ((9, 4, 3), (9, 4, 4), (9, 5, 0))
        return QUEUES_PER_PROCESS_9_4_3 if many else QUEUES_PER_PROCESS

    def save_area(self, kernel: KernelProfile) -> Sizes:
        """Return the sizes of the context-save area that the kernel wants."""
        return cwsr.sizes(
            self.name,
            units=self.units // self.xccs,
            engines=self.engines,
            xccs=self.xccs,
            lds_bytes=self.target.lds_bytes,
            checked=kernel.equal_save_area,
        )

    @property
    def ignores_context_zero(self) -> bool:
        """Whether the kernel driver drops an end-of-pipe interrupt with context 0."""
        return self.target.generation is Generation.GFX9


_RDNA: Final = MultiprocessorLimits(
    warps=64, groups=32, parts=4, registers=1536, granule=24, shared=128 << 10, shared_granule=1024
)
GPUS: Final = {
    row.name: row
    for row in (
        GpuProfile(
            target=CHIPS["gfx1100"], label="gfx1100", device_id=0x744C, units=96, simds_per_unit=2,
            array_count=12, arrays_per_engine=2, units_per_array=8, waves_per_simd=16, scratch_slots=32,
            wave_size=32, sdma_engines=2, xgmi_engines=0, queues_per_engine=6, compute_pipes=8, xccs=1,
            vram_bytes=24 * _GIB, visible_bytes=24 * _GIB, mes=True, gc_version=(11, 0, 0),
            nbif_version=(4, 3, 0), family=145,
            limits=_RDNA,
            boards=(
                Board(
                    name="RX 7900 XTX", parts=96, clock_mhz=2500, bandwidth=960, joint=False,
                    vector={"f64": 1.92, "f32": 61.4, "f16": 122.8},
                    matrix={"f16": 122.8, "bf16": 122.8, "i8": 122.8, "i4": 245.7},
                    source=(
                        "AMD Radeon RX 7900 XTX, product page; AMD RDNA 3 instruction set architecture, 7.9"
                    ),
                ),
            ),
        ),
        GpuProfile(
            target=CHIPS["gfx1201"], label="gfx1201", device_id=0x7551, units=64, simds_per_unit=2,
            array_count=8, arrays_per_engine=2, units_per_array=8, waves_per_simd=16, scratch_slots=32,
            wave_size=32, sdma_engines=2, xgmi_engines=0, queues_per_engine=6, compute_pipes=4, xccs=1,
            vram_bytes=32 * _GIB, visible_bytes=32 * _GIB, mes=True, gc_version=(12, 0, 1),
            nbif_version=(6, 3, 1), family=152,
            limits=_RDNA,
            boards=(
                Board(
                    name="RX 9070 XT", parts=64, clock_mhz=2970, bandwidth=640, joint=False,
                    vector={"f32": 48.7, "f16": 97.3},
                    matrix={"f16": 195, "bf16": 195, "fp8": 389, "i8": 389, "i4": 779},
                    source=(
                        "AMD Radeon RX 9070 XT, product page; AMD GPUOpen, "
                        "Using the Matrix Cores of AMD RDNA 4"
                    ),
                ),
            ),
        ),
        GpuProfile(
            target=CHIPS["gfx942"], label="gfx942", device_id=0x74A1, units=304, simds_per_unit=4,
            array_count=32, arrays_per_engine=1, units_per_array=10, waves_per_simd=8, scratch_slots=32,
            wave_size=64, sdma_engines=2, xgmi_engines=14, queues_per_engine=8, compute_pipes=24, xccs=8,
            vram_bytes=192 * _GIB, visible_bytes=192 * _GIB, mes=False, gc_version=(9, 4, 3),
            nbif_version=(7, 9, 0), family=141,
            limits=MultiprocessorLimits(
                warps=32, groups=32, parts=4, registers=512, granule=8, shared=64 << 10, shared_granule=512
            ),
            boards=(
                Board(
                    name="MI300X", parts=304, clock_mhz=2100, bandwidth=5300, joint=False,
                    vector={"f64": 81.7, "f32": 163.4},
                    matrix={
                        "f64": 163.4, "f32": 163.4, "xf32": 653.7, "f16": 1307.4, "bf16": 1307.4,
                        "fp8": 2614.9, "i8":
                        2614.9,
                    },
                    source=(
                        "AMD ROCm documentation, MI300 series microarchitecture, peak-performance table; "
                        "AMD Instinct MI300X data sheet"
                    ),
                ),
            ),
        ),
    )
}  # fmt: skip
"""Name of a target -> the emulated GPU."""
GPUS["gfx1200"] = replace(
    GPUS["gfx1201"], target=CHIPS["gfx1200"], label="gfx1200", device_id=0x7590, revision=1, units=32,
    array_count=4, vram_bytes=16 * _GIB, visible_bytes=16 * _GIB, gc_version=(12, 0, 0), clock_mhz=2740,
    boards=(
        Board(
            name="RX 9060 XT", parts=32, clock_mhz=3130, bandwidth=320, joint=False,
            vector={"f32": 25.6, "f16": 51.3},
            matrix={"f16": 103, "bf16": 103, "fp8": 205, "i8": 205, "i4": 410},
            source="AMD Radeon RX 9060 XT, product page",
        ),
    ),
)  # fmt: skip
"""The node as rocminfo shows it (ROCm issue 6342)."""
GPUS["gfx1151"] = replace(
    GPUS["gfx1100"], target=CHIPS["gfx1151"], label="gfx1151", device_id=0x1586, units=40, array_count=4,
    units_per_array=10, sdma_engines=1, vram_bytes=_GIB // 2, visible_bytes=_GIB // 2, gc_version=(11, 5, 1),
    nbif_version=(7, 11, 1), family=150, counter_khz=99_810, clock_mhz=2900,
    boards=(
        Board(
            name="Radeon 8060S", parts=40, clock_mhz=2900, bandwidth=256, joint=False,
            vector={"f32": 29.7, "f16": 59.4}, matrix={"f16": 59.4, "bf16": 59.4, "i8": 59.4, "i4": 118.8},
            source=(
                "AMD Ryzen AI Max+ 395, product page (units, clock, memory); operations a cycle as RX 7900"
            ),
        ),
    ),
)  # fmt: skip
"""An APU with a carve-out of 512 MiB, and the node as rocminfo and amdgpu_top show it (magnitude issue 44).

SDMA 6.1 has one instance (kfd_device.c: the reserved queues are those of one engine).
"""
GPUS["gfx950"] = replace(
    GPUS["gfx942"], target=CHIPS["gfx950"], label="gfx950", device_id=0x75A0, units=256, units_per_array=9,
    vram_bytes=309_220_868_096, visible_bytes=309_220_868_096, gc_version=(9, 5, 0), clock_mhz=2200,
    firmware=41, sdma_firmware=12,
    limits=replace(GPUS["gfx942"].limits, shared=160 << 10, shared_granule=1280),
    boards=(
        Board(
            name="MI350X", parts=256, clock_mhz=2200, bandwidth=8000, joint=False,
            vector={"f64": 72.1, "f32": 144.2},
            matrix={"f64": 72.1, "f32": 144.2, "f16": 2306.9, "bf16": 2306.9, "fp8": 4613.7, "i8": 4613.7},
            source="AMD Instinct MI350X, data sheet",
        ),
    ),
)  # fmt: skip
"""The node as the topology of an MI350X shows it (rocm-systems pull request 10274)."""
GPUS["gfx942-cpx"] = replace(GPUS["gfx942"], label="gfx942 CPX", units=38, array_count=4, xccs=1)
"""One XCC of a GPU in CPX mode, which presents each XCC as a GPU. Its compute queues take PM4 packets."""


def find_gpu(name: str) -> GpuProfile:
    """Return the GPU of a target. Raises `UnsupportedError` for one that is not emulated."""
    if name not in GPUS:
        raise UnsupportedError(f"no emulated AMD GPU is called {name!r}\nhint: there are {', '.join(GPUS)}")
    return GPUS[name]


def find_kernel(name: str) -> KernelProfile:
    """Return a kernel's profile. Raises `UnsupportedError` for one without a row."""
    if name not in KERNELS:
        raise UnsupportedError(f"no profile of kernel {name!r}\nhint: there are {', '.join(KERNELS)}")
    return KERNELS[name]
