"""Ways of waves to wait for each other in LDS and at barriers in two parts: right ones give no finding, broken ones a race.

Next: `test_idioms`, the others.
"""

# ruff: noqa: E501 - lines of IR read best on one line

from __future__ import annotations

import numpy as np
import pytest

from emulator.ir.report import ReportKind
from tests.emulator.amd_isa import ir
from tests.emulator.amd_isa.conftest import Bench
from tests.emulator.amd_isa.test_idioms import SHARED, Idiom, at, critical_section, kernel, out
from tests.emulator.amd_isa.test_orders import NEAR, found, poll, put


def stored_between(early: str, late: str) -> str:
    """Threads signal, wait, and load what another stored before or behind its signal."""
    return kernel(f"""{at("p", "%thread")}{early}  fence {NEAR} release
  call void @llvm.amdgcn.s.barrier.signal(i32 -1)
{late}  fence {NEAR} release
  call void @llvm.amdgcn.s.barrier.wait(i16 -1)
  fence {NEAR} acquire
  %o = sub i32 127, %thread
{at("q", "%o")}  %l = load i32, ptr addrspace(3) %q
{out("%l")}""")


def ahead(late: str) -> str:
    """The first wave stores between two signals, while others may not have waited for the first; they wait twice, or once."""
    signal, wait = (
        "  call void @llvm.amdgcn.s.barrier.signal(i32 -1)\n",
        "  call void @llvm.amdgcn.s.barrier.wait(i16 -1)\n",
    )
    return kernel(f"""  %wave = lshr i32 %thread, 6
  %puts = icmp eq i32 %wave, 0
{at("p", "%thread")}{signal}  br i1 %puts, label %put, label %look
put:
{wait}  store i32 %thread, ptr addrspace(3) %p
  fence {NEAR} release
{signal}{wait}  br label %end
look:
{late.replace("WAIT", wait).replace("SIGNAL", signal)}  fence {NEAR} acquire
  %o = sub i32 127, %thread
{at("q", "%o")}  %l = load i32, ptr addrspace(3) %q
{out("%l")}  br label %end
end:""")


def polled_flag(put: str, poll: str) -> str:
    """The first wave leaves a number and sets a flag in LDS; the others poll the flag, and load."""
    return kernel(f"""  store i32 0, ptr addrspace(3) @flag
{ir.SYNC}
  %puts = icmp ult i32 %thread, 64
  %one = icmp eq i32 %thread, 0
  br i1 %puts, label %look, label %poll
look:
  br i1 %one, label %put, label %end
put:
  {put}
  br label %end
poll:
  {poll}
  %no = icmp eq i32 %seen, 0
  br i1 %no, label %poll, label %read
read:
  %x = load i32, ptr addrspace(3) @s
{out("%x")}
  br label %end
end:""")


DATA = "store i32 7, ptr addrspace(3) @s\n"
FLAG = f"store atomic i32 1, ptr addrspace(3) @flag {NEAR} ORDER, align 4\n"
POLL = f"%seen = load atomic i32, ptr addrspace(3) @flag {NEAR} ORDER, align 4"
TAKEN = f"%pair = cmpxchg ptr addrspace(3) @flag, i32 0, i32 1 {NEAR} acquire acquire\n  %held = extractvalue {{ i32, i1 }} %pair, 0"


def cleared(sync: str, initial: str = "store i32 5, ptr addrspace(3) %p") -> str:
    """Sixteen threads set numbers in LDS, and all combine theirs by loops of compare-and-swaps."""
    return kernel(f"""  %bin = and i32 %thread, 15
  %few = icmp ult i32 %thread, 16
{at("p", "%bin")}  br i1 %few, label %clear, label %cleared
clear:
  {initial}
  br label %cleared
cleared:
{sync}
  %u = atomicrmw nand ptr addrspace(3) %p, i32 %thread {NEAR} monotonic
""")


STORE = "  store i32 %thread, ptr addrspace(3) %p\n"
IDIOMS = {
    "a store between the parts of a barrier": Idiom(stored_between(STORE, ""), stored_between("", STORE),
        SHARED, 1, 128, ("gfx1201",)),
    "a wave that is a barrier ahead": Idiom(ahead("WAITSIGNALWAIT"), ahead("WAIT"), SHARED, 1, 128,
        ("gfx1201",)),
    "a lock in LDS that a store opens": Idiom(
        critical_section(TAKEN, FLAG.replace("i32 1", "i32 0").replace("ORDER", "release")),
        critical_section(
            TAKEN,
            FLAG.replace("i32 1", "i32 0").replace("ORDER", "release") + "  store i32 9, ptr addrspace(3) @s",
        ),
        SHARED,
        1,
        128,
    ),
    "a flag in LDS that is polled": Idiom(
        polled_flag(DATA + FLAG.replace("ORDER", "release"), POLL.replace("ORDER", "acquire")),
        polled_flag(FLAG.replace("ORDER", "release") + DATA, POLL.replace("ORDER", "acquire")), SHARED, 1,
        128),
    "a volatile flag in LDS": Idiom(
        polled_flag(DATA + "store volatile i32 1, ptr addrspace(3) @flag",
                    "%seen = load volatile i32, ptr addrspace(3) @flag"),
        polled_flag("store volatile i32 1, ptr addrspace(3) @flag\n" + DATA,
                    "%seen = load volatile i32, ptr addrspace(3) @flag"), SHARED, 1, 128),
    "loops of compare-and-swaps in LDS": Idiom(cleared(ir.SYNC), cleared(""), SHARED, 1, 128),
}  # fmt: skip
CASES = [(name, processor) for name, idiom in IDIOMS.items() for processor in idiom.processors]


@pytest.mark.parametrize(("name", "processor"), CASES)
def test_a_right_idiom_has_no_finding_and_a_broken_one_is_a_race(name: str, processor: str) -> None:
    idiom = IDIOMS[name]
    for text, kinds in ((idiom.right, set()), (idiom.broken, idiom.kinds)):
        assert found(processor, text, grid=idiom.grid, block=idiom.block) == kinds


def test_a_wave_may_poll_between_the_parts_of_a_barrier() -> None:
    """What it waits for another wave does behind the barrier, which opens once all have signalled."""
    wait = "  call void @llvm.amdgcn.s.barrier.wait(i16 -1)\n"
    code = kernel(f"""  %polls = icmp ult i32 %thread, 64
  call void @llvm.amdgcn.s.barrier.signal(i32 -1)
  br i1 %polls, label %poll, label %meet
poll:
  {poll("acquire").replace("%flag", "%a")}
  %no = icmp eq i32 %seen, 0
  br i1 %no, label %poll, label %met
met:
{wait}  br label %end
meet:
{wait}  {put("release").replace("%flag", "%a")}
  br label %end
end:""")
    assert found("gfx1201", code, grid=1, block=128) == set()


@pytest.mark.parametrize("again", ["signal", "wait"])
def test_the_parts_of_a_barrier_take_turns(again: str) -> None:
    signal, wait = (
        "  call void @llvm.amdgcn.s.barrier.signal(i32 -1)\n",
        "  call void @llvm.amdgcn.s.barrier.wait(i16 -1)\n",
    )
    bench = Bench("gfx1201")
    result = bench.run(
        kernel(signal + (signal if again == "signal" else wait) + wait),
        1,
        64,
        bench.new(np.zeros(64, "u4"), "u4"),
    )
    assert result.fault is not None
    assert result.fault.kind is ReportKind.BAD_BARRIER
