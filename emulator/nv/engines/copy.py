"""The copy classes: transfers, fills by remapping, semaphores (docs/facts/nv.md 3.5).

Some values that hardware ignores are an error here, because they show a mistake of the driver: offsets and
sizes that no transfer uses, empty transfers, bits that have no effect without others. A copy with overlapping
source and destination is an error, because the order of the bytes is not documented. A copy of memory to
itself is reported as advice only.

Not here: order between engines (`emulator.shared.races`). Next: `semaphore`, the arithmetic of semaphores.
"""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from drivers.nv.layouts import dma
from drivers.nv.layouts.dma import (
    DataTransferType,
    DmaMethod,
    DmaReduction,
    DmaSemaphoreType,
    LaunchDma,
    RemapComponents,
    RemapSource,
)
from drivers.nv.layouts.fault import RcCode
from drivers.nv.layouts.host import SemReduction
from drivers.nv.layouts.rm_classes import EngineType
from emulator.nv.engines import semaphore
from emulator.nv.engines.pushbuffer import broken_rule
from emulator.nv.reports import ChannelError, FindingKind
from emulator.shared.vaspace import AccessKind

if TYPE_CHECKING:
    from emulator.nv.engines.engine import EngineChannel
    from emulator.nv.engines.pushbuffer import MethodCall

_PREFETCH_SINCE = 0xCAB5
_FOR_ONE_TRANSFER = frozenset(
    {
        DmaMethod.OFFSET_IN_UPPER,
        DmaMethod.OFFSET_IN_LOWER,
        DmaMethod.OFFSET_OUT_UPPER,
        DmaMethod.OFFSET_OUT_LOWER,
        DmaMethod.LINE_LENGTH_IN,
        DmaMethod.LINE_COUNT,
    }
)
_NOT_EMULATED = ("SRC_TYPE", "DST_TYPE", "COPY_TYPE", "VPRMODE", "MEMORY_SCRUB_ENABLE", "FLUSH_TYPE")
"""Fields of LAUNCH_DMA that must be 0. FLUSH_TYPE 1 makes stores visible to the GPU only; the reader is
unknown here."""
_PIECE = 1 << 24
"""Bytes that a copy moves at once."""
_CONSTANTS = RemapSource.CONST_A, RemapSource.CONST_B


@dataclass(frozen=True, slots=True)
class _Transfer:
    """The registers of a transfer at its launch."""

    source: int
    """Device address; 0 if the transfer reads no memory."""
    target: int
    """Device address."""
    pitch_in: int
    pitch_out: int
    """Bytes between the starts of two lines of the source and the target; 0 for one line."""
    length: int
    """Bytes of a line; with `remap`, elements of all components."""
    lines: int
    """The number of lines."""
    remap: RemapComponents | None
    """How components are rearranged; None for a plain copy."""
    constants: tuple[int, int]
    """CONST_A and CONST_B; 0 if not used."""


