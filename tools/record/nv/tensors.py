"""Forms of copies and reductions of boxes of a tensor; the kernel writes the tensor map. Source: PTX ISA 9.7.9.27.

The tensor has 8 rows of 64 bytes, which are 16 elements of 4 bytes. A box has 4 rows of 32 bytes. Boxes lie
inside the tensor, at its edges and across them. A store or a reduction records the whole tensor.

Not here: copies of plain bytes (`copies`). Next: `vendor`, the list of all forms.
"""

# ruff: noqa: E501, PLR0917 - tables of forms read best one form a line

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tools.record.forms import Form
from tools.record.nv.copies import (
    BULK,
    DATA,
    FENCE,
    HEAD,
    HOPPER,
    HOPPERS,
    INIT,
    LAUNCH,
    ONCE,
    RESULTS,
    WAIT,
    rows,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_LATEST: Final = 1 << 30
_REPLACE: Final = "tensormap.replace.tile.{}.{}.b1024.b{} [{}], {};"
_MAP: Final = 2048
_TENSOR: Final = 3072
"""Offsets in `%out` of the tensor map and of the tensor that stores write."""
_ROW: Final = 64
_BOX: Final = 32
"""Bytes of a row of the tensor, and of a row of a box."""
_PLACES: Final = ((0, 0), (8, 4), (12, 6), (-4, 0), (0, -2), (16, 0), (3, 7))
_ELEMENTS: Final = {"u8": (0, 1), "u16": (1, 2), "u32": (2, 4), "s32": (3, 4), "u64": (4, 8), "s64": (5, 8), "f16": (6, 2), "f32": (7, 4), "bf16": (10, 2)}
"""Type of an element -> (its number in a tensor map, its bytes)."""
_REDUCED: Final = (
    *(("u32", name) for name in ("add", "min", "max", "inc", "dec", "and", "or", "xor")), *(("s32", name) for name in ("add", "min", "max", "and")),
    *(("u64", name) for name in ("add", "min", "max", "xor")), *(("s64", name) for name in ("min", "max", "or")),
    *((t, name) for t in ("f16", "bf16") for name in ("add", "min", "max")), ("f32", "add"),
)  # fmt: skip
_DATA_OUT: Final = "mul.wide.u32 u, $lane, 16; add.u64 u, u, %out; "
_BACK: Final = f" fence.proxy.async.global; DONE: bar.warp.sync -1; ld.global.v2.b64 {{$d0, $d1}}, [u+{_TENSOR}];"


def _map(address: str, element: str = "u32", *, rank: int = 2, swizzle: int = 0) -> str:
    """Return code that writes a map of the tensor at `address` to [x], and makes it visible to copies."""
    number, size = _ELEMENTS[element]
    sizes = {1: (8 * _ROW // size,), 2: (_ROW // size, 8), 3: (_ROW // size, 4, 2)}[rank]
    box = {1: (4 * _BOX // size,), 2: (_BOX // size, 4), 3: (_BOX // size, 2, 2)}[rank]
    fields = [("global_address", 64, address), ("rank", 32, str(rank - 1))]
    for n in range(rank):
        fields += [("global_dim", 32, f"{n}, {sizes[n]}"), ("box_dim", 32, f"{n}, {box[n]}"), ("element_stride", 32, f"{n}, 1")]
    fields += [("elemtype", 32, str(number)), ("interleave_layout", 32, "0"), ("fill_mode", 32, "0"), ("swizzle_mode", 32, str(swizzle))]
    strides = ["v", "w"][: rank - 1]
    fields += [("global_stride", 64, f"{n}, {name}") for n, name in enumerate(strides)]
    text = f"add.u64 x, %out, {_MAP}; add.u32 o, n, 2048; mov.u32 l, 0; Z: add.u32 kk, o, l; st.shared.b64 [kk], 0; add.u32 l, l, 8; setp.lt.u32 p, l, 128; @p bra Z; mov.u64 v, {_ROW}; mov.u64 w, {4 * _ROW}; "
    text += " ".join(_REPLACE.format(name, "shared::cta", bits, "o", value) for name, bits, value in fields)
    text += " bar.warp.sync -1; tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [x], [o], 128;"
    return text + " fence.proxy.tensormap::generic.acquire.gpu [x], 128; "


def _at(x: int, y: int, rank: int = 2) -> tuple[str, str]:
    """Return code that sets the coordinates of a box, and the list of their registers."""
    names = ("l", "o", "m3")[:rank]
    return f".reg .b32 m3; mov.u32 l, {x}; mov.u32 o, {y}; mov.u32 m3, 0; ", ", ".join(names)


def _load(name: str, copy: str, x: int, y: int, made: str, rank: int, last: int) -> Form:
    before, coordinates = _at(x, y, rank)
    text = HEAD + INIT.format(1) + made + before + FENCE + ONCE
    text += f"prefetch.tensormap [x]; cp.async.bulk.prefetch.tensor.{rank}d.L2.global.tile [x, {{{coordinates}}}]; mbarrier.arrive.expect_tx.shared.b64 _, [b], 128; "
    text += f"{copy} [n], [x, {{{coordinates}}}], [m]; DONE: {WAIT}shl.b32 kk, $lane, 4; add.u32 kk, n, kk; bar.warp.sync -1; ld.shared.v2.b64 {{$d0, $d1}}, [kk];"
    return Form(name, text, DATA, rows(), RESULTS[:2], launch=LAUNCH, doubt=9, needs=HOPPER, until=last)


def _loads() -> Iterator[Form]:
    """Yield the loads of tiles by a tensor map, inside and across the borders of the tensor."""
    # The assembler makes a call of a copy into shared::cluster for later architectures.
    for space, last in (("shared::cluster", HOPPERS), ("shared::cta", _LATEST)):
        for swizzle in (0, 1):
            for x, y in _PLACES:
                copy = f"cp.async.bulk.tensor.2d.{space}.global.tile.{BULK}"
                name = f"cp.async.bulk.tensor.2d into {space} at {x}, {y}, swizzle {swizzle}"
                yield _load(name, copy, x, y, _map("%in", swizzle=swizzle), 2, last)
        for rank in (1, 2, 3):
            for words in ("", ".tile"):
                copy = f"cp.async.bulk.tensor.{rank}d.{space}.global{words}.{BULK}"
                yield _load(f"{copy} of rank {rank}", copy, 4, 1, _map("%in", rank=rank), rank, last)
        for element in ("u8", "u16", "u64", "f16", "bf16", "f32"):
            copy = f"cp.async.bulk.tensor.2d.{space}.global.{BULK}"
            yield _load(f"{copy} of {element} at -2, 6", copy, -2, 6, _map("%in", element), 2, last)
        changed = _map("%out") + "@first " + _REPLACE.format("global_address", "global", 64, "x", "%in")
        changed += " bar.warp.sync -1; fence.proxy.tensormap::generic.release.gpu; fence.proxy.tensormap::generic.acquire.gpu [x], 128; "
        copy = f"cp.async.bulk.tensor.2d.{space}.global.tile.{BULK}"
        yield _load(f"cp.async.bulk.tensor.2d into {space}, map changed in global memory", copy, 8, 4, changed, 2, last)


def _store(name: str, copy: str, element: str, x: int, y: int, rank: int = 2) -> Form:
    before, coordinates = _at(x, y, rank)
    text = HEAD + f".reg .b64 y; add.u64 y, %out, {_TENSOR}; " + _map("y", element, rank=rank) + _DATA_OUT
    text += f"st.global.v2.b64 [u+{_TENSOR}], {{$a1, $a0}}; shl.b32 kk, $lane, 4; add.u32 kk, n, kk; st.shared.v2.b64 [kk], {{$a0, $a1}}; "
    text += f"fence.proxy.async; {before}bar.warp.sync -1; {ONCE}{copy} [x, {{{coordinates}}}], [n]; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;{_BACK}"
    return Form(name, text, DATA, rows(), RESULTS[:2], launch=LAUNCH, doubt=9, needs=HOPPER)


def _stores() -> Iterator[Form]:
    for x, y in _PLACES:
        copy = "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group"
        yield _store(f"cp.async.bulk.tensor.2d store at {x}, {y}", copy, "u32", x, y)
    for rank in (1, 2, 3):
        copy = f"cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group"
        yield _store(copy, copy, "u32", 4, 1, rank)
    for element, operation in _REDUCED:
        for words in (f"{operation}.tile", operation):
            copy = f"cp.reduce.async.bulk.tensor.2d.global.shared::cta.{words}.bulk_group"
            if "tile" in words or element == "u32":
                yield _store(f"{copy} of {element}", copy, element, 4, 6)
    for rank in (1, 3):
        copy = f"cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.add.tile.bulk_group"
        yield _store(copy, copy, "u32", 4, 1, rank)


def forms() -> Iterator[Form]:
    """Yield all forms of this file."""
    yield from _loads()
    yield from _stores()
