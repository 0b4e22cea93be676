"""`python -m tests.fuzz.plans [--device cpu] [--kernel NAME]`: plans of small kernels against NumPy.

The exit status is 1 if a plan has other results.

Not here: the kernels (`small`), the plans (`exhaustive`), what a kernel computes (`tests.oracle`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import hcq
from compiler.plan.choice import brief
from compiler.targets import arch_for, target_of
from frontend.tuning.space import Space
from frontend.tuning.trial import Trial
from tests.fuzz.plans import exhaustive, small
from tests.oracle import run_kernel
from tools.arguments import command, device_name, reported

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from compiler.ir.uop import UOp
    from compiler.plan.proposal import Proposal


@dataclass(slots=True)
class Checked:
    """The result for one kernel."""

    kernel: str
    plans: int
    wrong: list[str]
    """Plans with other results, and how they differ."""


Oracle = Callable[["UOp", "list[Any]"], object]
"""Computes a kernel, given its AST and the arrays of its buffers, which it changes."""
ROUNDED: Final = 4.0
"""Units in the last place of the largest result that NumPy's own functions may be off."""


def wrong_plans(trial: Trial, plans: Iterable[Proposal], oracle: Oracle = run_kernel) -> list[str]:
    """Return the plans whose results differ from the oracle's, and how."""
    memory, out = trial.inputs(), []
    oracle(trial.ast, memory)
    wanted = {slot: memory[slot].tobytes() for slot in trial.stored}
    for plan in plans:
        seen = trial.results(trial.load(plan.choice))
        if difference := trial.difference(wanted, seen, least=ROUNDED):
            out.append(f"{brief(plan.choice)}: {difference}")
    return out


def check(device: str, names: Sequence[str], oracle: Oracle = run_kernel) -> Iterator[Checked]:
    """Yield the result for every kernel: all plans of the space, and the moves of the estimated one."""
    with hcq.open(device) as opened:
        for name in names:
            ast = small.ast_of(name)
            space = Space(ast, target_of(arch_for(opened.info)))
            trial = Trial(opened, ast)
            every = exhaustive.every(space)
            known = {c.choice for c in every}
            moves = [c for c in space.moves(every[0].choice) if c.choice not in known]
            yield Checked(name, len(every + moves), wrong_plans(trial, every + moves, oracle))
            trial.close()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    parser = command("tests.fuzz.plans", __doc__)
    parser.add_argument("--device", type=device_name, default="cpu", help="for hcq.open (default: cpu)")
    parser.add_argument("--kernel", choices=small.NAMES, action="append", help="only this one; repeatable")
    parser.add_argument("--json", action="store_true", help="print JSON lines")
    options = parser.parse_args(argv)
    names = options.kernel or small.NAMES
    plans = wrong = 0
    for one in check(options.device, names):
        plans, wrong = plans + one.plans, wrong + len(one.wrong)
        if options.json:
            print(json.dumps(asdict(one)), flush=True)
        else:
            text = f"{one.kernel:20s}{one.plans:5d} plans {len(one.wrong):4d} wrong"
            print(text, *one.wrong, sep="\n  ", flush=True)
    print(f"{options.device}: {plans} plans of {len(names)} kernels, {wrong} wrong", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(reported(main))
