"""The array API standard's namespace against NumPy's, and the exchange of memory with NumPy."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from frontend import Tensor
from frontend import array_api as xp
from hcq.errors import UsageError
from tests.children import python

A = (np.sin(np.arange(12) * 1.7) * 3).reshape(3, 4).astype("float32")
INPUTS = {
    "a": A,
    "b": np.array([1.5, -0.5, 2.0, 0.25], "float32"),
    "d": np.array([[2.0], [-1.0], [0.5]]),
    "i": np.array([[3, -1, 2, 0], [5, 2, -7, 1], [0, 4, 4, -2]], "int32"),
    "j": np.array([2, 3, 1, 5], "int16"),
    "u": np.array([1, 200, 7], "uint8"),
    "m": A > 0,
    "e": np.zeros((0, 3), "float32"),
    "s": np.array(1.5),
    "sq": np.array([[4.0, 1.0, 0.5], [1.0, 3.0, -1.0], [0.5, -1.0, 2.0]]),
    "v": np.array([3, 1, 3, 2, 1], "int32"),
}
EXPRESSIONS = """
xp.add(a, d)
xp.add(a, s)
xp.multiply(u[0], j)
xp.add(u, i[:, :3])
xp.repeat(v, v)
xp.repeat(a, u - u + v[:3], axis=0)
xp.vecdot(u, u)
xp.tensordot(u, u, axes=0)
xp.expand_dims(a, 1)
a[0, 0][m[0, 1]]
a[0, 0][m[0, 0]]
xp.linalg.pinv(sq, rtol=d[2, 0])
xp.subtract(a, 1.5)
xp.divide(3.0, b)
xp.pow(xp.abs(a), b)
xp.remainder(i, xp.asarray(3, dtype=xp.int32))
xp.floor_divide(a, 0.7)
xp.bitwise_left_shift(i, xp.asarray(2, dtype=xp.int32))
xp.atan2(a, b)
xp.hypot(a, b)
xp.logaddexp(a, b)
xp.maximum(a, d)
xp.copysign(a, -1.0)
xp.nextafter(a, b)
xp.less_equal(i, j)
xp.logical_xor(m, i > 0)
xp.clip(a, -1, 1)
xp.clip(i, 0, 4)
xp.where(m, a, d)
xp.signbit(a)
xp.square(i)
xp.round(a)
xp.expm1(a)
xp.asinh(a)
xp.astype(a, xp.int32)
xp.arange(2, 9, 3)
xp.linspace(0, 1, 5)
xp.linspace(0.0, 1.0, 5, endpoint=False)
xp.eye(3, 4, k=1)
xp.full((2,), 3)
xp.full_like(i, 7)
xp.zeros_like(e)
xp.ones((2, 1), dtype=xp.float64)
xp.tril(a, k=-1)
xp.meshgrid(b, v)[0]
xp.broadcast_to(b, (2, 4))
xp.broadcast_arrays(a, d)[1]
xp.concat([a, d, i], axis=1)
xp.concat([a, b], axis=None)
xp.stack([b, j], axis=1)
xp.unstack(a, axis=1)[2]
xp.expand_dims(a, axis=1)
xp.squeeze(d, axis=1)
xp.flip(a)
xp.moveaxis(a, 0, 1)
xp.permute_dims(a, (1, 0))
xp.repeat(a, 2, axis=1)
xp.reshape(a, (4, 3))
xp.roll(a, 1)
xp.roll(a, (1, -1), axis=(0, 1))
xp.tile(b, (2, 1))
xp.take(a, xp.asarray([2, 0]), axis=1)
xp.take_along_axis(a, xp.argsort(a, axis=1), axis=1)
xp.diff(a, axis=0)
xp.sum(u)
xp.sum(i, axis=(0, 1))
xp.sum(e, axis=0)
xp.prod(a, axis=1, keepdims=True)
xp.mean(a, axis=0)
xp.std(a, axis=1)
xp.var(a, correction=1)
xp.var(a, axis=1, correction=0.5)
xp.max(a, axis=(0, 1))
xp.min(a, axis=1, keepdims=True)
xp.any(m, axis=0)
xp.all(e)
xp.count_nonzero(i, axis=1)
xp.cumulative_sum(i, axis=1)
xp.cumulative_sum(v, include_initial=True)
xp.cumulative_prod(a, axis=0)
xp.argmax(a, axis=1)
xp.argmin(a)
xp.nonzero(i)[1]
xp.searchsorted(xp.sort(b), b, side="right")
xp.sort(a, axis=0)
xp.argsort(b)
xp.unique_all(v).values
xp.unique_all(v).indices
xp.unique_all(v).inverse_indices
xp.unique_counts(v).counts
xp.unique_inverse(i).inverse_indices
xp.sort(xp.unique_values(i))
xp.isin(v, xp.asarray([1, 2], dtype=xp.int32))
xp.matmul(a, b)
xp.matrix_transpose(a)
xp.tensordot(a, a, axes=([0], [0]))
xp.vecdot(a, b)
xp.linalg.inv(sq)
xp.linalg.det(sq)
xp.linalg.cholesky(sq)
xp.linalg.solve(sq, d)
xp.linalg.eigvalsh(sq)
xp.linalg.svdvals(a)
xp.linalg.pinv(sq[:, :2])
xp.linalg.matrix_rank(a)
xp.linalg.matrix_norm(a)
xp.linalg.matrix_norm(a, ord=1)
xp.linalg.matrix_norm(a, ord="nuc")
xp.linalg.vector_norm(a, axis=1)
xp.linalg.trace(sq)
xp.linalg.diagonal(a, offset=1)
xp.linalg.outer(b, b)
xp.linalg.cross(sq, sq[::-1, :])
xp.linalg.matrix_power(sq, 3)
xp.linalg.slogdet(sq)[1]
xp.fft.fftfreq(5, d=0.5)
xp.fft.rfftfreq(6)
xp.fft.fftshift(a)
xp.fft.ifftshift(v)
""".strip().splitlines()
SMALLER = {"float64": "float32", "int64": "int32", "uint64": "uint32"}
"""The default dtypes here, of NumPy's."""


