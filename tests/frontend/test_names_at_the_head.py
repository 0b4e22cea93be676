"""What programs name before they compute: GPUs, states of generators, and arguments by their places."""

from __future__ import annotations

import inspect
import json
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import frontend
import hcq
from frontend import Tensor
from frontend.device import Device
from frontend.optim import SGD
from frontend.optim import lr_scheduler as schedules
from tests.oracles.programs import DATA

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_arguments_have_pytorch_s_places():
    """positional.json has the names of PyTorch 2.13's arguments that may be given by place."""
    compared = 0
    for full, wanted in json.loads((DATA / "positional.json").read_text()).items():
        home, name = full.rsplit(".", 1)
        made = getattr(import_module(f"frontend.{home}"), name, None)
        if made is None:  # the coverage of names counts these
            continue
        parameters = list(inspect.signature(made.__init__).parameters.values())[1:]
        if any(p.kind is p.VAR_POSITIONAL for p in parameters):  # checked by number where it is called
            continue
        ours = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        assert ours[: len(wanted)] == wanted[: len(ours)], full
        compared += 1
    assert compared > 80


@pytest.mark.parametrize("name", ["frontend.llm", "frontend.onnx", "interop.cuda", "interop.sanitize"])
def test_a_module_loads_when_its_name_is_first_used(name: str):
    package, _, module = name.partition(".")
    vars(import_module(package)).pop(module, None)
    assert getattr(import_module(package), module) is import_module(name)


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    gpus = [f"nv-emu:sm_90+sm_90:{i}" for i in range(2)]
    with monkeypatch.context() as patch:
        patch.setattr(type(Device), "gpus", lambda _: gpus)
        patch.setattr(Device, "_default", Device.DEFAULT)
        patch.setattr(Device, "_names", {})
        patch.setattr(Device, "_gpu_number", 0)
        yield [Device.canonical(name) for name in gpus]
    for name in gpus:
        Device[name].close()


def test_gpus_have_pytorch_s_names(two_gpus: list[str]):
    first, second = two_gpus
    assert frontend.cuda.is_available()
    assert frontend.accelerator.device_count() == 2
    assert Device.canonical("cuda") == Device.canonical("cuda:0") == first
    assert frontend.accelerator.current_accelerator() == first
    frontend.cuda.set_device(1)
    assert frontend.cuda.current_device() == 1
    assert Device.canonical("cuda") == second
    with frontend.cuda.device(0):
        assert Device.canonical("cuda") == first
    assert frontend.accelerator.current_device_index() == 1
    with frontend.cuda.device(None):
        assert frontend.cuda.current_device() == 1
    assert frontend.cuda.memory_allocated() == 0
    x = Tensor.ones(1000, device="cuda").realize()
    assert x.device == second
    assert 4000 <= frontend.cuda.memory_allocated() <= frontend.cuda.memory_reserved()
    assert frontend.cuda.memory_allocated(0) == 0
    frontend.cuda.synchronize()
    found = frontend.cuda.get_device_properties()
    assert (found.major, found.minor) == frontend.cuda.get_device_capability("cuda:1") == (9, 0)
    assert found.name == frontend.cuda.get_device_name(1)
    assert found.total_memory > 1 << 30
    assert frontend.cuda.is_bf16_supported()
    assert len(frontend.cuda.get_rng_state_all()) == 2
    frontend.cuda.empty_cache()
    assert x.sum().item() == 1000
    del x
    with pytest.raises(hcq.UsageError, match="wanted GPU 2, saw"):
        frontend.cuda.set_device(2)
    with pytest.raises(hcq.UsageError, match="wanted a GPU, saw 'cpu'"):
        frontend.cuda.set_device("cpu")
    with pytest.raises(hcq.UnsupportedError, match="wanted one device"):
        frontend.nn.DataParallel(frontend.nn.Linear(2, 2))


@pytest.mark.parametrize(
    ("actual", "expected"),
    [(2**60, 2**60 + 1), (np.array([2**60]), np.array([2**60 + 1])), (np.float64(1), 1.5), (True, False)],
)
def test_numbers_that_differ_are_not_close(actual: Any, expected: Any):
    if isinstance(actual, np.ndarray):
        actual, expected = Tensor(actual), Tensor(expected)
    with pytest.raises(AssertionError, match=r"are not (equal|close)!"):
        frontend.testing.assert_close(actual, expected)
    frontend.testing.assert_close(actual, actual)


def test_a_gpu_has_a_whole_number():
    for name in ("cuda:x", "cuda:-1"):
        with pytest.raises(hcq.UsageError, match="wanted a GPU's number, as in 'cuda:0', saw"):
            Device.canonical(name)


def test_states_of_generators_are_checked():
    for wrong in (Tensor.zeros(3), Tensor.zeros(16), 3):
        with pytest.raises((hcq.UsageError, TypeError), match="wanted the state of a generator"):
            frontend.set_rng_state(wrong)
    with pytest.raises(hcq.UsageError, match="anneal_strategy: wanted 'cos' or 'linear'"):
        schedules.OneCycleLR(SGD([Tensor.zeros(2)], 0.1), 0.5, 10, anneal_strategy="exp")
    with pytest.raises(hcq.UsageError, match="min_lr: wanted 1, one for each group, saw 2"):
        schedules.ReduceLROnPlateau(SGD([Tensor.zeros(2)], 0.1), min_lr=[0.1, 0.2])
    with pytest.raises(hcq.UsageError, match="padding_mode"):
        frontend.nn.ConvTranspose1d(1, 1, 2, padding_mode="circular")


def test_packages_name_classes_of_dtypes_other_devices_and_generators():
    ones = frontend.ones(2)
    assert isinstance(ones, frontend.FloatTensor)
    assert not isinstance(ones, frontend.LongTensor | None)
    assert frontend.LongTensor([1]).dtype is frontend.int64
    assert frontend.BFloat16Tensor(2, 3).shape == (2, 3)
    assert frontend.device("meta") != ones.device
    drawn = [
        frontend.nn.init.xavier_normal_(frontend.empty(2, 3), generator=frontend.Generator().manual_seed(n))
        for n in (3, 3, 4)
    ]
    assert drawn[0].tolist() == drawn[1].tolist() != drawn[2].tolist()
