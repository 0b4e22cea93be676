"""Kernels that lose a barrier, a wait or a cache operation: machine code that the compiler makes.

The corpus: the `shared` kernel of the bring-up ladder and the kernels of tensor programs, for each target. An
instruction that is left out becomes `s_nop`. A missing wait is found before the launch, by the verifier of
waits; what is left runs under the sanitizers. Not here: judging them (`tests.mutants.corpus`).
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from emulator.amd.isa import objects
from emulator.amd.isa.opcodes import target
from emulator.amd.isa.translate import read_kernel
from emulator.amd.isa.waits import missing_waits
from emulator.shared.memory import AddressSpace
from emulator.simt.engine import Settings
from emulator.simt.library import Sanitizers
from emulator.simt.work import Options
from hcq.config import config
from tests.mutants import programs
from tools.bringup.amd.kernels import image

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emulator.amd.isa.instruction import Instruction

TARGETS: Final = ("gfx1100", "gfx1201", "gfx942")
_ORDERS: Final = re.compile(
    r"s_barrier|s_wait_(?!alu)|s_waitcnt(_vscnt|_vmcnt|_lgkmcnt|_expcnt)?$|(buffer|global)_(\w+_)?(inv|wb|wbl2|wbinv)$"
)
_NOP: Final = 0xBF80_0000
_LIMIT_S: Final = 60.0
_LDS: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A kernel, how it is launched, and its buffers: floats of each, and whether it is filled."""

    name: str
    processor: str
    kernel: objects.KernelCode
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    sizes: tuple[tuple[int, bool], ...]

    def without_one(self) -> Iterator[tuple[str, Case]]:
        """Yield (what was left out, the kernel without it) for every barrier, wait and cache operation."""
        for one in self._instructions():
            if _ORDERS.match(one.stem):
                code = bytearray(self.kernel.code)
                for at in range(one.address, one.next, 4):
                    code[at : at + 4] = _NOP.to_bytes(4, "little")
                yield (
                    f"+{one.address:#x} {one.text}",
                    replace(self, kernel=replace(self.kernel, code=bytes(code))),
                )

    def _instructions(self) -> list[Instruction]:
        kernel = self.kernel
        return read_kernel(kernel.code, kernel.target, lanes=kernel.lanes, kernel=self.name)

    def run(self, seed: int) -> tuple[str, bytes]:
        """Launch it under one order; return what was reported, if anything, and the bytes of its buffers."""
        missing = missing_waits(self._instructions(), target(self.processor).family, kernel=self.name)
        if missing:
            return str(missing[0]), b""
        space, chosen, arrays = AddressSpace(), np.random.default_rng(7), []
        for floats, filled in self.sizes:
            array = chosen.random(floats, "f4") if filled else np.zeros(floats, "f4")
            arrays.append(array)
            space.map(array.ctypes.data, array.nbytes, label=f"buffer {len(arrays)}")
        arguments = np.array([array.ctypes.data for array in arrays], np.uint64)
        space.map(arguments.ctypes.data, max(arguments.nbytes, self.kernel.kernarg_bytes), label="arguments")
        order = random.Random(seed)  # noqa: S311 - an order, not a secret
        options = Options(
            warp_order=order.randrange(1 << 30), group_seed=order.randrange(1, 1 << 30), timeout_s=_LIMIT_S
        )
        settings = Settings(cache=config().cache, checks=Sanitizers.all())
        ready = objects.program(self.kernel, settings)
        done = objects.run(ready, self.kernel, self.grid, self.block, arguments.ctypes.data, space, options)
        reports = [done.fault] if done.fault is not None else [*done.findings]
        return str(reports[0]) if reports else "", b"".join(array.tobytes() for array in arrays)


def corpus() -> Iterator[Case]:
    """Yield all of them."""
    for processor in TARGETS:
        yield ladder(processor)
        yield from compiled(processor)


def ladder(processor: str) -> Case:
    """Return the kernel of the ladder that mirrors values through LDS."""
    code = image("shared", processor, shared_bytes=_LDS).code
    kernel = objects.kernels(code, processor)["shared"]
    return Case(
        name=f"{processor} shared", processor=processor, kernel=kernel, grid=(1, 1, 1), block=(256, 1, 1),
        sizes=((256, False),),
    )  # fmt: skip


def compiled(processor: str) -> Iterator[Case]:
    """Yield the kernels of tensor programs."""
    for name, made, sizes in programs.compiled(processor):
        yield Case(
            name=f"{processor} {name}",
            processor=processor,
            kernel=objects.kernels(made.image.code, processor)[made.image.name],
            grid=made.groups,
            block=made.threads,
            sizes=sizes,
        )
