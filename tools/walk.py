"""Counts the calls, files and package transitions of one tensor operation: `python -m tools.walk [--json]`.

The operation is `(Tensor([2]) + Tensor([3])).realize()`, in three situations: its kernel must be compiled,
its kernel is in the disk cache, its plan is in memory. The counts are exact for one Python version, and do
not depend on time. Only functions of this repository's packages count.

Not here: times (`tools.bench`). The figures are shown in docs/way-of-a-tensor.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from frontend import Device, Tensor
from tools.arguments import command

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGES: Final = ("hcq", "drivers", "emulator", "compiler", "frontend")
SITUATIONS: Final = ("compile", "disk cache", "steady state")
_STEADY: Final = 50
"""Repetitions before the steady state is counted."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What one call made."""

    calls: int
    """Calls of Python functions of the packages."""
    files: int
    """Different files that these functions are in."""
    transitions: int
    """Calls of a function in another package than the one called before."""
    depth: int
    """The most nested calls of the packages at one time."""


def count(action: Callable[[], object]) -> Counts:
    """Call `action` in this thread; return what it called."""
    calls = transitions = depth = deepest = 0
    files: set[str] = set()
    package = ""

    def profile(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls, transitions, depth, deepest, package
        if event not in {"call", "return"}:
            return
        path = Path(frame.f_code.co_filename)
        if not path.is_relative_to(ROOT) or (own := path.relative_to(ROOT).parts[0]) not in PACKAGES:
            return
        if event == "return":
            depth -= 1
            return
        depth += 1
        calls, deepest = calls + 1, max(deepest, depth)
        files.add(str(path))
        transitions += package not in {"", own}
        package = own

    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(None)
    return Counts(calls, len(files), transitions, deepest)


def walk() -> tuple[Counts, Counts]:
    """Return the counts of the operation when its structure is new to this process, and in steady state."""

    def operation() -> None:
        (Tensor([2]) + Tensor([3])).realize()

    Tensor([1.5]).realize()
    (Tensor([2.5]) * Tensor([3.5])).realize()  # imports the modules of a launch, which are not counted
    first = count(operation)
    for _ in range(_STEADY):
        operation()
    Device["cpu"].synchronize()  # else the operation may wait for those before it, on a loaded machine
    return first, count(operation)


def measure() -> dict[str, Counts]:
    """Return the counts of each situation, from two processes that share a new cache folder."""
    with tempfile.TemporaryDirectory(prefix="hcq-walk-") as folder:
        environment = os.environ | {"HCQ_CACHE": folder, "HCQ_DEVICE": "cpu"}
        command = [sys.executable, "-m", "tools.walk", "--here"]
        outputs = [
            subprocess.run(
                command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True
            ).stdout
            for _ in range(2)
        ]
    (compiled, _), (cached, steady) = ([Counts(**one) for one in json.loads(text)] for text in outputs)
    return dict(zip(SITUATIONS, (compiled, cached, steady), strict=True))


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table, or with --json one JSON object; return the exit status."""
    parser = command("tools.walk", __doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--here", action="store_true", help="count in this process: new structure, steady state"
    )
    options = parser.parse_args(argv)
    if options.here:
        print(json.dumps([asdict(one) for one in walk()]))
        return 0
    found = measure()
    if options.json:
        print(json.dumps({name: asdict(counts) for name, counts in found.items()}))
        return 0
    print(f"{'situation':14s} {'calls':>6s} {'files':>6s} {'transitions':>12s} {'depth':>6s}")
    for name, one in found.items():
        print(f"{name:14s} {one.calls:6d} {one.files:6d} {one.transitions:12d} {one.depth:6d}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
