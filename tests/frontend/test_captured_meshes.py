"""Captured functions of tensors on a mesh: replays equal plain calls, and one graph runs on all devices."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

import frontend
from frontend import Device, Tensor, TinyJit, nn, optim
from frontend.distributed import layout_of
from frontend.distributed.captured import Copied, ForeignReads, MeshGraph, MeshNode, NodeList
from frontend.distributed.transport import QUEUED
from frontend.nn import functional
from hcq.capture.log import read
from hcq.config import override
from hcq.errors import UsageError, UsageIndexError
from tests.children import python
from tests.frontend.meshes import AMDS, MIXED, numbers
from tools.trace.text import lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from types import FrameType

CPUS = ("cpu:1", "cpu:2", "cpu:3", "cpu:4")
"""Devices that only this module opens, with validation: cpu:0 was opened by whatever module came first."""


@pytest.fixture(autouse=True)
def five_cpus() -> Iterator[None]:
    """Five cpu devices."""
    with override(cpu_devices=5):
        yield


def close(names: Sequence[str]) -> None:
    for name in names:
        found = Device._open.get(Device.canonical(name))
        if found is not None:
            found.synchronize()  # work that no test waited for
            found.close()


def reopen(names: Sequence[str], *, validate: bool = True, seed: int = 1) -> None:
    """Open devices anew."""
    close(names)
    with override(cpu_devices=5, validate=validate, seed=seed):
        for name in names:
            assert Device[name].hcq.watch.check == validate


@pytest.fixture(scope="module", autouse=True)
def closed() -> Iterator[None]:
    """Open cpu:0 with all cores, which other modules use, and close the other devices after this module."""
    Device["cpu"].synchronize()
    reopen(CPUS)
    yield
    close((*CPUS, *AMDS, *MIXED))


def step_of(net: Any, adam: optim.Adam) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a training step."""

    def step(given: Tensor, wanted: Tensor) -> Tensor:
        loss = functional.cross_entropy(net(given), wanted)
        adam.zero_grad()
        loss.backward()
        adam.step()
        return loss.detach()

    return step


def trained(
    devices: Sequence[str], how: Callable[[Any], Any], *, place: str = "whole", width: int = 9,
    small: bool = False, steps: int = 20, bucket_bytes: int = QUEUED,
) -> list[Any]:  # fmt: skip
    """Return the losses of some steps, and the parameters after them, in float64."""
    Tensor.manual_seed(5)
    middle = () if small else (nn.Dropout(0.3), nn.BatchNorm1d(width))
    net = nn.Sequential(nn.Linear(12, width), nn.Tanh(), *middle, nn.Linear(width, 5)).double()
    if devices:
        net.to(",".join(devices))
        cast("Any", Device[",".join(devices)]).bucket_bytes = bucket_bytes
        for p in net.parameters() if place == "divided" else ():
            p.shard_(devices, 0)
    adam = optim.Adam(net.parameters(), lr=1e-2)
    x, y = numbers((27, 12)), np.arange(27) % 5

    step, losses = how(step_of(net, adam)), []
    with Tensor.train():
        for i in range(steps):
            given, wanted = Tensor(x[i % 3 * 9 :][:9]), Tensor(y[i % 3 * 9 :][:9])
            if devices:
                given, wanted = given.shard(devices), wanted.shard(devices)
            losses.append(step(given, wanted).item())
    return [np.array(losses), *[v.numpy() for v in nn.state.get_state_dict(net).values()]]


def plain(fn: Any) -> Any:
    return fn


def same(got: list[Any], want: list[Any], within: float = 1e-10) -> None:
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=within, atol=within)


@pytest.mark.parametrize("how", [pytest.param(frontend.compile, marks=pytest.mark.landing), TinyJit])
@pytest.mark.parametrize("place", [pytest.param("whole", marks=pytest.mark.landing), "divided"])
@pytest.mark.parametrize("bucket_bytes", [1, pytest.param(QUEUED, marks=pytest.mark.landing)])
def test_a_captured_step_equals_plain_ones(how: Any, place: str, bucket_bytes: int):
    got = trained(CPUS[:2], how, place=place, bucket_bytes=bucket_bytes)
    same(got, trained(CPUS[:2], plain, place=place), 0)
    same(got, trained((), plain))


@pytest.mark.landing
@pytest.mark.parametrize(
    ("devices", "width", "place"),
    [(CPUS, 9, "whole"), (CPUS, 9, "divided"), (CPUS[:3], 300, "divided"), (AMDS, 9, "divided")],
)
def test_captured_steps_equal_one_device(devices: tuple[str, ...], width: int, place: str):
    """Width 300: pieces of an all-reduce, and copies on the copy queue. Validation checks each hazard."""
    small = devices is AMDS
    reopen(devices)
    got = trained(devices, TinyJit, place=place, width=width, small=small)
    same(got, trained((), plain, width=width, small=small))


