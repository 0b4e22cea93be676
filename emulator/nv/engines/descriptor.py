"""Launch descriptors (QMDs) of all versions in one form, checked bit by bit (docs/facts/nv.md 4).

A descriptor that the GPU refuses raises `ChannelError`.

Not here: the layouts (`drivers.nv.layouts.qmd`), constant banks (`banks`). Next: `fit`, the requirements of
the kernel in the image.
"""

from __future__ import annotations

import enum
import functools
import re
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from drivers.nv.layouts.qmd import QMDS, sass_version, sm_config
from drivers.nv.layouts.qmd_values import (
    DependentAction,
    InterruptType,
    MembarType,
    QmdType,
    ReductionOp,
    SemaphoreSize,
)
from emulator.nv.engines import semaphore
from emulator.nv.engines.banks import Bank, bank_address, banks_of
from emulator.nv.reports import FindingKind, launch_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from emulator.nv.profiles import Profile
    from hcq.layout import Field

T = TypeVar("T")


def template(value: T, *free: str) -> Callable[..., T]:
    """Return a function that makes copies of `value`; it takes values for the fields `free` as keywords."""
    one: Any = value
    fixed = {each.name: getattr(one, each.name) for each in fields(one) if each.name not in free}
    return partial(type(value), **fixed)


Dim3 = tuple[int, int, int]

MOST_CLUSTER_GROUPS = {"V04": 16, "V05": 8}
"""Version of the descriptor -> the most workgroups of a cluster (CUDA programming guide: 8 are portable)."""
# The fields that a launch may set.

_UNDERSTOOD = re.compile(
    r"QMD_GROUP_ID|QMD_TYPE|IS_QUEUE|SM_GLOBAL_CACHING_ENABLE|INVALIDATE_\w+|CWD_MEMBAR_TYPE|API_VISIBLE_CALL_LIMIT"
    r"|SAMPLER_INDEX|CTA_RASTER_(WIDTH|HEIGHT|DEPTH)|GRID_(WIDTH|HEIGHT|DEPTH)|CTA_THREAD_DIMENSION\d"
    r"|DEPENDENT_QMD\d?_(POINTER|ENABLE|ACTION|PREFETCH)|SHARED_MEMORY_SIZE(_SHIFTED7)?|(MIN|MAX|TARGET)_SM_CONFIG_SHARED_MEM_SIZE"
    r"|QMD_(MAJOR_|MINOR_)?VERSION|CONSTANT_BUFFER_\w+|REGISTER_COUNT(_V)?|BARRIER_COUNT|SHADER_LOCAL_MEMORY_\w+"
    r"|RELEASE(?!_RESERVED)\w*|PROGRAM_\w+|SASS_VERSION|DEBUG_ID_\w+|CORRELATION_ID|(GPC|GPU)_CGA_(WIDTH|HEIGHT|DEPTH)"
    r"|CGA_CTA_DISTRIBUTION_MODE"
)
# The fields in which any value is valid.
_FREE = re.compile(
    r"CONSTANT_BUFFER_ADDR_(LOWER|UPPER)(_SHIFTED6)?|RELEASE\d_(ADDRESS|PAYLOAD)_(LOWER|UPPER)"
    r"|RELEASE_SEMAPHORE\d_(ADDR|PAYLOAD)_(LOWER|UPPER)"
)
_KEPT = 256
"""Descriptors that a reader keeps."""
_GPU_CLUSTERS = (QmdType.GRID_GPU_CGA, QmdType.GRID_GPU_GPC_CGA)
_CLUSTER = re.compile(r"GPC_CGA_\w+|GPU_CGA_\w+|CGA_\w+|LARGE_GPC_CGA_\w+")


