"""Graphs: encoded once, replayed with other inputs, several replays in flight."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import hcq
from tests.conformance.conftest import Lab, opened, read
from tests.limits import HANG_S

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=[True, False], ids=["checked", "bare"])
def any_lab(name: str, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """With the validation layer, and without it."""
    lab = Lab(opened(name, validate=request.param))
    yield lab
    lab.close()


def adder(lab: Lab, copies: int, kernels: int = 1) -> tuple[hcq.Executable, list[hcq.Param]]:
    """out[i] = a[i] + b for every i, each input a parameter."""
    graph = hcq.Graph(label="adder")
    params = [graph.param(f"p{i}") for i in range(2 * kernels)]
    shared = graph.param("b")
    commands = lab.queue.record()
    for i in range(kernels):
        lab.run(commands, "add", params[2 * i], params[2 * i + 1], shared, groups=(4, 1, 1))
    graph.add(lab.queue, commands)
    return graph.compile(copies=copies), [*params, shared]


@pytest.mark.parametrize("copies", [1, 2, 3])
def test_replays_with_alternating_inputs_use_their_own(any_lab: Lab, copies: int) -> None:
    """A slot that was not used while the input changed must be bound again."""
    lab = any_lab
    executable, _ = adder(lab, copies)
    a, b, shared = lab.words([10] * 4), lab.words([20] * 4), lab.words([1, 2, 3, 4])
    for source in (a, b, b, b, a, a, a, b, a, b, b, b):
        out = lab.words(4)
        executable.replay([out, source, shared]).wait(timeout_s=HANG_S)
        base = read(source)[0]
        assert read(out) == [base + 1, base + 2, base + 3, base + 4]
    executable.close()


def test_replays_in_flight_keep_their_own_inputs(any_lab: Lab) -> None:
    """Many more replays than slots are queued behind a gate before the first one runs."""
    lab = any_lab
    executable, _ = adder(lab, copies=2)
    shared, gate = lab.words([1] * 4), lab.device.signal(host_set=True)
    lab.queue.submit(lab.queue.record().wait(gate, 1))
    sources = [lab.words([k * 100] * 4) for k in range(8)]
    outs = [lab.words(4) for _ in range(8)]
    points = [executable.replay([out, source, shared]) for out, source in zip(outs, sources, strict=True)]
    gate.value = 1
    for point in points:
        point.wait(timeout_s=HANG_S)
    assert [read(out)[0] for out in outs] == [k * 100 + 1 for k in range(8)]
    executable.close()


def test_many_inputs_change_at_once_or_one_by_one(any_lab: Lab) -> None:
    lab = any_lab
    kernels = 24
    executable, params = adder(lab, copies=2, kernels=kernels)
    shared = lab.words([1] * 4)
    sources = [lab.words([k] * 4) for k in range(kernels + 5)]
    values = [
        buffer for k in range(kernels) for buffer in (lab.words(4), sources[k])
    ] + [shared]  # fmt: skip
    for turn in range(12):
        if turn % 3 == 1:
            values[1 + 2 * (turn % kernels)] = sources[kernels + turn % 5]
        elif turn % 3 == 2:
            values[1:-1:2] = values[3:-1:2] + values[1:2]
        executable.replay(values).wait(timeout_s=HANG_S)
        for k in range(kernels):
            assert read(values[2 * k])[0] == read(values[2 * k + 1])[0] + 1
    assert len(params) == len(values)
    executable.close()


def test_graph_over_two_queues_replays_in_order(any_lab: Lab) -> None:
    lab = any_lab
    graph = hcq.Graph()
    source, out = graph.param("source"), graph.param("out")
    middle, other = lab.words(4), lab.words(4)
    first = graph.add(lab.queue, lab.run(lab.queue.record(), "copy", middle, source, groups=(4, 1, 1)))
    second = graph.add(lab.copies, lab.copies.record().copy(other, middle), after=[first])
    last = lab.run(lab.queue.record(), "add", out, middle, other, groups=(4, 1, 1))
    graph.add(lab.queue, last, after=[second])
    executable = graph.compile(copies=3)
    runs = []
    for k in range(20):
        a, b = lab.words([k] * 4), lab.words(4)
        runs.append((k, b, executable.replay([a, b])))
    for k, b, point in runs:
        point.wait(timeout_s=HANG_S)
        assert read(b) == [2 * k] * 4
    executable.close()


def test_replays_that_share_memory_are_ordered(any_lab: Lab) -> None:
    lab = any_lab
    total = lab.words([1])
    graph = hcq.Graph()
    factor = graph.param("factor", bits=32)
    commands = lab.run(lab.queue.record(), "affine", total, factor, 1)
    first = graph.add(lab.queue, commands)
    graph.add(lab.other, lab.other.record().write(lab.words(1), 1), after=[first])
    executable = graph.compile()
    wanted = 1
    for k in range(50):
        point = executable.submit({factor: k % 3 + 1})
        wanted = (wanted * (k % 3 + 1) + 1) & 0xFFFF_FFFF
    point.wait(timeout_s=HANG_S)
    assert read(total) == [wanted]
    executable.close()


def test_checked_submit_names_what_is_missing_or_too_small(lab: Lab) -> None:
    graph = hcq.Graph()
    source = graph.param("source", size=64)
    target = lab.words(16)
    graph.add(lab.copies, lab.copies.record().copy(target, source, 64))
    executable = graph.compile()
    with pytest.raises(hcq.UsageError, match="source"):
        executable.submit({})
    with pytest.raises(hcq.UsageError, match=r"source.*64 bytes"):
        executable.submit({source: lab.words(4)})
    executable.submit({source: lab.words([3] * 16)}).wait(timeout_s=HANG_S)
    assert read(target) == [3] * 16
    executable.close()


def test_point_of_a_graph_joins_all_its_queues(any_lab: Lab) -> None:
    lab = any_lab
    slow, quick = lab.words(1), lab.words(1)
    graph = hcq.Graph()
    graph.add(lab.queue, lab.run(lab.queue.record(), "spin", slow, 2_000_000))
    graph.add(lab.copies, lab.copies.record().write(quick, 1))
    executable = graph.compile()
    executable.submit({}).wait(timeout_s=HANG_S)
    assert (read(slow), read(quick)) == ([1], [1])
    executable.close()


def test_direct_submissions_and_replays_of_one_queue_are_in_order(any_lab: Lab) -> None:
    lab = any_lab
    total = lab.words([1])
    graph = hcq.Graph()
    graph.add(lab.queue, lab.run(lab.queue.record(), "affine", total, 2, 0))
    executable = graph.compile()
    wanted = 1
    for k in range(30):
        executable.submit({})
        point = lab.queue.submit(lab.run(lab.queue.record(), "affine", total, 1, k))
        wanted = (wanted * 2 + k) & 0xFFFF_FFFF
    point.wait(timeout_s=HANG_S)
    assert read(total) == [wanted]
    executable.close()


def test_closed_executable_refuses(lab: Lab) -> None:
    executable, _ = adder(lab, copies=1)
    executable.close()
    executable.close()
    with pytest.raises(hcq.UsageError, match="closed"):
        executable.replay([lab.words(4)] * 3)


def test_kernel_behind_a_barrier_takes_the_grid_of_each_replay(any_lab: Lab) -> None:
    """A device may start it without the queue, from what it read of an earlier replay."""
    lab, graph = any_lab, hcq.Graph(label="counter")
    out, groups = lab.words(2), graph.param("groups")
    commands = lab.run(lab.queue.record(), "count", out).barrier()
    graph.add(lab.queue, lab.run(commands, "count", out, groups=(groups, 1, 1)))
    executable, total = graph.compile(copies=1), 0
    for count in (3, 7, 2, 5, 5, 1):
        executable.replay([count]).wait(timeout_s=HANG_S)
        total += 1 + count
        assert read(out)[0] == total
    executable.close()


def test_a_graph_over_devices_of_different_kinds_is_ordered(
    any_lab: Lab, request: pytest.FixtureRequest
) -> None:
    """A chain over queues of this device and of a cpu device, several replays in flight."""
    lab = any_lab
    host = Lab(opened("cpu", validate=lab.device.watch is not None))
    request.addfinalizer(host.close)
    value, log = lab.words([0]), lab.words(4)
    for buffer in (value, log):
        buffer.map_to(host.device)
    graph = hcq.Graph(label="chain")
    term, out = graph.param("term", bits=32), graph.param("out", size=4)
    start = graph.add(lab.copies, lab.copies.record().fill(value, term))
    there = graph.add(host.queue, host.run(host.queue.record(), "affine", value, 10, 1), after=[start])
    back = graph.add(lab.queue, lab.run(lab.queue.record(), "affine", value, 10, 2), after=[there, start])
    keep = graph.add(host.copies, host.copies.record().copy(log, value, 4), after=[back, there, start])
    graph.add(lab.copies, lab.copies.record().copy(out, value, 4), after=[keep, back])
    executable = graph.compile(copies=2, limit=4)
    # No join; another device implies no order of two queues of one device.
    assert [len(segment.waits) for segment in executable.segments] == [0, 1, 2, 2, 2]
    outs = [lab.words(1) for _ in range(9)]
    points = [executable.replay([k, buffer]) for k, buffer in enumerate(outs)]
    points[-1].wait(timeout_s=HANG_S)
    assert [read(buffer) for buffer in outs] == [[100 * k + 12] for k in range(9)]
    assert read(log)[0] == 812
    executable.close()
    lab.device.sync()
