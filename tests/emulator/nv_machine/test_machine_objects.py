from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from drivers.kernel import MAP_PRIVATE, address_of
from drivers.nv.layouts import controls as ctl
from drivers.nv.layouts import rm, rm_classes, uvm
from drivers.nv.layouts.controls import Control, FbInfo, GrInfo
from drivers.nv.layouts.gpfifo import USERMODE_BYTES
from drivers.nv.layouts.rm import Escape
from drivers.nv.layouts.rm_classes import RmClass
from drivers.nv.layouts.status import NvStatus
from drivers.nv.layouts.uvm import UvmCommand
from emulator.nv.machine import open_machine
from hcq.errors import DriverError, OutOfMemoryError, UnsupportedError, UsageError
from tests.emulator.nv_machine.client import MIB, Client
from tests.emulator.nv_machine.refusals import invalid, refused

PROFILES = ["sm_80", "sm_90", "sm_120"]
DRIVERS = ["570", "580", "590", "595"]

Make = Callable[..., Client]


def test_unknown_profiles_and_drivers_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="sm_80, sm_86, sm_89, sm_90, sm_100, sm_120"):
        open_machine("sm_75")
    with pytest.raises(UnsupportedError, match="570, 580"):
        open_machine("sm_90", driver="610")


def test_the_sandbox_hides_the_version_file(make: Make):
    hidden, bare = make().kernel, make(filtered=False).kernel
    invalid(errno.ENOENT, hidden.read_file, "/proc/driver/nvidia/version")
    assert hidden.read_file("/proc/driver/nvidia/params")
    assert hidden.list_dir("/proc/driver/nvidia") == ["params"]
    assert b"580.159.03" in bare.read_file("/proc/driver/nvidia/version")
    assert "nvidia0" in hidden.list_dir("/dev")


def test_unknown_files_do_not_exist(make: Make):
    kernel = make().kernel
    for call in (kernel.open, kernel.read_file, kernel.list_dir):
        invalid(errno.ENOENT, call, "/dev/nvidia7")
    invalid(errno.EACCES, kernel.open, "/dev/nvidiactl", os.O_RDONLY)
    invalid(errno.EBADF, kernel.close, 5)


def test_the_kernel_says_once_why_it_refused_a_call(make: Make):
    client = make().up()
    refused(NvStatus.INVALID_OBJECT_HANDLE, client.alloc, 1, RmClass.NV01_DEVICE_0)
    assert "0x1" in client.kernel.refusal()
    assert not client.kernel.refusal()


def test_a_text_is_read_to_its_end(make: Make):
    kernel = make().kernel
    fd = kernel.open("/proc/devices", os.O_RDONLY)
    text = b""
    while part := kernel.read(fd, 7):
        text += part
    assert b"195 nvidia" in text
    invalid(errno.ENOTTY, kernel.ioctl, fd, 0, bytearray(4))


@pytest.mark.parametrize(
    "request_word",
    [rm.request(0x2B, 40), rm.request(0x2B, 49), rm.request(0x57, 64), rm.request(0x99, 8), 0x2B],
)
def test_wrong_sizes_and_unknown_escapes_are_transport_errors(make: Make, request_word: Any):
    client = make().nodes()
    size = request_word >> 16 & 0x3FFF
    with pytest.raises(DriverError) as got:
        client.kernel.ioctl(client.ctl, request_word, bytearray(size))
    assert got.value.status in (errno.EINVAL, errno.ENOTTY)
    assert client.machine.refusals


def test_a_block_of_another_size_than_announced_is_refused(make: Make):
    client = make().nodes()
    invalid(errno.EINVAL, client.kernel.ioctl, client.ctl, rm.request(0x2B, 48), bytearray(32))


def test_a_descriptor_is_registered_once(make: Make):
    client = make().nodes()
    invalid(errno.EINVAL, client.register_fd, client.gpu)
    client.ctl = client.uvm_fd
    invalid(errno.EINVAL, client.register_fd, client.kernel.open("/dev/nvidia0"))


def test_a_bad_user_address_is_a_fault_of_the_call(make: Make):
    client = make().nodes().objects()
    block = bytearray(
        rm.NVOS54_PARAMETERS(
            hClient=client.root,
            hObject=client.root,
            cmd=Control.NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS,
            params=0x10,
            paramsSize=128,
        ).to_bytes()
    )
    invalid(errno.EFAULT, client.escape, client.ctl, Escape.NV_ESC_RM_CONTROL, block)