@dataclass(frozen=True, slots=True)
class GridRelease:
    """A semaphore release at the end of a grid."""

    va: int
    """Device address of the semaphore."""
    payload: int
    """The value that is stored, or the operand of the reduction."""
    size: SemaphoreSize
    """Whether it also stores a timestamp (four words)."""
    wide: bool
    """Whether the payload has 64 bits, else 32."""
    reduction: ReductionOp | None
    """The reduction of the payload into memory; None: a plain store."""
    signed: bool
    """Whether a reduction compares signed values."""
    trap: bool
    """Whether the release interrupts the host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchDescriptor:
    """The decoded descriptor of a launch."""

    va: int
    """Its device address."""
    raw: bytes
    """Its bytes in memory."""
    ruled: int
    """The descriptor as a number, with the bits of `_free_bits` set to 0."""
    grid: Dim3
    block: Dim3
    cluster: Dim3 | None
    """The workgroups of a cluster along each axis; None: a launch without clusters."""
    program: int
    """Address of the kernel's code."""
    prefetch: tuple[int, int]
    """Address and size in bytes of the code to prefetch."""
    registers: int
    """Registers of a thread."""
    barriers: int
    """The number of barriers of a workgroup."""
    shared: int
    """Shared memory of a workgroup in bytes."""
    configs: Dim3
    """Codes of the minimum, the target and the maximum shared-memory carve-out."""
    local: tuple[int, int]
    """Local memory of a thread in bytes: the low and the high size."""
    banks: dict[int, Bank]
    """Index -> constant bank, of those that are bound."""
    releases: tuple[GridRelease, ...]
    """The enabled releases, in order."""
    dependents: tuple[tuple[int, bool, bool], ...]
    """Dependent launches: the address of the descriptor, whether it is invalidated first, whether
    prefetched."""
    membar: MembarType
    """The memory barrier at the end of the grid."""
    invalidates_instructions: bool
    invalidates_constants: bool
    invalidates_data: bool
    caches_loads: bool
    """Whether loads from global memory use the L1."""

    @property
    def threads(self) -> int:
        """The number of threads of a workgroup."""
        return self.block[0] * self.block[1] * self.block[2]


def descriptor_bytes(profile: Profile) -> int:
    """Return the size in bytes of a GPU's descriptors."""
    return QMDS[profile.generation.qmd].SIZE


class DescriptorReader:
    """Reads the launch descriptors of one GPU.

    Descriptors that are equal outside `_free_bits` are checked once.

    Launches of a kernel often differ only in the addresses of their constant banks, and in addresses and
    payloads of their releases.
    """

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._version = profile.generation.qmd
        self._known: dict[int, tuple[LaunchDescriptor, Callable[..., LaunchDescriptor]]] = {}
        """`LaunchDescriptor.ruled` -> a valid descriptor with it, and a function that makes copies."""

    def read(self, va: int, raw: bytes) -> LaunchDescriptor:
        """Decode and check the descriptor with the bytes `raw` at `va`. Raises as the function `read`."""
        version, whole = self._version, int.from_bytes(raw, "little")
        known = self._known.get(whole & ~_free_bits(version))
        if known is None:
            one = read(self._profile, va, raw)
            if len(self._known) >= _KEPT:
                self._known.clear()
            self._known[one.ruled] = one, template(one, "va", "raw", "banks", "releases")
            return one
        like, make = known
        banks = {
            i: Bank(i, bank_address(version, whole, i), bank.size, bank.invalidate)
            for i, bank in like.banks.items()
        }
        releases = like.releases
        if releases:
            releases = _releases(QMDS[version].from_int(whole), old=version == "V03")
        return make(va=va, raw=raw, banks=banks, releases=releases)


