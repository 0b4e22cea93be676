"""Well-known ways to synchronise, in machine code of AMD's GPUs: right ones give no finding, broken ones a race."""

# ruff: noqa: E501 - lines of IR read best on one line

from __future__ import annotations

from typing import NamedTuple

import pytest

from emulator.ir.report import ReportKind
from tests.emulator.amd_isa import ir
from tests.emulator.amd_isa.test_orders import (
    AGENT,
    NEAR,
    PROCESSORS,
    found,
    message,
    poll,
    put,
    put_by_store,
)

GLOBAL, SHARED = frozenset({ReportKind.GLOBAL_RACE}), frozenset({ReportKind.SHARED_RACE})
HEAD = f"""{ir.HEAD}declare void @llvm.amdgcn.s.sleep(i32)
declare void @llvm.amdgcn.s.barrier.signal(i32)
declare void @llvm.amdgcn.s.barrier.wait(i16)
declare void @llvm.amdgcn.wave.barrier()
declare i32 @llvm.amdgcn.update.dpp.i32(i32, i32, i32, i32, i32, i1)
declare i32 @llvm.amdgcn.ds.bpermute(i32, i32)
declare i32 @llvm.amdgcn.mbcnt.lo(i32, i32)
declare i32 @llvm.amdgcn.mbcnt.hi(i32, i32)
declare i64 @llvm.amdgcn.ballot.i64(i1)
declare i64 @llvm.ctpop.i64(i64)
@s = internal addrspace(3) global [512 x i32] poison, align 16
@flag = internal addrspace(3) global i32 poison, align 4
"""
LANE = """  %low = call i32 @llvm.amdgcn.mbcnt.lo(i32 -1, i32 0)
  %lane = call i32 @llvm.amdgcn.mbcnt.hi(i32 -1, i32 %low)
  %first = icmp eq i32 %lane, 0
"""


class Idiom(NamedTuple):
    """A right kernel, a broken one, and what the latter must give."""

    right: str
    broken: str
    kinds: frozenset[ReportKind] = GLOBAL
    grid: int = 2
    block: int = 64
    processors: tuple[str, ...] = PROCESSORS


def kernel(body: str) -> str:
    return f"""{HEAD}define amdgpu_kernel void @k(ptr addrspace(1) %a) "amdgpu-flat-work-group-size"="1,256" {{
entry:
  %thread = call i32 @llvm.amdgcn.workitem.id.x()
  %group = call i32 @llvm.amdgcn.workgroup.id.x()
{body}
  ret void
}}
"""


def at(name: str, index: str, space: int = 3, base: str = "@s") -> str:
    return f"  %{name} = getelementptr i32, ptr addrspace({space}) {base}, i32 {index}\n"


def out(value: str) -> str:
    """Store a value of each thread where no other thread stores."""
    return f"""  %place = and i32 %thread, 15
  %pout = getelementptr i32, ptr addrspace(1) %a, i32 32
  %uout = atomicrmw or ptr addrspace(1) %pout, i32 {value} {AGENT} monotonic
"""


def ping_pong(buffers: int) -> str:
    """Four steps of two waves that each store, meet once, and load what others stored."""
    body = "  %v0 = add i32 %thread, 0\n"
    for k in range(4):
        first = k % buffers * 128
        body += f"  %i{k} = add i32 %thread, {first}\n{at(f'p{k}', f'%i{k}')}  store i32 %v{k}, ptr addrspace(3) %p{k}\n{ir.SYNC}"
        body += f"  %r{k} = sub i32 {first + 127}, %thread\n{at(f'q{k}', f'%r{k}')}  %l{k} = load i32, ptr addrspace(3) %q{k}\n"
        body += f"  %v{k + 1} = add i32 %l{k}, %v{k}\n"
    return kernel(body + out("%v4"))


def exchange(other: str, sync: str) -> str:
    """Threads store to LDS and load what another stored."""
    return kernel(f"""{at("p", "%thread")}  store i32 %thread, ptr addrspace(3) %p
  fence syncscope("wavefront") release
  {sync}
  fence syncscope("wavefront") acquire
  %o = {other}
{at("q", "%o")}  %l = load i32, ptr addrspace(3) %q
{out("%l")}""")


