"""`python -m tests.mutants.corpus [--device nv-emu] [--json FILE]`: kernels without one of their barriers.

It removes each barrier, fence and wait for copies of a vendor's kernels, one at a time, and runs the kernel
in the emulator under eight orders with all sanitizers. The exit status is 1 if the score is below
`--minimum`.

Not here: mutants of the driver (`judge`), the kernels (`tests.mutants.nv.kernels`).
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from hcq.errors import HcqError
from tests.mutants.amd import kernels as amd
from tests.mutants.nv import kernels as nv
from tests.mutants.verdicts import CAUGHT, SEEDS, Outcome, Verdict, overall
from tools.arguments import command, output, share

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tests.mutants.emulated import Kernel

CORPORA: Final[Mapping[str, Callable[[], Iterator[Kernel]]]] = MappingProxyType(
    {"nv-emu": nv.corpus, "amd-emu": amd.corpus}
)
"""Name of the device -> its kernels."""


def judge(kernel: Kernel, expected: bytes) -> Verdict:
    """Run a kernel that lacks a barrier; `expected` are the buffers of the complete kernel."""
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
    """Run the tool and return its exit status."""
    parser = command("tests.mutants.corpus", __doc__)
    parser.add_argument(
        "--device", choices=tuple(CORPORA), default=next(iter(CORPORA)), help="(default %(default)s)"
    )
    parser.add_argument("--json", type=output, metavar="FILE", help="write every verdict")
    parser.add_argument(
        "--minimum", type=share, default=0.95, help="exit with 1 below this score (default 0.95)"
    )
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
    reported = sum(row["outcome"] == Outcome.REPORTED for row in rows)
    sys.stdout.write(f"score {caught / len(rows):.3f}: {caught} of {len(rows)} ({reported} reported)\n")
    if given.json is not None:
        given.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if caught / len(rows) >= given.minimum else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
