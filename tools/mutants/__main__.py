"""`python -m tools.mutants --sample 200 --seed 1 [--kind stream|ioctl] [--profile sm_90] [--json FILE]`.

Prints the score and the survivors, one a line; exits non-zero below `--minimum`. Mutants run in child
processes with a time limit each: one that hangs or kills its process is a survivor, and the run goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, Literal

from tools.mutants.judge import CAUGHT, SEEDS, Judge, Outcome, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tools.mutants.sites import Mutant

LIMIT_S: Final = 30.0
"""For one mutant under all its seeds."""
_START_S: Final = 60.0
_IOCTL: Final = frozenset({"ioctl", "params", "call"})

Kind = Literal["stream", "ioctl"]


@dataclass(frozen=True, slots=True)
class Row:
    """A mutant and its verdict."""

    mutant: str
    kind: Kind
    outcome: Outcome
    detail: str


def kind_of(mutant: Mutant) -> Kind:
    """Return whether a mutant is one of ioctls or of what doorbells submit."""
    return "ioctl" if mutant.space in _IOCTL else "stream"


def sample(mutants: Sequence[Mutant], count: int, seed: int, kind: Kind | None) -> list[int]:
    """Return the numbers of a sample; without a kind, half of it is of each."""
    chosen = random.Random(seed)  # noqa: S311 - a sample, not a secret
    out: list[int] = []
    kinds: tuple[Kind, ...] = (kind,) if kind is not None else ("stream", "ioctl")
    for one in kinds:
        numbers = [i for i, mutant in enumerate(mutants) if kind_of(mutant) == one]
        out += chosen.sample(numbers, min(len(numbers), count // len(kinds)))
    return out


class Child:
    """A process that judges one mutant after another; started again after each that leaves a mess."""

    def __init__(self, profile: str) -> None:
        self._command = [sys.executable, "-m", "tools.mutants", "--worker", "--profile", profile]
        self._process: subprocess.Popen[bytes] | None = None

    def _start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._process = process
        if self._line(_START_S) != "ready":
            self.stop()
            raise RuntimeError(f"a worker did not start; run it by hand: {' '.join(self._command)}")
        return process

    def judge(self, number: int) -> Verdict:
        """Return the verdict on the mutant of that number."""
        process = self._process or self._start()
        assert process.stdin is not None
        process.stdin.write(f"{number}\n".encode())
        process.stdin.flush()
        line = self._line(LIMIT_S)
        if not line:
            self.stop()
            ended = process.returncode
            return Verdict(Outcome.HUNG, f"more than {LIMIT_S:.0f} s, or the process ended itself ({ended})")
        verdict = Verdict(**json.loads(line))
        if not verdict.clean:
            self.stop()
        return Verdict(Outcome(verdict.outcome), verdict.detail, verdict.clean)

    def _line(self, timeout_s: float) -> str:
        assert self._process is not None and self._process.stdout is not None  # noqa: PT018 - one fact
        ready, _, _ = select.select([self._process.stdout], [], [], timeout_s)
        return self._process.stdout.readline().decode().strip() if ready else ""

    def stop(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()
            self._process = None


def judge_all(mutants: Sequence[Mutant], numbers: Sequence[int], *, profile: str, jobs: int) -> list[Row]:
    """Judge mutants in `jobs` processes; rows come in the order of the numbers."""
    todo: SimpleQueue[int] = SimpleQueue()
    for number in numbers:
        todo.put(number)
    rows: dict[int, Row] = {}

    def work() -> None:
        child = Child(profile)
        try:
            while True:
                number = todo.get_nowait()
                verdict = child.judge(number)
                one = mutants[number]
                rows[number] = Row(str(one), kind_of(one), verdict.outcome, verdict.detail)
                if sys.stderr.isatty():
                    sys.stderr.write(f"\r{len(rows)} of {len(numbers)} ")
        except Empty:
            return
        finally:
            child.stop()

    with ThreadPoolExecutor(jobs) as pool:
        for future in [pool.submit(work) for _ in range(jobs)]:
            future.result()
    return [rows[number] for number in numbers]


def score(rows: Sequence[Row]) -> float:
    """Return the share that was refused, reported or equivalent."""
    return sum(row.outcome in CAUGHT for row in rows) / len(rows) if rows else 1.0


def text(rows: Sequence[Row], total: int) -> str:
    """Return the report."""
    lines = []
    for kind in ("stream", "ioctl"):
        part = [row for row in rows if row.kind == kind]
        if part:
            counts = Counter(row.outcome for row in part)
            shown = ", ".join(f"{outcome} {counts[outcome]}" for outcome in Outcome if counts[outcome])
            lines.append(f"{kind}: {score(part):.3f} of {len(part)} ({shown})")
    lines.append(f"score {score(rows):.3f}: {len(rows)} of {total} mutants")
    changing = [row for row in rows if row.outcome is not Outcome.EQUIVALENT]
    lines.append(f"without the equivalent ones {score(changing):.3f} of {len(changing)}")
    lines += [
        f"{row.outcome}: {row.mutant}" + (f" ({row.detail})" if row.detail else "")
        for row in rows
        if row.outcome not in CAUGHT
    ]
    return "\n".join(lines)


def worker(profile: str) -> int:
    """Read numbers of mutants, write verdicts."""
    judge = Judge(profile, seeds=SEEDS[:1])
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        verdict = judge.judge(judge.mutants[int(line)])
        sys.stdout.write(json.dumps(asdict(verdict)) + "\n")
        sys.stdout.flush()
        if not verdict.clean:
            os._exit(0)  # a device that hangs would take its time to close
    return 0


def main(arguments: Sequence[str]) -> int:
    """Run a sample."""
    parser = argparse.ArgumentParser(prog="tools.mutants", description=__doc__)
    parser.add_argument("--sample", type=int, default=200, help="mutants; 0 runs all")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    parser.add_argument("--kind", choices=("stream", "ioctl"))
    parser.add_argument("--profile", choices=("sm_80", "sm_90", "sm_120"), default="sm_90")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--minimum", type=float, default=0.95)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.worker:
        return worker(given.profile)
    mutants = Judge(given.profile).mutants
    count = given.sample or 2 * len(mutants)
    numbers = sample(mutants, count, given.seed, given.kind)
    rows = judge_all(mutants, numbers, profile=given.profile, jobs=given.jobs)
    total = sum(given.kind in {None, kind_of(mutant)} for mutant in mutants)
    sys.stdout.write(text(rows, total) + "\n")
    if given.json is not None:
        given.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return 0 if score(rows) >= given.minimum else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
