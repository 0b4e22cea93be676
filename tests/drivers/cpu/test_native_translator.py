"""The native subset: each construct has Python's semantics; other Python is refused."""

from __future__ import annotations

import ctypes
import os
import random
from typing import TYPE_CHECKING, Any

import pytest

from drivers.cpu.image import HostCode, compile_object, nothing_from_outside
from drivers.cpu.layouts import Exec, Line, Op, Pair, Record
from drivers.cpu.link import HostImage
from drivers.cpu.native import NativeSyntaxError, translate
from drivers.cpu.primitives import (
    acquire,
    address,
    base,
    call,
    cas,
    fetch_add,
    float_mode,
    load64,
    on_stack,
    pause,
    release,
    set_float_mode,
    stack,
    store8,
    store32,
    store64,
    swap,
    u64,
    view,
)
from drivers.kernel import LinuxKernel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MACHINE = os.uname().machine
MASK = (1 << 64) - 1
LIMIT = 1000
NEGATIVE = -5


class Sample(Record):
    first: u64
    second: u64
    _line: Line
    third: u64


def arithmetic(a: u64, b: u64) -> u64:
    return (a + b * 3 - (a ^ b)) + (a & b | 0xF0) + (a << 3) + (b >> 2) + a // (b + 1) + a % (b + 7)


def negated(a: u64, b: u64) -> u64:
    return -a + ~b + NEGATIVE


def compared(a: u64, b: u64) -> u64:
    return (a < b) + 2 * (a <= b) + 4 * (a == b) + 8 * (a != b) + 16 * (a > b) + 32 * (a >= b) + 64 * (not a)


def chosen(a: u64, b: u64) -> u64:
    big = a if a > b else b  # noqa: FURB136 - the construct under test
    small = min(a, b)
    return big - small + max(a, 3)


def branched(a: u64, b: u64) -> u64:
    """Take every path through elif and short-circuit conditions."""
    if a > LIMIT and b > LIMIT:
        x = 1
    elif a > LIMIT or not b:
        x = 2
    elif not (a and b > 4):
        x = 3
    else:
        x = 4
        pass  # noqa: PIE790 - the construct under test
    return x


def looped(a: u64, b: u64) -> u64:
    total = 0
    i = 0
    while True:
        i += 1
        if i > a % 50:
            break
        if i % 3 == 0:
            continue
        j = i
        while j:
            total += j * b
            j -= 1
            if total > LIMIT * LIMIT:
                return total
    return total


def called(a: u64, b: u64) -> u64:
    return arithmetic(b, a % 1000) + chosen(a, b)


def recursive(a: u64, b: u64) -> u64:
    if a % 64 == 0:
        return b
    return recursive(a - 1, b + a) if a % 64 else 0


def constant(a: u64, b: u64) -> u64:
    if a:
        return Op.WAIT + Sample.SIZE + LIMIT + True
    return 0


def nothing_returned(a: u64, b: u64) -> None:
    a += b


PURE: tuple[Callable[[int, int], int], ...] = (
    arithmetic, negated, compared, chosen, branched, looped, called, recursive, constant,
)  # fmt: skip


def fields(at: u64, b: u64) -> u64:
    sample = view(Sample, at)
    sample.third = b
    sample.first += 5
    sample.second = sample.first * 2
    return acquire(sample.third) + address(sample.second) - base(sample)


def orders(at: u64, b: u64) -> u64:
    sample = view(Sample, at)
    release(sample.first, 7)
    old = swap(sample.second, b)
    older = fetch_add(sample.second, -1)
    right = cas(sample.third, 0, 9)
    wrong = cas(sample.third, 0, 10)
    return old + older * 100 + right * 10000 + wrong * 100000


def raw(at: u64, b: u64) -> u64:
    store64(at + 1, b)
    store32(at + 16, b)
    store8(at + 24, b)
    return load64(at + 1)


def framed(a: u64, b: u64) -> u64:
    pair = view(Pair, stack(16))
    pair.destination = a
    pair.slot = b
    pause()
    return load64(base(pair)) - load64(address(pair.slot))


