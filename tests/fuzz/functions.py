"""Random functions `i64 name(i64 a, i64 b, i64 i)` as LLVM IR, the computation of one thread of a kernel.

The same text is compiled for the device and for the host. It has integers of 8 to 64 and 128 bits, f16, f32,
f64, packed pairs, local arrays that are stored and loaded at different widths, nested branches, switches,
loops of divergent length with breaks, and early returns. Only operations with one exact result on both
targets occur: no poison, no NaN payloads, no result that depends on a math library.

Not here: exchanges between threads (`exchanges`). Next: `kernels`, whole kernels.
"""

# ruff: noqa: E501, PLR0917 - lines of IR are more readable unbroken; `_arm` needs all its arguments

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

INTEGERS = ("i8", "i16", "i32", "i64")
FLOATS = ("half", "float", "double")
SHORT = {"half": "f16", "float": "f32", "double": "f64"}
BITS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64, "half": 16, "float": 32, "double": 64}
_LOCAL_BYTES = 64
_DEEPEST = 3
_EDGES = (0, 1, 2, 3, 5, 7, 15, 31, 100, -1, -2, -128)


class Ref(NamedTuple):
    """A value in IR: its type and its name."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type} {self.name}"


def calls(text: str) -> set[str]:
    """Return the declarations of the intrinsics that IR text calls."""
    found: set[str] = set()
    for line in text.splitlines():
        _, call, rest = line.partition("call ")
        if not call or "@llvm." not in rest:
            continue
        result, _, tail = rest.partition(" @")
        name, _, arguments = tail.partition("(")
        depth, types, word = 0, [], ""
        for letter in arguments:
            if letter == ")" and not depth:
                break
            depth += (letter in "<({") - (letter in ">)}")
            if letter == "," and not depth:
                types.append(word)
                word = ""
            else:
                word += letter
        types.append(word)
        plain = [t.strip().rpartition(" ")[0] for t in types if t.strip()]
        found.add(f"declare {result} @{name}({', '.join(plain)})")
    return found


class FunctionWriter:
    """Writes one random function of about `size` statements. `text` may be called once."""

    def __init__(self, rng: random.Random, name: str, size: int) -> None:
        self._rng, self._name, self._size = rng, name, size
        self._lines: list[str] = []
        self._count = 0
        self._block = "entry"
        self._local = False

    def text(self) -> str:
        """Return the function, without attributes: `define internal i64 @name(...) #0 {`."""
        values = self._statements([Ref("i64", "%a"), Ref("i64", "%b"), Ref("i64", "%i")], 0, self._size)
        result = self._mixed(values[-8:])
        body = "\n".join(self._lines)
        slot = f"  %local = alloca [{_LOCAL_BYTES} x i8], align 8\n" if self._local else ""
        slot += f"  store [{_LOCAL_BYTES} x i8] zeroinitializer, ptr %local, align 8\n" if self._local else ""
        head = f"define internal i64 @{self._name}(i64 %a, i64 %b, i64 %i) #0 {{\nentry:\n"
        return f"{head}{slot}{body}\n  ret {result}\n}}\n"

    def _let(self, type_: str, text: str) -> Ref:
        self._count += 1
        self._lines.append(f"  %x{self._count} = {text}")
        return Ref(type_, f"%x{self._count}")

    def _label(self, name: str) -> None:
        self._lines.append(f"{name}:")
        self._block = name

    def _serial(self) -> int:
        self._count += 1
        return self._count

    def _call(self, name: str, type_: str, *arguments: Ref | str) -> Ref:
        return self._let(type_, f"call {type_} @llvm.{name}({', '.join(map(str, arguments))})")

    def _mixed(self, values: Sequence[Ref]) -> Ref:
        total = Ref("i64", "0")
        for value in values:
            part = self._convert(value, "i64") if value.type in INTEGERS else self._raw(value)
            mixed = self._let("i64", f"mul {total}, 6364136223846793005")
            total = self._let("i64", f"xor {mixed}, {part.name}")
        return total

    def _raw(self, value: Ref) -> Ref:
        bits = BITS[value.type]
        whole = self._let(f"i{bits}", f"bitcast {value} to i{bits}")
        return self._let("i64", f"zext {whole} to i64") if bits < 64 else whole

    def _pick(self, values: Sequence[Ref], type_: str) -> Ref:
        """Return a value of a type: an existing one, a converted one, or a constant."""
        same = [v for v in values if v.type == type_]
        if same and self._rng.random() < 0.7:
            return self._rng.choice(same)
        if type_ in INTEGERS and self._rng.random() < 0.3:
            return Ref(type_, str(self._rng.choice(_EDGES)))
        return self._convert(self._rng.choice(values), type_)

    def _masked(self, values: Sequence[Ref], type_: str, mask: int) -> Ref:
        return self._let(type_, f"and {self._pick(values, type_)}, {mask}")

    def _convert(self, value: Ref, type_: str) -> Ref:
        have = value.type
        if have == type_:
            return value
        if have in INTEGERS and type_ in INTEGERS:
            narrows = BITS[have] > BITS[type_]
            how = "trunc" if narrows else self._rng.choice(("zext", "sext"))
            return self._let(type_, f"{how} {value} to {type_}")
        if have in INTEGERS:
            if type_ == "half":  # the host rounds twice from wide integers to f16
                value = self._let("i32", f"and {self._convert(value, 'i32')}, 63")
            return self._let(type_, f"{self._rng.choice(('uitofp', 'sitofp'))} {value} to {type_}")
        if type_ in INTEGERS:
            return self._whole(value, type_)
        if have == "double" and type_ == "half":
            value = self._number(self._let("float", f"fptrunc {value} to float"))
        how = "fpext" if BITS[value.type] < BITS[type_] else "fptrunc"
        return self._number(self._let(type_, f"{how} {value} to {type_}"))

    def _whole(self, value: Ref, type_: str) -> Ref:
        if value.type == "half":
            value = self._let("float", f"fpext {value} to float")
        target = type_ if type_ in ("i32", "i64") else "i32"
        name = f"{self._rng.choice(('fptosi', 'fptoui'))}.sat.{target}.{SHORT[value.type]}"
        return self._convert(self._call(name, target, value), type_)

    def _number(self, value: Ref) -> Ref:
        """Replace NaN, whose bits may differ between host and device."""
        bad = self._let("i1", f"fcmp uno {value}, {value.name}")
        return self._let(value.type, f"select {bad}, {value.type} 1.0, {value}")

    def _operation(self, values: Sequence[Ref]) -> Ref:
        kinds: tuple[Callable[[Sequence[Ref]], Ref], ...] = (
            self._integer,
            self._floating,
            self._packed,
            self._wide,
            self._memory,
        )
        return self._rng.choices(kinds, (10, 5, 1, 1, 2))[0](values)

    def _integer(self, values: Sequence[Ref]) -> Ref:
        rng, type_ = self._rng, self._rng.choice(INTEGERS)
        bits = BITS[type_]
        a, b = self._pick(values, type_), self._pick(values, type_)
        op = rng.choice((
            "add", "sub", "mul", "and", "or", "xor", "shl", "lshr", "ashr", "udiv", "urem", "sdiv", "srem", "umin", "umax", "smin",
            "smax", "ctpop", "bitreverse", "bswap", "ctlz", "cttz", "abs", "fshl", "fshr", "uadd.sat", "ssub.sat", "compare",
        ))  # fmt: skip
        if op == "bswap" and bits == 8:
            op = "bitreverse"
        if op in ("shl", "lshr", "ashr"):
            b = self._let(type_, f"and {b}, {bits - 1}")
        if op in ("udiv", "urem", "sdiv", "srem"):  # a positive odd divisor: never 0, never -1
            b = self._let(type_, f"and {b}, {(1 << (bits - 1)) - 1}")
            b = self._let(type_, f"or {b}, 1")
        if op in ("umin", "umax", "smin", "smax", "uadd.sat", "ssub.sat"):
            return self._call(f"{op}.{type_}", type_, a, b)
        if op in ("ctpop", "bitreverse", "bswap"):
            return self._call(f"{op}.{type_}", type_, a)
        if op in ("ctlz", "cttz", "abs"):
            return self._call(f"{op}.{type_}", type_, a, "i1 false")
        if op in ("fshl", "fshr"):
            return self._call(f"{op}.{type_}", type_, a, b, self._pick(values, type_))
        if op == "compare":
            how = rng.choice(("eq", "ne", "ult", "ule", "ugt", "uge", "slt", "sle", "sgt", "sge"))
            return self._let(type_, f"select {self._let('i1', f'icmp {how} {a}, {b.name}')}, {a}, {b}")
        return self._let(type_, f"{op} {a}, {b.name}")

    def _floating(self, values: Sequence[Ref]) -> Ref:
        rng, type_ = self._rng, self._rng.choice(FLOATS)
        kind = SHORT[type_]
        a, b = self._pick(values, type_), self._pick(values, type_)
        choices = ["fadd", "fsub", "fmul", "fdiv", "sqrt", "fabs", "fneg", "copysign", "compare"]
        if type_ != "half":  # on the host these round twice in f16 or are missing
            choices += ["fma", "fma", "floor", "ceil", "trunc", "rint"]
        op = rng.choice(choices)
        if op == "fma":
            return self._number(self._call(f"fma.{kind}", type_, a, b, self._pick(values, type_)))
        if op in ("sqrt", "fabs", "floor", "ceil", "trunc", "rint"):
            return self._number(self._call(f"{op}.{kind}", type_, a))
        if op == "copysign":
            return self._number(self._call(f"copysign.{kind}", type_, a, b))
        if op == "fneg":
            return self._let(type_, f"fneg {a}")
        if op == "compare":
            how = rng.choice(("olt", "ole", "oeq", "one", "ogt", "oge", "ult", "ueq", "une", "ord", "uno"))
            test = self._let("i1", f"fcmp {how} {a}, {b.name}")
            return self._let(type_, f"select {test}, {a}, {b}")
        return self._number(self._let(type_, f"{op} {a}, {b.name}"))

    def _packed(self, values: Sequence[Ref]) -> Ref:
        """Operate on the two or four elements of a 32-bit word."""
        type_ = self._rng.choice(("<2 x half>", "<2 x i16>", "<4 x i8>"))
        a, b = (self._let(type_, f"bitcast {self._pick(values, 'i32')} to {type_}") for _ in range(2))
        if type_ == "<2 x half>":
            got = self._let(type_, f"{self._rng.choice(('fadd', 'fsub', 'fmul'))} {a}, {b.name}")
            bad = self._let("<2 x i1>", f"fcmp uno {got}, {got.name}")
            got = self._let(type_, f"select {bad}, {type_} splat (half 1.0), {got}")
        elif self._rng.random() < 0.3:
            got = self._call(f"{self._rng.choice(('smax', 'umin'))}.v{type_[1]}{type_[5:-1]}", type_, a, b)
        else:
            got = self._let(type_, f"{self._rng.choice(('add', 'sub', 'mul', 'xor'))} {a}, {b.name}")
        return self._let("i32", f"bitcast {got} to i32")

    def _wide(self, values: Sequence[Ref]) -> Ref:
        """Compute in 128 bits: carries, borrows, upper halves of products."""
        how = self._rng.choice(("zext", "sext"))
        a, b = (self._let("i128", f"{how} {self._pick(values, 'i64')} to i128") for _ in range(2))
        if self._rng.random() < 0.4:
            a = self._let("i128", f"mul {a}, {b.name}")
        got = self._let("i128", f"{self._rng.choice(('add', 'sub', 'mul'))} {a}, {b.name}")
        if self._rng.random() < 0.7:
            got = self._let("i128", f"lshr {got}, {self._rng.choice((1, 32, 63, 64, 65))}")
        return self._let("i64", f"trunc {got} to i64")

    def _memory(self, values: Sequence[Ref]) -> Ref:
        """Store to a local array at a computed index, or load from it."""
        self._local = True
        type_ = self._rng.choice(INTEGERS)
        index = self._masked(values, "i64", _LOCAL_BYTES * 8 // BITS[type_] - 1)
        at = self._let("ptr", f"getelementptr {type_}, ptr %local, {index}")
        if self._rng.random() < 0.5:
            value = self._pick(values, type_)
            self._lines.append(f"  store {value}, {at}, align {BITS[type_] // 8}")
            return value
        return self._let(type_, f"load {type_}, {at}, align {BITS[type_] // 8}")

    def _statements(self, values: Sequence[Ref], depth: int, size: int) -> list[Ref]:
        found = list(values)
        for _ in range(size):
            kind = self._rng.random()
            if depth >= _DEEPEST or kind > 0.26:
                found.append(self._operation(found))
            elif kind < 0.12:
                found.append(self._branch(found, depth, size))
            elif kind < 0.2:
                found.append(self._loop(found, depth, size))
            elif kind < 0.24:
                found.append(self._switch(found, depth, size))
            else:
                self._leave_early(found)
        return found

    def _condition(self, values: Sequence[Ref]) -> Ref:
        type_ = self._rng.choice((*INTEGERS, "float", "double"))
        a, b = self._pick(values, type_), self._pick(values, type_)
        if type_ in FLOATS:
            return self._let("i1", f"fcmp {self._rng.choice(('olt', 'oge', 'une'))} {a}, {b.name}")
        how = self._rng.choice(("ult", "slt", "eq", "ne"))
        return self._let("i1", f"icmp {how} {a}, {b.name}")

    def _branch(self, values: Sequence[Ref], depth: int, size: int) -> Ref:
        q, test, result = (
            self._serial(),
            self._condition(values),
            self._rng.choice(("i32", "i64", "float", "half")),
        )
        self._lines.append(f"  br {test}, label %T{q}, label %E{q}")
        ends = [self._arm(f"{side}{q}", values, depth, size // 2, result, f"J{q}") for side in "TE"]
        self._label(f"J{q}")
        return self._let(result, f"phi {result} " + ", ".join(ends))

    def _arm(self, label: str, values: Sequence[Ref], depth: int, size: int, result: str, join: str) -> str:
        """Write one arm of a branch; return its entry of the phi at the join."""
        self._label(label)
        value = self._convert(self._statements(values, depth + 1, size)[-1], result)
        self._lines.append(f"  br label %{join}")
        return f"[ {value.name}, %{self._block} ]"

    def _switch(self, values: Sequence[Ref], depth: int, size: int) -> Ref:
        q, ways = self._serial(), self._rng.randrange(4, 7)
        by = self._masked(values, "i32", 7)
        cases = " ".join(f"i32 {k}, label %S{q}.{k}" for k in range(1, ways))
        self._lines.append(f"  switch {by}, label %S{q}.0 [ {cases} ]")
        ends = [self._arm(f"S{q}.{k}", values, depth + 1, size // 4, "i64", f"J{q}") for k in range(ways)]
        self._label(f"J{q}")
        return self._let("i64", "phi i64 " + ", ".join(ends))

    def _loop(self, values: Sequence[Ref], depth: int, size: int) -> Ref:
        """Loop one to eight times, a different number for each thread, sometimes with a break."""
        q, times, start = self._serial(), self._masked(values, "i32", 7), self._pick(values, "i64")
        before, leaves = self._block, self._rng.random() < 0.4
        self._lines.append(f"  br label %H{q}")
        self._label(f"H{q}")
        where = len(self._lines)
        own = [*values, Ref("i32", f"%k{q}"), Ref("i64", f"%c{q}")]
        ends = []
        if leaves:
            own = self._statements(own, depth + 1, size // 4)
            early, stop = self._convert(own[-1], "i64"), self._condition(own)
            ends.append(f"[ {early.name}, %{self._block} ]")
            self._lines.append(f"  br {stop}, label %X{q}, label %L{q}")
            self._label(f"L{q}")
        carried = self._convert(self._statements(own, depth + 1, size // 3)[-1], "i64")
        step = self._let("i32", f"add i32 %k{q}, 1")
        leave = self._let("i1", f"icmp ugt {step}, {times.name}")
        self._lines.append(f"  br {leave}, label %X{q}, label %H{q}")
        ends.append(f"[ {carried.name}, %{self._block} ]")
        back = f"%{self._block}"
        self._lines[where:where] = [
            f"  %k{q} = phi i32 [ 0, %{before} ], [ {step.name}, {back} ]",
            f"  %c{q} = phi i64 [ {start.name}, %{before} ], [ {carried.name}, {back} ]",
        ]
        self._label(f"X{q}")
        return self._let("i64", "phi i64 " + ", ".join(ends))

    def _leave_early(self, values: Sequence[Ref]) -> None:
        """Return early if a condition holds."""
        q, test = self._serial(), self._condition(values)
        self._lines.append(f"  br {test}, label %R{q}, label %N{q}")
        self._label(f"R{q}")
        self._lines.append(f"  ret {self._mixed(values[-3:])}")
        self._label(f"N{q}")
