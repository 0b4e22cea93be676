"""Opening, using and closing a device on the emulated kernel: all calls go to it, and nothing is left.

Not here: first-run mistakes and their messages (`tests.support.surprises`), each call failing in turn
(`tests.emulator.shared.test_failed_calls`).
"""

from __future__ import annotations

import contextlib
import errno

import pytest

import hcq
from drivers.nv.layouts.controls import NV2080_CTRL_FB_INFO, Control, FbInfo, GrInfo
from drivers.nv.layouts.status import NvStatus
from drivers.nv.quirks import parse
from emulator.nv.machine import open_machine
from emulator.shared.surprises import StatusReply
from hcq.driver import BufferSpec, Place, QueueKind
from hcq.errors import BringUpError, DriverError, OutOfMemoryError, UnsupportedError, UsageError
from tests.conformance.conftest import Lab, read
from tests.limits import HANG_S
from tests.support.hooked import HookedKernel
from tests.support.nv.golden import sample
from tests.support.nv.recorded import RecordedKernel, driver_of

ROWS = [
    ("570.211.01", "sm_80", "sm_80"),
    ("580.159.03", "sm_86", "sm_86"),
    ("580.142", "sm_89", "sm_89"),
    ("580.159.03", "sm_90", "sm_90a"),
    ("590.48.01", "sm_100", "sm_100a"),
    ("595.45.04", "sm_120", "sm_120a"),
]


def opened(kernel: RecordedKernel):
    return driver_of(kernel).open(0, None)


def use(kernel: RecordedKernel) -> None:
    """Open, use every part once, close."""
    device = opened(kernel)
    with contextlib.closing(device):
        memory = device.alloc(1 << 21, BufferSpec())
        host = device.alloc(4096, BufferSpec(place=Place.HOST))
        device.ring(QueueKind.COMPUTE, 0)
        device.ring(QueueKind.COPY, 1)
        program = device.load(sample(device.info.arch, int(device.gpu.sm[3:]), stack=64))
        device.unload(program)
        device.free(host)
        device.free(memory)


@pytest.mark.sampled(7)
@pytest.mark.parametrize(("version", "chip", "arch"), ROWS)
def test_every_generation_and_branch_opens_and_leaves_nothing(version: str, chip: str, arch: str):
    kernel = RecordedKernel(chip, driver=version[:3], version=version)
    device = opened(kernel)
    assert device.info.arch == arch
    device.close()
    use(kernel)
    assert kernel.held() == {}


def test_consumer_blackwell_is_one_architecture_under_both_names():
    """The vendor's header lists its SM as 10.4 and as 12.0, and says that the first is to go."""
    for version in (0xA04, 0xC00):
        kernel = RecordedKernel("sm_120", version="580.142", gr={GrInfo.SM_VERSION: version})
        device = opened(kernel)
        assert (device.info.arch, device.gpu.chip.name) == ("sm_120a", "sm_120")
        device.close()
        use(kernel)
        assert kernel.held() == {}


@pytest.mark.parametrize(("number", "cure"), [(errno.ENOENT, "pass it through"), (errno.EACCES, "group")])
def test_gpus_none_of_which_can_be_opened_name_the_cure(number: int, cure: str):
    kernel = RecordedKernel("sm_90", "sm_90", surprises={"open /dev/nvidia[01]": number})
    with pytest.raises(DriverError, match=rf"(?s)open /dev/nvidia0 failed .*{cure}"):
        opened(kernel)
    assert driver_of(kernel).enumerate() == []
    assert kernel.held() == {}


@pytest.mark.parametrize("status", [NvStatus.NO_MEMORY, NvStatus.INSUFFICIENT_RESOURCES])
@pytest.mark.parametrize(
    "what", ["RM_ALLOC NV01_ROOT_CLIENT", "RM_ALLOC HOPPER_CHANNEL_GPFIFO_A", "UVM_REGISTER_GPU"]
)
def test_no_memory_at_open_gives_a_hint(what: str, status: NvStatus):
    kernel = HookedKernel(open_machine(surprises={what: StatusReply(status)}))
    with pytest.raises(OutOfMemoryError, match=rf"(?s){what.rpartition(' ')[2]} failed.*close .*nvidia-smi"):
        driver_of(kernel).open(0, None)
    assert kernel.held() == {}


