"""Opening, using and closing a device of each target: no call is refused, and nothing is left.

Not here: first-run mistakes and their messages (`tests.support.surprises`), each call failing in turn
(`tests.emulator.shared.test_failed_calls`).
"""

from __future__ import annotations

import contextlib
import errno
from typing import TYPE_CHECKING

import pytest

import hcq
from drivers.amd.driver import AmdDriver
from drivers.amd.layouts import kfd
from drivers.amd.layouts.kfd import Call
from drivers.amd.layouts.topology import ROOT
from drivers.amd.queues import Packets
from hcq.driver import BufferSpec, QueueKind
from hcq.errors import DriverError, OutOfMemoryError, UnsupportedError, UsageError
from tests.drivers.amd.opened import HOST, LINUX, PROFILES, TARGETS, driver_of, emulated, image, opened
from tests.support.surprises.row import card

if TYPE_CHECKING:
    from tests.support.hooked import HookedKernel

LISTED = f"list {ROOT}/nodes"


def use(kernel: HookedKernel) -> None:
    """Open, use every part once, close."""
    with contextlib.closing(opened(kernel)) as device:
        memory = device.alloc(1 << 21, BufferSpec())
        host = device.alloc(4096, HOST)
        device.ring(QueueKind.COMPUTE, 0)
        device.ring(QueueKind.COPY, 1)
        program = device.load(image(device.info.arch, scratch=True))
        device.clock()
        device.fault()
        device.unload(program)
        device.free(host)
        device.free(memory)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("linux", LINUX)
@pytest.mark.parametrize("gpu", TARGETS)
def test_every_target_opens_on_every_kernel_and_leaves_nothing(gpu: str, linux: str):
    kernel = emulated(gpu, linux=linux)
    (info,) = driver_of(kernel).enumerate()
    assert (info.arch, info.compute_units) == (gpu.partition("-")[0], PROFILES[gpu].units)
    use(kernel)
    assert [str(one) for one in (*kernel.machine.refusals, *kernel.reports)] == []
    assert kernel.held() == {}


def test_runtime_exceptions_are_not_requested_on_kernels_without_them():
    kernel = emulated(linux="6.1")
    with contextlib.closing(opened(kernel)) as device:
        assert "1.11" in (device.process.no_exceptions or "")
    assert "RUNTIME_ENABLE" not in kernel.calls


@pytest.mark.parametrize(
    ("gpu", "packets"),
    [
        ("gfx942", Packets.AQL),
        ("gfx942-cpx", Packets.PM4),
        ("gfx1100", Packets.PM4),
        ("gfx1201", Packets.PM4),
    ],
)
def test_a_gpu_with_several_xccs_gets_aql_queues(gpu: str, packets: Packets):
    with contextlib.closing(opened(emulated(gpu))) as device:
        assert device.compute_packets is packets


@pytest.mark.parametrize(
    ("version", "cure"),
    [((1, 10), "Linux 6.1 or newer"), ((2, 0), "an older kernel"), ((0, 12), "Linux 6.1 or newer")],
)
def test_another_version_of_the_interface_is_refused_with_what_was_found(version: tuple[int, int], cure: str):
    kernel = emulated()
    kernel.after["GET_VERSION"] = lambda block: kfd.kfd_ioctl_get_version_args.store(
        block, major_version=version[0], minor_version=version[1]
    )
    told = rf"speaks version {version[0]}\.{version[1]}, at least 1\.11(?s:.*)hint: .*{cure}"
    with pytest.raises(UnsupportedError, match=told):
        opened(kernel)
    assert driver_of(kernel).enumerate() == []
    assert kernel.held() == {}


@pytest.mark.parametrize(
    ("gpu", "told"),
    [(name, rf"{name} is not driven: .*\n.*gfx1100") for name in ("gfx90a", "gfx1030")]
    + [("gfx1300", r"130000 \(gfx1300\) is unknown\n.*gfx942.*gfx1100.*gfx1201")],
)
def test_a_target_that_is_not_driven_is_refused_with_the_reason(gpu: str, told: str):
    kernel = emulated(gpu)
    with pytest.raises(UnsupportedError, match=told):
        opened(kernel)
    assert driver_of(kernel).enumerate() == []
    assert kernel.held() == {}


@pytest.mark.parametrize(
    ("gpu", "told"),
    [
        ("gfx1100", r"(?s)32 GiB of video memory.*24 GiB are free.*close buffers"),
        ("gfx1151", r"(?s)video memory is system memory.*amdgpu.gttsize"),
    ],
)
def test_no_memory_reports_requested_and_free_bytes_and_the_memory_of_an_apu(gpu: str, told: str):
    kernel = emulated(gpu)
    with contextlib.closing(opened(kernel)) as device, pytest.raises(OutOfMemoryError, match=told):
        device.alloc(32 << 30, BufferSpec())
    assert kernel.held() == {}


@pytest.mark.parametrize("gpu", TARGETS)
def test_the_name_of_an_apu_says_that_it_is_one(gpu: str):
    kernel = emulated(gpu)
    (listed,) = driver_of(kernel).enumerate()
    with contextlib.closing(opened(kernel)) as device:
        assert listed == device.info
        assert ("APU" in device.info.name) == device.apu == (gpu in {"gfx1103", "gfx1151"})


