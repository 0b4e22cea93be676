"""Follow constants through a listing of `nvdisasm`: moves, and plain integer instructions by their well-known meaning.

Sources: names of the instructions in "CUDA Binary Utilities", their use in code that `ptxas` makes of 64-bit and
carried arithmetic. `IADD3` passes the carry of its adder: a subtrahend is added as its complement plus one. What is
not listed here makes its registers unknown.
"""

# ruff: noqa: E501 - rows of tables and texts read best on one line; a tally is printed

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_ONE = 0xFFFF_FFFF
_REGISTER = re.compile(r"U?R\d+")
_PREDICATE = re.compile(r"U?P\d+")
_WIDTHS = {"U8": 8, "U16": 16}
_LINE = re.compile(r"\s+/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;\s*/\* 0x([0-9a-f]{16}) \*/")
_STORE = re.compile(r"STG\.E(?:\.(U8|U16|64))?\S* .*\[R\d+\.64(?:\+(-?0x[0-9a-f]+))?\], (U?R(?:Z|\d+))")
_NEVER_WRITE = ("STG", "BRA", "EXIT", "NOP", "RET", "CALL", "BSYNC", "BSSY", "WARPSYNC")
_SINGLE = ("MOV", "UMOV", "IMAD", "UIMAD", "IADD3", "UIADD3", "LOP3", "ULOP3", "SEL", "USEL", "PRMT", "UPRMT", "SHF", "USHF",
           "FADD", "FMUL", "FFMA", "FSEL", "VIADD", "F2FP", "HADD2", "HMUL2", "HFMA2", "HSET2", "HMNMX2", "FMNMX", "LEA",
           "VIMNMX", "IMNMX", "IABS", "FLO", "POPC", "BREV", "SGXT", "BMSK", "IDP", "VABSDIFF", "MUFU.R", "R2UR", "ISETP",
           "FSETP", "DSETP", "HSETP2", "PLOP3", "I2FP", "I2IP")  # fmt: skip
"""Instructions that write one register at most."""
_TESTS: dict[str, Callable[[int, int], bool]] = {
    "EQ": lambda a, b: a == b, "NE": lambda a, b: a != b, "LT": lambda a, b: a < b,
    "LE": lambda a, b: a <= b, "GT": lambda a, b: a > b, "GE": lambda a, b: a >= b,
}  # fmt: skip


class UnknownError(Exception):
    """An operand or a meaning that is not known here."""


class Constants:
    """What is known of registers and predicates in straight code; with `plain`, only moves are followed."""

    def __init__(self, *, plain: bool) -> None:
        self.plain = plain
        self.known: dict[str, int] = {}
        self._immediate = 0

    def read(self, name: str) -> int:
        """Return what an operand holds; a negated register is its complement plus one, and may have 33 bits."""
        name = name.replace(".reuse", "")
        if name[0] in "-~" and not name.startswith("-0x"):
            value = self.read(name[1:]) ^ _ONE
            return value + (name[0] == "-")
        if name in ("RZ", "URZ", "SRZ"):
            return 0
        if re.fullmatch(r"-?0x[0-9a-f]+", name):
            return self._immediate
        return self._get(name)

    def wide(self, name: str) -> int:
        """Return what a pair of registers holds."""
        name = name.replace(".reuse", "")
        if name in ("RZ", "URZ"):
            return 0
        if not _REGISTER.fullmatch(name):
            raise UnknownError(name)
        return self._get(after(name)) << 32 | self._get(name)

    def test(self, name: str) -> bool:
        """Return a predicate, perhaps inverted."""
        if name[0] == "!":
            return not self.test(name[1:])
        return True if name in ("PT", "UPT") else bool(self._get(name))

    def _get(self, name: str) -> int:
        if name not in self.known:
            raise UnknownError(name)
        return self.known[name]

    def step(self, text: str, encoding: int) -> None:
        """Follow one instruction; what it writes becomes known or unknown."""
        self._immediate = encoding >> 32
        guard = ""
        if text.startswith("@"):
            guard, _, text = text.partition(" ")
        opcode, _, rest = text.strip().partition(" ")
        if opcode.startswith(_NEVER_WRITE):
            return
        parts = [part.strip() for part in rest.split(",")]
        try:
            taken = self.test(guard[1:]) if guard else True
            found = self._move(opcode, parts)
            if found is None and not self.plain:
                found = _compute(self, opcode, parts)
        except UnknownError:
            taken, found = True, None
        if taken:
            self._forget(parts, 1 if opcode.startswith(_SINGLE) and "WIDE" not in opcode else 2)
            self.known |= found or {}

    def _move(self, opcode: str, parts: list[str]) -> dict[str, int] | None:
        target = parts[0]
        if opcode in ("MOV", "UMOV", "R2UR"):
            return {target: self.read(parts[1])}
        if opcode in ("IMAD.MOV.U32", "IMAD.U32", "IMAD.MOV") and parts[1:3] == ["RZ", "RZ"]:
            return {target: self.read(parts[3]) & _ONE}
        if opcode in ("HFMA2", "HFMA2.MMA") and parts[1:3] == ["-RZ", "RZ"] and len(parts) == 5:
            return {target: self._immediate}
        if opcode == "CS2R" and parts[1] == "SRZ":
            return {target: 0, after(target): 0}
        return {target: 0} if opcode == "CS2R.32" and parts[1] == "SRZ" else None

    def _forget(self, parts: list[str], count: int) -> None:
        """Drop what an instruction may write: `count` registers from its first one on, and leading predicates."""
        dropped = False
        for part in parts[:4]:
            if _PREDICATE.fullmatch(part):
                self.known.pop(part, None)
            elif dropped or part in ("PT", "UPT"):
                continue
            elif found := re.fullmatch(r"(U?R)(\d+)(?:\.\w+)?", part):
                for step in range(count):
                    self.known.pop(f"{found[1]}{int(found[2]) + step}", None)
                dropped = True
            elif part in ("RZ", "URZ"):
                dropped = True
            else:
                self.known.clear()


