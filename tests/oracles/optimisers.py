"""Record where PyTorch's optimisers and schedules go.

    python -m tests.oracles.optimisers                # in an environment with PyTorch
    python -m tests.oracles.optimisers --compare 500  # random programs, here and in PyTorch

Writes `tests/frontend/data/optimisers.json`: the float64 parameters after `STEPS` steps of `loss`, the
learning rates of schedules, and the numbers of the random programs of the first seeds.

Not here: the comparison (`tests/frontend/test_optimisers_of_pytorch.py`).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tests.oracles.optimiser_programs import descended, scheduled
from tools.arguments import command, pytorch, reported

if TYPE_CHECKING:
    from collections.abc import Sequence

OUT: Final = Path(__file__).parents[2] / "tests" / "frontend" / "data" / "optimisers.json"
STEPS: Final = 8
PROGRAMS: Final = {"optimisers": (descended, 26, 1e-5), "schedules": (scheduled, 80, 1e-11)}
"""Name -> (program of a seed, number of recorded seeds, relative tolerance)."""
START: Final = [[1.0, -2.0, 0.5], [0.25, 3.0, -1.5]]
TARGET: Final = [[0.3, 0.1, -0.7], [0.2, 2.5, 1.0]]
OPTIMISERS: Final = (
    "SGD(p, 0.1, momentum=0.9, dampening=0.5)",
    "SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.1, maximize=True)",
    "Adam(p, 0.1, (0.8, 0.9))",
    "Adam(p, 0.1, amsgrad=True, weight_decay=0.1)",
    "AdamW(p, 0.1, betas=(0.8, 0.9), amsgrad=True)",
    "NAdam(p, 0.1, weight_decay=0.1)",
    "NAdam(p, 0.1, weight_decay=0.1, decoupled_weight_decay=True)",
    "RAdam(p, 0.1, weight_decay=0.1)",
    "RAdam(p, 0.1, (0.8, 0.9), weight_decay=0.1, decoupled_weight_decay=True)",
    "Adamax(p, 0.1, weight_decay=0.1)",
    "Adagrad(p, 0.1, lr_decay=0.1, weight_decay=0.1, initial_accumulator_value=0.5)",
    "Adadelta(p, 1.0, weight_decay=0.1)",
    "RMSprop(p, 0.1)",
    "RMSprop(p, 0.1, 0.9, weight_decay=0.1, momentum=0.5, centered=True)",
    "Rprop(p, 0.1, (0.4, 1.3), (1e-6, 0.3))",
    "ASGD(p, 0.1, lambd=0.01, alpha=0.7, t0=3, weight_decay=0.1)",
    "Muon(p, 0.1, nesterov=True)",
    "Muon(p, 0.1, 0.0, 0.9, False)",
)
SCHEDULES: Final = (
    "StepLR(o, 2, 0.5)",
    "MultiStepLR(o, [1, 4], 0.5)",
    "ExponentialLR(o, 0.9)",
    "LinearLR(o, 0.2, 1.0, 4)",
    "CosineAnnealingLR(o, 8, 0.1)",
    "ConstantLR(o, 0.25, 3)",
    "PolynomialLR(o, 5, 2.0)",
    "CosineAnnealingWarmRestarts(o, 2, 2, 0.05)",
    "OneCycleLR(o, 0.5, 10, cycle_momentum=False)",
)
PLATEAU: Final = (
    "ReduceLROnPlateau(o, 'max', 0.5, 1, cooldown=1)",
    [1.0, 2.0, 2.0, 1.5, 1.0, 1.0, 1.0, 1.0, 9.0],
)


def loss(w: Any, target: Any) -> Any:
    """Return the loss that is descended: its curvature differs by element."""
    return ((w - target) ** 2 * (target + 2)).sum()


def compared(torch: Any, seeds: int) -> int:
    """Run random programs here and in PyTorch, print the seeds that differ, and return how many do."""
    import frontend  # noqa: PLC0415 - needed here alone

    wrong = 0
    for name, (program, _, tolerance) in PROGRAMS.items():
        for seed in range(seeds):
            got, want = program(frontend, seed), program(torch, seed)
            if not np.allclose(got, want, rtol=tolerance, atol=1e-9):
                wrong += 1
                print(f"{name} {seed}: {got} here, {want} in PyTorch")
    return wrong


def main(argv: Sequence[str] | None = None) -> int:
    """Write the records, or compare; return 1 if a program differs."""
    parser = command("tests.oracles.optimisers", __doc__)
    parser.add_argument("--compare", type=int, metavar="SEEDS", help="compare random programs, write nothing")
    args = parser.parse_args(argv)
    torch = pytorch()
    torch.Tensor.bfloat16 = lambda self: self.clone()  # Muon, as computed without rounding
    if args.compare:
        return int(compared(torch, args.compare) > 0)
    found: dict[str, Any] = {}
    for text in OPTIMISERS:
        w = torch.tensor(START, dtype=torch.float64, requires_grad=True)
        optimiser = eval(f"optim.{text}", {"optim": torch.optim, "p": [w]})  # noqa: S307 - this tool's own text
        for _ in range(STEPS):
            optimiser.zero_grad()
            loss(w, torch.tensor(TARGET, dtype=torch.float64)).backward()
            optimiser.step()
        found[text] = w.tolist()
    for text in (*SCHEDULES, PLATEAU[0]):
        optimiser = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], 0.5)
        schedule = eval(f"s.{text}", {"s": torch.optim.lr_scheduler, "o": optimiser})  # noqa: S307 - as above
        rates = []
        for metric in PLATEAU[1]:
            rates.append(optimiser.param_groups[0]["lr"])
            optimiser.step()
            schedule.step(*([metric] if text == PLATEAU[0] else []))
        found[text] = rates
    found |= {name: [run(torch, k) for k in range(seeds)] for name, (run, seeds, _) in PROGRAMS.items()}
    OUT.write_text(json.dumps(found, indent=0) + "\n")
    print(f"{len(found)} answers of PyTorch {torch.__version__} in {OUT}")
    return 0


if __name__ == "__main__":
    sys.exit(reported(main))