def test_the_short_form_of_alloc_works_too(make: Make):
    client = make().nodes()
    out = client.call(client.ctl, Escape.NV_ESC_RM_ALLOC, rm.NVOS21_PARAMETERS, hClass=RmClass.NV01_ROOT)
    assert (out.status, out.hObjectNew >> 16) == (NvStatus.OK, 0xC1D0)


def test_an_escape_can_be_carried_by_address_outside_a_sandbox(make: Make):
    client = make(filtered=False).nodes()
    inner = bytearray(rm.nv_ioctl_card_info_t.SIZE * 32)
    block = bytearray(rm.nv_ioctl_xfer_t(cmd=200, size=len(inner), ptr=address_of(inner)).to_bytes())
    client.escape(client.ctl, Escape.NV_ESC_IOCTL_XFER_CMD, block)
    assert rm.nv_ioctl_card_info_t.from_bytes(inner).valid
    loop = bytearray(rm.nv_ioctl_xfer_t(cmd=Escape.NV_ESC_IOCTL_XFER_CMD).to_bytes())
    invalid(errno.EINVAL, client.escape, client.ctl, Escape.NV_ESC_IOCTL_XFER_CMD, loop)
    sandboxed = make().nodes()
    invalid(errno.EINVAL, sandboxed.escape, sandboxed.ctl, Escape.NV_ESC_IOCTL_XFER_CMD, block)
    cards = bytearray(rm.nv_ioctl_card_info_t.SIZE * 64)
    client.kernel.ioctl(client.ctl, rm.request(200, len(cards)), address_of(cards))
    assert rm.nv_ioctl_card_info_t.from_bytes(cards).pci_info.device_id == 0x2335


@pytest.mark.parametrize("driver", DRIVERS)
def test_the_version_can_be_queried(make: Make, driver: Any):
    client = make(driver=driver).nodes().objects()
    kind = rm.nv_ioctl_rm_api_version_t
    out = client.call(client.ctl, Escape.NV_ESC_CHECK_VERSION_STR, kind, cmd=rm.VERSION_QUERY)
    assert out.versionString.startswith(driver)
    texts = [bytearray(64) for _ in range(3)]
    a, b, c = map(address_of, texts)
    client.control(
        client.root,
        Control.NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION,
        sizeOfStrings=64,
        pDriverVersionBuffer=a,
        pVersionBuffer=b,
        pTitleBuffer=c,
    )
    assert texts[0].startswith(driver.encode())


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("driver", DRIVERS)
def test_every_profile_comes_up_on_every_driver(make: Make, profile: Any, driver: Any):
    client = make(profile, driver=driver).up()
    assert client.machine.fatal == []
    ring = client.compute_channel()
    assert ring.error() == 0


def test_handles_are_unique(make: Make):
    client = make().nodes().objects()
    refused(
        NvStatus.INVALID_OBJECT_HANDLE,
        client.alloc,
        client.device,
        RmClass.NV20_SUBDEVICE_0,
        handle=client.subdevice,
    )
    assert client.alloc(client.device, RmClass.NV20_SUBDEVICE_0, handle=0xABCD) == 0xABCD


def test_sizes_of_parameters_must_be_exact(make: Make):
    sandboxed, bare = make().nodes().objects(), make(filtered=False).nodes().objects()
    wrong = bytes(52)
    invalid(errno.EINVAL, sandboxed.alloc, sandboxed.device, RmClass.FERMI_VASPACE_A, wrong)
    refused(NvStatus.INVALID_PARAM_STRUCT, bare.alloc, bare.device, RmClass.FERMI_VASPACE_A, wrong)
    number = Control.NV0000_CTRL_CMD_GPU_GET_PROBED_IDS
    invalid(errno.EINVAL, sandboxed.control, sandboxed.root, number, size=256)
    refused(NvStatus.INVALID_PARAM_STRUCT, bare.control, bare.root, number, size=256)


def test_a_size_of_zero_means_the_size_of_the_class(make: Make):
    client = make().nodes().objects()
    kind: Any = client.structs["NV_VASPACE_ALLOCATION_PARAMETERS"]
    assert client.alloc(client.device, RmClass.FERMI_VASPACE_A, kind(flags=8), size=0)


def test_freeing_an_object_frees_its_children(up: Client):
    group = up.group()
    ring = up.ring(group)
    up.free(group, up.device)
    refused(
        NvStatus.INVALID_OBJECT_HANDLE,
        up.control,
        ring.handle,
        Control.NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN,
    )
    assert not up.machine.gpus[0].tokens
    refused(NvStatus.INVALID_OBJECT_HANDLE, up.free, group, up.device)


