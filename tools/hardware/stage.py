"""Stages of a hardware run: child processes with a time limit, one report, and one archive of their output.

Report and archive are replaced atomically every few seconds, so a run that is killed leaves complete files.
This module writes only these two files to `--out`, where `tools.hardware_run` may add shared.json. All other
files, and installed packages, are in the folder `--work`, by default inside the checkout.

Not here: the stages themselves (`tools.hardware_run`). Next: `summary`, the page at the end of a run.
"""

from __future__ import annotations

import io
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tools.hardware import summary

if TYPE_CHECKING:
    import argparse

REPOSITORY: Final = Path(__file__).resolve().parents[2]
_LEAST_S: Final = 0.5
"""Seconds that must be left for a stage to start."""
_TAIL: Final = 4000
"""Bytes at the end of a stage's output that the report has."""
_LARGEST: Final = 4 << 20
"""Bytes of one file that the archive holds at most."""


@dataclass(frozen=True, slots=True)
class Timing:
    """The clock of a run, and its intervals in seconds; tests pass shorter ones."""

    monotonic: Callable[[], float] = time.monotonic
    beat_s: float = 5.0
    """Time between two writes of the report while a stage runs."""
    end_s: float = 10.0
    """Time that a killed process has to exit."""


@dataclass
class Stage:
    """One child process and its result."""

    name: str
    command: list[str]
    limit_s: float
    """Seconds that the stage may take, before the run's factor `patience`."""
    env: dict[str, str] = field(default_factory=dict)
    """Variables of the environment besides those of `Run.env`."""
    status: str = "not run"
    """"not run", "running", "passed", "failed", "hung: ...", "died: SIGNAL" or "skipped: REASON"."""
    reason: str = ""
    """What was missing or failed, as text; empty for a stage that passed."""
    seconds: float = 0.0
    returncode: int | None = None
    """The exit status of the child; None before its end, and if it was killed."""
    facts: dict[str, Any] = field(default_factory=dict)
    """The results of the stage, as JSON data."""
    tail: str = ""
    """The end of the child's output."""


