"""DPP: instructions whose first source comes from other lanes.

Not here: what is moved where (`lanes`). Next: `decode`, the user.
"""

# ruff: noqa: E501 - rows of tables and lines of IR read best on one line

from __future__ import annotations

from typing import TYPE_CHECKING

from drivers.amd.emu.isa.formats import DPP16
from drivers.amd.emu.isa.operands import Operand, Reg, signed
from drivers.amd.emu.isa.reading import Reading, made
from drivers.amd.emu.isa.vector_operands import extra_dword, first_source, modifiers_of, vector_operands

if TYPE_CHECKING:
    from drivers.amd.emu.isa.instruction import Instruction
    from drivers.amd.emu.isa.opcodes import Opcode


def dpp_text(control: int) -> str:
    """Return how a DPP control reads, or an empty text."""
    if control < 0x100:
        return f"quad_perm:[{','.join(str(control >> 2 * k & 3) for k in range(4))}]"
    for first, name in (
        (0x100, "row_shl"), (0x110, "row_shr"), (0x120, "row_ror"), (0x150, "row_share"), (0x160, "row_xmask"),
    ):  # fmt: skip
        if first <= control < first + 16 and (control != first or first >= 0x150):
            return f"{name}:{control - first}"
    return {
        0x130: "wave_shl:1", 0x134: "wave_rol:1", 0x138: "wave_shr:1", 0x13C: "wave_ror:1", 0x140: "row_mirror",
        0x141: "row_half_mirror", 0x142: "row_bcast:15", 0x143: "row_bcast:31",
    }.get(control, "")  # fmt: skip


def _moved_name(opcode: Opcode) -> str:
    if opcode.form.name in ("VOP3", "VOP3SD", "VOP3P"):
        return opcode.name + ("_dpp" if opcode.name.endswith("_e64") else "_e64_dpp")
    return opcode.name.removesuffix("_e32") + "_dpp"


def decode_dpp(reading: Reading, opcode: Opcode) -> Instruction:
    """Decode an instruction whose first source comes from other lanes, as a dword more says."""
    extra = extra_dword(reading, opcode)
    control = {name: extra >> low & (1 << bits) - 1 for name, (low, bits) in DPP16.items()}
    first: Operand = Reg(
        "v", control["dpp_src0"], opcode.operands[1].dwords if len(opcode.operands) > 1 else 1
    )
    text = dpp_text(control["dpp_ctrl"])
    if not text or extra >> 17 & 1:
        raise reading.error(f"DPP control {control['dpp_ctrl']:#x} does not exist")
    if reading.target.family == "gfx9":
        text = text.replace("row_share", "row_newbcast")
    items = vector_operands(reading, opcode, first)
    if opcode.form.name in ("VOP3", "VOP3SD", "VOP3P"):
        if any(control[k] for k in ("neg", "abs", "neg1", "abs1")):
            raise reading.error("signs stand in both dwords")
        modifiers, tail = modifiers_of(reading, opcode, items)
    else:
        modifiers, tail = {}, ""
        at = first_source(opcode)
        if at >= len(items):
            raise reading.error(f"{opcode.name} has no source that DPP could move")
        items[at] = signed(items[at], neg=bool(control["neg"]), absolute=bool(control["abs"]))
        if control["neg1"] or control["abs1"]:
            if at + 1 >= len(items):
                raise reading.error(f"{opcode.name} has no second source that takes a sign")
            items[at + 1] = signed(items[at + 1], neg=bool(control["neg1"]), absolute=bool(control["abs1"]))
    tail += f" {text} row_mask:{control['row_mask']:#x} bank_mask:{control['bank_mask']:#x}"
    tail += (" bound_ctrl:1" if control["bound_ctrl"] else "") + (" fi:1" if control["fi"] else "")
    modifiers |= {"dpp": 1, "bank_mask": control["bank_mask"], "row_mask": control["row_mask"], "fi": control["fi"],
                  "bound_ctrl": control["bound_ctrl"], "dpp_ctrl": control["dpp_ctrl"]}  # fmt: skip
    return made(reading, opcode, _moved_name(opcode), items, modifiers, tail)


def decode_dpp8(reading: Reading, opcode: Opcode, *, fetch: bool) -> Instruction:
    """Decode an instruction whose first source comes from lanes chosen within each eight."""
    extra = extra_dword(reading, opcode)
    lanes = [extra >> 8 + 3 * k & 7 for k in range(8)]
    items = vector_operands(reading, opcode, Reg("v", extra & 255))
    modifiers: dict[str, int] = {}
    tail = ""
    if opcode.form.name in ("VOP3", "VOP3SD", "VOP3P"):
        modifiers, tail = modifiers_of(reading, opcode, items)
    tail += f" dpp8:[{','.join(map(str, lanes))}]" + (" fi:1" if fetch else "")
    modifiers |= {"dpp8": 1, "dpp8_lanes": extra >> 8, "fi": int(fetch)}
    return made(reading, opcode, _moved_name(opcode), items, modifiers, tail)
