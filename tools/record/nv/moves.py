"""Forms of moves, loads, stores, addresses and hints. Source of the lists: PTX ISA 9.7.9.

A load reads what a plain store of the same thread wrote; a plain load of the same thread reads what a store
wrote. A form with a hint records the value, because a hint has no other result.

Not here: atomics (`atomics`), asynchronous copies (`copies`). Next: `vendor`, the list of all forms.
"""

# ruff: noqa: E501, PLR0917 - tables of forms read best one form a line

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tools.record.forms import Allowed, Form, Launch, Result, frozen, grid, scattered
from tools.record.nv.build import CELL, lanes

if TYPE_CHECKING:
    from collections.abc import Iterator

_WIDTHS: Final = (8, 16, 32, 64)
_KINDS: Final = {8: "bus", 16: "bus", 32: "busf", 64: "busf"}
_OPAQUE: Final = Allowed("free", rule="PTX ISA 9.7.9: a cache policy is opaque")
_ROWS: Final = 8
_DATA: Final = ("u64", "u64")
_THIRTY_TWO: Final = frozen([[0]] * 32)[:, :0]
"""The rows of one warp, without operands."""
_BLACKWELL: Final = 100
_HOPPER: Final = 90
_NARROW: Final = 32
"""The least bits of a function's parameter."""
_CLOSE: Final = 128
"""Bits of the widest access of architectures before Blackwell."""
LOCAL: Final = ".local .align 32 .b8 l[64]; "
_SPACES: Final = {
    "global": "$far", "shared": "$cell", "local": "l", "": "$far", "shared::cta": "$cell", "shared::cluster": "$cell",
}  # fmt: skip
"""State space -> the address of the thread's own memory."""
_L1: Final = (
    "L1::evict_normal",
    "L1::evict_unchanged",
    "L1::evict_first",
    "L1::evict_last",
    "L1::no_allocate",
)
_SCOPES: Final = ("cta", "gpu", "sys", "cluster")


def _rows() -> object:
    return scattered(_DATA, _ROWS, seed=11)


def _words(count: int, bits: int) -> str:
    names = ", ".join(f"r{n}" for n in range(count))
    return f".reg .b{max(16, bits)} {names}; "


def _listed(count: int) -> str:
    names = ", ".join(f"r{n}" for n in range(count))
    return f"{{{names}}}" if count > 1 else "r0"


def _load(
    name: str, type_: str, space: str, count: int = 1, tail: str = "", since: int = 0, doubt: int = 1
) -> Form:
    """Return the form of a load of `count` elements from memory that holds both operands."""
    bits = int(type_[1:])
    text = (LOCAL if space == "local" else "") + _words(count, bits)
    place, plain = _SPACES[space], {"": "global", "shared::cluster": "shared"}.get(space, space)
    text += f"st.{plain}.v2.b64 [{place}], {{$a0, $a1}}; "
    if count * bits > _CLOSE:
        text += f"st.{plain}.v2.b64 [{place}+16], {{$a1, $a0}}; "
    text += f"{name} {_listed(count)}, [{place}]{tail}; "
    results, stores = [], []
    for n in range(count):
        # A narrow load extends to its register, by sign for signed types.
        results.append(Result(f"r{n}", f"u{max(16, bits)}"))
        stores.append(f"mov.b{max(16, bits)} $d{n}, r{n};")
    return lanes(name, text + " ".join(stores), _DATA, _rows(), tuple(results), doubt=doubt, needs=since)


def _store(
    name: str, type_: str, space: str, count: int = 1, tail: str = "", since: int = 0, doubt: int = 1
) -> Form:
    bits = int(type_[1:])
    text = (LOCAL if space == "local" else "") + _words(count, bits)
    place, plain = _SPACES[space], {"": "global", "shared::cluster": "shared"}.get(space, space)
    text += f"st.{plain}.v2.b64 [{place}], {{$a1, $a1}}; "
    if bits == 64:
        text += " ".join(f"mov.b64 r{n}, $a{n % 2};" for n in range(count))
    else:
        text += " ".join(f"cvt.u{max(16, bits)}.u64 r{n}, $a{n % 2};" for n in range(count))
    text += f" {name} [{place}], {_listed(count)}{tail}; ld.{plain}.v2.b64 {{$d0, $d1}}, [{place}];"
    results = [Result("low", "u64"), Result("high", "u64")]
    if count * bits > _CLOSE:
        text += f" ld.{plain}.v2.b64 {{$d2, $d3}}, [{place}+16];"
        results += [Result("third", "u64"), Result("fourth", "u64")]
    return lanes(name, text, _DATA, _rows(), tuple(results), doubt=doubt, needs=since)