@pytest.mark.parametrize("version", ["610.43.02", "550.90.07", "575.1", ""])
def test_an_unknown_branch_is_refused_with_the_known_ones(version: str):
    kernel = RecordedKernel(version=version)
    with pytest.raises(UnsupportedError, match="570, 580, 590, 595"):
        opened(kernel)
    assert kernel.held() == {}


def test_the_version_is_read_from_proc_where_it_is_there():
    kernel = RecordedKernel(driver="590", filtered=False)
    device = opened(kernel)
    device.close()
    assert device.rm.branch == 590
    assert not any("CHECK_VERSION" in call for call in kernel.lines)


def test_a_gpu_that_is_not_in_the_table_is_refused_by_name():
    from drivers.nv.topology import choose

    with pytest.raises(UnsupportedError, match="Turing"):
        choose("T4", (0xC46F, 0xC461, 0xC5C0, 0xC5B5))
    with pytest.raises(UnsupportedError, match="HOPPER_COMPUTE_A"):
        choose("X", (0xC46F, 0xC461, 0xC5C0, 0xC5B5))


# The class lists and what is used of them, as nv.md 2.1 and 7.2 have it: c561 is not known to sandboxes.
CLASS_LISTS = [
    ("GA100", (0xC56F, 0xC461, 0xC561, 0xC6C0, 0xC6B5), (0xC6C0, 0xC56F, 0xC461, 0xC6B5), "V03"),
    ("GA10x", (0xC56F, 0xC461, 0xC561, 0xC7C0, 0xC7B5, 0xC6B5), (0xC7C0, 0xC56F, 0xC461, 0xC7B5), "V03"),
    ("AD10x", (0xC56F, 0xC461, 0xC561, 0xC9C0, 0xC7B5), (0xC9C0, 0xC56F, 0xC461, 0xC7B5), "V03"),
    ("GH100", (0xC56F, 0xC86F, 0xC461, 0xC661, 0xCBC0, 0xC8B5), (0xCBC0, 0xC86F, 0xC661, 0xC8B5), "V04"),
    ("GB100", (0xC86F, 0xC96F, 0xC461, 0xC661, 0xCDC0, 0xC9B5), (0xCDC0, 0xC96F, 0xC661, 0xC9B5), "V05"),
    ("GB20x", (0xC96F, 0xCA6F, 0xC661, 0xC761, 0xCEC0, 0xCAB5), (0xCEC0, 0xCA6F, 0xC761, 0xCAB5), "V05"),
]


@pytest.mark.parametrize(("chip", "listed", "chosen", "qmd"), CLASS_LISTS)
def test_the_newest_class_of_each_family_is_chosen(
    chip: str, listed: tuple[int, ...], chosen: tuple[int, ...], qmd: str
):
    from drivers.nv.topology import choose

    row, *others = choose(chip, listed)
    assert chip in row.name
    assert ((row.compute, *others), row.qmd) == (chosen, qmd)


@pytest.mark.parametrize("missing", range(4))
def test_a_gpu_that_lacks_a_class_of_its_generation_is_refused_with_what_was_seen(missing: int):
    from drivers.nv.topology import choose

    for chip, listed, _, _ in CLASS_LISTS:
        family = (0xC0, 0x6F, 0x61, 0xB5)[missing]
        left = tuple(c for c in listed if c & 0xFF != family)
        with pytest.raises(UnsupportedError, match="MIG" if missing == 0 else f"seen: {left[0]:#x}"):
            choose(chip, left)


def clear(cards: bytearray) -> None:
    """Make a list of GPUs empty."""
    cards[:] = bytes(len(cards))


def test_a_device_that_does_not_exist_is_a_usage_error():
    for gpus, told in (
        (1, "lists one GPU, number 0"),
        (2, "lists 2 GPUs, numbers 0 to 1"),
        (0, "lists no GPU"),
    ):
        kernel = RecordedKernel(*["sm_90"] * gpus)
        if not gpus:
            kernel.after["NV_ESC_CARD_INFO"] = clear
        with pytest.raises(UsageError, match=f"nv:3 does not exist: the kernel driver {told}"):
            driver_of(kernel).open(3, None)
        assert kernel.held() == {}


