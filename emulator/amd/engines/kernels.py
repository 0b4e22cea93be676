"""Launches of kernels: machine code at an address is decoded, translated once, checked, and run in slices.

The instruction cache is modelled. Code that changed after a kernel ran there is an error until an acquire
invalidates the cache. If a kernel descriptor in the same allocation points to the code, as in every loaded
code object, the launch is checked against it.

Not here: decoding and meaning of instructions (`emulator.amd.isa`), a launch's registers (`dispatch`), how
slices run (`emulator.simt.slices`). Next: `coherence`.
"""

from __future__ import annotations

import struct
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from drivers.amd.layouts.aql import PACKET_WORDS, KernelDispatch
from drivers.amd.layouts.code import CODE_ALIGN, DESCRIPTOR_ALIGN, USER_SGPRS, Descriptor, Preload, Properties
from drivers.amd.layouts.events import QueueException
from drivers.amd.layouts.registers import RSRC3, Rsrc3Gfx90a
from emulator.amd.engines.coherence import DispatchLoads
from emulator.amd.engines.dispatch import check_arguments_place, whole_and_rest
from emulator.amd.isa.modes import at_start
from emulator.amd.isa.opcodes import target
from emulator.amd.isa.programs import PRIVATE_WINDOW, SHARED_WINDOW, decoded, translated
from emulator.amd.isa.translate import KernelEntry
from emulator.amd.reports import (
    changed_fault,
    code_fault,
    dispatch_fault,
    kernel_fault,
    kernel_findings,
    register_fault,
    stale_fault,
    unsupported,
)
from emulator.ir.state import REPORT_LIMIT
from emulator.shared.backing import HeldPages
from emulator.shared.counts import Resources, counters
from emulator.shared.races import Turn, Turns
from emulator.shared.vaspace import AccessKind
from emulator.simt.slices import SlicedLaunch
from emulator.simt.work import LaunchOptions, LaunchWork
from hcq.config import config
from hcq.errors import UnsupportedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from emulator.amd.engines.bus import Bus
    from emulator.amd.engines.coherence import Dispatch
    from emulator.amd.engines.dispatch import DispatchLaunch
    from emulator.amd.engines.ledgers import Ledgers
    from emulator.amd.isa.programs import Decoded
    from emulator.amd.kfd.gpu import GpuSpace
    from emulator.shared.memory import GpuMapping
    from emulator.simt.engine import Settings, TranslatedProgram
    from hcq.layout import BitStruct

_TURNS: Final = 1024
"""Turns of each host thread in a slice (`emulator.simt.slices.SlicedLaunch.advance`)."""
PATIENCE_S: Final = 0.02
"""Seconds that other queues wait for a slice of a kernel."""
_MOST_CODE: Final = 16 << 20
"""Bytes read before and after the first instruction; of a larger allocation no descriptor is searched."""
KEPT: Final = 512
"""Kernels that stay decoded when the instruction caches are invalidated: those launched last."""
_OWN_OF_DRIVER: Final = {
    "RSRC1": ("PRIV",), "RSRC2": ("LDS_SIZE", "TRAP_PRESENT", "SCRATCH_EN"), "RSRC3": (),
}  # fmt: skip
"""Fields in which a launch may differ from the descriptor."""


@dataclass(slots=True)
class CachedCode:
    """Machine code as the instruction cache holds it."""

    name: str
    decoded: Decoded
    registers: int
    """Vector registers that the instructions name."""
    accumulators: int
    """Accumulation registers that the instructions name."""
    program: TranslatedProgram
    descriptor: Descriptor | None
    """The kernel descriptor that points to the code; None if there is none."""
    found: str
    """The descriptor's address in hexadecimal, for reports; "0x0" if there is none."""
    place: tuple[int, bytes] | None
    """The descriptor's address and bytes; None if there is none."""
    counting: Callable[[], TranslatedProgram]
    """Returns the program that also counts its instructions and accesses."""


