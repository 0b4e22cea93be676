"""Loads and stores of lanes: flat, global, scratch, LDS.

An access completes at once. Accesses may have any alignment, except atomic operations and scalar loads: Linux
sets SH_MEM_CONFIG.ALIGNMENT_MODE to UNALIGNED, which code objects of HSA expect (LLVM: `unaligned-access-mode`).

In all functions `space` is "global", "local" (scratch), "generic" (flat) or "shared" (LDS). `mask` has the lanes
that take part. `how` is the scope of the access (`instruction.reach`), 0 for a plain access.

Not here: missing waits (`waits`), atomic operations and buffers (`memory_atomics`), scalar loads
(`scalar_memory`), operands (`memory_operands`). Next: `emulator.simt.access`, the checks of addresses.
"""

# ruff: noqa: E501, PLR0917 - an access has that many parts; tables of operations read best one a line

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from emulator.amd.isa.instruction import Operand, Reg, reach
from emulator.amd.isa.known_values import ValueOrigin
from emulator.amd.isa.meanings import MEANINGS
from emulator.amd.isa.orders import RELEASED_UNMARKED, UNMARKED_STORE
from emulator.ir.addresses import STRONG, UNMARKED, address_type
from emulator.ir.findings import i32
from emulator.ir.ir_text import bits_of
from emulator.sanitizers import sanitize, shadow_shared
from emulator.simt import access, rows
from emulator.simt.rows import PLAIN, SIGNED, UNSIGNED, structure

if TYPE_CHECKING:
    from emulator.amd.isa.values import IsaTranslator
    from emulator.ir.library import Library
    from emulator.ir.vector import CodeBuilder, IrValue

_ATOMIC_STORE = re.compile(r"b(8|16|32|64)(_d16_hi)?")
_SPACES = {"global": "global", "scratch": "local", "flat": "generic"}
"""First word of an instruction -> the engine's name of the space."""
_SHAPES = ((32, 4, PLAIN), (32, 1, UNSIGNED), (32, 4, UNSIGNED), (64, 4, PLAIN))
"""(bits, step, extension) of address registers whose row search is compiled at the engine's start."""


def how(t: IsaTranslator) -> int:
    """Return the scope of the current instruction: `reach`, except for two cases.

    STRONG for a load that a compare-and-swap validates (`guesses`), UNMARKED for a store that may be atomic
    (`orders`).
    """
    if t.instruction.address in t.guesses:
        return STRONG
    if t.orders.get(t.instruction.address) in (RELEASED_UNMARKED, UNMARKED_STORE):
        return UNMARKED
    return reach(t.instruction, t.target.family)


def flat_address(t: IsaTranslator, at: int) -> tuple[str, IrValue]:
    """Return the space and the addresses of a FLAT instruction; operand number `at` has the vector address."""
    c, i = t.c, t.instruction
    space = _SPACES[t.stem.split("_", 1)[0]]
    vector, base = i.operands[at], _base(t)
    offset = i.get("offset")
    if space == "local":
        address = t.raw(vector) if isinstance(vector, Reg) else c.zero(t.v("i32"))
        if base is not None:
            address = c.op("add", address, c.splat(t.scalar(base), t.lanes))
        return space, c.op("add", address, offset) if offset else address
    if base is None:
        address = t.raw(vector, 64)
    else:
        wide = t.known.extended(c, t.raw(vector))
        address = t.known.sum(c, wide, t.known.splat(c, t.scalar(base, 64), t.lanes))
    return space, t.known.plus(c, address, offset)


def _base(t: IsaTranslator) -> Operand | None:
    last = t.instruction.operands[-1]
    return last if isinstance(last, Reg) and last.file == "s" else None


def local_address(t: IsaTranslator, operand: Operand, offset: int) -> IrValue:
    """Return the addresses in LDS: an operand plus an offset in bytes."""
    return t.known.plus(t.c, t.raw(operand), offset)


