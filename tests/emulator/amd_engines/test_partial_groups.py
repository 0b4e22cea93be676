"""Grids that end inside a workgroup: their work-items, barriers and registers on the three targets."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from drivers.amd.layouts.events import QueueException
from drivers.amd.layouts.kfd import QueueType
from emulator.amd.reports import QueueFault
from tests.emulator.amd_engines.conftest import DATA
from tests.emulator.amd_engines.loaded import SUMS, Loaded, load
from tests.emulator.amd_engines.test_aql import dispatch, opened
from tests.emulator.amd_engines.test_dispatch import launch
from tests.emulator.amd_isa import ir

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.emulator.amd_engines.conftest import Bench

BLOCK, GRID = (10, 6, 2), (23, 9, 3)
GROUPS, LAST = (3, 2, 2), (3, 3, 1)
COUNTER = DATA + 0xF000
_UNUSED = ("dispatch-ptr", "queue-ptr", "dispatch-id", "implicitarg-ptr")
_AXES = "".join(
    f"  %t{a} = call i32 @llvm.amdgcn.workitem.id.{a}()\n  %g{a} = call i32 @llvm.amdgcn.workgroup.id.{a}()\n"
    for a in "xyz"
)
_DECLARED = "\n".join(
    f"declare i32 @llvm.amdgcn.work{kind}.id.{a}()" for kind in ("item", "group") for a in "xyz"
)
TEXT = f"""target triple = "amdgcn-amd-amdhsa"
{_DECLARED}
declare void @llvm.amdgcn.s.barrier()
@lds = internal addrspace(3) global i32 poison, align 4
define amdgpu_kernel void @k(ptr addrspace(1) %o, ptr addrspace(1) %unused) "uniform-work-group-size"="false"
    "amdgpu-flat-work-group-size"="1,1024" {" ".join(f'"amdgpu-no-{one}"' for one in _UNUSED)} {{
{_AXES}
  %u0 = shl i32 %ty, 8
  %u1 = shl i32 %tz, 16
  %u2 = or i32 %tx, %u0
  %item = or i32 %u2, %u1
  %v0 = shl i32 %gy, 8
  %v1 = shl i32 %gz, 16
  %v2 = or i32 %gx, %v0
  %group = or i32 %v2, %v1
  %first = icmp eq i32 %item, 0
  br i1 %first, label %zero, label %counts
zero:
  store i32 0, ptr addrspace(3) @lds
  br label %counts
counts:
{ir.SYNC}
  %n = atomicrmw add ptr addrspace(3) @lds, i32 1 syncscope("workgroup") monotonic
{ir.SYNC}
  %all = load i32, ptr addrspace(3) @lds
  %counter = getelementptr i8, ptr addrspace(1) %o, i64 {COUNTER - SUMS}
  %slot = atomicrmw add ptr addrspace(1) %counter, i32 3 syncscope("agent") monotonic
  %p0 = getelementptr i32, ptr addrspace(1) %o, i32 %slot
  %p1 = getelementptr i32, ptr addrspace(1) %p0, i32 1
  %p2 = getelementptr i32, ptr addrspace(1) %p0, i32 2
  store i32 %group, ptr addrspace(1) %p0
  store i32 %item, ptr addrspace(1) %p1
  store i32 %all, ptr addrspace(1) %p2
  ret void
}}
"""


def started(b: Bench, name: str) -> Loaded:
    kernel = load(b, name, TEXT)
    b.put(COUNTER, 0)
    return kernel


def ran(b: Bench) -> Counter[tuple[tuple[int, ...], tuple[int, ...], int]]:
    """Return (workgroup, work-item, work-items that its workgroup counted) of all that ran."""
    words = b.get(SUMS, b.get(COUNTER)[0])

    def axes(word: int) -> tuple[int, ...]:
        return word & 0xFF, word >> 8 & 0xFF, word >> 16

    return Counter((axes(words[n]), axes(words[n + 1]), words[n + 2]) for n in range(0, len(words), 3))


def wanted() -> Counter[tuple[tuple[int, ...], tuple[int, ...], int]]:
    found = []
    for group in itertools.product(*map(range, GROUPS)):
        size = [LAST[k] if group[k] + 1 == GROUPS[k] else BLOCK[k] for k in range(3)]
        found += [(group, item, size[0] * size[1] * size[2]) for item in itertools.product(*map(range, size))]
    assert len(found) == GRID[0] * GRID[1] * GRID[2]
    return Counter(found)


def threads(last: tuple[int, int, int]) -> tuple[int, ...]:
    return tuple(full | part << 16 for full, part in zip(BLOCK, last, strict=True))


@pytest.mark.parametrize("name", ["gfx1100", "gfx1201"])
@pytest.mark.parametrize("how", ["workgroups", "work-items"])
def test_partial_workgroups_run_their_work_items(bench: Callable[..., Bench], name: str, how: str) -> None:
    b = bench(name=name)
    changed: dict[str, Any] = {"threads": threads(LAST), "groups": GROUPS, "initiator": 0x8007}
    if how == "work-items":
        changed |= {"groups": GRID, "initiator": 0x8027}
    b.do(*launch(started(b, name), **changed))
    assert ran(b) == wanted()
    assert b.lints == []


def test_partial_workgroups_of_an_aql_packet_run_their_work_items(bench: Callable[..., Bench]) -> None:
    b = opened(bench)
    kernel = started(b, "gfx942")
    words = list(dispatch(kernel))
    words[1:6] = [BLOCK[0] | BLOCK[1] << 16, BLOCK[2], *GRID]
    b.do(*words)
    assert ran(b) == wanted()


def test_a_whole_launch_behind_a_partial_one_has_its_own_work_items(bench: Callable[..., Bench]) -> None:
    """Resident workgroups keep the numbers of their work-items from one launch to the next."""
    b = bench()
    kernel = started(b, "gfx1100")
    for n, size in enumerate((LAST, BLOCK, LAST)):
        b.put(COUNTER, 0)
        b.do(*launch(kernel, threads=threads(size), groups=GROUPS, initiator=0x8007))
        items = [g[k] * BLOCK[k] + i[k] < GRID[k] for g, i, _ in ran(b) for k in range(3)]
        assert all(items) == (n != 1)
    assert ran(b) == wanted()


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"initiator": 0x8007, "threads": BLOCK}, "1 to the full size"),
        ({"initiator": 0x8007, "threads": threads((11, 6, 2))}, "1 to the full size"),
        ({"initiator": 0x8027, "threads": threads((4, 3, 1)), "groups": GRID}, r"\(3, 3, 1\)"),
    ],
)
def test_sizes_of_a_last_workgroup_that_cannot_be_are_refused(
    bench: Callable[..., Bench], changed: dict[str, Any], text: str
) -> None:
    b = bench()
    with pytest.raises(QueueFault, match=text) as caught:
        b.do(*launch(started(b, "gfx1100"), **changed))
    assert caught.value.exception is QueueException.PACKET_DISPATCH_REGISTER_INVALID


def test_sizes_without_their_bit_are_a_sign_of_a_mistake(bench: Callable[..., Bench]) -> None:
    for changed in (
        {"initiator": 0x8005, "threads": threads(LAST), "groups": GROUPS},
        {"initiator": 0x8025, "threads": BLOCK, "groups": GRID},
    ):
        b = bench()
        b.do(*launch(started(b, "gfx1100"), **changed))
        assert "PARTIAL_TG_EN" in " ".join(b.lints)
        strict = bench(QueueType.COMPUTE, checked=True)
        with pytest.raises(QueueFault, match="PARTIAL_TG_EN"):
            strict.do(*launch(started(strict, "gfx1100"), **changed))


def test_tiles_of_work_items_are_refused_by_name(bench: Callable[..., Bench]) -> None:
    b = bench(name="gfx1201")
    with pytest.raises(QueueFault, match="INTERLEAVE_BITS"):
        b.do(*launch(started(b, "gfx1201"), threads=(8 | 1 << 13, 8 | 1 << 13, 1), groups=(1, 1, 1)))
