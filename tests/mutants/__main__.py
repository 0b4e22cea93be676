"""`python -m tests.mutants [--driver nv] [--device sm_90] [--sample 100] [--seed 1] [--kind stream]`.

A random walk through the mutants of a driver: a sample of all changes of one field, packet, call or fence
that the driver's program sends, each in a process of its own. It prints the sums of the outcomes, and a line
for each mutant that survived; the exit status is 1 if a smaller share than `--minimum` was noticed. Noticed
is an error of the project, a report of the emulated GPU, or no difference in what the program checks.

Next: `planted.wired`, a run; `interpose`, which lists and makes the mutants.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from hcq.errors import HcqError
from tests.mutants.planted.catalogs import WIRES
from tests.mutants.planted.run import Wired
from tests.mutants.sites import KINDS, Mutant
from tools.arguments import command, natural, output, positive, reported, share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.mutants.sites import Kind

DEVICES: Final = {"nv": "sm_90", "amd": "gfx1100"}
"""Driver -> the emulated GPU of its mutants, if none is named."""
NOTICED: Final = frozenset(("error", "bare", "passed"))
"""Outcomes of a mutant that does not survive; `passed`: it changes nothing that the program checks."""
LIMIT_S: Final = 300
"""Seconds after which a run counts as hung."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A mutant and the outcome of its run."""

    mutant: str
    kind: Kind
    outcome: str
    """As `tests.mutants.planted.wired` has it."""
    text: str


def listed(driver: str, device: str) -> list[Mutant]:
    """Return all mutants of a driver's program; `HcqError` if the unchanged driver does not pass."""
    lines = _run(driver, device, None)
    if lines[0]["outcome"] != "passed":
        raise HcqError(f"the unchanged driver on {device} {lines[0]['outcome']}: {lines[0]['text'][:500]}")
    return [Mutant.from_json(one) for one in lines[1]]


def sample(mutants: Sequence[Mutant], count: int, seed: int, kind: Kind | None = None) -> list[Mutant]:
    """Return a random sample of one kind, or without a kind a quarter of `count` of each; 0 for all."""
    chosen = random.Random(seed)  # noqa: S311 - a sample, not a secret
    out: list[Mutant] = []
    kinds = (kind,) if kind is not None else KINDS
    for one in kinds:
        alike = [mutant for mutant in mutants if mutant.kind == one]
        out += chosen.sample(alike, min(len(alike), count // len(kinds))) if count else alike
    return out


def judge(driver: str, device: str, mutant: Mutant) -> Verdict:
    """Run a mutant in a process of its own. `HcqError` if its place was not reached."""
    last = _run(driver, device, mutant)[-1]
    if last["outcome"] == "unplanted":
        raise HcqError(
            f"the place of the mutant {mutant} was not reached: the driver's calls are not the same"
        )
    return Verdict(str(mutant), mutant.kind, last["outcome"], last["text"])


def _run(driver: str, device: str, mutant: Mutant | None) -> list[Any]:
    with Wired() as wired:
        return wired.lines(driver, device, None if mutant is None else asdict(mutant), LIMIT_S)


def score(verdicts: Sequence[Verdict]) -> float:
    """Return the share of mutants that did not survive."""
    return sum(one.outcome in NOTICED for one in verdicts) / len(verdicts) if verdicts else 1.0


def text(verdicts: Sequence[Verdict], total: int) -> str:
    """Return the report as text."""
    lines = []
    for kind in KINDS:
        part = [one for one in verdicts if one.kind == kind]
        counts = ", ".join(
            f"{name} {count}" for name, count in Counter(x.outcome for x in part).most_common()
        )
        lines += [f"{kind}: {score(part):.3f} of {len(part)} ({counts})"] if part else []
    changing = [one for one in verdicts if one.outcome != "passed"]
    lines.append(f"noticed {score(verdicts):.3f}: {len(verdicts)} of {total} mutants")
    lines.append(f"without those that change nothing {score(changing):.3f} of {len(changing)}")
    survivors = [one for one in verdicts if one.outcome not in NOTICED]
    return "\n".join([*lines, *[f"{one.outcome}: {one.mutant}: {one.text[:200]}" for one in survivors]])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool and return its exit status."""
    parser = command("tests.mutants", __doc__)
    parser.add_argument("--driver", choices=tuple(WIRES), default="nv", help="(default %(default)s)")
    parser.add_argument(
        "--device", default="", help="emulated GPU, as sm_80 or sm_90+570 (default: sm_90, gfx1100)"
    )
    parser.add_argument(
        "--sample", type=natural, default=100, help="number of mutants (default 100); 0 runs all"
    )
    parser.add_argument("--seed", type=natural, default=1, help="seed of the sample")
    parser.add_argument("--kind", choices=KINDS, help="only mutants of this kind")
    parser.add_argument("--jobs", type=positive, default=2, help="processes at a time (default 2)")
    parser.add_argument("--minimum", type=share, default=0.9, help="(default 0.9)")
    parser.add_argument("--json", type=output, metavar="FILE", help="write every verdict")
    options = parser.parse_args(argv)
    device = options.device or DEVICES[options.driver]
    mutants = listed(options.driver, device)
    chosen = sample(mutants, options.sample, options.seed, options.kind)
    with ThreadPoolExecutor(options.jobs) as pool:
        verdicts = list(pool.map(lambda one: judge(options.driver, device, one), chosen))
    sys.stdout.write(text(verdicts, len(mutants)) + "\n")
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(one) for one in verdicts], indent=1) + "\n")
    return 0 if score(verdicts) >= options.minimum else 1


if __name__ == "__main__":
    sys.exit(reported(main))
