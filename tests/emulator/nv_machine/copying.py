"""Words of the copy engine's class."""

from __future__ import annotations

from typing import Any

from drivers.nv.layouts.dma import DataTransferType, DmaMethod, DmaSemaphoreType, LaunchDma, RemapComponents
from tests.emulator.nv_machine.client import method

COPY = {
    "DATA_TRANSFER_TYPE": DataTransferType.NON_PIPELINED,
    "SRC_MEMORY_LAYOUT": True,
    "DST_MEMORY_LAYOUT": True,
}
SIGNAL = {"DATA_TRANSFER_TYPE": DataTransferType.NONE, "FLUSH_ENABLE": True}
FOUR = DmaSemaphoreType.RELEASE_FOUR_WORD
ONE = DmaSemaphoreType.RELEASE_ONE_WORD


def copy(source: int, target: int, length: int, **fields: Any) -> list[int]:
    """Return methods that copy bytes."""
    places = (source >> 32, source & 0xFFFF_FFFF, target >> 32, target & 0xFFFF_FFFF)
    words = method(4, DmaMethod.OFFSET_IN_UPPER, *places) + method(4, DmaMethod.LINE_LENGTH_IN, length)
    return words + launch(**(COPY | fields))


def launch(**fields: Any) -> list[int]:
    """Return a LAUNCH_DMA."""
    return method(4, DmaMethod.LAUNCH_DMA, int(LaunchDma(**fields)))


def semaphore(va: int, payload: int, kind: DmaSemaphoreType = FOUR, **fields: Any) -> list[int]:
    """Return methods that release a semaphore."""
    words = (va >> 32, va & 0xFFFF_FFFF, payload & 0xFFFF_FFFF, payload >> 32)
    fields = SIGNAL | {"SEMAPHORE_TYPE": kind} | fields
    return method(4, DmaMethod.SET_SEMAPHORE_A, *words) + launch(**fields)


def remap(**fields: Any) -> list[int]:
    """Return methods that set the constants and components of a remap."""
    return method(4, DmaMethod.SET_REMAP_CONST_A, 0x11223344, 0x55667788, int(RemapComponents(**fields)))
