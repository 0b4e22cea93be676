"""The checks that the other files leave: one violation each."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable
from typing import Any

import pytest

from drivers.kernel import MAP_FIXED, MAP_SHARED
from drivers.nv.emu.machine import Kind
from drivers.nv.emu.machine.cubins import Cubin
from drivers.nv.layouts import controls as ctl
from drivers.nv.layouts import rm, rm_classes
from drivers.nv.layouts.compute import ComputeMethod as M
from drivers.nv.layouts.controls import Control
from drivers.nv.layouts.cubin import Relocation
from drivers.nv.layouts.dma import DmaMethod, DmaReduction, LaunchDma
from drivers.nv.layouts.fault import RcCode
from drivers.nv.layouts.gpfifo import USERMODE_BYTES
from drivers.nv.layouts.host import HostMethod, SemExecute, SemOperation
from drivers.nv.layouts.rm import Escape
from drivers.nv.layouts.rm_classes import RmClass
from drivers.nv.layouts.uvm import NvProcessorUuid, UvmCommand
from hcq.errors import DriverError, UsageError
from tests.drivers.nv_machine.client import MIB, Client, Status, method, sem, wait_word
from tests.drivers.nv_machine.launching import (
    CALL,
    CONSTANTS,
    INCREMENT,
    REVERSE,
    STACK,
    STORE,
    Launcher,
    cubin,
    upload,
)

Make = Callable[..., Client]
GEQ = SemOperation.ACQ_STRICT_GEQ


def refused(code: int, call: Any, *args: Any, **kw: Any) -> None:
    with pytest.raises(Status) as got:
        call(*args, **kw)
    assert got.value.code == code, got.value


def invalid(number: int, call: Any, *args: Any, **kw: Any) -> None:
    with pytest.raises(DriverError) as got:
        call(*args, **kw)
    assert got.value.status == number


# ---- objects


def test_roots_and_devices_judge_the_rest(up: Client) -> None:
    refused(
        0x1F, up.alloc, up.device, RmClass.NV20_SUBDEVICE_0, rm_classes.NV2080_ALLOC_PARAMETERS(subDeviceId=1)
    )
    refused(0x1F, up.alloc, up.subdevice, 0xC661, b"\2\0")
    refused(0x1F, up.alloc, up.device, RmClass.FERMI_VASPACE_A)
    refused(0x36, up.alloc, up.root, RmClass.NV01_ROOT)
    refused(0x33, up.alloc, 0, RmClass.NV01_ROOT, handle=up.root)
    invalid(errno.EINVAL, up.alloc, 0, RmClass.NV01_ROOT, bytes(8))
    assert up.alloc(0, RmClass.NV01_ROOT_CLIENT, handle=0x77) == 0x77


def test_ampere_doorbells_take_no_parameters(make: Make) -> None:
    client = make("sm_80").nodes().objects()
    refused(0x3A, client.alloc, client.subdevice, 0xC461, b"\0\0")


@pytest.mark.parametrize(
    ("fields", "code"),
    [({"hDebuggerClient_Obsolete": 1}, 0x1F), ({"hAppClient": 5}, 0x33), ({"hClass3dObject": 5}, 0x36)],
)
def test_debuggers_are_judged(up: Client, fields: dict[str, int], code: int) -> None:
    ring = up.compute_channel()
    copy = up.alloc(ring.handle, up.generation.copy[0])
    other = rm_classes.NV83DE_ALLOC_PARAMETERS(hAppClient=up.root, hClass3dObject=copy)
    refused(0x31, up.alloc, up.device, RmClass.GT200_DEBUGGER, other)
    values = {"hAppClient": up.root, "hClass3dObject": up.engine_object} | fields
    refused(code, up.alloc, up.device, RmClass.GT200_DEBUGGER, rm_classes.NV83DE_ALLOC_PARAMETERS(**values))


def test_events_are_judged(up: Client) -> None:
    good = {
        "hParentClient": up.root,
        "hSrcResource": up.subdevice,
        "hClass": 0x79,
        "notifyIndex": 37,
        "data": up.gpu,
    }
    bad = rm_classes.NV0005_ALLOC_PARAMETERS(**(good | {"hClass": 5}))
    refused(0x1F, up.alloc, up.subdevice, 0x79, bad)
    other = up.alloc(up.device, RmClass.NV20_SUBDEVICE_0)
    refused(0x36, up.alloc, other, 0x79, rm_classes.NV0005_ALLOC_PARAMETERS(**good))
    refused(0x57, up.alloc, up.subdevice, 0x79, rm_classes.NV0005_ALLOC_PARAMETERS(**good))
    kind = rm.nv_ioctl_alloc_os_event_t
    for fields, code in (({}, 0), ({}, 0x1A), ({"hClient": 5}, 0x1F), ({"fd": 3}, 0x1F)):
        values = {"hClient": up.root, "hDevice": up.device, "fd": up.gpu} | fields
        block = bytearray(kind(**values).to_bytes())
        up.escape(up.gpu, Escape.NV_ESC_ALLOC_OS_EVENT, block)
        assert kind.from_bytes(block).Status == code
    number = Control.NV2080_CTRL_CMD_EVENT_SET_NOTIFICATION
    refused(0x40, up.control, up.subdevice, number, event=37, action=2)
    up.alloc(up.subdevice, 0x79, rm_classes.NV0005_ALLOC_PARAMETERS(**good))
    for action, code in ((2, 0), (2, 0x40), (0, 0), (1, 0)):
        if code:
            refused(code, up.control, up.subdevice, number, event=37, action=action)
        else:
            up.control(up.subdevice, number, event=37, action=action)
    for code in (0, 0x1F):
        block = bytearray(kind(hClient=up.root, hDevice=up.device, fd=up.gpu).to_bytes())
        up.escape(up.gpu, Escape.NV_ESC_FREE_OS_EVENT, block)
        assert kind.from_bytes(block).Status == code
    up.machine.notify(37)
    assert up.kernel.poll([up.gpu], 0) == []


def test_small_notifiers_do_not_exist_and_none_is_allowed(up: Client) -> None:
    group = up.group(rm_classes.copy_engine(2))
    ring = up.ring(group, hObjectError=0)
    up.schedule(ring, group)
    ring.push(method(0, 0x0C, 0))
    while not up.kernel.reports:
        pass
    assert ring.error() == 0


def test_flags_of_calls_must_be_zero(up: Client) -> None:
    block = bytearray(rm.NVOS64_PARAMETERS(hClass=0x41, flags=1).to_bytes())
    up.escape(up.ctl, Escape.NV_ESC_RM_ALLOC, block)
    assert rm.NVOS64_PARAMETERS.from_bytes(block).status == 0x29
    block = bytearray(rm.NVOS54_PARAMETERS(hClient=up.root, hObject=up.root, cmd=0x201, flags=1).to_bytes())
    up.escape(up.ctl, Escape.NV_ESC_RM_CONTROL, block)
    assert rm.NVOS54_PARAMETERS.from_bytes(block).status == 0x29


def test_small_escapes(up: Client) -> None:
    block = bytearray(8)
    up.escape(up.ctl, Escape.NV_ESC_SYS_PARAMS, block)
    assert any(block)
    up.escape(up.gpu, Escape.NV_ESC_WAIT_OPEN_COMPLETE, bytearray(8))
    up.escape(up.ctl, Escape.NV_ESC_ATTACH_GPUS_TO_FD, bytearray(struct.pack("<I", up.machine.gpu_id)))
    invalid(errno.EINVAL, up.escape, up.ctl, Escape.NV_ESC_ATTACH_GPUS_TO_FD, bytearray(struct.pack("<I", 9)))
    kind = rm.nv_ioctl_rm_api_version_t
    for cmd, text, reply in ((0, "580.1", 0), (0x31, "580.159.03", 1)):
        block = bytearray(kind(cmd=cmd, versionString=text).to_bytes())
        up.escape(up.ctl, Escape.NV_ESC_CHECK_VERSION_STR, block)
        assert kind.from_bytes(block).reply == reply
    invalid(
        errno.EINVAL, up.escape, up.ctl, Escape.NV_ESC_CHECK_VERSION_STR, bytearray(kind(cmd=9).to_bytes())
    )
    invalid(errno.EINVAL, up.escape, up.ctl, Escape.NV_ESC_RM_SHARE, bytearray(32))
    invalid(errno.EINVAL, up.kernel.read, up.ctl, 4)


def test_a_bare_machine_answers_where_the_sandbox_fails_the_call(make: Make) -> None:
    up = make(filtered=False).up()
    memory = up.memory(4096)
    fd = up.map_fd(up.device, memory.handle, 4096, "/dev/nvidia0")
    refused(0x40, up.map_fd, up.device, memory.handle, 4096, "", fd=fd)
    refused(0x1F, up.map_fd, up.device, memory.handle, 4096, "", fd=up.uvm_fd)
    group = up.group(rm_classes.copy_engine(2))
    ring = up.ring(group)
    fields = {"gpuUuid": up.uuid, "rmCtrlFd": 99, "hClient": up.root, "hChannel": ring.handle}
    refused(0x1F, up.uvm_call, UvmCommand.UVM_REGISTER_CHANNEL, **fields)
    number = Control.NV906F_CTRL_GET_MMU_FAULT_INFO
    refused(0x57, up.control, ring.handle, number)
    up.control(up.subdevice, Control.NV2080_CTRL_CMD_FB_FLUSH_GPU_CACHE)


@pytest.mark.parametrize(
    ("number", "fields"),
    [
        (Control.NV2080_CTRL_CMD_EVENT_SET_NOTIFICATION, {"event": 37, "action": 3}),
        (Control.NV2080_CTRL_CMD_GR_GET_GPC_MASK, {"grRouteInfo": ctl.NV2080_CTRL_GR_ROUTE_INFO(flags=1)}),
        (Control.NV2080_CTRL_CMD_FB_GET_INFO_V2, {"fbInfoListSize": 200}),
        (Control.NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS, {"numChannels": 65}),
        (Control.NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION, {"sizeOfStrings": 4, "pDriverVersionBuffer": 1}),
    ],
)
def test_more_controls_judge_their_arguments(up: Client, number: int, fields: dict[str, Any]) -> None:
    refused(0x1F, up.control, up.root if number < 0x800000 else up.subdevice, number, **fields)


def test_channel_controls_judge_their_arguments(up: Client) -> None:
    ring = up.copy_channel()
    number = Control.NV2080_CTRL_CMD_GR_GET_CTX_BUFFER_SIZE
    refused(0x1F, up.control, up.subdevice, number, hChannel=ring.handle)
    refused(0x1F, up.control, ring.handle, Control.NV906F_CTRL_CMD_RESET_CHANNEL, subdeviceInstance=1)
    up.control(ring.handle, Control.NVA06F_CTRL_CMD_GPFIFO_SCHEDULE, bEnable=True)
    compute = up.compute_channel()
    debugger = up.alloc(
        up.device,
        RmClass.GT200_DEBUGGER,
        rm_classes.NV83DE_ALLOC_PARAMETERS(hAppClient=up.root, hClass3dObject=up.engine_object),
    )
    read = Control.NV83DE_CTRL_CMD_DEBUG_READ_ALL_SM_ERROR_STATES
    for fields in ({"numSMsToRead": 101}, {"numSMsToRead": 0}, {"numSMsToRead": 100, "startingSM": 100}):
        refused(0x1F, up.control, debugger, read, **fields)
    refused(0x1F, up.control, debugger, read, numSMsToRead=1, hTargetChannel=ring.handle)
    up.control(debugger, read, numSMsToRead=1, hTargetChannel=compute.handle)
    refused(
        0x1F, up.control, debugger, Control.NV83DE_CTRL_CMD_DEBUG_CLEAR_ALL_SM_ERROR_STATES, numSMsToClear=133
    )
    refused(0x1F, up.control, debugger, Control.NV83DE_CTRL_CMD_DEBUG_SET_MODE_MMU_DEBUG, action=3)
    up.control(debugger, Control.NV83DE_CTRL_CMD_DEBUG_SET_MODE_MMU_DEBUG, action=1)
    up.control(debugger, Control.NV83DE_CTRL_CMD_DEBUG_SET_EXCEPTION_MASK, exceptionMask=7)


# ---- memory and UVM


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


def test_uvm_wants_its_order(make: Make) -> None:
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
    refused(0x1A, up.register_channel, other)
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


# ---- channels


def test_a_ring_that_was_unmapped_faults_at_the_doorbell(up: Client) -> None:
    ring = up.copy_channel()
    up.uvm_call(UvmCommand.UVM_FREE, base=ring.memory.va, length=ring.memory.size)
    ring.push(sem(0x2_0000_0000, 1))
    assert ring.wait_error() == RcCode.MMU_FAULT


def test_a_channel_freed_with_work_left_is_advised_against(up: Client) -> None:
    group = up.group(rm_classes.copy_engine(2))
    ring = up.ring(group)
    up.schedule(ring, group)
    memory = up.memory(4096)
    ring.push(sem(memory.va, 1, GEQ))
    other = up.copy_channel(3)
    other.push(sem(memory.va + 8, 1))
    wait_word(memory, 8, 1, up)
    up.free(ring.handle, group)
    assert "work left" in up.reports()[0]


def test_a_doorbell_page_that_was_unmapped_is_refused(up: Client) -> None:
    up.doorbell.close()
    with pytest.raises(UsageError, match="unmapped"):
        up.doorbell.write32(0x90, 1)
    assert USERMODE_BYTES == 1 << 16


@pytest.mark.parametrize(
    "words",
    [
        method(0, HostMethod.SEM_PAYLOAD_LO, 1) + method(0, HostMethod.SEM_EXECUTE, 1),
        method(0, HostMethod.SEM_ADDR_LO, 0, 0, 1)
        + method(0, HostMethod.SEM_EXECUTE, int(SemExecute(OPERATION=1, PAYLOAD_SIZE=True))),
        [0x2002_0000 | 0xFFF, 0, 0],
    ],
)
def test_more_that_the_host_refuses(up: Client, words: list[int]) -> None:
    ring = up.copy_channel()
    ring.push(words)
    assert ring.wait_error() == RcCode.PBDMA_ERROR


def test_yield_and_interrupts_pass(up: Client) -> None:
    ring, memory = up.copy_channel(), up.memory(4096)
    ring.push(
        method(0, HostMethod.YIELD, 0) + method(0, HostMethod.NON_STALL_INTERRUPT, 0) + sem(memory.va, 1)
    )
    wait_word(memory, 0, 1, up)


def test_a_float_reduction_of_64_bits_is_refused(up: Client) -> None:
    ring, memory = up.copy_channel(), up.memory(4096)
    words = method(4, DmaMethod.SET_SEMAPHORE_A, memory.va >> 32, memory.va & 0xFFFF_FFFF, 1, 0)
    launch = LaunchDma(
        DATA_TRANSFER_TYPE=0,
        FLUSH_ENABLE=True,
        SEMAPHORE_TYPE=1,
        SEMAPHORE_PAYLOAD_SIZE=True,
        SEMAPHORE_REDUCTION=DmaReduction.FADD,
        SEMAPHORE_REDUCTION_ENABLE=True,
    )
    ring.push(words + method(4, DmaMethod.LAUNCH_DMA, int(launch)))
    assert ring.wait_error() == RcCode.CE2_ERROR


def promise(kind: str, va: int) -> list[int]:
    """Return methods of an engine that would write 1."""
    high, low = va >> 32, va & 0xFFFF_FFFF
    if kind == "copy":
        return method(4, DmaMethod.SET_SEMAPHORE_A, high, low, 1, 0) + method(4, DmaMethod.LAUNCH_DMA, 0xC)
    if kind == "report":
        return method(1, M.SET_REPORT_SEMAPHORE_A, high, low, 1, 1 << 28)
    return method(1, M.SET_REPORT_SEMAPHORE_PAYLOAD_LOWER, 1, 0, low, high, 1 << 12)


@pytest.mark.parametrize("kind", ["copy", "report", "execute"])
def test_promises_of_engines_count_for_deadlocks(up: Client, kind: str) -> None:
    ring = up.copy_channel() if kind == "copy" else up.compute_channel()
    memory = up.memory(4096)
    ring.push(sem(memory.va, 1, GEQ) + promise(kind, memory.va))
    ring.wait_error()
    assert up.kernel.reports[0].kind is Kind.DEADLOCK


# ---- launches


@pytest.fixture
def launcher(make: Make) -> Launcher:
    return Launcher.make(make().up())


def releases(launcher: Launcher, va: int, **more: Any) -> dict[str, Any]:
    fields = {
        "RELEASE_ENABLE": (True,),
        "RELEASE_SEMAPHORE0_ADDR_LOWER": va & 0xFFFF_FFFF,
        "RELEASE_MEMBAR_TYPE": (1,),
    }
    return fields | {"RELEASE_SEMAPHORE0_ADDR_UPPER": va >> 32, "RELEASE_SEMAPHORE0_PAYLOAD_LOWER": 5} | more


def test_a_release_can_reduce_and_trap(launcher: Launcher) -> None:
    code = upload(launcher.client, cubin("sm_90", STORE))
    data = launcher.client.memory(4096)
    struct.pack_into("<I", data.view, 64, 7)
    more = {"RELEASE_REDUCTION_ENABLE": (True,), "RELEASE_STRUCTURE_SIZE": (1,), "RELEASE_TRAP_TYPE": (1,)}
    launcher.run(code, "store", struct.pack("<QI", data.va, 1), **releases(launcher, data.va + 64, **more))
    assert struct.unpack_from("<I", data.view, 64)[0] == 12


def test_a_release_of_one_word_has_no_wide_payload(launcher: Launcher) -> None:
    code = upload(launcher.client, cubin("sm_90", STORE))
    data = launcher.client.memory(4096)
    more = {"RELEASE_PAYLOAD64B": (True,), "RELEASE_STRUCTURE_SIZE": (1,)}
    text = launcher.fails(
        code, "store", struct.pack("<QI", data.va, 1), **releases(launcher, data.va, **more)
    )
    assert "one word" in text


@pytest.mark.parametrize(
    ("fields", "kind", "text"),
    [
        ({"QMD_TYPE": 3}, Kind.UNSUPPORTED, "cluster"),
        ({"GPC_CGA_WIDTH": 2}, Kind.UNSUPPORTED, "GPC_CGA_WIDTH"),
        ({"GRID_WIDTH": 1 << 31}, Kind.LAUNCH, "wider"),
        ({"CTA_THREAD_DIMENSION0": 1024, "REGISTER_COUNT": 255}, Kind.LAUNCH, "fit an SM"),
    ],
)
def test_more_descriptors_are_refused(
    launcher: Launcher, fields: dict[str, int], kind: Kind, text: str
) -> None:
    code = upload(launcher.client, cubin("sm_90", STORE))
    block = (fields.get("CTA_THREAD_DIMENSION0", 1), 1, 1)
    assert text in launcher.fails(code, "store", bytes(12), block=block, **fields)
    assert launcher.client.kernel.reports[0].kind is kind


def test_ampere_has_one_dependent_pointer(make: Make) -> None:
    launcher = Launcher.make(make("sm_80").up())
    code = upload(launcher.client, cubin("sm_80", STORE))
    fields = {"DEPENDENT_QMD1_ENABLE": True, "DEPENDENT_QMD1_ACTION": 1}
    assert "no pointer" in launcher.fails(code, "store", bytes(12), **fields)


def test_all_zero_carve_outs_go_with_no_shared_memory(launcher: Launcher) -> None:
    code = upload(launcher.client, cubin("sm_90", STORE))
    data = launcher.client.memory(4096)
    zeros = {f"{name}_SM_CONFIG_SHARED_MEM_SIZE": 0 for name in ("MIN", "TARGET", "MAX")}
    launcher.run(code, "store", struct.pack("<QI", data.va, 1), **zeros)


def test_a_bank_that_the_image_does_not_have_is_refused(launcher: Launcher) -> None:
    code = upload(launcher.client, cubin("sm_90", STORE))
    other = {2: (launcher.place(bytes(64)), 64)}
    assert "the image has none" in launcher.fails(code, "store", bytes(12), banks=other)


def test_an_invalidate_without_waiting_and_one_of_a_descriptor(launcher: Launcher) -> None:
    client = launcher.client
    code = upload(client, cubin("sm_90", INCREMENT))
    data = client.memory(4096)
    quiet = {"INVALIDATE_SHADER_CONSTANT_CACHE": False}
    params = struct.pack("<Q", data.va)
    first = launcher.place(launcher.bank0(params, (1, 1, 1), (1, 1, 1)))
    va = launcher.qmd(launcher.descriptor(code, "increment", params, bank0=first, **quiet))
    launcher.finish(launcher.send(va))
    at = first - launcher.arguments.va + 0x210
    struct.pack_into("<Q", launcher.arguments.view, at, data.va + 64)
    invalidate = method(1, M.INVALIDATE_SHADER_CACHES_NO_WFI, 0x1011)
    launcher.finish(invalidate + launcher.send(va, 1) + launcher.send(va))
    assert struct.unpack_from("<I", data.view, 64)[0] == 1


def test_a_local_window_that_nobody_set_up(launcher: Launcher) -> None:
    code = upload(launcher.client, cubin("sm_90", STACK))
    assert "was never set" in launcher.fails(
        code, "stack", bytes(12), low=0x200, words={"stack_pointer": 0x200}
    )


@pytest.mark.parametrize("profile", ["sm_80", "sm_90", "sm_120"])
def test_calls_are_relocated(make: Make, profile: str) -> None:
    launcher = Launcher.make(make(profile).up())
    client = launcher.client
    raw = cubin(profile, CALL)
    code = upload(client, raw)
    patches = [p for k in Cubin.parse(raw).kernels.values() for p in k.patches]
    data = client.memory(4096)
    local = {"low": 0x200, "words": {"stack_pointer": 0x200}}
    launcher.local(0x200 * 32 * 64 * 2)
    launcher.run(code, "calls", struct.pack("<QI", data.va, 14), **local)
    assert struct.unpack_from("<I", data.view)[0] == 42

    assert {p.type for p in patches} & {Relocation.R_CUDA_ABS47_34, Relocation.R_CUDA_ABS55_16_34}


def test_a_call_to_the_wrong_place_is_named(make: Make) -> None:
    launcher = Launcher.make(make("sm_90").up())
    raw = cubin("sm_90", CONSTANTS)
    code = upload(launcher.client, raw)
    kernel = Cubin.parse(raw).kernels["constants"]
    at = code.at(".text.constants") - code.memory.va
    low = next(p for p in kernel.patches if p.type == Relocation.R_CUDA_ABS32_LO)
    high = next(p for p in kernel.patches if p.type == Relocation.R_CUDA_ABS32_HI)
    banks = {}
    for index in (3, 4):
        section = code.elf.section(f".nv.constant{index}")
        if section is not None:
            offset = code.image.placement.offsets[section.index]
            banks[index] = (
                launcher.place(bytes(code.image.content[offset : offset + section.size])),
                section.size,
            )
    struct.pack_into("<I", code.memory.view, at + low.offset + 4, 0x1002)
    struct.pack_into("<I", code.memory.view, at + high.offset + 4, 7)
    text = launcher.fails(code, "constants", bytes(12), banks=banks)
    assert "aligned" in text or "not mapped" in text


def test_a_broken_image_is_told(launcher: Launcher) -> None:
    raw = bytearray(cubin("sm_90", STORE))
    struct.pack_into("<H", raw, 18, 62)
    code = upload(launcher.client, cubin("sm_90", STORE), whole=False)
    code.memory.view[MIB // 2 : MIB // 2 + len(raw)] = bytes(raw)
    assert "is broken" in launcher.fails(code, "store", bytes(12))


def test_an_image_elsewhere_in_memory_is_found(launcher: Launcher) -> None:
    raw = cubin("sm_90", STORE)
    code = upload(launcher.client, raw, whole=False)
    other, data = launcher.client.memory(MIB), launcher.client.memory(4096)
    other.view[4096 : 4096 + len(raw)] = raw
    launcher.run(code, "store", struct.pack("<QI", data.va, 9))
    assert data.view[0] == 9


DIVIDE = """
.visible .entry divide(.param .u64 at, .param .f64 v) {
 .reg .b64 %d<2>; .reg .f64 %f<4>;
 ld.param.u64 %d0, [at]; ld.param.f64 %f0, [v]; ld.global.f64 %f1, [%d0];
 div.rn.f64 %f2, %f0, %f1; st.global.f64 [%d0], %f2; ret;
}
"""


def test_code_that_calls_the_assemblers_own_functions(launcher: Launcher) -> None:
    code = upload(launcher.client, cubin("sm_90", DIVIDE))
    data = launcher.client.memory(4096)
    struct.pack_into("<d", data.view, 0, 3.0)
    launcher.run(code, "divide", struct.pack("<Qd", data.va, 1.0))
    assert struct.unpack_from("<d", data.view)[0] == 1.0 / 3.0


def test_a_call_target_that_is_wrong_is_named(launcher: Launcher) -> None:
    raw = cubin("sm_90", CALL)
    code = upload(launcher.client, raw)
    patch = next(
        p for p in Cubin.parse(raw).kernels["calls"].patches if p.type == Relocation.R_CUDA_ABS55_16_34
    )
    at = code.at(".text.calls") - code.memory.va + patch.offset
    from drivers.nv.layouts.cubin import CallAbs55

    word = CallAbs55.from_bytes(code.memory.view, at)
    code.memory.view[at : at + 16] = word.replace(TARGET=code.at(".text.calls")).to_bytes()
    text = launcher.fails(code, "calls", bytes(12), low=0x200, words={"stack_pointer": 0x200})
    assert "where other bytes are" in text


def test_the_device_function_itself_is_compared_too(launcher: Launcher) -> None:
    code = upload(launcher.client, cubin("sm_90", CALL))
    code.memory.view[code.at(".text.triple") - code.memory.va] ^= 1
    text = launcher.fails(code, "calls", bytes(12), low=0x200, words={"stack_pointer": 0x200})
    assert "where other bytes are" in text


@pytest.mark.parametrize("profile", ["sm_80", "sm_120"])
def test_code_that_reads_the_shared_window_must_find_it(make: Make, profile: str) -> None:
    launcher = Launcher.make(make(profile).up())
    code = upload(launcher.client, cubin(profile, REVERSE))
    words = {"shared_window": 0}
    text = launcher.fails(code, "reverse", bytes(8), block=(128, 1, 1), shared=0x600, words=words)
    assert "shared_window is 0" in text


def test_a_kernel_that_writes_its_own_parameters_is_a_lifetime_error(launcher: Launcher) -> None:
    code = upload(launcher.client, cubin("sm_90", STORE))
    launcher.used = 4096
    first = launcher.arguments.va + launcher.used
    launcher.fails(code, "store", struct.pack("<QI", first + 0x210, 9))
    assert launcher.client.kernel.reports[0].kind is Kind.LIFETIME


@pytest.mark.parametrize("kind", [Relocation.R_CUDA_ABS32_LO, Relocation.R_CUDA_ABS32_HI])
def test_half_an_address_that_is_wrong_is_named(launcher: Launcher, kind: Relocation) -> None:
    raw = cubin("sm_90", CALL)
    code = upload(launcher.client, raw)
    patch = next(p for p in Cubin.parse(raw).kernels["calls"].patches if p.type == kind)
    code.memory.view[code.at(".text.calls") - code.memory.va + patch.offset + 4] ^= 0x40
    text = launcher.fails(code, "calls", bytes(12), low=0x200, words={"stack_pointer": 0x200})
    assert kind.name in text


def test_a_block_that_the_kernel_does_not_allow_is_refused(launcher: Launcher) -> None:
    text = STORE.replace("store(", "fixed(").replace(") {", ") .reqntid 32 {", 1)
    code = upload(launcher.client, cubin("sm_90", text))
    assert "reqntid" in launcher.fails(code, "fixed", bytes(12))


def test_a_channel_of_an_address_space_that_uvm_does_not_know_is_not_registered(up: Client) -> None:
    ring = up.ring(up.group())
    up.compute_object(ring)
    up.uvm_call(UvmCommand.UVM_UNREGISTER_GPU_VASPACE, gpuUuid=up.uuid)
    refused(0x40, up.register_channel, ring)


def test_a_reducing_report_of_the_newer_kind_is_refused_and_awakening_passes(up: Client) -> None:
    ring, memory = up.compute_channel(), up.memory(4096)
    high, low = memory.va >> 32, memory.va & 0xFFFF_FFFF
    ring.push(method(1, M.SET_REPORT_SEMAPHORE_A, high, low, 3, 1 << 20))
    words = method(1, M.SET_REPORT_SEMAPHORE_PAYLOAD_LOWER, 1, 0, low + 64, high)
    ring.push(words + method(1, M.REPORT_SEMAPHORE_EXECUTE, 4))
    wait_word(memory, 64, 1, up)
    assert memory.view[0] == 3
    ring.push(method(1, M.REPORT_SEMAPHORE_EXECUTE, 1 << 6))
    assert ring.wait_error() == RcCode.GR_CLASS_ERROR


def test_what_the_sanitizers_find_stops_the_channel(make: Make) -> None:
    from drivers.emu.library import Sanitizers

    text = REVERSE.replace("bar.sync 0;", "")
    for checks, found in ((None, False), (Sanitizers(shared_races=True), True)):
        launcher = Launcher.make(make(checks=checks).up())
        code = upload(launcher.client, cubin("sm_90", text))
        data = launcher.client.memory(4096)
        shape: dict[str, Any] = {"block": (128, 1, 1), "shared": 0x600}
        if found:
            assert "race" in launcher.fails(code, "reverse", struct.pack("<Q", data.va), **shape)
        else:
            launcher.run(code, "reverse", struct.pack("<Q", data.va), **shape)
