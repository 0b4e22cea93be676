"""The interface to Linux: mappings, errors, traces."""

from __future__ import annotations

import ctypes
import errno
import os
from typing import TYPE_CHECKING

import pytest

from drivers.kernel import (
    MAP_ANONYMOUS,
    MAP_FIXED,
    MAP_FIXED_NOREPLACE,
    MAP_PRIVATE,
    PAGE,
    PROT_NONE,
    PROT_READ,
    LinuxKernel,
    address_of,
    view_at,
)
from drivers.kernel_trace import TracedCall, traced
from hcq.errors import DriverError, OutOfMemoryError

if TYPE_CHECKING:
    from pathlib import Path

PLAIN = MAP_PRIVATE | MAP_ANONYMOUS


@pytest.fixture
def kernel() -> LinuxKernel:
    return LinuxKernel()


def test_mapped_memory_is_zeroed_writable_and_at_its_address(kernel: LinuxKernel) -> None:
    got = kernel.mmap(PAGE)
    assert bytes(got.view) == bytes(PAGE)
    got.view[5] = 7
    assert ctypes.string_at(got.va + 5, 1) == b"\x07"
    kernel.munmap(got.va, got.size)


def test_fixed_mapping_replaces_a_part_of_a_reservation(kernel: LinuxKernel) -> None:
    whole = kernel.mmap(4 * PAGE, prot=PROT_NONE)
    part = kernel.mmap(PAGE, va=whole.va + PAGE, flags=PLAIN | MAP_FIXED)
    assert part.va == whole.va + PAGE
    part.view[0] = 1
    kernel.munmap(whole.va, whole.size)


def test_fixed_mapping_that_must_not_replace_is_refused_where_something_is(kernel: LinuxKernel) -> None:
    whole = kernel.mmap(PAGE)
    with pytest.raises(DriverError, match="EEXIST") as caught:
        kernel.mmap(PAGE, va=whole.va, flags=PLAIN | MAP_FIXED_NOREPLACE)
    assert caught.value.call == "mmap"
    assert f"va {whole.va:#x}" in str(caught.value)
    kernel.munmap(whole.va, whole.size)


def test_memory_that_cannot_be_had_is_out_of_memory(kernel: LinuxKernel) -> None:
    with pytest.raises(OutOfMemoryError, match="0x10000000000001000 bytes"):
        kernel.mmap((1 << 64) + PAGE)  # not its low 64 bits, a page
    with pytest.raises(OutOfMemoryError, match="ENOMEM"):
        kernel.mmap(1 << 62)


def test_mapping_of_a_file_shares_its_bytes(kernel: LinuxKernel, tmp_path: Path) -> None:
    path = tmp_path / "device"
    path.write_bytes(bytes(PAGE))
    fd = kernel.open(str(path))
    mmio = kernel.mmio(fd, PAGE, 0)
    mmio.write32(4, 0x11223344)
    mmio.write64(8, 2**63)
    assert (mmio.read32(4), mmio.read64(8)) == (0x11223344, 2**63)
    mmio.close()
    assert kernel.read(fd, 8) == bytes.fromhex("0000000044332211")
    kernel.close(fd)


@pytest.mark.parametrize("offset", [-4, 2, 6])
def test_misaligned_register_is_refused(kernel: LinuxKernel, tmp_path: Path, offset: int) -> None:
    (tmp_path / "device").write_bytes(bytes(PAGE))
    fd = kernel.open(str(tmp_path / "device"))
    mmio = kernel.mmio(fd, PAGE, 0)
    with pytest.raises(ValueError, match="multiple of 4"):
        mmio.read32(offset)
    mmio.close()
    kernel.close(fd)


def test_absent_file_names_path_and_errno(kernel: LinuxKernel) -> None:
    with pytest.raises(DriverError, match=r"open failed with ENOENT.*/no/such") as caught:
        kernel.open("/no/such")
    assert caught.value.status == errno.ENOENT


def test_ioctl_changes_a_bytearray_in_place(kernel: LinuxKernel) -> None:
    ends = os.pipe()
    os.write(ends[1], b"12345")
    count = bytearray(4)
    fionread = 0x541B
    assert kernel.ioctl(ends[0], fionread, count) == 0
    assert int.from_bytes(count, "little") == 5
    for fd in ends:
        kernel.close(fd)


def test_refused_ioctl_names_request(kernel: LinuxKernel) -> None:
    fd = kernel.open("/dev/null")
    with pytest.raises(DriverError, match=r"ENOTTY.*request 0x1234"):
        kernel.ioctl(fd, 0x1234, bytearray(8))
    kernel.close(fd)


def test_poll_returns_readable_descriptors_or_none_in_time(kernel: LinuxKernel) -> None:
    ends = os.pipe()
    assert kernel.poll([ends[0]], 0.001) == []
    os.write(ends[1], b"x")
    assert kernel.poll([ends[0]], 1.0) == [ends[0]]
    for fd in ends:
        kernel.close(fd)


def test_protected_memory_is_listed_as_read_only(kernel: LinuxKernel) -> None:
    got = kernel.mmap(PAGE)
    kernel.mprotect(got.va, PAGE, PROT_READ)
    lines = kernel.read_file("/proc/self/maps").decode().splitlines()
    ranges = [(line.split()[0].split("-"), line) for line in lines]  # neighbours of one kind are one line
    assert any(int(lo, 16) <= got.va < int(hi, 16) and " r--p " in line for (lo, hi), line in ranges)
    kernel.munmap(got.va, got.size)


def test_fence_returns(kernel: LinuxKernel) -> None:
    kernel.fence()
    kernel.fence()


def test_address_and_view_are_each_others_inverse() -> None:
    memory = bytearray(b"abcdef")
    assert bytes(view_at(address_of(memory), 6)) == b"abcdef"


def test_a_trace_records_calls_results_and_failures() -> None:
    seen: list[TracedCall] = []
    kernel = traced(LinuxKernel(), seen.append)
    fd = kernel.open("/dev/null")
    with pytest.raises(DriverError):
        kernel.ioctl(fd, 0x1234, bytearray(b"\1\2"))
    kernel.close(fd)
    assert [call.name for call in seen] == ["open", "ioctl", "close"]
    assert seen[0].result == fd
    assert seen[1].before == b"\1\2"
    assert "0x1234" in str(seen[1])
    assert "ENOTTY" in str(seen[1])


def test_linux_reports_no_diagnostics_and_a_trace_passes_them_on() -> None:
    seen: list[TracedCall] = []
    assert LinuxKernel().diagnostics() == ()
    assert traced(LinuxKernel(), seen.append).diagnostics() == ()
    assert [call.name for call in seen] == ["diagnostics"]


def test_trace_sees_doorbells(tmp_path: Path) -> None:
    (tmp_path / "device").write_bytes(bytes(PAGE))
    seen: list[TracedCall] = []
    kernel = traced(LinuxKernel(), seen.append)
    fd = kernel.open(str(tmp_path / "device"))
    mmio = kernel.mmio(fd, PAGE, 0)
    mmio.write32(16, 3)
    mmio.close()
    kernel.close(fd)
    assert "write32(0x10, 0x3)" in str(seen[2])
