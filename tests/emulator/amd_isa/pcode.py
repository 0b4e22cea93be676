"""The pseudo-code of AMD's ISA documents, read from an installed tinygrad and evaluated for many lanes at once.

tinygrad's wheel carries the pseudo-code of CDNA, RDNA3 and RDNA4 as strings, made from AMD's documents. They are
read as data, without an import of tinygrad; nothing of them is kept here. `table` reads them, `Program` parses one,
`Program.run` evaluates it on registers of every lane: integers of exact width, floats with IEEE rounding.

An operand narrower than 32 bits is extended before arithmetic, as the documents' sums of bytes need it.
`x * 2.0 ** n` is rounded once. `floor(x + 0.5)` of a rounding to nearest even is taken of the exact sum.

Not here: values (`pcode_values`), the grammar (`pcode_syntax`), which instructions there are, their operands and modifiers (`pcode_forms`).
"""

# ruff: noqa: E501 - rows of tables and texts read best on one line

from __future__ import annotations

import ast
import importlib.util
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.emulator.amd_isa import pcode_small_floats
from tests.emulator.amd_isa.pcode_functions import ARITHMETIC, COMPARE, FUNCTIONS, exponent, toward_zero
from tests.emulator.amd_isa.pcode_syntax import TYPE, Node, Parser
from tests.emulator.amd_isa.pcode_values import (
    ONE,
    Array,
    PcodeError,
    Value,
    converted,
    floats,
    mask,
    numbers,
    odd_sum,
    of_floats,
    value,
)

FOLDERS = {"gfx942": "cdna", "gfx1100": "rdna3", "gfx1201": "rdna4"}


@cache
def folder() -> Path | None:
    """Return where tinygrad's tables lie, or None where it is not installed; tinygrad is not imported."""
    spec = importlib.util.find_spec("tinygrad")
    if spec is None or spec.origin is None:
        return None
    found = Path(spec.origin).parent / "runtime/autogen/amd"
    return found if (found / "rdna3/str_pcode.py").exists() else None


@cache
def table(name: str) -> dict[tuple[str, int], tuple[str, str]]:
    """Return a target's pseudo-code: (format, number of the operation) -> its name in lower case, its text."""
    where = folder()
    assert where is not None
    numbers: dict[tuple[str, str], int] = {}
    for node in ast.parse((where / FOLDERS[name] / "enum.py").read_text()).body:
        for line in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name):
                assert isinstance(node, ast.ClassDef)
                value = ast.literal_eval(line.value) if isinstance(line.value, ast.Constant) else None
                if isinstance(value, int):
                    numbers[node.name, line.targets[0].id] = value
    found = {}
    texts = ast.walk(ast.parse((where / FOLDERS[name] / "str_pcode.py").read_text()))
    for entries in (node for node in texts if isinstance(node, ast.Dict)):
        for key, text in zip(entries.keys, entries.values, strict=True):
            if not isinstance(key, ast.Attribute) or not isinstance(key.value, ast.Name):
                continue
            stem = re.sub(r"_e(32|64)$", "", key.attr.lower())
            number = numbers[key.value.id, key.attr]
            found[key.value.id.removesuffix("Op"), number] = (stem, ast.literal_eval(text))
    return found


CONSTANTS = {"INF": np.inf, "NAN": np.nan, "PI": np.pi, "MAX_FLOAT_F32": float(np.finfo("f4").max),
             "UNDERFLOW_F32": 0.0, "UNDERFLOW_F64": 0.0, "OVERFLOW_F32": np.inf, "OVERFLOW_F64": np.inf}  # fmt: skip


@dataclass
class Frame:
    """Variables of a text or of a lambda: which lanes have returned or left a loop, and with what."""

    variables: dict[str, Any]
    types: dict[str, tuple[str, int]] = field(default_factory=dict)
    gone: Array | None = None
    broken: Array | None = None
    result: Value | None = None


class Program:
    """One text, parsed."""

    def __init__(self, text: str) -> None:
        parser = Parser(text)
        self.body = parser.block("")

    def run(
        self, registers: dict[str, Any], lanes: int, wave: int, others: dict[str, str], *, exact: bool = False
    ) -> dict[str, Any]:
        """Return the variables after the text was run for `lanes` lanes; with `exact` integers do not wrap around."""
        frame = Frame(dict(registers))
        Run(lanes, wave, others, exact=exact).block(self.body, frame, None)
        return frame.variables