def packet_field(at: u64, b: u64) -> u64:
    packet = view(Exec, at)
    return packet.x + packet.y * 2 + packet.z * 3 + packet.args


def indirect_call(function: u64, b: u64) -> u64:
    return call(function, b, 1)


def four(a: u64, b: u64, c: u64, frame: u64) -> u64:
    """Store the address of this call's stack frame."""
    store64(frame, stack(16))
    return 100 * a + 10 * b + c


def elsewhere(top: u64, function: u64) -> u64:
    """Call `four` on another stack and then on this one; a local lives across the first call."""
    local = stack(16)
    store64(local, 1000)
    frame = top - 16
    first = on_stack(frame, function, 1, 2, 3, frame)
    call(function, 4, 5, 6, frame + 8)
    return load64(local) + first


def in_mode(mode: u64, other: u64) -> u64:
    """Set the floating-point control for a moment; return it as it was read then."""
    before = float_mode()
    set_float_mode(mode)
    during = float_mode()
    set_float_mode(before)
    return during + other


def usual_mode(a: u64, b: u64) -> u64:
    return float_mode() + a + b


MEMORY = (
    fields, orders, raw, framed, packet_field, indirect_call, nothing_returned, four, elsewhere, in_mode,
    usual_mode,
)  # fmt: skip


@pytest.fixture(scope="module")
def native() -> Iterator[Callable[[str, int, int], int]]:
    image = HostImage(compile_object(translate((*PURE, *MEMORY), MACHINE)), MACHINE)
    code = HostCode(LinuxKernel(), image, nothing_from_outside)
    prototype = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64)
    functions = {name: prototype(at) for name, at in code.address.items() if name != "pause"}
    functions["address"] = lambda name, _: code.address[name]  # type: ignore[assignment, index]
    yield lambda name, a, b: functions[name](a, b)
    code.close()


@pytest.mark.parametrize("function", PURE, ids=lambda f: f.__name__)
def test_construct_has_pythons_result(native: Any, function: Callable[[int, int], int]) -> None:
    chance = random.Random(1)
    values = [0, 1, 2, 3, 5, 999, 1000, 1001, 1002]
    pairs = [(a, b) for a in values for b in values]
    pairs += [(chance.randrange(1 << 31), chance.randrange(1 << 31)) for _ in range(50)]
    for a, b in pairs:
        assert native(function.__name__, a, b) == function(a, b) & MASK, (a, b)


def test_arithmetic_wraps_at_64_bits(native: Any) -> None:
    assert native("negated", MASK, MASK) == (-MASK + ~MASK + NEGATIVE) & MASK


def test_function_without_a_return_gives_0(native: Any) -> None:
    assert native("nothing_returned", 3, 4) == 0


def memory(size: int) -> tuple[ctypes.Array[ctypes.c_ubyte], int]:
    """Zeroed bytes and their address, 64-byte aligned."""
    array = (ctypes.c_ubyte * (size + 64))()
    return array, (ctypes.addressof(array) + 63) & ~63


def test_record_fields_are_read_and_written_in_place(native: Any) -> None:
    keep, at = memory(Sample.SIZE)
    sample = Sample(at)
    sample.first = 10
    assert native("fields", at, 33) == 33 + Sample.OFFSETS["second"]
    assert (sample.first, sample.second, sample.third) == (15, 30, 33)
    assert Sample.OFFSETS["third"] == 64
    del keep


def test_struct_views_update_memory_in_place() -> None:
    keep, at = memory(Sample.SIZE)
    sample = view(Sample, at)
    sample.first = 1
    sample.first += 5
    assert Sample(at).first == 6
    del keep


def test_atomic_accesses_return_the_old_value(native: Any) -> None:
    keep, at = memory(Sample.SIZE)
    sample = Sample(at)
    sample.second = 3
    assert native("orders", at, 40) == 3 + 40 * 100 + 10000
    assert (sample.first, sample.second, sample.third) == (7, 39, 9)
    del keep


