"""Mutants of ioctls and mappings: every member of every structure, and the arguments around them.

Not here: what is submitted through mappings (`bells`), the changes of a number (`sites`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drivers.kernel import MAP_SHARED, address_of, view_at
from drivers.nv.layouts.controls import CONTROL_STRUCTS
from drivers.nv.layouts.families import COMPUTE_CLASSES, COPY_CLASSES, GPFIFO_CLASSES, USERMODE_CLASSES
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
    from collections.abc import Iterator, Mapping

    from drivers.nv.emu.machine.kernel import EmulatedKernel
    from hcq.layout import Struct
    from tools.mutants.sites import Mutant, Runs

Arguments = dict[str, int]

_WORD: Final[Runs] = ((0, 32),)
_LONG: Final[Runs] = ((0, 64),)
_REQUEST: Final[Mapping[str, Runs]] = {
    "number": ((0, 8),), "type": ((8, 8),), "size": ((16, 14),), "direction": ((30, 2),)
}  # fmt: skip
"""The parts of a request word of a frontend; UVM's are plain numbers."""
_OUTER: Final = ("request", "fd", "pointer")
_MAPPING: Final[Mapping[str, Runs]] = {
    "size": _LONG, "fd": _WORD, "offset": _LONG, "va": _LONG, "prot": ((0, 3),), "flags": _WORD
}  # fmt: skip
_MARGIN: Final = 64
"""Bytes around a structure whose pointer is off by one."""


class Calls:
    """What the ioctls and mappings of one machine can be changed in, and the changes."""

    def __init__(self, inner: EmulatedKernel) -> None:
        self._inner = inner
        self._structs = inner.machine.structs

    # ---- ioctls

    def of_ioctl(self, index: int, fd: int, request: int, block: bytearray) -> Iterator[Mutant]:
        """Yield the mutants of an ioctl."""
        name, layout = self._layout(request)
        inner = self._inner_block(layout, block)
        if inner is not None:
            name += f" {inner[2]}"
        yield sites.Mutant("call", index, 0, 0, (), sites.DELETE, name)
        plain = request in COMMAND_STRUCTS
        for part, runs in ({"number": _WORD} if plain else _REQUEST).items():
            yield from sites.variants("outer", index, 0, 0, runs, request, f"{name} request {part}")
        yield from sites.variants("outer", index, 0, 1, _WORD, fd, f"{name} fd")
        yield from sites.variants("outer", index, 0, 2, _LONG, address_of(block), f"{name} pointer")
        if layout is not None:
            yield from sites.structure(layout, "ioctl", bytes(block), index, f"{name} ")
        if inner is not None and inner[1] is not None:
            yield from sites.structure(inner[1], "params", bytes(inner[0]), index, f"{name} ")

    def ioctl(self, mutant: Mutant, fd: int, request: int, block: bytearray) -> int:
        """Make a mutant of an ioctl."""
        if mutant.space == "call":
            return 0
        if mutant.space == "outer":
            return self._outer(mutant, fd, request, block)
        target: bytearray | memoryview = block
        if mutant.space == "params":
            layout = NVOS54_PARAMETERS if len(block) == NVOS54_PARAMETERS.SIZE else NVOS64_PARAMETERS
            found = self._inner_block(layout, block)
            assert found is not None, "the mutant was found in an inner block"
            target = found[0]
        size = mutant.runs[0][1] // 8
        raw = int.from_bytes(target[mutant.at : mutant.at + size], "little")
        target[mutant.at : mutant.at + size] = _changed(mutant, raw).to_bytes(size, "little")
        return self._inner.ioctl(fd, request, block)

    def _outer(self, mutant: Mutant, fd: int, request: int, block: bytearray) -> int:
        what = _OUTER[mutant.at]
        if what == "request":
            return self._inner.ioctl(fd, _changed(mutant, request), block)
        if what == "fd":
            return self._inner.ioctl(_changed(mutant, fd), request, block)
        room = bytearray(_MARGIN) + block + bytearray(_MARGIN)
        result = self._inner.ioctl(fd, request, _changed(mutant, address_of(room) + _MARGIN))
        block[:] = room[_MARGIN : _MARGIN + len(block)]
        return result

    def _layout(self, request: int) -> tuple[str, type[Struct] | None]:
        if request in COMMAND_STRUCTS:
            plain = COMMAND_STRUCTS[request]
            return plain.__name__, self._structs.get(plain.__name__, plain)
        number = Request.from_int(request).NR
        known = ESCAPE_STRUCTS.get(number)
        layout = self._structs.get(known.__name__, known) if known is not None else None
        return Escape(number).name, layout

    def _inner_block(
        self, layout: type[Struct] | None, block: bytearray
    ) -> tuple[memoryview, type[Struct] | None, str] | None:
        if layout is NVOS54_PARAMETERS:
            control = NVOS54_PARAMETERS.from_bytes(block)
            named = CONTROL_STRUCTS.get(control.cmd)
            kind = self._structs[named] if named is not None else None
            return view_at(control.params, control.paramsSize), kind, f"{control.cmd:#x}"
        if layout is not NVOS64_PARAMETERS:
            return None
        alloc = NVOS64_PARAMETERS.from_bytes(block)
        if not alloc.pAllocParms:
            return None
        plain = ALLOC_STRUCTS.get(alloc.hClass) or _engine_struct(alloc.hClass)
        kind = self._structs.get(plain.__name__, plain) if plain is not None else None
        return view_at(alloc.pAllocParms, alloc.paramsSize), kind, f"class {alloc.hClass:#x}"

    # ---- mappings

    def of_mapping(self, index: int, name: str, arguments: Arguments) -> Iterator[Mutant]:
        """Yield the mutants of an mmap or of the mapping of registers."""
        for at, (what, runs) in enumerate(_MAPPING.items()):
            if what in arguments:
                yield from sites.variants("map", index, 0, at, runs, arguments[what], f"{name} {what}")

    @staticmethod
    def mapping(mutant: Mutant, arguments: Arguments) -> Arguments:
        """Return the arguments with a mutant made."""
        what = tuple(_MAPPING)[mutant.at]
        new = _changed(mutant, arguments[what])
        return arguments | {what: new - (1 << 32) if what == "fd" and new >> 31 else new}


def shared(flags: int | None) -> int:
    """Return the flags of a file's mapping as a number."""
    return MAP_SHARED if flags is None else flags


def _changed(mutant: Mutant, raw: int) -> int:
    return sites.changed(raw, mutant.runs, mutant.operation)


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
