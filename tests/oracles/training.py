"""Small trainings, in PyTorch and here, whose optimisers and schedules are saved and go on.

    python -m tests.oracles.training          write the kept files; needs PyTorch

Not here: the tests (`tests/frontend/test_checkpoints_of_pytorch.py`).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

from tools.arguments import command, pytorch, reported

DATA: Final = Path(__file__).parents[1] / "frontend" / "data" / "checkpoints"
OPTIMISERS: Final[dict[str, Any]] = {
    "sgd": lambda t, p: t.optim.SGD(p, lr=0.1),
    "sgd_momentum": lambda t, p: t.optim.SGD(p, lr=0.02, momentum=0.9, nesterov=True),
    "sgd_dampening": lambda t, p: t.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.5, weight_decay=0.1),
    "adam": lambda t, p: t.optim.Adam(p, lr=0.05, betas=(0.8, 0.9)),
    "adamw": lambda t, p: t.optim.AdamW(p, lr=0.05, amsgrad=True),
    "rmsprop": lambda t, p: t.optim.RMSprop(p, lr=0.05, momentum=0.5, centered=True),
    "adagrad": lambda t, p: t.optim.Adagrad(p, lr=0.1, lr_decay=0.1, initial_accumulator_value=0.5),
    "adadelta": lambda t, p: t.optim.Adadelta(p, lr=0.5),
    "rprop": lambda t, p: t.optim.Rprop(p, lr=0.05),
    "asgd": lambda t, p: t.optim.ASGD(p, lr=0.05, lambd=0.01, t0=1.0),
    "adamax": lambda t, p: t.optim.Adamax(p, lr=0.05),
    "nadam": lambda t, p: t.optim.NAdam(p, lr=0.05),
    "radam": lambda t, p: t.optim.RAdam(p, lr=0.05),
    "adafactor": lambda t, p: t.optim.Adafactor(p, lr=0.05, weight_decay=0.1),
    "lbfgs": lambda t, p: t.optim.LBFGS(p, lr=0.2, max_iter=2),
}
"""Optimisers of two parameters, of which Adam's are in two groups."""
CASES: Final = tuple(OPTIMISERS)
START: Final = ([1.0, -2.0, 3.0], [[0.5, -0.5], [2.0, 1.5]])


class Run:
    """A training of two parameters by one optimiser; `t` is PyTorch or `frontend`."""

    def __init__(self, t: Any, name: str) -> None:
        self.t = t
        self.parameters = [t.tensor(values, requires_grad=True) for values in START]
        groups = [{"params": [p], "lr": 0.05 + 0.01 * i} for i, p in enumerate(self.parameters)]
        self.optimizer = OPTIMISERS[name](t, groups if name == "adam" else self.parameters)

    def weights(self) -> list[float]:
        """Return the elements of the parameters."""
        return [x for p in self.parameters for x in p.detach().flatten().tolist()]

    def step(self) -> list[float]:
        """Take a step; return the parameters after it."""

        def closure() -> Any:
            self.optimizer.zero_grad()
            loss = sum(((p - 0.25) ** 2 * (1 + p.detach() ** 2)).sum() for p in self.parameters)
            loss.backward()
            return loss

        self.optimizer.step(closure)
        return self.weights()

    def state(self) -> dict[str, Any]:
        """Return what a file has."""
        own = [p.detach().clone() for p in self.parameters]
        return {"optimizer": self.optimizer.state_dict(), "parameters": own}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a `state`."""
        with self.t.no_grad():
            for p, value in zip(self.parameters, state["parameters"], strict=True):
                p.copy_(value)
        self.optimizer.load_state_dict(state["optimizer"])


class Scheduled:
    """The rates and momenta of a schedule without training."""

    def __init__(self, t: Any, make: Any, **names: Any) -> None:
        self.p = p = t.tensor([1.0], requires_grad=True)
        self.optimizer = t.optim.SGD([p], lr=0.1, momentum=0.9, **names)
        self.schedule = make(t.optim.lr_scheduler, self.optimizer)
        self.plateau = type(self.schedule).__name__ == "ReduceLROnPlateau"

    def step(self) -> list[float]:
        """Take a step; return the rate and the momentum after it."""
        self.p.sum().backward()
        self.optimizer.step()
        self.schedule.step(*[1.0] * self.plateau)
        group = self.optimizer.param_groups[0]
        return [group["lr"], group["momentum"]]

    def state(self) -> dict[str, Any]:
        """Return what a file has."""
        return {"optimizer": self.optimizer.state_dict(), "schedule": self.schedule.state_dict()}


_MADE: Final[dict[str, Any]] = {
    "step": lambda s, o: s.StepLR(o, 3, gamma=0.5),
    "multi_step": lambda s, o: s.MultiStepLR(o, [2, 5, 5], gamma=0.5),
    "exponential": lambda s, o: s.ExponentialLR(o, 0.9),
    "linear": lambda s, o: s.LinearLR(o, total_iters=6),
    "constant": lambda s, o: s.ConstantLR(o, total_iters=5),
    "polynomial": lambda s, o: s.PolynomialLR(o, total_iters=8, power=2.0),
    "cosine": lambda s, o: s.CosineAnnealingLR(o, 10, eta_min=0.01),
    "restarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 3, T_mult=2),
    "lambda": lambda s, o: s.LambdaLR(o, lambda n: 1 / (1 + n)),
    "multiplicative": lambda s, o: s.MultiplicativeLR(o, lambda n: 0.9 + 0.01 * n),
    "plateau": lambda s, o: s.ReduceLROnPlateau(o, patience=1, cooldown=1),
    "cyclic": lambda s, o: s.CyclicLR(o, 0.01, 0.1, step_size_up=3),
    "one_cycle": lambda s, o: s.OneCycleLR(o, 0.3, total_steps=12),
    "sequential": lambda s, o: s.SequentialLR(o, [s.LinearLR(o, total_iters=3), s.StepLR(o, 2)], [3]),
    "chained": lambda s, o: s.ChainedScheduler([s.ConstantLR(o, total_iters=5), s.ExponentialLR(o, 0.9)]),
}
SCHEDULES: Final[dict[str, Any]] = {
    name: (lambda t, make=make: Scheduled(t, make)) for name, make in _MADE.items()
}


def rates(t: Any, name: str, state: dict[str, Any]) -> list[list[float]]:
    """Return the rates and momenta of four steps from a state on."""
    run = SCHEDULES[name](t)
    run.optimizer.load_state_dict(state["optimizer"])
    run.schedule.load_state_dict(state["schedule"])
    return [run.step() for _ in range(4)]


def main(argv: list[str] | None = None) -> int:
    """Write the kept files of PyTorch."""
    command("tests.oracles.training", __doc__).parse_args(argv)
    torch = pytorch()
    for name in CASES:
        run = Run(torch, name)
        for _ in range(3):
            run.step()
        torch.save({"state": run.state(), "after": []}, DATA / f"training_{name}.pt")
        state = torch.load(DATA / f"training_{name}.pt")["state"]
        torch.save({"state": state, "after": [run.step() for _ in range(3)]}, DATA / f"training_{name}.pt")
    for name, make in SCHEDULES.items():
        run = make(torch)
        for _ in range(4):
            run.step()
        torch.save({"state": run.state()}, DATA / f"training_{name}.pt")
        state = torch.load(DATA / f"training_{name}.pt")["state"]
        torch.save({"state": state, "after": [run.step() for _ in range(4)]}, DATA / f"training_{name}.pt")
    return 0


if __name__ == "__main__":
    sys.exit(reported(main))