def _accesses() -> Iterator[Form]:
    """Yield loads and stores of all spaces, widths, kinds and vectors."""
    for space in _SPACES:
        dot = f".{space}" if space else ""
        since = _HOPPER if space == "shared::cluster" else 0
        for bits in _WIDTHS:
            for kind in _KINDS[bits]:
                for count in (1, 2, 4, 8):
                    wide = count * bits > _CLOSE
                    if (wide and (space != "global" or count * bits > 2 * _CLOSE)) or (
                        count == 8 and bits != 32
                    ):
                        continue
                    if (space in ("shared::cta", "shared::cluster") and count > 1) or (wide and kind == "u"):
                        continue
                    vector = f".v{count}" if count > 1 else ""
                    type_ = f"{kind}{bits}"
                    needs = _BLACKWELL if wide else since
                    yield _load(f"ld{dot}{vector}.{type_}", type_, space, count, since=needs)
                    yield _store(f"st{dot}{vector}.{type_}", type_, space, count, since=needs)


def _ordered() -> Iterator[Form]:
    for space in ("global", "shared", ""):
        dot = f".{space}" if space else ""
        for type_ in ("u32", "b32", "b64", "u8"):
            yield _load(f"ld.volatile{dot}.{type_}", type_, space)
            yield _store(f"st.volatile{dot}.{type_}", type_, space)
            for scope in _SCOPES:
                since = _HOPPER if scope == "cluster" else 0
                for order in ("relaxed", "acquire"):
                    yield _load(f"ld.{order}.{scope}{dot}.{type_}", type_, space, since=since)
                for order in ("relaxed", "release"):
                    yield _store(f"st.{order}.{scope}{dot}.{type_}", type_, space, since=since)
    yield _load("ld.mmio.relaxed.sys.global.u32", "u32", "global")
    yield _store("st.mmio.relaxed.sys.global.u32", "u32", "global")
    yield _load("ld.weak.global.u32", "u32", "global")
    yield _store("st.weak.global.u32", "u32", "global")


