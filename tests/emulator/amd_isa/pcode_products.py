"""Products of modifiers: every control of DPP and every select of SDWA, for the operations that take them.

A move between lanes does not depend on the operation. So one operation of each encoding has the whole product
of control, bound_ctrl and fetched inactive lanes, and all masks of rows and banks; every other operation has
each kind of control with both flags. Of DPP8 each place selects each of its eight lanes. Of SDWA one
operation on integers and one on floats have the whole product of the parts of both sources and of the
destination; every other operation has each pair of parts, and each part of the destination with each kind
of what is around it.

Not here: operands, signs and halves (`pcode_forms`), what a move or a part gives (`pcode_definitions`).
"""

from __future__ import annotations

import re
from itertools import product
from typing import TYPE_CHECKING, Any

from emulator.amd.isa.opcodes import target
from tests.emulator.amd_isa.lane_cases import ROW, WAVE_MOVES
from tests.emulator.amd_isa.pcode_forms import Choice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.emulator.amd_isa.pcode_forms import Form

WHOLE_MOVES = ("v_mov_b32", "v_add_nc_u32", "v_cmp_lt_u32", "v_add3_u32")
WHOLE_PARTS = ("v_add_nc_u32", "v_max_f32")
MASKS = (*product((15, 5, 1), (15, 10, 8)),)


def controls(name: str) -> list[int]:
    """Return every control of DPP16 that a target has."""
    gfx9 = target(name).family == "gfx9"
    shifts = [kind << 4 | by for kind in (0x10, 0x11, 0x12) for by in range(1, ROW)]
    rows = [0x15 << 4 | by for by in range(ROW)] + ([] if gfx9 else [0x16 << 4 | by for by in range(ROW)])
    return [*range(256), *shifts, *rows, 0x140, 0x141, *(WAVE_MOVES if gfx9 else ())]


def kinds(name: str) -> list[int]:
    """Return one control of each kind."""
    gfx9 = target(name).family == "gfx9"
    return [0x1B, 0x103, 0x111, 0x12F, 0x140, 0x141, 0x15A, *(WAVE_MOVES if gfx9 else (0x165,))]


def moves(form: Form) -> Iterator[Choice]:
    """Yield what DPP makes of a form."""
    if not moves_at_all(form):
        return
    name, gfx9 = form.target, target(form.target).family == "gfx9"
    short = form.kind in ("VOP1", "VOP2", "VOPC")
    signs: dict[str, Any] = {what: form.signs(what) for what in ("neg", "abs")} if short else {}
    mask = form.kind == "VOPC" or form.stem.startswith("v_cmp") or "VCC" in form.text
    fetches = (0,) if gfx9 else (0, 1)
    whole = form.stem in WHOLE_MOVES
    for n, (control, bound, inactive) in enumerate(
        product(controls(name) if whole else kinds(name), (0, 1), fetches)
    ):
        if mask and not bound:
            continue  # a mask has a bit of every lane that executes
        yield Choice(moved=(control, bound, inactive, 15, 15), **(signs if n % 3 == 0 else {}))
    if not mask:
        masks = product(range(16), range(16)) if whole else MASKS
        yield from (Choice(moved=(0x111, n % 2, 0, *both)) for n, both in enumerate(masks))
    if not gfx9:
        for n, inactive in product(range(8), fetches):
            places = (n,) * 8 if whole or not n else tuple((n * lane + n // 2) % 8 for lane in range(8))
            yield Choice(eight=(*places, inactive))


def moves_at_all(form: Form) -> bool:
    """Return whether the emulated GPU's tables and the pseudo-code give a form a first source that moves."""
    gfx9 = target(form.target).family == "gfx9"
    slots = [
        s
        for s in form.opcode.operands
        if s.field in ("src0", "src1", "src2", "vsrc1", "vdst") and not form.is_mask(s)
    ]
    if (
        form.opcode.literal
        or not form.type_of(0)
        or "VGPR" in form.text
        or form.stem.startswith(("v_swap", "v_s_"))
    ):
        return False
    return not (
        any(s.dwords == 2 for s in slots)
        or form.kind == "VOP3P"
        or (gfx9 and form.kind in ("VOP3", "VOP3SD"))
    )


def parts(form: Form) -> Iterator[Choice]:
    """Yield what SDWA makes of a form."""
    if (
        target(form.target).family != "gfx9"
        or form.kind not in ("VOP1", "VOP2", "VOPC")
        or not moves_at_all(form)
    ):
        return
    if form.stem == "v_readfirstlane_b32" or re.search("mac_|dot|cvt_(pk_)?f32_[fb]f?p?8", form.stem):
        return
    signs: dict[str, Any] = {what: form.signs(what) for what in ("neg", "abs")}
    exact = form.kind != "VOPC" and form.type_of_result[0] != "f"  # elsewhere a NaN has any payload
    places = list(product(range(7), range(3))) if exact or form.stem in WHOLE_PARTS else [(6, 0)]
    extends = (0, 1) if not signs["neg"] else (0,)
    two = len(form.sources) > 1
    sources = list(product(range(7), extends, *((range(7), extends) if two else ((0,), (0,)))))
    if form.stem in WHOLE_PARTS:
        yield from (Choice(parts=(*source, *place)) for source, place in product(sources, places))
    else:
        longest = max(len(sources), len(places))
        for n in range(longest):
            yield Choice(
                parts=(*sources[n % len(sources)], *places[n % len(places)]), **(signs if n % 5 == 1 else {})
            )
    if form.type_of_result[0] == "f" and form.kind != "VOPC":
        yield from (Choice(parts=(n, 0, 6, 0, 6, 0), clamp=1) for n in range(4, 7))


def choices(form: Form) -> Iterator[Choice]:
    yield from moves(form)
    yield from parts(form)
