"""Launches that are judged, with their program and shape, kept for later launches that are alike.

Two launches are alike if everything that the judgement reads is equal: the bits of the descriptor that rules
apply to, the windows, the driver's words of constant bank 0, place and contents of the other banks, the
kernel at the program address, and the map of allocations. They differ in their parameters.

Not here: the judgement (`fit`, `images`), the check that code and constants are fresh, which every launch has
(`grid`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from emulator.nv.ptx.module import work_of
from emulator.nv.reports import launch_error
from emulator.shared.template import template

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from emulator.nv.engines.descriptor import LaunchDescriptor
    from emulator.nv.engines.images import LoadedImage
    from emulator.nv.ptx.module import PtxKernel
    from emulator.simt.work import LaunchWork

_KEPT: Final = 256


@dataclass(frozen=True, slots=True)
class ReadyLaunch:
    """A launch that was judged and is right."""

    found: LoadedImage
    """The kernel at the program address; held, so that its identity stays its own."""
    loaded: LoadedImage
    """The same, with the addresses that the launch's constant banks determine."""
    kernel: PtxKernel
    first: int
    """Offset of the parameters in constant bank 0."""
    end: int
    """Offset behind them."""
    table: bytes
    """What follows them in a launch: addresses of variables."""
    make: Callable[..., LaunchWork]
    """Makes the launch, given `params`."""

    def work(self, bank0: bytes) -> LaunchWork:
        """Return the launch with the parameters in constant bank 0."""
        return self.make(params=bank0[self.first : self.end] + self.table)


class Launches:
    """The launches of one machine that were judged last."""

    def __init__(self) -> None:
        self._known: dict[Hashable, ReadyLaunch] = {}

    def find(self, key: Hashable, judge: Callable[[], ReadyLaunch]) -> ReadyLaunch:
        """Return the launch of a key; the first one is judged, which may raise a launch error."""
        ready = self._known.get(key)
        if ready is None:
            ready = judge()
            if len(self._known) >= _KEPT:
                del self._known[next(iter(self._known))]
            self._known[key] = ready
        return ready


def key_of(
    one: LaunchDescriptor, found: LoadedImage, banks: Mapping[int, bytes], words: int, around: Hashable
) -> Hashable:
    """Return what the judgement of a launch depends on.

    `words` is the size of the driver's words of bank 0; `around` has what is not part of the launch: windows,
    map of allocations, whether it is counted.
    """
    bank0 = banks.get(0, b"")
    others = tuple((index, one.banks[index].va, content) for index, content in banks.items() if index)
    return around, one.ruled, id(found), bank0[:words], len(bank0), others


def ready(
    one: LaunchDescriptor,
    found: LoadedImage,
    loaded: LoadedImage,
    kernel: PtxKernel,
    *,
    words: int,
    room: int,
    dynamic: int,
) -> ReadyLaunch:
    """Return a launch that was judged.

    `words` is the size of the driver's words of bank 0, `room` of all of it, `dynamic` of its dynamic shared
    memory. Raises a launch error if constant bank 0 ends before the parameters do, `UsageError` if the
    kernel's directives forbid the shape.
    """
    size = kernel.param_bytes
    if words + size > room:
        raise launch_error(
            f"{kernel.name} reads {size} bytes of parameters, bank 0 has {room - words} behind the driver's "
            "words"
        )
    params = bytes(size)
    work = work_of(kernel, one.grid, one.block, params, dynamic, cluster=one.cluster, registers=one.registers)
    return ReadyLaunch(
        found, loaded, kernel, words, words + size, work.params[size:], template(work, "params")
    )
