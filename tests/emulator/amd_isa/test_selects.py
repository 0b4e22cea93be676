"""Selects and signs of packed operations, against the definitions of the ISA's pseudo-code in Python.

`op_sel` picks what goes into the low part of a result, `op_sel_hi` what goes into the high part, `neg` and
`neg_hi` negate it; v_pk_mov_b32 takes both parts by `op_sel`. LLVM emits few of these forms, so an operation
that it emits is changed to each of them: encoding VOP3P of the CDNA3 ISA.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pytest

from emulator.amd.isa import objects
from emulator.simt.work import LaunchOptions
from tests.emulator.amd_isa.conftest import Bench, compiled
from tests.emulator.amd_isa.ir import elementwise

if TYPE_CHECKING:
    from collections.abc import Callable

Array = np.ndarray
LANES = 64
VOP3P = 0b110100111
QUICK = LaunchOptions(tier="quick", threads=1)
FORMS: dict[str, tuple[int, str, int, Callable[..., Array]]] = {
    "v_pk_mad_i16": (0, "i2", 3, lambda a, b, c: a * b + c),
    "v_pk_mul_lo_u16": (1, "u2", 2, lambda a, b: a * b),
    "v_pk_sub_i16": (3, "i2", 2, lambda a, b: a - b),
    "v_pk_lshlrev_b16": (4, "u2", 2, lambda by, x: x << (by & 15)),
    "v_pk_lshrrev_b16": (5, "u2", 2, lambda by, x: x >> (by & 15)),
    "v_pk_ashrrev_i16": (6, "i2", 2, lambda by, x: x >> (by & 15)),
    "v_pk_max_i16": (7, "i2", 2, np.maximum),
    "v_pk_mad_u16": (9, "u2", 3, lambda a, b, c: a * b + c),
    "v_pk_add_u16": (10, "u2", 2, lambda a, b: a + b),
    "v_pk_min_u16": (13, "u2", 2, np.minimum),
    "v_pk_fma_f16": (14, "f2", 3, lambda a, b, c: a * b + c),
    "v_pk_add_f16": (15, "f2", 2, lambda a, b: a + b),
    "v_pk_mul_f16": (16, "f2", 2, lambda a, b: a * b),
    "v_pk_max_f16": (18, "f2", 2, np.maximum),
    "v_pk_fma_f32": (48, "f4", 3, lambda a, b, c: a * b + c),
    "v_pk_mul_f32": (49, "f4", 2, lambda a, b: a * b),
    "v_pk_add_f32": (50, "f4", 2, lambda a, b: a + b),
    "v_pk_mov_b32": (51, "u4", 2, lambda a, b: (a, b)),
}
"""Name: opcode, type of a part, sources, and the definition of a part."""


def template(dtype: str, count: int) -> objects.KernelCode:
    """Return a kernel with one packed operation of floats."""
    type_, kind = ("<2 x float>", "f32") if dtype[1] == "4" else ("<2 x half>", "f16")
    code = f"  %r = fadd {type_} %x, %y"
    if count == 3:
        code = f"  %r = call {type_} @llvm.fma.v2{kind}({type_} %x, {type_} %y, {type_} %z)"
    extra = f"declare {type_} @llvm.fma.v2{kind}({type_}, {type_}, {type_})\n"
    return objects.kernels(compiled(elementwise(type_, code, extra=extra), "gfx942"), "gfx942")["k"]


def changed(
    kernel: objects.KernelCode, opcode: int, selects: tuple[int, int], signs: tuple[int, int]
) -> objects.KernelCode:
    """Return the kernel with another operation and other selects; it has one packed operation."""
    (low, high), (neg, neg_hi) = selects, signs
    words = list(struct.unpack(f"<{len(kernel.code) // 4}I", kernel.code))
    (at,) = [n for n, word in enumerate(words) if word >> 23 == VOP3P]
    words[at] = (
        VOP3P << 23 | opcode << 16 | (high >> 2 & 1) << 14 | low << 11 | neg_hi << 8 | words[at] & 0xFF
    )
    words[at + 1] = words[at + 1] & ((1 << 27) - 1) | (high & 3) << 27 | neg << 29
    return replace(kernel, code=struct.pack(f"<{len(words)}I", *words))


def sources(dtype: str) -> list[Array]:
    """Return three operands of shape (lanes, 2); floats are small integers, so all results are exact."""
    rng = np.random.default_rng(3)
    if dtype[0] == "f":
        return [rng.integers(-8, 9, (LANES, 2)).astype(dtype) for _ in range(3)]
    info = np.iinfo(dtype)
    return [rng.integers(info.min, info.max, (LANES, 2), dtype, endpoint=True) for _ in range(3)]


def selects(count: int) -> list[tuple[int, int]]:
    """Return (op_sel, op_sel_hi): all of two sources; of three all of one beside the default of the other."""
    every = range(1 << count)
    if count == 2:
        return list(product(every, every))
    return [*[(low, 7) for low in every], *[(0, high) for high in every]]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", FORMS)
def test_selects_and_signs_of_packed_operations(name: str) -> None:
    opcode, dtype, count, compute = FORMS[name]
    bench, kernel = Bench("gfx942"), template(dtype, count)
    given = sources(dtype)
    kept = [bench.new(x.ravel().view("u4"), "u4") for x in given]
    out = bench.new(np.zeros(kept[0].size), "u4")
    for number, (low, high) in enumerate(selects(count)):
        neg, neg_hi = (number & 3, number >> 1 & 3) if dtype[0] == "f" else (0, 0)
        program = objects.program(changed(kernel, opcode, (low, high), (neg, neg_hi)), bench.settings)
        done = bench.launch(program, kernel, 1, LANES, out, *kept, options=QUICK)
        assert done.fault is None, done.fault
        parts = [[x[:, select >> n & 1] for n, x in enumerate(given[:count])] for select in (low, high)]
        for part, signs in zip(parts, (neg, neg_hi), strict=True):
            part[:] = [-x if signs >> n & 1 else x for n, x in enumerate(part)]
        if name == "v_pk_mov_b32":
            wanted = np.stack([parts[0][0], parts[0][1]], 1)
        else:
            wanted = np.stack([compute(*part) for part in parts], 1)
        assert np.array_equal(out.view(dtype).reshape(LANES, 2), wanted.astype(dtype)), (
            low,
            high,
            neg,
            neg_hi,
        )
