"""Checkpoints of optimisers and schedules are PyTorch's, both ways, in files of `torch.save`.

Where PyTorch is installed, each test has it go on from our state and ours from its state. Elsewhere its kept
files are read, `tests/frontend/data/checkpoints/training_*.pt`, made by `python -m tests.oracles.training`.

Not here: files in general (`test_files_of_tensors`), values of steps (`test_optimisers_of_pytorch`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import frontend
from hcq.errors import UsageError
from tests.oracles.training import CASES, DATA, SCHEDULES, Run, rates

if TYPE_CHECKING:
    from pathlib import Path

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]  # optional

needs_pytorch = pytest.mark.skipif(torch is None, reason="PyTorch is not installed; its kept files are read")


def close(a: Any, b: Any) -> bool:
    a, b = ([x for row in rows for x in row] for rows in (a, b))
    return bool(a == pytest.approx(b, rel=2e-5, abs=1e-6))


@pytest.mark.parametrize("name", CASES)
def test_a_kept_file_of_pytorch_goes_on_as_there(name: str):
    kept = frontend.load(DATA / f"training_{name}.pt")
    run = Run(frontend, name)
    run.load(kept["state"])
    assert close([run.step() for _ in range(3)], kept["after"])


@needs_pytorch
@pytest.mark.parametrize("name", CASES)
def test_pytorch_goes_on_from_our_file(name: str, tmp_path: Path):
    ours = Run(frontend, name)
    for _ in range(3):
        ours.step()
    frontend.save(ours.state(), tmp_path / "ours.pt")
    theirs = Run(torch, name)
    theirs.load(torch.load(tmp_path / "ours.pt", weights_only=True))
    assert close([theirs.step() for _ in range(3)], [ours.step() for _ in range(3)])


@needs_pytorch
@pytest.mark.parametrize("name", CASES)
def test_states_have_pytorch_s_keys(name: str):
    ours, theirs = Run(frontend, name), Run(torch, name)
    for k in range(2):
        a, b = ours.state(), theirs.state()
        for group, other in zip(a["optimizer"]["param_groups"], b["optimizer"]["param_groups"], strict=True):
            assert other.keys() <= group.keys()
            assert {n: group[n] for n in other if n != "params"} == {
                n: pytest.approx(v) if isinstance(v, float) else v for n, v in other.items() if n != "params"
            }
            assert group["params"] == other["params"]
        left, right = ({n: set(s) for n, s in x["optimizer"]["state"].items()} for x in (a, b))
        assert left == {n: s - {"al"} for n, s in right.items()}
        if k == 0:
            ours.step()
            theirs.step()


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_kept_schedule_of_pytorch_goes_on_as_there(name: str):
    kept = frontend.load(DATA / f"training_{name}.pt")
    assert close(rates(frontend, name, kept["state"]), kept["after"])


@needs_pytorch
@pytest.mark.parametrize("name", SCHEDULES)
def test_pytorch_s_schedule_goes_on_from_ours(name: str, tmp_path: Path):
    run = SCHEDULES[name](frontend)
    for _ in range(4):
        run.step()
    frontend.save(run.state(), tmp_path / "ours.pt")
    state = torch.load(tmp_path / "ours.pt", weights_only=True)
    assert close(rates(torch, name, state), rates(frontend, name, frontend.load(tmp_path / "ours.pt")))


def test_states_that_do_not_fit_are_refused_and_change_nothing():
    run = Run(frontend, "adamax")
    run.step()
    state = run.optimizer.state_dict()
    before = run.weights()
    wrong = {**state, "param_groups": state["param_groups"] * 2}
    shaped = {**state["state"][0], "exp_avg": frontend.zeros(7)}
    for values, text in (
        ({}, "wanted a dictionary"),
        (wrong, "wanted groups of"),
        ({**state, "state": {**state["state"], 0: shaped}}, "exp_avg of parameter 0"),
    ):
        with pytest.raises(UsageError, match=text):
            run.optimizer.load_state_dict(values)
    assert run.weights() == before
    adam, adamw = (make(run.parameters) for make in (frontend.optim.Adam, frontend.optim.AdamW))
    for loaded, saved in ((adamw, adam), (adam, adamw)):  # PyTorch's AdamW stays decoupled
        loaded.load_state_dict(saved.state_dict())
        assert loaded.param_groups[0]["decoupled_weight_decay"]
