"""ALLOC, FREE, MAP, UNMAP, dma-bufs and mappings for the CPU."""

from __future__ import annotations

import dataclasses
import errno
from typing import TYPE_CHECKING

import pytest

from drivers.amd.layouts import kfd, kfd_unused
from drivers.amd.layouts.kfd import Call, MemFlags, MmapOffset, MmapType
from drivers.kernel import MAP_PRIVATE, address_of
from emulator.amd.machine import open_machine
from emulator.amd.reports import MemoryFault
from emulator.shared.vaspace import AccessKind
from hcq.errors import DriverError, OutOfMemoryError
from tests.emulator.amd_kfd.caller import PAGE, PLACES, SYSTEM, USER, VISIBLE, VRAM
from tests.facts import amd_errnos

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.emulator.amd_kfd.caller import Caller

ALLOC = Call.ALLOC_MEMORY_OF_GPU, kfd.kfd_ioctl_alloc_memory_of_gpu_args
ERRNOS = amd_errnos.ERRNOS


@pytest.mark.parametrize("flags", [VISIBLE, SYSTEM])
def test_cpu_and_gpu_see_the_same_bytes(caller: Caller, flags: int) -> None:
    memory = caller.memory(3 * PAGE, flags)
    view = caller.see(memory)
    assert bytes(view) == bytes(3 * PAGE)
    view[PAGE : PAGE + 4] = b"abcd"
    space = caller.gpus[0].space
    assert space is not None
    assert space.read(memory.va + PAGE, 4, "a test") == b"abcd"
    space.write(memory.va, b"wxyz", "a test")
    assert bytes(view[:4]) == b"wxyz"


def test_handles_name_gpu_and_number(caller: Caller) -> None:
    one, two = caller.memory(PAGE), caller.memory(PAGE)
    assert (one.handle, two.handle) == (caller.id << 32, caller.id << 32 | 1)


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"size": 0}, ERRNOS["ALLOC_MEMORY_OF_GPU"]["size 0"]),
        ({"flags": int(MemFlags.WRITABLE)}, ERRNOS["ALLOC_MEMORY_OF_GPU"]["no type flag"]),
        ({"flags": SYSTEM | MemFlags.VRAM}, errno.EINVAL),
        ({"flags": SYSTEM | 1 << 5}, errno.EINVAL),
        ({"flags": SYSTEM | MemFlags.AQL_QUEUE_MEM}, errno.EINVAL),
        ({"gpu_id": 7}, amd_errnos.ANY_CALL["unknown gpu_id"]),
        ({"va_addr": 0x8000}, errno.EINVAL),
        ({"va_addr": 1 << 47}, errno.EINVAL),
        ({"va_addr": (1 << 47) - PAGE, "size": 2 * PAGE}, errno.EINVAL),
        ({"flags": VRAM, "size": 25 << 30}, ERRNOS["ALLOC_MEMORY_OF_GPU"]["over the limit"]),
        ({"size": 65 << 30}, ERRNOS["ALLOC_MEMORY_OF_GPU"]["over the limit"]),
        ({"flags": int(MemFlags.DOORBELL)}, ERRNOS["ALLOC_MEMORY_OF_GPU"]["doorbell of another size"]),
        ({"flags": int(MemFlags.MMIO_REMAP), "size": 8192}, errno.EINVAL),
        ({"flags": USER}, errno.EINVAL),
        ({"flags": USER, "mmap_offset": 0x1000}, errno.EFAULT),
        ({"flags": USER, "mmap_offset": 0x1008}, errno.EINVAL),
    ],
)
def test_allocations_that_are_refused(caller: Caller, change: dict[str, int], wanted: int) -> None:
    args = {"va_addr": 1 << 40, "size": PAGE, "gpu_id": caller.id, "flags": SYSTEM} | change
    assert caller.refused(*ALLOC, **args) == wanted
    assert caller.gpus[0].handles == {}
    assert (caller.gpus[0].vram_used, caller.machine.process.host_used) == (0, 0)


