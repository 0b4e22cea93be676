from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from drivers.nv.layouts import rm_classes
from drivers.nv.layouts.controls import Control
from drivers.nv.layouts.rm_classes import RmClass
from drivers.nv.layouts.status import NvStatus
from drivers.nv.layouts.uvm import NvProcessorUuid, UvmCommand, UvmGpuMappingAttributes
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
    kind: Any = client.structs["NV_VASPACE_ALLOCATION_PARAMETERS"]
    space = client.alloc(client.device, RmClass.FERMI_VASPACE_A, kind(flags=8))
    uuid = NvProcessorUuid(uuid=client.machine.gpus[0].uuid)
    client.uvm_call(UvmCommand.UVM_INITIALIZE, flags=2)
    out = client.uvm_call(UvmCommand.UVM_MM_INITIALIZE, fd=client.uvm_fd2, uvmFd=client.uvm_fd)
    assert out.rmStatus == NvStatus.WARN_NOTHING_TO_DO
    client.uvm_call(UvmCommand.UVM_REGISTER_GPU, gpu_uuid=uuid, rmCtrlFd=-1)
    fields = {"gpuUuid": uuid, "rmCtrlFd": client.ctl, "hClient": client.root, "hVaSpace": space}
    client.uvm_call(UvmCommand.UVM_REGISTER_GPU_VASPACE, **fields)


def test_a_bare_machine_requires_mm_initialize(make: Make):
    client = make(filtered=False).nodes().objects()
    kind: Any = client.structs["NV_VASPACE_ALLOCATION_PARAMETERS"]
    space = client.alloc(client.device, RmClass.FERMI_VASPACE_A, kind(flags=8))
    uuid = NvProcessorUuid(uuid=client.machine.gpus[0].uuid)
    client.uvm_call(UvmCommand.UVM_INITIALIZE)
    client.uvm_call(UvmCommand.UVM_REGISTER_GPU, gpu_uuid=uuid, rmCtrlFd=-1)
    fields = {"gpuUuid": uuid, "rmCtrlFd": client.ctl, "hClient": client.root, "hVaSpace": space}
    refused(0x5D, client.uvm_call, UvmCommand.UVM_REGISTER_GPU_VASPACE, **fields)
    client.uvm_call(UvmCommand.UVM_MM_INITIALIZE, fd=client.uvm_fd2, uvmFd=client.uvm_fd)
    client.kernel.close(client.uvm_fd2)
    refused(0x5D, client.uvm_call, UvmCommand.UVM_REGISTER_GPU_VASPACE, **fields)


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
    fields = {"gpuUuid": up.uuid, "rmCtrlFd": up.ctl, "hClient": up.root, "hVaSpace": up.vaspace}
    refused(NvStatus.INVALID_DEVICE, up.uvm_call, UvmCommand.UVM_REGISTER_GPU_VASPACE, **fields)
    up.uvm_call(UvmCommand.UVM_UNREGISTER_GPU_VASPACE, gpuUuid=up.uuid)
    up.uvm_call(UvmCommand.UVM_UNREGISTER_GPU, gpu_uuid=up.uuid)
    up.uvm_call(UvmCommand.UVM_REGISTER_GPU, gpu_uuid=up.uuid, rmCtrlFd=-1)


def test_a_gpu_is_unregistered_with_its_address_space_and_channels(up: Client):
    ring, memory = up.compute_channel(), up.memory(4096)
    up.uvm_call(UvmCommand.UVM_UNREGISTER_GPU, gpu_uuid=up.uuid)
    up.uvm_call(UvmCommand.UVM_REGISTER_GPU, gpu_uuid=up.uuid, rmCtrlFd=-1)
    fields = {"gpuUuid": up.uuid, "rmCtrlFd": up.ctl, "hClient": up.root, "hVaSpace": up.vaspace}
    up.uvm_call(UvmCommand.UVM_REGISTER_GPU_VASPACE, **fields)
    refused(0x1E, up.uvm_call, UvmCommand.UVM_UNMAP_EXTERNAL, base=memory.va, length=4096, gpuUuid=up.uuid)
    fields = {"gpuUuid": up.uuid, "hClient": up.root, "hChannel": ring.handle}
    refused(0x21, up.uvm_call, UvmCommand.UVM_UNREGISTER_CHANNEL, **fields)


