"""Print the host time of launches and replays of the GPU drivers: `python -m tests.support.host_time`.

They run on emulated kernels, and nothing is executed: this is the time of Python alone. The GPU's results are
written outside the measured time, so each submission finds the previous one completed. Each row has median,
quartiles, count, device and commit: a table, or JSON lines where stdout is no terminal.

Not here: the time of real and emulated devices (`hcq bench`).
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

import hcq
from tests.support.host_time.amd import TARGETS, FinishedAmd
from tests.support.host_time.finished import KERNELS
from tests.support.host_time.nv import FinishedNv
from tools.arguments import command, reported
from tools.bench.rows import Bench, Report, commit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def measure(bench: Bench) -> None:
    """Measure one launch, and replays of 256 kernels with every input changed and with none changed.

    All devices are measured in turn: AMD's PM4 queues and AQL queues, whose rows have their part of NVIDIA's
    time, and NVIDIA's channels.
    """
    with ExitStack() as stack:
        gpus = {f"{name}, emulated": stack.enter_context(FinishedAmd(name)) for name in TARGETS}
        beside = stack.enter_context(FinishedNv())
        cases: dict[str, Callable[[FinishedAmd | FinishedNv], Callable[[], None]]] = {
            "record + args + encode + ring, one kernel": lambda gpu: gpu.launcher(),
            f"{KERNELS} kernels replayed, every input changed": lambda gpu: gpu.replayer(changed=True),
            f"{KERNELS} kernels replayed, nothing changed": lambda gpu: gpu.replayer(changed=False),
        }
        for case, make in cases.items():
            runs = {name: (make(gpu), gpu.finish) for name, gpu in gpus.items()}
            bench.interleaved(
                case, runs, beside=(make(beside), beside.finish), name="nv, emulated", samples=2000
            )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the cases; return 0."""
    parser = command("tests.support.host_time", __doc__)
    parser.add_argument("--quick", action="store_true", help="two samples: tests that it runs, not its speed")
    options = parser.parse_args(argv)
    report = Report(sys.stdout, sys.stderr, lines=not sys.stdout.isatty())
    with hcq.open("cpu", validate=False) as device:
        measure(Bench(device, quick=options.quick, name="drivers", commit=commit(), report=report))
    return 0


if __name__ == "__main__":
    sys.exit(reported(main))
