"""The parser: PTX text to statements.

Source: NVIDIA's PTX ISA, chapters 4 (syntax), 5 (state spaces, types), 10 and 11 (directives). An unknown construct
raises `PtxError`, which names it and its line; only debugging information and pragmas are skipped.

Not here: tokens and variables (`tokens`), meaning (`flat`, `translate`). Next: `flat`.
"""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from emulator.nv.ptx.statements import (
    TYPES,
    Args,
    Label,
    Mem,
    Not,
    Operand,
    Pair,
    PtxError,
    PtxFunction,
    PtxImm,
    PtxInstruction,
    PtxReg,
    PtxScope,
    PtxSource,
    PtxVariable,
    Special,
    Sym,
    Vec,
    renamed,
)
from emulator.nv.ptx.tokens import Tokens, number, read_variables

if TYPE_CHECKING:
    from collections.abc import Iterator


_LINKAGE = {".visible", ".extern", ".weak", ".common"}
"""What may precede a declaration; of these, only .extern has an effect."""
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
"""Directives between a function's head and its body."""
WITH_COORDINATES = {
    "tex": "textures",
    "tld4": "textures",
    "suld": "surfaces",
    "sust": "surfaces",
    "sured": "surfaces",
}
"""Opcode whose address has coordinates -> what it needs. They are parsed, but a kernel with one is refused."""
_SPACES = {".global", ".const", ".shared", ".local", ".param"}
"""State spaces of variables."""


