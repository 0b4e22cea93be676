"""Tensor maps written on the device, and copies of boxes by coordinates: swizzles, edges, ranks, and what is refused."""

# ruff: noqa: E501 - lines of PTX read best unbroken

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emulator.ir.report import ReportKind
from emulator.nv.ptx.statements import PtxError

HEAD = ".version 8.7\n.target {arch}\n.address_size 64\n"
REGS = ".reg .pred %p<8>; .reg .b32 %r<32>; .reg .b64 %rd<16>;\n"
ELEMENTS = {"u1": 0, "u2": 1, "u4": 2, "u8": 4, "f2": 6, "f4": 7, "f8": 9}
SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
LOAD = "cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [s], [%rd1, {{{at}}}], [b];"
STORE = "cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group [%rd1, {{{at}}}], [s]; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"


def replaces(
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    box: tuple[int, ...],
    dtype: str,
    swizzle: int,
    *,
    space: str = "global",
) -> str:
    """Return the lines that write a map for a tensor at %rd2 (innermost dimension first, strides in bytes) to %rd1."""
    head = f"tensormap.replace.tile.{{}}.{space}.b1024.b{{}} [%rd1], "
    lines = [head.format("global_address", 64) + "%rd2;", head.format("rank", 32) + f"{len(shape) - 1};"]
    for n, (size, extent) in enumerate(zip(shape, box, strict=True)):
        lines += [
            head.format("global_dim", 32) + f"{n}, {size};",
            head.format("box_dim", 32) + f"{n}, {extent};",
        ]
        lines.append(head.format("element_stride", 32) + f"{n}, 1;")
    for n, stride in enumerate(strides):
        lines.append(f"mov.u64 %rd3, {stride}; " + head.format("global_stride", 64) + f"{n}, %rd3;")
    for name, value in (
        ("elemtype", ELEMENTS[dtype]),
        ("interleave_layout", 0),
        ("swizzle_mode", SWIZZLES[swizzle]),
        ("fill_mode", 0),
    ):
        lines.append(head.format(name, 32) + f"{value};")
    return "\n".join(lines)


def kernel(lines: str, *, arch: str = "sm_90a") -> str:
    """Return a kernel of one warp: `map` (%rd1), `data` (%rd2), `out`, which gets the 16 KiB of shared memory."""
    return f"""{HEAD.format(arch=arch)}.visible .entry k(.param .u64 map, .param .u64 data, .param .u64 out) {{
    .shared .align 1024 .b8 s[16384]; .shared .align 8 .b64 b;\n{REGS} mov.u32 %r0, %tid.x; setp.eq.u32 %p0, %r0, 0;
    ld.param.u64 %rd1, [map]; ld.param.u64 %rd2, [data]; ld.param.u64 %rd4, [out]; mov.u32 %r1, s;
    {lines}
    bar.warp.sync -1; mad.wide.u32 %rd4, %r0, 4, %rd4; mad.lo.u32 %r1, %r0, 4, %r1; mov.u32 %r2, 0;
    L: ld.shared.b32 %r3, [%r1]; st.global.b32 [%rd4], %r3; add.u32 %r1, %r1, 128; add.u64 %rd4, %rd4, 128; add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 128;
    @%p1 bra L; ret; }}"""


def load(bench: Any, tensor: Any, box: tuple[int, ...], at: tuple[int, ...], swizzle: int = 0) -> Any:
    """Load one box at some coordinates; both are innermost first, `tensor` is C-ordered. Return shared memory as bytes."""
    shape = tensor.shape[::-1]
    code = tensor.dtype.str[1:]
    size = int(np.prod(box)) * tensor.dtype.itemsize
    copy = LOAD.format(rank=len(shape), at=", ".join(map(str, at)))
    lines = f"""@!%p0 bra J; {replaces(shape, tensor.strides[-2::-1], box, code, swizzle)}
    mbarrier.init.shared.b64 [b], 1; fence.proxy.async.shared::cta; fence.proxy.tensormap::generic.release.gpu;
    fence.proxy.tensormap::generic.acquire.gpu [%rd1], 128;
    mbarrier.arrive.expect_tx.shared.b64 _, [b], {size}; {copy}
    W: mbarrier.try_wait.parity.shared.b64 %p2, [b], 0; @!%p2 bra W; J:"""
    out, map_ = bench.new(np.zeros(4096), "u4"), place_of_map(bench)
    result = bench.run(kernel(lines), "k", 1, 32, map_, bench.map(tensor), out, arch="sm_90a")
    assert result.fault is None, result.fault
    return out.view("u1")[:size]


def place_of_map(bench: Any) -> Any:
    """Return 128 mapped bytes, aligned as a map must be."""
    space = np.zeros(256, "u1")
    first = -space.ctypes.data % 128
    return bench.map(space[first : first + 128])


