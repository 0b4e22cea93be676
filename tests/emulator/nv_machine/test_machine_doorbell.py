"""The doorbell page, its clock and classes; BAR1, its size and what takes room in it."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from drivers.nv.layouts import controls as ctl
from drivers.nv.layouts import rm_classes
from drivers.nv.layouts.chips import GENERATIONS
from drivers.nv.layouts.controls import Control, FbInfo
from drivers.nv.layouts.gpfifo import USERMODE_BYTES, UsermodeRegister
from drivers.nv.layouts.rm_classes import MemAttr, MemAttr2, PageSize, RmClass
from drivers.nv.layouts.status import NvStatus
from emulator.nv.machine import FindingKind, check_variant, open_variant
from emulator.nv.profiles import PROFILES
from hcq.errors import DriverError, UsageError
from tests.emulator.nv_machine.client import MIB, Client, Status, sem, wait_until, wait_word
from tests.emulator.nv_machine.refusals import refused
from tests.facts import nv_classes

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivers.kernel import Mmio


ALL_ONES = 0xFFFF_FFFF
USERMODE = {
    "sm_80": "GA100", "sm_86": "GA10x", "sm_89": "AD10x", "sm_90": "GH100", "sm_100": "GB100",
    "sm_120": "GB20x",
}  # fmt: skip
"""Profile -> the chip whose classes it has."""


def advances(page: Mmio, client: Client) -> None:
    first = page.read32(UsermodeRegister.TIME_0)
    wait_until(lambda: page.read32(UsermodeRegister.TIME_0) != first, client)
    assert first % 32 == 0
    assert page.read32(UsermodeRegister.TIME_1) < 1 << 29


@pytest.mark.parametrize(
    ("profile", "cls"),
    [("sm_80", 0xC461), ("sm_90", 0xC661), ("sm_90", 0xC461), ("sm_90", 0xC561), ("sm_120", 0xC761)],
)
def test_the_clock_moves_in_a_page_mapped_through_bar0(make: Callable[..., Client], profile: str, cls: int):
    client = make(profile, filtered=cls != 0xC561).nodes().objects()  # which sandboxes do not list
    advances(client.page(bar1=False, cls=cls), client)
    assert client.reports() == []


@pytest.mark.parametrize("above", ["subdevice", "device"])
def test_a_page_without_parameters_is_mapped_through_bar0(up: Client, above: str):
    page = up.alloc(up.subdevice, 0xC661)
    fd = up.map_fd(getattr(up, above), page, USERMODE_BYTES, "/dev/nvidia0")
    advances(up.kernel.mmio(fd, USERMODE_BYTES, 0), up)


@pytest.mark.parametrize("call", ["read32", "write32"])
def test_a_page_that_was_unmapped_is_refused(up: Client, call: str):
    up.doorbell.close()
    with pytest.raises(UsageError, match="unmapped"):
        getattr(up.doorbell, call)(0x90, *([1] if call == "write32" else []))


@pytest.mark.parametrize("profile", ["sm_90", "sm_120"])
@pytest.mark.parametrize("register", [UsermodeRegister.TIME_0, UsermodeRegister.TIME_1])
def test_a_page_mapped_through_bar1_shows_no_clock(
    make: Callable[..., Client], profile: str, register: UsermodeRegister
):
    client = make(profile).nodes().objects()
    page = client.page(bar1=True)
    assert {page.read32(register) for _ in range(3)} == {ALL_ONES}
    assert [one.kind for one in client.machine.fatal] == [FindingKind.HOST], "told once for each mapping"
    assert f"{register.name} was read through BAR1, which takes stores only" in client.reports()[0]


def test_the_clock_of_one_page_is_independent_of_the_other(up: Client):
    clock = up.page(bar1=False)
    assert up.doorbell.read32(UsermodeRegister.TIME_0) == ALL_ONES
    advances(clock, up)
    up.doorbell.close()
    advances(clock, up)


@pytest.mark.parametrize(
    ("profile", "bar1", "cls"),
    [
        *((profile, bar1, 0) for profile in ("sm_80", "sm_90", "sm_120") for bar1 in (False, True)),
        *(("sm_120", False, cls) for cls in (0xC461, 0xC661)),
    ],
)
def test_doorbells_work_through_each_mapping_and_class(
    make: Callable[..., Client], profile: str, cls: int, *, bar1: bool
):
    client = make(profile).up()
    client.doorbell = client.page(bar1=bar1, cls=cls)
    ring, memory = client.copy_channel(), client.memory(4096, system=True)
    ring.push(sem(memory.va, 7))
    wait_word(memory, 0, 7, client)
    assert client.reports() == []


def test_doorbells_of_two_pages_reach_the_same_channel(up: Client):
    bar1, bar0 = up.doorbell, up.page(bar1=False)
    ring, memory = up.copy_channel(), up.memory(4096, system=True)
    for value in range(1, 5):
        up.doorbell = bar0 if value % 2 else bar1
        ring.push(sem(memory.va, value))
        wait_word(memory, 0, value, up)
    assert up.reports() == []


@pytest.mark.parametrize("profile", PROFILES)
def test_the_class_list_has_the_doorbell_classes_of_the_chip_alone(make: Callable[..., Client], profile: str):
    client = make(profile).nodes().objects()
    listed = client.control(client.device, Control.NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2)
    seen = {one for one in listed.classList[: listed.numClasses] if one & 0xF0FF == 0xC061}
    assert seen == {*nv_classes.BY_ROLE[USERMODE[profile]]["usermode"], *_OLDER[profile]}


_OLDER = {
    "sm_80": (0xC361, 0xC461, 0xC561),
    "sm_86": (0xC361, 0xC461, 0xC561),
    "sm_89": (0xC361, 0xC461, 0xC561),
    "sm_90": (0xC361, 0xC461, 0xC561),
    "sm_100": (0xC361, 0xC461, 0xC561),
    "sm_120": (0xC361, 0xC461, 0xC561, 0xC661),
}
"""Those of older generations, which every list has too (g_gpu_class_list.c)."""


@pytest.mark.parametrize(
    ("profile", "older"),
    [
        ("sm_80", {0xC36F, 0xC46F}),
        ("sm_90", {0xC36F, 0xC46F, 0xC56F}),
        ("sm_100", {0xC36F, 0xC46F, 0xC56F, 0xC86F}),
        ("sm_120", {0xC36F, 0xC46F, 0xC56F, 0xC86F, 0xC96F}),
    ],
)
def test_the_class_list_has_the_channel_classes_of_older_chips(
    make: Callable[..., Client], profile: str, older: set[int]
):
    client = make(profile).nodes().objects()
    listed = client.control(client.device, Control.NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2)
    seen = {one for one in listed.classList[: listed.numClasses] if one & 0xF0FF == 0xC06F}
    assert seen == {*nv_classes.BY_ROLE[USERMODE[profile]]["gpfifo"], *older}


@pytest.mark.parametrize(
    ("profile", "cls"), [("sm_90", 0xC56F), ("sm_120", 0xC56F), ("sm_120", 0xC86F), ("sm_120", 0xC96F)]
)
def test_a_channel_of_an_older_class_runs(make: Callable[..., Client], profile: str, cls: int):
    client = make(profile).up()
    client.generation = replace(client.generation, gpfifo=(cls,))
    ring, memory = client.copy_channel(), client.memory(4096, system=True)
    ring.push(sem(memory.va, 7))
    wait_word(memory, 0, 7, client)
    assert client.reports() == []


@pytest.mark.parametrize(("profile", "enabled"), [("sm_80", 0), ("sm_90", 0), ("sm_100", 0), ("sm_120", 1)])
def test_tokens_of_gb20x_carry_runlist_doorbell(make: Callable[..., Client], profile: str, enabled: int):
    client = make(profile).up()
    assert [ring.token >> 30 for ring in (client.copy_channel(), client.compute_channel())] == [enabled] * 2


@pytest.mark.parametrize(
    ("mask", "name"),
    [(~(1 << 30), "RUNLIST_DOORBELL"), (0xFFF, "RUNLIST"), (0x7FFF_FFFF ^ 0x3F0000, "RUNLIST")],
)
def test_a_masked_token_is_reported_with_its_lost_bits(make: Callable[..., Client], mask: int, name: str):
    client = make("sm_120").up()
    ring = client.copy_channel()
    whole, ring.token = ring.token, ring.token & mask
    ring.push(sem(client.memory(4096).va, 1))
    (text,) = client.kernel.diagnostics()
    assert f"{name} differs" in text or f"{name}, " in text
    assert f"{whole:#x}" in text
    assert client.machine.channels[0].run.name in text


@pytest.mark.parametrize(("compute", "cls"), [(0xCDC0, 0xC661), (0xCBC0, 0xC661)])
def test_doorbell_classes_of_other_chips_are_refused(make: Callable[..., Client], compute: int, cls: int):
    client = make("sm_120")
    client.generation = GENERATIONS[compute]
    client.machine.gpus[0].profile = replace(
        client.machine.gpus[0].profile, generation=client.generation, listed=PROFILES["sm_90"].listed
    )
    client.nodes().objects()
    assert cls in client.machine.gpus[0].profile.classes
    other = 0xC761
    params = rm_classes.NV_HOPPER_USERMODE_A_PARAMS()
    with pytest.raises(Status, match=f"no class {other:#x}") as got:
        client.alloc(client.subdevice, other, params)
    assert got.value.code == NvStatus.INVALID_CLASS
    advances(client.page(bar1=False, cls=cls), client)


def _again(client: Client, what: str, fd: int) -> Any:
    """Prepare a second mapping of a descriptor."""
    if what == "page":
        page = client.alloc(client.subdevice, client.generation.usermode[0])
        return client.map_fd(client.subdevice, page, USERMODE_BYTES, "", fd=fd)
    handle = client.alloc(client.device, RmClass.NV01_MEMORY_LOCAL_USER, client.memory_params(4096))
    return client.map_fd(client.device, handle, 4096, "", fd=fd)


@pytest.mark.parametrize("filtered", [True, False])
@pytest.mark.parametrize("used", [True, False])
@pytest.mark.parametrize("what", ["page", "memory"])
def test_a_descriptor_takes_no_second_mapping(
    make: Callable[..., Client], what: str, *, filtered: bool, used: bool
):
    client = make(filtered=filtered).up()
    page = client.alloc(client.subdevice, client.generation.usermode[0])
    fd = client.map_fd(client.subdevice, page, USERMODE_BYTES, "/dev/nvidia0")
    if used:
        client.kernel.mmio(fd, USERMODE_BYTES, 0)
    with pytest.raises(DriverError if filtered else Status, match="has a mapping already") as got:
        _again(client, what, fd)
    code = got.value.code if isinstance(got.value, Status) else got.value.status
    assert code == (errno.EINVAL if filtered else NvStatus.STATE_IN_USE)


def test_the_first_mapping_outlives_a_refused_second(up: Client):
    page = up.alloc(up.subdevice, 0xC661)
    fd = up.map_fd(up.subdevice, page, USERMODE_BYTES, "/dev/nvidia0")
    with pytest.raises(DriverError, match="has a mapping already"):
        _again(up, "memory", fd)
    advances(up.kernel.mmio(fd, USERMODE_BYTES, 0), up)


def test_unmapping_does_not_make_a_descriptor_fresh(up: Client):
    memory = up.memory(4096)
    fd = up.map_fd(up.device, memory.handle, 4096, "/dev/nvidia0")
    got = up.kernel.mmap(4096, fd=fd)
    up.kernel.munmap(got.va, 4096)
    up.unmap(memory.handle, up.cookie)
    with pytest.raises(DriverError, match="has a mapping already"):
        _again(up, "memory", fd)


SMALL, LARGE = 256 * MIB, 32 << 30
PAGE = 64 << 10


def ask(client: Client, *indices: FbInfo) -> list[int]:
    """The replies in bytes."""
    rows = tuple(ctl.NV2080_CTRL_FB_INFO(index=index) for index in indices)
    out = client.control(
        client.subdevice,
        Control.NV2080_CTRL_CMD_FB_GET_INFO_V2,
        fbInfoListSize=len(rows),
        fbInfoList=rows,
    )
    return [one.data << 10 for one in out.fbInfoList[: len(rows)]]


def free(client: Client) -> int:
    return ask(client, FbInfo.BAR1_AVAIL_SIZE)[0]


def video(client: Client, size: int, *, huge: bool = False) -> int:
    params = client.memory_params(size)
    if huge:
        attr, attr2 = MemAttr.from_int(params.attr), MemAttr2.from_int(params.attr2)
        params = params.replace(
            attr=int(attr.replace(PAGE_SIZE=PageSize.HUGE)), attr2=int(attr2.replace(PAGE_SIZE_HUGE=1))
        )
    return client.alloc(client.device, RmClass.NV01_MEMORY_LOCAL_USER, params)


def window(client: Client, memory: int, length: int, offset: int = 0) -> int:
    """Map a part of video memory; return the bytes of BAR1 that it takes."""
    before = free(client)
    client.kernel.close(client.map_fd(client.device, memory, length, "/dev/nvidia0", offset=offset))
    return before - free(client)


@pytest.fixture
def small(make: Callable[..., Client]) -> Client:
    return make("sm_86", bar1_bytes=SMALL).nodes().objects()


@pytest.mark.parametrize(("bar1_bytes", "size"), [(None, LARGE), (SMALL, SMALL)])
@pytest.mark.parametrize("driver", ["570", "595"])
def test_the_size_and_the_room_of_bar1_are_answered(
    make: Callable[..., Client], driver: str, bar1_bytes: int | None, size: int
) -> None:
    client = make("sm_86", driver=driver, bar1_bytes=bar1_bytes).nodes().objects()
    assert ask(client, FbInfo.BAR1_SIZE, FbInfo.BAR1_AVAIL_SIZE) == [size, size - MIB]


def test_a_mapping_takes_whole_pages_until_it_is_unmapped(small: Client) -> None:
    memory = video(small, MIB)
    assert window(small, memory, 4096) == PAGE
    assert window(small, memory, 8192, PAGE - 4096) == 2 * PAGE
    before = free(small)
    small.unmap(memory, small.cookie)
    assert free(small) - before == 2 * PAGE


def test_memory_that_is_freed_gives_its_windows_back(small: Client) -> None:
    before = free(small)
    memory = video(small, MIB)
    assert [window(small, memory, MIB) for _ in range(3)] == [MIB] * 3
    small.free(memory, small.device)
    assert free(small) == before


@pytest.mark.parametrize(("bar1_bytes", "page"), [(LARGE, 2 * MIB), (SMALL, PAGE)])
def test_huge_pages_are_mapped_whole_where_bar1_is_large(
    make: Callable[..., Client], bar1_bytes: int, page: int
) -> None:
    client = make("sm_86", bar1_bytes=bar1_bytes).nodes().objects()
    assert window(client, video(client, 2 * MIB, huge=True), 4096) == page
    assert window(client, video(client, 2 * MIB), 4096) == PAGE


def test_a_full_aperture_refuses_video_memory_alone(small: Client) -> None:
    memory = video(small, 512 * MIB)
    assert window(small, memory, 200 * MIB) == 200 * MIB
    fd = small.kernel.open("/dev/nvidia0")
    small.register_fd(fd)
    refused(NvStatus.NO_MEMORY, small.map_fd, small.device, memory, 56 * MIB, "/dev/nvidia0", fd=fd)
    assert "needs 0x3800000 bytes of BAR1: 0x3700000 are free" in small.machine.refusals[-1]
    system = small.alloc(small.device, RmClass.NV01_MEMORY_SYSTEM, small.memory_params(64 * MIB, system=True))
    before = free(small)
    small.map_fd(small.device, system, 64 * MIB, "/dev/nvidiactl")
    assert free(small) == before
    small.map_fd(small.device, memory, 55 * MIB, "/dev/nvidia0", fd=fd)
    assert free(small) == 0


@pytest.mark.parametrize("bar1", [True, False])
def test_a_doorbell_page_takes_room_where_it_is_mapped_through_bar1(
    make: Callable[..., Client], *, bar1: bool
) -> None:
    client = make("sm_90", bar1_bytes=SMALL).nodes().objects()
    before = free(client)
    client.page(bar1=bar1)
    assert before - free(client) == PAGE * bar1


def test_a_variant_names_a_small_bar() -> None:
    assert check_variant("sm_86+bar256").options == {"bar256"}
    kernel = open_variant("bar256+sm_86+native")
    assert (kernel.machine.gpus[0].bar1_bytes, kernel.machine.filtered) == (SMALL, False)
    kernel.shut()
    with pytest.raises(UsageError, match="'bar256'"):
        check_variant("sm_86+bar512")
