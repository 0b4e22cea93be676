"""Work that was set up and never launched is an error; hardware would drop it silently."""

from __future__ import annotations

import struct

import pytest

from drivers.nv.layouts.compute import ComputeMethod as M
from drivers.nv.layouts.compute import PcasAction
from drivers.nv.layouts.dma import DataTransferType, DmaMethod
from tests.emulator.nv_machine.client import Client, method, sem, wait_word
from tests.emulator.nv_machine.launching import STORE, Launcher, cubin, upload
from tests.emulator.nv_machine.test_machine_copy import copy, launch

_LAUNCH = 2
"""Words of a LAUNCH_DMA."""


def transfer(client: Client) -> tuple[list[int], int]:
    """Return the words of a copy, and an address for a semaphore."""
    memory = client.memory(1 << 16)
    return copy(memory.va, memory.va + 4096, 256), memory.va + 8192


@pytest.mark.parametrize("what", ["missing", "none"])
def test_a_copy_without_its_launch_is_reported_at_the_semaphore(up: Client, what: str) -> None:
    ring = up.copy_channel()
    words, va = transfer(up)
    instead = [] if what == "missing" else launch(DATA_TRANSFER_TYPE=DataTransferType.NONE, FLUSH_ENABLE=True)
    ring.push(words[:-_LAUNCH] + instead + sem(va, 1))
    assert ring.wait_error()
    assert "a LAUNCH_DMA is missing" in up.reports()[0]


def test_a_copy_that_another_replaces_is_reported(up: Client) -> None:
    ring = up.copy_channel()
    words, va = transfer(up)
    ring.push(words[:-_LAUNCH] + words + sem(va, 1))
    assert ring.wait_error()
    assert "OFFSET_IN_UPPER is set again" in up.reports()[0]


def test_sizes_are_kept_from_one_copy_to_the_next(up: Client) -> None:
    ring = up.copy_channel()
    words, va = transfer(up)
    again = method(4, DmaMethod.OFFSET_OUT_LOWER, (va + 4096) & 0xFFFF_FFFF)
    ring.push(words + again + words[-_LAUNCH:])
    ring.push(sem(va, 1))
    memory = up.memory(4096, system=True)
    ring.push(sem(memory.va, 1))
    wait_word(memory, 0, 1, up)
    assert ring.error() == 0


def grid(client: Client) -> tuple[Launcher, list[int]]:
    launcher = Launcher.make(client)
    code = upload(client, cubin("sm_90", STORE))
    params = struct.pack("<QI", client.memory(4096).va, 1)
    return launcher, launcher.send(launcher.qmd(launcher.descriptor(code, "store", params)))


def test_a_descriptor_that_is_not_scheduled_is_reported(up: Client) -> None:
    launcher, words = grid(up)
    launcher.ring.push(words[:2] + sem(up.memory(4096).va, 1))
    assert launcher.ring.wait_error()
    assert "was sent and not scheduled" in up.reports()[0]


def test_a_launch_does_not_take_the_descriptor_of_the_one_before(up: Client) -> None:
    launcher, words = grid(up)
    again = method(1, M.SEND_SIGNALING_PCAS2_B, PcasAction.SCHEDULE)
    launcher.ring.push(words + again)
    assert launcher.ring.wait_error()
    assert "without a SEND_PCAS_A of its own" in up.reports()[0]
