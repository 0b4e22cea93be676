"""One run of the scenario that forks a child for each mutant at the mutant's place.

The part before a place runs once for all its mutants. A child has a copy of the process, of the emulated GPU
and of its memory, and runs the scenario to its end, while the parent continues to the next place.

Not here: a run in a new process (`judge`). Next: `walk`, the caller; `ownmemory`, the memory of a child.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from hcq import process
from tests.mutants.ownmemory import Snapshot
from tests.mutants.verdicts import Outcome, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.mutants.emulated import Machine
    from tests.mutants.sites import Mutant, Place

LIMIT_S: Final = 900.0
"""Time limit, in seconds, of one mutant under one seed; only one that sleeps reaches it."""
CPU_LIMIT_S: Final = 60
"""Limit of its CPU time, in seconds; it takes less than one."""
_READ: Final = 1 << 16


@dataclass(slots=True)
class _Running:
    """A running child; `ends` is its deadline on the monotonic clock."""

    pid: int
    number: int
    ends: float


class Branches:
    """Starts a child for each mutant, at most `jobs` at a time.

    `done` is called with each number and verdict.
    """

    def __init__(
        self,
        machine: Machine,
        wanted: Mapping[Place, Sequence[tuple[int, Mutant]]],
        *,
        jobs: int,
        done: Callable[[int, Verdict], None],
    ) -> None:
        self._machine = machine
        self._wanted = wanted
        self._jobs = jobs
        self._done = done
        self._running: dict[int, _Running] = {}
        self._pipe = -1

    @property
    def child(self) -> bool:
        """Whether this process runs a mutant and must report a verdict."""
        return self._pipe >= 0

    def at(self, place: Place) -> Mutant | None:
        """Start the children of a place; return None in the parent, and in each child its mutant."""
        todo = self._wanted.get(place) if not self.child else None
        if not todo:
            return None
        self._machine.pause()  # a child has no other threads
        memory = Snapshot()
        for number, mutant in todo:
            while len(self._running) >= self._jobs:
                self._reap()
            if self._fork(number):
                memory.own()
                self._machine.resume()
                return mutant
        self._machine.resume()
        return None

    def wait(self) -> None:
        """Wait for all children."""
        while self._running:
            self._reap()

    def _fork(self, number: int) -> bool:
        """Fork a child; return True in the child."""
        inward, outward = os.pipe()
        sys.stdout.flush()
        pid = os.fork()
        if pid:
            os.close(outward)
            self._running[inward] = _Running(pid, number, time.monotonic() + LIMIT_S)
            return False
        os.close(inward)
        self._pipe = outward
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT_S, CPU_LIMIT_S))
        return True

    def finish(self, verdict: Verdict) -> None:
        """Report the verdict of this child and exit."""
        os.write(self._pipe, json.dumps(asdict(verdict)).encode())
        os._exit(0)

    def _reap(self) -> None:
        """Wait until a child reports or exceeds its limit; then call `done`."""
        left = min(one.ends for one in self._running.values()) - time.monotonic()
        ready, _, _ = select.select(tuple(self._running), [], [], max(0.0, left))
        now = time.monotonic()
        late = [fd for fd, one in self._running.items() if one.ends <= now and fd not in ready]
        for fd in (*ready, *late):
            one = self._running.pop(fd)
            if fd in late:
                os.kill(one.pid, signal.SIGKILL)
            line = os.read(fd, _READ) if fd in ready else b""
            os.close(fd)
            _, status = os.waitpid(one.pid, 0)
            if line:
                verdict = Verdict.from_json(line)
            elif fd in late:
                verdict = Verdict(Outcome.HUNG, f"more than {LIMIT_S:.0f} s")
            else:
                verdict = Verdict(
                    Outcome.HUNG, f"the process exited with status {os.waitstatus_to_exitcode(status)}"
                )
            self._done(one.number, verdict)


def keep_devices_over_forks() -> None:
    """Allow forked children to use open devices; call it before the first device is opened.

    `hcq` refuses devices in forked children, because two processes cannot drive one GPU. A child of
    `Branches` has a copy of the emulated GPU.
    """
    process.keep_over_forks()
