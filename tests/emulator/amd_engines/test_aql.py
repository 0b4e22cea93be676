"""AQL packets on eight XCCs: launches, barriers, PM4 in indirect buffers, completion (facts: P12)."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest

from drivers.amd.layouts.events import QueueException
from drivers.amd.layouts.kfd import QueueType
from emulator.amd.reports import QueueFault
from tests.emulator.amd_engines.conftest import BUFFERS, DATA, POINTERS, RING
from tests.emulator.amd_engines.loaded import DESCRIPTOR, GROUPS, KERNARG, WANTED, Loaded, load, sums
from tests.emulator.amd_engines.test_rings import write_data

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.emulator.amd_engines.conftest import Bench

SYSTEM = 1 << 8 | 2 << 9 | 2 << 11
SIGNAL, INACTIVE = DATA + 0x200, DATA + 0x300
MAILBOX = DATA + 0x400


def opened(bench: Callable[..., Bench], *, checked: bool = False) -> Bench:
    """Return a queue of gfx942 with its amd_queue_t and signals."""
    b = bench(QueueType.COMPUTE_AQL, "gfx942", checked=checked)
    b.put(POINTERS + 136, 128)
    b.put64(POINTERS + 192, INACTIVE)
    b.put64(SIGNAL + 8, 1)
    return b


def dispatch(kernel: Loaded, **changed: int) -> tuple[int, ...]:
    """Return a kernel-dispatch packet."""
    values: dict[str, Any] = {
        "header": 2 | SYSTEM, "dims": 3, "threads": 256, "y": 1, "grid": 256 * GROUPS,
        "group": kernel.lds_bytes, "object": DESCRIPTOR, "kernarg": KERNARG, "signal": 0,
    } | changed  # fmt: skip
    raw = struct.pack(
        "<HHHHHHIIIIIQQQQ", values["header"], values["dims"], values["threads"], values["y"], 1, 0,
        values["grid"], 1, 1, 0, values["group"], values["object"], values["kernarg"], 0, values["signal"],
    )  # fmt: skip
    return struct.unpack("<16I", raw)


def barrier(kind: int, *signals: int, done: int = 0) -> tuple[int, ...]:
    raw = struct.pack("<HHI5QQQ", kind | SYSTEM, 0, 0, *(*signals, *[0] * (5 - len(signals))), 0, done)
    return struct.unpack("<16I", raw)


def buffer(va: int, words: int, done: int = 0) -> tuple[int, ...]:
    raw = struct.pack("<16I", SYSTEM | 1 << 16, 0xC0023F00, va, 0, words | 1 << 23, 10, *[0] * 8, done, 0)
    return struct.unpack("<16I", raw)


def test_a_kernel_runs_and_its_signal_is_counted_down(bench: Callable[..., Bench]) -> None:
    b = opened(bench)
    b.put64(SIGNAL + 16, MAILBOX)
    b.put(SIGNAL + 24, 5)
    b.do(*dispatch(load(b, "gfx942"), signal=SIGNAL))
    assert sums(b) == WANTED
    assert b.get64(SIGNAL + 8) == 0
    assert (b.get(MAILBOX), b.interrupts) == ([5], [(5, 32)])
    assert b.get(RING)[0] & 0xFFFF == 1  # INVALID again
    assert b.get64(b.queue.rptr_va) == 1


def test_every_xcc_executes_a_buffer_unless_it_is_predicated(bench: Callable[..., Bench]) -> None:
    b = opened(bench)
    add = (0xC0071E00, 15, DATA, 0, 1, 0, 0, 0, 0)
    once = (0xC0071E00, 15, DATA + 4, 0, 1, 0, 0, 0, 0)
    b.put(BUFFERS, *add, 0xC0002300, 1 << 24 | 9, *once)
    b.do(*buffer(BUFFERS, 20, SIGNAL))
    assert b.get(DATA, 2) == [8, 1]
    assert b.get64(SIGNAL + 8) == 0


def test_an_invalid_header_stops_the_queue_until_it_is_valid(bench: Callable[..., Bench]) -> None:
    b = opened(bench)
    b.put(BUFFERS, *write_data(DATA, 3))
    packet = buffer(BUFFERS, 5)
    b.do(1, *packet[1:])
    assert b.get(DATA) == [0]
    b.put(RING, packet[0])
    b.finish()
    assert b.get(DATA) == [3]


@pytest.mark.parametrize(("kind", "blocked"), [(3, True), (5, False)])
def test_barriers_wait_for_all_signals_or_one(
    bench: Callable[..., Bench], kind: int, *, blocked: bool
) -> None:
    b = opened(bench)
    other = SIGNAL + 64
    b.put64(other + 8, 0)
    b.do(*barrier(kind, SIGNAL, other))
    assert b.run.busy == blocked
    b.put64(SIGNAL + 8, 0)
    b.finish()
    assert not b.run.busy


@pytest.mark.parametrize(
    ("changed", "code", "inactive"),
    [
        ({"object": DESCRIPTOR + 32}, QueueException.PACKET_DISPATCH_CODE_INVALID, 8),
        ({"dims": 0}, QueueException.PACKET_DISPATCH_DIM_INVALID, 2),
        ({"grid": 0}, QueueException.PACKET_DISPATCH_DIM_INVALID, 2),
        ({"dims": 1, "y": 2}, QueueException.PACKET_DISPATCH_DIM_INVALID, 2),
        ({"threads": 2048}, QueueException.PACKET_DISPATCH_WORK_GROUP_SIZE_INVALID, 64),
        ({"group": 0}, QueueException.PACKET_DISPATCH_GROUP_SEGMENT_SIZE_INVALID, 4),
        ({"header": 4 | SYSTEM}, QueueException.PACKET_UNSUPPORTED, 32),
        ({"header": SYSTEM, "dims": 7}, QueueException.PACKET_VENDOR_UNSUPPORTED, 256),
    ],
)
def test_a_bad_packet_stops_the_queue_and_tells_its_signal(
    bench: Callable[..., Bench], changed: dict[str, int], code: QueueException, inactive: int
) -> None:
    b = opened(bench)
    kernel = load(b, "gfx942")
    with pytest.raises(QueueFault) as caught:
        b.do(*dispatch(kernel, **changed))
    assert caught.value.exception is code
    assert b.get64(INACTIVE + 8) == inactive


@pytest.mark.parametrize(
    ("at", "wrong", "text"),
    [
        (44, 0x0, "accumulation registers at 4"),
        (44, 0x3F, "accumulation registers at 256"),
        (58, 0x7F, "preloaded"),
    ],
)
def test_a_descriptor_whose_registers_do_not_fit_is_refused(
    bench: Callable[..., Bench], at: int, wrong: int, text: str
) -> None:
    b = opened(bench)
    kernel = load(b, "gfx942")
    word = at // 4 * 4
    shift = 8 * (at - word)
    b.put(DESCRIPTOR + word, b.get(DESCRIPTOR + word)[0] & ~(0xFFFF << shift) | wrong << shift)
    with pytest.raises(QueueFault, match=text):
        b.do(*dispatch(kernel))


def test_a_register_launch_on_several_xccs_is_refused(bench: Callable[..., Bench]) -> None:
    b = opened(bench)
    b.put(BUFFERS, 0xC0031500, 1, 1, 1, 5)
    with pytest.raises(QueueFault, match="8 XCCs"):
        b.do(*buffer(BUFFERS, 5))
