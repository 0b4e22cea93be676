"""Freeing, closing and unmapping of objects in use, and the calls that a stopped group still accepts."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable
from typing import Any

import pytest

from drivers.kernel import MAP_FIXED, MAP_PRIVATE, PROT_NONE, PROT_READ, address_of
from drivers.nv.layouts import rm, rm_classes
from drivers.nv.layouts.controls import Control
from drivers.nv.layouts.fault import NvNotification, RcCode
from drivers.nv.layouts.host import SemOperation
from drivers.nv.layouts.rm import Escape
from drivers.nv.layouts.rm_classes import RmClass
from emulator.nv.machine import FindingKind
from tests.emulator.nv_machine.client import Client, Ring, method, sem, wait_word
from tests.emulator.nv_machine.refusals import invalid, refused
from tests.emulator.nv_machine.test_machine_objects import descriptor
from tests.together import together

Make = Callable[..., Client]
COPY = rm_classes.copy_engine(2)
SCHEDULE = Control.NVA06C_CTRL_CMD_GPFIFO_SCHEDULE
TOKEN = Control.NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN
GEQ = SemOperation.ACQ_STRICT_GEQ
BAD = 0x9_0000_0000


def share(client: Client, group: int) -> int:
    params = rm_classes.NV_CTXSHARE_ALLOCATION_PARAMETERS(hVASpace=client.vaspace, flags=1)
    return client.alloc(group, RmClass.FERMI_CONTEXT_SHARE_A, params)


def pair(client: Client) -> tuple[int, Ring, Ring]:
    """Return a group of a copy engine and its two channels, ready."""
    group = client.group(COPY)
    rings = client.ring(group), client.ring(group)
    for ring in rings:
        params = rm_classes.NVB0B5_ALLOCATION_PARAMETERS(version=1, engineType=COPY)
        client.alloc(ring.handle, client.generation.copy[0], params)
        client.schedule(ring, group)
    return group, *rings


@pytest.mark.parametrize("what", ["address space", "context share", "user area"])
def test_a_channel_is_freed_with_the_objects_it_depends_on(up: Client, what: str) -> None:
    group = up.group(hVASpace=up.vaspace if what == "address space" else 0)
    leaned = share(up, group)
    ring = up.ring(group, hContextShare=leaned)
    handle, parent = {
        "address space": (up.vaspace, up.device),
        "context share": (leaned, group),
        "user area": (ring.memory.handle, up.device),
    }[what]
    up.free(handle, parent)
    assert "which needs it and went with it" in up.reports()[0]
    refused(0x33, up.control, ring.handle, TOKEN)
    assert not up.machine.channels
    refused(0x33, up.free, handle, parent)
    assert not up.machine.fatal


def test_correct_teardown_orders_give_no_report(make: Make) -> None:
    for closing in (False, True):
        up = make().up()
        ring = up.compute_channel()
        group = up.machine.clients[up.root].objects[ring.handle].parent
        assert group is not None
        if not closing:
            up.unregister(ring)
            up.free(ring.handle, group.handle)
            up.free(group.handle, up.device)
            up.free(up.vaspace, up.device)
        up.kernel.close(up.ctl)
        assert up.reports() == []
        assert not up.machine.channels
        assert not up.machine.gpus[0].tokens


def test_a_channel_is_unregistered_before_it_is_freed(up: Client) -> None:
    ring = up.compute_channel()
    up.free(ring.handle, up.machine.channels[0].group.handle)
    assert "before UVM_UNREGISTER_CHANNEL" in up.reports()[0]
    up.unregister(ring)
    refused(0x21, up.unregister, ring)


@pytest.mark.parametrize("bound", ["bound", ""])
def test_an_engine_object_that_was_freed_is_on_no_subchannel(up: Client, bound: str) -> None:
    ring, memory = up.copy_channel(), up.memory(4096)
    channel = up.machine.channels[0]
    if bound:
        ring.push(sem(memory.va, 1))
        wait_word(memory, 0, 1, up)
    up.free(channel.children[0].handle, ring.handle)
    assert not channel.has(up.generation.copy[0])
    ring.push(method(4, 0x100, 0) if bound else method(4, 0, up.generation.copy[0]))
    assert ring.wait_error() == RcCode.PBDMA_ERROR


def test_an_engine_object_freed_with_work_left_is_reported(up: Client) -> None:
    ring, memory = up.copy_channel(), up.memory(4096)
    ring.push(sem(memory.va, 1, GEQ))
    up.free(up.machine.channels[0].children[0].handle, ring.handle)
    assert "work left" in up.reports()[0]


def test_a_debugger_whose_object_is_freed_refuses_queries(up: Client) -> None:
    ring = up.compute_channel()
    debugger = up.debugger()
    read = Control.NV83DE_CTRL_CMD_DEBUG_READ_ALL_SM_ERROR_STATES
    up.control(debugger, read, numSMsToRead=1)
    up.free(up.engine_object, ring.handle)
    refused(0x31, up.control, debugger, read, numSMsToRead=1)
    up.free(debugger, up.device)


@pytest.mark.parametrize("closing", ["free", "close"])
def test_everything_open_at_exit_is_released(up: Client, closing: str) -> None:
    up.compute_channel()
    pair(up)
    pages = up.kernel.mmap(8192)
    handle = descriptor(up, pages.va, 8192)
    up.map_gpu(handle, pages.va, 8192)
    up.memory(1 << 20)
    if closing == "free":
        up.free(up.root, 0)
        refused(0x33, up.free, up.root, 0)
    for fd in tuple(up.kernel.files):
        up.kernel.close(fd)
    machine = up.machine
    assert machine.gpus[0].vram_used == 0
    assert not machine.channels
    assert not machine.clients
    assert not machine.pinned
    assert not machine.gpus[0].cookies
    assert up.reports() == []


def test_a_stopped_group_refuses_new_objects(up: Client) -> None:
    """nv.md 6.4: after an error, channel and group are freed and allocated again."""
    group, first, second = pair(up)
    engine = rm_classes.NVB0B5_ALLOCATION_PARAMETERS(version=1, engineType=COPY)
    third = up.ring(group)
    first.push(method(0, 0x0C, 0))
    assert first.wait_error() == RcCode.PBDMA_ERROR
    assert second.wait_error() == RcCode.PREEMPTIVE_REMOVAL
    refused(0x40, up.ring, group)
    refused(0x40, up.alloc, third.handle, up.generation.copy[0], engine)
    refused(0x40, up.control, group, SCHEDULE, bEnable=True)
    refused(0x40, up.control, first.handle, Control.NVA06F_CTRL_CMD_GPFIFO_SCHEDULE, bEnable=True)
    refused(0x40, up.register_channel, second)
    up.control(group, SCHEDULE, bEnable=False)
    for ring in (first, second, third):
        up.free(ring.handle, group)
    refused(0x40, up.ring, group)
    up.free(group, up.device)
    assert len(up.reports()) == 1


def test_a_stopped_graphics_group_refuses_a_context_share(up: Client) -> None:
    ring = up.compute_channel()
    group = up.machine.channels[0].group
    ring.push(method(0, 0x0C, 0))
    assert ring.wait_error()
    refused(0x40, share, up, group.handle)


def test_later_errors_do_not_replace_the_first(up: Client) -> None:
    """The notifier keeps the first error: its time, its code, and the status of a written entry."""
    group, first, second = pair(up)
    before = up.machine.time_ns()
    with up.machine.lock:
        first.push(sem(BAD, 1))
        second.push(method(0, 0x0C, 0))
    assert {first.wait_error(), second.wait_error()} in (
        {RcCode.MMU_FAULT, RcCode.PREEMPTIVE_REMOVAL},
        {RcCode.PBDMA_ERROR, RcCode.PREEMPTIVE_REMOVAL},
    )
    entries = [bytes(ring.notifier.view[:48]) for ring in (first, second)]
    for raw in entries:
        one = NvNotification.from_bytes(raw)
        low, high = one.timeStamp.nanoseconds
        assert before <= (high << 32 | low) <= up.machine.time_ns()
        assert (one.info16, one.status) == (0, 0xFFFF)
        assert not any(raw[16:])
    for ring in (first, second):
        ring.push(sem(BAD, 1))
    up.control(first.handle, Control.NV906F_CTRL_CMD_RESET_CHANNEL, engineID=COPY)
    assert [bytes(ring.notifier.view[:48]) for ring in (first, second)] == entries
    assert len(up.reports()) == 1
    assert group


def test_an_error_while_its_siblings_wait_frees_them_all(up: Client) -> None:
    group, first, second = pair(up)
    memory = up.memory(4096)
    second.push(sem(memory.va, 1, GEQ))
    first.push(sem(BAD, 1))
    assert second.wait_error() == RcCode.PREEMPTIVE_REMOVAL
    struct.pack_into("<Q", memory.view, 0, 1)
    assert not any(channel.run.busy for channel in up.machine.channels)
    up.free(group, up.device)
    assert [one.kind for one in up.kernel.reports] == [FindingKind.MMU_FAULT]


def test_as_many_sm_states_are_cleared_as_requested(up: Client) -> None:
    up.compute_channel()
    debugger = up.debugger()
    faults = up.machine.channels[0].run.faults
    clear = Control.NV83DE_CTRL_CMD_DEBUG_CLEAR_ALL_SM_ERROR_STATES
    read = Control.NV83DE_CTRL_CMD_DEBUG_READ_ALL_SM_ERROR_STATES
    for sm in (0, 5, 6):
        faults.sms[sm] = faults.sm(sm).replace(hwwGlobalEsr=4)
    for count, left in ((0, [0, 5, 6]), (6, [6]), (7, [])):
        up.control(debugger, clear, numSMsToClear=count)
        states = up.control(debugger, read, numSMsToRead=10).smErrorStateArray
        assert [sm for sm, state in enumerate(states) if state.hwwGlobalEsr] == left


def test_channels_are_disabled_all_or_none(up: Client) -> None:
    rings = up.copy_channel(2), up.copy_channel(3)
    number = Control.NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS
    handles = tuple(ring.handle for ring in rings)
    fields: dict[str, Any] = {"numChannels": 2, "hClientList": (up.root,) * 2, "bDisable": True}
    refused(0x33, up.control, up.subdevice, number, **fields, hChannelList=(handles[0], 5))
    refused(0x1B, up.control, up.subdevice, number, **fields, hChannelList=handles, pRunlistPreemptEvent=1)
    memory = up.memory(4096)
    for at, ring in enumerate(rings):
        ring.push(sem(memory.va + 8 * at, 1))
    for at in (0, 8):
        wait_word(memory, at, 1, up)


def test_a_doorbell_of_a_disabled_channel_takes_effect_when_it_is_enabled(up: Client) -> None:
    ring, memory = up.copy_channel(), up.memory(4096)
    number = Control.NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS
    fields = {"numChannels": 1, "hClientList": (up.root,), "hChannelList": (ring.handle,)}
    up.control(up.subdevice, number, bDisable=True, **fields)
    ring.push(sem(memory.va, 1))
    up.control(up.subdevice, number, bDisable=False, **fields)
    wait_word(memory, 0, 1, up)
    assert up.reports() == []


def test_enabling_does_not_schedule(up: Client) -> None:
    group = up.group()
    ring = up.ring(group)
    number = Control.NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS
    fields = {"numChannels": 1, "hClientList": (up.root,), "hChannelList": (ring.handle,)}
    up.control(up.subdevice, number, bDisable=False, **fields)
    ring.token = up.control(ring.handle, TOKEN).workSubmitToken
    ring.push(method(0, 0x08, 0))
    assert ring.wait_error() == RcCode.PBDMA_ERROR
    assert "not scheduled" in up.reports()[0]


@pytest.mark.slow
def test_the_number_of_channels_is_limited_by_hardware(up: Client) -> None:
    group = up.group(COPY)
    ring = up.ring(group)
    params = rm_classes.NV_CHANNEL_ALLOC_PARAMS(
        gpFifoOffset=ring.memory.va,
        gpFifoEntries=64,
        hUserdMemory=(ring.memory.handle,),
        userdOffset=(0x4000,),
    )
    cls, tokens = up.generation.gpfifo[0], len(up.machine.gpus[0].tokens)
    for _ in range(4096 - tokens):
        up.alloc(group, cls, params)
    refused(0x1A, up.alloc, group, cls, params)
    assert len(up.machine.gpus[0].tokens) == 4096
    up.free(ring.handle, group)
    assert up.alloc(group, cls, params)


def test_a_prepared_mapping_is_dropped_with_its_memory(up: Client) -> None:
    handle = up.alloc(up.device, RmClass.NV01_MEMORY_LOCAL_USER, up.memory_params(4096))
    fd = up.map_fd(up.device, handle, 4096, "/dev/nvidia0")
    cookie = up.cookie
    up.free(handle, up.device)
    invalid(errno.EINVAL, up.kernel.mmap, 4096, fd=fd)
    refused(0x33, up.unmap, handle, cookie)


def test_a_mapping_survives_freeing_its_memory_object(up: Client) -> None:
    memory = up.memory(4096, gpu=False)
    up.free(memory.handle, up.device)
    memory.view[0] = 7
    up.kernel.munmap(memory.va, memory.size)
    assert up.machine.gpus[0].vram_used == 0
    assert up.reports() == []


def test_unmapping_names_the_object_it_was_mapped_through(up: Client) -> None:
    one, cookie = up.memory(4096), up.cookie
    other = up.memory(4096)
    refused(0x1F, up.unmap, other.handle, cookie)
    refused(0x1F, up.unmap, one.handle, cookie, hDevice=up.subdevice)
    refused(0x33, up.unmap, one.handle, cookie, hDevice=5)
    refused(0x29, up.unmap, one.handle, cookie, flags=1)
    up.unmap(one.handle, cookie)
    refused(0x1F, up.unmap, one.handle, cookie)


def test_a_descriptor_registered_with_another_client_takes_mappings_too(up: Client) -> None:
    memory = up.memory(4096)
    fd, mine = up.kernel.open("/dev/nvidia0"), up.ctl
    up.ctl = up.kernel.open("/dev/nvidiactl")
    up.register_fd(fd)
    up.ctl = mine
    assert up.map_fd(up.device, memory.handle, 4096, "", fd=fd) == fd
    assert up.kernel.mmap(4096, fd=fd).size == 4096


def test_user_pages_belong_to_the_client_of_the_descriptor(up: Client) -> None:
    pages = up.kernel.mmap(4096)
    mine, up.gpu = up.ctl, up.kernel.open("/dev/nvidia0")
    up.ctl = up.kernel.open("/dev/nvidiactl")
    up.register_fd(up.gpu)
    refused(0x1B, descriptor, up, pages.va, 4096)
    up.ctl = mine


@pytest.mark.parametrize("where", ["sandbox", "bare"])
@pytest.mark.parametrize("hole", ["missing", "read-only", "forbidden"])
def test_every_user_page_must_be_there_to_be_written(make: Make, where: str, hole: str) -> None:
    up = make(filtered=where == "sandbox").up()
    # An address that Linux does not choose: nobody else's memory comes to lie in the hole.
    pages = up.kernel.mmap(3 * 4096, va=up.next_va, flags=MAP_PRIVATE | MAP_FIXED | 0x20)
    if hole == "missing":
        up.kernel.munmap(pages.va + 4096, 4096)
    else:
        up.kernel.mprotect(pages.va + 4096, 4096, PROT_READ if hole == "read-only" else PROT_NONE)
    if where == "sandbox":
        invalid(errno.EFAULT, descriptor, up, pages.va, 3 * 4096)
    else:
        refused(0x1E, descriptor, up, pages.va, 3 * 4096)
    assert descriptor(up, pages.va, 4096)
    assert descriptor(up, pages.va + 8192, 4096)


def test_pinned_pages_stay_while_the_gpu_maps_them(up: Client) -> None:
    pages = up.kernel.mmap(8192)
    handle = descriptor(up, pages.va, 8192)
    kernel = up.kernel
    invalid(errno.EBUSY, kernel.mmap, 4096, va=pages.va, flags=MAP_PRIVATE | MAP_FIXED | 0x20)
    invalid(errno.EBUSY, kernel.mprotect, pages.va + 4096, 4096, PROT_READ)
    invalid(errno.EBUSY, kernel.madvise, pages.va, 8192, 4)
    kernel.mprotect(pages.va, 8192, 3)
    kernel.madvise(pages.va, 8192, 10)
    up.free(handle, up.device)
    kernel.madvise(pages.va, 8192, 4)
    kernel.mprotect(pages.va, 8192, PROT_READ)
    kernel.munmap(pages.va, 8192)


def test_blocks_by_address_from_several_threads_do_not_mix(up: Client) -> None:
    number = rm.request(Escape.NV_ESC_SYS_PARAMS, 8), rm.request(Escape.NV_ESC_CHECK_VERSION_STR, 72)
    wrong: list[bytes] = []

    def ask(which: int) -> None:
        for _ in range(300):
            size = rm.nv_ioctl_rm_api_version_t.SIZE if which else 8
            block = bytearray(size)
            if which:
                block[0] = rm.VERSION_QUERY
            up.kernel.ioctl(up.ctl, number[which], address_of(block))
            if which and b"580" not in block:
                wrong.append(bytes(block))

    together(lambda i: ask(i % 2), 4)
    assert not wrong


def test_an_allocation_whose_reply_cannot_be_written_is_undone(up: Client) -> None:
    """The parameters lie in memory that cannot be written: the object is gone again, and all it took."""
    pages = up.kernel.mmap(4096)
    raw = up.memory_params(1 << 20).to_bytes()
    pages.view[: len(raw)] = raw
    up.kernel.mprotect(pages.va, 4096, PROT_READ)
    used, objects = up.machine.gpus[0].vram_used, len(up.machine.clients[up.root].objects)
    block = bytearray(
        rm.NVOS64_PARAMETERS(
            hRoot=up.root, hObjectParent=up.device, hClass=0x40, pAllocParms=pages.va, paramsSize=len(raw)
        ).to_bytes()
    )
    invalid(errno.EFAULT, up.escape, up.ctl, Escape.NV_ESC_RM_ALLOC, block)
    assert up.machine.gpus[0].vram_used == used
    assert len(up.machine.clients[up.root].objects) == objects


def test_more_memory_than_the_system_has_is_refused(up: Client) -> None:
    for size in (1 << 62, 1 << 63):
        refused(0x51, up.alloc, up.device, RmClass.NV01_MEMORY_SYSTEM, up.memory_params(size, system=True))
    fd = up.kernel.open("/dev/nvidiactl")
    refused(0x51, descriptor, up, 0, 1 << 63, 0, fd, 0x3E)
    refused(0x29, descriptor, up, 0, 4096, 1, fd, 0x3E)
    objects = len(up.machine.clients[up.root].objects)
    refused(0x1F, descriptor, up, 0, 4096, 0, up.gpu, 0x3E)
    assert len(up.machine.clients[up.root].objects) == objects
    assert descriptor(up, 0, 4096, 0, fd, 0x3E)


def test_the_largest_pages_hold_512_mib(up: Client) -> None:
    attr = up.memory_params(4096).attr | 3 << 23
    params = up.memory_params(5000, attr=attr, attr2=2 << 20 | 5, alignment=512 << 20)
    up.alloc(up.device, RmClass.NV01_MEMORY_LOCAL_USER, params)
    assert rm_classes.NV_MEMORY_ALLOCATION_PARAMS.from_bytes(up.last).size == 512 << 20
    params = up.memory_params(5000, attr=attr, attr2=3 << 20 | 5)
    refused(0x1F, up.alloc, up.device, RmClass.NV01_MEMORY_LOCAL_USER, params)


def test_no_address_is_above_all_memory(make: Make) -> None:
    refused(0x1E, descriptor, make(filtered=False).up(), (1 << 64) - 4096, 4096)


def test_handles_that_the_caller_chose_are_not_given_out(up: Client) -> None:
    following = up.alloc(up.device, RmClass.NV20_SUBDEVICE_0) + 2
    up.alloc(up.device, RmClass.NV20_SUBDEVICE_0, handle=following)
    handles = [up.alloc(up.device, RmClass.NV20_SUBDEVICE_0) for _ in range(3)]
    assert following not in handles
    assert len(set(handles)) == 3


def test_a_compute_object_needs_no_parameters(up: Client) -> None:
    ring = up.ring(up.group())
    up.alloc(ring.handle, up.generation.compute)
    up.register_channel(ring)


def test_an_unattributed_error_does_not_replace_a_channel_error(up: Client) -> None:
    dead, other = up.copy_channel(2), up.copy_channel(3)
    dead.push(method(0, 0x0C, 0))
    assert dead.wait_error() == RcCode.PBDMA_ERROR
    up.doorbell.write32(0x90, 0x7F_0FFF)
    assert other.wait_error() == RcCode.RESET_CHANNEL
    assert dead.error() == RcCode.PBDMA_ERROR
    refused(0x40, up.ring, up.machine.channels[1].group.handle)


def test_a_flush_names_as_many_addresses_as_there_is_room_for(make: Make) -> None:
    up = make(filtered=False).up()
    number = Control.NV2080_CTRL_CMD_FB_FLUSH_GPU_CACHE
    up.control(up.subdevice, number, addressArraySize=500)
    refused(0x1F, up.control, up.subdevice, number, addressArraySize=501)


@pytest.mark.parametrize("driver", ["570", "595"])
def test_every_branch_reports_the_order_of_sms(make: Make, driver: str) -> None:
    up = make(driver=driver).up()
    order = up.control(up.subdevice, Control.NV2080_CTRL_CMD_GR_GET_GLOBAL_SM_ORDER)
    assert (order.numSm, order.numTpc) == (132, 66)


def test_a_device_needs_no_parameters(up: Client) -> None:
    assert up.alloc(up.root, RmClass.NV01_DEVICE_0)