class CopyEngine:
    """A copy class on a subchannel."""

    def __init__(self, run: EngineChannel, cls: int) -> None:
        self._run = run
        self.cls = cls
        self._registers: dict[int, int] = {}
        self.methods = dict(dma.METHODS if run.gpu.profile.wide else dma.METHODS_AMPERE)
        if cls < dma.PAYLOAD_UPPER_SINCE:
            del self.methods[DmaMethod.SET_SEMAPHORE_PAYLOAD_UPPER]
        self._unflushed = False
        self._unused: set[DmaMethod] = set()

    def error(self, message: str, kind: FindingKind = FindingKind.METHOD) -> ChannelError:
        """Return an error with the error code of the channel's copy engine."""
        index = self._run.setup.engine - EngineType.COPY0
        code = RcCode[f"CE{index}_ERROR"] if 0 <= index <= 10 else RcCode.CE0_ERROR
        return ChannelError(code, kind, message)

    def method(self, call: MethodCall) -> bool:
        """Run one method; return whether it did more than set a register.

        Raises `ChannelError` for a bad one.
        """
        known = self.methods.get(call.address)
        if known is None:
            raise self.error(f"class {self.cls:#x} has no method {call.address:#x}")
        if known.data is not None:
            violation = broken_rule(known, call.value)
            if violation:
                raise self.error(f"{known.name} {call.value:#x}: {violation}")
        self._registers[call.address] = call.value
        if call.address in _FOR_ONE_TRANSFER:
            if call.address in self._unused:
                raise self._lost(f"{known.name} is set again")
            self._unused.add(DmaMethod(call.address))
        if call.address != DmaMethod.LAUNCH_DMA:
            return False
        self._launch(LaunchDma.from_int(call.value))
        return True

    def left_over(self) -> ChannelError | None:
        """Return the error for a transfer that was set up and never launched, or None."""
        return self._lost("a semaphore is released") if self._unused else None

    def _lost(self, then: str) -> ChannelError:
        names = ", ".join(sorted(one.name for one in self._unused))
        return self.error(f"{then}, and no transfer used {names}: a LAUNCH_DMA is missing")

    def _register(self, method: DmaMethod, why: str) -> int:
        if method not in self._registers:
            raise self.error(f"LAUNCH_DMA {why} before {method.name}")
        return self._registers[method]

    def _address(self, upper: DmaMethod, lower: DmaMethod, why: str) -> int:
        return self._register(upper, why) << 32 | self._register(lower, why)

    def _launch(self, launch: LaunchDma) -> None:
        """Execute LAUNCH_DMA: queue its transfer, its semaphore and its interrupt."""
        self._refuse_unknown(launch)
        kind = launch.DATA_TRANSFER_TYPE
        engine = f"copy {self.cls:#x}"
        if kind is not DataTransferType.NONE:
            transfer = self._transfer(launch)
            self._unused.clear()
            self._unflushed = True
            self._run.launch(
                partial(self._move, transfer),
                engine,
                "transfer",
                ordered=kind is not DataTransferType.PIPELINED,
            )
        if launch.FLUSH_ENABLE:
            self._unflushed = False
        if launch.SEMAPHORE_TYPE is not DmaSemaphoreType.NONE:
            if self._unflushed:
                raise self.error(
                    "a semaphore without FLUSH_ENABLE after transfers that were not flushed",
                    FindingKind.COHERENCE,
                )
            self._run.launch(self._semaphore(launch), engine, "semaphore", ordered=True)
        if launch.INTERRUPT_TYPE:
            self._run.launch(
                lambda: self._run.machine.notify_work(self._run), engine, "interrupt", ordered=True
            )

    def _refuse_unknown(self, launch: LaunchDma) -> None:
        """Raise `ChannelError` for a launch that the class does not have, or that is not emulated."""
        if launch.DATA_TRANSFER_TYPE is DataTransferType.PREFETCH:
            if self.cls < _PREFETCH_SINCE:
                raise self.error(f"class {self.cls:#x} has no prefetch")
            raise self.error("a prefetching transfer is not emulated", FindingKind.UNSUPPORTED)
        if launch.INTERRUPT_TYPE > 2:
            raise self.error(f"interrupt type {launch.INTERRUPT_TYPE} is not known")
        for name in _NOT_EMULATED:
            if getattr(launch, name):
                raise self.error(f"{name} is not emulated: {launch}", FindingKind.UNSUPPORTED)
        transfers = launch.DATA_TRANSFER_TYPE is not DataTransferType.NONE
        if transfers and not (launch.SRC_MEMORY_LAYOUT and launch.DST_MEMORY_LAYOUT):
            raise self.error(f"only pitch-linear transfers are emulated: {launch}", FindingKind.UNSUPPORTED)
        if launch.SEMAPHORE_TYPE is DmaSemaphoreType.CONDITIONAL_INTERRUPT:
            raise self.error("a conditional interrupt is not emulated", FindingKind.UNSUPPORTED)
        self._refuse_idle_bits(launch, transfers=transfers)

    def _refuse_idle_bits(self, launch: LaunchDma, *, transfers: bool) -> None:
        """Refuse bits that have no effect without others."""
        releases = launch.SEMAPHORE_TYPE is not DmaSemaphoreType.NONE
        for needed, there, names in (
            ("a transfer", transfers, ("MULTI_LINE_ENABLE", "REMAP_ENABLE", "FORCE_RMWDISABLE")),
            ("a semaphore", releases, ("SEMAPHORE_REDUCTION_ENABLE", "SEMAPHORE_PAYLOAD_SIZE")),
            (
                "reduction",
                bool(launch.SEMAPHORE_REDUCTION_ENABLE),
                ("SEMAPHORE_REDUCTION", "SEMAPHORE_REDUCTION_SIGN"),
            ),
        ):
            for name in names:
                if not there and getattr(launch, name):
                    raise self.error(f"{name} without {needed}: {launch}")

    def _transfer(self, launch: LaunchDma) -> _Transfer:
        """Return the transfer that the registers describe; values that it does not use are 0."""
        why = "of a transfer"
        multi = bool(launch.MULTI_LINE_ENABLE)
        remap = None
        constants = (0, 0)
        reads = True
        if launch.REMAP_ENABLE:
            remap = RemapComponents.from_int(self._register(DmaMethod.SET_REMAP_COMPONENTS, "with remap"))
            parts = _selected(remap)
            reads = any(part <= RemapSource.SRC_W for part in parts)
            constants = (
                self._register(DmaMethod.SET_REMAP_CONST_A, "with CONST_A")
                if RemapSource.CONST_A in parts
                else 0,
                self._register(DmaMethod.SET_REMAP_CONST_B, "with CONST_B")
                if RemapSource.CONST_B in parts
                else 0,
            )
        transfer = _Transfer(
            self._address(DmaMethod.OFFSET_IN_UPPER, DmaMethod.OFFSET_IN_LOWER, why) if reads else 0,
            self._address(DmaMethod.OFFSET_OUT_UPPER, DmaMethod.OFFSET_OUT_LOWER, why),
            self._register(DmaMethod.PITCH_IN, "with lines") if multi and reads else 0,
            self._register(DmaMethod.PITCH_OUT, "with lines") if multi else 0,
            self._register(DmaMethod.LINE_LENGTH_IN, why),
            self._register(DmaMethod.LINE_COUNT, "with lines") if multi else 1,
            remap,
            constants,
        )
        if transfer.length == 0 or transfer.lines == 0:
            raise self.error(f"a transfer of {transfer.length} bytes and {transfer.lines} lines")
        return transfer

    def _move(self, transfer: _Transfer) -> None:
        for line in range(transfer.lines):
            source = transfer.source + line * transfer.pitch_in
            target = transfer.target + line * transfer.pitch_out
            if transfer.remap is None:
                self._copy(source, target, transfer.length)
            else:
                self._remap(source, target, transfer)

    def _copy(self, source: int, target: int, length: int) -> None:
        """Copy one line, with the states of its bytes if they are tracked.

        Raises `ChannelError` if it overlaps.
        """
        if source == target:
            self._run.machine.lint(f"a copy of {length:#x} bytes from {source:#x} to itself")
        elif source < target + length and target < source + length:
            raise self.error(f"a copy of {length:#x} bytes from {source:#x} to {target:#x} overlaps itself")
        space = self._run.space
        for at in range(0, length, _PIECE):
            size = min(_PIECE, length - at)
            data = space.read(source + at, size, "the copy engine, from OFFSET_IN over LINE_LENGTH_IN,")
            states = space.states(source + at, size) if self._run.machine.tracks else b""
            space.write(target + at, data, "the copy engine, from OFFSET_OUT over LINE_LENGTH_IN,", states)
        self._run.touches(source, length, write=False)
        self._run.touches(target, length, write=True)

    def _remap(self, source: int, target: int, transfer: _Transfer) -> None:
        """Copy elements and rearrange their components, or write constants in their place."""
        remap = transfer.remap
        assert remap is not None
        size, count = remap.COMPONENT_SIZE + 1, transfer.length
        parts = _selected(remap)
        if any(part <= RemapSource.SRC_W and part > remap.NUM_SRC_COMPONENTS for part in parts):
            raise self.error(f"a component that the source does not have: {remap}")
        space = self._run.space
        bytes_in = count * (remap.NUM_SRC_COMPONENTS + 1) * size
        bytes_out = count * (remap.NUM_DST_COMPONENTS + 1) * size
        reads = any(part <= RemapSource.SRC_W for part in parts)
        keeps = RemapSource.NO_WRITE in parts
        what = f"the copy engine, LINE_LENGTH_IN {count:#x} elements of remapped components,"
        data = space.read(source, bytes_in, what) if reads else b""
        space.check_range(target, bytes_out, AccessKind.WRITE, what)
        if all(part in _CONSTANTS and not transfer.constants[part - RemapSource.CONST_A] for part in parts):
            space.zero(target, bytes_out, "the copy engine")
            self._run.touches(target, bytes_out, write=True)
            return
        old = space.read(target, bytes_out, "the copy engine") if keeps else bytes(bytes_out)
        constants = [value.to_bytes(4, "little")[:size] for value in transfer.constants]
        states = b""
        if self._run.machine.tracks and (reads or keeps):
            states = _mixed(
                remap,
                space.states(source, bytes_in) if reads else b"",
                space.states(target, bytes_out) if keeps else bytes(bytes_out),
                [b"\1" * size] * 2,
            )
        space.write(target, _mixed(remap, data, old, constants), "the copy engine", states)
        if reads:
            self._run.touches(source, bytes_in, write=False)
        self._run.touches(target, bytes_out, write=True)

    def _semaphore(self, launch: LaunchDma) -> partial[None]:
        """Return the function that executes the semaphore of a launch. Raises `ChannelError`."""
        why = "with a semaphore"
        va = self._address(DmaMethod.SET_SEMAPHORE_A, DmaMethod.SET_SEMAPHORE_B, why)
        bits = 64 if launch.SEMAPHORE_PAYLOAD_SIZE else 32
        if bits == 64 and DmaMethod.SET_SEMAPHORE_PAYLOAD_UPPER not in self.methods:
            raise self.error(f"class {self.cls:#x} has payloads of 32 bits: {launch}")
        payload = self._register(DmaMethod.SET_SEMAPHORE_PAYLOAD, why)
        if bits == 64:
            payload |= self._register(DmaMethod.SET_SEMAPHORE_PAYLOAD_UPPER, why) << 32
        one = semaphore.Release(va, payload, bits, self.error)
        four = launch.SEMAPHORE_TYPE is DmaSemaphoreType.RELEASE_FOUR_WORD
        if launch.SEMAPHORE_REDUCTION_ENABLE:
            if four:
                raise self.error("a reducing semaphore has one word or two")
            if bits == 64 and launch.SEMAPHORE_REDUCTION > DmaReduction.DEC:
                name = launch.SEMAPHORE_REDUCTION.name
                raise self.error(f"{name} of 64 bits is not emulated", FindingKind.UNSUPPORTED)
            return partial(
                self._reduce, one, launch.SEMAPHORE_REDUCTION, bool(launch.SEMAPHORE_REDUCTION_SIGN)
            )
        return partial(self._release, one, four)

    def _release(self, one: semaphore.Release, four: bool) -> None:  # noqa: FBT001 - private
        time_ns = self._run.machine.time_ns() if four else None
        what = "the copy engine's semaphore"
        semaphore.release(self._run.space, one, time_ns, what, self._run.released)

    def _reduce(self, one: semaphore.Release, operation: DmaReduction, signed: bool) -> None:  # noqa: FBT001 - private
        run, what = self._run, "the copy engine's semaphore"
        if operation <= DmaReduction.DEC:
            semaphore.reduce(run.space, one, SemReduction(operation), what, run.released, signed=signed)
        else:
            semaphore.change(
                run.space, one, lambda old: _reduced(operation, old, one.payload), what, run.released
            )


