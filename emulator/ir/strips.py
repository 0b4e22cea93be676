"""Rewrites the lane-wise vector code of a function as loops over strips of lanes that fit a host register.

A wave has 32 or 64 lanes, a host register 8 or 16 lanes of 32 bits. LLVM splits each wide operation into narrow ones. For
code that is not optimised, the split takes most of the compile time and makes the code several times as long. So this
module turns runs of operations on whole waves into loops:

    %a = add <64 x i32> %x, %y              r1:
    %b = mul <64 x i32> %a, %a        ->      %x.r1 = load <8 x i32>, ptr ...
    store <64 x i32> %b, ptr %R.v1            %a.s = add <8 x i32> %x.r1, %y.r1
                                              %b.s = mul <8 x i32> %a.s, %a.s
                                              store <8 x i32> %b.s, ptr ...
                                              br ...

Values pass into and out of a run through stack memory. All other code keeps its text and order. That is valid because a run
only computes, and loads and stores stack variables that no code between its instructions uses.

Not here: optimised code, which LLVM splits (`jit`). Next: `library`, which assembles modules.
"""

# ruff: noqa: E501 - summaries and tables read best on one line

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from emulator.ir.ir_text import CASTS, NAME, VECTOR, IrLine, parsed

_LANEWISE: Final = frozenset((
    "add", "sub", "mul", "udiv", "sdiv", "urem", "srem", "shl", "lshr", "ashr", "and", "or", "xor", "fadd", "fsub", "fmul",
    "fdiv", "frem", "fneg", "freeze", "icmp", "fcmp", "select", *CASTS,
))  # fmt: skip
_PURE: Final = _LANEWISE | {"insertelement", "shufflevector", "extractelement"}
_INTRINSICS: Final = frozenset((
    "umin", "umax", "smin", "smax", "abs", "ctlz", "cttz", "ctpop", "bitreverse", "bswap", "fshl", "fshr", "uadd.sat",
    "usub.sat", "sadd.sat", "ssub.sat", "fma", "sqrt", "floor", "ceil", "trunc", "rint", "nearbyint", "roundeven", "fabs",
    "copysign", "minnum", "maxnum", "minimum", "maximum", "canonicalize", "ldexp", "fptoui.sat", "fptosi.sat", "is.fpclass",
))  # fmt: skip
_ENDS: Final = frozenset(("label", "br", "switch", "ret", "unreachable"))
_ELEMENTS: Final = frozenset(("i1", "i8", "i16", "i32", "i64", "half", "bfloat", "float", "double"))
_PARAMETER: Final = re.compile(r"(<\d+ x \w+>) %([\w.$-]+)")
_LITERAL: Final = re.compile(r"<[a-z]")
"""The beginning of a constant whose lanes differ."""
_FROM: Final = re.compile(r", %([\w.$-]+) \]")
_LANES_OF_INTRINSIC: Final = re.compile(r"\.v(\d+)(?=[if])")
_CALLED: Final = re.compile(r"@llvm\.([a-z][a-z.]*?)\.v\d")
_WORTH: Final = 3
"""The least number of instructions of a run that becomes a loop."""


@dataclass(slots=True, eq=False)
class _Run:
    """Instructions of one basic block that become one loop."""

    lines: list[IrLine] = field(default_factory=list)


def strips(function: str, lanes: int, width: int) -> str:
    """Return a function's text with loops over strips of `width` lanes. `lanes` is a wave's number of lanes, a multiple of it.

    The new text may call narrower intrinsics than `function`; `narrowed` gives their names.
    """
    return _Rewriter(function, lanes, width).result()


def narrowed(text: str, lanes: int, width: int) -> str:
    """Return IR text, or an intrinsic's name, with vectors of n * `width` lanes in place of n * `lanes`."""

    def vector(match: re.Match[str]) -> str:
        count = int(match[1])
        return match[0] if count % lanes else f"<{count // lanes * width} x {match[2]}>"

    def name(match: re.Match[str]) -> str:
        count = int(match[1])
        return match[0] if count % lanes else f".v{count // lanes * width}"

    text = VECTOR.sub(vector, text)
    return _LANES_OF_INTRINSIC.sub(name, text) if "llvm." in text else text


