"""The tokenizer of PTX text. Source: PTX ISA, chapter 4.

Next: `syntax`, the parser.
"""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

from emulator.nv.ptx.statements import PtxError, PtxImm

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r]+|//[^\n]*|/\*.*?\*/)|(?P<newline>\n[ \t\r\n]*)
    |(?P<word>(?:[A-Za-z][\w$]*|[_$%][\w$]*)(?:(?:\.|::)\w+)*)|(?P<directive>\.[A-Za-z_]\w*(?:::\w+)*)
    |(?P<number>0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}|0[xX][0-9a-fA-F]+U?|0[bB][01]+U?|\d+\.\d*(?:[eE][-+]?\d+)?|\d+U?)
    |(?P<string>"[^"]*")|(?P<mark><<|>>|[-+!@{}()\[\],;:=|<>~*/&])""",
    re.VERBOSE | re.DOTALL,
)


class Token(NamedTuple):
    """A word, number, directive, string or mark, with its line; a tuple, because a text has many."""

    kind: str
    text: str
    line: int
    at: int


def _tokens(text: str) -> list[Token]:
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
    """Read a constant."""
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
        self._list = _tokens(text)
        self._at = 0
        self.now = self._list[0]
        """The current token."""

    def next(self) -> Token:
        """Consume and return a token."""
        token = self.now
        self.skip()
        return token

    def accept(self, text: str) -> bool:
        """Consume a token if it has this text; return whether it did."""
        if self.now.text == text:
            self.skip()
            return True
        return False

    def expect(self, text: str) -> Token:
        """Consume a token that must have this text. Raises `PtxError` otherwise."""
        if self.now.text != text:
            raise PtxError(self.now.line, f"expected {text!r}, found {self.now.text!r}")
        return self.next()

    def kind(self, kind: str) -> str:
        """Consume a token that must be of a kind; return its text. Raises `PtxError` otherwise."""
        if self.now.kind != kind:
            raise PtxError(self.now.line, f"expected a {kind}, found {self.now.text!r}")
        return self.next().text

    def integer(self) -> int:
        """Consume an integer with an optional sign."""
        negative = self.accept("-")
        token = self.next()
        if token.kind != "number":
            raise PtxError(token.line, f"expected a number, found {token.text!r}")
        value = number(token.text, token.line)
        if value.kind != "int":
            raise PtxError(token.line, f"expected an integer, found {token.text!r}")
        return -value.value if negative else value.value

    def skip_line(self) -> None:
        """Skip the rest of the line."""
        line = self.now.line
        while self.now.line == line and self.now.kind != "end":
            self.skip()

    def skip(self) -> None:
        """Skip a token; behind the end there is none."""
        self._at += 1
        if self._at < len(self._list):
            self.now = self._list[self._at]

    def following(self) -> str:
        """Return the text of the token after the current one."""
        return self._list[self._at + 1].text
