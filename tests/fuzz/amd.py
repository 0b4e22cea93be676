"""`python -m tests.fuzz.amd [--cases 300] [--first 0] [--small] [--seed N] [--keep FILE] [--jobs 2] [--target NAME] [--show SEED] [--json FILE]`.

Compares random kernels as machine code of gfx1100, gfx1201 and gfx942, and as PTX, with host code: five ways from one text
in LLVM IR. LLVM compiles the device's text for each; the emulators run what it gives; the same functions are compiled for
the host, and what work-items exchange is mirrored with NumPy. Prints the cases that disagree and their number, and exits
with 1 if there is one.

Without `--small` a case is a whole kernel of up to some hundred instructions. With it, 25 cases share a kernel,
one as large as a whole one, the others of about 70 instructions; one that disagrees is run again alone. A seed always gives the same case: `--seed` runs it alone, `--show`
prints its IR for gfx1100. `--keep` writes down which cases are done, and goes on where an earlier run stopped.
Most code is translated quickly; that of each eighth shared kernel and of each sixteenth whole one is optimised.

Not here: the cases (`amd_cases`), options that all fuzzers share (`campaign`).
"""

# ruff: noqa: E501 - lines of help read best on one line

from __future__ import annotations

import itertools
import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from emulator.simt.engine import Settings
from emulator.simt.work import LaunchOptions
from tests.fuzz import campaign
from tests.fuzz.amd_cases import TOGETHER, Case
from tests.fuzz.amd_exchanges import LANES
from tools.arguments import natural

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Tier = Literal["quick", "optimised"]


def compare(case: Case, targets: Iterable[str], settings: Settings, tier: Tier) -> dict[int, str]:
    """Compare the emulators of some targets with the host on a kernel; return what differs first, by seed.

    What a target raises differs for every seed of the kernel.
    """
    wanted = case.on_host()
    options = LaunchOptions(tier=tier, threads=1)
    found: dict[int, str] = {}
    for target in targets:
        try:
            results = case.on_device(target, settings, options)
        except Exception as error:  # noqa: BLE001 - whatever a case raises is its result
            for chain in case.chains:
                found.setdefault(chain.seed, f"{target}: {type(error).__name__}: {error}")
            continue
        for chain, result, right in zip(case.chains, results, wanted, strict=True):
            different = _difference(result, right)
            if different:
                found.setdefault(chain.seed, f"{target}: {different}")
    return found


def _difference(result: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> str:
    for what, mine, right in zip(("out", "bins"), result, wanted, strict=True):
        wrong = np.argwhere(mine != right)
        if wrong.size:
            at = tuple(wrong[0])
            return f"{len(wrong)} of {mine.size} in {what} differ, first {list(map(int, at))}: {mine[at]:#x}, wanted {right[at]:#x}"
    return ""


def check(seed: int, targets: Iterable[str], settings: Settings) -> str:
    """Compare the whole kernel of a seed; return what differs."""
    tier: Tier = "optimised" if seed % 16 == 15 else "quick"
    return compare(Case.whole(seed), targets, settings, tier).get(seed, "")


def check_small(seeds: Iterable[int], targets: Iterable[str], settings: Settings) -> dict[int, str]:
    """Compare small cases, many in a kernel; return what differs, by seed: of a case alone where it differs alone."""
    found: dict[int, str] = {}
    names = tuple(targets)
    for quotient, some in itertools.groupby(sorted(seeds), lambda seed: seed // TOGETHER):
        group, tier = list(some), "optimised" if quotient % 8 == 7 else "quick"
        together = compare(Case.small(group), names, settings, tier)  # type: ignore[arg-type]
        for seed, wrong in together.items():
            alone = compare(Case.small([seed]), names, settings, tier) if len(group) > 1 else {}  # type: ignore[arg-type]
            found[seed] = alone.get(seed) or wrong + (
                f" (with seeds {group[0]} to {group[-1]} in one kernel)" if len(group) > 1 else ""
            )
    return found


def disagreements(
    first: int, count: int, *, targets: tuple[str, ...], small: bool, keep: Path | None
) -> dict[int, str]:
    """Return what is wrong with each of some cases, by seed; those that the file says are done are not run."""
    done = _kept(keep)
    seeds = [seed for seed in range(first, first + count) if seed not in done]
    runs = [seeds] if small else [[seed] for seed in seeds]
    found = {seed: done[seed] for seed in range(first, first + count) if done.get(seed)}
    for some in runs:
        if small:
            wrong = check_small(some, targets, Settings(strips=True))
        else:
            wrong = {seed: text for seed in some if (text := check(seed, targets, Settings(strips=True)))}
        found |= {seed: f"{seed}: {text}" for seed, text in wrong.items()}
        if keep is not None:
            _keep(keep, {seed: found.get(seed, "") for seed in some})
    return found


def _keep(keep: Path, cases: dict[int, str]) -> None:
    """Append cases to a file, and end the line that an interrupted run cut."""
    text = keep.read_text() if keep.exists() else ""
    with keep.open("a") as file:
        file.write("\n" * (text != "" and text[-1] != "\n"))
        file.write("".join(f"{json.dumps(case)}\n" for case in cases.items()))


def _kept(keep: Path | None) -> dict[int, str]:
    """Return the cases that a file names, with what was wrong. A line that an interrupted run cut is not one."""
    if keep is None or not keep.exists():
        return {}
    rows = [row for row in keep.read_text().splitlines(keepends=True) if row.endswith("]\n")]
    return {int(seed): str(wrong) for seed, wrong in map(json.loads, rows)}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool and return its exit status."""
    parser = campaign.parser("tests.fuzz.amd", __doc__, cases=300)
    parser.add_argument("--target", action="append", choices=list(LANES), help="(default: all)")
    parser.add_argument("--small", action="store_true", help="small cases, 25 in a kernel")
    parser.add_argument("--seed", type=natural, metavar="N", help="run one case alone")
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="FILE",
        help="file of the cases that are done; a run with the same file continues it",
    )
    options = parser.parse_args(argv)
    shown = options.show if options.show is not None else options.seed
    targets = tuple(options.target or LANES)
    if options.show is not None:
        sys.stdout.write((Case.small([shown]) if options.small else Case.whole(shown)).text(targets[0]))
        return 0
    if options.seed is not None:
        options.first, options.cases = options.seed, 1
    check_these = partial(disagreements, targets=targets, small=options.small, keep=options.keep)
    return campaign.run(check_these, options, "agree")


if __name__ == "__main__":
    sys.exit(main())
