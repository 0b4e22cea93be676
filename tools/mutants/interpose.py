"""A kernel between driver and emulated machine: writes down all mutants there could be, or makes one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from drivers.kernel import PROT_READ, PROT_WRITE, view_at
from drivers.nv.layouts.compute import ComputeMethod
from drivers.nv.layouts.controls import CONTROL_STRUCTS
from drivers.nv.layouts.families import COMPUTE_CLASSES, COPY_CLASSES, GPFIFO_CLASSES, USERMODE_CLASSES
from drivers.nv.layouts.gpfifo import (
    GpfifoControl,
    GpfifoEntry,
    GpfifoOpcode,
    HopperAControlGPFifo,
    SecOp,
    UsermodeRegister,
)
from drivers.nv.layouts.qmd import QMDS
from drivers.nv.layouts.rm import ESCAPE_STRUCTS, NVOS54_PARAMETERS, NVOS64_PARAMETERS, Escape, Request
from drivers.nv.layouts.rm_classes import (
    ALLOC_STRUCTS,
    NV_CHANNEL_ALLOC_PARAMS,
    NV_GR_ALLOCATION_PARAMETERS,
    NV_HOPPER_USERMODE_A_PARAMS,
    NVB0B5_ALLOCATION_PARAMETERS,
)
from drivers.nv.layouts.uvm import COMMAND_STRUCTS
from tools.mutants import sites

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from drivers.kernel import Mapping, Mmio
    from drivers.nv.emu.machine.channel import ChannelRun
    from drivers.nv.emu.machine.kernel import EmulatedKernel
    from hcq.bits import Struct
    from tools.mutants.sites import Mutant, Place

_PUT = HopperAControlGPFifo.offset_of("GPPut")
_WHAT = "mutant"


class Interposer:
    """A `drivers.kernel.Kernel` over an emulated one.

    `choose` is asked at every place and returns the mutant to be made there, or None. Without it nothing is
    changed, and `found` is filled with all mutants there are.
    """

    def __init__(self, inner: EmulatedKernel, choose: Callable[[Place], Mutant | None] | None = None) -> None:
        self._inner = inner
        self._choose = choose
        self.found: list[Mutant] = []
        self._calls = -1
        self._bells = -1
        self._puts: dict[int, int] = {}

    # ---- ioctls

    def ioctl(self, fd: int, request: int, argument: bytearray | int) -> int:
        """Pass an ioctl on, or what the mutant makes of it."""
        self._calls += 1
        if not isinstance(argument, bytearray):
            return self._inner.ioctl(fd, request, argument)
        if self._choose is None:
            name, layout = self._layout(request)
            self.found += self._of_call(name, layout, argument)
        elif mutant := self._choose(("ioctl", self._calls)):
            if mutant.space == "call":
                return 0
            self._change_call(argument, mutant)
        return self._inner.ioctl(fd, request, argument)

    def _layout(self, request: int) -> tuple[str, type[Struct] | None]:
        structs = self._inner.machine.structs
        if request in COMMAND_STRUCTS:
            plain = COMMAND_STRUCTS[request]
            return plain.__name__, structs.get(plain.__name__, plain)
        number = Request.from_int(request).NR
        known = ESCAPE_STRUCTS.get(number)
        return Escape(number).name, structs.get(known.__name__, known) if known is not None else None

    def _of_call(self, name: str, layout: type[Struct] | None, block: bytearray) -> Iterator[Mutant]:
        index = self._calls
        inner = self._inner_block(layout, block)
        if inner is not None:
            name += f" {inner[2]}"
        yield sites.Mutant("call", index, 0, 0, (), sites.DELETE, name)
        if layout is not None:
            yield from sites.structure(layout, "ioctl", bytes(block), index, f"{name} ")
        if inner is not None and inner[1] is not None:
            yield from sites.structure(inner[1], "params", bytes(inner[0]), index, f"{name} ")

    def _inner_block(
        self, layout: type[Struct] | None, block: bytearray
    ) -> tuple[memoryview, type[Struct] | None, str] | None:
        structs = self._inner.machine.structs
        if layout is NVOS54_PARAMETERS:
            control = NVOS54_PARAMETERS.from_bytes(block)
            named = CONTROL_STRUCTS.get(control.cmd)
            kind = structs[named] if named is not None else None
            return view_at(control.params, control.paramsSize), kind, f"{control.cmd:#x}"
        if layout is not NVOS64_PARAMETERS:
            return None
        alloc = NVOS64_PARAMETERS.from_bytes(block)
        if not alloc.pAllocParms:
            return None
        plain = ALLOC_STRUCTS.get(alloc.hClass) or _engine_struct(alloc.hClass)
        kind = structs.get(plain.__name__, plain) if plain is not None else None
        return view_at(alloc.pAllocParms, alloc.paramsSize), kind, f"class {alloc.hClass:#x}"

    def _change_call(self, block: bytearray, mutant: Mutant) -> None:
        target: bytearray | memoryview = block
        if mutant.space == "params":
            layout = NVOS54_PARAMETERS if len(block) == NVOS54_PARAMETERS.SIZE else NVOS64_PARAMETERS
            found = self._inner_block(layout, block)
            assert found is not None, "the mutant was found in an inner block"
            target = found[0]
        size = mutant.runs[0][1] // 8
        raw = int.from_bytes(target[mutant.at : mutant.at + size], "little")
        new = sites.changed(raw, mutant.runs, mutant.operation)
        target[mutant.at : mutant.at + size] = new.to_bytes(size, "little")

    # ---- doorbells

    def bell(self, token: int) -> bool:
        """See a doorbell before the machine does; return whether it is to be rung."""
        channel = self._inner.machine.tokens.get(token)
        if channel is None:
            return True
        self._bells += 1
        run = channel.run
        memory, offset = run.setup.userd
        put = int.from_bytes(memory.backing.view[offset + _PUT : offset + _PUT + 4], "little")
        slots = []
        at = self._puts.get(token, 0)
        while at != put:
            slots.append(run.setup.ring_va + at * GpfifoEntry.SIZE)
            at = (at + 1) % run.setup.entries
        self._puts[token] = put
        if self._choose is None:
            self.found += self._of_bell(run, slots)
        elif mutant := self._choose(("bell", self._bells)):
            return self._change_bell(run, slots, mutant)
        return True

    def _of_bell(self, run: ChannelRun, slots: Sequence[int]) -> Iterator[Mutant]:
        index, wide = self._bells, self._inner.machine.profile.wide
        yield sites.Mutant("bell", index, 0, 0, (), sites.DELETE, f"doorbell of {run.name}")
        for entry, slot in enumerate(slots):
            raw = run.space.word(slot, 64, _WHAT)
            yield from sites.ring_entry(raw, index, entry)
            decoded = GpfifoEntry.from_int(raw)
            words = _words(run, decoded)
            yield from sites.segment(words, index, entry, wide=wide)
            for at, va in _descriptors(words):
                layout = QMDS[self._inner.machine.profile.generation.qmd]
                data = run.space.read(va, layout.SIZE, _WHAT)
                number = int.from_bytes(data, "little")
                yield from sites.fields(layout, "qmd", index, entry, at, number, layout.__name__)

    def _change_bell(self, run: ChannelRun, slots: Sequence[int], mutant: Mutant) -> bool:
        if mutant.space == "bell":
            return False
        slot = slots[mutant.entry]
        raw = run.space.word(slot, 64, _WHAT)
        decoded = GpfifoEntry.from_int(raw)
        if mutant.space == "entry":
            new = (
                sites.changed(raw, mutant.runs, mutant.operation)
                if mutant.operation != sites.DELETE
                else _NOP
            )
            run.space.write(slot, new.to_bytes(8, "little"), _WHAT)
        elif mutant.space == "packet":
            gone = mutant.runs[0][1] // 32
            words = _words(run, decoded)
            rest = [*words[: mutant.at], *words[mutant.at + gone :]]
            _write_words(run, decoded.ADDRESS, rest)
            short = int(decoded.replace(LENGTH=len(rest))) if rest else _NOP
            run.space.write(slot, short.to_bytes(8, "little"), _WHAT)
        elif mutant.space == "word":
            word = run.space.word(decoded.ADDRESS + 4 * mutant.at, 32, _WHAT)
            _write_words(
                run, decoded.ADDRESS + 4 * mutant.at, [sites.changed(word, mutant.runs, mutant.operation)]
            )
        else:
            va = dict(_descriptors(_words(run, decoded)))[mutant.at]
            size = QMDS[self._inner.machine.profile.generation.qmd].SIZE
            number = int.from_bytes(run.space.read(va, size, _WHAT), "little")
            number = sites.changed(number, mutant.runs, mutant.operation)
            run.space.write(va, number.to_bytes(size, "little"), _WHAT)
        return True

    # ---- passed on as they are

    def open(self, path: str, flags: int = os.O_RDWR) -> int:
        """Pass on."""
        return self._inner.open(path, flags)

    def close(self, fd: int) -> None:
        """Pass on."""
        self._inner.close(fd)

    def read(self, fd: int, size: int) -> bytes:
        """Pass on."""
        return self._inner.read(fd, size)

    def read_file(self, path: str) -> bytes:
        """Pass on."""
        return self._inner.read_file(path)

    def list_dir(self, path: str) -> list[str]:
        """Pass on."""
        return self._inner.list_dir(path)

    def mmap(
        self,
        size: int,
        *,
        fd: int = -1,
        offset: int = 0,
        va: int = 0,
        prot: int = PROT_READ | PROT_WRITE,
        flags: int | None = None,
    ) -> Mapping:
        """Pass on."""
        return self._inner.mmap(size, fd=fd, offset=offset, va=va, prot=prot, flags=flags)

    def munmap(self, va: int, size: int) -> None:
        """Pass on."""
        self._inner.munmap(va, size)

    def mprotect(self, va: int, size: int, prot: int) -> None:
        """Pass on."""
        self._inner.mprotect(va, size, prot)

    def madvise(self, va: int, size: int, advice: int) -> None:
        """Pass on."""
        self._inner.madvise(va, size, advice)

    def mmio(self, fd: int, size: int, offset: int) -> Mmio:
        """Pass on, with an ear at the doorbell."""
        return _Registers(self._inner.mmio(fd, size, offset), self)

    def poll(self, fds: Sequence[int], timeout_s: float) -> list[int]:
        """Pass on."""
        return self._inner.poll(fds, timeout_s)

    def fence(self) -> None:
        """Pass on."""
        self._inner.fence()


class _Registers:
    def __init__(self, inner: Mmio, interposer: Interposer) -> None:
        self._inner, self._interposer = inner, interposer
        self.read32, self.read64, self.write64 = inner.read32, inner.read64, inner.write64
        self.close = inner.close

    def write32(self, offset: int, value: int) -> None:
        if offset != UsermodeRegister.NOTIFY_CHANNEL_PENDING or self._interposer.bell(value):
            self._inner.write32(offset, value)


_NOP = int(GpfifoControl(OPCODE=GpfifoOpcode.NOP))


def _engine_struct(class_: int) -> type[Struct] | None:
    for classes, layout in (
        (GPFIFO_CLASSES, NV_CHANNEL_ALLOC_PARAMS),
        (COMPUTE_CLASSES, NV_GR_ALLOCATION_PARAMETERS),
        (COPY_CLASSES, NVB0B5_ALLOCATION_PARAMETERS),
        (USERMODE_CLASSES, NV_HOPPER_USERMODE_A_PARAMS),
    ):
        if class_ in classes:
            return layout
    return None


def _words(run: ChannelRun, entry: GpfifoEntry) -> list[int]:
    data = run.space.read(entry.ADDRESS, 4 * entry.LENGTH, _WHAT)
    return list(memoryview(data).cast("I"))


def _write_words(run: ChannelRun, va: int, words: Sequence[int]) -> None:
    run.space.write(va, b"".join(word.to_bytes(4, "little") for word in words), _WHAT)


def _descriptors(words: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the word and the address of every launch descriptor that a segment sends."""
    for at, _, head in sites.packets(words):
        if head.ADDRESS == ComputeMethod.SEND_PCAS_A and head.OPCODE != SecOp.IMMEDIATE:
            yield at + 1, words[at + 1] << 8
