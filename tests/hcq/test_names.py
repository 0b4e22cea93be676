"""Names that do not exist are answered with the nearest that does, by one mechanism."""

from __future__ import annotations

import pickle

import pytest

import compiler
import frontend
import hcq
from frontend import Tensor, distributed, nn, optim
from frontend.nn import functional, state
from frontend.optim import lr_scheduler
from hcq.errors import UsageError
from hcq.names import AbsentNameError, nearest
from tests.children import python


@pytest.mark.parametrize(
    ("module", "typed", "meant"),
    [
        (hcq, "opne", "open"),
        (hcq, "tensor", "Tensor"),
        (compiler, "Uop", "UOp"),
        (frontend, "zeroes", "zeros"),
        (frontend, "MSELos", "nn.MSELoss"),
        (nn, "Liner", "Linear"),
        (nn, "conv2d", "Conv2d"),
        (functional, "rellu", "relu"),
        (functional, "cumsum", "Tensor.cumsum"),
        (optim, "Rmsprop", "RMSprop"),
        (lr_scheduler, "StepLr", "StepLR"),
        (state, "safe_lode", "safe_load"),
        (distributed, "all_reduse", "all_reduce"),
        (nn.Sequential(nn.ReLU()), "paramters", "parameters"),
        (nn.ModuleDict({"encoder": nn.ReLU()}), "encodr", "encoder"),
    ],
)
def test_a_missing_attribute_is_answered_with_the_nearest(module: object, typed: str, meant: str):
    with pytest.raises(AbsentNameError) as caught:
        getattr(module, typed)
    assert str(caught.value).endswith(f"has no attribute {typed!r}\nhint: did you mean {meant}?")


def test_private_names_and_names_like_no_other_get_no_hint():
    for name in ("_opne", "__wrapped__", "qqq"):
        with pytest.raises(AttributeError) as caught:
            getattr(hcq, name)
        assert str(caught.value) == f"module 'hcq' has no attribute {name!r}"


def test_the_error_survives_pickling():
    copy = pickle.loads(pickle.dumps(AbsentNameError("x", "opne", lambda: [("", ["open"])])))
    assert str(copy) == "x has no attribute 'opne'\nhint: did you mean open?"


def test_a_terminal_shows_one_hint():
    """Python itself hints at the attributes of an object that lists at most 750."""
    assert len(dir(Tensor([1.0]))) < 720
    for line in ("frontend.sigmod", "frontend.Tensor([1.0]).sigmod()"):
        done = python("-c", f"import frontend\n{line}", status=None)
        assert done.stderr.lower().count("did you mean") == 1, done.stderr
        assert "sigmoid" in done.stderr.splitlines()[-1]


def test_names_are_compared_without_regard_to_case():
    assert nearest("TENSOR", ["TENSORS", "Tensor"]) == "Tensor"
    assert nearest("device", []) == ""


def test_importing_the_model_alone_gives_tensors_and_networks_when_they_are_used():
    program = (
        "import sys, hcq; assert 'frontend' not in sys.modules; import frontend; "
        "assert hcq.Tensor is frontend.Tensor and hcq.nn is frontend.nn; assert 'nn' in dir(hcq)"
    )
    python("-c", program)


@pytest.mark.parametrize("name", ["cuda", "cuda:0", "hip", "rocm", "gpu"])
def test_queue_devices_are_refused_under_names_of_other_frameworks(name: str):
    with pytest.raises(UsageError, match="hint: GPUs are called nv or amd; `python -m hcq` shows"):
        hcq.open(name)
