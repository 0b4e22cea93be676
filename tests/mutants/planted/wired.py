"""Run programs of drivers with a bug on the wire: a line of stdin is JSON, [DRIVER, NAME of the bug, DEVICE].

Each runs in a forked child, which prints the outcome as `tests.mutants.planted.outcome` does; an empty line
follows. With no name nothing is changed. A change that met no place gives the outcome `unplanted`.

Not here: the bugs and their program (`catalogs`), starting this in a child process (`run`).
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Final

from hcq.config import override
from hcq.registry import wrap
from tests.mutants.planted.catalogs import WIRES
from tests.mutants.planted.outcome import report
from tests.mutants.planted.wire import Interposed

_LIMIT_S: Final = 900
"""Seconds after which a child counts as hung."""


def main() -> None:
    """Run what stdin asks for. The process has one thread, so that a child may go on from its state."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            signal.alarm(_LIMIT_S)
            _run(*json.loads(line))
            sys.stdout.flush()
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status:
            outcome = "hung" if status == -signal.SIGALRM else "untyped"
            sys.stdout.write(json.dumps({"outcome": outcome, "type": f"exit {status}", "text": ""}) + "\n")
        sys.stdout.write("\n")
        sys.stdout.flush()


def _run(folder: str, name: str, device: str) -> None:
    wires = WIRES[folder]
    bug = next((one for one in wires.bugs if one.name == name), None)
    gpu, _, version = device.partition("+")
    machine = wires.open(gpu, version)
    wire = Interposed(machine, bug.changes if bug is not None else ())
    parts = (bug.parts if bug is not None else ()) or wires.parts

    def play() -> None:
        driver = machine.driver(wire).open(0, None)
        device = wrap(driver, validate=True, seed=1, trace="", profile=False, counters="", emulated=True)
        wires.program(device, machine.kernel).play(parts)

    with override(ring_bytes=wires.ring_bytes):
        report(play)
    if wire.missed:
        names = "; ".join(map(str, wire.missed.values()))
        sys.stdout.write(json.dumps({"outcome": "unplanted", "type": "", "text": names}) + "\n")


if __name__ == "__main__":
    main()
