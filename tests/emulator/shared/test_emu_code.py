"""Generated code: its linking, the order of its blocks, the change of a running kernel to another tier."""

from __future__ import annotations

import random
import threading
from typing import Any

from emulator.nv.ptx.module import load_ptx, work_of
from emulator.simt.engine import OPTIMISED, QUICK
from emulator.simt.running import address_of, prepare
from emulator.simt.schedule import FlowNode, liveness, order
from emulator.simt.work import LaunchOptions
from tests.children import python
from tests.emulator.nv.conftest import Bench

_CODE_IN_A_SMALL_HOLE = """
import ctypes, mmap
from emulator.ir import jit
from drivers.kernel import MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE, PROT_NONE, LinuxKernel

ENTRIES, FAR = 64, 1 << 33
table = ", ".join(f"i32 {i * i}" for i in range(ENTRIES))
text = f'''
@squares = internal constant [{ENTRIES} x i32] [{table}]
define i32 @square(i32 %i) {{
  %at = getelementptr [{ENTRIES} x i32], ptr @squares, i32 0, i32 %i
  %value = load i32, ptr %at
  ret i32 %value
}}
'''
code = jit.compile_ir(text, jit.host(), optimise=True)
jit.load(code, ["square"], {})
linux = LinuxKernel()

def taken(size):
    return linux.mmap(size, prot=PROT_NONE, flags=MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE).va

wide = taken(FAR)
while taken(mmap.PAGESIZE) > wide:
    pass
linux.munmap(wide + FAR // 2, mmap.PAGESIZE)
loaded = jit.load(code, ["square"], {})
square = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(loaded.addresses["square"])
print([square(i) for i in range(ENTRIES)] == [i * i for i in range(ENTRIES)])
"""
"""One free page with gigabytes of reserved addresses around it: room for code, and none near it for data."""


def test_code_and_its_constants_lie_near_each_other_however_little_room_is_free():
    done = python("-c", _CODE_IN_A_SMALL_HOLE, status=None)
    assert (done.returncode, done.stdout.split()) == (0, ["True"]), done.stderr


def nodes(*successors: Any) -> list[FlowNode]:
    return [FlowNode(tuple(s)) for s in successors]


def test_a_join_follows_both_branches_in_any_source_order():
    graph = nodes([3, 1], [2], [], [1])  # 3 is written last and leads back to the join 1
    assert order(graph) == [0, 3, 1, 2]


def test_a_loop_is_contiguous_and_precedes_its_exit():
    graph = nodes([1], [4, 2], [3], [1], [])
    assert order(graph) == [0, 1, 2, 3, 4]
    assert [n.in_loop for n in graph] == [False, True, True, True, False]


def test_nested_loops_are_contiguous():
    graph = nodes([1], [2], [3], [2, 4], [1, 5], [])
    assert order(graph) == [0, 1, 2, 3, 4, 5]


def test_a_loop_with_two_entries_is_arranged():
    graph = nodes([1, 2], [2], [1, 3], [])
    found = order(graph)
    assert found[0] == 0
    assert found[-1] == 3
    assert sorted(found) == [0, 1, 2, 3]


def test_unreachable_blocks_are_left_out():
    assert order(nodes([2], [2], [])) == [0, 2]


def test_a_loop_at_the_entry_ends():
    assert order(nodes([0, 1], [])) == [0, 1]


def test_random_graphs_are_ordered_once_each_and_forward_where_they_have_no_loop():
    rng = random.Random(1)
    for _ in range(300):
        count = rng.randrange(2, 12)
        graph = nodes(*[rng.sample(range(count), rng.randrange(min(3, count))) for _ in range(count)])
        found = order(graph)
        assert len(set(found)) == len(found)
        place = {block: i for i, block in enumerate(found)}
        for block in found:
            for target in graph[block].successors:
                if not (graph[block].in_loop and graph[target].in_loop):
                    assert place[target] > place[block]


def test_registers_live_through_a_loop():
    graph = [
        FlowNode((1,), frozenset(), frozenset({"x", "n"})),
        FlowNode((1, 2), frozenset({"x", "n"}), frozenset({"x"})),
        FlowNode((), frozenset({"x"})),
    ]
    liveness(graph, order(graph))
    assert graph[1].live_in == {"x", "n"}
    assert graph[1].live_out == {"x", "n"}
    assert graph[2].live_in == {"x"}
    assert graph[0].live_in == frozenset()


POLLS = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 flag) {
.reg .u64 %p; .reg .u32 %v; .reg .pred %no; ld.param.u64 %p, [flag];
L: ld.volatile.global.u32 %v, [%p]; setp.eq.u32 %no, %v, 0; @%no bra L; ret; }
"""
CHANGES = 200_000


def test_the_code_changes_by_one_store() -> None:
    """A host thread that reads the field between two stores would jump to address 0."""
    bench = Bench()
    flag = bench.new([0], "u4")
    module = load_ptx(POLLS, arch="sm_90", settings=bench.settings)
    kernel = module.kernel("k", module.place(bench.memory))
    program = kernel.program
    work = work_of(kernel, (3, 1, 1), (64, 1, 1), flag.ctypes.data.to_bytes(8, "little"), 0)
    tiers = program.entry(QUICK), program.entry(OPTIMISED)
    running = prepare(program, work, bench.memory, LaunchOptions(), tiers[0], 1)
    thread = threading.Thread(target=program.engine.run, args=(address_of(running.threads[0]),))
    thread.start()
    try:
        for i in range(CHANGES):
            running.use(tiers[i % 2])
    finally:
        flag[0] = 1
        thread.join()
    running.return_memories()
