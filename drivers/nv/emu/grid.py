"""One launch descriptor: decoded by its version, checked against the machine and the image, and run. Sources: nv.md 4, 5.3, 5.6.

Fields that the emulated GPU does not know must be zero. Parameters, %ntid and %nctaid come from constant
bank 0, at the offsets the machine code reads them from, so that a wrong bank shows as it would on hardware.
"""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from drivers.emu.launch import Options, Work, launch
from drivers.emu.report import Report, ReportKind
from drivers.nv.emu.stops import ChannelError
from drivers.nv.layouts.compute import LOCAL_WINDOW_BYTES, SHARED_WINDOW_ALIGN, ComputeMethod
from drivers.nv.layouts.cubin import BANK0, RESERVED_SHARED
from drivers.nv.layouts.fault import WARP_ESR_INVALID_ADDRESS_SPACE, MmuAccess, RcCode
from drivers.nv.layouts.qmd import CARVEOUTS_KIB, CONSTANT_BANKS, TYPE_GRID_CTA, sass_version, sm_config
from drivers.nv.layouts.qmd_values import DependentAction, SemaphoreSize

if TYPE_CHECKING:
    from drivers.nv.emu.channel import Channel
    from drivers.nv.emu.images import Loaded
    from hcq.bits import BitStruct

_TIMEOUT_S = 30.0
_HINTS = {
    "QMD_GROUP_ID", "SM_GLOBAL_CACHING_ENABLE", "API_VISIBLE_CALL_LIMIT", "SAMPLER_INDEX", "CWD_MEMBAR_TYPE", "INVALIDATE_TEXTURE_HEADER_CACHE",
    "INVALIDATE_TEXTURE_SAMPLER_CACHE", "INVALIDATE_TEXTURE_DATA_CACHE", "INVALIDATE_SHADER_DATA_CACHE", "INVALIDATE_INSTRUCTION_CACHE",
    "INVALIDATE_SHADER_CONSTANT_CACHE", "CONSTANT_BUFFER_PREFETCH", "CONSTANT_BUFFER_PREFETCH_POST", "CONSTANT_BUFFER_INVALIDATE",
    "PROGRAM_PREFETCH_ADDR_LOWER_SHIFTED", "PROGRAM_PREFETCH_ADDR_UPPER_SHIFTED", "PROGRAM_PREFETCH_SIZE", "PROGRAM_PREFETCH_TYPE",
    "SHARED_ALLOCATION_ENABLE", "DEPENDENT_QMD_PREFETCH", "DEPENDENT_QMD0_PREFETCH", "DEPENDENT_QMD1_PREFETCH", "DEMOTE_L2_EVICT_LAST",
}  # fmt: skip
"""Fields that change nothing that can be seen here."""
_USED = {
    "QMD_TYPE", "IS_QUEUE", "QMD_VERSION", "QMD_MINOR_VERSION", "QMD_MAJOR_VERSION", "GRID_WIDTH", "GRID_HEIGHT", "GRID_DEPTH",
    "CTA_RASTER_WIDTH", "CTA_RASTER_HEIGHT", "CTA_RASTER_DEPTH", "CTA_THREAD_DIMENSION0", "CTA_THREAD_DIMENSION1", "CTA_THREAD_DIMENSION2",
    "REGISTER_COUNT", "REGISTER_COUNT_V", "BARRIER_COUNT", "PROGRAM_ADDRESS_LOWER", "PROGRAM_ADDRESS_UPPER",
    "PROGRAM_ADDRESS_LOWER_SHIFTED4", "PROGRAM_ADDRESS_UPPER_SHIFTED4", "SHARED_MEMORY_SIZE", "SHARED_MEMORY_SIZE_SHIFTED7",
    "MIN_SM_CONFIG_SHARED_MEM_SIZE", "MAX_SM_CONFIG_SHARED_MEM_SIZE", "TARGET_SM_CONFIG_SHARED_MEM_SIZE", "SHADER_LOCAL_MEMORY_LOW_SIZE",
    "SHADER_LOCAL_MEMORY_HIGH_SIZE", "SHADER_LOCAL_MEMORY_LOW_SIZE_SHIFTED4", "SHADER_LOCAL_MEMORY_HIGH_SIZE_SHIFTED4", "SASS_VERSION",
    "CONSTANT_BUFFER_VALID", "CONSTANT_BUFFER_ADDR_LOWER", "CONSTANT_BUFFER_ADDR_UPPER", "CONSTANT_BUFFER_ADDR_LOWER_SHIFTED6",
    "CONSTANT_BUFFER_ADDR_UPPER_SHIFTED6", "CONSTANT_BUFFER_SIZE_SHIFTED4", "DEPENDENT_QMD_ENABLE", "DEPENDENT_QMD_ACTION",
    "DEPENDENT_QMD0_ENABLE", "DEPENDENT_QMD0_ACTION", "DEPENDENT_QMD1_ENABLE", "DEPENDENT_QMD1_ACTION", "DEPENDENT_QMD0_POINTER",
    "DEPENDENT_QMD1_POINTER",
}  # fmt: skip
_RELEASE = ("RELEASE",)


