"""Forms of atomic operations. Source of the lists: PTX ISA 9.7.13.6 (atom), 9.7.13.7 (red).

Most forms run on the thread's own memory (global, shared or generic), where the result is defined. Where many
threads use one word, only results that do not depend on their order are recorded: the final value, and for
additions the sum of the old values.

Not here: asynchronous reductions (`copies`). Next: `vendor`, the list of all forms.
"""

# ruff: noqa: E501 - tables of forms read best one form a line

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tools.record.forms import BYTES, FLOATS, Form, Launch, Result, grid, scattered
from tools.record.nv.build import lanes

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOGIC: Final = ("b32", "b64")
_ORDERED: Final = ("u32", "s32", "u64", "s64")
_SMALL: Final = ("f16", "f16x2", "bf16", "bf16x2")
_TYPES: Final = {
    "and": _LOGIC, "or": _LOGIC, "xor": _LOGIC, "exch": _LOGIC, "cas": ("b16", *_LOGIC), "inc": ("u32",), "dec": ("u32",),
    "add": ("u32", "s32", "u64", "f32", "f64", *_SMALL), "min": _ORDERED, "max": _ORDERED,
}  # fmt: skip
_SPACES: Final = {"global": "$far", "shared": "$cell", "shared::cluster": "$cell", "": "$far"}
_HOPPER: Final = 90
_ORDERED_EVERYWHERE: Final = {("add", "u32"), ("cas", "b32"), ("exch", "b64"), ("max", "s32"), ("add", "f32")}
"""Operations recorded with every memory order in every space; the others only in global memory."""
_ORDERS: Final = (
    "relaxed.cta", "relaxed.gpu", "relaxed.sys", "acquire.gpu", "release.gpu", "acq_rel.gpu", "acq_rel.sys", "acq_rel.cta",
)  # fmt: skip


def _held(type_: str) -> str:
    return type_ if type_ in FLOATS else f"u{type_[1:]}"


def _since(type_: str) -> int:
    return _HOPPER if type_.startswith("bf16") else 70


def _own(operation: str, type_: str, space: str, order: str = "") -> Iterator[Form]:
    """Yield the forms of atom and, if it has one, red for one operation on the thread's own memory."""
    held, bits = _held(type_), 8 * BYTES[_held(type_)]
    operands = (held,) * (3 if operation == "cas" else 2)
    inputs = grid(operands, few=True, most=24 if order else 150, more=4 if order else 12)
    since = max(_since(type_), _HOPPER if "cluster" in space else 0)
    place, ftz = _SPACES[space], "noftz" if type_ in _SMALL else ""
    plain = {"": "global", "shared::cluster": "shared"}.get(space, space)
    words = ".".join(one for one in (order, space, operation, ftz, type_) if one)
    values = ", ".join(f"$a{n}" for n in range(1, len(operands)))
    before, after = f"st.{plain}.b{bits} [{place}], $a0;", f"ld.{plain}.b{bits} $d0, [{place}];"
    results = (Result("memory", held), Result("old", held))
    yield lanes(
        f"atom.{words}", f"{before} atom.{words} $d1, [{place}], {values}; {after}", operands, inputs, results, doubt=4 if ftz or type_[0] == "f" else 2, needs=since,
    )  # fmt: skip
    if operation not in ("exch", "cas") and order.partition(".")[0] not in ("acquire", "acq_rel"):
        yield lanes(
            f"red.{words}", f"{before} red.{words} [{place}], {values}; {after}", operands, inputs, results[:1],
            doubt=4 if ftz or type_[0] == "f" else 2, needs=since,
        )  # fmt: skip


