"""Tensors over several devices: layouts, operations, gradients, training and collectives equal one
device's."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from drivers.cpu.layouts import Nop
from frontend import Device, Tensor, TinyJit, nn, optim
from frontend.distributed import (
    all_gather_of,
    all_reduce_of,
    all_to_all_of,
    broadcast_of,
    from_shards,
    layout_of,
    reduce_scatter_of,
    send_to,
    shards,
)
from frontend.evaluation.trace import apply
from frontend.methods import METHODS
from frontend.nn import functional
from frontend.primitives.gather_scatter import TAKE_ALONG_AXIS
from hcq.config import override
from hcq.errors import DeviceFault, UsageError, UsageIndexError
from hcq.pushbuffer import PushBuffer
from tests.drivers.cpu.rig import NoArguments
from tests.frontend.meshes import (
    AMDS,
    CPUS,
    MIXED,
    NVS,
    closed,  # noqa: F401 - a fixture
    four_cpus,  # noqa: F401 - a fixture
    numbers,
    same,
)
from tests.limits import HANG_S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)
UNDEFINED = {"new", "new_empty", "empty_like", "bernoulli", "multinomial", "random_", "geometric_", "cauchy_"}
"""Methods whose results a seed alone does not give, or have undefined contents."""


@pytest.mark.parametrize("shape", [(7, 5), (1, 3), (2, 1, 4), (3, 0)])
@pytest.mark.parametrize("count", [2, 4])
def test_a_divided_tensor_has_its_elements_on_each_axis(shape: tuple[int, ...], count: int):
    a, devices = numbers(shape), CPUS[:count]
    for axis in range(len(shape)):
        x = Tensor(a).shard(devices, axis)
        assert x.device == ",".join(["cpu", *devices[1:]])
        assert layout_of(x).axis == axis
        np.testing.assert_array_equal(x.numpy(), a)
        np.testing.assert_array_equal(np.concatenate([p.numpy() for p in shards(x)], axis), a)
        assert [p.device for p in shards(x)] == ["cpu", *devices[1:]]
        for other in range(len(shape)):
            moved = x.shard(devices, other)
            assert layout_of(moved).axis == other
            np.testing.assert_array_equal(moved.numpy(), a)
        np.testing.assert_array_equal(x.replicate(devices).numpy(), a)
        np.testing.assert_array_equal(x.to("cpu").numpy(), a)


def test_sizes_of_parts_are_chosen():
    a = numbers((7, 3))
    x = Tensor(a).shard(CPUS[:3], sizes=(4, 0, 3))
    assert [p.shape for p in shards(x)] == [(4, 3), (0, 3), (3, 3)]
    np.testing.assert_allclose((x.T @ x).numpy(), a.T @ a)
    np.testing.assert_array_equal(from_shards(shards(x)).numpy(), a)
    with pytest.raises(UsageError, match=r"wanted 2 sizes that add up to 7, saw \[3, 3\]"):
        Tensor(a).shard(CPUS[:2], sizes=(3, 3))


def test_wrong_devices_and_axes_are_refused():
    x = Tensor(numbers((4,)))
    for devices, text in ((("cpu:0",), "at least two"), (("cpu:0", "cpu"), "twice"), ("cpu", "at least two")):
        with pytest.raises(UsageError, match=text):
            x.shard(devices)
    with pytest.raises(UsageIndexError, match="no axis 1"):
        x.shard(CPUS[:2], 1)
    with pytest.raises(UsageError, match=r"another on cpu.*\.to\("):
        (x.shard(CPUS[:2]) + x).realize()
    with pytest.raises(UsageError, match="one device"):
        layout_of(x)


@pytest.mark.parametrize(("count", "bytes_of"), [(2, [320_000]), (4, [480_000, 640_000])])
def test_an_all_reduce_of_rows_adds_once_and_copies_into_its_result(count: int, bytes_of: list[int]):
    """Two devices read each other's row in one exchange. Of more, each adds its piece of all rows.

    The pieces are copied to where the sum is.
    """
    mesh: Any = Device[",".join(CPUS[:count])]
    a = numbers((count, 20_000))
    x = Tensor(a).shard(CPUS[:count])
    mesh.launches.clear()
    y = x.sum(0).realize()
    (launch,) = mesh.launches.values()
    (steps,) = launch._steps.values()
    ran = [len(one.plan.kernels) for launches, _ in steps.levels for one in launches]
    assert ran == [1] * count
    assert [sum([x.size for x in copies]) for _, copies in steps.levels if copies] == bytes_of
    same([t.numpy() for t in shards(y)], [a.sum(0)] * count)
    x += 1  # what was copied stays
    same([y.numpy(), x.sum(0).numpy()], [a.sum(0), a.sum(0) + count])
    same([x.numpy() for x in (y, y + y)], [a.sum(0), 2 * a.sum(0)])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("count", [2, 4])
def test_sums_of_16_bits_over_devices_are_rounded_once(dtype: str, count: int):
    """Eighths, whose sums are exact in float32: every sum and product is that of one device, to the bit."""
    rng = np.random.default_rng(0)
    a, ids = rng.integers(-800, 800, (403, 5)) / 8, rng.integers(0, 7, (403, 5))

    def results(place: Callable[[Tensor], Tensor], axis: Callable[[Tensor], Tensor]) -> list[Any]:
        x, index = place(Tensor(a).cast(dtype)), place(Tensor(ids))
        table = axis(Tensor(a[:7]).cast(dtype))
        table.requires_grad = True
        (table[index] * x.unsqueeze(2)).sum().backward()
        assert table.grad is not None
        sums = [x.sum(0), x.mean(), (x.sign() * 1.5)[:9].prod(0), x.T @ x[:, :1].sign(), table.grad]
        sums.append((x[:7] * 0).scatter_add(0, index, x))
        return [t.float().numpy() for t in sums]

    want = results(lambda t: t, lambda t: t)
    for axis in (lambda t: t.replicate(CPUS[:count]), lambda t: t.shard(CPUS[:count])):
        for got, right in zip(results(lambda t: t.shard(CPUS[:count]), axis), want, strict=True):
            np.testing.assert_array_equal(got, right)


def test_operations_keep_the_division_and_exchange_what_they_must():
    a, devices = numbers((6, 4)), CPUS[:2]
    x, w = Tensor(a).shard(devices), Tensor(numbers((4, 3), 1)).replicate(devices)
    moved = Device[x.device].transport
    before = moved.peer_bytes
    y = (x @ w).relu().reshape(2, 3, 3).permute(2, 0, 1)
    assert layout_of(y).axis == 1
    assert moved.peer_bytes == before
    y.sum().realize()
    assert moved.peer_bytes == before + 2 * 8  # one float64 each way
    x[4].realize()
    assert moved.peer_bytes == before + 2 * 8 + 4 * 8  # the row, to the device that has it not


def test_a_large_sum_moves_the_fewest_bytes_that_an_all_reduce_can():
    devices, count, n = CPUS, 4, 20_000
    x = Tensor(numbers((8, n))).shard(devices)
    moved = Device[x.device].transport
    before = moved.peer_bytes
    np.testing.assert_allclose(x.sum(0).numpy(), x.numpy().sum(0), atol=1e-12)
    assert moved.peer_bytes - before == 2 * (count - 1) * n * 8
    before = moved.peer_bytes
    assert layout_of(x.sum(0).shard(devices)).axis == 0
    assert moved.peer_bytes - before == (count - 1) * n * 8


def test_a_write_in_place_keeps_the_division_and_the_views():
    a = numbers((5, 4))
    x = Tensor(a).shard(CPUS[:2])
    old = x * 1
    view = x[1:3]
    x += 1
    np.testing.assert_array_equal(view.numpy(), a[1:3] + 1)
    x[4, 0] = 9
    a = a + 1
    a[4, 0] = 9
    np.testing.assert_array_equal(x.numpy(), a)
    assert layout_of(x).axis == 0
    np.testing.assert_array_equal(old.numpy(), numbers((5, 4)))
    assert "device='cpu,cpu:1'" in repr(x)


def exchanged(a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    """Assign each to another one, and read all before in later exchanges of the same launch."""
    z = a * b.sum(0)
    w, old = (z.sum(0) + c).amax(1), a * 1
    a.assign(b)
    b.assign(c + z.sum(0))
    c.assign(old)
    return z, w, a, b, c


@pytest.mark.parametrize("axes", [(0, 0, 0), (0, 1, 0), (1, 0, None), (None, 0, 1), (None, None, None)])
@pytest.mark.parametrize("how", [lambda fn: fn, TinyJit], ids=["plain", "captured"])
def test_stores_of_each_other_s_values_store_the_old_ones(axes: tuple[int | None, ...], how: Any):
    want = [Tensor(numbers((6, 5), i)) for i in range(3)]
    got = [
        t.replicate(CPUS[:3]) if k is None else t.shard(CPUS[:3], k) for t, k in zip(want, axes, strict=True)
    ]
    step = how(lambda: exchanged(*got))
    for _ in range(4):
        found, right = step(), exchanged(*want)
        found[0].realize(*found[1:])
        same([t.numpy() for t in (*found, *got)], [t.numpy() for t in (*right, *want)])


@pytest.mark.parametrize(
    ("shape", "index"), [((5, 3), (2, 3)), ((5, 1), (2, 1)), ((5, 3), (0, 3)), ((5, 3, 1), (4, 1, 1))]
)
def test_rows_by_index_are_those_of_one_device_on_any_layout(shape: tuple[int, ...], index: tuple[int, ...]):
    """An index of one element in the other axes is that of all rows, also where a device has none of them."""
    a, rows = numbers(shape), np.random.default_rng(0).integers(0, 5, index)
    wide = np.broadcast_to(rows, (index[0], *shape[1:]))
    for axes in product((None, *range(len(shape))), repeat=2):
        x, i = [
            t.replicate(CPUS[:3]) if k is None else t.shard(CPUS[:3], k)
            for t, k in zip((Tensor(a), Tensor(rows)), axes, strict=True)
        ]
        x.requires_grad = True
        y = apply(TAKE_ALONG_AXIS, (0, False), x, i)
        np.testing.assert_array_equal(y.numpy(), np.take_along_axis(a, wide, 0))
        y.sum().backward()
        assert x.grad is not None
        counts = (wide[None] == np.arange(5).reshape(5, *[1] * len(shape))).sum(1)
        np.testing.assert_array_equal(x.grad.numpy(), counts)


def test_random_numbers_are_those_of_one_device():
    for draw in (lambda x: x.rand_like(), lambda x: x.dropout(0.5), lambda x: x.normal_()):
        with Tensor.train():
            Tensor.manual_seed(3)
            want = draw(Tensor.ones(7, 3)).numpy()
            Tensor.manual_seed(3)
            np.testing.assert_array_equal(draw(Tensor.ones(7, 3).shard(CPUS[:3])).numpy(), want)


def test_gradients_flow_through_placements():
    a = numbers((5, 3))
    x = Tensor(a, requires_grad=True)
    y = x.shard(CPUS[:2]).exp().shard(CPUS[:2], 1) * 2
    y.replicate(CPUS[:2]).to("cpu:2").square().sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), 8 * np.exp(2 * a))
    w = Tensor(a, requires_grad=True)
    w.shard_(CPUS[:2], 1)
    (w * w).sum().backward()
    assert layout_of(w.grad).axis == 1
    np.testing.assert_allclose(w.grad.numpy(), 2 * a)


@pytest.mark.parametrize("devices", [CPUS, pytest.param(AMDS, marks=pytest.mark.landing)], ids=["cpu", "amd"])
def test_stages_of_a_pipeline_wait_in_queues_and_not_on_the_host(devices: tuple[str, ...]):
    """While the first device is held up, all microbatches of both stages, and their way back, are submitted.

    The value that is moved is the one before later writes, also where its memory is used again.
    """
    first, second = devices[:2]
    a, w = numbers((5, 6, 6)), numbers((2, 6, 6), 1)
    stages = [Tensor(m, device=d) for m, d in zip(w, (first, second), strict=True)]
    given = [Tensor(x, device=first) for x in a]
    one = Tensor.ones(6, 6, dtype=stages[0].dtype, device=first).realize()

    def submitted() -> list[list[Tensor]]:
        made = [x @ stages[0] for x in given]
        back = [(y.to(second) @ stages[1] + 1).to(first) for y in made]
        for y in made:
            y.mul_(0).realize()
        made.clear()
        return [back, [(one + one).realize() for _ in a], [(stages[1] * 2).realize()]]

    submitted()  # kernels that run for the first time are checked on the host
    queue, gate = Device[first].queue, Device[first].hcq.signal(host_set=True)
    Device[second].synchronize()
    held = queue.submit(queue.record().wait(gate, 1))
    back, after, free = submitted()
    assert not held.done()
    gate.value = 1
    same([t.numpy() for t in back], [x @ w[0] @ w[1] + 1 for x in a])
    same([t.numpy() for t in (*after, *free)], [np.full((6, 6), 2.0)] * 5 + [2 * w[1]])


@pytest.mark.parametrize("how", [lambda fn: fn, TinyJit], ids=["plain", "captured"])
@pytest.mark.parametrize(
    "devices", [CPUS[2:], pytest.param(AMDS, marks=pytest.mark.landing)], ids=["cpu", "amd"]
)
def test_a_fault_within_a_collective_is_an_error_of_all_devices_and_ends_by_recovery(
    devices: tuple[str, ...], how: Any
):
    """One device faults while another one waits for its part of a sum: both raise its error."""
    a = numbers((4, 2))
    x, step, mesh = Tensor(a).shard(devices), how(lambda x: (x * 2).sum(0)), Device[",".join(devices)]
    for _ in range(3):
        same([step(x).numpy()], [2 * a.sum(0)])
    queue, copies = Device[devices[1]].queue, Device[devices[1]].hcq.copies[0]
    queue.submit(queue.record().wait(Device[devices[1]].hcq.signal(host_set=True), 1))
    y = step(x).realize()
    bad = PushBuffer(64, NoArguments())
    bad.words += (0x4D, *Nop.pack()[1:]) if devices is not AMDS else (0xFFFFFFFF,)
    copies.ring.submit(bad)
    for name in devices:
        with pytest.raises(DeviceFault, match=devices[1].replace(":gfx1100+gfx1100", "")):
            Device[name].queue.end().wait(timeout_s=HANG_S)
    with pytest.raises(DeviceFault):
        y.numpy()
    mesh.recover()
    same([step(x).numpy(), step(Tensor(a + 1).shard(devices)).numpy()], [2 * a.sum(0), 2 * a.sum(0) + 8])
    with pytest.raises(DeviceFault):
        y.numpy()


def test_moments_of_a_divided_parameter_are_divided():
    layer = nn.Linear(6, 4).to(",".join(CPUS[:2]))
    layer.weight.shard_(CPUS[:2], 0)
    adam = optim.Adam(layer.parameters(), lr=0.1)
    for _ in range(3):
        layer(Tensor(numbers((5, 6)).astype("float32")).shard(CPUS[:2])).square().sum().backward()
        adam.step()
    for t in (layer.weight, adam.m[0], adam.v[0]):
        assert [part.shape for part in shards(t)] == [(2, 6), (2, 6)]


def test_a_saved_divided_tensor_is_loaded_whole(tmp_path: Path):
    a = numbers((5, 3)).astype("float32")
    nn.state.safe_save({"x": Tensor(a).shard(CPUS[:2])}, tmp_path / "x.safetensors")
    np.testing.assert_array_equal(nn.state.safe_load(tmp_path / "x.safetensors")["x"].numpy(), a)


def test_an_invalid_index_is_named_under_validation():
    table = Tensor(numbers((4, 2))).replicate(CPUS[:2])
    ids = Tensor(np.array([0, 1, 2, 9])).shard(CPUS[:2])
    with override(validate=True), pytest.raises(UsageIndexError, match="9"):
        table[ids].realize()


def perceptron() -> Any:
    return nn.Sequential(nn.Linear(12, 9), nn.Tanh(), nn.Linear(9, 5))


def convolutions() -> Any:
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, bias=False),
        nn.BatchNorm2d(3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(3, 5),
    )


def embedded() -> Any:
    return nn.Sequential(nn.Embedding(7, 6), nn.LayerNorm(6), nn.Flatten(), nn.Linear(18, 5))


MODELS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "perceptron": (perceptron, (12,)),
    "convolutions": (convolutions, (1, 4, 4)),
    "embedding": (embedded, (3,)),
}


def trained(model: str, devices: Sequence[str], steps: int, batch: int, place: str = "whole") -> list[Any]:
    """Return the parameters, buffers and the loss after some steps in float64."""
    Tensor.manual_seed(5)
    make, shape = MODELS[model]
    net = make().double()
    if devices:
        net.to(",".join(devices))
        for p in net.parameters() if place == "divided" else ():
            p.shard_(devices, 0)
    adam = optim.Adam(net.parameters(), lr=1e-2)
    x = numbers((3 * batch, *shape)) if model != "embedding" else numbers((3 * batch, *shape)) % 7 // 1
    y = np.arange(3 * batch) % 5
    with Tensor.train():
        for i in range(steps):
            at = i % 3 * batch
            given = Tensor(x[at : at + batch].astype("int64" if model == "embedding" else "float64"))
            wanted = Tensor(y[at : at + batch])
            if devices:
                given, wanted = given.shard(devices), wanted.shard(devices)
            loss = functional.cross_entropy(net(given), wanted)
            adam.zero_grad()
            loss.backward()
            adam.step()
    return [loss.numpy(), *[v.numpy() for v in nn.state.get_state_dict(net).values()]]


def test_training_equals_one_device():
    same(trained("perceptron", CPUS[:2], 20, 9), trained("perceptron", (), 20, 9))


@pytest.mark.landing
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("place", ["whole", "divided"])
@pytest.mark.parametrize(("count", "batch"), [(2, 11), (3, 6), (4, 1)])
def test_training_of_every_kind_of_layer_equals_one_device(model: str, place: str, count: int, batch: int):
    if model == "convolutions" and batch == 1:
        batch = 2  # a batch norm needs two
    same(trained(model, CPUS[:count], 20, batch, place), trained(model, (), 20, batch))


@pytest.mark.landing
@pytest.mark.parametrize("devices", [AMDS, NVS, MIXED], ids=["amd-peers", "nv-peers", "staged"])
def test_training_on_emulated_gpus_equals_one_device(devices: tuple[str, ...]):
    steps = 4 if devices is NVS else 20
    with override(validate=True):
        same(trained("perceptron", devices, steps, 9), trained("perceptron", (), steps, 9))
    moved = Device[",".join(devices)].transport
    assert (moved.staged_bytes > 0) == (devices is MIXED)


def summed(parts: list[np.ndarray[Any, Any]], op: str) -> np.ndarray[Any, Any]:
    """Return NumPy's reduction in the order of the list; of 16-bit floats in float32, rounded once."""
    by = {"sum": np.add, "mean": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[op]
    dtype = parts[0].dtype
    wide = np.float32 if dtype == np.float16 and op in {"sum", "mean", "prod"} else dtype
    total = parts[0].astype(wide)
    for part in parts[1:]:
        total = by(total, part.astype(wide))
    with np.errstate(over="ignore"):  # a product of float16 may be infinite
        total = total.astype(dtype)
    return total / (dtype.type(len(parts)) if op == "mean" else dtype.type(1))


def one_of_each(n: int, count: int, dtype: str, op: str) -> None:
    """Compare every collective of tensors of n elements with NumPy."""
    rng = np.random.default_rng(n)
    parts = [(rng.integers(0, 2 if dtype == "bool" else 100, n) / 7).astype(dtype) for _ in range(count)]
    names = [f"cpu:{i}" for i in range(count)]
    given = [Tensor(p, device=d) for p, d in zip(parts, names, strict=True)]
    want = summed(parts, op) if dtype != "bool" else summed(parts, op).astype("bool")
    for got in all_reduce_of(given, op):
        np.testing.assert_array_equal(got.numpy(), want)
    scattered = reduce_scatter_of(given, op)
    np.testing.assert_array_equal(np.concatenate([t.numpy() for t in scattered]), want)
    for got in all_gather_of(given):
        np.testing.assert_array_equal(got.numpy(), np.concatenate(parts))
    cut = [np.array_split(p, count) for p in parts]
    for i, got in enumerate(all_to_all_of(given)):
        np.testing.assert_array_equal(got.numpy(), np.concatenate([c[i] for c in cut]))
    for got in broadcast_of(given[0], names):
        np.testing.assert_array_equal(got.numpy(), parts[0])
    np.testing.assert_array_equal(send_to(given[-1], "cpu:0").numpy(), parts[-1])


@pytest.mark.parametrize(
    ("n", "dtype", "op"), [(0, "float32", "sum"), (1, "int8", "max"), (30_011, "float16", "mean")]
)
def test_collectives_are_numpy_s(n: int, dtype: str, op: str):
    one_of_each(n, 3, dtype, op)


def operations(dtype: str) -> list[str]:
    """Return the reductions of a dtype."""
    if dtype == "bool":
        return ["max", "min"]
    return ["sum", "max", "min", "prod", *(["mean"] if dtype.startswith("float") else [])]


LENGTHS = (0, 1, 2, 7, 4096, 70_001)


@pytest.mark.landing
@pytest.mark.parametrize(  # every length with every dtype, and every count of devices with both
    ("n", "count", "dtype"),
    [
        *((n, 2 + (i + j) % 3, dtype) for i, n in enumerate(LENGTHS) for j, dtype in enumerate(DTYPES)),
        *((n, 5 + (i + j) % 4, dtype) for i, n in enumerate((1, 7, 8191)) for j, dtype in enumerate(DTYPES)),
        (1 << 20, 2, "float64"),
        (1 << 20, 8, "float64"),
        ((1 << 20) + 3, 2, "float16"),
        ((1 << 21) - 1, 3, "int32"),
    ],
)
def test_collectives_of_every_dtype_and_size(n: int, count: int, dtype: str):
    """Up to 8 MiB, on up to eight devices."""
    with override(cpu_devices=8):
        for op in operations(dtype):
            one_of_each(n, count, dtype, op)


@pytest.mark.sampled(1600)
@pytest.mark.parametrize("name", [row.plain[0] for row in METHODS if row.kind == "method" and row.plain])
def test_methods_of_divided_tensors_equal_those_of_whole_ones(name: str):
    low, high = next(row.domain for row in METHODS if name in row.plain)
    rng, devices = np.random.default_rng(1), CPUS[:2]
    for shape, axis in (((3, 4), 0), ((3, 4), 1), ((2, 1, 5), 1), ((1, 3), 0), ((5,), 0)):
        a, b = low + (high - low) * rng.random((2, *shape))
        for args in ((), (b,), (0,), (1,), ((0,),), (0, 1)):
            Tensor.manual_seed(1)
            try:
                want = getattr(Tensor(a), name)(*[Tensor(x) if x is b else x for x in args])
                found = want.numpy()
            except Exception:  # noqa: BLE001 - not a call of this method
                continue
            if name in UNDEFINED or not isinstance(want, Tensor):
                continue
            Tensor.manual_seed(1)
            other = Tensor(b).shard(devices, (axis + 1) % len(shape))
            got = getattr(Tensor(a).shard(devices, axis), name)(*[other if x is b else x for x in args])
            np.testing.assert_allclose(got.numpy(), found, rtol=1e-10, atol=1e-10)
