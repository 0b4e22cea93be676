"""Kernels for AMD GPUs: the code objects of LLVM, and the calls that are refused before LLVM."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from compiler import llvm
from compiler.compile import compile_uncached
from compiler.dtype import dtypes
from compiler.emit.transcendental import DECOMPOSITIONS
from compiler.ir.index import Variable
from compiler.pipeline import lower
from compiler.schedule.scheduler import schedule
from compiler.targets import target_of
from compiler.targets.amdgcn import intrinsics, lanes
from compiler.targets.amdgcn.rows import ROWS, choice_of
from compiler.targets.amdgcn.target import _machine
from drivers.elf import UNDEFINED, Elf
from hcq.errors import CompileError, UnsupportedError
from tests.children import python
from tests.compiler.amd_calls import ATOMICS, CALLS, PLAIN_CALLS, calls_of, module
from tests.compiler.code_objects import check
from tests.compiler.kernels import load, loop, number, op, reduce, sink, store
from tests.compiler.test_compiled_programs import LAYERS
from tests.compiler.test_cubins import every, numbered
from tests.compiler.test_elementwise_ops import ALL, BINARY, UNARY
from tests.facts import amd_code as facts

if TYPE_CHECKING:
    from compiler.ir.uop import UOp

WAVES = [
    f"{arch}:wave{wave}" if wave != row.waves[0] else arch for arch, row in ROWS.items() for wave in row.waves
]
DISTINCT = list({(choice_of(a).row.features, choice_of(a).wave): a for a in reversed(WAVES)}.values())[::-1]
"""One of each set of features."""
FIRST = ("gfx1100", "gfx1201", "gfx942")
"""A processor of each generation that has a driver."""


def rows_of_sums() -> UOp:
    i, r = loop(0, 8), loop(1, 1000)
    return sink(store(0, i, reduce(load(1, i * 1000 + r), "ADD", r)))


def assembly(ast: UOp, arch: str) -> str:
    """Return the assembly of the kernel's code."""
    target = target_of(arch)
    text = llvm.emit_assembly(lower(ast, target)[0], target.machine())
    return text[: text.index(".section")]


def opcodes(text: str) -> set[str]:
    return set(re.findall(r"^\t([a-z]\w+)", text, re.MULTILINE))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("arch", WAVES)
def test_a_reduction_over_threads(arch: str):
    kernel = compile_uncached(rows_of_sums(), arch)
    made = check(kernel, wave=choice_of(arch).wave)
    assert kernel.image.arch == choice_of(arch).arch
    assert kernel.threads == (256, 1, 1)
    assert kernel.image.shared_bytes == 4 * 256
    assert made.version == (1, 2)


@pytest.mark.parametrize("arch", ROWS)
def test_code_objects_of_version_6(arch: str):
    made = check(compile_uncached(rows_of_sums(), f"{arch}:v6"), wave=choice_of(arch).wave, version="V6")
    assert made.version == (1, 2)


def test_variables_follow_the_pointers():
    i, start = loop(0, 40), Variable("start", 0, 60)
    ast = sink(store(0, i, op("MUL", load(1, i + start), number(2.0))))
    kernel = compile_uncached(ast, "gfx1100")
    made = check(kernel, wave=32)
    kinds = [a[".value_kind"] for a in made.metadata[".args"]]
    assert kinds == ["global_buffer", "global_buffer", "by_value"]
    assert made.descriptor["kernarg_size"] == 24


@pytest.mark.sampled(3)
@pytest.mark.parametrize("arch", ROWS)
def test_tables_of_constants_are_relocated_relative_to_the_code(arch: str):
    i = loop(0, 300)
    kernel = compile_uncached(sink(store(0, i, op("SIN", load(1, i, dtypes.float64)))), arch)
    check(kernel, wave=choice_of(arch).wave, table=True)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("arch", FIRST)
def test_division_and_roots_of_every_dtype_call_nothing(arch: str):
    check(compile_uncached(every(("DIV", "SQRT", "FLOORDIV", "MOD")), arch), wave=choice_of(arch).wave)


