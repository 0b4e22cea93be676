"""The cpu device: opening, closing, memory, devices beside it, and shared memory that the kernel refuses."""

from __future__ import annotations

import errno
import os
import time
from array import array
from typing import TYPE_CHECKING, Any

import pytest

import hcq
from drivers.cpu import layouts
from drivers.cpu.driver import CpuDriver
from drivers.kernel import LinuxKernel, fail, view_at
from hcq.config import override
from hcq.driver import BufferSpec
from hcq.errors import DriverError, OutOfMemoryError, UnsupportedError, UsageError
from hcq.hostpool import SIGNALS, file_size, memory_file
from hcq.registry import wrap
from tests.children import python
from tests.drivers.cpu.rig import COMPUTE, COPY, MIB, Box, exec_, finish, send, set_, until, wait_

if TYPE_CHECKING:
    from drivers.cpu.device import CpuDevice
    from drivers.kernel import Mapping


@pytest.mark.parametrize("what", ["idle", "waiting", "computing"])
def test_close_ends_at_once_whatever_the_queues_do(
    driver: CpuDriver, kernels: dict[str, int], what: str
) -> None:
    """The work takes minutes, and the waits never end."""
    device = driver.open(0, None)
    box, ring = Box(device), device.ring(COMPUTE, 0)
    if what == "waiting":
        for kind, index in ((COMPUTE, 0), (COMPUTE, 1), (COPY, 0)):
            send(device.ring(kind, index), wait_(box.va, 1))
        until(lambda: "waits for" in ring.stuck(), ring.stuck)
    elif what == "computing":
        launches = 16000
        body = Box(device, launches * layouts.PACKET)
        body.words[: 8 * launches] = array("Q", exec_(kernels["count"], box.va, 50, 50, 1) * launches)
        send(ring, *[layouts.Indirect.pack(packets=body.va, count=launches)] * 4000)
        until(lambda: box.words[0])
    device.close()
    device.close()
    assert device._state == "closed", "no thread was given up"
    with pytest.raises(UsageError, match="closed"):
        device.alloc(4096, BufferSpec())


@pytest.mark.slow
def test_kernel_that_never_ends_is_given_up_and_its_memory_leaked(
    driver: CpuDriver, kernels: dict[str, int]
) -> None:
    device = driver.open(0, None)
    allocation, ring = device.alloc(4096, BufferSpec()), device.ring(COMPUTE, 0)
    send(ring, exec_(kernels["spin"], allocation.va))
    until(lambda: "runs kernel" in ring.stuck(), ring.stuck)
    start = time.monotonic()
    device.close()
    assert time.monotonic() - start > 0.9
    assert device._state == "leaked"
    device.free(allocation)
    view_at(allocation.va, 8).cast("Q")[0] = 1  # still mapped; and the thread may go
    until(lambda: device.pool.left == len(device._threads))  # before the kernels' code does


@pytest.mark.slow
def test_a_running_kernel_postpones_recovery(driver: CpuDriver, kernels: dict[str, int]) -> None:
    device = driver.open(0, None)
    box, ring = Box(device), device.ring(COMPUTE, 0)
    send(ring, exec_(kernels["spin"], box.va), set_(box.va + 64, 1))
    until(lambda: "runs kernel" in ring.stuck(), ring.stuck)
    with pytest.raises(DriverError, match="runs kernel"):
        device.recover()
    box.words[0] = 1
    device.recover()
    for _ in range(2):
        send(ring, set_(box.va + 128, 1))
        finish(device, box.va + 128, 1)
        device.recover()
        box.words[16] = 0
    assert box.words[8] == 0, "what stood behind the kernel was lost"
    device.close()


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