def test_an_address_belongs_to_one_allocation(caller: Caller) -> None:
    memory = caller.memory(4 * PAGE, to=())
    args = caller.allocate(PAGE, SYSTEM, va_addr=memory.va + 3 * PAGE)
    assert caller.refused(*ALLOC, **args) == errno.EINVAL
    caller.free(memory)
    caller.memory(PAGE, va_addr=memory.va + 3 * PAGE)


def test_contiguous_came_with_a_later_kernel(machine: Callable[..., Caller]) -> None:
    machine().memory(PAGE, VRAM | MemFlags.CONTIGUOUS)
    old = machine(linux="6.1")
    assert old.refused(*ALLOC, **old.allocate(PAGE, VRAM | MemFlags.CONTIGUOUS)) == errno.EINVAL


def test_a_small_bar_has_no_public_memory(machine: Callable[..., Caller]) -> None:
    caller = machine()
    gpu = caller.gpus[0]
    gpu.profile = dataclasses.replace(gpu.profile, visible_bytes=256 << 20)
    wanted = ERRNOS["ALLOC_MEMORY_OF_GPU"]["PUBLIC on a small BAR"]
    assert caller.refused(*ALLOC, **caller.allocate(PAGE, VISIBLE)) == wanted
    caller.memory(PAGE, VRAM)


def test_available_memory_counts_video_memory(caller: Caller) -> None:
    def left() -> int:
        layout = kfd.kfd_ioctl_get_available_memory_args
        return int(caller.call(Call.AVAILABLE_MEMORY, layout, gpu_id=caller.id).available)

    before = left()
    memory = caller.memory(64 << 20, VRAM, to=())
    assert before - left() == 64 << 20
    caller.free(memory)
    assert left() == before
    with pytest.raises(OutOfMemoryError):
        caller.memory(before + PAGE, VRAM)


def test_memory_of_an_apu_is_the_hosts(machine: Callable[..., Caller]) -> None:
    caller = machine("gfx1151")
    layout = kfd.kfd_ioctl_get_available_memory_args
    before = int(caller.call(Call.AVAILABLE_MEMORY, layout, gpu_id=caller.id).available)
    memory = [caller.memory(1 << 20, flags, to=()) for flags in (VRAM, SYSTEM)]
    left = int(caller.call(Call.AVAILABLE_MEMORY, layout, gpu_id=caller.id).available)
    assert (before, before - left) == (32 << 30, 2 << 20)
    assert caller.gpus[0].vram_used == 0
    for one in memory:
        caller.free(one)
    assert caller.machine.process.host_used == 0
    with pytest.raises(OutOfMemoryError):
        caller.memory(before + PAGE, VRAM)


def test_memory_is_reached_after_map_on_that_gpu_alone(machine: Callable[..., Caller]) -> None:
    caller = machine("gfx1100", "gfx1201")
    memory = caller.memory(PAGE, to=())
    spaces = [gpu.space for gpu in caller.gpus]
    assert spaces[0] is not None
    assert spaces[1] is not None
    for space in spaces:
        with pytest.raises(MemoryFault):
            space.read(memory.va, 4, "a test")
    assert caller.map(memory, (1,)).n_success == 1
    spaces[1].read(memory.va, 4, "a test")
    with pytest.raises(MemoryFault) as caught:
        spaces[0].read(memory.va, 4, "a test")
    assert (caught.value.address, caught.value.not_present, caught.value.writes) == (memory.va, True, False)
    caller.map(memory, (0, 1))
    spaces[0].read(memory.va, 4, "a test")


@pytest.mark.parametrize(("flags", "known"), [(VRAM, False), (SYSTEM, True)])
def test_video_memory_that_was_never_written_is_known(
    machine: Callable[..., Caller], flags: int, *, known: bool
) -> None:
    caller = machine(tracks=True)
    memory, space = caller.memory(PAGE, flags), caller.gpus[0].space
    assert space is not None
    assert space.states(memory.va, 4) == (b"\1" if known else b"\0") * 4
    space.write(memory.va + 2, b"x", "a test")
    assert space.states(memory.va, 4)[2] == 1


