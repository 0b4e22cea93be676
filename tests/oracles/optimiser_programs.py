"""Random programs of optimisers and of schedules, the same for this project and PyTorch.

A seed gives settings, groups, and what a program does between steps: it sets rates and settings, freezes and
thaws parameters, leaves gradients out, saves and loads states, and adds groups.

Not here: the record of where PyTorch's go (`tests.oracles.optimisers`).
"""

# ruff: noqa: ISC004, S311 - long texts, and draws that repeat

from __future__ import annotations

import math
import random
import warnings
from typing import Any, Final

import numpy as np

STEPS: Final = 20
"""Steps of a program of optimisers."""
SETTINGS: Final[dict[str, dict[str, tuple[Any, ...]]]] = {
    "SGD": {"momentum": (0.9, 0.5), "dampening": (0.3,), "weight_decay": (0.1,)},
    "Adam": {"betas": ((0.5, 0.9), (0.0, 0.9)), "weight_decay": (0.1,), "amsgrad": (True,),
             "decoupled_weight_decay": (True,)},
    "AdamW": {"betas": ((0.5, 0.9),), "weight_decay": (0.1, 0.0), "amsgrad": (True,)},
    "NAdam": {"weight_decay": (0.1,), "momentum_decay": (0.0, 0.5), "decoupled_weight_decay": (True,)},
    "RAdam": {"betas": ((0.5, 0.9), (0.9, 0.5)), "weight_decay": (0.1,), "decoupled_weight_decay": (True,)},
    "Adamax": {"betas": ((0.5, 0.9),), "weight_decay": (0.1,)},
    "Adagrad": {"lr_decay": (0.1,), "weight_decay": (0.1,)},
    "Adadelta": {"rho": (0.5,), "weight_decay": (0.1,)},
    "RMSprop": {"alpha": (0.5,), "weight_decay": (0.1,), "momentum": (0.9,), "centered": (True,)},
    "Rprop": {"etas": ((0.3, 1.5),), "step_sizes": ((0.005, 0.05),)},
    "ASGD": {"lambd": (0.1,), "alpha": (0.5,), "t0": (5,), "weight_decay": (0.1,)},
    "Adafactor": {"beta2_decay": (-0.5,), "d": (2.0,), "weight_decay": (0.1,)},
    "Muon": {"momentum": (0.5,), "nesterov": (False,), "adjust_lr_fn": ("match_rms_adamw",)},
}  # fmt: skip


def _settings(kind: str, rng: random.Random) -> dict[str, Any]:
    found = {n: rng.choice(values) for n, values in SETTINGS[kind].items() if rng.random() < 0.5}
    more = {"maximize": True} if rng.random() < 0.2 and kind != "Muon" else {}
    return {**found, **more, "lr": rng.choice((0.1, 0.01))}


def descended(torch: Any, seed: int) -> list[float]:
    """Return the parameters of a random program after its steps, in float64."""
    rng = random.Random(seed)
    kind = list(SETTINGS)[seed % len(SETTINGS)]
    shapes = [(3, 2), (2, 3)] if kind == "Muon" else [(3, 2), (), (4,), (2, 2, 3), (1,)]
    drawn = np.random.default_rng(seed)

    def parameter() -> Any:
        values = torch.tensor(drawn.standard_normal(rng.choice(shapes)), dtype=torch.float64)
        return torch.nn.Parameter(values)

    params = [parameter() for _ in range(rng.randint(1, 4))]
    every = [(params, {}), *[([parameter()], _settings(kind, rng)) for _ in range(rng.randint(0, 2))]]
    base = _settings(kind, rng)
    added: list[Any] = []

    def make() -> Any:
        groups = [{"params": list(ps), **own} for ps, own in every]
        found = getattr(torch.optim, kind)(groups, **base)
        for p in added:
            found.add_param_group({"params": [p]})
        return found

    optimiser = make()
    for _ in range(STEPS):
        all_params = [p for ps, _ in every for p in ps] + added
        event, group = rng.randrange(14), rng.choice(optimiser.param_groups)
        if event < 2:
            group["lr"] = rng.choice((0.05, 0.2, 0.003))
        elif event == 2:
            group["weight_decay" if "weight_decay" in group else "lr"] = 0.05
        elif event == 3:
            rng.choice(all_params).requires_grad_(False)
        elif event == 4:
            for p in all_params:
                p.requires_grad_(True)
        elif event == 5:
            state, optimiser = optimiser.state_dict(), make()
            optimiser.load_state_dict(state)
        elif event == 6:
            added.append(parameter())
            optimiser.add_param_group({"params": [added[-1]]})
        used = [p for p in all_params if rng.random() > 0.15 and p.requires_grad]

        def closure(used: Any = used, optimiser: Any = optimiser) -> Any:
            optimiser.zero_grad()
            total = sum([((p - 0.25) ** 2).sum() * (k + 1) for k, p in enumerate(used)])
            if used:
                total.backward()
            return total

        if event == 7:
            optimiser.step(closure)
        else:
            closure()
            optimiser.step()
            if event == 8:
                optimiser.step()
    return [float(x) for ps in (*[ps for ps, _ in every], added) for p in ps for x in p.detach().reshape(-1)]


