"""`python -m tests.mutants --sample 200 --seed 1 [--kind stream] [--device nv-emu] [--json FILE]`.

It prints the score and a line for each surviving mutant; the exit status is 1 if the score is below
`--minimum`. Each mutant runs in a child process with a time limit. One that hangs or kills its process is a
survivor, and the run continues.

Next: `walk`, the run; `verdicts`, the outcomes.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.mutants.devices import DEVICES, Target
from tests.mutants.judge import TIMEOUT_S, Judge
from tests.mutants.kept import Kept
from tests.mutants.sites import KINDS
from tests.mutants.verdicts import CAUGHT, SEEDS, Outcome
from tests.mutants.walk import judge_all, listed, walk
from tools.arguments import command, natural, output, positive, share

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.mutants.sites import Kind, Mutant
    from tests.mutants.verdicts import Verdict


_NUMBERED: Final = re.compile(r"\b((?:data )?word|data|packet|launch) \d+")
"""The numbers in a label that give its place in a stream."""


@dataclass(frozen=True, slots=True)
class Row:
    """A mutant and its verdict."""

    mutant: str
    kind: Kind
    outcome: Outcome
    detail: str
    fact: str | None = None
    """By which it changes nothing; empty without one, None where the vendor knows of none."""

    @property
    def survived(self) -> bool:
        """Whether it counts as not noticed: the same bytes alone prove nothing where facts are known."""
        return self.outcome not in CAUGHT or (self.outcome is Outcome.EQUIVALENT and self.fact == "")


def sample(mutants: Sequence[Mutant], count: int, seed: int, kind: Kind | None) -> list[Mutant]:
    """Return a random sample of one kind, or without a kind a quarter of `count` of each."""
    chosen = random.Random(seed)  # noqa: S311 - a sample, not a secret
    out: list[Mutant] = []
    kinds = (kind,) if kind is not None else KINDS
    for one in kinds:
        alike = [mutant for mutant in mutants if mutant.kind == one]
        out += chosen.sample(alike, min(len(alike), count // len(kinds)))
    return out


def stratified(mutants: Sequence[Mutant], count: int) -> list[Mutant]:
    """Return the first `count` of each kind of place, field and change, in their order.

    A field is the same wherever its packet is in a stream; an ioctl's is the same in each call.
    """
    taken: Counter[tuple[str, ...]] = Counter()
    out = []
    for mutant in mutants:
        key = (mutant.place[0], mutant.space, _NUMBERED.sub(r"\1", mutant.label), mutant.operation)
        taken[key] += 1
        if taken[key] <= count:
            out.append(mutant)
    return out


def rows_of(
    mutants: Sequence[Mutant],
    verdicts: Sequence[Verdict],
    fact: Callable[[Mutant], str | None] = lambda _: None,
) -> list[Row]:
    """Return the mutants with their verdicts; `fact` says why one changes nothing."""
    return [
        Row(str(mutant), mutant.kind, verdict.outcome, verdict.detail, fact(mutant))
        for mutant, verdict in zip(mutants, verdicts, strict=True)
    ]


def score(rows: Sequence[Row]) -> float:
    """Return the share of caught mutants: refused, reported, timed out or equivalent."""
    return sum(not row.survived for row in rows) / len(rows) if rows else 1.0


def text(rows: Sequence[Row], total: int) -> str:
    """Return the report as text."""
    lines = []
    for kind in KINDS:
        part = [row for row in rows if row.kind == kind]
        if part:
            counts = Counter(row.outcome for row in part)
            shown = ", ".join(f"{outcome} {counts[outcome]}" for outcome in Outcome if counts[outcome])
            lines.append(f"{kind}: {score(part):.3f} of {len(part)} ({shown})")
    lines.append(f"score {score(rows):.3f}: {len(rows)} of {total} mutants")
    changing = [row for row in rows if row.outcome is not Outcome.EQUIVALENT or row.survived]
    lines.append(f"without the equivalent ones {score(changing):.3f} of {len(changing)}")
    lines += [
        f"{row.outcome}: {row.mutant}" + (f" ({row.detail})" if row.detail else "")
        for row in rows
        if row.survived
    ]
    facts = Counter(row.fact for row in rows if row.outcome is Outcome.EQUIVALENT and row.fact)
    lines += [f"equivalent, {count}: {fact}" for fact, count in facts.most_common()]
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Run the tool and return its exit status."""
    parser = command("tests.mutants", __doc__)
    parser.add_argument("--sample", type=natural, default=200, help="number of mutants; 0 runs all")
    parser.add_argument("--seed", type=natural, default=1, help="seed of the sample")
    parser.add_argument("--kind", choices=KINDS, help="only mutants of this kind; default: all")
    parser.add_argument(
        "--device", choices=tuple(DEVICES), default=next(iter(DEVICES)), help="(default %(default)s)"
    )
    parser.add_argument("--profile", default="", help="emulated GPU; default: the first")
    parser.add_argument("--driver", default="", help="version of the kernel's driver; default: the first")
    parser.add_argument("--jobs", type=positive, default=2, help="worker processes (default 2)")
    parser.add_argument(
        "--minimum", type=share, default=0.95, help="exit with 1 below this score (default 0.95)"
    )
    parser.add_argument("--json", type=output, metavar="FILE", help="write every verdict")
    parser.add_argument("--list", action="store_true", help="print all mutants as JSON and run none")
    parser.add_argument("--keep", type=Path, help="file of verdicts; a run with the same file continues it")
    parser.add_argument(
        "--each", type=natural, default=0, help="at most so many of each kind of place, field and change"
    )
    parser.add_argument(
        "--seeds", type=positive, default=len(SEEDS), help="orders that each mutant is tried in"
    )
    parser.add_argument(
        "--until-report", action="store_true", help="end each run at the first report of the machine"
    )
    parser.add_argument("--walk", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--timeout", type=float, default=TIMEOUT_S, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    emulated = DEVICES[given.device]
    for name, choices in (("profile", emulated.profiles), ("driver", emulated.drivers)):
        if getattr(given, name) not in {"", *choices}:
            known = ", ".join(choices)
            parser.error(f"argument --{name}: invalid choice: {getattr(given, name)!r} (choose from {known})")
    target = Target(device=given.device, profile=given.profile, driver=given.driver)
    if given.walk is not None:
        walk(
            target,
            given.walk,
            json.load(sys.stdin),
            jobs=given.jobs,
            timeout_s=given.timeout,
            whole=not given.until_report,
        )
        return 0
    if given.list:
        json.dump([asdict(one) for one in Judge(target, seeds=(1,)).mutants], sys.stdout)
        return 0
    mutants = listed(target)
    count = given.sample or len(KINDS) * len(mutants)
    chosen = sample(mutants, count, given.seed, given.kind)
    if given.each:
        chosen = stratified(chosen, given.each)
    verdicts = judge_all(
        target,
        chosen,
        jobs=given.jobs,
        seeds=SEEDS[: given.seeds],
        progress=_show,
        kept=Kept(given.keep),
        known=lambda mutant: bool(emulated.equivalence(mutant)),
        whole=not given.until_report,
    )
    rows = rows_of(chosen, verdicts, emulated.equivalence)
    total = sum(given.kind in {None, mutant.kind} for mutant in mutants)
    sys.stdout.write(text(rows, total) + "\n")
    if given.json is not None:
        given.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return 0 if score(rows) >= given.minimum else 1


def _show(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{text} ")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