class Grid:
    """A decoded launch descriptor; the same questions for every version."""

    def __init__(self, version: str, qmd: BitStruct, va: int) -> None:
        self.version = version
        self.va = va
        self._qmd: Any = qmd

    def error(self, text: str) -> ChannelError:
        """Return an error that names the descriptor."""
        return ChannelError(RcCode.GR_EXCEPTION, f"launch descriptor at {self.va:#x}: {text}")

    def _any(self, *names: str) -> int:
        return int(getattr(self._qmd, next(n for n in names if n in type(self._qmd).FIELDS)))

    def check(self) -> None:
        """Refuse unknown bits, versions and fields."""
        q = self._qmd
        for violation in q.check():
            raise self.error(str(violation))
        major = self._any("QMD_MAJOR_VERSION")
        if major != int(self.version[1:]) or self._any("QMD_VERSION", "QMD_MINOR_VERSION"):
            raise self.error(f"version {major}, this GPU takes {self.version}")
        if self.version == "V03":
            if q.IS_QUEUE:
                raise self.error("IS_QUEUE is set")
        elif q.QMD_TYPE != TYPE_GRID_CTA:
            raise self.error(f"QMD_TYPE {q.QMD_TYPE!r}, wanted GRID_CTA")
        for name in type(q).FIELDS:
            if name in _USED or name in _HINTS or name.startswith(_RELEASE):
                continue
            value = getattr(q, name)
            if any(value) if isinstance(value, tuple) else value:
                raise self.error(f"{name} = {value!r} is not supported by the emulated GPU")

    @property
    def grid(self) -> tuple[int, int, int]:
        """Workgroups."""
        return (
            self._any("GRID_WIDTH", "CTA_RASTER_WIDTH"),
            self._any("GRID_HEIGHT", "CTA_RASTER_HEIGHT"),
            self._any("GRID_DEPTH", "CTA_RASTER_DEPTH"),
        )

    @property
    def block(self) -> tuple[int, int, int]:
        """Threads a workgroup."""
        q = self._qmd
        return q.CTA_THREAD_DIMENSION0, q.CTA_THREAD_DIMENSION1, q.CTA_THREAD_DIMENSION2

    @property
    def registers(self) -> int:
        """Registers a thread."""
        return self._any("REGISTER_COUNT", "REGISTER_COUNT_V")

    @property
    def barriers(self) -> int:
        """Barriers a workgroup."""
        return int(self._qmd.BARRIER_COUNT)

    @property
    def program(self) -> int:
        """The code's address."""
        if self.version == "V05":
            return (
                int(self._qmd.PROGRAM_ADDRESS_LOWER_SHIFTED4 | self._qmd.PROGRAM_ADDRESS_UPPER_SHIFTED4 << 32)
                << 4
            )
        return int(self._qmd.PROGRAM_ADDRESS_LOWER | self._qmd.PROGRAM_ADDRESS_UPPER << 32)

    @property
    def shared(self) -> int:
        """Bytes of shared memory a workgroup."""
        return int(
            self._qmd.SHARED_MEMORY_SIZE_SHIFTED7 << 7
            if self.version == "V05"
            else self._qmd.SHARED_MEMORY_SIZE
        )

    @property
    def local(self) -> int:
        """Bytes of local memory a thread."""
        if self.version == "V05":
            return (
                int(
                    self._qmd.SHADER_LOCAL_MEMORY_LOW_SIZE_SHIFTED4
                    + self._qmd.SHADER_LOCAL_MEMORY_HIGH_SIZE_SHIFTED4
                )
                << 4
            )
        return int(self._qmd.SHADER_LOCAL_MEMORY_LOW_SIZE + self._qmd.SHADER_LOCAL_MEMORY_HIGH_SIZE)

    def configurations(self) -> tuple[int, int, int]:
        """Return the codes of the smallest, largest and wanted shared-memory carve-out."""
        q = self._qmd
        return (
            q.MIN_SM_CONFIG_SHARED_MEM_SIZE,
            q.MAX_SM_CONFIG_SHARED_MEM_SIZE,
            q.TARGET_SM_CONFIG_SHARED_MEM_SIZE,
        )

    @property
    def sass(self) -> int:
        """The code's version byte."""
        return int(self._qmd.SASS_VERSION)

    def banks(self) -> dict[int, tuple[int, int]]:
        """Return the bound constant banks: number -> address and bytes."""
        q, found = self._qmd, {}
        for i in range(CONSTANT_BANKS):
            if not q.CONSTANT_BUFFER_VALID[i]:
                continue
            if self.version == "V03":
                address = q.CONSTANT_BUFFER_ADDR_LOWER[i] | q.CONSTANT_BUFFER_ADDR_UPPER[i] << 32
                if address % 256:
                    raise self.error(f"constant bank {i} at {address:#x} is not aligned to 256 bytes")
            else:
                address = (
                    q.CONSTANT_BUFFER_ADDR_LOWER_SHIFTED6[i] | q.CONSTANT_BUFFER_ADDR_UPPER_SHIFTED6[i] << 32
                ) << 6
            found[i] = (address, q.CONSTANT_BUFFER_SIZE_SHIFTED4[i] << 4)
        return found

    def dependents(self) -> list[tuple[int, DependentAction]]:
        """Return the descriptors that this grid starts when it ends."""
        q, found = self._qmd, []
        for i in (0, 1):
            many = "DEPENDENT_QMD_ENABLE" in type(q).FIELDS
            enabled = q.DEPENDENT_QMD_ENABLE[i] if many else getattr(q, f"DEPENDENT_QMD{i}_ENABLE")
            if not enabled:
                continue
            if f"DEPENDENT_QMD{i}_POINTER" not in type(q).FIELDS:
                raise self.error(f"dependent {i} has no pointer in this version")
            action = q.DEPENDENT_QMD_ACTION[i] if many else getattr(q, f"DEPENDENT_QMD{i}_ACTION")
            found.append((getattr(q, f"DEPENDENT_QMD{i}_POINTER") << 8, DependentAction(action)))
        return found

    def releases(self) -> list[tuple[int, int, int, bool]]:
        """Return the semaphores of the grid's end: address, payload, bytes, whether with the time."""
        q, found = self._qmd, []
        for i in range(3):
            old = self.version == "V03"
            if not (getattr(q, f"RELEASE{i}_ENABLE") if old else q.RELEASE_ENABLE[i]):
                continue
            name = f"RELEASE{i}_ADDRESS" if old else f"RELEASE_SEMAPHORE{i}_ADDR"
            pay = f"RELEASE{i}_PAYLOAD" if old else f"RELEASE_SEMAPHORE{i}_PAYLOAD"
            address = getattr(q, f"{name}_LOWER") | getattr(q, f"{name}_UPPER") << 32
            payload = getattr(q, f"{pay}_LOWER") | getattr(q, f"{pay}_UPPER") << 32
            wide = getattr(q, f"RELEASE{i}_PAYLOAD64B") if old else q.RELEASE_PAYLOAD64B[i]
            size = getattr(q, f"RELEASE{i}_STRUCTURE_SIZE") if old else q.RELEASE_STRUCTURE_SIZE[i]
            if getattr(q, f"RELEASE{i}_REDUCTION_ENABLE") if old else q.RELEASE_REDUCTION_ENABLE[i]:
                raise self.error("a reducing release is not supported by the emulated GPU")
            found.append(
                (
                    address,
                    payload if wide else payload & 0xFFFF_FFFF,
                    8 if wide else 4,
                    size == SemaphoreSize.SEMAPHORE_FOUR_WORDS,
                )
            )
        return found