def _hinted() -> Iterator[Form]:
    """Yield loads and stores with hints for caches, and those of 128 bits."""
    policy = ".reg .b64 y; createpolicy.fractional.L2::evict_last.b64 y, 0.5; "
    for hint in ("ca", "cg", "cs", "lu", "cv"):
        yield _load(f"ld.global.{hint}.u32", "u32", "global")
    for hint in ("wb", "cg", "cs", "wt"):
        yield _store(f"st.global.{hint}.u32", "u32", "global")
    yield _store("st.local.wt.b32", "b32", "local")
    for hint in _L1:
        yield _load(f"ld.global.{hint}.u32", "u32", "global")
        if hint != "L1::evict_unchanged":
            yield _store(f"st.global.{hint}.u32", "u32", "global")
    for size in ("L2::64B", "L2::128B", "L2::256B"):
        yield _load(f"ld.global.{size}.u32", "u32", "global")
    text = policy + ".reg .b32 r; st.global.u64 [$far], $a0; "
    result = (Result("d", "u64"),)
    for name in (
        "ld.global.L2::cache_hint.b64", "ld.global.L1::no_allocate.L2::cache_hint.b64",
        "ld.global.L1::evict_last.L2::cache_hint.L2::128B.b64",
    ):  # fmt: skip
        yield lanes(name, f"{text} {name} $d0, [$far], y;", _DATA, _rows(), result, doubt=1)
    name = "st.global.L2::cache_hint.b64"
    yield lanes(name, f"{text} {name} [$far], $a1, y; ld.global.b64 $d0, [$far];", _DATA, _rows(), result, doubt=1)  # fmt: skip
    for type_ in ("b32", "u32", "f32"):
        text = f".reg .b32 r; ld.global.nc.{type_} r, [$at]; cvt.u64.u32 $d0, r;"
        yield lanes(f"ld.global.nc.{type_}", text, _DATA, _rows(), result, doubt=1)
    for type_ in ("u64", "f64"):
        yield lanes(f"ld.global.nc.{type_}", f"ld.global.nc.{type_} $d0, [$at];", _DATA, _rows(), result)
        pair = (*result, Result("e", "u64"))
        text = f"ld.global.nc.v2.{type_} {{$d0, $d1}}, [$at];"
        yield lanes(f"ld.global.nc.v2.{type_}", text, _DATA, _rows(), pair)
    for vector in ("", ".v2"):
        for form in (
            "ld.global.nc",
            "ldu.global",
            "ld.global.nc.L1::no_allocate.L2::128B",
            "ld.global.nc.L1::evict_last",
        ):
            target = "{$d0, $d1}" if vector else "$d0"
            name = f"{form}{vector}.b64"
            results = (*result, Result("e", "u64")) if vector else result
            if vector and form == "ldu.global":
                name = f"{form}{vector}.u64"
            yield lanes(name, f"{name} {target}, [$at];", _DATA, _rows(), results, doubt=1)
    name = "ld.global.nc.L1::no_allocate.L2::cache_hint.L2::128B.b64"
    yield lanes(name, f"{policy} {name} $d0, [$at], y;", _DATA, _rows(), result, doubt=1)
    yield lanes("ldu.global.u32", ".reg .b32 r; ldu.global.u32 r, [$at]; cvt.u64.u32 $d0, r;", _DATA, _rows(), result)  # fmt: skip
    for space in ("global", "shared", "local"):
        name = f"ld.{space}.b128" if space == "global" else ""
        if name:
            quad = ".reg .b128 q; st.global.v2.b64 [$far], {$a0, $a1}; "
            text = f"{quad} {name} q, [$far]; mov.b128 {{$d0, $d1}}, q;"
            yield lanes(name, text, _DATA, _rows(), (*result, Result("e", "u64")), needs=_HOPPER - 20)
    quad = ".reg .b128 q; mov.b128 q, {$a0, $a1}; "
    results = (*result, Result("e", "u64"))
    back = "ld.global.v2.b64 {$d0, $d1}, [$far];"
    yield lanes("st.global.b128", f"{quad} st.global.b128 [$far], q; {back}", _DATA, _rows(), results, needs=70)  # fmt: skip
    for order in ("relaxed", "acquire"):
        name = f"ld.{order}.sys.global.b128"
        text = f"{quad} st.global.b128 [$far], q; {name} q, [$far]; mov.b128 {{$d0, $d1}}, q;"
        yield lanes(name, text, _DATA, _rows(), results, needs=70)
    yield lanes(
        "st.release.gpu.global.b128", f"{quad} st.release.gpu.global.b128 [$far], q; {back}", _DATA, _rows(), results,
        needs=70,
    )  # fmt: skip


_SILENT: Final = (
    *(f"prefetch.{space}.{level} [$far]" for space in ("global", "local") for level in ("L1", "L2")),
    "prefetch.global.L2::evict_last [$far]", "prefetch.global.L2::evict_normal [$far]", "prefetchu.L1 [$far]",
    "applypriority.global.L2::evict_normal [$far], 128", "pmevent 1", "nanosleep.u32 20", "membar.cta", "membar.gl",
    "membar.sys", "fence.proxy.alias", "membar.proxy.alias",
    *(f"fence.{word}.{scope}" for word in ("acq_rel", "sc") for scope in ("cta", "gpu", "sys")),
)  # fmt: skip
"""Instructions without a result."""
_SILENT_HOPPER: Final = (
    "griddepcontrol.wait", "griddepcontrol.launch_dependents", "fence.acq_rel.cluster", "fence.sc.cluster",
    "fence.proxy.async", "fence.proxy.async.global", "fence.proxy.async.shared::cta", "fence.proxy.async.shared::cluster",
    "fence.mbarrier_init.release.cluster", "fence.acquire.cta", "fence.release.gpu", "fence.acquire.sys", "fence.release.sys",
    "fence.acquire.gpu", "fence.release.cta", "fence.acquire.cluster", "fence.release.cluster",
    "fence.acquire.sync_restrict::shared::cluster.cluster", "fence.release.sync_restrict::shared::cta.cluster",
    "fence.proxy.tensormap::generic.release.gpu", "fence.proxy.tensormap::generic.release.cta",
    "fence.proxy.tensormap::generic.release.sys", "fence.proxy.tensormap::generic.release.cluster",
    "fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster",
    "fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster",
)  # fmt: skip


