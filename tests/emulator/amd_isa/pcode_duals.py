"""VOPD: pairs of operations in one instruction, each against its own pseudo-code.

Not here: operations alone (`pcode_forms`). Next: `pcode_tally`, the user.
"""

# ruff: noqa: E501 - rows of tables and texts read best on one line

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from emulator.amd.isa.opcodes import Opcode, target
from tests.emulator.amd_isa import pcode, pcode_values
from tests.emulator.amd_isa.lane_cases import Case, Inputs
from tests.emulator.amd_isa.pcode_definitions import texts_by_name
from tests.emulator.amd_isa.pcode_forms import LITERAL_WORD
from tests.emulator.amd_isa.pcode_values import Value, value
from tests.emulator.amd_isa.single import VECTOR

if TYPE_CHECKING:
    from collections.abc import Iterator

Array = np.ndarray[Any, Any]


def duals(name: str) -> Iterator[Case]:
    """Yield VOPD: every operation of the X half with every one of the Y half; all sources are read first.

    X is v12 = v4, v6; Y is v13 = v6, v4; each accumulates on its destination, and both have one literal.
    """
    halves: dict[str, list[tuple[int, Opcode, str]]] = {"X": [], "Y": []}
    for (kind, number), opcode in target(name).opcodes.items():
        if kind in ("VOPDX", "VOPDY"):
            text = dual_text(name, opcode.name)
            if text is not None:
                halves[kind[-1]].append((number, opcode, text))
    layout = next(f for f in target(name).formats if f.name == "VOPD")
    for (opx, x, text_x), (opy, y, text_y) in product(halves["X"], halves["Y"]):
        fields = {"opx": opx, "opy": opy, "vdstx": 12, "vdsty": 13 >> 1, "src0x": VECTOR + 4, "src0y": VECTOR + 6,
                  "vsrc1x": 0 if "_mov_" in x.name else 6, "vsrc1y": 0 if "_mov_" in y.name else 4}  # fmt: skip
        encoding = layout.base
        for field, content in fields.items():
            encoding = layout.put(encoding, field, content)
        literal = "fmaak" in x.name + y.name or "fmamk" in x.name + y.name
        words = [encoding & 0xFFFF_FFFF, encoding >> 32, *([LITERAL_WORD] if literal else [])]

        def result(one: Inputs, texts: tuple[str, str] = (text_x, text_y)) -> Array:
            sources = [one.column(n) & np.uint64(0xFFFF_FFFF) for n in (0, 1)]
            made = []
            for n, text in enumerate(texts):
                registers = {"S0": value("b", 32, sources[n]), "S1": value("b", 32, sources[1 - n])}
                registers["D0"] = value("b", 32, one.column(3) >> np.uint64(32 * n))
                registers |= {
                    "VCC": value("b", 64, np.full(one.lanes, one.vcc, "u8")),
                    "SIMM32": value("b", 32, LITERAL_WORD),
                }
                registers |= {
                    "laneId": value("u", 32, np.arange(one.lanes) % one.wave),
                    "WAVE_MODE.IEEE": value("u", 1, 0),
                }
                with np.errstate(all="ignore"):
                    made.append(
                        pcode.program(text).run(registers, one.lanes, one.wave, texts_by_name(name))["D0"].raw
                    )
            low, high = (np.broadcast_to(raw, (one.lanes,)).astype("u8") for raw in made)
            both: Array = low | high << np.uint64(32)
            return both

        yield Case(words, result, wide=True, text=f"VOPD {x.name} :: {y.name}", same=_two_floats)


def dual_text(name: str, stem: str) -> str | None:
    """Return the text of one half: that of the operation alone."""
    alone = stem.replace("v_dual_", "v_")
    return texts_by_name(name).get(alone)


def _two_floats(got: Array, wanted: Array) -> Array:
    equal = np.ones(got.shape, bool)
    for low in (0, 32):
        a, b = (v >> np.uint64(low) & np.uint64(0xFFFF_FFFF) for v in (got, wanted))
        nan = [np.isnan(pcode_values.floats(Value("f", 32, v))) for v in (a, b)]
        equal &= (a == b) | (nan[0] & nan[1])
    return equal