def read(profile: Profile, va: int, raw: bytes) -> LaunchDescriptor:
    """Decode and check the descriptor with the bytes `raw` at `va`, without regard to its kernel.

    Raises a launch error if it is invalid or sets a field that is not emulated.
    """
    version = profile.generation.qmd
    qmd: Any = QMDS[version].from_bytes(raw)  # the versions differ in their fields
    _judge(profile, qmd, version)
    old, five = version == "V03", version == "V05"
    if old:
        grid = (qmd.CTA_RASTER_WIDTH, qmd.CTA_RASTER_HEIGHT, qmd.CTA_RASTER_DEPTH)
    else:
        grid = (qmd.GRID_WIDTH, qmd.GRID_HEIGHT, qmd.GRID_DEPTH)
    low, high = ("SHADER_LOCAL_MEMORY_LOW_SIZE", "SHADER_LOCAL_MEMORY_HIGH_SIZE")
    if five:
        program = (qmd.PROGRAM_ADDRESS_UPPER_SHIFTED4 << 32 | qmd.PROGRAM_ADDRESS_LOWER_SHIFTED4) << 4
        local = (getattr(qmd, low + "_SHIFTED4") << 4, getattr(qmd, high + "_SHIFTED4") << 4)
    else:
        program = qmd.PROGRAM_ADDRESS_UPPER << 32 | qmd.PROGRAM_ADDRESS_LOWER
        local = (getattr(qmd, low), getattr(qmd, high))
    prefetch = (qmd.PROGRAM_PREFETCH_ADDR_UPPER_SHIFTED << 32 | qmd.PROGRAM_PREFETCH_ADDR_LOWER_SHIFTED) << 8
    configs = (
        qmd.MIN_SM_CONFIG_SHARED_MEM_SIZE,
        qmd.TARGET_SM_CONFIG_SHARED_MEM_SIZE,
        qmd.MAX_SM_CONFIG_SHARED_MEM_SIZE,
    )
    descriptor = LaunchDescriptor(
        va=va,
        raw=raw,
        ruled=int(qmd) & ~_free_bits(version),
        grid=grid,
        block=(qmd.CTA_THREAD_DIMENSION0, qmd.CTA_THREAD_DIMENSION1, qmd.CTA_THREAD_DIMENSION2),
        cluster=_cluster(qmd, version),
        program=program,
        prefetch=(prefetch, qmd.PROGRAM_PREFETCH_SIZE << 8),
        registers=qmd.REGISTER_COUNT_V if old else qmd.REGISTER_COUNT,
        barriers=qmd.BARRIER_COUNT,
        shared=qmd.SHARED_MEMORY_SIZE_SHIFTED7 << 7 if five else qmd.SHARED_MEMORY_SIZE,
        configs=configs,
        local=local,
        banks=banks_of(version, int(qmd)),
        releases=_releases(qmd, old=old),
        dependents=_dependents(qmd, version),
        invalidates_instructions=bool(qmd.INVALIDATE_INSTRUCTION_CACHE),
        invalidates_constants=bool(qmd.INVALIDATE_SHADER_CONSTANT_CACHE),
        invalidates_data=bool(qmd.INVALIDATE_SHADER_DATA_CACHE),
        caches_loads=bool(qmd.SM_GLOBAL_CACHING_ENABLE) if old else True,
        membar=MembarType(qmd.CWD_MEMBAR_TYPE),
    )
    _judge_shape(profile, descriptor)
    return descriptor


@functools.cache
def _free_bits(version: str) -> int:
    """Return the mask of bits in which any value is valid; `bank_address` checks the alignment of banks."""
    return sum(field.mask() for name, field in QMDS[version].FIELDS.items() if _FREE.fullmatch(name))


@functools.cache
def _masks(version: str) -> tuple[int, tuple[Field, ...]]:
    """Return the mask of bits that a launch may set, and the fields whose values are enumerated."""
    layout = QMDS[version]
    understood = [field for name, field in layout.FIELDS.items() if _UNDERSTOOD.fullmatch(name)]
    named = tuple(field for field in understood if issubclass(field.type, enum.Enum))
    return sum(field.mask() for field in understood), named


def _judge_bits(qmd: Any, version: str) -> None:
    """Refuse undeclared bits, values that are not enumerated, and fields that are not emulated."""
    understood, named = _masks(version)
    stray = int(qmd) & ~understood
    if not stray and all(
        field.extract(int(qmd), i) in field.type._value2member_map_
        for field in named
        for i in range(field.count)
    ):
        return
    violations = qmd.check()
    if violations:
        raise launch_error(str(violations[0]))
    name = next(name for name, field in qmd.FIELDS.items() if field.mask() & stray)
    kind = FindingKind.UNSUPPORTED if _CLUSTER.fullmatch(name) else FindingKind.LAUNCH
    raise launch_error(
        f"{type(qmd).__name__}.{name} = {getattr(qmd, name)}: nothing that is emulated sets it", kind
    )


def _judge(profile: Profile, qmd: Any, version: str) -> None:
    """Raise `ChannelError` for a descriptor that hardware refuses, or that is not emulated."""
    major = {"V03": 3, "V04": 4, "V05": 5}[version]
    minor = qmd.QMD_VERSION if version == "V03" else qmd.QMD_MINOR_VERSION
    if (qmd.QMD_MAJOR_VERSION, minor) != (major, 0):
        raise launch_error(f"QMD version {qmd.QMD_MAJOR_VERSION}.{minor}: {profile.gpu_name} takes {major}.0")
    if version != "V03" and qmd.QMD_TYPE in _GPU_CLUSTERS:
        raise launch_error(
            f"QMD_TYPE {QmdType(qmd.QMD_TYPE).name}: clusters across GPCs are not emulated; use GRID_GPC_CGA",
            FindingKind.UNSUPPORTED,
        )
    _judge_bits(qmd, version)
    grids = (QmdType.GRID_CTA, QmdType.GRID_GPC_CGA)
    if qmd.IS_QUEUE if version == "V03" else qmd.QMD_TYPE not in grids:
        raise launch_error(
            "the descriptor launches no grid: wanted QMD_TYPE GRID_CTA or GRID_GPC_CGA, or IS_QUEUE 0"
        )
    wanted = sass_version(profile.chip.sm_versions[0])
    if qmd.SASS_VERSION not in (0, wanted):
        raise launch_error(f"SASS_VERSION {qmd.SASS_VERSION:#x} is not {wanted:#x}")


