"""Declarations of variables: space, alignment, type, sizes and initial contents.

Not here: placing variables in memory (`flat`). Next: `syntax`, the caller.
"""

from __future__ import annotations

import struct

from emulator.nv.ptx.statements import TYPES, PtxError, PtxVariable
from emulator.nv.ptx.tokens import Tokens, number


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
