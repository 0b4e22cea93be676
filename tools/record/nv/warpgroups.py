"""Forms of products of a warpgroup: wgmma. Source: PTX ISA 9.7.15.

One warpgroup fills shared memory from the inputs, multiplies once and stores its registers. Most operands are
small integers and halves: sums are exact in every order, so layouts and descriptors are compared. The other
kinds of operands are those of `matrices`, "near" and "far".

Not here: products of one warp (`matrices`). Next: `vendor`, the list of all forms.
"""

# ruff: noqa: E501, PLR0917 - tables of forms read best one form a line

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tools.record.forms import Form, Launch, Result, frozen
from tools.record.nv.matrices import FORMATS, allowance, registers

if TYPE_CHECKING:
    from collections.abc import Iterator

_ARCH: Final = 90
_LAST: Final = 99
_THREADS: Final = 128
_BYTES: Final = 16384
"""Bytes of shared memory that are filled: 32 words for each thread."""
_TYPES: Final = (
    (("f16",), 16, ("f16", "f32")), (("bf16",), 16, ("f32",)), (("tf32",), 8, ("f32",)),
    (("e4m3", "e5m2"), 32, ("f16", "f32")), (("s8", "u8"), 32, ("s32",)), (("b1",), 256, ("s32",)),
)  # fmt: skip
_COLUMNS: Final = (8, 24, 32, 64)


def _descriptor(start: int, swizzle: int) -> int:
    """Return the descriptor of a matrix in shared memory.

    The address is in bits 0 on, the leading offset in bits 16 on, the stride offset in bits 32 on, each in
    units of 16 bytes; the swizzle mode is in bits 62 on. A tile has 8 rows: of 16 bytes without a swizzle,
    else of the swizzle's width.
    """
    width = {0: 16, 1: 128, 2: 64, 3: 32}[swizzle]
    leading, stride = 4096, 8 * width if swizzle else 128
    return start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | swizzle << 62


def _form(
    types: tuple[str, str, str],
    k: int,
    n: int,
    kind: str,
    swizzle: int,
    flags: str,
    *,
    left: bool,
    scale: int,
    sat: str = "",
) -> Form:
    """Return the form of one wgmma with both tiles in shared memory, or with A in registers."""
    a, b, d = types
    count = n // 2 // (2 if d == "f16" else 1)
    regs, given = (", ".join(f"{letter}{i}" for i in range(c)) for letter, c in (("d", count), ("l", 4)))
    name = f"wgmma.mma_async.sync.aligned.m64n{n}k{k}.{d}.{a}.{b}{sat}{'.and.popc' if a == 'b1' else ''}"
    base = " .shared .align 1024 .b8 s[16384]; .reg .b32 t, o, e; .reg .b64 g, x, y, z; .reg .pred p;\n"
    base += f" .reg .b32 {regs}, {given}; mov.u32 t, %tid.x; mov.u32 o, s; mul.wide.u32 g, t, 128; add.u64 g, g, %in; mad.lo.u32 o, t, 128, o;\n"
    for at in range(0, 128, 16):
        base += f" ld.global.v2.b64 {{x, y}}, [g+{at}]; st.shared.v2.b64 [o+{at}], {{x, y}};"
    base += f" mul.wide.u32 g, t, 16; add.u64 g, g, %in; ld.global.v4.b32 {{{given}}}, [g+{_BYTES}];\n"
    for i in range(count):
        base += f" mul.wide.u32 g, t, {4 * count}; add.u64 g, g, %in; ld.global.b32 d{i}, [g+{_BYTES + 2048 + 4 * i}];"
    base += " mov.u32 e, s; cvt.u64.u32 z, e; shr.u64 z, z, 4;"
    base += f" mov.u64 x, {_descriptor(0, swizzle)}; add.u64 x, x, z; mov.u64 y, {_descriptor(8192, swizzle)}; add.u64 y, y, z; setp.ne.u32 p, {scale}, 0;\n"
    base += " fence.proxy.async.shared::cta; bar.sync 0; wgmma.fence.sync.aligned;\n"
    base += f" {name} {{{regs}}}, {'{' + given + '}' if left else 'x'}, y, p{flags}; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;\n"
    base += " mul.wide.u32 g, t, 4; add.u64 g, g, %out;" + "".join(
        f" st.global.b32 [g+$c{i}], d{i};" for i in range(count)
    )
    shared = np.concatenate(
        [registers(one, _BYTES // 8, 1, kind, 51 + i) for i, one in enumerate((a, b))], axis=1
    )
    rest = np.concatenate(
        [registers(a, 512, 1, kind, 53), registers(d, count * _THREADS, 1, kind, 54)], axis=1
    )
    words = np.concatenate([shared, rest], axis=1)[0].astype("<u4")
    inputs = frozen(np.frombuffer(words.tobytes(), "<u8"))
    type_ = {"f16": "f16x2", "f32": "f32", "s32": "s32"}[d]
    results = tuple(Result(f"d{i}", type_, allowance(kind, a, d, k)) for i in range(count))
    label = f"{name}{flags.replace(' ', '')} swizzle {swizzle}{' registers' if left else ''}{'' if scale else ' without C'} {kind}"
    return Form(
        label, base, ("u64",), inputs, results, doubt=9 if kind == "far" else 7, rows=_THREADS, needs=_ARCH, until=_LAST,
        launch=Launch((1, 1, 1), (_THREADS, 1, 1)),
    )  # fmt: skip


def forms() -> Iterator[Form]:
    """Yield all forms of this file."""
    for types, k, sums in _TYPES:
        for a in types:
            for b in types:
                for d in sums:
                    floating = a in FORMATS
                    flags = ", 1, 1, 0, 0" if a in ("f16", "bf16") else ", 1, 1" if floating else ""
                    for n in _COLUMNS:
                        for kind in ("exact", "near", "far") if floating and n == 8 else ("exact",):
                            yield _form((a, b, d), k, n, kind, 0, flags, left=False, scale=1)
                    for swizzle in (1, 2, 3):
                        yield _form((a, b, d), k, 8, "exact", swizzle, flags, left=False, scale=1)
                    right = ", 1, 1, 0" if a in ("f16", "bf16") else flags
                    yield _form((a, b, d), k, 8, "exact", 0, right, left=True, scale=1)
                    yield _form((a, b, d), k, 8, "exact", 0, flags, left=False, scale=0)
                    if floating:
                        yield _form(
                            (a, b, d), k, 8, "exact", 0, flags.replace("1, 1", "-1, 1"), left=False, scale=1
                        )
                        yield _form(
                            (a, b, d), k, 8, "exact", 0, flags.replace("1, 1", "1, -1"), left=False, scale=1
                        )
                    if a in ("f16", "bf16"):
                        for turned in (", 1, 1, 1, 0", ", 1, 1, 0, 1", ", 1, 1, 1, 1"):
                            yield _form((a, b, d), k, 8, "exact", 0, turned, left=False, scale=1)
                        yield _form((a, b, d), k, 8, "exact", 0, ", 1, -1, 1", left=True, scale=1)
                    if a in ("s8", "u8"):
                        yield _form((a, b, d), k, 8, "exact", 0, flags, left=False, scale=1, sat=".satfinite")