def after(name: str) -> str:
    """Return the register after one."""
    found = re.fullmatch(r"(U?R)(\d+)", name)
    if found is None:
        raise UnknownError(name)
    return f"{found[1]}{int(found[2]) + 1}"


def _targets(parts: list[str], most: int) -> tuple[list[str], list[str]]:
    """Split operands into the predicates behind the target that are written, and the sources."""
    written = []
    for part in parts[1 : 1 + most]:
        if not re.fullmatch(r"U?P(\d+|T)", part):
            break
        written.append(part)
    return written, parts[1 + len(written) :]


def _compute(state: Constants, opcode: str, parts: list[str]) -> dict[str, int] | None:
    """Return what a plain integer instruction writes, or None where its meaning is not listed."""
    name, *marks = (
        opcode.removeprefix("U").split(".") if opcode[:2] in ("UI", "UL", "US", "UP") else opcode.split(".")
    )
    rule = _RULES.get(name)
    return rule(state, marks, parts) if rule else None


def _with_carry(target: str, total: int, width: int, written: list[str]) -> dict[str, int]:
    """Return a sum's low bits, and its carry."""
    carry = total >> width
    if carry > 1 or (len(written) > 1 and written[1] not in ("PT", "UPT")):
        raise UnknownError("two carries")
    found = {written[0]: carry} if written and written[0] not in ("PT", "UPT") else {}
    if target not in ("RZ", "URZ"):
        found[target] = total & _ONE
        if width == 64:
            found[after(target)] = total >> 32 & _ONE
    return found


def _add(state: Constants, marks: list[str], parts: list[str]) -> dict[str, int]:
    written, sources = _targets(parts, 2)
    total = sum(state.read(source) for source in sources[:3])
    if marks not in ([], ["X"]):
        raise UnknownError(".".join(marks))
    total += sum(state.test(source) for source in sources[3:])
    return _with_carry(parts[0], total, 32, written)


def _two(state: Constants, marks: list[str], parts: list[str]) -> dict[str, int]:
    if marks:
        raise UnknownError(".".join(marks))
    return {parts[0]: (state.read(parts[1]) + state.read(parts[2])) & _ONE}


def _signed(value: int) -> int:
    value &= _ONE
    return value - (1 << 32) if value >> 31 else value


def _multiply(state: Constants, marks: list[str], parts: list[str]) -> dict[str, int]:
    written, sources = _targets(parts, 1)
    kinds = set(marks) - {"X", "WIDE", "HI", "SHL", "IADD", "MOV"}
    if kinds - {"U32"}:
        raise UnknownError(".".join(marks))
    a, b = (state.read(source) & _ONE for source in sources[:2])
    product = a * b if "U32" in kinds else _signed(a) * _signed(b)
    carried = sum(state.test(source) for source in sources[3:]) if "X" in marks else 0
    if "WIDE" in marks or "HI" in marks:
        total = (product & (1 << 64) - 1) + state.wide(sources[2]) + carried
        if "WIDE" in marks:
            return _with_carry(parts[0], total, 64, written)
        return {parts[0]: total >> 32 & _ONE}
    if written:
        raise UnknownError("a carry of IMAD")
    return {parts[0]: (product + state.read(sources[2]) + carried) & _ONE}


