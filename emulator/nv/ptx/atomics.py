"""Atomics: atom and red, of scalars and vectors. Source: PTX ISA 9.7.13.6 (atom), 9.7.13.7 (red).

Not here: asynchronous reductions (`remote`). Next: `emulator.simt.atomics`, the host's atomic operations.
"""

# ruff: noqa: E501, PLR0917 - helpers mirror the functions they write, argument for argument

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.ir.findings import i32
from emulator.nv.ptx.core import Modifiers, PtxTranslator, meaning, vector_elements
from emulator.nv.ptx.integers import is_signed
from emulator.nv.ptx.memory import (
    MemoryOrder,
    address_bits,
    plain_operands,
    take_count,
    take_order,
    take_space,
)
from emulator.nv.ptx.statements import TYPES, Operand, PtxInstruction, Vec
from emulator.sanitizers import sanitize
from emulator.simt import atomics

if TYPE_CHECKING:
    from emulator.ir.vector import IrValue

_LOGIC, _ORDERED = ("b32", "b64"), ("u32", "s32", "u64", "s64")
_SMALL = ("f16", "f16x2", "bf16", "bf16x2")
SCALARS = {
    "and": _LOGIC,
    "or": _LOGIC,
    "xor": _LOGIC,
    "exch": ("b32", "b64", "b128"),
    "cas": ("b16", "b32", "b64", "b128"),
    "add": ("u32", "s32", "u64", "f32", "f64", *_SMALL),
    "inc": ("u32",),
    "dec": ("u32",),
    "min": _ORDERED,
    "max": _ORDERED,
}
"""The types of each operation on one element."""
_VECTORS = {"add": ("f32", *_SMALL), "min": _SMALL, "max": _SMALL}
"""The types of each operation on a vector."""
_MOST_BITS = 128
"""The most bits of a vector."""


@meaning("atom", "red")
def _atom(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    """Translate atom and red. A vector is one atomic operation for each element."""
    with_result = i.opcode == "atom"
    words = ("relaxed", "acquire", "release", "acq_rel") if with_result else ("relaxed", "release")
    order = take_order(t, m, *words, scoped=False)
    operation = m.need(*SCALARS)
    found = plain_operands(t, i, m, 1 + with_result + (2 if operation == "cas" else 1))
    a, *values = found[1:] if with_result else found
    space, count = take_space(t, m, a), take_count(m)
    type_ = _take_type(t, m, operation, space, count)
    elements = [v.items if isinstance(v, Vec) else (v,) for v in values]
    if any(len(e) != count for e in elements):
        raise t.error(f"takes {count} values")
    if order.releases:
        sanitize.released(t.wf, order.scope)
    address = t.address(a, address_bits(space))
    if t.wf.counting is not None:
        t.wf.counting.access(space, "atomic", address, count * TYPES[type_] // 8, t.wf.active)
    old = apply(t, space, operation, type_, address, elements, order=order)
    if order.wide:
        sanitize.observed(t.wf, space, address, count * TYPES[type_] // 8)
    if order.acquires:
        sanitize.acquired(t.wf, order.scope)
    elif order.wide:
        sanitize.after_atomic(t.wf, space)
    if with_result:
        d = found[0]
        for target, value in zip(vector_elements(t, d, len(old)), old, strict=True):
            t.write(target, value)


def _take_type(t: PtxTranslator, m: Modifiers, operation: str, space: str, count: int) -> str:
    """Consume the type and return it. Raises `PtxError` if the operation does not have it in this space."""
    type_ = m.type()
    if type_ not in (SCALARS if count == 1 else _VECTORS).get(operation, ()):
        raise t.error(f".{operation} of {'vectors of ' if count > 1 else ''}.{type_} is not defined")
    if (type_ in _SMALL) != m.flag("noftz"):
        raise t.error(f".noftz stands with 16-bit floats and only there, not with .{type_}")
    if space not in ("global", "shared", "cluster", "generic") or (
        count > 1 and space in ("shared", "cluster")
    ):
        raise t.error(f"not in .{space}")
    if count * TYPES[type_] > _MOST_BITS:
        raise t.error(f"a vector has {_MOST_BITS} bits at most")
    return type_


def apply(
    t: PtxTranslator, space: str, operation: str, type_: str, address: IrValue, elements: list[tuple[Operand, ...]], *,
    order: MemoryOrder,
) -> list[IrValue]:  # fmt: skip
    """Append an atomic operation for each element of a vector; return the old values.

    `elements` has, for each source operand, its elements. `operation` is a key of `SCALARS`.
    """
    bits, floating = TYPES[type_], type_.lstrip("b").startswith("f")
    if floating:
        operation = f"f{operation}"
    elif operation in ("min", "max"):
        operation = ("s" if is_signed(type_) else "u") + operation
    how = order.scope.flags
    name = atomics.atomic(t.wf.lib, space, operation, bits, type_ if floating else "", how=how)
    site, old = i32(t.site()), []
    for k in range(len(elements[0])):
        place = t.c.op("add", address, k * bits // 8) if k else address
        given = [t.bits(e[k], bits) for e in elements]
        old.append(t.c.call(name, t.v(f"i{bits}"), t.wf.warp, place, *given, t.wf.active, site))
    return old
