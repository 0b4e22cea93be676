"""Bring an NVIDIA GPU up one rung at a time, and say exactly where it stops.

    python -m tools.bringup_nv                    every rung, on GPU 0
    python -m tools.bringup_nv --from 12 --to 18  some of them
    python -m tools.bringup_nv --prepare kernels  assemble the ladder's kernels beforehand, without a GPU
    python -m tools.bringup_nv --emulate sm_80    on an emulated GPU
    python -m tools.bringup_nv --dry              against a scripted driver: no GPU, nothing is computed

Each rung runs in a child process with a time limit, while this process keeps the GPU's node open, which
keeps the GPU up. A rung that fails leaves out only those that need it. Where public sources leave a value in
doubt, the other values are tried as well, and what works is said; when only another one does, the rungs above
use it (`nv_ladder`). Nothing here changes clocks unless --boost is given. The last rung makes a fault on
purpose. Exit status: 0 when every rung passed, 1 when one failed, 2 for wrong arguments.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from drivers.kernel import LinuxKernel, TracingKernel
from drivers.nv.choices import describe
from drivers.nv.choices import parse as parse_choices
from hcq.errors import HcqError
from tools import nv_rungs as low
from tools import nv_rungs_compute as high
from tools.nv_evidence import Trace, memory
from tools.nv_ladder import Ladder, Result, Rung
from tools.nv_rungs_bench import Bench

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drivers.kernel import Kernel

_LOAD_S = 30.0
"""Limit of rungs that may load the assembler first, from a cold disk; what they wait for ends sooner."""
_HOST_RELEASE = ("doorbell_bar1", "object_buffer", "push_in_vram", "host_memory")
_LAUNCH = (
    "full_descriptor",
    "carveout",
    "qmd_type",
    "group_id",
    "sampler_via_header",
    "pcas",
    "qmd_version_method",
    "context_share",
    "arguments_in_vram",
    "graphics_copy",
)
RUNGS: tuple[Rung, ...] = (
    Rung(0, "environment", low.environment),
    Rung(1, "nodes open", low.nodes, limit_s=30),
    Rung(2, "driver version", low.version),
    Rung(3, "client and cards", low.client, needs=(2,)),
    Rung(4, "device and subdevice", low.objects, needs=(3,), limit_s=30),
    Rung(5, "classes and units", low.classes, ("plausible",), (4,)),
    Rung(6, "doorbell page", low.doorbell, ("doorbell_bar1",), (5,)),
    Rung(7, "video memory", low.video_memory, ("pitch_kind", "persistent_vidmem", "huge_pages"), (5,)),
    Rung(8, "system memory", low.system_memory, ("system_cached",), (5,)),
    Rung(9, "unified memory", low.unified_memory, ("vaspace_faulting",), (5,)),
    Rung(10, "mappings", low.mapping, needs=(9,)),
    Rung(11, "copy channel", low.copy_channel, ("register_copy_channels", "object_buffer", "notifier"), (9,)),
    Rung(12, "host release", low.host_release, _HOST_RELEASE, (11,)),
    Rung(13, "64-bit release with the time", low.host_release_time, needs=(11,)),
    Rung(14, "copy engine release", low.engine_release, needs=(11,)),
    Rung(15, "copies and bandwidth", low.copies, needs=(14,), limit_s=30),
    Rung(16, "compute channel", low.compute_channel, ("context_share", "graphics_copy"), (9,)),
    Rung(17, "report semaphore", low.report_semaphore, needs=(16,)),
    Rung(18, "a kernel stores a token", high.store, _LAUNCH, (14, 16), _LOAD_S),
    Rung(19, "grid, parameters, constants", high.grid, needs=(18,), limit_s=_LOAD_S),
    Rung(20, "shared memory", high.shared, ("carveout",), (18,), _LOAD_S),
    Rung(21, "local memory", high.local, ("stack", "all_sms"), (18,), _LOAD_S),
    Rung(22, "copies and kernels in turn", high.exchange, needs=(18,), limit_s=_LOAD_S),
    Rung(24, "bandwidth, two processes", high.clocks, needs=(18,), limit_s=60),
    Rung(23, "a fault on purpose", high.fault, needs=(18,), limit_s=_LOAD_S),
    Rung(25, "a new process after the fault", high.fresh_after_fault, needs=(18,), limit_s=_LOAD_S),
)
"""In the order they run: the fault comes last, and after it only the proof that it did no harm."""


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
    choices = parse_choices(arguments.choices)
    trace = Trace(_path(arguments.trace))
    kernel = TracingKernel(make_kernel(dry=arguments.dry, emulate=arguments.emulate), trace.note)
    bench = Bench(
        kernel,
        choices,
        index=arguments.device,
        dry=arguments.dry,
        kernels=_path(arguments.kernels),
        emulate=arguments.emulate,
    )
    result = Result(rung.number, rung.name, describe(choices), passed=False, seconds=0.0)
    start = time.perf_counter()
    try:
        _run(rung, bench, result, boost=arguments.boost)
        result.passed = True
    except HcqError as error:
        result.error = f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - whatever went wrong is what this rung is to tell
        result.error = traceback.format_exc()
    result.seconds = time.perf_counter() - start
    result.calls = [] if result.passed else trace.last
    trace.close()
    sys.stdout.write(json.dumps(asdict(result), default=str) + "\n")
    return 0 if result.passed else 1


def _run(rung: Rung, bench: Bench, result: Result, *, boost: bool) -> None:
    """Run a rung; what lies in its rings when it fails is read before they are closed."""
    with bench.stack:
        try:
            result.facts = high.clocks(bench, boost=boost) if rung.run is high.clocks else rung.run(bench)
        except Exception:
            result.memory = memory(bench)
            raise


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None


def show(result: Result, variant: bool) -> None:  # noqa: FBT001 - a flag of the printer
    """Print one result for people."""
    mark = ("PASS" if result.passed else "FAIL") if result.tried else "----"
    where = f"     with {result.choices}" if variant else f"{result.rung:3}  {result.name}"
    sys.stderr.write(f"{mark} {where}  ({result.seconds:.2f} s)\n")
    for name, value in ({} if variant and result.passed else result.facts).items():
        sys.stderr.write(f"          {name}: {value}\n")
    if result.error:
        sys.stderr.write("          " + result.error.strip().replace("\n", "\n          ") + "\n")
        for call in result.calls:
            sys.stderr.write(f"          call {call[:300]}\n")
        for what, seen in result.memory.items():
            sys.stderr.write(f"          {what}: {seen[:200]}\n")


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
    ladder = Ladder(RUNGS, options, show)
    ladder.climb()
    highest = max((r.rung for r in ladder.results if r.passed), default=-1)
    sys.stderr.write(f"highest rung passed: {highest}; choices that work: {describe(ladder.best)}\n")
    if options.json:
        sys.stdout.write(json.dumps(ladder.report(finished=True), indent=1, default=str) + "\n")
    return 0 if ladder.passed else 1


if __name__ == "__main__":
    sys.exit(main())
