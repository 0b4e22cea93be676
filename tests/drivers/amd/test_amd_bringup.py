"""Opening, using and closing a device against the scripted kernel: by the strict rules, and nothing left."""

from __future__ import annotations

import contextlib
import errno
import itertools
from typing import TYPE_CHECKING

import pytest

import hcq
from drivers.amd.driver import AmdDriver
from drivers.amd.layouts.kfd import ENOTSUPP, Call
from drivers.amd.queues import Packets
from hcq.driver import BufferSpec, Place, QueueKind
from hcq.errors import DriverError, HcqError, OutOfMemoryError, UnsupportedError, UsageError
from tests.drivers.amd.opened import HOST, TARGETS, driver_of, image, opened
from tests.support.amd.script import APUS, Script
from tests.support.amd.scripted import ScriptedKernel

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivers.amd.device import AmdDevice

KERNELS = {
    "6.1": {"version": (1, 11), "sizes_in_sysfs": False},
    "6.12": {"version": (1, 17), "sizes_in_sysfs": False},
    "6.18": {"version": (1, 18), "sizes_in_sysfs": True},
}


def use(kernel: ScriptedKernel) -> None:
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
@pytest.mark.parametrize("age", KERNELS)
@pytest.mark.parametrize("gpu", TARGETS)
def test_every_target_opens_on_every_kernel_and_leaves_nothing(gpu: str, age: str):
    kernel = ScriptedKernel(Script(gpus=(gpu,), **KERNELS[age]))  # type: ignore[arg-type]  # fields of Script
    use(kernel)
    assert kernel.leaks() == []


def test_calls_are_made_in_the_order_that_the_kernel_requires():
    kernel = ScriptedKernel()
    use(kernel)
    names = [call.split()[0] for call in kernel.calls]
    order = [
        "GET_VERSION",
        "ACQUIRE_VM",
        "RUNTIME_ENABLE",
        "ALLOC_MEMORY_OF_GPU",
        "CREATE_EVENT",
        "CREATE_QUEUE",
    ]
    assert sorted(order, key=names.index) == order
    assert len([name for name in names if name == "RUNTIME_ENABLE"]) == 1
    pages = [call for call in kernel.calls if "event_page_offset" in call]
    assert len(pages) == 1, "the event page is handed over once"


def test_runtime_exceptions_are_not_requested_on_kernels_without_them():
    kernel = ScriptedKernel(Script(version=(1, 11), sizes_in_sysfs=False))
    with contextlib.closing(opened(kernel)) as device:
        assert "1.11" in (device.process.no_exceptions or "")
    assert not any(call.startswith("RUNTIME_ENABLE") for call in kernel.calls)


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
    with contextlib.closing(opened(ScriptedKernel(Script(gpus=(gpu,))))) as device:
        assert device.compute_packets is packets


def test_close_is_idempotent():
    kernel = ScriptedKernel()
    device = opened(kernel)
    device.close()
    device.close()
    assert kernel.leaks() == []


def _each_call(script: Script, stride: int) -> None:
    probe = ScriptedKernel(script)
    use(probe)
    for number in range(0, probe.count, stride):
        kernel = ScriptedKernel(script, fail_at=number)
        with pytest.raises(HcqError) as raised:
            use(kernel)
        assert "hint" in str(raised.value) or str(raised.value), kernel.failed
        assert kernel.leaks() == [], f"call {number} ({kernel.failed}) left something"


@pytest.mark.slow
def test_every_call_that_fails_raises_a_typed_error_and_frees_everything():
    _each_call(Script(), 1)


@pytest.mark.slow
@pytest.mark.parametrize("gpu", ["gfx942", "gfx1151"])
def test_every_call_that_fails_on_other_targets_frees_everything(gpu: str):
    _each_call(Script(gpus=(gpu,)), 1)


