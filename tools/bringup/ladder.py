"""The ladder: it runs each rung in a child process, skips rungs whose needs failed, and tries alternatives.

A rung names the uncertain values on which it depends: values that the driver must choose and that public
sources do not settle. If the rung fails, it is repeated with alternatives: first with sets that are known to
work together (the vendor's presets), then with one alternative, then with two. From a combination that works,
each value that is not needed is reset to its start. The later rungs use the rest. The alternatives of rungs
that passed are tried after all rungs have run. The report is written after every child.

Not here: the rungs (`tools.bringup.nv`, `tools.bringup.amd`), the command line (`command`). Next: `vendor`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import platform
import signal
import subprocess
import time
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, Final

from drivers.kernel import LinuxKernel
from hcq.errors import DriverError
from tools.bench.rows import commit
from tools.bringup.checks import EMULATED_PATIENCE
from tools.bringup.child import child_command
from tools.bringup.evidence import kernel_log
from tools.bringup.rung import FAULT, NODES, Result, Rung

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence

    from tools.bringup.vendor import Vendor

START_S: Final = 10.0
"""Seconds beyond its rung's limit that a child may need to start and to exit."""
_END_S: Final = 5.0
"""Seconds within which a killed child must exit; otherwise it hangs in the kernel and is abandoned."""
PAIRS_S: Final = 90.0
"""Seconds for which pairs of alternatives are tried at a rung that fails with each alternative alone."""
ONE: Final = "one other value"
TWO: Final = "two other values"