class _Rewriter:
    """One function as lines, and the rewriting of it; `result` may be called once."""

    def __init__(self, function: str, lanes: int, width: int) -> None:
        self._lanes, self._width = lanes, width
        rows = function.strip().splitlines()
        self._head, self._end = rows[0], rows[-1]
        self._lines = [parsed(row) for row in rows[1:-1]]
        self._run: dict[IrLine, _Run] = {}
        """The run of each line that is in one."""
        self._defined = {line.name: line for line in self._lines if line.name}
        self._uses: dict[str, list[IrLine]] = {}
        for line in self._lines:
            for used in line.uses:
                self._uses.setdefault(used, []).append(line)
        self._variables = self._own_variables()
        self._slots: dict[str, str] = {}
        """Name of a value that passes through memory -> its type."""
        self._closes: dict[int, _Run] = {}
        """Number of a line -> the run whose loop is written before that line."""
        self._allocated: list[str] = []
        self._out: list[str] = []
        self._block = "entry"
        self._ends: dict[str, str] = {}
        """Name of a basic block -> the block that now contains its end."""

    def result(self) -> str:
        """Return the function's new text."""
        self._drop_unused()
        self._form()
        if not self._closes:
            return "\n".join([self._head, *(line.text for line in self._lines), self._end]) + "\n"
        self._cross()
        self._write()
        return "\n".join([self._head, "entry:", *self._allocated, *self._out, self._end]) + "\n"

    def _own_variables(self) -> frozenset[str]:
        """Return the stack variables that are only loaded and stored whole, as vectors of all lanes."""
        found = set()
        for line in self._lines:
            if line.operation != "alloca" or not self._whole(line.text) or "x i1>" in line.text:
                continue
            type_, at = VECTOR.search(line.text)[0], f", ptr %{line.name}"  # type: ignore[index]
            ways = (f" load {type_}{at}", f"store {type_} ")
            if all(
                one.operation in {"load", "store"} and one.uses[-1] == line.name and one.uses.count(line.name) == 1
                and at in one.text and any(way in one.text for way in ways)
                for one in self._uses.get(line.name, ())
            ):  # fmt: skip
                found.add(line.name)
        return frozenset(found)

    def _whole(self, text: str) -> bool:
        """Return whether an instruction has vectors, and each has a multiple of a wave's lanes, of plain elements."""
        if "<" not in text:
            return False
        found = VECTOR.findall(text)
        return bool(found) and all(
            int(count) % self._lanes == 0 and kind in _ELEMENTS for count, kind in found
        )

    def _lanewise(self, line: IrLine) -> bool:
        """Return whether each lane of an instruction's result depends only on the same lane of its operands."""
        text, operation = line.text, line.operation
        if not self._whole(text) or _LITERAL.search(text):
            return False
        if operation in {"load", "store"}:
            return line.uses[-1] in self._variables
        if operation == "bitcast":
            return self._casts_lanes(text)
        if operation == "insertelement":  # with the next one, the copy of a scalar to all lanes
            users = self._uses.get(line.name, [])
            return " poison, " in text and text.endswith(", i32 0") and len(users) == 1 and _copies(users[0])
        if operation == "shufflevector":
            first = self._defined.get(line.uses[0]) if line.uses else None
            return (
                _copies(line)
                and first is not None
                and first.operation == "insertelement"
                and self._lanewise(first)
            )
        if operation == "call":
            called = _CALLED.search(text)
            return called is not None and called[1] in _INTRINSICS and "{" not in text
        return operation in _LANEWISE

    def _casts_lanes(self, text: str) -> bool:
        """Return whether a bitcast maps lane to lane: between elements of equal width, or a mask and its bits."""
        source = text.partition(" bitcast ")[2]
        ends = (source, text.rpartition(" to ")[2])
        masks = [end.startswith(f"<{self._lanes} x i1>") for end in ends]
        if not any(masks):
            return all(end[0] == "<" for end in ends) and not any("x i1>" in end for end in ends)
        other = ends[masks.index(False)] if False in masks else ""
        return other.startswith(f"i{self._lanes}")

    def _drop_unused(self) -> None:
        """Remove computations whose results nothing uses."""
        kept: list[IrLine] = []
        for line in reversed(self._lines):
            if line.operation in _PURE and not self._uses.get(line.name):
                for used in line.uses:
                    self._uses[used].remove(line)
            else:
                kept.append(line)
        self._lines = kept[::-1]

    def _form(self) -> None:
        """Form the runs. Other instructions between those of a run move before the run, or end it if they use its values."""
        run = _Run()
        scalars: set[str] = set()
        names: set[str] = set()
        for number, line in enumerate(self._lines):
            lanewise = self._lanewise(line)
            ends = not scalars.isdisjoint(line.uses) if lanewise else self._ends_run(line, names)
            if ends and run.lines:
                self._close(run, number)
                run, scalars, names = _Run(), set(), set()
            if lanewise:
                self._run[line] = run
                run.lines.append(line)
                if line.name:
                    names.add(line.name)
                    if not line.type:
                        scalars.add(line.name)

    def _ends_run(self, line: IrLine, names: set[str]) -> bool:
        return line.operation in _ENDS or not (
            names.isdisjoint(line.uses) and self._variables.isdisjoint(line.uses)
        )

    def _close(self, run: _Run, number: int) -> None:
        if len(run.lines) >= _WORTH:
            self._closes[number] = run
        else:
            for line in run.lines:
                del self._run[line]

    def _cross(self) -> None:
        """Find the values that pass through memory: those that one run, or other code, makes and another uses."""
        for line in self._lines:
            if not line.name or line.operation == "alloca":
                continue
            users = self._uses.get(line.name, ())
            if line not in self._run:
                crosses = bool(line.type) and any(one in self._run for one in users)
            else:
                crosses = any(self._run.get(one) is not self._run[line] for one in users)
            if crosses:
                self._slots[line.name] = line.type or f"<{self._lanes} x i1>"
        for match in _PARAMETER.finditer(self._head.partition("(")[2]):
            if any(one in self._run for one in self._uses.get(match[2], ())):
                self._slots[match[2]] = match[1]

    def _write(self) -> None:
        """Write the function: runs as loops over strips, and other lines as they are."""
        late = [name for name in self._slots if name not in self._defined]  # to store after allocas and phis
        phis = []
        for number, line in enumerate(self._lines):
            if line.operation not in {"phi", "alloca", "label"}:
                for name in late:
                    self._store_whole(name)
                late.clear()
            if number in self._closes:
                self._write_run(self._closes[number], f"r{number}")
            if line.operation == "label":
                self._block = line.text[:-1]
                if self._block == "entry":
                    continue
            if line.operation == "alloca":
                self._allocated.append(line.text)
            elif line not in self._run:
                if line.operation == "phi":
                    phis.append(len(self._out))
                self._out.append(line.text)
                if line.name in self._slots:
                    late.append(line.name)
                    if line.operation != "phi":
                        self._store_whole(late.pop())
        for row in phis:
            self._out[row] = _FROM.sub(lambda m: f", %{self._ends.get(m[1], m[1])} ]", self._out[row])

    def _kept(self, name: str) -> str:
        """Return the type in which memory keeps a value: an integer for bits of lanes."""
        count, kind = VECTOR.match(self._slots[name]).groups()  # type: ignore[union-attr]
        return f"i{count}" if kind == "i1" else self._slots[name]

    def _allocate(self, name: str, type_: str) -> None:
        self._allocated.append(f"  %{name}.slot = alloca {type_}, align 64")

    def _store_whole(self, name: str) -> None:
        kept, type_ = self._kept(name), self._slots[name]
        self._allocate(name, kept)
        value = f"%{name}"
        if kept != type_:
            self._out.append(f"  {value}.bits = bitcast {type_} {value} to {kept}")
            value += ".bits"
        self._out.append(f"  store {kept} {value}, ptr %{name}.slot")

    def _load_whole(self, name: str) -> None:
        kept, value = self._kept(name), f"%{name}"
        if kept != self._slots[name] and self._defined[name].type:
            self._out.append(f"  {value}.bits = load {kept}, ptr {value}.slot")
            self._out.append(f"  {value} = bitcast {kept} {value}.bits to {self._slots[name]}")
        else:
            self._out.append(f"  {value} = load {kept}, ptr {value}.slot")

    def _write_run(self, run: _Run, label: str) -> None:
        """Write the loop of a run, then loads of the values that other code uses whole."""
        strip = _Strip(label, self._lanes, self._width)
        for line in run.lines:
            if line.operation == "bitcast" and " bitcast <" not in line.text:
                value = line.text.partition(" bitcast ")[2].rpartition(" to ")[0]
                self._allocate(line.name, f"i{self._lanes}")
                self._out.append(f"  store {value}, ptr %{line.name}.slot")
                strip.take(line.name, f"<{self._lanes} x i1>")
                continue
            for used in line.uses:
                if self._kept_apart(used) and used not in strip.names and self._of(used) is not run:
                    strip.take(used, self._slots[used])
            if line.uses and line.uses[-1] in self._variables:
                strip.move(line)
            else:
                strip.compute(line)
            if line.name in self._slots:
                self._allocate(line.name, self._kept(line.name))
                strip.give(line.name, self._slots[line.name], scalar=not line.type)
        self._out += strip.loop(self._ends.get(self._block, self._block))
        self._ends[self._block] = f"{label}.e"
        for line in run.lines:
            if line.name in self._slots and (
                not line.type or any(one not in self._run for one in self._uses[line.name])
            ):
                self._load_whole(line.name)

    def _kept_apart(self, name: str) -> bool:
        """Return whether memory keeps a value by lanes; the bits of a mask are loaded whole instead."""
        return name in self._slots and (name not in self._defined or bool(self._defined[name].type))

    def _of(self, name: str) -> _Run | None:
        line = self._defined.get(name)
        return None if line is None else self._run.get(line)