@pytest.mark.parametrize(
    ("base", "length", "code"),
    [
        (0, 4096, 0x1E),
        (BASE + 1, 4096, 0x1E),
        (BASE, 100, 0x1E),
        (BASE, 0, 0x1E),
        (1 << 56, 4096, 0x1E),
        (BASE + MIB - 4096, 8192, 0x68),
    ],
)
def test_ranges_are_validated(up: Client, base: Any, length: Any, code: Any):
    make_range(up)
    refused(code, make_range, up, base, length)


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


def test_unknown_commands_are_invalid(up: Client):
    for command in (74, 1234):
        invalid(errno.EINVAL, up.kernel.ioctl, up.uvm_fd, command, bytearray(32))


def attributes(up: Client, **fields: Any):
    values = {"gpuUuid": up.uuid, "gpuMappingType": 1} | fields
    return (UvmGpuMappingAttributes(**values),)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"base": BASE + 2 * MIB}, 0x1E),
        ({"base": BASE + 4096}, 0x1E),
        ({"offset": 4096}, 0x37),
        ({"offset": 1}, 0x1E),
        ({"gpuAttributesCount": 2}, 0x1F),
        ({"hMemory": 7}, 0x33),
        ({"hClient": 7}, 0x33),
        ({"perGpuAttributes": {"gpuMappingType": 9}}, 0x1F),
        ({"perGpuAttributes": {"gpuFormatType": 1}}, 0x1F),
        ({"perGpuAttributes": {"gpuUuid": NvProcessorUuid(uuid=bytes(16))}}, 0x26),
    ],
)
def test_mapping_memory_is_validated(up: Client, change: Any, code: Any):
    make_range(up)
    handle = up.alloc(up.device, RmClass.NV01_MEMORY_LOCAL_USER, up.memory_params(MIB))
    change = dict(change)
    if "perGpuAttributes" in change:
        change["perGpuAttributes"] = attributes(up, **change["perGpuAttributes"])
    fields: dict[str, Any] = {
        "base": BASE,
        "length": MIB,
        "offset": 0,
        "perGpuAttributes": attributes(up),
        "gpuAttributesCount": 1,
        "rmCtrlFd": up.ctl,
        "hClient": up.root,
        "hMemory": handle,
    }
    refused(code, up.uvm_call, UvmCommand.UVM_MAP_EXTERNAL_ALLOCATION, **(fields | change))
    up.uvm_call(UvmCommand.UVM_MAP_EXTERNAL_ALLOCATION, **fields)
    refused(0x68, up.uvm_call, UvmCommand.UVM_MAP_EXTERNAL_ALLOCATION, **fields)


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


def test_a_semaphore_pool_is_memory_too(up: Client):
    ring = up.copy_channel()
    up.uvm_call(
        UvmCommand.UVM_ALLOC_SEMAPHORE_POOL,
        base=BASE,
        length=4096,
        perGpuAttributes=attributes(up),
        gpuAttributesCount=1,
    )
    memory = up.memory(4096)
    ring.push(sem(BASE, 1) + sem(memory.va, 1))
    wait_word(memory, 0, 1, up)
    up.uvm_call(UvmCommand.UVM_FREE, base=BASE, length=4096)


def test_small_commands(up: Client):
    assert not up.uvm_call(UvmCommand.UVM_PAGEABLE_MEM_ACCESS).pageableMemAccess
    make_range(up)
    up.uvm_call(UvmCommand.UVM_VALIDATE_VA_RANGE, base=BASE, length=MIB)
    for base, length in ((BASE, 2 * MIB), (BASE, 4096), (BASE + 4096, MIB - 4096)):
        refused(0x1E, up.uvm_call, UvmCommand.UVM_VALIDATE_VA_RANGE, base=base, length=length)
    refused(0x26, up.uvm_call, UvmCommand.UVM_ENABLE_PEER_ACCESS, gpuUuidA=up.uuid, gpuUuidB=up.uuid)
    up.kernel.ioctl(up.uvm_fd, UvmCommand.UVM_DEINITIALIZE, 0)


