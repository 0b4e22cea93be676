"""BAR1: its size, the room that mappings of video memory take, and the refusal where it is full."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from drivers.nv.layouts import controls as ctl
from drivers.nv.layouts import rm
from drivers.nv.layouts.controls import Control, FbInfo
from drivers.nv.layouts.rm import Escape
from drivers.nv.layouts.rm_classes import MemAttr, MemAttr2, PageSize, RmClass
from drivers.nv.layouts.status import NvStatus
from emulator.nv.machine import check_variant, open_variant
from hcq.errors import UsageError
from tests.emulator.nv_machine.client import MIB
from tests.emulator.nv_machine.refusals import refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.emulator.nv_machine.client import Client

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


def unmap(client: Client, memory: int) -> None:
    params = rm.NVOS34_PARAMETERS(
        hClient=client.root, hDevice=client.device, hMemory=memory, pLinearAddress=client.cookie
    )
    block = bytearray(params.to_bytes())
    client.escape(client.ctl, Escape.NV_ESC_RM_UNMAP_MEMORY, block)
    assert rm.NVOS34_PARAMETERS.from_bytes(block).status == 0


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
    unmap(small, memory)
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
