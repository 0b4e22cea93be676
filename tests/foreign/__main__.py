"""`python -m tests.foreign`: tinygrad's drivers on the emulated GPUs, as a table of passed cases.

Each cell runs in a process of its own. A cell that is empty is tried too: it must fail with the reason that
the table gives. The exit status is 1 if a case fails, or if an empty cell opens.

    python -m tests.foreign --vendor amd --cells gfx942

Not here: the cells (`product`), the cases (`cases`).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.foreign.cases import CASES, QUICK
from tests.foreign.product import cells
from tests.foreign.redirected import tinygrad
from tools.arguments import command, positive, reported, some_of

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from tests.foreign.product import Cell

_ROOT: Final = Path(__file__).parents[2]
_LIMIT_S: Final = 3600


def main(argv: Sequence[str] | None = None) -> int:
    """Run the cells that were asked for; return 0 if all is as the table says."""
    args = _arguments(argv)
    tinygrad()
    version = metadata.version("tinygrad")
    wanted = [cell for vendor in args.vendor for cell in cells(vendor) if args.cells in cell.label]
    names = QUICK if args.quick else tuple(args.cases)
    with ThreadPoolExecutor(args.jobs) as pool:
        results = list(pool.map(lambda cell: _told(run_cell(cell, names)), wanted))
    if args.json:
        print(json.dumps({"tinygrad": version, "cells": results}, indent=1))
    else:
        _table(version, results, advice=args.advice)
    return int(any(not one["right"] for one in results))


def run_cell(cell: Cell, names: tuple[str, ...]) -> dict[str, Any]:
    """Run cases of a cell in a child process; return the cell, its cases and what the emulated GPU said.

    "right" is whether every case passed, or, in an empty cell, whether opening failed for the known reason.
    """
    asked = ("open",) if cell.empty else names
    argv = [sys.executable, "-m", "tests.foreign.cell", "--vendor", cell.vendor, "--variant", cell.variant]
    argv += ["--mode", cell.mode if cell.vendor == "amd" else "", "--cases", ",".join(asked)]
    done = subprocess.run(argv, cwd=_ROOT, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    cases = [line for line in lines if "case" in line]
    nothing: dict[str, list[str]] = {"advice": [], "reports": [], "refusals": []}
    last = next((line for line in lines if "advice" in line), nothing)
    passed = sum(one["passed"] for one in cases)
    said = [one["said"] for one in cases if not one["passed"]]
    if not cases or done.returncode:
        said.append(f"exit status {done.returncode}: {done.stderr.strip()[-600:]}")
    if cell.empty:
        right = not passed and cell.sign in " ".join([*said, *last["refusals"]])
    else:
        right = passed == len(asked) and not done.returncode
    return {
        "cell": asdict(cell) | {"label": cell.label},
        "passed": passed,
        "of": len(asked),
        "right": right,
        "said": said,
        "cases": cases,
        **last,
    }


def _told(result: dict[str, Any]) -> dict[str, Any]:
    words = "as the table says" if result["right"] else f"WRONG: {'; '.join(result['said'])[:300]}"
    sys.stderr.write(f"{result['cell']['label']}: {result['passed']} of {result['of']}, {words}\n")
    return result


def _table(version: str, results: list[dict[str, Any]], *, advice: bool) -> None:
    print(f"tinygrad {version}\n\n| device | result |\n|---|---|")
    for one in results:
        text = f"{one['passed']} of {one['of']}"
        if one["cell"]["empty"]:
            text = f"empty: {one['cell']['empty']}"
        if not one["right"]:
            text += f"; WRONG: {'; '.join(one['said'])}"
        print(f"| `{one['cell']['label']}` | {text} |")
    full = [one for one in results if not one["cell"]["empty"]]
    passed, of = sum(one["passed"] for one in full), sum(one["of"] for one in full)
    spent = sum(case["cpu_s"] for one in results for case in one["cases"])
    empty = len(results) - len(full)
    print(f"\n{passed} of {of} cases in {len(full)} cells, {empty} empty; {spent:.0f} s of CPU")
    if advice:
        counted = Counter(text for one in results for text in {*one["advice"], *one["reports"]})
        for text, count in counted.most_common():
            print(f"- {count} cells: {text}")


def _arguments(argv: Sequence[str] | None) -> Namespace:
    parser = command("tests.foreign", __doc__)
    parser.add_argument("--vendor", type=some_of(("nv", "amd")), default=["nv", "amd"])
    parser.add_argument("--cells", default="", metavar="TEXT", help="only cells whose name has this text")
    parser.add_argument("--cases", type=some_of(CASES), default=list(CASES), help="default: all")
    parser.add_argument("--quick", action="store_true", help=f"only {', '.join(QUICK)}")
    parser.add_argument("--jobs", type=positive, default=1, help="cells at a time")
    parser.add_argument("--advice", action="store_true", help="also what the emulated GPUs remarked")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(reported(main))
