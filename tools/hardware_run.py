"""Everything that a first hour on a real NVIDIA GPU should tell, in one command and under ten minutes.

    python -m tools.hardware_run --out report                on a box with a GPU
    python -m tools.hardware_run --out report --wheels DIR   install what the box lacks from DIR
    python -m tools.hardware_run --out report --dry          walk every stage without a GPU

Stages: the wheels, the ladder up to its fault, conformance, the quick tests of tensors on the device,
microbenchmarks, the same through CUDA by PyTorch, and last the fault on purpose. Each is a child
process with a time limit of its own, whose output is kept in a file; a stage that fails, dies or hangs does
not keep the others from running. One JSON report says it all; docs/hardware/README.md says what is in it.
The choices that the ladder found to work are what the later stages open the device with. No clocks are
changed. Exit status: 0 when every stage passed, 1 when one did not.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

TOTAL_S = 590.0
_LEAST_S = 0.5
"""A stage with less time than this is not begun."""
_TAIL = 4000
_NEEDED = ("cffi", "numpy", "elftools", "llvmlite", "pytest", "hypothesis")
_WHEELS = ("cffi", "pyelftools", "llvmlite", "pytest", "pytest-timeout", "hypothesis")
_REPOSITORY = Path(__file__).resolve().parent.parent


@dataclass
class Stage:
    """One child process and what became of it."""

    name: str
    command: list[str]
    limit_s: float
    env: dict[str, str] = field(default_factory=dict)
    status: str = "not run"
    seconds: float = 0.0
    returncode: int | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    tail: str = ""


class Run:
    """All stages of one command."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.out = Path(options.out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.stages: list[Stage] = []
        self.start = time.monotonic()
        self.site = self.out / "site"
        self.device = f"nv:{options.device}"

    def left_s(self) -> float:
        """Return the seconds that are left of the ten minutes."""
        return TOTAL_S - (time.monotonic() - self.start)

    def run(self, stage: Stage) -> Stage:
        """Run a stage within what is left of the time and keep its output; never raises for what it does."""
        self.stages.append(stage)
        limit = min(stage.limit_s, self.left_s() - 5)
        if limit < _LEAST_S:
            stage.status = "skipped: the time is used up"
            return self._tell(stage)
        started = time.monotonic()
        log = self.out / f"{stage.name}.log"
        with log.open("wb") as output:
            # A session of its own: a stage's children end with it.
            child = subprocess.Popen(
                stage.command, stdout=output, stderr=subprocess.STDOUT, cwd=_REPOSITORY, env=self._env(stage),
                start_new_session=True,
            )  # fmt: skip
            try:
                stage.returncode = child.wait(timeout=limit)
                stage.status = _ending(stage.returncode)
            except subprocess.TimeoutExpired:
                stage.status = f"hung: ended after {limit:.0f} s"
                _end(child)
            except BaseException:
                _end(child)
                raise
        stage.seconds = round(time.monotonic() - started, 2)
        stage.tail = log.read_text(errors="replace")[-_TAIL:]
        return self._tell(stage)

    def _env(self, stage: Stage) -> dict[str, str]:
        path = os.pathsep.join([str(self.site.resolve()), str(_REPOSITORY)])
        return {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **stage.env}

    def _tell(self, stage: Stage) -> Stage:
        sys.stderr.write(f"{stage.status:8} {stage.name}  ({stage.seconds:.1f} s)\n")
        self.write()
        return stage

    def write(self) -> dict[str, Any]:
        """Write the report as it stands, so that an end by force still leaves one."""
        report = {
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "dry": self.options.dry,
            "device": self.device,
            "python": platform.python_version(),
            "kernel": platform.release(),
            "commit": _commit(),
            "seconds": round(time.monotonic() - self.start, 1),
            "passed": bool(self.stages) and all(s.status == "passed" for s in self.stages),
            "stages": [asdict(stage) for stage in self.stages],
        }
        (self.out / "report.json").write_text(json.dumps(report, indent=1, default=str))
        return report


