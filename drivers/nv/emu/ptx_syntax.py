"""PTX text to statements: what is written, not what it means.

Source: NVIDIA's PTX ISA, chapters 4 (syntax), 5 (state spaces, types), 10 and 11 (directives). Every
construct that is not known here is a `PtxError` that names it and its line; nothing is skipped but
debugging information.
"""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator


class PtxError(UsageError):
    """PTX that this front end does not know or that PTX forbids."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"PTX line {line}: {message}")
        self.line = line


_WIDTHS = {"8": 8, "16": 16, "32": 32, "64": 64, "128": 128}
TYPES: dict[str, int] = {k + w: b for k in "bus" for w, b in _WIDTHS.items() if not (k != "b" and b == 128)} | {
    "f16": 16, "f32": 32, "f64": 64, "bf16": 16, "f16x2": 32, "bf16x2": 32, "f32x2": 64, "tf32": 32, "pred": 1,
    "e4m3x2": 16, "e5m2x2": 16, "u16x2": 32, "s16x2": 32,
}  # fmt: skip
"""Bits of every type that PTX names."""


@dataclass(frozen=True, slots=True)
class Reg:
    """A register; its name is unique in its function."""

    name: str
    type: str

    @property
    def bits(self) -> int:
        """Its width; 1 for a predicate."""
        return TYPES[self.type]


@dataclass(frozen=True, slots=True)
class Special:
    """A special register, such as %tid.x."""

    name: str


@dataclass(frozen=True, slots=True)
class Imm:
    """A constant: its bits, and whether it was written as a number with a point, an 0f or an 0d."""

    value: int
    kind: str = "int"


@dataclass(frozen=True, slots=True)
class Sym:
    """A variable, function or label, plus an offset."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Mem:
    """[base + offset]; `base` None is an absolute address."""

    base: Reg | Sym | None
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Vec:
    """{a, b, ...}."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """a|b: two destinations."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Not:
    """!p."""

    reg: Reg


@dataclass(frozen=True, slots=True)
class Args:
    """(a, b, ...) of a call."""

    items: tuple[Operand, ...]


Operand = Reg | Special | Imm | Sym | Mem | Vec | Pair | Not | Args


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: opcode, its modifiers in order, guard, operands."""

    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Reg | None
    negated: bool
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Label:
    """A place to branch to."""

    name: str
    line: int


@dataclass(slots=True)
class Variable:
    """Something in memory: a parameter, or a variable of a state space."""

    name: str
    space: str
    type: str
    size: int
    align: int
    init: bytes = b""
    extern: bool = False
    references: list[tuple[int, str, int]] = field(default_factory=list)
    """(byte offset, symbol, addend) for initialisers that are addresses."""
    line: int = 0


@dataclass(slots=True)
class Function:
    """A kernel or a device function."""

    name: str
    entry: bool
    params: list[Variable]
    returns: list[Variable]
    body: list[Instruction | Label] = field(default_factory=list)
    registers: dict[str, str] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    targets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Lists of labels (.branchtargets)."""
    limits: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """.maxntid, .reqntid, .maxnreg, ... as written."""
    line: int = 0


@dataclass(slots=True)
class Source:
    """A parsed module."""

    version: str
    target: tuple[str, ...]
    functions: dict[str, Function]
    variables: dict[str, Variable]


