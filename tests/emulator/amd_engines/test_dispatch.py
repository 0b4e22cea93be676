"""Launches through registers: what is run, and which registers do not fit the kernel (facts: P8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from drivers.amd.layouts.events import QueueException
from emulator.amd.isa import programs
from emulator.amd.reports import FindingKind, MemoryFault, QueueFault
from tests.emulator.amd_engines.conftest import DATA
from tests.emulator.amd_engines.loaded import (
    CODE,
    DESCRIPTOR,
    GROUPS,
    KERNARG,
    NO_INPUTS,
    SUMS,
    VALUES,
    WANTED,
    Loaded,
    load,
    sums,
)
from tests.emulator.amd_engines.test_pm4 import release
from tests.emulator.amd_isa import ir

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.emulator.amd_engines.conftest import Bench

FLUSH = (0xC0004600, 0x407)
ACQUIRE = (0xC0065800, 0, 0xFFFFFFFF, 0xFF, 0, 0, 10, 1)
LDS_AT = 15
CODES = QueueException


def registers(place: int, *values: int) -> tuple[int, ...]:
    return (0xC0007600 | len(values) << 16, place, *values)


def launch(kernel: Loaded, **changed: Any) -> tuple[int, ...]:
    """Return the packets of a launch (facts 4.4)."""
    values: dict[str, Any] = {
        "code": CODE, "rsrc1": kernel.rsrc1, "rsrc2": kernel.rsrc2 | 2 << LDS_AT, "rsrc3": kernel.rsrc3,
        "threads": (256, 1, 1), "groups": (GROUPS, 1, 1), "initiator": 0x8005,
        "user": (KERNARG & 0xFFFF_FFFF, KERNARG >> 32), "limits": (0,), "start": (0, 0, 0),
    } | changed  # fmt: skip
    return (
        *registers(0x20C, values["code"] >> 8, 0),
        *registers(0x212, values["rsrc1"], values["rsrc2"]),
        *registers(0x228, values["rsrc3"]),
        *registers(0x218, 0),
        *registers(0x21B, 0, 0, 0),
        *(registers(0x240, *values["user"]) if values["user"] else ()),
        *(registers(0x215, *values["limits"]) if values["limits"] else ()),
        *registers(0x204, *values["start"], *values["threads"], 0, 0),
        0xC0031500, *values["groups"], values["initiator"],
    )  # fmt: skip


@pytest.mark.parametrize("name", ["gfx1100", "gfx1201"])
def test_a_kernel_runs_and_the_release_comes_behind_it(bench: Callable[..., Bench], name: str) -> None:
    b = bench(name=name)
    b.do(*launch(load(b, name)), *release(DATA, 1))
    assert sums(b) == WANTED
    assert b.get(DATA) == [1]
    assert list(b.launches.values()) == [1]
    assert b.lints == []


def test_a_release_is_not_written_before_the_kernel_is_over(bench: Callable[..., Bench]) -> None:
    for seed in range(6):
        b = bench(seed=seed)
        b.write(*launch(load(b)), *release(DATA, 1))
        b.ring()
        while b.get(DATA) == [0]:
            b.step()
        assert sums(b) == WANTED


def last_of_four(b: Bench, *, waits: bool) -> float:
    """Return what the last of four unordered kernels stored; a submission before them ends with two releases.

    The host submits them once the first release is seen, or `waits` until the queue is idle.
    """
    kernel = load(b)
    for k in range(GROUPS):
        b.put64(KERNARG + 64 * k, SUMS)
        b.put64(KERNARG + 64 * k + 8, VALUES + 1024 * k)
    b.write(*release(DATA, 1), *release(DATA + 64, 1))
    b.ring()
    if waits:
        b.finish()
    while b.get(DATA) == [0]:
        b.step()
    for k in range(GROUPS):
        b.write(*launch(kernel, user=(KERNARG + 64 * k, 0), groups=(1, 1, 1)))
    b.ring()
    b.finish()
    return sums(b)[0]


def test_the_order_of_kernels_does_not_depend_on_when_the_host_submits(bench: Callable[..., Bench]) -> None:
    found = {
        waits: [last_of_four(bench(seed=seed), waits=waits) for seed in range(12)] for waits in (False, True)
    }
    assert found[False] == found[True]
    assert len(set(found[True])) > 1


def test_packets_behind_a_launch_do_not_wait_for_it_without_a_flush(bench: Callable[..., Bench]) -> None:
    write = (0xC0033700, 5 << 8, DATA, 0, 1)
    early = set()
    for flush in ((), FLUSH):
        for seed in range(12):
            b = bench(seed=seed)
            b.write(*launch(load(b)), *flush, *write)
            b.ring()
            while b.get(DATA) == [0]:
                b.step()
            early.add((bool(flush), sums(b) == WANTED))
            b.finish()
    assert early >= {(False, False), (True, True)}
    assert (True, False) not in early


@pytest.mark.parametrize(
    ("changed", "code", "text"),
    [
        ({"groups": (0, 1, 1)}, CODES.PACKET_DISPATCH_DIM_INVALID, "workgroups"),
        ({"threads": (1025, 1, 1)}, CODES.PACKET_DISPATCH_WORK_GROUP_SIZE_INVALID, "1025"),
        ({"threads": (0, 1, 1)}, CODES.PACKET_DISPATCH_WORK_GROUP_SIZE_INVALID, "has 0"),
        ({"initiator": 5}, CODES.PACKET_DISPATCH_CODE_INVALID, "32 lanes"),
        ({"user": ()}, CODES.PACKET_DISPATCH_REGISTER_INVALID, "KERNARG_SEGMENT_PTR"),
        ({"user": (KERNARG + 4, 0)}, CODES.PACKET_UNSUPPORTED, "aligned to 8"),
        ({"limits": ()}, CODES.PACKET_DISPATCH_REGISTER_INVALID, "RESOURCE_LIMITS"),
        ({"start": (1, 0, 0)}, CODES.PACKET_UNSUPPORTED, "START_X|start at 0"),
    ],
)
def test_a_bad_launch_stops_the_queue_with_its_code(
    bench: Callable[..., Bench], changed: dict[str, Any], code: QueueException, text: str
) -> None:
    b = bench()
    kernel = load(b)
    if "start" in changed:
        changed = changed | {"initiator": 0x8001}
    with pytest.raises(QueueFault, match=text) as caught:
        b.do(*launch(kernel, **changed))
    assert caught.value.exception is code


@pytest.mark.parametrize(
    ("name", "value"), [("rsrc1", 1 << 17), ("rsrc2", 1 << 8), ("rsrc3", 1 << 4), ("rsrc1", 1)]
)
def test_resource_words_are_those_of_the_descriptor(
    bench: Callable[..., Bench], name: str, value: int
) -> None:
    b = bench()
    kernel = load(b)
    given = getattr(kernel, name) | (2 << LDS_AT if name == "rsrc2" else 0)
    with pytest.raises(QueueFault, match=rf"{name.upper()} is|float mode"):
        b.do(*launch(kernel, **{name: given ^ value}))


def test_too_little_lds_is_refused(bench: Callable[..., Bench]) -> None:
    b = bench()
    kernel = load(b)
    with pytest.raises(QueueFault, match="512 bytes of LDS, the kernel has 1024"):
        b.do(*launch(kernel, rsrc2=kernel.rsrc2 | 1 << LDS_AT))


def test_arguments_that_are_not_mapped_are_a_memory_fault(bench: Callable[..., Bench]) -> None:
    b = bench()
    with pytest.raises(MemoryFault, match="arguments"):
        b.do(*launch(load(b), user=(0x7000_0000, 0)))


def test_user_registers_are_not_kept_from_launch_to_launch(bench: Callable[..., Bench]) -> None:
    b = bench()
    kernel = load(b)
    b.do(*launch(kernel))
    with pytest.raises(QueueFault, match="were not written since the last launch"):
        b.do(*launch(kernel, user=()))


def test_code_that_changed_wants_the_instruction_cache_invalidated(bench: Callable[..., Bench]) -> None:
    b = bench()
    kernel = load(b)
    b.do(*launch(kernel))
    b.put(CODE, 0xBFB00000)  # s_endpgm
    with pytest.raises(QueueFault, match="GLI_INV"):
        b.do(*launch(kernel))


def test_code_that_changed_runs_behind_an_acquire(bench: Callable[..., Bench]) -> None:
    b = bench()
    kernel = load(b)
    b.do(*launch(kernel))
    b.put(CODE, 0xBFB00000)
    b.put(SUMS, 0, 0, 0, 0)
    b.do(*ACQUIRE, *launch(kernel))
    assert sums(b) == [0.0] * GROUPS


def test_a_descriptor_that_changed_is_read_behind_an_acquire(bench: Callable[..., Bench]) -> None:
    b = bench()
    kernel = load(b)
    b.do(*launch(kernel), *ACQUIRE, *launch(kernel))
    b.put(DESCRIPTOR, 1 << 15)  # GROUP_SEGMENT_FIXED_SIZE
    with pytest.raises(QueueFault, match="bytes of LDS, the kernel has 32768"):
        b.do(*ACQUIRE, *launch(kernel))


def test_code_is_translated_once_for_all_machines(bench: Callable[..., Bench]) -> None:
    before = programs.translated.cache_info().misses
    for _ in range(2):
        b = bench()
        b.do(*launch(load(b)))
    assert programs.translated.cache_info().misses <= before + 1


def test_code_that_ran_last_is_kept(bench: Callable[..., Bench]) -> None:
    b = bench()
    kernel, kept = load(b), b.engines.kernels
    kept.most = 3
    for number in range(8):
        b.put(CODE + 0x2000 + 256 * number, 0xBFB00000)  # s_endpgm
        b.do(*ACQUIRE, *launch(kernel, code=CODE + 0x2000 + 256 * number))
        assert len(kept) == min(number + 1, 3)
    b.do(*ACQUIRE, *launch(kernel))
    assert sums(b) == WANTED
    assert len(kept) == 3


def test_a_wild_access_of_a_kernel_is_a_memory_fault(bench: Callable[..., Bench]) -> None:
    b = bench()
    kernel = load(b)
    with pytest.raises(MemoryFault) as caught:
        b.do(*launch(kernel, groups=(4096, 1, 1)))
    assert f"pc {CODE:#x}"[:8] in str(caught.value)


def test_arguments_at_a_multiple_of_8_are_advice(bench: Callable[..., Bench]) -> None:
    """Hardware takes them; hsa.h asks for 16."""
    b = bench()
    kernel = load(b)
    b.put(KERNARG + 8, *b.get(KERNARG, 4))
    b.do(*launch(kernel, user=(KERNARG + 8, 0)))
    assert sums(b) == WANTED
    assert ["hsa.h" in one for one in b.lints] == [True]


PACKET = DATA + 0x800
TOLD_OF_PACKETS = (
    ir.REDUCTION.replace(ir.BOUNDS, NO_INPUTS.replace('"amdgpu-no-dispatch-ptr"', "")).replace(
        "entry:\n",
        """entry:
  %packet = call ptr addrspace(4) @llvm.amdgcn.dispatch.ptr()
  %size = load volatile i16, ptr addrspace(4) %packet
