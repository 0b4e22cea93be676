"""Order between workgroups of AMD's GPUs: exactly the races of LLVM's memory model are reported."""

# ruff: noqa: E501 - lines of IR read best on one line

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from emulator.amd.isa import programs
from emulator.amd.isa.orders import ACQUIRED, RELEASED, RELEASED_UNMARKED, UNMARKED_STORE, orders
from emulator.amd.isa.translate import cut, read_kernel
from emulator.ir.library import Sanitizers
from emulator.ir.report import ReportKind
from emulator.simt.work import LaunchOptions
from tests.emulator.amd_isa import ir
from tests.emulator.amd_isa.conftest import Bench, compiled

PROCESSORS = ("gfx1100", "gfx1201", "gfx942")
ORDERS = (
    LaunchOptions(tier="quick", threads=1),
    LaunchOptions(tier="quick", threads=1, group_seed=2, warp_order="reverse"),
)
AGENT = 'syncscope("agent")'
NEAR = 'syncscope("workgroup")'


def message(put: str, poll: str, then: str = "") -> str:
    """Workgroup 0 writes data and sets a flag; workgroup 1 polls the flag, then reads the data."""
    return f"""{ir.HEAD}define amdgpu_kernel void @k(ptr addrspace(1) %flag) {{
entry:
  %thread = call i32 @llvm.amdgcn.workitem.id.x()
  %group = call i32 @llvm.amdgcn.workgroup.id.x()
  %data = getelementptr i32, ptr addrspace(1) %flag, i32 16
  %out = getelementptr i32, ptr addrspace(1) %flag, i32 32
  %one = icmp eq i32 %thread, 0
  br i1 %one, label %go, label %end
go:
  %reads = icmp eq i32 %group, 1
  br i1 %reads, label %poll, label %write
write:
  store i32 7, ptr addrspace(1) %data
  {put}
  br label %end
poll:
  {poll}
  %no = icmp eq i32 %seen, 0
  br i1 %no, label %poll, label %read
read:
  {then}
  %x = load i32, ptr addrspace(1) %data
  store i32 %x, ptr addrspace(1) %out
  br label %end
end:
  ret void
}}
"""


def found(processor: str, code: str, *, grid: int = 2, block: int = 64) -> set[ReportKind]:
    """Return the findings on a kernel, of two workgroups by default, that gets one array, in each of `ORDERS`."""
    kinds: set[ReportKind] = set()
    for options in ORDERS:
        bench = Bench(processor)
        bench.settings = replace(bench.settings, checks=Sanitizers(global_races=True, shared_races=True))
        result = bench.run(code, grid, block, bench.new(np.zeros(64, "u4"), "u4"), options=options)
        assert result.fault is None, result.fault
        kinds |= {finding.kind for finding in result.findings}
    return kinds


def put(order: str, scope: str = AGENT) -> str:
    return f"%was = atomicrmw xchg ptr addrspace(1) %flag, i32 1 {scope} {order}"


def put_by_store(order: str, scope: str = AGENT) -> str:
    return f"store atomic i32 1, ptr addrspace(1) %flag {scope} {order}, align 4"


def poll(order: str, scope: str = AGENT) -> str:
    return f"%seen = load atomic i32, ptr addrspace(1) %flag {scope} {order}, align 4"


