from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from drivers.nv.layouts import rm_classes
from drivers.nv.layouts.controls import Control
from drivers.nv.layouts.rm_classes import RmClass
from drivers.nv.layouts.status import NvStatus
from drivers.nv.layouts.uvm import NvProcessorUuid, UvmCommand
from tests.emulator.nv_machine.client import MIB, Client, sem, wait_word
from tests.emulator.nv_machine.refusals import invalid, refused

BASE = 0x3_0000_0000

Make = Callable[..., Client]


def make_range(client: Client, base: int = BASE, length: int = MIB) -> None:
    client.uvm_call(UvmCommand.UVM_CREATE_EXTERNAL_RANGE, base=base, length=length)


def test_initialize_comes_first(make: Make):
    client = make().nodes().objects()
    refused(NvStatus.ILLEGAL_ACTION, make_range, client)
    refused(NvStatus.INVALID_ARGUMENT, client.uvm_call, UvmCommand.UVM_INITIALIZE, flags=8)
    client.uvm_call(UvmCommand.UVM_INITIALIZE, flags=1)
    client.uvm_call(UvmCommand.UVM_INITIALIZE, flags=1)
    refused(NvStatus.INVALID_ARGUMENT, client.uvm_call, UvmCommand.UVM_INITIALIZE)


def test_mm_initialize_takes_another_descriptor_and_warns_in_the_sandbox(make: Make):
    client = make().nodes().objects()
    mm = UvmCommand.UVM_MM_INITIALIZE
    refused(0x1F, client.uvm_call, mm, fd=client.uvm_fd2, uvmFd=client.uvm_fd)
    client.uvm_call(UvmCommand.UVM_INITIALIZE)
    refused(0x1F, client.uvm_call, mm, uvmFd=client.uvm_fd)
    for _ in range(2):
        out = client.uvm_call(mm, fd=client.uvm_fd2, uvmFd=client.uvm_fd)
        assert out.rmStatus == NvStatus.WARN_NOTHING_TO_DO


def test_a_bare_machine_keeps_the_second_descriptor(make: Make):
    client = make(filtered=False).nodes().objects()
    mm, third = UvmCommand.UVM_MM_INITIALIZE, client.kernel.open("/dev/nvidia-uvm")
    client.uvm_call(UvmCommand.UVM_INITIALIZE)
    assert client.uvm_call(mm, fd=client.uvm_fd2, uvmFd=client.uvm_fd).rmStatus == NvStatus.OK
    refused(NvStatus.IN_USE, client.uvm_call, mm, fd=client.uvm_fd2, uvmFd=client.uvm_fd)
    refused(NvStatus.INVALID_STATE, client.uvm_call, mm, fd=third, uvmFd=client.uvm_fd)
    refused(NvStatus.INVALID_ARGUMENT, client.uvm_call, UvmCommand.UVM_INITIALIZE, fd=client.uvm_fd2)
    client.kernel.close(client.uvm_fd2)
    refused(NvStatus.PAGE_TABLE_NOT_AVAIL, client.uvm_call, mm, fd=third, uvmFd=client.uvm_fd)


def test_several_processes_may_share_a_bare_machine_and_need_no_second_descriptor(make: Make):
    client = make(filtered=False).nodes().objects()
    space = client.space(flags=8)
    client.uuid = uuid = NvProcessorUuid(uuid=client.machine.gpus[0].uuid)
    client.uvm_call(UvmCommand.UVM_INITIALIZE, flags=2)
    out = client.uvm_call(UvmCommand.UVM_MM_INITIALIZE, fd=client.uvm_fd2, uvmFd=client.uvm_fd)
    assert out.rmStatus == NvStatus.WARN_NOTHING_TO_DO
    client.uvm_call(UvmCommand.UVM_REGISTER_GPU, gpu_uuid=uuid, rmCtrlFd=-1)
    client.register_space(space)


def test_a_bare_machine_requires_mm_initialize(make: Make):
    client = make(filtered=False).nodes().objects()
    space = client.space(flags=8)
    client.uuid = uuid = NvProcessorUuid(uuid=client.machine.gpus[0].uuid)
    client.uvm_call(UvmCommand.UVM_INITIALIZE)
    client.uvm_call(UvmCommand.UVM_REGISTER_GPU, gpu_uuid=uuid, rmCtrlFd=-1)
    refused(0x5D, client.register_space, space)
    client.uvm_call(UvmCommand.UVM_MM_INITIALIZE, fd=client.uvm_fd2, uvmFd=client.uvm_fd)
    client.kernel.close(client.uvm_fd2)
    refused(0x5D, client.register_space, space)


