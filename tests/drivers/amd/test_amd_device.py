"""The AMD device on the scripted kernel: launches, copies, graphs, replays, counted Python."""

from __future__ import annotations

from typing import Any

import pytest

from drivers.amd.aql_ring import AqlRing
from drivers.amd.layouts import aql
from drivers.amd.layouts.aql import KernelDispatch
from hcq.driver import QueueKind
from hcq.errors import UnsupportedError, UsageError
from hcq.graph import Graph
from hcq.hardware import BufferSpec
from tests.drivers.amd.opened import HOST, TARGETS, image, machine
from tests.drivers.nv.test_nv_streams import instructions_of
from tests.limits import HANG_S
from tests.support.amd.script import Script
from tests.support.host_time.amd import FinishedAmd
from tests.support.host_time.nv import FinishedNv


@pytest.mark.parametrize("gpu", TARGETS)
def test_a_kernel_is_launched_with_its_arguments(gpu: str):
    with machine(Script(gpus=(gpu,))) as (kernel, device):
        program = device.load(image(device.info.arch))
        out = device.alloc(4096)
        queue = device.computes[1]
        commands = queue.record().exec(program, program.args(out, 41), groups=(3, 2, 1), threads=(64, 1, 1))
        queue.submit(commands).wait(timeout_s=HANG_S)
        engine = kernel.queues[queue.ring.queue.number]  # type: ignore[attr-defined]  # of this driver
        (launch,) = engine.launches
        if isinstance(launch, KernelDispatch):
            assert (launch.GRID_SIZE_X, launch.GRID_SIZE_Y, launch.WORKGROUP_SIZE_X) == (192, 2, 64)
        else:
            assert (launch.DIM_X, launch.DIM_Y, launch.DIM_Z) == (3, 2, 1)
        code = program.loaded.handle  # type: ignore[attr-defined]  # of this driver
        assert kernel.holds(device.driver.gpu.gpu_id, code.va, code.size)  # type: ignore[attr-defined]


def test_code_is_uploaded_by_the_copy_queue_of_the_driver():
    from drivers.amd import code
    from drivers.amd.layouts.chips import CHIPS as ROWS
    from drivers.kernel import view_at

    with machine() as (_, device):
        one = image("gfx1100")
        program = device.load(one)
        memory = program.loaded.handle  # type: ignore[attr-defined]  # of this driver
        content = code.read(one.code, one.name, ROWS["gfx1100"])[0].load(memory.va)
        assert bytes(view_at(memory.va, len(content))) == content


def test_a_program_of_another_driver_or_device_is_refused():
    with machine() as (_, device):
        with pytest.raises(UnsupportedError, match="gfx1201"):
            device.load(image("gfx1201"))
        program = device.load(image("gfx1100"))
        loaded = program.loaded
        device.driver.unload(loaded)
        with pytest.raises(UsageError, match="was not loaded"):
            device.driver.unload(loaded)
        device.driver._programs.append(loaded)  # type: ignore[attr-defined]  # for the program's own unload
        memory = device.driver.memories.vram(4096, label="code again")  # type: ignore[attr-defined]
        loaded.handle = memory  # type: ignore[attr-defined]  # of this driver


@pytest.mark.parametrize("gpu", ["gfx1100", "gfx942"])
def test_submissions_continue_over_the_end_of_a_ring(gpu: str):
    with machine(Script(gpus=(gpu,))) as (kernel, device):
        a = device.alloc(4096, HOST)
        for queue in (device.copies[0], device.compute):
            ring: Any = queue.ring
            engine = kernel.queues[ring.queue.number]
            # As if all but the last units of the ring had been written and read.
            unit = aql.PACKET_WORDS if isinstance(ring, AqlRing) else 1
            ring._put = engine.done = engine._written = (len(engine._words) - 48) // unit
            ring._limit = 0
            engine._publish()
            for i in range(6):
                commands = queue.record().write(a.view(0, 4), i, bits=32).write(a.view(8, 8), i, bits=64)
                queue.submit(commands).wait(timeout_s=HANG_S)
                assert (a.host().cast("I")[0], a.host().cast("Q")[1]) == (i, i)
            assert engine.done == ring.taken


