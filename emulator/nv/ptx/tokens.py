"""The tokenizer of PTX text. Source: PTX ISA, chapter 4.

Not here: what tokens mean together (`syntax`, `variables`). Next: `syntax`, the parser.
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
