"""Caches of one machine: checked launches with their program and shape, and translated PTX modules.

Two launches are alike if everything that the checks read is equal: the descriptor outside its free bits
(`LaunchDescriptor.ruled`), the windows, the driver's words of constant bank 0, addresses and contents of the
other banks, the kernel at the program address, and the map of allocations. Alike launches differ in their
parameters. A module holds its syntax, its kernels as IR text and their host code, which are far more bytes
than the image; a dropped one is made again from the PTX of its image when a kernel of it runs again.

A launch error is a `ChannelError`.

Not here: the checks (`fit`, `images`). Next: `grid`, which checks at every launch that code and constants are
fresh.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from emulator.nv.engines.descriptor import template
from emulator.nv.ptx import accuracy
from emulator.nv.ptx import module as ptx
from emulator.nv.ptx.module import work_of
from emulator.nv.reports import launch_error

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from emulator.nv.engines.descriptor import LaunchDescriptor
    from emulator.nv.engines.images import LoadedImage
    from emulator.nv.ptx.module import PtxKernel
    from emulator.simt.engine import Settings
    from emulator.simt.work import LaunchWork

    Counts = Mapping[str, Mapping[str, int]]

KEPT: Final = 512
"""The most modules of one machine; a training step of a large model has some hundred kernels."""


@dataclass(slots=True)
class _Kept:
    """A module, and the accuracy of its kernels."""

    module: ptx.PtxModule
    counts: dict[str, Counts] = field(default_factory=dict)
    """Name of a kernel -> what `Modules.counts` returns."""


class Modules:
    """The modules of one machine by their PTX, the latest used last; equal PTX is one module."""

    def __init__(self, settings: Settings, *, most: int = KEPT) -> None:
        self._settings = settings
        self._most = most
        self._kept: dict[str, _Kept] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, text: str, arch: str) -> ptx.PtxModule:
        """Return the module of a PTX text; parse it for `arch` if it is not kept. Raises as `load_ptx`."""
        kept = self._kept.pop(text, None)
        if kept is None:
            kept = _Kept(ptx.load_ptx(text, arch=arch, settings=self._settings))
            while len(self._kept) >= self._most:
                del self._kept[next(iter(self._kept))]
        self._kept[text] = kept
        return kept.module

    def counts(self, text: str, kernel: ptx.PtxKernel) -> Counts:
        """Return the instructions of a kernel of the module `text`, for `AccuracyLedger.launched`."""
        kept = self._kept.get(text)
        found = None if kept is None else kept.counts.get(kernel.name)
        if found is None:
            found = accuracy.counts(kernel.flat)
            if kept is not None:
                kept.counts[kernel.name] = found
        return found


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