def test_registering_is_validated(make: Make):
    client = make().nodes().objects()
    client.uvm_call(UvmCommand.UVM_INITIALIZE)
    uuid = NvProcessorUuid(uuid=client.machine.gpus[0].uuid)
    gpu, space = UvmCommand.UVM_REGISTER_GPU, UvmCommand.UVM_REGISTER_GPU_VASPACE
    other = NvProcessorUuid(uuid=bytes(16))
    refused(NvStatus.GPU_UUID_NOT_FOUND, client.uvm_call, gpu, gpu_uuid=other, rmCtrlFd=-1)
    invalid(errno.EINVAL, client.uvm_call, gpu, gpu_uuid=uuid, rmCtrlFd=5)
    kind: Any = client.structs["NV_VASPACE_ALLOCATION_PARAMETERS"]
    own = client.alloc(client.device, RmClass.FERMI_VASPACE_A, kind())
    fields = {"gpuUuid": uuid, "rmCtrlFd": client.ctl, "hClient": client.root, "hVaSpace": own}
    refused(NvStatus.INVALID_DEVICE, client.uvm_call, space, **fields)
    refused(NvStatus.INVALID_DEVICE, client.uvm_call, space, **(fields | {"gpuUuid": other}))
    client.uvm_call(gpu, gpu_uuid=uuid, rmCtrlFd=client.ctl)
    refused(NvStatus.INVALID_DEVICE, client.uvm_call, gpu, gpu_uuid=uuid, rmCtrlFd=-1)
    refused(NvStatus.INVALID_FLAGS, client.uvm_call, space, **fields)
    refused(NvStatus.INVALID_OBJECT_HANDLE, client.uvm_call, space, **(fields | {"hVaSpace": client.device}))
    invalid(errno.EINVAL, client.uvm_call, space, **(fields | {"rmCtrlFd": 99}))


def test_an_address_space_is_registered_once(up: Client):
    refused(NvStatus.INVALID_DEVICE, up.register_space, up.vaspace)
    up.uvm_call(UvmCommand.UVM_UNREGISTER_GPU_VASPACE, gpuUuid=up.uuid)
    up.uvm_call(UvmCommand.UVM_UNREGISTER_GPU, gpu_uuid=up.uuid)
    up.uvm_call(UvmCommand.UVM_REGISTER_GPU, gpu_uuid=up.uuid, rmCtrlFd=-1)


def test_a_gpu_is_unregistered_with_its_address_space_and_channels(up: Client):
    ring, memory = up.compute_channel(), up.memory(4096)
    up.uvm_call(UvmCommand.UVM_UNREGISTER_GPU, gpu_uuid=up.uuid)
    up.uvm_call(UvmCommand.UVM_REGISTER_GPU, gpu_uuid=up.uuid, rmCtrlFd=-1)
    up.register_space(up.vaspace)
    refused(0x1E, up.uvm_call, UvmCommand.UVM_UNMAP_EXTERNAL, base=memory.va, length=4096, gpuUuid=up.uuid)
    refused(0x21, up.unregister, ring)


@pytest.mark.parametrize(("driver", "code"), [("580", 0x1E), ("570", 0x1E), ("590", 0), ("595", 0)])
def test_freeing_a_range_compares_the_length_where_the_branch_has_one(make: Make, driver: Any, code: Any):
    up = make(driver=driver).up()
    make_range(up)
    refused(0x1E, up.uvm_call, UvmCommand.UVM_FREE, base=BASE + 4096, length=MIB)
    if code:
        refused(code, up.uvm_call, UvmCommand.UVM_FREE, base=BASE, length=4096)
    up.uvm_call(UvmCommand.UVM_FREE, base=BASE, length=MIB)
    make_range(up)


@pytest.mark.parametrize(("driver", "size"), [("580", 16), ("595", 24)])
def test_the_other_branchs_size_of_free_is_invalid(make: Make, driver: Any, size: Any):
    up = make(driver=driver).up()
    invalid(errno.EINVAL, up.kernel.ioctl, up.uvm_fd, UvmCommand.UVM_FREE, bytearray(size))


def test_memory_stays_while_it_is_mapped(up: Client):
    ring, memory = up.copy_channel(), up.memory(4096)
    up.free(memory.handle, up.device)
    ring.push(sem(memory.va, 9))
    wait_word(memory, 0, 9, up)
    used = up.machine.gpus[0].vram_used
    up.uvm_call(UvmCommand.UVM_FREE, base=memory.va, length=4096)
    assert up.machine.gpus[0].vram_used == used - 4096


def test_unmapped_memory_is_named_with_how_it_was_freed(up: Client):
    ring, memory = up.copy_channel(), up.memory(4096)
    up.uvm_call(UvmCommand.UVM_UNMAP_EXTERNAL, base=memory.va, length=4096, gpuUuid=up.uuid)
    refused(0x1E, up.uvm_call, UvmCommand.UVM_UNMAP_EXTERNAL, base=memory.va, length=4096, gpuUuid=up.uuid)
    ring.push(sem(memory.va, 9))
    assert ring.wait_error() == 31
    assert "by UVM_UNMAP_EXTERNAL" in up.reports()[0]


def test_unequal_addresses_are_advised_against(up: Client):
    handle = up.alloc(up.device, RmClass.NV01_MEMORY_LOCAL_USER, up.memory_params(4096))
    fd = up.map_fd(up.device, handle, 4096, "/dev/nvidia0")
    up.kernel.mmap(4096, fd=fd)
    up.map_gpu(handle, BASE, 4096)
    assert "make them equal" in up.reports()[0]
    assert up.machine.fatal == []


