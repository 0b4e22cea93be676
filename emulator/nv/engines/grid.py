"""The execution of a grid: the check of its image and constant banks, then its PTX on the SIMT engine.

Source: docs/facts/nv.md 4, 5.

A launch error is a `ChannelError`.

Not here: the check of the resources that the machine code requires (`fit`), launches that are alike
(`ready`). Next: `images`, the search for a kernel's image.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from emulator.nv.engines.caches import ACTION_ALONE, GridCaches
from emulator.nv.engines.faults import in_source, kernel_error
from emulator.nv.engines.fit import bank_bytes, judge
from emulator.nv.engines.images import check_bank
from emulator.nv.engines.ready import Launches, Modules, ReadyLaunch, key_of, ready
from emulator.nv.ptx.statements import PtxError
from emulator.nv.reports import FindingKind, launch_error
from emulator.shared.backing import HeldPages
from emulator.shared.counts import Resources, counters
from emulator.shared.races import Turn, Turns
from emulator.simt.engine import engine
from emulator.simt.slices import SlicedLaunch
from emulator.simt.work import LaunchOptions
from hcq.config import config
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emulator.nv.engines.banks import Bank
    from emulator.nv.engines.compute import Windows
    from emulator.nv.engines.descriptor import LaunchDescriptor
    from emulator.nv.engines.engine import EngineChannel
    from emulator.nv.engines.images import LoadedImage
    from emulator.nv.ptx.module import PtxKernel
    from emulator.simt.engine import Settings

_LANES = 32
_INSTRUCTION_BYTES = 16
"""Bytes of a machine instruction since Volta. The counted code includes the padding after the last
instruction."""
_TURNS = 1024
"""Turns of workgroups in a slice, usually some milliseconds."""
_PATIENCE_S = 0.02
"""Seconds that the machine waits for a slice. Then it continues while the slice runs in the background."""


def _bank_content(run: EngineChannel, loaded: LoadedImage, bank: Bank, used: int) -> bytes:
    """Read a constant bank, or only the `used` bytes that the kernel reads if the rest is not mapped."""
    size = bank.size
    if used < size and run.space.mapped(bank.va, size) < size:
        run.machine.lint(
            f"constant bank {bank.index} of {loaded.kernel.name} has {size:#x} bytes, of which not all are "
            f"mapped; the kernel reads {used:#x}"
        )
        size = used
    return run.space.read(bank.va, size, f"constant bank {bank.index}")


def _check_unchanged(run: EngineChannel, one: LaunchDescriptor, loaded: LoadedImage, before: bytes) -> None:
    """Refuse arguments that changed while the grid was running; advise if the kernel does not read them."""
    used, bank = bank_bytes(run, loaded, 0), one.banks[0]
    after = run.space.read(bank.va, len(before), "constant bank 0")
    if after[:used] != before[:used]:
        raise launch_error(
            f"constant bank 0 at {bank.va:#x} changed while its grid was running", FindingKind.LIFETIME
        )
    if after != before:
        run.machine.lint(
            f"constant bank 0 of {loaded.kernel.name} has {bank.size:#x} bytes and changed while its grid "
            f"was running, after the {used:#x} that the kernel reads"
        )


def _check_banks(run: EngineChannel, loaded: LoadedImage, banks: dict[int, bytes]) -> None:
    """Raise `ChannelError` if constant banks, by index, are not those of the image.

    Bank 0 is not compared.
    """
    for index in banks:
        if index and index not in loaded.kernel.banks:
            raise launch_error(f"constant bank {index} is bound, the image has none")
    for index, section in loaded.kernel.banks.items():
        if len(banks.get(index, b"")) < section.size:
            raise launch_error(
                f"the image has {section.size:#x} bytes for constant bank {index}, bound are "
                f"{len(banks.get(index, b'')):#x}"
            )
        check_bank(run.space, loaded, index, banks[index])


def _count(run: EngineChannel, loaded: LoadedImage, launch: SlicedLaunch) -> None:
    """Add the counters of a grid to the machine's, if it is counted."""
    into, counted, raw = run.gpu.counters, launch.counted, launch.counts
    if into is None or counted is None or raw is None:
        return
    kernel = loaded.kernel
    profile = run.gpu.profile
    what = Resources(
        kernel=kernel.name, arch=profile.name, limits=profile.limits, boards=profile.boards,
        lanes=_LANES, registers=kernel.registers,
        shared_bytes=launch.work.shared_bytes, code=len(kernel.code) // _INSTRUCTION_BYTES,
    )  # fmt: skip
    into.add(counters(counted, raw, launch.work, what))