class Kernels:
    """The translated code of all GPUs of one machine, by address space and address."""

    def __init__(
        self, settings: Settings, ledgers: Ledgers | None = None, *, patience_s: float = PATIENCE_S
    ) -> None:
        """`settings` are those of the SIMT engine; `ledgers` records the accuracy of what runs, if given.

        Other queues run while a slice of a kernel takes longer than `patience_s` seconds.
        """
        self.ledgers = ledgers
        self._settings = settings
        self.timeout_s: float = config().emu_timeout_s
        """Seconds after which a kernel counts as hung."""
        self._turns = Turns(_TURNS, patience_s)
        self._cached: dict[tuple[object, ...], CachedCode] = {}
        """Contents of the instruction caches."""
        self._clean: dict[int, list[GpuMapping]] = {}
        """Address space -> its allocations when its instruction caches were invalidated last."""
        self._read_before: dict[tuple[object, ...], CachedCode] = {}
        """The last code at each address, the most recently launched last: often unchanged by an
        invalidation."""
        self.most = KEPT
        """The largest number of entries in `_read_before`."""

    def invalidate(self, space: GpuSpace) -> None:
        """Invalidate the instruction caches of a GPU."""
        for key in [key for key in self._cached if key[0] == space.number]:
            del self._cached[key]
        self._clean[space.number] = space.map.mappings()

    def __len__(self) -> int:
        """Return the number of addresses whose code is kept."""
        return len(self._cached.keys() | self._read_before.keys())

    def begin(self, bus: Bus, launch: DispatchLaunch) -> Iterator[SlicedLaunch]:
        """Check a launch, and return its steps, which yield after each slice; nothing runs yet.

        Raises `QueueFault` for a launch that does not fit its kernel, stale or unsupported code, or a missing
        wait in the code; `MemoryFault` for code or arguments that are not mapped. The steps raise either for
        a fault or finding of the kernel, and `QueueFault` for stale loads and arguments that changed
        meanwhile.
        """
        code = self._find(bus, launch)
        kernarg = check(bus, launch, code)
        coherence = None if bus.order is None else bus.order.watch.coherence
        began = None if coherence is None else coherence.dispatched(bus.gpu)
        try:
            return self._steps(bus, launch, code, kernarg, began)
        except UsageError as error:
            raise code_fault(f"{code.name} cannot be launched: {error}") from error

    def _find(self, bus: Bus, launch: DispatchLaunch) -> CachedCode:
        """Return the code of a launch: cached, kept and unchanged, or read from memory."""
        entry = _entry(launch, bus.gpu.profile.name)
        key = (bus.space.number, launch.code, launch.lanes, entry)
        known = self._cached.get(key)
        what = "an instruction fetch from the code that COMPUTE_PGM_LO or the descriptor names"
        if known is not None:
            where = launch.code - known.decoded.before
            if bus.space.fetch(where, len(known.decoded.code), what) == known.decoded.code:
                return known
            raise stale_fault(
                f"the code at {launch.code:#x} changed since a kernel ran there, and no acquire with GLI_INV "
                "invalidated the instruction cache"
            )
        if launch.code % CODE_ALIGN:
            raise code_fault(f"code at {launch.code:#x} is not aligned to {CODE_ALIGN} bytes")
        bus.space.executable(launch.code, 4, what)
        mapping = bus.space.map.find(launch.code)
        assert mapping is not None
        if bus.order is not None and all(one is not mapping for one in self._clean.get(bus.space.number, ())):
            raise stale_fault(
                f"the instruction cache was not invalidated since {mapping} was mapped: an "
                "acquire with GLI_INV precedes the first use of code"
            )
        before = self._read_before.pop(key, None)
        if before is None or not _same(bus, launch, before, mapping):
            before = self._read(bus, launch, mapping)
        self._read_before[key] = self._cached[key] = before
        while len(self._read_before) > self.most:
            del self._read_before[next(iter(self._read_before))]
        return before

    def _read(self, bus: Bus, launch: DispatchLaunch, mapping: GpuMapping) -> CachedCode:
        """Decode and translate the code of a launch from memory, and find its descriptor."""
        before = min(launch.code - mapping.va, _MOST_CODE)
        behind = min(mapping.end - launch.code, _MOST_CODE)
        raw = bus.read(launch.code - before, before + behind, "an instruction fetch")
        processor = bus.gpu.profile.name
        try:
            kernel = decoded(raw, processor, launch.lanes, f"code at {launch.code:#x}", before=before)
            made = translated(self._settings, processor, launch.lanes, _entry(launch, processor), kernel)
        except UnsupportedError as error:
            if self.ledgers is not None:
                self.ledgers.refused(processor, str(error))
            raise unsupported(str(error)) from error
        if made.missing_waits:
            first, *others = made.missing_waits[:REPORT_LIMIT]
            raise kernel_fault(first, others, launch.code)
        name = made.program.translation.name
        at = _descriptor_of(bus, launch, mapping)
        descriptor, place = None, None
        if at is None:
            bus.lint(f"no kernel descriptor points to the code at {launch.code:#x}: the launch is unchecked")
        else:
            place = (at, bus.read(at, Descriptor.SIZE, "a kernel descriptor"))
            descriptor = Descriptor.from_bytes(place[1])
        entry = _entry(launch, processor)
        counting = partial(translated, self._settings, processor, launch.lanes, entry, kernel, counts=True)
        return CachedCode(
            name, kernel, made.registers, made.accumulators, made.program, descriptor, f"{at or 0:#x}", place,
            lambda: counting().program,
        )  # fmt: skip

    def _steps(
        self,
        bus: Bus,
        launch: DispatchLaunch,
        code: CachedCode,
        kernarg: tuple[int, bytes] | None,
        began: Dispatch | None,
    ) -> Iterator[SlicedLaunch]:
        """Return the steps of a checked launch; its seeds come from the machine's generator."""
        rng = bus.machine.rng
        options = LaunchOptions(
            group_seed=rng.randrange(1, 1 << 30),
            warp_order=rng.randrange(1 << 30),
            timeout_s=self.timeout_s,
            shared_window=SHARED_WINDOW,
            local_window=PRIVATE_WINDOW,
        )
        scratch = launch.scratch_bytes
        if code.descriptor is not None:
            scratch = min(scratch, code.descriptor.private_segment_fixed_size)
        work = LaunchWork(
            grid=launch.groups,
            block=launch.block,
            last=launch.last if launch.last != launch.block else None,
            params=struct.pack(f"<{len(launch.user_data)}IQ", *launch.sgprs(), launch.code),
            shared_bytes=launch.lds_bytes,
            local_bytes=scratch,
        )
        if self.ledgers is not None:
            self.ledgers.launched(bus.gpu.profile.name, code.name, code.decoded)
        return _run(bus, launch, code, kernarg, work, options, self._turns, began)