@pytest.mark.parametrize("arch", ROWS)
def test_memory_is_accessed_by_its_own_instructions(arch: str):
    """Global memory and LDS are not accessed with flat instructions, and private memory is not used."""
    text = assembly(rows_of_sums(), arch)
    names = {one.split("_")[0] for one in opcodes(text)}
    assert names >= {"global", "ds"}
    assert not names & {"flat", "scratch", "buffer", "tbuffer"}
    assert not opcodes(text) & {"s_swappc_b64", "s_setpc_b64", "s_swap_pc_i64", "s_set_pc_i64"}


@pytest.mark.parametrize("arch", FIRST)
def test_offsets_of_a_bounded_launch_fit_the_instruction(arch: str):
    """Addresses are two scalar registers and an offset of 32 bits; threads add no 64-bit numbers."""
    i = loop(0, 5120)
    text = assembly(sink(store(0, i, op("ADD", load(1, i), load(2, i)))), arch)
    assert len(re.findall(r"global_(?:load|store)_\w+ v\d+, (?:v\d+, )?s\[\d+:\d+\]", text)) == 3
    assert not re.search(r"addc|add_co|lshl_add_u64", text)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("arch", WAVES)
def test_barriers_wait_for_lds(arch: str):
    """A wave's stores to LDS are complete before the barrier; caches of global memory are unchanged."""
    text = assembly(rows_of_sums(), arch)
    split = "split-barrier" in choice_of(arch).row.features
    barrier = "s_barrier_signal" if split else "s_barrier"
    assert ("s_barrier_wait" in opcodes(text)) == split
    steps = (256 // target_of(arch).warp).bit_length() - 1
    before = [part.rstrip().splitlines()[-2:] for part in re.split(rf"\t{barrier}(?: |\n)", text)[:-1]]
    assert len(before) == 2 * steps
    waited = r"ds_(?:store|write)\w+ .*\n(?:\t(?!ds_|s_barrier).*\n)*?\ts_wait\w+ (?:lgkmcnt\(0\)|0x0)"
    assert len(re.findall(waited, text)) == steps
    assert not [one for one in opcodes(text) if "inv" in one or "wb" in one]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("arch", WAVES)
def test_registers_cross_lanes(arch: str):
    """Each distance uses the instructions of the table's row, and none accesses LDS."""
    choice = choice_of(arch)
    text = assembly(rows_of_sums(), arch)
    got = re.findall(r"row_xmask:\d+|row_ror:8|quad_perm:\S+|permlane\w+|ds_bpermute|ds_swizzle\S+", text)
    if "row-xmask" not in choice.row.features:
        want = ["ds_bpermute", "ds_swizzle_b32", "ds_swizzle_b32", "row_ror:8"]
        want += ["quad_perm:[2,3,0,1]", "quad_perm:[1,0,3,2]"]
    else:
        want = ["permlanex16_b32", *[f"row_xmask:{n}" for n in (8, 4, 2, 1)]]
        want += ["permlane64_b32"] if target_of(arch).warp == 64 else []
    assert sorted(got) == sorted(want)
    assert target_of(arch).warp == (32 if choice.arch == "gfx1030" else choice.wave)


def lane_read(call: str, lane: int) -> int:
    """Return the lane that an exchange reads for `lane`, as the instruction-set manuals define it."""
    name, arguments = re.fullmatch(r".*@llvm\.amdgcn\.([\w.]+)\((.*)\)", call).groups()  # type: ignore[union-attr]
    numbers = [int(n) for n in re.findall(r"(?<=i32 )-?\d+", arguments)]
    if name == "update.dpp.i32":
        control = numbers[0]
        if control < 0x100:  # quad_perm: two bits for each lane of four
            return lane & ~3 | control >> 2 * (lane & 3) & 3
        if 0x120 < control < 0x130:  # row_ror: lanes of a row move to the right
            return lane & ~15 | (lane - (control & 15)) & 15
        assert 0x160 <= control < 0x170, "row_xmask"
        return lane & ~15 | (lane ^ control) & 15
    if name == "permlanex16.i32":  # selects of four bits for each lane of a row, in the other row of the pair
        low, high = (n & 0xFFFFFFFF for n in numbers[-2:])
        return (lane & ~15 ^ 16) | (low | high << 32) >> 4 * (lane & 15) & 15
    if name == "ds.swizzle":  # bit mode: and, or, xor of five bits each
        mode = numbers[-1]
        assert mode < 0x8000
        return lane & ~31 | ((lane & mode & 31 | mode >> 5 & 31) ^ mode >> 10 & 31)
    assert name == "permlane64.i32"
    return lane ^ 32


@pytest.mark.parametrize("arch", ROWS)
def test_every_distance_reads_the_lane_whose_number_differs_in_one_bit(arch: str):
    row = ROWS[arch]
    for wave in row.waves:
        distance = 1
        while distance < lanes.reach(row, wave):
            *before, last = lanes.exchange(row, "%r", "%w", distance)
            if "bpermute" in last:
                assert [line.split(" = ")[1] for line in before] == [
                    "call i32 @llvm.amdgcn.mbcnt.lo(i32 -1, i32 0)",
                    "call i32 @llvm.amdgcn.mbcnt.hi(i32 -1, i32 %r.low)",
                    f"xor i32 %r.lane, {distance}",
                    "shl i32 %r.from, 2",
                ]
            else:
                assert [lane_read(last.strip(), lane) for lane in range(wave)] == [
                    lane ^ distance for lane in range(wave)
                ]
            distance *= 2


@pytest.mark.parametrize("arch", FIRST)
def test_a_product_rounded_to_half_keeps_the_sign_of_zero(arch: str):
    i = loop(0, 64)
    product = op("MUL", load(1, i, dtypes.float32), load(2, i, dtypes.float32))
    found = opcodes(assembly(sink(store(0, i, op("CAST", product, dtype=dtypes.float16))), arch))
    assert "v_cvt_f16_f32" in {name.removesuffix("_e32").removesuffix("_e64") for name in found}
    assert not any("mix" in name for name in found), "a fused product adds +0, which makes -0 to 0"


def refused(body: str, arch: str = "gfx1100") -> str:
    """Return the error for a kernel with these calls."""
    ir = f"define amdgpu_kernel void @k() {{\n{body}\n  ret void\n}}\n"
    target = target_of(arch)
    with pytest.raises(CompileError) as caught:
        target.emit(ir, target.machine(), 0)
    return str(caught.value)


def test_what_llvm_cannot_select_is_refused_by_name():
    assert "gfx942 with wave64 has no permlane16" in refused(
        "  call i32 @llvm.amdgcn.permlane16.i32()", "gfx942"
    )
    assert "gfx1030 with wave32 has no permlane64" in refused(
        "  call i32 @llvm.amdgcn.permlane64.i32()", "gfx1030"
    )
    wmma = "  call <8 x float> @llvm.amdgcn.wmma.f32.16x16x16.f16.v8f32.v16f16()"
    assert "gfx1100 with wave64 has no wave32" in refused(wmma, "gfx1100:wave64")
    assert "gfx1201 with wave32 has no wmma-gfx11" in refused(wmma, "gfx1201")
    assert "not in the table of intrinsics" in refused("  call double @llvm.amdgcn.sin.f64(double 1.0)")
    assert "not in the table of intrinsics" in refused("  call void @llvm.amdgcn.unheard.of()")
    assert "f64 LLVM makes it a library call" in refused("  call double @llvm.sin.f64(double 1.0)")
    vector = "  call <2 x double> @llvm.exp2.v2f64(<2 x double> poison)"
    assert "f64 LLVM makes it a library call" in refused(vector)
    assert "not in the table of functions" in refused("  call float @llvm.tan.f32(float 1.0)")
    assert "it is not defined" in refused("  call float @__ocml_sin_f32(float 1.0)")
    assert "inline assembly" in refused('  call void asm sideeffect "s_nop 0", ""()')


def selected(arch: str, calls: list[str], others: list[str]) -> None:
    """Assert that the tables allow the calls, and that LLVM compiles them without calling a function."""
    target = target_of(arch)
    elf = Elf(target.emit(module(calls, others), target.machine(), 0))
    assert [s.name for s in elf.symbols if s.section == UNDEFINED and s.name] == []
    assert len([s for s in elf.symbols if s.name.endswith(".kd")]) == len(calls) + len(others)


@pytest.mark.sampled(11)
@pytest.mark.parametrize("arch", DISTINCT)
def test_every_intrinsic_that_a_row_has_is_selected(arch: str):
    choice = choice_of(arch)
    has = choice.row.features | {f"wave{choice.wave}"}
    names = [name for name, need in intrinsics.NEEDS.items() if set(need.split()) <= has]
    selected(arch, calls_of(names), [])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("arch", ["gfx942", "gfx1201"])
def test_functions_atomics_and_fences_of_every_scope_are_selected(arch: str):
    selected(arch, PLAIN_CALLS, ATOMICS)


@pytest.mark.sampled(144)
@pytest.mark.slow
@pytest.mark.parametrize("arch", WAVES)
def test_what_the_tables_allow_is_selected_by_every_row(arch: str):
    choice = choice_of(arch)
    has = choice.row.features | {f"wave{choice.wave}"}
    names = [name for name, need in intrinsics.NEEDS.items() if set(need.split()) <= has]
    selected(arch, calls_of(names) + PLAIN_CALLS, ATOMICS)


def test_tables_and_tests_have_the_same_intrinsics():
    assert set(CALLS) == set(intrinsics.NEEDS)
    assert {need for needs in intrinsics.NEEDS.values() for need in needs.split()} <= {
        *(feature for row in ROWS.values() for feature in row.features), "wave32", "wave64",
    }  # fmt: skip


def test_without_the_tables_llvm_ends_the_process():
    """The tables are needed because a process cannot catch this."""
    program = (
        "import resource; from compiler import llvm; from tests.compiler.amd_calls import calls_of, module; "
        "resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); "
        "llvm.emit_object(module(calls_of(['permlane64']), []), llvm.Machine('amdgcn-amd-amdhsa', 'gfx942'))"
    )
    home = Path(__file__).parents[2]
    done = python("-c", program, status=None, cwd=home)
    assert done.returncode != 0
    assert done.stderr
    assert "Traceback" not in done.stderr


def test_a_function_of_the_text_may_be_called():
    ir = "define internal void @f() {\n  ret void\n}\n"
    ir += "define amdgpu_kernel void @k() {\n  call void @f()\n  ret void\n}\n"
    intrinsics.check(ir, choice_of("gfx1100"))


def test_an_llvm_without_the_processor_is_refused_with_the_needed_version():
    choice = choice_of("gfx950")
    assert (choice.row.llvm, llvm.major() >= 20) == (20, True)
    old = dataclasses.replace(choice, row=dataclasses.replace(choice.row, llvm=llvm.major() + 1))
    with pytest.raises(UnsupportedError, match=rf"gfx950 needs LLVM {old.row.llvm}.*has LLVM {llvm.major()}"):
        _machine(old)


def test_options_of_an_arch():
    assert choice_of("gfx1201:v6:wave64") == choice_of("gfx1201:wave64:v6")
    assert target_of("gfx1100:wave64").settings == "wave64 v5"
    for bad in ("gfx942:wave32", "gfx1100:v4", "gfx1100:v5:v6", "gfx1100:wave32:wave64", "gfx1100:xnack+"):
        with pytest.raises(UnsupportedError, match=r"they are one of wave.*v5, v6"):
            choice_of(bad)
    with pytest.raises(UnsupportedError, match=r"'gfx906'.*gfx90a.*gfx1201"):
        target_of("gfx906")


def test_processors_of_the_facts_are_rows():
    assert set(ROWS) == set(facts.MACH) - {"gfx940"}


@pytest.mark.sampled(144)
@pytest.mark.slow
@pytest.mark.parametrize("arch", WAVES)
def test_kernels_of_every_operation(arch: str):
    i, wave = loop(0, 300), choice_of(arch).wave
    for name in (*BINARY, *UNARY):
        check(compile_uncached(every((name,)), arch), wave=wave)
    for dtype in (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64):
        for name in DECOMPOSITIONS:
            table = dtype is dtypes.float64 and name in ("SIN", "COS")
            ast = numbered(i, [(op(name, load(0, i, dtype), dtype=dtype), 1)])
            check(compile_uncached(ast, arch), wave=wave, table=table)
    for source in ALL:
        casts = [(op("CAST", load(0, i, source), dtype=d), 1) for d in ALL if d is not source]
        check(compile_uncached(numbered(i, casts), arch), wave=wave)
    for name in LAYERS:
        for item in schedule(LAYERS[name]()):
            check(compile_uncached(item.ast, arch), wave=wave)