_TOKEN = re.compile(
    r"""(?P<space>[ \t\r]+|//[^\n]*|/\*.*?\*/)|(?P<newline>\n)
    |(?P<word>(?:[A-Za-z][\w$]*|[_$%][\w$]*)(?:(?:\.|::)\w+)*)|(?P<directive>\.[A-Za-z_]\w*(?:::\w+)*)
    |(?P<number>0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}|0[xX][0-9a-fA-F]+U?|0[bB][01]+U?|\d+\.\d*(?:[eE][-+]?\d+)?|\d+U?)
    |(?P<string>"[^"]*")|(?P<mark><<|>>|[-+!@{}()\[\],;:=|<>~*/&])""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    line: int
    at: int


def _tokens(text: str) -> Iterator[_Token]:
    at, line = 0, 1
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise PtxError(line, f"cannot read {text[at : at + 20]!r}")
        kind = match.lastgroup or ""
        if kind not in ("space", "newline"):
            yield _Token(kind, match[0], line, at)
        line += match[0].count("\n")
        at = match.end()
    yield _Token("end", "", line, at)


def number(text: str, line: int) -> Imm:
    """Read a constant."""
    low = text.lower()
    if low.startswith("0f"):
        return Imm(int(low.removeprefix("0f"), 16), "f32")
    if low.startswith("0d"):
        return Imm(int(low.removeprefix("0d"), 16), "f64")
    if "." in low:
        return Imm(struct.unpack("<Q", struct.pack("<d", float(low)))[0], "f64")
    digits = low.rstrip("u")
    if digits[:1] == "0" and digits.isdigit() and len(digits) > 1:
        return Imm(int(digits, 8))
    try:
        return Imm(int(digits, 0))
    except ValueError:
        raise PtxError(line, f"{text!r} is no number") from None


@dataclass(slots=True)
class _Scope:
    parent: _Scope | None
    number: int
    registers: dict[str, Reg] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)


_LINKAGE = {".visible", ".extern", ".weak", ".common"}
_LIMITS = {
    ".maxntid",
    ".reqntid",
    ".minnctapersm",
    ".maxnctapersm",
    ".maxnreg",
    ".reqnctapercluster",
    ".maxclusterrank",
    ".explicitcluster",
    ".noreturn",
    ".pragma",
    ".blocksareclusters",
    ".local_maxnreg",
}
_SPACES = {".global", ".const", ".shared", ".local", ".param"}


class Parser:
    """Reads one module."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._list = list(_tokens(text))
        self._at = 0
        self._scopes = 0
        self._function: Function | None = None

    # ---- tokens

    @property
    def _now(self) -> _Token:
        return self._list[self._at]

    def _next(self) -> _Token:
        token = self._list[self._at]
        self._at += 1
        return token

    def _accept(self, text: str) -> bool:
        if self._now.text == text:
            self._at += 1
            return True
        return False

    def _expect(self, text: str) -> _Token:
        if self._now.text != text:
            raise PtxError(self._now.line, f"expected {text!r}, found {self._now.text!r}")
        return self._next()

    def _kind(self, kind: str) -> str:
        if self._now.kind != kind:
            raise PtxError(self._now.line, f"expected a {kind}, found {self._now.text!r}")
        return self._next().text

    def _integer(self) -> int:
        negative = self._accept("-")
        token = self._next()
        if token.kind != "number":
            raise PtxError(token.line, f"expected a number, found {token.text!r}")
        value = number(token.text, token.line)
        if value.kind != "int":
            raise PtxError(token.line, f"expected an integer, found {token.text!r}")
        return -value.value if negative else value.value

    def _skip_line(self) -> None:
        line = self._now.line
        while self._now.line == line and self._now.kind != "end":
            self._at += 1

    # ---- the module

    def module(self) -> Source:
        """Read everything."""
        source = Source("", (), {}, {})
        while self._now.kind != "end":
            token = self._now
            if token.text == ".version":
                self._next()
                source.version = self._kind("number")
            elif token.text == ".target":
                self._next()
                source.target = tuple(self._words())
            elif token.text == ".address_size":
                self._next()
                if self._integer() != 64:
                    raise PtxError(token.line, "only 64-bit addresses are supported")
            elif token.text in (".file", ".loc"):
                self._skip_line()
            elif token.text == ".section":
                self._skip_section()
            elif token.text == ".pragma":
                self._skip_line()
            else:
                self._declaration(source)
        return source

    def _words(self) -> Iterator[str]:
        yield self._kind("word")
        while self._accept(","):
            yield self._kind("word")

    def _skip_section(self) -> None:
        while not self._accept("{"):
            self._at += 1
        while not self._accept("}"):
            self._at += 1

    def _declaration(self, source: Source) -> None:
        extern = False
        while self._now.text in _LINKAGE:
            extern |= self._next().text == ".extern"
        token = self._now
        if token.text in (".entry", ".func"):
            function = self._read_function()
            known = source.functions.get(function.name)
            if known is None or not known.body:
                source.functions[function.name] = function
        elif token.text in _SPACES:
            for variable in self._variables():
                variable.extern = extern
                source.variables[variable.name] = variable
            self._expect(";")
        else:
            raise PtxError(token.line, f"unknown directive {token.text!r}")

    def _read_function(self) -> Function:
        token = self._next()
        entry = token.text == ".entry"
        returns = self._parameters() if not entry and self._now.text == "(" else []
        name = self._kind("word")
        params = self._parameters() if self._now.text == "(" else []
        function = Function(name, entry, params, returns, line=token.line)
        while self._now.text in _LIMITS:
            what = self._next().text
            if what == ".pragma":
                self._kind("string")
                self._accept(";")
                continue
            numbers: list[int] = []
            while self._now.kind == "number":
                numbers.append(self._integer())
                if not self._accept(","):
                    break
            function.limits[what[1:]] = tuple(numbers)
        if not self._accept(";"):
            self._function = function
            scope = self._scope(None)
            for variable in (*returns, *params):
                if variable.space == "reg":
                    scope.registers[variable.name] = self._register(variable.name, variable.type, scope)
            self._expect("{")
            self._block(function, scope)
            self._function = None
        return function

    def _parameters(self) -> list[Variable]:
        self._expect("(")
        found: list[Variable] = []
        while not self._accept(")"):
            if self._now.text == ".reg":
                line = self._next().line
                type_ = self._kind("directive")[1:]
                found.append(Variable(self._kind("word"), "reg", type_, TYPES[type_] // 8, 1, line=line))
            else:
                found += self._variables(single=True)
            self._accept(",")
        return found

    def _variables(self, *, single: bool = False) -> list[Variable]:
        """Read `.space .align n .type name[dims] = init, ...` without its semicolon."""
        line = self._now.line
        space = self._kind("directive")[1:]
        align, type_, width = 0, "", 1
        while self._now.kind == "directive":
            what = self._next().text[1:]
            if what == "align":
                align = self._integer()
            elif what in TYPES:
                type_ = what
            elif what in ("v2", "v4"):
                width = int(what[1])
            elif what == "ptr":
                while self._now.text in (".global", ".shared", ".const", ".local", ".align", ".param"):
                    if self._next().text == ".align":
                        self._integer()
            elif what == "attribute":
                while not self._accept(")"):
                    self._at += 1
            else:
                raise PtxError(line, f"unknown attribute .{what} of a variable")
        if not type_:
            raise PtxError(line, "a variable without a type")
        found: list[Variable] = []
        while True:
            name, size = self._kind("word"), TYPES[type_] // 8 * width
            step, count = size, 1
            while self._accept("["):
                count *= 0 if self._now.text == "]" else self._integer()
                self._expect("]")
            variable = Variable(name, space, type_, step * count, align or step, line=line)
            if self._accept("="):
                self._initialiser(variable, TYPES[type_] // 8)
            found.append(variable)
            if single or not self._accept(","):
                return found

    def _initialiser(self, variable: Variable, step: int) -> None:
        data = bytearray()

        def item() -> None:
            if self._accept("{"):
                while not self._accept("}"):
                    item()
                    self._accept(",")
                return
            token = self._now
            if token.kind == "word":
                self._next()
                name = token.text
                if name == "generic":
                    self._expect("(")
                    name = self._kind("word")
                    self._expect(")")
                offset = self._integer() if self._accept("+") else 0
                variable.references.append((len(data), name, offset))
                data.extend(bytes(step))
                return
            negative = self._accept("-")
            value = number(self._kind("number"), token.line)
            bits = value.value
            if value.kind == "f64" and step == 4:
                bits = struct.unpack(
                    "<I", struct.pack("<f", struct.unpack("<d", struct.pack("<Q", bits))[0])
                )[0]
            data.extend(((-bits if negative else bits) & (1 << 8 * step) - 1).to_bytes(step, "little"))

        item()
        if variable.size == 0:
            variable.size = len(data)
        variable.init = bytes(data) + bytes(variable.size - len(data))

    # ---- bodies

    def _scope(self, parent: _Scope | None) -> _Scope:
        self._scopes += 1
        return _Scope(parent, self._scopes)

    def _register(self, name: str, type_: str, scope: _Scope) -> Reg:
        assert self._function is not None
        if type_ not in TYPES:
            raise PtxError(self._now.line, f"unknown register type .{type_}")
        unique = name if name not in self._function.registers else f"{name}@{scope.number}"
        self._function.registers[unique] = type_
        return Reg(unique, type_)

    def _block(self, function: Function, scope: _Scope) -> None:
        """Read statements up to the closing brace. Labels are resolved when the block ends: they may be used before."""
        first = len(function.body)
        while not self._accept("}"):
            token = self._now
            if token.kind == "end":
                raise PtxError(token.line, f"{function.name} does not end")
            if token.text == "{":
                self._next()
                self._block(function, self._scope(scope))
            elif token.text in (".loc", ".file"):
                self._skip_line()
            elif token.text == ".pragma":
                self._next()
                self._kind("string")
                self._accept(";")
            elif token.text == ".reg":
                self._registers(scope)
            elif token.text in _SPACES:
                self._local_variables(function, scope)
            elif token.kind == "word" and self._list[self._at + 1].text == ":":
                self._label(function, scope)
            else:
                function.body.append(self._instruction(scope))
        for i in range(first, len(function.body)):
            statement = function.body[i]
            if isinstance(statement, Instruction):
                function.body[i] = _renamed(statement, scope.names)
        for name, labels in list(function.targets.items()):
            function.targets[name] = tuple(scope.names.get(n, n) for n in labels)

    def _registers(self, scope: _Scope) -> None:
        self._next()
        type_ = self._kind("directive")[1:]
        if type_ in ("v2", "v4"):
            raise PtxError(self._now.line, "vector registers are not supported")
        while True:
            name = self._kind("word")
            if self._accept("<"):
                for i in range(self._integer()):
                    scope.registers[f"{name}{i}"] = self._register(f"{name}{i}", type_, scope)
                self._expect(">")
            else:
                scope.registers[name] = self._register(name, type_, scope)
            if not self._accept(","):
                break
        self._expect(";")

    def _local_variables(self, function: Function, scope: _Scope) -> None:
        for variable in self._variables():
            unique = (
                variable.name
                if variable.name not in function.variables
                else f"{variable.name}@{scope.number}"
            )
            if unique != variable.name or scope.parent is not None:
                unique = f"{variable.name}@{scope.number}"
                scope.names[variable.name] = unique
            variable.name = unique
            function.variables[unique] = variable
        self._expect(";")

    def _label(self, function: Function, scope: _Scope) -> None:
        token = self._next()
        self._expect(":")
        if self._now.text == ".branchtargets":
            self._next()
            function.targets[token.text] = tuple(self._words())
            self._expect(";")
            return
        if self._now.text in (".callprototype", ".calltargets"):
            raise PtxError(token.line, f"{self._now.text}: indirect calls are not supported")
        unique = token.text if scope.parent is None else f"{token.text}@{scope.number}"
        scope.names[token.text] = unique
        function.body.append(Label(unique, token.line))

    def _instruction(self, scope: _Scope) -> Instruction:
        start = self._now
        guard, negated = None, False
        if self._accept("@"):
            negated = self._accept("!")
            found = self._name(self._kind("word"), scope, start.line)
            if not isinstance(found, Reg) or found.bits != 1:
                raise PtxError(start.line, "a guard must be a predicate register")
            guard = found
        word = self._now
        if word.kind != "word":
            raise PtxError(word.line, f"expected an instruction, found {word.text!r}")
        self._next()
        opcode, *modifiers = re.split(r"\.", word.text)
        operands: list[Operand] = []
        while self._now.text != ";":
            operands.append(self._operand(scope))
            if not self._accept(","):
                break
        end = self._expect(";")
        text = " ".join(self._text[start.at : end.at].split())
        return Instruction(opcode, tuple(modifiers), tuple(operands), guard, negated, start.line, text)

    def _operand(self, scope: _Scope) -> Operand:
        token = self._now
        first = self._primary(scope)
        if self._accept("|"):
            return Pair(first, self._primary(scope))
        if self._now.text in ("+", "-") and isinstance(first, Sym):
            sign = 1 if self._next().text == "+" else -1
            return Sym(first.name, first.offset + sign * self._integer())
        if self._now.kind == "mark" and self._now.text not in (",", ";", "}", ")", "]"):
            raise PtxError(token.line, f"unexpected {self._now.text!r} in an operand")
        return first

    def _primary(self, scope: _Scope) -> Operand:
        token = self._next()
        if token.kind == "word":
            return self._name(token.text, scope, token.line)
        if token.kind == "number":
            return number(token.text, token.line)
        if token.text in ("-", "~"):
            value = self._primary(scope)
            if not isinstance(value, Imm):
                raise PtxError(token.line, f"{token.text} before something that is no number")
            if value.kind != "int":
                return Imm(value.value ^ (1 << (31 if value.kind == "f32" else 63)), value.kind)
            return Imm(-value.value if token.text == "-" else ~value.value)
        if token.text == "!":
            found = self._primary(scope)
            if not isinstance(found, Reg):
                raise PtxError(token.line, "! before something that is no predicate")
            return Not(found)
        if token.text == "[":
            return self._address(scope)
        if token.text in ("{", "("):
            close = "}" if token.text == "{" else ")"
            items: list[Operand] = []
            while not self._accept(close):
                items.append(self._operand(scope))
                self._accept(",")
            return Vec(tuple(items)) if close == "}" else Args(tuple(items))
        raise PtxError(token.line, f"unexpected {token.text!r} in an operand")

    def _address(self, scope: _Scope) -> Mem:
        token = self._now
        base = self._primary(scope)
        offset = 0
        while self._now.text in ("+", "-"):
            sign = 1 if self._next().text == "+" else -1
            offset += sign * self._integer()
        self._expect("]")
        if isinstance(base, Imm):
            return Mem(None, base.value + offset)
        if isinstance(base, Sym):
            return Mem(Sym(base.name), base.offset + offset)
        if isinstance(base, Reg):
            return Mem(base, offset)
        raise PtxError(token.line, "an address must be a register, a variable or a number")

    def _name(self, name: str, scope: _Scope, line: int) -> Operand:
        here: _Scope | None = scope
        while here is not None:
            if name in here.registers:
                return here.registers[name]
            if name in here.names and name not in (self._function.targets if self._function else ()):
                return Sym(here.names[name])
            here = here.parent
        if name.startswith("%"):
            return Special(name)
        if name == "_":
            return Special("_")
        if name == "WARP_SZ":
            return Imm(32)
        del line
        return Sym(name)


def _renamed(instruction: Instruction, names: dict[str, str]) -> Instruction:
    """Give labels and variables of a scope their unique names."""
    if not names:
        return instruction

    def rename(operand: Operand) -> Operand:
        match operand:
            case Sym(name, offset) if name in names:
                return Sym(names[name], offset)
            case Mem(Sym(name), offset) if name in names:
                return Mem(Sym(names[name]), offset)
            case Vec(items):
                return Vec(tuple(map(rename, items)))
            case Args(items):
                return Args(tuple(map(rename, items)))
            case _:
                return operand

    operands = tuple(map(rename, instruction.operands))
    if operands == instruction.operands:
        return instruction
    return Instruction(
        instruction.opcode,
        instruction.modifiers,
        operands,
        instruction.guard,
        instruction.negated,
        instruction.line,
        instruction.text,
    )


def parse(text: str) -> Source:
    """Read a PTX module."""
    return Parser(text.rstrip("\0")).module()
