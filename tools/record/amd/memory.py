"""Forms of memory: every access of GLOBAL, FLAT, SCRATCH, MUBUF and DS on a thread's own 16 bytes; scalar loads.

Atomics run with and without the return of the old value. v[4:7] is the data; v[8:9] and v[12:13] are the
content of memory before. Results are v[16:19] and the 16 bytes afterwards. A few lanes do not execute the
access.

An unknown architecture raises `UnsupportedError`.

Not here: several threads at one address (`special`), moves through LDS (`exchange`). Next: `vendor`, the list
of all forms.
"""

# ruff: noqa: E501 - tables and words of code read best on one line

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from emulator.amd.isa.instruction import canonical
from emulator.amd.isa.opcodes import Opcode, target
from tools.record.amd.encode import LITERAL, ONE, VECTOR, ZERO, Code, packed, text_of
from tools.record.amd.vector import PARTIAL
from tools.record.forms import Allowed, Form, Result, grid

if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS: Final = ("GLOBAL", "FLAT", "SCRATCH", "MUBUF", "DS")
ELSEWHERE: Final = re.compile(
    r"ds_(swizzle|permute|bpermute|consume|append|gws|ordered|bvh|nop).*|.*(addtid|_lds_|barrier|wbinv|_wb|_inv|_tr_|ordered|block|format).*"
)
_DESCRIPTOR: Final = {"gfx9": 0x0002_7000, "gfx11": 0x3100_4000, "gfx12": 0x3100_4000}
"""Family -> the last word of a raw buffer's descriptor."""
_IN_SCRATCH: Final = 16
_OFF: Final = {"gfx9": 0x7F, "gfx11": 124, "gfx12": 124}


def forms(arch: str) -> Iterator[Form]:
    """Yield every form of this module."""
    c = Code(arch)
    for (kind, number), opcode in target(arch).opcodes.items():
        stem = canonical(opcode.stem, c.family)
        if kind in KINDS and not ELSEWHERE.fullmatch(stem):
            for returns in (False, True) if "_atomic_" in stem else (False,):
                yield form(c, kind, number, opcode, stem, returns=returns)
        elif kind == "SMEM" and re.fullmatch(r"s_(buffer_)?load_\w+", stem):
            yield scalar_load(c, number, opcode, stem)


def form(c: Code, kind: str, number: int, opcode: Opcode, stem: str, *, returns: bool) -> Form:
    """Return the form of an access; `returns` says whether an atomic returns the old value."""
    words = [w for n in range(4) for w in c.vector(16 + n, VECTOR + 4 + n if kind == "MUBUF" and "load" not in stem else LITERAL, *([] if kind == "MUBUF" and "load" not in stem else [0xA5A5_0001 + n]))]  # fmt: skip
    address = _address(c, kind)
    words += [*address, *_moved(c, kind, "store", (8, 12)), *c.waits, *c.executes(PARTIAL), *c.settle]
    words += [*packed(opcode, number, _fields(c, kind, opcode, returns=returns)), *c.waits, *c.everybody(), *c.settle]  # fmt: skip
    words += [*_moved(c, kind, "load", (24, 26)), *c.waits]
    found = re.search(r"(bf16|f16|f32|f64)", stem)
    data = {"f64": "f64", "f32": "f32x2", "f16": "f16x2", "bf16": "bf16x2"}[found[1]] if found else "u64"
    memory = data if data in ("f64", "f32x2") else "u64"
    types = (data, memory, memory, "u64")
    if "cmp" in stem:  # a comparison holds where both are of few values
        inputs = grid(types, few=True, most=64, given=tuple((n, (0, 1, 1 << 32, (1 << 32) + 1)) for n in range(3)))  # fmt: skip
    else:
        inputs = grid(types, few=True, most=64, more=0)
    kind_of = memory if memory != "u64" else "u64"
    allowed = (Allowed("ulp", 0, rule="NaNs are equal, whatever their payloads") if kind_of != "u64" else Allowed())  # fmt: skip
    results = tuple(Result(name, kind_of, allowed) for name in ("v16", "v18", "v24", "v26"))
    if "load" in stem or kind_of == "u64":
        results = tuple(Result(one.name, "u64") for one in results)
    name = f"{kind.lower()}.{opcode.stem}{' returns' if returns else ''}"
    return Form(name, text_of(name, words), types, inputs, results, doubt=3 if found else 1, group="lanes")