def run_grid(channel: Channel, grid: Grid) -> None:
    """Check a grid against machine, channel state and image, run it, write its releases."""
    grid.check()
    profile = channel.gpu.profile
    banks = grid.banks()
    for number, (address, size) in banks.items():
        channel.memory.host(address, size)
        del number
    loaded = channel.gpu.images.find(channel.memory, grid.program, banks)
    _check_shape(grid, loaded, profile.arch, profile.generation.sm_version)
    windows = _check_windows(channel)
    _check_local(channel, grid, loaded)
    layout: Any = BANK0[profile.arch]
    if 0 not in banks:
        raise grid.error("constant bank 0 is not bound")
    address, size = banks[0]
    if size < loaded.param_offset + loaded.param_size or loaded.param_offset != layout.SIZE:
        raise grid.error(
            f"constant bank 0 of {size} bytes; {loaded.name} reads {loaded.param_size} bytes at {loaded.param_offset:#x}"
        )
    head = layout.from_bytes(channel.memory.fetch(address, layout.SIZE))
    flat = loaded.kernel.flat
    params = (
        channel.memory.fetch(address + layout.SIZE, max(flat.param_bytes, 0)) if flat.param_bytes else b""
    )
    params = params.ljust(flat.table_offset, b"\0") + b"".join(_symbol(loaded, s) for s in flat.symbols)
    shared = grid.shared - RESERVED_SHARED
    work = Work(
        grid=grid.grid,
        block=grid.block,
        params=params,
        shared_bytes=shared,
        dynamic_shared=head.dynamic_shared_size,
        local_bytes=flat.local_bytes,
        told_grid=head.nctaid,
        told_block=head.ntid,
    )
    options = Options(
        shared_window=windows[0],
        local_window=windows[1],
        timeout_s=_TIMEOUT_S,
        group_seed=profile.seed,
        warp_order=profile.seed or "forward",
    )
    result = launch(loaded.kernel.program, work, channel.memory.space, options)
    if result.fault is not None:
        _fault(channel, result.fault, grid)
    for at, payload, width, timestamp in grid.releases():
        channel.memory.release(at, payload, width, timestamp=timestamp)
        channel.gpu.wake()