def boxed(tensor: Any, box: tuple[int, ...], at: tuple[int, ...]) -> Any:
    """Return the elements of a box, zero outside the tensor."""
    found = np.zeros(box[::-1], tensor.dtype)
    for place in np.ndindex(*found.shape):
        where = tuple(p + a for p, a in zip(place, at[::-1], strict=True))
        if all(0 <= w < n for w, n in zip(where, tensor.shape, strict=True)):
            found[place] = tensor[where]
    return found


def swizzled(raw: Any, swizzle: int) -> Any:
    """Reorder dense bytes by the XOR of the number of a 16-byte chunk with that of the 128-byte line."""
    at = np.arange(len(raw))
    out = np.zeros_like(raw)
    out[at ^ ((at >> 7) % (swizzle // 16 or 1)) << 4] = raw
    return out


@pytest.fixture
def tensor() -> Any:
    return np.arange(40 * 72, dtype="f2").reshape(40, 72)


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
def test_a_box_inside(bench: Any, tensor: Any, swizzle: int) -> None:
    width = swizzle // 2 or 64
    got = load(bench, tensor, (width, 16), (5, 7), swizzle)
    assert np.array_equal(got, swizzled(boxed(tensor, (width, 16), (5, 7)).view("u1").reshape(-1), swizzle))


@pytest.mark.parametrize("at", [(-3, -2), (60, 30), (72, 0), (-8, 39), (0, 100)])
def test_elements_outside_are_zero(bench: Any, tensor: Any, at: tuple[int, int]) -> None:
    got = load(bench, tensor, (16, 16), at)
    assert np.array_equal(got.view("f2"), boxed(tensor, (16, 16), at).reshape(-1))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", ["u1", "u4", "f8"])
@pytest.mark.parametrize("rank", [1, 3, 5])
def test_ranks_and_element_sizes(bench: Any, rank: int, dtype: str) -> None:
    shape = (3, 4, 3, 5, 32)[-rank:]
    values = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    box, at = (16, 2, 2, 3, 2)[:rank], (8, 4, 1, 2, 0)[:rank]
    assert np.array_equal(load(bench, values, box, at).view(dtype), boxed(values, box, at).reshape(-1))


def test_a_stored_box_leaves_other_elements(any_bench: Any, tensor: Any) -> None:
    """A box that sticks out at two sides is stored from swizzled shared memory."""
    lines = f"""mad.lo.u32 %r4, %r0, 4, %r1; mov.u32 %r5, %r0; mov.u32 %r2, 0;
    F: st.shared.b32 [%r4], %r5; add.u32 %r4, %r4, 128; add.u32 %r5, %r5, 32; add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 16; @%p1 bra F;
    fence.proxy.async.shared::cta; bar.warp.sync -1; @!%p0 bra J;
    {replaces((72, 40), (144,), (64, 16), "f2", 128)} {STORE.format(rank=2, at="24, -4")} J:"""
    before = tensor.copy()
    target = any_bench.map(tensor.copy())
    out = any_bench.new(np.zeros(4096), "u4")
    result = any_bench.run(kernel(lines), "k", 1, 32, place_of_map(any_bench), target, out, arch="sm_90a")
    assert result.fault is None, result.fault
    at = np.arange(2048)
    dense = np.arange(512, dtype="u4").view("u1")[at ^ ((at >> 7) % 8) << 4].view("f2").reshape(16, 64)
    before[:12, 24:72] = dense[4:, :48]
    assert np.array_equal(target.view("u2"), before.view("u2"))


def test_a_map_has_the_fields_that_ptxas_writes(bench: Any) -> None:
    """Bytes as the machine code that ptxas 13 makes of the same instructions would leave them."""
    shape, strides, box = (
        (0x1234, 0x55, 0x77, 3, 9),
        (0x40, 0x1230, 0x5_0000_0000_0, 0xAB0),
        (0x40, 2, 3, 4, 5),
    )
    lines = f"@!%p0 bra J; {replaces(shape, strides, box, 'f2', 128)} J:"
    map_ = place_of_map(bench)
    out = bench.new(np.zeros(4096), "u4")
    data = bench.new(np.zeros(4), "u4")
    result = bench.run(kernel(lines), "k", 1, 32, map_, data, out, arch="sm_90a")
    assert result.fault is None, result.fault
    words = map_.view("u4").tolist()
    assert words[0] | words[1] << 32 == data.ctypes.data
    assert words[2] == 4 << 4 | 6 << 7 | 3 << 13
    assert words[3:7] == [0x4, 0x123, 0, 0xAB]
    assert words[7] == 5 << 8
    assert words[8:13] == [size - 1 for size in shape]
    assert words[13] == 0x3F << 24
    assert words[14] == 1 | 2 << 8 | 3 << 16 | 4 << 24
    assert words[15:] == [0] * 17


def test_a_map_is_copied_by_the_warp(bench: Any) -> None:
    lines = f"""mad.lo.u32 %r4, %r0, 4, %r1; mov.u32 %r5, 0; st.shared.b32 [%r4], %r5; bar.warp.sync -1; mov.u64 %rd6, %rd1; cvt.u64.u32 %rd1, %r1; @!%p0 bra J;
    {replaces((64, 8), (256,), (32, 8), "f4", 0, space="shared::cta").replace("[%rd1]", "[%r1]")} J: bar.warp.sync -1;
    tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd6], [%r1], 128;"""
    map_, data = place_of_map(bench), bench.new(np.zeros(4), "u4")
    out = bench.new(np.zeros(4096), "u4")
    result = bench.run(kernel(lines), "k", 1, 32, map_, data, out, arch="sm_90a")
    assert result.fault is None, result.fault
    assert map_.view("u4")[8:10].tolist() == [63, 7]
    assert np.array_equal(map_, out.view("u1")[:128])


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ("tensormap.replace.tile.rank.global.b1024.b32 [%rd1], 2;", ReportKind.BAD_TENSOR_MAP),
        ("tensormap.replace.tile.element_stride.global.b1024.b32 [%rd1], 0, 2;", ReportKind.BAD_TENSOR_MAP),
        ("tensormap.replace.tile.box_dim.global.b1024.b32 [%rd1], 0, 9;", ReportKind.BAD_TENSOR_MAP),
        ("tensormap.replace.tile.fill_mode.global.b1024.b32 [%rd1], 1;", ReportKind.BAD_TENSOR_MAP),
        ("tensormap.replace.tile.interleave_layout.global.b1024.b32 [%rd1], 1;", ReportKind.BAD_TENSOR_MAP),
        ("tensormap.replace.tile.swizzle_mode.global.b1024.b32 [%rd1], 1;", ReportKind.BAD_TENSOR_MAP),
        ("tensormap.replace.tile.elemtype.global.b1024.b32 [%rd1], 13;", ReportKind.BAD_TENSOR_MAP),
        ("add.u64 %rd2, %rd2, 8; tensormap.replace.tile.global_address.global.b1024.b64 [%rd1], %rd2;", ReportKind.BAD_TENSOR_MAP),
        ("mov.u64 %rd3, 65536; tensormap.replace.tile.global_stride.global.b1024.b64 [%rd1], 0, %rd3;", ReportKind.OUT_OF_BOUNDS),
    ],
)  # fmt: skip
def test_bad_maps_end_the_kernel(bench: Any, tensor: Any, change: str, kind: ReportKind) -> None:
    lines = f"""@!%p0 bra J; {replaces((72, 40), (144,), (64, 8), "f2", 0)} {change} mbarrier.init.shared.b64 [b], 1;
    {LOAD.format(rank=2, at="0, 0")} J:"""
    out = bench.new(np.zeros(4096), "u4")
    result = bench.run(kernel(lines), "k", 1, 32, place_of_map(bench), bench.map(tensor), out, arch="sm_90a")
    assert result.fault is not None
    assert result.fault.kind is kind


def test_a_box_that_is_not_waited_for_has_not_arrived(bench: Any, tensor: Any) -> None:
    lines = f"""mad.lo.u32 %r4, %r0, 4, %r1; mov.u32 %r5, 7; mov.u32 %r2, 0;
    F: st.shared.b32 [%r4], %r5; add.u32 %r4, %r4, 128; add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 128; @%p1 bra F; bar.warp.sync -1;
    @!%p0 bra J; {replaces((72, 40), (144,), (64, 8), "f2", 0)} mbarrier.init.shared.b64 [b], 1;
    mbarrier.arrive.expect_tx.shared.b64 _, [b], 1024; {LOAD.format(rank=2, at="8, 0")} J:"""
    out = bench.new(np.zeros(4096), "u4")
    result = bench.run(kernel(lines), "k", 1, 32, place_of_map(bench), bench.map(tensor), out, arch="sm_90a")
    assert result.fault is None
    assert (out == 7).all()


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [s], [%rd1, {%r1, %r2, %r3}], [b], {%r4};", "im2col"),
        ("cp.async.bulk.tensor.2d.shared::cluster.global.tile::gather4.mbarrier::complete_tx::bytes [s], [%rd1, {%r1, %r2, %r3, %r4, %r5}], [b];", "gather4"),
        ("cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [s], [%rd1, {%r1}], [b], 3;", "multicast"),
        ("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [s], [%rd1, {%r1}], [b];", "2 coordinates"),
        ("ld.global.b32 %r1, [%rd1, {%r1}];", "coordinates"),
    ],
)  # fmt: skip
def test_other_copies_are_refused(bench: Any, line: str, word: str) -> None:
    with pytest.raises(PtxError, match=word):
        bench.run(kernel(line), "k", 1, 32, 0, 0, 0, arch="sm_90a")