def test_raw_stores_have_their_width(native: Any) -> None:
    keep, at = memory(64)
    number = 0x8877665544332211
    assert native("raw", at, number) == number
    seen = ctypes.string_at(at, 32)
    assert seen[1:9] == number.to_bytes(8, "little")
    assert seen[16:24] == number.to_bytes(8, "little")[:4] + bytes(4)
    assert seen[24:32] == b"\x11" + bytes(7)
    del keep


def test_frame_memory_is_a_record(native: Any) -> None:
    assert native("framed", 9, 4) == 5


def test_packet_fields_are_cut_to_their_bits(native: Any) -> None:
    keep, at = memory(64)
    words = [int(Op.EXEC), 0, 1000, (1 << 40) | 5, (1 << 16) | 6, 7, 0, 0]
    ctypes.memmove(at, b"".join(w.to_bytes(8, "little") for w in words), 64)
    assert native("packet_field", at, 0) == 5 + 12 + 21 + 1000
    del keep


def test_call_by_address_passes_arguments(native: Any) -> None:
    assert native("indirect_call", native("address", "chosen", 0), 8) == chosen(8, 1)


def test_another_stack_is_used_for_one_call(native: Any) -> None:
    size = 1 << 16
    mapping = LinuxKernel().mmap(size)
    assert native("elsewhere", mapping.va + size, native("address", "four", 0)) == 1123
    first, second = mapping.view[size - 16 :].cast("Q")
    assert mapping.va <= first < mapping.va + size
    assert not mapping.va <= second < mapping.va + size
    LinuxKernel().munmap(mapping.va, size)


def test_the_floating_point_control_is_read_and_set(native: Any) -> None:
    flush = {"x86_64": 1 << 15, "aarch64": 1 << 24}[MACHINE]
    before = native("usual_mode", 0, 0)
    assert native("in_mode", before ^ flush, 0) == before ^ flush
    assert native("usual_mode", 0, 0) == before


def unknown_name(a: u64) -> u64:
    return a + nowhere  # type: ignore[name-defined]  # noqa: F821


def unknown_call(a: u64) -> u64:
    return abs(a)


def chained(a: u64) -> u64:
    return 1 < a < 5


def listed(a: u64) -> u64:
    return [a][0]


def for_loop(a: u64) -> u64:
    for _ in range(a):
        a += 1
    return a


def floating(a: u64) -> u64:
    return a + 1.5  # type: ignore[return-value]


def too_large(a: u64) -> u64:
    return a + 0x1_0000_0000_0000_0000


def wrong_count(a: u64) -> u64:
    return wrong_count(a, a)  # type: ignore[call-arg]


def no_field(a: Sample) -> u64:
    return a.fourth  # type: ignore[attr-defined, no-any-return]


def narrow_store(a: Exec) -> u64:
    a.x = 5  # type: ignore[misc]
    return 0


def two_layouts(a: u64) -> u64:
    sample = view(Sample, a)
    sample = view(Pair, a)  # type: ignore[assignment]
    return sample.first


def or_value(a: u64) -> u64:
    return a or 5


def divided(a: u64) -> u64:
    return a / 2  # type: ignore[return-value]


REFUSED = (
    unknown_name, unknown_call, chained, listed, for_loop, floating, too_large, wrong_count, no_field,
    narrow_store, two_layouts, or_value, divided,
)  # fmt: skip


@pytest.mark.parametrize("function", REFUSED, ids=lambda f: f.__name__)
def test_unsupported_syntax_is_refused_with_its_location(function: Callable[..., int]) -> None:
    with pytest.raises(NativeSyntaxError, match=rf"{function.__name__}, line \d+: "):
        translate((function,), MACHINE)


def test_an_unknown_machine_is_refused() -> None:
    with pytest.raises(NativeSyntaxError, match="sparc"):
        translate((chosen,), "sparc")


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_translation_has_neither_data_nor_outside_symbols(machine: str) -> None:
    text = translate(PURE, machine)
    assert [line for line in text.splitlines() if line.startswith("declare")] == [
        line for line in text.splitlines() if "@llvm." in line and line.startswith("declare")
    ]
    assert all(f"define internal i64 @{function.__name__}(" in text for function in PURE)
