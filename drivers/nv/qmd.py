"""Launch descriptors (QMD): one interface to the three versions.

`Descriptor` is the template for one kernel: all fields except the grid's shape and the address of constant
bank 0. Only this module handles the differences between versions (shifted addresses, names of fields).
`residency` says how many workgroups of a kernel run at once.

Not here: the fields (`drivers.nv.layouts.qmd`), the facts of a kernel (`cubin`), the constant bank
(`program`). Next: `program`, which fills templates in for launches.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from drivers.nv.layouts.cubin import RESERVED_SHARED
from drivers.nv.layouts.qmd import (
    CONSTANT_BANKS,
    GROUP_IDS,
    PREFETCH_MAX,
    PREFETCH_UNIT,
    QMDS,
    REGISTER_FILE,
    REGISTER_UNIT,
    WARP,
    sass_version,
    sm_config,
)
from drivers.nv.layouts.qmd_values import (
    CallLimit,
    CtaDistribution,
    DependentAction,
    MembarType,
    SamplerIndex,
)
from drivers.nv.quirks import NvQuirks
from drivers.nv.topology import NvGpu
from hcq.errors import UnsupportedError, UsageError
from hcq.layout import BitStruct
from hcq.program import Residency

_WORD = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class QmdDialect:
    """The field names and units of one version; a shift is log2 of a field's unit in bytes."""

    grid: tuple[str, str, str] = ("GRID_WIDTH", "GRID_HEIGHT", "GRID_DEPTH")
    registers: str = "REGISTER_COUNT"
    program: tuple[str, str] = ("PROGRAM_ADDRESS_LOWER", "PROGRAM_ADDRESS_UPPER")
    program_shift: int = 0
    shared: str = "SHARED_MEMORY_SIZE"
    shared_shift: int = 0
    local: str = "SHADER_LOCAL_MEMORY_{}_SIZE"
    """The size of local memory of a thread, for the stack at the HIGH or the LOW end of the window."""
    local_shift: int = 0
    bank: tuple[str, str] = ("CONSTANT_BUFFER_ADDR_LOWER_SHIFTED6", "CONSTANT_BUFFER_ADDR_UPPER_SHIFTED6")
    bank_shift: int = 6
    bank_align: int = 64
    """Alignment of constant bank 0 in bytes."""
    dependent: tuple[str, str, str] = (
        "DEPENDENT_QMD0_ENABLE",
        "DEPENDENT_QMD0_ACTION",
        "DEPENDENT_QMD0_PREFETCH",
    )
    """The fields of the first dependent launch: whether there is one, its action, and its prefetch."""


DIALECTS: Final[Mapping[str, QmdDialect]] = {
    "V03": QmdDialect(
        grid=("CTA_RASTER_WIDTH", "CTA_RASTER_HEIGHT", "CTA_RASTER_DEPTH"),
        registers="REGISTER_COUNT_V",
        bank=("CONSTANT_BUFFER_ADDR_LOWER", "CONSTANT_BUFFER_ADDR_UPPER"),
        bank_shift=0,
        bank_align=256,
    ),
    "V04": QmdDialect(
        dependent=("DEPENDENT_QMD_ENABLE", "DEPENDENT_QMD_ACTION", "DEPENDENT_QMD_PREFETCH"),
    ),
    "V05": QmdDialect(
        program=("PROGRAM_ADDRESS_LOWER_SHIFTED4", "PROGRAM_ADDRESS_UPPER_SHIFTED4"),
        program_shift=4,
        shared="SHARED_MEMORY_SIZE_SHIFTED7",
        shared_shift=7,
        local="SHADER_LOCAL_MEMORY_{}_SIZE_SHIFTED4",
        local_shift=4,
    ),
}
"""Version -> its field names and units (nv.md 4.1); the defaults are the names that most versions use."""

