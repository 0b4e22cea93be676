"""Checked emulated GPUs hold kernels to buffers that share an allocation, and to what was written there."""

from __future__ import annotations

import gc
import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest

import hcq
import interop
from emulator.ir.state import MAP_ENTRY
from emulator.shared.memory import AddressSpace, TrackedBuffers
from interop import sanitize
from tests.guests import build

if TYPE_CHECKING:
    from collections.abc import Iterator

TARGETS = {"sm_80": "nv-emu:sm_80+checked", "gfx1100": "amd-emu:gfx1100+checked"}


@pytest.fixture(params=TARGETS)
def device(request: pytest.FixtureRequest) -> Iterator[hcq.Device]:
    with hcq.open(TARGETS[request.param]) as opened:
        yield opened


def add(device: hcq.Device, x: object, out: object, n: int) -> None:
    """Add the first n numbers of x to themselves, by a kernel of Triton."""
    facts, code = build.read(build.DATA / f"triton_{device.info.arch}.tar.xz")["vector_add"]
    kernel = interop.load(device, code, entry=facts["entry"])
    arguments = [x, x, out, n, None, None][: len(kernel.signature.parameters)]
    kernel.launch(*arguments, groups=1, threads=facts["threads"], shared=facts["shared"]).wait()


def found(device: hcq.Device, x: object, out: object, n: int) -> set[str]:
    """Return the kinds of findings of `add`, after which the device has a fault."""
    with pytest.raises(hcq.DeviceFault) as caught:
        add(device, x, out, n)
    return {one["kind"] for one in sanitize.findings(caught.value)}


def test_access_past_a_buffer_inside_an_allocation_is_found(device: hcq.Device):
    x, out = interop.array(device, np.ones(100, np.float32)), interop.empty(device, 101)
    add(device, x, out, 100)
    assert out.numpy()[:100].tolist() == [2] * 100
    assert found(device, x, out, 101) == {"out_of_bounds"}


def test_new_buffer_is_unwritten_though_its_memory_was_used_before(device: hcq.Device):
    out = interop.empty(device, 64)
    x = interop.array(device, np.ones(64, np.float32))
    add(device, x, out, 64)
    del x
    gc.collect()
    device.sync()
    assert found(device, interop.empty(device, 64), out, 64) == {"uninitialised"}


def test_buffer_that_counts_as_written_may_be_read(device: hcq.Device):
    x, out = interop.empty(device, 64), interop.empty(device, 64)
    x.buffer.count_as_written()
    add(device, x, out, 64)


def test_memory_of_a_closed_buffer_is_out_of_bounds():
    text = (
        ".version 8.5\n.target sm_80\n.address_size 64\n.visible .entry peek(.param .u64 at) {\n"
        ".reg .b64 %rd<2>; .reg .b32 %r<2>;\nld.param.u64 %rd0, [at];\nld.global.u32 %r0, [%rd0];\n"
        "st.global.u32 [%rd0], %r0;\nret;\n}\n"
    )
    with hcq.open(TARGETS["sm_80"]) as device:
        kernel = interop.load(device, text)
        x = interop.array(device, np.ones(64, np.float32)).buffer
        address = x.va
        kernel.launch(address, groups=1, threads=1).wait()
        x.close()
        device.sync()
        with pytest.raises(hcq.DeviceFault) as caught:
            kernel.launch(address, groups=1, threads=1).wait()
        (one,) = sanitize.findings(caught.value)
        assert one["kind"] == "out_of_bounds"
        assert f"inside buffer [{address:#x}, {address + 256:#x}) of 256 bytes, freed" in one["nearest"]


def test_a_second_gpu_has_the_buffers_that_were_taken_before_it_mapped_their_allocation():
    first, second = AddressSpace(), AddressSpace()
    buffers = TrackedBuffers(threading.RLock(), lambda: (first, second))
    first.map(0x10000, 0x1000, 0x10000)
    buffers.buffer_taken(0x10100, 8)
    second.map(0x10000, 0x1000, 0x10000)
    buffers.buffer_taken(0x10200, 8)
    assert first.table() == second.table()
    assert len(second.table()) == 2 * MAP_ENTRY.size
    for va in (0x10100, 0x10200):
        buffers.buffer_dropped(va)
    assert first.table() == second.table() == b""


def test_a_buffer_that_is_dropped_late_leaves_a_later_one_at_its_address():
    space = AddressSpace()
    buffers = TrackedBuffers(threading.RLock(), lambda: (space,))
    for _ in range(2):
        space.map(0x10000, 0x1000, 0x10000)
        buffers.buffer_taken(0x10100, 8)
        kept = space.table()
        space.unmap(0x10000)
    space.map(0x10000, 0x1000, 0x10000)
    space.take_buffer(0x10100, 8)
    buffers.buffer_dropped(0x10100)
    assert space.table() == kept
    buffers.buffer_dropped(0x10100)
    assert space.table() == b""


def test_map_of_kernels_has_the_buffers_of_an_allocation():
    space = AddressSpace()
    space.map(0x10000, 0x1000, 0x10000, label="pages")
    whole = space.table()
    space.take_buffer(0x10100, 40)
    space.take_buffer(0x10300, 8)
    assert len(space.table()) == 2 * len(whole)
    assert "5 bytes past the last byte of buffer [0x10100, 0x10128) of 40 bytes" in space.nearest(0x1012C)
    space.drop_buffer(0x10100)
    space.drop_buffer(0x10300)
    assert space.table() == b""
    assert "inside buffer [0x10300, 0x10308) of 8 bytes, freed earlier" in space.nearest(0x10304)
    space.unmap(0x10000)
    space.map(0x10000, 0x1000, 0x10000, label="pages")
    assert space.table() == whole
