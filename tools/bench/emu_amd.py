"""Speed of the emulated AMD GPUs, and the cost of each sanitizer: `python -m tools.bench emu-amd`.

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
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from emulator.amd.isa import programs
from emulator.ir.library import Sanitizers
from emulator.shared.memory import AddressSpace
from emulator.simt.engine import Settings
from emulator.simt.work import LaunchOptions
from hcq.config import config
from hcq.errors import HcqError
from tools.bench.emu import TIERS, Prepared, Tier, pack, require_right_result, sanitized, slowdown

if TYPE_CHECKING:
    from collections.abc import Callable

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
    rng, found = np.random.default_rng(1), _kernels(target)

    def new(shape: Any, dtype: str = "f4", *, fill: bool = True) -> Any:
        array = rng.random(shape).astype(dtype) if fill else np.zeros(shape, dtype)
        memory.map(array.ctypes.data, array.nbytes)
        return array

    def prepared(
        name: str, grid: Any, block: Any, params: bytes, check: Callable[[], bool]
    ) -> Prepared:
        kernel, arguments = found[name], new(512, "u1", fill=False)
        arguments[: len(params)] = np.frombuffer(params, "u1")
        program = programs.program(kernel, settings)

        def run(tier: Tier) -> float:
            options = LaunchOptions(tier=tier)
            result = programs.run(program, kernel, grid, block, arguments.ctypes.data, memory, options)
            if result.fault is not None:
                raise HcqError(str(result.fault))
            return 1e3 * result.seconds

        return Prepared(name, run, check)

    n, m, side = 1 << 20, 1 << 18, 256
    a, b, c, sums = new(n), new(n), new(n, fill=False), new(n // 1024, fill=False)
    left, right, product = new((side, side)), new((side, side)), new((side, side), fill=False)
    steps = new(m, "u4", fill=False)
    return [
        prepared("vadd", (n // 256, 1, 1), (256, 1, 1), pack(c, a, b, n), lambda: bool((c == a + b).all())),
        prepared("reduce", (n // 1024, 1, 1), (256, 1, 1), pack(sums, a),
                 lambda: bool(np.allclose(sums, a.reshape(-1, 1024).sum(1), rtol=1e-5))),
        prepared("matmul", (4, 4, 1), (16, 16, 1), pack(product, left, right, side),
                 lambda: bool(np.allclose(product, left @ right, rtol=1e-4))),
        prepared("collatz", (m // 256, 1, 1), (256, 1, 1), pack(steps, m), lambda: steps[26] == 111),  # 27 needs 111 steps
    ]  # fmt: skip


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
    samples = 2 if bench.quick else 20
    for target in TARGETS:
        for one in prepare(target):
            for tier in TIERS:
                one.run(tier)
                bench.add(f"{target} {one.name}, {tier}", [one.run(tier) for _ in range(samples)], unit="ms")
            require_right_result(one)
        bench.add(f"{target} small kernel, cold", [cold(target) for _ in range(samples)], unit="ms")
    plain = prepare(TARGETS[0])
    for one in plain:
        one.run("optimised")
    for name, checks in sanitized().items():
        for one, other in zip(plain, prepare(TARGETS[0], checks), strict=True):
            slowdown(bench, f"{TARGETS[0]} {name}", one, other)


CASES = {"emu-amd": emu_amd}
