"""Running a grid.

Is the launch what the kernel's image asks for, then its PTX through the SIMT engine (nv.md 4, 5).

The machine code itself never runs, so everything that it would rely on is checked here: registers, barriers,
stack, shared memory, and constant bank 0 at the offsets where the machine code reads it.
"""

from __future__ import annotations

import hashlib
import zlib
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from drivers.emu.engine import engine
from drivers.emu.launch import Options
from drivers.emu.slices import SlicedLaunch
from drivers.nv.emu import ptx
from drivers.nv.emu.machine.backing import HeldPages
from drivers.nv.emu.machine.caches import GridCaches
from drivers.nv.emu.machine.images import check_bank
from drivers.nv.emu.machine.kernel_faults import kernel_error
from drivers.nv.emu.machine.profiles import MAX_WARPS_PER_SM, SMS_PER_TPC
from drivers.nv.emu.machine.races import note_kernel
from drivers.nv.emu.machine.reports import Kind, launch_error
from drivers.nv.layouts import compute as layout
from drivers.nv.layouts.cubin import BANK0, RESERVED_SHARED, STACK_POINTER_TOP
from drivers.nv.layouts.fault import MmuAccess
from drivers.nv.layouts.qmd import MAX_REGISTERS
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drivers.emu.engine import Settings
    from drivers.emu.memory import AddressSpace
    from drivers.nv.emu.machine.channel import ChannelRun
    from drivers.nv.emu.machine.compute import Windows
    from drivers.nv.emu.machine.descriptor import Descriptor
    from drivers.nv.emu.machine.images import Loaded
    from drivers.nv.emu.machine.loads import Loads
    from drivers.nv.emu.machine.races import Work

_TIMEOUT_S = 60.0
_TURNS = 1024
"""Turns of workgroups in a slice: some milliseconds as a rule."""
_PATIENCE_S = 0.02
"""How long the machine waits for a slice before it goes on without."""
_SLICES = 8
"""Slices of a launch before another that waits takes over the shadows of races: it may wait for that one."""


@dataclass(slots=True, eq=False)
class _Turn:
    """The time in which one launch has the shadows; another that waits takes them over between slices."""

    launch: SlicedLaunch
    work: Work
    memory: AddressSpace
    loads: Loads | None
    """Who is told of loads too."""
    slices: int = 0

    def begin(self) -> None:
        """Take the shadows."""
        self.slices = 0
        self.memory.forget_parties()

    def over(self) -> bool:
        """Give the shadows away if it is time, and note what the launch did so far.

        Races between workgroups before and after are then not seen.
        """
        if self.slices < _SLICES or self.launch.away:
            return False
        self.note()
        return True

    def note(self) -> None:
        """Note what the launch did so far."""
        note_kernel(self.work, self.memory, self.loads)