def _address(c: Code, kind: str) -> list[int]:
    """Return code that sets the address: v[14:15] for FLAT, a descriptor in s[24:27] for MUBUF, else v2."""
    if kind == "FLAT":
        return [*c.settle, *c.make("v_mad_u64_u32", "VOP3SD", vdst=14, sdst=106, src0=VECTOR + 3, src1=ONE, src2=42)]  # fmt: skip
    if kind == "MUBUF":
        return [*c.scalar(24, 42), *c.make("s_and_b32", "SOP2", 0xFFFF, sdst=25, ssrc0=43, ssrc1=LITERAL), *c.scalar(26, LITERAL, 128 * 64),
                *c.scalar(27, LITERAL, _DESCRIPTOR[c.family])]
    return c.vector(2, ZERO + _IN_SCRATCH)


def _fields(c: Code, kind: str, opcode: Opcode, *, returns: bool) -> dict[str, int]:
    fields = {"vdst": 16, "vdata": 4, "data0": 4, "data1": 6, "addr": 3, "vaddr": 3, "saddr": _OFF[c.family]}
    if kind == "GLOBAL":
        fields |= {"saddr": 42, "seg": 2}
    elif kind == "FLAT":
        fields |= {"vaddr": 14}
    elif kind == "SCRATCH":
        fields |= {"vaddr": 2, "sve": 1, "seg": 1}
    elif kind == "MUBUF":
        fields |= {"vdata": 16, "offen": 1, "srsrc": 24 if c.family == "gfx12" else 6, "soffset": 124 if c.family == "gfx12" else ZERO}  # fmt: skip
    elif "2addr" in canonical(opcode.stem, c.family) and "stride64" not in canonical(opcode.stem, c.family):
        fields |= {"offset1": 1 if opcode.stem.endswith("64") else 3}
    if not returns and not any(s.field == "vdst" for s in opcode.operands):
        del fields["vdst"]
    return fields | ({"gfx9": {"sc0": 1}, "gfx11": {"glc": 1}, "gfx12": {"th": 1}}[c.family] if returns else {})  # fmt: skip


def _moved(c: Code, kind: str, verb: str, registers: tuple[int, int]) -> list[int]:
    """Return code that stores or loads a thread's 16 bytes, 8 in each of two pairs of registers."""
    words: list[int] = []
    for n, register in enumerate(registers):
        if kind == "DS":
            words += c.access("DS", f"ds_{verb}_b64", register, 3, 0, 8 * n)
        elif kind == "SCRATCH":
            words += c.access("SCRATCH", f"scratch_{verb}_b64", register, 2, 0, 8 * n)
        else:
            words += c.access("GLOBAL", f"global_{verb}_b64", register, 3, 42, 8 * n)
    return words


def scalar_load(c: Code, number: int, opcode: Opcode, stem: str) -> Form:
    """Return the form of a scalar load of the first thread's memory; results are its first and last dword.

    Only the first wave has rows: it reads what it has written itself, and the scalar cache has no line of it.
    """
    size = next(s.dwords for s in opcode.operands if s.field == "sdata")
    buffer = "buffer" in stem
    fields = {"sdata": 64, "sbase": 12 if buffer else 21, "soffset": 124} | ({"imm": 1} if c.family == "gfx9" else {})  # fmt: skip
    words = [*(w for n in range(8) for w in c.access("GLOBAL", "global_store_b64", 4, 3, 42, 8 * n)), *c.waits, *(_address(c, "MUBUF") if buffer else []), *c.settle]  # fmt: skip
    words += [*packed(opcode, number, fields), *c.waits, *c.vector(12, 64), *c.vector(13, 64 + size - 1)]
    name = f"smem.{opcode.stem}"
    return Form(name, text_of(name, words), ("u64",), grid(("u64",), most=32), (Result("v12", "u64"),), rows=32, group="lanes")  # fmt: skip
