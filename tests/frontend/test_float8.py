"""8-bit floats: every code and every boundary of a conversion, on every target, against PyTorch's record."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from compiler import narrow_floats
from compiler.dtype import FLOAT8, by_name, dtypes, promote
from compiler.ir.uop import const
from frontend import Tensor, nn
from frontend.array_api import finfo, from_dlpack
from frontend.evaluation.storage import from_numpy
from hcq.errors import UsageError
from tests.float8 import boundaries, encoded, table

RECORD: dict[str, Any] = json.loads((Path(__file__).parents[1] / "compiler/data/float8.json").read_text())
NAMES = [t.name for t in FLOAT8]
TARGETS = ["cpu", "nv-emu:sm_80", "nv-emu:sm_90", "nv-emu:sm_120", "amd-emu:gfx1100", "amd-emu:gfx942"]


def codes_of(t: Tensor) -> np.ndarray:
    return np.frombuffer(t.tobytes(), np.uint8)


def all_codes(name: str, device: str | None = None) -> Tensor:
    return Tensor(np.arange(256, dtype=np.uint8), device=device).bitcast(name).realize()


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(((a.view(np.uint32) == b.view(np.uint32)) | (np.isnan(a) & np.isnan(b))).all())


@pytest.mark.parametrize("name", NAMES)
def test_tables_are_those_of_pytorch(name: str):
    values = np.array(RECORD[name]["values"].split(), np.float32)
    wanted = np.frombuffer(bytes.fromhex(RECORD[name]["codes"]), np.uint8)
    numbers, dtype = boundaries(name), by_name(name)
    assert len(wanted) == len(numbers) > 1000
    assert same(table(name), values)
    assert same(np.array(narrow_floats.values(dtype), np.float32), values)
    assert encoded(numbers, name).tolist() == wanted.tolist()
    assert narrow_floats.encode(numbers, dtype).tolist() == wanted.tolist()
    assert [narrow_floats.encoded(float(x), dtype) for x in numbers] == wanted.tolist()


@pytest.mark.parametrize("device", TARGETS)
def test_conversions_of_a_kernel_are_those_of_pytorch(device: str):
    for name in NAMES:
        assert same(all_codes(name, device).float().numpy(), table(name)), name
        numbers = boundaries(name)
        wanted = np.frombuffer(bytes.fromhex(RECORD[name]["codes"]), np.uint8)
        assert (codes_of(Tensor(numbers, device=device).cast(name)) == wanted).all(), name
        moved = all_codes(name, device).flip(0).contiguous()
        assert codes_of(moved).tolist() == list(range(255, -1, -1)), name
        assert moved.bitcast("uint8").contiguous().tolist() == list(range(255, -1, -1)), name


@pytest.mark.parametrize("device", ["cpu", "nv-emu:sm_90", "amd-emu:gfx1100"])
@pytest.mark.parametrize("source", ["float64", "float16", "int32", "int64", "uint8", "bool"])
def test_other_dtypes_are_rounded_once(source: str, device: str):
    for name in NAMES if device == "cpu" else NAMES[:1]:
        numbers = boundaries(name).astype(np.float64)
        if source == "float64":  # rounding through float32 goes wrong beside a middle
            numbers = np.concatenate([numbers, np.nextafter(numbers, np.inf), np.nextafter(numbers, -np.inf)])
        elif source != "float16":
            numbers = np.arange(-600, 600)
        with np.errstate(all="ignore"):
            given = numbers.astype(source)
        given = given[~np.isnan(given)] if given.dtype.kind == "f" else given  # their sign is not kept
        found = codes_of(Tensor(given, device=device).cast(name))
        assert (found == encoded(given.astype(np.float64), name)).all(), name


@pytest.mark.parametrize("target", ["float64", "float16", "bfloat16", "int32", "int64", "uint8", "bool"])
def test_every_code_becomes_every_dtype(target: str):
    for name in NAMES:
        wanted = Tensor(table(name)).cast(target)
        assert same(all_codes(name).cast(target).float().numpy(), wanted.float().numpy()), name


def test_casts_through_8_bits_are_not_left_out():
    x = Tensor([1.03, -0.0, 1000.0, 1e9])
    assert x.cast("float8_e4m3fn").float().tolist() == [1.0, 0.0, 448.0, 448.0]
    assert x.cast("float8_e5m2").cast("float8_e5m2fnuz").tobytes() == bytes([0x40, 0, 0x68, 0x80])
    assert Tensor([17, 300]).cast("float8_e5m2fnuz").int().tolist() == [16, 320]


def test_constants_are_rounded():
    for name in NAMES:
        dtype = by_name(name)
        for number in (1.03, -1e-9, 1e9, float("inf"), float("nan")):
            wanted = narrow_floats.encoded(number, dtype)
            assert Tensor.full((2,), number, dtype=dtype).tobytes() == bytes([wanted] * 2), (name, number)
            assert Tensor([number], dtype=dtype).tobytes() == bytes([wanted])
    assert const(-0.0, dtypes.float8_e4m3fnuz).arg == 0.0


def test_values_are_moved_chosen_and_compared():
    x = Tensor([1.0, float("nan"), -2.0, 0.0]).cast("float8_e5m2")
    assert (x == x.clone()).tolist() == [True, False, True, True]
    assert x.isnan().tolist() == [False, True, False, False]
    assert Tensor.cat([x, x[:1]])[[0, 2, 4]].tolist() == [1.0, -2.0, 1.0]
    assert (x != 1.0).where(x, 0.5)[2:].tolist() == [-2.0, 0.0]
    assert x[2:].pad((1, 1)).tolist() == [0.0, -2.0, 0.0, 0.0]
    assert repr(x[:1]).count("float8_e5m2") == 1
    y = x.clone().realize()
    y[1] = 448.0
    assert y.tolist() == [1.0, 448.0, -2.0, 0.0]


def test_products_of_matrices_are_summed_in_float32_and_rounded_once():
    rng = np.random.default_rng(0)
    a, b = (
        Tensor(rng.standard_normal(s).astype(np.float32)).cast("float8_e4m3fn") for s in ((5, 33), (33, 4))
    )
    wanted = a.numpy().astype(np.float64) @ b.numpy().astype(np.float64)
    assert codes_of(a @ b).tolist() == encoded(wanted, "float8_e4m3fn").ravel().tolist()


def test_arithmetic_is_refused():
    names = "neg abs exp sum max mean relu softmax sort cumsum nan_to_num random_ floor sigmoid"
    x = Tensor([1.0, 2.0, 3.0], dtype="float8_e4m3fn")
    calls = [getattr(x, name) for name in names.split()]
    calls += [lambda: x + 1, lambda: x * x, lambda: x < 1, lambda: 2 / x, lambda: x**2]
    calls += [lambda: Tensor.rand(3, dtype=x.dtype), lambda: Tensor.randn(3, dtype=x.dtype)]
    for call in calls:
        with pytest.raises(UsageError, match="float8_e4m3fn is stored, not computed with; convert it"):
            call()


def test_promotion_is_refused():
    x = Tensor.ones(3, dtype="float8_e5m2")
    for other in (Tensor.ones(3), Tensor([1, 2, 3]), x.cast("float8_e4m3fn"), Tensor([True])):
        with pytest.raises(UsageError, match="8-bit floats do not promote: saw"):
            Tensor.cat([x, other])
    assert promote(dtypes.float8_e5m2, dtypes.float8_e5m2) is dtypes.float8_e5m2


def test_gradients_flow_through_a_cast():
    x = Tensor([1.0, 2.1], requires_grad=True)
    (x.cast("float8_e4m3fn").float() * Tensor([3.0, 5.1])).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [3.0, 5.0]


def test_files_and_other_libraries(tmp_path: Path):
    given = {name: all_codes(name).reshape(16, 16) for name in NAMES}
    nn.state.safe_save(given, tmp_path / "x.safetensors")
    for name, t in nn.state.safe_load(tmp_path / "x.safetensors").items():
        assert t.dtype.name == name
        assert t.tobytes() == given[name].tobytes()
        exchanged = from_dlpack(t)
        assert exchanged.dtype is t.dtype
        assert exchanged.tobytes() == t.tobytes()
        assert same(t.numpy().ravel(), table(name))
        with pytest.raises(AttributeError, match=f"NumPy has no {name}"):
            _ = t.__array_interface__


class Foreign:
    """An array of codes under a dtype that NumPy lacks, as ml_dtypes and PyTorch have them."""

    shape = (4,)
    dtype = SimpleNamespace(name="float8_e5m2")

    def __init__(self, *, readable: bool) -> None:
        self.readable = readable

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        if not self.readable:
            raise TypeError("Got unsupported ScalarType Float8_e5m2")
        return np.uint8([0x3C, 0, 0x80, 0x7C])


def test_arrays_of_other_packages_are_read_or_refused():
    raw, shape, dtype = from_numpy(Foreign(readable=True))
    assert (bytes(raw), shape, dtype) == (bytes([0x3C, 0, 0x80, 0x7C]), (4,), dtypes.float8_e5m2)
    with pytest.raises(UsageError, match=r"unsupported ScalarType Float8_e5m2\nhint: array_api.from_dlpack"):
        Tensor(Foreign(readable=False))  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "most", "least", "eps"), [
    ("float8_e4m3fn", 448.0, 2.0**-6, 0.125), ("float8_e5m2", 57344.0, 2.0**-14, 0.25),
    ("float8_e4m3fnuz", 240.0, 2.0**-7, 0.125), ("float8_e5m2fnuz", 57344.0, 2.0**-15, 0.25),
])  # fmt: skip
def test_limits(name: str, most: float, least: float, eps: float):
    info = finfo(name)
    assert (info.bits, info.max, info.min, info.smallest_normal, info.eps) == (8, most, -most, least, eps)
