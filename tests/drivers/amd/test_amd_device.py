"""The AMD device on emulated GPUs: launches, copies, graphs, replays, counted Python."""

from __future__ import annotations

from typing import Any

import pytest

from drivers.amd.aql_ring import AqlRing
from drivers.amd.layouts import aql
from hcq.config import override
from hcq.errors import UnsupportedError, UsageError
from hcq.graph import Graph
from hcq.hardware import BufferSpec
from tests.drivers.amd.opened import HOST, TARGETS, image, machine
from tests.drivers.nv.test_nv_streams import instructions_of
from tests.limits import HANG_S
from tests.support.host_time.amd import FinishedAmd
from tests.support.host_time.nv import FinishedNv


@pytest.mark.parametrize("gpu", sorted({*TARGETS} - {"gfx1103"}))  # whose instructions are not emulated
def test_a_kernel_is_launched_with_its_arguments(gpu: str):
    with machine(gpu) as (_, device):
        program = device.load(image(device.info.arch, scratch=True))
        out = device.alloc(4096, HOST)
        queue = device.computes[1]
        commands = queue.record().exec(program, program.args(out, 41), groups=(3, 2, 1), threads=(64, 1, 1))
        queue.submit(commands).wait(timeout_s=HANG_S)
        assert out.host().cast("I")[0] == 41


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
    with override(ring_bytes=1 << 14), machine(gpu) as (_, device):
        a = device.alloc(4096, HOST)
        for queue in (device.copies[0], device.compute):
            ring: Any = queue.ring
            i, size = 0, len(ring._words) // (aql.PACKET_WORDS if isinstance(ring, AqlRing) else 1)
            while ring.taken < 2 * size:
                i += 1
                commands = queue.record()
                for _ in range(8):
                    commands.write(a.view(0, 4), i, bits=32).write(a.view(8, 8), i, bits=64)
                queue.submit(commands).wait(timeout_s=HANG_S)
                assert (a.host().cast("I")[0], a.host().cast("Q")[1]) == (i, i)


def test_host_and_copy_queue_see_the_same_visible_video_memory():
    with machine() as (_, device):
        video = device.alloc(4096, BufferSpec(host_visible=True))
        video.host()[:4] = b"abcd"
        a = device.alloc(4096, HOST)
        queue = device.copies[0]
        queue.submit(queue.record().copy(a, video)).wait(timeout_s=HANG_S)
        assert bytes(a.host()[:4]) == b"abcd"


ONE = {"groups": (1, 1, 1), "threads": (64, 1, 1)}


@pytest.mark.parametrize(("kernels", "replays"), [(70, 8), (450, 2)])
def test_prebuilt_packets_go_over_the_end_of_the_ring(kernels: int, replays: int):
    with override(ring_bytes=1 << 14), machine("gfx942") as (_, device):
        program, compute = device.load(image("gfx942")), device.compute
        out = device.alloc(4 * kernels, HOST)
        graph, commands = Graph(), compute.record()
        for i in range(kernels):
            commands.exec(program, program.args(out.view(4 * i, 4), i), **ONE)
        graph.add(compute, commands)
        executable = graph.compile(copies=1)
        for _ in range(replays):
            out.host()[:] = bytes(4 * kernels)
            executable.submit({}).wait(timeout_s=HANG_S)
            assert out.host().cast("I").tolist() == list(range(kernels))


KERNELS = 64


KERNEL_SIDE = (
    "drivers/kernel.py",
    "emulator/amd/machine/kernel.py",
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
