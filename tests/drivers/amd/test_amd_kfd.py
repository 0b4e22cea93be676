"""Typed calls of KFD: what they carry, and what a call that fails in the middle leaves."""

from __future__ import annotations

import contextlib
import errno
from dataclasses import replace

import pytest

from drivers.amd.driver import AmdDriver
from drivers.amd.kfd import Kfd
from drivers.amd.layouts import kfd as layouts
from drivers.amd.layouts.kfd import MemFlags, MemKind
from drivers.amd.refusals import refused
from drivers.kernel import view_at
from hcq.errors import DriverError, OutOfMemoryError, UnsupportedError
from tests.drivers.amd.opened import emulated, opened

PAIR = ("gfx1100", "gfx1100")


def test_a_map_that_fails_in_the_middle_is_undone():
    kernel = emulated(*PAIR, peers=False)
    with contextlib.closing(opened(kernel)) as device:
        mine, other = (gpu.gpu_id for gpu in kernel.machine.gpus)
        memory = device.memories.vram(4096, label="a page")
        buffer = kernel.process.buffer(memory.handle, errno.EINVAL)
        device.process.kfd.unmap(memory.handle, (mine,))
        with pytest.raises(DriverError, match=r"MAP_MEMORY_TO_GPU.*n_success=1"):
            device.process.kfd.map(memory.handle, (mine, other))
        assert not buffer.mapped
        device.process.kfd.map(memory.handle, (mine,))


@pytest.mark.parametrize("minor", [11, 16, 17])
def test_a_queue_is_created_with_the_structure_of_the_version(minor: int):
    kernel = emulated()
    kernel.after["GET_VERSION"] = lambda block: layouts.kfd_ioctl_get_version_args.store(
        block, major_version=1, minor_version=minor
    )
    sizes: list[int] = []
    kernel.after["CREATE_QUEUE"] = lambda block: sizes.append(len(block))
    opened(kernel).close()
    old = (1, minor) < layouts.GATES["SDMA_BY_ENG_ID"]
    layout = layouts.kfd_ioctl_create_queue_args_1_11 if old else layouts.kfd_ioctl_create_queue_args
    assert sizes == [layout.SIZE]


def test_every_kind_of_memory_carries_the_flags_of_its_kind():
    kernel = emulated()
    with contextlib.closing(opened(kernel)) as device:
        device.memories.vram(4096, label="a")
        device.memories.vram(4096, label="b", host_visible=True)
        device.memories.system(4096, label="c")
        seen = {int(one.flags) for one in kernel.machine.gpus[0].handles.values()}
        assert seen == {int(MemKind.VRAM), int(MemKind.VISIBLE_VRAM), int(MemKind.SYSTEM)}
        assert int(MemKind.VRAM) & int(MemFlags.PUBLIC) == 0


def test_large_memory_is_aligned_for_large_pages():
    kernel = emulated()
    with contextlib.closing(opened(kernel)) as device:
        large, small = device.memories.vram(3 << 20, label="large"), device.memories.vram(5000, label="small")
        assert (large.va % (2 << 20), large.size) == (0, 3 << 20)
        assert (small.va % 4096, small.size) == (0, 8192)


def test_a_gpu_that_does_not_reach_the_addresses_of_a_process_is_refused():
    def narrow(block: bytearray) -> None:
        asked = layouts.kfd_ioctl_get_process_apertures_new_args.from_bytes(block)
        if asked.num_of_nodes and asked.kfd_process_device_apertures_ptr:
            row = layouts.kfd_process_device_apertures
            row.store(view_at(asked.kfd_process_device_apertures_ptr, row.SIZE), gpuvm_limit=(1 << 38) - 1)

    kernel = emulated()
    kernel.after["GET_PROCESS_APERTURES_NEW"] = narrow
    with pytest.raises(UnsupportedError, match=r"amdgpu\.vm_size"):
        opened(kernel)
    assert kernel.held() == {}


def test_a_gpu_without_a_render_node_is_refused_with_its_cure():
    with contextlib.closing(opened(emulated())) as device:
        bare = replace(device.gpu, gpu_id=device.gpu.gpu_id + 1, properties={})
        with pytest.raises(UnsupportedError, match=r"has no render node(?s:.*)the module amdgpu must own"):
            device.process.acquire(bare)


def test_errors_keep_their_class_and_number():
    error = refused(
        layouts.Call.ALLOC_MEMORY_OF_GPU, OutOfMemoryError("ioctl", errno.ENOMEM, "ENOMEM"), "size=1"
    )
    assert isinstance(error, OutOfMemoryError)
    assert (error.status, error.arguments) == (errno.ENOMEM, "size=1")
    unknown = refused(layouts.Call.SVM, DriverError("ioctl", 99, "E99", hint="as told"), "")
    assert unknown.hint == "as told"


def test_the_descriptor_is_closed_when_the_version_cannot_be_asked_for():
    kernel = emulated(table={"GET_VERSION": errno.ENOTTY})
    with pytest.raises(DriverError, match="GET_VERSION"):
        Kfd(kernel)
    assert kernel.held() == {}


def test_a_forked_child_starts_anew():
    kernel = emulated()
    driver = AmdDriver("amd", lambda _: kernel)
    with contextlib.closing(driver.open(0, None)):
        pass
    driver._owner -= 1  # as if this were the child
    kernel.process.end()
    with contextlib.closing(driver.open(0, None)):
        assert kernel.calls.count("open /dev/kfd") == 2
    driver.close()
