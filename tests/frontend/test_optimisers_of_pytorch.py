"""Optimisers, groups and schedules as in PyTorch 2.13 (`data/optimisers.json`: tests.oracles.optimisers)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import frontend
from frontend import Tensor, TinyJit, dtypes, nn
from frontend.optim import schedules
from hcq.errors import UsageError
from tests.oracles.optimisers import OPTIMISERS, PLATEAU, PROGRAMS, SCHEDULES, START, STEPS, TARGET, loss

WANT: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "optimisers.json").read_text())


def descended(text: str) -> np.ndarray:
    w, target = Tensor(START, dtype=dtypes.float64), Tensor(TARGET, dtype=dtypes.float64)
    optimiser = eval(f"optim.{text}", {"optim": nn.optim, "p": [w]})
    for _ in range(STEPS):
        loss(w, target).backward()
        optimiser.step()
    return w.numpy()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("text", OPTIMISERS)
def test_an_optimiser_goes_where_that_of_pytorch_does(text: str):
    rounded = text.startswith(("ASGD", "NAdam"))  # PyTorch counts their rates in float32
    np.testing.assert_allclose(descended(text), WANT[text], rtol=1e-7 if rounded else 1e-11, atol=1e-12)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("name", "seed"), [(n, k) for n, (_, seeds, _) in PROGRAMS.items() for k in range(seeds)]
)
def test_a_random_program_goes_where_that_of_pytorch_does(name: str, seed: int):
    """It sets rates and settings, freezes and thaws, saves and loads between steps."""
    program, _, tolerance = PROGRAMS[name]
    np.testing.assert_allclose(program(frontend, seed), WANT[name][seed], rtol=tolerance, atol=1e-9)


def norm(x: np.ndarray) -> float:
    return float(np.sqrt((x * x).sum()))


@pytest.mark.slow
def test_lars_and_lamb_follow_their_papers():
    w, b, target = np.array(START), np.zeros((2, 3)), np.array(TARGET)
    for _ in range(STEPS):
        g = 2 * (w - target) * (target + 2)
        trust = 0.1 * norm(w) / (norm(g) + 0.2 * norm(w))
        b = 0.9 * b + 0.3 * trust * (g + 0.2 * w)
        w = w - b
    np.testing.assert_allclose(descended("LARS(p, 0.3, 0.9, 0.2, tcoef=0.1)"), w, rtol=1e-5)
    w, m, v = np.array(START), np.zeros((2, 3)), np.zeros((2, 3))
    for t in range(1, STEPS + 1):
        g = 2 * (w - target) * (target + 2)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        u = m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.999**t)) + 1e-6) + 0.2 * w
        w = w - 0.1 * norm(w) / norm(u) * u
    np.testing.assert_allclose(descended("LAMB(p, 0.1, weight_decay=0.2)"), w, rtol=1e-4)


@pytest.mark.parametrize("text", SCHEDULES)
def test_a_schedule_sets_the_rates_of_pytorch(text: str):
    optimiser = nn.optim.SGD([Tensor([1.0])], 0.5)
    schedule, found = eval(f"s.{text}", {"s": schedules, "o": optimiser}), []
    for _ in PLATEAU[1]:
        found.append(optimiser.lr.item())
        schedule.step()
    np.testing.assert_allclose(found, WANT[text], rtol=1e-5, atol=1e-7)


def test_a_plateau_lowers_the_rate_as_in_pytorch():
    optimiser = nn.optim.SGD([Tensor([1.0])], 0.5)
    schedule, found = eval(f"s.{PLATEAU[0]}", {"s": schedules, "o": optimiser}), []
    for metric in PLATEAU[1]:
        found.append(optimiser.lr.item())
        schedule.step(metric)
    np.testing.assert_allclose(found, WANT[PLATEAU[0]], rtol=1e-6)


def test_groups_have_settings_of_their_own():
    a, b = Tensor([1.0]), Tensor([1.0])
    optimiser = nn.optim.SGD([{"params": [a]}, {"params": [b], "lr": 0.5, "weight_decay": 1.0}], 0.25)
    (a * 1.0 + b).sum().backward()
    optimiser.step()
    assert (a.item(), b.item()) == (0.75, 0.0)
    optimiser.param_groups[1]["lr"] = 0.125
    optimiser.param_groups[1]["weight_decay"] = 0.0
    schedules.StepLR(optimiser, 1, 0.5).step()
    assert [group["lr"] for group in optimiser.param_groups] == [0.125, 0.0625]
    (a * 1.0 + b).sum().backward()
    optimiser.step()
    assert (a.item(), b.item()) == (0.625, -0.0625)
    assert dict(optimiser.param_groups[0])["params"] == [a]
    optimiser.lr = 0.5
    assert [group["lr"] for group in optimiser.param_groups] == [0.5, 0.5]


def test_wrong_groups_are_refused():
    a, b = Tensor([1.0]), Tensor([[1.0]])
    for groups in ([{"lr": 0.1}], [{"params": [a]}, {"params": [a]}], [{"params": [a], "weigth_decay": 1}]):
        with pytest.raises(UsageError):
            nn.optim.SGD(groups)
    optimiser = nn.optim.SGD([a])
    for name, value in (("momentom", 1), ("momentum", -1), ("lr", -1.0)):
        with pytest.raises(UsageError):
            optimiser.param_groups[0][name] = value
    optimiser.add_param_group({"params": [b], "lr": 1.0})
    assert len(optimiser.params) == 2
    with pytest.raises(UsageError, match="matrices"):
        nn.optim.Muon([a])
    with pytest.raises(UsageError, match="momentum"):
        nn.optim.SGD([a], nesterov=True)


def test_a_state_is_saved_and_loaded(tmp_path: Path):
    def made() -> tuple[Tensor, nn.optim.Adam]:
        w = Tensor([1.0, 2.0])
        return w, nn.optim.Adam([w], 0.1)

    def stepped(w: Tensor, optimiser: nn.optim.Adam) -> list[float]:
        (w * w).sum().backward()
        optimiser.step()
        return w.tolist()

    (w, optimiser), (twin, other) = made(), made()
    stepped(w, optimiser)
    frontend.save(optimiser.state_dict(), tmp_path / "state")
    twin.assign(w).realize()
    other.load_state_dict(frontend.load(tmp_path / "state"))
    assert stepped(w, optimiser) == stepped(twin, other)


@pytest.mark.parametrize("device", ["cpu", "amd-emu"])
def test_a_scaled_loss_gives_the_step_of_an_unscaled_one(device: str):
    w, plain = Tensor([1.0, 2.0], device=device), Tensor([1.0, 2.0], device=device)
    optimiser, other = nn.optim.SGD([w], 0.1), nn.optim.SGD([plain], 0.1)
    scaler = nn.amp.GradScaler(init_scale=1024.0, growth_interval=2)
    for scale in (1024.0, 2048.0):
        scaler.scale((w * w).sum()).backward()
        scaler.step(optimiser)
        scaler.update()
        assert scaler.get_scale() == scale
        (plain * plain).sum().backward()
        other.step()
    np.testing.assert_allclose(w.numpy(), plain.numpy(), rtol=1e-6)


def test_a_step_with_infinite_gradients_is_skipped_also_when_captured():
    w = Tensor([1.0, 2.0])
    optimiser, scaler = nn.optim.Adam([w], 0.1), nn.amp.GradScaler(init_scale=1024.0)

    @TinyJit
    def step(x: Tensor) -> Tensor:
        loss = (w * x).sum()
        scaler.scale(loss).backward()
        scaler.step(optimiser)
        scaler.update()
        return loss.detach()

    good, bad = Tensor([1.0, 1.0]).realize(), Tensor([1.0, float("inf")]).realize()
    for _ in range(3):
        step(good)
    before = w.tolist(), optimiser.m[0].tolist(), optimiser.param_groups[0].counters["b1_t"].item()
    step(bad)
    assert (w.tolist(), optimiser.m[0].tolist(), optimiser.param_groups[0].counters["b1_t"].item()) == before
    assert scaler.get_scale() == 512.0
    step(good)
    assert w.tolist() != before[0]


def test_gradients_are_unscaled_once_before_clipping():
    w = Tensor([3.0, 4.0], requires_grad=True)
    optimiser, scaler = nn.optim.SGD([w], 1.0), nn.amp.GradScaler(init_scale=8.0)
    scaler.scale((w * Tensor([3.0, 4.0])).sum()).backward()
    scaler.unscale_(optimiser)
    assert w.grad is not None
    assert w.grad.tolist() == [3.0, 4.0]
    with pytest.raises(UsageError, match="already"):
        scaler.unscale_(optimiser)
    nn.clip_grad_norm_([w], 1.0)
    scaler.step(optimiser)
    np.testing.assert_allclose(w.numpy(), [2.4, 3.2], rtol=1e-5)
    with pytest.raises(UsageError, match=r"since the last update"):
        scaler.step(optimiser)
    scaler.update()
    with pytest.raises(UsageError, match="no"):
        scaler.update()


def test_layers_compute_in_sixteen_bits_inside_autocast():
    layer, norm_, x = nn.Linear(4, 4).requires_grad_(), nn.LayerNorm(4), Tensor.ones(2, 4)
    with nn.amp.autocast("float16"):
        y = layer(x)
        assert (y.dtype, norm_(y).dtype) == (dtypes.float16, dtypes.float32)
        assert nn.MSELoss()(y, x).dtype is dtypes.float32
        assert nn.Conv1d(2, 2, 1)(Tensor.ones(1, 2, 3)).dtype is dtypes.float16
    assert layer(x).dtype is dtypes.float32
    y.sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.dtype is dtypes.float32
    with nn.amp.autocast(enabled=False):
        assert layer(x).dtype is dtypes.float32
    with frontend.autocast("cuda", enabled=False):  # also without a GPU
        assert layer(x).dtype is dtypes.float32
    with pytest.raises(UsageError, match="cudo"), frontend.autocast("cudo", enabled=False):
        pass
    with pytest.raises(UsageError, match="float16 or bfloat16"), nn.amp.autocast("float32"):
        pass


def test_state_is_made_only_for_groups_that_need_it():
    a, b = Tensor([1.0], requires_grad=True), Tensor([2.0], requires_grad=True)
    optimiser = nn.optim.SGD([{"params": [a]}], lr=0.5)
    assert optimiser.b == []
    optimiser.add_param_group({"params": [b], "momentum": 0.5})
    for _ in range(2):
        (a + b).sum().backward()
        optimiser.step()
    assert (a.tolist(), b.tolist()) == ([0.0], [0.75])
    assert [t is None for t in optimiser.b] == [True, False]
    assert list(optimiser.state_dict()["state"][1]) == ["momentum_buffer"]


def test_adam_of_float64_parameters_has_their_digits():
    """The powers of the decay rates are float64 then: 1 - 0.999 of float32 has five digits."""
    w, target = np.array(START), np.array(TARGET)
    m, v = np.zeros_like(w), np.zeros_like(w)
    for t in range(1, STEPS + 1):
        g = 2 * (w - target) * (target + 2)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        w = w - 0.125 * m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    np.testing.assert_allclose(descended("Adam(p, 0.125)"), w, rtol=1e-12)


def test_lbfgs_goes_on_from_its_state():
    def started() -> tuple[Tensor, nn.optim.LBFGS]:
        w = Tensor(START, dtype=dtypes.float64)
        return w, nn.optim.LBFGS([w], lr=0.1, max_iter=3)

    def go(w: Tensor, optimiser: nn.optim.LBFGS) -> float:
        def closure() -> Tensor:
            optimiser.zero_grad()
            found: Tensor = loss(w, Tensor(TARGET, dtype=dtypes.float64))
            found.backward()
            return found

        return float(optimiser.step(closure).item())

    w, optimiser = started()
    twin, other = started()
    other.load_state_dict(optimiser.state_dict())
    for _ in range(2):
        go(w, optimiser)
    state = optimiser.state_dict()
    twin.assign(w.detach().clone()).realize()
    other.load_state_dict(state)
    for _ in range(3):
        assert go(twin, other) == go(w, optimiser)
    np.testing.assert_array_equal(twin.numpy(), w.numpy())
    with pytest.raises(UsageError, match="history is not complete"):
        other.load_state_dict(state | {"state": {0: {**state["state"][0], "prev_flat_grad": None}}})
    with pytest.raises(UsageError, match="has the shape"):
        other.load_state_dict(state | {"state": {0: {**state["state"][0], "d": Tensor([1.0])}}})


def test_one_cycle_moves_the_momentum_as_pytorch_does():
    w = Tensor([1.0, -2.0])
    optimiser = nn.optim.SGD([w], 0.1, momentum=0.9)
    schedule, found = schedules.OneCycleLR(optimiser, 0.5, epochs=2, steps_per_epoch=4), []
    for _ in range(8):
        found.append(optimiser.param_groups[0]["momentum"])
        (w * w).sum().backward()
        optimiser.step()
        if len(found) < 8:
            schedule.step()
    # PyTorch 2.14: OneCycleLR(SGD(p, 0.1, momentum=0.9), 0.5, epochs=2, steps_per_epoch=4)
    want = [0.95, 0.8688255, 0.8528058, 0.8688255, 0.8944018, 0.9216942, 0.9423362, 0.95]
    np.testing.assert_allclose(found, want, atol=1e-6)


def test_one_cycle_refuses_a_momentum_that_cannot_change():
    with pytest.raises(UsageError, match="Adagrad has no momentum\nhint: pass cycle_momentum=False"):
        schedules.OneCycleLR(nn.optim.Adagrad([Tensor([1.0])], 0.1), 0.5, 10)
    with pytest.raises(UsageError, match="total_steps, or epochs"):
        schedules.OneCycleLR(nn.optim.SGD([Tensor([1.0])], 0.1), 0.5)
    w, x = Tensor([1.0]), Tensor([2.0]).realize()
    adam = nn.optim.Adam([w], 0.1)
    schedule = schedules.OneCycleLR(adam, 0.5, 10)

    def fn(x: Tensor) -> Tensor:
        loss = (w * x).sum().backward()
        adam.step()
        return loss

    step = TinyJit(fn)
    step(x)
    schedule.step()
    step(x)
    with pytest.raises(UsageError, match="captured with the momentum"):
        schedule.step()


@pytest.mark.parametrize("kind", ["Adam", "Adamax", "RAdam"])
def test_the_correction_of_the_start_has_the_decay_rates_of_the_present_step(kind: str):
    """PyTorch's 1 - beta ** step; with the rates changed after two steps."""
    w, m, v = np.array(START), np.zeros((2, 3)), np.zeros((2, 3))
    found = Tensor(START, dtype=dtypes.float64)
    optimiser = getattr(nn.optim, kind)([found], 0.1)
    b1, b2 = 0.9, 0.999
    for t in range(1, 6):
        if t == 3:
            b1, b2 = 0.5, 0.9
            optimiser.param_groups[0]["b1"], optimiser.param_groups[0]["b2"] = b1, b2
        g = 2 * (w - np.array(TARGET)) * (np.array(TARGET) + 2)
        found.grad = Tensor(g)
        optimiser.step()
        m = b1 * m + (1 - b1) * g
        if kind == "Adamax":
            v = np.maximum(b2 * v, np.abs(g) + 1e-8)
            w = w - 0.1 / (1 - b1**t) * m / v
            continue
        v = b2 * v + (1 - b2) * g * g
        root = np.sqrt(v / (1 - b2**t)) + 1e-8
        if kind == "RAdam":
            most = 2 / (1 - b2) - 1
            length = most - 2 * t * b2**t / (1 - b2**t)
            top = (length - 4) * (length - 2) * most
            scale = np.sqrt(top / ((most - 4) * (most - 2) * length)) if length > 5 else 0.0
            root = 1 / (scale * np.sqrt(1 - b2**t) / (np.sqrt(v) + 1e-8)) if length > 5 else 1.0
        w = w - 0.1 * m / (1 - b1**t) / root
    np.testing.assert_allclose(found.numpy(), w, rtol=1e-6)