@pytest.mark.sampled(4)
@pytest.mark.parametrize("text", EXPRESSIONS)
def test_a_function_gives_what_numpy_gives(text: str):
    want = np.asarray(eval(text, {"xp": np, **INPUTS}))
    got = eval(text, {"xp": xp, **{n: Tensor(x) for n, x in INPUTS.items()}})
    assert got.shape == want.shape
    assert got.dtype.name in {want.dtype.name, SMALLER.get(want.dtype.name)}
    assert np.allclose(got.numpy(), want, rtol=3e-5, atol=3e-5)


def test_quotients_and_remainders_of_infinities_and_zeros_are_those_of_the_standard():
    inf = float("inf")
    x = Tensor([inf, inf, -inf, 3.0, -3.0, 3.0, 5.0, -5.0])
    y = Tensor([2.0, -2.0, 2.0, -inf, inf, inf, 2.0, 2.0])
    want = [inf, -inf, -inf, -0.0, -0.0, 0.0, 2.0, -3.0]
    assert repr(xp.floor_divide(x, y).tolist()) == repr(want)
    zeros = xp.remainder(Tensor([-0.0, 0.0, 4.0]), Tensor([2.0, -2.0, -2.0]))
    assert repr(zeros.tolist()) == "[0.0, -0.0, -0.0]"
    assert xp.isnan(xp.acosh(Tensor([-3e153, 0.5], dtype="float64"))).tolist() == [True, True]
    assert xp.remainder(Tensor([3, -3]), 2).tolist() == [1, 1]


def test_ranks_take_one_tolerance_for_each_matrix():
    x = Tensor(np.stack([np.diag([4.0, 1.0, 0.5]), np.diag([4.0, 1.0, 0.5])]))
    rtol = Tensor([0.2, 0.01], dtype="float64")
    assert xp.linalg.matrix_rank(x, rtol=rtol).tolist() == [2, 3]
    assert xp.linalg.pinv(x, rtol=rtol).numpy()[:, 2, 2].tolist() == [0.0, 2.0]


def test_two_arrays_promote_by_dtype_alone():
    assert xp.add(Tensor([1.0]), Tensor(1.0, dtype="float64")).dtype is xp.float64
    assert xp.result_type(xp.int8, xp.uint8) is xp.int16
    assert xp.result_type(xp.int32, 1.0) is xp.float32
    assert xp.can_cast(xp.int8, xp.int16)
    assert not xp.can_cast(xp.int16, xp.int8)
    assert xp.isdtype(xp.int8, ("real floating", "signed integer"))


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_limits_of_floats_are_those_of_numpy(name: str):
    mine, theirs = xp.finfo(getattr(xp, name)), np.finfo(name)
    for limit in ("bits", "eps", "max", "min", "smallest_normal", "tiny", "resolution"):
        assert getattr(mine, limit) == getattr(theirs, limit)