def _vectors() -> Iterator[Form]:
    """Yield atomics of vectors of 4 to 16 bytes, which are atomic for each element."""
    kinds = [("add", "f32", 2), ("add", "f32", 4)]
    kinds += [(name, t, count) for name in ("add", "min", "max") for t in ("f16", "bf16") for count in (2, 4, 8)]  # fmt: skip
    kinds += [(name, t, count) for name in ("add", "min", "max") for t in ("f16x2", "bf16x2") for count in (2, 4)]  # fmt: skip
    for operation, type_, count in kinds:
        bits = 8 * BYTES[type_]
        words = f"global.{operation}.{'noftz.' if type_ in _SMALL else ''}v{count}.{type_}"
        ordered = f"acq_rel.gpu.{words}"
        operands = (type_, type_)
        olds, values = (", ".join(f"{letter}{n}" for n in range(count)) for letter in "xy")
        text = f".reg .b{bits} {olds}, {values}, z; "
        text += " ".join(f"mov.b{bits} y{n}, $a{n % 2}; st.global.b{bits} [$far+{n * bits // 8}], $a0;" for n in range(count))  # fmt: skip
        last = f"[$far+{(count - 1) * bits // 8}]"
        after = f"ld.global.b{bits} $d0, {last};"
        results = (Result("memory", type_), Result("old", type_))
        inputs = grid(operands, few=True, most=100)
        yield lanes(
            f"atom.{words}", f"{text} atom.{words} {{{olds}}}, [$far], {{{values}}}; {after} mov.b{bits} $d1, x{count - 1};", operands, inputs, results, doubt=5, needs=_HOPPER,
        )  # fmt: skip
        yield lanes(
            f"red.{words}", f"{text} red.{words} [$far], {{{values}}}; {after}", operands, inputs, results[:1], doubt=5, needs=_HOPPER,
        )  # fmt: skip
        yield lanes(
            f"atom.{ordered}", f"{text} atom.{ordered} {{{olds}}}, [$far], {{{values}}}; {after} mov.b{bits} $d1, x{count - 1};", operands, grid(operands, few=True, most=16), results, doubt=4, needs=_HOPPER,
        )  # fmt: skip


def _wide() -> Iterator[Form]:
    """Yield exchange and comparison of 128 bits."""
    operands = ("u64", "u64")
    inputs = scattered(operands, 8, seed=13)
    quads = ".reg .b128 q, r, s; mov.b128 q, {$a0, $a1}; mov.b128 r, {$a1, $a0}; st.global.v2.b64 [$far], {$a0, $a1}; "
    back = " ld.global.v2.b64 {$d0, $d1}, [$far]; mov.b128 {$d2, $d3}, s;"
    results = tuple(Result(name, "u64") for name in ("low", "high", "old low", "old high"))
    for name, text in (
        ("atom.global.exch.b128", "s, [$far], r"), ("atom.global.cas.b128", "s, [$far], q, r"),
        ("atom.global.cas.b128 unequal", "s, [$far], r, q"), ("atom.relaxed.gpu.global.exch.b128", "s, [$far], r"),
    ):  # fmt: skip
        yield lanes(
            name, f"{quads} {name.split(' ', maxsplit=1)[0]} {text};{back}", operands, inputs, results, doubt=4, needs=_HOPPER,
        )  # fmt: skip


_SHARED: Final = ".shared .align 16 .b8 word[16]; .reg .pred first; setp.eq.u32 first, %t, 0; @first st.shared.v2.b64 [word], {0, 0}; bar.sync 0; "


