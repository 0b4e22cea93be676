"""Measurements of the benchmarks: how a figure is measured, its row, and how rows are printed.

Not here: the cases (`queues`, `tensors`, ...). Next: `__main__`, the command.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import hcq

Run: TypeAlias = "tuple[Callable[[], object], Callable[[], object]]"
"""(the function that is timed, the function that runs untimed before each sample)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure: the median of `count` samples, with quartiles, in `unit`."""

    bench: str
    """The case as named on the command line: "copy"."""
    case: str
    """What was measured: "copy 4 KiB"."""
    unit: str
    median: float
    p25: float
    p75: float
    count: int
    device: str
    commit: str
    note: str = ""

    def text(self) -> str:
        """Return the row as text; a time is in the unit that gives one to three digits before the point."""
        scale, unit = _readable(self.median, self.unit)
        spread = f"[{four_digits(self.p25 * scale)} … {four_digits(self.p75 * scale)}]"
        note = f"  {self.note}" if self.note else ""
        figure = f"{four_digits(self.median * scale):>10s} {unit:8s}{spread:24s}n={self.count}"
        return f"{self.bench:9s}{self.case:52s}{figure}{note}"


HEADER = f"{'bench':9s}{'case':52s}{'median':>10s} {'unit':8s}{'[quartiles]':24s}samples"
"""The header of the lines of `Row.text`."""
_TIMES = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}


def _readable(value: float, unit: str) -> tuple[float, str]:
    """Return the factor and the unit in which a figure is readable; only times change their unit."""
    if unit not in _TIMES or value <= 0:
        return 1.0, unit
    seconds = value * _TIMES[unit]
    fitting = [name for name, size in _TIMES.items() if seconds >= size]
    best = fitting[-1] if fitting else "ns"
    return _TIMES[unit] / _TIMES[best], best


def four_digits(value: float) -> str:
    """Return a number with four significant digits and no exponent."""
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 100 else 2 if abs(value) >= 10 else 3
    return f"{value:,.{digits}f}"


def counted(number: int, noun: str) -> str:
    """Return "1 kernel" or "2 kernels"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def commit() -> str:
    """Return the checkout's commit, marked if there are changes; "unknown" outside a checkout."""
    words = [
        "/usr/bin/env",
        "git",
        "-C",
        str(Path(__file__).parent),
        "describe",
        "--always",
        "--dirty",
        "--abbrev=12",
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


MOST_S = 5.0
"""Seconds after which a row ends with the samples that it has, because emulated devices are slow."""
FEWEST = 3
"""The least number of samples of a row that ends early."""


class Bench:
    """The argument of a case: an open device, and the rows measured on it.

    `report` is called with each row.
    """

    def __init__(
        self,
        device: hcq.Device,
        *,
        quick: bool,
        name: str,
        commit: str,
        report: Callable[[Row], None],
        most_s: float = MOST_S,
    ) -> None:
        self.device = device
        self.emulated = device.info.driver.endswith("-emu")
        """Whether the device is emulated: slow, and without a meaningful clock."""
        self.label = f"{device.info.driver}:{device.info.index} {device.info.name}"
        """The name of the device in rows."""
        self.quick = quick
        self.name = name
        self.rows: list[Row] = []
        self._commit = commit
        self._report = report
        self._most_s = most_s

    def measure(
        self,
        case: str,
        run: Callable[[], object],
        *,
        per: int = 1,
        unit: str = "us",
        samples: int = 200,
        before: Callable[[], object] | None = None,
        note: str = "",
        device: str = "",
    ) -> float:
        """Time `run` `samples` times after a warm-up, add a row, and return the median in `unit`.

        Each time is divided by `per`, the number of operations of one call. `before` runs untimed before each
        sample. After `most_s` seconds a row ends with the samples taken, at least `FEWEST`. A quick bench
        takes two samples. `device` names another device than the bench's.
        """
        scale = {"ns": 1e9, "us": 1e6, "ms": 1e3, "s": 1.0}[unit] / per
        begun = time.perf_counter()
        for done in range(1 if self.quick else max(3, samples // 10)):
            if done and time.perf_counter() - begun > self._most_s / 10:
                break
            if before:
                before()
            run()
        taken: list[float] = []
        begun = time.perf_counter()
        for _ in range(2 if self.quick else samples):
            if len(taken) >= FEWEST and time.perf_counter() - begun > self._most_s:
                break
            if before:
                before()
            start = time.perf_counter()
            run()
            taken.append((time.perf_counter() - start) * scale)
        return self.add(case, taken, unit=unit, note=note, device=device)

    def interleaved(
        self, case: str, runs: Mapping[str, Run], *, beside: Run, name: str, samples: int, unit: str = "us"
    ) -> None:
        """Time several runs in turn, `samples` rounds after a warm-up, and add a row for each.

        `runs` maps the name of a device to its run; `beside` is the run on the device `name`. Each round
        times each run once, so that load of the machine falls on all alike. The note of each row of `runs`
        has its median divided by that of `beside`.
        """
        everyone = {**runs, name: beside}
        taken: dict[str, list[float]] = {device: [] for device in everyone}
        scale = {"ns": 1e9, "us": 1e6, "ms": 1e3, "s": 1.0}[unit]
        warm = 1 if self.quick else max(3, samples // 10)
        for turn in range(warm + (2 if self.quick else samples)):
            for device, (run, before) in everyone.items():
                before()
                start = time.perf_counter()
                run()
                if turn >= warm:
                    taken[device].append((time.perf_counter() - start) * scale)
        base = statistics.median(taken[name])
        for device, times in taken.items():
            ratio = "" if device == name else f", {statistics.median(times) / base:.2f} of {name}"
            self.add(case, times, unit=unit, note=device + ratio, device=device)

    def burst(
        self, case: str, run: Callable[[], object], *, before: Callable[[], object], unit: str = "us"
    ) -> float:
        """Time `run` in bursts of 20 calls, add a row, and return the median time of one call.

        The device is awake in most of a burst, so this is the host time. `before` runs untimed before each.
        """
        count = 20

        def many() -> None:
            for _ in range(count):
                run()

        return self.measure(case, many, per=count, unit=unit, samples=200, before=before)

    def add(self, case: str, taken: Sequence[float], *, unit: str, note: str = "", device: str = "") -> float:
        """Add a row of samples that the caller measured (device times, rates); return the median."""
        # inclusive: no quartile lies outside the samples
        quartiles = statistics.quantiles(taken, n=4, method="inclusive") if len(taken) > 1 else [taken[0]] * 3
        low, middle, high = quartiles
        row = Row(
            bench=self.name,
            case=case,
            unit=unit,
            median=middle,
            p25=low,
            p75=high,
            count=len(taken),
            device=device or self.label,
            commit=self._commit,
            note=note,
        )
        self.rows.append(row)
        self._report(row)
        return middle


class Report:
    """Writes each row at once to `data`: as a line of a table, or with `lines` as a JSON object.

    `file`, if given, also receives the JSON objects; `messages` receives the progress.
    """

    def __init__(self, data: TextIO, messages: TextIO, file: TextIO | None = None, *, lines: bool) -> None:
        self._data = data
        self._messages = messages
        self._file = file
        self._lines = lines
        self._has_header = False

    def __call__(self, row: Row) -> None:
        """Write one row."""
        line = json.dumps(asdict(row)) + "\n"
        if self._lines:
            self._data.write(line)
        else:
            if not self._has_header:
                self._data.write(f"{row.device}, commit {row.commit}\n{HEADER}\n")
                self._has_header = True
            self._data.write(row.text() + "\n")
        self._data.flush()
        if self._file is not None:
            self._file.write(line)
            self._file.flush()

    def progress(self, text: str) -> None:
        """Print progress."""
        self._messages.write(text + "\n")
        self._messages.flush()
