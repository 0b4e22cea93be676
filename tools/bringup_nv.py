"""Bring an NVIDIA GPU up one rung at a time, and say exactly where it stops.

    python -m tools.bringup_nv                    every rung, on GPU 0
    python -m tools.bringup_nv --from 12 --to 18  some of them
    python -m tools.bringup_nv --prepare kernels  assemble the ladder's kernels beforehand, without a GPU
    python -m tools.bringup_nv --emulate sm_80    on an emulated GPU
    python -m tools.bringup_nv --dry              against a scripted driver: no GPU, nothing is computed

Each rung runs in a child process with a time limit, while this process keeps the GPU's node open, which
keeps the GPU up. Where public sources leave a value in doubt, the rung tries the other values as well and
says which work; when only another one does, the rungs above use it. Nothing here changes clocks unless
--boost is given. The last rung makes a fault on purpose. Exit status: 0 when every rung passed, 1 when one
failed, 2 for wrong arguments.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import time
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drivers.kernel import LinuxKernel, TracingKernel
from drivers.nv.choices import ALTERNATIVES, DEFAULT, Choices, describe
from drivers.nv.layouts.compute import PcasAction
from hcq.errors import DriverError, HcqError
from tools import nv_rungs as low
from tools import nv_rungs_compute as high
from tools.nv_rungs_bench import Bench, Facts, patience

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from drivers.kernel import Call, Kernel

LIMIT_S = 10.0
_TRACED = 12
"""Kernel calls shown of a rung that failed."""


@dataclass(frozen=True, slots=True)
class Rung:
    """One step of the ladder."""

    number: int
    name: str
    run: Callable[[Bench], Facts]
    doubts: tuple[str, ...] = ()
    """Fields of `Choices` whose other values are tried here."""
    limit_s: float = LIMIT_S


RUNGS: tuple[Rung, ...] = (
    Rung(0, "environment", low.environment),
    Rung(1, "nodes open", low.nodes, limit_s=30),
    Rung(2, "driver version", low.version),
    Rung(3, "client and cards", low.client),
    Rung(4, "device and subdevice", low.objects, limit_s=30),
    Rung(5, "classes and units", low.classes, ("plausible",)),
    Rung(6, "doorbell page", low.doorbell, ("doorbell_bar1",)),
    Rung(7, "video memory", low.video_memory, ("pitch_kind", "persistent_vidmem", "huge_pages")),
    Rung(8, "system memory", low.system_memory, ("system_cached",)),
    Rung(9, "unified memory", low.unified_memory, ("vaspace_faulting",)),
    Rung(10, "mappings", low.mapping),
    Rung(11, "copy channel", low.copy_channel, ("register_copy_channels", "object_buffer", "notifier")),
    Rung(
        12,
        "host release",
        low.host_release,
        ("doorbell_bar1", "object_buffer", "push_in_vram", "host_memory"),
    ),
    Rung(13, "64-bit release with the time", low.host_release_time),
    Rung(14, "copy engine release", low.engine_release),
    Rung(15, "copies and bandwidth", low.copies, limit_s=30),
    Rung(16, "compute channel", low.compute_channel, ("context_share", "graphics_copy")),
    Rung(17, "report semaphore", low.report_semaphore),
    Rung(
        18,
        "a kernel stores a token",
        high.store,
        (
            "qmd_type",
            "group_id",
            "sampler_via_header",
            "pcas",
            "qmd_version_method",
            "context_share",
            "arguments_in_vram",
            "graphics_copy",
        ),
    ),
    Rung(19, "grid, parameters, constants", high.grid),
    Rung(20, "shared memory", high.shared),
    Rung(21, "local memory", high.local, ("stack", "all_sms")),
    Rung(22, "copies and kernels in turn", high.exchange),
    Rung(24, "bandwidth, two processes", high.clocks, limit_s=60),
    Rung(23, "a fault on purpose", high.fault, limit_s=20),
    Rung(25, "a new process after the fault", high.fresh_after_fault),
)
"""In the order they run: the fault comes last, and after it only the proof that it did no harm."""


@dataclass
class Result:
    """What one child said."""

    rung: int
    name: str
    choices: str
    passed: bool
    seconds: float
    facts: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    calls: list[str] = field(default_factory=list)


def make_kernel(*, dry: bool, emulate: str | None = None) -> Kernel:
    """Return Linux, the scripted driver, or an emulated GPU."""
    if emulate is not None:
        # An emulated GPU computes, so results are judged as on a real one.
        from drivers.nv import EMULATED  # noqa: PLC0415 - only for emulated runs

        return EMULATED.make_kernel(emulate or None)
    if dry:
        from tools.nv_scripted import ScriptedKernel  # noqa: PLC0415 - only for dry runs

        return ScriptedKernel()
    return LinuxKernel()


def run_child(arguments: argparse.Namespace) -> int:
    """Run one rung here, print its result as JSON, and return the exit status."""
    rung = next(rung for rung in RUNGS if rung.number == arguments.child)
    choices = _choices(json.loads(arguments.choices))
    calls: list[str] = []

    def note(call: Call) -> None:
        calls.append(str(call)[:300])
        del calls[:-_TRACED]

    kernel = TracingKernel(make_kernel(dry=arguments.dry, emulate=arguments.emulate), note)
    bench = Bench(
        kernel,
        choices,
        index=arguments.device,
        dry=arguments.dry,
        kernels=_folder(arguments.kernels),
        emulate=arguments.emulate,
    )
    result = Result(rung.number, rung.name, describe(choices), passed=False, seconds=0.0)
    start = time.perf_counter()
    try:
        with bench.stack:
            if rung.run is high.clocks:
                result.facts = high.clocks(bench, boost=arguments.boost)
            else:
                result.facts = rung.run(bench)
        result.passed = True
    except HcqError as error:
        result.error = f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - whatever went wrong is what this rung is to tell
        result.error = traceback.format_exc()
    result.seconds = time.perf_counter() - start
    result.calls = [] if result.passed else calls
    sys.stdout.write(json.dumps(asdict(result), default=str) + "\n")
    return 0 if result.passed else 1


def _folder(text: str | None) -> Path | None:
    return Path(text) if text else None


def _choices(values: dict[str, Any]) -> Choices:
    if "pcas" in values:
        values["pcas"] = PcasAction(values["pcas"])
    return Choices(**values)


def spawn(rung: Rung, choices: Choices, arguments: argparse.Namespace) -> Result:
    """Run one rung in a child of its own and return what it said; a hung child is ended, by its own id."""
    changed = {k: v for k, v in asdict(choices).items() if v != getattr(DEFAULT, k)}
    command = [sys.executable, "-m", "tools.bringup_nv", "--child", str(rung.number)]
    command += ["--device", str(arguments.device), "--choices", json.dumps(changed)]
    command += ["--dry"] * arguments.dry + ["--boost"] * arguments.boost
    command += ["--emulate", arguments.emulate] if arguments.emulate is not None else []
    command += ["--kernels", arguments.kernels] if arguments.kernels else []
    start, limit_s = time.perf_counter(), rung.limit_s * patience(arguments.emulate) + 5
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            out, err = child.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            child.kill()
            out, err = child.communicate()
            err = f"no answer in {limit_s:.0f} s; the child was ended\n{err}"
    seconds = time.perf_counter() - start
    lines = [line for line in out.splitlines() if line.startswith("{")]
    if lines:
        return Result(**json.loads(lines[-1]))
    text = f"the child ended with status {child.returncode}: {err.strip()[-2000:]}"
    return Result(rung.number, rung.name, describe(choices), passed=False, seconds=seconds, error=text)


def climb(
    arguments: argparse.Namespace, tell: Callable[[Result, bool], None]
) -> tuple[list[Result], Choices]:
    """Run the rungs in order; return all results and the choices that work."""
    results: list[Result] = []
    best = _choices(json.loads(arguments.choices))
    with contextlib.ExitStack() as stack:
        _keep_open(stack, arguments)
        for rung in RUNGS:
            if not wanted(rung, arguments):
                continue
            result = spawn(rung, best, arguments)
            results.append(result)
            tell(result, False)
            best, passed = _variants(rung, best, arguments, results, tell)
            if not passed and not arguments.keep_going:
                break
    return results, best


def wanted(rung: Rung, arguments: argparse.Namespace) -> bool:
    """Return whether a rung lies between --from and --to, in the order in which rungs run."""
    order = [r.number for r in RUNGS]
    known = (arguments.first in order, arguments.last in order)
    first = order.index(arguments.first) if known[0] else 0
    last = order.index(arguments.last) if known[1] else len(order) - 1
    return first <= order.index(rung.number) <= last


def _variants(
    rung: Rung,
    best: Choices,
    arguments: argparse.Namespace,
    results: list[Result],
    tell: Callable[[Result, bool], None],
) -> tuple[Choices, bool]:
    """Try the other values of what is in doubt; take one over when only it works."""
    passed = results[-1].passed
    for name in () if arguments.no_variants else rung.doubts:
        for value in ALTERNATIVES[name]:
            if value == getattr(best, name):
                continue
            other = _choices(asdict(best) | {name: value})
            result = spawn(rung, other, arguments)
            results.append(result)
            tell(result, True)
            if result.passed and not passed:
                best, passed = other, True
    return best, passed


def _keep_open(stack: contextlib.ExitStack, arguments: argparse.Namespace) -> None:
    """Hold the GPU's node: without a holder the driver shuts the GPU down between children."""
    if arguments.dry or arguments.emulate is not None:
        return
    kernel = LinuxKernel()
    for path in ("/dev/nvidiactl", low.gpu_node(arguments.device)):
        with contextlib.suppress(DriverError):  # rung 1 says what is wrong with it
            stack.callback(kernel.close, kernel.open(path))