def _silent() -> Iterator[Form]:
    """Yield prefetches, fences, discards and policies of caches."""
    result = (Result("d", "u64"),)
    for since, texts in ((0, _SILENT), (_HOPPER, _SILENT_HOPPER)):
        for one in texts:
            before, text = "st.global.u64 [$far], $a0; ", one
            if "applypriority" in one:  # of 128 bytes that are aligned so
                before, text = f".reg .b64 t; and.b64 t, $far, -128; {before}", one.replace("$far", "t")
            if ".local" in one:
                before, text = f"{LOCAL} {before} st.local.u64 [l], $a0; ", one.replace("[$far]", "[l]")
            name = one.partition(" ")[0]
            yield lanes(name, f"{before} {text}; ld.global.u64 $d0, [$far];", _DATA, _rows(), result, needs=since)  # fmt: skip
    for scope in ("cta", "gpu", "sys", "cluster"):
        # The acquire takes the 128 bytes of a tensor map, so the address has their alignment.
        text = ".reg .b64 t; and.b64 t, $far, -128; st.global.u64 [$far], $a0; "
        name = f"fence.proxy.tensormap::generic.acquire.{scope}"
        yield lanes(name, f"{text} {name} [t], 128; ld.global.u64 $d0, [$far];", _DATA, _rows(), result, needs=_HOPPER)  # fmt: skip
    # Bytes that were discarded are undefined: those that are recorded were written afterwards.
    text = ".reg .b64 t; and.b64 t, $far, -128; discard.global.L2 [t], 128; bar.warp.sync -1; st.global.u64 [$far], $a0;"
    yield lanes("discard.global.L2", f"{text} ld.global.u64 $d0, [$far];", _DATA, scattered(_DATA, 128, seed=11), result)  # fmt: skip
    opaque = (Result("d", "u64", _OPAQUE),)
    for text in (
        "createpolicy.fractional.L2::evict_last.b64 $d0, 0.5", "createpolicy.fractional.L2::evict_first.b64 $d0",
        "createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64 $d0, 0.5",
        "createpolicy.fractional.L2::evict_normal.b64 $d0, 1.0",
        "createpolicy.range.global.L2::evict_last.L2::evict_first.b64 $d0, [$far], 64, 256",
        "createpolicy.range.L2::evict_last.b64 $d0, [$far], 64, 256", "createpolicy.cvt.L2.b64 $d0, 0",
    ):  # fmt: skip
        yield lanes(text.partition(" ")[0], f"{text};", _DATA, _rows(), opaque)


def _moves() -> Iterator[Form]:
    for bits, kinds in ((16, "bus"), (32, "busf"), (64, "busf")):
        for kind in kinds:
            name, held = f"mov.{kind}{bits}", f"u{bits}"
            yield lanes(name, f"{name} $d0, $a0;", (held,), grid((held,)), (Result("d", held),))
    yield lanes("mov.pred", "mov.pred $d0, $a0;", ("pred",), grid(("pred",)), (Result("d", "pred"),))
    for bits, parts in ((32, 2), (64, 2), (64, 4)):
        held, part = f"u{bits}", bits // parts
        names = ", ".join(f"r{n}" for n in range(parts))
        turned = ", ".join(f"r{(n + 1) % parts}" for n in range(parts))
        text = f".reg .b{part} {names}; mov.b{bits} {{{names}}}, $a0; mov.b{bits} $d0, {{{turned}}};"
        yield lanes(f"mov.b{bits} of {parts}", text, (held,), grid((held,), more=8), (Result("d", held),))
    text = ".reg .b128 q; mov.b128 q, {$a0, $a1}; mov.b128 {$d1, $d0}, q;"
    results = (Result("d", "u64"), Result("e", "u64"))
    yield lanes("mov.b128", text, _DATA, _rows(), results, needs=70)


