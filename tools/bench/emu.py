"""Speed of the emulated NVIDIA GPU, and the cost of each sanitizer: `hcq bench emu`.

Four kernels in PTX run on the engine, without driver and queue, and their results are checked: a wrong one
raises `HcqError`. Translated kernels should take: the vector add of 1M floats 3 ms, the reduction of 1M
floats in shared memory 5 ms, the tiled matmul of 256 x 256 8 ms, the divergent Collatz of 256K threads 40 ms.
A small kernel should take 60 ms from its text to its result, with translation.

Not here: the driver on the emulated GPU. Next: `rows`, how a figure is measured.
"""

# ruff: noqa: E501 - PTX is more readable with a step per line

from __future__ import annotations

import itertools
import statistics
import struct
import time
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from emulator.ir.library import Sanitizers
from emulator.nv.ptx.module import launch, load_ptx
from emulator.shared.memory import AddressSpace
from emulator.simt.engine import Settings, engine
from emulator.simt.work import LaunchOptions
from hcq.config import config
from hcq.errors import HcqError

if TYPE_CHECKING:
    from collections.abc import Callable

    from emulator.nv.ptx.module import PtxKernel
    from tools.bench.rows import Bench

Tier = Literal["quick", "optimised"]
TIERS: tuple[Tier, ...] = ("quick", "optimised")
"""Tiers of translation: "quick" compiles faster, "optimised" runs faster."""

_HEAD = """.version 7.8
.target sm_80
.address_size 64
"""
_REGISTERS = ".reg .pred %p<8>; .reg .b32 %r<64>; .reg .b64 %rd<32>; .reg .f32 %f<64>;\n"
_INDEX = "mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.u32 %r3, %r1, %r2, %r0;\n"

VADD = (
    _HEAD
    + ".visible .entry vadd(.param .u64 c, .param .u64 a, .param .u64 b, .param .u32 n) {\n"
    + _REGISTERS
    + _INDEX
    + """ld.param.u32 %r4, [n]; setp.ge.u32 %p0, %r3, %r4; @%p0 bra END;
ld.param.u64 %rd0, [a]; mad.wide.u32 %rd0, %r3, 4, %rd0; ld.param.u64 %rd1, [b]; mad.wide.u32 %rd1, %r3, 4, %rd1;
ld.global.f32 %f0, [%rd0]; ld.global.f32 %f1, [%rd1]; add.rn.f32 %f2, %f0, %f1;
ld.param.u64 %rd2, [c]; mad.wide.u32 %rd2, %r3, 4, %rd2; st.global.f32 [%rd2], %f2;
END: ret; }
"""
)

REDUCE = (
    _HEAD
    + ".visible .entry reduce(.param .u64 out, .param .u64 in) { .shared .align 16 .b8 s[1024];\n"
    + _REGISTERS
    + """mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; shl.b32 %r3, %r1, 10; add.u32 %r3, %r3, %r0;
ld.param.u64 %rd0, [in]; mad.wide.u32 %rd0, %r3, 4, %rd0;
ld.global.f32 %f0, [%rd0]; ld.global.f32 %f1, [%rd0+1024]; ld.global.f32 %f2, [%rd0+2048]; ld.global.f32 %f3, [%rd0+3072];
add.rn.f32 %f0, %f0, %f1; add.rn.f32 %f0, %f0, %f2; add.rn.f32 %f0, %f0, %f3;
mov.u32 %r4, s; mad.lo.u32 %r5, %r0, 4, %r4; st.shared.f32 [%r5], %f0; bar.sync 0; mov.u32 %r6, 128;
LOOP: setp.ge.u32 %p0, %r0, %r6; @%p0 bra SKIP; mad.lo.u32 %r7, %r6, 4, %r5;
ld.shared.f32 %f1, [%r5]; ld.shared.f32 %f2, [%r7]; add.rn.f32 %f1, %f1, %f2; st.shared.f32 [%r5], %f1;
SKIP: bar.sync 0; shr.u32 %r6, %r6, 1; setp.ne.u32 %p1, %r6, 0; @%p1 bra LOOP;
setp.ne.u32 %p2, %r0, 0; @%p2 bra END; ld.shared.f32 %f4, [s];
ld.param.u64 %rd1, [out]; mad.wide.u32 %rd1, %r1, 4, %rd1; st.global.f32 [%rd1], %f4;
END: ret; }
"""
)

COLLATZ = (
    _HEAD
    + ".visible .entry collatz(.param .u64 out, .param .u32 n) {\n"
    + _REGISTERS
    + _INDEX
    + """ld.param.u32 %r4, [n]; setp.ge.u32 %p0, %r3, %r4; @%p0 bra END; add.u32 %r5, %r3, 1; mov.u32 %r6, 0;
LOOP: setp.eq.u32 %p1, %r5, 1; @%p1 bra OUT; and.b32 %r7, %r5, 1; setp.eq.u32 %p2, %r7, 0; @%p2 bra EVEN;
mad.lo.u32 %r5, %r5, 3, 1; add.u32 %r6, %r6, 1; bra LOOP;
EVEN: shr.u32 %r5, %r5, 1; add.u32 %r6, %r6, 1; bra LOOP;
OUT: ld.param.u64 %rd0, [out]; mad.wide.u32 %rd0, %r3, 4, %rd0; st.global.u32 [%rd0], %r6;
END: ret; }
"""
)