def test_uvm_maps_an_address_at_that_offset_only(up: Client):
    invalid(errno.EINVAL, up.kernel.mmap, 4096, fd=up.uvm_fd, va=0x2_0F00_0000, offset=0)


def test_groups_are_validated(up: Client):
    refused(0x1F, up.group, 0)
    refused(0x1F, up.group, rm_classes.copy_engine(9))
    refused(0x1F, up.group, 1, hObjectError=5)
    refused(0x33, up.group, 1, hVASpace=5)


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


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"gpFifoEntries": 100}, 0x1F),
        ({"gpFifoOffset": 0x1000}, 0x1E),
        ({"hVASpace": 1}, 0x1F),
        ({"flags": 1 << 5}, 0x29),
        ({"flags": 1 << 20}, 0x29),
        ({"userdOffset": (0x4100,)}, 0x1F),
        ({"userdOffset": (256 << 10,)}, 0x1F),
        ({"userdOffset": (0x4000, 0x200)}, 0x1F),
        ({"hUserdMemory": (5,)}, 0x33),
        ({"hObjectError": 5}, 0x33),
        ({"engineType": 9}, 0x1F),
        ({"cid": 1}, 0x1F),
        ({"tpcConfigID": 1}, 0x1F),
        ({"hObjectBuffer": 5}, 0x33),
    ],
)
def test_channels_are_validated(up: Client, fields: Any, code: Any):
    group = up.group()
    refused(code, up.ring, group, **fields)


def test_a_channel_goes_under_a_group(up: Client):
    refused(0x36, up.ring, up.device)


def test_engine_objects_are_validated(up: Client):
    group = up.group()
    ring = up.ring(group)
    refused(0x1F, up.alloc, ring.handle, 0xCBC0, rm_classes.NV_GR_ALLOCATION_PARAMETERS(version=1, size=16))
    up.compute_object(ring)
    refused(0x40, up.compute_object, ring)
    up.alloc(ring.handle, 0xC8B5)
    engine = rm_classes.copy_engine(2)
    other = up.ring(up.group(engine))
    refused(0x22, up.compute_object, other)
    refused(0x1F, up.alloc, other.handle, 0xC8B5)
    wrong = rm_classes.NVB0B5_ALLOCATION_PARAMETERS(version=1, engineType=engine + 1)
    refused(0x1F, up.alloc, other.handle, 0xC8B5, wrong)


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


@pytest.mark.parametrize(
    ("base", "length", "code"),
    [(0x10_0000_0001, 64 * MIB, 0x1E), (0, 0, 0x1E), (0x10_0000_0000, 4096, 0x1E), (BASE, 64 * MIB, 0x68)],
)
def test_windows_of_context_buffers_are_validated(up: Client, base: Any, length: Any, code: Any):
    make_range(up)
    ring = up.ring(up.group())
    up.compute_object(ring)
    refused(code, up.register_channel, ring, base, length)


def test_windows_lie_below_the_generations_limit(make: Make):
    up = make("sm_80").up()
    ring = up.ring(up.group())
    up.compute_object(ring)
    refused(0x5B, up.register_channel, ring, 1 << 40)


def test_the_context_size_is_reported(up: Client):
    ring = up.ring(up.group())
    out = up.control(up.subdevice, Control.NV2080_CTRL_CMD_GR_GET_CTX_BUFFER_SIZE, hChannel=ring.handle)
    assert 0 < out.totalBufferSize <= 64 * MIB


@pytest.mark.parametrize("driver", ["580", "595"])
def test_a_channel_is_unregistered(make: Make, driver: Any):
    up = make(driver=driver).up()
    ring = up.ring(up.group())
    up.compute_object(ring)
    fields = {"gpuUuid": up.uuid, "hClient": up.root, "hChannel": ring.handle}
    refused(0x21, up.uvm_call, UvmCommand.UVM_UNREGISTER_CHANNEL, **fields)
    up.register_channel(ring)
    up.uvm_call(UvmCommand.UVM_UNREGISTER_CHANNEL, **fields)


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
