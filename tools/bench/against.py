"""The same cases in this checkout and in an older one, in interleaved pairs of processes, as ratios.

    git worktree add /tmp/old COMMIT
    hcq bench submit replay signal --device cpu --against /tmp/old --pairs 9

A pair is one run of the cases in each checkout; the order changes from pair to pair, so that load of the
machine falls on both alike. Each run measures in a process of its own with the sources of its checkout and
the interpreter and environment of this one. A row is the ratio this / older of the medians of a pair: its
median and quartiles over the pairs.

Not here: the cases and how a run measures them (`rows`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import ArgumentTypeError
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from hcq.errors import UsageError
from tools.bench.rows import four_digits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tools.bench.rows import Bench

Key = tuple[str, str, str, str]
"""(case on the command line, what was measured, its unit, its device)."""
HERE: Final = Path(__file__).parents[2]


def checkout(text: str) -> Path:
    """Return the absolute path of a folder that has `tools.bench`; else raise `ArgumentTypeError`."""
    path = Path(text).resolve()
    if not (path / "tools" / "bench" / "__main__.py").is_file():
        raise ArgumentTypeError(
            f"wanted a checkout of this project, saw {text!r}; git worktree add makes one of an older commit"
        )
    return path


def compare(bench: Bench, arguments: Sequence[str], older: Path, *, pairs: int) -> list[str]:
    """Run `hcq bench ARGUMENTS` in both checkouts, `pairs` times in turn, and add a row a figure.

    Returns a line for each figure that only one of the checkouts has. Raises `UsageError` for a
    checkout whose run fails.
    """
    now: list[Mapping[Key, dict[str, str | float]]] = []
    then: list[Mapping[Key, dict[str, str | float]]] = []
    for number in range(pairs):
        for tree, runs in ((HERE, now), (older, then))[:: -1 if number % 2 else 1]:
            runs.append(figures(tree, arguments))
    for key in (key for key in now[0] if key in then[0]):
        ours, theirs = ([float(run[key]["median"]) for run in runs] for runs in (now, then))
        bench.name = key[0]
        bench.add(
            key[1],
            [a / b for a, b in zip(ours, theirs, strict=True)],
            unit="x",
            note=f"{four_digits(median(ours))} / {four_digits(median(theirs))} {key[2]}, "
            f"older: {then[0][key]['commit']}",
            device=key[3],
        )
    alone = [(key, "this checkout") for key in now[0] if key not in then[0]]
    alone += [(key, "the older checkout") for key in then[0] if key not in now[0]]
    return [f"only {tree} has {key[0]}: {key[1]}" for key, tree in alone]


def figures(tree: Path, arguments: Sequence[str]) -> dict[Key, dict[str, str | float]]:
    """Return the rows of one run of `tools.bench` in the sources of a checkout, without those of median 0.

    Raises `UsageError` with what the run printed if it fails.
    """
    done = subprocess.run(
        [sys.executable, "-m", "tools.bench", *arguments, "--json"],
        cwd=tree,
        env=os.environ | {"PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise UsageError(
            f"tools.bench in {tree}: wanted rows, saw status {done.returncode}\n{done.stderr.strip()}\n"
            "hint: name cases that both checkouts have"
        )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return {(row["bench"], row["case"], row["unit"], row["device"]): row for row in rows if row["median"]}
