"""Run a Python program with a profile, and write one HTML page of the run.

    python -m tools.page --output run.html train.py --steps 10
    HCQ_DEVICE=nv-emu:sm_80 python -m tools.page --counters train.py

The page has every scheduled graph, its kernels with the bytes that they move and their times, and each
kernel's loop nest, lines, LLVM IR and assembly. `--counters` adds what emulated GPUs count for each kernel
(docs/counters.md). The page has no scripts and refers to no other file. Times of emulated GPUs are those of
the emulation.

Not here: the recording (`tools.page.record`). Next: `tools.page.html`, the page.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tools.arguments import command, existing, output
from tools.page.html import page
from tools.page.record import kernels, record

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool; return the status of the program, or 1 without a page if it computed no tensor."""
    parser = command("tools.page", __doc__)
    parser.add_argument("--output", type=output, default=Path("run.html"), help="(default run.html)")
    parser.add_argument("--counters", action="store_true", help="count what kernels do on emulated GPUs")
    parser.add_argument("program", type=existing, help="a Python file, run as __main__")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of the program")
    options = parser.parse_args(argv)
    run = record(str(options.program), options.arguments, counters=options.counters)
    if not run.plans:
        sys.stderr.write(f"{options.program} computed no tensor, so there is no page\n")
        return 1
    if options.counters and not run.counts:
        sys.stderr.write("nothing was counted: only emulated GPUs count, try HCQ_DEVICE=nv-emu:sm_80\n")
    found = kernels(run)
    options.output.write_text(page(run, found), encoding="utf-8")
    sys.stderr.write(f"{options.output}: {len(run.plans)} graphs, {len(found)} kernels\n")
    return run.status


if __name__ == "__main__":
    sys.exit(main())