def test_the_name_of_a_gpu_has_its_code_name_unless_that_is_the_target():
    (info,) = driver_of(emulated(table={f"read {ROOT}/nodes/1/name": b"navi31\n"})).enumerate()
    assert info.name == "AMD gfx1100 navi31"
    with hcq.open("amd-emu:gfx1201") as device:
        assert device.info.name == "AMD gfx1201"


CARDS = [
    ("0000:03:00.0", "vfio-pci", 0x1002, 0x030000),
    ("0000:04:00.0", "", 0x1002, 0x038000),
    ("0000:05:00.0", "amdgpu", 0x1002, 0x120000),
    ("0000:06:00.0", "nvidia", 0x10DE, 0x030000),
    ("0000:07:00.0", "snd_hda_intel", 0x1002, 0x040300),
]
"""Address, driver, vendor and class of cards on the bus."""


def test_cards_that_no_driver_owns_are_named_where_there_is_no_gpu():
    table: dict[str, object] = {}
    for at, owner, vendor, kind in CARDS:
        table |= card(at, owner, vendor=vendor, kind=kind, event="PCI_ID=1:1")
    table |= {"list /sys/bus/pci/devices": [row[0] for row in CARDS], LISTED: ["0"]}
    kernel = emulated(table=table)
    with pytest.raises(UsageError) as raised:
        opened(kernel)
    text = str(raised.value)
    assert "amd:0 does not exist: the kernel's topology lists no GPU" in text
    assert "0000:03:00.0, which vfio-pci owns" in text
    assert "0000:04:00.0, which no driver owns" in text
    assert "0000:05:00.0, which amdgpu owns: KFD does not support" in text
    assert "0000:06:00.0" not in text
    assert "0000:07:00.0" not in text
    assert "modprobe amdgpu" in text
    assert kernel.held() == {}


@pytest.mark.parametrize(
    ("gpus", "told"),
    [(("gfx1100",), "lists one GPU, number 0"), (("gfx1100", "gfx1201"), "lists 2 GPUs, numbers 0 to 1")],
)
def test_a_device_that_does_not_exist_is_a_usage_error(gpus: tuple[str, ...], told: str):
    kernel = emulated(*gpus)
    with pytest.raises(UsageError, match=f"amd:3 does not exist: the kernel's topology {told}"):
        opened(kernel, 3)
    assert kernel.held() == {}


@pytest.mark.parametrize(
    ("call", "number", "gpu", "cure"),
    [
        (Call.CREATE_QUEUE, errno.ETIME, "gfx1100", "MES failed to respond"),
        (Call.CREATE_QUEUE, errno.ETIME, "gfx942", "HWS hang"),
        (Call.CREATE_QUEUE, errno.ENOMEM, "gfx1100", "SDMA queues"),
        (Call.CREATE_EVENT, errno.EBADF, "gfx1100", "forked"),
        (Call.CREATE_EVENT, errno.EINVAL, "gfx1100", "ROCm, HIP"),  # which enabled the process before
    ],
)
def test_a_refused_call_is_named_with_its_arguments_and_cure(call: Call, number: int, gpu: str, cure: str):
    kernel = emulated(gpu, table={"RUNTIME_ENABLE": errno.EBUSY, call.name: number})
    with pytest.raises(DriverError, match=f"KFD {call.name} failed with") as raised:
        opened(kernel)
    assert raised.value.status == number
    assert cure in raised.value.hint
    assert "gpu_id" in raised.value.arguments or "event" in raised.value.arguments
    assert (number == errno.ENOMEM) == isinstance(raised.value, OutOfMemoryError)
    assert kernel.held() == {}


def test_enumerate_describes_the_gpus_that_can_be_opened():
    kernel = emulated("gfx1100", "gfx1030", "gfx942", "gfx1201", masked=(3,))
    infos = driver_of(kernel).enumerate()
    assert [(i.index, i.arch, i.compute_units) for i in infos] == [(0, "gfx1100", 96), (2, "gfx942", 304)]
    assert kernel.held() == {}


def test_enumerate_never_raises():
    probe = emulated("gfx1100", "gfx1201")
    assert len(driver_of(probe).enumerate()) == 2
    for number in range(probe.count):
        kernel = emulated("gfx1100", "gfx1201")
        kernel.fail_at = number
        found = driver_of(kernel).enumerate()
        assert len(found) < 2 or "topology" in kernel.failed, "the topology has another path"
        assert kernel.held() == {}, kernel.failed
    assert driver_of(emulated(table={"list /sys/*": errno.ENOENT})).enumerate() == []


def test_descriptors_and_event_page_outlive_the_devices_of_a_process():
    kernel = emulated()
    driver = AmdDriver("amd", lambda _: kernel)
    for _ in range(2):
        with (
            contextlib.closing(driver.open(0, None)) as first,
            contextlib.closing(driver.open(0, None)) as second,
        ):
            assert first.process is second.process
    assert [kernel.calls.count(name) for name in ("open /dev/kfd", "ACQUIRE_VM", "RUNTIME_ENABLE")] == [1] * 3
    assert kernel.held().keys() == {"descriptors", "mapped bytes", "host memory"}
    driver.close()
    assert kernel.held() == {}


def test_a_variant_of_the_real_driver_names_choices():
    kernel = emulated()
    driver = AmdDriver("amd", lambda _: kernel)
    with contextlib.closing(driver.open(0, "fence_mtype=false")) as device:
        assert device.choices.fence_mtype is False
    with pytest.raises(UsageError, match="order=flush"):
        driver.open(0, "gfx1100")
    driver.close()
