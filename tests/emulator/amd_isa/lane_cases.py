"""Vector instructions run on chosen registers of every lane, and compared with what a definition makes of them.

v[4:5], v[6:7] and v[8:9] are the sources, v[12:13] the destination. Lanes that do not execute keep their result,
and have a zero in masks of lanes. `test_pcode` takes
the definitions of the ISA documents' pseudo-code.
"""

# ruff: noqa: E501 - rows of tables and texts read best on one line

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from emulator.amd.isa.modes import KEEP_ALL
from emulator.amd.isa.opcodes import target
from emulator.shared.memory import AddressSpace
from tests.emulator.amd_isa import single
from tests.emulator.amd_isa.single import EXEC, VCC, VECTOR, encode, move

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from emulator.simt.engine import TranslatedProgram

Array = np.ndarray[Any, Any]
VALUES = (VECTOR + 12, VECTOR + 13)
MASKS = (VCC, VCC + 1, 10, 11, 14, 15)
"""What is stored of an operation: v[12:13], and where it writes masks VCC, s[10:11] and EXEC as it leaves them."""


@dataclass
class Inputs:
    """What the registers hold before: (lanes, 8) words in memory, VCC, EXEC, the mask in s[8:9], alike in all waves."""

    words: Array
    vcc: int
    active: int
    mask: int
    wave: int = 64
    """Lanes of a wave, where there are several."""

    @property
    def lanes(self) -> int:
        return len(self.words)

    def column(self, number: int) -> Array:
        """Return source `number` (3 is the destination before), 64 bits a lane."""
        return np.ascontiguousarray(self.words[:, 2 * number : 2 * number + 2]).view("u8").ravel()

    def lanes_of(self, mask: int) -> Array:
        """Return the bits of a mask, a lane."""
        return (np.uint64(mask) >> (np.arange(self.lanes) % self.wave).astype("u8") & np.uint64(1)).astype(
            bool
        )


Lanes = list[int] | Array


@dataclass
class Case:
    """Words of an instruction, and what it makes: values a lane, and masks of lanes."""

    words: list[int]
    value: Callable[[Inputs], Lanes] | None = None
    """The destination, of 32 or 64 bits; None where it is not written."""
    vcc: Callable[[Inputs], Lanes] | None = None
    other: Callable[[Inputs], Lanes] | None = None
    """The mask in s[10:11]."""
    active: Callable[[Inputs], Lanes] | None = None
    wide: bool = False
    text: str = ""
    reads_vcc: bool = True
    same: Callable[[Array, Array], Array] = np.equal
    """Whether a result of 64 bits is as wanted, a lane."""

    @property
    def stored(self) -> tuple[int, ...]:
        """The registers that are stored behind it."""
        return (*VALUES, *MASKS) if self.vcc or self.other or self.active else VALUES


def prepared(
    name: str,
    cases: Sequence[Case],
    lanes: int = 0,
    *,
    masked: bool = True,
    modes: int = KEEP_ALL,
    wave: int = 0,
) -> TranslatedProgram:
    """Translate cases one behind another: s[0:1] is where sources lie, s[2:3] where results of `lanes` lanes go.

    With `masked` EXEC is set from s[6:7] before each; else all lanes execute, and the translator knows it.
    """
    wave = wave or target(name).lanes
    lanes = lanes or wave
    copy = f"s_mov_b{wave}"
    words = [
        *encode(name, "v_lshlrev_b32", "VOP2", vdst=1, src0=128 + 5, vsrc1=0),
        *single.access(name, "global_load_b128", 4, 0, 0),
        *single.access(name, "global_load_b128", 8, 16, 0),
        single.WAIT[target(name).family],
        *encode(name, "v_lshlrev_b32", "VOP2", vdst=1, src0=128 + 3, vsrc1=0),
    ]
    high = False
    """Whether v13 holds what it held."""
    for case in cases:
        flags = len(case.stored) > len(VALUES)
        words += [
            *move(name, 12, VECTOR + 10),
            *(() if high else move(name, 13, VECTOR + 11)),
            *(encode(name, "s_mov_b64", "SOP1", sdst=VCC, ssrc0=4) if flags or case.reads_vcc else ()),
            *(encode(name, "s_mov_b64", "SOP1", sdst=10, ssrc0=128) if flags else ()),
            *(encode(name, copy, "SOP1", sdst=EXEC, ssrc0=6) if masked else ()),
            *case.words,
            *(encode(name, copy, "SOP1", sdst=14, ssrc0=EXEC) if flags else ()),
            *(encode(name, copy, "SOP1", sdst=EXEC, ssrc0=193) if masked or case.active else ()),
        ]
        high = not case.wide
        for pair in range(0, len(case.stored), 2):
            if pair:
                words += [*move(name, 2, case.stored[pair]), *move(name, 3, case.stored[pair + 1])]
            words += [
                *single.access(name, "global_store_b64", 2 if pair else 12, 0, 2),
                *encode(name, "v_add_nc_u32", "VOP2", 8 * lanes, vdst=1, src0=255, vsrc1=1),
            ]
    return single.program(name, words, wave, modes=modes)