def _cluster(qmd: Any, version: str) -> Dim3 | None:
    """Return the workgroups of a cluster along each axis; None for a launch without clusters.

    Refuses sizes in a launch without clusters, and sizes of 0. Clusters across GPCs are not emulated, so
    their sizes must be 0 or equal to those within a GPC.
    """
    if version == "V03":
        return None
    shape = (qmd.GPC_CGA_WIDTH, qmd.GPC_CGA_HEIGHT, qmd.GPC_CGA_DEPTH)
    across = (qmd.GPU_CGA_WIDTH, qmd.GPU_CGA_HEIGHT, qmd.GPU_CGA_DEPTH)
    if qmd.QMD_TYPE != QmdType.GRID_GPC_CGA:
        if any((*shape, *across, qmd.CGA_CTA_DISTRIBUTION_MODE)):
            raise launch_error(
                f"GPC_CGA_WIDTH to DEPTH {shape}, GPU_CGA {across}, CGA_CTA_DISTRIBUTION_MODE "
                f"{qmd.CGA_CTA_DISTRIBUTION_MODE} with QMD_TYPE GRID_CTA: wanted GRID_GPC_CGA, or 0"
            )
        return None
    if any(across) and across != shape:
        raise launch_error(f"GPU_CGA sizes {across} beside GPC_CGA sizes {shape}: wanted the same, or 0")
    if 0 in shape:
        raise launch_error(
            f"QMD_TYPE GRID_GPC_CGA with clusters of {shape}: wanted 1 at least along each axis"
        )
    return shape


def _judge_cluster(profile: Profile, grid: Dim3, cluster: Dim3) -> None:
    """Refuse a grid that is no whole number of clusters, and clusters that are larger than the GPU allows."""
    if any(count % size for count, size in zip(grid, cluster, strict=True)):
        raise launch_error(
            f"grid {grid} is no whole number of clusters of {cluster}: wanted a multiple along each axis"
        )
    size, most = cluster[0] * cluster[1] * cluster[2], MOST_CLUSTER_GROUPS[profile.generation.qmd]
    if size > most:
        raise launch_error(
            f"clusters of {cluster} have {size} workgroups: {profile.gpu_name} takes {most} at most, "
            "8 are portable"
        )


def _judge_shape(profile: Profile, one: LaunchDescriptor) -> None:
    """Refuse invalid shapes; the limits are those of the CUDA programming guide."""
    if 0 in one.grid or 0 in one.block:
        raise launch_error(f"grid {one.grid} or block {one.block} of CTA_THREAD_DIMENSION0 to 2 has a zero")
    if one.grid[0] >= 1 << 31:
        raise launch_error(f"grid {one.grid} is wider than 2^31 - 1")
    if one.cluster is not None:
        _judge_cluster(profile, one.grid, one.cluster)
    if one.threads > 1024 or one.block[2] > 64:
        raise launch_error(f"block {one.block} of CTA_THREAD_DIMENSION0 to 2: at most 1024 threads, 64 in z")
    step = 0x100 if profile.generation.qmd == "V04" else 0x80  # the unit of public launches
    if one.shared % step:
        raise launch_error(f"SHARED_MEMORY_SIZE {one.shared:#x} is no multiple of {step:#x}")
    if not one.shared and not any(one.configs):
        return
    known = {sm_config(kib): kib for kib in profile.chip.carveouts_kib}
    least, target, most = one.configs
    for name, code in zip(("MIN", "TARGET", "MAX"), one.configs, strict=True):
        if code not in known:
            raise launch_error(
                f"{name}_SM_CONFIG_SHARED_MEM_SIZE {code:#x} is no carve-out; known: "
                f"{[hex(c) for c in known]}"
            )
    if not least <= target <= most:
        raise launch_error(f"shared-memory carve-outs {one.configs} are not in order: min, target, max")
    if known[least] << 10 < one.shared:
        raise launch_error(
            f"a workgroup of {one.shared:#x} bytes shared does not fit a carve-out of {known[least]} KiB"
        )