def sum_by_dpp(sync: str) -> str:
    """Rows of sixteen lanes add up by DPP, the last lane of each leaves the sum in LDS, and one thread adds those."""
    body, value = "", "%thread"
    for k, shift in enumerate((1, 2, 4, 8)):
        body += f"  %d{k} = call i32 @llvm.amdgcn.update.dpp.i32(i32 0, i32 {value}, i32 {0x110 + shift}, i32 15, i32 15, i1 true)\n"
        body += f"  %t{k} = add i32 %d{k}, {value}\n"
        value = f"%t{k}"
    return kernel(f"""{body}  %in = and i32 %thread, 15
  %row = lshr i32 %thread, 4
  %last = icmp eq i32 %in, 15
  br i1 %last, label %leave, label %meet
leave:
{at("p", "%row")}  store i32 {value}, ptr addrspace(3) %p
  br label %meet
meet:
{sync}
  %in8 = and i32 %thread, 7
{at("q", "%in8")}  %l = load i32, ptr addrspace(3) %q
{out("%l")}""")


def count_by_ballot(add: str) -> str:
    """The first lane of each wave adds how many lanes have an odd number."""
    return kernel(f"""{LANE}  %bit = and i32 %thread, 1
  %odd = icmp eq i32 %bit, 1
  %mask = call i64 @llvm.amdgcn.ballot.i64(i1 %odd)
  %wide = call i64 @llvm.ctpop.i64(i64 %mask)
  %n = trunc i64 %wide to i32
  br i1 %first, label %one, label %end
one:
  {add}
  br label %end
end:""")


def split_barrier(early: str, late: str) -> str:
    """Threads arrive at a barrier, compute, and wait."""
    return kernel(f"""{at("p", "%thread")}  store i32 %thread, ptr addrspace(3) %p
  fence {NEAR} release
  call void @llvm.amdgcn.s.barrier.signal(i32 -1)
  %o = sub i32 127, %thread
{at("q", "%o")}{early}  call void @llvm.amdgcn.s.barrier.wait(i16 -1)
  fence {NEAR} acquire
{late}{out("%l")}""")


def histogram(add: str) -> str:
    """All threads count in LDS, and sixteen of them add the counts to those in memory."""
    return kernel(f"""  %bin = and i32 %thread, 15
  %few = icmp ult i32 %thread, 16
{at("p", "%bin")}  br i1 %few, label %clear, label %cleared
clear:
  store i32 0, ptr addrspace(3) %p
  br label %cleared
cleared:
{ir.SYNC}
  {add}
{ir.SYNC}
  br i1 %few, label %write, label %end
write:
  %n = load i32, ptr addrspace(3) %p
{at("po", "%bin", 1, "%a")}  %u = atomicrmw add ptr addrspace(1) %po, i32 %n {AGENT} monotonic
  br label %end
end:""")


def critical_section(lock: str, unlock: str) -> str:
    """The first lane of each wave adds to a number in LDS under a lock in LDS."""
    return kernel(f"""{LANE}  store i32 0, ptr addrspace(3) @flag
  store i32 0, ptr addrspace(3) @s
{ir.SYNC}
  br i1 %first, label %spin, label %end
spin:
  {lock}
  %no = icmp ne i32 %held, 0
  br i1 %no, label %spin, label %own
own:
  %x = load i32, ptr addrspace(3) @s
  %y = add i32 %x, 1
  store i32 %y, ptr addrspace(3) @s
  {unlock}
  br label %end
end:""")


def last_wave(order: str) -> str:
    """The wave that comes last adds up what all have left in LDS."""
    return kernel(f"""{LANE}  store i32 0, ptr addrspace(3) @flag
{ir.SYNC}
  br i1 %first, label %one, label %end
one:
  %wave = lshr i32 %thread, 6
{at("p", "%wave")}  store i32 %thread, ptr addrspace(3) %p
  %came = atomicrmw add ptr addrspace(3) @flag, i32 1 {NEAR} {order}
  %last = icmp eq i32 %came, WAVES
  br i1 %last, label %sum, label %end
sum:
{at("q", "0")}{at("r", "1")}  %x = load i32, ptr addrspace(3) %q
  %y = load i32, ptr addrspace(3) %r
  %z = add i32 %x, %y
{out("%z")}  br label %end
end:""")


