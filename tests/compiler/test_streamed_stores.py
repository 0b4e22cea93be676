"""Stores that bypass the caches: which kernels have them, their alignment and order, and their results."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from compiler.pipeline import steps
from compiler.targets import target_of
from tests.compiler.host_kernel import HostKernel
from tests.compiler.kernels import load, loop, op, reduce, sink, store

if TYPE_CHECKING:
    from collections.abc import Callable

    from compiler.ir.uop import UOp
    from compiler.pipeline import Steps

CACHE = 4096
"""Bytes of the last cache of the targets here: small arrays are large results."""


def steps_for(ast: UOp, arch: str = "x86_64-v3", cache: int = CACHE) -> Steps:
    return steps(ast, replace(target_of(arch), cores=1, last_level_bytes=cache))


def copied(rows: int, columns: int, *, turned: bool = False, scale: bool = False) -> UOp:
    i, j = loop(0, rows), loop(1, columns)
    value = load(1, j * rows + i if turned else i * columns + j)
    return sink(store(0, i * columns + j, op("MUL", value, value) if scale else value))


def softmax_like(rows: int, columns: int) -> UOp:
    i, j, k = loop(0, rows), loop(1, columns), loop(2, columns)
    total = reduce(op("EXP", load(1, i * columns + k)), "ADD", k)
    return sink(store(0, i * columns + j, op("DIV", op("EXP", load(1, i * columns + j)), total)))


def ran(made: Steps, count: int, *inputs: np.ndarray, shift: int = 0) -> np.ndarray:
    """Run a kernel on buffers that start at lines of the caches, as the device allocates them.

    The result starts `shift` elements later.
    """

    def line(size: int, shift: int = 0) -> np.ndarray:
        raw = np.zeros(size + 64, np.float32)
        return raw[-raw.ctypes.data % 64 // 4 + shift :][:size]

    target, out = target_of("x86_64-v3"), line(count, shift)
    given = [line(x.size) for x in inputs]
    for mine, x in zip(given, inputs, strict=True):
        mine[:] = x.ravel()
    kernel = HostKernel(target.emit(made.ir, target.machine(), 0), made.name)
    kernel.run([x.ctypes.data for x in (out, *given)], [], made.plan.launch()[0][0])
    return out


@pytest.mark.parametrize(
    "ast", [copied(64, 64, scale=True), copied(64, 64, turned=True), softmax_like(64, 64)]
)
def test_results_of_half_the_last_cache_bypass_it(ast: UOp) -> None:
    assert "!nontemporal" in steps_for(ast).ir
    assert "!nontemporal" not in steps_for(ast, cache=8 * 64 * 64 + 1).ir
    assert "!nontemporal" not in steps_for(ast, cache=0).ir


def test_sums_and_results_that_replace_an_operand_use_the_caches() -> None:
    i, k = loop(0, 2048), loop(1, 64)
    updated = sink(store(0, i, op("MUL", load(0, i), load(1, i))))
    column = sink(store(0, i * 64, load(1, i)))
    total = sink(store(0, i, reduce(load(1, i * 64 + k), "ADD", k)))
    assert not steps_for(updated).plan.streamed
    assert not steps_for(column).plan.streamed
    assert "!nontemporal" not in steps_for(total, cache=1 << 20).ir


def test_a_fence_orders_streamed_stores_before_the_return() -> None:
    streamed = steps_for(copied(64, 64, scale=True)).ir
    assert "call void @llvm.x86.sse.sfence()\n  ret void" in streamed
    assert "sfence" not in steps_for(copied(64, 64, scale=True), cache=0).ir
    assert "fence" not in steps_for(copied(64, 64, scale=True), "aarch64-v8").ir


def test_stores_at_places_that_are_not_aligned_are_not_streamed() -> None:
    i = loop(0, 4096)
    shifted = sink(store(0, i + 1, load(1, i)))
    assert "!nontemporal" not in steps_for(shifted).ir
    assert "!nontemporal" not in steps_for(copied(61, 67, scale=True)).ir


@pytest.mark.parametrize(("rows", "columns"), [(64, 64), (40, 56), (24, 16), (61, 67), (8, 1024), (129, 8)])
def test_results_are_those_of_stores_through_the_caches(rows: int, columns: int) -> None:
    x = np.random.default_rng(rows).standard_normal((rows, columns), dtype=np.float32)
    for ast, given in (
        (copied(rows, columns, scale=True), x),
        (copied(rows, columns, turned=True), np.ascontiguousarray(x.T)),
        (softmax_like(rows, columns), x),
    ):
        wanted = ran(steps_for(ast, cache=0), x.size, given)
        got = ran(steps_for(ast), x.size, given)
        assert got.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("shift", [1, 4, 7])
@pytest.mark.parametrize("make", [copied, softmax_like])
def test_results_at_any_place_are_those_at_the_start_of_a_line(
    make: Callable[[int, int], UOp], shift: int
) -> None:
    x = np.random.default_rng(shift).standard_normal((24, 64), dtype=np.float32)
    made = steps_for(make(24, 64))
    assert "!nontemporal" in made.ir
    assert ran(made, x.size, x, shift=shift).tobytes() == ran(made, x.size, x).tobytes()


def test_every_streamed_result_must_be_aligned_for_the_version_that_bypasses_the_caches() -> None:
    i = loop(0, 4096)
    made = steps_for(sink(store(0, i, load(2, i)), store(1, i, op("MUL", load(2, i), load(2, i)))))
    assert len(made.arguments.access) == 3
    lines = made.ir.splitlines()
    (test,) = [n for n, line in enumerate(lines) if line.startswith("  %rest = and i64 ")]
    assert lines[test].endswith(", 31")
    assert lines[test - 1] == "  %any1 = or i64 %low0, %low1"
    inner = made.ir.index("define internal")
    assert "!nontemporal" in made.ir[:inner]
    assert "!nontemporal" not in made.ir[inner:]


@pytest.mark.parametrize("arch", ["x86_64-v3", "x86_64-v4", "aarch64-v8"])
def test_kernels_of_two_versions_have_objects_without_undefined_names(arch: str) -> None:
    target = target_of(arch)
    code = target.emit(steps_for(copied(64, 64, scale=True), arch).ir, target.machine(), 0)
    sections = ELFFile(io.BytesIO(code))
    table = sections.get_section_by_name(".symtab")
    assert isinstance(table, SymbolTableSection)
    assert [s.name for s in table.iter_symbols() if s["st_shndx"] == "SHN_UNDEF" and s.name] == []