@pytest.mark.landing
@pytest.mark.parametrize("bucket_bytes", [1, QUEUED])
@pytest.mark.parametrize(("count", "seeds"), [(2, 20), (3, 3), (4, 3)])
def test_captured_steps_do_not_depend_on_the_order_of_unordered_kernels(
    count: int, seeds: int, bucket_bytes: int
):
    """With buckets of 1 byte the exchange of each gradient runs beside the kernels of the next one."""
    want = trained((), plain, small=True, steps=4)
    for seed in range(1, seeds + 1):
        reopen(CPUS[:count], seed=seed)
        same(trained(CPUS[:count], TinyJit, small=True, steps=4, bucket_bytes=bucket_bytes), want)


def test_validation_follows_captured_steps_beside_devices_without_it():
    """Copies of a validated device from another one, whose work waits for devices that nobody checks."""
    mixed = ("cpu:0", *CPUS[:3])
    want = trained((), plain, small=True, steps=6)
    try:
        reopen(CPUS[:1])
        reopen(CPUS[1:3], validate=False)
        same(trained(mixed, TinyJit, small=True, steps=6), want)
    finally:
        reopen(CPUS)


def repository_calls(action: Callable[[], object], idle: Callable[[], object]) -> int:
    """Return the fewest calls of functions of hcq, the drivers and the frontend in 20 repetitions."""
    found = []
    for _ in range(20):
        idle()
        calls = 0

        def profile(frame: FrameType, event: str, _argument: object) -> None:
            nonlocal calls
            name = frame.f_globals.get("__name__", "")
            calls += event == "call" and name.partition(".")[0] in {"hcq", "drivers", "frontend"}

        before = sys.getprofile()
        sys.setprofile(profile)
        try:
            action()
        finally:
            sys.setprofile(before)
        found.append(calls)
    return min(found)


def calls_of_a_replay(devices: Sequence[str]) -> int:
    """Return the calls of one replay of a training step."""
    net = nn.Sequential(nn.Linear(12, 9), nn.Tanh(), nn.Linear(9, 5))
    x, y = Tensor(numbers((8, 12)).astype("float32")), Tensor(np.arange(8) % 5)
    name = ",".join(devices) or "cpu"
    if devices:
        net.to(name)
        x, y = x.shard(devices), y.shard(devices)
    adam = optim.Adam(net.parameters(), lr=1e-2)
    step = TinyJit(step_of(net, adam))
    with Tensor.train():
        for _ in range(4):
            step(x, y)
        return repository_calls(lambda: step(x, y), Device[Device.canonical(name)].synchronize)


def test_a_replay_on_two_devices_calls_at_most_half_again_as_much_as_on_one():
    """Counted in a process of its own: submissions without validation, as users have them."""
    program = """if True:
        from tests.frontend.test_captured_meshes import CPUS, calls_of_a_replay
        print(*[calls_of_a_replay(devices) for devices in ((), CPUS[:2], CPUS)])
    """
    clean = {k: text for k, text in os.environ.items() if not k.startswith("HCQ_") or k == "HCQ_CACHE"}
    done = python("-c", program, env=clean | {"HCQ_CPU_DEVICES": "5"})
    alone, two, four = map(int, done.stdout.split())
    assert two <= 1.5 * alone + 1, done.stdout  # Python 3.13 has one call less in each, so that 1.5 is tight
    assert four <= 1.5 * 1.5 * alone, done.stdout


def test_copies_of_an_exchange_wait_for_the_step_before_and_for_no_other_copy(tmp_path: Path):
    """By the dependencies that `tools.trace dump` prints, in the last of three replays."""
    program = """if True:
        from frontend import Tensor, TinyJit
        x = Tensor([[1.0] * 4] * 6).shard(("cpu:0", "cpu:1", "cpu:2")).realize()
        total = TinyJit(lambda x: x.sum(0))
        assert [total(x).tolist() for _ in range(4)] == [[6.0] * 4] * 4
    """
    python("-c", program, HCQ_CPU_DEVICES="3", HCQ_CAPTURE=str(tmp_path / "run.jsonl"))
    found = submissions(tmp_path / "run.jsonl")
    copies = [n for n, (_, label, _) in found.items() if label == "from other devices"][-3:]
    assert [found[other][1] for n in copies for other in waits_of(found[n])] == ["<lambda>"] * 6


