"""Launches, copies and graphs through the real device, on the scripted kernel."""

from __future__ import annotations

from typing import Any

import pytest

from drivers.amd.aql_ring import AqlRing
from drivers.amd.layouts import aql
from drivers.amd.layouts.aql import KernelDispatch
from hcq.errors import UnsupportedError, UsageError
from hcq.hardware import BufferSpec
from tests.drivers.amd.opened import HOST, TARGETS, image, machine
from tests.limits import HANG_S
from tests.support.amd.script import Script


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
