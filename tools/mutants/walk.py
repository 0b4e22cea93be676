"""Many mutants: a process walks the scenario once a seed (`branches`), this one asks seed after seed."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from hcq.errors import HcqError
from tools.mutants.branches import Branches, keep_devices_over_forks
from tools.mutants.interpose import Interposer
from tools.mutants.judge import TIMEOUT_S, Judge
from tools.mutants.verdicts import SEEDS, Outcome, Verdict, overall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tools.mutants.sites import Mutant, Place

PATIENT_S: Final = 10.0
"""How long waits last where a mutant was slow or hung at first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What is driven: a profile of the emulated GPU and a driver branch."""

    profile: str = "sm_90"
    driver: str = "580"


def judge_all(
    target: Target,
    numbers: Sequence[int],
    *,
    jobs: int,
    seeds: Sequence[int] = SEEDS,
    progress: Callable[[str], None] = lambda _: None,
) -> dict[int, Verdict]:
    """Return the verdicts on mutants, `jobs` of them at work at a time; under fewer seeds, the first's."""
    seen: dict[int, dict[int, Verdict]] = {number: {} for number in numbers}
    left = list(numbers)
    for seed in seeds:
        if not left:
            break
        again = []
        for count, (number, verdict) in enumerate(_walk(target, seed, left, jobs=jobs), 1):
            seen[number][seed] = verdict
            if verdict.outcome in {Outcome.SLOW, Outcome.HUNG}:
                again.append(number)
            progress(f"seed {seed}: {count} of {len(left)}")
        for number, verdict in _walk(target, seed, again, jobs=1, timeout_s=PATIENT_S) if again else ():
            seen[number][seed] = verdict
        missing = [number for number in left if seed not in seen[number]]
        if missing:
            raise HcqError(f"under seed {seed} the places of mutants {missing[:5]} were never reached")
        left = [number for number in left if overall(seen[number]) is None]
    return {number: overall(verdicts) or verdicts[seeds[0]] for number, verdicts in seen.items()}


def _walk(
    target: Target, seed: int, numbers: Iterable[int], *, jobs: int, timeout_s: float = TIMEOUT_S
) -> Iterator[tuple[int, Verdict]]:
    """Yield verdicts under one seed, in the order in which they are found."""
    words = f"--walk {seed} --profile {target.profile} --driver {target.driver} --jobs {jobs}"
    words += f" --timeout {timeout_s}"
    command = [sys.executable, "-m", "tools.mutants", *words.split()]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdin is not None  # both are pipes
        assert process.stdout is not None
        process.stdin.write(json.dumps(list(numbers)).encode())
        process.stdin.close()
        for line in process.stdout:
            number, _, told = line.partition(b" ")
            yield int(number), Verdict.from_json(told)
    if process.returncode:
        raise HcqError(f"a walk ended with {process.returncode}; run it by hand: {' '.join(command)}")


def walk(target: Target, seed: int, numbers: Sequence[int], *, jobs: int, timeout_s: float) -> None:
    """Judge mutants under one seed; each verdict is a line of standard output."""
    keep_devices_over_forks()
    judge = Judge(target.profile, target.driver, seeds=(1,), timeout_s=timeout_s)
    wanted: dict[Place, list[tuple[int, Mutant]]] = defaultdict(list)
    for number in numbers:
        mutant = judge.mutants[number]
        wanted[mutant.place].append((number, mutant))

    def done(number: int, verdict: Verdict) -> None:
        sys.stdout.write(f"{number} {json.dumps(asdict(verdict))}\n")
        sys.stdout.flush()

    gc.collect()
    gc.freeze()  # children then copy no page only because the collector marked it
    gc.disable()
    machine = judge.machine(seed)
    branches = Branches(machine, wanted, jobs=jobs, done=done)
    verdict = judge.run(machine, Interposer(machine, lambda place: judge.of_mutant(branches.at(place))))
    if branches.child:
        branches.finish(verdict)
    branches.wait()
    if verdict.outcome is not Outcome.EQUIVALENT:
        raise HcqError(f"the unchanged driver under seed {seed}: {verdict.outcome} {verdict.detail}")
    machine.shut()