def _access(lib: Library, space: str, bits: int, count: int, *, stores: bool, how: int) -> str:
    """Return the helper that loads or stores `count` integers of `bits` for each lane, of any alignment.

    If all lanes are aligned, it is one access. Else it splits into single integers, and these into bytes. If accesses
    go by rows (`access.quick`), it serves those that have no rows.
    """
    plain = access.store if stores else access.load
    how = how if lib.checks.any else 0
    by_rows = access.quick(lib, space)
    if bits == 8:
        return plain(lib, space, bits, count, how, any_place=by_rows)
    one = lib.v(f"i{bits}")
    result = "void" if stores else _result(lib, bits, count)
    parameters = {"warp": "ptr", "addresses": address_type(lib, space)}
    if stores:
        parameters |= {f"value{k}": one for k in range(count)}
    pieces = (8, bits // 8) if count == 1 else (bits, count)

    def body(k: CodeBuilder, warp: IrValue, addresses: IrValue, *rest: IrValue) -> None:
        values, (mask, site) = rest[:-2], rest[-2:]
        if by_rows and space == "global" and (stores or count == 1):
            access.try_any_place(
                lib, k, warp, addresses, mask, site, bits, values=list(values) if stores else None
            )
        odd = k.mask_bits(k.icmp("ne", k.op("and", addresses, bits // 8 * count - 1), 0))
        aligned = k.icmp("eq", k.op("and", odd, mask), 0)
        k.emit(f"br {aligned}, label %aligned, label %apart, !prof !0")
        k.label("aligned")
        inner = plain(lib, space, bits, count, how, any_place=by_rows)
        whole = k.call(inner, result, warp, addresses, *values, mask, site)
        k.ret(None if stores else whole)
        k.label("apart")
        single = _access(lib, space, pieces[0], 1, stores=stores, how=how)
        places = [k.op("add", addresses, n * pieces[0] // 8) if n else addresses for n in range(pieces[1])]
        if stores:
            parts = values if count > 1 else [
                k.resize(k.op("lshr", values[0], 8 * n), 8) for n in range(pieces[1])
            ]  # fmt: skip
            for place, part in zip(places, parts, strict=True):
                k.call(single, "void", warp, place, part, mask, site)
            k.ret()
            return
        found = [k.call(single, lib.v(f"i{pieces[0]}"), warp, place, mask, site) for place in places]
        k.ret(structure(k, found) if count > 1 else _joined(k, bits, found))

    name = f"amd.{'store' if stores else 'load'}.{space}.{bits}x{count}.{how}"
    return lib.define(name, result, parameters | {"mask": lib.mask, "site": "i32"}, body, core=True)


def _result(lib: Library, bits: int, count: int) -> str:
    one = lib.v(f"i{bits}")
    return one if count == 1 else "{ " + ", ".join([one] * count) + " }"


def _joined(c: CodeBuilder, bits: int, parts: list[IrValue]) -> IrValue:
    """Return the integer of some bytes, the lowest first."""
    whole = c.resize(parts[0], bits)
    for n, part in enumerate(parts[1:], 1):
        whole = c.op("or", whole, c.op("shl", c.resize(part, bits), 8 * n))
    return whole


def define_core(lib: Library) -> None:
    """Write the helpers of common accesses, and those that search for rows, at the start of an engine."""
    if access.quick(lib, "global"):
        for bits, step, extended in _SHAPES:
            rows.shape_helper(lib, bits, step, extended)
    for space in ("global", "shared", "local"):
        for bits, count in ((16, 1), (32, 1), (32, 2), (32, 4)):
            for stores in (False, True):
                _access(lib, space, bits, count, stores=stores, how=0)
                if access.quick(lib, space):
                    for extended in (PLAIN,) if space == "shared" else (PLAIN, UNSIGNED):
                        _by_rows(lib, space, bits, count, extended, stores=stores)


def _by_rows(lib: Library, space: str, bits: int, count: int, extended: str, *, stores: bool) -> str:
    """Return the helper that loads or stores by rows if possible, else as `_access`.

    The address is a register, extended and shifted, plus an offset that all lanes share.
    """
    one = lib.v(f"i{bits}")
    result = "void" if stores else _result(lib, bits, count)
    other = _access(lib, space, bits, count, stores=stores, how=0)
    short = "i32" if space == "shared" else "i64"
    parameters = {"warp": "ptr", "register": lib.v("i32") if extended else address_type(lib, space)}
    parameters |= {"shift": "i64"} if extended else {}
    parameters |= {"offset": short, "kind": "i32"}
    parameters |= {f"value{n}": one for n in range(count if stores else 0)}

    def body(k: CodeBuilder, warp: IrValue, register: IrValue, *rest: IrValue) -> None:
        shift = rest[0] if extended else None
        offset, kind, *values, mask, site = rest[1:] if extended else rest
        start, room, host = rows.window(k, space, warp, site)
        places = rows.bases(lib, k, register, mask, start, shift, offset, extended)
        offsets = [k.op("sub", place, start) for place in places]
        if stores:
            rows.store_shaped(k, kind, offsets, room, host, values, mask)
        else:
            rows.load_shaped(k, kind, offsets, room, host, bits, count)
        address = register
        if shift is not None:
            address = k.op(
                "shl", k.resize(register, 64, signed=extended == SIGNED), k.splat(shift, lib.lanes)
            )
        address = k.op("add", address, k.splat(offset, lib.lanes))
        found = k.call(other, result, warp, address, *values, mask, site)
        k.ret(None if stores else found)

    name = f"amd.rows.{'store' if stores else 'load'}.{space}{extended}.{bits}x{count}"
    return lib.define(name, result, parameters | {"mask": lib.mask, "site": "i32"}, body, core=True)


def _call_by_rows(
    t: IsaTranslator,
    space: str,
    bits: int,
    address: IrValue,
    mask: IrValue,
    values: list[IrValue],
    count: int,
) -> IrValue:
    """Call the helper of `_by_rows` that loads `count` integers for each lane, or stores `values` if there are any."""
    c, size = t.c, bits // 8 * count
    origin = t.known.origin(address)
    if size % (1 << origin.shift):
        origin = ValueOrigin(address, PLAIN)
    kind = t.known.shape(t.lib, c, origin, mask, size)
    offset = origin.offset or c.const("i32" if space == "shared" else "i64", 0)
    shift = [c.const("i64", origin.shift)] if origin.extended else []
    name = _by_rows(t.lib, space, bits, count, origin.extended, stores=bool(values))
    result = "void" if values else _result(t.lib, bits, count)
    return c.call(
        name, result, t.wf.warp, origin.register, *shift, offset, kind, *values, mask, i32(t.site())
    )


def _load(
    t: IsaTranslator, space: str, bits: int, count: int, address: IrValue, mask: IrValue, how: int
) -> list[IrValue]:
    """Load `count` integers of `bits` for each lane."""
    c, one = t.c, t.v(f"i{bits}")
    if access.quick(t.lib, space):
        whole = _call_by_rows(t, space, bits, address, mask, [], count)
    else:
        name = _access(t.lib, space, bits, count, stores=False, how=how)
        whole = c.call(name, _result(t.lib, bits, count), t.wf.warp, address, mask, i32(t.site()))
    return [whole] if count == 1 else [c.let(one, f"extractvalue {whole}, {n}") for n in range(count)]


def _store(
    t: IsaTranslator, space: str, address: IrValue, values: list[IrValue], mask: IrValue, how: int
) -> None:
    """Store consecutive integers of one width for each lane."""
    bits, count = bits_of(values[0].type), len(values)
    if access.quick(t.lib, space):
        _call_by_rows(t, space, bits, address, mask, values, count)
        return
    name = _access(t.lib, space, bits, count, stores=True, how=how)
    t.c.call(name, "void", t.wf.warp, address, *values, mask, i32(t.site()))


def load_dwords(
    t: IsaTranslator, space: str, address: IrValue, count: int, mask: IrValue, how: int = 0
) -> list[IrValue]:
    """Load 1 to 4 consecutive dwords for each lane; return a value for each dword."""
    if count == 3:
        last = t.c.op("add", address, 8)
        return load_dwords(t, space, address, 2, mask, how) + load_dwords(t, space, last, 1, mask, how)
    return _load(t, space, 32, count, address, mask, how)


def store_dwords(
    t: IsaTranslator, space: str, address: IrValue, values: list[IrValue], mask: IrValue, how: int = 0
) -> None:
    """Store 1 to 4 consecutive dwords for each lane."""
    if len(values) == 3:
        store_dwords(t, space, address, values[:2], mask, how)
        store_dwords(t, space, t.c.op("add", address, 8), values[2:], mask, how)
    else:
        _store(t, space, address, values, mask, how)


def registers(t: IsaTranslator, operand: Operand, count: int) -> list[IrValue]:
    """Return `count` registers from an operand on. Raises `IsaError` for an operand that is no register."""
    if not isinstance(operand, Reg):
        raise t.error(f"{operand} holds no data")
    return [t.vgpr(operand.index + n, operand.file) for n in range(count)]


def set_registers(t: IsaTranslator, operand: Operand, values: list[IrValue]) -> None:
    """Write values to consecutive registers. Raises `IsaError` for an operand that is no register."""
    if not isinstance(operand, Reg):
        raise t.error(f"{operand} takes no data")
    for n, value in enumerate(values):
        t.set_vgpr(operand.index + n, value, operand.file)


def count_access(t: IsaTranslator, space: str, verb: str, address: IrValue, what: str, mask: IrValue) -> None:
    """Count an access, if the kernel counts. `verb` is "load" or "store"; `what` names the type, as "b64"."""
    if t.wf.counting is not None:
        bits = int(re.findall(r"[buif](\d+)", what)[-1])
        t.wf.counting.access(space, verb, address, bits // 8, mask)


def load(
    t: IsaTranslator, what: str, destination: Operand, space: str, address: IrValue, mask: IrValue, how: int
) -> None:
    """Load to a register as the suffix `what` says: b32 to b128; u8, i8, u16, i16; d16_*, d16_hi_* into a half."""
    c = t.c
    count_access(t, space, "load", address, what, mask)
    if what in ("b32", "b64", "b96", "b128"):
        set_registers(t, destination, load_dwords(t, space, address, int(what[1:]) // 32, mask, how))
        _observe(t, space, address, int(what[1:]) // 8, mask, how)
        return
    match = re.fullmatch(r"(d16_hi_|d16_)?([uib])(8|16)(_d16_hi|_d16)?", what)
    if match is None or not isinstance(destination, Reg):
        raise t.error("this access is not supported")
    bits = int(match[3])
    (value,) = _load(t, space, bits, 1, address, mask, how)
    _observe(t, space, address, bits // 8, mask, how)
    half = (match[1] or match[4] or "").strip("_")
    if not half:
        t.set_vgpr(destination.index, c.resize(value, 32, signed=match[2] == "i"), destination.file)
        return
    wide = c.resize(c.resize(value, 16, signed=match[2] == "i"), 32)
    old = t.vgpr(destination.index, destination.file)
    if half == "d16_hi":
        both = c.op("or", c.op("and", old, 0xFFFF), c.op("shl", wide, 16))
    else:
        both = c.op("or", c.op("and", old, 0xFFFF_0000), wide)
    t.set_vgpr(destination.index, both, destination.file)


def _observe(t: IsaTranslator, space: str, address: IrValue, size: int, mask: IrValue, how: int) -> None:
    """Record that a strong load has observed strong writes, if races are checked."""
    if how == STRONG:
        sanitize.observed_in(t.wf, space, address, size, mask)


def store(
    t: IsaTranslator, what: str, source: Operand, space: str, address: IrValue, mask: IrValue, how: int
) -> None:
    """Store from a register as the suffix `what` says: b8 to b128; d16_hi_* from the upper half."""
    c = t.c
    count_access(t, space, "store", address, what, mask)
    if what in ("b32", "b64", "b96", "b128"):
        store_dwords(t, space, address, registers(t, source, int(what[1:]) // 32), mask, how)
        return
    match = re.fullmatch(r"(d16_hi_)?b(8|16)(_d16_hi)?", what)
    if match is None:
        raise t.error("this access is not supported")
    (value,) = registers(t, source, 1)
    if match[1] or match[3]:
        value = c.op("lshr", value, 16)
    _store(t, space, address, [c.resize(value, int(match[2]))], mask, how)


def _flat_access(t: IsaTranslator) -> None:
    verb, what = t.stem.split("_", 2)[1:]
    if t.instruction.get("lds"):
        raise t.error("loads into LDS are not supported")
    first, second = t.instruction.operands[:2]
    space, address = flat_address(t, 1 if verb == "load" else 0)
    if verb == "load":
        load(t, what, first, space, address, t.active, how(t))
    else:
        store(t, what, second, space, address, t.active, how(t))


_LOADS = ("b32", "b64", "b96", "b128", "u8", "i8", "u16", "i16")
_STORES = ("b8", "b16", "b32", "b64", "b96", "b128")
for _segment in _SPACES:
    for _what in (*_LOADS, *(f"d16_{half}{part}" for half in ("", "hi_") for part in ("u8", "i8", "b16"))):
        MEANINGS[f"{_segment}_load_{_what}"] = _flat_access
    for _what in (*_STORES, "d16_hi_b8", "d16_hi_b16"):
        MEANINGS[f"{_segment}_store_{_what}"] = _flat_access


def _local_access(t: IsaTranslator) -> None:
    """ds_load and ds_store. In a kernel that polls LDS, a store may be atomic, and then publishes."""
    verb, what = t.stem.split("_", 2)[1:]
    i = t.instruction
    if i.get("gds"):
        raise t.error("global data share does not exist")
    first, second = i.operands[:2]
    address = local_address(t, second if verb == "load" else first, i.get("offset"))
    if verb == "load":
        if i.address in t.polled:
            shadow_shared.observes(t.wf, address, t.active)
        strong = i.address in t.polled or i.address in t.guesses
        load(t, what, first, "shared", address, t.active, STRONG if strong else 0)
        return
    may_publish = bool(t.polled) and _ATOMIC_STORE.fullmatch(what) is not None
    store(t, what, second, "shared", address, t.active, UNMARKED if may_publish else 0)
    if may_publish:
        shadow_shared.published(t.wf)


for _what in (*_LOADS, *(f"{part}_d16{half}" for part in ("u8", "i8", "u16") for half in ("", "_hi"))):
    MEANINGS[f"ds_load_{_what}"] = _local_access
for _what in (*_STORES, "b8_d16_hi", "b16_d16_hi"):
    MEANINGS[f"ds_store_{_what}"] = _local_access


def _local_pair(t: IsaTranslator) -> None:
    """ds_*_2addr: two accesses, whose offsets count elements, or for stride64 units of 64 elements."""
    i, c = t.instruction, t.c
    if i.get("gds"):
        raise t.error("global data share does not exist")
    bits = int(t.stem[-2:])
    step = bits // 8 * (64 if "stride64" in t.stem else 1)
    count = bits // 32
    loads = "_load_" in t.stem
    base = t.raw(i.operands[1] if loads else i.operands[0])
    places = [t.known.plus(c, base, i.get(f"offset{k}") * step) for k in range(2)]
    for place in places:
        count_access(t, "shared", "load" if loads else "store", place, f"b{bits}", t.active)
    if not loads:
        data = [registers(t, operand, count) for operand in i.operands[1:3]]
        for place, values in zip(places, data, strict=True):
            store_dwords(t, "shared", place, values, t.active)
        return
    found = [value for place in places for value in load_dwords(t, "shared", place, count, t.active)]
    set_registers(t, i.operands[0], found)


for _bits in ("32", "64"):
    for _verb in ("load", "store"):
        for _stride in ("", "_stride64"):
            MEANINGS[f"ds_{_verb}_2addr{_stride}_b{_bits}"] = _local_pair