def _addresses() -> Iterator[Form]:
    """Yield conversions of addresses to generic ones and back, and tests for the space of an address."""
    spaces = {"global": "$far", "shared": "s", "local": "l", "shared::cta": "s", "shared::cluster": "s"}
    for space, there in spaces.items():
        place = "u" if space == "local" else there
        since = _HOPPER if "cluster" in space else 0
        text = LOCAL + ".reg .b64 s, t, u; cvt.u64.u32 s, $cell; "
        if space == "local":
            text += "mov.u64 u, l; "
        text += f"cvta.{space}.u64 t, {place}; cvta.to.{space}.u64 t, t; xor.b64 $d0, t, {place};"
        yield lanes(f"cvta.{space}.u64", text, _DATA, _rows(), (Result("d", "u64"),), needs=since)
        asked = [name for name in ("global", "shared", "local", "const", "shared::cta", "shared::cluster") if name]  # fmt: skip
        for what in asked:
            needs = _HOPPER if "cluster" in what + space else 0
            text = LOCAL + ".reg .b64 s, t, u; .reg .pred p; cvt.u64.u32 s, $cell; "
            if space == "local":
                text += "mov.u64 u, l; "
            text += f"cvta.{space}.u64 t, {place}; isspacep.{what} p, t; selp.u32 $d0, 1, 0, p;"
            name = f"isspacep.{what} of {space}"
            yield lanes(name, text, _DATA, _rows(), (Result("d", "u32"),), doubt=2, needs=needs)
    for what in (
        "cvta.param.u64 t, in; cvta.to.param.u64 u, t; ld.param.u64 $d0, [u]; xor.b64 $d0, $d0, v;",
    ):
        text = f".reg .b64 t, u, v; ld.param.u64 v, [in]; {what}"
        yield Form("cvta.param.u64", text, (), _THIRTY_TWO, (Result("d", "u64"),), doubt=2, needs=70)
    text = ".reg .b64 t; .reg .pred p; cvta.param.u64 t, in; isspacep.param p, t; selp.u32 $d0, 1, 0, p;"
    yield Form("isspacep.param::entry", text.replace("isspacep.param ", "isspacep.param::entry "), (), _THIRTY_TWO, (Result("d", "u32"),), doubt=2, needs=70)  # fmt: skip


def _constants() -> Iterator[Form]:
    """Yield loads of constant memory and of parameters."""
    head = ".const .align 16 .b8 c[16] = {1, 2, 130, 4, 5, 6, 7, 248, 9, 10, 11, 12, 13, 14, 15, 240};\n%%\n"
    launch = Launch(scratch_bytes=CELL * 32)
    for bits in _WIDTHS:
        for kind in _KINDS[bits]:
            for count in (1, 2, 4):
                if count * bits > _CLOSE:
                    continue
                vector = f".v{count}" if count > 1 else ""
                name = f"ld.const{vector}.{kind}{bits}"
                text = _words(count, bits) + f"{name} {_listed(count)}, [c];"
                text += "".join(f" mov.b{max(16, bits)} $d{n}, r{n};" for n in range(count))
                results = tuple(Result(f"r{n}", f"u{max(16, bits)}") for n in range(count))
                yield Form(name, head + text, (), _THIRTY_TWO, results, launch=launch)
    text = ".reg .b64 t, u; ld.param::entry.u64 t, [in]; mov.u64 u, in; ld.param.u64 $d0, [u]; xor.b64 $d0, $d0, t;"
    yield Form("ld.param::entry.u64", text, (), _THIRTY_TWO, (Result("d", "u64"),))


def _parameters() -> Iterator[Form]:
    """Yield loads of each type from a kernel's parameters, and calls with a parameter and a result."""
    for bits in _WIDTHS:
        for kind in _KINDS[bits]:
            type_, held = f"{kind}{bits}", max(16, bits)
            text = f".reg .b{held} r, t; .reg .b64 u; ld.param.u64 u, [in]; ld.param.{type_} r, [in]; mov.b{held} $d0, r;"
            # An address is no result: what the type takes of it is.
            whole = f"cvt.{'s' if kind == 's' else 'u'}{held}.{'s' if kind == 's' else 'u'}{bits}" if bits < held else f"cvt.u{held}.u64"
            cut = f"cvt.u16.u64 t, u; {whole} t, t;" if bits < held else f"{whole} t, u;" if bits < 64 else "mov.b64 t, u;"
            yield Form(f"ld.param.{type_}", f"{text} {cut} xor.b{held} $d0, $d0, t;", (), _THIRTY_TWO, (Result("d", f"u{held}"),), doubt=1)
            if bits < _NARROW:
                continue
            function = f".func (.param .b{bits} back) f(.param .b{bits} given) {{ .reg .b{bits} %x; ld.param.{type_} %x, [given]; not.b{bits} %x, %x; st.param.{type_} [back], %x; ret; }}\n%%\n"
            call = f"{{ .param .b{bits} g; .param .b{bits} b; st.param.{type_} [g], $a0; call (b), f, (g); ld.param.{type_} $d0, [b]; }}"
            operands = (f"u{bits}",)
            yield Form(f"st.param.{type_}", function + call, operands, scattered(operands, 32, seed=41), (Result("d", f"u{bits}"),), doubt=1)


def forms() -> Iterator[Form]:
    """Yield all forms of this file."""
    yield from _moves()
    yield from _accesses()
    yield from _ordered()
    yield from _hinted()
    yield from _silent()
    yield from _addresses()
    yield from _constants()
    yield from _parameters()
