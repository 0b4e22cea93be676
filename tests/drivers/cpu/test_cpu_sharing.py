"""Shared memory of the cpu device when the kernel refuses it: typed errors, and no descriptor stays open."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

import pytest

import hcq
from drivers.cpu.driver import CpuDriver
from drivers.kernel import LinuxKernel, fail
from hcq.hostpool import file_size, memory_file
from hcq.registry import wrap

if TYPE_CHECKING:
    from drivers.kernel import Mapping


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
