"""The tokenizer of PTX text, and declarations of variables. Source: PTX ISA, chapter 4.

Not here: placing variables in memory (`flat`), all other syntax (`syntax`). Next: `syntax`, the parser.
"""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

from emulator.nv.ptx.statements import TYPES, PtxError, PtxImm, PtxVariable

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r]+|//[^\n]*|/\*.*?\*/)|(?P<newline>\n[ \t\r\n]*)
    |(?P<word>(?:[A-Za-z][\w$]*|[_$%][\w$]*)(?:(?:\.|::)\w+)*)|(?P<directive>\.[A-Za-z_]\w*(?:::\w+)*)
    |(?P<number>0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}|0[xX][0-9a-fA-F]+U?|0[bB][01]+U?|\d+\.\d*(?:[eE][-+]?\d+)?|\d+U?)
    |(?P<string>"[^"]*")|(?P<mark><<|>>|[-+!@{}()\[\],;:=|<>~*/&])""",
    re.VERBOSE | re.DOTALL,
)


class Token(NamedTuple):
    """A token; a tuple, because a text has many."""

    kind: str
    """"word", "directive", "number", "string" or "mark"; "end" for the one after the text."""
    text: str
    """As written; empty at the end."""
    line: int
    """Its number, from 1."""
    at: int
    """Its place in the text."""


def _tokens(text: str) -> list[Token]:
    """Return the tokens of a text, and one for its end. Raises `PtxError` for what is none."""
    found: list[Token] = []
    at, line = 0, 1
    for match in _TOKEN.finditer(text):
        begin, end = match.span()
        if begin != at:
            break
        kind, word = match.lastgroup or "", match[0]
        if kind not in ("space", "newline"):
            found.append(Token(kind, word, line, at))
        if kind not in ("word", "directive", "number", "mark"):
            line += word.count("\n")
        at = end
    if at < len(text):
        raise PtxError(line, f"cannot read {text[at : at + 20]!r}")
    found.append(Token("end", "", line, at))
    return found


def number(text: str, line: int) -> PtxImm:
    """Return the constant that a token of kind "number" denotes. Raises `PtxError` if it has no value."""
    low = text.lower()
    if low.startswith("0f"):
        return PtxImm(int(low.removeprefix("0f"), 16), "f32")
    if low.startswith("0d"):
        return PtxImm(int(low.removeprefix("0d"), 16), "f64")
    if "." in low:
        return PtxImm(struct.unpack("<Q", struct.pack("<d", float(low)))[0], "f64")
    digits = low.rstrip("u")
    if digits[:1] == "0" and digits.isdigit() and len(digits) > 1:
        return PtxImm(int(digits, 8))
    try:
        return PtxImm(int(digits, 0))
    except ValueError:
        raise PtxError(line, f"{text!r} is no number") from None


class Tokens:
    """The tokens of a text, with a current position."""

    def __init__(self, text: str) -> None:
        """Split the text. Raises `PtxError` for a part that is no token."""
        self._list = _tokens(text)
        self._at = 0
        self.now = self._list[0]
        """The current token."""

    def next(self) -> Token:
        """Consume and return the current token."""
        token = self.now
        self.skip()
        return token

    def accept(self, text: str) -> bool:
        """Consume the current token if it has this text; return whether it did."""
        if self.now.text == text:
            self.skip()
            return True
        return False

    def expect(self, text: str) -> Token:
        """Consume and return the current token. Raises `PtxError` unless it has this text."""
        if self.now.text != text:
            raise PtxError(self.now.line, f"expected {text!r}, found {self.now.text!r}")
        return self.next()

    def kind(self, kind: str) -> str:
        """Consume the current token and return its text. Raises `PtxError` unless it is of that kind."""
        if self.now.kind != kind:
            raise PtxError(self.now.line, f"expected a {kind}, found {self.now.text!r}")
        return self.next().text

    def integer(self) -> int:
        """Consume an integer, which may have a minus sign; return it. Raises `PtxError` for anything else."""
        negative = self.accept("-")
        token = self.next()
        if token.kind != "number":
            raise PtxError(token.line, f"expected a number, found {token.text!r}")
        value = number(token.text, token.line)
        if value.kind != "int":
            raise PtxError(token.line, f"expected an integer, found {token.text!r}")
        return -value.value if negative else value.value

    def skip_line(self) -> None:
        """Skip the remaining tokens of the current line."""
        line = self.now.line
        while self.now.line == line and self.now.kind != "end":
            self.skip()

    def skip(self) -> None:
        """Skip the current token; at the end it stays."""
        self._at += 1
        if self._at < len(self._list):
            self.now = self._list[self._at]

    def following(self) -> str:
        """Return the text of the token after the current one, which is not the last."""
        return self._list[self._at + 1].text


