"""`IsaTranslator`: reads operands as values of the engine, and writes destinations under the mask of lanes.

The base of all operations. Errors are `IsaError`s that name the instruction. Sources: RDNA3, RDNA4 and CDNA3
ISA documents; docs/sources-amd.md.

Not here: operations (`meanings`), decoding (`decode`), known values (`known_values`). Next: `meanings`.
"""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING

from emulator.amd.isa.instruction import (
    EXEC,
    PRIVATE_BASE,
    SHARED_BASE,
    TTMP,
    VCC,
    Imm,
    Instruction,
    IsaError,
    Operand,
    Reg,
    Word,
    canonical,
)
from emulator.amd.isa.known_values import Known
from emulator.amd.isa.modes import CHOOSES, IEEE, KEEP_ALL, KEEPS_NAN, SATURATES, flushes, saturates
from emulator.ir import numeric
from emulator.ir.ir_text import bits_of, element, lanes_of
from emulator.ir.vector import CodeBuilder, IrValue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from emulator.amd.isa.opcodes import IsaTarget
    from emulator.ir.library import Library
    from emulator.simt.wave_function import WaveFunction

FLOATS = {"f16": "half", "f32": "float", "f64": "double"}
"""Name of a float in operations -> LLVM's type."""
SCC, VCCZ, EXECZ = 253, 251, 252
_MOST_HALF = 65504.0
"""The largest finite f16."""
_KEEP_SOURCES = ("v_cvt_f32_f16", "s_cvt_f32_f16", "v_cmp_class", "v_cmpx_class", "v_cndmask")
"""Operations that keep subnormal sources in every mode."""
_KNOWN_TTMPS = (7, 8, 9)
"""The TTMP registers that are defined on gfx12: workgroup ids and the wave's number."""