def submissions(path: Path) -> dict[str, list[str]]:
    """Return number -> (queue, label, commands) of submissions, as `tools.trace dump` prints them."""
    pattern = r"^submission (\d+) to (.*?) '(.*)'\n((?:    .*\n)*)"
    return {n: of for n, *of in re.findall(pattern, "\n".join(lines(read(path))), re.MULTILINE)}


def waits_of(submission: Sequence[str]) -> list[str]:
    return re.findall(r"wait .* of submission (\d+)", submission[2])


@pytest.mark.parametrize("devices", [CPUS[:2], AMDS])
def test_an_exchange_of_gradients_waits_for_no_later_kernel_and_delays_none(tmp_path: Path, devices: Any):
    """By the printed dependencies of the last replay: three gradients of 256 KiB, one after the other."""
    program = f"""if True:
        from frontend import Tensor, TinyJit
        x = Tensor([[0.5] * 256] * 2).shard({devices})
        weights = [Tensor([[i / 256] * 256] * 256).replicate({devices}).requires_grad_() for i in (1, 2, 3)]
        def step(x):
            y = x
            for w in weights:
                y = (y @ w).tanh()
            y.sum().backward()
            found = [w.grad for w in weights]
            for w in weights:
                w.grad = None
            return found
        captured, want = TinyJit(step), [g.numpy().tobytes() for g in step(x)]
        for _ in range(4):
            assert [g.numpy().tobytes() for g in captured(x)] == want
    """
    python("-c", program, HCQ_CPU_DEVICES="3", HCQ_CAPTURE=str(tmp_path / "run.jsonl"))
    found = submissions(tmp_path / "run.jsonl")
    for device in ("cpu:1", "cpu:2") if devices is not AMDS else ("amd-emu:0", "amd-emu:1"):
        compute, copies = f"compute 0 of {device}", f"copy 0 of {device}"
        exchanges = [n for n, of in found.items() if of[:2] == [copies, "from other devices"]][-3:]
        for n, last in zip(exchanges, (False, False, True), strict=True):
            [source] = re.findall(r" src=(\S+) .*size=262144", found[n][2])
            before = [re.findall(r"exec \S+\(b0=(\S+)", found[other][2]) for other in waits_of(found[n])]
            assert source in [written[-1] for written in before], found[n]
            own = next(int(other) for other in waits_of(found[n]) if found[other][0] == compute)
            then = next(of for k, of in found.items() if int(k) > own and of[0] == compute)
            assert then[1] == "step"
            assert bool(re.search("wait signal copy 0", then[2])) == last


def test_a_kernel_beside_a_copy_waits_for_readers_of_the_memory_that_the_copy_overwrites_in_part():
    """On device 0 a copy and a later node each overwrite a half of what device 1 read before."""
    mesh = cast("Any", Device[",".join(CPUS[:2])])
    found = NodeList(mesh, [], {})
    found.levels = [
        [[MeshNode(0, copies=[Copied(("p", 0), 0, "read", 0, 512)])]],
        [[MeshNode(1, copies=[Copied("read", 0, "other's", 0, 512)], sources=frozenset({0}))]],
        [
            [MeshNode(0, copies=[Copied(("p", 1), 0, "half", 0, 256)], sources=frozenset({1}), early=True)],
            [MeshNode(0, copies=[Copied(("p", 0), 0, "other half", 0, 256)])],
        ],
    ]
    made = MeshGraph(mesh, found, ["p"], {}, "")
    queues = [device.queue for device in mesh.devices]
    [reader] = [node for node in made._graph.nodes if node.queue is queues[1] and node.commands.commands]
    writer = [node for node in made._graph.nodes if node.queue is queues[0] and node.commands.commands][-1]
    assert reader in writer.after


def test_arguments_of_other_layouts_and_states_that_others_use():
    a = numbers((6, 4))
    total = Tensor(np.zeros((6, 4))).shard(CPUS[:2])

    @TinyJit
    def add(x: Tensor) -> tuple[Tensor, Tensor]:
        total.assign(total + x)
        return total.sum(0), x.T @ x

    want, kept = np.zeros((6, 4)), []
    for i in range(6):
        x = Tensor(a + i)
        x = x.shard(CPUS[:2], i % 2) if i % 3 else x.replicate(CPUS[:2])
        old = total * 1
        got, product = add(x)
        kept.append((old, want.copy()))
        want += a + i
        np.testing.assert_allclose(got.numpy(), want.sum(0), rtol=1e-12)
        np.testing.assert_allclose(product.numpy(), (a + i).T @ (a + i), rtol=1e-12)
    assert layout_of(total).axis == 0
    for old, value in kept:
        np.testing.assert_allclose(old.numpy(), value, rtol=1e-12)