def test_what_cannot_be_done_is_refused_with_the_reason():
    with pytest.raises(UsageError, match="counts"):
        xp.repeat(Tensor([1, 2]), Tensor([1, 2, 3]))
    with pytest.raises(UsageError, match="size 1"):
        xp.squeeze(Tensor([1, 2]), 0)
    with pytest.raises(UsageError, match="copy"):
        xp.asarray([1.0], copy=False)
    with pytest.raises(UsageError, match=r"2024\.12"):
        Tensor([1]).__array_namespace__(api_version="1999.1")
    assert not hasattr(xp, "imag")


def standardised(x: Any) -> Any:
    """As scikit-learn writes it: the namespace of its input, whatever that is."""
    space = x.__array_namespace__()
    deviation = space.std(x, axis=0)
    deviation = space.where(deviation == 0, space.ones_like(deviation), deviation)
    return (x - space.mean(x, axis=0)) / deviation


def least_squares(x: Any, y: Any, *, ridge: float) -> Any:
    """Weights of a linear model; a column of ones is the intercept."""
    space = x.__array_namespace__()
    x = space.concat([x, space.ones((x.shape[0], 1), dtype=x.dtype)], axis=1)
    gram = space.matmul(space.matrix_transpose(x), x) + ridge * space.eye(x.shape[1], dtype=x.dtype)
    return space.linalg.solve(gram, space.matmul(space.matrix_transpose(x), y))


def test_code_written_for_the_standard_runs_on_tensors():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 3)), rng.normal(size=(40,))
    want = least_squares(standardised(x), y[:, None], ridge=0.1)
    got = least_squares(standardised(Tensor(x)), Tensor(y[:, None]), ridge=0.1)
    assert np.allclose(got.numpy(), want)


@pytest.mark.parametrize("name", ["bool", "int8", "uint16", "int64", "float16", "float64"])
def test_memory_goes_to_numpy_and_back(name: str):
    a = np.arange(6).reshape(2, 3).astype(name)
    there = np.from_dlpack(Tensor(a))  # type: ignore[arg-type]  # it has __dlpack__
    assert there.dtype == a.dtype
    assert np.array_equal(there, a)
    back = xp.from_dlpack(a)
    assert back.dtype.name == name
    assert np.array_equal(back.numpy(), a)


@pytest.mark.parametrize("key", [np.s_[::2, 1:], np.s_[::-1], np.s_[:, ::-2], np.s_[0:0]])
def test_an_array_with_strides_is_read(key: Any):
    a = np.arange(20, dtype="float32").reshape(5, 4)[key]
    assert np.array_equal(xp.from_dlpack(a).numpy(), a)


def test_memory_of_the_cpu_is_shared_and_outlives_the_tensor():
    x = Tensor([1.0, 2.0, 3.0]).realize()
    there = np.from_dlpack(x)  # type: ignore[arg-type]  # as above
    shared = x.device.startswith("cpu")
    x += 1
    x.numpy()
    del x
    gc.collect()
    assert there.tolist() == ([2.0, 3.0, 4.0] if shared else [1.0, 2.0, 3.0])


def test_memory_of_the_cpu_outlives_its_device():
    # In a process of its own, as reading unmapped memory ends it.
    text = (
        "import numpy as np; from frontend import Device, Tensor\n"
        "there = np.from_dlpack(Tensor(np.arange(2000.0), device='cpu'))\n"
        "Device['cpu'].close()\n"
        "assert there[1999] == 1999\n"
        "again = Tensor(np.full(2000, 7.0), device='cpu').realize()\n"
        "assert there[1998] == 1998, again"
    )
    python("-c", text)


def test_a_copy_is_refused_where_it_is_needed():
    with pytest.raises(BufferError, match="copy"):
        xp.from_dlpack(np.ones(2), copy=False)
    with pytest.raises(BufferError, match="stream"):
        Tensor([1]).__dlpack__(stream=1)
    with pytest.raises(UsageError, match="__dlpack__"):
        xp.from_dlpack([1, 2])


def test_a_capsule_that_nobody_takes_is_released():
    x = Tensor([1.0, 2.0])
    capsule = x.__dlpack__()
    memory = weakref.ref(x.leaves[0])
    del x
    gc.collect()
    assert memory() is not None
    del capsule
    gc.collect()
    assert memory() is None


