"""The command processor's thread stops and starts again without losing work."""

from __future__ import annotations

import struct

from drivers.nv.layouts.host import SemOperation
from tests.emulator.nv_machine.client import Client, sem, wait_word


def test_waiting_work_continues_after_a_pause_without_another_doorbell(up: Client):
    ring, memory = up.copy_channel(), up.memory(4096, system=True)
    scheduler = up.machine.scheduler
    ring.push(sem(memory.va, 1, SemOperation.ACQ_STRICT_GEQ) + sem(memory.va + 64, 7))
    scheduler.close()
    struct.pack_into("<Q", memory.view, 0, 1)
    assert not scheduler.running
    assert struct.unpack_from("<Q", memory.view, 64) == (0,)
    scheduler.resume()
    wait_word(memory, 64, 7, up)


def test_nothing_is_started_when_there_is_nothing_to_go_on_with(up: Client):
    up.machine.scheduler.resume()
    assert up.machine.scheduler.running is False
