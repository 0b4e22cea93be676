"""The processor and its rings, packet by packet, below the neutral model."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from array import array
from typing import TYPE_CHECKING

import pytest

from drivers.cpu import layouts
from drivers.cpu.device import RING_PACKETS, CpuDevice
from drivers.cpu.driver import CpuDriver
from drivers.cpu.image import Code, compile_object, nothing_from_outside
from drivers.cpu.layouts import Op, Slot
from drivers.cpu.link import HostImage
from drivers.cpu.native import translate
from drivers.cpu.primitives import acquire, fetch_add, pause, u64, view
from drivers.kernel import LinuxKernel, view_at
from hcq.config import override
from hcq.driver import BufferSpec, QueueKind
from hcq.errors import DeviceFault, FaultKind, OutOfMemoryError, UnsupportedError, UsageError
from hcq.hostpool import SIGNALS
from hcq.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drivers.cpu.device import CpuRing

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
    """Add a number that tells which workgroup ran."""
    slot = view(Slot, args)
    fetch_add(slot.value, x * 1000003 + y * 1009 + z)


KERNELS = (count, weigh, spin)


class NoArguments:
    """These streams place nothing."""

    def room(self, _stream: Stream, _size: int) -> None:
        raise AssertionError


@pytest.fixture(scope="module")
def driver() -> CpuDriver:
    return CpuDriver()


@pytest.fixture(scope="module")
def kernels() -> Iterator[dict[str, int]]:
    machine = os.uname().machine
    image = HostImage(compile_object(translate(KERNELS, machine)), machine)
    code = Code(LinuxKernel(), image, nothing_from_outside)
    yield code.address
    code.close()


@pytest.fixture
def device(driver: CpuDriver) -> Iterator[CpuDevice]:
    device = driver.open(0, None)
    yield device
    device.close()


class Box:
    """Shared memory as u64 words, and its address."""

    def __init__(self, device: CpuDevice, size: int = 4096) -> None:
        allocation = device.alloc(size, BufferSpec())
        assert allocation.host is not None
        self.va, self.bytes, self.words = allocation.va, allocation.host, allocation.host.cast("Q")


def send(ring: CpuRing, *packets: Words) -> None:
    stream = Stream(64, NoArguments())
    for packet in packets:
        stream.words += packet
    ring.submit(stream)


def finish(device: CpuDevice, va: int, value: int, timeout_s: float = 10.0) -> None:
    end = time.monotonic() + timeout_s
    while not device.wait(va, value, 0.005):
        assert time.monotonic() < end, [ring.stuck() for ring in device._rings.values()]


def exec_(function: int, args: int, *grid: int, ns: int = 0) -> Words:
    x, y, z = (*grid, 1, 1, 1)[:3]
    return layouts.Exec.pack(function=function, args=args, x=x, y=y, z=z, group_ns=ns)


def set_(va: int, value: int) -> Words:
    return layouts.SetSignal.pack(signal=va, value=value)


def wait_(va: int, value: int, foreign: int = 0) -> Words:
    return layouts.Wait.pack(signal=va, value=value, foreign=foreign)


def test_copy_fill_write_and_timestamp_do_what_they_say(device: CpuDevice) -> None:
    box, ring = Box(device), device.ring(COPY, 0)
    source = box.va + 1024
    before = time.monotonic_ns()
    send(
        ring,
        layouts.Fill.pack(dst=source, pattern=0xDEADBEEF, size=30),
        layouts.Copy.pack(dst=source + 64, src=source, size=40),
        layouts.Write.pack(dst=source + 128, value=0x1122334455667788, width=8),
        layouts.Write.pack(dst=source + 136, value=0x1122334455667788, width=4),
        layouts.Timestamp.pack(at=box.va + 8),
        layouts.Nop.pack(),
        layouts.Barrier.pack(),
        set_(box.va, 1),
    )
    finish(device, box.va, 1)
    wanted = (b"\xef\xbe\xad\xde" * 8)[:30]
    assert bytes(box.bytes[1024:1064]) == wanted + bytes(10)
    assert bytes(box.bytes[1088:1128]) == wanted + bytes(10)
    assert bytes(box.bytes[1152:1168]) == bytes.fromhex("887766554433221188776655") + bytes(4)
    assert before <= box.words[1] <= time.monotonic_ns()


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 63, 65536, 65537, 200_001])
def test_fill_of_any_size_stays_inside(device: CpuDevice, size: int) -> None:
    box, data = Box(device), Box(device, 1 << 18)
    send(
        device.ring(COMPUTE, 0),
        layouts.Fill.pack(dst=data.va + 4, pattern=0x04030201, size=size),
        set_(box.va, 1),
    )
    finish(device, box.va, 1)
    assert bytes(data.bytes[: size + 12]) == bytes(4) + (b"\1\2\3\4" * (size // 4 + 1))[:size] + bytes(8)


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_large_copy_shared_with_workers_is_whole(driver: CpuDriver, workers: int) -> None:
    with override(workers=workers):
        device = driver.open(0, None)
    size = 9 * MIB + 12345
    box, source, target = Box(device), Box(device, size), Box(device, size + 8)
    source.bytes[:size] = random.Random(1).randbytes(size)
    send(
        device.ring(COPY, 0),
        layouts.Copy.pack(dst=target.va, src=source.va, size=size),
        set_(box.va, 1),
    )
    finish(device, box.va, 1)
    assert target.bytes[:size] == source.bytes[:size]
    assert bytes(target.bytes[size : size + 8]) == bytes(8)
    device.close()


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_every_workgroup_runs_once(driver: CpuDriver, kernels: dict[str, int], workers: int) -> None:
    """Random grids on two queues at once, small and shared ones mixed."""
    with override(workers=workers):
        device = driver.open(0, None)
    box, chance = Box(device), random.Random(workers)
    wanted = [0, 0]
    for k in range(1, 400):
        for q in range(2):
            x, y, z = (chance.randrange(1, 9) for _ in range(3))
            wanted[q] += sum(
                gx * 1000003 + gy * 1009 + gz for gx in range(x) for gy in range(y) for gz in range(z)
            )
            ns = chance.choice((0, 1, 100))
            send(
                device.ring(COMPUTE, q),
                exec_(kernels["weigh"], box.va + 64 + 64 * q, x, y, z, ns=ns),
                set_(box.va + 512 + 64 * q, k),
            )
    for q in range(2):
        finish(device, box.va + 512 + 64 * q, 399)
    assert [box.words[8], box.words[16]] == wanted
    device.close()


def test_empty_grid_runs_nothing(device: CpuDevice, kernels: dict[str, int]) -> None:
    box = Box(device)
    grids = [(0, 1, 1), (5, 0, 1), (5, 5, 0)]
    send(device.ring(COMPUTE, 0), *(exec_(kernels["count"], box.va + 64, *g) for g in grids), set_(box.va, 1))
    finish(device, box.va, 1)
    assert box.words[8] == 0


def test_three_queues_wait_for_each_other_in_a_ring(device: CpuDevice, kernels: dict[str, int]) -> None:
    box, turns = Box(device), 700
    rings = [device.ring(COMPUTE, 0), device.ring(COMPUTE, 1), device.ring(COPY, 0)]
    signals = [box.va + 64 * (i + 1) for i in range(3)]
    for k in range(turns):
        for q, ring in enumerate(rings):
            before = (q - 1) % 3
            send(
                ring,
                wait_(signals[before], k + (before < q)),
                exec_(kernels["count"], box.va),
                set_(signals[q], k + 1),
            )
    finish(device, signals[2], turns)
    assert box.words[0] == 3 * turns


def test_waiting_queue_blocks_only_itself_and_the_host_can_free_it(device: CpuDevice) -> None:
    box = Box(device)
    gate, first, second = box.va + 64, box.va + 128, box.va + 192
    send(device.ring(COMPUTE, 0), wait_(gate, 7), set_(first, 1))
    send(device.ring(COMPUTE, 1), set_(second, 1))
    finish(device, second, 1)
    time.sleep(0.02)
    assert box.words[16] == 0
    assert f"{gate:#x} to reach 7, it is 0" in device.ring(COMPUTE, 0).stuck()
    box.words[8] = 7
    device.signal_written(gate)
    finish(device, first, 1)
    assert device.ring(COMPUTE, 0).stuck() == ""


def test_two_devices_wake_each_other(driver: CpuDriver) -> None:
    one, other = driver.open(0, None), driver.open(0, None)
    box, turns = Box(one), 300
    ping, pong = box.va, box.va + 64
    for k in range(1, turns + 1):
        send(one.ring(COMPUTE, 0), wait_(pong, k - 1), set_(ping, k))
        send(other.ring(COMPUTE, 0), wait_(ping, k), set_(pong, k))
    finish(one, pong, turns)
    one.close()
    other.close()


def test_foreign_signal_that_nobody_wakes_for_is_seen(device: CpuDevice) -> None:
    """A device of another kind stores without a system call."""
    box = Box(device)
    send(device.ring(COMPUTE, 0), wait_(box.va, 5, foreign=1), set_(box.va + 64, 1))
    time.sleep(0.02)
    box.words[0] = 5
    finish(device, box.va + 64, 1, timeout_s=1.0)


def test_indirect_runs_prebuilt_packets_in_place(device: CpuDevice, kernels: dict[str, int]) -> None:
    box, body = Box(device), Box(device)
    packets = [exec_(kernels["count"], box.va + 64) for _ in range(50)]
    body.words[: 8 * 50] = array("Q", [word for packet in packets for word in packet])
    for k in range(1, 4):
        send(
            device.ring(COMPUTE, 0),
            layouts.Indirect.pack(packets=body.va, count=50),
            set_(box.va, k),
        )
        finish(device, box.va, k)
        assert box.words[8] == 50 * k


def test_patch_writes_values_to_the_places_of_its_plan(device: CpuDevice) -> None:
    box = Box(device)
    values, plan, targets = box.va + 512, box.va + 1024, box.va + 2048
    box.words[64:68] = array("Q", [11, 22, 33, 44])
    pairs = [(targets, 3), (targets + 8, 0), (targets + 100, 2)]
    box.words[128:134] = array("Q", [word for pair in pairs for word in pair])
    send(
        device.ring(COMPUTE, 0),
        layouts.Patch.pack(values=values, plan=plan, count=3),
        set_(box.va, 1),
    )
    finish(device, box.va, 1)
    assert box.words[256:258].tolist() == [44, 11]
    assert bytes(box.bytes[2148:2156]) == (33).to_bytes(8, "little")


BAD: dict[str, tuple[Words, str]] = {
    "unknown op": ((77, 1, 2, 3, 4, 5, 6, 7), "unknown op 0x4d"),
    "stray bits beside an op": ((1 << 32 | Op.NOP, 0, 0, 0, 0, 0, 0, 0), "unknown op 0x100000000"),
    "width": (layouts.Write.pack(dst=0, value=0, width=3), "neither 4 nor 8"),
}


@pytest.mark.parametrize("name", BAD)
def test_packet_that_makes_no_sense_stops_the_device_and_is_told(device: CpuDevice, name: str) -> None:
    packet, text = BAD[name]
    box = Box(device)
    send(device.ring(COMPUTE, 1), set_(box.va, 1), packet, set_(box.va, 2))
    finish(device, box.va, 1)
    end = time.monotonic() + 5
    while (report := device.fault()) is None:
        assert time.monotonic() < end
    assert report.kind is FaultKind.BAD_PACKET
    assert text in report.message
    assert report.queue == "compute queue 1"
    send(device.ring(COMPUTE, 0), set_(box.va + 64, 1))
    time.sleep(0.02)
    assert (box.words[0], box.words[8]) == (1, 0), "nothing may run after a fault"
    assert device.fault() is report


def test_nested_indirect_is_refused(device: CpuDevice) -> None:
    body = Box(device)
    body.words[:8] = array("Q", layouts.Indirect.pack(packets=body.va, count=1))
    send(device.ring(COMPUTE, 0), layouts.Indirect.pack(packets=body.va, count=1))
    end = time.monotonic() + 5
    while (report := device.fault()) is None:
        assert time.monotonic() < end
    assert "INDIRECT" in report.message


def test_full_ring_sleeps_until_there_is_room(device: CpuDevice) -> None:
    box, ring = Box(device), device.ring(COMPUTE, 0)
    gate, done = box.va + 64, box.va + 128
    opened: list[int] = []

    def open_gate() -> None:
        time.sleep(0.3)
        opened.append(time.monotonic_ns())
        box.words[8] = 1
        device.signal_written(gate)

    send(ring, wait_(gate, 1))
    opener = threading.Thread(target=open_gate)
    opener.start()
    cpu = time.thread_time()
    for k in range(1, 3 * RING_PACKETS + 1):
        send(ring, set_(done, k))
        if k == RING_PACKETS:
            assert opened, "the ring held more than it can"
            cpu = time.thread_time() - cpu
    finish(device, done, 3 * RING_PACKETS)
    opener.join()
    assert cpu < 0.2, "a full ring must sleep"


def test_stream_larger_than_the_ring_is_refused(device: CpuDevice) -> None:
    with pytest.raises(UsageError, match="do not fit the ring"):
        send(device.ring(COMPUTE, 0), *[layouts.Nop.pack()] * (RING_PACKETS + 1))


def test_full_ring_of_a_faulted_device_raises_its_fault(device: CpuDevice) -> None:
    ring = device.ring(COMPUTE, 0)
    send(ring, (77, *[0] * 7))
    send(ring, *[layouts.Nop.pack()] * (RING_PACKETS - 1))
    with pytest.raises(DeviceFault, match="unknown op"):
        send(ring, layouts.Nop.pack())


def test_word_that_does_not_fit_is_refused(device: CpuDevice) -> None:
    with pytest.raises(UsageError, match="64 bits"):
        send(device.ring(COMPUTE, 0), (Op.NOP, 1 << 64, 0, 0, 0, 0, 0, 0))


@pytest.mark.parametrize("what", ["idle", "waiting", "computing"])
def test_close_is_quick_whatever_the_queues_do(driver: CpuDriver, kernels: dict[str, int], what: str) -> None:
    device = driver.open(0, None)
    box = Box(device)
    if what == "waiting":
        for kind, index in ((COMPUTE, 0), (COMPUTE, 1), (COPY, 0)):
            send(device.ring(kind, index), wait_(box.va, 1))
    elif what == "computing":
        send(device.ring(COMPUTE, 0), *[exec_(kernels["count"], box.va, 50, 50, 1)] * 4000)
    time.sleep(0.01)
    start = time.monotonic()
    device.close()
    device.close()
    assert time.monotonic() - start < 0.5
    with pytest.raises(UsageError, match="closed"):
        device.alloc(4096, BufferSpec())


def test_kernel_that_never_ends_is_given_up_and_its_memory_leaked(
    driver: CpuDriver, kernels: dict[str, int]
) -> None:
    device = driver.open(0, None)
    allocation = device.alloc(4096, BufferSpec())
    send(device.ring(COMPUTE, 0), exec_(kernels["spin"], allocation.va))
    time.sleep(0.02)
    assert "runs kernel" in device.ring(COMPUTE, 0).stuck()
    start = time.monotonic()
    device.close()
    assert 0.9 < time.monotonic() - start < 3.0
    device.free(allocation)
    view_at(allocation.va, 8).cast("Q")[0] = 1  # still mapped; and the thread may go


def test_closed_device_s_control_memory_is_used_again(driver: CpuDriver) -> None:
    first = driver.open(0, None)
    va = first.pool.va
    first.close()
    second = driver.open(0, None)
    assert second.pool.va == va
    box = Box(second)
    send(second.ring(COMPUTE, 0), set_(box.va, 1))
    finish(second, box.va, 1)
    second.close()


def test_allocation_is_zeroed_aligned_and_bounded(device: CpuDevice) -> None:
    for size, align in ((1, 256), (5000, 1 << 16), (5 * MIB, 256), (4096, 2 * MIB)):
        got = device.alloc(size, BufferSpec(align=align))
        assert got.va % align == 0
        assert got.size >= size
        assert got.host is not None
        assert bytes(got.host) == bytes(got.size)
        device.free(got)
    with pytest.raises(OutOfMemoryError, match="this process may use"):
        device.alloc(1 << 50, BufferSpec())


def test_freed_memory_can_be_allocated_again(device: CpuDevice) -> None:
    half = (device.info.vram_bytes // 2 + 4096) & -4096
    for _ in range(3):
        device.free(device.alloc(half, BufferSpec()))


def test_only_the_one_device_can_be_opened(driver: CpuDriver) -> None:
    for index, variant in ((1, None), (0, "fast")):
        with pytest.raises(UsageError, match="one cpu device"):
            driver.open(index, variant)


def test_architecture_names_machine_and_processor(driver: CpuDriver) -> None:
    (info,) = driver.enumerate()
    machine, _, digest = info.arch.rpartition("-")
    assert machine == os.uname().machine
    assert len(bytes.fromhex(digest)) == 4


def test_idle_device_uses_no_cpu(device: CpuDevice, kernels: dict[str, int]) -> None:
    box = Box(device)
    send(device.ring(COMPUTE, 1), wait_(box.va, 1))
    send(device.ring(COMPUTE, 0), exec_(kernels["count"], box.va + 64, 1000), set_(box.va + 128, 1))
    finish(device, box.va + 128, 1)
    time.sleep(0.05)
    before = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - before < 0.005


def test_long_kernel_lets_other_python_threads_run(device: CpuDevice, kernels: dict[str, int]) -> None:
    box = Box(device)
    send(device.ring(COMPUTE, 0), exec_(kernels["spin"], box.va + 64), set_(box.va, 1))
    ticks: list[float] = []

    def tick() -> None:
        for _ in range(50):
            ticks.append(time.monotonic())
            time.sleep(0.001)
        box.words[8] = 1

    thread = threading.Thread(target=tick)
    thread.start()
    finish(device, box.va, 1)
    thread.join()
    assert len(ticks) == 50


def test_fork_is_refused_in_words(device: CpuDevice) -> None:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            device.alloc(4096, BufferSpec())
            text = "nothing was refused"
        except UsageError as error:
            text = str(error)
        device.close()
        os.write(write, text.encode())
        os._exit(0)
    os.waitpid(child, 0)
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
    child = os.fork()
    if child == 0:
        try:
            device = driver.open(0, None)
            box = Box(device)
            send(device.ring(COMPUTE, 0), set_(box.va, 1))
            finish(device, box.va, 1)
            device.close()
        except BaseException:  # noqa: BLE001 - the child must not run the parent's tests
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    parent.close()


def test_exit_without_close_is_clean_while_queues_are_busy() -> None:
    text = (
        "from drivers.cpu import DRIVER, layouts\n"
        "from hcq.driver import QueueKind, BufferSpec\n"
        "from hcq.stream import Stream\n"
        "d = DRIVER.open(0, None)\n"
        "a = d.alloc(1 << 24, BufferSpec())\n"
        "s = Stream(64, None)\n"
        "s.words += layouts.Copy.pack(dst=a.va, src=a.va + (1 << 23), size=1 << 23) * 2000\n"
        "d.ring(QueueKind.COMPUTE, 0).submit(s)\n"
        "s.words[:] = layouts.Wait.pack(signal=a.va, value=1)\n"
        "d.ring(QueueKind.COMPUTE, 1).submit(s)\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_ctrl_c_ends_a_wait_at_once() -> None:
    text = (
        "import time\n"
        "from drivers.cpu import DRIVER\n"
        "from hcq.driver import BufferSpec\n"
        "d = DRIVER.open(0, None)\n"
        "a = d.alloc(4096, BufferSpec())\n"
        "print('ready', flush=True)\n"
        "try:\n"
        "    while True: d.wait(a.va, 1, 1.0)\n"
        "except KeyboardInterrupt:\n"
        "    d.close()\n"
        "    print('interrupted', flush=True)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    time.sleep(0.05)
    start = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=10)[0] == b"interrupted\n"
    assert time.monotonic() - start < 1.0


def test_sixteen_threads_open_use_and_close(driver: CpuDriver, kernels: dict[str, int]) -> None:
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for turn in range(3):
                device = driver.open(0, None)
                box = Box(device)
                for k in range(1, 20):
                    send(
                        device.ring(COMPUTE, (seed + turn) % 2),
                        exec_(kernels["count"], box.va + 64, 1 + k % 3),
                        set_(box.va, k),
                    )
                finish(device, box.va, 19)
                assert box.words[8] == sum(1 + k % 3 for k in range(1, 20))
                device.close()
        except BaseException as error:  # noqa: BLE001 - shown below
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_memory_that_the_host_does_not_see_is_no_peer(device: CpuDevice) -> None:
    from hcq.driver import Allocation

    with pytest.raises(UnsupportedError, match="host_visible=True"):
        device.map_peer(Allocation(0x1000, 4096, None), device)
    device.map_peer(device.alloc(4096, BufferSpec()), device)


class ForeignDevice:
    """A device of another kind, as far as the signal pool knows it."""

    def map_host(self, va: int, size: int) -> None: ...

    def unmap_host(self, va: int, size: int) -> None: ...

    def signal_written(self, va: int) -> None: ...


def test_waits_look_often_only_while_a_device_of_another_kind_is_open(driver: CpuDriver) -> None:
    assert not driver.foreign(None)
    other = ForeignDevice()
    SIGNALS.attach(other)
    try:
        assert driver.foreign(None)
    finally:
        SIGNALS.detach(other)
    assert not driver.foreign(None)