def read_variables(tokens: Tokens, *, single: bool = False) -> list[PtxVariable]:
    """Parse `.space .align n .type name[dims] = init, ...` up to its semicolon; return the variables.

    With `single` it stops after one variable, as parameters need. Raises `PtxError`, with the line.
    """
    line = tokens.now.line
    space = tokens.kind("directive")[1:]
    align, type_, width = 0, "", 1
    while tokens.now.kind == "directive":
        what = tokens.next().text[1:]
        if what == "align":
            align = tokens.integer()
        elif what in TYPES:
            type_ = what
        elif what in ("texref", "samplerref", "surfref"):
            type_ = "b64"
        elif what in ("v2", "v4"):
            width = int(what[1])
        elif what == "ptr":
            while tokens.now.text in (".global", ".shared", ".const", ".local", ".align", ".param"):
                if tokens.next().text == ".align":
                    tokens.integer()
        elif what == "attribute":
            while not tokens.accept(")"):
                tokens.skip()
        else:
            raise PtxError(line, f"unknown attribute .{what} of a variable")
    if not type_:
        raise PtxError(line, "a variable without a type")
    found: list[PtxVariable] = []
    while True:
        name, size = tokens.kind("word"), TYPES[type_] // 8 * width
        step, count = size, 1
        while tokens.accept("["):
            count *= 0 if tokens.now.text == "]" else tokens.integer()
            tokens.expect("]")
        variable = PtxVariable(name, space, type_, step * count, align or step, line=line, element=step)
        if tokens.accept("="):
            _initialise(tokens, variable, TYPES[type_] // 8)
        found.append(variable)
        if single or not tokens.accept(","):
            return found


def _initialise(tokens: Tokens, variable: PtxVariable, step: int) -> None:
    """Parse the initial contents of a variable into it; an element has `step` bytes.

    A size that the declaration left open becomes that of the contents. Raises `PtxError` if they do not fit.
    """
    data = bytearray()

    def item() -> None:
        if tokens.accept("{"):
            while not tokens.accept("}"):
                item()
                tokens.accept(",")
            return
        token = tokens.now
        if token.kind == "word":
            tokens.next()
            name = token.text
            if name == "generic":
                tokens.expect("(")
                name = tokens.kind("word")
                tokens.expect(")")
            offset = tokens.integer() if tokens.accept("+") else 0
            variable.references.append((len(data), name, offset))
            data.extend(bytes(step))
            return
        negative = tokens.accept("-")
        value = number(tokens.kind("number"), token.line)
        bits = value.value
        if value.kind == "f64" and step == 4:
            bits = struct.unpack("<I", struct.pack("<f", struct.unpack("<d", struct.pack("<Q", bits))[0]))[0]
        data.extend(((-bits if negative else bits) & (1 << 8 * step) - 1).to_bytes(step, "little"))

    item()
    if variable.size == 0:
        variable.size = len(data)
    if len(data) > variable.size:
        raise PtxError(
            variable.line, f"{variable.name} has {variable.size} bytes, and its initial contents {len(data)}"
        )
    variable.init = bytes(data) + bytes(variable.size - len(data))
