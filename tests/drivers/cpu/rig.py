"""Shared parts of the processor's tests: kernels in the native subset, packets, shared memory."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from drivers.cpu import layouts
from drivers.cpu.layouts import Slot
from drivers.cpu.primitives import acquire, fetch_add, pause, u64, view
from hcq.driver import BufferSpec, QueueKind
from hcq.pushbuffer import PushBuffer
from tests.limits import HANG_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivers.cpu.device import CpuDevice
    from drivers.cpu.ring import CpuRing


COMPUTE, COPY = QueueKind.COMPUTE, QueueKind.COPY


MIB = 1 << 20


Words = tuple[int, ...]




def count(args: u64, x: u64, y: u64, z: u64) -> None:
    """Add one."""
    slot = view(Slot, args)
    fetch_add(slot.value, 1)


def spin(args: u64, x: u64, y: u64, z: u64) -> None:
    """Pause until the u64 is not 0."""
    flag = view(Slot, args)
    while not acquire(flag.value):
        pause()


def weigh(args: u64, x: u64, y: u64, z: u64) -> None:
    """Add a number that identifies the workgroup."""
    slot = view(Slot, args)
    fetch_add(slot.value, x * 1000003 + y * 1009 + z)


KERNELS = (count, weigh, spin)


class NoArguments:
    """Fail: these streams have no argument blocks."""

    def room(self, _pushbuffer: PushBuffer, _size: int) -> None:
        raise AssertionError


class Box:
    """Shared memory as u64 words, and its address."""

    def __init__(self, device: CpuDevice, size: int = 4096) -> None:
        allocation = device.alloc(size, BufferSpec())
        assert allocation.host is not None
        self.va, self.bytes, self.words = allocation.va, allocation.host, allocation.host.cast("Q")


def send(ring: CpuRing, *packets: Words) -> None:
    pushbuffer = PushBuffer(64, NoArguments())
    for packet in packets:
        pushbuffer.words += packet
    ring.submit(pushbuffer)


def until(condition: Callable[[], object], told: Callable[[], object] = str) -> None:
    """Wait until a condition holds; fail only at a hang."""
    end = time.monotonic() + HANG_S
    while not condition():
        assert time.monotonic() < end, told()
        time.sleep(0.001)


def finish(device: CpuDevice, va: int, value: int) -> None:
    """Wait until a signal has a value; the ring may still be at the packet that wrote it: see `rest`."""
    end = time.monotonic() + HANG_S
    while not device.wait(va, value, 0.005):
        assert time.monotonic() < end, [ring.stuck() for ring in device._rings.values()]


def rest(ring: CpuRing) -> None:
    """Wait until the ring is empty: a signal is written before its packet is done."""
    until(lambda: ring.queue.read == ring._write and not ring.stuck(), ring.stuck)


def exec_(function: int, args: int, *grid: int, ns: int = 0) -> Words:
    x, y, z = (*grid, 1, 1, 1)[:3]
    return layouts.Exec.pack(function=function, args=args, x=x, y=y, z=z, group_ns=ns)


def set_(va: int, value: int) -> Words:
    return layouts.SetSignal.pack(signal=va, value=value)


def wait_(va: int, value: int, foreign: int = 0) -> Words:
    return layouts.Wait.pack(signal=va, value=value, foreign=foreign)
