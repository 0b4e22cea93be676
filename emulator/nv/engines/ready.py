"""A cache of checked launches, with their program and shape, for later launches that are alike.

Two launches are alike if everything that the checks read is equal: the descriptor outside its free bits
(`LaunchDescriptor.ruled`), the windows, the driver's words of constant bank 0, addresses and contents of the
other banks, the kernel at the program address, and the map of allocations. Alike launches differ in their
parameters.

Not here: the checks (`fit`, `images`). Next: `grid`, which checks at every launch that code and constants are
fresh.
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
"""The most launches of a machine that are kept."""


@dataclass(frozen=True, slots=True)
class ReadyLaunch:
    """A launch that was checked and is valid."""

    found: LoadedImage
    """The kernel at the program address. It is kept alive because `key_of` has its `id`."""
    loaded: LoadedImage
    """The same kernel, with the section addresses that the launch's constant banks determine."""
    kernel: PtxKernel
    first: int
    """Byte offset of the parameters in constant bank 0."""
    end: int
    """Byte offset of the end of the parameters."""
    table: bytes
    """The bytes after the parameters in `LaunchWork.params`: addresses of variables."""
    make: Callable[..., LaunchWork]
    """Makes a copy of the launch's work, given `params`."""

    def work(self, bank0: bytes) -> LaunchWork:
        """Return the launch's work with the parameters in constant bank 0."""
        return self.make(params=bank0[self.first : self.end] + self.table)


class Launches:
    """The launches of one machine that were checked last."""

    def __init__(self) -> None:
        self._known: dict[Hashable, ReadyLaunch] = {}

    def find(self, key: Hashable, judge: Callable[[], ReadyLaunch]) -> ReadyLaunch:
        """Return the launch of a key, from `judge()` if it is not kept, which may raise a launch error."""
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
    """Return a key that is equal for alike launches.

    `words` is the size in bytes of the driver's words of bank 0. `around` has values that are not part of the
    launch: address space, version of its map, windows, whether launches are counted.
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
    """Return a launch that has passed the checks.

    Sizes in bytes: `words` of the driver's words of bank 0, `room` of the whole bank, `dynamic` of the
    dynamic shared memory. Raises a launch error if constant bank 0 ends before the parameters do,
    `UsageError` if the kernel's directives forbid the shape.
    """
    size = kernel.param_bytes
    if words + size > room:
        raise launch_error(
            f"{kernel.name} reads {size} bytes of parameters, bank 0 has {room - words} after the driver's "
            "words"
        )
    params = bytes(size)
    work = work_of(kernel, one.grid, one.block, params, dynamic, cluster=one.cluster, registers=one.registers)
    return ReadyLaunch(
        found, loaded, kernel, words, words + size, work.params[size:], template(work, "params")
    )
