"""The effect of each command, with numbers and with Params."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest

import hcq
from hcq.config import override
from tests.conformance.conftest import ONE, Lab, opened, read
from tests.limits import HANG_S

if TYPE_CHECKING:
    from collections.abc import Iterator

MASK = 0xFFFF_FFFF


@pytest.fixture(params=["compute", "copy"])
def anywhere(lab: Lab, request: pytest.FixtureRequest) -> hcq.Queue:
    """A queue of each kind: all commands but kernels run on both."""
    return lab.queue if request.param == "compute" else lab.copies


@pytest.mark.parametrize("size", [1, 3, 4, 64, 1000, 4096, 65537, 5 << 20])
def test_copy_moves_exactly_its_bytes(lab: Lab, anywhere: hcq.Queue, size: int) -> None:
    count = size // 4 + 2
    source, target = lab.words(count), lab.words(count)
    source.host()[:] = random.Random(size).randbytes(source.size)
    before = bytes(target.host())
    anywhere.submit(anywhere.record().copy(target, source, size)).wait(timeout_s=HANG_S)
    assert bytes(target.host()) == bytes(source.host()[:size]) + before[size:]


def test_copy_between_views_stays_inside_them(lab: Lab, anywhere: hcq.Queue) -> None:
    source, target = lab.words(list(range(100))), lab.words(100)
    anywhere.submit(anywhere.record().copy(target.view(40, 80), source.view(200, 80))).wait(timeout_s=HANG_S)
    assert read(target) == [0] * 10 + list(range(50, 70)) + [0] * 70


@pytest.mark.parametrize("size", [4, 60, 4096, 262148])
def test_fill_repeats_its_u32(lab: Lab, anywhere: hcq.Queue, size: int) -> None:
    target = lab.words(size // 4 + 2)
    anywhere.submit(anywhere.record().fill(target.view(4), 0xDEADBEEF, size)).wait(timeout_s=HANG_S)
    assert read(target) == [0] + [0xDEADBEEF] * (size // 4) + [0]


def test_write_stores_one_number_of_its_width(lab: Lab, anywhere: hcq.Queue) -> None:
    target = lab.words([1, 2, 3, 4, 5, 6])
    commands = anywhere.record().write(target.view(4), 0xFFFF_FFFE)
    commands.write(target.view(16), 0x0123_4567_89AB_CDEF, bits=64)
    anywhere.submit(commands).wait(timeout_s=HANG_S)
    assert read(target) == [1, 0xFFFF_FFFE, 3, 4, 0x89AB_CDEF, 0x0123_4567]


def test_params_may_be_buffers_and_numbers(lab: Lab, anywhere: hcq.Queue) -> None:
    where, what, size, wide = hcq.Param("where"), hcq.Param("what", 32), hcq.Param("size"), hcq.Param("wide")
    one, other, source = lab.words(10), lab.words(10), lab.words([9] * 8)
    commands = anywhere.record().fill(where, what, size).write(where + 16, what, bits=32)
    commands.copy(where + 20, source, size).write(where + 32, wide, bits=64)
    for target, number, count in ((one, 3, 4), (other, 0x8000_0001, 12)):
        values = {where: target, what: number, size: count, wide: number << 30 | 5}
        anywhere.submit(commands, values=values).wait(timeout_s=HANG_S)
    assert read(one) == [3, 0, 0, 0, 3, 9, 0, 0, 3 << 30 | 5, 0]
    assert read(other) == [0x8000_0001] * 3 + [0, 0x8000_0001, 9, 9, 9, 1 << 30 | 5, 0x2000_0000]


@pytest.mark.parametrize("number", [1 << 32, -(1 << 31) - 1])
@pytest.mark.parametrize("command", ["fill", "write"])
def test_a_number_wider_than_its_store_is_refused(
    lab: Lab, anywhere: hcq.Queue, command: str, number: int
) -> None:
    target, graph = lab.words([7]), hcq.Graph()
    value = graph.param("value", signed=True)
    commands = getattr(anywhere.record(), command)(target, value)
    graph.add(anywhere, commands)
    executable = graph.compile()
    for call in (
        partial(anywhere.submit, commands, values={value: number}),
        partial(executable.replay, [number]),
    ):
        with pytest.raises(hcq.UsageError, match=r"value: .* does not fit the 32 bits"):
            call()
    executable.replay([-(1 << 31)]).wait(timeout_s=HANG_S)
    executable.close()
    assert read(target) == [1 << 31]


def test_params_may_be_grids_and_arguments(lab: Lab) -> None:
    out, x, y, base = hcq.Param("out"), hcq.Param("x", 16), hcq.Param("y", 16), hcq.Param("base", 32)
    commands = lab.queue.record()
    lab.run(commands, "index", out, x, y, base, groups=(x, y, 1))
    for width, height, number in ((3, 2, 100), (1, 6, 7)):
        target = lab.words(8)
        values: dict[hcq.Param, hcq.Buffer | int | float] = {out: target, x: width, y: height, base: number}
        lab.queue.submit(commands, values=values).wait(timeout_s=HANG_S)
        assert read(target) == [number + i for i in range(6)] + [0, 0]


def test_param_without_a_value_sends_nothing(lab: Lab) -> None:
    out, x = lab.words(1), hcq.Param("width")
    commands = lab.run(lab.queue.record(), "count", out, groups=(x, 1, 1))
    with pytest.raises(hcq.UsageError, match="width"):
        lab.queue.submit(commands)
    with pytest.raises(hcq.UsageError, match=r"width|1099511627776 groups"):
        lab.queue.submit(commands, values={x: 1 << 40})
    lab.queue.submit(lab.queue.record()).wait(timeout_s=HANG_S)
    assert read(out) == [0]


def test_scalar_arguments_are_range_checked(lab: Lab) -> None:
    out, program = lab.words(1), lab.load("affine")
    with pytest.raises(hcq.UsageError, match=r"factor.*4294967296|factor"):
        program.args(out, 1 << 32, 0)
    with pytest.raises(hcq.UsageError, match="out"):
        program.args(5, 1, 0)


@pytest.fixture
def staffed(name: str, workers: int) -> Iterator[Lab]:
    """The device with some numbers of workers, where that can be chosen."""
    with override(workers=workers):
        lab = Lab(opened(name))
    yield lab
    lab.close()


@pytest.mark.parametrize(
    "grid", [(1, 1, 1), (7, 5, 3), (1000, 3, 1), (1, 1, 200), (1, 300, 2), (20000, 1, 1)]
)
def test_every_workgroup_of_a_grid_runs_once(staffed: Lab, grid: tuple[int, int, int]) -> None:
    width, height, depth = grid
    total = width * height * depth
    out = staffed.words(total)
    commands = staffed.queue.record()
    for base in (100, 20):
        staffed.run(commands, "index", out, width, height, base, groups=grid).barrier()
    staffed.queue.submit(commands).wait(timeout_s=HANG_S)
    assert read(out) == [120 + 2 * i for i in range(total)]


def test_grids_on_several_queues_share_the_workers(staffed: Lab) -> None:
    outs = [staffed.words(1) for _ in staffed.device.computes]
    points = []
    for _ in range(30):
        for queue, out in zip(staffed.device.computes, outs, strict=True):
            points.append(queue.submit(staffed.run(queue.record(), "count", out, groups=(50, 7, 1))))
    for point in points:
        point.wait(timeout_s=HANG_S)
    assert [read(out) for out in outs] == [[30 * 350]] * len(outs)


def test_launch_beyond_the_limits_of_the_device_is_refused(lab: Lab) -> None:
    out = lab.words(1)
    limit = lab.device.info.limits["max_groups_y"]
    with pytest.raises(hcq.UsageError, match=rf"{limit}"):
        lab.queue.submit(lab.run(lab.queue.record(), "count", out, groups=(1, limit + 1, 1)))
    program = lab.load("count")
    threads = (lab.device.info.limits["max_threads"] + 1, 1, 1)
    commands = lab.queue.record().exec(program, program.args(out), groups=ONE, threads=threads)
    with pytest.raises(hcq.UsageError, match="thread"):
        lab.queue.submit(commands)


def test_kernel_on_a_copy_queue_is_refused(lab: Lab) -> None:
    with pytest.raises(hcq.UsageError, match="copy queue"):
        lab.run(lab.copies.record(), "count", lab.words(1))


def swapped(ticks: int) -> int:
    """Return a time with its halves of 32 bits exchanged."""
    return ticks >> 32 | (ticks & 0xFFFF_FFFF) << 32


def close(clock: hcq.Clock, ticks: int) -> bool:
    """Return whether a time is of the hour around now; no machine stalls for so long."""
    return abs(clock.to_ns(ticks) - time.monotonic_ns()) < 3600 * 1_000_000_000


def test_timestamps_grow_and_change_no_signal(lab: Lab) -> None:
    out, stamps = lab.words(1), [lab.device.stamp() for _ in range(4)]
    commands = lab.queue.record()
    for stamp in stamps:
        lab.run(commands.timestamp(stamp), "spin", out, 20_000).barrier()
    signal = lab.device.signal()
    before = time.monotonic_ns()
    lab.queue.submit(commands.signal(signal, 3)).wait(timeout_s=HANG_S)
    after = time.monotonic_ns()
    ticks = [stamp.ticks for stamp in stamps]
    now = lab.device.clock()
    for tick in ticks:
        text = f"by the clock, which is at {now.ticks:#x}, a timestamp of {tick:#x} is not of this hour"
        if close(replace(now, ticks=swapped(now.ticks)), tick):
            text += ": the clock's halves of 32 bits are swapped"
        if close(now, swapped(tick)):
            text += ": the timestamp's halves of 32 bits are swapped"
        assert close(now, tick), text
    assert ticks == sorted(set(ticks))
    assert signal.value == 3
    asked = time.monotonic_ns()
    clock = lab.device.clock()
    slack = 2_000_000 + time.monotonic_ns() - asked  # host and device are read one after the other
    assert before - slack <= clock.to_ns(ticks[0]) <= clock.to_ns(ticks[-1]) <= after + slack


def test_timestamp_is_written_behind_the_kernel_before_it(lab: Lab) -> None:
    """Without a barrier, too. The machine may stall behind the kernel, so one of many tries suffices."""
    out, stamps = lab.words(1), [lab.device.stamp() for _ in range(3)]
    commands = lab.queue.record().barrier().timestamp(stamps[0])
    lab.run(commands, "spin", out, 1_000_000).timestamp(stamps[1]).barrier().timestamp(stamps[2])
    for _ in range(100):
        lab.queue.submit(commands).wait(timeout_s=HANG_S)
        first, behind, last = (stamp.ticks for stamp in stamps)
        if behind - first > last - behind:
            return
    pytest.fail(f"a timestamp was written {last - behind} ticks before the kernel before it ended")


def test_value_of_a_signal_arrives_whole_or_is_refused(lab: Lab) -> None:
    for queue in (lab.queue, lab.copies):
        signal = lab.device.signal((1 << min(33, lab.device.info.limits.get("signal_bits", 64))) - 1)
        for value in ((1 << 33) + 5, (1 << 62) + 1):
            try:
                point = queue.submit(queue.record().signal(signal, value))
            except hcq.UsageError as error:
                assert "32 bits" in str(error)  # noqa: PT017 - both outcomes keep the contract
                continue
            point.wait(timeout_s=HANG_S)
            assert signal.value == value


def test_span_is_as_long_as_its_commands(lab: Lab) -> None:
    """The machine may stall during the short kernel, so one of many tries suffices."""
    out = lab.words(1)
    commands = lab.queue.record()
    with commands.span("long"):
        lab.run(commands, "spin", out, 3_000_000)
    with commands.span("short"):
        commands.barrier()
    for _ in range(100):
        lab.queue.submit(commands).wait(timeout_s=HANG_S)
        spans = {span.name: span for span in lab.device.spans()}
        assert set(spans) == {"long", "short"}
        assert spans["long"].end_ns <= spans["short"].start_ns + 1000
        assert lab.device.spans() == []
        long, short = (spans[name].end_ns - spans[name].start_ns for name in ("long", "short"))
        if long > 10 * short:
            return
    pytest.fail(f"the long span took {long} ns, the short one {short}")


def test_arguments_may_be_used_in_many_launches(lab: Lab) -> None:
    out, program = lab.words([1]), lab.load("affine")
    args = program.args(out, 3, 1)
    commands = lab.queue.record()
    for _ in range(3):
        commands.exec(program, args, groups=ONE, threads=ONE).barrier()
    lab.queue.submit(commands).wait(timeout_s=HANG_S)
    assert read(out) == [((1 * 3 + 1) * 3 + 1) * 3 + 1 & MASK]


def test_kernel_for_another_architecture_is_refused(lab: Lab) -> None:
    from dataclasses import replace

    with pytest.raises(hcq.UnsupportedError, match="pdp11"):
        lab.device.load(replace(lab.load("count").image, arch="pdp11"))


def test_broken_kernel_image_is_refused(lab: Lab) -> None:
    from dataclasses import replace

    whole = lab.load("count").image
    for code in (b"", b"\x7fELF", whole.code[: len(whole.code) // 2], bytes(1000)):
        with pytest.raises((hcq.UsageError, hcq.UnsupportedError)):
            lab.device.load(replace(whole, code=code))
    with pytest.raises(hcq.UsageError, match="absent"):
        lab.device.load(replace(whole, name="absent"))