def test_what_the_cpu_maps_counts_as_written(machine: Callable[..., Caller]) -> None:
    caller = machine(tracks=True)
    memory, space = caller.memory(PAGE, VISIBLE), caller.gpus[0].space
    assert space is not None
    caller.see(memory)
    assert space.states(memory.va, 4) == b"\1" * 4


def test_map_checks_its_array(caller: Caller) -> None:
    memory, layout = caller.memory(PAGE, to=()), kfd.kfd_ioctl_map_memory_to_gpu_args
    wanted, ids = ERRNOS["MAP_MEMORY_TO_GPU"], caller.ids((0,))
    at = address_of(ids)

    def refused(**change: int) -> int:
        args = {"handle": memory.handle, "device_ids_array_ptr": at, "n_devices": 1} | change
        return caller.refused(Call.MAP_MEMORY_TO_GPU, layout, **args)

    assert refused(n_devices=0) == wanted["no devices"]
    assert refused(n_success=2) == wanted["n_success above n_devices"]
    assert refused(device_ids_array_ptr=8) == wanted["array of devices not readable"]
    assert refused(handle=memory.handle + 1) == wanted["bad handle"]
    assert refused(handle=5) == amd_errnos.ANY_CALL["unknown gpu_id"]


def test_n_success_tells_how_far_a_map_came_and_resumes(machine: Callable[..., Caller]) -> None:
    caller = machine("gfx1100", "gfx1201")
    memory, layout = caller.memory(PAGE, to=()), kfd.kfd_ioctl_map_memory_to_gpu_args
    ids = caller.ids((0,)) + b"\7\0\0\0"
    args = {"handle": memory.handle, "device_ids_array_ptr": address_of(ids), "n_devices": 2}
    block = bytearray(layout.pack(**args))
    with pytest.raises(DriverError) as caught:
        caller.kernel.ioctl(caller.fd, kfd.request(Call.MAP_MEMORY_TO_GPU, layout.SIZE), block)
    assert caught.value.status == ERRNOS["MAP_MEMORY_TO_GPU"]["bad device id"]
    assert layout.from_bytes(block).n_success == 1
    assert caller.gpus[0] in caller.gpus[0].handles[0].mapped
    ids[4:] = caller.ids((1,))
    assert caller.call(Call.MAP_MEMORY_TO_GPU, layout, n_success=1, **args).n_success == 2


def test_a_map_with_nothing_left_to_do_is_remarked(caller: Caller) -> None:
    memory, ids = caller.memory(PAGE, to=()), caller.ids((0,))
    caller.call(
        Call.MAP_MEMORY_TO_GPU, kfd.kfd_ioctl_map_memory_to_gpu_args,
        handle=memory.handle, device_ids_array_ptr=address_of(ids), n_devices=1, n_success=1,
    )  # fmt: skip
    assert caller.gpus[0].handles[0].mapped == set()
    assert any("n_success" in report.message for report in caller.kernel.reports)


def test_free_comes_after_unmap(caller: Caller) -> None:
    memory, layout = caller.memory(PAGE), kfd.kfd_ioctl_free_memory_of_gpu_args
    wanted = ERRNOS["FREE_MEMORY_OF_GPU"]
    assert caller.refused(Call.FREE_MEMORY_OF_GPU, layout, handle=memory.handle) == wanted["mapped"]
    caller.unmap(memory)
    with pytest.raises(DriverError):
        caller.unmap(memory)
    caller.free(memory)
    assert caller.refused(Call.FREE_MEMORY_OF_GPU, layout, handle=memory.handle) == wanted["bad handle"]


