"""Make the opcode tables of `emulator.amd.isa` from the text that LLVM's disassembler prints for each opcode.

`python -m tools.amd_isa TARGET...` writes TARGET.txt in `emulator/amd/isa/tables`; the table of a target with a
base (`opcodes.FAMILIES`) has only what differs from it. It needs libLLVM 19
(Debian's package libllvm19); `--library` names it. Nothing at run time depends on it.

A line is `FORMAT OPCODE NAME OPERANDS... | MODIFIERS...`. An operand is a fixed word such as `vcc`, or
`field:dwords`, with `m` for the dwords of a mask of lanes. `@s` follows if a field of vector registers names
a scalar register, `@a` if it names an accumulation register.

Not here: the encodings (`emulator.amd.isa.opcodes`), the meaning of instructions
(`emulator.amd.isa.meanings`). Next: `emulator.amd.isa.opcodes`, which reads the tables.
"""

# ruff: noqa: E501 - rows of tables and lines of IR read best on one line

from __future__ import annotations

import ctypes
import itertools
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from emulator.amd.isa.opcodes import FAMILIES, VOP3SD, EncodingFormat
from tools.arguments import command

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_TABLES = Path(__file__).parents[1] / "emulator/amd/isa/tables"
_REGISTER = re.compile(r"([vsa])(?:(\d+)|\[(\d+):(\d+)\])")
_NUMBERS = {
    "vdst": 32, "sdst": 16, "sdata": 16, "vdata": 160, "vaddr": 200, "data0": 160, "data1": 128, "addr": 200, "src0": 64,
    "src1": 96, "src2": 128, "vsrc1": 96, "ssrc0": 32, "ssrc1": 64, "sbase": 24, "soffset": 5, "saddr": 40, "srsrc": 48,
}  # fmt: skip
"""Field -> its register in a probe. The numbers of a format differ, so the text shows the field of each operand."""
_UNREAD = {"v_mov_b16": "vdst:1 src0:1", "v_swap_b16": "vdst:1 src0:1", "v_and_b16": "vdst:1 src0:1 src1:1"}
"""16-bit opcode -> its operands, if LLVM 19 prints none."""
_SCALARS = {"src0": 56, "src1": 72, "src2": 88}
"""Field -> its scalar register in a probe, if the opcode accepts no vector register."""


class Disassembler:
    """LLVM's disassembler of one processor, through its C interface."""

    def __init__(self, library: str, processor: str, features: str = "") -> None:
        self._llvm = llvm = ctypes.CDLL(library)
        for part in ("TargetInfo", "TargetMC", "Disassembler"):
            getattr(llvm, f"LLVMInitializeAMDGPU{part}")()
        create = llvm.LLVMCreateDisasmCPUFeatures
        create.restype = ctypes.c_void_p
        create.argtypes = [
            *[ctypes.c_char_p] * 3, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p
        ]  # fmt: skip
        llvm.LLVMDisasmInstruction.restype = ctypes.c_size_t
        llvm.LLVMDisasmInstruction.argtypes = [
            ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_size_t
        ]  # fmt: skip
        self._context = create(
            b"amdgcn-amd-amdhsa", processor.encode(), features.encode(), None, 0, None, None
        )
        self._text = ctypes.create_string_buffer(512)

    def read(self, code: bytes) -> tuple[int, str] | None:
        """Return the size in bytes and the text of the first instruction; None for an invalid one."""
        raw = (ctypes.c_ubyte * (len(code) + 16)).from_buffer_copy(code + bytes(16))
        size = self._llvm.LLVMDisasmInstruction(
            self._context, ctypes.addressof(raw), len(code) + 16, 0, self._text, len(self._text)
        )
        text = self._text.value.decode().strip()
        return (size, re.sub(r"\s+", " ", text)) if size and "/*" not in text else None


