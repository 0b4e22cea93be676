"""The command line of the bring-up ladder: test a GPU one step at a time and report the first failure.

    hcq bringup                    every rung, on NVIDIA GPU 0
    hcq bringup --device amd       every rung, on AMD GPU 0
    hcq bringup --from 12 --to 18  some of them
    hcq bringup --prepare kernels  build the ladder's kernels beforehand, without a GPU
    hcq bringup --emulate sm_80    on an emulated GPU
    hcq bringup --dry              on an emulated GPU, with few rounds and no comparisons
    hcq bringup --quirks --device amd-emu
                                               on emulated GPUs that refuse the default of an uncertain value

Each rung runs in a child process with a time limit. This process keeps the device node of an NVIDIA GPU open,
so that the driver does not shut the GPU down between rungs. A rung is skipped if a rung that it needs has
failed.

An uncertain value is a value that the driver must choose and that public sources do not settle: a class, a
flag or a size. Its alternatives are tried, too, and the report lists those that work. If only an alternative
works, the later rungs use it (`ladder`). Clocks change only under --boost. The rung before the last causes a
fault deliberately; the last tests that a new process works after it.

Exit status: 0 if every rung passed, 1 if one failed, 2 for wrong arguments.

Not here: the rungs (`tools.bringup.nv`, `tools.bringup.amd`), their evidence (`evidence`). Next: `ladder`.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hcq.errors import UsageError
from tools.arguments import command, folder, made_folder, output, seconds
from tools.bench.rows import four_digits
from tools.bringup.ladder import Ladder
from tools.bringup.quirks import print_table
from tools.bringup.run import first_line, run_rung

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drivers.kernel import Kernel
    from tools.bringup.rung import Result
    from tools.bringup.vendor import Vendor

VENDORS: Final = ("nv", "amd")
"""All vendors; the first is the default. The process of a rung imports only the modules of its vendor."""


def run_child(arguments: argparse.Namespace, kernel: Kernel | None = None) -> int:
    """Run the rung of --child in this process, print its result as JSON, and return the exit status.

    `kernel` replaces the interface to the operating system's kernel that the arguments choose.
    """
    vendor: Vendor[Any] = arguments.vendor
    rung = next(rung for rung in vendor.rungs if rung.number == arguments.child)
    emulated = "" if arguments.dry and arguments.emulate is None else arguments.emulate
    kernel = kernel or vendor.make_kernel(emulate=emulated)
    result = run_rung(rung, vendor.parse(arguments.choices), arguments, kernel)
    sys.stdout.write(json.dumps(asdict(result), default=str) + "\n")
    return 0 if result.passed else 1


class ResultPrinter:
    """Prints each result on stderr as readable text."""

    def __init__(self, *, verbose: bool) -> None:
        self._verbose = verbose

    def __call__(self, result: Result) -> None:
        """Print one result: one line for a variant, the error and its evidence for a failed rung."""
        sys.stderr.write(heading(result) + "\n")
        if result.variant and not self._verbose:
            sys.stderr.write(f"          {error}\n" if (error := first_line(result.error)) else "")
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
    """Return a fact as text; floats have four significant digits and no exponent, also inside of a dict."""
    if isinstance(value, float):
        return four_digits(value)
    if isinstance(value, dict):
        return ", ".join(f"{name} {readable(part)}" for name, part in value.items())
    return str(value)


def heading(result: Result) -> str:
    """Return the first lines of a result: status, rung, and for a variant its values and why it may fail."""
    where = f"{result.rung:3}  {result.name}"
    if not result.variant:
        mark = ("PASS" if result.passed else "FAIL") if result.tried else "----"
        return f"{mark} {where}  ({result.seconds:.2f} s)"
    where += f", {result.variant}: {result.choices}  ({result.seconds:.2f} s)"
    if result.passed:
        return f"pass {where}"
    if not result.offered:
        return f"n/a  {where}\n          not offered by this GPU or driver"
    why = f"expected: {result.expected}" if result.expected else "not counted: a variant"
    return f"no   {where}\n          {why}"


def summary(ladder: Ladder) -> str:
    """Return the summary: the highest rung that passed, the time, counts of variants, the first failure.

    It has the uncertain values that work if a rung that passed depends on one. The failure comes with its
    hint and the command that runs the rung again.
    """
    passed = {r.rung for r in ladder.results if r.passed}
    line = f"highest rung passed: {max(passed)}" if passed else "no rung passed"
    if any(rung.quirks for rung in ladder.rungs if rung.number in passed):
        line += f"; choices that work: {ladder.working}"
    lines = [f"{line}; {ladder.seconds:.0f} s in total"]
    variants = [r for r in ladder.results if r.variant]
    if variants:
        counts = {
            "work": sum(r.passed for r in variants),
            "fail as expected": sum(not r.passed and r.offered and bool(r.expected) for r in variants),
            "fail": sum(not r.passed and r.offered and not r.expected for r in variants),
            "are not offered": sum(not r.passed and not r.offered for r in variants),
        }
        text = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        lines.append(f"{len(variants)} variants tried: {text}")
    failures = ladder.report()["failed"]
    if failures:
        first, *later = failures
        more = f" (the first of {1 + len(later)} that failed or did not run)" if later else ""
        lines.append(f"failed: rung {first['rung']}, {first['name']}{more}: {first_line(first['error'])}")
        lines += [text for line in first["error"].splitlines() if (text := line.strip()).startswith("hint:")]
        lines.append(f"again: {first['again']}")
    return "\n".join(lines)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line; exit with status 2 for wrong arguments.

    The result also has `vendor`, a `Vendor`, and `device`, the index of the GPU.
    """
    parser = command("tools.bringup", __doc__)
    parser.add_argument(
        "--device",
        default="0",
        metavar="N",
        help="which GPU: N, nv:N, amd:N; nv-emu or nv-emu:VARIANT is --emulate VARIANT",
    )
    parser.add_argument("--from", dest="first", type=int, metavar="RUNG", help="the first rung to run")
    parser.add_argument("--to", dest="last", type=int, metavar="RUNG", help="the last rung to run")
    parser.add_argument("--keep-going", action="store_true", help="do not skip rungs whose needs failed")
    parser.add_argument(
        "--variants",
        choices=("all", "needed", "none", "only"),
        default="all",
        help="try other values at every rung, at rungs that fail, or at none; or try nothing else",
    )
    parser.add_argument(
        "--choices", default="default", metavar="TEXT", help="uncertain values at the start: stack=low+pcas=3"
    )
    parser.add_argument(
        "--budget", type=seconds, default=math.inf, metavar="S", help="seconds in which new rungs may start"
    )
    parser.add_argument(
        "--report", type=output, metavar="FILE", help="file of the report, rewritten after every child"
    )
    parser.add_argument(
        "--traces", type=made_folder, metavar="DIR", help="folder for the kernel calls of every child"
    )
    parser.add_argument("--trace", help=argparse.SUPPRESS)
    parser.add_argument(
        "--kernels", type=folder, metavar="DIR", help="folder of the kernels that --prepare built"
    )
    parser.add_argument(
        "--prepare", type=made_folder, metavar="DIR", help="build the kernels into DIR and exit"
    )
    parser.add_argument("--boost", action="store_true", help="let rung 24 request the highest clocks")
    parser.add_argument(
        "--emulate",
        metavar="VARIANT",
        nargs="?",
        const="",
        help='run on an emulated GPU: by default an H200, or "sm_80+570", "native"',
    )
    parser.add_argument("--verbose", action="store_true", help="print kernel calls and memory of failures")
    parser.add_argument("--dry", action="store_true", help="few rounds on an emulated GPU")
    parser.add_argument("--json", action="store_true", help="print the report as JSON on stdout")
    parser.add_argument(
        "--quirks",
        metavar="VALUE",
        nargs="*",
        help="climb on emulated GPUs that refuse the default of each uncertain value, or of these",
    )
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    _choose(parser, options)
    _check(parser, options)
    return options