class _Strip:
    """The body of a loop over strips."""

    def __init__(self, label: str, lanes: int, width: int) -> None:
        self._label, self._lanes, self._width = label, lanes, width
        self._lines: list[str] = []
        self.names: dict[str, str] = {}
        """Value -> its name in the loop."""

    def _narrow(self, text: str) -> str:
        return narrowed(text, self._lanes, self._width)

    def _at(self, type_: str, address: str) -> str:
        """Append the address of the current strip, of type `type_`, of the variable at `address`; return its name."""
        at = f"%{self._label}.{len(self._lines)}"
        self._lines.append(f"  {at} = getelementptr {type_}, ptr {address}, i64 %{self._label}.i")
        return at

    def take(self, name: str, type_: str) -> None:
        """Load the strip of a value that is kept in memory."""
        own, type_ = f"%{name}.{self._label}", self._narrow(type_)
        kept = _kept(type_)
        at = self._at(kept, f"%{name}.slot")
        if kept == type_:
            self._lines.append(f"  {own} = load {type_}, ptr {at}")
        else:
            self._lines.append(f"  {own}.b = load {kept}, ptr {at}")
            self._lines.append(f"  {own} = bitcast {kept} {own}.b to {type_}")
        self.names[name] = own

    def give(self, name: str, type_: str, *, scalar: bool) -> None:
        """Store the strip of a value for code outside the loop."""
        own, type_ = self.names[name], self._narrow(type_)
        kept = _kept(type_)
        if kept != type_ and not scalar:
            self._lines.append(f"  {own}.g = bitcast {type_} {own} to {kept}")
            own += ".g"
        at = self._at(kept, f"%{name}.slot")
        self._lines.append(f"  store {kept} {own}, ptr {at}")

    def compute(self, line: IrLine) -> None:
        """Write an instruction for the lanes of a strip."""
        text = line.text
        if line.name:
            self.names[line.name] = f"%{line.name}.s"
            if not line.type:
                text = text.rpartition(" to ")[0] + f" to i{self._width}"
        self._lines.append(NAME.sub(lambda m: self.names.get(m[1], m[0]), self._narrow(text)))

    def move(self, line: IrLine) -> None:
        """Write a load or store of a variable for the lanes of a strip."""
        variable = line.uses[-1]
        type_ = self._narrow(VECTOR.search(line.text)[0])  # type: ignore[index]
        at = self._at(type_, f"%{variable}")
        if line.name:
            self.names[line.name] = f"%{line.name}.s"
            self._lines.append(f"  %{line.name}.s = load {type_}, ptr {at}")
        else:
            value = self._narrow(line.text.partition("store ")[2].rpartition(f", ptr %{variable}")[0])
            value = NAME.sub(lambda m: self.names.get(m[1], m[0]), value)
            self._lines.append(f"  store {value}, ptr {at}")

    def loop(self, before: str) -> list[str]:
        """Return the whole loop, entered from block `before` and left to the block with the suffix .e."""
        r = self._label
        return [
            f"  br label %{r}", f"{r}:", f"  %{r}.i = phi i64 [ 0, %{before} ], [ %{r}.n, %{r} ]", *self._lines,
            f"  %{r}.n = add i64 %{r}.i, 1", f"  %{r}.c = icmp ult i64 %{r}.n, {self._lanes // self._width}",
            f"  br i1 %{r}.c, label %{r}, label %{r}.e", f"{r}.e:",
        ]  # fmt: skip


def _kept(type_: str) -> str:
    """Return the type in which memory keeps a vector: an integer for bits of lanes."""
    count, kind = VECTOR.match(type_).groups()  # type: ignore[union-attr]
    return f"i{count}" if kind == "i1" else type_


def _copies(line: IrLine) -> bool:
    """Return whether an instruction copies the first element of a vector to all lanes."""
    return line.operation == "shufflevector" and line.text.endswith("zeroinitializer") and len(line.uses) == 1
