"""Pinned pages, protections, the order of UVM calls, windows and semaphore pools."""

from __future__ import annotations

from collections.abc import Callable

from drivers.kernel import MAP_FIXED, MAP_SHARED
from drivers.nv.layouts import rm, rm_classes
from drivers.nv.layouts.rm import Escape
from drivers.nv.layouts.rm_classes import RmClass
from drivers.nv.layouts.uvm import NvProcessorUuid, UvmCommand
from tests.emulator.nv_machine.client import Client
from tests.emulator.nv_machine.refusals import refused

Make = Callable[..., Client]


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
        block = bytearray(kind(params=params, fd=-1).to_bytes())
        up.escape(up.gpu, Escape.NV_ESC_RM_ALLOC_MEMORY, block)
        out = kind.from_bytes(block).params
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
    uuid = NvProcessorUuid(uuid=client.machine.uuid)
    client.uuid = uuid
    refused(0x1F, client.uvm_call, UvmCommand.UVM_REGISTER_GPU, gpu_uuid=uuid, rmCtrlFd=-1, hSmcPartRef=1)
    refused(0x40, client.uvm_call, UvmCommand.UVM_UNREGISTER_GPU_VASPACE, gpuUuid=uuid)
    handle = client.alloc(client.device, RmClass.NV01_MEMORY_LOCAL_USER, client.memory_params(4096))
    refused(0x40, client.map_gpu, handle, 0x3_0000_0000, 4096)
    from drivers.nv.layouts.uvm import UvmGpuMappingAttributes

    one = (UvmGpuMappingAttributes(gpuUuid=uuid),)
    fields = {"base": 0x4_0000_0000, "length": 4096, "perGpuAttributes": one, "gpuAttributesCount": 1}
    refused(0x40, client.uvm_call, UvmCommand.UVM_ALLOC_SEMAPHORE_POOL, **fields)
    client.kernel.close(client.gpu)
    refused(0x40, client.uvm_call, UvmCommand.UVM_REGISTER_GPU, gpu_uuid=uuid, rmCtrlFd=-1)


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