class IsaTranslator:
    """Reads and writes a kernel's registers, for one instruction after another."""

    def __init__(
        self, wf: WaveFunction, target: IsaTarget, kernel: str, *, code_at: int | None = None
    ) -> None:
        self.wf = wf
        self.target = target
        self.kernel = kernel
        self.code_at = code_at
        """Offset in bytes of the code's address in the launch's parameters; None if they do not have it."""
        self.highest = 0
        """The highest vector register that the kernel names."""
        self.index_mode = 0
        """gfx9: a bit for each operand of the next instructions to which M0 is added (`indirect`); 0 outside."""
        self.known = Known()
        """Known values of the current basic block."""
        self._aside: CodeBuilder | None = None
        """The body of a helper function that is being written; None while code goes to the wave function."""
        self.instruction: Instruction
        self.modes = KEEP_ALL
        """The float mode (`modes`) of the current instruction."""
        self.orders: dict[int, str] = {}
        """The instructions that order workgroups (`orders`), by address; empty unless races are checked."""
        self.guesses: frozenset[int] = frozenset()
        """The loads that a compare-and-swap validates (`guesses`), by address; empty unless races are checked."""
        self.polled: frozenset[int] = frozenset()
        """The accesses by which loops poll an address of LDS (`guesses`), by address; empty unless races are checked."""
        self.unmasked = False
        """Whether results may be written in all lanes (`observed_lanes`)."""
        self._moved: IrValue | None = None
        """The first source after DPP has moved it across lanes; None without DPP."""
        self._write_lanes: IrValue | None = None
        self._deferred: list[tuple[Operand, IrValue]] | None = None
        self._site: int | None = None

    @property
    def c(self) -> CodeBuilder:
        """The code being written."""
        return self._aside or self.wf.c

    @property
    def lib(self) -> Library:
        """The helper functions for waves of this width."""
        return self.wf.lib

    @property
    def lanes(self) -> int:
        """Lanes of the wave."""
        return self.wf.lanes

    @property
    def stem(self) -> str:
        """The instruction's operation, as gfx11 spells it."""
        return canonical(self.instruction.stem, self.target.family)

    def v(self, type_: str) -> str:
        """Return the vector type that has a `type_` for each lane."""
        return self.lib.v(type_)

    def error(self, why: str) -> IsaError:
        """Return an error that names the current instruction."""
        i = self.instruction
        return IsaError(why, text=i.text, address=i.address, kernel=self.kernel)

    def begin(self, instruction: Instruction, *, unmasked: bool) -> None:
        """Make an instruction the current one. `unmasked`: see the attribute."""
        self.instruction, self.unmasked = instruction, unmasked
        self._moved = self._write_lanes = None
        self._site = None

    def called(self, name: str, result: str, compute: Callable[..., IrValue], *values: IrValue) -> IrValue:
        """Return `compute(translator, *values)` by a call of a helper function, which is written once a kernel.

        It serves long computations, which would else be compiled again at each use. `name` identifies the function with the
        values' types. `result` is its type. `compute` may use only its arguments and the translator's `c`.
        """

        def body(c: CodeBuilder, *parameters: IrValue) -> None:
            before, self._aside = self._aside, c
            try:
                c.ret(compute(self, *parameters))
            finally:
                self._aside = before

        types = {f"x{n}": value.type for n, value in enumerate(values)}
        helper = self.lib.define(f"amd.{name}", result, types, body, attributes="noinline #0")
        return self.c.call(helper, result, *values)

    def site(self) -> int:
        """Return the number by which reports name this instruction."""
        if self._site is None:
            self._site = self.wf.site(self.instruction.address, self.instruction.text)
        return self._site

    @contextmanager
    def together(self) -> Iterator[None]:
        """Defer writes of destinations to the end of the context, so that all reads inside get the old values."""
        self._deferred = []
        yield
        todo, self._deferred = self._deferred, None
        for where, value in todo:
            self.write(where, value)

    def sgpr(self, index: int) -> IrValue:
        """Return a scalar register as i32, by its encoding. Raises for an undefined TTMP register."""
        if index == SCC:
            return self.c.resize(self.scc(), 32)
        if index in (VCCZ, EXECZ):
            mask = self.mask_at(VCC if index == VCCZ else EXEC)
            return self.c.resize(self.c.icmp("eq", mask, 0), 32)
        if index == self.target.null:
            return IrValue("i32", "0")
        if TTMP <= index < TTMP + 16 and not (self.target.family == "gfx12" and index - TTMP in _KNOWN_TTMPS):
            raise self.error(f"the contents of ttmp{index - TTMP} are not known")
        return self.wf.read(f"s{index}")

    def set_sgpr(self, index: int, value: IrValue) -> None:
        """Write an i32 to a scalar register; a write to null has no effect. Raises for a read-only register."""
        if index == self.target.null:
            return
        if index > 127:
            raise self.error(f"scalar register {index} cannot be written")
        self.wf.write(f"s{index}", value)

    def scc(self) -> IrValue:
        """Return the scalar condition code, an i1."""
        return self.wf.read("scc")

    def set_scc(self, value: IrValue) -> None:
        """Set the scalar condition code."""
        self.wf.write("scc", value)

    def scalar(self, operand: Operand, bits: int = 32) -> IrValue:
        """Return a scalar operand as an integer of 32 or 64 bits. Raises for a vector register."""
        c = self.c
        if isinstance(operand, Word):
            return c.const(f"i{bits}", operand.value)
        if isinstance(operand, Imm):
            if bits == 64 and operand.literal and self.stem.endswith(("i64", "i32")):
                return c.const("i64", operand.bits - (1 << 32) if operand.bits >> 31 else operand.bits)
            return c.const(f"i{bits}", operand.wide if bits == 64 else operand.bits)
        if operand.file != "s":
            raise self.error(f"{operand} is no scalar operand")
        if operand.index in (SHARED_BASE, PRIVATE_BASE):
            window = self.wf.of_thread("shared_window" if operand.index == SHARED_BASE else "local_window")
            return window if bits == 64 else c.resize(c.op("lshr", window, 32), 32)
        if operand.index in (SHARED_BASE + 1, PRIVATE_BASE + 1):
            raise self.error("limits of apertures are not supported")
        low = self.sgpr(operand.index)
        if bits == 32:
            return low
        if operand.index > 127 or operand.index == self.target.null:
            return c.resize(low, 64)
        return self.known.join(c, low, self.sgpr(operand.index + 1))

    def set_scalar(self, operand: Operand, value: IrValue) -> None:
        """Write an integer of 32 or 64 bits to a scalar destination. Raises for another operand."""
        if not isinstance(operand, Reg) or operand.file != "s":
            raise self.error(f"{operand} is no scalar destination")
        if bits_of(value.type) == 32:
            self.set_sgpr(operand.index, value)
            return
        if operand.index == self.target.null:
            return
        low, high = self.known.split(self.c, value)
        self.set_sgpr(operand.index, low)
        self.set_sgpr(operand.index + 1, high)

    def mask_at(self, index: int) -> IrValue:
        """Return the mask of lanes in one or two scalar registers, as an integer with a bit for each lane."""
        low = self.sgpr(index)
        if self.lanes == 32 or index == self.target.null:
            return self.c.resize(low, self.lanes)
        return self.known.join(self.c, low, self.sgpr(index + 1))

    def set_mask(self, operand: Operand, lanes: IrValue) -> IrValue:
        """Write `lanes`, an i1 for each lane, as a mask, and return it; bits of lanes that do not execute are 0."""
        bits = self.known.mask(self.c, lanes, self.active)
        self.set_scalar(operand, bits)
        return bits

    @property
    def active(self) -> IrValue:
        """The lanes that execute, as an integer."""
        return self.mask_at(EXEC)

    @property
    def writing(self) -> IrValue:
        """The lanes whose destinations are written, as an integer."""
        return self.active if self._write_lanes is None else self.c.op("and", self.active, self._write_lanes)

    def condition(self, operand: Operand) -> IrValue:
        """Return a mask operand as an i1 for each lane; undefined in lanes that do not execute."""
        if isinstance(operand, Imm):
            return self.c.mask_lanes(
                self.c.const(self.lib.mask, operand.wide if self.lanes == 64 else operand.bits)
            )
        if not isinstance(operand, Reg) or operand.file != "s":
            raise self.error(f"{operand} is no mask of lanes")
        return self.known.condition(self.c, self.mask_at(operand.index), self.active)

    def vgpr(self, index: int, file: str = "v") -> IrValue:
        """Return a vector register of a file ("v", "a"), an i32 for each lane."""
        return self.wf.read(f"{file}{index}")

    def set_vgpr(self, index: int, value: IrValue, file: str = "v", *, every: bool = False) -> None:
        """Write a vector register in the lanes that execute; in all lanes if `every`."""
        name = f"{file}{index}"
        if not every and not (self.unmasked and self._write_lanes is None):
            writing = self.known.lanes(self.c, self.writing)
            value = self.c.select(writing, value, self.wf.read(name))
        self.wf.write(name, value)

    def raw(self, operand: Operand, bits: int = 32) -> IrValue:
        """Return an operand as an integer of 16, 32 or 64 bits for each lane, without neg and abs."""
        c = self.c
        if isinstance(operand, Imm):
            constant = {16: operand.half, 32: operand.bits, 64: operand.wide}[bits]
            if bits == 64 and operand.literal:
                constant = self._wide_literal(operand)
            return c.const(self.v(f"i{bits}"), constant)
        if isinstance(operand, Word):
            raise self.error(f"{operand} is no operand of lanes")
        if operand.file == "s":
            scalar = self.scalar(operand, max(bits, 32))
            return self.known.splat(c, c.resize(scalar, bits), self.lanes)
        value = self._first(operand)
        if bits == 16:
            if operand.half == "h":
                value = c.op("lshr", value, 16)
            return c.resize(value, 16)
        if bits == 32:
            return value
        high = self.vgpr(operand.index + 1, operand.file)
        if self._moved is not None and operand is self.instruction.operands[self._first_source()]:
            raise self.error("64-bit operands are not moved across lanes")
        return self.known.join(c, value, high)

    def _first(self, operand: Reg) -> IrValue:
        if self._moved is not None and operand is self.instruction.operands[self._first_source()]:
            return self._moved
        return self.vgpr(operand.index, operand.file)

    def _first_source(self) -> int:
        slots = self.instruction.opcode.operands
        return next(k for k, slot in enumerate(slots) if slot.field == "src0")

    def _wide_literal(self, operand: Imm) -> int:
        """Return a 32-bit literal as 64 bits: upper half of an f64, i64 sign-extended, others zero-extended."""
        if "f64" in self.stem:
            return operand.bits << 32
        if "_i64" in self.stem and operand.bits >> 31:
            return operand.bits - (1 << 32)
        return operand.bits

    def moved(self, value: IrValue, write: IrValue) -> None:
        """Use `value` as the first source, and write destinations only in the lanes of the mask `write`."""
        self._moved = value
        self._write_lanes = write

    def source(self, operand: Operand, type_: str, number: int = 0) -> IrValue:
        """Return source number `number` as `type_`: "f", "i", "u" or "b" and 16, 32 or 64.

        A float has neg and abs applied, and subnormals as the mode says. Raises for neg or abs of an integer.
        """
        bits = int(type_[1:])
        if bits == 16 and isinstance(operand, Reg) and not operand.half:
            value = self._selected_half(operand, number)
        else:
            value = self.raw(operand, bits)
        signed = isinstance(operand, (Reg, Imm)) and (operand.neg or operand.abs)
        if isinstance(operand, Reg) and self.instruction.get("sdwa"):
            value = self._part(operand, number, bits)
        if type_[0] != "f":
            if signed:
                raise self.error(f"sign of an integer operand {operand}")
            return value
        value = self.c.as_float(value)
        if isinstance(operand, (Reg, Imm)) and operand.abs:
            value = self.c.intrinsic("fabs", value)
        if isinstance(operand, (Reg, Imm)) and operand.neg:
            value = self.c.let(value.type, f"fneg {value}")
        return self.as_source(value)

    def as_source(self, value: IrValue) -> IrValue:
        """Return floating-point sources with subnormals kept or as zeros, as the mode says."""
        if self.modes & 0xFF == KEEP_ALL or self.stem.startswith(_KEEP_SOURCES):
            return value
        return numeric.flush(self.c, value) if flushes(self.modes, bits_of(value.type))[0] else value

    def as_result(self, value: IrValue) -> IrValue:
        """Return floating-point results with subnormals kept or as zeros, as the mode says."""
        if self.modes & 0xFF == KEEP_ALL or CHOOSES.match(self.stem):
            return value
        return numeric.flush(self.c, value) if flushes(self.modes, bits_of(value.type))[1] else value

    def saturated(self, value: IrValue, sources: Sequence[IrValue]) -> IrValue:
        """Return f16 results; if they overflow under FP16_OVFL, the largest finite value instead of infinity."""
        if not self.modes & SATURATES or not saturates(self.stem):
            return value
        if self.instruction.get("omod"):
            raise self.error("an output modifier where FP16_OVFL is set is not documented")
        c = self.c
        beyond = c.fcmp("oeq", c.intrinsic("fabs", value), c.fconst(value.type, math.inf))
        for source in sources:
            if element(source.type) in FLOATS.values():
                finite = c.fcmp("olt", c.intrinsic("fabs", source), c.fconst(source.type, math.inf))
                beyond = c.op("and", beyond, finite)
        limit = c.intrinsic("copysign", c.fconst(value.type, _MOST_HALF), value)
        return c.select(beyond, limit, value)

    def _selected_half(self, operand: Reg, number: int) -> IrValue:
        """Return the half of a register that op_sel selects."""
        value = self.raw(operand, 32)
        high = self.instruction.opcode.form.name == "VOP3" and self.instruction.get("op_sel") >> number & 1
        return self.c.resize(self.c.op("lshr", value, 16) if high else value, 16)

    def _part(self, operand: Reg, number: int, bits: int) -> IrValue:
        """SDWA: return the selected byte or word of a register, extended to `bits`."""
        c = self.c
        select = self.instruction.get(f"src{number}_sel")
        whole = self.raw(operand, 32)
        if select == 6:
            return c.resize(whole, bits)
        low, width = (8 * select, 8) if select < 4 else (16 * (select - 4), 16)
        part = c.resize(c.op("lshr", whole, low) if low else whole, width)
        return c.resize(part, bits, signed=operand.sext)

    def write(self, operand: Operand, value: IrValue) -> None:
        """Write an integer or float of 16, 32 or 64 bits to a vector destination, in the lanes that execute."""
        if self._deferred is not None:
            self._deferred.append((operand, value))
            return
        if not isinstance(operand, Reg) or operand.file == "s":
            raise self.error(f"{operand} is no destination of lanes")
        c = self.c
        if element(value.type) in FLOATS.values():
            value = c.as_int(value)
        bits = bits_of(value.type)
        assert lanes_of(value.type) == self.lanes, value.type
        if self.instruction.get("sdwa"):
            self._write_part(operand, value)
        elif bits == 16:
            self._write_half(operand, value)
        elif bits == 32:
            self.set_vgpr(operand.index, value, operand.file)
        else:
            for n, half in enumerate(self.known.split(c, value)):
                self.set_vgpr(operand.index + n, half, operand.file)

    def _write_half(self, operand: Reg, value: IrValue) -> None:
        """Write 16 bits; keep the other half. gfx9 clears it if the opcode has no op_sel for its destination."""
        c, i = self.c, self.instruction
        wide = c.resize(value, 32)
        high = operand.half == "h" or (
            i.opcode.form.name == "VOP3" and not operand.half and bool(i.get("op_sel") & 8)
        )
        if self.target.family == "gfx9" and not high and "3" not in i.opcode.modifiers.get("op_sel", ""):
            self.set_vgpr(operand.index, wide, operand.file)
            return
        old = self.vgpr(operand.index, operand.file)
        if high:
            both = c.op("or", c.op("and", old, 0xFFFF), c.op("shl", wide, 16))
        else:
            both = c.op("or", c.op("and", old, 0xFFFF_0000), wide)
        self.set_vgpr(operand.index, both, operand.file)

    def _write_part(self, operand: Reg, value: IrValue) -> None:
        """SDWA: write the selected byte or word; the rest becomes zero or the sign, or is kept."""
        c, i = self.c, self.instruction
        select, unused = i.get("dst_sel"), i.get("dst_unused")
        if bits_of(value.type) < 32:
            value = c.resize(value, 32)
        if select == 6:
            self.set_vgpr(operand.index, value)
            return
        low, width = (8 * select, 8) if select < 4 else (16 * (select - 4), 16)
        mask = ((1 << width) - 1) << low
        part = c.op("and", c.op("shl", value, low) if low else value, mask)
        if unused == 2:
            part = c.op("or", c.op("and", self.vgpr(operand.index), ~mask), part)
        elif unused == 1:
            part = c.op("ashr", c.op("shl", part, 32 - low - width), 32 - low - width)
        self.set_vgpr(operand.index, part)

    def finish(self, operand: Operand, value: IrValue) -> None:
        """Write a floating-point result, with the instruction's output multiplier and clamp."""
        c, i = self.c, self.instruction
        omod = i.get("omod") if not self.modes & IEEE else 0
        if omod and (self.target.family == "gfx12" or flushes(self.modes, bits_of(value.type))[1]):
            # ISA documents, output modifiers: CDNA3 and RDNA3 ignore them where results may be subnormal or MODE has IEEE;
            # subnormals are flushed, and -0 becomes +0
            value = c.op("fmul", value, c.fconst(value.type, (1.0, 2.0, 4.0, 0.5)[omod]))
            value = c.op("fadd", numeric.flush(c, value), c.fconst(value.type, 0.0))
        self.write(operand, self.as_result(self.clamped(value)))

    def clamped(self, value: IrValue) -> IrValue:
        """Return floating-point results, clamped to [0, 1] if the instruction says so; a NaN becomes 0 or is kept."""
        if not self.instruction.get("clamp"):
            return value
        c = self.c
        zero, one = c.fconst(value.type, 0.0), c.fconst(value.type, 1.0)
        kept = c.intrinsic("minimumnum", c.intrinsic("maximumnum", value, zero), one)
        kept = c.select(c.fcmp("ole", kept, zero), zero, kept)
        return c.select(c.fcmp("uno", value, value), value, kept) if self.modes & KEEPS_NAN else kept

    def widened(self, value: IrValue) -> IrValue:
        """Return floating-point values as doubles."""
        return value if element(value.type) == "double" else self.c.cast("fpext", value, "double")

    def narrowed(self, value: IrValue, type_: str) -> IrValue:
        """Return doubles rounded to a type."""
        if type_ == "f16":  # rounds to odd first, because hosts have no conversion from double to half
            value = numeric.odd_float(self.c, value)
        return self.c.cast("fptrunc", value, FLOATS[type_])

    def flushed(self, value: IrValue) -> IrValue:
        """Return values with subnormals as zeros."""
        return numeric.flush(self.c, value)
