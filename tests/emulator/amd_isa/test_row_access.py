"""Accesses by rows of 16 lanes: the shapes of a register's rows, and accesses that they make faster."""

# ruff: noqa: E501 - lines of IR read best on one line

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from emulator.amd.isa import programs
from emulator.ir import jit
from emulator.ir.library import Library, Sanitizers
from emulator.ir.report import ReportKind
from emulator.ir.vector import CodeBuilder, Declarations, IrValue
from emulator.simt import rows
from emulator.simt.rows import CONSECUTIVE, EQUAL, MIXED, PLAIN, SIGNED, UNSIGNED
from emulator.simt.work import LaunchOptions
from tests.emulator.amd_isa import ir
from tests.emulator.amd_isa.conftest import Bench, compiled

if TYPE_CHECKING:
    from collections.abc import Callable

QUICK = LaunchOptions(tier="quick", threads=1)
ALL = 0xFFFF_FFFF
FOLLOWING = 4 * np.arange(32)
ROWS = np.repeat([64, 128], 16)


def _shape(extended: str) -> Callable[[np.ndarray, int], int]:
    """Return a host function that gives the shape of 32 addresses of 32 bits, for steps of 4."""
    library = Library(32, jit.host(), Sanitizers())
    code = CodeBuilder(Declarations())
    at, mask = IrValue("ptr", "%at"), IrValue("i32", "%mask")
    found = rows.shape(library, code, code.load("<32 x i32>", at, align=4), mask, 4, extended)
    code.ret(found)
    body = code.function("probe", "i32", [at, mask])
    text, imports = library.module(body, code.declarations.declared, optimise=True)
    assert not imports or imports == [f"emu.shape.32.4{extended}"]
    core, names = library.core_module()
    helper = jit.load(jit.compile_ir(core, library.target, optimise=False), names, {})
    wanted = {name: helper.addresses[name] for name in imports}
    loaded = jit.load(jit.compile_ir(text, library.target, optimise=False), ["probe"], wanted)
    function = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint32)(loaded.addresses["probe"])

    def probe(addresses: np.ndarray, lanes: int) -> int:
        assert loaded.addresses
        assert helper.addresses  # both stay loaded while this function exists
        values = np.ascontiguousarray(addresses.astype("u8") & ALL, "u4")
        return int(function(values.ctypes.data, lanes))

    return probe


def test_shapes_of_rows() -> None:
    probe = _shape(PLAIN)
    for addresses, mask, wanted in (
        (FOLLOWING, ALL, CONSECUTIVE),
        (np.tile(FOLLOWING[:16], 2), ALL, CONSECUTIVE),
        (ROWS, ALL, EQUAL),
        (FOLLOWING * 2, ALL, MIXED),
        (np.where(np.arange(32) == 5, 9, FOLLOWING), ALL, MIXED),
        (np.where(np.arange(32) == 5, 9, FOLLOWING), ALL & ~(1 << 5), CONSECUTIVE),
        (np.where(np.arange(32) < 16, FOLLOWING, 7 * FOLLOWING), 0xFFFF, CONSECUTIVE),
        (np.where(np.arange(32) < 16, ROWS, 7 * FOLLOWING), 0xFFFF, EQUAL),
        (np.where(np.arange(32) < 16, ROWS, FOLLOWING), ALL, MIXED),
        (FOLLOWING + 0xFFFF_FFF0, ALL, CONSECUTIVE),
    ):
        assert probe(addresses, mask) == wanted, (addresses, hex(mask))


@pytest.mark.parametrize(("extended", "end"), [(UNSIGNED, 1 << 32), (SIGNED, 1 << 31)])
def test_rows_that_wrap_before_they_are_extended_are_not_consecutive(extended: str, end: int) -> None:
    probe = _shape(extended)
    assert probe(FOLLOWING + end - 128, ALL) == CONSECUTIVE
    assert probe(FOLLOWING + end - 64, ALL & 0xFFFF) == CONSECUTIVE
    assert probe(FOLLOWING + end - 60, ALL & 0xFFFF) == MIXED
    assert probe(FOLLOWING + end - 60, ALL) == MIXED
    assert probe(ROWS + end - 256, ALL) == EQUAL


