"""Doubtful values of the AMD driver: the words and calls that each changes."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from drivers.amd.layouts.chips import CHIPS
from drivers.amd.layouts.kfd import MemFlags
from drivers.amd.layouts.pm4 import DataSel, IntSel
from drivers.amd.layouts.pm4_generations import RELEASE
from drivers.amd.packets import Pm4Words
from drivers.amd.quirks import parse
from hcq.driver import QueueKind
from tests.drivers.amd.opened import driver_of, emulated


@pytest.mark.parametrize(
    ("arch", "text", "size_hi"),
    [
        ("gfx1100", "default", 0xFF),
        ("gfx1100", "coher_size=25", 0x01FF_FFFF),
        ("gfx942", "coher_size=32", 0xFFFF_FFFF),
    ],
)
def test_the_upper_size_of_an_acquire_has_as_many_bits_as_chosen(arch: str, text: str, size_hi: int) -> None:
    words = Pm4Words(CHIPS[arch], parse(text))
    for acquire in (words.acquire_launch, words.acquire_system, words.acquire_code, words.write_back):
        assert acquire[2:4] == (0xFFFF_FFFF, size_hi)


@pytest.mark.parametrize(
    ("arch", "text", "fields"),
    [
        ("gfx1100", "default", {"DATA_SEL": DataSel.FULL_64, "INT_SEL": IntSel.NONE}),
        ("gfx1100", "signal_bits=32", {"DATA_SEL": DataSel.LOW_32}),
        ("gfx1201", "release_confirm=true", {"INT_SEL": IntSel.DATA_AFTER_WRITE}),
        ("gfx942", "default", {"TC_WB_ACTION": True, "TCL1_ACTION": True, "TC_MD_ACTION": True}),
        ("gfx942", "release_caches=l2", {"TC_WB_ACTION": True, "TC_ACTION": True, "TCL1_ACTION": False}),
    ],
)
def test_a_release_has_the_chosen_fields(arch: str, text: str, fields: dict[str, Any]) -> None:
    target = CHIPS[arch]
    release = RELEASE[target.generation].from_words(Pm4Words(target, parse(text)).signal(0x1000, 5))
    assert {name: getattr(release, name) for name in fields} == fields
    assert not release.check()


def test_an_interrupt_is_the_same_with_every_choice() -> None:
    words = Pm4Words(CHIPS["gfx1100"], parse("release_confirm=true")).interrupt(0x1000, 5)
    assert RELEASE[11].from_words(words).INT_SEL is IntSel.INTERRUPT_AFTER_WRITE


@pytest.mark.parametrize("gpu", ["gfx1100", "gfx942"])
def test_the_host_data_path_is_flushed_before_each_doorbell_by_choice(gpu: str) -> None:
    for text, flushes in (("default", False), ("hdp=flush", True)):
        kernel = emulated(gpu)
        with contextlib.closing(driver_of(kernel).open(0, None, choices=parse(text))) as made:
            before = kernel.machine.hdp_flushes
            ring = made.ring(QueueKind.COPY, 0)
            ring.send((0,) * 8)
            assert (kernel.machine.hdp_flushes > before) is flushes
        assert kernel.held() == {}


@pytest.mark.parametrize(
    ("text", "gpu", "check"),
    [
        ("ring_bytes=large", "gfx942",
         lambda made: made.ring(QueueKind.COMPUTE, 0).queue.ring.size == 16 << 20),
        ("ring_bytes=small", "gfx942",
         lambda made: made.ring(QueueKind.COMPUTE, 0).queue.ring.size == 1 << 18),
        ("ring_bytes=large", "gfx1100",
         lambda made: made.ring(QueueKind.COPY, 0).queue.ring.size == 16 << 20),
    ],
)  # fmt: skip
def test_rings_have_the_chosen_size(text: str, gpu: str, check: Any) -> None:
    kernel = emulated(gpu)
    with contextlib.closing(driver_of(kernel).open(0, None, choices=parse(text))) as made:
        assert check(made)
    assert kernel.held() == {}


def test_system_memory_and_exceptions_follow_the_choice() -> None:
    for text, wanted in (("default", True), ("system_uncached=false+runtime=setup", False)):
        kernel = emulated()
        with contextlib.closing(driver_of(kernel).open(0, None, choices=parse(text))) as made:
            own = [one.flags for one in kernel.machine.gpus[0].handles.values() if one.flags & MemFlags.GTT]
            assert {bool(flags & MemFlags.UNCACHED) for flags in own} == {wanted}
            assert all(flags & MemFlags.COHERENT for flags in own)
            assert (made.process.no_exceptions == "") is wanted
            assert kernel.process.runtime is wanted
