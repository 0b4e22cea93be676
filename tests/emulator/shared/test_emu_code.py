"""Generated code: linking, order of blocks, strips of vectors, the change to another tier."""

# ruff: noqa: E501 - rows read best on one line

from __future__ import annotations

import ctypes
import random
import re
import threading
from typing import Any

import numpy as np
import pytest

from emulator.ir import jit
from emulator.ir.strips import narrowed, strips
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


HOST = jit.host()
WIDTH = 8


def function(body: str, *, entry: str = "", lanes: int = 64) -> str:
    """Return a function that loads x, y and the mask m, and stores what `body` computes in %r."""
    wide = f"<{lanes} x i32>"
    return f"""define void @f(ptr %out, ptr %in, i64 %bits) #0 {{
entry:
  %R.v0 = alloca {wide}, align 64
{entry}  %x = load {wide}, ptr %in, align 64
  %there = getelementptr i8, ptr %in, i64 {4 * lanes}
  %y = load {wide}, ptr %there, align 64
  %few = {"or i64 %bits, 0" if lanes == 64 else "trunc i64 %bits to i32"}
{body}  store {wide} %r, ptr %out, align 64
  ret void
}}
"""


def computed(text: str, lanes: int) -> Any:
    """Compile a function and return what it stores for fixed inputs."""
    declared = {f"declare {m[1]} @{m[2]}({m[3]})" for m in re.finditer(r"call (\S+ x \w+>) @(llvm[\w.]+)\((.*)\)", text)}
    heads = [re.sub(r" %[\w.]+| splat \(.*?\)| (true|false)(?=[,)])", "", line) for line in sorted(declared)]
    module = "\n".join([*heads, text, f"attributes #0 = {{ {HOST.attributes} }}"])
    loaded = jit.load(jit.compile_ir(module, HOST, optimise=False), ["f"], {})
    source, out = (np.zeros(2 * lanes + 16, "u4") for _ in range(2))
    at, to = (-(-array.ctypes.data // 64) * 64 for array in (source, out))
    first, begin = (at - source.ctypes.data) // 4, (to - out.ctypes.data) // 4
    source[first : first + 2 * lanes] = np.random.default_rng(1).integers(0, 2**32, 2 * lanes, dtype="u4") >> np.arange(2 * lanes, dtype="u4") % 32
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64)(loaded.addresses["f"])(to, at, 0x9E3779B97F4A7C15)
    return out[begin : begin + lanes].copy()


BODIES = {
    "mask and select": """
  %m = bitcast iL %few to <L x i1>
  %a = mul <L x i32> %x, %y
  %b = select <L x i1> %m, <L x i32> %a, <L x i32> %x
  %r = xor <L x i32> %b, splat (i32 -77)
""",
    "mask of a comparison": """
  %c = icmp ult <L x i32> %x, %y
  %d = xor <L x i1> %c, splat (i1 true)
  %both = bitcast <L x i1> %d to iL
  %n = xor iL %both, %few
  %m = bitcast iL %n to <L x i1>
  %a = sub <L x i32> %x, %y
  %r = select <L x i1> %m, <L x i32> %a, <L x i32> %y
""",
    "bits of a mask as a number": """
  %c = icmp ult <L x i32> %x, %y
  %flags = bitcast <L x i1> %c to iL
  %two = insertelement <L x iL> poison, iL %flags, i32 0
  %all = shufflevector <L x iL> %two, <L x iL> poison, <L x i32> zeroinitializer
  %d = lshr <L x iL> %all, splat (iL 1)
  %w = trunc <L x iL> %d to <L x i31>
  %n = zext <L x i31> %w to <L x i32>
  %r = add <L x i32> %n, %x
""",
    "other widths": """
  %w = zext <L x i32> %x to <L x i64>
  %v = mul <L x i64> %w, splat (i64 6364136223846793005)
  %h = lshr <L x i64> %v, splat (i64 32)
  %s = trunc <L x i64> %h to <L x i16>
  %f = sitofp <L x i16> %s to <L x float>
  %g = fdiv <L x float> %f, splat (float 3.0)
  %b = bitcast <L x float> %g to <L x i32>
  %z = call <L x i32> @llvm.ctlz.vLi32(<L x i32> %b, i1 false)
  %r = add <L x i32> %z, %b
""",
    "halves of words": """
  %p = bitcast <L x i32> %x to <D x i16>
  %q = bitcast <L x i32> %y to <D x i16>
  %s = add <D x i16> %p, %q
  %t = mul <D x i16> %s, %q
  %r = bitcast <D x i16> %t to <L x i32>
""",
    "copy of a scalar": """
  %one = extractelement <L x i32> %x, i32 3
  %two = insertelement <L x i32> poison, i32 %one, i32 0
  %all = shufflevector <L x i32> %two, <L x i32> poison, <L x i32> zeroinitializer
  %a = add <L x i32> %all, %y
  %r = and <L x i32> %a, splat (i32 65535)
""",
    "lanes among others": """
  %a = add <L x i32> %x, %y
  %b = xor <L x i32> %a, %y
  %c = add <L x i32> %b, splat (i32 9)
  %turned = shufflevector <L x i32> %c, <L x i32> %a, <L x i32> <ORDER>
  %d = sub <L x i32> %turned, %b
  %e = mul <L x i32> %d, %a
  %r = lshr <L x i32> %e, splat (i32 3)
""",
    "variable that is written between": """
  store <L x i32> %x, ptr %R.v0
  %old = load <L x i32>, ptr %R.v0
  %a = add <L x i32> %old, %y
  store <L x i32> %a, ptr %R.v0
  %new = load <L x i32>, ptr %R.v0
  %r = mul <L x i32> %new, %old
""",
    "variable that is read by lanes": """
  %a = add <L x i32> %x, %y
  %b = mul <L x i32> %a, %y
  %c = xor <L x i32> %b, %a
  store <L x i32> %c, ptr %R.v0
  %place = getelementptr i32, ptr %R.v0, i32 5
  %lane = load i32, ptr %place
  %two = insertelement <L x i32> poison, i32 %lane, i32 0
  %all = shufflevector <L x i32> %two, <L x i32> poison, <L x i32> zeroinitializer
  %d = sub <L x i32> %all, %c
  %r = or <L x i32> %d, %x
""",
    "loop that carries a vector": """
  %a = add <L x i32> %x, %y
  %b = mul <L x i32> %a, %y
  %c = xor <L x i32> %b, %a
  br label %again
again:
  %k = phi i32 [ 0, %entry ], [ %k1, %again ]
  %v = phi <L x i32> [ %c, %entry ], [ %w, %again ]
  %d = mul <L x i32> %v, splat (i32 5)
  %e = add <L x i32> %d, %y
  %w = xor <L x i32> %e, %v
  %k1 = add i32 %k, 1
  %more = icmp ult i32 %k1, 7
  br i1 %more, label %again, label %done
done:
  %f = add <L x i32> %w, %a
  %g = sub <L x i32> %f, %c
  %r = xor <L x i32> %g, splat (i32 1)
""",
}  # fmt: skip


@pytest.mark.parametrize("lanes", [32, 64])
@pytest.mark.parametrize("name", BODIES)
def test_code_in_strips_computes_the_same(name: str, lanes: int) -> None:
    order = ", ".join(f"i32 {(5 * i + 3) % (2 * lanes)}" for i in range(lanes))
    body = BODIES[name].replace("ORDER", order).replace("L x", f"{lanes} x").replace("D x", f"{2 * lanes} x")
    text = function(body.replace("iL", f"i{lanes}").replace("vL", f"v{lanes}").lstrip("\n"), lanes=lanes)
    changed = strips(text, lanes, WIDTH)
    assert "phi i64 [ 0, %" in changed
    np.testing.assert_array_equal(computed(changed, lanes), computed(text, lanes))


def test_operations_of_whole_waves_are_gone() -> None:
    text = function(BODIES["other widths"].replace("L x", "64 x").replace("vL", "v64"))
    left = [line for line in strips(text, 64, WIDTH).splitlines() if "<64 x" in line and not re.search(r"alloca|load|store", line)]
    assert not left


def test_code_without_runs_stays_as_it_is() -> None:
    text = function("  %r = add <64 x i32> %x, %y\n").replace("  %few = or i64 %bits, 0\n", "")
    assert strips(text, 64, WIDTH) == text


def test_what_nothing_uses_is_left_out() -> None:
    text = function("  %u = mul <64 x i32> %x, %x\n  %unused = add <64 x i32> %u, %y\n  %r = add <64 x i32> %x, %y\n")
    assert "mul" not in strips(text, 64, WIDTH)


def test_names_of_intrinsics_follow_the_width() -> None:
    call = "call <64 x i32> @llvm.fptoui.sat.v64i32.v64f32(<64 x float> %a)"
    assert narrowed(call, 64, 16) == "call <16 x i32> @llvm.fptoui.sat.v16i32.v16f32(<16 x float> %a)"
    assert narrowed("bitcast <32 x i32> %a to <64 x half>", 32, 8) == "bitcast <8 x i32> %a to <16 x half>"
    assert narrowed("bitcast <4 x i32> %a to i128", 32, 8) == "bitcast <4 x i32> %a to i128"
