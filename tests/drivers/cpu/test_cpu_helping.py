"""Host threads that wait for a queue: which work they do, on which stack, and what the processor does."""

from __future__ import annotations

import ctypes
import os
import threading
from array import array
from typing import TYPE_CHECKING

import pytest

from drivers.cpu import device as cpu_device
from drivers.cpu import layouts
from drivers.cpu.image import HostCode, compile_object, nothing_from_outside
from drivers.cpu.layouts import Runner, Slot
from drivers.cpu.link import HostImage
from drivers.cpu.native import translate
from drivers.cpu.primitives import (
    acquire,
    fetch_add,
    float_mode,
    pause,
    set_float_mode,
    stack,
    u64,
    view,
)
from drivers.cpu.threads import STACK_BYTES
from drivers.kernel import LinuxKernel
from hcq.config import override
from tests.drivers.cpu.rig import COMPUTE, Box, exec_, finish, rest, send, set_, until, wait_

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from drivers.cpu.device import CpuDevice
    from drivers.cpu.driver import CpuDriver
    from drivers.cpu.ring import CpuRing
    from tests.drivers.cpu.rig import Words

MACHINE = os.uname().machine
FLUSH = {"x86_64": 1 << 15, "aarch64": 1 << 24}
"""The bit of the floating-point control that replaces denormal results by 0."""
SHORT_NS = 10
"""An estimate with which a host thread takes a workgroup."""


class Seen(layouts.Record):
    """What a workgroup stores."""

    stack: u64
    mode: u64
    count: u64


def look(args: u64, x: u64, y: u64, z: u64) -> None:
    """Store an address in the stack and the floating-point control; count."""
    seen = view(Seen, args)
    seen.stack = stack(16)
    seen.mode = float_mode()
    fetch_add(seen.count, 1)


def meet(args: u64, x: u64, y: u64, z: u64) -> None:
    """Return when two workgroups are here at once."""
    here = view(Slot, args)
    fetch_add(here.value, 1)
    while acquire(here.value) < 2:
        pause()


def hold(args: u64, x: u64, y: u64, z: u64) -> None:
    """Count, and return when the stack address is not 0."""
    seen = view(Seen, args)
    fetch_add(seen.count, 1)
    while not acquire(seen.stack):
        pause()
    fetch_add(seen.mode, 1)


def mode() -> u64:
    return float_mode()


def set_mode(wanted: u64) -> u64:
    set_float_mode(wanted)
    return float_mode()


@pytest.fixture(scope="module")
def code() -> Iterator[dict[str, int]]:
    functions = (look, meet, hold, mode, set_mode)
    code = HostCode(
        LinuxKernel(), HostImage(compile_object(translate(functions, MACHINE)), MACHINE), nothing_from_outside
    )
    yield code.address
    code.close()


def left_to_the_host(device: CpuDevice, *packets: Words) -> CpuRing:
    """Submit packets without a doorbell to a processor that sleeps, as if it were slow to wake."""
    ring = device.ring(COMPUTE, 0)
    until(lambda: ring.queue.asleep)
    doorbell = ring._doorbell
    ring._doorbell = lambda _state, end: setattr(ring.queue, "write", end)
    send(ring, *packets)
    ring._doorbell = doorbell
    return ring


def on_host_stack(device: CpuDevice, va: int) -> bool:
    return device.pool.stack_top - STACK_BYTES <= va < device.pool.stack_top


def test_a_waiting_host_thread_executes_the_packets_on_the_device_s_stack(
    device: CpuDevice, code: dict[str, int]
) -> None:
    box = Box(device)
    seen = Seen(box.va + 64)
    ring = left_to_the_host(device, exec_(code["look"], seen.va, 1, ns=SHORT_NS), set_(box.va, 1))
    finish(device, box.va, 1)
    rest(ring)
    assert on_host_stack(device, seen.stack)
    assert seen.count == 1
    assert ring.queue.runner == Runner.FREE
    assert device.pool.helping == 0


@pytest.mark.parametrize("ns", [0, 1 << 40])
def test_a_kernel_of_unknown_or_long_time_is_left_to_the_processor(
    device: CpuDevice, code: dict[str, int], ns: int
) -> None:
    box = Box(device)
    seen = Seen(box.va + 64)
    left_to_the_host(device, exec_(code["look"], seen.va, 1, ns=ns), set_(box.va, 1))
    finish(device, box.va, 1)
    assert seen.count == 1
    assert not on_host_stack(device, seen.stack)