def _ending(returncode: int) -> str:
    if returncode >= 0:
        return "failed" if returncode else "passed"
    return f"died: {signal.Signals(-returncode).name}"


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a hung stage: its own process group, nothing else."""
    os.killpg(child.pid, 9)
    try:
        child.wait(timeout=10)
    except subprocess.TimeoutExpired:
        sys.stderr.write(f"process {child.pid} does not end: it hangs in the kernel\n")


def _commit() -> str:
    try:
        done = subprocess.run(
            ["/usr/bin/env", "git", "rev-parse", "HEAD"],
            cwd=_REPOSITORY,
            capture_output=True,
            text=True,
            check=False,
            timeout=10,
        )
    except OSError:
        return ""
    return done.stdout.strip()


def wheels(run: Run) -> None:
    """Install what the box lacks, from a folder, and say what is there."""
    if run.options.wheels:
        command = [sys.executable, "-m", "pip", "install", "--no-index", "--find-links", run.options.wheels]
        run.run(
            Stage(
                "wheels",
                [*command, "--target", str(run.site), "--no-deps", *_everything(run.options.wheels)],
                90,
            )
        )
    code = (
        "import importlib, json\n"
        f"names = {[*_NEEDED, 'torch', 'nvidia']!r}\n"
        "def look(n):\n"
        "    try: return str(getattr(importlib.import_module(n), '__version__', 'there'))\n"
        "    except Exception as e: return f'absent: {e}'\n"
        "seen = {n: look(n) for n in names}\n"
        "from compiler.cubin import available\n"
        "seen['assembler'] = available() or 'absent'\n"
        "print(json.dumps(seen))\n"
        f"raise SystemExit(any(seen[n].startswith('absent') for n in {_NEEDED!r}))\n"
    )
    stage = run.run(Stage("packages", [sys.executable, "-c", code], 60))
    lines = [line for line in stage.tail.splitlines() if line.startswith("{")]
    stage.facts = json.loads(lines[-1]) if lines else {}


def _everything(folder: str) -> list[str]:
    return [str(path) for path in sorted(Path(folder).glob("*.whl"))] or list(_WHEELS)


def ladder(run: Run, name: str, first: int, last: int, limit_s: float, *, variants: bool) -> None:
    """Climb part of the ladder; the choices that work are taken over."""
    command = [sys.executable, "-m", "tools.bringup_nv", "--json", "--from", str(first), "--to", str(last)]
    command += ["--device", str(run.options.device)]
    command += ["--dry"] * run.options.dry + ["--no-variants"] * (not variants)
    command += ["--kernels", run.options.kernels] if run.options.kernels else []
    out = run.out / f"{name}.json"
    stage = run.run(Stage(name, _into(out, command), limit_s))
    try:
        report = json.loads(out.read_text())
    except (OSError, ValueError):
        return
    stage.facts = {
        "choices": report["choices"],
        "rungs": {
            f"{r['rung']} {r['choices']}": "pass" if r["passed"] else r["error"][:500]
            for r in report["rungs"]
        },
        "bandwidth": [r["facts"] for r in report["rungs"] if "gb_per_s" in r["facts"]],
    }
    working = _described(report["choices"])
    if working != "default" and not run.options.dry:
        run.device = f"nv:{working}:{run.options.device}"
    run.write()


def _described(values: dict[str, Any]) -> str:
    from drivers.nv.choices import DEFAULT, describe, parse  # noqa: PLC0415 - the packages stage comes first

    changed = {k: v for k, v in values.items() if v != getattr(DEFAULT, k)}
    text = "+".join(f"{k}={str(v).lower()}" for k, v in changed.items())
    return describe(parse(text)) if text else "default"


def tests(run: Run, name: str, folders: Sequence[str], limit_s: float, *selection: str) -> None:
    """Run tests on the device; in a dry run they are only collected."""
    there = [folder for folder in folders if (_REPOSITORY / folder).exists()]
    if not there:
        run.stages.append(Stage(name, [], limit_s, status=f"skipped: {', '.join(folders)} is not there"))
        return
    command = [sys.executable, "-m", "pytest", "-q", "-x" if run.options.dry else "--maxfail=25", *there]
    command += [
        "-p",
        "no:cacheprovider",
        "-W",
        "ignore::pytest.PytestConfigWarning",
        *selection,
        *(["--collect-only"] if run.options.dry else []),
    ]
    env = {"HCQ_CONFORMANCE": run.device, "HCQ_DEVICE": run.device}
    stage = run.run(Stage(name, command, limit_s, env=env))
    found = re.findall(r"(\d+) (passed|failed|skipped|errors?|tests? collected)", stage.tail)
    stage.facts = {what: int(count) for count, what in found}
    run.write()


def benchmarks(run: Run, limit_s: float) -> None:
    """Run the microbenchmarks; in a dry run, those that need no GPU."""
    cases = ["nv", "--device", "cpu"]
    if not run.options.dry:
        cases = ["nv", "submit", "replay", "gap", "signal", "copy", "eager", "jit", "--device", run.device]
    _measure(run, "benchmarks", cases, limit_s)


def beside_cuda(run: Run, limit_s: float) -> None:
    """Measure the same through CUDA by PyTorch; a dry run only shows that it can be loaded."""
    if run.options.dry:
        code = "from tools.bench.cuda import CASES; print(*CASES)"
        run.run(Stage("cuda", [sys.executable, "-c", code], limit_s))
    else:
        _measure(run, "cuda", ["cuda", "--device", "cpu"], limit_s)


def _measure(run: Run, name: str, cases: Sequence[str], limit_s: float) -> None:
    out = run.out / f"{name}.jsonl"
    out.unlink(missing_ok=True)
    # Rows are told as they are measured: what a hang cut short keeps those before it.
    stage = run.run(Stage(name, _into(out, [sys.executable, "-m", "tools.bench", *cases]), limit_s))
    if out.exists():
        whole = [line for line in out.read_text().splitlines() if line.endswith("}")]
        stage.facts = {"rows": [json.loads(line) for line in whole]}
        run.write()


def _into(out: Path, command: Sequence[str]) -> list[str]:
    """Return the command with its standard output in a file of its own, beside the log."""
    return ["sh", "-c", f"exec {shlex.join(command)} > {shlex.quote(str(out.resolve()))}"]


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.hardware_run", description=(__doc__ or "").split("\n", 1)[0]
    )
    parser.add_argument(
        "--out", default="hardware_report", metavar="DIR", help="where logs and report.json go"
    )
    parser.add_argument("--wheels", metavar="DIR", help="wheels to install before anything else")
    parser.add_argument("--kernels", metavar="DIR", help="kernels that `bringup_nv --prepare` assembled")
    parser.add_argument("--device", type=int, default=0, metavar="N")
    parser.add_argument("--dry", action="store_true", help="walk every stage without a GPU")
    parser.add_argument("--no-fault", action="store_true", help="leave out the fault on purpose")
    parser.add_argument("--json", action="store_true", help="print the report on stdout as well")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tool; see the module."""
    options = parse(arguments)
    run = Run(options)
    wheels(run)
    ladder(run, "ladder", 0, 24, 190, variants=True)
    tests(run, "conformance", ["tests/conformance"], 100)
    tests(run, "operations", ["tests/frontend"], 110, "-m", "not slow")
    benchmarks(run, 80)
    beside_cuda(run, 50)
    if not options.no_fault:
        ladder(run, "fault", 23, 25, 50, variants=False)
    report = run.write()
    if options.json:
        sys.stdout.write(json.dumps(report, indent=1, default=str) + "\n")
    sys.stderr.write(f"{'passed' if report['passed'] else 'not all passed'}: {run.out / 'report.json'}\n")
    return 0 if report["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