def _lookup(state: Constants, marks: list[str], parts: list[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    predicate = parts[0] if re.fullmatch(r"U?P(\d+|T)", parts[0]) else ""
    parts = parts[1:] if predicate else parts
    a, b, c, table = (state.read(part) & _ONE for part in (*parts[1:4], "RZ"))
    table = int(parts[4], 16)
    if sum(part.lstrip("-").startswith("0x") for part in parts[1:4]) > 1:
        raise UnknownError("two immediates")
    value = 0
    for at in range(8):
        if table >> at & 1:
            value |= (a if at & 4 else ~a) & (b if at & 2 else ~b) & (c if at & 1 else ~c)
    value &= _ONE
    if parts[0] not in ("RZ", "URZ"):
        found[parts[0]] = value
    if predicate:
        other = state.test(parts[5])
        found[predicate] = (value != 0 and other) if "PAND" in marks else (value != 0 or other)
    return found


def _select(state: Constants, marks: list[str], parts: list[str]) -> dict[str, int]:
    if marks:
        raise UnknownError(".".join(marks))
    return {parts[0]: state.read(parts[1] if state.test(parts[3]) else parts[2]) & _ONE}


def _compare(state: Constants, marks: list[str], parts: list[str]) -> dict[str, int]:
    test, kinds, join = marks[0], set(marks[1:]) & {"U32"}, [m for m in marks if m in ("AND", "OR", "XOR")]
    a, b = (state.read(part) & _ONE for part in parts[2:4])
    if test not in _TESTS or len(join) != 1:
        raise UnknownError(".".join(marks))
    if not kinds:
        a, b = _signed(a), _signed(b)
    held = _TESTS[test](a, b)
    if "EX" in marks and a == b:
        held = state.test(parts[5])
    elif "EX" in marks:
        held = {"EQ": False, "NE": True}.get(test, _TESTS[test](a, b))
    other = state.test(parts[4])
    rule = {"AND": lambda x: x and other, "OR": lambda x: x or other, "XOR": lambda x: x != other}[join[0]]
    values = {parts[0]: rule(held), parts[1]: rule(not held)}
    return {name: int(value) for name, value in values.items() if name not in ("PT", "UPT")}


_RULES: dict[str, Callable[[Constants, list[str], list[str]], dict[str, int]]] = {
    "IADD3": _add, "VIADD": _two, "IMAD": _multiply, "LOP3": _lookup, "SEL": _select, "ISETP": _compare,
}  # fmt: skip


def stores(listing: str, *, plain: bool) -> dict[int, dict[int, int]]:
    """Return the constants that each kernel `k<number>` stores: by number, and offset."""
    found: dict[int, dict[int, int]] = {}
    state, here = Constants(plain=plain), {}
    for line in listing.splitlines():
        if line.startswith(".text.k"):
            here = found.setdefault(int(line.strip()[7:].rstrip(":")), {})
            state = Constants(plain=plain)
        elif line.startswith(".L_"):
            state = Constants(plain=plain)
        elif (match := _LINE.match(line)) is not None:
            store = _STORE.match(match[1].strip())
            if store is None:
                state.step(match[1].strip(), int(match[2], 16))
                continue
            try:
                value = state.wide(store[3]) if store[1] == "64" else state.read(store[3])
            except UnknownError:
                continue
            here[int(store[2] or "0", 16)] = value & ((1 << _WIDTHS.get(store[1] or "", 64)) - 1)
    return found


def opcodes(listing: str) -> dict[int, list[str]]:
    """Return the instructions of each kernel `k<number>`, without moves, stores and control flow."""
    found: dict[int, list[str]] = {}
    here: list[str] = []
    left_out = (
        "MOV",
        "UMOV",
        "IMAD.MOV",
        "IMAD.U32",
        "HFMA2.MMA R",
        "LDC",
        "ULDC",
        "S2R",
        "CS2R",
        *_NEVER_WRITE,
    )
    for line in listing.splitlines():
        if line.startswith(".text.k"):
            here = found.setdefault(int(line.strip()[7:].rstrip(":")), [])
        elif (match := _LINE.match(line)) is not None:
            text = re.sub(r"^@!?U?P\w+ +", "", match[1].strip())
            if not text.startswith(left_out) and "-RZ, RZ, " not in text:
                here.append(text.partition(" ")[0])
    return found
