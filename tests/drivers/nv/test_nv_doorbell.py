"""The usermode page: doorbells through BAR1 or BAR0, the clock through BAR0; words of working drivers."""

from __future__ import annotations

import contextlib

import pytest

from drivers.nv import push
from drivers.nv.layouts.qmd import sass_version, sm_config
from drivers.nv.layouts.rm_classes import OsDescriptorFlags, copy_engine
from drivers.nv.quirks import parse
from drivers.nv.slm import sizes
from tests.support.nv.recorded import RecordedKernel, driver_of


def pages(kernel: RecordedKernel) -> list[str]:
    """Return the parameters with which each usermode object was allocated."""
    lines = [line for line in kernel.lines if line.startswith("RM_ALLOC ") and "_USERMODE_A " in line]
    return [line.split(" ", 4)[4] if line.count(" ") > 3 else "" for line in lines]


def opened(kernel: RecordedKernel, choices: str = "default"):
    return contextlib.closing(driver_of(kernel).open(0, None, choices=parse(choices)))


@pytest.mark.parametrize("chip", ["sm_90", "sm_120"])
def test_the_clock_is_read_from_a_page_of_its_own(chip: str):
    kernel = RecordedKernel(chip)
    with opened(kernel) as device:
        assert device.clock().ticks > 0
        assert pages(kernel) == ["bBar1Mapping=1", "0"]
    assert kernel.held() == {}


def test_one_page_serves_both_where_doorbells_go_through_bar0():
    kernel = RecordedKernel()
    with opened(kernel, "doorbell_bar1=false") as device:
        assert device.clock().ticks > 0
        assert pages(kernel) == ["0"]


def test_classes_before_hopper_take_no_parameters_and_have_one_page():
    kernel = RecordedKernel("sm_80")
    with opened(kernel) as device:
        assert device.clock().ticks > 0
        assert pages(kernel) == [""]


@pytest.mark.parametrize(
    ("seen", "word"),
    [
        (push.ACQUIRE, 0x0100_1003),
        (push.RELEASE_WFI_TIME, 0x0310_0001),
        (push.RELEASE_WFI, 0x0110_0001),
        (push.LAUNCH_COPY, 0x182),
        (push.LAUNCH_TIME, 0x14),
        (push.LAUNCH_FILL, 0x586),
        (push.FILL_COMPONENTS, 0x3_0004),
    ],
)
def test_words_of_working_drivers(seen: int, word: int):
    assert seen == word


def test_long_copies_are_cut_at_2_gib():
    words = push.copy(0x10_0000_0000, 0x20_0000_0000, (1 << 31) + 100)
    assert len(words) == 18
    assert words[9:15] == (words[0], 0x20, 0x8000_0000, 0x10, 0x8000_0000, words[5])
    assert (words[6], words[15]) == (1 << 31, 100)


def test_engine_types_of_copy_engines():
    assert [copy_engine(i) for i in (0, 1, 9, 10, 11)] == [0x9, 0xA, 0x12, 0x34, 0x35]


def test_codes_of_carve_outs_and_sass():
    assert (sm_config(228), sm_config(100)) == (0x3A, 0x1A)
    assert [sass_version(v) for v in (0x900, 0x806, 0xA00, 0xC00)] == [0x90, 0x86, 0xA0, 0xC0]


def test_flags_of_user_pages():
    assert int(OsDescriptorFlags(PHYSICALITY=1, COHERENCY=1, MAPPING=1)) == 0x4000_1010


class Litter:
    max_warps, sms_per_tpc, litter_tpcs = 64, 2, 72


def test_local_memory_is_sized_by_warps_tpcs_and_litter():
    per_tpc, total = sizes(Litter(), 0x2C0)
    warp = -(-0x2C0 * 32 // 0x200) * 0x200
    assert per_tpc == -(-warp * 64 * 2 // 0x8000) * 0x8000
    assert total == -(-per_tpc * 72 // 0x20000) * 0x20000
