"""A cache of translated PTX modules: the modules of one machine that were used last.

A module holds its syntax, its kernels as IR text and their host code, which are far more bytes than the
image. A dropped module is made again from the PTX of its image when a kernel of it runs again.

Not here: the images (`images`). Next: `emulator.nv.ptx.module`, parsing and translation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from emulator.nv.ptx import accuracy
from emulator.nv.ptx import module as ptx

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emulator.shared.accuracy import Steering
    from emulator.simt.engine import Settings

    Judged = tuple[Mapping[str, Mapping[str, int]], tuple[Steering, ...]]

KEPT: Final = 512
"""The most modules of one machine; a training step of a large model has some hundred kernels."""


@dataclass(slots=True)
class _Kept:
    """A module, and the accuracy of its kernels."""

    module: ptx.PtxModule
    judged: dict[str, Judged] = field(default_factory=dict)
    """Name of a kernel -> what `Modules.judged` returns."""


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

    def judged(self, text: str, kernel: ptx.PtxKernel) -> Judged:
        """Return counts and decisions of a kernel of the module `text`, for `AccuracyLedger.launched`."""
        kept = self._kept.get(text)
        found = None if kept is None else kept.judged.get(kernel.name)
        if found is None:
            found = accuracy.counts(kernel.flat), accuracy.decided(kernel.flat)
            if kept is not None:
                kept.judged[kernel.name] = found
        return found
