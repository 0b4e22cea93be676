"""Count the calls, files, package transitions and doorbells of one tensor operation: `python -m tools.walk`.

The operation is `(Tensor([2]) + Tensor([3])).realize()`, in four situations: its kernel must be compiled,
its kernel is in the disk cache, its plan is in memory, and `(x + y).realize()` of tensors at hand. Devices
are the CPU and emulated GPUs. Only functions of this repository's packages count, and of an emulated GPU
nothing but the doorbells that it sees. The counts are exact for one Python version, and do not depend on
time.

    python -m tools.walk --device cpu --json    one device, as JSON
    python -m tools.walk --check                fails if a count is above `tools/walk.toml`
    python -m tools.walk --write                lowers the counts kept there; refuses to raise one

A change that needs a higher count edits `tools/walk.toml` by hand, and says why in its commit.

Not here: times (`tools.bench`). The figures are shown in docs/way-of-a-tensor.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Final

from frontend import Device, Tensor
from tools.arguments import command, reported

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import FrameType

ROOT: Final = Path(__file__).resolve().parents[1]
KEPT: Final = ROOT / "tools/walk.toml"
PACKAGES: Final = ("hcq", "drivers", "emulator", "compiler", "frontend")
DEVICES: Final = ("cpu", "nv-emu:sm_90", "amd-emu:gfx1100", "amd-emu:gfx942")
SITUATIONS: Final = ("compile", "disk cache", "new tensors", "operands at hand")
_STORES: Final = frozenset({"write32", "write64"})
"""The methods of `drivers.kernel.Mmio` with which drivers write doorbells."""
_CHANCE: Final = frozenset({"fault", "__call__", "_estimated_bytes", "in_words"})
"""Functions that do not count: waits call `DriverDevice.fault` and `hcq.idle.Standstill` at times; a store
estimates its bytes for one key in 256; hosts with dot instructions look for sums of products of bytes."""
_STEADY: Final = 50
"""Repetitions before the plan counts as known."""
_UNDISTURBED_S: Final = 1000.0
"""The interval after which Python switches threads, in seconds. It is so long that a thread of an emulated
GPU runs only while this thread waits."""


@dataclass(frozen=True, slots=True)
class Counts:
    """The counts of one call."""

    calls: int
    """Calls of Python functions of the packages."""
    files: int
    """Different files that these functions are in."""
    transitions: int
    """Calls of a function in another package than the one called before."""
    depth: int
    """The most nested calls of the packages at one time."""
    doorbells: int
    """Stores to device registers, as the emulated GPU sees them. A CPU has none."""


def count(action: Callable[[], object]) -> Counts:
    """Call `action` in this thread; return the counts of its calls. The thread's profiler is replaced."""
    calls = transitions = depth = deepest = doorbells = 0
    files: set[str] = set()
    package = ""
    skipped: FrameType | None = None

    def profile(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls, transitions, depth, deepest, doorbells, package, skipped
        if event not in {"call", "return"}:
            return
        if skipped is not None:
            if frame is skipped and event == "return":
                skipped = None
            return
        path = Path(frame.f_code.co_filename)
        if not path.is_relative_to(ROOT) or (own := path.relative_to(ROOT).parts[0]) not in PACKAGES:
            return
        name = frame.f_code.co_name
        if own == "emulator" or name in _CHANCE:
            skipped = frame
            doorbells += own == "emulator" and name in _STORES
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
    return Counts(calls, len(files), transitions, deepest, doorbells)


def steady(action: Callable[[], object], idle: Callable[[], object]) -> Counts:
    """Return the counts of the call with the fewest, of `_STEADY`; `idle` waits for the device before each.

    A call makes more where the memory of an earlier operation is not back in its pool yet.
    """
    found: list[Counts] = []
    for _ in range(_STEADY):
        idle()
        found.append(count(action))
    return min(found, key=lambda one: one.calls)


def walk() -> list[Counts]:
    """Return three counts of the operation on the default device.

    In the first the structure is new to this process. The second has new tensors of a known structure. The
    third has operands that are in memory. Python's switch interval is changed for the whole process.
    """

    def operation() -> None:
        (Tensor([2]) + Tensor([3])).realize()

    sys.setswitchinterval(_UNDISTURBED_S)
    device = Device[Device.DEFAULT]
    Tensor([1.5]).realize()
    device.synchronize()
    (Tensor([2.5]) * Tensor([3.5])).realize()  # imports the modules of a launch, which are not counted
    device.synchronize()  # else an operation may wait for those before it, on a loaded machine
    first = count(operation)
    for _ in range(_STEADY):
        operation()
    device.synchronize()
    renewed = steady(operation, device.synchronize)
    x, y = Tensor([2]).realize(), Tensor([3]).realize()

    def launch() -> None:
        (x + y).realize()

    launch()
    device.synchronize()
    return [first, renewed, steady(launch, device.synchronize)]


def measure(device: str) -> dict[str, Counts]:
    """Return the counts of each of `SITUATIONS`, from two processes that share a new cache folder."""
    with tempfile.TemporaryDirectory(prefix="hcq-walk-") as folder:
        clean = {name: text for name, text in os.environ.items() if not name.startswith("HCQ_")}
        environment = clean | {"HCQ_CACHE": folder, "HCQ_DEVICE": device}
        words = [sys.executable, "-m", "tools.walk", "--here"]
        (compiled, *_), (cached, *steady) = (
            [Counts(**one) for one in json.loads(_output(words, environment))] for _ in range(2)
        )
    return dict(zip(SITUATIONS, (compiled, cached, *steady), strict=True))


def _output(words: Sequence[str], environment: Mapping[str, str]) -> str:
    return subprocess.run(
        words, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def risen(
    kept: Mapping[str, Mapping[str, Mapping[str, int]]], found: Mapping[str, Mapping[str, Counts]]
) -> list[str]:
    """Return a line for each count of `found` that is above `kept`, or that `kept` lacks."""
    return [
        f"{device}, {situation}: {name} {now}, kept {most}"
        for device, rows in found.items()
        for situation, counts in rows.items()
        for name, now in asdict(counts).items()
        if now > (most := kept.get(device, {}).get(situation, {}).get(name, -1))
    ]


def _check(found: Mapping[str, Mapping[str, Counts]], *, write: bool) -> int:
    """Compare with the kept counts; return 1 if a count has risen. With `write` keep the lower counts."""
    kept = tomllib.loads(KEPT.read_text(encoding="utf-8"))
    if lines := risen(kept, found):
        print(*lines, sep="\n", file=sys.stderr)
        print(
            "hint: remove the new calls, for which every operation pays; if they are needed, edit "
            f"{KEPT.relative_to(ROOT)}, and say why in the commit",
            file=sys.stderr,
        )
        return 1
    if write:
        text = "# The most that one tensor operation may call. `python -m tools.walk --write` lowers it.\n"
        for device, rows in (kept | {name: _plain(rows) for name, rows in found.items()}).items():
            text += f'\n["{device}"]\n'
            for situation, counts in rows.items():
                text += f'"{situation}" = {{ {", ".join(f"{name} = {n}" for name, n in counts.items())} }}\n'
        KEPT.write_text(text, encoding="utf-8")
    return 0


def _plain(rows: Mapping[str, Counts]) -> dict[str, dict[str, int]]:
    return {situation: asdict(counts) for situation, counts in rows.items()}


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table, or with --json one JSON object; return the exit status."""
    parser = command("tools.walk", __doc__)
    parser.add_argument("--device", action="append", choices=DEVICES, help="where (default: all)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--check", action="store_true", help="fail if a count is above the kept one")
    parser.add_argument("--write", action="store_true", help="lower the kept counts")
    parser.add_argument("--here", action="store_true", help="count in this process, on HCQ_DEVICE")
    options = parser.parse_args(argv)
    if options.here:
        print(json.dumps([asdict(one) for one in walk()]))
        return 0
    found = {device: measure(device) for device in options.device or DEVICES}
    if options.json:
        print(json.dumps({device: _plain(rows) for device, rows in found.items()}))
    else:
        print(f"{'device':16s} {'situation':17s}", *[f"{item.name:>11s}" for item in fields(Counts)])
        for device, rows in found.items():
            for name, one in rows.items():
                print(f"{device:16s} {name:17s}", *[f"{n:11d}" for n in asdict(one).values()])
    return _check(found, write=options.write) if options.check or options.write else 0


if __name__ == "__main__":
    sys.exit(reported(main))