_SPARE: Final = frozenset(
    {
        "CONSTANT_BUFFER_INVALIDATE",
        "CWD_MEMBAR_TYPE",
        "INVALIDATE_SHADER_DATA_CACHE",
        "INVALIDATE_TEXTURE_DATA_CACHE",
        "INVALIDATE_TEXTURE_HEADER_CACHE",
        "INVALIDATE_TEXTURE_SAMPLER_CACHE",
        "PROGRAM_PREFETCH_ADDR_LOWER_SHIFTED",
        "PROGRAM_PREFETCH_ADDR_UPPER_SHIFTED",
        "PROGRAM_PREFETCH_SIZE",
        "SASS_VERSION",
    }
)
"""Fields that the only publicly known launch on Hopper does not set (nv.md 4.2)."""
_TYPE: Final = "QMD_TYPE"
_GPC: Final = ("GPC_CGA_WIDTH", "GPC_CGA_HEIGHT", "GPC_CGA_DEPTH")
_GPU: Final = ("GPU_CGA_WIDTH", "GPU_CGA_HEIGHT", "GPU_CGA_DEPTH")
_SPREAD: Final = "CGA_CTA_DISTRIBUTION_MODE"
THREADS: Final = ("CTA_THREAD_DIMENSION0", "CTA_THREAD_DIMENSION1", "CTA_THREAD_DIMENSION2")


@dataclass(frozen=True, slots=True, kw_only=True)
class NvLaunchable:
    """The facts of a kernel that its descriptor states; sizes are in bytes."""

    program: int
    """Device address of the entry."""
    code_bytes: int
    registers: int
    barriers: int
    shared_bytes: int
    """Shared memory of a workgroup: static, dynamic and reserved."""
    local_bytes: int
    """Local memory of a thread, with the reserve for the stack."""
    banks: Mapping[int, tuple[int, int]]
    """Number of a constant bank -> (address, size), without bank 0."""
    bank0_bytes: int


def carveouts(gpu: NvGpu, shared_bytes: int) -> tuple[int, int]:
    """Return the codes of the smallest carve-out that holds `shared_bytes`, and of the GPU's largest.

    Raises `UsageError` if `shared_bytes` exceeds the largest.
    """
    steps = gpu.chip.carveouts_kib
    fitting = next((kib for kib in steps if kib << 10 >= shared_bytes), None)
    if fitting is None:
        raise UsageError(
            f"the kernel needs {shared_bytes} bytes of shared memory for each workgroup, with the system's "
            f"reserve; {gpu.sm} has {steps[-1] << 10}"
        )
    return sm_config(fitting), sm_config(steps[-1])


