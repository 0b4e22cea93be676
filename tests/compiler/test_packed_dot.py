"""Sums of products over words, the form for AVX512-BF16 and VNNI: which kernels, objects, and results."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product as product_of
from typing import TYPE_CHECKING

import numpy as np
import pytest

import hcq
from compiler import llvm
from compiler.dtype import dtypes
from compiler.nest.loop_nest import Step
from compiler.pipeline import chosen, lower, planned
from compiler.plan.choice import ProductChoice
from compiler.plan.proposal import prepared
from compiler.rewrite.packed_dot import in_words, operation
from compiler.targets import arch_for, target_of
from compiler.targets.host import target as host
from frontend import Tensor
from tests.compiler.host_kernel import HostKernel
from tests.compiler.kernels import load, loop, number, op, reduce, sink, store

if TYPE_CHECKING:
    from compiler.dtype import DType
    from compiler.ir.uop import UOp
    from compiler.plan.choice import Copied

WITH, WITHOUT = "x86_64-znver4", "x86_64-v4"
LAYOUTS = ["ab", "aB", "Ab", "AB"]
"""A capital letter is a transposed operand."""
INSTRUCTION = {dtypes.bfloat16: "vdpbf16ps", dtypes.int8: "vpdpbusd", dtypes.uint8: "vpdpbusd",
               dtypes.int16: "vpdpwssd"}  # fmt: skip
TOTAL = {dtypes.bfloat16: dtypes.float32}


def product(  # noqa: PLR0917  # three sizes, and what the operands are
    m: int, n: int, k: int, dtype: DType, layout: str = "ab", other: DType | None = None
) -> UOp:
    total = TOTAL.get(dtype, dtypes.int32)
    i, j, r = loop(0, m), loop(1, n), loop(2, k)
    a = load(1, r * m + i if layout[0] == "A" else i * k + r, dtype)
    b = load(2, j * k + r if layout[1] == "B" else r * n + j, other or dtype)
    wide = [op("CAST", x, dtype=total) for x in (a, b)]
    return sink(store(0, i * n + j, reduce(op("MUL", *wide), "ADD", r)))


def has_operations(arch: str) -> bool:
    return bool(target_of(arch).matrix)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", INSTRUCTION, ids=lambda d: d.name)
def test_the_object_has_the_instruction_where_the_level_has_it(dtype: DType, layout: str) -> None:
    for arch in (WITH, WITHOUT):
        target = target_of(arch)
        ir, plan = lower(product(64, 64, 64, dtype, layout), target)
        text = llvm.emit_assembly(ir, target.machine())
        assert (INSTRUCTION[dtype] in text) == (arch == WITH)
        assert (f"matrix {INSTRUCTION[dtype]}" in plan.text()) == (arch == WITH)


@pytest.mark.parametrize(("dtype", "instruction"), [(dtypes.int8, "vpdpbusd"), (dtypes.int16, "vpdpwssd")])
def test_vectors_of_32_bytes_have_the_instructions_of_avx_vnni(dtype: DType, instruction: str) -> None:
    plain = target_of("x86_64-v3")
    machine = llvm.Machine(plain.machine().triple, "alderlake")
    target = replace(plain, matrix=host.MATRIX[32]["avx_vnni"], machine=lambda: machine)
    ir, plan = lower(product(64, 64, 66, dtype), target)
    text = llvm.emit_assembly(ir, machine)
    assert f"{{vex}}\t{instruction}" in text.replace("{vex} ", "{vex}\t")
    assert "zmm" not in text
    assert f"matrix {instruction}" in plan.text()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_bytes_of_one_kind_have_the_instructions_of_aarch64(layout: str) -> None:
    target = target_of("aarch64-neoverse-n1")
    for dtype, instruction in ((dtypes.int8, "sdot"), (dtypes.uint8, "udot")):
        ir, plan = lower(product(64, 64, 64, dtype, layout), target)
        assert re.search(rf"{instruction}\s+v\d+\.4s, v\d+\.16b", llvm.emit_assembly(ir, target.machine()))
        assert f"matrix {instruction}" in plan.text()
        assert plan.text().count("reduce") == 1  # no sum of an operand
    mixed = prepared(product(64, 64, 64, dtypes.int8, layout, dtypes.uint8)).ast
    assert in_words(mixed, target) is None
    assert in_words(prepared(product(64, 64, 64, dtypes.int8, layout)).ast, target_of("aarch64-v8")) is None


def test_bytes_have_quads_else_pairs() -> None:
    for k, name in ((68, "vpdpbusd"), (66, "vpdpbusd"), (8, "vpdpbusd"), (7, "vpdpwssd"), (4, "vpdpwssd")):
        made = in_words(prepared(product(8, 16, k, dtypes.uint8)).ast, target_of(WITH))
        assert made is not None
        assert operation(made).name == name


def test_sums_over_several_ranges_have_words_along_whole_ones() -> None:
    """Of 6 by 5 products pairs are along the 6; of 7 by 5 there are none."""
    for size, name in ((6, "vpdpwssd"), (7, "")):
        i, j, r, s = loop(0, 8), loop(1, 16), loop(2, size), loop(3, 5)
        a = load(1, (i * size + r) * 5 + s, dtypes.int8)
        b = load(2, (r * 6 + s) * 16 + j, dtypes.int8)
        wide = [op("CAST", x, dtype=dtypes.int32) for x in (a, b)]
        ast = sink(store(0, i * 16 + j, reduce(op("MUL", *wide), "ADD", r, s)))
        made = in_words(prepared(ast).ast, target_of(WITH))
        assert (operation(made).name if made is not None else "") == name


def test_few_products_and_other_types_have_no_words() -> None:
    target = target_of(WITH)
    assert in_words(prepared(product(8, 8, 3, dtypes.bfloat16)).ast, target) is None
    assert in_words(prepared(product(8, 8, 3, dtypes.int8)).ast, target) is None
    assert in_words(prepared(product(8, 8, 34, dtypes.float16)).ast, target) is None
    assert in_words(prepared(product(8, 8, 34, dtypes.bfloat16)).ast, target_of(WITHOUT)) is None
    assert in_words(prepared(product(8, 8, 34, dtypes.bfloat16)).ast, target_of("sm_90a")) is None


def test_a_constant_factor_has_no_words() -> None:
    i, r = loop(0, 64), loop(1, 64)
    ast = sink(store(0, i, reduce(op("MUL", load(1, i * 64 + r), number(0.5)), "ADD", r)))
    assert in_words(ast, target_of(WITH)) is None


def test_words_cost_less_than_single_values() -> None:
    ast = product(256, 256, 256, dtypes.bfloat16)
    assert (
        planned(ast, target_of(WITH))[1].nanoseconds < 0.7 * planned(ast, target_of(WITHOUT))[1].nanoseconds
    )


@pytest.mark.parametrize(("layout", "k", "divided"), [("aB", 511, 1), ("Ab", 512, 0), ("AB", 511, 1)])
def test_few_workgroups_divide_the_operand_that_takes_longer_to_copy(
    layout: str, k: int, divided: int
) -> None:
    """Each workgroup copies all of the other operand; bytes that are gathered one by one take longest."""
    target = replace(target_of(WITH), cores=2)
    plan = planned(product(512, 512, k, dtypes.int8, layout), target)[1]
    groups = [s.range.arg[0] for s in plan.steps if isinstance(s, Step) and s.kind == "group"]
    assert groups == [divided]
    assert plan.launch()[0][0] == 4


@pytest.fixture(scope="module")
def native() -> str:
    with hcq.open("cpu") as device:
        arch = arch_for(device.info)
    if not has_operations(arch):
        pytest.skip("this machine has neither AVX512-BF16 nor AVX512-VNNI")
    return arch


def turned(x: np.ndarray, *, swap: bool) -> np.ndarray:
    return np.ascontiguousarray(x.swapaxes(-1, -2)) if swap else x


SIGNS = [("int8", "int8"), ("uint8", "uint8"), ("uint8", "int8"), ("int8", "uint8")]


def given(kind: str, shape: tuple[int, int], *, swap: bool) -> tuple[np.ndarray, Tensor]:
    """Return bytes of every value, and the tensor of them, in memory the other way round with `swap`."""
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    a = np.random.default_rng(shape[0]).integers(low, high + 1, shape).astype(kind)
    x = Tensor(turned(a, swap=swap)).realize()
    return a, x.T if swap else x


@pytest.mark.sampled(9)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("m", "n", "k"),
    [(33, 47, 66), (1, 40, 64), (64, 3, 130), (17, 96, 1026), (5, 7, 4), (34, 65, 68), (18, 40, 2052),
     (2, 300, 36), (40, 33, 35), (64, 130, 9), (3, 100, 5), (100, 100, 99), (31, 257, 131), (16, 24, 7)],
)  # fmt: skip
def test_products_of_bytes_are_exact(native: str, m: int, n: int, k: int, layout: str) -> None:
    del native
    for left, right in SIGNS:
        a, x = given(left, (m, k), swap=layout[0] == "A")
        b, y = given(right, (k, n), swap=layout[1] == "B")
        wanted = a.astype(np.int64) @ b.astype(np.int64)
        np.testing.assert_array_equal((x.int() @ y.int()).numpy(), wanted)
        kept = (x @ y).numpy()  # of bytes of one kind the lowest bits
        np.testing.assert_array_equal(kept, wanted.astype(left if left == right else "int16"))


@pytest.mark.parametrize("kinds", SIGNS)
def test_extreme_bytes_are_exact_and_large_sums_wrap(native: str, kinds: tuple[str, str]) -> None:
    """The last sums exceed 2**31, and those of bytes without a sign 2**32."""
    del native
    for k in (64, 4096, 132_096):
        ends = [[np.iinfo(kind).min, np.iinfo(kind).max] for kind in kinds]
        a = np.array([[v] * k for v in ends[0]] * 4).astype(kinds[0])
        b = np.array([[v] * k for v in ends[1]] * 9).astype(kinds[1]).T.copy()
        got = (Tensor(a).realize().int() @ Tensor(b).realize().int()).numpy()
        exact = a.astype(np.int64) @ b.astype(np.int64)
        np.testing.assert_array_equal(got, exact.astype(got.dtype))


COPIED: tuple[Copied, ...] = ("no", "all", "block")


@pytest.mark.parametrize(
    ("layout", "kinds"),
    [
        ("ab", (dtypes.int8, dtypes.int8)),
        ("aB", (dtypes.uint8, dtypes.uint8)),
        ("Ab", (dtypes.uint8, dtypes.uint8)),
        ("AB", (dtypes.int8, dtypes.int8)),
    ],
)
def test_every_way_to_copy_and_cut_operands_is_exact(
    native: str, layout: str, kinds: tuple[DType, DType]
) -> None:
    """Also where the rows are the operand whose bytes are changed, and the columns are summed."""
    m, n, k = 26, 84, 520
    target, ast = target_of(native), product(m, n, k, kinds[0], layout, kinds[1])
    rng = np.random.default_rng(1)
    a, b = [rng.integers(0, 256, shape).astype(np.uint8) for shape in ((m, k), (k, n))]
    wanted = [x.view(kind.name).astype(np.int64) for x, kind in zip((a, b), kinds, strict=True)]
    memory = {1: turned(a, swap=layout[0] == "A"), 2: turned(b, swap=layout[1] == "B")}
    made = 0
    for role, staged, copied, piece in product_of((0, 1), (True, False), COPIED, (0, 100)):
        choice = ProductChoice(
            form="words", role=role, rows=6, vectors=2, staged=staged, copied=copied, piece=piece
        )
        found = chosen(prepared(ast), target, choice)
        if found is None:
            continue
        ir, plan = lower(found.ast, target, found.plan)
        results = np.zeros((m, n), np.int32)
        buffers = [results, memory[1], memory[2]]
        HostKernel(target.emit(ir, target.machine(), 0)).run(
            [x.ctypes.data for x in buffers], groups=plan.launch()[0][0]
        )
        np.testing.assert_array_equal(results, wanted[0] @ wanted[1], err_msg=str(choice))
        made += 1
    assert made >= 12


def test_bytes_of_views_batches_and_padded_pictures_are_exact(native: str) -> None:
    del native
    rng = np.random.default_rng(3)
    a = rng.integers(-128, 128, (3, 40, 136)).astype(np.int8)
    b = rng.integers(0, 256, (3, 68, 50)).astype(np.uint8)
    x, y = Tensor(a).realize(), Tensor(b).realize()
    wide = [a.astype(np.int64), b.astype(np.int64)]
    np.testing.assert_array_equal((x[:, :, ::2].int() @ y.int()).numpy(), wide[0][:, :, ::2] @ wide[1])
    found = (x[:, 3:, 68:].int() @ y[1].int()).numpy()
    np.testing.assert_array_equal(found, wide[0][:, 3:, 68:] @ wide[1][1])
    signs = b.view(np.int8)
    got = (x[:, :, 1:69].int() @ Tensor(signs).realize().int()).numpy()
    np.testing.assert_array_equal(got, wide[0][:, :, 1:69] @ signs.astype(np.int64))
    image, filters = rng.integers(-128, 128, (2, 8, 13, 13)), rng.integers(-128, 128, (20, 8, 3, 3))
    pictures = [Tensor(z.astype(np.int8)).realize().cast("int32") for z in (image, filters)]
    plain = [Tensor(z.astype(np.float64)).realize() for z in (image, filters)]
    for padding, stride in ((1, 1), (2, 2)):
        sums, exact = [x.conv2d(w, padding=padding, stride=stride).numpy() for x, w in (pictures, plain)]
        np.testing.assert_array_equal(sums.astype(np.float64), exact)


@pytest.mark.sampled(9)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("m", "n", "k"), [(33, 47, 66), (1, 40, 64), (64, 3, 130), (17, 96, 1026), (5, 7, 4), (40, 70, 33)]
)
def test_products_of_bfloat16_are_rounded_once(native: str, m: int, n: int, k: int, layout: str) -> None:
    """Sums are in float32: their error is at most a few units of the largest partial sum."""
    del native
    rng = np.random.default_rng(m)
    x = Tensor(rng.standard_normal((k, m) if layout[0] == "A" else (m, k), dtype=np.float32)).cast("bfloat16")
    y = Tensor(rng.standard_normal((n, k) if layout[1] == "B" else (k, n), dtype=np.float32)).cast("bfloat16")
    x, y = x.realize(), y.realize()
    a, b = x.float().numpy().astype(np.float64), y.float().numpy().astype(np.float64)
    a, b = a.T if layout[0] == "A" else a, b.T if layout[1] == "B" else b
    x, y = x.T if layout[0] == "A" else x, y.T if layout[1] == "B" else y
    wanted = a @ b
    error = np.abs((x @ y).float().numpy() - wanted)
    assert (error <= 2.0**-8 * np.abs(wanted) + 2.0**-20 * (np.abs(a) @ np.abs(b))).all()


def test_infinities_and_nan_pass(native: str) -> None:
    del native
    a = np.ones((4, 64), np.float32)
    a[0, 3], a[1, 5], a[2, 6], a[2, 7] = np.inf, np.nan, np.inf, -np.inf
    x, y = Tensor(a).cast("bfloat16").realize(), Tensor.ones(64, 32).cast("bfloat16").contiguous().realize()
    got = (x @ y).float().numpy()
    assert np.isposinf(got[0]).all()
    assert np.isnan(got[1:3]).all()
    assert (got[3] == 64).all()


def test_operands_that_are_computed_and_convolutions_are_right(native: str) -> None:
    del native
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((40, 64), dtype=np.float32), rng.standard_normal((64, 48), dtype=np.float32)
    x, y = Tensor(a).cast("bfloat16").realize(), Tensor(b).cast("bfloat16").realize()
    wanted = np.maximum(x.float().numpy(), 0) @ (2 * y.float().numpy())
    np.testing.assert_allclose((x.relu() @ (y * 2)).float().numpy(), wanted, rtol=2.0**-7, atol=0.02)
    image, filters = rng.integers(-9, 9, (2, 6, 9, 9)), rng.integers(-9, 9, (8, 6, 3, 3))
    bytes_of = [Tensor(z.astype(np.int8)).realize().cast("int32") for z in (image, filters)]
    plain = [Tensor(z.astype(np.float32)).realize() for z in (image, filters)]
    got = bytes_of[0].conv2d(bytes_of[1], padding=1).numpy()
    np.testing.assert_array_equal(got.astype(np.float32), plain[0].conv2d(plain[1], padding=1).numpy())


def test_sums_of_products_of_halves_of_words_have_an_instruction_without_vnni() -> None:
    v, w = (load(n, loop(0, 64), dtypes.uint32) for n in (1, 2))
    low = [op("CAST", op("CAST", x, dtype=dtypes.int16), dtype=dtypes.int32) for x in (v, w)]
    shifted = [op("SHR", x, number(16, dtypes.uint32)) for x in (v, w)]
    high = [op("CAST", op("CAST", x, dtype=dtypes.int16), dtype=dtypes.int32) for x in shifted]
    for arch in ("x86_64-v3", WITHOUT):
        for first, second in ((low, high), (low, high[::-1]), (low, low), (high, low)):
            made = op("ADD", op("MUL", *first), op("MUL", *second))
            ir, _ = lower(sink(store(0, loop(0, 64), made)), target_of(arch))
            assert ("bitcast" in ir) == ((first, second) == (low, high))
            assert "vpmaddwd" in llvm.emit_assembly(ir, target_of(arch).machine())


@pytest.mark.parametrize("size", [0, 1, 2, 13, 64])
def test_sums_of_products_of_halves_of_words_are_exact(size: int) -> None:
    v, w = np.random.RandomState(size).choice([-32768, -1, 0, 3, 32767], (2, size, 2)).astype(np.int16)
    each = [(t.cast("int16"), (t >> 16).cast("int16")) for t in (Tensor(x.view(np.uint32)) for x in (v, w))]
    low, high = (x.cast("int32") * y.cast("int32") for x, y in zip(*each, strict=True))
    want = (v.astype(np.int64) * w).sum(1).astype(np.int32)
    assert (low + high).reshape(-1).numpy().tolist() == want.tolist()