class Run:
    """All stages of one command. `python` is the interpreter that the stages run.

    The constructor deletes the logs of an earlier run, and makes the folders of `--out` and `--work`. Raises
    `OSError` if they cannot be written.
    """

    def __init__(
        self, options: argparse.Namespace, *, timing: Timing | None = None, python: str = sys.executable
    ) -> None:
        self.options = options
        self.timing = timing or Timing()
        self.python = python
        self.out = Path(options.out).resolve()
        self.work = Path(options.work).resolve()
        self.logs = self.work / "logs"
        shutil.rmtree(self.logs, ignore_errors=True)
        for folder in (self.out, self.logs, self.work / "tmp"):
            folder.mkdir(parents=True, exist_ok=True)
        self.site = self.work / "site"
        """Folder in which packages are installed that the machine lacks."""
        self.choices: str = options.choices
        """The values of the driver's uncertain constants that the stages use (`tools.bringup.ladder`)."""
        self.patience: float = options.patience
        """The factor of all time limits."""
        self.reserve_s = 0.0
        """Seconds that are reserved for the last stages."""
        self.stages: list[Stage] = []
        self.start = self.timing.monotonic()
        self._commit = commit()

    @property
    def device(self) -> str:
        """The name of the device that the stages open."""
        if self.options.emulated:
            return str(self.options.emulated)
        name, number = self.options.vendor, self.options.device
        return f"{name}:{number}" if self.choices == "default" else f"{name}:{self.choices}:{number}"

    def left_s(self) -> float:
        """Return the seconds left of the total."""
        return float(self.options.total) * self.patience - (self.timing.monotonic() - self.start)

    def wanted(self, name: str) -> bool:
        """Return whether `--only` includes a stage; without `--only` it is True."""
        return not self.options.only or name in self.options.only.split(",")

    def run(self, stage: Stage, explain: Callable[[Stage], str] | None = None) -> Stage:
        """Run a stage within the remaining time and record its output; a failing stage does not raise.

        `explain` is called after the child's end. It returns why the stage failed, or "". A child that exits
        with 0 and has a reason has failed. For a failed child without a reason, the last line of its output
        is the reason. A stage that `--only` leaves out is returned as "not run", and is not recorded.
        """
        if not self.wanted(stage.name):
            return stage
        self.stages.append(stage)
        limit = min(stage.limit_s * self.patience, self.left_s() - 5 - self.reserve_s)
        if limit < _LEAST_S:
            stage.status = "skipped: the time is used up"
            return self._show(stage)
        started = self.timing.monotonic()
        log = self.logs / f"{stage.name}.log"
        with log.open("wb") as output:
            # In a new session, so that its own children can be killed with it.
            child = subprocess.Popen(
                stage.command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                cwd=REPOSITORY, env=self.env(stage), start_new_session=True,
            )  # fmt: skip
            try:
                self._watch(stage, child, log, limit)
            except BaseException:
                _end(child, self.timing.end_s)
                raise
        stage.seconds = round(self.timing.monotonic() - started, 2)
        stage.tail = _tail(log)
        passed = stage.status == "passed"
        stage.reason = explain(stage) if explain is not None else ""
        if passed and stage.reason:
            stage.status = "failed"
        elif not passed:
            stage.reason = stage.reason or _last_line(stage.tail)
        return self._show(stage)

    def _watch(self, stage: Stage, child: subprocess.Popen[bytes], log: Path, limit: float) -> None:
        """Wait for a stage and write the report at intervals; kill the stage after its limit."""
        stage.status = "running"
        monotonic = self.timing.monotonic
        end = monotonic() + limit
        while True:
            try:
                stage.returncode = child.wait(timeout=max(0.0, min(self.timing.beat_s, end - monotonic())))
            except subprocess.TimeoutExpired:
                stage.tail = _tail(log)
                if monotonic() < end:
                    self.write()
                    continue
                stage.status = f"hung: killed after {limit:.0f} s; --patience X gives it more"
                stage.status += _end(child, self.timing.end_s)
            else:
                stage.status = _ending(stage.returncode)
            return

    def env(self, stage: Stage) -> dict[str, str]:
        """Return the environment of a stage; all its files are written to the working folder."""
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(self.site), str(REPOSITORY)]),
            "PYTHONUNBUFFERED": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # the machine may have any plugin
            "HCQ_CACHE": str(self.work / "cache"),
            "CUDA_CACHE_PATH": str(self.work / "cuda"),
            "TMPDIR": str(self.work / "tmp"),
            **stage.env,
        }

    def _show(self, stage: Stage) -> Stage:
        why = "".join(f"\n         {line}" for line in stage.reason.splitlines())
        sys.stderr.write(f"{stage.status:8} {stage.name}  ({stage.seconds:.1f} s){why}\n")
        sys.stderr.flush()
        self.write()
        return stage

    def skip(self, name: str, why: str) -> None:
        """Record that a stage does not run, with the reason."""
        if self.wanted(name):
            self.stages.append(Stage(name, [], 0.0, status=f"skipped: {why}"))
            self._show(self.stages[-1])

    def write(self) -> dict[str, Any]:
        """Write report and archive; return the report. Each file is replaced as a whole."""
        stages = [asdict(stage) for stage in self.stages]
        given = self.options.emulated or f"{self.options.vendor}:{self.options.device}"
        report = {
            "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "dry": self.options.dry,
            "device": self.device,
            "gpu": summary.gpu(stages),
            "driver": summary.driver(stages),
            "choices": self.choices,
            "python": platform.python_version(),
            "kernel": platform.release(),
            "commit": self._commit,
            "seconds": round(self.timing.monotonic() - self.start, 1),
            "passed": bool(self.stages) and all(s.status.startswith("passed") for s in self.stages),
            "failed": summary.failed(stages, device=given, choices=self.choices, dry=self.options.dry),
            "stages": stages,
        }
        beside = self.out / "report.json.part"
        beside.write_text(json.dumps(report, indent=1, default=str))
        beside.replace(self.out / "report.json")
        self._archive()
        return report

    def _archive(self) -> None:
        beside = self.out / "evidence.tar.gz.part"
        with tarfile.open(beside, "w:gz", compresslevel=1) as archive:
            for path in sorted(self.logs.rglob("*")):
                with suppress(FileNotFoundError, IsADirectoryError):  # stages write meanwhile
                    entry = tarfile.TarInfo(str(path.relative_to(self.logs)))
                    with path.open("rb") as file:
                        data = file.read(_LARGEST)
                    entry.size, entry.mtime = len(data), time.time()
                    archive.addfile(entry, io.BytesIO(data))
        beside.replace(self.out / "evidence.tar.gz")


def _tail(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
        return file.read().decode(errors="replace")


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it printed nothing"


def _ending(returncode: int) -> str:
    if returncode >= 0:
        return "failed" if returncode else "passed"
    return f"died: {signal.Signals(-returncode).name}"


def _end(child: subprocess.Popen[bytes], end_s: float) -> str:
    """Kill the process group of a stage; return a text if the process does not exit, else ""."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        return ""
    try:
        child.wait(timeout=end_s)
    except subprocess.TimeoutExpired:
        return f"; process {child.pid} does not exit: it hangs in the kernel"
    return ""


def commit() -> str:
    """Return the hash of the checkout's commit; "" without a repository or git."""
    command = ["/usr/bin/env", "git", "rev-parse", "HEAD"]
    try:
        done = subprocess.run(
            command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