def test_closing_the_descriptor_frees_the_client(up: Client):
    up.memory(4096)
    up.kernel.close(up.ctl)
    assert up.machine.clients == {}
    assert up.machine.gpus[0].vram_used == 0


def test_a_client_belongs_to_its_descriptor(up: Client):
    up.ctl = up.kernel.open("/dev/nvidiactl")
    refused(
        NvStatus.INSUFFICIENT_PERMISSIONS, up.control, up.root, Control.NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS
    )


def test_gpu_information_controls(up: Client):
    ids = up.control(up.root, Control.NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS).gpuIds
    assert ids[1] == 0xFFFF_FFFF
    info = up.control(up.root, Control.NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2, gpuId=ids[0])
    assert info.deviceInstance == 0
    assert (
        up.control(up.subdevice, Control.NV2080_CTRL_CMD_GPU_GET_NAME_STRING).gpuNameString == "Emulated H200"
    )
    assert up.control(up.subdevice, Control.NV2080_CTRL_CMD_MC_GET_ARCH_INFO).architecture == 0x180
    order = up.control(up.subdevice, Control.NV2080_CTRL_CMD_GR_GET_GLOBAL_SM_ORDER)
    assert (order.numSm, order.numTpc) == (132, 66)
    assert up.control(up.subdevice, Control.NV2080_CTRL_CMD_GR_GET_GPC_MASK).gpcMask == 0xFF
    masks = [
        up.control(up.subdevice, Control.NV2080_CTRL_CMD_GR_GET_TPC_MASK, gpcId=i).tpcMask for i in range(8)
    ]
    assert sum(mask.bit_count() for mask in masks) == 66
    caps = up.control(up.subdevice, Control.NV2080_CTRL_CMD_CE_GET_ALL_CAPS)
    assert caps.present == 0x3F
    assert [cap[0] & 1 for cap in caps.capsTbl[:6]] == [1, 1, 0, 0, 0, 0]


DIES = {
    "sm_80": (8, 8, 7, 54), "sm_86": (7, 6, 7, 41), "sm_89": (12, 6, 11, 64), "sm_90": (8, 9, 8, 66),
    "sm_100": (8, 10, 8, 74), "sm_120": (12, 8, 11, 85),
}  # fmt: skip
"""GPCs of the full die, TPCs of each; GPCs in use, TPCs in use."""


