"""Make the page of performance: times of the cpu device beside NumPy and PyTorch, and counts of kernels.

    python -m tools.performance [--torch PYTHON] [--rounds 9] [--threads 2] [--cases WORDS] [--output PAGE]

PyTorch is measured with the interpreter of `--torch`, of an environment that has it. Each implementation runs
in a process of its own. They are asked in turn, so that load of the machine falls on all alike. The page also
has the kernels and bytes of training steps.

Not here: the cases (`tools.performance.worker`, `tools.performance.steps`), queues (`tools.bench`).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from tools.arguments import command, output, positive, program
from tools.bench.rows import commit
from tools.performance import products, worker
from tools.performance.steps import STEPS, counts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tools.performance.steps import Count

HEAP: Final = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "-1"}
"""Settings of glibc with which a process keeps freed memory, so that new pages are in nobody's time."""
LOADED: Final = "Other programs ran at the same time: measure the times again on a quiet machine"
_DIGITS: Final = 3
"""Digits of milliseconds behind the point."""
PAUSE_S: Final = 0.25
"""Seconds before each sample: threads of OpenBLAS and OpenMP occupy cores for up to 0.2 s after work."""


class Peer:
    """A worker process of one implementation (`tools.performance.worker`); the caller must `close` it."""

    def __init__(self, name: str, python: str, threads: int | None = None) -> None:
        """Start the worker with `threads` threads; None for as many as the process may use cores."""
        self.name = name
        count = {"OMP_NUM_THREADS": str(threads or len(os.sched_getaffinity(0)))}
        count |= {"OPENBLAS_NUM_THREADS": count["OMP_NUM_THREADS"]}
        if threads is not None:
            count |= {"HCQ_WORKERS": str(threads - 1)}
        own = {"HCQ_DEVICE": "cpu", "PYTHONPATH": str(Path(__file__).parents[2])}
        self._process = subprocess.Popen(
            [python, worker.__file__, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | HEAP | own | count,
        )

    def ask(self, case: str) -> float | None:
        """Return the seconds of one call of a case; None if the implementation lacks it.

        Raises `RuntimeError` if the worker has ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{case}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        if not answer:
            raise RuntimeError(
                f"wanted the seconds of {case!r} from the worker of {self.name}, saw its end; "
                "try what its output above says"
            )
        return None if answer == "none" else float(answer)

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def measured(
    peers: Sequence[Peer],
    cases: Sequence[str],
    rounds: int,
    pause_s: float = PAUSE_S,
    of: Callable[[list[float]], float] = median,
) -> dict[str, dict[str, float]]:
    """Return case -> implementation -> seconds: `of` the samples of `rounds` rounds, by default their median.

    `pause_s` seconds pass before each sample. An implementation that lacks a case has no entry in it.
    """
    found: dict[str, dict[str, float]] = {}
    for number, case in enumerate(cases, 1):
        sys.stderr.write(f"[{number}/{len(cases)}] {case}\n")
        samples: dict[str, list[float]] = {}
        for _ in range(rounds):
            for peer in peers:
                time.sleep(pause_s)
                seconds = peer.ask(case)
                if seconds is not None:
                    samples.setdefault(peer.name, []).append(seconds)
        found[case] = {name: of(values) for name, values in samples.items()}
    return found


def page(
    times: dict[str, dict[str, float]],
    steps: dict[str, Count],
    *,
    about: str,
    command: str,
    kind: str = "Medians",
) -> str:
    """Return the page as Markdown.

    `times` has seconds by case and implementation, `about` the circumstances of the measurement, `command`
    the command line, `kind` the name of the statistic, for example "Medians".
    """
    main = {case: row for case, row in times.items() if case not in products.CASES}
    others = {case: row for case, row in times.items() if case in products.CASES}
    lines = ["# Performance", "", f"Made by `{command}`: {about}.", ""]
    note = f"{kind} in milliseconds, and the time of the faster peer divided by ours: above 1 we are faster."
    if main:
        lines += ["## Times on the cpu device", "", note, "", *_table(main), ""]
    if others:
        lines += ["## Products of few rows, odd sizes, batches and layouts; attention", "", note, ""]
        lines += [*_table(others), ""]
    lines += [
        "## Kernels and bytes of training steps", "",
        "As scheduled; a kernel moves each buffer that it loads or stores once. They need no quiet machine.",
        "", "| step | kernels | bytes moved |", "|---|--:|--:|",
    ]  # fmt: skip
    lines += [f"| {name} | {c.kernels} | {c.nbytes:,} |" for name, c in steps.items()]
    return "\n".join(lines) + "\n"


def _table(times: dict[str, dict[str, float]]) -> list[str]:
    """Return the lines of a table of times."""
    names = list(dict.fromkeys(name for row in times.values() for name in row))
    lines = [f"| case | {' | '.join(names)} | ratio |", "|---|" + "--:|" * (len(names) + 1)]
    for case, row in times.items():
        peers = [seconds for name, seconds in row.items() if name != "hcq"]
        ratio = f"{min(peers) / row['hcq']:.2f}" if peers and "hcq" in row else ""
        cells = [f"{row[name] * 1e3:.{_DIGITS}f}" if name in row else "" for name in names]
        lines.append(f"| {case} | {' | '.join(cells)} | {ratio} |")
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and write the page; return 0."""
    parser = command("tools.performance", __doc__)
    parser.add_argument(
        "--torch", type=program, metavar="PYTHON", help="the interpreter of an environment with PyTorch"
    )
    parser.add_argument("--rounds", type=positive, default=9, help="samples of each case (default 9)")
    parser.add_argument(
        "--threads", type=positive, metavar="N",
        help="threads of each implementation, by default as many as cores; with 1 the least time of the "
        "processor is taken, which other programs disturb less",
    )  # fmt: skip
    parser.add_argument("--cases", metavar="WORDS", help="only cases whose names contain these words")
    parser.add_argument(
        "--output", type=output, default=Path("docs/performance.md"), help="the page; - prints it"
    )
    parser.add_argument("--quick", action="store_true", help="one small case and step: tests that it runs")
    options = parser.parse_args(argv)
    cores, load, alone = len(os.sched_getaffinity(0)), os.getloadavg()[0], options.threads == 1
    cases = [case for case in (*worker.SHAPES, *products.CASES) if (options.cases or "") in case]
    if not cases:
        parser.error(f"no case contains {options.cases!r}; try --cases product")
    pythons = {"hcq": sys.executable, "NumPy": sys.executable}
    if options.torch:
        pythons["PyTorch"] = options.torch
    peers = [Peer(name, python, options.threads) for name, python in pythons.items()]
    try:
        if options.quick:
            times = measured(peers, [cases[0], next(iter(products.CASES))], 1, 0.0)
        else:
            pause_s, of = (0.0, min) if alone else (PAUSE_S, median)
            times = measured(peers, cases, options.rounds, pause_s, of)
    finally:
        for peer in peers:
            peer.close()
    steps = counts(list(STEPS)[:1] if options.quick else list(STEPS))
    about = f"commit {commit()}, {cores} cores, load average {load:.1f} at the start, {options.rounds} rounds"
    about += ", one thread" * alone
    loaded = f". {LOADED}" if load > cores / 2 and not alone else ""
    asked = "python -m tools.performance" + " --torch PYTHON" * bool(options.torch) + " --threads 1" * alone
    kind = "Least times of the processor" if alone else "Medians"
    text = page(times, steps, about=about + loaded, command=asked, kind=kind)
    if str(options.output) == "-":
        sys.stdout.write(text)
    else:
        options.output.write_text(text)
        sys.stderr.write(f"{options.output}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
