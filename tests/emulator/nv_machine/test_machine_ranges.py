"""Addresses that UVM manages: reservation, overlap, release, protections, windows, semaphore pools."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from drivers.kernel import MAP_FIXED, MAP_PRIVATE, MAP_SHARED, PROT_READ
from drivers.nv.layouts import rm, rm_classes
from drivers.nv.layouts.controls import Control
from drivers.nv.layouts.fault import RcCode
from drivers.nv.layouts.rm import Escape
from drivers.nv.layouts.rm_classes import RmClass
from drivers.nv.layouts.uvm import NvProcessorUuid, UvmCommand, UvmGpuMappingAttributes
from emulator.nv.machine import FindingKind
from tests.emulator.nv_machine.client import MIB, Client, sem, wait_word
from tests.emulator.nv_machine.refusals import invalid, refused

BASE = 0x3_0000_0000
WINDOW = 0x10_0000_0000
FIXED = MAP_SHARED | MAP_FIXED

Make = Callable[..., Client]


def make_range(client: Client, base: int = BASE, length: int = MIB) -> None:
    client.uvm_call(UvmCommand.UVM_CREATE_EXTERNAL_RANGE, base=base, length=length)


def pool(client: Client, base: int = BASE, length: int = 4096) -> None:
    one = (UvmGpuMappingAttributes(gpuUuid=client.uuid),)
    fields = {"base": base, "length": length, "perGpuAttributes": one, "gpuAttributesCount": 1}
    client.uvm_call(UvmCommand.UVM_ALLOC_SEMAPHORE_POOL, **fields)


def test_a_range_does_not_lie_where_uvm_is_mapped(up: Client) -> None:
    """nv.md 2.6: no overlap with a CPU mapping that UVM manages."""
    va = up.next_va
    up.next_va += MIB
    up.kernel.mmap(3 * 4096, fd=up.uvm_fd, va=va, offset=va, flags=FIXED)
    refused(0x68, make_range, up, va, 4096)
    refused(0x68, pool, up, va + 8192)
    ring = up.ring(up.group())
    up.compute_object(ring)
    refused(0x68, up.register_channel, ring, va - 64 * MIB + 4096)
    up.kernel.munmap(va + 4096, 4096)
    make_range(up, va + 4096, 4096)
    refused(0x68, make_range, up, va, 4096)
    refused(0x68, make_range, up, va + 8192, 4096)
    up.kernel.mmap(4096, va=va, flags=MAP_PRIVATE | MAP_FIXED | 0x20)
    make_range(up, va, 4096)


def test_uvm_is_not_mapped_where_a_range_lies(up: Client) -> None:
    va = up.next_va
    make_range(up, va, 8192)
    invalid(errno.EADDRINUSE, up.kernel.mmap, 4096, fd=up.uvm_fd, va=va, offset=va, flags=FIXED)


def test_uvm_is_mapped_shared_and_once_it_is_initialized(up: Client) -> None:
    va, fresh = up.next_va, up.kernel.open("/dev/nvidia-uvm")
    at = {"va": va, "offset": va}
    invalid(errno.EBADFD, up.kernel.mmap, 4096, fd=fresh, **at, flags=FIXED)
    invalid(errno.EINVAL, up.kernel.mmap, 4096, fd=up.uvm_fd, **at, flags=MAP_PRIVATE | MAP_FIXED)
    invalid(errno.EINVAL, up.kernel.mmap, 4096, fd=up.uvm_fd, **at, prot=PROT_READ, flags=FIXED)


def test_a_semaphore_pool_is_seen_by_the_cpu(up: Client) -> None:
    ring, memory = up.copy_channel(), up.memory(4096)
    va = up.next_va
    pool(up, va)
    shown = up.kernel.mmap(4096, fd=up.uvm_fd, va=va, offset=va, flags=FIXED)
    ring.push(sem(va, 5) + sem(memory.va, 1))
    wait_word(memory, 0, 1, up)
    assert shown.view[0] == 5
    one = (UvmGpuMappingAttributes(gpuUuid=up.uuid),)
    more = {"perGpuAttributes": one, "gpuAttributesCount": 1, "rmCtrlFd": up.ctl, "hClient": up.root}
    fields = {"base": va, "length": 4096, "hMemory": memory.handle} | more
    refused(0x1E, up.uvm_call, UvmCommand.UVM_MAP_EXTERNAL_ALLOCATION, **fields)
    refused(0x1E, up.uvm_call, UvmCommand.UVM_UNMAP_EXTERNAL, base=va, length=4096, gpuUuid=up.uuid)
    up.uvm_call(UvmCommand.UVM_FREE, base=va, length=4096)
    shown.view[0] = 6
    up.kernel.munmap(va, 4096)
    pool(up, va)


def test_several_mappings_of_a_range_are_unmapped_at_once(up: Client) -> None:
    make_range(up)
    handle = up.alloc(up.device, RmClass.NV01_MEMORY_LOCAL_USER, up.memory_params(MIB))
    for at in (0, 0x8000, 0x10000):
        up.map_gpu(handle, BASE + at, 0x8000, offset=at, create=False)
    unmap = UvmCommand.UVM_UNMAP_EXTERNAL
    refused(0x1E, up.uvm_call, unmap, base=BASE, length=0xC000, gpuUuid=up.uuid)
    refused(0x1E, up.uvm_call, unmap, base=BASE - 4096, length=0x9000, gpuUuid=up.uuid)
    refused(0x1E, up.uvm_call, unmap, base=BASE + 0x18000, length=4096, gpuUuid=up.uuid)
    refused(0x26, up.uvm_call, unmap, base=BASE, length=4096, gpuUuid=NvProcessorUuid(uuid=bytes(16)))
    up.uvm_call(unmap, base=BASE, length=0x10000, gpuUuid=up.uuid)
    up.map_gpu(handle, BASE, 0x10000, create=False)


def test_deinitialize_has_no_effect_of_its_own(up: Client) -> None:
    ring, memory = up.copy_channel(), up.memory(4096)
    up.kernel.ioctl(up.uvm_fd, UvmCommand.UVM_DEINITIALIZE, 0)
    ring.push(sem(memory.va, 1))
    wait_word(memory, 0, 1, up)


@pytest.mark.parametrize("filtered", [True, False])
def test_unknown_commands_are_invalid(make: Make, *, filtered: bool) -> None:
    up = make(filtered=filtered).nodes()
    for command in (74, 1234):
        invalid(errno.EINVAL, up.kernel.ioctl, up.uvm_fd, command, bytearray(32))


def test_a_copy_channels_window_is_ignored(up: Client) -> None:
    """nv.md 2.5: channels of copy engines have no context buffers."""
    ring = up.ring(up.group(rm_classes.copy_engine(2)))
    make_range(up)
    up.register_channel(ring, BASE + 1, 5)
    make_range(up, BASE + MIB)


@pytest.mark.parametrize("driver", ["580", "595"])
def test_a_window_is_free_again_after_its_last_channel(make: Make, driver: str) -> None:
    up = make(driver=driver).up()
    group = up.group()
    rings = [up.ring(group), up.ring(group)]
    for ring in rings:
        up.compute_object(ring)
        up.register_channel(ring)
    up.unregister(rings[0])
    refused(0x68, make_range, up, WINDOW, MIB)
    up.unregister(rings[1])
    make_range(up, WINDOW, MIB)


def test_channels_of_a_group_have_their_buffers_where_the_first_put_them(up: Client) -> None:
    """UVM maps the buffers of a channel group once, and unmaps them with the last of its channels."""
    group = up.group()
    rings = [up.ring(group), up.ring(group)]
    for ring in rings:
        up.compute_object(ring)
    other = WINDOW + 256 * MIB
    up.register_channel(rings[0], WINDOW)
    up.register_channel(rings[1], other, 4096)
    make_range(up, other, MIB)
    up.unregister(rings[0])
    refused(0x68, make_range, up, WINDOW, MIB)
    up.unregister(rings[1])
    make_range(up, WINDOW, MIB)


def test_a_window_is_shared_as_far_as_it_is_large_enough(up: Client) -> None:
    rings = [up.ring(up.group()) for _ in range(3)]
    for ring in rings:
        up.compute_object(ring)
    need = up.machine.gpus[0].profile.context_bytes
    length = 2 * need + 4096
    up.register_channel(rings[0], WINDOW, length)
    up.register_channel(rings[1], WINDOW, length)
    refused(0x1E, up.register_channel, rings[2], WINDOW, length)
    up.unregister(rings[0])
    up.register_channel(rings[2], WINDOW, length)


def test_an_unregistered_channel_does_not_run(up: Client) -> None:
    ring = up.compute_channel()
    up.unregister(ring)
    ring.push(sem(up.memory(4096).va, 1))
    assert ring.wait_error() == RcCode.PBDMA_ERROR
    assert "not scheduled" in up.reports()[0]


def test_channels_go_with_the_registration_of_their_address_space(up: Client) -> None:
    ring = up.compute_channel()
    up.uvm_call(UvmCommand.UVM_UNREGISTER_GPU_VASPACE, gpuUuid=up.uuid)
    refused(0x21, up.unregister, ring)
    up.register_space(up.vaspace)
    group = up.machine.channels[0].group
    schedule = Control.NVA06C_CTRL_CMD_GPFIFO_SCHEDULE
    refused(0x40, up.control, group.handle, schedule, bEnable=True)
    up.register_channel(ring)
    up.control(group.handle, schedule, bEnable=True)


def test_channels_of_two_clients_may_have_one_handle(up: Client) -> None:
    """Handles belong to a client: unregistering one client's channel does not affect another's."""
    ring = up.compute_channel()
    refused(0x21, up.unregister, ring, hClient=up.alloc(0, RmClass.NV01_ROOT_CLIENT))
    refused(0x21, up.unregister, ring, hClient=5)
    up.unregister(ring, gpuUuid=NvProcessorUuid(uuid=bytes(16)))  # the uuid of older branches is ignored


def test_the_second_descriptor_is_kept_open_on_a_bare_machine(make: Make) -> None:
    """nv.md 1.2: for the life of the process."""
    up = make(filtered=False).up()
    ring = up.compute_channel()
    up.kernel.close(up.uvm_fd2)
    assert ring.wait_error() == RcCode.RESET_CHANNEL
    assert up.kernel.reports[0].kind is FindingKind.LIFETIME


def test_a_sandbox_does_not_miss_the_second_descriptor(up: Client) -> None:
    ring, memory = up.compute_channel(), up.memory(4096)
    up.kernel.close(up.uvm_fd2)
    ring.push(sem(memory.va, 1))
    wait_word(memory, 0, 1, up)


def test_a_closed_descriptor_of_uvm_leaves_nothing_mapped(up: Client) -> None:
    ring, memory = up.copy_channel(), up.memory(4096)
    pool(up)
    up.kernel.close(up.uvm_fd)
    ring.push(sem(memory.va, 1))
    assert ring.wait_error() == RcCode.MMU_FAULT
    again = up.kernel.open("/dev/nvidia-uvm")
    up.uvm_call(UvmCommand.UVM_INITIALIZE, fd=again)
    refused(0x26, up.uvm_call, UvmCommand.UVM_UNREGISTER_GPU, fd=again, gpu_uuid=up.uuid)


def test_two_descriptors_of_uvm_manage_addresses_of_their_own(up: Client) -> None:
    make_range(up)
    other = up.kernel.open("/dev/nvidia-uvm")
    up.uvm_call(UvmCommand.UVM_INITIALIZE, fd=other)
    up.uvm_call(UvmCommand.UVM_CREATE_EXTERNAL_RANGE, fd=other, base=BASE, length=MIB)
    up.uvm_call(UvmCommand.UVM_REGISTER_GPU, fd=other, gpu_uuid=up.uuid, rmCtrlFd=-1)
    refused(0x26, up.register_space, up.vaspace, fd=other)


def test_a_gpu_is_registered_with_a_descriptor_of_the_frontend(make: Make) -> None:
    for filtered in (True, False):
        client = make(filtered=filtered).nodes().objects()
        client.uvm_call(UvmCommand.UVM_INITIALIZE)
        fields = {"gpu_uuid": NvProcessorUuid(uuid=client.machine.gpus[0].uuid), "rmCtrlFd": client.uvm_fd}
        if filtered:
            invalid(errno.EINVAL, client.uvm_call, UvmCommand.UVM_REGISTER_GPU, **fields)
        else:
            refused(0x1F, client.uvm_call, UvmCommand.UVM_REGISTER_GPU, **fields)


@pytest.mark.parametrize("page", [0x1000, 0x10000])
def test_a_mapping_a_page_short_is_named_when_it_is_made_accessed_and_freed(up: Client, page: int) -> None:
    ring = up.copy_channel()
    size = 0x40000
    handle = up.alloc(up.device, RmClass.NV01_MEMORY_LOCAL_USER, up.memory_params(size))
    up.map_gpu(handle, BASE, size - page)
    (report,) = up.machine.reports
    assert report.kind is FindingKind.ADVICE
    assert f"UVM_MAP_EXTERNAL_ALLOCATION at {BASE:#x} maps {size - page:#x} bytes of" in report.message
    assert f"the GPU has no address for the last {page:#x}" in report.message
    refused(0x1E, up.uvm_call, UvmCommand.UVM_FREE, base=BASE, length=size)
    assert f"with {size - page:#x} bytes, and UVM_FREE names {size:#x}" in up.machine.refusals[-1]
    ring.push(sem(BASE + size - page + 16, 1))
    assert ring.wait_error() == RcCode.MMU_FAULT
    text = up.machine.fatal[-1].message
    assert f"touches [{BASE + size - page + 16:#x}, " in text
    assert f"(mapped without its last {page:#x} bytes)" in text


def test_memory_that_is_mapped_in_pieces_is_right(up: Client) -> None:
    handle = up.alloc(up.device, RmClass.NV01_MEMORY_LOCAL_USER, up.memory_params(0x40000))
    make_range(up)
    for at in range(0, 0x40000, 0x10000):
        up.map_gpu(handle, BASE + at, 0x10000, offset=at, create=False)
    assert not up.machine.reports


def test_user_pages_cannot_be_mapped_by_the_kernel_and_should_lie_at_one_address(up: Client) -> None:
    pages = up.kernel.mmap(4096)
    flags = 1 << 30 | 1 << 12 | 1 << 4
    kind = rm.nv_ioctl_nvos02_parameters_with_fd
    fields = {
        "hRoot": up.root,
        "hObjectParent": up.device,
        "hClass": 0x71,
        "flags": flags,
        "pMemory": pages.va,
    }
    handles = []
    for more in ({}, {"hRoot": 5}, {"hObjectNew": up.device}):
        params = rm.NVOS02_PARAMETERS(**(fields | {"limit": 4095} | more))
        out = up.call(up.gpu, Escape.NV_ESC_RM_ALLOC_MEMORY, kind, params=params, fd=-1).params
        handles.append((out.hObjectNew, int(out.status)))
    assert [status for _, status in handles] == [0, 0x33, 0x33]
    refused(0x56, up.map_fd, up.device, handles[0][0], 4096, "/dev/nvidiactl")
    up.map_gpu(handles[0][0], 0x3_0000_0000, 4096)
    assert "make them equal" in up.reports()[0]


def test_protection_and_advice_pass_through(up: Client) -> None:
    pages = up.kernel.mmap(4096)
    up.kernel.mprotect(pages.va, 4096, 1)
    up.kernel.madvise(pages.va, 4096, 10)
    up.kernel.munmap(pages.va, 4096)
    va = up.next_va
    assert up.kernel.mmap(4096, fd=up.uvm_fd, va=va, offset=va, flags=MAP_SHARED | MAP_FIXED).va == va


def test_uvm_requires_its_order(make: Make) -> None:
    client = make().nodes().objects()
    client.uvm_call(UvmCommand.UVM_INITIALIZE)
    uuid = NvProcessorUuid(uuid=client.machine.gpus[0].uuid)
    client.uuid = uuid
    refused(0x1F, client.uvm_call, UvmCommand.UVM_REGISTER_GPU, gpu_uuid=uuid, rmCtrlFd=-1, hSmcPartRef=1)
    refused(0x26, client.uvm_call, UvmCommand.UVM_UNREGISTER_GPU_VASPACE, gpuUuid=uuid)
    handle = client.alloc(client.device, RmClass.NV01_MEMORY_LOCAL_USER, client.memory_params(4096))
    refused(0x26, client.map_gpu, handle, 0x3_0000_0000, 4096)
    from drivers.nv.layouts.uvm import UvmGpuMappingAttributes

    one = (UvmGpuMappingAttributes(gpuUuid=uuid),)
    fields = {"base": 0x4_0000_0000, "length": 4096, "perGpuAttributes": one, "gpuAttributesCount": 1}
    refused(0x26, client.uvm_call, UvmCommand.UVM_ALLOC_SEMAPHORE_POOL, **fields)
    client.kernel.close(client.gpu)  # UVM opens the GPU itself
    client.uvm_call(UvmCommand.UVM_REGISTER_GPU, gpu_uuid=uuid, rmCtrlFd=-1)


def test_windows_and_pools_do_not_overlap(up: Client) -> None:
    from drivers.nv.layouts.uvm import UvmGpuMappingAttributes

    ring = up.compute_channel()
    other = up.ring(up.group())
    up.compute_object(other)
    refused(0x68, up.register_channel, other, 0x10_0010_0000)
    refused(0x1E, up.register_channel, other)
    up.register_channel(other, 0x10_0400_0000)
    one = (UvmGpuMappingAttributes(gpuUuid=up.uuid),)
    fields = {"base": ring.memory.va, "length": 4096, "perGpuAttributes": one, "gpuAttributesCount": 1}
    refused(0x68, up.uvm_call, UvmCommand.UVM_ALLOC_SEMAPHORE_POOL, **fields)
    group = up.group(
        hVASpace=up.alloc(
            up.device, RmClass.FERMI_VASPACE_A, rm_classes.NV_VASPACE_ALLOCATION_PARAMETERS(flags=8)
        )
    )
    refused(0x1E, up.ring, group)