def _run(  # noqa: PLR0917 - a launch has that many parts
    bus: Bus,
    launch: DispatchLaunch,
    code: CachedCode,
    kernarg: tuple[int, bytes] | None,
    work: LaunchWork,
    options: LaunchOptions,
    turns: Turns,
    began: Dispatch | None,
) -> Iterator[SlicedLaunch]:
    """Yield the slices of a launch; then check faults, findings, loads through caches, and arguments."""
    pages = HeldPages(bus.machine.lock)
    counts = bus.gpu.gpu_id in bus.machine.counters
    program = code.counting() if counts else code.program
    sliced = SlicedLaunch(program, work, bus.space.map, options, on_end=pages.drop)
    turn = None
    loads: DispatchLoads | None = None
    order = bus.order
    if order is not None and order.acting is not None:
        if began is not None:
            loads = DispatchLoads(sliced.instructions)
        turn = Turn(sliced, order.acting, bus.space.map, loads)
        turn.work.name = f"kernel {code.name} on {turn.work.name.removeprefix('kernel on ')}"
        turn.work.locate = sliced.describe
    with closing(sliced):
        yield from turns.run(sliced, turn, partial(pages.hold, bus.space))
        result = sliced.result()
    bus.machine.launches[code.name] += 1
    _count(bus, launch, code, sliced)
    if result.fault is not None:
        raise kernel_fault(result.fault, result.findings, launch.code)
    if result.findings:
        raise kernel_findings(result.findings, launch.code)
    if began is not None and loads is not None and turn is not None and order is not None:
        assert order.watch.coherence is not None
        order.watch.coherence.kernel_over(bus.gpu, began, loads, turn.work, code.name)
    if kernarg is not None and bus.read(kernarg[0], len(kernarg[1]), "kernel arguments") != kernarg[1]:
        raise changed_fault(f"the kernel arguments at {kernarg[0]:#x} changed while their grid was running")


def _count(bus: Bus, launch: DispatchLaunch, code: CachedCode, sliced: SlicedLaunch) -> None:
    """Add the counters of a finished dispatch to its kernel's, if the GPU counts."""
    into, counted, raw = bus.machine.counters.get(bus.gpu.gpu_id), sliced.counted, sliced.counts
    if into is None or counted is None or raw is None:
        return
    profile = bus.gpu.profile
    what = Resources(
        kernel=code.name, arch=profile.name, limits=profile.limits, boards=profile.boards, lanes=launch.lanes,
        registers=(launch.rsrc1.VGPRS + 1) * profile.target.vgpr_granule[launch.lanes == 64],
        shared_bytes=launch.lds_bytes, code=len(code.decoded.instructions),
    )  # fmt: skip
    into.add(counters(counted, raw, sliced.work, what), code=launch.code)


