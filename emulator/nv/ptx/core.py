"""The common parts of all PTX instructions: operands as lane values, modifiers, and the registry of opcodes.

The translation of an instruction is a function that is registered by opcode (`meaning`). It consumes its modifiers from
`Modifiers`. A remaining modifier is an error, so that an unknown one is never ignored. Special registers (PTX ISA,
chapter 10) are operands, too.

Not here: control flow (`translate`). Next: `integers`, `floats`, `memory` and others, the instructions.
"""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from emulator.ir.ir_text import bits_of
from emulator.nv.ptx.statements import (
    TYPES,
    Mem,
    Not,
    Operand,
    PtxError,
    PtxImm,
    PtxInstruction,
    PtxReg,
    Special,
    Sym,
    Vec,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from emulator.ir.vector import CodeBuilder, IrValue
    from emulator.nv.ptx.flat import Flat
    from emulator.simt.warp_function import WarpFunction

    Meaning = Callable[["PtxTranslator", PtxInstruction, "Modifiers"], None]

CANONICAL_NAN = {16: 0x7FFF, 32: 0x7FFF_FFFF, 64: 0xFFF8_0000_0000_0000}
"""Bits of a float -> the NaN that the hardware's arithmetic produces."""
FLOATS = {"f16": "half", "f32": "float", "f64": "double"}


class Modifiers:
    """The dotted words after an opcode; an instruction consumes them one by one."""

    def __init__(self, instruction: PtxInstruction) -> None:
        self.rest = list(instruction.modifiers)
        self._instruction = instruction

    def flag(self, name: str) -> bool:
        """Consume a word if it is present; return whether it was."""
        if name in self.rest:
            self.rest.remove(name)
            return True
        return False

    def one_of(self, *names: str, default: str = "") -> str:
        """Consume and return the first word that is one of `names`; `default` if there is none."""
        for name in self.rest:
            if name in names:
                self.rest.remove(name)
                return name
        return default

    def need(self, *names: str) -> str:
        """Consume and return a word that must be one of `names`. Raises `PtxError` if there is none."""
        found = self.one_of(*names)
        if not found:
            raise PtxError(
                self._instruction.line,
                f"{self._instruction.text}: needs one of {', '.join('.' + n for n in names)}",
            )
        return found

    def type(self, *, last: bool = True) -> str:
        """Consume and return the last type, or with `last` False the first. Raises `PtxError` if there is none."""
        found = [m for m in self.rest if m in TYPES]
        if not found:
            raise PtxError(self._instruction.line, f"{self._instruction.text}: names no type")
        name = found[-1 if last else 0]
        for i in range(len(self.rest) - 1, -1, -1) if last else range(len(self.rest)):
            if self.rest[i] == name:
                del self.rest[i]
                break
        return name

    def done(self) -> None:
        """Raise `PtxError` if modifiers remain."""
        if self.rest:
            unknown = ", ".join("." + m for m in self.rest)
            raise PtxError(
                self._instruction.line, f"{unknown} is not supported here: {self._instruction.text}"
            )


class PtxTranslator:
    """The operands of one kernel as values, and the warp function under construction."""

    def __init__(
        self, wf: WarpFunction, flat: Flat, arch: int, lazy_nans: frozenset[str], areas: Mapping[str, int]
    ) -> None:
        """Begin the translation of `flat` for sm_`arch`.

        `lazy_nans` are registers whose NaNs are made canonical when they are read. `areas` maps names to offsets of
        memory that is reserved in each warp's state.
        """
        self.wf = wf
        self.flat = flat
        self.arch = arch
        self._areas = areas
        self._lazy = lazy_nans
        self._canonical: dict[str, tuple[IrValue, IrValue]] = {}
        """Register -> its value when it was read last, and that value with canonical NaNs."""
        self._scratch: dict[str, IrValue] = {}
        self.guesses: frozenset[int] = frozenset()
        """The `id`s of loads that a compare-and-swap validates (`blocks.guesses`); empty unless races are checked."""
        self.instruction: PtxInstruction = PtxInstruction("nop", (), (), None, False, 0, "")

    @property
    def c(self) -> CodeBuilder:
        """The builder of the current code."""
        return self.wf.c

    def v(self, type_: str) -> str:
        """Return the vector type with one `type_` for each lane."""
        return self.wf.lib.v(type_)

    def error(self, message: str) -> PtxError:
        """Return an error that names the current instruction."""
        return PtxError(self.instruction.line, f"{message}: {self.instruction.text}")

    def site(self) -> int:
        """Register the current instruction for reports; return its number."""
        return self.wf.site(self.instruction.line, self.instruction.text)

    def has_area(self, name: str) -> bool:
        """Return whether the kernel has reserved memory of a warp under a name."""
        return name in self._areas

    def area(self, name: str, warp: IrValue | None = None) -> IrValue:
        """Return the address of the reserved memory of a name, in the state of this warp or of the warp at `warp`."""
        return self.c.gep(self.wf.reserved(warp), self._areas[name])

    def scratch(self, name: str, type_: str) -> IrValue:
        """Return the address of a stack variable, the same for every use of a name."""
        if name not in self._scratch:
            self._scratch[name] = self.c.slot(type_)
        return self._scratch[name]

    def begin_block(self) -> None:
        """Drop cached values of registers, at the start of a basic block."""
        self._canonical.clear()

    def raw(self, operand: Operand) -> IrValue:
        """Return a register's bits. Raises `PtxError` for any other operand."""
        if not isinstance(operand, PtxReg):
            raise self.error(f"{operand} must be a register")
        value = self.wf.read(operand.name)
        if operand.name not in self._lazy:
            return value
        known = self._canonical.get(operand.name)
        if known is None or known[0] != value:
            known = (value, self.canonical(value))
            self._canonical[operand.name] = known
        return known[1]

    def bits(self, operand: Operand, bits: int, *, relaxed: bool = False) -> IrValue:
        """Return an operand as integers of `bits`; with `relaxed` a wider register gives its low bits.

        Raises `PtxError` for a register of another width and for an operand that is no source.
        """
        match operand:
            case PtxReg():
                if operand.bits == bits:
                    return self.raw(operand)
                if relaxed and operand.bits > bits:
                    return self.c.resize(self.raw(operand), bits)
                raise self.error(f"{operand.name} has {operand.bits} bits where {bits} are wanted")
            case PtxImm(value, kind):
                if kind == "f64" and bits == 32:
                    value = f32_bits(struct.unpack("<d", struct.pack("<Q", value))[0])
                elif kind == "f32" and bits == 64:
                    value = struct.unpack("<Q", struct.pack("<d", f32_value(value)))[0]
                return self.c.const(self.v(f"i{bits}"), value)
            case Special(name):
                return self.c.resize(self.special(name), bits)
            case Sym():
                return self.address_of(operand, bits)
            case _:
                raise self.error(f"{operand} is no source of {bits} bits")

    def float(self, operand: Operand, type_: str) -> IrValue:
        """Return an operand as f16, f32 or f64. Raises `PtxError` for other types."""
        if type_ not in FLOATS:
            raise self.error(f".{type_} is no floating-point type of this instruction")
        bits = TYPES[type_]
        if isinstance(operand, PtxReg) and operand.bits == bits:
            value = self.wf.read(operand.name)
        else:
            value = self.bits(operand, bits)
        return self.c.bitcast(value, self.v(FLOATS[type_]))

    def pred(self, operand: Operand) -> IrValue:
        """Return a predicate as a vector of i1. Raises `PtxError` for an operand that is none."""
        match operand:
            case PtxReg(name) if operand.bits == 1:
                return self.wf.read(name)
            case Not(reg) if reg.bits == 1:
                return self.c.not_(self.wf.read(reg.name))
            case PtxImm(value, "int"):
                return self.c.const(self.v("i1"), 1 if value else 0)
            case Special("%is_explicit_cluster"):
                explicit = self.c.icmp("ne", self.wf.of_thread("explicit_cluster"), 0)
                return self.c.splat(explicit, self.wf.lanes)
            case _:
                raise self.error(f"{operand} is no predicate")

    def special(self, name: str) -> IrValue:
        """Return a special register as a vector of i32 or i64."""
        return read_special(self, name)

    def address_of(self, symbol: Sym, bits: int) -> IrValue:
        """Return the address of a variable in its state space. Raises `PtxError` if it is not defined."""
        type_ = self.v(f"i{bits}")
        for places in (self.flat.shared, self.flat.local):
            if symbol.name in places:
                return self.c.const(type_, places[symbol.name] + symbol.offset)
        if symbol.name in self.flat.params:
            return self.c.const(type_, self.flat.params[symbol.name][0] + symbol.offset)
        if symbol.name in self.flat.symbols:
            at = self.flat.table_offset + 8 * self.flat.symbols.index(symbol.name)
            scalar = self.c.load("i64", self.c.gep(self.wf.of_thread("params"), at))
            return self.c.resize(self.wf.uniform(self.c.op("add", scalar, symbol.offset)), bits)
        raise self.error(f"{symbol.name} is not defined")

    def space_of(self, symbol: str) -> str:
        """Return the state space of a variable; constant variables count as global, unknown names, too."""
        for space, places in (
            ("shared", self.flat.shared),
            ("local", self.flat.local),
            ("param", self.flat.params),
        ):
            if symbol in places:
                return space
        return "global"

    def address(self, operand: Operand, bits: int) -> IrValue:
        """Return the address [base + offset] as integers of `bits`. Raises `PtxError` for other operands."""
        if not isinstance(operand, Mem):
            raise self.error(f"{operand} is no address")
        base = operand.base
        if base is None:
            return self.c.const(self.v(f"i{bits}"), operand.offset)
        if isinstance(base, Sym):
            return self.address_of(Sym(base.name, base.offset + operand.offset), bits)
        value = self.raw(base)
        if base.bits not in (32, 64):
            raise self.error(f"an address in a register of {base.bits} bits")
        value = self.c.op("add", value, operand.offset) if operand.offset else value
        return self.c.resize(value, bits)

    def write(self, operand: Operand, value: IrValue, *, signed: bool = False, relaxed: bool = False) -> None:
        """Write a register; `relaxed` extends a narrower value into a wider register. "_" is not written.

        Raises `PtxError` for an operand that is no destination, and for a value of another width.
        """
        if isinstance(operand, Special) and operand.name == "_":
            return
        if not isinstance(operand, PtxReg):
            raise self.error(f"{operand} is no destination")
        if relaxed and operand.bits > bits_of(value.type):
            value = self.c.resize(value, operand.bits, signed=signed)
        if operand.bits != bits_of(value.type):
            raise self.error(f"{operand.name} has {operand.bits} bits, the result {bits_of(value.type)}")
        self.wf.write(operand.name, value)

    def is_lazy(self, target: PtxReg, source: Operand) -> bool:
        """Return whether a move may copy NaNs as they are, because reads of `target` make them canonical."""
        return target.name in self._lazy and (not isinstance(source, PtxReg) or source.name in self._lazy)

    def write_float(self, operand: Operand, value: IrValue) -> None:
        """Write the result of floating-point arithmetic; NaNs become the hardware's canonical NaN."""
        bits = self.c.as_int(value)
        lazy = isinstance(operand, PtxReg) and operand.name in self._lazy
        self.write(operand, bits if lazy else self.canonical(bits))

    def canonical(self, bits: IrValue) -> IrValue:
        """Replace NaNs by the hardware's canonical NaN."""
        value = self.c.as_float(bits)
        nan = self.c.fcmp("uno", value, value)
        return self.c.select(nan, self.c.const(bits.type, CANONICAL_NAN[bits_of(bits.type)]), bits)


def f32_bits(value: float) -> int:
    """Return the bits of the float32 nearest to a number; beyond the range, of an infinity."""
    try:
        bits: int = struct.unpack("<I", struct.pack("<f", value))[0]
    except OverflowError:
        bits = 0x7F80_0000 if value > 0 else 0xFF80_0000
    return bits


def f32_value(bits: int) -> float:
    """Return the value of float32 bits."""
    value: float = struct.unpack("<f", struct.pack("<I", bits))[0]
    return value


MEANINGS: dict[str, Meaning] = {}
"""Opcode -> its translation."""


def meaning(*opcodes: str) -> Callable[[Meaning], Meaning]:
    """Register the translation of opcodes. An opcode with its first modifier, such as "st.async", has precedence over "st"."""

    def register(function: Meaning) -> Meaning:
        for opcode in opcodes:
            MEANINGS[opcode] = function
        return function

    return register


def operands(t: PtxTranslator, instruction: PtxInstruction, *counts: int) -> tuple[Operand, ...]:
    """Return an instruction's operands. Raises `PtxError` if their number is wrong."""
    if len(instruction.operands) not in counts:
        raise t.error(f"takes {' or '.join(map(str, counts))} operands, has {len(instruction.operands)}")
    return instruction.operands


def vector_elements(t: PtxTranslator, operand: Operand, count: int) -> tuple[Operand, ...]:
    """Return the elements of {a, b, ...}; without braces it is one. Raises `PtxError` unless there are `count`."""
    found = operand.items if isinstance(operand, Vec) else (operand,)
    if len(found) != count:
        raise t.error(f"needs {count} registers, has {len(found)}")
    return found


_AXES = {"x": 0, "y": 1, "z": 2}
_OF_CLUSTER = ("%clusterid", "%nclusterid", "%cluster_ctaid", "%cluster_nctaid")
_OF_BLOCK = {"%ntid": "visible_block", "%nctaid": "visible_grid"}
_CONSTANTS = {  # special registers with a fixed value; %nsmid is H100's
    "%nsmid": 132, "%smid": 0, "%gridid": 0,
    "%reserved_smem_offset_begin": 0, "%reserved_smem_offset_end": 0, "%reserved_smem_offset_cap": 0, "%current_graph_exec": 0,
}  # fmt: skip


def read_special(t: PtxTranslator, name: str) -> IrValue:
    """Return a special register as i32, or i64 for the 64-bit clocks. Raises `PtxError` for an unknown one."""
    base, _, axis = name.partition(".")
    c, wf = t.c, t.wf
    if axis in _AXES:
        if base == "%tid":
            return wf.thread_id(_AXES[axis])
        if base == "%ctaid":
            return wf.uniform(wf.of_group(axis))
        if base in _OF_CLUSTER:
            return wf.uniform(_of_cluster(t, base, axis))
        if base in _OF_BLOCK:
            return wf.uniform(wf.of_thread(f"{_OF_BLOCK[base]}_{axis}"))
    if not axis and name in _CONSTANTS:
        return c.const(t.v("i32"), _CONSTANTS[name])
    if name.startswith("%lanemask_"):
        return _lane_mask(t, name.removeprefix("%lanemask_"))
    simple: dict[str, Callable[[], IrValue]] = {
        "%laneid": wf.lane_id, "%warpid": lambda: wf.uniform(wf.of_warp("index")), "%nwarpid": lambda: wf.uniform(wf.of_thread("warps")),
        "%cluster_ctarank": lambda: wf.uniform(wf.of_group("rank")), "%cluster_nctarank": lambda: wf.uniform(wf.of_thread("cluster")),
        "%dynamic_smem_size": lambda: wf.uniform(wf.of_thread("dynamic_shared")),
        "%total_smem_size": lambda: wf.uniform(wf.of_thread("shared_bytes")),
        "%aggr_smem_size": lambda: wf.uniform(wf.of_thread("shared_bytes")),
        "%clock": lambda: _clock(t, 0, 32), "%clock_hi": lambda: _clock(t, 32, 32), "%clock64": lambda: _clock(t, 0, 64),
        "%globaltimer": lambda: _clock(t, 0, 64), "%globaltimer_lo": lambda: _clock(t, 0, 32), "%globaltimer_hi": lambda: _clock(t, 32, 32),
    }  # fmt: skip
    if name not in simple:
        raise t.error(f"special register {name} is not supported")
    return simple[name]()


def _of_cluster(t: PtxTranslator, base: str, axis: str) -> IrValue:
    """Return a special register about clusters, for one axis, as a scalar."""
    size = t.wf.of_thread(f"cluster_{axis}")
    if base == "%cluster_nctaid":
        return size
    whole = t.wf.of_thread(f"grid_{axis}") if base == "%nclusterid" else t.wf.of_group(axis)
    return t.c.op("urem" if base == "%cluster_ctaid" else "udiv", whole, size)


def _clock(t: PtxTranslator, shift: int, bits: int) -> IrValue:
    """Return bits of the host's cycle counter, which is monotonic; its rate is not the GPU's."""
    now = t.c.call("llvm.readcyclecounter", "i64")
    return t.wf.uniform(t.c.resize(t.c.op("lshr", now, shift) if shift else now, bits))


def _lane_mask(t: PtxTranslator, how: str) -> IrValue:
    values: dict[str, Callable[[int], int]] = {
        "eq": lambda lane: 1 << lane, "lt": lambda lane: (1 << lane) - 1, "le": lambda lane: (2 << lane) - 1,
        "gt": lambda lane: ~((2 << lane) - 1) & 0xFFFF_FFFF, "ge": lambda lane: ~((1 << lane) - 1) & 0xFFFF_FFFF,
    }  # fmt: skip
    if how not in values:
        raise t.error(f"special register %lanemask_{how} is not supported")
    return t.c.ints(t.v("i32"), [values[how](lane) for lane in range(t.wf.lanes)])
