"""Fills that are far too long."""

from __future__ import annotations

import tracemalloc

from drivers.nv.layouts.dma import DmaMethod, RemapComponents, RemapSource
from drivers.nv.layouts.fault import RcCode
from tests.emulator.nv_machine.client import Client, method
from tests.emulator.nv_machine.test_machine_copy import copy


def test_a_fill_of_many_gigabytes_faults_before_its_bytes_are_made(up: Client) -> None:
    ring, memory = up.copy_channel(), up.memory(1 << 16)
    remap = RemapComponents(
        DST_X=RemapSource.CONST_A,
        COMPONENT_SIZE=3,
        NUM_SRC_COMPONENTS=0,
        NUM_DST_COMPONENTS=0,
    )
    words = method(4, DmaMethod.SET_REMAP_CONST_A, 7)
    words += method(4, DmaMethod.SET_REMAP_COMPONENTS, int(remap))
    words += copy(memory.va, memory.va, 0xFFFF_FFFF, REMAP_ENABLE=True)
    tracemalloc.start()
    try:
        ring.push(words)
        assert ring.wait_error() == RcCode.MMU_FAULT
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 1 << 30