def test_host_and_copy_queue_see_the_same_visible_video_memory():
    with machine() as (_, device):
        video = device.alloc(4096, BufferSpec(host_visible=True))
        video.host()[:4] = b"abcd"
        a = device.alloc(4096, HOST)
        queue = device.copies[0]
        queue.submit(queue.record().copy(a, video)).wait(timeout_s=HANG_S)
        assert bytes(a.host()[:4]) == b"abcd"


ONE = {"groups": (1, 1, 1), "threads": (64, 1, 1)}


def test_prebuilt_packets_lie_between_the_wait_and_the_signal():
    with machine(Script(gpus=("gfx942",))) as (kernel, device):
        program = device.load(image("gfx942"))
        compute, copies = device.compute, device.copies[0]
        a, b = device.alloc(4096, HOST), device.alloc(4096, HOST)
        graph = Graph()
        number = graph.param("number", bits=32)
        first = graph.add(copies, copies.record().copy(b, a))
        commands = compute.record()
        for _ in range(3):
            commands.exec(program, program.args(b, number), **ONE).barrier()
        graph.add(compute, commands, after=[first])
        executable = graph.compile()
        ring = device.driver.ring(QueueKind.COMPUTE, 0)
        engine = next(q for q in kernel.queues.values() if q.ring[0] == ring.queue.ring.va)
        for value in range(5):
            start = len(engine.packets)
            executable.submit({number: value}).wait(timeout_s=HANG_S)
            names = [type(packet).__name__ for packet in engine.packets[start:]]
            wait, signal = names.index("WaitRegMem"), len(names) - 1 - names[::-1].index("ReleaseMemGfx9")
            kernels = [i for i, name in enumerate(names) if name == "KernelDispatch"]
            assert len(kernels) == 3
            assert wait < kernels[0] < kernels[-1] < signal


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("kernels", "replays"), [(700, 8), (4500, 2)])
def test_prebuilt_packets_go_over_the_end_of_the_ring(kernels: int, replays: int):
    with machine(Script(gpus=("gfx942",))) as (kernel, device):
        program, compute = device.load(image("gfx942")), device.compute
        out = device.alloc(4096, HOST)
        graph, commands = Graph(), compute.record()
        for i in range(kernels):
            commands.exec(program, program.args(out, i), **ONE)
        graph.add(compute, commands)
        executable = graph.compile(copies=1)
        ring = device.driver.ring(QueueKind.COMPUTE, 0)
        engine = next(q for q in kernel.queues.values() if q.ring[0] == ring.queue.ring.va)
        for _ in range(replays):
            executable.submit({}).wait(timeout_s=HANG_S)
        assert len(engine.launches) == kernels * replays
        addresses = [launch.KERNARG_ADDRESS for launch in engine.launches]
        assert addresses == addresses[:kernels] * replays
        assert len(set(addresses)) == kernels


KERNELS = 64


KERNEL_SIDE = (
    "drivers/kernel.py",
    "tests/support/scripted/host.py",
    "tests/support/amd/scripted.py",
    "tests/support/amd/scripted_queues.py",
    "tests/support/nv/scripted.py",
    "tests/support/nv/scripted_doorbell.py",
)
"""What stands in for the operating system: no part of a driver."""


def counts(gpu: Any) -> list[int]:
    """Return the instructions of a launch, and of a replay with every input changed and with none."""
    runs = (gpu.launcher(), gpu.replayer(KERNELS, changed=True), gpu.replayer(KERNELS, changed=False))
    return [instructions_of(run, gpu.finish, without=KERNEL_SIDE) for run in runs]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("target", ["gfx1100", "gfx942"])
def test_launches_and_replays_cost_at_most_a_tenth_more_than_nvidia_s(target: str):
    with FinishedNv() as beside, FinishedAmd(target) as gpu:
        for seen, theirs in zip(counts(gpu), counts(beside), strict=True):
            assert seen <= 1.1 * theirs