COMPARED = f"%pair = cmpxchg ptr addrspace(1) %flag, i32 1, i32 2 {AGENT} acquire acquire\n %seen = extractvalue {{ i32, i1 }} %pair, 0"
BYTE_STORED = f"store atomic i8 1, ptr addrspace(1) %flag {AGENT} release, align 1"
BYTE_POLLED = (
    f"%near = load atomic i8, ptr addrspace(1) %flag {AGENT} acquire, align 1\n %seen = zext i8 %near to i32"
)
MESSAGE = {
    "release, acquire": (put("release"), poll("acquire")),
    "system": (put("release", ""), poll("acquire", "")),
    "fences": (f"fence {AGENT} release\n{put('monotonic')}", poll("monotonic"), f"fence {AGENT} acquire"),
    "compare and swap": (put("release"), COMPARED),
    "atomic store": (put_by_store("release"), poll("acquire")),
    "atomic store of the system": (put_by_store("release", ""), poll("acquire", "")),
    "atomic store behind a fence": (f"fence {AGENT} release\n{put_by_store('monotonic')}", poll("acquire")),
    "atomic store of a byte": (BYTE_STORED, BYTE_POLLED),
}
TORN = {
    "no release": (put("monotonic"), poll("acquire")),
    "no acquire": (put("release"), poll("monotonic")),
    "fence behind the flag": (f"{put('monotonic')}\nfence {AGENT} release", poll("acquire")),
    "acquire of a workgroup": (put("release"), poll("monotonic"), f"fence {NEAR} acquire"),
    "atomic store, no release": (put_by_store("monotonic"), poll("acquire")),
    "atomic store, no acquire": (put_by_store("release"), poll("monotonic")),
    "atomic store before the fence": (f"{put_by_store('monotonic')}\nfence {AGENT} release", poll("acquire")),
    "atomic store before the data": (
        f"{put_by_store('release')}\nstore i32 8, ptr addrspace(1) %data",
        poll("acquire"),
    ),
    "late data": (f"{put('release')}\nstore i32 8, ptr addrspace(1) %data", poll("acquire")),
}


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("how", MESSAGE)
def test_release_and_acquire_order_workgroups(processor: str, how: str) -> None:
    assert found(processor, message(*MESSAGE[how])) == set()


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("how", TORN)
def test_a_message_without_release_or_acquire_is_a_race(processor: str, how: str) -> None:
    assert found(processor, message(*TORN[how])) == {ReportKind.GLOBAL_RACE}


def between_waves(code: str) -> str:
    """Return a kernel of `message` in which two waves of one workgroup stand for the two workgroups."""
    code = code.replace(
        "call i32 @llvm.amdgcn.workgroup.id.x()", "lshr i32 %thread, 6\n  %lane = and i32 %thread, 63"
    )
    return code.replace("icmp eq i32 %thread, 0", "icmp eq i32 %lane, 0")


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("by", ["", "atomic store"])
def test_waves_of_one_workgroup_need_a_release_and_an_acquire_too(processor: str, by: str) -> None:
    good = between_waves(message(*MESSAGE[by or "release, acquire"]))
    assert found(processor, good, grid=1, block=128) == set()
    for how in (f"{by}, no release", f"{by}, no acquire") if by else ("no release", "no acquire"):
        torn = between_waves(message(*TORN[how]))
        assert found(processor, torn, grid=1, block=128) == {ReportKind.GLOBAL_RACE}


@pytest.mark.parametrize("processor", PROCESSORS)
def test_a_wave_that_polls_by_a_load_lets_the_others_run(processor: str) -> None:
    """The wave that polls takes its turn first, and no instruction but its load says that it waits."""
    code = between_waves(message(put_by_store("release"), poll("acquire")))
    bench = Bench(processor)
    array = bench.new(np.zeros(64, "u4"), "u4")
    result = bench.run(code, 1, 128, array, options=LaunchOptions(tier="quick", warp_order="reverse"))
    assert result.fault is None, result.fault
    assert array[32] == 7


LOCAL_FLAG = f"""{ir.HEAD}@flag = internal addrspace(3) global i32 undef, align 4
define amdgpu_kernel void @k(ptr addrspace(1) %out) {{
entry:
  %thread = call i32 @llvm.amdgcn.workitem.id.x()
  %wave = lshr i32 %thread, 6
  store i32 0, ptr addrspace(3) @flag
  fence {NEAR} release
  call void @llvm.amdgcn.s.barrier()
  fence {NEAR} acquire
  %reads = icmp eq i32 %wave, 1
  br i1 %reads, label %poll, label %write
write:
  store atomic i32 7, ptr addrspace(3) @flag {NEAR} release, align 4
  br label %end
poll:
  %seen = load atomic i32, ptr addrspace(3) @flag {NEAR} acquire, align 4
  %no = icmp eq i32 %seen, 0
  br i1 %no, label %poll, label %read
read:
  store i32 %seen, ptr addrspace(1) %out
  br label %end
end:
  ret void
}}
"""