def _entry(launch: DispatchLaunch, processor: str) -> KernelEntry:
    """Return the registers' contents and modes with which a wave of the launch begins."""
    two = launch.rsrc2
    return KernelEntry(
        user_sgprs=two.USER_SGPR,
        group_ids=(two.TGID_X_EN, two.TGID_Y_EN, two.TGID_Z_EN),
        group_info=two.TG_SIZE_EN,
        modes=at_start(int(launch.rsrc1), target(processor).family),
        code_address=True,
    )


def _same(bus: Bus, launch: DispatchLaunch, before: CachedCode, mapping: GpuMapping) -> bool:
    """Return whether code and descriptor are unchanged in memory; False if there was no descriptor."""
    first = launch.code - before.decoded.before
    if before.place is None or first < mapping.va or first + len(before.decoded.code) > mapping.end:
        return False
    at, descriptor = before.place
    return (
        mapping.va <= at <= mapping.end - len(descriptor)
        and bus.read(first, len(before.decoded.code), "an instruction fetch") == before.decoded.code
        and bus.read(at, len(descriptor), "a kernel descriptor") == descriptor
    )


def _descriptor_of(bus: Bus, launch: DispatchLaunch, mapping: GpuMapping) -> int | None:
    """Return the address of a descriptor in the code's allocation that points to the code.

    Returns the first whose RSRC1 is that of the launch, else the first, else None. Allocations above
    `_MOST_CODE` bytes are not searched.
    """
    if mapping.size > _MOST_CODE:
        return None
    raw = bus.read(mapping.va, mapping.size // 8 * 8, "a search for kernel descriptors")
    first = -mapping.va % DESCRIPTOR_ALIGN
    offsets = memoryview(raw).cast("q")[(first + 16) // 8 :: DESCRIPTOR_ALIGN // 8]
    wanted = launch.code - (mapping.va + first)
    found = []
    for index, offset in enumerate(offsets):
        at = first + DESCRIPTOR_ALIGN * index
        if offset != wanted - DESCRIPTOR_ALIGN * index:
            continue
        if at + Descriptor.SIZE > len(raw):
            continue
        descriptor = Descriptor.from_bytes(raw, at)
        if not descriptor.check() and descriptor.kernel_code_entry_byte_offset:
            found.append((descriptor.compute_pgm_rsrc1 != int(launch.rsrc1), mapping.va + at))
    return min(found)[1] if found else None


def _without(layout: type[BitStruct], value: int, names: tuple[str, ...]) -> int:
    """Return a register's value with some fields set to 0."""
    for name in names:
        if name in layout.FIELDS:
            value &= ~layout.FIELDS[name].mask()
    return value


def check(bus: Bus, launch: DispatchLaunch, code: CachedCode) -> tuple[int, bytes] | None:
    """Check a launch against its code and the kernel's descriptor.

    Returns the address and bytes of its arguments, or None if there is no descriptor, or the kernel has no
    arguments. Raises `QueueFault` for a launch that does not fit, `MemoryFault` for arguments that are not
    mapped.
    """
    target = bus.gpu.profile.target
    granule = target.vgpr_granule[launch.lanes == 64]
    allocated = (launch.rsrc1.VGPRS + 1) * granule
    if code.registers > allocated or allocated > target.vgprs:
        raise register_fault(
            f"the code names {code.registers} vector registers, RSRC1 gives it {allocated} of {target.vgprs}"
        )
    if target.generation == 9:  # vector and accumulation registers share one file
        first = 4 * (Rsrc3Gfx90a.from_int(launch.rsrc3).ACCUM_OFFSET + 1)
        if code.registers > first or first + code.accumulators > allocated:
            raise register_fault(
                f"RSRC3 begins the accumulation registers at {first}; the code names {code.registers} vector "
                f"and {code.accumulators} accumulation registers, RSRC1 gives it {allocated}"
            )
    if launch.lds_bytes > target.lds_bytes:
        raise dispatch_fault(
            f"{launch.lds_bytes} bytes of LDS, {target.name} has {target.lds_bytes}",
            QueueException.PACKET_DISPATCH_GROUP_SEGMENT_SIZE_INVALID,
        )
    descriptor = code.descriptor
    if descriptor is None:
        return None
    _check_registers(bus, launch, code, descriptor)
    properties = Properties.from_int(descriptor.kernel_code_properties)
    if (launch.lanes == 32) != properties.WAVEFRONT_SIZE32:
        raise code_fault(
            f"the kernel is compiled for waves of {32 if properties.WAVEFRONT_SIZE32 else 64} lanes, the "
            f"launch has {launch.lanes}"
        )
    if launch.lds_bytes < descriptor.group_segment_fixed_size:
        raise dispatch_fault(
            f"{launch.lds_bytes} bytes of LDS, the kernel has {descriptor.group_segment_fixed_size}",
            QueueException.PACKET_DISPATCH_GROUP_SEGMENT_SIZE_INVALID,
        )
    if launch.scratch_bytes < descriptor.private_segment_fixed_size:
        raise register_fault(
            f"{launch.scratch_bytes} bytes of scratch a lane (TMPRING_SIZE.WAVESIZE), the kernel has "
            f"{descriptor.private_segment_fixed_size}"
        )
    return _arguments(bus, launch, descriptor, properties)


def _check_registers(bus: Bus, launch: DispatchLaunch, code: CachedCode, descriptor: Descriptor) -> None:
    """Raise `QueueFault` if a field of RSRC1 to 3 differs from the descriptor, except the driver's own."""
    generation = int(bus.gpu.profile.target.generation)
    pairs = (
        ("RSRC1", type(launch.rsrc1), int(launch.rsrc1), descriptor.compute_pgm_rsrc1),
        ("RSRC2", type(launch.rsrc2), int(launch.rsrc2), descriptor.compute_pgm_rsrc2),
        ("RSRC3", RSRC3[generation], launch.rsrc3, descriptor.compute_pgm_rsrc3),
    )
    for name, layout, given, wanted in pairs:
        own = _OWN_OF_DRIVER[name]
        if _without(layout, given, own) != _without(layout, wanted, own):
            raise register_fault(
                f"{name} is {given:#010x}, the descriptor at {code.found} of the code has {wanted:#010x}"
            )


def _arguments(
    bus: Bus, launch: DispatchLaunch, descriptor: Descriptor, properties: Properties
) -> tuple[int, bytes] | None:
    """Return the address and bytes of the arguments; None if the kernel has none.

    Raises `QueueFault` for user SGPRs that the kernel wants and that were not written.
    """
    at, found = 0, None
    for name, count in USER_SGPRS:
        if not getattr(properties, name):
            continue
        values = launch.user_data[at : at + count]
        if None in values or len(values) < count:
            raise register_fault(
                f"the kernel wants {name} in user SGPRs {at} to {at + count - 1}, which were not written "
                "since the last launch"
            )
        if name == "KERNARG_SEGMENT_PTR":
            found = (values[1] or 0) << 32 | (values[0] or 0)
        if name == "DISPATCH_PTR":
            _check_packet(bus, launch, (values[1] or 0) << 32 | (values[0] or 0), at)
        at += count
    preloaded = Preload.from_int(descriptor.kernarg_preload).LENGTH
    if at + preloaded > launch.rsrc2.USER_SGPR:
        raise code_fault(
            f"the descriptor counts {launch.rsrc2.USER_SGPR} user SGPRs, {at} lie before {preloaded} "
            "preloaded words of arguments"
        )
    if found is None or not descriptor.kernarg_size:
        return None
    check_arguments_place(bus, found)
    what = "a read of kernel arguments (USER_DATA, KERNARG_ADDRESS)"
    bus.space.check_range(found, descriptor.kernarg_size, AccessKind.READ, what)
    return found, bus.read(found, descriptor.kernarg_size, what)


def _check_packet(bus: Bus, launch: DispatchLaunch, va: int, at: int) -> None:
    """Check the packet at `va`, whose address a kernel gets in user SGPRs `at` and `at` + 1.

    Raises `QueueFault` for another workgroup size or another number of workgroups.
    """
    packet = KernelDispatch.from_words(bus.words(va, PACKET_WORDS, "the packet that DISPATCH_PTR points to"))
    said = (packet.WORKGROUP_SIZE_X, packet.WORKGROUP_SIZE_Y, packet.WORKGROUP_SIZE_Z)
    if said != launch.block:
        raise register_fault(
            f"user SGPRs {at} and {at + 1} are DISPATCH_PTR {va:#x}: workgroups of {said} there, of "
            f"{launch.block} in the launch"
        )
    items = (packet.GRID_SIZE_X, packet.GRID_SIZE_Y, packet.GRID_SIZE_Z)
    if whole_and_rest(items, launch.block)[0] != launch.groups:
        raise register_fault(
            f"user SGPRs {at} and {at + 1} are DISPATCH_PTR {va:#x}: {items} work-items in workgroups of "
            f"{launch.block} there, {launch.groups} workgroups in the launch"
        )
