"""Mutants of ioctls and mappings: changes of every structure member and of every argument.

The vendor describes the structures of an ioctl (`tests.mutants.emulated.Call`).

Not here: submissions through mappings (`tests.mutants.emulated.Submission`), the changes of a number
(`sites`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drivers.kernel import MAP_SHARED, address_of
from tests.mutants import sites

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.mutants.emulated import Machine
    from tests.mutants.sites import Mutant, Runs

Arguments = dict[str, int]

_WORD: Final[Runs] = ((0, 32),)
_LONG: Final[Runs] = ((0, 64),)
_REQUEST: Final[Mapping[str, Runs]] = {
    "number": ((0, 8),), "type": ((8, 8),), "size": ((16, 14),), "direction": ((30, 2),)
}  # fmt: skip
"""The parts of a request number that Linux's _IOC encodes."""
_OUTER: Final = ("request", "fd", "pointer")
_MAPPING: Final[Mapping[str, Runs]] = {
    "size": _LONG, "fd": _WORD, "offset": _LONG, "va": _LONG, "prot": ((0, 3),), "flags": _WORD
}  # fmt: skip
_MARGIN: Final = 64
"""Bytes around a structure, for mutants of its pointer."""


class Calls:
    """Generates and makes the mutants of the ioctls and mappings of one machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._inner = machine.kernel

    def of_ioctl(self, index: int, fd: int, request: int, argument: bytearray) -> Iterator[Mutant]:
        """Yield the mutants of an ioctl."""
        call = self._machine.call(request, argument)
        name = call.name
        yield sites.Mutant("call", index, 0, 0, (), sites.DELETE, name)
        for what, runs in (_REQUEST if call.encoded else {"number": _WORD}).items():
            yield from sites.variants("outer", index, 0, 0, runs, request, f"{name} request {what}")
        yield from sites.variants("outer", index, 0, 1, _WORD, fd, f"{name} fd")
        yield from sites.variants("outer", index, 0, 2, _LONG, address_of(argument), f"{name} pointer")
        if call.layout is not None:
            yield from sites.structure(call.layout, "ioctl", bytes(argument), index, f"{name} ")
        for part, block in enumerate(call.blocks):
            if block.layout is not None:
                data = bytes(block.view)
                yield from sites.structure(block.layout, "params", data, index, f"{name} ", part=part)

    def ioctl(self, mutant: Mutant, fd: int, request: int, argument: bytearray) -> int:
        """Call an ioctl with a mutant made; return its result."""
        if mutant.space == "call":
            return 0
        if mutant.space == "outer":
            return self._outer(mutant, fd, request, argument)
        target: bytearray | memoryview = argument
        if mutant.space == "params":
            target = self._machine.call(request, argument).blocks[mutant.part].view
        size = mutant.runs[0][1] // 8
        raw = int.from_bytes(target[mutant.at : mutant.at + size], "little")
        target[mutant.at : mutant.at + size] = _changed(mutant, raw).to_bytes(size, "little")
        return self._inner.ioctl(fd, request, argument)

    def _outer(self, mutant: Mutant, fd: int, request: int, argument: bytearray) -> int:
        what = _OUTER[mutant.at]
        if what == "request":
            return self._inner.ioctl(fd, _changed(mutant, request), argument)
        if what == "fd":
            return self._inner.ioctl(_changed(mutant, fd), request, argument)
        room = bytearray(_MARGIN) + argument + bytearray(_MARGIN)
        result = self._inner.ioctl(fd, request, _changed(mutant, address_of(room) + _MARGIN))
        argument[:] = room[_MARGIN : _MARGIN + len(argument)]
        return result

    def of_mapping(self, index: int, name: str, arguments: Arguments) -> Iterator[Mutant]:
        """Yield the mutants of an mmap or of the mapping of registers."""
        for at, (what, runs) in enumerate(_MAPPING.items()):
            if what in arguments:
                yield from sites.variants("map", index, 0, at, runs, arguments[what], f"{name} {what}")

    @staticmethod
    def mapping(mutant: Mutant, arguments: Arguments) -> Arguments:
        """Return the arguments of a mapping with a mutant made."""
        what = tuple(_MAPPING)[mutant.at]
        new = _changed(mutant, arguments[what])
        return arguments | {what: new - (1 << 32) if what == "fd" and new >> 31 else new}


def shared(flags: int | None) -> int:
    """Return the flags of a file mapping as a number: MAP_SHARED for None."""
    return MAP_SHARED if flags is None else flags


def _changed(mutant: Mutant, raw: int) -> int:
    return sites.changed(raw, mutant.runs, mutant.operation)