class Grids:
    """What one machine keeps between launches: modules by image, what its caches have seen."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.timeout_s = _TIMEOUT_S
        """A kernel that takes longer hangs."""
        self._turn: _Turn | None = None
        """Whose accesses the shadows hold that races are judged by; those of one launch at a time."""
        self._modules: dict[int, ptx.Module] = {}
        self._loaded: dict[tuple[int, int], Loaded] = {}
        self._constants: dict[tuple[int, int], int] = {}

    def prepare(self) -> None:
        """Make the SIMT engine, some seconds where its code is not on disk: no kernel is to wait for it."""
        engine(self._settings)

    def invalidate(self, *, instructions: bool, constants: bool) -> None:
        """Forget what the caches hold."""
        if instructions:
            self._loaded.clear()
        if constants:
            self._constants.clear()

    def run(
        self, run: ChannelRun, windows: Windows, one: Descriptor, *, fresh: bool
    ) -> Iterator[SlicedLaunch]:
        """Run a grid to its end, a slice a step; `fresh`: the launch itself invalidated caches."""
        judge = run.machine.caches  # more exact than what is always judged
        anew = fresh or judge is not None
        loaded = self._find(run, one, fresh=anew or one.invalidates_instructions)
        caches = None
        if judge is not None:
            caches = GridCaches(run=run, caches=judge, one=one, loaded=loaded, fresh=fresh)
            caches.begin()
        banks = self._banks(run, one, loaded, fresh=anew or one.invalidates_constants)
        _check_needs(one, loaded)
        params = _check_bank0(run, windows, one, loaded, banks.get(0, b""))
        windows.check(run.space, run.machine.profile.wide)
        if any(one.local) or loaded.kernel.stack:
            _check_local(run, windows, one, loaded)
        yield from self._execute(run, windows, one, loaded, params, caches=caches)

    def _find(self, run: ChannelRun, one: Descriptor, *, fresh: bool) -> Loaded:
        key = (run.space.number, one.program)
        known = self._loaded.get(key)
        if known is not None:
            code = run.space.read(one.program, len(known.kernel.code), "instruction fetch")
            if hashlib.blake2b(code, digest_size=16).digest() == known.digest:
                return known
            if not fresh:
                raise launch_error(
                    f"the code at {one.program:#x} changed since {known.kernel.name} ran there, and no "
                    "instruction cache "
                    "was invalidated",
                    Kind.COHERENCE,
                )
        self._loaded[key] = found = run.machine.images.find(run.space, one.program)
        if found.cubin.arch != int(run.machine.profile.name[3:]):
            raise launch_error(f"the image of {found.kernel.name} is for sm_{found.cubin.arch}")
        if not found.cubin.ptx:
            raise launch_error(
                f"the image of {found.kernel.name} carries no PTX, nothing can be run", Kind.UNSUPPORTED
            )
        at, size = one.prefetch
        if size and not at <= one.program < at + size:
            raise launch_error(
                f"the code prefetched, [{at:#x}, +{size:#x}), is not the program at {one.program:#x}"
            )
        return found

    def _banks(self, run: ChannelRun, one: Descriptor, loaded: Loaded, *, fresh: bool) -> dict[int, bytes]:
        out = {}
        for index, bank in one.banks.items():
            content = run.space.read(bank.va, bank.size, f"constant bank {index}")
            key, digest = (run.space.number, bank.va), zlib.crc32(content)
            if not (fresh or bank.invalidate) and self._constants.get(key, digest) != digest:
                raise launch_error(
                    f"constant bank {index} at {bank.va:#x} changed since it was last read, and nothing "
                    "invalidated the constant cache",
                    Kind.COHERENCE,
                )
            self._constants[key] = digest
            if index and index not in loaded.cubin.banks:
                raise launch_error(f"constant bank {index} is bound, the image has none")
            out[index] = content
        for index, section in loaded.cubin.banks.items():
            if len(out.get(index, b"")) < section.size:
                raise launch_error(
                    f"the image has {section.size:#x} bytes for constant bank {index}, bound are "
                    f"{len(out.get(index, b'')):#x}"
                )
            check_bank(run.space, loaded, index, out[index])
        return out

    def _kernel(self, loaded: Loaded, one: Descriptor, profile_arch: str) -> ptx.Kernel:
        module = self._modules.get(id(loaded.cubin))
        if module is None:
            module = ptx.load_ptx(loaded.cubin.ptx, arch=profile_arch, settings=self._settings)
            self._modules[id(loaded.cubin)] = module
        addresses = {}
        bank3 = loaded.cubin.banks.get(3)
        for symbol in loaded.cubin.elf.symbols:
            if bank3 is not None and symbol.section == bank3.index:
                addresses[symbol.name] = one.banks[3].va + symbol.value
            elif symbol.section in loaded.bases and symbol.section != loaded.kernel.text.index:
                addresses[symbol.name] = loaded.bases[symbol.section] + symbol.value
        return module.kernel(loaded.kernel.name, addresses)

    def _execute(
        self,
        run: ChannelRun,
        windows: Windows,
        one: Descriptor,
        loaded: Loaded,
        params: bytes,
        *,
        caches: GridCaches | None,
    ) -> Iterator[SlicedLaunch]:
        pages = HeldPages(run.machine.lock)
        try:
            launch = self._begin(run, windows, one, loaded, params, pages=pages)
        except UsageError as error:
            raise launch_error(f"{loaded.kernel.name} cannot be launched: {error}") from error
        turn = None
        if run.acting is not None and run.machine.notes:
            loads = None if caches is None else caches.watch(launch.instructions)
            turn = _Turn(launch, run.acting.work, run.space.map, loads)
            turn.work.name = f"kernel {loaded.kernel.name} on {run.name} ({run.at})"
            turn.work.locate = launch.describe
        with closing(launch):
            yield from self._slices(run, launch, turn, pages)
            result = launch.result()
        run.machine.launched(loaded.kernel.name)
        if result.fault is not None:
            raise kernel_error(result.fault, loaded, one.grid, run.machine.profile.sms)
        for finding in result.findings:
            raise launch_error(str(finding), Kind.KERNEL)
        if caches is not None:
            caches.end()

    def _slices(
        self, run: ChannelRun, launch: SlicedLaunch, turn: _Turn | None, pages: HeldPages
    ) -> Iterator[SlicedLaunch]:
        """Run a launch to its end."""
        try:
            while True:
                while turn is not None and self._turn is not turn:
                    if self._turn is None or self._turn.over():
                        self._turn = turn
                        turn.begin()
                    else:
                        yield self._turn.launch
                if launch.advance(turns=_TURNS, patience_s=_PATIENCE_S):
                    break
                if turn is not None:
                    turn.slices += not launch.away
                if launch.away:
                    pages.hold(run.space)
                yield launch
            if turn is not None:
                turn.note()
        finally:
            if self._turn is turn:
                self._turn = None

    def _begin(
        self,
        run: ChannelRun,
        windows: Windows,
        one: Descriptor,
        loaded: Loaded,
        params: bytes,
        *,
        pages: HeldPages,
    ) -> SlicedLaunch:
        rng = run.rng
        options = Options(
            group_seed=rng.randrange(1, 1 << 30),
            warp_order=rng.randrange(1 << 30),
            timeout_s=self.timeout_s,
            shared_window=windows.shared or 0,
            local_window=windows.local or 0,
        )
        kernel = self._kernel(loaded, one, run.machine.profile.assembler_arch)
        if kernel.param_bytes > len(params) - 4:
            raise launch_error(
                f"{kernel.name} reads {kernel.param_bytes} bytes of parameters, bank 0 has "
                f"{len(params) - 4} behind the driver's words"
            )
        dynamic = int.from_bytes(params[-4:], "little")
        work = ptx.work_of(kernel, one.grid, one.block, params[: kernel.param_bytes], dynamic)
        return SlicedLaunch(kernel.program, work, run.space.map, options, on_end=pages.drop)


def _check_needs(one: Descriptor, loaded: Loaded) -> None:
    """Compare the descriptor with what the image's info records ask for."""
    kernel = loaded.kernel
    if not kernel.registers <= one.registers <= MAX_REGISTERS:
        raise launch_error(
            f"{kernel.name} needs {kernel.registers} registers, the descriptor gives {one.registers}"
        )
    if one.barriers < kernel.barriers:
        raise launch_error(
            f"{kernel.name} needs {kernel.barriers} barriers, the descriptor gives {one.barriers}"
        )
    if one.shared < kernel.static_shared:
        raise launch_error(
            f"{kernel.name} needs {kernel.static_shared:#x} bytes shared, the descriptor gives "
            f"{one.shared:#x}"
        )
    if max(one.local) < kernel.stack:
        raise launch_error(
            f"{kernel.name} needs {kernel.stack:#x} bytes of stack, the descriptor gives {one.local}"
        )
    per_warp = -(-one.registers * 32 // 256) * 256
    most = 65536 // per_warp // 4 * 4 * 32 if per_warp else 1024
    if one.threads > most:
        raise launch_error(
            f"a block of {one.threads} threads with {one.registers} registers each: {most} fit an SM"
        )


def _check_bank0(run: ChannelRun, windows: Windows, one: Descriptor, loaded: Loaded, content: bytes) -> bytes:
    """Judge the driver's words of bank 0; return the parameters, then the dynamic shared size in 4 bytes."""
    kernel, shape = loaded.kernel, BANK0[run.machine.profile.name]
    if kernel.param_base and kernel.param_base != shape.SIZE:
        raise launch_error(
            f"the parameters of {kernel.name} start at {kernel.param_base:#x}, facts say {shape.SIZE:#x}"
        )
    if len(content) < max(shape.SIZE + kernel.param_bytes, kernel.constant0):
        raise launch_error(
            f"constant bank 0 has {len(content):#x} bytes, {kernel.name} reads "
            f"{max(shape.SIZE + kernel.param_bytes, kernel.constant0):#x}"
        )
    words: Any = shape.from_bytes(content)  # the three layouts have these fields in common
    if words.check():
        raise launch_error(f"constant bank 0 of {kernel.name}: {words.check()[0]}")
    for name, wanted in (("ntid", one.block), ("nctaid", one.grid)):
        if getattr(words, name) != wanted:
            raise launch_error(
                f"constant bank 0 of {kernel.name}: {name} is {getattr(words, name)}, launched with {wanted}"
            )
    _check_addresses(run, windows, one, loaded, words)
    room = max(one.shared - (kernel.static_shared or RESERVED_SHARED), 0)
    told = words.dynamic_shared_size
    if told > room:
        raise launch_error(
            f"constant bank 0 of {kernel.name}: {told:#x} bytes of dynamic shared memory, room is for "
            f"{room:#x}"
        )
    _check_stack(words.stack_pointer, one, loaded)
    return content[shape.SIZE :] + (told or room).to_bytes(4, "little")


def _check_addresses(run: ChannelRun, windows: Windows, one: Descriptor, loaded: Loaded, words: Any) -> None:
    """Compare the driver's addresses and counts in bank 0 with what the channel has."""
    name = loaded.kernel.name
    allowed = {
        "shared_window": windows.shared,
        "local_window": windows.local,
        "constant_bank_3": one.banks[3].va if 3 in one.banks else 0,
        "global_descriptor": 0,
        "nsmid": run.machine.profile.sms,
        "reserved_shared_size": RESERVED_SHARED,
    }
    for word, wanted in allowed.items():
        seen = getattr(words, word)
        if seen not in (0, wanted):
            raise launch_error(
                f"constant bank 0 of {name}: {word} is {seen:#x}, wanted {wanted or 0:#x} or nothing"
            )
    # Hopper knows the shared window itself (nv.md 5.3); elsewhere code that uses it reads the word.
    reads_shared = loaded.kernel.static_shared and run.machine.profile.name != "sm_90"
    for word, used in (("shared_window", reads_shared), ("local_window", loaded.kernel.stack)):
        if used and not getattr(words, word):
            raise launch_error(f"constant bank 0 of {name}: {word} is 0, and its code may read it")


def _check_stack(pointer: int, one: Descriptor, loaded: Loaded) -> None:
    """Accept either scheme: the window's top with HIGH, or the size itself with LOW (nv.md 5.3)."""
    low, high = one.local
    stack = loaded.kernel.stack
    if not stack:
        return
    top = pointer == STACK_POINTER_TOP and high >= stack + layout.LOCAL_STACK_RESERVE
    if not top and not stack <= pointer <= low:
        raise launch_error(
            f"{loaded.kernel.name} has {stack:#x} bytes of stack: the stack pointer {pointer:#x} goes "
            "neither with "
            f"the low size {low:#x} nor with the high size {high:#x}"
        )


def _check_local(run: ChannelRun, windows: Windows, one: Descriptor, loaded: Loaded) -> None:
    """Check that local memory is backed for every thread that may run."""
    if windows.local is None or windows.backing is None or windows.per_tpc is None:
        raise launch_error(
            f"{loaded.kernel.name} has local memory, but its window, address or size was never set"
        )
    for size in one.local:
        if size % layout.LOCAL_THREAD_ALIGN:
            raise launch_error(
                f"local memory of {size:#x} bytes a thread is no multiple of {layout.LOCAL_THREAD_ALIGN}"
            )
    warp = (
        -(-sum(one.local) * layout.LOCAL_THREADS_PER_WARP // layout.LOCAL_WARP_ALIGN)
        * layout.LOCAL_WARP_ALIGN
    )
    needed = -(-warp * MAX_WARPS_PER_SM * SMS_PER_TPC // layout.LOCAL_TPC_ALIGN) * layout.LOCAL_TPC_ALIGN
    if windows.per_tpc < needed:
        raise launch_error(
            f"local memory is set up for {windows.per_tpc:#x} bytes a TPC, {loaded.kernel.name} needs "
            f"{needed:#x}"
        )
    total = windows.per_tpc * run.machine.profile.tpcs
    run.space.host(windows.backing, total, MmuAccess.WRITE, f"local memory of {loaded.kernel.name}")
