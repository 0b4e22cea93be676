"""The validation layer on limits, bounds and the order of kernels that nothing orders."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hcq.errors import UsageError
from hcq.params import Param
from hcq.program import KernelImage
from hcq.registry import wrap
from hcq.validate.validator import Validator
from tests.hcq.fake import ADD, ONE, FakeDevice

if TYPE_CHECKING:
    from hcq.device import Device
    from hcq.memory import Buffer


@pytest.mark.parametrize(
    ("groups", "threads", "why"),
    [
        ((101, 1, 1), ONE, "101 groups along x, wanted 1 to 100"),
        ((1, 1, 1), (8, 8, 2), r"\(8, 8, 2\) is 128 threads a group, wanted 1 to 64"),
    ],
)
def test_launches_beyond_the_limits_are_refused(
    groups: tuple[int, int, int], threads: tuple[int, int, int], why: str
):
    with wrap(FakeDevice(max_threads=64, max_groups_x=100), validate=True) as device:
        a, b = device.alloc(64), device.alloc(64)
        program = device.load(ADD)
        commands = device.compute.record().exec(
            program, program.args(a, b, b), groups=groups, threads=threads
        )
        with pytest.raises(UsageError, match=why):
            device.compute.submit(commands)


def test_a_kernel_with_too_much_shared_memory_is_refused():
    image = KernelImage(name="k", arch="fake1", code=b"add", args=(), kernarg_size=0, shared_bytes=1 << 20)
    with wrap(FakeDevice(max_shared_bytes=1 << 16), validate=True) as device:
        program = device.load(image)
        with pytest.raises(UsageError, match="1048576 bytes of shared memory, the device has 65536"):
            device.compute.submit(
                device.compute.record().exec(program, program.args(), groups=ONE, threads=ONE)
            )


def test_a_limit_that_nothing_reads_is_refused():
    with pytest.raises(UsageError, match=r"max_warps.*\n.*max_threads"):
        FakeDevice(max_threads=64, max_warps=2)


def test_copies_of_parameters_outside_their_buffers_are_refused(device: Device, abc: list[Buffer]):
    a, b, _ = abc
    size, to = Param("size", 32), Param("to")
    commands = device.compute.record().copy(to + 8, b, size)
    with pytest.raises(UsageError, match="copy: bytes 8 to 65 lie outside <Buffer 'a'"):
        device.compute.submit(commands, values={size: 57, to: a})
    device.compute.submit(commands, values={size: 56, to: a}).wait()


def test_kernels_between_barriers_run_in_another_order_and_others_do_not():
    images = [
        KernelImage(name=f"k{i}", arch="fake1", code=b"add", args=ADD.args, kernarg_size=24) for i in range(8)
    ]
    orders = set()
    for seed in range(6):
        device = wrap(FakeDevice(), seed=seed)
        outs, a = [device.alloc(64) for _ in images], device.alloc(64)
        commands = device.compute.record()
        for half in (slice(0, 4), slice(4, 8)):
            for image, out in zip(images[half], outs[half], strict=True):
                program = device.load(image)
                commands.exec(program, program.args(out, a, a), groups=ONE, threads=ONE)
            commands.barrier()
        shuffled = device.watch.reorder(commands.commands) if device.watch else commands.commands
        names = [getattr(getattr(command, "program", None), "name", "|") for command in shuffled]
        assert sorted(names[:4]) == ["k0", "k1", "k2", "k3"]
        assert names[4] == names[9] == "|"
        orders.add(tuple(names))
        if seed == 0:
            assert names[:4] == ["k0", "k1", "k2", "k3"]
        device.close()
    assert len(orders) > 3


def test_the_same_seed_gives_the_same_order(device: Device, abc: list[Buffer]):
    a, b, _ = abc
    program = device.load(ADD)
    commands = device.compute.record()
    for i in range(16):
        commands.exec(program, program.args(b.view(4 * i, 4), a, a), groups=ONE, threads=ONE)
    first, second = Validator(check=False, seed=7), Validator(check=False, seed=7)
    order = first.reorder(commands.commands)
    assert order == second.reorder(commands.commands)
    assert order != commands.commands