def _numbered(qmd: Any, i: int, name: str) -> Any:
    return getattr(qmd, f"RELEASE{i}_{name}")


def _indexed(qmd: Any, i: int, name: str) -> Any:
    return getattr(qmd, f"RELEASE_{name}")[i]


def _releases(qmd: Any, *, old: bool) -> tuple[GridRelease, ...]:
    """Return the enabled releases; `old`: their fields have the names of version V03.

    Raises `ChannelError`.
    """
    out = []
    for i in range(3):
        if old:
            get = partial(_numbered, qmd, i)
            va = get("ADDRESS_UPPER") << 32 | get("ADDRESS_LOWER")
            low, high, trap = get("PAYLOAD_LOWER"), get("PAYLOAD_UPPER"), get("NON_BLOCKING_INTR_TYPE")
        else:
            get = partial(_indexed, qmd, i)
            base = f"RELEASE_SEMAPHORE{i}_"
            va = getattr(qmd, base + "ADDR_UPPER") << 32 | getattr(qmd, base + "ADDR_LOWER")
            low, high, trap = (
                getattr(qmd, base + "PAYLOAD_LOWER"),
                getattr(qmd, base + "PAYLOAD_UPPER"),
                get("TRAP_TYPE"),
            )
        if not get("ENABLE"):
            continue
        _judge_release(i, get, trap)
        if get("MEMBAR_TYPE") == 0 and qmd.CWD_MEMBAR_TYPE == MembarType.L1_NONE:
            raise launch_error(
                f"release {i} without any membar: the grid's stores may not be seen", FindingKind.COHERENCE
            )
        wide = bool(get("PAYLOAD64B"))
        reduction = ReductionOp(get("REDUCTION_OP")) if get("REDUCTION_ENABLE") else None
        out.append(
            GridRelease(
                va,
                high << 32 | low if wide else low,
                get("STRUCTURE_SIZE"),
                wide,
                reduction,
                bool(get("REDUCTION_FORMAT")),
                bool(trap),
            )
        )
    return tuple(out)


def _judge_release(i: int, get: Any, trap: int) -> None:
    """Refuse a release with contradictory fields."""
    reduces, size = bool(get("REDUCTION_ENABLE")), get("STRUCTURE_SIZE")
    wrong = semaphore.misfit(size, wide=bool(get("PAYLOAD64B")))
    if reduces and size is SemaphoreSize.SEMAPHORE_FOUR_WORDS:  # where the time goes is not documented
        wrong = FindingKind.UNSUPPORTED, "a reduction of four words"
    elif not reduces and (get("REDUCTION_OP") or get("REDUCTION_FORMAT")):
        wrong = FindingKind.LAUNCH, "reduction bits without reduction"
    elif trap > InterruptType.TRAP:
        wrong = FindingKind.UNSUPPORTED, f"trap type {trap}, whose condition the facts do not give"
    if wrong:
        kind = FindingKind.LAUNCH if wrong[0] is FindingKind.METHOD else wrong[0]
        raise launch_error(f"release {i}: {wrong[1]}", kind)


def _dependents(qmd: Any, version: str) -> tuple[tuple[int, bool, bool], ...]:
    """Return (address, whether to read it anew, whether to prefetch it) of each dependent descriptor."""
    out = []
    for i in range(2):
        enable, action, prefetch = (
            getattr(qmd, f"DEPENDENT_QMD_{what}")[i]
            if version == "V04"
            else getattr(qmd, f"DEPENDENT_QMD{i}_{what}")
            for what in ("ENABLE", "ACTION", "PREFETCH")
        )
        if not enable:
            continue
        pointer = f"DEPENDENT_QMD{i}_POINTER"
        if pointer not in qmd.FIELDS:
            raise launch_error(f"dependent descriptor {i} has no pointer in version {version}")
        if action not in (DependentAction.QMD_SCHEDULE, DependentAction.QMD_INVALIDATE_COPY_SCHEDULE):
            raise launch_error(f"dependent action {action!r} is not emulated", FindingKind.UNSUPPORTED)
        invalidates = action == DependentAction.QMD_INVALIDATE_COPY_SCHEDULE
        out.append((getattr(qmd, pointer) << 8, invalidates, bool(prefetch)))
    return tuple(out)
