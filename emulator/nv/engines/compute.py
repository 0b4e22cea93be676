"""The compute classes: windows, local memory, launches, report semaphores, inline uploads.

Source: docs/facts/nv.md 3.4, 4.3.

A launch error is a `ChannelError`, which stops the channel.

Not here: the descriptor (`descriptor`), checks of the kernel's resources (`fit`). Next: `grid`, which runs a
grid.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from drivers.nv.layouts import compute as layout
from drivers.nv.layouts.compute import ComputeMethod as M
from drivers.nv.layouts.compute import PcasAction, ReportOperation, ReportSemaphoreD, ReportSemaphoreExecute
from drivers.nv.layouts.fault import WARP_ESR_INVALID_ADDRESS_SPACE, RcCode
from drivers.nv.layouts.host import SemReduction
from drivers.nv.layouts.qmd_values import ReductionOp, SemaphoreSize
from emulator.nv.engines import descriptor, semaphore
from emulator.nv.reports import ChannelError, FindingKind, launch_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emulator.nv.engines.descriptor import LaunchDescriptor
    from emulator.nv.engines.engine import EngineChannel
    from emulator.nv.engines.pushbuffer import MethodCall
    from emulator.shared.vaspace import VaSpace
    from emulator.simt.slices import SlicedLaunch

ENGINE = "compute"
_REPORT_EXECUTE_SINCE = 0xC7C0
"""The first class with the methods of `_REPORT_METHODS`."""
_TURING_ONLY = (M.SEND_SIGNALING_PCAS_B,)
_NOT_EMULATED = (
    M.SET_VALID_SPAN_OVERFLOW_AREA_A,
    M.SET_VALID_SPAN_OVERFLOW_AREA_B,
    M.SET_VALID_SPAN_OVERFLOW_AREA_C,
    M.SET_INLINE_QMD_ADDRESS_A,
    M.SET_INLINE_QMD_ADDRESS_B,
    M.LOAD_INLINE_QMD_DATA,
    M.SET_TEX_SAMPLER_POOL,
    M.SET_TEX_HEADER_POOL,
    M.SET_TRAP_HANDLER_A,
    M.SET_TRAP_HANDLER_B,
    M.SET_SHADER_EXCEPTIONS,
)
_OF_WINDOWS = frozenset(
    {
        M.SET_SHADER_SHARED_MEMORY_WINDOW_A,
        M.SET_SHADER_SHARED_MEMORY_WINDOW_B,
        M.SET_SHADER_LOCAL_MEMORY_WINDOW_A,
        M.SET_SHADER_LOCAL_MEMORY_WINDOW_B,
        M.SET_SHADER_LOCAL_MEMORY_A,
        M.SET_SHADER_LOCAL_MEMORY_B,
        M.SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A,
        M.SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_B,
        M.SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_C,
    }
)
"""Methods whose registers are fields of `Windows`."""
_ACCEPTED_KEPT = 4096
"""The most pairs of method and data that are remembered as valid."""
_REPORT_METHODS = (
    M.SET_REPORT_SEMAPHORE_PAYLOAD_LOWER,
    M.SET_REPORT_SEMAPHORE_PAYLOAD_UPPER,
    M.SET_REPORT_SEMAPHORE_ADDRESS_LOWER,
    M.SET_REPORT_SEMAPHORE_ADDRESS_UPPER,
    M.REPORT_SEMAPHORE_EXECUTE,
)
_ZERO_DATA = {
    M.WAIT_FOR_IDLE: FindingKind.METHOD,
    M.INVALIDATE_SKED_CACHES: FindingKind.METHOD,
    # The begin sequence of nv.md 3.4 sends 0; the bits of these two are not in the facts.
    M.INVALIDATE_TEXTURE_HEADER_CACHE_NO_WFI: FindingKind.UNSUPPORTED,
    M.INVALIDATE_SAMPLER_CACHE_NO_WFI: FindingKind.UNSUPPORTED,
}
"""Methods whose data must be 0 -> the kind of the finding for other data."""
_REDUCTIONS = {
    ReductionOp.RED_ADD: SemReduction.IADD,
    ReductionOp.RED_MIN: SemReduction.IMIN,
    ReductionOp.RED_MAX: SemReduction.IMAX,
    ReductionOp.RED_INC: SemReduction.INC,
    ReductionOp.RED_DEC: SemReduction.DEC,
    ReductionOp.RED_AND: SemReduction.IAND,
    ReductionOp.RED_OR: SemReduction.IOR,
    ReductionOp.RED_XOR: SemReduction.IXOR,
}


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of shared and local memory, and the backing of local memory. None: never set."""

    shared: int | None
    """Address of the window of shared memory."""
    local: int | None
    """Address of the window of local memory."""
    backing: int | None
    """Device address of the memory that contains local memory."""
    per_tpc: int | None
    """Bytes of that memory for each TPC."""
    sm_count: int | None
    """The number of SMs or TPCs that may use local memory."""

    def check(self, space: VaSpace, wide: bool) -> None:  # noqa: FBT001 - a property of the GPU, no switch
        """Refuse windows that are not set, are zero or misaligned, contain a mapping, or overlap.

        `wide`: the GPU has Hopper's shared window, whose alignment is documented. For the other windows the
        facts (docs/facts/nv.md 2.8) state that 16 MiB must be reserved, and all known drivers align the
        window to that. Raises a launch error.
        """
        span = layout.SHARED_WINDOW_ALIGN if wide else layout.LOCAL_WINDOW_BYTES
        for name, base, size in (
            ("shared", self.shared, span),
            ("local", self.local, layout.LOCAL_WINDOW_BYTES),
        ):
            if base is None:
                raise launch_error(f"a launch before the {name} memory window was set")
            if base == 0 or base % size:
                raise _window_error(
                    f"the {name} memory window at {base:#x} is zero or not aligned to {size:#x}", base
                )
            inside = space.overlapping(base, size)
            if inside is not None:
                raise _window_error(f"{inside} lies in the {name} memory window at {base:#x}", base)
        assert self.shared is not None
        assert self.local is not None
        if self.shared < self.local + layout.LOCAL_WINDOW_BYTES and self.local < self.shared + span:
            raise _window_error(
                f"the memory windows overlap: local {self.local:#x}, shared [{self.shared:#x}, +{span:#x})",
                self.local,
            )