@cache
def program(text: str) -> Program:
    return Program(text)


def _unify(a: Value, b: Value) -> tuple[str, int]:
    """Return the type in which two integers meet: 32 bits at least."""
    bits = max(a.bits, b.bits, 32)
    unsigned = any(v.kind != "i" and v.bits == bits for v in (a, b))
    return "u" if unsigned else "i", bits


class Run:
    """An evaluation: `m` is a mask of lanes, None for all."""

    def __init__(self, lanes: int, wave: int, others: dict[str, str], *, exact: bool) -> None:
        self.lanes, self.wave, self.others, self.exact = lanes, wave, others, exact

    def block(self, body: list[Node], f: Frame, m: Array | None) -> None:
        for node in body:
            live = m
            for left in (f.gone, f.broken):
                if left is not None:
                    live = ~left if live is None else live & ~left
            if live is not None and not live.any():
                return
            self.statement(node, f, live)

    def statement(self, node: Node, f: Frame, m: Array | None) -> None:
        kind = node[0]
        if kind == "assign":
            made = self.value(node[2], f, m)
            for target in node[1]:
                self.assign(target, made, f, m)
        elif kind == "if":
            rest = m
            for condition, body in node[1]:
                if condition is None:
                    self.block(body, f, rest)
                    break
                yes = np.broadcast_to(self.truth(condition, f, rest), (self.lanes,))
                self.block(body, f, yes if rest is None else rest & yes)
                rest = ~yes if rest is None else rest & ~yes
        elif kind == "for":
            low, high = (int(numbers(self.value(n, f, m)).flat[0]) for n in node[2:4])
            f.broken = None
            for n in range(low, high + 1):
                f.variables[node[1]] = value("i", 32, n)
                self.block(node[4], f, m)
            f.broken = None
        elif kind == "declare":
            _, name, type_, width, size = node
            f.types[name] = (type_, width)
            if name in f.variables and name not in ("tmp", "result", "i", "lane"):
                return  # an operand, declared again
            if size is None:
                f.variables[name] = value(type_, width, np.zeros(self.lanes, "u8"))
            else:
                f.variables[name] = [value(type_, width, np.zeros(self.lanes, "u8")) for _ in range(size)]
        elif kind == "lambda":
            f.variables[node[1]] = ("lambda", node[2], node[3])
        elif kind == "return":
            made, here = self.value(node[1], f, m), np.ones(self.lanes, bool) if m is None else m
            f.result = made if f.result is None else self.choose(here, made, f.result)
            f.gone = here if f.gone is None else f.gone | here
        elif kind == "break":
            here = np.ones(self.lanes, bool) if m is None else m
            f.broken = here if f.broken is None else f.broken | here
        elif node[1][0] == "call" and node[1][1] in ("s_nop", "nop"):
            return
        else:
            raise PcodeError(f"statement {node[1]}")

    def truth(self, node: Node, f: Frame, m: Array | None) -> Array:
        found: Array = self.value(node, f, m).raw != 0
        return found

    def choose(self, here: Array, a: Value, b: Value) -> Value:
        if a.kind == b.kind and a.bits == b.bits:
            return Value(a.kind, a.bits, np.where(here, a.raw, b.raw))
        if a.kind in ("f", "bf") or b.kind in ("f", "bf"):
            wide = max(v.bits for v in (a, b) if v.kind in ("f", "bf"))
            return Value("f", wide, np.where(here, converted(a, wide).raw, converted(b, wide).raw))
        kind, bits = _unify(a, b) if min(a.bits, b.bits) >= 32 else (a.kind, max(a.bits, b.bits))
        return value(kind, bits, np.where(here, numbers(a), numbers(b)))

    # assignment

    def assign(self, target: Node, made: Value, f: Frame, m: Array | None) -> None:
        if target[0] == "join":
            low = sum(self._width(part) for part in target[1])
            for part in target[1]:
                width = self._width(part)
                low -= width
                self.assign(
                    part,
                    value(
                        "b",
                        width,
                        made.raw.astype(object) >> low if made.bits > 64 else made.raw >> np.uint64(low),
                    ),
                    f,
                    m,
                )
            return
        if target[0] == "name" and target[1] == "ROUND_MODE":
            f.variables["ROUND_MODE"] = made
            return
        path: list[Node] = []
        node = target
        while node[0] != "name":
            path.append(node)
            node = node[1]
        name = node[1]
        if name == "TRAPSTS":
            return
        if name == "MEM":
            self._to_memory(path, made, f, m)
            return
        if name == "VGPR":
            self._to_lane(path, made, f, m)
            return
        if name == "D" and "D0" in f.variables:
            name = "D0"
        if path and path[-1][0] == "index" and isinstance(f.variables.get(name), list):
            at = int(self.value(path[-1][2], f, m).raw.flat[0])
            items = f.variables[name]
            items[at] = self._put(items[at], path[:-1], made, f, m)
            return
        old = f.variables.get(name)
        if old is None or (
            not path and name not in f.types and name[0] not in "DV" and name not in ("SCC", "EXEC")
        ):
            if not path:
                old = (
                    Value(made.kind, made.bits, np.broadcast_to(made.raw, (self.lanes,)))
                    if old is None or m is None
                    else old
                )
                f.variables[name] = made if m is None else self.choose(m, made, old)
                return
            old = value("b", 128, 0)
        f.variables[name] = self._put(old, path, made, f, m)

    def _width(self, node: Node) -> int:
        return int(TYPE.fullmatch(node[2])[2])  # type: ignore[index]

    def _put(self, old: Value, path: list[Node], made: Value, f: Frame, m: Array | None) -> Value:
        """Return `old` with a part replaced: `path` leads from the whole type to the innermost slice."""
        low: Array | int = 0
        width = old.bits
        kind, typed = old.kind, None
        for node in reversed(path):
            if node[0] == "view":
                match = TYPE.fullmatch(node[2])
                if match is None:
                    raise PcodeError(f"type {node[2]}")
                typed, width = (match[1], int(match[2])), min(width, int(match[2]))
            else:
                if node[0] == "index":
                    top = bottom = numbers(self.value(node[2], f, m))
                else:
                    top, bottom = (numbers(self.value(n, f, m)) for n in node[2:4])
                    if node[0] == "part":
                        top, bottom = top.astype("i8") + bottom.astype("i8") - 1, top
                sizes = np.unique(top.astype("i8") - bottom.astype("i8") + 1)
                if len(sizes) != 1:
                    raise PcodeError("a slice of varying width")
                width = int(sizes[0])
                low = low + bottom.astype("u8")
                if width <= 0:  # [0 : 31] as a target
                    raise PcodeError("a reversed slice as a target")
        if typed is None and not path:
            typed = (kind, old.bits)
        elif typed is None:
            typed = ("b", width)
        bits = self.cast(made, typed[0], typed[1]).raw
        if not path:
            new = bits
        elif old.bits > 64:
            hole = (
                (mask(old.bits) ^ (mask(width) << low.astype(object)))
                if not isinstance(low, int)
                else mask(old.bits) ^ mask(width)
            )
            new = old.raw.astype(object) & hole | (bits.astype(object) & mask(width)) << (
                low.astype(object) if not isinstance(low, int) else low
            )
        else:
            by = np.asarray(low, "u8")
            part = np.uint64(mask(width))
            new = old.raw & ~(part << by) | (bits & part) << by
        new = np.broadcast_to(new, (self.lanes,))
        if m is not None:
            new = np.where(m, new, old.raw)
        return value(old.kind, old.bits, new)

    def _to_memory(self, path: list[Node], made: Value, f: Frame, m: Array | None) -> None:
        """Write a lane's memory, which begins at address 0."""
        match = TYPE.fullmatch(path[0][2]) if len(path) == 2 and path[0][0] == "view" else None
        if match is None:
            raise PcodeError("a store without its type")
        low = self._place(path[-1][2], f, m)
        bits, old = int(match[2]), f.variables["MEM"]
        if low + bits > old.bits:
            raise PcodeError(f"memory at {low // 8} of {old.bits // 8} bytes")
        made_bits = self.cast(made, match[1], bits).raw.astype(object)
        new = old.raw & (mask(old.bits) ^ mask(bits) << low) | made_bits << low
        f.variables["MEM"] = value("b", old.bits, new if m is None else np.where(m, new, old.raw))

    def _place(self, node: Node, f: Frame, m: Array | None) -> int:
        """Return where in a lane's memory, in bits, an address lies: of planes 16 bytes each are its own."""
        at = int(self.value(node, f, m).raw.flat[0])
        plane = f.variables.get("PLANE")
        return 8 * (at if plane is None else at // plane * 16 + at % plane)

    def _to_lane(self, path: list[Node], made: Value, f: Frame, m: Array | None) -> None:
        lane = path[-1][2]
        which = path[-2][2]
        while which[0] == "view":
            which = which[1]
        name = {"SRC0": "S0", "SRC1": "S1", "VDST": "D0"}[which[1]]
        if lane == ("name", "laneId"):
            f.variables[name] = self._put(f.variables[name], path[:-2], made, f, m)
            return
        at = np.broadcast_to(self.value(lane, f, m).raw.astype("i8"), (self.lanes,))
        here = at == np.arange(self.lanes) % self.wave
        if m is not None:
            here = here & m
        if made.raw.shape[0] != 1:
            made = Value(made.kind, made.bits, made.raw)
        old = f.variables[name]
        new = np.broadcast_to(self.cast(made, "b", old.bits).raw, (self.lanes,))
        f.variables[name] = Value(old.kind, old.bits, np.where(here, new, old.raw))

    # expressions

    def value(self, node: Node, f: Frame, m: Array | None) -> Value:
        kind = node[0]
        if kind == "value":
            return node[1]  # type: ignore[no-any-return]
        return getattr(self, f"_{kind}")(node, f, m)  # type: ignore[no-any-return]

    def _name(self, node: Node, f: Frame, _m: Array | None) -> Value:
        name = node[1]
        if name in f.variables:
            found = f.variables[name]
            if isinstance(found, Value):
                return found
            raise PcodeError(f"{name} is no value")
        if name in CONSTANTS:
            return of_floats(np.array([CONSTANTS[name]]), 64)
        if name in pcode_small_floats.SELECTS:
            return value("u", 3, pcode_small_floats.SELECTS[name])
        if name in ("ROUND_TOWARD_ZERO", "ROUND_NEAREST_EVEN", "ROUND_MODE"):
            return value("u", 2, 3 if name == "ROUND_TOWARD_ZERO" else 0)
        raise PcodeError(f"name {name}")

    def _view(self, node: Node, f: Frame, m: Array | None) -> Value:
        if node[1] == ("name", "DENORM"):
            return Value("denormal", int(node[2][1:]), ONE)
        if node[1][0] == "name" and node[1][1] in CONSTANTS:
            return of_floats(np.array([CONSTANTS[node[1][1]]]), int(node[2][1:]))
        if node[1][0] == "name" and node[1][1] in ("WAVE_MODE", "WAVE_STATUS"):
            found = f.variables.get(f"{node[1][1]}.{node[2]}")
            if found is None:
                raise PcodeError(f"{node[1][1]}.{node[2]}")
            return found  # type: ignore[no-any-return]
        match = TYPE.fullmatch(node[2])
        if match is None:
            raise PcodeError(f"type {node[2]}")
        inner = self.value(node[1], f, m)
        kind, bits = match[1], int(match[2])
        if node[2] == "bf8":
            kind = "xf"
        if node[2] in ("b2", "b3"):
            return value("u", int(node[2][1]), inner.raw)
        if inner.kind == "f" and kind == "f" and inner.bits != bits:
            return converted(inner, bits)
        signed = inner.kind == "i" and kind == "i" and bits <= 64
        return Value(kind, bits, value(kind, bits, numbers(inner) if signed else inner.raw).raw)

    def _index(self, node: Node, f: Frame, m: Array | None) -> Value:
        if node[1] == ("name", "MEM") and "MEM" in f.variables:
            whole: Value = f.variables["MEM"]
            low = self._place(node[2], f, m)
            if low >= whole.bits:
                raise PcodeError(f"memory at {low // 8} of {whole.bits // 8} bytes")
            return value("b", whole.bits, whole.raw >> low)
        if node[1] == ("name", "S") and "S0" in f.variables:
            return f.variables[f"S{int(self.value(node[2], f, m).raw.flat[0])}"]  # type: ignore[no-any-return]
        if node[1][0] == "index" and node[1][1] == ("name", "VGPR"):
            return self._of_lane(node, f, m)
        if node[1][0] == "name" and isinstance(f.variables.get(node[1][1]), list):
            items = f.variables[node[1][1]]
            at = self.value(node[2], f, m).raw.astype("i8")
            if at.size == 1:
                return items[int(at.flat[0])]  # type: ignore[no-any-return]
            if items[0].raw.shape == (1,) and len(items) == self.wave:
                raise PcodeError("lanes")
            at = at % len(items)
            stacked = np.stack([np.broadcast_to(v.raw, (self.lanes,)) for v in items])
            return Value(
                items[0].kind,
                items[0].bits,
                stacked[np.broadcast_to(at, (self.lanes,)), np.arange(self.lanes)],
            )
        whole, at = self.value(node[1], f, m), self.value(node[2], f, m).raw
        if whole.bits > 64:
            return value("u", 1, (whole.raw >> at.astype(object)) & 1)
        return value("u", 1, whole.raw >> np.minimum(at, np.uint64(63)))

    def _of_lane(self, node: Node, f: Frame, m: Array | None) -> Value:
        which = node[2]
        while which[0] == "view":
            which = which[1]
        whole = f.variables[{"SRC0": "S0", "SRC1": "S1", "VDST": "D0"}[which[1]]]
        raw = np.broadcast_to(whole.raw, (self.lanes,))
        lane = np.broadcast_to(self.value(node[1][2], f, m).raw.astype("i8"), (self.lanes,)) % self.wave
        first = np.arange(self.lanes) // self.wave * self.wave
        return Value("b", 32, value("b", 32, raw[first + lane]).raw)

    def _slice(self, node: Node, f: Frame, m: Array | None) -> Value:
        top, bottom = (numbers(self.value(n, f, m)).astype("i8") for n in node[2:4])
        return self._cut(self.value(node[1], f, m), top, bottom)

    def _part(self, node: Node, f: Frame, m: Array | None) -> Value:
        bottom, width = (numbers(self.value(n, f, m)).astype("i8") for n in node[2:4])
        return self._cut(self.value(node[1], f, m), bottom + width - 1, bottom)

    def _cut(self, whole: Value, top: Array, bottom: Array) -> Value:
        sizes = np.unique(top - bottom)
        if len(sizes) != 1:
            raise PcodeError("a slice of varying width")
        size = int(sizes[0])
        if size < 0:
            bits, width = whole.raw, 1 - size
            return value(
                "b",
                width,
                sum((bits >> np.uint64(n) & np.uint64(1)) << np.uint64(width - 1 - n) for n in range(width)),
            )
        raw = whole.raw >> (bottom.astype(object) if whole.bits > 64 else bottom.astype("u8"))
        return value("b", size + 1, raw)

    def _join(self, node: Node, f: Frame, m: Array | None) -> Value:
        parts = [self.value(part, f, m) for part in node[1]]
        bits = sum(part.bits for part in parts)
        total: Any = np.zeros(1, object if bits > 64 else "u8")
        low = bits
        for part in parts:
            low -= part.bits
            raw = part.raw.astype(object) if bits > 64 else part.raw
            total = total | raw << (low if bits > 64 else np.uint64(low))
        return value("b", bits, total)

    def _choose(self, node: Node, f: Frame, m: Array | None) -> Value:
        return self.choose(self.truth(node[1], f, m), self.value(node[2], f, m), self.value(node[3], f, m))

    def _cast(self, node: Node, f: Frame, m: Array | None) -> Value:
        return self.cast(self.value(node[3], f, m), node[1], node[2])

    def cast(self, v: Value, kind: str, bits: int) -> Value:
        """Return a value as another type: floats by their number, integers by theirs; bits stay bits."""
        if kind in ("f", "bf"):
            if v.bits > 128:
                raise PcodeError("a constant of 1,201 bits")
            if v.kind in ("f", "bf", "fp", "xf"):
                return converted(v, bits, kind)
            if v.constant or v.kind == "b":
                return Value(kind, bits, value("b", bits, v.raw).raw)
            return of_floats(numbers(v), bits, kind)
        if kind in ("fp", "xf") or v.kind in ("fp", "xf"):
            return value(kind, bits, v.raw)
        if v.kind in ("f", "bf"):
            return value(kind, bits, v.raw)
        if self.exact and v.bits > bits and kind in "iu" and v.kind != "b":
            low, high = (-(1 << bits - 1), mask(bits - 1)) if kind == "i" else (0, mask(bits))
            return value(kind, bits, np.clip(numbers(v), low, high))
        return value(kind, bits, numbers(v))

    def _unary(self, node: Node, f: Frame, m: Array | None) -> Value:
        how, v = node[1], self.value(node[2], f, m)
        if how == "!":
            return value("u", 1, (v.raw == 0).astype("u8"))
        if how == "+":
            return v
        if v.kind in ("f", "bf"):
            return Value(v.kind, v.bits, v.raw ^ np.uint64(1 << v.bits - 1))
        if how == "-":
            return value("i" if v.bits < 32 else v.kind, max(v.bits, 32), -numbers(v).astype("i8"))
        return value(v.kind, v.bits, ~v.raw if v.bits <= 64 else ~v.raw & mask(v.bits))

    def _binary(self, node: Node, f: Frame, m: Array | None) -> Value:
        how = node[1]
        if how == "*":
            for power, other in ((node[3], node[2]), (node[2], node[3])):
                if power[0] == "binary" and power[1] == "**":
                    by = self.value(power[3], f, m)
                    if other[:2] == ("call", "fma") and power[2][1].bits == 32:  # rounded once
                        parts = [floats(self.value(n, f, m)) for n in other[2]]
                        return of_floats(np.ldexp(odd_sum(*parts), numbers(by)), 32)
                    return self._scaled(self.value(other, f, m), by)
                if power[0] == "cast" and power[3][0] == "binary" and power[3][1] == "**":
                    return self._scaled(self.value(other, f, m), self.value(power[3][3], f, m))
        a, b = self.value(node[2], f, m), self.value(node[3], f, m)
        if how in ("&&", "||"):
            x, y = a.raw != 0, b.raw != 0
            return value("u", 1, (x & y if how == "&&" else x | y).astype("u8"))
        if how == "==" and node[3][0] == "unary" and node[3][2][0] == "value" and b.kind == "f":
            return value("u", 1, converted(a, b.bits).raw == b.raw)  # a zero with its sign
        if "denormal" in (a.kind, b.kind):
            v = b if a.kind == "denormal" else a
            return value("u", 1, (exponent(v) == 0) & (v.raw << np.uint64(65 - v.bits) != 0))
        if any(v.kind in ("f", "bf", "fp", "xf") for v in (a, b)):
            return self._of_floats(how, a, b)
        return self._of_integers(how, a, b)

    def _scaled(self, a: Value, by: Value) -> Value:
        amount = np.clip(numbers(by).astype("i8"), -5000, 5000)
        if a.bits == 64:
            return of_floats(np.ldexp(floats(a), amount), 64)
        return of_floats(np.ldexp(floats(a).astype("f8"), np.clip(amount, -600, 600)), a.bits)

    def _of_floats(self, how: str, a: Value, b: Value) -> Value:
        bits = max(v.bits for v in (a, b) if v.kind in ("f", "bf"))
        kind = "bf" if "bf" in (a.kind, b.kind) and bits == 16 else "f"
        x, y = floats(converted(a, bits, kind)), floats(converted(b, bits, kind))
        if how in COMPARE:
            found = COMPARE[how](x, y)
            if how == "<>":
                found = (x < y) | (x > y)
            return value("u", 1, found.astype("u8"))
        if how == "**":
            return of_floats(np.power(x.astype("f8"), y.astype("f8")), bits, kind)
        return of_floats(ARITHMETIC[how](x, y), bits, kind)

    def _of_integers(self, how: str, a: Value, b: Value) -> Value:
        if how in ("<<", ">>"):
            return self._shifted(how, a, b)
        kind, bits = _unify(a, b)
        if how in COMPARE:
            x, y = (numbers(v) for v in (a, b))
            if x.dtype != y.dtype:
                x, y = (numbers(value(kind, bits, v)) for v in (x, y))
            found = COMPARE["!=" if how == "<>" else how](x, y)
            return value("u", 1, found.astype("u8"))
        if self.exact and how in "+-*" and bits == 32:
            x, y = (numbers(v).astype("i8") for v in (a, b))
            return Value("i", 64, ARITHMETIC[how](x, y).view("u8"))
        if max(a.bits, b.bits) < 32 and how in "&|^":
            bits = max(a.bits, b.bits)
        x, y = (value(kind, bits, numbers(v)).raw for v in (a, b))
        if how == "/":
            raise PcodeError("division of integers")
        return value(kind, bits, ARITHMETIC[how](x, y))

    def _shifted(self, how: str, a: Value, b: Value) -> Value:
        bits = max(a.bits, 32)
        amount = b.raw
        if bits > 64:
            by = amount.astype(object)
            return value(a.kind, bits, a.raw << by if how == "<<" else numbers(a) >> by)
        over = amount >= np.uint64(bits)
        by = np.minimum(amount, np.uint64(bits - 1))
        if how == "<<":
            raw = value(a.kind, bits, numbers(a)).raw << by
            return value(a.kind, bits, np.where(over, np.uint64(0), raw))
        if a.kind == "i":
            return value("i", bits, numbers(a) >> by.astype("i8"))
        return value(a.kind, bits, np.where(over, np.uint64(0), a.raw >> by))

    def _call(self, node: Node, f: Frame, m: Array | None) -> Value:
        name, nodes = node[1], node[2]
        if name == "floor" and nodes[0][0] == "binary" and nodes[0][1] == "+" and nodes[0][3][0] == "value":
            x = self.value(nodes[0][2], f, m)
            if x.kind == "f" and "exact sums" in f.variables:  # of a rounding to nearest even
                wide = np.floor(floats(x).astype("g") + np.longdouble(0.5))
                return of_floats(wide, x.bits)
        if name in ("sin", "cos") and nodes[0][0] == "binary":  # of whole turns: they are taken off exactly
            x = self.value(nodes[0][2], f, m)
            turns = floats(x).astype("f8")
            angle = (turns - np.rint(turns)) * (2 * np.pi)
            return of_floats((np.sin if name == "sin" else np.cos)(angle), x.bits)
        if name.startswith("Calc") and name.endswith("Addr") and "MEM" in f.variables:
            return value("u", 64, 0)
        arguments = [self.value(n, f, m) for n in nodes]
        found = f.variables.get(name)
        if isinstance(found, tuple):
            inner = Frame(dict(f.variables) | dict(zip(found[1], arguments, strict=True)))
            self.block(found[2], inner, None)
            if inner.result is None:
                raise PcodeError(f"{name} returns nothing")
            return inner.result
        if name in FUNCTIONS:
            return FUNCTIONS[name](*arguments)  # type: ignore[no-any-return]
        if name == "f32_to_f16" and "ROUND_MODE" in f.variables and f.variables["ROUND_MODE"].raw.any():
            return toward_zero(arguments[0])
        if re.fullmatch(r"[fb][pf]8_to_f32|f32_to_[fb][pf]8", name):
            return pcode_small_floats.called(name, arguments[0], fnuz="FNUZ" in f.variables)
        match = re.fullmatch(r"([fiu]\d+|bf16)_to_([fiu]\d+|bf16)", name)
        if match:
            return self._convert(arguments[0], match[1], match[2])
        if name.startswith("v_cvt_") and name.endswith("_f32"):
            return self._convert(arguments[0], "f32", name.split("_")[2])
        if name in self.others:
            registers = {f"S{n}": v for n, v in enumerate(arguments)}
            registers |= {k: v for k, v in f.variables.items() if k.startswith(("WAVE", "laneId"))}
            suffix = TYPE.fullmatch(name.rpartition("_")[2])
            assert suffix is not None
            bits = max(32, int(suffix[2]))
            registers["D0"] = value("b", bits, np.zeros(self.lanes, "u8"))
            after = program(self.others[name]).run(registers, self.lanes, self.wave, self.others)
            if name.startswith(("v_sad", "v_msad")):
                return value("u", 32, after["D0"].raw)
            return value(suffix[1], int(suffix[2]), after["D0"].raw)
        raise PcodeError(f"function {name}")

    def _convert(self, v: Value, source: str, to: str) -> Value:
        bits = int(to.removeprefix("bf").lstrip("fiu"))
        if to[0] in "fb":
            kind = "bf" if to[0] == "b" else "f"
            if source[0] in "iu":
                return of_floats(numbers(v), bits, kind)
            return converted(v, bits, kind)
        low, high = (-(1 << bits - 1), mask(bits - 1)) if to[0] == "i" else (0, mask(bits))
        if source[0] in "iu" and int(source[1:]) < bits:  # u8_to_u32
            return value(to[0], bits, numbers(Value(source[0], int(source[1:]), v.raw)))
        if source[0] in "iu":
            return value(to[0], bits, np.clip(numbers(v), low, high))
        x = floats(v).astype("f8")
        if to == "u8":
            x = np.rint(x)
        cut = np.clip(np.trunc(np.where(np.isnan(x), 0.0, x)), low, high)
        return value(to[0], bits, cut.astype("i8"))
