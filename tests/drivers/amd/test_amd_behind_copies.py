"""A kernel behind a copy that is over invalidates L2, although no wait for the copy is sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from hcq.commands import Barrier, Command, Copy, Fill, Range, Scope, SetSignal, Timestamp, Touch, Wait, Write
from hcq.device import Device
from hcq.driver import BufferSpec, Place, QueueKind
from hcq.graph import Graph
from hcq.params import Param
from tests.drivers.amd.rig import Rig, encoded, opened, packets
from tests.mutants.amd.planted.wire import WIRES
from tools.bringup.amd.kernels import image

if TYPE_CHECKING:
    from collections.abc import Iterator

HOST = BufferSpec(place=Place.HOST, host_visible=True, coherent=True)


@pytest.fixture(params=["gfx1100", "gfx1201"])
def unvalidated(request: pytest.FixtureRequest) -> Iterator[Device]:
    """A device without validation, which keeps no wait for what is over; its machine checks the caches."""
    machine = WIRES.open(request.param, "6.12")
    with Device(machine.driver(machine.kernel).open(0, None)) as device:
        yield device
    machine.close()


def test_kernels_see_what_a_copy_that_is_over_stored(unvalidated: Device):
    """Old bytes, and any load through an L2 that was not invalidated, are faults of this machine."""
    device = unvalidated
    copies, compute = device.copies[0], device.compute
    source, data, out = device.alloc(4096, HOST), device.alloc(4096), device.alloc(4096, HOST)
    count = device.load(image("count", device.info.arch))
    graph = Graph()
    shape = {"groups": (1, 1, 1), "threads": (1, 1, 1)}
    graph.add(compute, compute.record().exec(count, count.args(out, data), **shape))
    executable = graph.compile()
    for value in range(1, 5):
        source.host()[:] = bytes([value]) * 4096
        copied = copies.submit(copies.record().copy(data, source))
        copied.wait()
        if value % 2:
            launch = compute.record().exec(count, count.args(out, data), **shape)
            compute.submit(launch, after=[copied]).wait()
        else:
            executable.replay(after=[copied]).wait()
        assert out.host()[1] == value


def acquires(rig: Rig, *commands: Command) -> list[Any]:
    """Return for each packet its name, or the GCR_CNTL of an acquire."""
    found = packets(rig, QueueKind.COMPUTE, encoded(rig.encoder(), *commands).words)
    return [p.value.GCR_CNTL if p.name == "ACQUIRE_MEM" else p.name for p in found]


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1201"])
def test_words_that_access_memory_begin_with_an_acquire_of_all_caches(arch: str):
    everything = 1 << 14 | 1 << 15 | 1 << 7 | 1 << 8 | (arch == "gfx1100") * (3 << 4 | 1 << 9)
    fill, write = Fill(Param("a"), 1, 64), Write(Param("a"), 1, bits=32)
    with opened(arch) as (rig, device):
        signal = device.signal()
        for one in (Copy(Param("a"), Param("b"), 64), fill, write):
            stamped, barrier = Timestamp(device.stamp()), Barrier(Scope.QUEUE)
            for before in ((), (SetSignal(signal, 1),), (stamped,), (barrier,)):
                found = acquires(rig, *before, one)
                assert found[0] == everything
                assert found.count(everything) == 1
            assert acquires(rig, Wait(signal, 1), one)[:2] == ["WAIT_REG_MEM", everything]
            assert acquires(rig, Wait(signal, 1), one).count(everything) == 1
        assert everything not in acquires(rig, SetSignal(signal, 1), Barrier(Scope.DEVICE))
        assert acquires(rig) == []


@dataclass(slots=True)
class Increment(Command):
    """A command that no encoder names: only its declaration tells that it accesses memory."""

    memory = (Range("dst", "rw", "nbytes", align=8, verb="increment"),)

    dst: Param
    nbytes: int = 8


@dataclass(slots=True)
class Read(Command):
    """The same, by a `touches` of its own."""

    src: Param

    def touches(self) -> list[Touch]:
        return [Touch(self.src, "r", 8)]


@dataclass(slots=True)
class Run(Command):
    """Words that the queue runs are no access through its caches."""

    memory = (Range("src", "x"),)

    src: Param


@pytest.mark.parametrize(("one", "acquired"), [(Increment, 1), (Read, 1), (Run, 0)])
def test_commands_are_preceded_by_an_acquire_where_they_declare_memory(one: Any, acquired: int):
    with opened() as (rig, _):
        rig.encoder().table[one] = lambda _command, _out: None
        (everything, *_) = acquires(rig, Fill(Param("a"), 1, 64))
        assert acquires(rig, Barrier(Scope.QUEUE), one(Param("a"))).count(everything) == acquired