@pytest.mark.parametrize("processor", PROCESSORS)
def test_a_wave_that_polls_lds_by_a_load_lets_the_others_run(processor: str) -> None:
    bench = Bench(processor)
    array = bench.new(np.zeros(64, "u4"), "u4")
    result = bench.run(LOCAL_FLAG, 1, 128, array, options=LaunchOptions(tier="quick", warp_order="reverse"))
    assert result.fault is None, result.fault
    assert array[0] == 7


@pytest.mark.parametrize("processor", PROCESSORS)
def test_a_critical_section_that_only_reads_is_released(processor: str) -> None:
    """One workgroup reads the data and releases without a write in flight; the other acquires and writes."""
    code = message(put("release"), poll("acquire"))
    code = code.replace(
        "store i32 7, ptr addrspace(1) %data",
        "%y = load i32, ptr addrspace(1) %data\n  store i32 %y, ptr addrspace(1) %out",
    )
    code = code.replace(
        "%x = load i32, ptr addrspace(1) %data\n  store i32 %x, ptr addrspace(1) %out",
        "store i32 7, ptr addrspace(1) %data",
    )
    assert found(processor, code) == set()


@pytest.mark.parametrize("processor", PROCESSORS)
def test_a_critical_section_under_a_lock_ends_with_an_atomic_store(processor: str) -> None:
    code = f"""{ir.HEAD}define amdgpu_kernel void @k(ptr addrspace(1) %lock) {{
entry:
  %thread = call i32 @llvm.amdgcn.workitem.id.x()
  %count = getelementptr i32, ptr addrspace(1) %lock, i32 16
  %one = icmp eq i32 %thread, 0
  br i1 %one, label %spin, label %end
spin:
  %held = atomicrmw xchg ptr addrspace(1) %lock, i32 1 {AGENT} acquire
  %no = icmp ne i32 %held, 0
  br i1 %no, label %spin, label %own
own:
  %old = load i32, ptr addrspace(1) %count
  %new = add i32 %old, 1
  store i32 %new, ptr addrspace(1) %count
  store atomic i32 0, ptr addrspace(1) %lock {AGENT} release, align 4
  br label %end
end:
  ret void
}}
"""
    assert found(processor, code, grid=8) == set()
    torn = code.replace(f"{AGENT} release, align", f"{AGENT} monotonic, align")
    assert found(processor, torn, grid=8) == {ReportKind.GLOBAL_RACE}


@pytest.mark.parametrize("processor", PROCESSORS)
def test_atomic_loads_do_not_make_plain_stores_of_one_dword_atomic(processor: str) -> None:
    """Both workgroups store plainly behind a fence, to one dword, of which neither knows who was first."""
    store = f"fence {AGENT} release\n  store i32 %group, ptr addrspace(1) %out"
    code = message(f"{put('release')}\n  {store}", poll("monotonic"))
    code = code.replace("%x = load i32, ptr addrspace(1) %data\n  store i32 %x, ptr addrspace(1) %out", store)
    assert found(processor, code) == {ReportKind.GLOBAL_RACE}


@pytest.mark.parametrize("processor", PROCESSORS)
def test_a_plain_load_races_with_an_atomic_store(processor: str) -> None:
    """The reader acquires through another flag that is set before the store."""
    late = f"{put('release')}\n  store atomic i32 8, ptr addrspace(1) %data {AGENT} release, align 4"
    code = message(late, poll("acquire"))
    assert found(processor, code) == {ReportKind.GLOBAL_RACE}


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("space", [1, 3])
def test_waves_may_store_one_value_to_one_place(processor: str, space: int) -> None:
    """Without a barrier between, stores of different values race; stores of what is there do not."""
    code = f"""{ir.HEAD}@shared = internal addrspace(3) global i32 undef, align 4
define amdgpu_kernel void @k(ptr addrspace(1) %a) {{
  %thread = call i32 @llvm.amdgcn.workitem.id.x()
  %wave = lshr i32 %thread, 6
  store i32 VALUE, ptr addrspace({space}) {"%a" if space == 1 else "@shared"}
  ret void
}}
"""
    assert found(processor, code.replace("VALUE", "7"), grid=1, block=128) == set()
    kind = ReportKind.GLOBAL_RACE if space == 1 else ReportKind.SHARED_RACE
    assert found(processor, code.replace("VALUE", "%wave"), grid=1, block=128) == {kind}


