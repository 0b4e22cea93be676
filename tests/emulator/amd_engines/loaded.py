"""A kernel that LLVM made, loaded for the engines' tests: a reduction of 256 floats a workgroup in LDS."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from drivers.elf import Elf
from emulator.amd.isa import programs
from tests.emulator.amd_engines.conftest import BUFFERS, DATA
from tests.emulator.amd_isa import ir
from tests.emulator.amd_isa.conftest import compiled

if TYPE_CHECKING:
    from tests.emulator.amd_engines.conftest import Bench

DESCRIPTOR: Final = 0x80_0000
CODE: Final = DESCRIPTOR + 256
KERNARG: Final = BUFFERS + 0x4000
SUMS, VALUES = DATA + 0x1000, DATA + 0x4000
GROUPS: Final = 4
_UNUSED: Final = ("dispatch-ptr", "queue-ptr", "dispatch-id", "implicitarg-ptr")
NO_INPUTS: Final = " ".join((ir.BOUNDS, *(f'"amdgpu-no-{one}"' for one in _UNUSED)))
"""Attributes of a kernel that asks for the arguments' address alone, as those of the compiler do."""
_IR: Final = ir.REDUCTION.replace(ir.BOUNDS, NO_INPUTS)


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a launch needs of it."""

    rsrc1: int
    rsrc2: int
    rsrc3: int
    lds_bytes: int
    kernarg_at: int


def load(bench: Bench, name: str = "gfx1100", text: str = _IR, *, invalidated: bool = True) -> Loaded:
    """Put descriptor, code, arguments and data of the kernel `k` into memory.

    With `invalidated` no cache has older code.
    """
    data = compiled(text, name)
    kernel, elf = programs.kernels(data, name)["k"], Elf(data)
    symbol = next(one for one in elf.symbols if one.name == "k.kd")
    at = symbol.value
    descriptor = bytearray(elf.content(elf.sections[symbol.section])[at : at + 64])
    struct.pack_into("<q", descriptor, 16, CODE - DESCRIPTOR)
    bench.map(DESCRIPTOR, 0x4000)
    bench.space.map.write(DESCRIPTOR, descriptor)
    bench.space.map.write(CODE, kernel.code)
    bench.space.map.write(KERNARG, struct.pack("<QQ", SUMS, VALUES))
    bench.space.map.write(VALUES, struct.pack(f"<{256 * GROUPS}f", *map(float, range(256 * GROUPS))))
    if invalidated:
        bench.engines.kernels.invalidate(bench.space)
    rsrc3, rsrc1, rsrc2 = struct.unpack_from("<3I", descriptor, 44)
    return Loaded(rsrc1, rsrc2, rsrc3, kernel.shared_bytes, kernel.kernarg_at)


def sums(bench: Bench) -> list[float]:
    """Return what the kernel stored."""
    return list(struct.unpack(f"<{GROUPS}f", bench.space.map.read(SUMS, 4 * GROUPS)))


WANTED: Final = [float(sum(range(256 * g, 256 * g + 256))) for g in range(GROUPS)]
