"""NVIDIA's side of the recorder: the list of all forms, and their kernels.

Not here: the command (`tools.record.__main__`). Next: `build`, the kernels; `tools.record.vendors`, the
interface.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tools.record.nv import (
    approximations,
    atomics,
    build,
    copies,
    litmus,
    manual,
    matrices,
    moves,
    programs,
    registers,
    tensors,
    warpgroups,
    warps,
)  # fmt: skip
from tools.record.runner import in_order
from tools.record.vendors import Vendor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tools.record.forms import Form, Kernel
    from tools.record.nv.build import Pack

ARCHES: Final = ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a")
_VERSION_FILE: Final = Path("/proc/driver/nvidia/version")
_FAMILIES: Final = (
    manual.forms, approximations.forms, warps.forms,
    moves.forms, atomics.forms, registers.forms, matrices.forms, copies.forms, tensors.forms,
    warpgroups.forms, litmus.forms, programs.forms,
)  # fmt: skip


@functools.cache
def forms(arch: str) -> tuple[Form, ...]:
    """Return every form that an architecture can run, in the order of recording.

    Raises `ValueError` if two forms have the same name.
    """
    sm = int(arch.removeprefix("sm_").rstrip("af"))
    every = (form for family in _FAMILIES for form in family())
    return tuple(in_order(form for form in every if form.needs <= sm <= form.until))


@functools.cache
def _packs(arch: str) -> tuple[Pack, ...]:
    return tuple(build.packs(forms(arch)))


def kernels(wanted: Sequence[Form], arch: str, folder: Path | None) -> list[Kernel]:
    """Return the kernels that run some forms.

    With a folder of prepared kernels they are those of all forms; forms that are not wanted have no rows.
    Without one, or where it lacks a kernel, ptxas makes it. Raises as `forms` and `assemble`.
    """
    packed = _packs(arch) if folder is not None else build.packs(wanted)
    return build.kernels(wanted, arch, folder, packed)


def prepare(wanted: Sequence[Form], arch: str, folder: Path) -> int:
    """Assemble the kernels that a folder lacks; return their number. Raises as `kernels`, and `OSError`."""
    count = 0
    for text in build.texts(wanted, arch, _packs(arch)):
        if not build.file_of(text, arch, folder).exists():
            build.prepare(text, arch, folder)
            count += 1
    return count


def version() -> str:
    """Return the version of NVIDIA's kernel driver; "" if none is loaded."""
    if not _VERSION_FILE.exists():
        return ""
    found = re.search(r"\d+\.\d+(?:\.\d+)*", _VERSION_FILE.read_text())
    return found[0] if found else ""


def emulated(arch: str) -> str:
    """Return the name of the emulated GPU of an architecture: "nv-emu:sm_90" for "sm_90a"."""
    return f"nv-emu:{arch.rstrip('af')}"


VENDOR: Final = Vendor(
    name="nv", arches=ARCHES, emulated=emulated, forms=forms, kernels=kernels, prepare=prepare,
    version=version,
)  # fmt: skip
