"""Numbers, sizes and errnos of /dev/kfd, versions, apertures, address spaces."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from drivers.amd.layouts import drm, kfd, kfd_unused
from drivers.amd.layouts.kfd import Call, RuntimeMode
from drivers.kernel import address_of
from hcq.errors import DriverError, UnsupportedError
from tests.emulator.amd_kfd.caller import SYSTEM
from tests.facts import amd_errnos, amd_kfd

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.emulator.amd_kfd.caller import Caller


@pytest.mark.parametrize(("linux", "minor"), [("6.1", 11), ("6.12", 17), ("6.12.107", 17)])
def test_versions_of_the_kernel_profiles(machine: Callable[..., Caller], linux: str, minor: int) -> None:
    got = machine(linux=linux).call(Call.GET_VERSION, kfd.kfd_ioctl_get_version_args)
    assert (got.major_version, got.minor_version) == (1, minor)


def test_unknown_profiles_are_refused_by_name(machine: Callable[..., Caller]) -> None:
    with pytest.raises(UnsupportedError, match="gfx906"):
        machine("gfx906")
    with pytest.raises(UnsupportedError, match=r"5\.4"):
        machine(linux="5.4")


@pytest.mark.parametrize("number", [0x00, *amd_kfd.OUT_OF_TREE, 0x27])
def test_numbers_out_of_range_are_no_ioctls(caller: Caller, number: int) -> None:
    with pytest.raises(DriverError) as caught:
        caller.kernel.ioctl(caller.fd, 0xC0084B00 | number, bytearray(8))
    assert caught.value.status == amd_errnos.ANY_CALL["number out of range"] == errno.ENOTTY


@pytest.mark.parametrize("name", ["EXPORT_DMABUF", "RUNTIME_ENABLE"])
def test_newer_calls_are_no_ioctls_of_an_older_kernel(machine: Callable[..., Caller], name: str) -> None:
    with pytest.raises(DriverError) as caught:
        machine(linux="6.1").kernel.ioctl(2**20, amd_kfd.IOCTLS[name][1], bytearray(64))
    assert caught.value.status == errno.ENOTTY


@pytest.mark.parametrize("name", ["GET_TILE_CONFIG", "GET_QUEUE_WAVE_STATE", "ALLOC_QUEUE_GWS", "SMI_EVENTS"])
def test_calls_that_are_not_emulated_are_refused_by_name(caller: Caller, name: str) -> None:
    _, request, size = amd_kfd.IOCTLS[name]
    with pytest.raises(DriverError, match=name):
        caller.kernel.ioctl(caller.fd, request, bytearray(size))
    assert not caller.machine.refusals[-1].emulated
    assert any(name in report.message and report.fatal for report in caller.kernel.reports)


def test_a_shorter_structure_is_extended_with_zeros_and_cut(caller: Caller) -> None:
    short = bytearray(4)
    caller.kernel.ioctl(caller.fd, 0x80044B01, short)
    assert int.from_bytes(short, "little") == 1


def test_of_a_longer_structure_the_rest_stays(caller: Caller) -> None:
    block = bytearray(b"\xaa" * 16)
    caller.kernel.ioctl(caller.fd, 0x80104B01, block)
    assert block[:4] == b"\1\0\0\0"
    assert block[8:] == b"\xaa" * 8


def test_an_argument_is_an_address_too(caller: Caller) -> None:
    block = bytearray(8)
    caller.kernel.ioctl(caller.fd, amd_kfd.IOCTLS["GET_VERSION"][1], address_of(block))
    assert block[4] == 17
    with pytest.raises(DriverError) as caught:
        caller.kernel.ioctl(caller.fd, amd_kfd.IOCTLS["GET_VERSION"][1], 0x1000)
    assert caught.value.status == errno.EFAULT


def test_apertures_are_those_of_gfx9_and_later(caller: Caller) -> None:
    layout = kfd.kfd_ioctl_get_process_apertures_new_args
    count = caller.call(Call.GET_PROCESS_APERTURES_NEW, layout).num_of_nodes
    raw = bytearray(kfd.kfd_process_device_apertures.SIZE * count)
    caller.call(
        Call.GET_PROCESS_APERTURES_NEW, layout,
        num_of_nodes=count, kfd_process_device_apertures_ptr=address_of(raw),
    )  # fmt: skip
    got = kfd.kfd_process_device_apertures.from_bytes(raw)
    assert (got.lds_base, got.lds_limit) == (1 << 48, 1 << 48 | 0xFFFF_FFFF)
    assert (got.scratch_base, got.gpuvm_base, got.gpu_id) == (2 << 48, 0x10000, caller.id)
    wanted = amd_errnos.ERRNOS["GET_PROCESS_APERTURES_NEW"]["more entries than devices"]
    assert caller.refused(Call.GET_PROCESS_APERTURES_NEW, layout, num_of_nodes=9) == wanted


def test_the_older_call_of_apertures_counts_gpus(caller: Caller) -> None:
    got = caller.call(Call.GET_PROCESS_APERTURES, kfd_unused.kfd_ioctl_get_process_apertures_args)
    assert got.num_of_nodes == 1
    assert got.process_apertures[0].gpu_id == caller.id


def test_acquire_vm_wants_one_render_node_for_good(machine: Callable[..., Caller]) -> None:
    caller = machine("gfx1100", "gfx1201", acquire=False)
    layout, wanted = kfd.kfd_ioctl_acquire_vm_args, amd_errnos.ERRNOS["ACQUIRE_VM"]
    one, other, second = (caller.kernel.open(f"/dev/dri/renderD{n}") for n in (128, 128, 129))
    no_drm = wanted["no DRM descriptor of amdgpu"]
    assert caller.refused(Call.ACQUIRE_VM, layout, drm_fd=caller.fd, gpu_id=caller.id) == no_drm
    assert caller.refused(Call.ACQUIRE_VM, layout, drm_fd=3, gpu_id=caller.id) == no_drm
    assert caller.refused(Call.ACQUIRE_VM, layout, drm_fd=second, gpu_id=caller.id) == errno.EINVAL
    caller.call(Call.ACQUIRE_VM, layout, drm_fd=one, gpu_id=caller.id)
    caller.call(Call.ACQUIRE_VM, layout, drm_fd=one, gpu_id=caller.id)
    again = caller.refused(Call.ACQUIRE_VM, layout, drm_fd=other, gpu_id=caller.id)
    assert again == wanted["another DRM descriptor"]
    assert (
        caller.refused(Call.ACQUIRE_VM, layout, drm_fd=one, gpu_id=5) == amd_errnos.ANY_CALL["unknown gpu_id"]
    )


def test_memory_and_queues_come_after_acquire_vm(machine: Callable[..., Caller]) -> None:
    caller = machine(acquire=False)
    layout = kfd.kfd_ioctl_alloc_memory_of_gpu_args
    args = caller.allocate(4096, SYSTEM)
    assert caller.refused(Call.ALLOC_MEMORY_OF_GPU, layout, **args) == errno.ENODEV
    queue = {"write_pointer_address": 0x1000, "read_pointer_address": 0x1008, "gpu_id": caller.id}
    got = caller.refused(Call.CREATE_QUEUE, kfd.kfd_ioctl_create_queue_args, **queue)
    assert got == amd_errnos.ERRNOS["CREATE_QUEUE"]["before ACQUIRE_VM"]


def test_clocks_are_nanoseconds_beside_ticks_of_the_gpu(caller: Caller) -> None:
    layout = kfd.kfd_ioctl_get_clock_counters_args
    first, second = (caller.call(Call.GET_CLOCK_COUNTERS, layout, gpu_id=caller.id) for _ in range(2))
    assert second.gpu_clock_counter >= first.gpu_clock_counter > 0
    assert first.system_clock_freq == amd_kfd.SYSTEM_CLOCK_HZ
    unknown = caller.call(Call.GET_CLOCK_COUNTERS, layout, gpu_id=1)
    assert unknown.gpu_clock_counter == amd_errnos.CLOCKS_OF_AN_UNKNOWN_GPU
    assert unknown.cpu_clock_counter > 0


def test_the_runtime_is_enabled_once_and_before_queues(caller: Caller) -> None:
    layout, wanted = kfd.kfd_ioctl_runtime_enable_args, amd_errnos.ERRNOS["RUNTIME_ENABLE"]
    enable = int(RuntimeMode.ENABLE)
    caller.call(Call.RUNTIME_ENABLE, layout, mode_mask=0)
    caller.call(Call.RUNTIME_ENABLE, layout, mode_mask=enable)
    assert caller.refused(Call.RUNTIME_ENABLE, layout, mode_mask=enable) == wanted["enabled already"]
    caller.call(Call.RUNTIME_ENABLE, layout, mode_mask=0)
    caller.queue()
    assert caller.refused(Call.RUNTIME_ENABLE, layout, mode_mask=enable) == wanted["queues exist"]
    assert caller.refused(Call.RUNTIME_ENABLE, layout, mode_mask=64) == errno.EINVAL


def test_xnack_is_off_and_changes_before_queues_only(caller: Caller) -> None:
    layout, wanted = kfd_unused.kfd_ioctl_set_xnack_mode_args, amd_errnos.ERRNOS["SET_XNACK_MODE"]
    assert caller.call(Call.SET_XNACK_MODE, layout, xnack_enabled=-1).xnack_enabled == 0
    assert caller.refused(Call.SET_XNACK_MODE, layout, xnack_enabled=1) == wanted["unsupported"]
    caller.call(Call.SET_XNACK_MODE, layout, xnack_enabled=0)
    caller.queue()
    assert caller.refused(Call.SET_XNACK_MODE, layout, xnack_enabled=0) == wanted["queues exist"]
    assert caller.call(Call.SET_XNACK_MODE, layout, xnack_enabled=-1).xnack_enabled == 0


def test_legacy_calls_check_their_gpu(caller: Caller) -> None:
    policy = kfd_unused.kfd_ioctl_set_memory_policy_args
    scratch = kfd_unused.kfd_ioctl_set_scratch_backing_va_args
    caller.call(Call.SET_MEMORY_POLICY, policy, gpu_id=caller.id, default_policy=0, alternate_policy=1)
    assert caller.refused(Call.SET_MEMORY_POLICY, policy, gpu_id=caller.id, default_policy=2) == errno.EINVAL
    caller.call(Call.SET_SCRATCH_BACKING_VA, scratch, gpu_id=caller.id, va_addr=0x10000)
    assert caller.refused(Call.SET_SCRATCH_BACKING_VA, scratch, gpu_id=1) == errno.EINVAL
    caller.call(
        Call.SET_TRAP_HANDLER, kfd_unused.kfd_ioctl_set_trap_handler_args, gpu_id=caller.id, tba_addr=0x10000
    )


def test_svm_checks_its_range_and_is_not_emulated(caller: Caller) -> None:
    wanted = amd_errnos.ERRNOS["SVM"]
    bad = caller.refused(Call.SVM, kfd_unused.kfd_ioctl_svm_args, start_addr=8, size=4096)
    assert bad == wanted["not page-aligned"]
    assert caller.refused(Call.SVM, kfd_unused.kfd_ioctl_svm_args, start_addr=4096) == wanted["size 0"]
    assert caller.refused(Call.SVM, kfd_unused.kfd_ioctl_svm_args, size=4096) == errno.EOPNOTSUPP


def test_padding_that_is_set_is_remarked(caller: Caller) -> None:
    block = bytearray(kfd_unused.kfd_ioctl_set_memory_policy_args.pack(gpu_id=caller.id))
    block[28] = 1
    caller.kernel.ioctl(caller.fd, amd_kfd.IOCTLS["SET_MEMORY_POLICY"][1], block)
    assert any("no field declares" in report.message for report in caller.kernel.reports)


def test_a_child_cannot_use_the_descriptor(caller: Caller) -> None:
    child = os.fork()
    if not child:
        number = 0
        try:
            caller.call(Call.GET_VERSION, kfd.kfd_ioctl_get_version_args)
        except DriverError as error:
            number = error.status
        os._exit(number)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == errno.EBADF


def test_the_process_ends_with_its_last_descriptor_and_leaks_are_named(
    machine: Callable[..., Caller],
) -> None:
    caller = machine()
    second = caller.kernel.open("/dev/kfd")
    memory = caller.memory(8192)
    caller.event(3)  # type: ignore[arg-type]  # HW_EXCEPTION
    caller.queue()
    caller.kernel.close(second)
    assert not caller.machine.leaks
    caller.kernel.close(caller.fd)
    kinds = [leak.kind for leak in caller.machine.leaks]
    assert kinds.count("queue") == 1
    assert kinds.count("event") == 1
    assert any(f"{memory.va:#x}" in leak.what for leak in caller.machine.leaks)
    assert caller.gpus[0].space is None
    assert caller.machine.process.host_used == 0


def test_a_process_that_gives_everything_back_leaves_nothing(machine: Callable[..., Caller]) -> None:
    caller = machine()
    memory = caller.memory(8192)
    caller.unmap(memory)
    caller.free(memory)
    caller.kernel.close(caller.fd)
    assert caller.machine.leaks == []
    assert caller.machine.reports == []


def test_device_info_says_the_frequency_of_the_counter(caller: Caller) -> None:
    raw = bytearray(drm.drm_amdgpu_info_device.SIZE)
    block = bytearray(
        drm.drm_amdgpu_info.pack(
            return_pointer=address_of(raw), return_size=len(raw), query=drm.InfoQuery.DEV_INFO
        )
    )
    caller.kernel.ioctl(caller.renders[0], drm.DRM_IOCTL_AMDGPU_INFO, block)
    got = drm.drm_amdgpu_info_device.from_bytes(raw)
    assert (got.gpu_counter_freq, got.num_shader_engines, got.wave_front_size) == (100_000, 6, 32)


def test_an_answer_is_no_longer_than_asked(caller: Caller) -> None:
    raw = bytearray(b"\xaa" * 8)
    block = bytearray(
        drm.drm_amdgpu_info.pack(return_pointer=address_of(raw), return_size=4, query=drm.InfoQuery.DEV_INFO)
    )
    caller.kernel.ioctl(caller.renders[0], drm.DRM_IOCTL_AMDGPU_INFO, block)
    assert raw[4:] == b"\xaa" * 4
    assert int.from_bytes(raw[:4], "little") == 0x744C


@pytest.mark.parametrize("query", [drm.InfoQuery.READ_MMR_REG, 0x7F])
def test_queries_that_are_not_answered_are_refused(caller: Caller, query: int) -> None:
    raw = bytearray(8)
    info = drm.drm_amdgpu_info.pack(return_pointer=address_of(raw), return_size=8, query=query)
    with pytest.raises(DriverError) as caught:
        caller.kernel.ioctl(caller.renders[0], drm.DRM_IOCTL_AMDGPU_INFO, bytearray(info))
    assert caught.value.status in (errno.EOPNOTSUPP, errno.EINVAL)
    with pytest.raises(DriverError):
        caller.kernel.ioctl(caller.renders[0], drm.DRM_IOCTL_AMDGPU_GEM_CREATE, bytearray(32))


def test_time_stamp_registers_without_the_runtime_are_remarked(caller: Caller) -> None:
    caller.call(Call.RUNTIME_ENABLE, kfd.kfd_ioctl_runtime_enable_args, mode_mask=int(RuntimeMode.TTMP_SAVE))
    assert any("TTMP_SAVE" in report.message for report in caller.kernel.reports)
