"""A builder of LLVM IR text for vector code: typed values, operations on them, structured control flow.

A value is an IR type and an operand. An operation appends a line and returns a value. LLVM optimises the
result; this module folds integer constants only.

Not here: compiling the text (`jit`), names of types (`ir_text`). Next: `emulator.simt.warp_function`, the
largest user.
"""

from __future__ import annotations

import operator
import re
import struct
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from emulator.ir.ir_text import bits_of, element, lanes_of, like, mangle, vector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


@dataclass(frozen=True, slots=True)
class IrValue:
    """An operand: its IR type ("i32", "<32 x float>", "ptr") and its text."""

    type: str
    ref: str

    def __str__(self) -> str:
        return f"{self.type} {self.ref}"


@dataclass(slots=True)
class Declarations:
    """The functions that a module calls and defines."""

    declared: dict[str, str] = field(default_factory=dict)
    """Name of a function that it calls -> declaration."""
    defined: set[str] = field(default_factory=set)
    """Names of the functions that it defines."""

    def text(self) -> str:
        """Return the declarations of the functions that are called and not defined."""
        return "\n".join(line for name, line in self.declared.items() if name not in self.defined)


class CodeBuilder:
    """The body of one function under construction."""

    def __init__(self, declarations: Declarations) -> None:
        """Begin an empty body; `declarations` gets the functions that it calls."""
        self.lines: list[str] = []
        self.entry_lines: list[str] = []
        """The stack variables, which come before `lines`."""
        self.declarations = declarations
        self._next = 0
        self.block = "entry"
        """The name of the basic block that is appended to."""

    def emit(self, line: str) -> None:
        """Append the text of an instruction without a result."""
        self.lines.append("  " + line)

    def fresh(self, hint: str = "t") -> str:
        """Return a name that is unused in this function."""
        self._next += 1
        return f"{hint}{self._next}"

    def let(self, type_: str, text: str) -> IrValue:
        """Append `%name = text` with a new name; return the value, of type `type_`."""
        name = "%" + self.fresh()
        self.lines.append(f"  {name} = {text}")
        return IrValue(type_, name)

    def slot(self, type_: str, name: str | None = None) -> IrValue:
        """Allocate a stack variable in the function's entry block; return its address.

        It has a new name without `name`.
        """
        ref = "%" + (name or self.fresh("v"))
        self.entry_lines.append(f"  {ref} = alloca {type_}, align 64")
        return IrValue("ptr", ref)

    def function(self, name: str, result: str, parameters: Sequence[IrValue], attributes: str = "#0") -> str:
        """Return the text of the whole function; `attributes` is a group of `library.Library.tail`."""
        self.declarations.defined.add(name)
        arguments = ", ".join(map(str, parameters))
        head = f"define {result} @{name}({arguments}) {attributes} {{"
        return "\n".join([head, "entry:", *self.entry_lines, *self.lines, "}"]) + "\n"

    def const(self, type_: str, value: int) -> IrValue:
        """Return the integer constant `value` modulo 2**bits, for a vector type in all lanes."""
        bits = bits_of(type_)
        value &= (1 << bits) - 1
        if value >> (bits - 1) and bits > 1:
            value -= 1 << bits
        text = ("true" if value else "false") if bits == 1 else str(value)
        return IrValue(type_, f"splat ({element(type_)} {text})" if lanes_of(type_) else text)

    def fconst(self, type_: str, value: float) -> IrValue:
        """Return a constant of half, float or double, which must be exact; for a vector type in all lanes."""
        name = element(type_)
        if name == "half":
            text = f"0xH{struct.unpack('<H', struct.pack('<e', value))[0]:04X}"
        else:
            text = f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
        return IrValue(type_, f"splat ({name} {text})" if lanes_of(type_) else text)

    def ints(self, type_: str, values: Sequence[int]) -> IrValue:
        """Return a vector constant with one integer for each lane."""
        name = element(type_)
        return IrValue(type_, "<" + ", ".join(f"{name} {v}" for v in values) + ">")

    def zero(self, type_: str) -> IrValue:
        """Return zero of a vector, integer, float, double or pointer type."""
        return IrValue(
            type_,
            "zeroinitializer"
            if lanes_of(type_)
            else {"float": "0.0", "double": "0.0", "ptr": "null"}.get(type_, "0"),
        )

    def splat(self, value: IrValue, count: int) -> IrValue:
        """Copy a scalar to every one of `count` lanes."""
        if not value.ref.startswith("%"):
            return IrValue(vector(count, value.type), f"splat ({value.type} {value.ref})")
        type_ = vector(count, value.type)
        first = self.let(type_, f"insertelement {type_} poison, {value}, i32 0")
        return self.let(type_, f"shufflevector {first}, {type_} poison, <{count} x i32> zeroinitializer")

    def op(self, name: str, a: IrValue, b: IrValue | int) -> IrValue:
        """Append a binary operation of two values of one type: "add", "fmul", "lshr", "or", ..."""
        if isinstance(b, int):
            b = self.const(a.type, b)
        return _folded(self, name, a, b) or self.let(a.type, f"{name} {a}, {b.ref}")

    def icmp(self, predicate: str, a: IrValue, b: IrValue | int) -> IrValue:
        """Compare integers or pointers by LLVM's predicate, such as "ult"; return an i1 for each lane."""
        if isinstance(b, int):
            b = self.const(a.type, b)
        return self.let(like(a.type, "i1"), f"icmp {predicate} {a}, {b.ref}")

    def fcmp(self, predicate: str, a: IrValue, b: IrValue) -> IrValue:
        """Compare floating-point values by LLVM's predicate, such as "olt"; return an i1 for each lane."""
        return self.let(like(a.type, "i1"), f"fcmp {predicate} {a}, {b.ref}")

    def select(self, condition: IrValue, a: IrValue, b: IrValue) -> IrValue:
        """Return `a` where `condition` is set, else `b`; `condition` is an i1, or one for each lane."""
        return self.let(a.type, f"select {condition}, {a}, {b}")

    def cast(self, name: str, a: IrValue, to: str) -> IrValue:
        """Append the conversion `name`, such as "fptrunc", to element type `to`, unless `a` has that type."""
        type_ = like(a.type, to)
        return a if type_ == a.type else self.let(type_, f"{name} {a} to {type_}")

    def bitcast(self, a: IrValue, to: str) -> IrValue:
        """Reinterpret bits as `to`, the whole type."""
        return a if to == a.type else self.let(to, f"bitcast {a} to {to}")

    def resize(self, a: IrValue, bits: int, *, signed: bool = False) -> IrValue:
        """Truncate or extend integers to `bits`."""
        have = bits_of(a.type)
        if have == bits:
            return a
        number = None if signed else constant(a)
        if number is not None:
            return self.const(like(a.type, f"i{bits}"), number & ((1 << have) - 1))
        return self.cast("trunc" if have > bits else "sext" if signed else "zext", a, f"i{bits}")

    def as_float(self, a: IrValue) -> IrValue:
        """Reinterpret integers as the IEEE type of their width."""
        return self.bitcast(a, like(a.type, {16: "half", 32: "float", 64: "double"}[bits_of(a.type)]))

    def as_int(self, a: IrValue) -> IrValue:
        """Reinterpret floating-point values as integers of their width."""
        return self.bitcast(a, like(a.type, f"i{bits_of(a.type)}"))

    def not_(self, a: IrValue) -> IrValue:
        """Complement every bit."""
        return self.op("xor", a, -1)

    def intrinsic(
        self, name: str, *args: IrValue, extra: Sequence[IrValue] = (), result: str = ""
    ) -> IrValue:
        """Call `llvm.NAME`, overloaded on the type of the first argument, with `args`, then `extra`.

        `result` is the type of the value; "" means that of the first argument.
        """
        return self.call(f"llvm.{name}.{mangle(args[0].type)}", result or args[0].type, *args, *extra)

    def call(self, name: str, result: str, *args: IrValue) -> IrValue:
        """Call a function by name and declare it if necessary. A result of type "void" has no text."""
        types = ", ".join(a.type for a in args)
        self.declarations.declared.setdefault(name, f"declare {result} @{name}({types})")
        text = f"call {result} @{name}({', '.join(map(str, args))})"
        if result == "void":
            self.emit(text)
            return IrValue("void", "")
        return self.let(result, text)

    def extract(self, v: IrValue, index: IrValue | int) -> IrValue:
        """Return one lane."""
        where = f"i32 {index}" if isinstance(index, int) else str(index)
        return self.let(element(v.type), f"extractelement {v}, {where}")

    def insert(self, v: IrValue, item: IrValue, index: IrValue | int) -> IrValue:
        """Return `v` with one lane replaced."""
        where = f"i32 {index}" if isinstance(index, int) else str(index)
        return self.let(v.type, f"insertelement {v}, {item}, {where}")

    def shuffle(self, a: IrValue, b: IrValue | None, order: Sequence[int]) -> IrValue:
        """Select lanes of `a` followed by `b`, in a constant order; -1 gives an undefined (poison) lane."""
        other = b.ref if b else "poison"
        picks = ", ".join(f"i32 {i}" if i >= 0 else "i32 poison" for i in order)
        type_ = vector(len(order), element(a.type))
        return self.let(type_, f"shufflevector {a}, {a.type} {other}, <{len(order)} x i32> <{picks}>")

    def mask_bits(self, lanes: IrValue) -> IrValue:
        """Pack a vector of i1 into an integer with one bit for each lane."""
        return self.bitcast(lanes, f"i{lanes_of(lanes.type)}")

    def mask_lanes(self, bits: IrValue) -> IrValue:
        """Unpack an integer into a vector of i1."""
        return self.bitcast(bits, f"<{bits_of(bits.type)} x i1>")

    def gep(self, base: IrValue, offset: IrValue | int) -> IrValue:
        """Return `base` plus `offset` bytes; a vector of offsets gives a vector of pointers."""
        if isinstance(offset, int):
            return base if offset == 0 else self.let("ptr", f"getelementptr i8, {base}, i64 {offset}")
        return self.let(like(offset.type, "ptr"), f"getelementptr i8, {base}, {offset}")

    def load(self, type_: str, address: IrValue, *, align: int = 0, volatile: bool = False) -> IrValue:
        """Load a value; `align` 0 means the type's natural alignment."""
        return self.let(
            type_,
            f"load {'volatile ' if volatile else ''}{type_}, {address}"
            + (f", align {align}" if align else ""),
        )

    def store(self, value: IrValue, address: IrValue, *, align: int = 0) -> None:
        """Store a value; `align` 0 means the type's natural alignment."""
        self.emit(f"store {value}, {address}" + (f", align {align}" if align else ""))

    def masked_load(self, type_: str, address: IrValue, lanes: IrValue, align: int) -> IrValue:
        """Load consecutive elements in the lanes that are set; other lanes are zero. `align` is in bytes."""
        name = f"llvm.masked.load.{mangle(type_)}.p0"
        self.declarations.declared.setdefault(name, f"declare {type_} @{name}(ptr, {lanes.type}, {type_})")
        return self.let(
            type_, f"call {type_} @{name}(ptr align {align} {address.ref}, {lanes}, {type_} zeroinitializer)"
        )

    def masked_store(self, value: IrValue, address: IrValue, lanes: IrValue, align: int) -> None:
        """Store the lanes that are set as consecutive elements. `align` is in bytes."""
        name = f"llvm.masked.store.{mangle(value.type)}.p0"
        self.declarations.declared.setdefault(name, f"declare void @{name}({value.type}, ptr, {lanes.type})")
        self.emit(f"call void @{name}({value}, ptr align {align} {address.ref}, {lanes})")

    def gather(self, type_: str, addresses: IrValue, lanes: IrValue, align: int) -> IrValue:
        """Load one element for each lane from a vector of pointers; zero in lanes that are not set."""
        count = lanes_of(type_)
        name = f"llvm.masked.gather.{mangle(type_)}.v{count}p0"
        self.declarations.declared.setdefault(
            name, f"declare {type_} @{name}({addresses.type}, {lanes.type}, {type_})"
        )
        pointers = f"{addresses.type} align {align} {addresses.ref}"
        return self.let(type_, f"call {type_} @{name}({pointers}, {lanes}, {type_} zeroinitializer)")

    def scatter(self, value: IrValue, addresses: IrValue, lanes: IrValue, align: int) -> None:
        """Store one element for each lane that is set; if addresses are equal, the highest lane wins."""
        name = f"llvm.masked.scatter.{mangle(value.type)}.v{lanes_of(value.type)}p0"
        self.declarations.declared.setdefault(
            name, f"declare void @{name}({value.type}, {addresses.type}, {lanes.type})"
        )
        self.emit(f"call void @{name}({value}, {addresses.type} align {align} {addresses.ref}, {lanes})")

    def label(self, name: str) -> None:
        """Begin a basic block."""
        self.lines.append(f"{name}:")
        self.block = name

    def jump(self, target: str) -> None:
        """End the block with a jump."""
        self.emit(f"br label %{target}")

    def branch(self, condition: IrValue, yes: str, no: str) -> None:
        """End the block with a conditional jump."""
        self.emit(f"br {condition}, label %{yes}, label %{no}")

    def phi(self, type_: str, *pairs: tuple[IrValue, str]) -> IrValue:
        """Merge values; each pair is a value and the name of the block that it comes from."""
        return self.let(type_, f"phi {type_} " + ", ".join(f"[ {v.ref}, %{b} ]" for v, b in pairs))

    def ret(self, value: IrValue | None = None) -> None:
        """Return from the function, with `value` unless it is None."""
        self.emit(f"ret {value}" if value else "ret void")

    @contextmanager
    def when(self, condition: IrValue, *, likely: bool | None = None) -> Iterator[None]:
        """Put the code of the `with` body under a scalar condition; `likely` sets its weight (None: none)."""
        yes, after = self.fresh("when"), self.fresh("after")
        weight = "" if likely is None else f", !prof !{0 if likely else 1}"
        self.emit(f"br {condition}, label %{yes}, label %{after}{weight}")
        self.label(yes)
        yield
        self.jump(after)
        self.label(after)

    @contextmanager
    def otherwise(self, condition: IrValue) -> Iterator[None]:
        """Put the code of the `with` body under the negation of a scalar condition."""
        with self.when(self.not_(condition)):
            yield

    @contextmanager
    def count(self, stop: IrValue, *, start: int = 0) -> Iterator[IrValue]:
        """Loop over the `with` body with a counter in [start, stop)."""
        head, body, after = self.fresh("head"), self.fresh("body"), self.fresh("after")
        counter = self.slot(stop.type)
        self.store(self.const(stop.type, start), counter)
        self.jump(head)
        self.label(head)
        index = self.load(stop.type, counter)
        self.branch(self.icmp("ult", index, stop), body, after)
        self.label(body)
        yield index
        self.store(self.op("add", self.load(stop.type, counter), 1), counter)
        self.jump(head)
        self.label(after)

    @contextmanager
    def each_lane(self, mask: IrValue) -> Iterator[IrValue]:
        """Loop over the `with` body for each lane set in a mask, lowest first; yield the lane as i32."""
        head, body, after = self.fresh("head"), self.fresh("body"), self.fresh("after")
        rest = self.slot(mask.type)
        self.store(mask, rest)
        self.jump(head)
        self.label(head)
        left = self.load(mask.type, rest)
        self.branch(self.icmp("ne", left, 0), body, after)
        self.label(body)
        lane = self.call(f"llvm.cttz.{mask.type}", mask.type, left, IrValue("i1", "true"))
        yield self.resize(lane, 32)
        now = self.load(mask.type, rest)
        self.store(self.op("and", now, self.op("sub", now, 1)), rest)
        self.jump(head)
        self.label(after)


