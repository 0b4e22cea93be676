"""Measurements: how a figure is taken, and the row it becomes."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import hcq


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

    def text(self) -> str:
        """The row for a human eye."""
        spread = f"[{self.p25:.4g} … {self.p75:.4g}]"
        note = f"  {self.note}" if self.note else ""
        figure = f"{self.median:>10.4g} {self.unit:5s}{spread:24s}n={self.count}"
        return f"{self.bench:9s}{self.case:52s}{figure}{note}"


def commit() -> str:
    """The checkout's commit, with a mark when it has changes; "unknown" outside one."""
    words = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


class Bench:
    """What a case gets: an open device, and a place to put its figures."""

    def __init__(self, device: hcq.Device, *, quick: bool, name: str, commit: str) -> None:
        self.device = device
        self.quick = quick
        self.name = name
        self.rows: list[Row] = []
        self._commit = commit

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

        `before` runs untimed ahead of each sample. A quick bench takes two samples: CI runs all, judges none.
        `device` names another device than the bench's own.
        """
        scale = {"ns": 1e9, "us": 1e6, "ms": 1e3, "s": 1.0}[unit] / per
        for _ in range(1 if self.quick else max(3, samples // 10)):
            if before:
                before()
            run()
        taken = []
        for _ in range(2 if self.quick else samples):
            if before:
                before()
            start = time.perf_counter()
            run()
            taken.append((time.perf_counter() - start) * scale)
        return self.add(case, taken, unit=unit, note=note, device=device)

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
        low, middle, high = statistics.quantiles(taken, n=4) if len(taken) > 1 else (taken[0],) * 3
        row = Row(
            bench=self.name,
            case=case,
            unit=unit,
            median=middle,
            p25=low,
            p75=high,
            count=len(taken),
            device=device or f"{self.device.info.driver}:{self.device.info.index} {self.device.info.name}",
            commit=self._commit,
            note=note,
        )
        self.rows.append(row)
        sys.stderr.write(row.text() + "\n")
        sys.stdout.write(json.dumps(asdict(row)) + "\n")
        sys.stdout.flush()
        return middle