def test_several_devices_divide_cores_and_memory(driver: CpuDriver) -> None:
    (whole,) = driver.enumerate()
    with override(cpu_devices=3):
        infos = driver.enumerate()
        assert [info.index for info in infos] == [0, 1, 2]
        assert {info.compute_units for info in infos} == {max(1, whole.compute_units // 3)}
        assert sum(info.vram_bytes for info in infos) <= whole.vram_bytes
        assert [info.driver for info in hcq.devices() if info.driver == "cpu"] == ["cpu"] * 3
        with pytest.raises(UsageError, match=r"there are 3 cpu devices and not cpu:3\n.*HCQ_CPU_DEVICES"):
            driver.open(3, None)


def test_peers_are_the_open_devices_whose_memory_is_seen() -> None:
    with override(cpu_devices=2), hcq.open("cpu:0") as first, hcq.open("cpu:1") as second:
        assert second.name == "cpu:1"
        assert second in first.peers
        assert first not in first.peers
        with hcq.open("amd-emu") as gpu:
            assert gpu not in first.peers
            assert first not in gpu.peers


def test_architecture_names_machine_and_processor(driver: CpuDriver) -> None:
    (info,) = driver.enumerate()
    machine, _, digest = info.arch.rpartition("-")
    assert machine == os.uname().machine
    assert len(bytes.fromhex(digest)) == 4


def test_memory_that_the_host_does_not_see_is_no_peer(device: CpuDevice) -> None:
    from hcq.driver import Allocation

    with pytest.raises(UnsupportedError, match="host_visible=True"):
        device.map_peer(Allocation(0x1000, 4096, None), device)
    device.map_peer(device.alloc(4096, BufferSpec()), device)


class ForeignDevice:
    """A device of another driver, for the signal pool."""

    def map_host(self, va: int, size: int) -> None: ...

    def unmap_host(self, va: int, size: int) -> None: ...

    def signal_written(self, va: int) -> None: ...


def look_for_foreign_devices() -> None:
    """Check `foreign` before, while and after a device of another driver is open."""
    driver, other = CpuDriver(), ForeignDevice()
    with hcq.open("cpu"):
        found = [driver.foreign(None)]
        SIGNALS.attach(other)
        found.append(driver.foreign(None))
        SIGNALS.detach(other)
        found.append(driver.foreign(None))
    print(found)  # noqa: T201 - read by the test


def test_waits_poll_only_while_a_device_of_another_kind_is_open() -> None:
    """Run in a separate process, because devices of other tests may be open in this one."""
    text = "from tests.drivers.cpu.test_cpu_device import look_for_foreign_devices as look; look()"
    done = python("-c", text, status=None)
    assert (done.returncode, done.stdout) == (0, "[False, True, False]\n"), done.stderr


class RefusingKernel(LinuxKernel):
    """A kernel that maps no file while `refuses` is set."""

    refuses = False

    def mmap(self, size: int, **options: Any) -> Mapping:
        """Map memory, or raise `OutOfMemoryError`."""
        if self.refuses and options.get("fd", -1) >= 0:
            fail("mmap", errno.ENOMEM, f"{size} bytes")
        return super().mmap(size, **options)


def descriptors() -> set[str]:
    """Return the open descriptors, without that of the call itself."""
    return {name for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")}  # noqa: PTH208, PTH110


def test_a_refused_mapping_leaves_no_descriptor_and_the_next_call_works() -> None:
    kernel = RefusingKernel()
    spec = hcq.BufferSpec(shared=True)
    with wrap(CpuDriver(kernel).open(0, None)) as device:
        fd = memory_file(8192)
        assert file_size(fd) == 8192
        before = descriptors()
        kernel.refuses = True
        with pytest.raises(hcq.OutOfMemoryError, match="ENOMEM"):
            device.alloc(100, spec)
        with pytest.raises(hcq.OutOfMemoryError, match="ENOMEM"):
            device.import_buffer(fd)
        assert descriptors() == before
        kernel.refuses = False
        with device.alloc(100, spec) as buffer, device.import_buffer(fd) as other:
            assert other.size == 8192
            assert buffer.size == 100
        device.sync()
        device.trim()
        assert descriptors() == before
        os.close(fd)


def test_a_file_that_may_shrink_is_refused() -> None:
    fd = os.memfd_create("unsealed")
    os.ftruncate(fd, 4096)
    with hcq.open("cpu") as device, pytest.raises(hcq.UsageError, match="no shared memory of hcq"):
        device.import_buffer(fd)
    os.close(fd)