""",
        1,
    )
    + "declare ptr addrspace(4) @llvm.amdgcn.dispatch.ptr()\n"
)
"""The sum, by a kernel that takes two pointers in user SGPRs: its packet, then its arguments."""


def packet_of(b: Bench, threads: int) -> int:
    """Store a kernel-dispatch packet that says how large a workgroup is; return its address."""
    b.put(PACKET, 2, threads | 1 << 16, 1, 256 * GROUPS, 1, 1, *[0] * 10)
    return PACKET


def test_pointers_in_user_sgprs_have_their_order(bench: Callable[..., Bench]) -> None:
    """The packet's address comes before that of the arguments (facts 8.6)."""
    b = bench()
    kernel = load(b, text=TOLD_OF_PACKETS)
    right = (packet_of(b, 256), 0, KERNARG, 0)
    b.do(*launch(kernel, user=right))
    assert sums(b) == WANTED
    with pytest.raises(QueueFault, match="user SGPRs 0 and 1 are DISPATCH_PTR"):
        b.do(*launch(kernel, user=(*right[2:], *right[:2])))


def test_the_packet_that_a_kernel_is_told_of_describes_its_launch(bench: Callable[..., Bench]) -> None:
    b = bench()
    kernel = load(b, text=TOLD_OF_PACKETS)
    with pytest.raises(QueueFault, match=r"workgroups of \(64, 1, 1\) there, of \(256, 1, 1\)"):
        b.do(*launch(kernel, user=(packet_of(b, 64), 0, KERNARG, 0)))


def test_scratch_without_a_size_is_refused(bench: Callable[..., Bench]) -> None:
    b = bench()
    kernel = load(b)
    with pytest.raises(QueueFault, match="SCRATCH"):
        b.do(*registers(0x210, 0, 0), *launch(kernel, rsrc2=kernel.rsrc2 | 2 << LDS_AT | 1))


def test_arguments_that_the_next_launch_overwrites_are_a_fault(bench: Callable[..., Bench]) -> None:
    b = bench()
    b.write(*launch(load(b)))
    b.ring()
    while "DISPATCH_DIRECT" not in b.run.at:
        b.step()
    b.put64(KERNARG, DATA)
    with pytest.raises(QueueFault, match=r"arguments at .* changed while their grid was running") as caught:
        b.finish()
    assert caught.value.kind is FindingKind.LIFETIME