class Ladder:
    """One run of the ladder.

    `arguments` are those of `command.parse`. `show` is called with each result.
    """

    def __init__(
        self,
        rungs: Sequence[Rung],
        arguments: argparse.Namespace,
        show: Callable[[Result], None],
        *,
        spawn: Callable[[Rung, Any, float], Result] | None = None,
    ) -> None:
        """`spawn` runs a rung with values and a factor of its time limit, by default in a child process."""
        self._spawn = spawn or self._child
        self._vendor: Vendor[Any] = arguments.vendor
        self.rungs = [rung for rung in rungs if wanted(rungs, rung, arguments)]
        self._arguments = arguments
        self._show = show
        self.results: list[Result] = []
        self.best = self._vendor.parse(arguments.choices)
        """The values in use, as the vendor's `Quirks`."""
        self._failed: set[int] = set()
        self._seen: dict[tuple[int, str], bool] = {}
        self._left: list[subprocess.Popen[bytes]] = []
        """Abandoned children, which hang in the kernel."""
        self._start = time.monotonic()
        self._end = self._start + arguments.budget
        self._commit = commit()

    @property
    def working(self) -> str:
        """The values in use, as text."""
        return self._vendor.describe(self.best)

    @property
    def passed(self) -> bool:
        """Whether every rung passed with some values."""
        return not self._failed

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._start

    def climb(self) -> None:
        """Run the rungs in order. The alternatives of rungs that passed come before the deliberate fault."""
        with contextlib.ExitStack() as held:
            opened = False
            for rung in self.rungs:
                if rung.number > NODES and not opened:  # not before rung 1: an open may hang
                    self._keep_open(held)
                    opened = True
                if rung.number == FAULT:
                    self._try_other_values()
                self._climb_one(rung)
            self._try_other_values()
        self.write(finished=True)

    def _climb_one(self, rung: Rung) -> None:
        lacking = [number for number in rung.needs if number in self._failed]
        if self._arguments.variants == "only":
            return
        if lacking and not self._arguments.keep_going:
            text = f"not run: it needs rung {', '.join(map(str, lacking))}"
            self._note(self._untried(rung, text))
            self._failed.add(rung.number)
            return
        if self._try(rung, self.best):
            return
        if self._arguments.variants != "none":
            for choices, why in self._others(rung):
                if self._try(rung, choices, why):
                    self.best = self._least(rung, choices)
                    return
        self._failed.add(rung.number)

    def _least(self, rung: Rung, works: Any) -> Any:
        """Return `works` without each change that the rung does not need: a change is reset, and tried."""
        start, needed = self.best, works
        for name in self._vendor.changes(works, start):
            less = replace(needed, **{name: getattr(start, name)})
            if less != start and self._try(rung, less, f"without {name}"):
                needed = less
        return needed

    def _presets(self, rung: Rung) -> Iterator[tuple[Any, str]]:
        """Yield (values, why) for each preset of this GPU that changes an uncertain value of a rung."""
        facts: dict[str, Any] = {}
        for result in self.results:
            facts |= result.facts
        for name, values in self._vendor.presets(facts):
            if any(getattr(self.best, field) != values[field] for field in rung.quirks if field in values):
                yield replace(self.best, **values), f"preset {name}"

    def _others(self, rung: Rung) -> Iterator[tuple[Any, str]]:
        """Yield (values, why): presets, then the alternatives of a rung, one and then two at a time."""
        yield from self._presets(rung)
        values = {
            name: [value for value in self._vendor.alternatives[name] if value != getattr(self.best, name)]
            for name in rung.quirks
        }
        start = self.best
        for name, ones in values.items():
            for one in ones:
                yield replace(start, **{name: one}), ONE
        begun = time.monotonic()
        for first, second in itertools.combinations(values, 2):
            for one, two in itertools.product(values[first], values[second]):
                if time.monotonic() - begun > PAIRS_S:
                    return
                yield replace(start, **{first: one, second: two}), TWO

    def _try_other_values(self) -> None:
        """Try each alternative at the rungs that passed, if --variants is "all" or "only"."""
        if self._arguments.variants not in {"all", "only"}:
            return
        for rung in self.rungs:
            if rung.number in self._failed or rung.number == FAULT:
                continue
            for name in rung.quirks:
                for value in self._vendor.alternatives[name]:
                    if value != getattr(self.best, name):
                        self._try(rung, replace(self.best, **{name: value}), ONE)

    def _try(self, rung: Rung, choices: Any, variant: str = "") -> bool:
        """Run a rung with some values, unless it ran with them before; return whether it passed.

        `variant` says how the values differ from those in use; "" if they do not. A rung that hangs with the
        values in use is run once more, with twice its time limit. Return False when the time is used up.
        """
        text = self._vendor.describe(choices)
        if (rung.number, text) in self._seen:
            return self._seen[rung.number, text]
        if self._end - time.monotonic() < 1:
            if not variant:
                self._note(self._untried(rung, "not run: the time is used up"))
            return False
        result = self._spawn(rung, choices, 1)
        result.variant = variant
        result.expected = self._vendor.reasons(choices, self.best) if variant else ""
        if result.hung and not variant:
            # Run it again: otherwise a slow disk or a busy host would skip all rungs that need this one.
            self._show(result)
            result = self._spawn(rung, choices, 2)
        self._seen[rung.number, text] = result.passed
        if not result.passed and not (self._arguments.dry or self._arguments.emulate is not None):
            result.facts["kernel log"] = kernel_log(self._vendor.log_words)
        self._note(result)
        return result.passed

    def _untried(self, rung: Rung, text: str) -> Result:
        choices = self.working
        return Result(rung.number, rung.name, choices, passed=False, seconds=0.0, error=text, tried=False)

    def _note(self, result: Result) -> None:
        self.results.append(result)
        self._show(result)
        self.write()

    def report(self, *, finished: bool = False) -> dict[str, Any]:
        """Return the report so far, as data for JSON; "passed" is None until a rung fails or all have run."""
        works = {result.rung for result in self.results if result.passed}  # perhaps with other values only
        bad = [one for one in self.results if not one.passed and not one.variant and one.rung not in works]
        versions = [one.facts["version"] for one in self.results if one.passed and "version" in one.facts]
        return {
            "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "commit": self._commit,
            "device": self._device,
            "dry": self._arguments.dry,
            "driver": str(versions[0]) if versions else "",
            "python": platform.python_version(),
            "kernel": platform.release(),
            "failed": [self._failure(result) for result in bad],
            # Not false before the end: false stands beside what failed.
            "passed": self.passed if finished or not self.passed else None,
            "finished": finished,
            "seconds": round(self.seconds, 1),
            "working": self.working,
            "choices": asdict(self.best),
            "rungs": [asdict(result) for result in self.results],
        }

    @property
    def _device(self) -> str:
        """The device as `--device` takes it."""
        given = self._arguments
        if given.emulate is None:
            return f"{self._vendor.name}:{given.device}"
        return f"{self._vendor.name}-emu" + (f":{given.emulate}" if given.emulate else "")

    def _failure(self, result: Result) -> dict[str, Any]:
        """Return a failed rung in short, with the command that runs it again."""
        again = f"hcq bringup --device {self._device} --from {result.rung} --to {result.rung}"
        again += f" --choices {result.choices}" if result.choices != "default" else ""
        again += " --dry" * bool(self._arguments.dry) + " --verbose"
        return {"rung": result.rung, "name": result.name, "error": result.error, "again": again}

    def write(self, *, finished: bool = False) -> None:
        """Write the report so far to its file, atomically; without --report do nothing."""
        if self._arguments.report:
            path = Path(self._arguments.report)
            beside = path.with_name(path.name + ".part")
            beside.write_text(json.dumps(self.report(finished=finished), indent=1, default=str))
            beside.replace(path)

    def _keep_open(self, held: contextlib.ExitStack) -> None:
        """Keep the GPU's node open, because the driver shuts an unused GPU down between children."""
        if self._arguments.dry or self._arguments.emulate is not None or NODES in self._failed:
            return
        kernel = LinuxKernel()
        for path in self._vendor.held(self._arguments.device):
            with contextlib.suppress(DriverError):  # rung 1 reports the error
                held.callback(kernel.close, kernel.open(path))

    def _child(self, rung: Rung, choices: Any, times: float) -> Result:
        """Run a rung in a child process and return the result; kill the child after `times` the rung's limit.

        `START_S` is added to the limit; it is longer on an emulated GPU, and ends with the budget.
        """
        given, text = self._arguments, self._vendor.describe(choices)
        command = child_command(
            f"{self._vendor.name}:{given.device}", rung.number, choices=text, emulate=given.emulate,
            kernels=given.kernels,
        )  # fmt: skip
        command += ["--dry"] * given.dry + ["--boost"] * given.boost
        trace = None
        if given.traces:
            plain = text.replace("=", "-").replace("+", "_")
            trace = Path(given.traces) / f"rung{rung.number:02d}-{plain}.txt"
            trace.parent.mkdir(parents=True, exist_ok=True)
            command += ["--trace", str(trace)]
        slow = given.dry or given.emulate is not None  # as slow as the host; no GPU can hang
        limit_s = times * (rung.limit_s + START_S) * (EMULATED_PATIENCE if slow else 1.0)
        limit_s = min(limit_s, self._end - time.monotonic())
        start = time.perf_counter()
        # Files, not pipes: a child of the child that keeps one open cannot block.
        with TemporaryFile() as out, TemporaryFile() as err:
            child = subprocess.Popen(command, stdout=out, stderr=err, stdin=subprocess.DEVNULL)
            ending = self._wait(child, limit_s)
            output, errors = (_read(file) for file in (out, err))
        lines = [line for line in output.splitlines() if line.startswith("{")]
        if lines:
            result = Result(**json.loads(lines[-1]))
            result.error += f"\nafter its result: {ending}" if ending else ""
            return result
        error = f"{ending or _ending(child)}: {errors.strip()[-2000:]}"
        calls = trace.read_text(errors="replace").splitlines()[-12:] if trace and trace.exists() else []
        seconds = time.perf_counter() - start
        return Result(
            rung.number, rung.name, text, passed=False, seconds=seconds, error=error,
            calls=[call[:1000] for call in calls], hung=bool(ending),
        )  # fmt: skip

    def _wait(self, child: subprocess.Popen[bytes], limit_s: float) -> str:
        """Wait for a child; return "" if it exits in time.

        After a timeout kill it, and return a text. A child that does not exit then is abandoned: it hangs in
        the kernel.
        """
        try:
            child.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            child.kill()
        except BaseException:
            child.kill()
            raise
        else:
            return ""
        text = f"no result in {limit_s:.0f} s"
        try:
            child.wait(timeout=_END_S)
        except subprocess.TimeoutExpired:
            self._left.append(child)
            return f"{text}; the killed child hangs in the kernel: process {child.pid}"
        return f"{text}; the child was killed"


def wanted(rungs: Sequence[Rung], rung: Rung, arguments: argparse.Namespace) -> bool:
    """Return whether a rung is between --from and --to, in the order of execution."""
    order = [r.number for r in rungs]
    first = order.index(arguments.first) if arguments.first in order else 0
    last = order.index(arguments.last) if arguments.last in order else len(order) - 1
    return first <= order.index(rung.number) <= last


def _read(file: Any) -> str:
    file.seek(0)
    return str(os.fsdecode(file.read()))


def _ending(child: subprocess.Popen[bytes]) -> str:
    if child.returncode < 0:
        return f"the child was killed: {signal.Signals(-child.returncode).name}"
    return f"the child exited with status {child.returncode}"
