"""Replays through AQL rings: prebuilt packets between waits and signals, over the end of the ring."""

from __future__ import annotations

import pytest

from hcq.driver import QueueKind
from hcq.graph import Graph
from tests.drivers.amd.opened import HOST, image, machine
from tests.limits import HANG_S
from tests.support.amd.script import Script

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
