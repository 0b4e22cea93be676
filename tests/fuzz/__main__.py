"""`python -m tests.fuzz [--cases 300] [--first 0] [--small] [--relations] [--jobs 2] [--target NAME] [--show SEED] [--programs]`.

Compares random kernels as machine code of gfx1100, gfx1201 and gfx942, and as PTX of sm_80, with host code: five ways from one text
in LLVM IR. LLVM compiles the device's text for each; the emulators run what it gives; the same functions are compiled for
the host, and what work-items exchange is mirrored with NumPy. Prints the cases that disagree and their number, and exits
with 1 if there is one.

Without `--small` a case is a whole kernel of up to some hundred instructions. With it, 25 cases share a kernel,
one as large as a whole one, the others of about 70 instructions; one that disagrees is run again alone. A seed always gives the same case: `--first N --cases 1` runs it alone,
`--show` prints its IR for gfx1100. Most code is translated quickly; that of each eighth shared kernel and of each sixteenth whole one is optimised.
`--relations` runs each whole kernel with other vector widths, tiers, orders and numbers of threads of the host instead.
`--programs` replaces the random kernels that the recorder keeps (`tools.record.nv.programs`).

Not here: the cases (`kernels`), options that all fuzzers share (`campaign`).
"""

# ruff: noqa: E501 - lines of help read best on one line

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from emulator.simt.engine import Settings
from emulator.simt.work import LaunchOptions
from tests.fuzz import campaign
from tests.fuzz.exchanges import LANES
from tests.fuzz.kernels import TOGETHER, Case
from tools.record.nv.programs import keep

if TYPE_CHECKING:
    from collections.abc import Iterable

Tier = Literal["quick", "optimised"]


Ways = Sequence[tuple[Settings, LaunchOptions]]


def compare(case: Case, targets: Iterable[str], ways: Ways) -> dict[int, str]:
    """Compare the emulators of some targets with the host on a kernel; return what differs first, by seed.

    What a target raises differs for every seed of the kernel.
    """
    wanted = case.on_host()
    found: dict[int, str] = {}
    for target, (settings, options) in itertools.product(targets, ways):
        try:
            results = case.on_device(target, settings, options)
        except Exception as error:  # noqa: BLE001 - whatever a case raises is its result
            for chain in case.chains:
                found.setdefault(chain.seed, f"{target}: {type(error).__name__}: {error}")
            continue
        for chain, result, right in zip(case.chains, results, wanted, strict=True):
            different = _difference(result, right)
            if different:
                found.setdefault(chain.seed, f"{target}, {options.tier}, {options.warp_order}: {different}")
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
    return compare(Case.whole(seed), targets, [(settings, LaunchOptions(tier=tier, threads=1))]).get(seed, "")


def check_relations(seed: int, targets: Iterable[str], every: Iterable[Settings]) -> str:
    """Compare the whole kernel of a seed under all settings, tiers, orders, and numbers of threads of the host."""
    tiers: tuple[Tier, ...] = ("quick", "optimised")
    orders: Any = (("forward", 1, 0), ("reverse", 2, 5), (seed + 1, 1, 9))
    ways = [
        (settings, LaunchOptions(tier=tier, warp_order=order, threads=threads, group_seed=group))
        for settings, tier, (order, threads, group) in itertools.product(every, tiers, orders)
    ]
    return compare(Case.whole(seed), targets, ways).get(seed, "")


def check_small(seeds: Iterable[int], targets: Iterable[str], settings: Settings) -> dict[int, str]:
    """Compare small cases, many in a kernel; return what differs, by seed: of a case alone where it differs alone."""
    found: dict[int, str] = {}
    names = tuple(targets)
    for quotient, some in itertools.groupby(sorted(seeds), lambda seed: seed // TOGETHER):
        group, tier = list(some), "optimised" if quotient % 8 == 7 else "quick"
        ways = [(settings, LaunchOptions(tier=tier, threads=1))]  # type: ignore[arg-type]
        together = compare(Case.small(group), names, ways)
        for seed, wrong in together.items():
            alone = compare(Case.small([seed]), names, ways) if len(group) > 1 else {}
            found[seed] = alone.get(seed) or wrong + (
                f" (with seeds {group[0]} to {group[-1]} in one kernel)" if len(group) > 1 else ""
            )
    return found


def disagreements(
    first: int, count: int, *, targets: tuple[str, ...], small: bool = False, relations: bool = False
) -> dict[int, str]:
    """Return what is wrong with each of some cases, by seed."""
    seeds, settings = range(first, first + count), Settings(strips=True)
    if small:
        wrong = check_small(seeds, targets, settings)
    else:
        every = (settings, Settings(strips=True, vector_bits=256))
        found = (
            (seed, check_relations(seed, targets, every) if relations else check(seed, targets, settings))
            for seed in seeds
        )
        wrong = {seed: text for seed, text in found if text}
    return {seed: f"{seed}: {text}" for seed, text in wrong.items()}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool and return its exit status."""
    parser = campaign.parser("tests.fuzz", __doc__, cases=300)
    parser.add_argument("--target", action="append", choices=list(LANES), help="(default: all)")
    parser.add_argument("--small", action="store_true", help="small cases, 25 in a kernel")
    parser.add_argument(
        "--relations", action="store_true", help="whole kernels under other settings of the emulators"
    )
    parser.add_argument("--programs", action="store_true", help="keep the kernels for the recorder")
    options = parser.parse_args(argv)
    if options.programs:
        kept = range(options.first, options.first + options.cases)
        size = keep("random ", [Case.whole(seed).program() for seed in kept])
        sys.stdout.write(f"{len(kept)} random kernels, {size:,} bytes in all\n")
        return 0
    targets = tuple(options.target or LANES)
    if options.show is not None:
        case = Case.small([options.show]) if options.small else Case.whole(options.show)
        sys.stdout.write(case.text(targets[0]))
        return 0
    return campaign.run(
        partial(disagreements, targets=targets, small=options.small, relations=options.relations),
        options,
        "agree",
    )


if __name__ == "__main__":
    sys.exit(main())