def late(order: str, sync: str) -> str:
    """The first wave counts in LDS and stores behind that; the others see the count, and load."""
    return kernel(f"""  store i32 0, ptr addrspace(3) @flag
{ir.SYNC}
  %wave = lshr i32 %thread, 6
  %puts = icmp eq i32 %wave, 0
{at("p", "%thread")}  br i1 %puts, label %put, label %meet
put:
  %u = atomicrmw add ptr addrspace(3) @flag, i32 1 {NEAR} {order}
  call void asm sideeffect "", "v"(i32 %u)
  store i32 %u, ptr addrspace(3) %p
  br label %meet
meet:
{sync}
  br i1 %puts, label %end, label %look
look:
  %seen = atomicrmw add ptr addrspace(3) @flag, i32 1 {NEAR} {order}
  %there = sub i32 127, %thread
{at("q", "%there")}  %x = load i32, ptr addrspace(3) %q
  %z = add i32 %x, %seen
{out("%z")}  br label %end
end:""")


def last_group(order: str) -> str:
    """The workgroup that comes last adds up what all have left in memory."""
    return kernel(f"""  %one = icmp eq i32 %thread, 0
  br i1 %one, label %leave, label %end
leave:
  %at = add i32 %group, 16
{at("p", "%at", 1, "%a")}  store i32 7, ptr addrspace(1) %p
  %came = atomicrmw uinc_wrap ptr addrspace(1) %a, i32 3 {AGENT} {order}
  %last = icmp eq i32 %came, 3
  br i1 %last, label %sum, label %end
sum:
{at("q", "16", 1, "%a")}{at("r", "18", 1, "%a")}  %x = load i32, ptr addrspace(1) %q
  %y = load i32, ptr addrspace(1) %r
  %z = add i32 %x, %y
{at("o", "33", 1, "%a")}  store i32 %z, ptr addrspace(1) %o
  store i32 0, ptr addrspace(1) %a
  br label %end
end:""")


def grid_barrier(order: str) -> str:
    """All workgroups store, meet by a counter, and load what their neighbour stored."""
    return kernel(f"""  %at = add i32 %group, 16
{at("p", "%at", 1, "%a")}  %one = icmp eq i32 %thread, 0
  br i1 %one, label %leave, label %met
leave:
  store i32 7, ptr addrspace(1) %p
  %came = atomicrmw add ptr addrspace(1) %a, i32 1 {AGENT} {order}
  br label %poll
poll:
  call void @llvm.amdgcn.s.sleep(i32 1)
  {poll("acquire").replace("%flag", "%a")}
  %no = icmp ult i32 %seen, 4
  br i1 %no, label %poll, label %met
met:
{ir.SYNC}
  %next = add i32 %group, 1
  %cut = and i32 %next, 3
  %from = add i32 %cut, 16
{at("q", "%from", 1, "%a")}  %x = load i32, ptr addrspace(1) %q
{out("%x")}""")


def ticket(order: str) -> str:
    """Workgroups add to a number in the order of their tickets."""
    return kernel(f"""  %one = icmp eq i32 %thread, 0
{at("serving", "1", 1, "%a")}{at("p", "16", 1, "%a")}  br i1 %one, label %take, label %end
take:
  %mine = atomicrmw add ptr addrspace(1) %a, i32 1 {AGENT} monotonic
  br label %poll
poll:
  {poll("acquire").replace("%flag", "%serving")}
  %no = icmp ne i32 %seen, %mine
  br i1 %no, label %poll, label %own
own:
  %x = load i32, ptr addrspace(1) %p
  %y = add i32 %x, 1
  store i32 %y, ptr addrspace(1) %p
  %next = add i32 %mine, 1
  store atomic i32 %next, ptr addrspace(1) %serving {AGENT} {order}, align 4
  br label %end
end:""")


WORD = f"store atomic i64 4294967303, ptr addrspace(1) %flag {AGENT} monotonic, align 8"
SEEN = f"%word = load atomic i64, ptr addrspace(1) %flag {AGENT} monotonic, align 8\n  %up = lshr i64 %word, 32\n  %seen = trunc i64 %up to i32"


def in_one_word(store: str, load: str) -> str:
    """The flag is in the same word as the data: nothing else need be ordered."""
    code = message(store, load).replace("store i32 7, ptr addrspace(1) %data", "")
    return code.replace("%x = load i32, ptr addrspace(1) %data", "%x = trunc i64 %word to i32")