def differences(
    name: str, cases: Sequence[Case], given: Sequence[Inputs], *, masked: bool = True, modes: int = KEEP_ALL
) -> list[str]:
    """Run all cases on all inputs; return the first difference of each case from its definition."""
    lanes = given[0].lanes
    ready = prepared(name, cases, lanes, masked=masked, modes=modes, wave=given[0].wave)
    rows = [len(case.stored) for case in cases]
    found: dict[int, str] = {}
    for one in given:
        memory = AddressSpace()
        source, out = np.ascontiguousarray(one.words), np.zeros((sum(rows) // 2, lanes), "u8")
        registers = [*single.mapped(memory, source), *single.mapped(memory, out)]
        for mask in (one.vcc, one.active, one.mask):
            registers += [mask & 0xFFFF_FFFF, mask >> 32]
        single.run(ready, memory, registers, lanes, 8 * lanes)
        for n, (end, count) in enumerate(zip(np.cumsum(rows).tolist(), rows, strict=True)):
            why = _compare(cases[n], one, out[(end - count) // 2 : end // 2])
            if why:
                found.setdefault(n, why)
    return list(found.values())


def _words(values: Lanes) -> Array:
    return values if isinstance(values, np.ndarray) else np.array([v & (1 << 64) - 1 for v in values], "u8")


def _compare(case: Case, one: Inputs, found: Array) -> str:
    on, old = one.lanes_of(one.active), one.column(3)
    new = old if case.value is None else _words(case.value(one))
    mask = np.uint64((1 << 64 if case.wide else 1 << 32) - 1)
    wanted = np.where(on, new & mask | old & ~mask, old)
    got = found[0]
    bad = np.flatnonzero((got != wanted) & ~(on & case.same(got, wanted)))
    if bad.size:
        lane = bad[0]
        words = [hex(int(w)) for w in one.words[lane]]
        return f"{case.text}: {len(bad)} lanes, first {lane}: {got[lane]:#x}, wanted {wanted[lane]:#x} of {words}"
    if case.stored == VALUES:
        return ""
    for at, made, was, what in (
        (1, case.vcc, one.vcc, "VCC"),
        (2, case.other, 0, "s[10:11]"),
        (3, case.active, one.active, "EXEC"),
    ):
        masks = (found[at] >> (np.arange(one.lanes) % one.wave).astype("u8") & np.uint64(1)).astype(bool)
        bits = (_words(made(one)) & np.uint64(1)).astype(bool) & on if made else one.lanes_of(was)
        if (masks != bits).any():
            lane = np.flatnonzero(masks != bits)[0]
            words = [hex(int(w)) for w in one.words[lane]]
            return f"{case.text}: bit {lane} of {what} is {int(masks[lane])}, of {words}"
    return ""


ROW = 16
WAVE_MOVES: dict[int, Callable[[int], int]] = {
    0x130: lambda lane: lane + 1, 0x134: lambda lane: (lane + 1) % 64, 0x138: lambda lane: lane - 1,
    0x13C: lambda lane: (lane - 1) % 64, 0x142: lambda lane: lane // ROW * ROW - 1,
    0x143: lambda lane: 31 if lane >= 32 else -1,
}  # fmt: skip
"""Controls of gfx9 alone: moves and turns of the whole wave, the last lane of the row before, lane 31."""


def source_lane(control: int, lane: int, lanes: int) -> int:
    """Return which lane DPP takes a lane's first source from; -1 where there is none."""
    row, at, by = lane // ROW * ROW, lane % ROW, control & 15
    if control < 0x100:
        return lane // 4 * 4 + (control >> 2 * (lane % 4) & 3)
    if control in WAVE_MOVES:
        found = WAVE_MOVES[control](lane)
        return found if 0 <= found < lanes else -1
    kinds = {0x10: at + by, 0x11: at - by, 0x12: (at - by) % ROW, 0x15: by, 0x16: at ^ by}
    if control >> 4 in kinds:
        found = kinds[control >> 4]
    else:
        found = ROW - 1 - at if control == 0x140 else at // 8 * 8 + 7 - at % 8
    return row + found if 0 <= found < ROW else -1
