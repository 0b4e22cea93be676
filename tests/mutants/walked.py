"""Run the program of a driver with one mutant: arguments DRIVER, DEVICE; the mutant as JSON on stdin.

It prints the outcome as `tests.mutants.planted.outcome` does. For `null` nothing is changed, and the mutants
that are possible follow as a JSON list.

Not here: choosing mutants (`tests.mutants.__main__`), making them (`interpose`).
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from hcq.config import override
from hcq.registry import wrap
from tests.mutants.interpose import Interposer
from tests.mutants.planted.catalogs import WIRES
from tests.mutants.planted.outcome import report
from tests.mutants.sites import Mutant

if TYPE_CHECKING:
    from tests.mutants.sites import Place

REPEATED = "laps"
"""The part that makes the same submission hundreds of times: its mutants are those of the other parts."""


def main() -> None:
    """Run one."""
    folder, name = sys.argv[1:3]
    wires = WIRES[folder]
    data = json.load(sys.stdin)
    mutant = None if data is None else Mutant.from_json(data)
    made: list[Place] = []

    def choose(place: Place) -> Mutant | None:
        if mutant is None or place != mutant.place:
            return None
        made.append(place)
        return mutant

    gpu, _, version = name.partition("+")
    machine = wires.open(gpu, version)
    wire = Interposer(machine, None if mutant is None else choose)

    def play() -> None:
        driver = machine.driver(wire).open(0, None)
        device = wrap(driver, validate=True, seed=1, trace="", profile=False, counters="", emulated=True)
        parts = [part for part in wires.parts if part != REPEATED]
        wires.program(device, machine.kernel).play(parts)

    with override(ring_bytes=wires.ring_bytes):
        report(play)
    if mutant is None:
        sys.stdout.write(json.dumps([asdict(one) for one in wire.found]) + "\n")
    elif not made:
        sys.stdout.write(json.dumps({"outcome": "unplanted", "type": "", "text": str(mutant)}) + "\n")


if __name__ == "__main__":
    main()