def _reduced(operation: DmaReduction, old: int, payload: int) -> int:
    """Return the bits of the result of a float32 reduction of two values given as bits."""
    a, b = struct.unpack("<ff", struct.pack("<II", old, payload))
    result = {DmaReduction.FADD: a + b, DmaReduction.FMIN: min(a, b), DmaReduction.FMAX: max(a, b)}[operation]
    return int.from_bytes(bytes(ctypes.c_float(result)), "little")  # a C float, which overflows to infinity


def _selected(remap: RemapComponents) -> list[RemapSource]:
    return [remap.DST_X, remap.DST_Y, remap.DST_Z, remap.DST_W][: remap.NUM_DST_COMPONENTS + 1]


def _mixed(remap: RemapComponents, data: bytes, old: bytes, constants: list[bytes]) -> bytes:
    """Return the new contents of the target of a remapping transfer.

    `data` are the bytes of the source, `old` those of the target before, `constants` one component each.
    """
    out, parts, size = bytearray(old), _selected(remap), remap.COMPONENT_SIZE + 1
    step_in, step_out = (remap.NUM_SRC_COMPONENTS + 1) * size, (remap.NUM_DST_COMPONENTS + 1) * size
    for i, part in enumerate(parts):
        if part in _CONSTANTS:
            column = constants[part - RemapSource.CONST_A] * (len(old) // step_out)
            for byte in range(size):
                out[i * size + byte :: step_out] = column[byte::size]
        elif part is not RemapSource.NO_WRITE:
            for byte in range(size):
                out[i * size + byte :: step_out] = data[int(part) * size + byte :: step_in]
    return bytes(out)
