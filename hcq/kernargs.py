"""Packing of kernel arguments: generated code for the common case, a readable loop for all others.

The generated function packs open buffers of the program's own device, and ints and floats in range. It passes
all other values to `pack_values`: Params, negative numbers, buffers of peers, and invalid values.

Not here: the layout of the argument block, which the kernel image declares (`program`); the memory that it is
copied to (`kernarg_ring`).
"""

from __future__ import annotations

import functools
import operator
import struct
from array import array
from collections.abc import Callable
from types import CodeType
from typing import Any

from hcq.errors import UsageError
from hcq.memory import Buffer, Owner
from hcq.params import Expr, Param, Word, as_expr
from hcq.program import ArgKind, ArgSlot, KernArgs, KernelImage, Program

_CODES = {
    (ArgKind.POINTER, 8): "Q",
    (ArgKind.INT, 1): "B",
    (ArgKind.INT, 2): "H",
    (ArgKind.INT, 4): "I",
    (ArgKind.INT, 8): "Q",
    (ArgKind.FLOAT, 2): "e",
    (ArgKind.FLOAT, 4): "f",
    (ArgKind.FLOAT, 8): "d",
}


def compile_args(image: KernelImage, device: Owner) -> Callable[[Program, tuple[Any, ...]], KernArgs]:
    """Generate `make(program, values) -> KernArgs` for the programs of one image.

    `make` raises as `pack_values`.
    """
    if not image.args:
        return pack_values
    names = [f"a{i}" for i in range(len(image.args))]
    kinds = {ArgKind.POINTER: "Buffer", ArgKind.INT: "int", ArgKind.FLOAT: "float"}
    tests = [f"{name}.__class__ is {kinds[slot.kind]}" for name, slot in zip(names, image.args, strict=True)]
    pointers = [name for name, slot in zip(names, image.args, strict=True) if slot.kind is ArgKind.POINTER]
    tests += [f"{name}.device is device" for name in pointers]
    texts = [f"{name}.address" if name in pointers else name for name in names]
    fields = sorted((slot.offset, text) for slot, text in zip(image.args, texts, strict=True))
    if {_CODES[slot.kind, slot.size] for slot in image.args} == {"Q"}:
        words = ["   words = blank[:]", *[f"   words[{at // 8}] = {text}" for at, text in fields]]
    else:
        words = [f"   words = array('Q', pack({', '.join(text for _, text in fields)}))"]
    source = [
        "def make(program, values):",
        " try:",
        f"  {', '.join(names)}, = values",
        f"  if {' and '.join(tests)}:",
        *words,
        "   args = new(KernArgs)",  # hot: `KernArgs(...)` takes twice as long
        "   args.program, args.words, args.values, args.patches = program, words, values, ()",
        "   args.epoch = device.close_epoch",
        "   return args",
        " except (TypeError, ValueError, OverflowError, error):",
        "  pass",
        " return slow(program, values)",
    ]
    scope: dict[str, Any] = {
        "Buffer": Buffer,
        "KernArgs": KernArgs,
        "array": array,
        "blank": array("Q", bytes(image.kernarg_size)),
        "device": device,
        "error": struct.error,
        "new": object.__new__,
        "pack": struct.Struct(block_format(image)).pack,
        "slow": pack_values,
    }
    exec(_compiled("\n".join(source)), scope)  # noqa: S102 - the text holds only names and integers of our own
    make: Callable[[Program, tuple[Any, ...]], KernArgs] = scope["make"]
    return make


@functools.lru_cache(maxsize=256)
def _compiled(source: str) -> CodeType:
    """Return the code of a text; kernels with the same kinds of arguments have the same text."""
    return compile(source, "<kernel arguments>", "exec")


def block_format(image: KernelImage) -> str:
    """Return the `struct` format of an argument block, its slots ordered by offset."""
    text, at = "<", 0
    for slot in sorted(image.args, key=operator.attrgetter("offset")):
        text += f"{slot.offset - at}x" if slot.offset > at else ""
        text += _CODES[slot.kind, slot.size]
        at = slot.offset + slot.size
    return text + (f"{image.kernarg_size - at}x" if image.kernarg_size > at else "")


def pack_values(program: Program, values: tuple[Buffer | Word | float, ...]) -> KernArgs:
    """Pack any valid values.

    Raises `UsageError` for another number of values and for an invalid one, whose argument it names, and the
    error of `Buffer.live` for a closed buffer.
    """
    image = program.image
    if len(values) != len(image.args):
        names = ", ".join(slot.name for slot in image.args) or "none"
        raise UsageError(
            f"kernel {image.name} takes {len(image.args)} arguments ({names}), {len(values)} were given"
        )
    block = bytearray(image.kernarg_size)
    patches: list[tuple[int, int, Expr]] = []
    for slot, value in zip(image.args, values, strict=True):
        if isinstance(value, (Param, Expr)):
            patches.append((slot.offset, 8 * slot.size, _open(program, slot, value)))
            continue
        if slot.kind is ArgKind.POINTER:
            number: float = _address(program, slot, value)
        elif slot.kind is ArgKind.FLOAT:
            number = _float(program, slot, value)
        else:
            number = _integer(program, slot, value)
        try:
            struct.pack_into(f"<{_CODES[slot.kind, slot.size]}", block, slot.offset, number)
        except (OverflowError, struct.error):
            raise _wrong(program, slot, f"a float of {8 * slot.size} bits", value) from None
    words = array("Q")
    words.frombytes(bytes(block))
    return KernArgs(program, words, values, tuple(patches))


def _wrong(program: Program, slot: ArgSlot, wanted: str, seen: object) -> UsageError:
    return UsageError(f"kernel {program.name}, argument {slot.name}: wanted {wanted}, seen {seen!r}")


def _open(program: Program, slot: ArgSlot, value: Param | Expr) -> Expr:
    expr = as_expr(value)
    if expr.shift or expr.float_bits:
        raise _wrong(program, slot, "a Param or param + number", value)
    if slot.kind is not ArgKind.FLOAT:
        return expr
    if expr.add:
        raise _wrong(program, slot, "a plain Param (a float cannot be added to)", value)
    bits = {2: 16, 4: 32, 8: 64}[slot.size]
    return Expr(expr.param, float_bits=bits)  # type: ignore[arg-type]  # one of the literals


def _address(program: Program, slot: ArgSlot, value: object) -> int:
    if not isinstance(value, Buffer):
        raise _wrong(program, slot, "a Buffer or a Param", value)
    value.live()
    if not value.visible_to(program.device):
        what = f"kernel {program.name}, argument {slot.name}"
        raise UsageError(f"{what}: seen {value!r}, {value.unseen_by(program.device)}")
    return value.va


def _float(program: Program, slot: ArgSlot, value: object) -> float:
    if isinstance(value, (Buffer, str, bytes)):
        raise _wrong(program, slot, "a float or a Param", value)
    try:
        return float(value)  # type: ignore[arg-type]  # raises TypeError when it is no number
    except (TypeError, ValueError):
        raise _wrong(program, slot, "a float or a Param", value) from None


def _integer(program: Program, slot: ArgSlot, value: object) -> int:
    bits = 8 * slot.size
    wanted = f"an integer of {bits} bits or a Param"
    try:
        number = operator.index(value)  # type: ignore[arg-type]  # raises TypeError when it is no integer
    except TypeError:
        raise _wrong(program, slot, wanted, value) from None
    if not -(1 << bits - 1) <= number < 1 << bits:
        raise _wrong(program, slot, wanted, value)
    return number & ((1 << bits) - 1)
