"""Decodes VOPD (two operations in one instruction), SDWA (bytes and words of registers) and DPP (other lanes).

Errors are `IsaError`s that name the dwords. Not here: moves across lanes (`lanes`), values (`values`), the two
operations of VOPD (`translate`). Next: `decode`, the user. Source: as `opcodes`.
"""

# ruff: noqa: E501 - rows of tables and lines of IR read best on one line

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from emulator.amd.isa.instruction import Instruction
from emulator.amd.isa.opcodes import DPP16, SDWA
from emulator.amd.isa.operands import Imm, Operand, Reg, literal, signed
from emulator.amd.isa.reading import LITERAL, Reading, made, scalar_register, source
from emulator.amd.isa.vector_operands import extra_dword, first_source, modifiers_of, vector_operands

if TYPE_CHECKING:
    from emulator.amd.isa.opcodes import Opcode


def decode_dual(reading: Reading) -> Instruction:
    """Decode VOPD: two vector operations, which both read before either writes; the second is `Instruction.second`."""
    parts = []
    literals: list[Imm] = []

    def item(code: int) -> Operand:
        if code == LITERAL:
            if not literals:
                literals.append(literal(reading.next_dword()))
            return literals[0]
        return source(reading, code, 1)

    first = Reg("v", reading.field("vdstx"))
    second = Reg("v", reading.field("vdsty") << 1 | (first.index & 1 ^ 1))
    for side, op, target in (("X", reading.field("opx"), first), ("Y", reading.field("opy"), second)):
        opcode = reading.target.opcodes.get((f"VOPD{side}", op))
        if opcode is None:
            raise reading.error(f"opcode {op} of VOPD {side} is not in the table of {reading.target.name}")
        low = side.lower()
        items: list[Operand] = [target, item(reading.field(f"src0{low}"))]
        if "_mov_" not in opcode.name:
            items.append(Reg("v", reading.field(f"vsrc1{low}")))
        if "fmamk" in opcode.name:
            items.insert(2, item(LITERAL))
        elif "fmaak" in opcode.name:
            items.append(item(LITERAL))
        parts.append((opcode, items))
    (x, x_items), (y, y_items) = parts
    other = Instruction(reading.address, 0, y, y.name, tuple(y_items))
    own = made(reading, x, x.name, x_items, {})
    return replace(own, second=other)


# Texts of SDWA selections, and of the treatment of the destination's other bits, by number.
_PARTS = ("BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD")
_UNUSED = ("UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE")


def decode_sdwa(reading: Reading, opcode: Opcode) -> Instruction:
    """Decode an SDWA instruction: a further dword selects bytes or words of registers."""
    extra = extra_dword(reading, opcode)
    found = {name: extra >> low & (1 << bits) - 1 for name, (low, bits) in SDWA.items()}
    compares = opcode.form.name == "VOPC"

    def item(code: int, number: int, *, scalar: int) -> Operand:
        operand: Operand = source(reading, code, 1) if scalar else Reg("v", code)
        operand = signed(
            operand, neg=bool(found[f"src{number}_neg"]), absolute=bool(found[f"src{number}_abs"])
        )
        return (
            replace(operand, sext=bool(found[f"src{number}_sext"])) if isinstance(operand, Reg) else operand
        )

    items = vector_operands(reading, opcode, item(found["src0"], 0, scalar=found["s0"]))
    at = first_source(opcode)
    two = len(opcode.operands) > at + 1 and opcode.operands[at + 1].field == "vsrc1"
    if two:
        items[at + 1] = item(reading.field("vsrc1"), 1, scalar=found["s1"])
    tail = " clamp" if found["clamp"] and not compares else ""
    if compares:
        if extra >> 15 & 1:
            items[0] = scalar_register(reading, extra >> 8 & 127, 2)
    else:
        tail += ("", " mul:2", " mul:4", " div:2")[found["omod"]]
        if found["dst_sel"] > 6 or found["dst_unused"] > 2:
            raise reading.error("part of the destination does not exist")
        tail += f" dst_sel:{_PARTS[found['dst_sel']]} dst_unused:{_UNUSED[found['dst_unused']]}"
    if max(found["src0_sel"], found["src1_sel"]) > 6:
        raise reading.error("part of a source does not exist")
    tail += f" src0_sel:{_PARTS[found['src0_sel']]}" + (
        f" src1_sel:{_PARTS[found['src1_sel']]}" if two else ""
    )
    modifiers = {k: found[k] for k in ("clamp", "omod", "dst_sel", "dst_unused", "src0_sel", "src1_sel")}
    if compares:
        modifiers |= {"clamp": 0, "omod": 0, "dst_sel": 6, "dst_unused": 0}
    return made(
        reading, opcode, opcode.name.removesuffix("_e32") + "_sdwa", items, modifiers | {"sdwa": 1}, tail
    )


def dpp_text(control: int) -> str:
    """Return the text of a DPP control; "" for a control that does not exist."""
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
    """Decode a DPP16 instruction: a further dword says from which lanes the first source comes."""
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
            raise reading.error("neg or abs is set in both dwords")
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
    """Decode a DPP8 instruction: a further dword selects a lane of each group of eight for the first source."""
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