def matmul() -> str:
    """Return the PTX of a float32 matmul with tiles of 64 x 64 x 16 in shared memory, 16 x 16 threads, 4 x 4 results per thread."""
    lines = [
        "mov.u32 %r0, %tid.x; mov.u32 %r1, %tid.y; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ctaid.y;",
        "ld.param.u32 %r4, [n]; mad.lo.u32 %r5, %r1, 16, %r0; shl.b32 %r6, %r3, 6; shl.b32 %r7, %r2, 6;",
        "ld.param.u64 %rd0, [a]; ld.param.u64 %rd1, [b]; ld.param.u64 %rd2, [c]; mov.u32 %r8, ta; mov.u32 %r9, tb; mov.u32 %r10, 0;",
        *(f"mov.f32 %f{i}, 0f00000000;" for i in range(16)),
        "K:",
    ]
    for i in range(4):
        lines += [
            f"add.u32 %r11, %r5, {256 * i}; and.b32 %r12, %r11, 15; shr.u32 %r13, %r11, 4; add.u32 %r14, %r6, %r13;",
            "mad.lo.u32 %r14, %r14, %r4, %r10; add.u32 %r14, %r14, %r12; mad.wide.u32 %rd3, %r14, 4, %rd0; ld.global.f32 %f20, [%rd3];",
            "mad.lo.u32 %r15, %r12, 65, %r13; mad.lo.u32 %r15, %r15, 4, %r8; st.shared.f32 [%r15], %f20;",
            "and.b32 %r12, %r11, 63; shr.u32 %r13, %r11, 6; add.u32 %r14, %r10, %r13; mad.lo.u32 %r14, %r14, %r4, %r7;",
            "add.u32 %r14, %r14, %r12; mad.wide.u32 %rd3, %r14, 4, %rd1; ld.global.f32 %f20, [%rd3];",
            "mad.lo.u32 %r15, %r11, 4, %r9; st.shared.f32 [%r15], %f20;",
        ]
    lines += ["bar.sync 0; mad.lo.u32 %r16, %r1, 4, %r8; mad.lo.u32 %r17, %r0, 4, %r9;"]
    for k in range(16):
        for i in range(4):
            lines.append(f"ld.shared.f32 %f{24 + i}, [%r16+{4 * (65 * k + 16 * i)}];")
            lines.append(f"ld.shared.f32 %f{28 + i}, [%r17+{4 * (64 * k + 16 * i)}];")
        for i, j in itertools.product(range(4), range(4)):
            lines.append(f"fma.rn.f32 %f{4 * i + j}, %f{24 + i}, %f{28 + j}, %f{4 * i + j};")
    lines.append("bar.sync 0; add.u32 %r10, %r10, 16; setp.lt.u32 %p0, %r10, %r4; @%p0 bra K;")
    for i, j in itertools.product(range(4), range(4)):
        lines += [
            f"add.u32 %r11, %r1, {16 * i}; add.u32 %r11, %r11, %r6; add.u32 %r12, %r0, {16 * j}; add.u32 %r12, %r12, %r7;",
            f"mad.lo.u32 %r11, %r11, %r4, %r12; mad.wide.u32 %rd3, %r11, 4, %rd2; st.global.f32 [%rd3], %f{4 * i + j};",
        ]
    shared = ".shared .align 16 .b8 ta[4160]; .shared .align 16 .b8 tb[4096];\n"
    entry = ".visible .entry matmul(.param .u64 c, .param .u64 a, .param .u64 b, .param .u32 n) {"
    return "\n".join([_HEAD + entry, shared + _REGISTERS, *lines, "ret; }"])


@dataclass(frozen=True, slots=True)
class Prepared:
    """A kernel with its memory and a check of its result."""

    name: str
    run: Callable[[Tier], float]
    """Launches on a tier and waits. Returns milliseconds; raises `HcqError` for a fault."""
    check: Callable[[], bool]
    """Returns whether the buffers hold the expected result."""


