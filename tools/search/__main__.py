"""`python -m tools.search choose [--second] [--part 1/2]` or `check [--device cpu] [--kernel NAME]`.

The exit status is 1 if the cost model misses its aim or a plan is wrong, 2 if no shape is selected.

Not here: the comparisons (`choose`, `check`).
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from tools.arguments import command, device_name, part, reported
from tools.search import small
from tools.search.check import check
from tools.search.choose import Compared, compare, summary
from tools.search.shapes import FIRST, SECOND, shapes

if TYPE_CHECKING:
    from collections.abc import Sequence


def _choose(chosen: tuple[int, int], match: str, *, second: bool, lines: bool) -> int:
    number, parts = chosen
    every = shapes(SECOND if second else FIRST)
    wanted = [item for item in every.items() if match in item[0]][number - 1 :: parts]
    if not wanted:
        print(f"no shape contains {match!r}, or this part has none", file=sys.stderr)
        return 2
    results: list[Compared] = []
    for one in compare(dict(wanted)):
        results.append(one)
        if lines:
            print(json.dumps(asdict(one)), flush=True)
        else:
            times = f"{one.chosen_ns / 1000:10.2f} us, best {one.best_ns / 1000:10.2f}, {one.ratio:5.2f}"
            times += f", itself {one.noise:5.2f}"
            print(f"{one.shape:48s}{one.plans:4d} plans {times}  {one.chosen} | {one.best}", flush=True)
    text, good = summary(results)
    print(text, file=sys.stderr if lines else sys.stdout)
    return 0 if good else 1


def _check(device: str, names: Sequence[str], *, lines: bool) -> int:
    plans = wrong = 0
    for one in check(device, names):
        plans, wrong = plans + one.plans, wrong + len(one.wrong)
        if lines:
            print(json.dumps(asdict(one)), flush=True)
        else:
            text = f"{one.kernel:20s}{one.plans:5d} plans {len(one.wrong):4d} wrong"
            print(text, *one.wrong, sep="\n  ", flush=True)
    print(f"{device}: {plans} plans of {len(names)} kernels, {wrong} wrong", file=sys.stderr)
    return 1 if wrong else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    parser = command("tools.search", __doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("choose", help="compare the chosen plan with the best of all, for many shapes")
    one.add_argument(
        "--part", type=part, default="1/1", help="a part of the shapes, as 1/2 and 2/2 for two processes"
    )
    one.add_argument("--second", action="store_true", help="the shapes to which the model is not fitted")
    one.add_argument("--match", default="", help="only shapes whose name contains this text")
    one.add_argument("--json", action="store_true", help="print JSON lines")
    two = commands.add_parser("check", help="run every plan of small kernels")
    two.add_argument("--device", type=device_name, default="cpu", help="a name for hcq.open (default: cpu)")
    two.add_argument("--kernel", choices=small.NAMES, action="append", help="only this one; repeatable")
    two.add_argument("--json", action="store_true", help="print JSON lines")
    options = parser.parse_args(argv)
    if options.command == "choose":
        return _choose(options.part, options.match, second=options.second, lines=options.json)
    return _check(options.device, options.kernel or small.NAMES, lines=options.json)


if __name__ == "__main__":
    sys.exit(reported(main))
