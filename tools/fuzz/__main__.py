"""`python -m tools.fuzz [--cases 300] [--first 0] [--jobs 2] [--relations] [--show SEED] [--json FILE]`.

Compares random kernels in the emulator with host code, or with `--relations` every kernel with itself under
other vector widths, tiers, orders and numbers of threads. Prints the cases that disagree, one a line, and the
count; exits non-zero when there is one. The same seed is the same case: `--show` prints its PTX.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Final

from tools.fuzz.cases import Case, disagreements

_CHUNK: Final = 20


def run(first: int, count: int, jobs: int, *, relations: bool) -> dict[int, str]:
    """Run cases in worker processes; one that kills its process ends the run with an error."""
    found: dict[int, str] = {}
    done = 0
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        starts = range(first, first + count, _CHUNK)
        chunks = {
            pool.submit(disagreements, at, min(_CHUNK, first + count - at), relations=relations): at
            for at in starts
        }
        for future in as_completed(chunks):
            wrong = future.result()
            for seed in sorted(wrong):
                sys.stdout.write(f"{seed}: {wrong[seed].splitlines()[0]}\n")
            sys.stdout.flush()
            found |= wrong
            done += min(_CHUNK, first + count - chunks[future])
            sys.stderr.write(f"\r{done} of {count}, {len(found)} disagree")
            sys.stderr.flush()
    sys.stderr.write("\n")
    return found


def main() -> int:
    """Parse the command line, run, print."""
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=300, metavar="N")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first seed (default 0)")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="worker processes (default 2)")
    parser.add_argument(
        "--relations", action="store_true", help="compare each case with itself under other settings"
    )
    parser.add_argument("--show", type=int, metavar="SEED", help="print the PTX of one case and stop")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the disagreements by seed")
    options = parser.parse_args()
    if options.show is not None:
        sys.stdout.write(Case(options.show).ptx)
        return 0
    began = time.perf_counter()
    found = run(options.first, options.cases, options.jobs, relations=options.relations)
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1))
    took = time.perf_counter() - began
    agree, last = options.cases - len(found), options.first + options.cases - 1
    sys.stdout.write(f"{agree} of {options.cases} agree, seeds {options.first} to {last}, {took:.0f} s\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
