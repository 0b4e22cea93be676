"""Run a program on emulated GPUs, and print what each kernel did: the command of `hcq counters`.

    hcq counters --device nv-emu:sm_80 program.py
    hcq counters --json counts.json program.py

It is `HCQ_COUNTERS` for one program, with an emulated GPU as the device that "auto" opens. The table is
printed to the standard error when a device closes. Exit status: the script's own, 2 if it raised or the
arguments are wrong.

Not here: the counts (`hcq.counters`). Next: docs/counters.md.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from hcq.cli import prog
from hcq.config import override
from interop.sanitize import add_program, checked_program, run_script

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status. Wrong arguments raise `SystemExit(2)`."""
    parser = argparse.ArgumentParser(
        prog=prog("interop.counters"), description="run a program on emulated GPUs and count what kernels do"
    )
    parser.add_argument("--json", metavar="FILE", default="1", help="write the counts to this file instead")
    add_program(parser)
    options = checked_program(parser, argv)
    with override(device=options.device, counters=options.json):
        return run_script(options.script, options.arguments)


if __name__ == "__main__":
    sys.exit(main())
