"""Speed of the emulated AMD GPUs, and the cost of each sanitizer: `hcq bench emu-amd`.

The kernels of `emu`, as clang's machine code of three targets, launched on the engine without driver or
queue; the results are checked: a wrong one raises `HcqError`. Target times of translated kernels: vector
addition of 1M floats 3 ms, reduction of 1M floats in LDS 4 ms, tiled matmul of 256 x 256 6 ms, divergent
Collatz of 256K work-items 60 ms. Target time of a small kernel from its machine code to its result,
translation included: 60 ms.

Not here: the driver on the emulated GPU (`queues` with `--device amd-emu`). Next: `emu`, the same for
NVIDIA's.
"""

# ruff: noqa: E501 - rows of tables read best on one line

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from emulator.amd.isa import programs
from emulator.ir.library import Sanitizers
from emulator.shared.memory import AddressSpace
from emulator.simt.engine import Settings
from hcq.config import config
from tools.bench.emu import Prepared, pack, slowdowns, times, workloads

if TYPE_CHECKING:
    from collections.abc import Callable

    from emulator.simt.work import LaunchOptions
    from tools.bench.rows import Bench

TARGETS: Final = ("gfx1100", "gfx1201", "gfx942")
"""One architecture for each family of encodings: GFX11, GFX12 and GFX9."""
_FOLDER: Final = Path(__file__).parent / "amd_kernels"


def _kernels(target: str) -> dict[str, programs.KernelCode]:
    return programs.kernels((_FOLDER / f"kernels_{target}.hsaco").read_bytes(), target)


def prepare(target: str, checks: Sanitizers | None = None) -> list[Prepared]:
    """Return the four kernels of a target with their data in mapped memory.

    The code is translated with the sanitizers of `checks` (default: none).
    """
    memory, settings = AddressSpace(), Settings(cache=config().cache, checks=checks or Sanitizers())
    found = _kernels(target)

    def loaded(name: str, grid: Any, block: Any, params: bytes) -> Callable[[LaunchOptions], Any]:
        kernel, arguments = found[name], np.zeros(512, "u1")
        memory.map(arguments.ctypes.data, arguments.nbytes)
        arguments[: len(params)] = np.frombuffer(params, "u1")
        program = programs.program(kernel, settings)
        return lambda options: programs.run(
            program, kernel, grid, block, arguments.ctypes.data, memory, options
        )

    return workloads(memory, loaded)


def cold(target: str) -> float:
    """Return the milliseconds from the machine code of a small kernel to its result, with no cached translation."""
    settings = Settings()
    kernel = _kernels(target)["collatz"]
    programs.program(kernel, settings)  # creates the engine, once for the process: not measured
    out, memory, arguments = np.zeros(256, "u4"), AddressSpace(), np.zeros(512, "u1")
    arguments[:12] = np.frombuffer(pack(out, 64), "u1")
    for array in (out, arguments):
        memory.map(array.ctypes.data, array.nbytes)
    start = time.perf_counter()
    program = programs.program(kernel, settings)
    programs.run(program, kernel, (1, 1, 1), (256, 1, 1), arguments.ctypes.data, memory)
    return 1e3 * (time.perf_counter() - start)


def emu_amd(bench: Bench) -> None:
    """Add rows of each kernel, target and tier, of the uncached kernel, and of each kernel and sanitizer on gfx1100."""
    made = {one: times(bench, f"{one} ", prepare(one), partial(cold, one)) for one in TARGETS}
    slowdowns(bench, f"{TARGETS[0]} ", made[TARGETS[0]], partial(prepare, TARGETS[0]))


CASES = {"emu-amd": emu_amd}
