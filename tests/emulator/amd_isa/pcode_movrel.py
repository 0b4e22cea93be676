"""Moves from and to vector registers that M0 numbers, against the ISA documents' pseudo-code.

The texts name registers by number, so they have an interpreter of their own: a number from a field, plus
bits of M0, and a register of each lane by that number. v4 to v11 hold values, v12 is where v_movrels
writes; half of the lanes execute.

Not here: scalar registers that M0 numbers, which the emulated GPUs refuse. Next: `pcode_tally`, the user.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from emulator.amd.isa.opcodes import target
from emulator.shared.memory import AddressSpace
from tests.emulator.amd_isa import pcode, single
from tests.emulator.amd_isa.single import EXEC, LITERAL, VECTOR, encode, move

if TYPE_CHECKING:
    from collections.abc import Iterator

FIRST, LAST, ALONE = 4, 11, 12
M0, EXECUTES, LANES = 125, 0x5A5A_F00F, 32
NUMBERS = (0, 1, 3, 6)
TWO_NUMBERS = (0, 1 << 16 | 3, 5 << 16 | 1, 3 << 26 | 2 << 16 | 0xF << 10 | 4)
"""Contents of M0; those of two numbers also have bits that belong to neither."""
STATEMENT = re.compile(r"(\S.*?) (\+?)= (.*)")
Array = np.ndarray[Any, Any]


def moves(name: str) -> Iterator[tuple[str, str, str, int]]:
    """Yield format, operation, text and the content of M0."""
    for (kind, _), (stem, text) in sorted(pcode.table(name).items()):
        if re.match("v_(movrel|swaprel)", stem) and kind in ("VOP1", "VOP3"):
            for m0 in TWO_NUMBERS if "2_b32" in stem or "swap" in stem else NUMBERS:
                yield kind, stem, text, m0


def fields(stem: str) -> tuple[int, int]:
    """Return the registers of the destination and of the source."""
    return (ALONE if stem == "v_movrels_b32" else FIRST), (LAST if stem == "v_movreld_b32" else FIRST)


def after(stem: str, text: str, m0: int, registers: Array) -> Array:
    """Return the registers [number][lane] after a text, of lanes that all execute."""
    destination, source = fields(stem)
    numbers, out = {"SRC0.u32": source, "DST.u32": destination}, registers.copy()
    values: dict[str, Array] = {}

    def place(what: str) -> int | None:
        found = re.fullmatch(r"VGPR\[laneId\]\[(\w+)\]\.b32", what)
        return numbers[found[1]] if found else {"D0.b32": destination, "S0.b32": source}.get(what)

    for line in re.sub(r"//[^\n]*", "", text).replace(";", "\n").split("\n"):
        match = STATEMENT.fullmatch(line.strip())
        if match is None:
            assert not line.strip(), line
            continue
        to, adds, what = match.groups()
        bits = re.match(r"M0\.u32\[(\d+) : (\d+)\]", what)
        if bits:
            assert adds
            numbers[to] += m0 >> int(bits[2]) & (1 << int(bits[1]) - int(bits[2]) + 1) - 1
        elif what in numbers:
            numbers[to] = numbers[what]
        else:
            at, read = place(to), place(what)
            value = values[what] if read is None else out[read].copy()
            if at is None:
                values[to] = value
            else:
                out[at] = value
    return out


def words_of(name: str, kind: str, stem: str, m0: int) -> list[int]:
    """Return code that moves, in half of the lanes."""
    destination, source = fields(stem)
    return [
        *encode(name, "s_mov_b32", "SOP1", m0, sdst=M0, ssrc0=LITERAL),
        *encode(name, "s_mov_b32", "SOP1", EXECUTES, sdst=EXEC, ssrc0=LITERAL),
        *encode(name, stem, kind, vdst=destination, src0=VECTOR + source),
        *encode(name, "s_mov_b32", "SOP1", sdst=EXEC, ssrc0=193),
    ]


def difference(name: str, kind: str, stem: str, text: str, m0: int) -> str:
    """Run one move; return how it differs, or an empty text."""
    count = ALONE - FIRST + 1
    ahead = encode(name, "v_add_nc_u32", "VOP2", 4 * LANES, vdst=1, src0=255, vsrc1=1)
    begin = encode(name, "v_lshlrev_b32", "VOP2", vdst=1, src0=130, vsrc1=0)
    words = [*begin]
    for n in range(count):
        words += [*single.access(name, "global_load_b32", FIRST + n, 0, 0), *ahead]
    words += [single.WAIT[target(name).family], *words_of(name, kind, stem, m0), *begin]
    for n in range(count):
        words += [*single.access(name, "global_store_b32", FIRST + n, 0, 2), *ahead]
    given = np.random.default_rng(2).integers(0, 1 << 32, (count, LANES), dtype="u4")
    out, memory = np.zeros_like(given), AddressSpace()
    ready = single.program(name, [*words, *move(name, 2, 128)])
    single.run(ready, memory, [*single.mapped(memory, given), *single.mapped(memory, out)], LANES)
    registers = np.concatenate([np.zeros((FIRST, LANES), "u4"), given])
    on = (EXECUTES >> np.arange(LANES) & 1).astype(bool)
    wanted = np.where(on, after(stem, text, m0, registers), registers)[FIRST:]
    return "" if np.array_equal(out, wanted) else f"{kind} {stem} of M0 {m0:#x}"
