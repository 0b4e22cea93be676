"""A complete run of tests and measurements on a real GPU, in one command, under ten minutes.

    python -m tools.hardware_run --out report                    on a machine with a GPU
    python -m tools.hardware_run --out report --device amd:1     use another GPU than the first
    python -m tools.hardware_run --out report --wheels DIR       install missing packages from DIR
    python -m tools.hardware_run --out report --dry              run every stage without a GPU
    python -m tools.hardware_run --out report --device nv-emu    rehearse on an emulated GPU, with less work
    python -m tools.hardware_run --out more --only ladder --choices stack=low     run some stages again
    python -m tools.hardware_run --out report --share            also write a report that names no machine

The stages install wheels, describe the machine and its packages, climb the ladder without its fault, record
what instructions compute (`tools.record`), run the conformance suite and the benchmarks, run the same
benchmarks through CUDA or HIP by PyTorch, time calibration kernels beside the estimates of the counters, run
quick tests of tensors and random programs, try the other values of uncertain settings on the ladder, cause
the fault, and describe the machine after it. The GPU is AMD's if /dev/kfd exists and /dev/nvidiactl does not.

Each stage is a child process with a time limit; if one fails, dies or hangs, the next still runs. Later
stages open the device with the values that the ladder found to work. No clocks are changed. Two files are
complete at any time: report.json (see docs/hardware/README.md), and evidence.tar.gz with all output and every
kernel call. With `--share` a third file is written at the end, shared.json: the report without host names,
addresses and serial numbers. The last lines printed are one page: what works, what does not, what to send,
the first failure and its cure. Exit status: 0 if every stage passed, else 1.

Not here: what a machine lacks for a run (`tools.hardware.machine`), the rungs of the ladder
(`tools.bringup`). Next: `tools.hardware.stage`, how a stage runs.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tools.arguments import REFUSED, above_zero, command, folder
from tools.bringup.rung import LAUNCH
from tools.hardware import share, summary
from tools.hardware.machine import detected, missing
from tools.hardware.stage import REPOSITORY, Run, Stage

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

TOTAL_S: Final = 570.0
"""The default limit of a run in seconds."""
VENDORS: Final = ("nv", "amd")
NAMES: Final = (
    "wheels", "box", "packages", "ladder", "record", "conformance", "benchmarks", "cuda", "calibration",
    "operations", "programs", "variants", "fault", "after",
)  # fmt: skip
_NEEDED: Final = ("cffi", "numpy", "elftools", "llvmlite", "pytest", "hypothesis")
_PROCESSES: Final = 8
"""The most processes of tests and of random programs."""
_FAULT_S: Final = 60
_AFTER_S: Final = 20
_RECORD_END_S: Final = 15
"""Seconds that the recorder has for its last shard, and to end without being killed."""
_FEW_TESTS: Final = ("tests/frontend/test_movement_methods.py", "tests/frontend/test_assignment.py")
"""The tests of operations that a rehearsal on an emulated GPU has time for."""


def wheels(run: Run) -> None:
    """Install the packages in the folder of `--wheels`, by pip; if pip fails, by unpacking them."""
    if not run.options.wheels:
        return
    folder = Path(run.options.wheels).resolve()
    files = sorted(folder.glob("*.whl"))
    if not files:
        run.skip("wheels", f"{folder} holds no wheels")
        return
    command = [
        run.python, "-m", "pip", "install", "--no-index", "--no-deps", "--no-compile", "--no-cache-dir",
    ]  # fmt: skip
    command += ["--upgrade", "--target", str(run.site), *map(str, files)]
    stage = run.run(Stage("wheels", command, 60))
    if stage.status not in {"not run", "passed"}:
        for file in files:
            with zipfile.ZipFile(file) as archive:
                archive.extractall(run.site)
        stage.facts = {"unpacked": [file.name for file in files], "pip": stage.status}
        stage.status = "passed: unpacked, pip did not install them"
        run.write()


def box(run: Run, name: str, limit_s: float) -> None:
    """Describe the machine. This runs first, because CUDA's library creates missing device nodes."""
    stage = run.run(Stage(name, [run.python, "-m", "tools.hardware.box"], limit_s))
    log = run.logs / f"{name}.log"
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    for line in lines:
        if line.startswith("{") and line.endswith("}"):
            stage.facts |= json.loads(line)
    run.write()


