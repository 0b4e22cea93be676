"""Run the program of a driver with a bug on the wire: arguments DRIVER, NAME of the bug, DEVICE.

It prints the outcome as `tests.mutants.planted.outcome` does. With no name nothing is changed. A change that
met no place gives the outcome `unplanted`.

Not here: the bugs and their program (`catalogs`), starting this in a child process (`run`).
"""

from __future__ import annotations

import json
import sys

from hcq.config import override
from hcq.registry import wrap
from tests.mutants.planted.catalogs import WIRES
from tests.mutants.planted.outcome import report
from tests.mutants.planted.wire import Interposed


def main() -> None:
    """Run one."""
    folder, name, device = sys.argv[1:4]
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
