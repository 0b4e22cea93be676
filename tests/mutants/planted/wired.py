"""Run programs of drivers with changes on the wire: a line of stdin is JSON, [DRIVER, DEVICE, CHANGE, LIMIT].

CHANGE is the name of a bug, or a mutant as an object; "" and null change nothing. Each runs in a forked
child, which prints the outcome as `tests.mutants.planted.outcome` does, and for null a list of all mutants;
an empty line follows. A change that met no place gives the outcome `unplanted`, and a run of more than LIMIT
seconds `hung`.

Not here: the bugs and their program (`catalogs`), starting this in a child process (`run`), making mutants
(`tests.mutants.interpose`).
"""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import asdict
from typing import Any

from hcq.config import override
from hcq.registry import wrap
from tests.mutants.interpose import Interposer
from tests.mutants.planted.catalogs import WIRES
from tests.mutants.planted.outcome import report
from tests.mutants.planted.wire import Interposed
from tests.mutants.sites import Mutant

REPEATED = "laps"
"""The part that makes the same submission hundreds of times: its mutants are those of the other parts."""


def main() -> None:
    """Run what stdin asks for. The process has one thread, so that a child may go on from its state."""
    for line in sys.stdin:
        folder, device, change, limit_s = json.loads(line)
        child = os.fork()
        if child == 0:
            signal.alarm(limit_s)
            _run(folder, device, change)
            sys.stdout.flush()
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status:
            outcome = "hung" if status == -signal.SIGALRM else "untyped"
            sys.stdout.write(json.dumps({"outcome": outcome, "type": f"exit {status}", "text": ""}) + "\n")
        sys.stdout.write("\n")
        sys.stdout.flush()


def _run(folder: str, device: str, change: str | dict[str, Any] | None) -> None:
    wires = WIRES[folder]
    gpu, _, version = device.partition("+")
    machine = wires.open(gpu, version)
    wire: Interposed | Interposer
    if isinstance(change, str):
        bug = next((one for one in wires.bugs if one.name == change), None)
        wire = Interposed(machine, bug.changes if bug is not None else ())
        parts = (bug.parts if bug is not None else ()) or wires.parts
    else:
        wire = Interposer(machine, None if change is None else Mutant.from_json(change))
        parts = tuple(part for part in wires.parts if part != REPEATED)

    def play() -> None:
        driver = machine.driver(wire).open(0, None)
        device = wrap(driver, validate=True, seed=1, trace="", profile=False, counters="", emulated=True)
        wires.program(device, machine.kernel).play(parts)

    with override(ring_bytes=wires.ring_bytes):
        report(play)
    if change is None:
        sys.stdout.write(json.dumps([asdict(one) for one in wire.found]) + "\n")
    elif wire.missed:
        names = "; ".join(map(str, wire.missed.values()))
        sys.stdout.write(json.dumps({"outcome": "unplanted", "type": "", "text": names}) + "\n")


if __name__ == "__main__":
    main()