def resident_warps(registers: int) -> int:
    """Return the number of warps that the register file holds, at `registers` for each thread (nv.md 4.2)."""
    unit = -(-max(registers, 1) * WARP // REGISTER_UNIT) * REGISTER_UNIT
    return REGISTER_FILE // unit // 4 * 4


def wanted_carveout(gpu: NvGpu, kernel: NvLaunchable, threads: int) -> int:
    """Return the code of the smallest carve-out that holds all workgroups which an SM could run at once.

    `threads`: threads of a workgroup. With a smaller carve-out an SM runs fewer workgroups, even if registers
    and warps are free. One workgroup must fit the largest carve-out (`carveouts`).
    """
    steps = gpu.chip.carveouts_kib
    warps = min(gpu.max_warps, resident_warps(kernel.registers))
    groups = max(1, min(warps // max(1, -(-threads // WARP)), gpu.chip.groups))
    held = (steps[-1] << 10) // max(1, kernel.shared_bytes)
    return sm_config(next(kib for kib in steps if kib << 10 >= min(groups, held) * kernel.shared_bytes))


def residency(gpu: NvGpu, kernel: NvLaunchable, threads: int, cluster: int = 1) -> Residency:
    """Return how many workgroups of `threads` threads the GPU runs at the same time.

    `cluster`: workgroups of a cluster. Above 1 the result counts clusters and is a lower bound. Raises
    `UnsupportedError` for clusters of a GPU whose GPCs are not known.
    """
    warps = max(1, -(-threads // WARP))
    shared = max(1, kernel.shared_bytes)
    most = {
        f"registers ({kernel.registers} a thread)": resident_warps(kernel.registers) // warps,
        f"threads ({gpu.max_warps} warps)": gpu.max_warps // warps,
        f"shared memory ({kernel.shared_bytes} bytes)": (gpu.chip.carveouts_kib[-1] << 10) // shared,
        "workgroups": gpu.chip.groups,
    }
    reasons = ", ".join(f"{count} by {name}" for name, count in most.items())
    if cluster == 1:
        return Residency(min(most.values()), gpu.sms, reasons)
    if not gpu.gpc_sms:
        raise UnsupportedError(
            f"how many clusters of {cluster} workgroups run at once is not known: the kernel driver does not "
            "state which SMs lie in one GPC\nhint: launch it without clusters, or not as a cooperative grid"
        )
    count = clusters_at_once(gpu, min(most.values()), cluster)
    parts = ", ".join(map(str, gpu.gpc_sms))
    return Residency(cluster, count, f"on an SM {reasons}; GPCs of {parts} SMs", "clusters")


def clusters_at_once(gpu: NvGpu, per_sm: int, cluster: int) -> int:
    """Return a lower bound of the clusters of `cluster` workgroups that run at the same time.

    `per_sm`: the workgroups that one SM holds. It is public that a cluster lies in one GPC, but not how its
    workgroups are spread over the SMs there. The bound assumes the worst spread: a cluster takes `taken` SMs
    of whole TPCs, one for each workgroup. Of n SMs, another cluster surely runs while at least `taken` SMs
    have room.
    """
    if not per_sm:
        return 0
    taken = -(-cluster // gpu.sms_per_tpc) * gpu.sms_per_tpc
    return sum((sms - taken) * per_sm // taken + 1 for sms in gpu.gpc_sms if sms >= taken)


class Descriptor:
    """The template of one kernel's descriptor, as u64 words, and the positions of the launch's values.

    Raises `UsageError` if the kernel's shared memory exceeds every carve-out.
    """

    def __init__(self, gpu: NvGpu, choices: NvQuirks, kernel: NvLaunchable) -> None:
        self._gpu, self._kernel, self._choices = gpu, kernel, choices
        # One public launch leaves the carve-outs unset, for a kernel that declares no shared memory.
        declares = kernel.shared_bytes > RESERVED_SHARED
        self._carveout = "wanted" if choices.carveout == "none" and declares else choices.carveout
        # Computed in any case, because it raises if the size exceeds every carve-out.
        least = carveouts(gpu, kernel.shared_bytes)
        self._carveouts = (0, 0) if self._carveout == "none" else least
        version = gpu.generation.qmd
        self.layout = QMDS[version]
        self.dialect = DIALECTS[version]
        fields = self._fields(gpu, choices, kernel)
        names = set(self.layout.FIELDS) - (frozenset() if choices.full_descriptor else _SPARE)
        words = self.layout.pack(**{name: value for name, value in fields.items() if name in names})
        self.template = array("Q", array("I", words).tobytes())
        self.grid = tuple(_site(self.layout, name) for name in self.dialect.grid)
        self.threads = tuple(_site(self.layout, name) for name in THREADS)
        self.target = _site(self.layout, "TARGET_SM_CONFIG_SHARED_MEM_SIZE")
        self.bank0 = _site(self.layout, self.dialect.bank[0])[0]
        """Index of the u64 word that receives bank 0's address, shifted right by `dialect.bank_shift`."""
        values = (1, DependentAction.QMD_INVALIDATE_COPY_SCHEDULE, choices.dependent_launch == "prefetch")
        dependent: dict[int, int] = {}
        for name, value in zip(self.dialect.dependent, values, strict=True):
            index, lo, _ = _site(self.layout, name)
            dependent[index] = dependent.get(index, 0) | value << lo
        self._dependent = tuple(dependent.items())
        self._pointer = _site(self.layout, "DEPENDENT_QMD0_POINTER")

    def _fields(self, gpu: NvGpu, choices: NvQuirks, kernel: NvLaunchable) -> dict[str, object]:
        dialect, version = self.dialect, gpu.generation.qmd
        shared = 0 if self._carveout == "none" else kernel.shared_bytes
        program = kernel.program >> dialect.program_shift
        prefetch = kernel.program // PREFETCH_UNIT
        valid = [False] * CONSTANT_BANKS
        lower, upper, sizes = [0] * CONSTANT_BANKS, [0] * CONSTANT_BANKS, [0] * CONSTANT_BANKS
        for number, (va, size) in {**kernel.banks, 0: (0, kernel.bank0_bytes)}.items():
            valid[number], sizes[number] = True, -(-size // 16)
            lower[number], upper[number] = va >> dialect.bank_shift & _WORD, va >> dialect.bank_shift >> 32
        return {
            "QMD_TYPE": choices.qmd_type,
            "QMD_GROUP_ID": GROUP_IDS[version] if choices.group_id is None else choices.group_id,
            "SM_GLOBAL_CACHING_ENABLE": True,
            "API_VISIBLE_CALL_LIMIT": CallLimit.NO_CHECK,
            "SAMPLER_INDEX": SamplerIndex(int(choices.sampler_via_header)),
            "CWD_MEMBAR_TYPE": MembarType.L1_SYSMEMBAR,
            "INVALIDATE_TEXTURE_HEADER_CACHE": True,
            "INVALIDATE_TEXTURE_SAMPLER_CACHE": True,
            "INVALIDATE_TEXTURE_DATA_CACHE": True,
            "INVALIDATE_SHADER_DATA_CACHE": True,
            "SASS_VERSION": sass_version(gpu.sm_version),
            dialect.registers: kernel.registers,
            "BARRIER_COUNT": kernel.barriers,
            dialect.program[0]: program & _WORD,
            dialect.program[1]: program >> 32,
            "PROGRAM_PREFETCH_ADDR_LOWER_SHIFTED": prefetch & _WORD,
            "PROGRAM_PREFETCH_ADDR_UPPER_SHIFTED": prefetch >> 32,
            "PROGRAM_PREFETCH_SIZE": min(kernel.code_bytes // PREFETCH_UNIT, PREFETCH_MAX),
            dialect.shared: shared >> dialect.shared_shift,
            "MIN_SM_CONFIG_SHARED_MEM_SIZE": self._carveouts[0],
            "MAX_SM_CONFIG_SHARED_MEM_SIZE": self._carveouts[1],
            dialect.local.format(choices.stack.upper()): kernel.local_bytes >> dialect.local_shift,
            "CONSTANT_BUFFER_VALID": tuple(valid),
            "CONSTANT_BUFFER_INVALIDATE": (True,),
            dialect.bank[0]: tuple(lower),
            dialect.bank[1]: tuple(upper),
            "CONSTANT_BUFFER_SIZE_SHIFTED4": tuple(sizes),
        }

    def shaped(
        self,
        groups: tuple[int, int, int],
        threads: tuple[int, int, int],
        cluster: tuple[int, int, int] | None = None,
    ) -> array[int]:
        """Return a copy with the launch shape set; bank 0's address is still 0.

        `groups` counts workgroups, `threads` the threads of one, `cluster` the workgroups of a cluster; None:
        a grid without clusters. Raises `UsageError` if a dimension is below 1 or does not fit its field. The
        cluster must be valid (`hcq.commands.check_cluster`).
        """
        words = self.template[:]
        target = self._carveouts[0]
        if self._carveout == "wanted":
            target = wanted_carveout(self._gpu, self._kernel, math.prod(threads))
        index, lo, _ = self.target
        words[index] |= target << lo
        for values, sites in ((groups, self.grid), (threads, self.threads)):
            for value, (index, lo, width) in zip(values, sites, strict=True):
                if not 0 < value < 1 << width:
                    raise UsageError(
                        f"{groups} workgroups of {threads} threads: {value} does not fit {width} bits"
                    )
                words[index] |= value << lo
        if cluster is not None:
            self._set_cluster(words, cluster)
        return words

    def _set_cluster(self, words: array[int], cluster: tuple[int, int, int]) -> None:
        """Set the fields of a grid in clusters; the layout has them since V04."""
        choices = self._choices
        fields = {_TYPE: choices.cluster_type, **dict(zip(_GPC, cluster, strict=True))}
        fields[_SPREAD] = (
            CtaDistribution.LOAD_BALANCING
            if choices.cluster_spread == "balanced"
            else CtaDistribution.MULTI_CAST
        )
        if choices.cluster_size == "both":
            fields |= dict(zip(_GPU, cluster, strict=True))
        for name, value in fields.items():
            index, lo, width = _site(self.layout, name)
            words[index] = words[index] & ~((1 << width) - 1 << lo) | value << lo

    def links(self, va: int) -> list[tuple[int, int]]:
        """Return (index, bits to set) of the u64 words of this descriptor that name the one at address `va`.

        The scheduler then starts that descriptor when this grid has ended.
        """
        index, lo, _ = self._pointer
        return [*self._dependent, (index, va >> 8 << lo)]

    def grid_site(self, axis: int) -> tuple[int, int, int]:
        """Return (byte offset of the u64 word, lowest bit, width) of a grid dimension, for patches."""
        index, lo, width = self.grid[axis]
        return 8 * index, lo, width


def _site(layout: type[BitStruct], name: str) -> tuple[int, int, int]:
    """Return (u64 index, lowest bit, width) of a field, or of the first element of an array.

    The field must not cross a u32 word.
    """
    site, *_ = layout.sites(name)
    return site.word // 2, site.word % 2 * 32 + site.lo, site.width
