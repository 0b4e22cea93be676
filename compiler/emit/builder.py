"""The builder of the linear form: it places each line in the outermost block where its sources exist, once.

So loop-invariant code is outside its loops, and equal lines are one line as soon as they are written: no
later pass is needed. Loads stay in their branch, whose condition may guard them. Effects stay where they are
written. Constants fold only in index arithmetic.

Not here: which lines an operation becomes (`isel`). Next: `linear`, the lines and what each operation does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.dtype import dtypes
from compiler.emit.linear import EFFECTS, POINTER, READS, Arg, Branch, Line, LineBlock, Loop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from compiler.dtype import DType

Number = int | float | bool


class Builder:
    """Writes lines; `cursor` is the innermost open block, where lines with effects are written."""

    __slots__ = ("count", "cursor", "held", "root", "spread")

    def __init__(self) -> None:
        self.root = LineBlock(None)
        self.cursor = self.root
        self.held = self.root
        """The outermost block for new lines: the root, or an open cold branch."""
        self.count = 0
        self.spread: dict[tuple[Line, int], Line] = {}
        """For a constant and a number of lanes, the constant in every lane."""

    def line(self, op: str, dtype: DType, lanes: int, src: tuple[Line, ...] = (), arg: Arg = None) -> Line:
        """Write a line, or return the equal one that exists already."""
        if op in EFFECTS:
            block = self.cursor
            self.count += 1
            made = Line(op, dtype, lanes, src, arg, block, self.count)
            block.body.append(made)
            return made
        block = self.cursor.floor if op in READS else self.held
        depth = block.depth
        for s in src:
            if s.block.depth > depth:
                block = s.block
                depth = block.depth
        key = (op, dtype, lanes, src, arg)
        found = block.cse.get(key)
        if found is None:
            self.count += 1
            found = block.cse[key] = Line(op, dtype, lanes, src, arg, block, self.count)
            block.body.append(found)
        return found

    def const(self, dtype: DType, value: Number | tuple[Number, ...], lanes: int = 1) -> Line:
        """Return a constant: one value for all lanes, or a tuple with one for each."""
        # -0.0 is not 0.0, and True is not 1
        key = (dtype, lanes, value if value.__class__ is int else repr(value))
        found = self.root.cse.get(key)
        if found is None:
            self.count += 1
            found = self.root.cse[key] = Line("const", dtype, lanes, (), value, self.root, self.count)
        return found

    def index(self, value: int) -> Line:
        """Return a constant index."""
        return self.const(dtypes.int64, value)

    def splat(self, value: Line, lanes: int) -> Line:
        """Return the value in every lane."""
        if value.lanes == lanes:
            return value
        assert value.lanes == 1, "only a single value can be spread"
        # A single float16 is converted in a register that holds another value, which it would wait for.
        if lanes >= 8 and (value.op, value.arg) == ("convert", "fpext"):
            return self.convert("fpext", self.splat(value.src[0], lanes), value.dtype)
        if value.op != "const":
            return self.line("splat", value.dtype, lanes, (value,))
        found = self.spread.get((value, lanes))
        if found is None:
            assert isinstance(value.arg, int | float)
            found = self.spread[value, lanes] = self.const(value.dtype, value.arg, lanes)
        return found

    def level(self, values: Sequence[Line]) -> tuple[Line, ...]:
        """Return the values, all with as many lanes as the widest."""
        wide = [v.lanes for v in values]
        lanes = max(wide)
        if min(wide) == lanes:
            return tuple(values)
        return tuple([v if v.lanes == lanes else self.splat(v, lanes) for v in values])

    def alu(self, name: str, a: Line, b: Line) -> Line:
        """Apply LLVM's two-operand instruction `name`, with as many lanes as the wider operand."""
        lanes = a.lanes
        if lanes < b.lanes:
            lanes = b.lanes
            a = self.splat(a, lanes)
        elif b.lanes < lanes:
            b = self.splat(b, lanes)
        return self.line("alu", a.dtype, lanes, (a, b), name)

    def call(self, name: str, *values: Line) -> Line:
        """Call an intrinsic whose operands and result have one type."""
        src = self.level(values)
        return self.line("call", src[0].dtype, src[0].lanes, src, name)

    def cmp(self, predicate: str, a: Line, b: Line) -> Line:
        """Compare: olt, oeq, une, ... for floats, slt, ult, eq, ... for integers and bools."""
        src = self.level((a, b))
        instruction = "fcmp" if a.dtype.kind == "float" else "icmp"
        return self.line("cmp", dtypes.bool, src[0].lanes, src, (instruction, predicate))

    def select(self, mask: Line, a: Line, b: Line) -> Line:
        """Return `a` where the mask is true, else `b`."""
        if a is b:
            return a
        src = self.level((mask, a, b))
        return self.line("select", a.dtype, src[0].lanes, src)

    def convert(self, name: str, value: Line, dtype: DType) -> Line:
        """Apply LLVM's conversion instruction `name`."""
        return self.line("convert", dtype, value.lanes, (value,), name)

    def fma(self, a: Line, b: Line, c: Line) -> Line:
        """Return a * b + c, rounded once."""
        return self.call("fma", a, b, c)

    def any(self, mask: Line) -> Line:
        """Return whether a mask is true in any lane."""
        return self.line("any", dtypes.bool, 1, (mask,)) if mask.lanes > 1 else mask

    def rarely(
        self, mask: Line, otherwise: Sequence[Line], inside: Callable[[], Sequence[Line]]
    ) -> list[Line]:
        """Write `inside` in a cold branch that runs if a mask is true in any lane.

        Return the values after it: those of `inside` where the branch runs, else `otherwise`. The branch is
        in the outermost block where the mask and these values exist; the cursor stays where it is.
        """
        condition, saved = self.any(mask), self.cursor
        self.cursor = max((condition.block, *[x.block for x in otherwise]), key=lambda block: block.depth)
        branch = self.enter_branch(condition, cold=True)
        values = self.leave_branch(branch, list(zip(inside(), otherwise, strict=True)))
        self.cursor = saved
        return values

    def both(self, a: Line | None, b: Line | None) -> Line | None:
        """Return the conjunction of two masks; None is true."""
        if a is None or b is None:
            return a if b is None else b
        return a if a is b else self.alu("and", a, b)

    def add(self, a: Line, b: Line) -> Line:
        """Add two integers."""
        for x, y in ((a, b), (b, a)):
            if x.op == "const" and x.arg == 0:
                return y
        if a.op == "const" and b.op == "const" and isinstance(a.arg, int) and isinstance(b.arg, int):
            return self.const(a.dtype, a.arg + b.arg)
        return self.alu("add", a, b)

    def mul(self, a: Line, factor: int) -> Line:
        """Multiply an integer by a constant."""
        if factor == 1:
            return a
        if a.op == "const" and isinstance(a.arg, int):
            return self.const(a.dtype, a.arg * factor)
        if factor > 0 and not factor & (factor - 1):
            return self.alu("shl", a, self.const(a.dtype, factor.bit_length() - 1))
        return self.alu("mul", a, self.const(a.dtype, factor))

    def offset(self, pointer: Line, index: Line, dtype: DType) -> Line:
        """Return the address of element `index` of an array of `dtype`."""
        if index.op == "const" and index.arg == 0:
            return pointer
        return self.line("offset", POINTER, 1, (pointer, index), dtype)

    def shuffle(self, a: Line, b: Line, lanes: Iterable[int]) -> Line:
        """Select lanes; those of `b` are numbered after those of `a`."""
        picked = tuple(lanes)
        return self.line("shuffle", a.dtype, len(picked), (a, b), picked)

    def each(self, value: Line) -> list[Line]:
        """Return the lanes of a value one by one."""
        if value.lanes == 1:
            return [value]
        return [self.line("extract", value.dtype, 1, (value,), n) for n in range(value.lanes)]

    def enter_loop(self, first: Line, end: Line, step: int, within: LineBlock) -> Loop:
        """Open a loop inside `within`, an open block, and move the cursor into it.

        The loop variable is `loop.index`, from `first` to below `end`. At least one iteration runs.
        """
        parent = max((first.block, end.block, within), key=lambda b: b.depth)
        body = LineBlock(parent)
        self.count += 1
        loop = Loop(Line("loop", dtypes.int64, 1, (first, end), step, body, self.count), body)
        self.cursor = body
        return loop

    def carry(self, loop: Loop, initial: Line) -> Line:
        """Return a value that the loop carries from one iteration to the next."""
        self.count += 1
        phi = Line("phi", initial.dtype, initial.lanes, (initial,), None, loop.body, self.count)
        loop.phis.append(phi)
        return phi

    def leave_loop(self, loop: Loop, following: Sequence[Line]) -> list[Line]:
        """Close a loop, given the next value of each carried one; return the values after the loop."""
        assert len(following) == len(loop.phis)
        parent = loop.body.parent
        assert parent is not None
        self.count += 1
        loop.end = Line("endloop", dtypes.int64, 1, (loop.index, *following), None, parent, self.count)
        for value in following:
            self.count += 1
            src = (loop.end, value)
            loop.results.append(Line("result", value.dtype, value.lanes, src, None, parent, self.count))
        self._close(loop.body)
        parent.body.append(loop)
        self.cursor = parent
        return loop.results

    def repeat(
        self, first: Line, end: Line, values: Sequence[Line],
        body: Callable[[Line, list[Line]], list[Line]], *, step: int = 1
    ) -> list[Line]:  # fmt: skip
        """Write a loop at the cursor: `body(loop variable, carried values)` returns the next values.

        Return the values after the loop; `values` are the initial ones.
        """
        loop = self.enter_loop(first, end, step, self.cursor)
        return self.leave_loop(loop, body(loop.index, [self.carry(loop, value) for value in values]))

    def enter_branch(self, condition: Line, *, cold: bool = False) -> Branch:
        """Open a branch at the cursor that runs if the condition is true, and move the cursor into it.

        All lines that are written in a cold branch stay in it, also arithmetic. Cold branches do not nest.
        """
        body = LineBlock(self.cursor, guards=True)
        if cold:
            assert self.held is self.root, "cold branches do not nest"
            self.held = body
        self.count += 1
        branch = Branch(Line("if", dtypes.bool, 1, (condition,), None, self.cursor, self.count), body)
        self.cursor = body
        return branch

    def leave_branch(self, branch: Branch, pairs: Sequence[tuple[Line, Line]] = ()) -> list[Line]:
        """Close a branch; each pair is (value if it ran, value otherwise). Return the values after it."""
        parent = branch.body.parent
        assert parent is not None
        self.count += 1
        branch.end = Line("endif", dtypes.bool, 1, (branch.head,), None, parent, self.count)
        for inside, otherwise in pairs:
            self.count += 1
            src = (branch.end, inside, otherwise)
            branch.joins.append(Line("join", inside.dtype, inside.lanes, src, None, parent, self.count))
        if self.held is branch.body:
            self.held = self.root
        self._close(branch.body)
        parent.body.append(branch)
        self.cursor = parent
        return branch.joins

    @staticmethod
    def _close(block: LineBlock) -> None:
        block.open = False
        block.cse.clear()
