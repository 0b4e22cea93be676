"""Shared fixtures: run one PTX instruction on arrays, or a whole kernel."""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np
import pytest

from emulator.nv.ptx.module import launch, load_ptx
from emulator.shared.memory import AddressSpace
from emulator.simt.engine import Settings
from emulator.simt.work import LaunchOptions
from hcq.config import config

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emulator.simt.launch import LaunchResult

Array = np.ndarray


class Bench:
    """An address space, arrays mapped into it, and kernels run on them."""

    def __init__(self) -> None:
        self.memory = AddressSpace()
        self.settings = Settings(cache=config().cache)
        self.options: LaunchOptions | None = None
        self._kept: list[object] = []
        """Owners of mapped memory, kept so that the host does not reuse its addresses."""

    def map(self, array: Array, label: str = "") -> Array:
        """Make an array visible to the device, at its host address."""
        self._kept.append(array)
        self.memory.map(array.ctypes.data, array.nbytes, label=label)
        return array

    def new(self, data: Sequence[int] | Array, dtype: str) -> Array:
        """Return a mapped copy of some data."""
        return self.map(np.ascontiguousarray(np.array(data, dtype)))

    def run(
        self,
        text: str,
        name: str,
        grid: int,
        block: int,
        *params: Array | int,
        shared: int = 0,
        arch: str = "sm_90",
        settings: Settings | None = None,
        options: LaunchOptions | None = None,
        cluster: tuple[int, int, int] | None = None,
    ) -> LaunchResult:
        """Launch a kernel; arrays go in as pointers, ints as u32."""
        raw = b""
        for value in params:
            if isinstance(value, np.ndarray):
                raw = raw.ljust(-(-len(raw) // 8) * 8, b"\0") + struct.pack("<Q", value.ctypes.data)
            else:
                raw += struct.pack("<I", value & 0xFFFF_FFFF)
        module = load_ptx(text, arch=arch, settings=settings or self.settings)
        self._kept.append(module)
        kernel = module.kernel(name, module.place(self.memory))
        return launch(
            kernel,
            (grid, 1, 1),
            (block, 1, 1),
            raw,
            shared,
            memory=self.memory,
            options=options or self.options,
            cluster=cluster,
        )

    def apply(
        self, lines: str, output: str, *inputs: Array, registers: str = "", arch: str = "sm_90"
    ) -> Array:
        """Run `lines` once per element: they read %a, %b, %c (elements of the inputs) and write %d. `output` is a numpy dtype."""
        count = len(inputs[0])
        widths = [array.dtype.itemsize for array in inputs]
        out_width = np.dtype(output).itemsize
        params = ", ".join(f".param .u64 p{i}" for i in range(len(inputs) + 1))
        body = [
            ".reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<16>; .reg .b64 %rd<16>; .reg .b64 %at, %base; .reg .pred %in;"
        ]
        body += [f".reg .b{8 * w} %{n};" for w, n in zip(widths, "abc", strict=False)] + [
            f".reg .b{8 * out_width} %d;",
            registers,
        ]
        body += [
            "mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x; mad.lo.s32 %r0, %r0, %r1, %r2;"
        ]
        body += [f"setp.ge.u32 %in, %r0, {count}; @%in bra END;"]
        for i, (width, name) in enumerate(zip(widths, "abc", strict=False)):
            body += [
                f"ld.param.u64 %base, [p{i}]; mad.wide.u32 %at, %r0, {width}, %base; ld.global.b{8 * width} %{name}, [%at];"
            ]
        body += [lines, f"ld.param.u64 %base, [p{len(inputs)}]; mad.wide.u32 %at, %r0, {out_width}, %base;"]
        body += [f"st.global.b{8 * out_width} [%at], %d;", "END: ret;"]
        text = (
            f".version 8.0\n.target {arch}\n.address_size 64\n.visible .entry k({params}) {{\n"
            + "\n".join(body)
            + "\n}\n"
        )
        mapped = [self.new(array, array.dtype.str) for array in inputs]
        result = self.new(np.zeros(count, output), output)
        done = self.run(text, "k", -(-count // 128), 128, *mapped, result, arch=arch)
        assert done.fault is None, done.fault
        return result


@pytest.fixture
def bench() -> Bench:
    return Bench()


WAYS = [("quick", 0), ("optimised", 0), ("quick", 256), ("optimised", 256)]
"""Tiers and widths of host vectors: all settings that affect the host code of a kernel."""


@pytest.fixture(params=WAYS, ids=[f"{tier}-{width or 'widest'}" for tier, width in WAYS])
def any_bench(request: pytest.FixtureRequest) -> Bench:
    """Return a bench that runs kernels with one of these settings."""
    tier, width = request.param
    bench = Bench()
    bench.settings, bench.options = Settings(vector_bits=width, cache=config().cache), LaunchOptions(tier=tier)
    return bench


def _edges(bits: int) -> list[int]:
    top = 1 << bits
    found = {
        0, 1, 2, 3, 5, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 127, 128, 255, top - 1, top - 2, top // 2,
        top // 2 - 1, top // 2 + 1,
    }  # fmt: skip
    return sorted(v % top for v in found)


def _ints(bits: int, count: int, seed: int) -> Array:
    """Return unsigned integers of `bits`: edge values and random ones of every magnitude."""
    rng = np.random.default_rng(seed)
    edges = np.array(_edges(bits), dtype=np.uint64)
    wild = rng.integers(0, 2**64, count, dtype=np.uint64, endpoint=False) >> rng.integers(
        64 - bits, 64, count, dtype=np.uint64
    )
    mixed = np.where(rng.random(count) < 0.4, rng.choice(edges, count), wild)
    return (mixed & np.uint64((1 << bits) - 1)).astype(f"u{bits // 8}")


def _floats(bits: int, count: int, seed: int) -> Array:
    """Return floating-point patterns: special values, every magnitude, subnormals, neighbours of powers of two."""
    rng = np.random.default_rng(seed)
    dtype = {16: np.float16, 32: np.float32, 64: np.float64}[bits]
    info = np.finfo(dtype)
    special = np.array(
        [
            0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, 1.5, 2.0, 3.0, info.max, -info.max, info.tiny,
            info.smallest_subnormal, -info.smallest_subnormal, 1 + info.eps, 1 - info.eps / 2,
        ],
        dtype,
    )  # fmt: skip
    raw = _ints(bits, count, seed + 1).view(dtype) if bits > 16 else _ints(16, count, seed + 1).view(dtype)
    with np.errstate(all="ignore"):
        plain = (rng.standard_normal(count) * 10.0 ** rng.integers(-3, 4, count)).astype(dtype)
    choice = rng.random(count)
    return np.where(choice < 0.25, rng.choice(special, count), np.where(choice < 0.6, raw, plain)).astype(
        dtype
    )


@pytest.fixture
def ints():
    return _ints


@pytest.fixture
def floats():
    return _floats
