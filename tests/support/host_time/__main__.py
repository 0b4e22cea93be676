"""Print the host time of launches and replays on emulated kernels: `python -m tests.support.host_time nv`.

Cases: `nv` and `amd`; nothing is executed. Each row has median, quartiles, count, device and commit: a table,
or JSON lines where stdout is no terminal.

Not here: the time of real and emulated devices (`python -m tools.bench`).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import hcq
from tests.support.host_time import amd, nv
from tools.arguments import command, reported
from tools.bench.rows import Bench, Report, commit

if TYPE_CHECKING:
    from collections.abc import Sequence

CASES = {**nv.CASES, **amd.CASES}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the cases; return 0."""
    parser = command("tests.support.host_time", __doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of: {', '.join(CASES)} (default: nv amd)")
    parser.add_argument("--quick", action="store_true", help="two samples: tests that it runs, not its speed")
    options = parser.parse_args(argv)
    names = options.cases or ["nv", "amd"]
    unknown = [name for name in names if name not in CASES]
    if unknown:
        parser.error(f"no case called {', '.join(unknown)}; there are: {', '.join(CASES)}")
    report = Report(sys.stdout, sys.stderr, lines=not sys.stdout.isatty())
    with hcq.open("cpu", validate=False) as device:
        for name in names:
            CASES[name](Bench(device, quick=options.quick, name=name, commit=commit(), report=report))
    return 0


if __name__ == "__main__":
    sys.exit(reported(main))