def test_small_commands(up: Client):
    assert not up.uvm_call(UvmCommand.UVM_PAGEABLE_MEM_ACCESS).pageableMemAccess
    make_range(up)
    up.uvm_call(UvmCommand.UVM_VALIDATE_VA_RANGE, base=BASE, length=MIB)
    for base, length in ((BASE, 2 * MIB), (BASE, 4096), (BASE + 4096, MIB - 4096)):
        refused(0x1E, up.uvm_call, UvmCommand.UVM_VALIDATE_VA_RANGE, base=base, length=length)
    refused(0x26, up.uvm_call, UvmCommand.UVM_ENABLE_PEER_ACCESS, gpuUuidA=up.uuid, gpuUuidB=up.uuid)


def test_a_context_share_gives_the_address_space(up: Client):
    group = up.group(hVASpace=0)
    refused(0x1F, up.ring, group)
    params = rm_classes.NV_CTXSHARE_ALLOCATION_PARAMETERS(hVASpace=up.vaspace, flags=1)
    share = up.alloc(group, RmClass.FERMI_CONTEXT_SHARE_A, params)
    assert rm_classes.NV_CTXSHARE_ALLOCATION_PARAMETERS.from_bytes(up.last).subctxId == 1
    up.ring(group, hContextShare=share)
    refused(0x36, up.ring, up.group(), hContextShare=share)
    bad = rm_classes.NV_CTXSHARE_ALLOCATION_PARAMETERS(hVASpace=up.vaspace, flags=5)
    refused(0x29, up.alloc, group, RmClass.FERMI_CONTEXT_SHARE_A, bad)
    refused(0x1F, up.alloc, up.group(rm_classes.copy_engine(2)), RmClass.FERMI_CONTEXT_SHARE_A, params)


def test_engine_objects_are_validated(up: Client):
    group = up.group()
    ring = up.ring(group)
    refused(0x1F, up.alloc, ring.handle, 0xCBC0, rm_classes.NV_GR_ALLOCATION_PARAMETERS(version=1, size=16))
    up.compute_object(ring)
    refused(0x40, up.compute_object, ring)
    up.alloc(ring.handle, 0xC8B5)


def test_a_channel_is_registered_after_its_engine_object_and_before_it_is_scheduled(up: Client):
    group = up.group()
    ring = up.ring(group)
    refused(0x40, up.register_channel, ring)
    refused(0x40, up.schedule, ring, group)
    up.compute_object(ring)
    refused(0x40, up.schedule, ring, group)
    up.register_channel(ring)
    refused(0x21, up.register_channel, ring)
    up.schedule(ring, group)


def test_windows_lie_below_the_generations_limit(make: Make):
    up = make("sm_80").up()
    ring = up.ring(up.group())
    up.compute_object(ring)
    refused(0x5B, up.register_channel, ring, 1 << 40)


def test_the_context_size_is_reported(up: Client):
    ring = up.ring(up.group())
    out = up.control(up.subdevice, Control.NV2080_CTRL_CMD_GR_GET_CTX_BUFFER_SIZE, hChannel=ring.handle)
    assert 0 < out.totalBufferSize <= 64 * MIB


@pytest.mark.parametrize(("driver", "size"), [("570", 2), ("580", 3)])
def test_scheduling_takes_the_branchs_size(make: Make, driver: Any, size: Any):
    up = make(driver=driver).up()
    group = up.group(rm_classes.copy_engine(2))
    number = Control.NVA06C_CTRL_CMD_GPFIFO_SCHEDULE
    refused(0x40, up.control, group, number, bEnable=True)
    up.ring(group)
    invalid(errno.EINVAL, up.control, group, number, size=5 - size, bEnable=True)
    refused(0x1F, up.control, group, number, bEnable=True, bSkipSubmit=True)
    up.control(group, number, bEnable=True)


def test_a_disabled_channel_waits(up: Client):
    ring, memory = up.copy_channel(), up.memory(4096)
    number = Control.NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS
    fields = {"numChannels": 1, "hClientList": (up.root,), "hChannelList": (ring.handle,)}
    refused(0x33, up.control, up.subdevice, number, **(fields | {"hClientList": (5,)}))
    with up.machine.lock:
        ring.push(sem(memory.va, 1))
        up.control(up.subdevice, number, bDisable=True, **fields)
    other = up.copy_channel(3)
    other.push(sem(memory.va + 8, 1))
    wait_word(memory, 8, 1, up)
    assert memory.view[0] == 0
    up.control(up.subdevice, number, bDisable=False, **fields)
    wait_word(memory, 0, 1, up)


def test_preemption_and_reset_are_known(up: Client):
    group = up.group(rm_classes.copy_engine(2))
    ring = up.ring(group)
    up.control(group, Control.NVA06C_CTRL_CMD_PREEMPT, bWait=True)
    refused(0x1F, up.control, group, Control.NVA06C_CTRL_CMD_PREEMPT, timeoutUs=5)
    up.control(ring.handle, Control.NV906F_CTRL_CMD_RESET_CHANNEL, engineID=1)
    assert ring.wait_error() == 43
    assert isinstance(up, Client)
