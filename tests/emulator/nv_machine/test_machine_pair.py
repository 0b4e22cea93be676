"""Two GPUs in one machine: what each has of its own, and peers over NVLink, over PCIe and without a path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from drivers.nv.layouts import rm, rm_classes
from drivers.nv.layouts.controls import Control
from drivers.nv.layouts.fault import RcCode
from drivers.nv.layouts.gpfifo import UsermodeRegister
from drivers.nv.layouts.rm import Escape
from drivers.nv.layouts.rm_classes import RmClass
from drivers.nv.layouts.status import NvStatus
from drivers.nv.layouts.uvm import NvProcessorUuid, UvmCommand, UvmGpuMappingAttributes
from emulator.nv.machine import NvMachines, check_variant, open_machine
from emulator.nv.profiles import Link
from hcq.counters import Counters
from hcq.errors import UsageError
from tests.emulator.nv_machine.client import MIB, Client, Memory, sem, wait_word
from tests.emulator.nv_machine.copying import copy
from tests.emulator.nv_machine.refusals import refused

Make = Callable[..., Client]
ENABLE, DISABLE = UvmCommand.UVM_ENABLE_PEER_ACCESS, UvmCommand.UVM_DISABLE_PEER_ACCESS
CREATE, MAP = UvmCommand.UVM_CREATE_EXTERNAL_RANGE, UvmCommand.UVM_MAP_EXTERNAL_ALLOCATION
LATE = 0x5_0000_0000


def pair(make: Make, link: Link | None, *profiles: str) -> tuple[Client, Client]:
    """Return a client on each GPU of one machine, each with its own RM client and its own UVM descriptor."""
    kernel = open_machine(*(profiles or ("sm_90", "sm_90")), link=link)
    a, b = (make(shared=kernel, index=index).up() for index in range(2))
    return a, b


def register(mapping: Client, other: Client) -> None:
    mapping.uvm_call(UvmCommand.UVM_REGISTER_GPU, gpu_uuid=other.uuid, rmCtrlFd=-1)


def both(a: Client, b: Client) -> dict[str, Any]:
    return {"gpuUuidA": a.uuid, "gpuUuidB": b.uuid}


def show(client: Client, memory: Memory, owner: Client, *on: Client, va: int = 0) -> None:
    """Map memory of `owner` through the UVM descriptor of `client`, on the GPUs `on` or that of `client`."""
    va = va or memory.va
    client.uvm_call(CREATE, base=va, length=memory.size)
    attributes = tuple(UvmGpuMappingAttributes(gpuUuid=one.uuid, gpuMappingType=1) for one in on or (client,))
    fields = {"base": va, "length": memory.size, "perGpuAttributes": attributes}
    fields |= {"gpuAttributesCount": len(attributes), "hMemory": memory.handle}
    try:
        client.uvm_call(MAP, **fields, rmCtrlFd=owner.ctl, hClient=owner.root)
    except Exception:
        client.uvm_call(UvmCommand.UVM_FREE, base=va, length=memory.size)
        raise


def read_by_copy(client: Client, source: int) -> bytes:
    """Return 16 bytes at an address, read by a copy engine of the GPU."""
    ring, target = client.copy_channel(), client.memory(MIB)
    ring.push(copy(source, target.va, 16) + sem(target.va + 0x1000, 7, RELEASE_WFI=True))
    wait_word(target, 0x1000, 7, client)
    return bytes(target.view[:16])


def test_every_gpu_is_listed(make: Make):
    a, b = pair(make, None, "sm_90", "sm_120")
    cards = bytearray(32 * rm.nv_ioctl_card_info_t.SIZE)
    a.escape(a.ctl, Escape.NV_ESC_CARD_INFO, cards)
    size = rm.nv_ioctl_card_info_t.SIZE
    seen = [rm.nv_ioctl_card_info_t.from_bytes(cards[at : at + size]) for at in range(0, 3 * size, size)]
    assert [one.valid for one in seen] == [True, True, False]
    assert [one.minor_number for one in seen[:2]] == [0, 1]
    assert len({one.pci_info.bus for one in seen[:2]}) == 2
    listed = a.control(a.root, Control.NV0000_CTRL_CMD_GPU_GET_PROBED_IDS).gpuIds
    assert listed[:3] == (seen[0].gpu_id, seen[1].gpu_id, 0xFFFF_FFFF)
    number = Control.NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2
    assert [a.control(a.root, number, gpuId=one).deviceInstance for one in listed[:2]] == [0, 1]
    assert a.uuid != b.uuid
    name = Control.NV2080_CTRL_CMD_GPU_GET_NAME_STRING
    names = [one.control(one.subdevice, name).gpuNameString for one in (a, b)]
    assert names == ["Emulated H200", "Emulated RTX 5090"]
    assert a.kernel.list_dir("/dev") == ["nvidia-uvm", "nvidia0", "nvidia1", "nvidiactl"]
    params = rm_classes.NV0080_ALLOC_PARAMETERS(deviceId=2, hClientShare=a.root)
    refused(NvStatus.INVALID_ARGUMENT, a.alloc, a.root, RmClass.NV01_DEVICE_0, params)


def test_each_gpu_has_its_own_memory_doorbells_and_objects(make: Make):
    a, b = pair(make, Link.NVLINK)
    used = a.card.vram_used
    memory = b.memory(4 * MIB)
    assert a.card.vram_used == used, "memory of one GPU is not taken from the other"
    assert b.card.vram_used >= 4 * MIB
    assert b.card.bar1_free < a.card.bar1_free
    refused(NvStatus.INVALID_ARGUMENT, b.map_fd, b.device, memory.handle, 4096, a.card.node)
    device = a.alloc(a.root, RmClass.NV01_DEVICE_0, rm_classes.NV0080_ALLOC_PARAMETERS(deviceId=1))
    kind: Any = a.structs["NV_VASPACE_ALLOCATION_PARAMETERS"]
    there = a.alloc(device, RmClass.FERMI_VASPACE_A, kind(flags=8))
    refused(NvStatus.INVALID_OBJECT_PARENT, a.group, hVASpace=there)
    a.uvm_call(UvmCommand.UVM_UNREGISTER_GPU_VASPACE, gpuUuid=a.uuid)
    refused(NvStatus.INVALID_DEVICE, a.register_space, there)
    ring = b.copy_channel()
    a.doorbell.write32(UsermodeRegister.NOTIFY_CHANNEL_PENDING, ring.token)
    assert any("no channel's token" in text for text in a.reports())


def test_each_gpu_has_its_own_counters(make: Make):
    a, b = pair(make, None)
    counted = Counters()
    assert b.kernel.count_kernels(counted, 1) is None
    assert (a.card.counters, b.card.counters) == (None, counted)
    assert b.kernel.count_kernels(None, 1) is counted


def test_caches_of_one_gpu_are_not_invalidated_by_the_other(make: Make):
    a, b = pair(make, None)
    for one in (a, b):
        one.card.constants[1, 0x1000] = b"old"
    a.card.invalidate(instructions=True, constants=True, data=True)
    assert (len(a.card.constants), len(b.card.constants)) == (0, 1)


def test_gpus_with_nvlink_are_peers_once_both_are_registered(make: Make):
    a, b = pair(make, Link.NVLINK)
    there = a.memory(MIB)
    there.view[:16] = bytes(range(16))
    refused(NvStatus.INVALID_DEVICE, show, b, there, a)
    register(b, a)
    refused(NvStatus.INVALID_DEVICE, b.uvm_call, ENABLE, **both(a, b))
    show(b, there, a)
    assert read_by_copy(b, there.va) == bytes(range(16))
    refused(NvStatus.INVALID_DEVICE, b.uvm_call, DISABLE, **both(a, b))
    assert not b.reports()


def test_gpus_on_pcie_are_peers_between_enable_and_disable(make: Make):
    a, b = pair(make, Link.PCIE)
    there = a.memory(MIB)
    there.view[:16] = bytes(range(16))
    refused(NvStatus.INVALID_DEVICE, b.uvm_call, ENABLE, **both(a, b))
    register(b, a)
    refused(NvStatus.INVALID_DEVICE, show, b, there, a)
    refused(NvStatus.INVALID_DEVICE, b.uvm_call, ENABLE, **both(b, b))
    wrong = {"gpuUuidA": NvProcessorUuid(uuid=bytes(16)), "gpuUuidB": b.uuid}
    refused(NvStatus.INVALID_DEVICE, b.uvm_call, ENABLE, **wrong)
    b.uvm_call(ENABLE, **both(a, b))
    refused(NvStatus.INVALID_DEVICE, b.uvm_call, ENABLE, **both(b, a))
    show(b, there, a)
    assert read_by_copy(b, there.va) == bytes(range(16))
    b.uvm_call(DISABLE, **both(a, b))
    ring = b.copy_channel()
    ring.push(copy(there.va, there.va + 64, 16) + sem(ring.memory.va + 0x6000, 1))
    assert ring.wait_error() == RcCode.MMU_FAULT
    assert any("UVM_DISABLE_PEER_ACCESS" in text for text in b.reports())


def test_an_engine_writes_the_memory_of_a_peer(make: Make):
    a, b = pair(make, Link.NVLINK)
    there, here = a.memory(MIB), b.memory(MIB)
    register(b, a)
    show(b, there, a)
    here.view[:16] = b"0123456789abcdef"
    ring = b.copy_channel()
    ring.push(copy(here.va, there.va + 0x100, 16) + sem(here.va + 0x1000, 3, RELEASE_WFI=True))
    wait_word(here, 0x1000, 3, b)
    assert read_by_copy(a, there.va + 0x100) == b"0123456789abcdef"


def test_gpus_without_a_path_share_memory_of_the_system_alone(make: Make):
    a, b = pair(make, None)
    host, local = a.memory(MIB, system=True), a.memory(MIB)
    refused(NvStatus.INVALID_DEVICE, show, b, host, a)
    register(b, a)
    refused(NvStatus.NOT_SUPPORTED, b.uvm_call, ENABLE, **both(a, b))
    refused(NvStatus.INVALID_DEVICE, show, b, local, a)
    host.view[:4] = b"host"
    show(b, host, a)
    assert read_by_copy(b, host.va)[:4] == b"host"


def test_one_call_maps_on_several_gpus_or_on_none(make: Make):
    a, b = pair(make, Link.NVLINK)
    there = a.memory(MIB)
    kind: Any = a.structs["NV_VASPACE_ALLOCATION_PARAMETERS"]
    device = a.alloc(a.root, RmClass.NV01_DEVICE_0, rm_classes.NV0080_ALLOC_PARAMETERS(deviceId=1))
    space = a.alloc(device, RmClass.FERMI_VASPACE_A, kind(flags=8))
    register(a, b)
    refused(NvStatus.INVALID_DEVICE, show, a, there, a, a, b, va=LATE)
    (file,) = [one for one in a.kernel.files.values() if one.fd == a.uvm_fd]
    assert LATE not in file.uvm.gpus[a.card].mapped
    a.register_space(space, gpuUuid=b.uuid)
    show(a, there, a, a, b, va=LATE)
    assert all(LATE in one.mapped for one in file.uvm.gpus.values())
    a.uvm_call(UvmCommand.UVM_UNMAP_EXTERNAL, base=LATE, length=MIB, gpuUuid=b.uuid)
    assert [LATE in file.uvm.gpus[one.card].mapped for one in (a, b)] == [True, False]


def test_a_gpu_that_is_unregistered_takes_its_memory_from_its_peers(make: Make):
    a, b = pair(make, Link.NVLINK)
    there = a.memory(MIB)
    register(b, a)
    show(b, there, a)
    (file,) = [one for one in b.kernel.files.values() if one.fd == b.uvm_fd]
    b.uvm_call(UvmCommand.UVM_UNREGISTER_GPU, gpu_uuid=a.uuid)
    assert there.va not in file.uvm.gpus[b.card].mapped
    assert not file.uvm.peers


def test_a_name_lists_the_gpus_of_a_machine():
    found = check_variant("sm_90+595+sm_90+pcie")
    assert (found.profiles, found.branch, found.options) == (("sm_90", "sm_90"), "595", {"pcie"})
    for wrong in ("sm_90+sm_91", "sm_90+595+570", "sm_90+sm_90+pcie+apart", "sm_90+native+native"):
        with pytest.raises(UsageError, match="nv-emu:sm_90\\+sm_90"):
            check_variant(wrong)


def test_devices_of_several_gpus_share_a_machine():
    machines = NvMachines()
    first, second = machines("sm_90+sm_90"), machines("sm_90+sm_90")
    assert first is second
    assert first.machine.link is Link.NVLINK
    others = [machines(name) for name in ("sm_90+sm_90+pcie", "sm_90+sm_90+apart", "sm_90+sm_89")]
    assert [one.machine.link for one in others] == [Link.PCIE, None, Link.PCIE]
    assert machines("sm_90") is not machines("sm_90")
