"""Runs of many mutants: for each seed a process runs the scenario and forks a child per mutant (`branches`).

Not here: a single mutant (`judge`), the verdict over several seeds (`verdicts`).
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from collections import defaultdict
from dataclasses import asdict
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, Final

from hcq.errors import HcqError
from tests.mutants.branches import Branches, keep_devices_over_forks
from tests.mutants.interpose import Interposer
from tests.mutants.judge import TIMEOUT_S, Judge, reported
from tests.mutants.kept import Kept
from tests.mutants.sites import Mutant
from tests.mutants.verdicts import FEW_SEEDS, SEEDS, Outcome, Verdict, overall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tests.mutants.devices import Target
    from tests.mutants.sites import Place

PATIENT_S: Final = 120.0
"""Limit of waits, in seconds, in the second run of a mutant that was slow or hung."""
_SHOWN: Final = 2000
"""Characters of a failed process's output that its error shows."""


def judge_all(
    target: Target,
    mutants: Sequence[Mutant],
    *,
    jobs: int,
    seeds: Sequence[int] = SEEDS,
    progress: Callable[[str], None] = lambda _: None,
    kept: Kept | None = None,
    known: Callable[[Mutant], bool] = lambda _: False,
    whole: bool = True,
) -> list[Verdict]:
    """Return the verdict on each mutant, with at most `jobs` children at a time.

    `kept` has the verdicts of earlier runs; each new one is added to it. Where `known` says that a fact
    makes a mutant equivalent, `FEW_SEEDS` decide. Without `whole` a run ends at the first report.
    """
    kept = kept or Kept(None)
    seen = [kept.of(mutant) for mutant in mutants]
    enough = [FEW_SEEDS if known(mutant) else SEEDS for mutant in mutants]

    def record(number: int, seed: int, verdict: Verdict) -> None:
        seen[number][seed] = verdict
        kept.add(mutants[number], seed, verdict)

    for seed in seeds:
        decided = [overall(verdicts, enough[number]) is not None for number, verdicts in enumerate(seen)]
        left = [
            number for number, verdicts in enumerate(seen) if not decided[number] and seed not in verdicts
        ]
        if not left:
            continue
        again = []
        walked = _walk(target, seed, _some(mutants, left), jobs=jobs, whole=whole)
        for count, (number, verdict) in enumerate(walked, 1):
            if verdict.outcome in {Outcome.SLOW, Outcome.HUNG}:
                again.append(number)
            else:
                record(number, seed, verdict)
            progress(f"seed {seed}: {count} of {len(left)}")
        patient = (
            _walk(target, seed, _some(mutants, again), jobs=1, timeout_s=PATIENT_S, whole=whole)
            if again
            else ()
        )
        for number, verdict in patient:
            record(number, seed, verdict)
        missing = [str(mutants[number]) for number in left if seed not in seen[number]]
        if missing:
            raise HcqError(
                f"under seed {seed} the places of {len(missing)} mutants were never reached: {missing[:5]}"
            )
    return [overall(verdicts, enough[number]) or verdicts[seeds[0]] for number, verdicts in enumerate(seen)]


def listed(target: Target) -> list[Mutant]:
    """Return all mutants, found in a new process.

    A process that opened devices before may make other calls: another page of signals is one more ioctl.
    """
    done = subprocess.run(_command(target, "--list"), stdout=subprocess.PIPE, check=True)
    return [Mutant.from_json(one) for one in json.loads(done.stdout)]


def _command(target: Target, words: str) -> list[str]:
    device = (f"--device={target.device}", f"--profile={target.profile}", f"--driver={target.driver}")
    return [sys.executable, "-m", "tests.mutants", *words.split(), *device]


def _some(mutants: Sequence[Mutant], numbers: Iterable[int]) -> dict[int, Mutant]:
    return {number: mutants[number] for number in numbers}


def _walk(
    target: Target,
    seed: int,
    mutants: Mapping[int, Mutant],
    *,
    jobs: int,
    timeout_s: float = TIMEOUT_S,
    whole: bool = True,
) -> Iterator[tuple[int, Verdict]]:
    """Yield number and verdict of each mutant under one seed, in order of completion."""
    until = "" if whole else "--until-report"
    command = _command(target, f"--walk {seed} --jobs {jobs} --timeout {timeout_s} {until}")
    with (
        TemporaryFile() as errors,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        assert process.stdin is not None  # both are pipes
        assert process.stdout is not None
        process.stdin.write(json.dumps({number: asdict(one) for number, one in mutants.items()}).encode())
        process.stdin.close()
        for line in process.stdout:
            number, _, verdict = line.partition(b" ")
            yield int(number), Verdict.from_json(verdict)
        if process.wait():
            errors.seek(0)
            last = errors.read().decode(errors="replace")[-_SHOWN:]
            raise HcqError(f"a walk ended with {process.returncode} ({' '.join(command)}):\n{last}")


def walk(
    target: Target, seed: int, mutants: Mapping[str, Any], *, jobs: int, timeout_s: float, whole: bool
) -> None:
    """Run the mutants of `_walk` under one seed; write each verdict as a line to stdout."""
    keep_devices_over_forks()
    judge = Judge(target, seeds=(1,), timeout_s=timeout_s)
    wanted: dict[Place, list[tuple[int, Mutant]]] = defaultdict(list)
    known = set(judge.mutants)
    for number, one in mutants.items():
        mutant = Mutant.from_json(one)
        if mutant not in known:
            raise HcqError(f"{mutant} does not exist in this scenario\nhint: take mutants from `listed`")
        wanted[mutant.place].append((int(number), mutant))

    def done(number: int, verdict: Verdict) -> None:
        sys.stdout.write(f"{number} {json.dumps(asdict(verdict))}\n")
        sys.stdout.flush()

    gc.collect()
    gc.freeze()  # so that the collector in a child does not write to, and thereby copy, shared pages
    gc.disable()
    machine = judge.machine(seed)
    branches = Branches(machine, wanted, jobs=jobs, done=done)

    def end_at_report() -> None:
        verdict = reported(machine) if branches.child else None
        if verdict is not None:
            branches.finish(verdict)

    def choose(place: Place) -> Mutant | None:
        return judge.of_mutant(branches.at(place))

    interposer = Interposer(machine, choose) if whole else Interposer(machine, choose, after=end_at_report)
    verdict = judge.run(machine, interposer)
    if branches.child:
        branches.finish(verdict)
    branches.wait()
    if verdict.outcome is not Outcome.EQUIVALENT:
        raise HcqError(f"the unchanged driver under seed {seed}: {verdict.outcome} {verdict.detail}")
    machine.close()