def _met() -> Iterator[Form]:
    """Yield operations of 96 threads on one word of shared memory, and of 1,024 threads on one of global memory."""
    launch = Launch((3, 1, 1), (96, 1, 1), scratch_bytes=64 * 288)
    inputs = scattered(("u32",), 288, seed=17)
    for operation, type_ in (
        ("add", "u32"), ("min", "u32"), ("max", "s32"), ("and", "b32"), ("or", "b32"), ("xor", "b32"), ("inc", "u32"), ("dec", "u32"),
    ):  # fmt: skip
        value = {"inc": "200", "dec": "200", "min": "$a0"}.get(operation, "$a0")
        text = (_SHARED + f"red.shared.{operation}.{type_} [word], {value}; bar.sync 0; ld.shared.u32 $d0, [word];")  # fmt: skip
        yield Form(
            f"red.shared.{operation}.{type_} of 96 threads", text, ("u32",), inputs, (Result("memory", "u32"),), launch=launch, doubt=3,
        )  # fmt: skip
        text = (_SHARED + f".reg .b32 o; atom.shared.{operation}.{type_} o, [word], {value}; bar.sync 0; ld.shared.u32 $d0, [word];")  # fmt: skip
        yield Form(
            f"atom.shared.{operation}.{type_} of 96 threads", text, ("u32",), inputs, (Result("memory", "u32"),), launch=launch, doubt=3,
        )  # fmt: skip
    text = _SHARED + (".reg .b32 o; atom.shared.add.u32 o, [word], 3; red.shared.add.u32 [word+4], o; bar.sync 0; ld.shared.v2.b32 {$d0, $d1}, [word];")  # fmt: skip
    yield Form(
        "sum of the old values of atom.shared.add.u32", text, ("u32",), inputs, (Result("memory", "u32"), Result("sum", "u32")), launch=launch, doubt=3,
    )  # fmt: skip
    raw = ".reg .b32 t, v, o; mov.u32 t, %tid.x; atom.global.add.u32 o, [%out+$c0], 5; red.global.add.u32 [%out+$c1], o; red.global.max.u32 [%out+$c2], o;"
    results = tuple(Result(name, "u32") for name in ("memory", "sum of old values", "largest old value"))
    yield Form(
        "atom.global.add.u32 of 1024 threads", raw, ("u32",), scattered(("u32",), 1, seed=2), results, launch=Launch((4, 1, 1), (256, 1, 1)), doubt=3,
    )  # fmt: skip


def _remote() -> Iterator[Form]:
    """Yield operations of both workgroups of a cluster on one word of the other's shared memory."""
    launch = Launch((2, 1, 1), (32, 1, 1), cluster=2, scratch_bytes=64 * 64)
    inputs = scattered(("u32",), 64, seed=37)
    head = ".shared .align 16 .b8 word[16]; .reg .b32 p, o, k; .reg .pred first; setp.eq.u32 first, %t, 0; @first st.shared.v2.b64 [word], {0, 0}; mov.u32 p, word; mov.u32 k, %cluster_ctarank; xor.b32 k, k, 1; mapa.shared::cluster.u32 p, p, k; "
    meet = " barrier.cluster.arrive; barrier.cluster.wait; "
    for words in ("add.u32", "min.u32", "max.s32", "and.b32", "or.b32", "xor.b32"):
        name, _, type_ = words.partition(".")
        text = f"{head}{meet} atom.{name}.shared::cluster.{type_} o, [p], $a0; red.relaxed.cluster.shared::cluster.{words} [p+4], $a0; {meet} ld.shared.v2.b32 {{$d0, $d1}}, [word];"
        results = (Result("atom", "u32"), Result("red", "u32"))
        yield Form(
            f"atom.{name}.shared::cluster.{type_} of the other workgroup", text, ("u32",), inputs, results, launch=launch, doubt=6, needs=_HOPPER,
        )  # fmt: skip


def forms() -> Iterator[Form]:
    """Yield all forms of this file."""
    for operation, types in _TYPES.items():
        for type_ in types:
            for space in _SPACES:
                yield from _own(operation, type_, space)
    for order in _ORDERS:
        for operation, types in _TYPES.items():
            for type_ in types:
                for space in _SPACES:
                    few = (operation, type_) in _ORDERED_EVERYWHERE or order == "acq_rel.sys"
                    if few or space == "global":
                        yield from _own(operation, type_, space, order)
    yield from _remote()
    yield from _vectors()
    yield from _wide()
    yield from _met()
