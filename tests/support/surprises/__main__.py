"""Print the driver's messages for first-run mistakes and surprises: `python -m tests.support.surprises`.

The emulated kernels inject them; no GPU is needed. A message that lacks its cause, evidence or cure is named
on stderr, and the exit status is 1.

Not here: what a message must have (`tests.support.surprises.row`). Next: docs/first-run.md.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tests.support.surprises import amd, nv
from tests.support.surprises.row import run
from tools.arguments import command, reported

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Print the messages, or with --table the rows of the page; return 1 if a message is wrong."""
    parser = command("tests.support.surprises", __doc__)
    parser.add_argument("--device", choices=("nv-emu", "amd-emu"), help="those of one vendor")
    parser.add_argument("names", nargs="*", help="rows, by name; by default all")
    parser.add_argument("--table", action="store_true", help="print the rows of docs/first-run.md instead")
    given = parser.parse_args(argv)
    bad = 0
    for vendor in (nv, amd):
        if given.device not in (None, vendor.DEVICE):
            continue
        for row in vendor.ROWS:
            if given.names and row.name not in given.names:
                continue
            if given.table:
                print(row.line(vendor.DEVICE))
                continue
            outcome = run(row, vendor.machine)
            wrong = row.wrong(outcome)
            bad += bool(wrong)
            print(f"{vendor.DEVICE} {row.name}: {row.what}\n{outcome.text}\n")
            for line in wrong:
                print(f"{row.name}: {line}", file=sys.stderr)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(reported(main))