PARTS: dict[str, Callable[[AmdDevice], object]] = {
    "video memory": lambda device: device.alloc(1 << 21, BufferSpec()),
    "visible video memory": lambda device: device.alloc(1 << 21, BufferSpec(host_visible=True)),
    "host memory": lambda device: device.alloc(4096, BufferSpec(place=Place.HOST)),
    "compute queue": lambda device: device.ring(QueueKind.COMPUTE, 0),
    "copy queue": lambda device: device.ring(QueueKind.COPY, 0),
    "program": lambda device: device.load(image(device.info.arch)),
}


@pytest.mark.parametrize("gpu", ["gfx1100", "gfx942"])
@pytest.mark.parametrize("part", PARTS)
def test_a_failed_call_of_an_open_device_leaves_it_unchanged(part: str, gpu: str):
    kernel = ScriptedKernel(Script(gpus=(gpu,)))
    with contextlib.closing(opened(kernel)) as device:
        for number in itertools.count():
            before, kernel.failed, kernel.fail_at = kernel.leaks(), "", kernel.count + number
            try:
                PARTS[part](device)
            except HcqError:
                if "UNMAP" in kernel.failed or "FREE" in kernel.failed:
                    break  # what cannot be given back stays: the next test's business
                assert kernel.leaks() == before, f"call {number} ({kernel.failed}) left something"
            else:
                assert not kernel.failed, f"{kernel.failed} failed in silence"
                break
        kernel.fail_at = None
        assert number >= 2
    assert kernel.leaks() == []


@pytest.mark.parametrize(
    ("number", "cure"),
    [
        (errno.ENOENT, "hint: no AMD GPU is here, or its node is missing: load the module (modprobe amdgpu)"),
        (errno.EACCES, "usermod -aG render,video"),
        (errno.EPERM, "--device /dev/kfd"),
        (errno.ENODEV, "modprobe amdgpu"),
        (errno.EMFILE, "ulimit -n"),
    ],
)
def test_a_node_that_cannot_be_opened_names_its_cure(number: int, cure: str):
    kernel = ScriptedKernel(Script(missing={"/dev/kfd": number}))
    with pytest.raises(DriverError, match="/dev/kfd") as raised:
        opened(kernel)
    assert cure in str(raised.value)
    assert driver_of(kernel).enumerate() == []
    assert kernel.leaks() == []


def test_a_render_node_that_may_not_be_opened_names_the_group():
    kernel = ScriptedKernel(Script(missing={"/dev/dri/renderD128": errno.EACCES}))
    with pytest.raises(DriverError, match=r"(?s)open /dev/dri/renderD128 .*usermod -aG render,video"):
        opened(kernel)
    assert driver_of(kernel).enumerate() == []
    assert kernel.leaks() == []


@pytest.mark.parametrize(
    ("version", "cure"),
    [((1, 10), "Linux 6.1 or newer"), ((2, 0), "an older kernel"), ((0, 12), "Linux 6.1 or newer")],
)
def test_another_version_of_the_interface_is_refused_with_what_was_found(version: tuple[int, int], cure: str):
    kernel = ScriptedKernel(Script(version=version))
    told = rf"speaks version {version[0]}\.{version[1]}, at least 1\.11(?s:.*)hint: .*{cure}"
    with pytest.raises(UnsupportedError, match=told):
        opened(kernel)
    assert driver_of(kernel).enumerate() == []
    assert kernel.leaks() == []


@pytest.mark.parametrize("gpu", ["gfx90a", "gfx950", "gfx1030"])
def test_a_target_that_is_only_compiled_for_is_refused_with_the_reason(gpu: str):
    kernel = ScriptedKernel(Script(gpus=(gpu,)))
    with pytest.raises(UnsupportedError, match=f"{gpu} is not driven: .*\n.*gfx1100"):
        opened(kernel)
    assert driver_of(kernel).enumerate() == []
    assert kernel.leaks() == []


def test_an_unknown_gfx_version_is_refused_by_name():
    kernel = ScriptedKernel(Script(gpus=("gfx1300",)))
    with pytest.raises(UnsupportedError, match=r"130000 \(gfx1300\) is unknown\n.*gfx942.*gfx1100.*gfx1201"):
        opened(kernel)
    assert kernel.leaks() == []