@pytest.mark.parametrize(
    "name", ["nv-emu:560", "nv-emu:sm_90+560", "nv-emu:sm_70", "nv-emu:580+590", "nv-emu:h200"]
)
def test_an_emulated_gpu_that_is_not_known_is_refused_with_those_that_are(name: str):
    names = r"sm_80, sm_86, sm_89, sm_90, sm_100, sm_120; several .* a driver branch \(570, 580, 590, 595\)"
    with pytest.raises(UsageError, match=names):
        hcq.open(name)


def test_a_variant_of_the_real_driver_names_choices():
    from drivers.nv import DRIVER
    from drivers.nv.quirks import DEFAULT
    from drivers.shared.choices import describe

    with pytest.raises(UsageError, match=r"stack=high\|low"):
        DRIVER.open(0, "sm_90")
    chosen = parse("stack=low+pcas=3+notifier=false")
    assert (chosen.stack, chosen.pcas, chosen.notifier) == ("low", 3, False)
    assert parse(describe(chosen)) == chosen
    assert describe(DEFAULT) == "default"


def test_enumerate_describes_the_gpu():
    kernel = RecordedKernel("sm_90", "sm_90")
    infos = driver_of(kernel).enumerate()
    assert [(i.index, i.arch, i.limits["max_shared_bytes"]) for i in infos] == [
        (0, "sm_90a", 232448),
        (1, "sm_90a", 232448),
    ]
    assert kernel.held() == {}


def test_gpus_whose_nodes_are_not_there_are_not_counted():
    kernel = RecordedKernel(*["sm_90"] * 3, surprises={"open /dev/nvidia[02]": errno.ENOENT})
    device = opened(kernel)
    assert device.rm.node == "/dev/nvidia1"
    device.close()
    assert len(driver_of(kernel).enumerate()) == 1
    assert kernel.held() == {}


def test_host_memory_is_seen_at_its_own_address_and_below_40_bits_before_hopper():
    for chip, aliased in (("sm_90", False), ("sm_80", True)):
        kernel = RecordedKernel(chip)
        device = opened(kernel)
        host = kernel.mmap(65536, flags=0x21)
        device.map_host(host.va, 65536)
        ranges = [
            c for c in kernel.lines if c.startswith("UVM_CREATE_EXTERNAL_RANGE") and f"{host.va:#x}" in c
        ]
        assert len(ranges) == 1
        assert (device.shared.semaphore_va(host.va + 64) != host.va + 64) == aliased
        assert device.shared.semaphore_va(host.va + 64) >> 40 == 0 or not aliased
        device.unmap_host(host.va, 65536)
        device.close()
        kernel.munmap(host.va, 65536)
        assert kernel.held() == {}


def test_a_refused_unmapping_leaves_host_memory_mapped():
    kernel = RecordedKernel()
    device = opened(kernel)
    host = kernel.mmap(65536, flags=0x21)
    device.map_host(host.va, 65536)
    with pytest.raises(UsageError, match=rf"at {host.va:#x}, 4096 bytes, is not mapped into nv:0"):
        device.unmap_host(host.va, 4096)
    device.unmap_host(host.va, 65536)
    device.close()
    kernel.munmap(host.va, 65536)
    assert kernel.held() == {}


def test_a_refused_copy_object_fails_copies_alone():
    from hcq.device import Device

    refused = {"RM_ALLOC HOPPER_DMA_COPY_A #2": StatusReply(NvStatus.INVALID_ARGUMENT)}
    kernel = RecordedKernel(surprises=refused)
    with contextlib.closing(Device(opened(kernel))) as device:
        program = device.load(sample("sm_90a", 90))
        out, x = device.alloc(64), device.alloc(64)
        queue = device.compute
        commands = queue.record().exec(program, program.args(out, x, 1), groups=(1, 1, 1), threads=(1, 1, 1))
        queue.submit(commands).wait(timeout_s=HANG_S)
        with pytest.raises(UnsupportedError, match="HOPPER_DMA_COPY_A"):
            queue.submit(queue.record().copy(out, x))
    assert kernel.held() == {}


