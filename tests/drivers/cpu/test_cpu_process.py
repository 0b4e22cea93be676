"""The cpu device in its process: forks, stacks, spinning, and a fault that the neutral model observes."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from typing import TYPE_CHECKING

import pytest

import hcq
from drivers.cpu import layouts
from drivers.cpu.cores import NO_CORE
from drivers.cpu.driver import CpuDriver
from drivers.cpu.image import HostCode, compile_object, nothing_from_outside
from drivers.cpu.layouts import Slot
from drivers.cpu.link import HostImage
from drivers.cpu.native import translate
from drivers.cpu.primitives import fetch_add, load64, stack, store64, u64, view
from drivers.kernel import LinuxKernel
from hcq.config import override
from hcq.driver import BufferSpec, QueueKind
from hcq.errors import UsageError
from hcq.pushbuffer import PushBuffer
from tests.children import python
from tests.drivers.cpu.rig import COMPUTE, Box, NoArguments, exec_, finish, rest, send, set_, until
from tests.limits import HANG_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivers.cpu.device import CpuDevice


def in_fork(work: Callable[[], object]) -> int:
    """Run a function in a forked child, which always exits afterwards; return its exit status."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(int(HANG_S))
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_fork_is_refused_with_a_message(device: CpuDevice) -> None:
    read, write = os.pipe()

    def use() -> None:
        try:
            device.alloc(4096, BufferSpec())
            text = "nothing was refused"
        except UsageError as error:
            text = str(error)
        device.close()
        os.write(write, text.encode())

    assert in_fork(use) == 0
    text = os.read(read, 1000).decode()
    assert "not in this fork" in text
    assert "hint: " in text
    for end in (read, write):
        os.close(end)
    box = Box(device)
    send(device.ring(COMPUTE, 0), set_(box.va, 1))
    finish(device, box.va, 1)


def test_forked_child_can_open_a_device_of_its_own(driver: CpuDriver) -> None:
    parent = driver.open(0, None)

    def use() -> None:
        device = driver.open(0, None)
        box = Box(device)
        send(device.ring(COMPUTE, 0), set_(box.va, 1))
        finish(device, box.va, 1)
        device.close()

    assert in_fork(use) == 0
    parent.close()


SMALL = 64 << 10
"""The default stack of a thread in some C libraries and containers, in bytes."""


def deep(args: u64, x: u64, y: u64, z: u64) -> None:
    """Count, over almost 12 MiB of stack touched page by page from the top, as compiled code does."""
    bottom = stack(12578816)
    at = bottom + 12578816
    while at > bottom:
        at -= 4096
        store64(at, 1)
    slot = view(Slot, args)
    fetch_add(slot.value, load64(bottom))


def run_deep_kernels() -> None:
    """Set a small default stack, then run such kernels on a queue's thread and on workers."""
    attributes = (ctypes.c_uint64 * 16)()
    library = ctypes.CDLL(None)
    library.pthread_attr_init(attributes)
    assert not library.pthread_attr_setstacksize(attributes, ctypes.c_size_t(SMALL))
    assert not library.pthread_setattr_default_np(attributes)
    machine = os.uname().machine
    image = HostImage(compile_object(translate((deep,), machine)), machine)
    code = HostCode(LinuxKernel(), image, nothing_from_outside)
    with override(workers=2):
        device = CpuDriver().open(0, None)
    memory = device.alloc(4096, BufferSpec())
    assert memory.host is not None
    pushbuffer = PushBuffer(64, None)  # type: ignore[arg-type]  # these packets place nothing
    pushbuffer.words += layouts.Exec.pack(
        function=code.address["deep"], args=memory.va, x=200, y=1, z=1, group_ns=0
    )
    pushbuffer.words += layouts.SetSignal.pack(signal=memory.va + 64, value=1)
    device.ring(QueueKind.COMPUTE, 0).submit(pushbuffer)
    while not device.wait(memory.va + 64, 1, 0.005):
        pass
    print(memory.host.cast("Q")[0])  # noqa: T201 - read by the test
    device.close()


def test_kernels_have_their_stack_with_a_small_default_stack() -> None:
    text = "from tests.drivers.cpu.test_cpu_process import run_deep_kernels as run; run()"
    done = python("-c", text, status=None)
    assert (done.returncode, done.stdout) == (0, "200\n"), done.stderr


ALWAYS = 1 << 60
"""More spins, and more nanoseconds of sleep, than any test takes."""


def test_a_brief_sleep_makes_the_next_wait_spin_for_longer(device: CpuDevice) -> None:
    box, pool = Box(device), device.pool
    pool.spins, pool.often_ns = 0, ALWAYS
    assert not device.wait(box.va, 1, 0.0001)
    assert pool.brief == 1