def packages(run: Run) -> None:
    """Report the versions of packages; the stage fails if a needed one is absent."""
    code = (
        "import importlib, importlib.metadata as m, json\n"
        "def version(n):\n"
        "    try: return str(getattr(importlib.import_module(n), '__version__', 'present'))\n"
        "    except Exception as e: return f'absent: {e}'\n"
        f"seen = {{n: version(n) for n in {_NEEDED!r}}}\n"
        "wanted = ('torch', 'nvidia', 'cuda', 'triton', 'pytorch', 'rocm', 'hip', 'amd', 'pip')\n"
        "seen |= {d.name: d.version for d in m.distributions() if (d.name or '').startswith(wanted)}\n"
        "from compiler.targets.nvptx.assembler import available\n"
        "seen['assembler'] = available() or 'absent'\n"
        "print(json.dumps(seen))\n"
        f"raise SystemExit(any(seen[n].startswith('absent') for n in {_NEEDED!r}))\n"
    )

    def lacking(stage: Stage) -> str:
        absent = [name for name in _NEEDED if str(_seen(stage).get(name, "")).startswith("absent")]
        if not absent:
            return ""
        return (
            f"not installed: {', '.join(absent)}\n"
            "hint: python -m pip install -e '.[test]' in the checkout; without a network, --wheels DIR"
        )

    stage = run.run(Stage("packages", [run.python, "-c", code], 60), lacking)
    stage.facts = _seen(stage)
    run.write()