def _symbol(loaded: Loaded, name: str) -> bytes:
    if name not in loaded.symbols:
        raise ChannelError(
            RcCode.GR_EXCEPTION, f"{loaded.name} uses {name}, whose address no relocation and no bank tells"
        )
    return struct.pack("<Q", loaded.symbols[name])


def _check_shape(grid: Grid, loaded: Loaded, arch: str, sm: int) -> None:
    x, y, z = grid.block
    threads = x * y * z
    if min(*grid.grid, *grid.block) < 1 or threads > min(1024, loaded.max_threads):
        raise grid.error(
            f"grid {grid.grid} of blocks {grid.block}; {loaded.name} takes at most {loaded.max_threads} threads"
        )
    if grid.registers < loaded.registers or grid.registers > 255:
        raise grid.error(f"{grid.registers} registers, {loaded.name} needs {loaded.registers}")
    if threads * grid.registers > 65536:
        raise grid.error(f"{threads} threads of {grid.registers} registers exceed 65536")
    if grid.barriers < loaded.barriers:
        raise grid.error(f"{grid.barriers} barriers, {loaded.name} needs {loaded.barriers}")
    if grid.sass not in (0, sass_version(sm)):
        raise grid.error(f"SASS version {grid.sass:#x}, this GPU is {sass_version(sm):#x}")
    reserved = 0 if sm >= 0x900 else RESERVED_SHARED
    need = max(loaded.shared + reserved, loaded.kernel.flat.shared_bytes + RESERVED_SHARED)
    if grid.shared < need or grid.shared % 128:
        raise grid.error(
            f"{grid.shared} bytes of shared memory, {loaded.name} needs {need} with what is reserved"
        )
    codes = {sm_config(k): k for k in CARVEOUTS_KIB[arch]}
    smallest, largest, target = grid.configurations()
    if grid.shared <= RESERVED_SHARED and (smallest, largest, target) == (0, 0, 0):
        return
    for code in (smallest, largest, target):
        if code not in codes:
            raise grid.error(f"shared-memory configuration {code:#x} does not exist on {arch}")
    if codes[target] * 1024 < grid.shared or not smallest <= target <= largest:
        raise grid.error(f"configuration of {codes[target]} KiB for {grid.shared} bytes of shared memory")