def test_a_long_sleep_and_a_long_spin_in_vain_make_the_next_wait_short(device: CpuDevice) -> None:
    box, pool = Box(device), device.pool
    pool.spins, pool.often_ns = 0, 0
    assert not device.wait(box.va, 1, 0.0001)
    assert pool.brief == 0
    pool.brief, pool.long_spins, pool.often_ns, pool.device_cpu = 1, 1, ALWAYS, NO_CORE
    assert not device.wait(box.va, 1, 0.0001)
    assert pool.brief == 0


def test_a_long_spin_that_meets_its_signal_does_not_sleep(device: CpuDevice) -> None:
    box, pool = Box(device), device.pool
    pool.spins, pool.long_spins, pool.often_ns, pool.brief = 0, ALWAYS, 0, 1
    pool.host_cpu = pool.device_cpu = NO_CORE

    def set_it() -> None:
        until(lambda: pool.host_cpu != NO_CORE)  # the wait has begun
        box.words[0] = 1
        device.signal_written(box.va)

    setter = threading.Thread(target=set_it)
    setter.start()
    assert device.wait(box.va, 1, 0.0001)
    setter.join()
    assert pool.brief == 1  # any sleep would have made it 0


def test_no_wait_spins_for_longer_beside_a_shared_dispatch(device: CpuDevice) -> None:
    box, pool = Box(device), device.pool
    pool.spins, pool.long_spins, pool.brief, pool.shared = 0, ALWAYS, 1, 1
    pool.device_cpu = NO_CORE

    def end_it() -> None:
        try:
            until(lambda: pool.brief == 0)  # the wait has slept
        finally:
            box.words[0] = 1
            device.signal_written(box.va)

    ender = threading.Thread(target=end_it)
    ender.start()
    device.wait(box.va, 1, 0.0001)
    ender.join()
    assert pool.brief == 0
    pool.shared = 0


def test_a_shared_dispatch_is_counted_while_it_runs(device: CpuDevice, kernels: dict[str, int]) -> None:
    box, pool = Box(device), device.pool
    pool.workers = max(1, pool.workers)  # without one it would not be shared
    ring = device.ring(COMPUTE, 0)
    send(ring, exec_(kernels["spin"], box.va + 64, 2), set_(box.va, 1))
    until(lambda: pool.shared == 1)
    box.words[8] = 1
    finish(device, box.va, 1)
    rest(ring)
    assert pool.shared == 0


def test_fault_is_raised_by_the_wait_and_by_every_later_call() -> None:
    device = hcq.open("cpu", validate=False)
    pushbuffer = PushBuffer(64, NoArguments())
    pushbuffer.words += (0x4D, *layouts.Nop.pack()[1:])
    device.compute.ring.submit(pushbuffer)
    point = device.compute.submit(device.compute.record(label="behind it"))
    seen = []
    for refused in (
        lambda: point.wait(timeout_s=HANG_S),
        lambda: device.alloc(4096),
        lambda: device.compute.submit(device.compute.record()),
        device.sync,
    ):
        with pytest.raises(
            hcq.DeviceFault, match=r"(?s)bad packet.*unknown op 0x4d.*compute queue 0"
        ) as caught:
            refused()
        seen.append(caught.value.report)
    assert all(report is seen[0] for report in seen)
    assert not point.done()
    device.close()
    with hcq.open("cpu", validate=False) as again:
        again.compute.submit(again.compute.record()).wait(timeout_s=HANG_S)


def bad_packet() -> PushBuffer:
    pushbuffer = PushBuffer(64, NoArguments())
    pushbuffer.words += (0x4D, *layouts.Nop.pack()[1:])
    return pushbuffer


def test_a_device_continues_after_a_bad_packet() -> None:
    with hcq.open("cpu", validate=True) as device:
        kept, source = device.alloc(1 << 20), device.alloc(1 << 20)
        kept.host()[:] = b"k" * (1 << 20)
        gate = device.signal(host_set=True)
        held = device.copies[0].submit(device.copies[0].record().wait(gate, 1).copy(kept, source, 1 << 20))
        for _ in range(3):
            device.compute.ring.submit(bad_packet())
            behind = device.compute.submit(device.compute.record())
            with pytest.raises(hcq.DeviceFault, match="bad packet"):
                behind.wait(timeout_s=HANG_S)
            device.recover()
            gate.value = 1
            for queue in device.queues:
                queue.submit(queue.record().fill(source, 5)).wait(timeout_s=HANG_S)
            assert bytes(source.host()) == b"\5\0\0\0" * (1 << 18)
            for lost in (held, behind):
                with pytest.raises(hcq.DeviceFault, match="bad packet"):
                    lost.wait(timeout_s=HANG_S)
        assert bytes(kept.host()) == b"k" * (1 << 20), "what waited at the fault did not run afterwards"
