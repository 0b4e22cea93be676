"""The PTX modules of the images that run: parsed, translated and linked, those used last.

A module holds its syntax, its kernels as IR text and their machine code: far more bytes than the image. One
that is dropped is made again from the PTX of its image when it runs again.

Not here: the images (`images`), parsing and translation (`emulator.nv.ptx.module`).
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
"""Modules of one machine; a training step of a large model has some hundred kernels."""


@dataclass(slots=True)
class _Kept:
    """A module, and how exact the instructions of its kernels are."""

    module: ptx.PtxModule
    judged: dict[str, Judged] = field(default_factory=dict)


class Modules:
    """The modules of one machine by their PTX, the latest used last; equal PTX is one module."""

    def __init__(self, settings: Settings, *, most: int = KEPT) -> None:
        self._settings = settings
        self._most = most
        self._kept: dict[str, _Kept] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, text: str, arch: str) -> ptx.PtxModule:
        """Return the module of a PTX text, parsed for `arch` if it is not kept. Raises as `load_ptx`."""
        kept = self._kept.pop(text, None)
        if kept is None:
            kept = _Kept(ptx.load_ptx(text, arch=arch, settings=self._settings))
            while len(self._kept) >= self._most:
                del self._kept[next(iter(self._kept))]
        self._kept[text] = kept
        return kept.module

    def judged(self, text: str, kernel: ptx.PtxKernel) -> Judged:
        """Return how exact the instructions of a module's kernel are, judged once while it is kept."""
        kept = self._kept.get(text)
        found = None if kept is None else kept.judged.get(kernel.name)
        if found is None:
            found = accuracy.counts(kernel.flat), accuracy.decided(kernel.flat)
            if kept is not None:
                kept.judged[kernel.name] = found
        return found