def _choose(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Set the vendor and the index of the GPU from --device."""
    text = options.device
    named = re.fullmatch(r"(?:(?P<name>[a-z]+)(?P<emulated>-emu)?(?::|$))?(?P<rest>.*)", text)
    name = named["name"] if named else None
    vendor = next((one for one in VENDORS if one == (name or VENDORS[0])), None)
    number = named["rest"] if named else ""
    if named and named["emulated"]:
        options.emulate, number = number, "0"
    if vendor is None or not (number or "0").isdigit():
        forms = ", ".join(f"{one}:N or {one}-emu[:VARIANT]" for one in VENDORS)
        parser.error(f"--device takes a number, {forms}, not {text!r}")
    options.vendor = getattr(import_module(f"tools.bringup.{vendor}.table"), vendor.upper())
    options.device = int(number or 0)


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Refuse values that no child accepts, before the first child starts."""
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
    """Run the tool and return its exit status."""
    options = parse(arguments)
    if options.prepare:
        for path in options.vendor.prepare(Path(options.prepare)):
            sys.stderr.write(f"{path}\n")
        return 0
    if options.child is not None:
        return run_child(options)
    if options.quirks is not None:
        return print_table(options)
    ladder = Ladder(options.vendor.rungs, options, ResultPrinter(verbose=options.verbose))
    ladder.climb()
    sys.stderr.write(summary(ladder) + "\n")
    if options.json:
        sys.stdout.write(json.dumps(ladder.report(finished=True), indent=1, default=str) + "\n")
    return 0 if ladder.passed else 1