class Prober:
    """Finds the opcodes of one target and their operands by disassembly of trial encodings."""

    def __init__(self, library: str, target: str) -> None:
        self.family, self.formats, _ = FAMILIES[target]
        self._one = Disassembler(library, target)
        self._wide = Disassembler(library, target, "+wavefrontsize64") if self.family != "gfx9" else self._one
        self._halves = Disassembler(library, target, "+real-true16") if self.family != "gfx9" else self._one
        """The disassembler for the few opcodes that LLVM 19 decodes only with 16-bit halves of registers."""

    def lines(self) -> Iterator[str]:
        """Yield the table's lines."""
        for form in self.formats:
            if form.name == "VOPD":
                yield from self._dual(form)
                continue
            _, width = form.fields["op"]
            segments = range(3) if form.name == "FLAT" and "seg" in form.fields else (0,)
            for segment, op in itertools.product(segments, range(1 << width)):
                line = self._opcode(form, op, segment)
                if line:
                    yield line

    def _bytes(self, form: EncodingFormat, encoding: int) -> bytes:
        return encoding.to_bytes(4 * form.dwords, "little")

    def _opcode(self, form: EncodingFormat, op: int, segment: int) -> str | None:
        if form.name == "VOP3":
            scalar = self._opcode_of(VOP3SD[self.family], op, 0)
            if scalar and " sdst:" in scalar:
                return scalar
        return self._opcode_of(form, op, segment)

    def _opcode_of(self, form: EncodingFormat, op: int, segment: int) -> str | None:
        """Return the line of an opcode; None for an invalid one.

        Fields are set one after another. A field that makes the encoding invalid is not used, and stays 0.
        """
        base = form.put(form.base, "op", op)
        if next(f.name for f in self.formats if f.matches(base & 0xFFFF_FFFF)) != form.name.removesuffix(
            "SD"
        ):
            return None
        if "seg" in form.fields:
            base = form.put(base, "seg", segment)
        if form.name == "VOP3P":  # the matrix instructions of gfx12 require these bits
            base = form.put(form.put(base, "op_sel_hi", 3), "op_sel_hi2", 1)
        if "soffset_en" in form.fields and self._read(
            form, form.put(form.put(base, "imm", 1), "soffset_en", 1)
        ):
            base = form.put(form.put(base, "imm", 1), "soffset_en", 1)
        if (form.name == "FLAT" and (segment or self.family != "gfx9")) or form.dwords == 3:
            base = form.put(
                base,
                "saddr" if "saddr" in form.fields else "soffset",
                0x7F if self.family == "gfx9" else 0x7C,
            )
        fields = [
            f
            for f in form.fields
            if f in _NUMBERS and not (form.name == "FLAT" and not segment and f == "saddr")
        ]
        for first in (
            None,
            *itertools.permutations([f for f in fields if f.startswith(("src", "v"))], 1),
            *(
                c
                for n in (2, 3)
                for c in itertools.combinations([f for f in fields if f.startswith("src")], n)
            ),
        ):
            encoding = base
            chosen: dict[tuple[str, int], str] = {}
            for field in first or ():
                encoding = form.put(encoding, field, self._values(form, field)[0][2])
            if self._read(form, encoding) is None:
                continue
            for field in fields:
                for kind, number, value in self._values(form, field):
                    changed = form.put(encoding, field, value)
                    if self._read(form, changed) is not None:
                        encoding, chosen = changed, chosen | {(kind, number): field}
                        break
            return self._line(form, op, segment, encoding, chosen)
        return None

    def _read(self, form: EncodingFormat, encoding: int) -> tuple[int, str] | None:
        code = self._bytes(form, encoding)
        return self._one.read(code) or self._wide.read(code) or self._halves.read(code)

    @staticmethod
    def _values(form: EncodingFormat, field: str) -> list[tuple[str, int, int]]:
        """Return the trial values of a field as (register file, number of the register, value of the field)."""
        number = _NUMBERS[field]
        if field == "sbase":
            return [("s", number, number // 2)]
        if field == "srsrc":
            return [("s", number, number // 4 if form.fields[field][1] == 5 else number)]
        if field.startswith("src"):
            return [("v", number, number | 0x100), ("s", _SCALARS[field], _SCALARS[field])]
        if field.startswith("s"):
            return [("s", number, number)]
        return [("v", number, number)]

    def _line(
        self, form: EncodingFormat, op: int, segment: int, encoding: int, numbers: dict[tuple[str, int], str]
    ) -> str:
        """Return the line of an opcode; `numbers` gives the field of each register in the encoding."""
        code = self._bytes(form, encoding)
        wide = self._wide.read(code)
        size, text = self._one.read(code) or wide or self._halves.read(code) or (0, "")
        name, _, rest = text.partition(" ")
        numbers = dict(numbers)
        for (kind, n), f in list(numbers.items()):
            if kind == "v":
                numbers.setdefault(("a", n), f)
                numbers.setdefault(("s", n), f)
        operands = self._operands(rest, numbers, (wide[1].partition(" ")[2] if wide else rest))
        if not operands:
            operands = _UNREAD.get(re.sub("_e32$|_e64$", "", name), "").split()
        literal = ["literal"] if size > 4 * form.dwords else []
        modifiers = self._modifiers(form, encoding, text)
        shown = (
            form.name
            if form.name != "FLAT" or "seg" not in form.fields
            else ("FLAT", "SCRATCH", "GLOBAL")[segment]
        )
        return " ".join([shown, str(op), name, *operands, "|", *literal, *modifiers]).rstrip(" |")

    @staticmethod
    def _operands(text: str, numbers: dict[tuple[str, int], str], wide: str) -> list[str]:
        """Return the operands of a line from the instruction's text with waves of 32 lanes and with 64."""
        found = []
        words, wides = (re.split(r",\s*|\s+", t) for t in (text, wide))
        for k, word in enumerate(w for w in words if w):
            match = _REGISTER.fullmatch(word)
            if match is None:
                if word in ("vcc_lo", "vcc"):
                    found.append("vcc")
                elif re.fullmatch(r"off|null", word):
                    found.append(word)
                continue
            low = int(match[2] or match[3])
            count = int(match[4]) - low + 1 if match[3] else 1
            field = numbers.get((match[1], low), f"?{low}")
            other = _REGISTER.fullmatch(wides[k]) if k < len(wides) else None
            if other and other[1] == "s" and match[1] == "s" and other[3] and not match[3]:
                size = "m"
            else:
                size = str(count)
            vector = field.startswith(("v", "data", "addr"))
            found.append(
                f"{field}:{size}"
                + ("@s" if vector and match[1] == "s" else "")
                + ("@a" if match[1] == "a" else "")
            )
        return found

    def _modifiers(self, form: EncodingFormat, encoding: int, text: str) -> list[str]:
        """Return the modifier fields that change the text of the instruction."""
        found = []
        for field, values in (
            ("neg", (1, 2, 4)), ("abs", (1, 2, 4)), ("neg_hi", (1, 2, 4)), ("op_sel", (1, 2, 4, 8)), ("op_sel_hi", (0,)),
            ("op_sel_hi2", (0,)), ("clamp", (1,)), ("omod", (1,)), ("gds", (1,)), ("cbsz", (1,)), ("abid", (1,)), ("blgp", (1,)),
        ):  # fmt: skip
            if field not in form.fields:
                continue
            bits = ""
            for value in values:
                changed = self._read(form, form.put(encoding, field, value))
                if changed and changed[1] != text:
                    bits += str(value.bit_length() - 1) if len(values) > 1 else ""
                    if len(values) == 1:
                        found.append(field)
            if bits:
                found.append(f"{field}={bits}")
        return found

    def _dual(self, form: EncodingFormat) -> Iterator[str]:
        """Yield the lines of VOPD: each operation of one half beside an addition in the other half."""
        base = form.base
        for field, value in (
            ("vdstx", 32), ("vsrc1x", 96), ("src0x", 0x140), ("vdsty", 16), ("vsrc1y", 97), ("src0y", 0x141), ("opx", 4),
            ("opy", 4),
        ):  # fmt: skip
            base = form.put(base, field, value)
        for side, field, unused in (("X", "opx", "vsrc1x"), ("Y", "opy", "vsrc1y")):
            for op in range(1 << form.fields[field][1]):
                encoding = form.put(base, field, op)
                read = self._one.read(self._bytes(form, encoding)) or self._one.read(
                    self._bytes(form, form.put(encoding, unused, 0))
                )
                if read:
                    words = re.split(r",\s*|\s+", read[1].split(" :: ")[0 if side == "X" else 1])
                    literal = ["| literal"] if read[0] > 8 else []
                    yield " ".join([f"VOPD{side}", str(op), words[0], *literal])


def main(argv: Sequence[str] | None = None) -> int:
    """Write the tables of the given targets; return 0."""
    parser = command("tools.amd_isa", __doc__)
    parser.add_argument("target", nargs="*", default=list(FAMILIES), help="processors (all)")
    parser.add_argument("--library", default="libLLVM.so.19.1", help="LLVM 19's shared library")
    arguments = parser.parse_args(argv)
    for target in arguments.target:
        lines = list(Prober(arguments.library, target).lines())
        base = FAMILIES[target][2]
        known = set((_TABLES / f"{base}.txt").read_text().splitlines()) if base else set()
        lines = [line for line in lines if line not in known]
        if lines:
            (_TABLES / f"{target}.txt").write_text("\n".join(lines) + "\n")
        print(f"{target}: {len(lines)} opcodes", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
