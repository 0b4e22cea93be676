"""Products of a warpgroup: every type, every layout in shared memory, A from registers, signs, and what is refused."""

# ruff: noqa: E501, PLR0917 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emulator.ir.report import ReportKind
from emulator.nv.ptx.statements import PtxError
from tests.emulator.nv.test_ptx_mma import decoded

REGS = ".reg .pred %p<4>; .reg .b32 %a<4>, %d<128>, %r<8>; .reg .b64 %rd<8>;\n"
MODES = {0: 0, 128: 1, 64: 2, 32: 3}
"""Bytes of a swizzle -> its number in a descriptor."""


def sample(rng: Any, type_: str, rows: int, k: int) -> tuple[Any, Any]:
    """Return random elements as bytes (rows x bytes of k) and their values; sums of their products are exact in float32."""
    if type_ in ("e4m3", "e5m2"):
        low, high = (0x20, 0x50) if type_ == "e4m3" else (0x38, 0x42)
        raw = rng.integers(low, high, (rows, k)).astype("u1") | rng.choice([0, 128], (rows, k)).astype("u1")
        raw[rng.random((rows, k)) < 0.1] = 0
        return raw, decoded(raw, type_)
    if type_ in ("s8", "u8"):
        values = rng.integers(-128, 128, (rows, k)) if type_ == "s8" else rng.integers(0, 256, (rows, k))
        return values.astype("i1" if type_ == "s8" else "u1").view("u1"), values
    if type_ == "b1":
        values = rng.integers(0, 2, (rows, k))
        return np.packbits(values.astype("u1"), axis=1, bitorder="little"), values
    values = rng.integers(-8, 9, (rows, k)) * 0.25
    if type_ == "f16":
        return values.astype("f2").view("u1").reshape(rows, -1), values
    bits = values.astype("f4").view("u4")
    if type_ == "bf16":
        return (bits >> 16).astype("u2").view("u1").reshape(rows, -1), values
    return (bits | 0x1234 & 0x1FFF).view("u1").reshape(rows, -1), values  # tf32: low bits are ignored


