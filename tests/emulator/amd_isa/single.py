"""Single instructions, encoded from the tables of a target, run with chosen registers."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from emulator.amd.isa.modes import KEEP_ALL
from emulator.amd.isa.opcodes import IsaTarget, target
from emulator.amd.isa.programs import engine_of
from emulator.amd.isa.translate import KernelEntry, translate
from emulator.simt.engine import Settings, TranslatedProgram
from emulator.simt.launch import launch
from emulator.simt.work import LaunchOptions, LaunchWork
from hcq.config import config
from tools.record.amd.encode import find, packed

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from emulator.shared.memory import AddressSpace

QUICK = LaunchOptions(tier="quick", threads=1)
VCC, EXEC, LITERAL, VECTOR = 106, 126, 255, 256
WAIT = {"gfx9": 0xBF8C_0000, "gfx11": 0xBF89_0000, "gfx12": 0xBFC0_0000}
"""Wait until all loads are there: on gfx12 s_wait_loadcnt 0."""
NAMES = ("gfx942", "gfx1100", "gfx1201")


def encode(name: str, stem: str, form: str = "", *more: int, **fields: int) -> list[int]:
    """Return the words of an instruction; `more` follow it."""
    number, opcode = find(name, stem, form)
    unknown = fields.keys() - opcode.form.fields.keys()
    assert not unknown, f"{opcode.form.name} has no {unknown}"
    return packed(opcode, number, fields) + [m & 0xFFFF_FFFF for m in more]


def move(name: str, register: int, source: int, *more: int) -> list[int]:
    """Return v_mov_b32 of an encoded source."""
    return encode(name, "v_mov_b32", "VOP1", *more, vdst=register, src0=source)


def access(name: str, stem: str, register: int, offset: int, base: int) -> list[int]:
    """Return a global access of `register` at s[base:base + 1] + v1 + offset."""
    family = target(name).family
    seg = {} if family == "gfx12" else {"seg": 2}
    field = "vdst" if "load" in stem else "vdata"
    return encode(name, stem, "GLOBAL", **seg, vaddr=1, saddr=base, offset=offset, **{field: register})


def program(name: str, words: Sequence[int], lanes: int = 0, modes: int = KEEP_ALL) -> TranslatedProgram:
    """Translate words; the launch sets s0 to s15."""
    known: IsaTarget = target(name)
    end = encode(name, "s_endpgm", "SOPP")
    made = engine_of(Settings(cache=config().cache), lanes or known.lanes)
    code = struct.pack(f"<{len(words) + 1}I", *words, *end)
    entry = KernelEntry(user_sgprs=16, group_ids=(False, False, False), modes=modes)
    return TranslatedProgram(made, translate(made.library, "k", code, known, entry))


def run(
    ready: TranslatedProgram,
    memory: AddressSpace,
    registers: Sequence[int],
    block: int,
    shared: int = 0,
    *,
    scratch: int = 0,
) -> None:
    """Run a program with these scalar registers."""
    params = struct.pack("<16I", *registers, *[0] * (16 - len(registers)))
    work = LaunchWork(
        grid=(1, 1, 1), block=(block, 1, 1), params=params, shared_bytes=shared, local_bytes=scratch
    )
    done = launch(ready, work, memory, QUICK)
    assert done.fault is None, done.fault


def mapped(memory: AddressSpace, data: np.ndarray) -> tuple[int, int]:
    """Map an array; return its address as two words."""
    memory.map(data.ctypes.data, data.nbytes)
    return data.ctypes.data & 0xFFFF_FFFF, data.ctypes.data >> 32