def test_numpy_reads_the_array_interface():
    x = Tensor([[1, 2], [3, 4]], dtype="int16")
    described = x.__array_interface__
    assert (described["shape"], described["typestr"]) == ((2, 2), "<i2")
    array = np.asarray(x)
    array[0, 0] = 9  # its own memory
    assert x.tolist() == [[1, 2], [3, 4]]
    assert not hasattr(Tensor([1.0], dtype="bfloat16"), "__array_interface__")
    assert np.asarray(Tensor([1.5], dtype="bfloat16")).tolist() == [1.5]


def test_shifts_in_place_and_complex():
    x = Tensor([1, 2])
    x <<= 2
    x >>= 1
    assert x.tolist() == [2, 4]
    assert complex(Tensor(1.5)) == 1.5


@pytest.mark.slow
def test_the_page_of_coverage_is_current():
    page = Path(__file__).parents[2] / "docs" / "coverage.md"
    code = "from tests.oracles.coverage.__main__ import page; print(page(), end='')"
    done = python("-c", code, cwd=page.parents[1])
    assert done.stdout == page.read_text()


def test_frequencies_are_shifted_along_a_list_of_axes():
    x = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    assert xp.fft.fftshift(x, axes=[1]).tolist() == [[3.0, 1.0, 2.0], [6.0, 4.0, 5.0]]
    assert xp.fft.ifftshift(xp.fft.fftshift(x, axes=[0, 1]), axes=[0, 1]).tolist() == x.tolist()


SQUARE = np.array([[4.0, 1.0, 0.5], [1.0, 3.0, -1.0], [0.5, -1.0, 2.0]])
STACK = np.arange(24.0).reshape(2, 3, 4) % 7
LARGEST = np.linalg.norm(STACK, 2, (1, 0), keepdims=True)
CUBED = (STACK**3).sum((0, 1), keepdims=True) ** (1 / 3)


@pytest.mark.parametrize(
    ("got", "want"),
    [
        (lambda s: xp.linalg.matrix_norm(s[0], "fro", (-2, -1), True), [[(STACK[0] ** 2).sum() ** 0.5]]),
        (lambda s: xp.linalg.matrix_norm(s, 1, (0, 2)), np.linalg.norm(STACK, 1, (0, 2))),
        (lambda s: xp.linalg.matrix_norm(s, 2, dim=(1, 0), keepdim=True), LARGEST),
        (lambda s: xp.linalg.vector_norm(s, 3, (0, 1), True), CUBED),
        (lambda _: xp.linalg.matrix_rank(Tensor(SQUARE), 3.0), 2),
        (lambda _: xp.linalg.matrix_rank(Tensor(SQUARE), atol=None, rtol=0.7, hermitian=True), 2),
        (lambda s: xp.linalg.matrix_rank(s[:, :0]), [0, 0]),
        (lambda _: xp.linalg.pinv(Tensor(SQUARE).tril(), hermitian=True), np.linalg.inv(SQUARE)),
        (lambda _: xp.linalg.pinv(Tensor(SQUARE), 0.5), np.linalg.pinv(SQUARE, 0.5)),
        (lambda _: xp.linalg.pinv(Tensor(SQUARE), atol=0.1, rtol=0.9), np.linalg.pinv(SQUARE, 0.9)),
        (lambda s: xp.linalg.pinv(s[:, :0]), np.zeros((2, 4, 0))),
        (lambda _: xp.linalg.eigvalsh(Tensor(SQUARE).triu(), "U"), np.linalg.eigvalsh(SQUARE)),
        (lambda _: xp.linalg.eigh(Tensor(SQUARE).triu(), UPLO="U").eigenvalues, np.linalg.eigvalsh(SQUARE)),
        (lambda s: xp.linalg.vecdot(s, s, dim=1), (STACK * STACK).sum(1)),
        (lambda s: xp.linalg.cross(s, s + 1, dim=1), np.cross(STACK, STACK + 1, axis=1)),
        (lambda s: xp.fft.fftshift(s, dim=[2]), np.fft.fftshift(STACK, [2])),
    ],
)  # fmt: skip
def test_arguments_of_pytorch_beside_those_of_the_standard(got: Any, want: Any):
    found = got(Tensor(STACK))
    np.testing.assert_allclose(found.numpy(), want, rtol=1e-6, atol=1e-9)


def test_a_half_of_another_name_is_refused():
    with pytest.raises(UsageError, match="UPLO 'L' or 'U', saw 'X'"):
        xp.linalg.eigh(Tensor(SQUARE), "X")
    with pytest.raises(UsageError, match="wanted two axes, saw 1"):
        xp.linalg.matrix_norm(Tensor(STACK), 1, 1)
