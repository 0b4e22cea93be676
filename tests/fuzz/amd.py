"""`python -m tests.fuzz.amd [--cases 300] [--first 0] [--small] [--jobs 2] [--target NAME] [--show SEED] [--json FILE]`.

Compares random kernels as machine code of gfx1100, gfx1201 and gfx942, and as PTX, with host code: five ways from one text
in LLVM IR. LLVM compiles the device's text for each; the emulators run what it gives; the same functions are compiled for
the host, and what work-items exchange is mirrored with NumPy. Prints the cases that disagree and their number, and exits
with 1 if there is one.

Without `--small` a case is a whole kernel of up to some hundred instructions. With it, 25 cases share a kernel,
one as large as a whole one, the others of about 70 instructions; one that disagrees is run again alone. A seed always gives the same case: `--first N --cases 1` runs it alone,
`--show` prints its IR for gfx1100. Most code is translated quickly; that of each eighth shared kernel and of each sixteenth whole one is optimised.

Not here: the cases (`amd_cases`), options that all fuzzers share (`campaign`).
"""

# ruff: noqa: E501 - lines of help read best on one line

from __future__ import annotations

import itertools
import sys
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np

from emulator.simt.engine import Settings
from emulator.simt.work import LaunchOptions
from tests.fuzz import campaign
from tests.fuzz.amd_cases import TOGETHER, Case
from tests.fuzz.amd_exchanges import LANES

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


def disagreements(first: int, count: int, *, targets: tuple[str, ...], small: bool) -> dict[int, str]:
    """Return what is wrong with each of some cases, by seed."""
    seeds, settings = range(first, first + count), Settings(strips=True)
    if small:
        wrong = check_small(seeds, targets, settings)
    else:
        wrong = {seed: text for seed in seeds if (text := check(seed, targets, settings))}
    return {seed: f"{seed}: {text}" for seed, text in wrong.items()}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool and return its exit status."""
    parser = campaign.parser("tests.fuzz.amd", __doc__, cases=300)
    parser.add_argument("--target", action="append", choices=list(LANES), help="(default: all)")
    parser.add_argument("--small", action="store_true", help="small cases, 25 in a kernel")
    options = parser.parse_args(argv)
    targets = tuple(options.target or LANES)
    if options.show is not None:
        case = Case.small([options.show]) if options.small else Case.whole(options.show)
        sys.stdout.write(case.text(targets[0]))
        return 0
    return campaign.run(partial(disagreements, targets=targets, small=options.small), options, "agree")


if __name__ == "__main__":
    sys.exit(main())
