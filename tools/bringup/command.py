"""Bring a GPU up one rung at a time, and report the rung at which it stops.

    python -m tools.bringup                    every rung, on NVIDIA GPU 0
    python -m tools.bringup --device amd       every rung, on AMD GPU 0
    python -m tools.bringup --from 12 --to 18  some of them
    python -m tools.bringup --prepare kernels  build the ladder's kernels beforehand, without a GPU
    python -m tools.bringup --emulate sm_80    on an emulated GPU
    python -m tools.bringup --dry              against a scripted driver: no GPU, nothing is computed

Each rung runs in a child process with a time limit, while this process keeps the node of an NVIDIA GPU open,
which keeps the GPU up. A rung that fails leaves out only those that need it. Where public sources leave a
value in doubt, the other values are tried as well, and those that work are reported; when only another one
works, the rungs above use it (`ladder`). No clocks are changed unless --boost is given. The last rung causes
a fault on purpose. Exit status: 0 when every rung passed, 1 when one failed, 2 for wrong arguments.

Not here: the rungs (`tools.bringup.nv`, `tools.bringup.amd`), their evidence (`evidence`).
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from drivers.kernel import TracingKernel
from hcq.errors import HcqError, UnsupportedError, UsageError
from tools.bench.rows import four_digits
from tools.bringup.amd.table import AMD
from tools.bringup.evidence import Trace
from tools.bringup.ladder import Ladder
from tools.bringup.nv.table import NV
from tools.bringup.rung import Result, Rung
from tools.bringup.vendor import Given, Vendor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drivers.kernel import Kernel

VENDORS: Final[tuple[Vendor[Any], ...]] = (NV, AMD)
"""The first is meant where no vendor is named."""


def run_child(arguments: argparse.Namespace, kernel: Kernel | None = None) -> int:
    """Run one rung here, print its result as JSON, and return the exit status.

    `kernel` takes the place of the one that the arguments name.
    """
    vendor: Vendor[Any] = arguments.vendor
    rung = next(rung for rung in vendor.rungs if rung.number == arguments.child)
    choices = vendor.parse(arguments.choices)
    trace = Trace(_path(arguments.trace), vendor.line)
    kernel = kernel or vendor.make_kernel(dry=arguments.dry, emulate=arguments.emulate)
    given = Given(
        index=arguments.device,
        dry=arguments.dry,
        emulate=arguments.emulate,
        kernels=_path(arguments.kernels),
        boost=arguments.boost,
    )
    bench = vendor.bench(TracingKernel(kernel, trace.note), choices, given)
    result = Result(rung.number, rung.name, vendor.describe(choices), passed=False, seconds=0.0)
    start = time.perf_counter()
    try:
        _run(rung, vendor, bench, result)
        result.passed = True
    except HcqError as error:
        result.error = f"{type(error).__name__}: {error}"
        result.offered = not isinstance(error, UnsupportedError)
    except Exception:  # noqa: BLE001 - any failure is the result of this rung
        result.error = traceback.format_exc()
    result.seconds = time.perf_counter() - start
    result.calls = [] if result.passed else trace.last
    trace.close()
    sys.stdout.write(json.dumps(asdict(result), default=str) + "\n")
    return 0 if result.passed else 1


def _run(rung: Rung, vendor: Vendor[Any], bench: Any, result: Result) -> None:
    """Run a rung; what lies in its rings when it fails is read before they are closed."""
    with bench.stack:
        try:
            result.facts = rung.run(bench)
        except Exception:
            result.memory = vendor.memory(bench)
            raise


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None


class Teller:
    """Prints results for people, on stderr, as they arrive."""

    def __init__(self, *, verbose: bool) -> None:
        self._verbose = verbose

    def __call__(self, result: Result) -> None:
        """Print one result: a line for a variant, all evidence for a failure."""
        sys.stderr.write(heading(result) + "\n")
        if result.variant and not self._verbose:
            sys.stderr.write(f"          {said}\n" if (said := first_line(result.error)) else "")
            return
        for name, value in ({} if result.variant and result.passed else result.facts).items():
            sys.stderr.write(f"          {name}: {readable(value)}\n")
        if result.error:
            sys.stderr.write("          " + result.error.strip().replace("\n", "\n          ") + "\n")
            self._evidence(result)

    def _evidence(self, result: Result) -> None:
        raw = [f"call {call[:300]}" for call in result.calls]
        raw += [f"{what}: {seen[:600]}" for what, seen in result.memory.items()]
        if raw and not self._verbose:
            sys.stderr.write(f"          ({len(raw)} lines of raw evidence: --verbose, --report, --json)\n")
        for text in raw if self._verbose else ():
            sys.stderr.write(f"          {text}\n")


def readable(value: object) -> str:
    """Return a fact as text: numbers with a point have four digits that count, never a power of ten."""
    if isinstance(value, float):
        return four_digits(value)
    if isinstance(value, dict):
        return ", ".join(f"{name} {readable(part)}" for name, part in value.items())
    return str(value)


def heading(result: Result) -> str:
    """Return the line of a result: what became of which rung, with which values, and what it means."""
    where = f"{result.rung:3}  {result.name}"
    if not result.variant:
        mark = ("PASS" if result.passed else "FAIL") if result.tried else "----"
        return f"{mark} {where}  ({result.seconds:.2f} s)"
    where += f", {result.variant}: {result.choices}  ({result.seconds:.2f} s)"
    if result.passed:
        return f"pass {where}"
    if not result.offered:
        return f"n/a  {where}\n          this GPU or driver does not offer it"
    why = f"expected: {result.expected}" if result.expected else "does not count: it is a variant"
    return f"no   {where}\n          {why}"


def first_line(error: str) -> str:
    """Return the start of an error that a line of the terminal holds."""
    return error.strip().split("\n", 1)[0][:160]


def summary(ladder: Ladder) -> str:
    """Return the last lines: how far it went, with which values, and what became of the variants."""
    passed = [r.rung for r in ladder.results if r.passed and not r.variant]
    passed += [r.rung for r in ladder.results if r.passed and r.variant]
    lines = [
        f"highest rung passed: {max(passed)}; choices that work: {ladder.working}"
        if passed
        else "no rung passed"
    ]
    variants = [r for r in ladder.results if r.variant]
    if variants:
        counts = {
            "work": sum(r.passed for r in variants),
            "do not, as expected": sum(not r.passed and r.offered and bool(r.expected) for r in variants),
            "do not": sum(not r.passed and r.offered and not r.expected for r in variants),
            "are not offered here": sum(not r.passed and not r.offered for r in variants),
        }
        told = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        lines.append(f"{len(variants)} variants tried: {told}")
    return "\n".join(lines)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.bringup", description=(__doc__ or "").split("\n", 1)[0]
    )
    parser.add_argument(
        "--device",
        default="0",
        metavar="N",
        help="which GPU: N, nv:N, amd:N; nv-emu or nv-emu:VARIANT is --emulate VARIANT",
    )
    parser.add_argument("--from", dest="first", type=int, metavar="RUNG", help="the first rung to run")
    parser.add_argument("--to", dest="last", type=int, metavar="RUNG", help="the last rung to run")
    parser.add_argument("--keep-going", action="store_true", help="try rungs although one they need failed")
    parser.add_argument(
        "--variants",
        choices=("all", "needed", "none", "only"),
        default="all",
        help="other values of what is in doubt: everywhere, where a rung fails, nowhere; or nothing but them",
    )
    parser.add_argument(
        "--choices", default="default", metavar="TEXT", help="doubtful values to begin with: stack=low+pcas=3"
    )
    parser.add_argument(
        "--budget", type=float, default=math.inf, metavar="S", help="seconds for all; later, nothing begins"
    )
    parser.add_argument("--report", metavar="FILE", help="write the report here, anew after every child")
    parser.add_argument("--traces", metavar="DIR", help="write every kernel call of every child here")
    parser.add_argument("--trace", help=argparse.SUPPRESS)
    parser.add_argument("--kernels", metavar="DIR", help="kernels that --prepare assembled")
    parser.add_argument("--prepare", metavar="DIR", help="assemble the kernels into DIR and end")
    parser.add_argument("--boost", action="store_true", help="let rung 24 request the highest clocks")
    parser.add_argument(
        "--emulate",
        metavar="VARIANT",
        nargs="?",
        const="",
        help='run on an emulated GPU: without a word an H200, or "sm_80+570", "native"',
    )
    parser.add_argument("--verbose", action="store_true", help="print kernel calls and memory of failures")
    parser.add_argument("--dry", action="store_true", help="run against a scripted driver, without a GPU")
    parser.add_argument("--json", action="store_true", help="print the report as JSON on stdout")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    _choose(parser, options)
    _check(parser, options)
    return options


def _choose(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Find the vendor and the number of the GPU in --device."""
    text = options.device
    named = re.fullmatch(r"(?:(?P<name>[a-z]+)(?P<emulated>-emu)?(?::|$))?(?P<rest>.*)", text)
    name = named["name"] if named else None
    vendor = next((one for one in VENDORS if one.name == (name or VENDORS[0].name)), None)
    number = named["rest"] if named else ""
    if named and named["emulated"]:
        options.emulate, number = number, "0"
    if vendor is None or not (number or "0").isdigit():
        forms = ", ".join(f"{one.name}:N or {one.name}-emu[:VARIANT]" for one in VENDORS)
        parser.error(f"--device takes a number, {forms}, not {text!r}")
    options.vendor, options.device = vendor, int(number or 0)


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Refuse values that no child could run with, before the first one is started."""
    try:
        options.vendor.parse(options.choices)
        if options.emulate is not None:
            options.vendor.check_variant(options.emulate)
    except UsageError as error:
        parser.error(str(error))
    order = [rung.number for rung in options.vendor.rungs]
    first = order[0] if options.first is None else options.first
    last = order[-1] if options.last is None else options.last
    runs = f"rungs run in the order {', '.join(map(str, order))}"
    for flag, number in (("--from", first), ("--to", last)):
        if number not in order:
            parser.error(f"{flag} {number}: there is no such rung; {runs}")
    if order.index(first) > order.index(last):
        parser.error(f"--from {first} comes after --to {last}; {runs}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tool; see the module."""
    options = parse(arguments)
    if options.prepare:
        for path in options.vendor.prepare(Path(options.prepare)):
            sys.stderr.write(f"{path}\n")
        return 0
    if options.child is not None:
        return run_child(options)
    ladder = Ladder(options.vendor.rungs, options, Teller(verbose=options.verbose))
    ladder.climb()
    sys.stderr.write(summary(ladder) + "\n")
    if options.json:
        sys.stdout.write(json.dumps(ladder.report(finished=True), indent=1, default=str) + "\n")
    return 0 if ladder.passed else 1