_NUMBER = re.compile(r"splat \(i\d+ (-?\d+)\)|(-?\d+)")
_FOLDS: dict[str, Callable[[int, int], int]] = {
    "and": operator.and_, "or": operator.or_, "xor": operator.xor, "add": operator.add, "sub": operator.sub,
    "mul": operator.mul,
}  # fmt: skip
_NEUTRAL = {"or": 0, "xor": 0, "add": 0, "sub": 0, "shl": 0, "lshr": 0, "ashr": 0, "and": -1, "mul": 1}


def constant(value: IrValue) -> int | None:
    """Return the integer of a constant that is equal in all lanes; None for i1 and for any other value."""
    if value.ref[0] == "%":
        return None
    match = _NUMBER.fullmatch(value.ref)
    return int(match[1] or match[2]) if match else None


def _folded(c: CodeBuilder, name: str, a: IrValue, b: IrValue) -> IrValue | None:
    """Return the result of an integer operation if that is a constant or an operand; None otherwise."""
    second = constant(b)
    if second is None or name not in _NEUTRAL or element(a.type)[0] != "i":
        return None
    first = constant(a)
    if first is not None and name in _FOLDS:
        return c.const(a.type, _FOLDS[name](first, second))
    return a if second == _NEUTRAL[name] else None


class Spilled:
    """A vector in stack memory, for loops over single lanes."""

    def __init__(self, code: CodeBuilder, value: IrValue | str) -> None:
        """Store `value`, or zeros of a type if it is a string."""
        type_ = value if isinstance(value, str) else value.type
        self._code = code
        self.type = type_
        self._element = element(type_)
        self._address = code.slot(type_)
        code.store(code.zero(type_) if isinstance(value, str) else value, self._address)

    def address(self, lane: IrValue) -> IrValue:
        """Return the address of a lane."""
        return self._code.let("ptr", f"getelementptr {self._element}, {self._address}, {lane}")

    def get(self, lane: IrValue) -> IrValue:
        """Load one lane."""
        return self._code.load(self._element, self.address(lane))

    def set(self, lane: IrValue, value: IrValue) -> None:
        """Store one lane."""
        self._code.store(value, self.address(lane))

    def whole(self) -> IrValue:
        """Load all lanes."""
        return self._code.load(self.type, self._address)