def test_an_argument_that_is_assigned_to_changes_in_place():
    @TinyJit
    def grow(x: Tensor) -> Tensor:
        x += x.sum(0)
        return x.max()

    for shape in ((4, 3), (1, 5)):
        grow.reset()
        for i in range(4):
            a = numbers(shape, i)
            x = Tensor(a).shard(CPUS[:2])
            view = x[:1]
            want = a + a.sum(0)
            np.testing.assert_allclose(grow(x).item(), want.max())
            np.testing.assert_allclose(x.numpy(), want)
            np.testing.assert_allclose(view.numpy(), want[:1])


def test_a_captured_function_without_elements_replays():
    turned = TinyJit(lambda x: x.flip(0))
    for _ in range(4):
        assert turned(Tensor(np.zeros((3, 0))).shard(CPUS[:2])).numpy().shape == (3, 0)


def test_a_gathered_argument_is_read_from_the_memory_of_each_call():
    gather = TinyJit(lambda x: x.replicate(CPUS[:2]) * 1)
    given = [Tensor(numbers((5, 3), i)).shard(CPUS[:2]) for i in range(6)]
    for found, x in [(gather(x), x) for x in given]:
        np.testing.assert_array_equal(found.numpy(), x.numpy())


def test_what_a_capture_cannot_do_is_refused(tmp_path: Path):
    x = Tensor(numbers((4,))).shard(CPUS[:2])
    captured = TinyJit(lambda t: t * 2)
    assert captured(x).shape == captured(x).shape
    with pytest.raises(UsageError, match="cannot be saved"):
        captured.save(tmp_path / "x")
    moves = TinyJit(lambda t: t.to("cpu") + 1)
    moves(x)
    with pytest.raises(UsageError, match="moved to cpu"):
        moves(x)
    table = Tensor(numbers((4, 2))).replicate(CPUS[:2])
    take = TinyJit(lambda ids: table[ids] * 1)
    with override(validate=True):
        for ids in ([0, 1, 2, 3], [3, 2, 1, 0], [1, 1, 1, 1]):
            got = take(Tensor(np.array(ids)).shard(CPUS[:2]))
            np.testing.assert_array_equal(got.numpy(), table.numpy()[ids])
        with pytest.raises(UsageIndexError, match="9"):
            take(Tensor(np.array([0, 1, 2, 9])).shard(CPUS[:2]))


@pytest.mark.landing
def test_devices_that_do_not_see_each_other_are_refused():
    x = Tensor(numbers((4,)).astype("float32")).shard(MIXED)
    total = TinyJit(lambda t: t.sum() * 2)
    total(x)
    with pytest.raises(UsageError, match=r"cannot see the memory of.*\n.*without TinyJit"):
        total(x)


class Counted(int):
    """A byte offset that counts comparisons."""

    compared = 0

    def __lt__(self, other: int) -> bool:
        Counted.compared += 1
        return int(self) < int(other)


def comparisons_of(nodes: int) -> int:
    """Return the comparisons of offsets for temporaries that others read and later ones overwrite."""
    reads, before = ForeignReads(), Counted.compared
    for i in range(nodes):
        reads.add(i, (0, Counted(i * 256), Counted(i * 256 + 256)), cast("Any", i))
    for i in range(0, nodes, 2):  # each overwrites two
        found = reads.overwritten(nodes + i, (0, Counted(i * 256), Counted(i * 256 + 512)))
        assert found == cast("Any", [i, i + 1])
    assert not reads.all()
    return Counted.compared - before


def test_the_nodes_that_a_write_waits_for_are_found_in_linear_time():
    """Comparisons for each node grow with the logarithm of their number, as those of a search do."""
    assert comparisons_of(4096) <= 2.5 * comparisons_of(2048)


def test_a_write_waits_for_the_reads_of_all_memory_that_it_overwrites_and_of_no_other():
    reads, open_ = ForeignReads(), list[tuple[int, int, int]]()
    rng = np.random.default_rng(0)
    for number in range(400):
        begin = int(rng.integers(0, 64))
        end = begin + int(rng.integers(1, 9))
        met = [n for b, e, n in open_ if b < end and begin < e]
        assert sorted(cast("Any", reads.overwritten(("t", number), (0, begin, end)))) == met
        open_ = [x for x in open_ if x[2] not in met]
        if rng.random() < 0.7:
            reads.add(("t", number), (0, begin, end), cast("Any", number))
            open_.append((begin, end, number))
    assert sorted(cast("Any", reads.all())) == [n for _, _, n in open_]
    reads.add("parameter", None, cast("Any", 1))
    assert reads.overwritten("another", None) == []
    assert reads.overwritten("parameter", None) == cast("Any", [1])