def test_video_memory_that_the_host_cannot_map_names_the_firmware_setting():
    kernel = ScriptedKernel(Script(large_bar=False))
    with contextlib.closing(opened(kernel)) as device:
        with pytest.raises(
            UnsupportedError, match=r"its PCI window is smaller(?s:.*)'Resizable BAR'.*Place\.HOST"
        ):
            device.alloc(4096, BufferSpec(host_visible=True))
        device.free(device.alloc(4096, BufferSpec()))
    assert kernel.leaks() == []


def test_no_memory_reports_requested_and_free_bytes():
    kernel = ScriptedKernel()
    with contextlib.closing(opened(kernel)) as device:
        kernel.script.vram_free = 16 << 20
        with pytest.raises(
            OutOfMemoryError, match=r"(?s)64 MiB of video memory.*16 MiB are free.*close buffers"
        ):
            device.alloc(64 << 20, BufferSpec())
    assert kernel.leaks() == []


def test_no_memory_of_an_apu_names_its_memory_model():
    kernel = ScriptedKernel(Script(gpus=("gfx1151",)))
    with contextlib.closing(opened(kernel)) as device:
        kernel.script.vram_free = 0
        with pytest.raises(OutOfMemoryError, match=r"(?s)video memory is system memory.*amdgpu.gttsize"):
            device.alloc(64 << 20, BufferSpec())


@pytest.mark.parametrize("gpu", TARGETS)
def test_the_name_of_an_apu_says_that_it_is_one(gpu: str):
    kernel = ScriptedKernel(Script(gpus=(gpu,)))
    (listed,) = driver_of(kernel).enumerate()
    with contextlib.closing(opened(kernel)) as device:
        assert listed == device.info
        assert ("APU" in device.info.name) == device.apu == (gpu in APUS)


def test_the_name_of_a_gpu_has_its_code_name_unless_that_is_the_target():
    gpu = ScriptedKernel(Script(gpus=("gfx1100",)))
    (info,) = driver_of(gpu).enumerate()
    assert info.name == "AMD gfx1100 gfx1100-card"
    with hcq.open("amd-emu:gfx1201") as device:
        assert device.info.name == "AMD gfx1201"


CARDS = {
    "0000:03:00.0": {"vendor": "0x1002\n", "class": "0x030000\n", "uevent": "DRIVER=vfio-pci\n"},
    "0000:04:00.0": {"vendor": "0x1002\n", "class": "0x038000\n", "uevent": "PCI_ID=1002:744C\n"},
    "0000:05:00.0": {"vendor": "0x1002\n", "class": "0x120000\n", "uevent": "DRIVER=amdgpu\n"},
    "0000:06:00.0": {"vendor": "0x10de\n", "class": "0x030000\n", "uevent": "DRIVER=nvidia\n"},
    "0000:07:00.0": {"vendor": "0x1002\n", "class": "0x040300\n", "uevent": "DRIVER=snd_hda_intel\n"},
}


def test_cards_that_no_driver_owns_are_named_where_there_is_no_gpu():
    kernel = ScriptedKernel(Script(gpus=(), pci=CARDS))
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
    assert kernel.leaks() == []


@pytest.mark.parametrize(
    ("gpus", "told"),
    [(("gfx1100",), "lists one GPU, number 0"), (("gfx1100", "gfx1201"), "lists 2 GPUs, numbers 0 to 1")],
)
def test_a_device_that_does_not_exist_is_a_usage_error(gpus: tuple[str, ...], told: str):
    kernel = ScriptedKernel(Script(gpus=gpus))
    with pytest.raises(UsageError, match=f"amd:3 does not exist: the kernel's topology {told}"):
        opened(kernel, 3)
    assert kernel.leaks() == []


