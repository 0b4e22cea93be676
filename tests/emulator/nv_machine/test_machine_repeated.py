"""Launches that repeat an earlier one: they have parameters of their own, and are judged as the first one."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from drivers.nv.layouts.qmd_values import SemaphoreSize
from tests.emulator.nv_machine.client import Client
from tests.emulator.nv_machine.launching import JUMPS, SHARED_WINDOW, STORE, Code, Launcher, cubin, upload

Make = Callable[..., Client]


def prepared(make: Make, profile: str, *texts: str) -> tuple[Launcher, Code, int]:
    """Return a launcher, an image of which kernel "store" has run twice, and the address of its result."""
    launcher = Launcher.make(make(profile).up())
    code = upload(launcher.client, cubin(profile, STORE, *texts))
    data = launcher.client.memory(4096)
    for value in (5, 6):
        launcher.run(code, "store", struct.pack("<QI", data.va, value))
        assert struct.unpack_from("<I", data.view)[0] == value
    return launcher, code, data.va


@pytest.mark.parametrize("profile", ["sm_80", "sm_90", "sm_120"])
@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"words": {"ntid": (2, 1, 1)}}, "ntid is (2, 1, 1)"),
        ({"words": {"shared_window": 1 << 32}}, "shared_window"),
        ({"grid": (0, 1, 1)}, "has a zero"),
        ({"BARRIER_COUNT": 0, "CTA_THREAD_DIMENSION2": 65, "block": (1, 1, 65)}, "64 in z"),
        ({"SASS_VERSION": 1}, "SASS_VERSION"),
        ({"CONSTANT_BUFFER_SIZE_SHIFTED4": (0,)}, "wanted 0x10"),
    ],
)
def test_a_wrong_launch_is_refused_after_right_ones(
    make: Make, profile: str, wrong: dict[str, Any], text: str
) -> None:
    launcher, code, va = prepared(make, profile)
    assert text in launcher.fails(code, "store", struct.pack("<QI", va, 7), **wrong)


def test_a_bank_that_is_not_aligned_is_refused_after_right_ones(make: Make) -> None:
    launcher, code, va = prepared(make, "sm_80")
    content = launcher.bank0(struct.pack("<QI", va, 7), (1, 1, 1), (1, 1, 1))
    launcher.place(bytes(64), align=64)
    at = launcher.place(content, align=64)
    assert at % 256
    assert "not aligned to 256" in launcher.fails(code, "store", struct.pack("<QI", va, 7), bank0=at)


def test_a_release_that_cannot_be_is_refused_after_a_right_one(make: Make) -> None:
    launcher, code, va = prepared(make, "sm_90")
    right: dict[str, Any] = {
        "RELEASE_ENABLE": (True,),
        "RELEASE_MEMBAR_TYPE": (1,),
        "RELEASE_STRUCTURE_SIZE": (SemaphoreSize.SEMAPHORE_ONE_WORD,),
        "RELEASE_SEMAPHORE0_ADDR_UPPER": va >> 32,
    }
    for at in (64, 128):
        own = {"RELEASE_SEMAPHORE0_ADDR_LOWER": va + at & 0xFFFF_FFFF, "RELEASE_SEMAPHORE0_PAYLOAD_LOWER": at}
        launcher.run(code, "store", struct.pack("<QI", va, 7), **right, **own)
        raw = launcher.client.machine.maps()[0].read(va + at, 4)
        assert struct.unpack("<I", raw)[0] == at
    wrong = right | {"RELEASE_SEMAPHORE0_ADDR_LOWER": va + 2 & 0xFFFF_FFFF}
    assert "must be aligned to 4 bytes" in launcher.fails(code, "store", struct.pack("<QI", va, 7), **wrong)


def test_memory_mapped_in_a_window_is_found_at_the_next_launch(make: Make) -> None:
    launcher, code, va = prepared(make, "sm_90")
    client = launcher.client
    client.next_va = SHARED_WINDOW
    client.memory(4096)
    text = launcher.fails(code, "store", struct.pack("<QI", va, 7))
    assert "lies in the shared memory window" in text


def test_another_table_of_jumps_is_refused_after_the_right_one(make: Make) -> None:
    launcher = Launcher.make(make("sm_90").up())
    code = upload(launcher.client, cubin("sm_90", JUMPS))
    va, banks = launcher.client.memory(4096).va, launcher.banks(code, "jumps")
    for _ in range(2):
        launcher.run(code, "jumps", struct.pack("<Q", va), banks=banks)
    at, size = banks[2]
    first = at - launcher.arguments.va
    content = bytearray(launcher.arguments.view[first : first + size])
    content[0] ^= 16
    wrong = banks | {2: (launcher.place(bytes(content)), size)}
    text = launcher.fails(code, "jumps", struct.pack("<Q", va), banks=wrong)
    assert "jumps" in text
    assert "wanted" in text or "does not hold" in text