def show(result: Result, variant: bool) -> None:  # noqa: FBT001 - a flag of the printer
    """Print one result for people."""
    mark = "PASS" if result.passed else "FAIL"
    where = f"     with {result.choices}" if variant else f"{result.rung:3}  {result.name}"
    sys.stderr.write(f"{mark} {where}  ({result.seconds:.2f} s)\n")
    for name, value in ({} if variant and result.passed else result.facts).items():
        sys.stderr.write(f"          {name}: {value}\n")
    if result.error:
        sys.stderr.write("          " + result.error.strip().replace("\n", "\n          ") + "\n")
        for call in result.calls:
            sys.stderr.write(f"          call {call}\n")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.bringup_nv", description=(__doc__ or "").split("\n", 1)[0]
    )
    parser.add_argument(
        "--device", default="0", metavar="N", help="which GPU; nv-emu or nv-emu:VARIANT is --emulate VARIANT"
    )
    parser.add_argument("--from", dest="first", type=int, default=0, metavar="RUNG")
    parser.add_argument("--to", dest="last", type=int, default=99, metavar="RUNG")
    parser.add_argument("--keep-going", action="store_true", help="go on after a rung failed")
    parser.add_argument("--no-variants", action="store_true", help="try only the values that are chosen")
    parser.add_argument(
        "--choices", default="{}", metavar="JSON", help='doubtful values, e.g. {"stack": "low"}'
    )
    parser.add_argument("--kernels", metavar="DIR", help="kernels that --prepare assembled")
    parser.add_argument("--prepare", metavar="DIR", help="assemble the kernels into DIR and end")
    parser.add_argument("--boost", action="store_true", help="let rung 24 ask for the highest clocks")
    parser.add_argument(
        "--emulate", metavar="VARIANT", help='run on an emulated GPU: "", "sm_80+570", "native"'
    )
    parser.add_argument("--dry", action="store_true", help="run against a scripted driver, without a GPU")
    parser.add_argument("--json", action="store_true", help="print the report as JSON on stdout")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    name, _, variant = options.device.partition(":")
    if name == "nv-emu":
        options.emulate, options.device = variant, "0"
    number = options.device.removeprefix("nv:")
    if not number.isdigit():
        parser.error(f"--device wants a number, nv:N or nv-emu[:VARIANT], not {options.device!r}")
    options.device = int(number)
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tool; see the module."""
    options = parse(arguments)
    if options.prepare:
        from tools.nv_kernels import prepare  # noqa: PLC0415 - needs the assembler

        for path in prepare(Path(options.prepare)):
            sys.stderr.write(f"{path}\n")
        return 0
    if options.child is not None:
        return run_child(options)
    results, best = climb(options, show)
    passed = all(r.passed for r in results if r.choices == describe(best) or r.choices == "default")
    highest = max((r.rung for r in results if r.passed), default=-1)
    sys.stderr.write(f"highest rung passed: {highest}; choices that work: {describe(best)}\n")
    if options.json:
        report = {"passed": passed, "choices": asdict(best), "rungs": [asdict(r) for r in results]}
        sys.stdout.write(json.dumps(report, indent=1, default=str) + "\n")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