def test_a_momentum_that_a_schedule_changes_is_that_of_pytorch():
    """The values are PyTorch's, of AdamW under OneCycleLR with its defaults."""
    w, target = Tensor(START, dtype=dtypes.float64), Tensor(TARGET, dtype=dtypes.float64)
    optimiser = nn.optim.AdamW([w], 0.02)
    schedule = nn.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=0.1, total_steps=6)
    for _ in range(5):
        loss(w, target).backward()
        optimiser.step()
        schedule.step()
    wanted = [
        [0.7862402486854202, -1.7823319903152148, 0.2864681231700351],
        [0.15434747913244776, 2.7826432348540227, -1.2834508506298639],
    ]
    np.testing.assert_allclose(w.numpy(), wanted, rtol=1e-6)


def test_a_parameter_that_is_given_twice_is_updated_once_with_a_warning():
    w = Tensor([1.0], requires_grad=True)
    with pytest.warns(UserWarning, match="SGD: 1 parameters are given twice"):
        optimiser = nn.optim.SGD([w, w], 0.5)
    (w * 2).sum().backward()
    optimiser.step()
    assert w.tolist() == [0.0]


@pytest.mark.parametrize("kind", ["Adam", "SGD", "NAdam", "Adafactor", "ASGD"])
def test_a_parameter_without_gradient_is_left_out_of_a_step(kind: str):
    """It counts its own steps: it moves as with an optimiser of its own, also after its state was loaded."""
    settings = {"momentum": 0.9, "dampening": 0.5} if kind == "SGD" else {}

    def run(*, apart: bool) -> list[list[float]]:
        ws = [Tensor([1.0, 2.0], requires_grad=True), Tensor([[3.0, 1.0]], requires_grad=True)]
        make = getattr(frontend.optim, kind)
        every = [make(part, lr=0.1, **settings) for part in ([[w] for w in ws] if apart else [ws])]
        for k in range(5):
            used = [w for i, w in enumerate(ws) if i == 0 or k in {1, 2, 4}]
            sum((w.square() * 3).sum() for w in used).backward()
            for i, optimiser in enumerate(every):
                if not apart or any(w is ws[i] for w in used):
                    optimiser.step()
                optimiser.zero_grad()
            if k == 3 and not apart:
                state = every[0].state_dict()
                every = [make(ws, lr=0.1, **settings)]
                every[0].load_state_dict(state)
        return [w.flatten().tolist() for w in ws]

    together, alone = run(apart=False), run(apart=True)
    assert [x for row in together for x in row] == pytest.approx([x for row in alone for x in row], rel=1e-5)
