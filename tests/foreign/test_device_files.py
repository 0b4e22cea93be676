"""A driver that makes its own system calls reaches the emulated kernels through `DeviceFiles`."""

import ctypes
import errno
import os
import struct
from pathlib import Path

import pytest

from drivers.kernel import MAP_ANONYMOUS, MAP_PRIVATE, PROT_READ, PROT_WRITE
from emulator.devices import AMD, NV
from emulator.shared.device_files import DeviceFiles

GET_VERSION = 0x80084B01
"""AMDKFD_IOC_GET_VERSION of include/uapi/linux/kfd_ioctl.h."""


@pytest.fixture
def files():
    found = DeviceFiles(AMD.make_kernel("gfx1100"))
    yield found
    found.close_all()


def test_an_ioctl_changes_its_argument_in_place(files: DeviceFiles):
    argument = ctypes.create_string_buffer(8)
    kfd = files.open("/dev/kfd")
    assert files.ioctl(kfd, GET_VERSION, ctypes.addressof(argument)) == 0
    major, minor = struct.unpack("<II", argument.raw)
    assert (major, minor) >= (1, 14)


def test_a_refusal_has_the_errno_of_linux_and_the_reason(files: DeviceFiles):
    kfd = files.open("/dev/kfd")
    with pytest.raises(OSError, match="cannot be read") as told:
        files.ioctl(kfd, GET_VERSION, 0)
    assert told.value.errno == errno.EFAULT


def test_other_paths_and_descriptors_are_linux(files: DeviceFiles, tmp_path: Path):
    path = tmp_path / "text"
    path.write_text("mine")
    fd = files.open(str(path), os.O_RDONLY)
    assert files.read(fd, 9) == b"mine"
    files.close(fd)
    with pytest.raises(OSError, match="EBADF"):
        files.read(fd, 9)


def test_memory_is_no_register(files: DeviceFiles):
    at = files.mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
    ctypes.memset(at, 1, 4096)
    assert files.registers(at) is None
    files.munmap(at, 4096)


def test_nvidia_nodes_open_and_list():
    files = DeviceFiles(NV.make_kernel("sm_86+native"))
    files.open("/dev/nvidiactl")
    assert b"NVRM version" in files.read_file("/proc/driver/nvidia/version")
    files.close_all()