REFUSALS = [
    (Call.CREATE_QUEUE, errno.ETIME, "gfx1100", "MES failed to respond"),
    (Call.CREATE_QUEUE, errno.ETIMEDOUT, "gfx1201", "MES failed to respond"),
    (Call.CREATE_QUEUE, errno.ETIME, "gfx942", "HWS hang"),
    (Call.CREATE_QUEUE, errno.EIO, "gfx1100", "being reset"),
    (Call.CREATE_QUEUE, errno.EINVAL, "gfx1100", "6.12"),
    (Call.CREATE_QUEUE, errno.ENOMEM, "gfx1100", "SDMA queues"),
    (Call.CREATE_QUEUE, ENOTSUPP, "gfx1100", "type of queue"),
    (Call.ACQUIRE_VM, errno.EBUSY, "gfx1100", "process of its own"),
    (Call.CREATE_EVENT, errno.EINVAL, "gfx1100", "process of its own"),
    (Call.CREATE_EVENT, errno.EBADF, "gfx1100", "forked"),
    (Call.ALLOC_MEMORY_OF_GPU, errno.ENOMEM, "gfx1100", "close buffers"),
]


@pytest.mark.parametrize(("call", "number", "gpu", "cure"), REFUSALS)
def test_a_refused_call_is_named_with_its_arguments_and_cure(call: Call, number: int, gpu: str, cure: str):
    kernel = ScriptedKernel(Script(gpus=(gpu,), refuse={call.name: number}))
    with pytest.raises(DriverError, match=f"KFD {call.name} failed with") as raised:
        opened(kernel)
    assert raised.value.status == number
    assert cure in raised.value.hint
    assert "gpu_id" in raised.value.arguments or "event" in raised.value.arguments
    assert (number == errno.ENOMEM) == isinstance(raised.value, OutOfMemoryError)
    assert kernel.leaks() == []


def test_another_kfd_library_of_the_process_is_named():
    kernel = ScriptedKernel(Script(other_library=True))
    with pytest.raises(DriverError, match=r"(?s)CREATE_EVENT.*ROCm, HIP"):
        opened(kernel)
    assert kernel.leaks() == []


def test_enumerate_describes_the_gpus_that_can_be_opened():
    kernel = ScriptedKernel(Script(gpus=("gfx1100", "gfx1030", "gfx942", "gfx1201"), hidden=(3,)))
    infos = driver_of(kernel).enumerate()
    assert [(i.index, i.arch, i.compute_units) for i in infos] == [(0, "gfx1100", 96), (2, "gfx942", 304)]
    assert kernel.leaks() == []


def test_enumerate_never_raises():
    probe = ScriptedKernel(Script(gpus=("gfx1100", "gfx1201")))
    driver_of(probe).enumerate()
    for number in range(probe.count):
        kernel = ScriptedKernel(Script(gpus=("gfx1100", "gfx1201")), fail_at=number)
        assert len(driver_of(kernel).enumerate()) < 2, kernel.failed
        assert kernel.leaks() == [], kernel.failed
    assert driver_of(ScriptedKernel(Script(topology=False))).enumerate() == []


def test_descriptors_and_event_page_outlive_the_devices_of_a_process():
    kernel = ScriptedKernel()
    driver = AmdDriver("amd", lambda _: kernel)
    for _ in range(2):
        with (
            contextlib.closing(driver.open(0, None)) as first,
            contextlib.closing(driver.open(0, None)) as second,
        ):
            assert first.process is second.process
    names = [call.split()[0] for call in kernel.calls]
    assert names.count("ACQUIRE_VM") == names.count("RUNTIME_ENABLE") == 1
    assert len([call for call in kernel.calls if "event_page_offset" in call]) == 1
    assert kernel.calls.count("open /dev/kfd") == 1
    held = kernel.leaks()
    assert [line.split(" ", 2)[0] for line in held] == ["fd", "fd", "mapping"]
    driver.close()
    assert kernel.leaks() == []


def test_a_variant_of_the_real_driver_names_choices():
    kernel = ScriptedKernel()
    driver = AmdDriver("amd", lambda _: kernel)
    with contextlib.closing(driver.open(0, "fence_mtype=false")) as device:
        assert device.choices.fence_mtype is False
    with pytest.raises(UsageError, match="order=flush"):
        driver.open(0, "gfx1100")
    driver.close()
