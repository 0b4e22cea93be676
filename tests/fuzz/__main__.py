"""`python -m tests.fuzz [--cases 300] [--first 0] [--jobs 2] [--relations] [--show SEED] [--programs]`.

It compares random kernels in the emulator with host code, or with `--relations` each kernel with itself under
other vector widths, tiers, orders and numbers of threads. It prints the cases that disagree and their number,
and exits with 1 if there is one. A seed always gives the same case; `--show` prints its PTX.
`--programs` replaces the random kernels that the recorder keeps (`tools.record.nv.programs`).

Not here: one case (`cases`), the options of all fuzzers (`campaign`).
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

from tests.fuzz import campaign
from tests.fuzz.cases import Case, disagreements
from tools.record.nv.programs import keep

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool and return its exit status."""
    parser = campaign.parser("tests.fuzz", __doc__, cases=300)
    parser.add_argument(
        "--relations", action="store_true", help="compare each case with itself under other settings"
    )
    parser.add_argument("--programs", action="store_true", help="keep the kernels for the recorder")
    options = parser.parse_args(argv)
    if options.programs:
        seeds = range(options.first, options.first + options.cases)
        size = keep("random ", [Case(seed).program() for seed in seeds])
        sys.stdout.write(f"{len(seeds)} random kernels, {size:,} bytes in all\n")
        return 0
    if options.show is not None:
        sys.stdout.write(Case(options.show).ptx)
        return 0
    return campaign.run(partial(disagreements, relations=options.relations), options, "agree")


if __name__ == "__main__":
    sys.exit(main())
