"""What the assembler made of the compiler's kernels, on every NVIDIA arch.

One function each, no call, no relocation of code (but a table's address in float64 sin and cos), and
attributes that say what was asked for.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from compiler.compile import compile_uncached
from compiler.dtype import dtypes
from compiler.emit.transcendental import DECOMPOSITIONS
from compiler.ir import ops
from compiler.ir.index import Variable
from compiler.schedule.scheduler import schedule
from compiler.targets.nvptx import assembler
from compiler.targets.nvptx.target import ROWS
from drivers.elf import Elf
from drivers.nv.cubin import read
from drivers.nv.layouts.cubin import InfoAttribute, InfoFormat, InfoKparam, InfoRecord, Relocation
from tests.compiler.kernels import load, loop, number, op, reduce, sink, store
from tests.compiler.test_compiled_programs import LAYERS
from tests.compiler.test_elementwise_ops import ALL, BINARY, UNARY, applies

if TYPE_CHECKING:
    from compiler.dtype import DType
    from compiler.image import CompiledKernel
    from compiler.ir.uop import UOp

pytestmark = pytest.mark.skipif(
    not assembler.available(), reason="neither nvJitLink nor ptxas is installed: there is nothing to look at"
)
HELPED = ("DIV", "RECIP", "SQRT", "FLOORDIV", "MOD")
REGISTERS_OF_A_PROCESSOR = 65536
MOST_REGISTERS = 255
UNCALLED = "__cuda_sm70_shflsync_bfly"
RESERVED_SHARED = 1024
"""Bytes that sm_90 and later count in, and earlier archs do not."""


def every(names: tuple[str, ...], count: int = 300) -> UOp:
    """One kernel that computes these operations, each of every dtype that has it."""
    i, stores = loop(0, count), []
    for name in names:
        for dtype in ALL:
            if not applies(name, dtype):
                continue
            sources = [load(len(stores) + 200 + k, i, dtype) for k in range(1 + (name in BINARY))]
            result = dtypes.bool if name in ops.COMPARE else dtype
            stores.append((op(name, *sources, dtype=result), len(sources)))
    return numbered(i, stores)


def numbered(i: UOp, values: list[tuple[UOp, int]]) -> UOp:
    """A kernel that stores the values of operations on loads; slots are numbered densely, results first."""
    slot, stores = len(values), []
    for k, (value, sources) in enumerate(values):
        loads = [load(slot + n, i, value.src[n].dtype) for n in range(sources)]
        slot += sources
        stores.append(store(k, i, op(value.op, *loads, dtype=value.dtype)))
    return sink(*stores)


def calls_nothing(kernel: CompiledKernel, *, table: bool) -> None:
    """No other function, and no relocation of code but the address of a table where the kernel has one.

    Before sm_90 the assembler adds a helper to every shuffle and does not call it; a call would be relocated.
    """
    elf = Elf(kernel.image.code)
    own = read(kernel.image.code, kernel.image.name)[2]
    functions = {s.name.removeprefix(".text.") for s in elf.sections if s.name.startswith(".text.")}
    shuffles = own.sm < 90 and "shfl.sync.bfly" in assembler.ptx_of(kernel.image.code)
    assert functions == {kernel.image.name, *([UNCALLED] if shuffles else [])}
    changed = [r for r in elf.relocations() if elf.sections[r.section].name.startswith(".text")]
    tables = (
        {kind.name for kind in (Relocation.R_CUDA_ABS32_LO, Relocation.R_CUDA_ABS32_HI)} if table else set()
    )
    assert {Relocation(r.type).name for r in changed} == tables
    assert all(r.symbol is not None and r.symbol.name.startswith("table") for r in changed)
    assert own.stack_bytes == 0 or own.registers == MOST_REGISTERS, "there is a stack, though not to spill to"


def records(kernel: CompiledKernel, attribute: InfoAttribute) -> list[bytes]:
    """The payloads of an attribute of the kernel."""
    elf = Elf(kernel.image.code)
    section = elf.section(f".nv.info.{kernel.image.name}")
    assert section is not None
    data, at, found = elf.content(section), 0, []
    while at < len(data):
        record = InfoRecord.from_bytes(data, at)
        at += InfoRecord.SIZE
        size = record.value if record.format == InfoFormat.SVAL else 0
        if record.attribute == attribute:
            found.append(data[at : at + size] if size else record.value.to_bytes(2, "little"))
        at += size
    return found


def attributes_say_what_was_asked_for(kernel: CompiledKernel) -> None:
    image = kernel.image
    own = read(image.code, image.name)[2]
    ptx = assembler.ptx_of(image.code)
    assert own.sm == int(re.sub(r"\D", "", image.arch))
    assert 0 < own.registers <= min(MOST_REGISTERS, REGISTERS_OF_A_PROCESSOR // image.max_threads)
    limit = b"".join(n.to_bytes(4, "little") for n in kernel.threads)
    assert records(kernel, InfoAttribute.MAX_THREADS) == [limit]
    assert own.parameter_bytes == image.kernarg_size == 8 * len(image.args)
    (total,) = records(kernel, InfoAttribute.CBANK_PARAM_SIZE)
    assert int.from_bytes(total, "little") == image.kernarg_size
    parameters = [InfoKparam.from_bytes(r) for r in records(kernel, InfoAttribute.KPARAM_INFO)]
    placed = sorted((p.ordinal, p.offset, p.size) for p in parameters)
    assert placed == [(k, slot.offset, slot.size) for k, slot in enumerate(image.args)]
    assert own.barriers == ("barrier.sync" in ptx or "bar.sync" in ptx)
    shared = sum(int(n) for n in re.findall(r"^\s*\.shared .*\[(\d+)\]", ptx, re.MULTILINE))
    assert own.shared_bytes == shared + (RESERVED_SHARED if own.sm >= 90 and own.shared_bytes else 0)


def good(ast: UOp, arch: str, *, table: bool = False) -> CompiledKernel:
    kernel = compile_uncached(ast, arch)
    calls_nothing(kernel, table=table)
    attributes_say_what_was_asked_for(kernel)
    return kernel


@pytest.mark.sampled(7)
@pytest.mark.parametrize("arch", ROWS)
def test_division_and_roots_of_every_dtype_call_nothing(arch: str):
    good(every(HELPED), arch)


@pytest.mark.parametrize(("name", "divisor", "dtype"), [
    ("DIV", 4.0, dtypes.float32), ("DIV", -0.125, dtypes.float64), ("DIV", 4.0, dtypes.float16),
    ("FLOORDIV", 1000, dtypes.int64), ("MOD", 77, dtypes.uint64), ("FLOORDIV", -7, dtypes.int32),
])  # fmt: skip
def test_dividing_by_such_constants_is_a_multiplication(name: str, divisor: float, dtype: DType):
    i = loop(0, 300)
    value = op(name, load(1, i, dtype), number(divisor, dtype), dtype=dtype)
    text = assembler.ptx_of(good(sink(store(0, i, value)), "sm_90a").image.code)
    assert not re.search(r"\b(rcp|div|rem)\.", text)


@pytest.mark.parametrize("arch", ROWS)
def test_attributes_of_a_reduction_over_threads(arch: str):
    i, r = loop(0, 8), loop(1, 1000)
    kernel = good(sink(store(0, i, reduce(load(1, i * 1000 + r), "ADD", r))), arch)
    own = read(kernel.image.code, kernel.image.name)[2]
    assert (own.barriers, own.shared_bytes > 0, kernel.image.max_threads > 32) == (1, True, True)


@pytest.mark.parametrize("arch", ROWS)
def test_attributes_of_a_kernel_with_variables(arch: str):
    i, start = loop(0, 40), Variable("start", 0, 60)
    kernel = good(sink(store(0, i, op("MUL", load(1, i + start), number(2.0)))), arch)
    assert [slot.size for slot in kernel.image.args] == [8, 8, 8]


@pytest.mark.sampled(49)
@pytest.mark.slow
@pytest.mark.parametrize("arch", ROWS)
def test_no_kernel_calls_anything(arch: str):
    for name in (*BINARY, *UNARY):
        good(every((name,)), arch)
    i = loop(0, 300)
    for dtype in (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64):
        for name in DECOMPOSITIONS:
            table = dtype is dtypes.float64 and name in ("SIN", "COS")
            good(numbered(i, [(op(name, load(0, i, dtype), dtype=dtype), 1)]), arch, table=table)
    for source in ALL:
        good(
            numbered(i, [(op("CAST", load(0, i, source), dtype=d), 1) for d in ALL if d is not source]), arch
        )
    for name in LAYERS:
        for item in schedule(LAYERS[name]()):
            good(item.ast, arch)