@pytest.mark.parametrize("profile", DIES)
def test_numbers_on_the_die_have_gaps_and_logical_ones_have_none(make: Any, profile: str):
    """The bit of a mask is the number on the die; the order of SMs counts what is in use (ctrl2080gr.h)."""
    up = make(profile).up()
    gpcs, tpcs, gpcs_used, tpcs_used = DIES[profile]
    present = up.control(up.subdevice, Control.NV2080_CTRL_CMD_GR_GET_GPC_MASK).gpcMask
    masks = [
        up.control(up.subdevice, Control.NV2080_CTRL_CMD_GR_GET_TPC_MASK, gpcId=i).tpcMask
        for i in range(gpcs)
    ]
    assert present.bit_count() == gpcs_used
    assert [bool(mask) for mask in masks] == [bool(present >> i & 1) for i in range(gpcs)]
    numbers = [i * tpcs + bit for i, mask in enumerate(masks) for bit in range(tpcs) if mask >> bit & 1]
    assert len(numbers) == tpcs_used
    assert numbers[-1] == gpcs * tpcs - 1
    order = up.control(up.subdevice, Control.NV2080_CTRL_CMD_GR_GET_GLOBAL_SM_ORDER)
    sms = order.globalSmId[: order.numSm]
    assert [sm.globalTpcId for sm in sms] == [i // 2 for i in range(2 * tpcs_used)]
    counts = Counter(sm.gpcId for sm in sms)
    assert [counts[i] for i in range(gpcs_used)] == [2 * mask.bit_count() for mask in masks if mask]


def test_gr_information_is_answered_in_the_callers_list(up: Client):
    pairs = bytearray(
        b"".join(ctl.NV2080_CTRL_GR_INFO(index=i).to_bytes() for i in (GrInfo.SM_VERSION, 0x17))
    )
    up.control(
        up.subdevice, Control.NV2080_CTRL_CMD_GR_GET_INFO, grInfoListSize=2, grInfoList=address_of(pairs)
    )
    assert [ctl.NV2080_CTRL_GR_INFO.from_bytes(pairs, at).data for at in (0, 8)] == [0x900, 9]
    pairs[0] = 0x77
    refused(
        NvStatus.INVALID_ARGUMENT,
        up.control,
        up.subdevice,
        Control.NV2080_CTRL_CMD_GR_GET_INFO,
        grInfoListSize=2,
        grInfoList=address_of(pairs),
    )


def test_free_video_memory_shrinks_and_grows(up: Client):
    def free() -> int:
        ask = (ctl.NV2080_CTRL_FB_INFO(index=FbInfo.HEAP_FREE),)
        out = up.control(
            up.subdevice, Control.NV2080_CTRL_CMD_FB_GET_INFO_V2, fbInfoListSize=1, fbInfoList=ask
        )
        return out.fbInfoList[0].data

    before = free()
    handle = up.alloc(up.device, RmClass.NV01_MEMORY_LOCAL_USER, up.memory_params(MIB))
    assert before - free() == 1024
    up.free(handle, up.device)
    assert free() == before


def test_the_class_list_is_counted_then_read(up: Client):
    count = up.control(up.device, Control.NV0080_CTRL_CMD_GPU_GET_CLASSLIST).numClasses
    out = bytearray(4 * count)
    number = Control.NV0080_CTRL_CMD_GPU_GET_CLASSLIST
    up.control(up.device, number, numClasses=count, classList=address_of(out))
    classes = [int.from_bytes(out[i : i + 4], "little") for i in range(0, len(out), 4)]
    assert {0xC86F, 0xCBC0, 0xC8B5, 0xC661} <= set(classes)
    refused(0x1F, up.control, up.device, number, numClasses=count - 1, classList=address_of(out))
    two = up.control(up.device, Control.NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2)
    assert list(two.classList[: two.numClasses]) == classes


def test_a_control_is_unknown_to_objects_of_other_classes(make: Make):
    number = Control.NV2080_CTRL_CMD_MC_GET_ARCH_INFO
    sandboxed, bare = make().nodes().objects(), make(filtered=False).nodes().objects()
    refused(NvStatus.NOT_SUPPORTED, sandboxed.control, sandboxed.device, number)
    invalid(errno.EINVAL, sandboxed.control, sandboxed.device, number, size=4)
    refused(NvStatus.NOT_SUPPORTED, bare.control, bare.device, number, size=4)


def test_boost_is_granted(up: Client):
    up.control(up.subdevice, Control.NV2080_CTRL_CMD_PERF_BOOST, flags=0x12, duration=0xFFFF_FFFF)


def test_a_bare_machine_returns_what_the_sandbox_filters(make: Make):
    client = make(filtered=False).nodes().objects()
    out = client.control(client.root, Control.NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION_V2)
    assert out.driverVersionBuffer.startswith("580")


def test_memory_is_one_for_the_cpus_two_views(up: Client):
    memory = up.memory(2 * MIB)
    fd = up.map_fd(up.device, memory.handle, 4096, "/dev/nvidia0", offset=MIB)
    other = up.kernel.mmap(4096, fd=fd)
    memory.view[MIB] = 77
    assert other.view[0] == 77
    up.kernel.close(fd)
    assert other.view[0] == 77
    up.kernel.munmap(other.va, 4096)
    assert any("make them equal" in text for text in up.reports()) is False


def test_a_descriptor_has_one_mapping(up: Client):
    memory = up.memory(8192)
    fd = up.map_fd(up.device, memory.handle, 4096, "/dev/nvidia0")
    invalid(errno.EINVAL, up.map_fd, up.device, memory.handle, 4096, "", fd=fd)
    up.kernel.mmap(4096, fd=fd)
    invalid(errno.EINVAL, up.kernel.mmap, 4096, fd=fd)


@pytest.mark.parametrize(
    "kw", [{"size": 8192}, {"size": 4096, "offset": 4096}, {"size": 4096, "flags": MAP_PRIVATE}]
)
def test_mmap_takes_exactly_what_was_prepared(up: Client, kw: Any):
    memory = up.memory(8192)
    fd = up.map_fd(up.device, memory.handle, 4096, "/dev/nvidia0")
    kw = dict(kw)
    invalid(errno.EINVAL, up.kernel.mmap, kw.pop("size"), fd=fd, **kw)


def test_mapping_goes_through_the_right_node_and_object(up: Client):
    local, system = up.memory(4096), up.memory(4096, system=True)
    refused(0x1F, up.map_fd, up.device, local.handle, 4096, "/dev/nvidiactl")
    refused(0x1F, up.map_fd, up.device, system.handle, 4096, "/dev/nvidia0")
    refused(0x36, up.map_fd, up.subdevice, local.handle, 4096, "/dev/nvidia0")
    assert up.map_fd(up.device, local.handle, 4096, "", fd=up.kernel.open("/dev/nvidia0")), "not registered"
    refused(0x1F, up.map_fd, up.device, local.handle, 8192, "/dev/nvidia0")
    refused(0x29, up.map_fd, up.device, local.handle, 4096, "/dev/nvidia0", flags=1)
    refused(0x31, up.map_fd, up.device, up.vaspace, 4096, "/dev/nvidia0")
    invalid(errno.EINVAL, up.map_fd, up.device, local.handle, 4096, "", fd=up.uvm_fd)
    invalid(errno.EINVAL, up.kernel.mmap, 4096, fd=up.kernel.open("/dev/nvidia0"))


def test_the_doorbell_page_is_mapped_by_mmio_alone(up: Client):
    page = up.alloc(up.subdevice, 0xC661)
    fd = up.map_fd(up.subdevice, page, USERMODE_BYTES, "/dev/nvidia0")
    invalid(errno.EINVAL, up.kernel.mmap, USERMODE_BYTES, fd=fd)
    up.kernel.mmio(fd, USERMODE_BYTES, 0).close()
    memory = up.memory(USERMODE_BYTES)
    fd = up.map_fd(up.device, memory.handle, USERMODE_BYTES, "/dev/nvidia0")
    invalid(errno.EINVAL, up.kernel.mmio, fd, USERMODE_BYTES, 0)


def test_unmapping_takes_the_cookie_back(up: Client):
    memory = up.memory(4096)
    up.unmap(memory.handle, up.cookie)
    refused(NvStatus.INVALID_ARGUMENT, up.unmap, memory.handle, up.cookie)


def test_the_size_is_rounded_to_pages_and_written_back(up: Client):
    attr = up.memory_params(4096).attr | 3 << 23
    up.alloc(up.device, RmClass.NV01_MEMORY_LOCAL_USER, up.memory_params(5000, attr=attr, attr2=1 << 20 | 5))
    assert rm_classes.NV_MEMORY_ALLOCATION_PARAMS.from_bytes(up.last).size == 2 * MIB


def descriptor(  # noqa: PLR0917 - the fields of the call
    client: Client,
    address: int,
    size: int,
    flags: int = 1 << 30 | 1 << 12 | 1 << 4,
    fd: int = -1,
    cls: int = 0x71,
) -> int:
    kind = rm.nv_ioctl_nvos02_parameters_with_fd
    params = rm.NVOS02_PARAMETERS(
        hRoot=client.root,
        hObjectParent=client.device,
        hClass=cls,
        flags=flags,
        pMemory=address,
        limit=size - 1,
    )
    out = client.call(client.gpu, Escape.NV_ESC_RM_ALLOC_MEMORY, kind, params=params, fd=fd).params
    client._checked(int(out.status))
    return out.hObjectNew


def test_user_pages_can_be_described_and_mapped(up: Client):
    pages = up.kernel.mmap(8192)
    handle = descriptor(up, pages.va, 8192)
    up.map_gpu(handle, pages.va, 8192)
    up.kernel.munmap(pages.va, 8192)
    pages.view[0] = 1  # pinned: still there
    assert "pinned" in up.reports()[0]
    up.uvm_call(UvmCommand.UVM_FREE, base=pages.va, length=8192)
    up.free(handle, up.device)
    up.kernel.munmap(pages.va, 8192)


@pytest.mark.parametrize(
    ("kw", "code"), [({"size": 100}, 0x1E), ({"flags": 0}, 0x29), ({"fd": 3}, 0x1F), ({"cls": 0x40}, 0x22)]
)
def test_descriptors_of_user_pages_are_validated(up: Client, kw: Any, code: Any):
    pages = up.kernel.mmap(8192)
    refused(code, descriptor, up, pages.va, **({"size": 8192} | kw))
    refused(0x1E, descriptor, up, pages.va + 8, 4096)


def test_unreadable_user_pages_are_refused(up: Client):
    invalid(errno.EFAULT, descriptor, up, 0x1000, 4096)


def test_system_memory_through_the_older_call(up: Client):
    fd = up.kernel.open("/dev/nvidiactl")
    descriptor(up, 0, 8192, 0, fd, 0x3E)
    assert up.kernel.mmap(8192, fd=fd).size == 8192


def test_out_of_video_memory_is_reported_and_nothing_leaks(up: Client):
    used = up.machine.gpus[0].vram_used
    refused(0x51, up.alloc, up.device, 0x40, up.memory_params(32 << 30))
    assert up.machine.gpus[0].vram_used == used
    assert issubclass(OutOfMemoryError, DriverError)
    assert issubclass(UsageError, ValueError)
    assert uvm.UvmCommand.UVM_FREE == 34
