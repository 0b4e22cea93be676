"""AMD's side of the recorder: the list of all forms, and their kernels.

A form is recorded only if the emulated GPU can translate its code. `refusals` has the reasons for the others.

An unknown architecture raises `UnsupportedError`.

Not here: the command (`tools.record.__main__`). Next: `build`, the kernels; `tools.record.vendors`, the
interface.
"""

from __future__ import annotations

import functools
import itertools
import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from emulator.amd.isa.instruction import IsaError
from emulator.amd.isa.opcodes import target
from emulator.amd.isa.programs import engine_of
from emulator.amd.isa.translate import KernelEntry, translate
from emulator.simt.engine import Settings
from hcq.config import config
from tools.record.amd import build, exchange, matrix, memory, scalar, special, vector
from tools.record.amd.encode import Code, base
from tools.record.runner import in_order
from tools.record.vendors import Vendor

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tools.record.forms import Form, Kernel

ARCHES: Final = ("gfx942", "gfx1100", "gfx1201")
_VERSION_FILE: Final = Path("/sys/module/amdgpu/version")
_FAMILIES: Final = (vector.forms, scalar.forms, memory.forms, exchange.forms, matrix.forms, special.forms)


def candidates(arch: str) -> Iterator[Form]:
    """Yield every form of the opcode tables, also forms that the emulated GPU refuses."""
    return itertools.chain.from_iterable(family(base(arch)) for family in _FAMILIES)


@functools.cache
def _listed(arch: str) -> tuple[tuple[Form, ...], dict[str, str]]:
    """Return the forms, and the names of forms that the emulated GPU refuses -> its error."""
    found, refused = [], {}
    for form in candidates(arch):
        why = refusal(form, arch)
        if why:
            refused[form.name] = why
        else:
            found.append(form)
    return tuple(in_order(found)), refused


def refusal(form: Form, arch: str) -> str:
    """Return the emulated GPU's error for a form's code; "" if it translates it."""
    words = [*build.words_of(form), *Code(arch).make("s_endpgm", "SOPP")]
    known = target(arch)
    try:
        translate(
            engine_of(Settings(cache=config().cache), known.lanes).library,
            "k",
            struct.pack(f"<{len(words)}I", *words),
            known,
            KernelEntry(user_sgprs=16, group_ids=(True, False, False)),
        )
    except IsaError as error:
        return error.why
    return ""


def forms(arch: str) -> tuple[Form, ...]:
    """Return every form that an architecture can run, in the order of recording.

    Raises `UnsupportedError` as `encode.base` does, and `ValueError` if two forms have the same name.
    """
    return _listed(base(arch))[0]


def refused(arch: str) -> dict[str, str]:
    """Return the names of forms that the emulated GPU refuses -> its error."""
    return _listed(base(arch))[1]


def kernels(wanted: Sequence[Form], arch: str, folder: Path | None) -> list[Kernel]:
    """Return the kernels that run some forms; a prepared code object in `folder` is used if it exists."""
    return [pack.kernel(folder) for pack in build.packs(wanted, arch)]


def prepare(wanted: Sequence[Form], arch: str, folder: Path) -> int:
    """Write the code objects of some forms into a folder; return their number."""
    made = build.packs(wanted, arch)
    for pack in made:
        pack.file(folder).write_bytes(zlib.compress(build.linked(pack.words, arch), 6))
    return len(made)


def version() -> str:
    """Return the version of AMD's kernel driver; "" if none is loaded, or the kernel has it built in."""
    return _VERSION_FILE.read_text().strip() if _VERSION_FILE.exists() else ""


def emulated(arch: str) -> str:
    """Return the name of the emulated GPU of an architecture, for example "amd-emu:gfx1100"."""
    return f"amd-emu:{arch}"


VENDOR: Final = Vendor(
    name="amd", arches=ARCHES, emulated=emulated, forms=forms, kernels=kernels, prepare=prepare,
    version=version,
)  # fmt: skip