@pytest.mark.parametrize("processor", PROCESSORS)
def test_a_load_for_a_store_of_another_wave_races_with_that_store(processor: str) -> None:
    """Both waves load a place and one of them stores to it, as code does that holds an element twice."""
    code = f"""{ir.HEAD}define amdgpu_kernel void @k(ptr addrspace(1) %a) {{
entry:
  %thread = call i32 @llvm.amdgcn.workitem.id.x()
  %element = and i32 %thread, 63
  %p = getelementptr i32, ptr addrspace(1) %a, i32 %element
  %x = load i32, ptr addrspace(1) %p
  call void asm sideeffect "", "v"(i32 %x)
  BARRIER
  %y = add i32 %x, 1
  %first = icmp ult i32 %thread, 64
  br i1 %first, label %put, label %end
put:
  store i32 %y, ptr addrspace(1) %p
  br label %end
end:
  ret void
}}
"""
    assert found(processor, code.replace("BARRIER", ""), grid=1, block=128) == {ReportKind.GLOBAL_RACE}
    assert found(processor, code.replace("BARRIER", ir.SYNC), grid=1, block=128) == set()


def ordering(processor: str, code: str, *without: str) -> list[tuple[str, str]]:
    """Return what orders workgroups in a kernel's code without some of its instructions, and how."""
    kernel = programs.kernels(compiled(code, processor), processor)["k"]
    target = kernel.target
    instructions = read_kernel(kernel.code, target, lanes=kernel.lanes, kernel="k")
    blocks = [
        ([i for i in body if not i.text.startswith(without)], follow) for body, follow in cut(instructions)
    ]
    how = orders(blocks, target.family)
    return [(i.stem, how[i.address]) for body, _ in blocks for i in body if i.address in how]


WAITS = {"gfx1100": "s_waitcnt_vscnt", "gfx1201": "s_wait_storecnt", "gfx942": "s_waitcnt vmcnt"}
BACK = {
    "gfx1100": ("s_waitcnt vmcnt", "buffer_gl1_inv"),
    "gfx1201": ("s_wait_loadcnt", "global_inv"),
    "gfx942": ("s_waitcnt vmcnt", "buffer_inv"),
}


@pytest.mark.parametrize("processor", PROCESSORS)
def test_a_release_needs_its_wait_and_an_acquire_its_invalidation(processor: str) -> None:
    code = message(put("release"), poll("acquire"))
    found = [how for _, how in ordering(processor, code)]
    assert [how for how in found if how not in (RELEASED_UNMARKED, UNMARKED_STORE)] == [RELEASED, ACQUIRED]
    assert RELEASED not in dict(ordering(processor, code, WAITS[processor])).values()
    for missing in BACK[processor]:
        assert ACQUIRED not in dict(ordering(processor, code, missing)).values()


def test_a_release_of_gfx942_needs_the_write_back_of_the_l2() -> None:
    code = message(put("release"), poll("acquire"))
    assert RELEASED not in dict(ordering("gfx942", code, "buffer_wbl2")).values()


def _fenced(scope: str) -> str:
    """A kernel with a fence between a store and a load."""
    return (
        ir.HEAD
        + f"""define amdgpu_kernel void @k(ptr addrspace(1) %o, ptr addrspace(1) %a) {ir.BOUNDS} {{
{ir.INDEX}
  %po = getelementptr i32, ptr addrspace(1) %o, i32 %i
  store i32 %i, ptr addrspace(1) %po
  fence {scope} seq_cst
  %pa = getelementptr i32, ptr addrspace(1) %a, i32 %i
  %x = load i32, ptr addrspace(1) %pa
  store i32 %x, ptr addrspace(1) %po
  ret void
}}
"""
    )


@pytest.mark.parametrize("processor", ["gfx1100", "gfx1201", "gfx942"])
def test_only_fences_beyond_a_workgroup_fence_the_host(processor: str) -> None:
    bench = Bench(processor)
    near = bench.kernel(_fenced('syncscope("workgroup")'))[0].translation.text
    agent = bench.kernel(_fenced('syncscope("agent")'))[0].translation.text
    system = bench.kernel(_fenced(""))[0].translation.text
    assert "fence seq_cst" not in near
    assert "fence seq_cst" in agent
    assert "fence seq_cst" in system
