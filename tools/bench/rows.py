"""Measurements: how a figure is taken, and the row it becomes.

Next: `__main__`, which prints the rows; `queues`, cases.
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
"""What is timed, and what runs untimed ahead of each sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure: a median with its quartiles."""

    bench: str
    case: str
    unit: str
    median: float
    p25: float
    p75: float
    count: int
    device: str
    commit: str
    note: str = ""

    @property
    def numpy(self) -> bool:
        """Whether this is NumPy's figure, which stands beside the device's."""
        return self.device.startswith("NumPy ")

    def text(self) -> str:
        """The row for people: a time in the unit that gives it one to three digits before the point."""
        scale, unit = _readable(self.median, self.unit)
        spread = f"[{four_digits(self.p25 * scale)} … {four_digits(self.p75 * scale)}]"
        note = f"  {self.note}" if self.note else ""
        note += "  NumPy" if self.numpy else ""
        figure = f"{four_digits(self.median * scale):>10s} {unit:8s}{spread:24s}n={self.count}"
        return f"{self.bench:9s}{self.case:52s}{figure}{note}"


HEADER = f"{'bench':9s}{'case':52s}{'median':>10s} {'unit':8s}{'[quartiles]':24s}samples"
"""What stands above the lines of `Row.text`."""
_TIMES = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}


def _readable(value: float, unit: str) -> tuple[float, str]:
    """Return by what to multiply a figure, and in which unit it is then; only times change theirs."""
    if unit not in _TIMES or value <= 0:
        return 1.0, unit
    seconds = value * _TIMES[unit]
    fitting = [name for name, size in _TIMES.items() if seconds >= size]
    best = fitting[-1] if fitting else "ns"
    return _TIMES[unit] / _TIMES[best], best


def four_digits(value: float) -> str:
    """Return four significant digits, never as a power of ten."""
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 100 else 2 if abs(value) >= 10 else 3
    return f"{value:,.{digits}f}"


def counted(number: int, noun: str) -> str:
    """Return "1 kernel" or "2 kernels"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def commit() -> str:
    """The checkout's commit, with a mark when it has changes; "unknown" outside one."""
    words = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


MOST_S = 5.0
"""Seconds after which a row is content with the samples that it has: emulated devices are slow."""
FEWEST = 3


class Bench:
    """What a case gets: an open device, and a place for its figures. `report` is given each row at once."""

    def __init__(
        self,
        device: hcq.Device,
        *,
        quick: bool,
        name: str,
        commit: str,
        report: Callable[[Row], None],
        most_s: float = MOST_S,
        label: str = "",
        scripted: bool = False,
    ) -> None:
        self.device = device
        self.scripted = scripted
        """A script or an emulator runs the packets: slowly, and its clock means nothing."""
        self.label = label or f"{device.info.driver}:{device.info.index} {device.info.name}"
        """What rows call the device."""
        self.quick = quick
        self.name = name
        self.rows: list[Row] = []
        self._commit = commit
        self._report = report
        self._most_s = most_s

    def beside(self, device: hcq.Device, *, name: str, label: str) -> Bench:
        """Return a bench of case `name` on a scripted or emulated device; it reports where this does."""
        return Bench(
            device,
            quick=self.quick,
            name=name,
            commit=self._commit,
            report=self._report,
            most_s=self._most_s,
            label=label,
            scripted=True,
        )

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
        """Time `run`, `samples` times after a warm-up, each divided by `per`. Return the median.

        A row that takes longer than `most_s` ends after `FEWEST` samples or later; its count is the number of
        samples.

        `before` runs untimed ahead of each sample. A quick bench takes two samples: CI runs all, checks none.
        `device` names another device than the bench's own.
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
        """Time several runs in turn, `samples` rounds after a warm-up; a row each, `runs` by device.

        Each round times each run once, so that load of the machine falls on all alike. The notes of `runs`
        give their median as a part of that of `beside`, which runs on the device `name`.
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
        """Time `run` in bursts of 20 back to back: what a caller pays while the device is awake."""
        count = 20

        def many() -> None:
            for _ in range(count):
                run()

        return self.measure(case, many, per=count, unit=unit, samples=200, before=before)

    def add(self, case: str, taken: Sequence[float], *, unit: str, note: str = "", device: str = "") -> float:
        """Put samples that were taken elsewhere (device timestamps, rates) into a row. Return the median."""
        # inclusive: the samples are all there is, and no quartile lies outside of them
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
    """Writes rows as they come, to `data`: a table, or with `lines` one JSON object a row; never both.

    A file gets the JSON objects as well. Progress goes to `talk`.
    """

    def __init__(self, data: TextIO, talk: TextIO, file: TextIO | None = None, *, lines: bool) -> None:
        self._data = data
        self._talk = talk
        self._file = file
        self._lines = lines
        self._begun = False

    def __call__(self, row: Row) -> None:
        """Write one row."""
        line = json.dumps(asdict(row)) + "\n"
        if self._lines:
            self._data.write(line)
        else:
            if not self._begun:
                self._data.write(f"{row.device}, commit {row.commit}\n{HEADER}\n")
                self._begun = True
            self._data.write(row.text() + "\n")
        self._data.flush()
        if self._file is not None:
            self._file.write(line)
            self._file.flush()

    def progress(self, text: str) -> None:
        """Print progress."""
        self._talk.write(text + "\n")
        self._talk.flush()
