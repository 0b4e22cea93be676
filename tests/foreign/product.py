"""The product of tinygrad's architectures and the emulated GPUs: which cells there are, and which are empty.

Not here: running a cell (`cell`).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from drivers.nv.layouts.branches import BRANCHES
from emulator.amd.machine import LINUX, TARGETS

if TYPE_CHECKING:
    from collections.abc import Iterator

_NV: Final = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_120")
_CLASSES: Final = "tinygrad has no compute class for it: its own are those of GA10x, Ada and GB20x"
_SANDBOX: Final = (
    "tinygrad asks for the driver's version by control 0x13e, which the sandbox of nv.md 7 refuses"
)
_REFUSED: Final = "control 0x13e is unknown to the sandbox"


@dataclass(frozen=True, slots=True)
class Cell:
    """tinygrad's driver of a vendor on one emulated GPU."""

    vendor: str
    gpu: str
    kernel: str
    """NVIDIA's branch, or the version of Linux."""
    mode: str = ""
    """The packets of the compute queue on AMD; "filtered" where NVIDIA's ioctls are."""
    checked: bool = False
    """Kernels run with all sanitizers; what is only doubtful of a driver stays advice."""
    empty: str = ""
    """Why tinygrad cannot open this GPU; "" if it can."""
    sign: str = ""
    """What a cell that is empty says when it is opened nevertheless."""

    @property
    def variant(self) -> str:
        """What follows the colon of the emulated device's name."""
        native = "+native" if self.vendor == "nv" and self.mode != "filtered" else ""
        return f"{self.gpu}+{self.kernel}{native}{'+checked' if self.checked else ''}"

    @property
    def label(self) -> str:
        """The cell's name in tables and on the command line."""
        mode = f" {self.mode}" if self.mode else ""
        return f"{self.vendor}-emu:{self.variant}{mode if self.vendor == 'amd' else ''}"


def cells(vendor: str) -> Iterator[Cell]:
    """Yield the cells of a vendor, "nv" or "amd"."""
    if vendor == "amd":
        for gpu, mode, linux in itertools.product(TARGETS, ("pm4", "aql"), LINUX):
            yield Cell("amd", gpu, linux, mode)
        return
    for gpu in _NV:
        if gpu in ("sm_80", "sm_90"):
            yield Cell("nv", gpu, "580", empty=_CLASSES, sign="StopIteration")
            continue
        for branch in BRANCHES:
            yield Cell("nv", gpu, str(branch))
        yield Cell("nv", gpu, "580", checked=True)
        yield Cell("nv", gpu, "580", "filtered", empty=_SANDBOX, sign=_REFUSED)