def _gather(extension: str) -> str:
    """A kernel: o[i] = a[j[i]] for i < n, with the index extended to 64 bits."""
    return (
        ir.HEAD
        + f"""define amdgpu_kernel void @k(ptr addrspace(1) %o, ptr addrspace(1) %a, ptr addrspace(1) %j, i32 %n) {ir.BOUNDS} {{
entry:
{ir.INDEX}
  %here = icmp ult i32 %i, %n
  br i1 %here, label %work, label %end
work:
  %pj = getelementptr i32, ptr addrspace(1) %j, i32 %i
  %x = load i32, ptr addrspace(1) %pj
  %w = {extension} i32 %x to i64
  %pa = getelementptr i32, ptr addrspace(1) %a, i64 %w
  %y = load i32, ptr addrspace(1) %pa
  %po = getelementptr i32, ptr addrspace(1) %o, i32 %i
  store i32 %y, ptr addrspace(1) %po
  br label %end
end:
  ret void
}}
"""
    )


@pytest.mark.parametrize("processor", ["gfx1100", "gfx942"])
def test_loads_of_every_shape_take_what_their_indices_name(processor: str) -> None:
    """Rows that are consecutive, equal, mixed and cut off by the end of memory, in waves of 32 and 64 lanes."""
    bench, count = Bench(processor), 250
    rng = np.random.default_rng(3)
    index = np.concatenate([
        np.arange(64), np.repeat(rng.integers(0, count, 4), 16), rng.integers(0, count, 64), count - 58 + np.arange(58),
    ])  # fmt: skip
    source = bench.new(rng.integers(0, 1 << 32, count), "u4")
    indices, out = bench.new(index, "u4"), bench.new(np.zeros(count), "u4")
    done = bench.run(_gather("zext"), 1, 256, out, source, indices, count, options=QUICK)
    assert done.fault is None, done.fault
    assert np.array_equal(out, source[index])


def test_a_consecutive_row_that_leaves_its_memory_is_reported_lane_by_lane() -> None:
    bench = Bench()
    source, out = bench.new(np.arange(64), "u4"), bench.new(np.zeros(256), "u4")
    indices = bench.new(np.arange(256) - 3, "i4")
    done = bench.run(_gather("sext"), 1, 256, out, source, indices, 256, options=QUICK)
    assert done.fault is not None
    assert done.fault.kind is ReportKind.OUT_OF_BOUNDS
    assert done.fault.address == source.ctypes.data - 12


def test_accesses_of_one_register_find_its_rows_once() -> None:
    """Four loads at offsets of one register, and a store to LDS at it, take one search of its rows for each width of address."""
    bench = Bench()
    loads = "".join(
        f"  %p{k} = getelementptr i32, ptr addrspace(1) %pa, i32 {256 * k}\n  %x{k} = load i32, ptr addrspace(1) %p{k}\n"
        for k in range(4)
    )
    text = (
        ir.HEAD
        + f"""define amdgpu_kernel void @k(ptr addrspace(1) %o, ptr addrspace(1) %a) {ir.BOUNDS} {{
{ir.INDEX}
  %pa = getelementptr i32, ptr addrspace(1) %a, i32 %thread
{loads}
  %s1 = add i32 %x0, %x1
  %s2 = add i32 %s1, %x2
  %s3 = add i32 %s2, %x3
  %po = getelementptr i32, ptr addrspace(1) %o, i32 %thread
  store i32 %s3, ptr addrspace(1) %po
  ret void
}}
"""
    )
    program, _ = bench.kernel(text)
    written = program.translation.text
    assert written.count("@amd.rows.load.") == 4
    assert written.count("@amd.rows.store.") == 1
    assert written.count("@emu.shape.") == 1


def test_sanitizers_see_every_access_themselves() -> None:
    bench = Bench()
    found = programs.kernels(compiled(_gather("zext"), "gfx1100"), "gfx1100")["k"]
    settings = replace(bench.settings, checks=Sanitizers.all())
    assert "@amd.rows." not in programs.program(found, settings).translation.text