REDUCED = [
    ("add", "u32", "u4"), ("add", "f32", "f4"), ("add.noftz", "f16", "f2"), ("add", "f64", "f8"), ("min", "s32", "i4"), ("max", "u64", "u8"),
    ("max", "f16", "f2"), ("and", "b32", "u4"), ("xor", "b64", "u8"), ("inc", "u32", "u4"), ("dec", "u32", "u4"),
]  # fmt: skip


def combined(operation: str, old: Any, new: Any) -> Any:
    """Return what PTX defines for a reduction."""
    plain = {
        "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    }  # fmt: skip
    if operation == "inc":
        return np.where(old >= new, 0, old + 1)
    if operation == "dec":
        return np.where((old == 0) | (old > new), new, old - 1)
    return plain[operation.removesuffix(".noftz")](old, new)


FILL = """mad.wide.u32 %rd5, %r0, 4, %rd2; mad.lo.u32 %r4, %r0, 4, %r1; mov.u32 %r2, 0;
    F: ld.global.b32 %r5, [%rd5]; st.shared.b32 [%r4], %r5; add.u64 %rd5, %rd5, 128; add.u32 %r4, %r4, 128; add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 8; @%p1 bra F;
    fence.proxy.async.shared::cta; bar.warp.sync -1;"""
"""Copies 1 KiB from %rd2 to shared memory."""


@pytest.mark.parametrize(("operation", "type_", "dtype"), REDUCED)
def test_reductions_of_bytes(bench: Any, operation: str, type_: str, dtype: str) -> None:
    rng = np.random.default_rng(len(type_))
    count = 1024 // np.dtype(dtype).itemsize
    old, new = (rng.integers(0, 100, count).astype(dtype) for _ in range(2))
    lines = f"""{FILL} @!%p0 bra J; cp.reduce.async.bulk.global.shared::cta.bulk_group.{operation}.{type_} [%rd1], [s], 1008;
    cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; J:"""
    target, out = bench.map(old.copy()), bench.new(np.zeros(4096), "u4")
    result = bench.run(kernel(lines), "k", 1, 32, target, bench.map(new), out, arch="sm_90a")
    assert result.fault is None, result.fault
    inside = 1008 // np.dtype(dtype).itemsize
    assert np.array_equal(target[:inside], combined(operation, old, new)[:inside])
    assert np.array_equal(target[inside:], old[inside:])


@pytest.mark.parametrize(("operation", "dtype"), [("add", "f4"), ("add", "f2"), ("max", "u4")])
def test_reductions_of_boxes(bench: Any, operation: str, dtype: str) -> None:
    """A swizzled box of 128 bytes a row is added to a tensor; what sticks out is dropped."""
    per = 128 // np.dtype(dtype).itemsize
    rng = np.random.default_rng(3)
    old = rng.integers(0, 100, (6, per)).astype(dtype)
    new = rng.integers(0, 100, 1024 // np.dtype(dtype).itemsize).astype(dtype)
    put = replaces((per, 6), (128,), (per, 8), dtype, 128).replace("[%rd1], %rd2", "[%rd1], %rd6")
    lines = f"""add.u64 %rd6, %rd2, 1024; {FILL} @!%p0 bra J; {put}
    cp.reduce.async.bulk.tensor.2d.global.shared::cta.{operation}.tile.bulk_group [%rd1, {{4, -1}}], [s];
    cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; J:"""
    data = np.concatenate([new, old.reshape(-1)])
    out = bench.new(np.zeros(4096), "u4")
    result = bench.run(kernel(lines), "k", 1, 32, place_of_map(bench), bench.map(data), out, arch="sm_90a")
    assert result.fault is None, result.fault
    at = np.arange(1024)
    box = new.view("u1")[at ^ ((at >> 7) % 8) << 4].view(dtype).reshape(8, per)
    want = old.copy()
    want[:, 4:] = combined(operation, old[:, 4:], box[1:7, : per - 4])
    assert np.array_equal(data[len(new) :].reshape(6, per), want)


@pytest.mark.parametrize(
    "words",
    [
        "global.shared::cta.bulk_group.add.s64",
        "global.shared::cta.bulk_group.add.f16",
        "global.shared::cta.bulk_group.inc.s32",
    ],
)
def test_undefined_reductions_are_refused(bench: Any, words: str) -> None:
    with pytest.raises(PtxError, match=r"defined|noftz"):
        bench.run(
            kernel(f"cp.reduce.async.bulk.{words} [%rd1], [s], 16;"), "k", 1, 32, 0, 0, 0, arch="sm_90a"
        )
