"""The address space of an emulated device: mappings, refusals, and freed allocations."""

from __future__ import annotations

import ctypes
import mmap
import weakref
from typing import Any

import pytest

from emulator.ir.state import MAP_ENTRY
from emulator.shared.memory import AddressSpace, zero
from hcq.errors import UsageError
from tests.children import python


@pytest.fixture
def space() -> AddressSpace:
    one = AddressSpace()
    one.map(0x2000, 0x1000, 0x9000, label="second")
    one.map(0x1000, 0x100, 0x8000, label="first")
    return one


def test_addresses_are_found_by_the_range_that_holds_them(space: Any):
    assert space.find(0x1000).label == "first"
    assert space.find(0x10FF).label == "first"
    assert space.find(0x1100) is None
    assert space.find(0x2FFF).label == "second"
    assert space.find(0x10F8, 16) is None


def test_host_addresses_follow_the_mapping(space: Any):
    assert space.host(0x2010, 16) == 0x9010
    with pytest.raises(UsageError, match="second"):
        space.host(0x2FF8, 16)


@pytest.mark.parametrize(
    ("va", "size"), [(0x1000, 1), (0xF00, 0x101), (0x10FF, 2), (0x0, 0x10000), (0x2FFF, 1)]
)
def test_overlap_is_refused_and_changes_nothing(space: Any, va: Any, size: Any):
    before = space.table()
    with pytest.raises(UsageError, match="overlaps"):
        space.map(va, size)
    assert space.table() == before


def test_a_size_of_zero_is_refused(space: Any):
    with pytest.raises(UsageError, match="0 bytes"):
        space.map(0x5000, 0)


def test_the_table_is_sorted_and_has_every_place(space: Any):
    raw = space.table()
    entries = [
        tuple(MAP_ENTRY.read(raw, name, at) for name in ("start", "size", "delta"))
        for at in range(0, len(raw), MAP_ENTRY.size)
    ]
    assert entries == [(0x1000, 0x100, 0x7000), (0x2000, 0x1000, 0x7000)]


def test_freed_allocations_are_remembered_with_their_call_site(space: Any):
    space.unmap(0x1000, freed_at="train.py:7")
    assert "freed train.py:7" in space.nearest(0x1010)
    assert "first" in space.nearest(0x1010)
    with pytest.raises(UsageError, match="nothing is mapped"):
        space.unmap(0x1000)


def test_the_nearest_allocation_is_named_with_the_distance(space: Any):
    assert space.nearest(0x1200).startswith("257 bytes past the last byte of first")
    assert space.nearest(0x1FF0).startswith("16 bytes before second")
    assert AddressSpace().nearest(0) == "no memory is mapped"


def test_bytes_are_copied_in_and_out():
    memory = ctypes.create_string_buffer(64)
    space = AddressSpace()
    space.map(0x7000, 64, ctypes.addressof(memory))
    space.write(0x7010, b"hello")
    assert space.read(0x700F, 7) == b"\0hello\0"


def test_shadows_are_made_only_on_request(space: Any):
    plain = space.table()
    assert MAP_ENTRY.read(plain, "touched") == 0
    assert MAP_ENTRY.read(space.table(shadows=True), "touched") != 0
    assert MAP_ENTRY.read(space.table(), "touched") == 0


def test_shadow_pages_live_as_long_as_their_table(space: Any):
    mapped = space.snapshot(shadows=True).mappings
    touched = weakref.ref(space.find(0x1000).touched)
    space.unmap(0x1000)
    for _ in range(1000):  # more than are remembered
        space.map(0x1000, 0x100)
        space.unmap(0x1000)
    assert touched() is not None
    del mapped
    assert touched() is None


def test_access_history_is_cleared_between_launches(space: Any):
    touched = MAP_ENTRY.read(space.table(shadows=True), "touched")
    shadow = (ctypes.c_ubyte * 64).from_address(touched)
    shadow[:4] = b"\1\2\3\4"
    space.clear_accesses()
    assert bytes(shadow) == bytes(64)
    shadow[0] = 5
    assert shadow[0] == 5


LARGE = """
import sys
import hcq
HOST = hcq.BufferSpec(place=hcq.Place.HOST, host_visible=True, coherent=True)
with hcq.open(sys.argv[1]) as device:
    queue = device.copies[0]
    def zeroed(size):
        buffer, host = device.alloc(size), device.alloc(4096, HOST)
        host.host()[:] = bytes([1]) * 4096
        if sys.argv[2] == "fill":
            commands = queue.record().fill(buffer, 0).barrier().copy(host, buffer, 4096)
            queue.submit(commands).wait(timeout_s=1000)
            assert not any(host.host())
        (most,) = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")]
        return int(most) >> 10
    before = zeroed(1 << 20)
    print(zeroed(2 << 30) - before)
"""


@pytest.mark.parametrize(
    ("device", "what"), [("nv-emu", "fill"), ("amd-emu", "fill"), ("amd-emu:checked", "alloc")]
)
def test_memory_takes_no_pages_before_it_is_written(device: str, what: str) -> None:
    done = python("-c", LARGE, device, what)
    assert int(done.stdout) < 512, "MiB more than for a small buffer"


@pytest.mark.parametrize("start", [0, 1, 4095, 4096])
@pytest.mark.parametrize("size", [0, 1, 4097, (1 << 16) - 1, 1 << 16, (1 << 18) + 5])
@pytest.mark.parametrize("shared", [False, True])
def test_zeroed_bytes_are_exactly_those_of_the_range(start: int, size: int, shared: bool) -> None:  # noqa: FBT001 - a parameter
    flags = (mmap.MAP_SHARED if shared else mmap.MAP_PRIVATE) | mmap.MAP_ANONYMOUS
    with mmap.mmap(-1, 1 << 19, flags=flags) as pages:
        pages[:] = b"\xff" * len(pages)
        cell = ctypes.c_char.from_buffer(pages)
        zero(ctypes.addressof(cell) + start, size)
        del cell
        assert pages[:] == b"\xff" * start + bytes(size) + b"\xff" * (len(pages) - start - size)