def swizzled(address: Any, mode: int) -> Any:
    """XOR the number of a 16-byte chunk with that of the 128-byte line, as far as the mode reaches."""
    return address ^ ((address >> 7) % (mode // 16 or 1)) << 4


def k_major(raw: Any, mode: int, start: int, memory: Any) -> int:
    """Write rows of 32 bytes; return the descriptor. Groups of 8 rows lie `stride` apart, with gaps."""
    width, leading = mode or 16, 4096
    stride = 8 * width + (128 if mode == 0 else 8 * width)
    for row in range(len(raw)):
        for byte in range(32):
            across = byte % 16 + byte // 16 * leading if mode == 0 else byte
            at = start + row // 8 * stride + row % 8 * width + across
            memory[swizzled(at, mode)] = raw[row, byte]
    return start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | MODES[mode] << 62


def mn_major(raw: Any, mode: int, start: int, memory: Any) -> int:
    """Write 16-bit elements, those of one k side by side; return the descriptor."""
    pairs = np.ascontiguousarray(raw).view("u2")
    width = mode or 16
    near, far = 8 * width, 8 * width * 2 + (8 * width if mode == 0 else 0)
    leading, stride = (far * 8, near) if mode == 0 else (far, near)
    for row in range(pairs.shape[0]):
        for k in range(16):
            if mode == 0:
                at = start + row % 8 * 2 + row // 8 * stride + k % 8 * 16 + k // 8 * leading
            else:
                at = start + row * 2 % mode + row * 2 // mode * leading + k % 8 * mode + k // 8 * stride
            memory[swizzled(at, mode) : swizzled(at, mode) + 2] = pairs[row, k : k + 1].view("u1")
    return start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | MODES[mode] << 62


def spread(matrix: Any) -> Any:
    """Distribute D over a warpgroup as PTX's figure shows: 128 threads x elements."""
    found = np.zeros((128, matrix.shape[1] // 2), matrix.dtype)
    for thread in range(128):
        for i in range(found.shape[1]):
            row = thread // 32 * 16 + thread % 32 // 4 + 8 * (i // 2 % 2)
            found[thread, i] = matrix[row, i // 4 * 8 + thread % 4 * 2 + i % 2]
    return found


def registers_of_a(raw: Any) -> Any:
    """Distribute A (64 rows of 32 bytes) over a warpgroup: 128 threads x 4 words."""
    words = np.ascontiguousarray(raw).view("u4")
    found = np.zeros((128, 4), "u4")
    for thread in range(128):
        for n in range(4):
            found[thread, n] = words[
                thread // 32 * 16 + thread % 32 // 4 + 8 * (n % 2), thread % 4 + 4 * (n // 2)
            ]
    return found


def kernel(modifiers: str, count: int, *, registers: bool, flags: str, scale: int) -> str:
    """Return a kernel: shared memory from `tiles`, D from `sums` and back, A's registers from `left`."""
    d = "{" + ", ".join(f"%d{n}" for n in range(count)) + "}"
    a = "{%a0, %a1, %a2, %a3}" if registers else "%rd5"
    copies = " ".join(f"ld.global.b32 %d{n}, [%rd2+{4 * n}];" for n in range(count))
    back = " ".join(f"st.global.b32 [%rd2+{4 * n}], %d{n};" for n in range(count))
    return f""".version 8.4\n.target sm_90a\n.address_size 64
.visible .entry k(.param .u64 tiles, .param .u64 sums, .param .u64 left, .param .u64 da, .param .u64 db) {{ .shared .align 1024 .b8 s[65536];\n{REGS}
ld.param.u64 %rd1, [tiles]; ld.param.u64 %rd2, [sums]; ld.param.u64 %rd3, [left]; ld.param.u64 %rd5, [da]; ld.param.u64 %rd6, [db];
ld.global.u64 %rd5, [%rd5]; ld.global.u64 %rd6, [%rd6];
mov.u32 %r0, %tid.x; mad.wide.u32 %rd2, %r0, {4 * count}, %rd2; mad.wide.u32 %rd3, %r0, 16, %rd3; shl.b32 %r1, %r0, 2; mad.wide.u32 %rd1, %r0, 4, %rd1;
mov.u32 %r2, s; add.u32 %r2, %r2, %r1; mov.u32 %r3, 0;
L: ld.global.b32 %r4, [%rd1]; st.shared.b32 [%r2], %r4; add.u64 %rd1, %rd1, 512; add.u32 %r2, %r2, 512; add.u32 %r3, %r3, 1; setp.lt.u32 %p0, %r3, 128; @%p0 bra L;
ld.global.v4.b32 {{%a0, %a1, %a2, %a3}}, [%rd3]; {copies}
fence.proxy.async.shared::cta; bar.sync 0; wgmma.fence.sync.aligned; setp.ne.u32 %p1, {scale}, 0;
wgmma.mma_async.sync.aligned.{modifiers} {d}, {a}, %rd6, %p1{flags};
wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; {back} ret; }}"""


def multiply(
    bench: Any,
    modifiers: str,
    sums: Any,
    memory: Any,
    da: int,
    db: int,
    left: Any = None,
    *,
    flags: str = "",
    scale: int = 1,
) -> Any:
    """Run one product; return the registers of D of each thread, as words."""
    words = np.ascontiguousarray(sums).view("u4")
    out = bench.map(words.copy())
    text = kernel(modifiers, words.shape[1], registers=left is not None, flags=flags, scale=scale)
    given = bench.new(np.zeros((128, 4)) if left is None else left, "u4")
    result = bench.run(
        text, "k", 1, 128, bench.map(memory.copy()), out, given, bench.new([da], "u8"), bench.new([db], "u8"), arch="sm_90a"
    )  # fmt: skip
    assert result.fault is None, result.fault
    return out


TYPES = [
    ("f32", "f16", "f16", 16), ("f16", "f16", "f16", 16), ("f32", "bf16", "bf16", 16), ("f32", "tf32", "tf32", 8),
    ("f32", "e4m3", "e4m3", 32), ("f32", "e4m3", "e5m2", 32), ("f16", "e5m2", "e4m3", 32), ("f32", "e5m2", "e5m2", 32),
    ("s32", "s8", "s8", 32), ("s32", "u8", "s8", 32), ("s32", "s8", "u8", 32), ("s32", "u8", "u8", 32),
    ("s32", "b1", "b1", 256),
]  # fmt: skip


def run_case(bench: Any, d_type: str, a_type: str, b_type: str, k: int, *, n: int, mode: int, registers: bool = False, turns: tuple[int, int] = (0, 0),
             signs: tuple[int, int] = (1, 1), scale: int = 1, words: str = "") -> tuple[Any, Any]:  # fmt: skip
    """Return the D of a product, and what NumPy has."""
    rng = np.random.default_rng(n + mode)
    raw_a, a = sample(rng, a_type, 64, k)
    raw_b, b = sample(rng, b_type, n, k)
    dtype = {"f32": "f4", "f16": "f2", "s32": "i4"}[d_type]
    before = rng.integers(-40, 40, (64, n)).astype(dtype)
    memory = np.full(65536, 0xAA, "u1")
    da = 0 if registers else (mn_major if turns[0] else k_major)(raw_a, mode, 1024, memory)
    db = (mn_major if turns[1] else k_major)(raw_b, mode, 16384, memory)
    flags = "" if d_type == "s32" else f", {signs[0]}, {signs[1]}"
    if k == 16:  # the types that may be transposed
        flags += f", {turns[1]}" if registers else f", {turns[0]}, {turns[1]}"
    modifiers = f"m64n{n}k{k}.{words}{d_type}.{a_type}.{b_type}" + (".and.popc" if a_type == "b1" else "")
    got = multiply(
        bench,
        modifiers,
        spread(before),
        memory,
        da,
        db,
        registers_of_a(raw_a) if registers else None,
        flags=flags,
        scale=scale,
    )
    want = signs[0] * signs[1] * (a @ b.T) + (before.astype("f8") if scale else 0)
    return got.view(dtype), spread(want.astype(dtype))


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("d_type", "a_type", "b_type", "k"), TYPES)
def test_products_of_every_type(bench: Any, d_type: str, a_type: str, b_type: str, k: int) -> None:
    got, want = run_case(bench, d_type, a_type, b_type, k, n=24, mode=128)
    assert np.array_equal(got, want)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("mode", [0, 32, 64, 128])
@pytest.mark.parametrize("turns", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_layouts_in_shared_memory(bench: Any, mode: int, turns: tuple[int, int]) -> None:
    got, want = run_case(bench, "f32", "bf16", "bf16", 16, n=64, mode=mode, turns=turns)
    assert np.array_equal(got, want)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("type_", "k"), [("f16", 16), ("tf32", 8), ("e4m3", 32), ("s8", 32)])
def test_a_from_registers(bench: Any, type_: str, k: int) -> None:
    got, want = run_case(
        bench, "s32" if type_ == "s8" else "f32", type_, type_, k, n=16, mode=64, registers=True
    )
    assert np.array_equal(got, want)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("signs", [(1, -1), (-1, 1), (-1, -1)])
@pytest.mark.parametrize("registers", [False, True])
def test_negated_operands(bench: Any, signs: tuple[int, int], registers: bool) -> None:  # noqa: FBT001 - a case
    got, want = run_case(bench, "f32", "f16", "f16", 16, n=8, mode=32, registers=registers, signs=signs)
    assert np.array_equal(got, want)


@pytest.mark.sampled(4)
def test_a_scale_of_zero_replaces_the_sums(any_bench: Any) -> None:
    got, want = run_case(any_bench, "f32", "f16", "f16", 16, n=256, mode=128, turns=(0, 1), scale=0)
    assert np.array_equal(got, want)


def test_integers_saturate(bench: Any) -> None:
    """A sum near the limit stays there with .satfinite and wraps without."""
    memory = np.full(65536, 127, "u1")
    top = np.full((64, 8), 2**31 - 100, "i4")
    layout = 1024 >> 4 | 8 << 32 | 1 << 16
    got = multiply(bench, "m64n8k32.s32.s8.s8.satfinite", spread(top), memory, layout, layout).view("i4")
    assert (got == 2**31 - 1).all()
    got = multiply(bench, "m64n8k32.s32.s8.s8", spread(top), memory, layout, layout).view("i4")
    assert (got == 2**31 - 100 + 32 * 127 * 127 - 2**32).all()


def test_a_nan_is_the_canonical_one(bench: Any) -> None:
    memory = np.full(65536, 0xFF, "u1")
    got = multiply(
        bench, "m64n8k16.f32.f16.f16", np.zeros((128, 4), "u4"), memory, 64, 64, flags=", 1, 1, 0, 0"
    )
    assert (got == 0x7FFFFFFF).all()


@pytest.mark.parametrize("bad", [60000 >> 4 | 64 << 32, 1 << 49 | 1 << 62])
def test_bad_descriptors_end_the_kernel(bench: Any, bad: int) -> None:
    """A tile beyond shared memory, and a base offset."""
    text = kernel("m64n8k16.f32.f16.f16", 4, registers=False, flags=", 1, 1, 0, 0", scale=1)
    space = bench.new(np.zeros(65536), "u1")
    result = bench.run(
        text, "k", 1, 128, space, space, space, bench.new([bad], "u8"), bench.new([64], "u8"), arch="sm_90a"
    )
    assert result.fault is not None
    assert result.fault.kind is ReportKind.BAD_DESCRIPTOR


@pytest.mark.parametrize(
    ("line", "word"),
    [
        (
            "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {%d0,%d1,%d2,%d3}, %rd5, %rd6, %r0, 0, 1, 1, 1, 0, 0;",
            "sparse",
        ),
        ("wgmma.mma_async.sync.aligned.m64n12k16.f32.f16.f16 {%d0,%d1,%d2,%d3}, %rd5, %rd6, 1, 1, 1, 0, 0;",
         "12"),
        ("wgmma.mma_async.sync.aligned.m64n40k32.s32.s8.s8 {%d0,%d1,%d2,%d3}, %rd5, %rd6, 1;", "40"),
        ("wgmma.mma_async.sync.aligned.m64n8k16.f16.bf16.bf16 {%d0,%d1,%d2,%d3}, %rd5, %rd6, 1, 1, 1, 0, 0;",
         "bf16"),
        ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%d0,%d1,%d2,%d3}, %rd5, %rd6, 1, 2, 1, 0, 0;",
         "scales"),
        ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%d0,%d1,%d2,%d3}, %rd5, %rd6, 1, 1, 1;",
         "constants"),
        ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%d0,%d1}, %rd5, %rd6, 1, 1, 1, 0, 0;",
         "registers of D"),
        (
            "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3.satfinite {%d0,%d1,%d2,%d3}, %rd5, %rd6, 1, 1, 1;",
            "satfinite",
        ),
    ],
)  # fmt: skip
def test_undefined_products_are_refused(bench: Any, line: str, word: str) -> None:
    text = f".version 8.4\n.target sm_90a\n.address_size 64\n.visible .entry k() {{ {REGS} {line} ret; }}"
    with pytest.raises(PtxError, match=word):
        bench.run(text, "k", 1, 128, arch="sm_90a")


def test_wgmma_needs_its_architecture(bench: Any) -> None:
    text = ".version 8.4\n.target sm_80\n.address_size 64\n.visible .entry k() { wgmma.fence.sync.aligned; ret; }"
    with pytest.raises(PtxError, match="sm_90a"):
        bench.run(text, "k", 1, 128, arch="sm_80")