def test_the_processor_continues_in_the_middle_of_an_indirect(
    device: CpuDevice, code: dict[str, int]
) -> None:
    box = Box(device)
    seen = [Seen(box.va + 64 + Seen.SIZE * i) for i in range(3)]
    packets = [
        exec_(code["look"], s.va, 1, ns=ns) for s, ns in zip(seen, (SHORT_NS, 0, SHORT_NS), strict=True)
    ]
    for i, packet in enumerate(packets):
        box.words[64 + 8 * i : 72 + 8 * i] = array("Q", packet)
    ring = left_to_the_host(device, layouts.Indirect.pack(packets=box.va + 512, count=3), set_(box.va, 1))
    finish(device, box.va, 1)
    rest(ring)
    assert [s.count for s in seen] == [1, 1, 1]
    assert [on_host_stack(device, s.stack) for s in seen] == [True, False, False]
    assert ring.queue.resume == 0


def test_a_host_thread_does_not_block_in_a_wait_packet(device: CpuDevice, code: dict[str, int]) -> None:
    box = Box(device)
    seen = Seen(box.va + 64)
    ring = left_to_the_host(
        device, wait_(box.va + 8, 1), exec_(code["look"], seen.va, 1, ns=SHORT_NS), set_(box.va, 1)
    )
    assert not device.wait(box.va, 1, 0.005)
    assert seen.count == 0
    until(lambda: ring.queue.stuck)  # the processor has it
    box.words[1] = 1
    device.signal_written(box.va + 8)
    finish(device, box.va, 1)
    assert seen.count == 1


def test_a_host_thread_that_sleeps_is_not_expected_to_help(device: CpuDevice) -> None:
    box = Box(device)
    ring = device.ring(COMPUTE, 0)
    send(ring, wait_(box.va + 8, 1), set_(box.va, 1))
    until(lambda: ring.queue.stuck)
    ring.queue.helped = 1
    assert not device.wait(box.va, 1, 0.005)
    assert ring.queue.helped == 0
    box.words[1] = 1
    device.signal_written(box.va + 8)
    finish(device, box.va, 1)


def test_a_short_wait_executes_nothing(device: CpuDevice, code: dict[str, int]) -> None:
    box = Box(device)
    seen = Seen(box.va + 64)
    left_to_the_host(device, exec_(code["look"], seen.va, 1, ns=SHORT_NS), set_(box.va, 1))
    assert not device.wait(box.va, 1, 0.0001)
    assert seen.count == 0
    finish(device, box.va, 1)
    assert seen.count == 1


def test_kernels_on_a_host_thread_have_the_device_s_floating_point_control(
    device: CpuDevice, code: dict[str, int]
) -> None:
    number = ctypes.c_uint64
    get: Callable[[], int] = ctypes.CFUNCTYPE(number)(code["mode"])
    put: Callable[[int], int] = ctypes.CFUNCTYPE(number, number)(code["set_mode"])
    box = Box(device)
    seen = Seen(box.va + 64)
    before = get()
    left_to_the_host(device, exec_(code["look"], seen.va, 1, ns=SHORT_NS), set_(box.va, 1))
    assert put(before ^ FLUSH[MACHINE]) == before ^ FLUSH[MACHINE]
    try:
        finish(device, box.va, 1)
        after = get()
    finally:
        put(before)
    assert on_host_stack(device, seen.stack)
    assert after & FLUSH[MACHINE] == ~before & FLUSH[MACHINE]
    assert seen.mode & FLUSH[MACHINE] == before & FLUSH[MACHINE]


def test_a_waiting_host_thread_takes_workgroups_while_all_workers_are_busy(
    driver: CpuDriver, code: dict[str, int]
) -> None:
    with override(workers=1):
        device = driver.open(0, None)
    box = Box(device)
    held = Seen(box.va + 64)
    device.pool.grain_ns = 0
    first, second = device.ring(COMPUTE, 0), device.ring(COMPUTE, 1)
    send(second, exec_(code["hold"], held.va, 2), set_(box.va + 8, 1))
    until(lambda: held.count == 2)  # its processor, and the worker
    send(first, exec_(code["meet"], box.va + 256, 2, ns=SHORT_NS), set_(box.va, 1))
    finish(device, box.va, 1)  # needs a second thread
    assert box.words[32] == 2
    assert held.mode == 0
    held.stack = 1
    finish(device, box.va + 8, 1)
    device.close()


def test_close_waits_for_the_kernel_on_a_host_thread(
    driver: CpuDriver, code: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_device, "STOP_LOOKS", 1 << 40)  # it does not give up
    device = driver.open(0, None)
    box = Box(device)
    held = Seen(box.va + 64)
    left_to_the_host(device, exec_(code["hold"], held.va, 1, ns=SHORT_NS), set_(box.va, 1))
    waiting = threading.Thread(target=lambda: device.wait(box.va, 1, 0.005))
    waiting.start()
    until(lambda: held.count)
    closing = threading.Thread(target=device.close)
    closing.start()
    until(lambda: device.pool.stop)
    assert device.pool.helping == device.ring(COMPUTE, 0).queue.va
    held.stack = 1
    closing.join()
    assert held.mode == 1
    assert device.pool.helping == 0
    waiting.join()