def test_unmapped_memory_faults_and_the_report_names_it(caller: Caller) -> None:
    memory = caller.memory(PAGE)
    caller.unmap(memory)
    space = caller.gpus[0].space
    assert space is not None
    with pytest.raises(MemoryFault, match="UNMAP_MEMORY_FROM_GPU"):
        space.read(memory.va, 4, "a test")


def test_rights_are_writable_and_executable(caller: Caller) -> None:
    space = caller.gpus[0].space
    assert space is not None
    readable = caller.memory(PAGE, int(MemFlags.GTT))
    space.read(readable.va, 4, "a test")
    with pytest.raises(MemoryFault) as caught:
        space.write(readable.va, b"abcd", "a test")
    assert (caught.value.writes, caught.value.not_present) == (True, False)
    with pytest.raises(MemoryFault) as fetched:
        space.executable(readable.va, 4, "a test")
    assert fetched.value.executes
    assert space.fetch(caller.memory(PAGE).va, 8, "a test") == bytes(8)


def test_user_pointers_show_the_pages_of_the_process(caller: Caller) -> None:
    pages = caller.machine.linux.mmap(2 * PAGE)
    memory = caller.memory(2 * PAGE, USER, mmap_offset=pages.va)
    space = caller.gpus[0].space
    assert space is not None
    pages.view[8:12] = b"user"
    assert space.read(memory.va + 8, 4, "a test") == b"user"
    space.check_range(memory.va, PAGE, AccessKind.WRITE, "a test")
    caller.kernel.munmap(pages.va, 2 * PAGE)
    with pytest.raises(MemoryFault, match="munmap"):
        space.read(memory.va, 4, "a test")
    caller.unmap(memory)
    caller.free(memory)


@pytest.mark.parametrize(
    ("flags", "change", "wanted"),
    [
        (SYSTEM, {"offset": PAGE}, errno.EINVAL),
        (SYSTEM, {"size": 2 * PAGE}, errno.EINVAL),
        (SYSTEM, {"flags": MAP_PRIVATE}, errno.EINVAL),
    ],
)
def test_cpu_mappings_that_are_refused(
    caller: Caller, flags: int, change: dict[str, int], wanted: int
) -> None:
    memory = caller.memory(PAGE, flags)
    offset = memory.mmap_offset + change.pop("offset", 0)
    with pytest.raises(DriverError) as caught:
        caller.kernel.mmap(change.pop("size", PAGE), fd=caller.renders[0], offset=offset, **change)
    assert caught.value.status == wanted


def test_memory_is_shown_by_the_acquired_descriptor_alone(caller: Caller) -> None:
    memory = caller.memory(PAGE)
    other = caller.kernel.open("/dev/dri/renderD128")
    for fd, wanted in ((other, errno.EACCES), (caller.fd, errno.EINVAL)):
        with pytest.raises(DriverError) as caught:
            caller.kernel.mmap(PAGE, fd=fd, offset=memory.mmap_offset)
        assert caught.value.status == wanted


def test_the_remap_page_flushes_the_host_data_path(caller: Caller) -> None:
    args = caller.allocate(PAGE, int(MemFlags.MMIO_REMAP | MemFlags.WRITABLE | MemFlags.COHERENT))
    made = caller.call(*ALLOC, **args)
    assert made.mmap_offset == int(MmapOffset(TYPE=MmapType.MMIO, GPU_ID=caller.id))
    page = caller.kernel.mmio(caller.fd, PAGE, made.mmap_offset)
    page.write32(0, 1)
    assert page.read32(0) == 0
    assert caller.machine.hdp_flushes == 1
    with pytest.raises(ValueError, match="no register"):
        page.write32(8, 1)
    with pytest.raises(ValueError, match="32 bits"):
        page.write64(0, 1)