def _schedule(rng: random.Random, groups: int, depth: int = 0) -> str:
    c = rng.choice
    functions = ["lambda n: 0.95**n", "lambda n: 1 / (1 + n)"]
    several = f"[{', '.join([c(functions) for _ in range(groups)])}]"
    momenta = c(("", f", base_momentum={[0.6 + 0.01 * i for i in range(groups)]}"))
    kinds = [
        f"StepLR(o, {c((1, 3, 10))}, {c((0.5, 0.9))})",
        f"MultiStepLR(o, {c(([3, 7], [1, 1, 4], [30, 9]))}, {c((0.5, 0.1))})",
        f"ExponentialLR(o, {c((0.9, 0.99, 1.01))})",
        f"LinearLR(o, {c((0.1, 1.0))}, {c((1.0, 0.0, 0.5))}, {c((1, 5, 20))})",
        f"ConstantLR(o, {c((0.1, 0.5))}, {c((1, 5, 20))})",
        f"PolynomialLR(o, {c((5, 50))}, {c((1.0, 2.0, 0.5))})",
        f"CosineAnnealingLR(o, {c((1, 5, 20, 300))})",
        f"LambdaLR(o, {c((functions[0], several))})",
        f"MultiplicativeLR(o, {c(('lambda n: 0.97', 'lambda n: 1.01 if n % 2 else 0.98'))})",
        f"CosineAnnealingWarmRestarts(o, {c((1, 5, 10))}, {c((1, 2, 3))}, {c((0.0, 0.001))})",
        f"OneCycleLR(o, {c((0.1, 1.0))}, 210, None, None, {c((0.3, 0.1))}, {c(('cos', 'linear'))!r}, "
        f"three_phase={c((False, True))}{momenta})",
        f"CyclicLR(o, 0.01, {c((0.1, 0.3))}, {c((3, 7, 20))}, {c((None, 5, 1))}, "
        f"{c(('triangular', 'triangular2', 'exp_range'))!r}, {c((1.0, 0.99))}{momenta})",
        f"ReduceLROnPlateau(o, {c(('min', 'max'))!r}, {c((0.1, 0.5))}, {c((0, 2, 10))}, {c((1e-4, 0.1))}, "
        f"{c(('rel', 'abs'))!r}, {c((0, 3))}, {c((0, 0.01))})",
    ]
    if depth == 0 and rng.random() < 0.3:
        parts = [_schedule(rng, groups, 1) for _ in range(rng.randint(1, 3))]
        turns = sorted(rng.sample(range(1, 60), len(parts) - 1))
        text = f"[{', '.join(parts)}]"
        return f"SequentialLR(o, {text}, {turns})" if rng.random() < 0.7 else f"ChainedScheduler({text})"
    return c(kinds[: len(kinds) - depth])


def scheduled(torch: Any, seed: int) -> list[float]:
    """Return the sum and the last of the rates and momenta of 200 steps of random schedules."""
    rng = random.Random(seed)
    groups, kind = rng.randint(1, 3), rng.choice(("SGD", "SGD", "Adam"))
    texts = [_schedule(rng, groups, k) for k in range(1 + (rng.random() < 0.2))]
    first = [rng.choice((0.1, 0.01, 1.0)) for _ in range(groups)]
    names = {
        **vars(math),
        **{n: getattr(torch.optim.lr_scheduler, n) for n in torch.optim.lr_scheduler.__all__},
    }

    def make() -> tuple[Any, list[Any]]:
        params = [{"params": [torch.nn.Parameter(torch.ones(1))], "lr": lr} for lr in first]
        optimiser = getattr(torch.optim, kind)(params, lr=0.1)
        return optimiser, [eval(text, {**names, "o": optimiser}) for text in texts]  # noqa: S307 - from above

    (optimiser, schedules), found = make(), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's, about steps that the program names
        for _ in range(200):
            event, metric = rng.randrange(60), rng.random()
            if event == 0:
                rng.choice(optimiser.param_groups)["lr"] = 0.02
            elif event == 1:
                states = [o.state_dict() for o in (optimiser, *schedules)]
                optimiser, schedules = make()
                for o, state in zip((optimiser, *schedules), states, strict=True):
                    o.load_state_dict(state)
            for schedule, text in zip(schedules, texts, strict=True):
                named = event == 2 and text.startswith(("CosineAnnealingWarm", "StepLR", "Poly"))
                schedule.step(*([metric] if text.startswith("Reduce") else [int(30 * metric)] * named))
            momenta = [g["betas"][0] if kind == "Adam" else g["momentum"] for g in optimiser.param_groups]
            last = [rate for schedule in schedules for rate in schedule.get_last_lr()]
            found.append([*[g["lr"] for g in optimiser.param_groups], *momenta, *last])
    return [sum(map(sum, found)), *map(float, found[-1])]
