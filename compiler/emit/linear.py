"""Linear form: the explicit list of operations that the renderer turns into text, one register a line.

A `Line` is one operation whose result is a register of `lanes` values of a dtype. While a kernel is being
built, the lines are in a tree of blocks (loops and branches); `flatten` makes the list, `verify` checks it,
`dump` makes text of it. `SIGNATURES` defines each operation.

Integers wrap; no register is float16 or bfloat16 (such values are computed in float32); a bool register is
one bit.

A *bundle* is several registers of one type that single lines make and use, such as the rows of a square that
is transposed; `row` is one of them. The text of a line with bundles has an instruction for each register.

Not here: the choice of a line's block (`builder`), and of the lines for an operation (`isel`). Next:
`compiler.text.llvm_ir`, the renderer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from compiler.dtype import DType, dtypes
from hcq.errors import CompileError

POINTER = DType("pointer", 64, "uint", 8, None)
"""The dtype of address registers."""

Arg = object


class LoadedFactor(NamedTuple):
    """A factor of `products`: elements, or vectors, that are loaded at constant places after an address."""

    kind: DType
    """The dtype in memory; float16 is converted to float32."""
    lanes: int
    places: tuple[int, ...]
    """For each accumulator the elements from the address to its factor."""


class BundleProducts(NamedTuple):
    """The argument of `products`: one product is added to each accumulator of a bundle."""

    left: LoadedFactor
    right: LoadedFactor


Kind = Literal["value", "read", "effect", "start", "end", "carried", "after"]
"""What may be done with a line: a `value` is dropped without a user, shared with equal lines and moved out of
loops; a `read` too, but it stays in its branch; an `effect` stays where it is written. The others are those
of loops and branches: `start`, `end`, the `carried` values, and the values `after` an end."""


class Line:
    """One operation; the object is its result register."""

    __slots__ = ("arg", "block", "dtype", "id", "lanes", "op", "src")

    def __init__(  # noqa: PLR0917  # the hottest constructor: positional on purpose
        self, op: str, dtype: DType, lanes: int, src: tuple[Line, ...], arg: Arg, block: LineBlock,
        number: int
    ) -> None:  # fmt: skip
        self.op = op
        self.dtype = dtype
        self.lanes = lanes
        self.src = src
        self.arg = arg
        self.block = block
        self.id = number

    def __repr__(self) -> str:
        return f"%{self.id}"


class LineBlock:
    """Lines that run together; `depth` grows inwards. Registers of a closed block must not be used."""

    __slots__ = ("body", "cse", "depth", "floor", "open", "parent")

    def __init__(self, parent: LineBlock | None, *, guards: bool = False) -> None:
        self.parent = parent
        self.depth: int = parent.depth + 1 if parent else 0
        self.body: list[Line | Loop | Branch] = []
        self.cse: dict[object, Line] = {}
        self.open = True
        self.floor: LineBlock = self if guards or parent is None else parent.floor
        """The outermost block to which loads may move from here."""


class Loop:
    """A counted loop with carried values (`phis`, `results`); `end` is None while it is open."""

    __slots__ = ("body", "end", "index", "phis", "results")

    def __init__(self, index: Line, body: LineBlock) -> None:
        self.index = index
        self.body = body
        self.phis: list[Line] = []
        self.end: Line | None = None
        self.results: list[Line] = []


class Branch:
    """Lines that run if a condition is true, and the values after them (`joins`).

    `end` is None while it is open.
    """

    __slots__ = ("body", "end", "head", "joins")

    def __init__(self, head: Line, body: LineBlock) -> None:
        self.head = head
        self.body = body
        self.end: Line | None = None
        self.joins: list[Line] = []


def count_of(line: Line) -> int:
    """Return the number of registers of a bundle; 0 for any other line."""
    if line.op == "load_rows":
        assert isinstance(line.arg, tuple)
        return len(line.arg)
    if line.op in ("repeat", "transpose"):
        assert isinstance(line.arg, int)
        return line.arg
    if line.op in _SAME_COUNT:
        return count_of(line.src[_SAME_COUNT[line.op]])
    return len(line.src) if line.op == "bundle" else 0


_SAME_COUNT = {"phi": 0, "result": 1, "alu_rows": 0, "products": 2}
"""Operation -> the source that is a bundle of as many registers, if the line is a bundle."""


def part(groups: int) -> Line:
    """Return the line before those of a part, which is in the next `groups` workgroups."""
    return Line("part", dtypes.void, 1, (), groups, LineBlock(None), 0)


def flatten(block: LineBlock) -> list[Line]:
    """Return the lines of a block and of all blocks inside it, in the order in which they run."""
    lines: list[Line] = []
    for item in block.body:
        if isinstance(item, Line):
            lines.append(item)
        elif isinstance(item, Loop):
            assert item.end is not None
            lines += [item.index, *item.phis, *flatten(item.body), item.end, *item.results]
        else:
            assert item.end is not None
            lines += [item.head, *flatten(item.body), item.end, *item.joins]
    return lines


def prune(lines: list[Line]) -> list[Line]:
    """Return the list without the lines that have neither a user nor an effect.

    Raises `CompileError` for one that has no row, or whose row states neither read nor effect of its address.
    """
    used: set[Line] = set()
    kept: list[Line] = []
    for line in reversed(lines):
        if line in used or line.op in _KEPT:
            kept.append(line)
            used.update(line.src)
        elif line.op not in SIGNATURES or (
            SIGNATURES[line.op][1] == "value" and line.src and line.src[0].dtype is POINTER is not line.dtype
        ):
            why = _ACCESS if line.op in SIGNATURES else "unknown operation"
            raise CompileError(f"linear form, {line.op} without a user: {why}", ast=dump([line]))
    kept.reverse()
    return kept


def _same(line: Line) -> str:
    dtype, lanes = line.dtype, line.lanes
    for s in line.src:
        if s.dtype is not dtype or s.lanes != lanes:
            return f"{s} is {s.dtype.name}x{s.lanes}, the result {dtype.name}x{lanes}"
    return ""


def _comparison(line: Line) -> str:
    a, b = line.src
    if a.dtype is not b.dtype or a.lanes != b.lanes or a.lanes != line.lanes:
        return "operands and result must have the same dtype and lanes"
    return "" if line.dtype is dtypes.bool else "a comparison is a bool"


def _selection(line: Line) -> str:
    mask, *choices = line.src
    if mask.dtype is not dtypes.bool or mask.lanes != line.lanes:
        return "the mask must be bool, a lane for a lane"
    same = all(s.dtype is line.dtype and s.lanes == line.lanes for s in choices)
    return "" if same else "both choices must have the result's type"


def _access(line: Line) -> str:
    pointer = line.src[0]
    return "" if pointer.dtype is POINTER and pointer.lanes == 1 else f"{pointer} is not an address"


def _conversion(line: Line) -> str:
    (x,) = line.src
    if line.arg == "bitcast":
        return "" if x.lanes * x.dtype.bits == line.lanes * line.dtype.bits else "bits must not change"
    return "" if x.lanes == line.lanes else "lanes must not change"


def _square(line: Line) -> str:
    (x,) = line.src
    same = x.dtype is line.dtype and x.lanes == line.lanes == count_of(x) >= count_of(line)
    return "" if same else "wanted a bundle of as many vectors as lanes, of the result's type"


def _row(line: Line) -> str:
    (x,) = line.src
    if x.dtype is not line.dtype or x.lanes != line.lanes:
        return "a row has the type of its bundle"
    number = line.arg if isinstance(line.arg, int) else -1
    return "" if 0 <= number < count_of(x) else f"wanted one of {count_of(x)} rows, not {line.arg}"


def _stored_rows(line: Line) -> str:
    assert isinstance(line.arg, tuple)
    count = count_of(line.src[1])
    return _access(line) if count == len(line.arg) else f"wanted {len(line.arg)} vectors, saw {count}"


def _same_rows(line: Line) -> str:
    x, y = line.src
    return _same(line) or ("" if count_of(x) == count_of(y) > 0 else "wanted two bundles of one size")


def _products(line: Line) -> str:
    left, right, sums, *_ = line.src
    assert isinstance(line.arg, BundleProducts)
    if left.dtype is not POINTER or right.dtype is not POINTER:
        return f"{left} or {right} is not an address"
    if sums.dtype is not line.dtype or sums.lanes != line.lanes:
        return "accumulators and result must have the same type"
    counts = [len(factor.places) for factor in line.arg]
    if counts != [count_of(sums)] * 2:
        return f"wanted {count_of(sums)} places of each factor, saw {counts}"
    fits = all(factor.lanes in (1, line.lanes) for factor in line.arg)
    return "" if fits else f"factors have one lane or {line.lanes}"


Rule = Callable[[Line], str]
"""What is wrong with the types of a line with the right number of sources; "" if nothing."""

SIGNATURES: dict[str, tuple[int, Kind, Rule | None, str]] = {
    # name: (number of sources, -1 for any; its kind; its Rule; what it does)
    "const": (0, "value", None, "arg splat to all lanes, or one value a lane when arg is a tuple"),
    "argument": (0, "value", None, "pointer argument number arg"),
    "variable": (0, "value", None, "integer argument number arg"),
    "group": (0, "value", None, "workgroup number along axis arg"),
    "thread": (0, "value", None, "thread number in the workgroup along axis arg"),
    "scratch": (0, "value", None, "address of private memory: arg = (dtype, count)"),
    "shared": (0, "value", None, "the workgroup's memory: arg = (dtype, count), and what tells it apart"),
    "dynamic": (0, "value", None, "the same, in shared memory whose size is a number of the launch"),
    "table": (0, "value", None, "address of constants: arg = (dtype, values)"),
    "offset": (2, "value", _access, "pointer + index * size of the dtype arg"),
    "load": (-1, "read", _access, "pointer [, token]: contiguous; arg None, or 'aligned' to the vector"),
    "load_masked": (-1, "read", _access, "pointer, mask [, token]: 0, and nothing read, where it is false"),
    "gather": (-1, "read", _access, "pointer, index vector, mask [, token]"),
    "load_rows": (-1, "read", _access, "pointer [, token]: vectors, arg = elements from the pointer to each"),
    "store_rows": (2, "effect", _stored_rows, "pointer, bundle; arg = elements from the pointer to each"),
    "store": (2, "effect", _access, "pointer, value; arg: None, 'stream', or 'aligned' to the vector"),
    "store_masked": (3, "effect", _access, "pointer, value, mask"),
    "scatter": (4, "effect", _access, "pointer, index vector, value, mask"),
    "prefetch": (1, "effect", _access, "pointer; arg: 3 to the first-level cache, 2 to the second"),
    "token": (0, "effect", None, "a source of loads of scratch memory that stay after the stores before it"),
    "barrier": (0, "effect", None, "waits for all threads of the workgroup; the token of loads after it"),
    "exp2": (1, "value", None, "2 to the power, to 2 ulp, by an instruction; subnormal results may be 0"),
    "halves": (2, "value", None, "two float32, not negative, rounded to the 16-bit type arg: a word"),
    "phase": (0, "effect", None, "the scheduler moves nothing across it: fewer registers are in use"),
    "matrix": (-1, "value", None, "operation arg on words of A, of B, and accumulators: new ones"),
    "copy": (-1, "effect", _access, "shared address, global address [, bytes]: starts the copy of 16 bytes"),
    "commit": (0, "effect", None, "makes a group of the copies since the last one"),
    "wait": (0, "effect", None, "waits until at most arg groups of this thread are in flight"),
    "fragments": (2, "read", _access, "address of a row, token: four 8 x 8 matrices of 16 bits; arg: turned"),
    "publish": (0, "effect", None, "lets matrix operations see what this thread wrote to shared memory"),
    "issue": (3, "effect", None, "shared addresses of A and B, accumulators: starts the operations arg"),
    "settle": (1, "effect", None, "the accumulators, when the operations that were started are over"),
    "exchange": (1, "value", _same, "32 bits of the thread that differs by bit arg[0], of arg[1] threads"),
    "alu": (2, "value", _same, "LLVM's two-operand instruction arg"),
    "fneg": (1, "value", _same, "flips the sign"),
    "cmp": (2, "value", _comparison, "arg is (instruction, predicate); bool result"),
    "select": (3, "value", _selection, "mask, if true, if false"),
    "call": (-1, "value", _same, "LLVM intrinsic arg, overloaded on the result type"),
    "convert": (1, "value", _conversion, "LLVM's cast instruction arg"),
    "saturate": (1, "value", _conversion, "float to integer, clamped, NaN is 0; arg is fptosi or fptoui"),
    "freeze": (1, "value", _same, "any fixed value for an undefined one"),
    "splat": (1, "value", None, "one value to all lanes"),
    "extract": (1, "value", None, "lane arg"),
    "vector": (-1, "value", None, "the sources, single values, one a lane"),
    "shuffle": (2, "value", None, "lanes arg of both sources"),
    "any": (1, "value", None, "true when any lane is"),
    "bundle": (-1, "value", _same, "the sources, registers of one type"),
    "transpose": (1, "value", _square, "bundle of as many vectors as lanes: arg rows of its transpose"),
    "row": (1, "value", _row, "register number arg of a bundle"),
    "repeat": (1, "value", _same, "bundle of the source, arg times"),
    "alu_rows": (2, "value", _same_rows, "LLVM's two-operand instruction arg on each pair of two bundles"),
    "products": (-1, "read", _products, "addresses, bundle [, tokens]: with the products arg added"),
    "loop": (2, "start", None, "first, end; arg is the step; the line is the variable; runs once or more"),
    "phi": (1, "carried", None, "carried value: the initial one; pairs with the endloop's"),
    "endloop": (-1, "end", None, "the loop, then the next value of each phi"),
    "result": (2, "after", None, "value after an endloop or endif: the loop or branch, the inner value"),
    "if": (1, "start", None, "condition"),
    "endif": (1, "end", None, "the if"),
    "join": (3, "after", None, "the if, value from inside, value otherwise"),
    "part": (0, "effect", None, "the lines after it, up to the next, are those of arg workgroups"),
}


def _of_kind(*kinds: Kind) -> frozenset[str]:
    return frozenset([op for op, (_, kind, *_) in SIGNATURES.items() if kind in kinds])


EFFECTS, READS = _of_kind("effect"), _of_kind("read")
_KEPT = _of_kind("effect", "start", "end", "carried")
_ACCESS = "a value of an address that is none itself: its kind in SIGNATURES must be 'read' or 'effect'"
_UNKNOWN: tuple[int, Kind, Rule, str] = (-1, "effect", lambda _line: "unknown operation", "")


def verify(lines: list[Line]) -> None:
    """Raise CompileError when a line uses what is not defined above it in an open scope.

    Also when it mixes types, has another number of sources than its operation, an unknown operation, or an
    address that its row neither reads nor changes.
    """
    defined: set[Line] = set()
    starts: list[int] = []
    for position, line in enumerate(lines):
        src = line.src
        count, kind, rule, _ = SIGNATURES.get(line.op, _UNKNOWN)
        right = count == len(src) or count < 0
        known = kind == "after" or defined.issuperset(src)  # values after an end are of the scope before it
        if not known:
            defined.update([s for s in src if s.op == "const"])  # constants are in no list of lines
            known = defined.issuperset(src)
        plain = kind == "value" and src and src[0].dtype is POINTER is not line.dtype
        if not (right and known) or plain or (rule is not None and rule(line)):
            problems = [] if right else [f"{len(src)} sources, expected {count}"]
            problems += [_ACCESS] if plain else []
            problems += [why] if right and rule is not None and (why := rule(line)) else []
            lost = [] if kind == "after" else [s for s in src if s not in defined]
            problems += [f"{s} ({s.op}) is not defined here" for s in lost]
            above = dump(lines[: position + 1])
            raise CompileError(f"linear form, line {position}: {'; '.join(problems)}", ast=above)
        if kind == "start":
            starts.append(position + 1)
        elif kind == "end":
            defined.difference_update(lines[starts.pop() : position])
        defined.add(line)


def dump(lines: list[Line]) -> str:
    """Return the list as text, indented by loops and branches."""
    indent = 0
    out: list[str] = []
    for line in lines:
        indent -= line.op in ("endloop", "endif")
        kind = line.dtype.name + (f"x{line.lanes}" if line.lanes > 1 else "")
        source = " ".join(str(s.arg) if s.op == "const" else repr(s) for s in line.src)
        arg = "" if line.arg is None else f" [{line.arg}]"
        out.append(f"{'  ' * indent}%{line.id} = {line.op} {kind} {source}{arg}".rstrip())
        indent += line.op in ("loop", "if")
    return "\n".join(out)
