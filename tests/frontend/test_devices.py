"""Devices by name: closing one, a second one that the host cannot address, moving between them."""

from __future__ import annotations

import re

import pytest

import hcq
from frontend import Device, Tensor, TinyJit, nn
from frontend.device import TensorDevice
from hcq.errors import HcqError, UsageError
from tests.children import python


@pytest.fixture
def opened():
    """A second device under another name."""
    device = TensorDevice("cpu:9", hcq.open("cpu"))
    Device._open["cpu:9"] = device
    yield device
    device.close()


CLOSED = """
from frontend import Device, Tensor, TinyJit
a = Tensor([1.0, 2.0])
b = (a + 1).realize()
pending = b * 2
jit = TinyJit(lambda x: x + 1)
jit(a)
jit(a)
Device[Device.DEFAULT].close()
for use in (lambda: (a + 1).realize(), a.numpy, pending.tolist, lambda: jit(a)):
    try:
        use()
        print("nothing was refused")
    except Exception as error:
        print(type(error).__name__, "closed" in str(error))
c = Tensor([5.0])
print((c + 1).tolist(), jit.captured.device.hcq.closed)
"""


def test_a_closed_device_refuses_everything_and_its_name_reopens():
    """In a separate process, as other tests use the device of this one."""
    done = python("-c", CLOSED)
    assert done.stdout.splitlines() == ["UsageError True"] * 4 + ["[6.0] True"]


def test_plans_of_a_closed_device_are_void():
    for _ in range(2):
        device = TensorDevice("cpu:8", hcq.open("cpu"))
        Device._open["cpu:8"] = device
        a = Tensor([1.0, 2.0], device="cpu:8")
        b, c = a + 1, a * 2
        Tensor.realize(b, c)
        assert (b.tolist(), c.tolist(), (a - 1).tolist()) == ([2.0, 3.0], [2.0, 4.0], [0.0, 1.0])
        device.close()


def test_tensors_move_between_devices(opened: TensorDevice):
    a = Tensor([1.0, 2.0]) * 3
    home = re.escape(a.device)
    assert a.device == Device.DEFAULT
    b = a.to("cpu:9")
    assert b.device == "cpu:9"
    assert (b + 1).to(None).tolist() == [4.0, 7.0]
    with pytest.raises(UsageError, match=rf"\.to\('{home}'\)"):
        a + b
    with pytest.raises(UsageError, match=f"on {home}, the value on cpu:9"):
        a.assign(b)
    f = TinyJit(lambda x: x.to("cpu:9"))
    f(a)
    with pytest.raises(UsageError, match="captured function"):
        f(a)
    assert opened.hcq.closed is False


def test_the_default_device_may_be_set(opened: TensorDevice):
    before = Device.DEFAULT
    try:
        Device.DEFAULT = "cpu:9"
        assert Tensor.zeros(2).device == "cpu:9"
    finally:
        Device.DEFAULT = before
    assert Device.canonical("cpu:0") == "cpu"
    assert Device.canonical(before) == before
    assert Device[before].hcq.closed is opened.hcq.closed is False


EMULATED = "nv-emu"


@pytest.fixture(scope="module")
def emulated() -> str:
    try:
        assert Device[EMULATED].direct is False
    except HcqError as error:
        pytest.skip(f"no {EMULATED}: {error}")
    return EMULATED


@pytest.mark.slow
def test_a_device_that_the_host_cannot_address(emulated: str):
    a = Tensor([[1.0, 2.0], [3.0, 4.0]], device=emulated)
    assert (a @ a.T + 1).tolist() == [[6.0, 12.0], [12.0, 26.0]]
    assert a.to("cpu").softmax().numpy() == pytest.approx(a.softmax().numpy(), rel=1e-5)
    old = a * 10
    a.assign(a + 1).realize()
    assert (a.tolist(), old.tolist()) == ([[2.0, 3.0], [4.0, 5.0]], [[10.0, 20.0], [30.0, 40.0]])
    for i in range(6):
        assert (a * (0.3 + i)).numpy()[0, 0] == pytest.approx(2 * (0.3 + i))


@pytest.mark.slow
def test_random_numbers_are_the_same_on_every_device(emulated: str):
    Tensor.manual_seed(9)
    here = Tensor.rand(64).numpy()
    Tensor.manual_seed(9)
    assert (Tensor.rand(64, device=emulated).numpy() == here).all()


@pytest.mark.slow
def test_training_on_a_device_that_the_host_cannot_address(emulated: str):
    def losses(device: str) -> list[float]:
        Tensor.manual_seed(2)
        layer = nn.Linear(4, 3)
        for name in ("weight", "bias"):
            setattr(layer, name, getattr(layer, name).to(device))
        opt = nn.optim.Adam(nn.state.get_parameters(layer), lr=0.1)
        x, y = Tensor([[1.0, 2.0, 3.0, 4.0]], device=device), Tensor([1], device=device)

        @TinyJit
        def step() -> Tensor:
            loss = layer(x).sparse_categorical_crossentropy(y).backward()
            opt.step()
            return loss

        return [step().item() for _ in range(4)]

    assert losses(emulated) == pytest.approx(losses("cpu"), rel=1e-4)