def pack(*values: Any) -> bytes:
    """Return arguments as bytes, each at a multiple of its size: arrays as pointers, numbers as u32."""
    raw = b""
    for value in values:
        if isinstance(value, np.ndarray):
            raw = raw.ljust(-(-len(raw) // 8) * 8, b"\0") + struct.pack("<Q", value.ctypes.data)
        else:
            raw += struct.pack("<I", value)
    return raw


def workloads(
    memory: AddressSpace, loaded: Callable[[str, Any, Any, bytes], Callable[[LaunchOptions], Any]]
) -> list[Prepared]:
    """Return the four kernels with their data in `memory`.

    `loaded` gets the name, grid, workgroup and arguments of a kernel; it returns a function that launches it.
    """
    rng = np.random.default_rng(1)

    def new(shape: Any, dtype: str = "f4", *, fill: bool = True) -> Any:
        array = rng.random(shape).astype(dtype) if fill else np.zeros(shape, dtype)
        memory.map(array.ctypes.data, array.nbytes)
        return array

    def prepared(name: str, grid: Any, block: Any, params: bytes, check: Callable[[], bool]) -> Prepared:
        launched = loaded(name, grid, block, params)

        def run(tier: Tier) -> float:
            result = launched(LaunchOptions(tier=tier))
            if result.fault is not None:
                raise HcqError(str(result.fault))
            return 1e3 * float(result.seconds)

        return Prepared(name, run, check)

    n, m, side = 1 << 20, 1 << 18, 256
    a, b, c, sums = new(n), new(n), new(n, fill=False), new(n // 1024, fill=False)
    left, right, product = new((side, side)), new((side, side)), new((side, side), fill=False)
    steps = new(m, "u4", fill=False)
    return [
        prepared("vadd", (n // 256, 1, 1), (256, 1, 1), pack(c, a, b, n), lambda: bool((c == a + b).all())),
        prepared("reduce", (n // 1024, 1, 1), (256, 1, 1), pack(sums, a),
                 lambda: bool(np.allclose(sums, a.reshape(-1, 1024).sum(1), rtol=1e-5))),
        prepared("matmul", (4, 4, 1), (16, 16, 1), pack(product, left, right, side),
                 lambda: bool(np.allclose(product, left @ right, rtol=1e-4))),
        prepared("collatz", (m // 256, 1, 1), (256, 1, 1), pack(steps, m), lambda: steps[26] == 111),  # 27 needs 111 steps
    ]  # fmt: skip


def prepare(checks: Sanitizers | None = None) -> list[Prepared]:
    """Return the four kernels, translated with `checks` (by default none), with data in mapped memory."""
    memory, settings = AddressSpace(), Settings(cache=config().cache, checks=checks or Sanitizers())
    texts = {"vadd": VADD, "reduce": REDUCE, "matmul": matmul(), "collatz": COLLATZ}

    def loaded(name: str, grid: Any, block: Any, params: bytes) -> Callable[[LaunchOptions], Any]:
        kernel = load_ptx(texts[name], arch="sm_80", settings=settings).kernel(name)
        return lambda options: launch(kernel, grid, block, params, memory=memory, options=options)

    return workloads(memory, loaded)


def cold() -> float:
    """Return the milliseconds from the PTX of a small kernel to its result, without any cache."""
    settings = Settings()
    engine(settings)
    out = np.zeros(64, "u4")
    memory = AddressSpace()
    memory.map(out.ctypes.data, out.nbytes)
    unique = time.time_ns() & 0xFFFF
    text = COLLATZ.replace("mov.u32 %r6, 0;", f"mov.u32 %r6, {unique};")
    start = time.perf_counter()
    kernel: PtxKernel = load_ptx(text, arch="sm_80", settings=settings).kernel("collatz")
    launch(kernel, (1, 1, 1), (64, 1, 1), pack(out, 64), memory=memory)
    return 1e3 * (time.perf_counter() - start)


def emu(bench: Bench) -> None:
    """Add rows of each kernel and tier, of the uncached small kernel, and of each kernel and sanitizer."""
    slowdowns(bench, "", times(bench, "", prepare(), cold), prepare)


def times(bench: Bench, target: str, kernels: list[Prepared], cold: Callable[[], float]) -> list[Prepared]:
    """Add rows of each kernel and tier and of the uncached small kernel, `target` before names; return `kernels`."""
    samples = 2 if bench.quick else 20
    for one in kernels:
        for tier in TIERS:
            one.run(tier)
            bench.add(f"{target}{one.name}, {tier}", [one.run(tier) for _ in range(samples)], unit="ms")
        require_right_result(one)
    bench.add(f"{target}small kernel, cold", [cold() for _ in range(samples)], unit="ms")
    return kernels


def slowdowns(
    bench: Bench, target: str, plain: list[Prepared], prepare: Callable[[Sanitizers], list[Prepared]]
) -> None:
    """Add rows of each sanitizer and kernel: the ratios of times in pairs with a kernel of `plain`."""
    alone = {f.name: Sanitizers(**{f.name: True}) for f in fields(Sanitizers)}
    for name, checks in (alone | {"all sanitizers": Sanitizers.all()}).items():
        for one, other in zip(plain, prepare(checks), strict=True):
            _slowdown(bench, target + name, one, other)


def _slowdown(bench: Bench, name: str, plain: Prepared, checked: Prepared) -> None:
    """Run a kernel alternately with and without a sanitizer; add a row of the ratios of their times."""
    checked.run("optimised")
    pairs = [(checked.run("optimised"), plain.run("optimised")) for _ in range(2 if bench.quick else 7)]
    bench.add(f"{plain.name}, {name.replace('_', ' ')}", [a / b for a, b in pairs], unit="x",
              note=f"{statistics.median(a for a, _ in pairs):.1f} ms")  # fmt: skip
    require_right_result(checked)


def require_right_result(kernel: Prepared) -> None:
    """Raise `HcqError` if the buffers do not hold the right result."""
    if not kernel.check():
        raise HcqError(f"the emulated {kernel.name} gives a wrong result")


CASES = {"emu": emu}