def _check_windows(channel: Channel) -> tuple[int, int]:
    """Return the shared and the local window; nothing may be mapped inside them."""
    m, state = ComputeMethod, channel.compute
    shared = state.pair(m.SET_SHADER_SHARED_MEMORY_WINDOW_A, m.SET_SHADER_SHARED_MEMORY_WINDOW_B)
    local = state.pair(m.SET_SHADER_LOCAL_MEMORY_WINDOW_A, m.SET_SHADER_LOCAL_MEMORY_WINDOW_B)
    span = SHARED_WINDOW_ALIGN if channel.gpu.profile.generation.wide_addresses else LOCAL_WINDOW_BYTES
    if channel.gpu.profile.generation.wide_addresses and (shared == 0 or shared % SHARED_WINDOW_ALIGN):
        channel.warp_error = WARP_ESR_INVALID_ADDRESS_SPACE
        raise ChannelError(
            RcCode.GR_EXCEPTION, f"shared window at {shared:#x}: it must be set and 4 GiB-aligned"
        )
    for what, start, size in (("shared", shared, span), ("local", local, LOCAL_WINDOW_BYTES)):
        for mapping in channel.memory.space.mappings():
            if mapping.va < start + size and start < mapping.end:
                channel.warp_error = WARP_ESR_INVALID_ADDRESS_SPACE
                raise ChannelError(RcCode.GR_EXCEPTION, f"{mapping} lies in the {what} window at {start:#x}")
    return shared, local


def _check_local(channel: Channel, grid: Grid, loaded: Loaded) -> None:
    need = loaded.stack
    if grid.local < need:
        raise grid.error(f"{grid.local} bytes of local memory a thread, {loaded.name} needs {need}")
    if need == 0:
        return
    m, state, profile = ComputeMethod, channel.compute, channel.gpu.profile
    base = state.pair(m.SET_SHADER_LOCAL_MEMORY_A, m.SET_SHADER_LOCAL_MEMORY_B)
    per_tpc = state.pair(m.SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A, m.SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_B)
    wanted = -(-grid.local * 32 // 0x200) * 0x200 * 64 * 2
    if per_tpc < wanted:
        raise grid.error(f"{per_tpc:#x} bytes of local memory a TPC, {wanted:#x} are wanted")
    channel.memory.host(base, per_tpc * profile.gpcs * profile.tpcs_per_gpc, write=True)


def _fault(channel: Channel, report: Report, grid: Grid) -> None:
    """Turn what a kernel did wrong into the channel error that hardware would raise."""
    channel.warp_pc = grid.program
    if report.kind in (ReportKind.OUT_OF_BOUNDS, ReportKind.FORBIDDEN):
        access = {"write": MmuAccess.WRITE, "atomic": MmuAccess.ATOMIC_STRONG}.get(
            report.access, MmuAccess.READ
        )
        raise ChannelError(RcCode.MMU_FAULT, str(report), address=report.address, access=access)
    if report.kind is ReportKind.HANG:
        raise ChannelError(RcCode.CONTEXT_SWITCH_TIMEOUT, str(report))
    channel.warp_error = int(report.kind)
    raise ChannelError(RcCode.GR_EXCEPTION, str(report), address=report.address)
