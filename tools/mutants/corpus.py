"""`python -m tools.mutants.corpus [--device nv-emu] [--json FILE]`: kernels without one of their barriers.

Every barrier, fence and wait for copies in a vendor's corpus of kernels is left out, one at a time, and the
kernel is run by the emulator under eight orders with the sanitizers on.

Not here: mutants of the driver (`judge`), the kernels (`tools.mutants.nv.kernels`).
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from hcq.errors import HcqError
from tools.mutants.nv import kernels as nv
from tools.mutants.verdicts import CAUGHT, SEEDS, Outcome, Verdict, overall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tools.mutants.emulated import Kernel

CORPORA: Final[Mapping[str, Callable[[], Iterator[Kernel]]]] = MappingProxyType({"nv-emu": nv.corpus})
"""Name of the device -> its kernels."""


def judge(kernel: Kernel, expected: bytes) -> Verdict:
    """Return what becomes of a kernel that lacks a barrier; `expected` is what the whole one leaves."""
    seen: dict[int, Verdict] = {}
    for seed in SEEDS:
        try:
            report, result = kernel.run(seed)
        except HcqError as error:
            return Verdict(Outcome.REFUSED, str(error))
        same = Outcome.EQUIVALENT if result == expected else Outcome.WRONG
        seen[seed] = Verdict(Outcome.REPORTED, report) if report else Verdict(same)
        verdict = overall(seen)
        if verdict is not None:
            return verdict
    raise AssertionError("eight seeds decide")


def main(arguments: Sequence[str]) -> int:
    """Check the corpus; print a line a kernel and the survivors."""
    parser = argparse.ArgumentParser(prog="tools.mutants.corpus", description=__doc__)
    parser.add_argument("--device", choices=tuple(CORPORA), default=next(iter(CORPORA)))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--minimum", type=float, default=0.95)
    given = parser.parse_args(arguments)
    rows: list[dict[str, str]] = []
    for kernel in CORPORA[given.device]():
        expected = kernel.run(SEEDS[0])[1]
        for seed in SEEDS:
            report, result = kernel.run(seed)
            if report or result != expected:
                raise HcqError(f"{kernel.name} under seed {seed}: {report or 'other results'}; it must pass")
        for label, rest in kernel.without_one():
            verdict = judge(rest, expected)
            rows.append({"mutant": f"{kernel.name}: {label}", **asdict(verdict)})
            if verdict.outcome is not Outcome.REPORTED:
                sys.stdout.write(f"{verdict.outcome}: {kernel.name}: {label}\n")
    caught = sum(row["outcome"] in CAUGHT for row in rows)
    told = sum(row["outcome"] == Outcome.REPORTED for row in rows)
    sys.stdout.write(f"score {caught / len(rows):.3f}: {caught} of {len(rows)} ({told} reported)\n")
    if given.json is not None:
        given.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if caught / len(rows) >= given.minimum else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