class Parser:
    """The parser of one module: a recursive descent, whose methods consume what they are named after."""

    def __init__(self, text: str) -> None:
        """Prepare the tokens. Raises `PtxError` for text that has none."""
        self._text = text
        self._tokens = Tokens(text)
        self._scopes = 0
        self._opcode = ""
        """The current opcode with its modifiers."""
        self._function: PtxFunction | None = None
        """The function whose body is being parsed."""
        self._variables: dict[str, PtxVariable] = {}
        """Those of the module so far."""

    def module(self) -> PtxSource:
        """Parse and return the whole module. Raises `PtxError` for what it does not know."""
        source = PtxSource("", (), {}, {})
        while self._tokens.now.kind != "end":
            token = self._tokens.now
            if token.text == ".version":
                self._tokens.next()
                source.version = self._tokens.kind("number")
            elif token.text == ".target":
                self._tokens.next()
                source.target = tuple(self._words())
            elif token.text == ".address_size":
                self._tokens.next()
                if self._tokens.integer() != 64:
                    raise PtxError(token.line, "only 64-bit addresses are supported")
            elif token.text in (".file", ".loc"):
                self._tokens.skip_line()
            elif token.text == ".section":
                self._skip_section()
            elif token.text == ".pragma":
                self._tokens.skip_line()
            else:
                self._declaration(source)
        return source

    def _words(self) -> Iterator[str]:
        """Yield the words of a list, which are separated by commas."""
        yield self._tokens.kind("word")
        while self._tokens.accept(","):
            yield self._tokens.kind("word")

    def _skip_section(self) -> None:
        while not self._tokens.accept("{"):
            self._tokens.skip()
        while not self._tokens.accept("}"):
            self._tokens.skip()

    def _declaration(self, source: PtxSource) -> None:
        """Parse a function or variables of the module; a function's definition replaces its declaration."""
        extern = False
        while self._tokens.now.text in _LINKAGE:
            extern |= self._tokens.next().text == ".extern"
        token = self._tokens.now
        if token.text in (".entry", ".func"):
            function = self._read_function()
            known = source.functions.get(function.name)
            if known is None or not known.body:
                source.functions[function.name] = function
        elif token.text in _SPACES:
            for variable in read_variables(self._tokens):
                variable.extern = extern
                source.variables[variable.name] = variable
                self._variables[variable.name] = variable
            self._tokens.expect(";")
        else:
            raise PtxError(token.line, f"unknown directive {token.text!r}")

    def _read_function(self) -> PtxFunction:
        """Parse a kernel or device function with its directives and, if it is defined here, its body."""
        token = self._tokens.next()
        entry = token.text == ".entry"
        returns = self._parameters() if not entry and self._tokens.now.text == "(" else []
        name = self._tokens.kind("word")
        params = self._parameters() if self._tokens.now.text == "(" else []
        function = PtxFunction(name, entry, params, returns, line=token.line)
        while self._tokens.now.text in _LIMITS:
            what = self._tokens.next().text
            if what == ".pragma":
                self._tokens.kind("string")
                self._tokens.accept(";")
                continue
            numbers: list[int] = []
            while self._tokens.now.kind == "number":
                numbers.append(self._tokens.integer())
                if not self._tokens.accept(","):
                    break
            function.limits[what[1:]] = tuple(numbers)
        if not self._tokens.accept(";"):
            self._function = function
            scope = self._scope(None)
            for variable in (*returns, *params):
                if variable.space == "reg":
                    scope.registers[variable.name] = self._register(variable.name, variable.type, scope)
            self._tokens.expect("{")
            self._block(function, scope)
            self._function = None
        return function

    def _parameters(self) -> list[PtxVariable]:
        """Parse the parameters or results of a function, in parentheses."""
        self._tokens.expect("(")
        found: list[PtxVariable] = []
        while not self._tokens.accept(")"):
            if self._tokens.now.text == ".reg":
                line = self._tokens.next().line
                type_ = self._tokens.kind("directive")[1:]
                if type_ not in TYPES:
                    raise PtxError(line, f"unknown register type .{type_}")
                found.append(
                    PtxVariable(self._tokens.kind("word"), "reg", type_, TYPES[type_] // 8, 1, line=line)
                )
            else:
                found += read_variables(self._tokens, single=True)
            self._tokens.accept(",")
        return found

    def _scope(self, parent: PtxScope | None) -> PtxScope:
        self._scopes += 1
        return PtxScope(parent, self._scopes)

    def _register(self, name: str, type_: str, scope: PtxScope) -> PtxReg:
        """Add a register to the function under a unique name; return it."""
        assert self._function is not None
        if type_ not in TYPES:
            raise PtxError(self._tokens.now.line, f"unknown register type .{type_}")
        unique = name if name not in self._function.registers else f"{name}@{scope.number}"
        self._function.registers[unique] = type_
        return PtxReg(unique, type_)

    def _block(self, function: PtxFunction, scope: PtxScope) -> None:
        """Parse statements up to the closing brace, and then make their names unique: a label may be used before it."""
        first = len(function.body)
        while not self._tokens.accept("}"):
            token = self._tokens.now
            if token.kind == "end":
                raise PtxError(token.line, f"{function.name} does not end")
            if token.text == "{":
                self._tokens.next()
                self._block(function, self._scope(scope))
            elif token.text in (".loc", ".file"):
                self._tokens.skip_line()
            elif token.text == ".pragma":
                self._tokens.next()
                self._tokens.kind("string")
                self._tokens.accept(";")
            elif token.text == ".reg":
                self._registers(scope)
            elif token.text in _SPACES:
                self._local_variables(function, scope)
            elif token.kind == "word" and self._tokens.following() == ":":
                self._label(function, scope)
            else:
                function.body.append(self._instruction(scope))
        others = {name: unique for name, unique in scope.names.items() if name != unique}
        for i in range(first, len(function.body) if others else first):
            statement = function.body[i]
            if isinstance(statement, PtxInstruction):
                function.body[i] = renamed(statement, others)
        for name, labels in list(function.targets.items()):
            function.targets[name] = tuple(scope.names.get(n, n) for n in labels)

    def _registers(self, scope: PtxScope) -> None:
        """Parse .reg: single registers, and ranges such as %r<4>."""
        self._tokens.next()
        type_ = self._tokens.kind("directive")[1:]
        if type_ in ("v2", "v4"):
            raise PtxError(self._tokens.now.line, "vector registers are not supported")
        while True:
            name = self._tokens.kind("word")
            if self._tokens.accept("<"):
                for i in range(self._tokens.integer()):
                    scope.registers[f"{name}{i}"] = self._register(f"{name}{i}", type_, scope)
                self._tokens.expect(">")
            else:
                scope.registers[name] = self._register(name, type_, scope)
            if not self._tokens.accept(","):
                break
        self._tokens.expect(";")

    def _local_variables(self, function: PtxFunction, scope: PtxScope) -> None:
        """Parse variables of a function, and give those of inner braces unique names."""
        for variable in read_variables(self._tokens):
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
        self._tokens.expect(";")

    def _label(self, function: PtxFunction, scope: PtxScope) -> None:
        """Parse a label, or what a label names: .branchtargets, .callprototype or .calltargets."""
        token = self._tokens.next()
        self._tokens.expect(":")
        if self._tokens.now.text == ".branchtargets":
            self._tokens.next()
            function.targets[token.text] = tuple(self._words())
            self._tokens.expect(";")
            return
        if self._tokens.now.text in (".callprototype", ".calltargets"):
            while self._tokens.now.kind != "end" and not self._tokens.accept(";"):
                self._tokens.skip()
            return  # the call is refused where a kernel makes it
        unique = token.text if scope.parent is None else f"{token.text}@{scope.number}"
        scope.names[token.text] = unique
        function.body.append(Label(unique, token.line))

    def _instruction(self, scope: PtxScope) -> PtxInstruction:
        """Parse an instruction with its guard, up to its semicolon."""
        start = self._tokens.now
        guard, negated = None, False
        if self._tokens.accept("@"):
            negated = self._tokens.accept("!")
            found = self._name(self._tokens.kind("word"), scope)
            if not isinstance(found, PtxReg) or found.bits != 1:
                raise PtxError(start.line, "a guard must be a predicate register")
            guard = found
        word = self._tokens.now
        if word.kind != "word":
            raise PtxError(word.line, f"expected an instruction, found {word.text!r}")
        self._opcode = self._tokens.next().text
        opcode, *modifiers = re.split(r"\.", word.text)
        operands: list[Operand] = []
        while self._tokens.now.text != ";":
            operands.append(self._operand(scope))
            if not self._tokens.accept(","):
                break
        end = self._tokens.expect(";")
        text = " ".join(self._text[start.at : end.at].split())
        return PtxInstruction(opcode, tuple(modifiers), tuple(operands), guard, negated, start.line, text)

    def _operand(self, scope: PtxScope) -> Operand:
        """Parse an operand: a|b, symbol + offset, array[index], or a single one."""
        token = self._tokens.now
        first = self._primary(scope)
        if self._tokens.accept("|"):
            return Pair(first, self._primary(scope))
        if self._tokens.now.text in ("+", "-") and isinstance(first, Sym):
            sign = 1 if self._tokens.next().text == "+" else -1
            return Sym(first.name, first.offset + sign * self._tokens.integer())
        if self._tokens.now.text == "[" and isinstance(first, Sym):
            return self._element(first)
        if self._tokens.now.kind == "mark" and self._tokens.now.text not in (",", ";", "}", ")", "]"):
            raise PtxError(token.line, f"unexpected {self._tokens.now.text!r} in an operand")
        return first

    def _element(self, array: Sym) -> Sym:
        """Parse `[index]` after an array's name: the address of an element (PTX ISA 5.4.2, 6.4.2)."""
        token = self._tokens.next()
        index = self._tokens.integer()
        self._tokens.expect("]")
        inner = self._function.variables if self._function is not None else {}
        variable = inner.get(array.name) or self._variables.get(array.name)
        if variable is None:
            raise PtxError(token.line, f"{array.name}[{index}]: no array of that name is declared before")
        return Sym(array.name, array.offset + index * variable.element)

    def _primary(self, scope: PtxScope) -> Operand:
        """Parse an operand without what may follow it: a name, a number, an address, or several in brackets."""
        token = self._tokens.next()
        if token.kind == "word":
            return self._name(token.text, scope)
        if token.kind == "number":
            return number(token.text, token.line)
        if token.text in ("-", "~"):
            value = self._primary(scope)
            if not isinstance(value, PtxImm):
                raise PtxError(token.line, f"{token.text} before something that is no number")
            if value.kind != "int":
                return PtxImm(value.value ^ (1 << (31 if value.kind == "f32" else 63)), value.kind)
            return PtxImm(-value.value if token.text == "-" else ~value.value)
        if token.text == "!":
            found = self._primary(scope)
            if not isinstance(found, PtxReg):
                raise PtxError(token.line, "! before something that is no predicate")
            return Not(found)
        if token.text == "[":
            return self._address(scope)
        if token.text in ("{", "("):
            close = "}" if token.text == "{" else ")"
            items: list[Operand] = []
            while not self._tokens.accept(close):
                items.append(self._operand(scope))
                self._tokens.accept(",")
            return Vec(tuple(items)) if close == "}" else Args(tuple(items))
        raise PtxError(token.line, f"unexpected {token.text!r} in an operand")

    def _address(self, scope: PtxScope) -> Mem:
        """Parse an address up to its closing bracket."""
        token = self._tokens.now
        base = self._primary(scope)
        offset = 0
        while self._tokens.now.text in ("+", "-"):
            sign = 1 if self._tokens.next().text == "+" else -1
            offset += sign * self._tokens.integer()
        coordinates: tuple[Operand, ...] = ()
        if self._tokens.accept(","):
            found = self._primary(scope)
            named = ".tensor" in self._opcode or self._opcode.split(".")[0] in WITH_COORDINATES
            if not isinstance(found, Vec) or not named:
                raise PtxError(token.line, f"{self._opcode}: an address with coordinates is not supported")
            coordinates = found.items
        self._tokens.expect("]")
        if isinstance(base, PtxImm):
            return Mem(None, base.value + offset, coordinates)
        if isinstance(base, Sym):
            return Mem(Sym(base.name), base.offset + offset, coordinates)
        if isinstance(base, PtxReg):
            return Mem(base, offset, coordinates)
        raise PtxError(token.line, "an address must be a register, a variable or a number")

    def _name(self, name: str, scope: PtxScope) -> Operand:
        """Return what a name means in a scope; a name that is not declared there is a `Sym` under its own name."""
        here: PtxScope | None = scope
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
            return PtxImm(32)
        return Sym(name)


def parse(text: str) -> PtxSource:
    """Return the statements of a PTX module; NULs at its end are ignored.

    Raises `PtxError`, with the line, for what is not known or not supported.
    """
    return Parser(text.rstrip("\0")).module()