def _window_error(message: str, va: int) -> ChannelError:
    return ChannelError(
        RcCode.GR_EXCEPTION, FindingKind.LAUNCH, message, va=va, esr=WARP_ESR_INVALID_ADDRESS_SPACE
    )


class Compute:
    """A compute class on a subchannel."""

    def __init__(self, run: EngineChannel) -> None:
        self._run = run
        self.cls = run.gpu.profile.generation.compute
        self.methods = dict(layout.METHODS if run.gpu.profile.wide else layout.METHODS_AMPERE)
        gone = (*_TURING_ONLY, *(_REPORT_METHODS if self.cls < _REPORT_EXECUTE_SINCE else ()))
        for method in gone:
            del self.methods[method]
        self._reader = descriptor.DescriptorReader(run.gpu.profile)
        self._registers: dict[int, int] = {}
        self._accepted: set[tuple[int, int]] = set()
        """Pairs of method and data that `_judge` has accepted."""
        self._current: Windows | None = None
        """The windows that the registers describe; None if a register has been written since."""
        self._unlaunched = False
        """Whether SEND_PCAS_A named a descriptor that is not scheduled yet."""
        self._invalidated = False
        """Whether that descriptor was only invalidated, so that it may be sent again."""
        self._inline = bytearray()
        self._inline_left = 0
        """Bytes of an inline upload that are still missing."""
        self._inline_flushes = True
        self._inline_va = 0

    def error(self, message: str, kind: FindingKind = FindingKind.METHOD) -> ChannelError:
        """Return the error of a bad method."""
        return ChannelError(RcCode.GR_CLASS_ERROR, kind, message)

    def method(self, call: MethodCall) -> bool:
        """Run one method; return whether it did more than set a register.

        Raises `ChannelError` for a bad one.
        """
        if call.address not in self.methods:
            raise self.error(f"class {self.cls:#x} has no method {call.address:#x}")
        method, pair = M(call.address), (call.address, call.value)
        if pair not in self._accepted:
            self._judge(method, call.value)
            if len(self._accepted) >= _ACCEPTED_KEPT:
                self._accepted.clear()
            self._accepted.add(pair)
        if self._inline_left and method is not M.LOAD_INLINE_DATA:
            raise self.error(f"{self._inline_left} bytes of inline data are missing before {method.name}")
        if method in _OF_WINDOWS:
            self._current = None
        if method is M.SEND_PCAS_A:
            again = self._invalidated and self._registers[method] == call.value
            error = None if again else self.left_over()
            if error is not None:
                raise error
            self._unlaunched, self._invalidated = True, False
        self._registers[method] = call.value
        action = self._ACTIONS.get(method)
        if action is None:
            return False
        action(self, call.value)
        return True

    def _judge(self, method: M, value: int) -> None:
        """Refuse data that the method does not accept, and methods that are not emulated."""
        data = self.methods[method].data
        profile = self._run.gpu.profile
        if method is M.SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_C and profile.generation.qmd == "V04":
            value &= ~layout.NON_THROTTLED_C_COUNTS_HOPPER
        if quirk := self._run.machine.rejections.refuses("method", method, value, self._registers):
            raise self.error(f"{method.name} {value:#x} (quirk {quirk})")
        violations = [] if data is None else data.from_int(value).check()
        if violations:
            raise self.error(f"{method.name} {value:#x}: {violations[0]}")
        if value and method in _ZERO_DATA:
            raise self.error(f"{method.name} takes 0, not {value:#x}", _ZERO_DATA[method])
        wanted = profile.chip.sm_versions[0]  # as the three values in nv.md 3.4 are
        if method is M.SET_SPA_VERSION and value != wanted:
            raise self.error(f"SET_SPA_VERSION {value:#x}: {profile.name} has {wanted:#x}")
        if method in _NOT_EMULATED:
            raise self.error(f"{method.name} is not emulated", FindingKind.UNSUPPORTED)

    def left_over(self) -> ChannelError | None:
        """Return the error for a descriptor that was never scheduled or an incomplete upload.

        None if neither.
        """
        if self._inline_left:
            return self.error(f"{self._inline_left} bytes of inline data are missing")
        if not self._unlaunched:
            return None
        va = self._registers[M.SEND_PCAS_A] << 8
        return self.error(
            f"the descriptor at {va:#x} was sent and not scheduled: SEND_SIGNALING_PCAS2_B is missing"
        )

    def _register(self, method: M, why: str) -> int:
        if method not in self._registers:
            raise self.error(f"{why} before {method.name}")
        return self._registers[method]

    def _pair(self, upper: M, lower: M, why: str) -> int:
        return self._register(upper, why) << 32 | self._register(lower, why)

    def _optional_pair(self, upper: M, lower: M) -> int | None:
        if upper not in self._registers or lower not in self._registers:
            return None
        return self._registers[upper] << 32 | self._registers[lower]

    def _idle(self, _value: int) -> None:
        self._run.when_idle(self._run.unflushed.idle, ENGINE)

    def _invalidate(self, value: int) -> None:
        data = layout.InvalidateShaderCaches.from_int(value)

        def then() -> None:
            self._forget(data.INSTRUCTION, data.CONSTANT, data.DATA)
            self._run.unflushed.idle()
            if data.FLUSH_DATA:
                self._run.unflushed.flushed()

        self._run.when_idle(then, ENGINE)

    def _invalidate_now(self, value: int) -> None:
        data = layout.InvalidateShaderCachesNoWfi.from_int(value)
        self._forget(data.INSTRUCTION, data.CONSTANT, data.GLOBAL_DATA)

    def _forget(self, instructions: bool, constants: bool, data: bool) -> None:  # noqa: FBT001 - bits of a method
        self._run.gpu.invalidate(instructions=instructions, constants=constants, data=data)

    def _invalidate_descriptors(self, _value: int) -> None:
        self._run.gpu.descriptors.clear()

    def _windows(self) -> Windows:
        if self._current is None:
            self._current = self._read_windows()
        return self._current

    def _read_windows(self) -> Windows:
        """Return the windows and the local memory that methods have set; None for each that was not set."""
        per_tpc = self._optional_pair(
            M.SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A, M.SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_B
        )
        count = self._registers.get(M.SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_C)
        return Windows(
            self._optional_pair(M.SET_SHADER_SHARED_MEMORY_WINDOW_A, M.SET_SHADER_SHARED_MEMORY_WINDOW_B),
            self._optional_pair(M.SET_SHADER_LOCAL_MEMORY_WINDOW_A, M.SET_SHADER_LOCAL_MEMORY_WINDOW_B),
            self._optional_pair(M.SET_SHADER_LOCAL_MEMORY_A, M.SET_SHADER_LOCAL_MEMORY_B),
            per_tpc,
            None if count is None else layout.NonThrottledC.from_int(count).MAX_SM_COUNT,
        )

    def _signal(self, value: int) -> None:
        """Execute SEND_SIGNALING_PCAS2_B: invalidate a cached descriptor, or launch its grid."""
        action = PcasAction(value & 0xF)
        va = self._register(M.SEND_PCAS_A, "SEND_SIGNALING_PCAS2_B") << 8
        sent, self._unlaunched = self._unlaunched, action is PcasAction.INVALIDATE
        self._invalidated = self._unlaunched
        if not sent:
            raise self.error(
                f"SEND_SIGNALING_PCAS2_B without a SEND_PCAS_A of its own: {va:#x} was used before"
            )
        if action is PcasAction.INVALIDATE:
            self._run.gpu.descriptors.pop((self._run.space.number, va), None)
            return
        fresh = action in (PcasAction.INVALIDATE_COPY_SCHEDULE, PcasAction.INVALIDATE_PREFETCH_COPY_SCHEDULE)
        if not fresh and action not in (PcasAction.SCHEDULE, PcasAction.PREFETCH_SCHEDULE):
            raise self.error(f"{action.name} is not emulated", FindingKind.UNSUPPORTED)
        one = self._fetch(va, reread=fresh or action is PcasAction.PREFETCH_SCHEDULE)
        self._run.launch(
            partial(self._grid, one, self._windows(), fresh), ENGINE, f"grid of {va:#x}", ordered=False
        )

    def _fetch(self, va: int, *, reread: bool, named: str = "SEND_PCAS_A") -> LaunchDescriptor:
        """Return the descriptor at `va`. Raises `ChannelError` if it is invalid, or a cached copy differs.

        Without `reread` the hardware may use a cached copy, which must be equal.

        `named` is the method or field with the address, for messages. PREFETCH_SCHEDULE, and QMD_SCHEDULE of
        a dependent launch with prefetch, read the descriptor again even without an invalidation: tinygrad
        (a9069c1) rewrites descriptors and launches them this way.
        """
        gpu, space = self._run.gpu, self._run.space
        size = descriptor.descriptor_bytes(gpu.profile)
        raw = space.read(va, size, f"{named}: the launch descriptor")
        key = (space.number, va)
        if not reread and gpu.descriptors.get(key, raw) != raw:
            raise launch_error(
                f"the descriptor at {va:#x} that {named} names was reused with other content; SCHEDULE "
                "without invalidation takes the old one",
                FindingKind.COHERENCE,
            )
        gpu.descriptors[key] = raw
        if quirk := self._run.machine.rejections.refuses("descriptor", gpu.profile, raw, space):
            raise launch_error(f"the descriptor at {va:#x} (quirk {quirk})")
        return self._reader.read(va, raw)

    def _grid(
        self,
        one: LaunchDescriptor,
        windows: Windows,
        fresh: bool,  # noqa: FBT001 - private
    ) -> Iterator[SlicedLaunch]:
        """Run the grid of a descriptor in slices, then its releases and the grids that depend on it."""
        run = self._run
        if run.space.read(one.va, len(one.raw), "the launch descriptor") != one.raw:
            raise launch_error(
                f"the descriptor at {one.va:#x} changed while its launch was in flight", FindingKind.LIFETIME
            )
        yield from run.machine.grids.run(run, windows, one, fresh=fresh)
        for release in one.releases:
            self._grid_release(release)
        for dependent, invalidates, prefetched in one.dependents:
            following = self._fetch(dependent, reread=invalidates or prefetched, named="DEPENDENT_QMD")
            yield from self._grid(following, windows, invalidates)

    def _grid_release(self, one: descriptor.GridRelease) -> None:
        """Execute a release at the end of a grid."""
        run, what = self._run, "the grid's release"
        target = semaphore.Release(one.va, one.payload, 64 if one.wide else 32, launch_error)
        if one.reduction is not None:
            operation = _REDUCTIONS[one.reduction]
            semaphore.reduce(run.space, target, operation, what, run.released, signed=one.signed)
        else:
            four = one.size is SemaphoreSize.SEMAPHORE_FOUR_WORDS
            time_ns = run.machine.time_ns() if four else None
            semaphore.release(run.space, target, time_ns, what, run.released)
        if one.trap:
            run.machine.notify_work(run)

    def _report_d(self, value: int) -> None:
        data = ReportSemaphoreD.from_int(value)
        if data.OPERATION not in (ReportOperation.RELEASE, ReportOperation.TRAP):
            raise self.error(f"SET_REPORT_SEMAPHORE_D supports RELEASE and TRAP only: {data}")
        va = self._pair(M.SET_REPORT_SEMAPHORE_A, M.SET_REPORT_SEMAPHORE_B, "SET_REPORT_SEMAPHORE_D")
        payload = self._register(M.SET_REPORT_SEMAPHORE_C, "SET_REPORT_SEMAPHORE_D")
        self._report(data, semaphore.Release(va, payload, 32, self.error), four=not data.STRUCTURE_SIZE)

    def _report_execute(self, value: int) -> None:
        """Execute REPORT_SEMAPHORE_EXECUTE."""
        data = ReportSemaphoreExecute.from_int(value)
        why = "REPORT_SEMAPHORE_EXECUTE"
        va = self._pair(M.SET_REPORT_SEMAPHORE_ADDRESS_UPPER, M.SET_REPORT_SEMAPHORE_ADDRESS_LOWER, why)
        payload = self._register(M.SET_REPORT_SEMAPHORE_PAYLOAD_LOWER, why)
        if data.PAYLOAD_SIZE64:
            payload |= self._register(M.SET_REPORT_SEMAPHORE_PAYLOAD_UPPER, why) << 32
        wrong = semaphore.misfit(data.STRUCTURE_SIZE, wide=bool(data.PAYLOAD_SIZE64))
        if wrong:
            raise self.error(f"{why}: {wrong[1]}: {data}", wrong[0])
        one = semaphore.Release(va, payload, 64 if data.PAYLOAD_SIZE64 else 32, self.error)
        self._report(data, one, four=data.STRUCTURE_SIZE == SemaphoreSize.SEMAPHORE_FOUR_WORDS)

    def _report(
        self, data: ReportSemaphoreD | ReportSemaphoreExecute, one: semaphore.Release, *, four: bool
    ) -> None:
        """Write a report semaphore when the channel's earlier work has ended."""
        if data.OPERATION is not ReportOperation.RELEASE or data.REDUCTION_ENABLE:
            raise self.error(f"only plain releases are emulated: {data}", FindingKind.UNSUPPORTED)
        if data.REDUCTION_OP or data.REDUCTION_FORMAT:
            raise self.error(f"reduction bits without reduction: {data}")
        flush, awaken = not data.FLUSH_DISABLE, bool(data.AWAKEN_ENABLE)

        def write() -> None:
            time_ns = self._run.machine.time_ns() if four else None
            if flush:
                self._run.unflushed.flushed()
            elif self._run.unflushed.any:
                raise self.error(
                    f"a report semaphore with FLUSH_DISABLE after stores of {self._run.unflushed.any}: "
                    "the stores may not be visible",
                    FindingKind.COHERENCE,
                )
            run = self._run
            semaphore.release(run.space, one, time_ns, "the report semaphore", run.released)
            if awaken:
                self._run.machine.notify_work(self._run)

        self._run.when_idle(write, ENGINE)

    def _inline_launch(self, value: int) -> None:
        """Execute LAUNCH_DMA: begin an upload of the data in the following methods."""
        data = layout.LaunchDmaInline.from_int(value)
        if not data.DST_MEMORY_LAYOUT:
            raise self.error("only pitch-linear uploads are emulated", FindingKind.UNSUPPORTED)
        if self._register(M.LINE_COUNT, "LAUNCH_DMA") != 1:
            raise self.error("only uploads of one line are emulated", FindingKind.UNSUPPORTED)
        self._inline_flushes = not data.SYSMEMBAR_DISABLE
        self._inline_va = self._pair(M.OFFSET_OUT_UPPER, M.OFFSET_OUT, "LAUNCH_DMA")
        self._inline_left = self._register(M.LINE_LENGTH_IN, "LAUNCH_DMA")
        self._inline.clear()
        if not self._inline_left:
            raise self.error("an upload of 0 bytes")

    def _inline_data(self, value: int) -> None:
        if not self._inline_left:
            raise self.error("LOAD_INLINE_DATA without a LAUNCH_DMA")
        self._inline += value.to_bytes(4, "little")[: self._inline_left]
        self._inline_left = max(self._inline_left - 4, 0)
        if not self._inline_left:
            self._run.space.write(self._inline_va, bytes(self._inline), "the inline upload")
            self._run.wrote("upload", "inline upload", self._inline_va, len(self._inline))
            if self._run.gpu.caches is not None and not self._inline_flushes:
                self._run.unflushed.add("an inline upload with SYSMEMBAR_DISABLE")

    _ACTIONS = {  # noqa: RUF012 - a constant table
        M.WAIT_FOR_IDLE: _idle,
        M.INVALIDATE_SHADER_CACHES: _invalidate,
        M.INVALIDATE_SHADER_CACHES_NO_WFI: _invalidate_now,
        M.INVALIDATE_SKED_CACHES: _invalidate_descriptors,
        M.SEND_SIGNALING_PCAS2_B: _signal,
        M.SET_REPORT_SEMAPHORE_D: _report_d,
        M.REPORT_SEMAPHORE_EXECUTE: _report_execute,
        M.LAUNCH_DMA: _inline_launch,
        M.LOAD_INLINE_DATA: _inline_data,
    }
