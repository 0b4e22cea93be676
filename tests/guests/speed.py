"""Speed of Triton's matmuls on the emulated NVIDIA GPU: `python -m tests.guests.speed`.

The kernels are those of the corpus (`build`), so Triton is not needed. They run on the engine,
without driver and queue; their results are checked. A row is the CPU time of all host threads for one launch,
after translation and optimisation: it depends little on what else the machine does. Target times: pipelined
bfloat16 matmul of 256 x 256 x 256 15 ms on every GPU, the one by wgmma of 512 x 512 x 512 100 ms.

Not here: kernels in PTX by hand (`python -m tools.bench emu`).
"""

from __future__ import annotations

import struct
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import hcq
from emulator.nv.ptx.module import launch, load_ptx
from emulator.shared.memory import AddressSpace
from emulator.simt.engine import Settings
from emulator.simt.work import LaunchOptions
from hcq.config import config
from hcq.errors import HcqError
from interop import elements
from tests.guests import build, cases, more_cases
from tools.arguments import command, reported
from tools.bench.rows import Bench, Report, commit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_KERNEL: Final = "matmul_bfloat16_3"
_ROWS: Final = (("sm_80", 256), ("sm_90", 256), ("sm_120", 256), ("sm_90", 512))
"""Target of the archive, and the size of the square matrices."""


def prepared(target: str, size: int) -> tuple[Callable[[], float], Callable[[], bool]]:
    """Return a function that runs a matmul and returns its CPU time in ms, and the check of its result."""
    facts, code = build.read(build.DATA / f"triton_{target}.tar.xz")[_KERNEL]
    constants = next(case for case in more_cases.ALL if case.name == _KERNEL).constants
    tile = (constants["BM"], constants["BN"], constants["BK"])
    made = cases.matmul((size, size, size), tile, "bfloat16").make(np.random.default_rng(1))
    memory, arrays = AddressSpace(), dict[str, Any]()
    raw = b""
    for name in facts["parameters"]:
        value = made.values[name]
        if isinstance(value, cases.Data):
            arrays[name] = elements.encode(value.values, value.kind)
            memory.map(arrays[name].ctypes.data, arrays[name].nbytes)
            value = arrays[name].ctypes.data
            raw = raw.ljust(-(-len(raw) // 8) * 8, b"\0") + struct.pack("<Q", value)
        else:
            raw += struct.pack("<I", value)
    arch = target if target == "sm_80" else f"{target}a"
    module = load_ptx(code.decode(), arch=arch, settings=Settings(cache=config().cache))
    kernel = module.kernel(facts["entry"])
    raw = raw.ljust(-(-len(raw) // 8) * 8, b"\0").ljust(kernel.param_bytes, b"\0")  # and no scratch memory
    block = (facts["threads"], 1, 1)

    def run() -> float:
        before = time.process_time()
        done = launch(
            kernel,
            made.grid,
            block,
            raw,
            facts["shared"],
            memory=memory,
            options=LaunchOptions(tier="optimised"),
        )
        if done.fault is not None:
            raise HcqError(str(done.fault))
        return 1e3 * (time.process_time() - before)

    def good() -> bool:
        got = elements.decode(arrays["c"], "bfloat16")
        want = made.expected["c"]
        return bool(np.abs(got - want).max() <= made.tolerance * np.abs(want).max())

    return run, good


def main(argv: Sequence[str] | None = None) -> int:
    """Print a row of each target and size: a table, or JSON lines where stdout is no terminal. Return 0."""
    parser = command("tests.guests.speed", __doc__)
    parser.add_argument("--quick", action="store_true", help="two samples: tests that it runs, not its speed")
    options = parser.parse_args(argv)
    report = Report(sys.stdout, sys.stderr, lines=not sys.stdout.isatty())
    with hcq.open("cpu", validate=False) as device:
        bench = Bench(device, quick=options.quick, name="guests", commit=commit(), report=report)
        for target, size in _ROWS:
            run, good = prepared(target, size)
            run()
            times = [run() for _ in range(2 if options.quick else 20)]
            bench.add(f"Triton matmul {size}, bfloat16, {target}", times, unit="ms")
            if not good():
                raise HcqError(f"the emulated matmul of {size} on {target} gives a wrong result")
    return 0


if __name__ == "__main__":
    sys.exit(reported(main))