def asleep(order: str) -> str:
    """The reader sleeps between looks at the flag."""
    text = message(put(order), "call void @llvm.amdgcn.s.sleep(i32 2)\n  " + poll("acquire"))
    return text.replace("define ", "declare void @llvm.amdgcn.s.sleep(i32)\ndefine ", 1)


OTHER = "getelementptr i32, ptr addrspace(1) %flag, i32 4"
BOTH = f"fence {AGENT} release\n  %other = {OTHER}\n  store atomic i32 1, ptr addrspace(1) %other {AGENT} monotonic, align 4\n  {put_by_store('monotonic')}"
COUNT = f"%held = atomicrmw xchg ptr addrspace(3) @flag, i32 1 {NEAR} acquire"
IDIOMS = {
    "a flag that is polled asleep": Idiom(asleep("release"), asleep("monotonic")),
    "a message of one word": Idiom(in_one_word(WORD, SEEN), in_one_word(WORD, SEEN).replace("%x = trunc i64 %word to i32", "%x = load i32, ptr addrspace(1) %flag")),
    "a fence before two flags": Idiom(message(BOTH, poll("acquire")), message(BOTH.replace("fence", "; fence"), poll("acquire"))),
    "two buffers and one barrier": Idiom(ping_pong(2), ping_pong(1), SHARED, 1, 128),
    "neighbours in one wave": Idiom(exchange("xor i32 %thread, 1", "call void @llvm.amdgcn.wave.barrier()"), exchange("sub i32 127, %thread", "call void @llvm.amdgcn.wave.barrier()"), SHARED, 1, 128),
    "sums by DPP": Idiom(sum_by_dpp(ir.SYNC), sum_by_dpp(""), SHARED, 1, 128),
    "counts by ballots": Idiom(
        count_by_ballot(f"%u = atomicrmw add ptr addrspace(1) %a, i32 %n {AGENT} monotonic"),
        count_by_ballot("%x = load i32, ptr addrspace(1) %a\n  %y = add i32 %x, %n\n  store i32 %y, ptr addrspace(1) %a"),
    ),
    "a barrier in two parts": Idiom(split_barrier("", "  %l = load i32, ptr addrspace(3) %q\n"), split_barrier("  %l = load i32, ptr addrspace(3) %q\n", ""), SHARED, 1, 128, ("gfx1201",)),
    "a histogram in LDS": Idiom(
        histogram(f"%u0 = atomicrmw add ptr addrspace(3) %p, i32 1 {NEAR} monotonic"),
        histogram("%x = load i32, ptr addrspace(3) %p\n  %y = add i32 %x, 1\n  store i32 %y, ptr addrspace(3) %p"), SHARED, 1, 128,
    ),
    "a lock in LDS": Idiom(
        critical_section(COUNT, f"%u1 = atomicrmw xchg ptr addrspace(3) @flag, i32 0 {NEAR} release"),
        critical_section("%held = add i32 0, 0", ""), SHARED, 1, 128,
    ),
    "the last wave": Idiom(last_wave("acq_rel").replace("WAVES", "1"), last_wave("acq_rel").replace("WAVES", "0"), SHARED, 1, 128, ("gfx942",)),
    "what follows an atomic in LDS": Idiom(late("acq_rel", ir.SYNC), late("acq_rel", ""), SHARED, 1, 128),
    "the last workgroup": Idiom(last_group("acq_rel"), last_group("monotonic"), GLOBAL, 4),
    "a barrier of the grid": Idiom(grid_barrier("release"), grid_barrier("monotonic"), GLOBAL, 4),
    "a lock with tickets": Idiom(ticket("release"), ticket("monotonic"), GLOBAL, 4),
}


CASES = [(name, processor) for name, idiom in IDIOMS.items() for processor in idiom.processors]


@pytest.mark.parametrize(("name", "processor"), CASES)
def test_a_right_idiom_has_no_finding_and_a_broken_one_is_a_race(name: str, processor: str) -> None:
    idiom = IDIOMS[name]
    for text, kinds in ((idiom.right, set()), (idiom.broken, idiom.kinds)):
        assert found(processor, text, grid=idiom.grid, block=idiom.block) == kinds