def _seen(stage: Stage) -> dict[str, object]:
    """Return the values in the last line of JSON that the stage printed; {} if there is none."""
    lines = [line for line in stage.tail.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {}


def ladder(run: Run, name: str, first: int, last: int, limit_s: float, *, variants: str) -> bool:
    """Run rungs `first` to `last` of the ladder, and keep the values that work; return whether kernels run.

    It also returns True if the stage is not wanted.
    """
    out = run.logs / f"{name}.json"
    # The ladder ends before its limit, so that it is not killed with its last child.
    budget = min(limit_s * run.patience, run.left_s() - 5 - run.reserve_s) - 20
    command = [run.python, "-m", "tools.bringup", "--from", str(first), "--to", str(last)]
    command += ["--device", run.options.emulated or f"{run.options.vendor}:{run.options.device}"]
    command += ["--choices", run.choices, "--variants", "none" if run.options.dry else variants]
    command += ["--report", str(out), "--traces", str(run.logs / name), "--budget", f"{max(budget, 0):.0f}"]
    command += ["--dry"] * run.options.dry
    command += ["--kernels", str(Path(run.options.kernels).resolve())] if run.options.kernels else []
    stage = run.run(Stage(name, command, limit_s), lambda _: failures(out))
    if not out.exists():
        return not run.wanted(name)
    report = json.loads(out.read_text())
    rungs = report["rungs"]
    stage.facts = {
        "finished": report["finished"],
        "choices": report["working"],
        "rungs": {f"{r['rung']} {r['choices']}": "pass" if r["passed"] else r["error"][:500] for r in rungs},
        "seen": {f"{r['rung']} {r['choices']}": r["facts"] for r in rungs if r["passed"] and r["facts"]},
        "failures": [r for r in rungs if not r["passed"] and r["tried"]][:20],
    }
    run.choices = report["working"]
    run.write()
    return any(r["rung"] == LAUNCH and r["passed"] for r in rungs)


def failures(report: Path) -> str:
    """Return the first failed rungs and the numbers of skipped rungs as text; "" without a report."""
    if not report.exists():
        return ""
    rungs = [r for r in json.loads(report.read_text())["rungs"] if not r.get("variant")]
    failed = [r for r in rungs if r["tried"] and not r["passed"]]
    lines = [f"rung {r['rung']}, {r['name']}: {first_lines(r['error'])}" for r in failed[:3]]
    more = [str(r["rung"]) for r in failed[3:]]
    lines += [f"and rungs {', '.join(more)}"] if more else []
    out = [str(r["rung"]) for r in rungs if not r["tried"]]
    lines += [f"skipped: rungs {', '.join(out)}"] if out else []
    return "\n".join(lines)


def first_lines(error: str) -> str:
    """Return the first line of an error and its first hint, at most 300 characters each."""
    lines = error.strip().splitlines()
    hints = [line.strip() for line in lines[1:] if line.strip().startswith("hint:")]
    return "; ".join(line[:300] for line in (*lines[:1], *hints[:1]))


def record(run: Run, limit_s: float) -> None:
    """Record what the instructions of the GPU compute; on an emulated GPU or in a dry run only some forms.

    The file grows form by form, so the archive has what was recorded, however the stage ends.
    """
    vendor, out = run.options.vendor, run.logs / "record.jsonl"
    if find_spec(f"tools.record.{vendor}") is None:
        run.skip("record", f"there is no recorder for {vendor} yet")
        return
    device = f"{vendor}-emu" if run.options.dry else run.device
    budget = max(1.0, min(limit_s * run.patience, run.left_s() - 5 - run.reserve_s) - _RECORD_END_S)
    command = [run.python, "-m", "tools.record", "--device", device, "--out", str(out), "--json"]
    command += ["--limit-s", f"{budget:.0f}"]
    command += ["--shards", "1/200"] if run.options.dry else ["--shards", "1/20"] * bool(run.options.emulated)
    command += ["--kernels", str(Path(run.options.kernels).resolve())] if run.options.kernels else []
    stage = run.run(Stage("record", command, limit_s), _unrecorded)
    stage.facts = _seen(stage) | {"file": f"{out.name} in evidence.tar.gz"} if out.exists() else {}
    run.write()


def _unrecorded(stage: Stage) -> str:
    errors: Any = _seen(stage).get("errors") or {}
    names = sorted(errors)
    return f"{len(names)} forms gave no results, the first: {names[0]}: {errors[names[0]]}" if names else ""


def tests(run: Run, name: str, folders: Sequence[str], limit_s: float, *selection: str) -> None:
    """Run tests on the device; in a dry run only collect them. `selection` are options of pytest."""
    there = [folder for folder in folders if (REPOSITORY / folder).exists()]
    if not there:
        run.skip(name, f"{', '.join(folders)} does not exist")
        return
    command = [run.python, "-m", "pytest", "-p", "no:cacheprovider"]
    if find_spec("pytest_timeout") or (run.site / "pytest_timeout.py").exists():
        command += ["-p", "pytest_timeout"]  # its marker is used, and plugins are not loaded automatically
    alone = name == "conformance" and not run.options.emulated  # a test of it may use all queues of the GPU
    if not alone and (find_spec("xdist") or (run.site / "xdist").exists()):
        command += ["-p", "xdist.plugin", "-n", str(min(os.cpu_count() or 1, _PROCESSES))]
    command += ["-W", "ignore::pytest.PytestConfigWarning", *selection, *there]
    # -v prints each name when the test starts: after a hang the last name is the test that hung.
    command += ["-q", "-x", "--collect-only"] if run.options.dry else ["-v", "--tb=short", "--maxfail=25"]
    env = {"HCQ_CONFORMANCE": run.device, "HCQ_DEVICE": run.device}
    log = run.logs / f"{name}.log"

    def outcomes() -> list[tuple[str, str]]:
        return outcomes_in(log.read_text(errors="replace")) if log.exists() else []

    def wrong(_: Stage) -> str:
        ended = outcomes()
        bad = [test for test, how in ended if how in {"FAILED", "ERROR"}]
        if bad:
            return f"{len(bad)} of {len(ended)} tests did not pass, the first: {bad[0]}"
        if run.options.dry or any(how == "PASSED" for _, how in ended):
            return ""
        why = re.findall(r"^SKIPPED \[\d+\] \S+ (.*)", log.read_text(errors="replace"), re.MULTILINE)
        return f"no test ran{': ' + why[0][:300] if why else ''}"

    stage = run.run(Stage(name, command, limit_s, env=env), wrong)
    text = log.read_text(errors="replace") if log.exists() else ""
    ended = outcomes()
    stage.facts = {what.lower(): sum(how == what for _, how in ended) for what in {how for _, how in ended}}
    stage.facts |= {what: int(count) for count, what in re.findall(r"(\d+) (tests? collected)", text)}
    stage.facts["not passed"] = [test for test, how in ended if how in {"FAILED", "ERROR"}][:50]
    if stage.status.startswith(("hung", "died")):
        stage.facts["last line"] = stage.tail.splitlines()[-1:]
    run.write()


def outcomes_in(text: str) -> list[tuple[str, str]]:
    """Return (test, outcome) of each line of pytest's verbose output, by one process or by several."""
    how = "(PASSED|FAILED|SKIPPED|ERROR)"
    alone = re.findall(rf"^(\S+::.*?) {how}", text, re.MULTILINE)
    beside = re.findall(rf"^\[gw\d+\] \[ *\d+%\] {how} (\S+::.*?) *$", text, re.MULTILINE)
    return [*alone, *((test, outcome) for outcome, test in beside)]


def programs(run: Run, limit_s: float) -> None:
    """Compare random programs of tensors with NumPy, and of queues with their sequential execution."""
    cases = "2" if run.options.dry else "5" if run.options.emulated else "200"
    device = "cpu" if run.options.dry else run.device
    jobs = ["--cases", cases, "--jobs", str(min(os.cpu_count() or 1, _PROCESSES))]
    modes = " && ".join(
        shlex.join([run.python, "-m", f"tests.fuzz.{module}", *options, *jobs])
        for module, options in (
            ("tensors", ["--mode", "eager"]),
            ("tensors", ["--mode", "jit"]),
            ("queues", ["--device", device]),
        )
    )
    run.run(Stage("programs", ["sh", "-c", modes], limit_s, env={"HCQ_DEVICE": device}))


def benchmarks(run: Run, limit_s: float) -> None:
    """Run the benchmarks of the device; in a dry run one benchmark of an emulated GPU."""
    cases = ["submit", "--quick", "--device", f"{run.options.vendor}-emu"]
    if not run.options.dry:
        cases = [
            "submit",
            "replay",
            "gap",
            "signal",
            "copy",
            "eager",
            "jit",
            *(["--quick"] if run.options.emulated else ["kernels"]),
            "--device",
            run.device,
        ]
    _measure(run, "benchmarks", cases, limit_s)


def beside_cuda(run: Run, limit_s: float) -> None:
    """Run the benchmarks through CUDA or HIP by PyTorch; in a dry run only import them."""
    if run.options.dry or run.options.emulated:
        code = "from tools.bench.cuda import CASES; print(*CASES)"
        run.run(Stage("cuda", [run.python, "-c", code], limit_s))
    else:
        _measure(run, "cuda", ["cuda", "cuda-kernels", "--device", "cpu"], limit_s)


def calibration(run: Run, limit_s: float) -> None:
    """Time kernels beside the estimates of the counters; in a dry run on an emulated GPU."""
    arguments = ["--device", run.device]
    if run.options.dry or run.options.emulated:
        arguments = ["--device", run.options.emulated or f"{run.options.vendor}-emu", "--groups", "4"]
    _measure(run, "calibration", arguments, limit_s, module="tools.calibrate")


def _measure(
    run: Run, name: str, cases: Sequence[str], limit_s: float, *, module: str = "tools.bench"
) -> None:
    out = run.logs / f"{name}.jsonl"
    # Each row is printed when it is measured, so a hang does not lose the rows before it.
    command = f"exec {shlex.join([run.python, '-m', module, *cases])} > {shlex.quote(str(out))}"
    stage = run.run(Stage(name, ["sh", "-c", command], limit_s))
    if out.exists():
        whole = [line for line in out.read_text().splitlines() if line.endswith("}")]
        stage.facts = {"rows": [json.loads(line) for line in whole]}
        run.write()


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line; exit with status 2 for wrong arguments."""
    parser = command("tools.hardware_run", __doc__)
    parser.add_argument(
        "--out", default="hardware_report", metavar="DIR", help="folder of report.json and evidence.tar.gz"
    )
    parser.add_argument(
        "--work", default=str(REPOSITORY / ".hardware"), metavar="DIR", help="folder of all other files"
    )
    parser.add_argument("--wheels", type=folder, metavar="DIR", help="folder of wheels to install first")
    parser.add_argument(
        "--kernels", type=folder, metavar="DIR", help="kernels that `tools.bringup --prepare` built"
    )
    parser.add_argument(
        "--device",
        default="",
        metavar="N",
        help="GPU: N, nv:N or amd:N; nv-emu, nv-emu:VARIANT or amd-emu for an emulated one, with less work",
    )
    parser.add_argument(
        "--choices", default="default", metavar="TEXT", help="values of uncertain settings: stack=low+pcas=3"
    )
    parser.add_argument(
        "--only", default="", metavar="STAGE,STAGE", help=f"run only some of {', '.join(NAMES)}"
    )
    parser.add_argument(
        "--total", type=above_zero, default=TOTAL_S, metavar="S", help="seconds for all stages together"
    )
    parser.add_argument(
        "--patience", type=above_zero, default=1.0, metavar="X", help="multiply all time limits by X"
    )
    parser.add_argument("--dry", action="store_true", help="run every stage without a GPU")
    parser.add_argument("--no-fault", action="store_true", help="skip the deliberate fault")
    parser.add_argument(
        "--share",
        action="store_true",
        help="write shared.json, the report without host names, addresses and serial numbers",
    )
    parser.add_argument("--json", action="store_true", help="also print the report on stdout")
    options = parser.parse_args(arguments)
    if options.only and not options.only.strip(","):
        parser.error(f"--only: wanted some of {', '.join(NAMES)}")
    strangers = {name for name in options.only.split(",") if name}.difference(NAMES)
    if strangers:
        parser.error(f"--only: no stage is called {', '.join(sorted(strangers))}")
    options.emulated = ""
    vendors = "|".join(VENDORS)
    if emulated := re.fullmatch(rf"({vendors})-emu(?::.+)?", options.device):
        if options.dry or options.choices != "default":
            parser.error(f"--device {options.device} takes neither --dry nor --choices")
        options.emulated, options.vendor, options.device = options.device, emulated[1], 0
        return options
    named = re.fullmatch(rf"(?:({vendors})(?::|$))?(\d*)", options.device)
    if named is None:
        parser.error(f"--device takes N, nv:N, amd:N, nv-emu or amd-emu, not {options.device!r}")
    options.vendor, options.device = named[1] or detected(Path("/dev")), int(named[2] or 0)
    return options


def run_stages(run: Run) -> None:
    """Run all stages in order; time is reserved for the last two, the fault and the machine after it."""
    fault = not run.options.no_fault and run.wanted("fault")
    run.reserve_s = _FAULT_S + _AFTER_S if fault else 0
    wheels(run)
    box(run, "box", 40)
    packages(run)
    launches = ladder(run, "ladder", 0, 24, 300, variants="needed")
    record(run, 120)
    tests(run, "conformance", ["tests/conformance"], 100)
    benchmarks(run, 120)
    beside_cuda(run, 60)
    calibration(run, 60)
    operations = _FEW_TESTS if run.options.emulated else ("tests/frontend",)
    tests(run, "operations", operations, 150, "-m", "not slow")
    programs(run, 60)
    # A dry run tries no values, so its rungs would be those of "ladder" again.
    ladder(run, "variants", 0, 1 if run.options.dry else 24, 80, variants="only")
    if fault:
        run.reserve_s = _AFTER_S
        if launches:
            ladder(run, "fault", 23, 25, _FAULT_S, variants="none")
        else:
            run.skip("fault", "no kernel ran before")
        run.reserve_s = 0
        box(run, "after", _AFTER_S)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tool. Return 0 if every stage passed, 1 if not, `REFUSED` if a folder cannot be written."""
    options = parse(arguments)
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # kills the stage, keeps the report
    try:
        return _reported(options)
    finally:
        signal.signal(signal.SIGTERM, before)


def _reported(options: argparse.Namespace) -> int:
    try:
        run = Run(options)
    except OSError as error:
        sys.stderr.write(f"error: --out and --work must be folders that can be written: {error}\n")
        return REFUSED
    try:
        run_stages(run)
    finally:  # also after Ctrl-C or SIGTERM: what is known by then is what to send
        report = run.write()
        if options.json:
            sys.stdout.write(json.dumps(report, indent=1, default=str) + "\n")
        sent = run.out / "shared.json" if options.share else None
        if sent is not None:
            share.write(report, sent)
        sys.stderr.write(f"\n{summary.page(report, sent=str(sent or ''))}")
        sys.stderr.write(missing(run))
    sys.stderr.write(f"{'passed' if report['passed'] else 'not all passed'}: {run.out / 'report.json'}\n")
    return 0 if report["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
