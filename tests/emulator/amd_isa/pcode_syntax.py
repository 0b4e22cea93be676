"""The grammar of the pseudo-code: texts to nested tuples.

Not here: values (`pcode_values`), what the tuples compute (`pcode`).
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from tests.emulator.amd_isa.pcode_values import PcodeError, Value, of_floats, value

_TOKEN = re.compile(
    r"(?P<cast>\d+'(?:BF|[UIBF])(?![0-9a-zA-Z_]))|(?P<sized>\d+'-?(?:0x[0-9a-fA-F]+|\d+\.\d+|\d+)[A-Z]*)"
    r"|(?P<number>0x[0-9a-fA-F]+[UL]*|\d+\.\d+F?|\d+[UL]*)|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<sign>\*\*|<<|>>|<=|>=|<>|==|!=|&&|\|\||\+=|-=|\+:|[-+*/~!?:;,.&|^=<>(){}\[\]])"
)
_LEVELS = (("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!=", "<>"), ("<", "<=", ">", ">="), ("<<", ">>"),
           ("+", "-"), ("*", "/"), ("**",))  # fmt: skip
TYPE = re.compile(r"(bf|fp|f|u|i|b)(\d+)")
_WORDS = {
    "then",
    "else",
    "elsif",
    "endif",
    "do",
    "endfor",
    "if",
    "for",
    "in",
    "declare",
    "return",
    "break",
    "lambda",
}
Node = tuple[Any, ...]


class Parser:
    """Statements and expressions as nested tuples."""

    def __init__(self, text: str) -> None:
        self.tokens: list[tuple[str, str]] = []
        text = re.sub(r"//[^\n]*", "", text)
        at = 0
        while at < len(text):
            if text[at].isspace():
                at += 1
                continue
            match = _TOKEN.match(text, at)
            if match is None:
                raise PcodeError(f"no token begins with {text[at : at + 10]!r}")
            kind = match.lastgroup
            assert kind is not None
            self.tokens.append((kind, match[0]))
            at = match.end()
        self.at = 0

    def peek(self) -> str:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else ""

    def take(self, wanted: str = "") -> str:
        found = self.peek()
        if wanted and found != wanted:
            raise PcodeError(f"wanted {wanted!r}, saw {found!r}")
        self.at += 1
        return found

    def maybe(self, word: str) -> bool:
        if self.peek() == word:
            self.at += 1
            return True
        return False

    def block(self, *ends: str) -> list[Node]:
        found = []
        while self.peek() not in ends:
            if self.maybe(";"):
                continue
            if not self.peek():
                raise PcodeError(f"the text ends before {ends}")
            found.append(self.statement())
        return found

    def statement(self) -> Node:
        word = self.peek()
        if word == "if":
            return self._if()
        if word == "for":
            self.take()
            name = self.take()
            self.take("in")
            low = self.expression()
            self.take(":")
            high = self.expression()
            self.take("do")
            body = self.block("endfor")
            self.take("endfor")
            return ("for", name, low, high, body)
        if self.maybe("declare"):
            name = self.take()
            self.take(":")
            width, kind = self.take().split("'")
            size = None
            if self.maybe("["):
                size = int(self.take())
                self.take("]")
            return ("declare", name, kind.lower(), int(width), size)
        if self.maybe("return"):
            return ("return", self.expression())
        if self.maybe("break"):
            return ("break",)
        left = self.expression()
        how = self.peek()
        if how in ("=", "+=", "-="):
            self.take()
            if how == "=" and self.peek() == "lambda":
                return self._lambda(left[1])
            targets, right = [left], self.expression()
            while self.maybe("="):
                targets.append(right)
                right = self.expression()
            if how != "=":
                right = ("binary", how[0], left, right)
            return ("assign", targets, right)
        return ("do", left)

    def _if(self) -> Node:
        self.take()
        branches: list[tuple[Node | None, list[Node]]] = []
        condition = self.expression()
        self.take("then")
        branches.append((condition, self.block("elsif", "else", "endif")))
        while self.peek() != "endif":
            if self.maybe("elsif"):
                condition = self.expression()
                self.take("then")
                branches.append((condition, self.block("elsif", "else", "endif")))
            else:
                self.take("else")
                branches.append((None, self.block("endif")))
        self.take("endif")
        return ("if", branches)

    def _lambda(self, name: str) -> Node:
        self.take("lambda")
        self.take("(")
        names = [self.take()]
        while self.maybe(","):
            names.append(self.take())
        self.take(")")
        self.take("(")
        if self.peek() in ("if", "declare"):
            body = self.block(")")
        else:
            body = [("return", self.expression())]
            self.maybe(";")
        self.take(")")
        return ("lambda", name, names, body)

    def expression(self) -> Node:
        condition = self._level(0)
        if not self.maybe("?"):
            return condition
        yes = self.expression()
        self.take(":")
        return ("choose", condition, yes, self.expression())

    def _level(self, level: int) -> Node:
        if level == len(_LEVELS):
            return self._unary()
        left = self._level(level + 1)
        while self.peek() in _LEVELS[level]:
            left = ("binary", self.take(), left, self._level(level + 1))
        return left

    def _unary(self) -> Node:
        if self.peek() in ("-", "+", "~", "!"):
            return ("unary", self.take(), self._unary())
        return self._postfix(self._primary())

    def _primary(self) -> Node:
        kind, text = self.tokens[self.at] if self.at < len(self.tokens) else ("", "")
        self.at += 1
        if kind == "cast":
            width, to = text.split("'")
            self.take("(")
            inner = self.expression()
            self.take(")")
            return ("cast", to.lower(), int(width), inner)
        if kind == "sized":
            width, _, digits = text.partition("'")
            return ("value", _literal(digits, int(width)))
        if kind == "number":
            return ("value", _literal(text, 0))
        if text == "(":
            inner = self.expression()
            self.take(")")
            return inner
        if text == "{":
            parts = [self.expression()]
            while self.maybe(","):
                parts.append(self.expression())
            self.take("}")
            return ("join", parts)
        if kind != "name" or text in _WORDS - {"in"}:
            raise PcodeError(f"no expression begins with {text!r}")
        if self.maybe("("):
            arguments = []
            while not self.maybe(")"):
                arguments.append(self.expression())
                self.maybe(",")
            return ("call", text, arguments)
        return ("name", text)

    def _postfix(self, node: Node) -> Node:
        while True:
            if self.maybe("["):
                first = self.expression()
                if self.maybe(":"):
                    node = ("slice", node, first, self.expression())
                elif self.maybe("+:"):
                    node = ("part", node, first, self.expression())
                else:
                    node = ("index", node, first)
                self.take("]")
            elif self.peek() == ".":
                self.take()
                node = ("view", node, self.take())
            else:
                return node


def _literal(text: str, width: int) -> Value:
    hexadecimal = "0x" in text
    digits = text.rstrip("UL") if hexadecimal else text.rstrip("ULF")
    if "." in digits:
        bits = width or (32 if text.endswith("F") else 64)
        return of_floats(np.array([float(digits)]), bits)
    kind = "u" if "U" in text else "i"
    bits = width or (64 if "LL" in text else 32)
    made = value(kind, bits, int(digits, 16 if hexadecimal else 10))
    return Value(made.kind, made.bits, made.raw, constant=hexadecimal)