SIZES = (FbInfo.TOTAL_RAM_SIZE, FbInfo.BAR1_SIZE)
LIES = {
    "order a byte off": (Control.NV2080_CTRL_CMD_GR_GET_GLOBAL_SM_ORDER,
        {"numSm": 132 << 8, "numTpc": 66 << 8}, "33792 SMs, but 8 GPCs of 9 TPCs of 2 SMs allow at most 144"),
    "no SMs": (Control.NV2080_CTRL_CMD_GR_GET_GLOBAL_SM_ORDER, {"numSm": 0}, "0 SMs, but"),
    "no memory": (Control.NV2080_CTRL_CMD_FB_GET_INFO_V2,
        {"fbInfoList": tuple(NV2080_CTRL_FB_INFO(index=index) for index in SIZES)},
        "0 bytes of video memory"),
    "other indices": (Control.NV2080_CTRL_CMD_FB_GET_INFO_V2, {"fbInfoList": ()}, "the memory was"),
    "no uuid": (Control.NV2080_CTRL_CMD_GPU_GET_GID_INFO, {"data": bytes(256)}, "a UUID of zeros"),
    "too many classes": (Control.NV0080_CTRL_CMD_GPU_GET_CLASSLIST, {"numClasses": 0x600}, "1536 classes"),
    "no classes": (Control.NV0080_CTRL_CMD_GPU_GET_CLASSLIST, {"numClasses": 0}, "0 classes"),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_a_gpu_with_implausible_facts_is_refused_with_those_facts(lie: str):
    command, reply, told = LIES[lie]
    kernel = RecordedKernel(replies={command: lambda: reply})
    with pytest.raises(BringUpError, match=rf"(?s)driver 580.159.03 .*{told}.*hint: "):
        opened(kernel)
    assert kernel.held() == {}


@pytest.mark.parametrize(
    ("index", "value", "told"),
    [
        (GrInfo.SM_VERSION, 0x90, "SM version 0x90 on a Hopper GH100, which has 0x900"),
        (GrInfo.MAX_WARPS_PER_SM, 0x4000, "16384 warps an SM"),
        (GrInfo.LITTER_NUM_GPCS, 0x800, "2048 GPCs"),
        (GrInfo.LITTER_NUM_TPC_PER_GPC, 0, "0 TPCs a GPC"),
        (GrInfo.LITTER_NUM_SM_PER_TPC, 0x200, "512 SMs a TPC"),
    ],
)
def test_a_graphics_engine_with_implausible_facts_is_refused(index: GrInfo, value: int, told: str):
    kernel = RecordedKernel(gr={index: value})
    with pytest.raises(BringUpError, match=told):
        opened(kernel)
    assert kernel.held() == {}


def test_an_implausible_gpu_opens_when_forced():
    order = {"numSm": 400, "numTpc": 200}
    kernel = RecordedKernel(replies={Control.NV2080_CTRL_CMD_GR_GET_GLOBAL_SM_ORDER: lambda: order})
    device = driver_of(kernel).open(0, None, choices=parse("plausible=false"))
    assert device.info.compute_units == 400
    device.close()


def test_sms_are_counted_by_masks_where_the_order_is_refused():
    kernel = RecordedKernel(
        replies={
            Control.NV2080_CTRL_CMD_GR_GET_GLOBAL_SM_ORDER: lambda: None,
            Control.NV2080_CTRL_CMD_GR_GET_GPC_MASK: lambda: {"gpcMask": 0b1011},
            Control.NV2080_CTRL_CMD_GR_GET_TPC_MASK: lambda: {"tpcMask": 0x1FF},
        }
    )
    device = opened(kernel)
    assert device.gpu.sms == 2 * 3 * 9
    device.close()


@pytest.mark.parametrize(("name", "units"), [("sm_86", 82), ("sm_89", 128)])
def test_ampere_and_ada_boards_run_a_kernel(name: str, units: int) -> None:
    """The siblings of the A100: their own classes and numbers, the same launch descriptors."""
    lab = Lab(hcq.open(f"nv-emu:{name}"))
    assert (lab.device.info.arch, lab.device.info.compute_units) == (name, units)
    out = lab.words([5])
    lab.queue.submit(lab.run(lab.queue.record(), "affine", out, 3, 4)).wait(timeout_s=HANG_S)
    assert read(out)[:1] == [19]
    lab.close()
