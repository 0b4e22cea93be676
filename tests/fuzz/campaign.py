"""The part of the fuzzers' command lines that they share: options, worker processes, progress, the result.

Each fuzzer has a check, a module-level function (worker processes import it) that takes the first seed and
the number of seeds, and returns a text for each seed that failed.

Next: `tensors` and `queues`, command lines built on this.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TYPE_CHECKING, Final

from tools.arguments import command, natural, output, positive

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

CHUNK: Final = 25
"""Number of seeds in one call of a worker."""


def parser(name: str, doc: str | None, *, cases: int = 200) -> argparse.ArgumentParser:
    """Return a parser with `--cases`, `--first`, `--jobs`, `--show` and `--json`."""
    made = command(name, doc)
    made.add_argument("--cases", type=positive, default=cases, metavar="N", help=f"(default {cases})")
    made.add_argument("--first", type=natural, default=0, metavar="SEED", help="the first seed (default 0)")
    made.add_argument("--jobs", type=positive, default=2, metavar="N", help="worker processes (default 2)")
    made.add_argument("--show", type=natural, metavar="SEED", help="print the case of one seed and stop")
    made.add_argument("--json", type=output, metavar="FILE", help="write the failures, by seed")
    return made


def run(check: Callable[[int, int], dict[int, str]], options: argparse.Namespace, verb: str) -> int:
    """Check the seeds of the options, print the failures and a summary, and return the exit status.

    The summary is "190 of 200 VERB, seeds 0 to 199, 7 s". An exception of `check` ends the run, and so does a
    case that kills its process (`BrokenProcessPool`).
    """
    failed: dict[int, str] = {}
    began, end, done = time.perf_counter(), options.first + options.cases, 0
    with ProcessPoolExecutor(options.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        starts = range(options.first, end, CHUNK)
        counts = {pool.submit(check, at, min(CHUNK, end - at)): min(CHUNK, end - at) for at in starts}
        for future in as_completed(counts):
            if future.exception() is not None:
                pool.shutdown(cancel_futures=True)
            found = future.result()
            for seed in sorted(found):
                sys.stdout.write(f"{found[seed]}\n")
            sys.stdout.flush()
            failed |= found
            done += counts[future]
            sys.stderr.write(f"\r{done} of {options.cases}, {len(failed)} failed")
            sys.stderr.flush()
    took = time.perf_counter() - began
    sys.stderr.write("\n")
    if options.json is not None:
        options.json.write_text(json.dumps(failed, indent=1))
    passed = options.cases - len(failed)
    sys.stdout.write(
        f"{passed} of {options.cases} {verb}, seeds {options.first} to {end - 1}, {took:.0f} s\n"
    )
    return 1 if failed else 0
