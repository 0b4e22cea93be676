"""Methods beyond those that most programs use: what recorded answers of PyTorch do not show.

Their values, gradients and errors against PyTorch: `test_answers_of_pytorch`.
"""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import numpy as np
import pytest

from frontend import Tensor, TinyJit
from hcq.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


def test_a_file_at_an_address_gives_its_bytes(tmp_path: Path):
    (tmp_path / "plain").write_bytes(b"\1\2\3")
    (tmp_path / "packed").write_bytes(gzip.compress(b"\7\0"))
    plain = Tensor.from_url((tmp_path / "plain").as_uri())
    assert (plain.dtype.name, plain.tolist()) == ("uint8", [1, 2, 3])
    assert Tensor.from_url((tmp_path / "packed").as_uri(), gunzip=True).tolist() == [7, 0]


@pytest.mark.parametrize("url", ["gopher://x/y", "file:///there/is/no/such/file", 3])
def test_an_address_that_cannot_be_read_is_refused(url: str):
    with pytest.raises(UsageError, match="from_url"):
        Tensor.from_url(url)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (2, 3, 4), (3, 0)])
def test_singular_values_and_vectors_give_the_matrix_again(shape: tuple[int, ...]):
    a = np.random.default_rng(3).normal(size=shape).astype("float32")
    u, s, v = (x.numpy() for x in Tensor(a).svd())
    assert np.allclose((u * s[..., None, :]) @ np.swapaxes(v, -1, -2), a, atol=1e-5)
    assert np.allclose(np.swapaxes(u, -1, -2) @ u, np.eye(s.shape[-1]), atol=1e-5)
    assert np.allclose(s, np.linalg.svd(a, compute_uv=False), rtol=1e-4)


def test_an_inverse_is_captured():
    solve = TinyJit(lambda a, b: a.solve(b))
    rng = np.random.default_rng(0)
    for _ in range(3):
        a, b = rng.normal(size=(3, 3)).astype("float32"), rng.normal(size=3).astype("float32")
        assert np.allclose(a @ solve(Tensor(a).realize(), Tensor(b).realize()).numpy(), b, atol=1e-3)


def test_bits_as_a_smaller_dtype_and_back_are_the_same():
    a = np.array([[1.5, -2.0], [3e38, np.pi]])
    x = Tensor(a)
    for dtype in ("uint8", "int16", "float32", "uint32"):
        small = x.bitcast(dtype)
        assert small.numpy().tobytes() == a.tobytes()
        assert np.array_equal(small.bitcast("float64").numpy(), a)
    with pytest.raises(UsageError, match="bitcast"):
        Tensor([[1, 2, 3]], dtype="int32").bitcast("int64")


def test_pooled_indices_put_the_values_back():
    a = np.arange(2 * 4 * 6, dtype="float32").reshape(2, 4, 6)
    values, indices = Tensor(a).max_pool2d((2, 3), return_indices=True)
    back = values.max_unpool2d(indices, (2, 3)).numpy()
    assert np.array_equal(back[back != 0], values.numpy().ravel())
    assert np.array_equal(back, np.where(back != 0, a, 0))


DRAWS: dict[str, tuple[tuple[float, ...], float, float]] = {
    "exponential_": ((2.0,), 0.5, 0.5),
    "log_normal_": ((0.5, 0.25), 1.70, 0.432),
    "geometric_": ((0.25,), 4.0, 3.464),
    "random_": ((10,), 4.5, 2.872),
}
"""Arguments, mean and standard deviation of the distribution."""


@pytest.mark.parametrize("name", DRAWS)
def test_random_numbers_in_place_have_their_distribution(name: str):
    Tensor.manual_seed(3)
    arguments, mean, deviation = DRAWS[name]
    for dtype in ("float32", "float64"):
        x = Tensor.zeros(40000, dtype=dtype).contiguous()
        assert getattr(x, name)(*arguments) is x
        found = x.numpy()
        assert abs(found.mean() - mean) < 0.05 * deviation
        assert abs(found.std() - deviation) < 0.06 * deviation


def test_cauchy_numbers_and_whole_numbers_have_their_quartiles():
    Tensor.manual_seed(3)
    found = np.quantile(Tensor.zeros(40000).contiguous().cauchy_(1.0, 2.0).numpy(), [0.25, 0.5, 0.75])
    assert np.allclose(found, [-1.0, 1.0, 3.0], atol=0.1)
    whole = Tensor.zeros(40000, dtype="uint8").contiguous().random_().numpy()
    assert np.allclose(np.quantile(whole, [0.25, 0.5, 0.75]), [64, 128, 192], atol=4)
    assert set(Tensor.zeros(400, dtype="int16").contiguous().random_(-3, 1).tolist()) == {-3, -2, -1, 0}


def test_a_history_ends_in_place_and_a_computed_tensor_keeps_its_gradient():
    w = Tensor([1.0, 2.0], requires_grad=True)
    y, z = w * 2, w * 3
    y.retain_grad()
    z.detach_()
    (y * y + z * z).sum().backward()
    assert (y.grad.tolist(), w.grad.tolist()) == ([4.0, 8.0], [8.0, 16.0])
    w.detach_()
    assert w.requires_grad is False


def test_a_tensor_says_on_which_kind_of_device_it_is():
    on_host = Tensor([1.0], device="cpu")
    assert (on_host.is_cpu, on_host.is_cuda, on_host.get_device()) == (True, False, -1)
    on_gpu = Tensor([1.0], device="nv-emu")
    assert (on_gpu.is_cpu, on_gpu.is_cuda, on_gpu.get_device()) == (False, True, 0)
    assert on_gpu.cuda("nv-emu") is on_gpu