def test_dma_bufs_carry_memory_to_another_gpu(machine: Callable[..., Caller]) -> None:
    caller = machine("gfx1100", "gfx1201")
    memory = caller.memory(PAGE, VISIBLE)
    export = kfd_unused.kfd_ioctl_export_dmabuf_args
    fd = caller.call(Call.EXPORT_DMABUF, export, handle=memory.handle).dmabuf_fd
    info = caller.call(Call.GET_DMABUF_INFO, kfd_unused.kfd_ioctl_get_dmabuf_info_args, dmabuf_fd=fd)
    assert (info.size, info.gpu_id, info.flags & MemFlags.VRAM) == (PAGE, caller.id, MemFlags.VRAM)
    va = caller.reserve(PAGE)
    got = caller.call(
        Call.IMPORT_DMABUF, kfd_unused.kfd_ioctl_import_dmabuf_args,
        va_addr=va, gpu_id=caller.gpus[1].gpu_id, dmabuf_fd=fd,
    )  # fmt: skip
    caller.kernel.close(fd)
    caller.map(dataclasses.replace(memory, handle=got.handle, va=va), (1,))
    caller.see(memory)[:4] = b"peer"
    caller.unmap(memory)
    caller.free(memory)
    space = caller.gpus[1].space
    assert space is not None
    assert space.read(va, 4, "a test") == b"peer"
    bad = caller.refused(Call.GET_DMABUF_INFO, kfd_unused.kfd_ioctl_get_dmabuf_info_args, dmabuf_fd=caller.fd)
    assert bad == errno.EINVAL


@pytest.mark.parametrize("peers", [True, False])
def test_video_memory_of_a_peer_needs_peer_access(machine: Callable[..., Caller], *, peers: bool) -> None:
    caller = machine("gfx1100", "gfx1100", peers=peers)
    memory = caller.memory(PAGE, VRAM, to=())
    if peers:
        assert caller.map(memory, (0, 1)).n_success == 2
    else:
        with pytest.raises(DriverError) as caught:
            caller.map(memory, (0, 1))
        assert caught.value.status == errno.EINVAL
    caller.memory(PAGE, SYSTEM, to=(0, 1))


def test_every_place_of_memory_has_a_flag() -> None:
    assert [int(place) for place in PLACES] == [1, 2, 4, 8, 16]


def test_two_machines_share_nothing() -> None:
    one, two = open_machine("gfx1100"), open_machine("gfx1100")
    assert one.process is not two.process
    one.shut()
    two.shut()


def test_sizes_are_rounded_up_to_pages(caller: Caller) -> None:
    """Linux: `aligned_size = PAGE_ALIGN(size)` of amdgpu_amdkfd_gpuvm_alloc_memory_of_gpu."""
    for flags in (SYSTEM, VRAM):
        memory = caller.memory(0x100, flags, va_addr=caller.reserve(2 * PAGE))
        space = caller.gpus[0].space
        assert space is not None
        assert space.mapped(memory.va, 2 * PAGE) == PAGE
        caller.unmap(memory)
        caller.free(memory)
    assert caller.refused(*ALLOC, **caller.allocate(0x100) | {"va_addr": (1 << 40) + 0x100}) == errno.EINVAL
    doorbell = caller.allocate(0x100, int(MemFlags.DOORBELL))
    assert caller.refused(*ALLOC, **doorbell) == ERRNOS["ALLOC_MEMORY_OF_GPU"]["doorbell of another size"]


def test_video_memory_that_is_not_public_can_be_mapped(caller: Caller) -> None:
    """Linux since 5.15 sets no NO_CPU_ACCESS on it."""
    memory = caller.memory(PAGE, VRAM)
    assert not caller.gpus[0].handles[memory.handle & 0xFFFF_FFFF].cpu_visible
    caller.see(memory)[:4] = b"seen"
    space = caller.gpus[0].space
    assert space is not None
    assert space.read(memory.va, 4, "a test") == b"seen"
    assert caller.gpus[0].handles[memory.handle & 0xFFFF_FFFF].cpu_visible
    assert ["PUBLIC" in one.message for one in caller.machine.reports] == [True]
    assert caller.machine.fatal == []
