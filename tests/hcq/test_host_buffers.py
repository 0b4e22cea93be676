"""Buffers over memory of the host: used in place, kept alive, and refused where a device cannot reach it.

Not here: PyTorch's memory (`tests/frontend/test_torch_compile.py`).
"""

from __future__ import annotations

import gc
import weakref
from array import array

import pytest

import hcq
from hcq.errors import UnsupportedError, UsageError


class Words(array):
    """An array that weak references can refer to."""


def test_a_queue_reads_and_writes_memory_of_the_host_in_place():
    words = array("I", range(64))
    with hcq.open("cpu") as device:
        buffer, other = device.host_buffer(memoryview(words), label="mine"), device.alloc(256)
        assert buffer.va == words.buffer_info()[0]
        assert (buffer.size, bytes(buffer.host())) == (256, words.tobytes())
        commands = device.compute.record().copy(other, buffer).barrier().fill(buffer, 0)
        device.compute.submit(commands).wait(timeout_s=60)
        assert bytes(other.host()) == array("I", range(64)).tobytes()
        assert not any(words)


def test_the_buffer_keeps_the_memory_until_its_last_reference():
    words = Words("I", range(64))
    gone = weakref.ref(words)
    with hcq.open("cpu") as device:
        buffer = device.host_buffer(memoryview(words))
        del words
        gc.collect()
        assert gone() is not None
        assert bytes(buffer.view(4, 4).host()) == b"\1\0\0\0"
        buffer.close()
        with pytest.raises(UsageError, match="closed"):
            buffer.host()
        del buffer
        gc.collect()
        assert gone() is None


@pytest.mark.parametrize(
    ("memory", "seen"),
    [
        (memoryview(b"1234"), "4 bytes of read-only"),
        (memoryview(bytearray(8))[::2], "4 bytes of strided"),
        (memoryview(bytearray()), "0 bytes"),
        (bytearray(8), r"seen bytearray.*\nhint: memoryview"),
    ],
)
def test_other_memory_is_refused(memory: memoryview, seen: str):
    with hcq.open("cpu") as device, pytest.raises(UsageError, match=seen):
        device.host_buffer(memory)


def test_a_device_with_memory_of_its_own_refuses():
    with hcq.open("nv-emu") as device, pytest.raises(UnsupportedError, match="copy it to Device"):
        device.host_buffer(memoryview(bytearray(64)))