class Invalidation(NamedTuple):
    """The maintenance of one cache by a launch, for the check that always runs."""

    known: bool
    """Whether the descriptor invalidated the cache, or `caches` checks the cache more precisely."""
    by_action: bool
    """Whether the launch's action invalidated the cache, which only one source states."""

    def tell(self, run: EngineChannel, what: str, va: int, missing: str) -> None:
        """Report memory that changed although the cache may hold the old contents, unless `known`.

        Raises a launch error, or advises if `by_action`.
        """
        if self.known:
            return
        if not self.by_action:
            raise launch_error(f"{what} at {va:#x} {missing}", FindingKind.COHERENCE)
        run.machine.lint(f"{what} {missing} {ACTION_ALONE}")  # without the address: once for each kernel


class Grids:
    """The runner of grids of one machine. It keeps translated modules."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.timeout_s: float = config().emu_timeout_s
        """Limit of a kernel's CPU time in seconds; a kernel that takes longer hangs."""
        self._turns = Turns(_TURNS, _PATIENCE_S)
        self.modules = Modules(settings)
        self._launches = Launches()

    def prepare(self) -> None:
        """Create the SIMT engine in advance, which takes some seconds if its code is not cached on disk."""
        engine(self.settings)

    def run(
        self, run: EngineChannel, windows: Windows, one: LaunchDescriptor, *, fresh: bool
    ) -> Iterator[SlicedLaunch]:
        """Run a grid to its end, one slice for each item; `fresh`: the launch's action invalidates.

        Raises `ChannelError`: for an invalid launch, a fault of the kernel, or findings of sanitizers.
        """
        model = run.gpu.caches  # more exact than what is always checked
        checked = model is not None
        found = self._find(run, one, Invalidation(checked or one.invalidates_instructions, fresh))
        constants = Invalidation(checked or one.invalidates_constants, fresh)
        caches = None
        if model is None:
            banks = self._banks(run, one, found, constants)
            words = run.gpu.profile.chip.bank0.SIZE
            counted = run.gpu.counters is not None
            around = run.space.number, run.space.map.version, windows, counted
            key = key_of(one, found, banks, words, around)
            what = self._launches.find(key, lambda: self._judge(run, windows, one, found, banks))
        else:
            loaded = replace(found, bases=dict(found.bases))
            caches = GridCaches(run=run, caches=model, one=one, loaded=loaded, fresh=fresh)
            caches.begin()
            banks = self._banks(run, one, loaded, constants)
            what = self._judge(run, windows, one, loaded, banks)
        yield from self._execute(run, windows, one, what, banks[0], caches=caches)
        _check_unchanged(run, one, what.loaded, banks[0])

    def _judge(
        self,
        run: EngineChannel,
        windows: Windows,
        one: LaunchDescriptor,
        found: LoadedImage,
        banks: dict[int, bytes],
    ) -> ReadyLaunch:
        """Check a launch of the kernel `found` and translate the kernel; return the launch, ready to run.

        `banks` are the contents of its constant banks by index. Raises `ChannelError` for an invalid launch,
        and for PTX that is not supported.
        """
        loaded = found if run.gpu.caches is not None else replace(found, bases=dict(found.bases))
        _check_banks(run, loaded, banks)
        bank0 = banks.get(0, b"")
        dynamic = judge(run, windows, one, loaded, bank0)
        try:
            kernel = self._kernel(run, loaded, one)
            words = run.gpu.profile.chip.bank0.SIZE
            return ready(one, found, loaded, kernel, words=words, room=len(bank0), dynamic=dynamic)
        except PtxError as error:
            if run.machine.ledger is not None:
                run.machine.ledger.refused(f"{loaded.kernel.name}: {error}")
            raise launch_error(f"{loaded.kernel.name}: {error}", FindingKind.UNSUPPORTED) from error
        except UsageError as error:
            raise launch_error(f"{loaded.kernel.name} cannot be launched: {error}") from error

    def _find(self, run: EngineChannel, one: LaunchDescriptor, done: Invalidation) -> LoadedImage:
        """Return the verified kernel at the program address.

        Raises `ChannelError` if it does not fit the GPU.

        `done` are the invalidations of caches before this launch; changed code without one is reported.
        """
        key = (run.space.number, one.program)
        known = run.gpu.code.get(key)
        if known is not None:
            code = run.space.read(one.program, len(known.kernel.code), "instruction fetch")
            if code == known.code:
                return known
            missing = f"changed since {known.kernel.name} ran there, and no instruction cache was invalidated"
            done.tell(run, "the code", one.program, missing)
        found = run.machine.images.find(run.space, one.program)
        own = int(run.gpu.profile.name[3:])
        if found.cubin.arch // 10 != own // 10 or found.cubin.arch > own:
            # CUDA C++ Programming Guide, binary compatibility: later minor revisions run it
            raise launch_error(f"the image of {found.kernel.name} is for sm_{found.cubin.arch}")
        if not found.cubin.ptx:
            raise launch_error(
                f"the image of {found.kernel.name} carries no PTX, nothing can be run",
                FindingKind.UNSUPPORTED,
            )
        if not found.kernel.registers:
            raise launch_error(f"the image does not declare how many registers {found.kernel.name} needs")
        run.gpu.code[key] = found
        return found

    def _banks(
        self, run: EngineChannel, one: LaunchDescriptor, loaded: LoadedImage, done: Invalidation
    ) -> dict[int, bytes]:
        """Return the contents of the constant banks by index; check that no cache may hold older contents."""
        out = {}
        for index, bank in one.banks.items():
            used = bank_bytes(run, loaded, index)
            content = _bank_content(run, loaded, bank, used)
            key = (run.space.number, bank.va)
            cached = run.gpu.constants.get(key, b"")
            common = min(len(content), len(cached), used)
            if not bank.invalidate and content[:common] != cached[:common]:
                what = f"constant bank {index} of kernel {loaded.kernel.name}"
                missing = "changed since it was last read, and nothing invalidated the constant cache"
                done.tell(run, what, bank.va, missing)
            run.gpu.constants[key] = content
            out[index] = content
        return out

    def _kernel(self, run: EngineChannel, loaded: LoadedImage, one: LaunchDescriptor) -> PtxKernel:
        module = self.modules.find(loaded.cubin.ptx, run.gpu.profile.assembler_arch)
        addresses = {}
        bank3 = loaded.kernel.banks.get(3)
        for symbol in loaded.cubin.elf.symbols:
            if bank3 is not None and symbol.section == bank3.index:
                addresses[symbol.name] = one.banks[3].va + symbol.value
            elif symbol.section in loaded.bases and symbol.section != loaded.kernel.text.index:
                addresses[symbol.name] = loaded.bases[symbol.section] + symbol.value
        return module.kernel(loaded.kernel.name, addresses, counts=run.gpu.counters is not None)

    def _execute(
        self,
        run: EngineChannel,
        windows: Windows,
        one: LaunchDescriptor,
        what: ReadyLaunch,
        bank0: bytes,
        *,
        caches: GridCaches | None,
    ) -> Iterator[SlicedLaunch]:
        """Run a launch in slices, with its detectors. Raises `ChannelError` for a fault or a finding."""
        loaded, pages = what.loaded, HeldPages(run.machine.lock)
        try:
            launch = self._begin(run, windows, what, bank0, pages=pages)
        except UsageError as error:
            raise launch_error(f"{loaded.kernel.name} cannot be launched: {error}") from error
        turn = None
        if run.acting is not None and run.machine.notes:
            loads = None if caches is None else caches.watch(launch.instructions)
            turn = Turn(launch, run.acting.work, run.space.map, loads)
            turn.work.name = f"kernel {loaded.kernel.name} on {run.name} ({run.at})"
            turn.work.locate = launch.describe
        with closing(launch):
            yield from self._turns.run(launch, turn, partial(pages.hold, run.space))
            result = launch.result()
        run.machine.launched(loaded.kernel.name)
        _count(run, loaded, launch)
        if result.fault is not None:
            raise kernel_error(result.fault, result.findings, loaded, one.grid, run.gpu.profile.sms)
        if result.findings:
            texts = [in_source(finding, loaded) for finding in result.findings]
            raise launch_error("\nalso: ".join(texts), FindingKind.KERNEL)
        if caches is not None:
            caches.end()

    def _begin(
        self, run: EngineChannel, windows: Windows, what: ReadyLaunch, bank0: bytes, *, pages: HeldPages
    ) -> SlicedLaunch:
        """Return the launch, ready to run; with a report, record how exact its instructions are."""
        rng, kernel = run.rng, what.kernel
        options = LaunchOptions(
            group_seed=rng.randrange(1, 1 << 30),
            warp_order=rng.randrange(1 << 30),
            timeout_s=self.timeout_s,
            shared_window=windows.shared or 0,
            local_window=windows.local or 0,
        )
        if run.machine.ledger is not None:
            counts = self.modules.counts(what.loaded.cubin.ptx, kernel)
            run.machine.ledger.launched(kernel.name, counts)
        work = what.work(bank0)
        return SlicedLaunch(kernel.program, work, run.space.map, options, on_end=pages.drop)
