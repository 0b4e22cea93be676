"""The renderer: a linear list to LLVM IR text, the same for every target.

Text that differs between targets (entry, arguments, workgroup numbers, barriers) comes from the `Dialect` of
the target (`compiler.targets.shared.dialect`). There are no fast-math flags.

Not here: operations that only GPUs have (`llvm_device`), lines of several registers (`llvm_bundles`), types
and constants as text (`llvm_text`), the lines (`compiler.emit.linear`), the dialects (`compiler.targets`).
Next: `compiler.llvm`, which makes an object of the text.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from compiler.dtype import DType, dtypes
from compiler.text import llvm_bundles, llvm_device
from compiler.text.llvm_text import (
    STREAMED,
    Text,
    constant_text,
    streamed_places,
    streamed_versions,
    suffix,
    type_text,
)
from hcq.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from compiler.emit.linear import Line
    from compiler.targets.shared.dialect import Dialect
    from hcq.program import Dim3


_MASK_BITS = {2: 64, 4: 32, 8: 32, 16: 32, 32: 16, 64: 8}
"""Lanes of a mask -> bits of each integer to which it is widened, so that they fill a vector register."""


def read_mask(t: Text, mask: Line, name: str) -> str:
    """Return the typed name of a mask whose lanes are read one by one.

    LLVM 22.1 miscompiles such a mask on AVX-512: the pass x86-compress-evex removes the instruction that
    computes it (VPMOVD2M and alike) if the mask is moved to a general register, although a later instruction
    reads and overwrites it. On such a target this function makes another mask, by a comparison with 0
    (VPTESTM). `name` is the prefix of its names.
    """
    if not t.dialect.opaque or mask.op == "const" or mask.lanes == 1:
        return t.typed(mask)
    lanes = 1 << (mask.lanes - 1).bit_length()
    bits, whole = f"<{lanes} x i{_MASK_BITS[lanes]}>", t.typed(mask)
    if lanes != mask.lanes:
        rest = _picks(tuple(range(lanes)[: mask.lanes]) + (mask.lanes,) * (lanes - mask.lanes))
        t.lines.append(f"  {name}.w = shufflevector {whole}, <{mask.lanes} x i1> zeroinitializer, {rest}")
        whole = f"<{lanes} x i1> {name}.w"
    t.lines += [
        f"  {name}.i = sext {whole} to {bits}",
        f'  {name}.o = call {bits} asm "", "={t.dialect.opaque},0"({bits} {name}.i)',
        f"  {name}.m = icmp ne {bits} {name}.o, zeroinitializer",
    ]
    if lanes != mask.lanes:
        picks = _picks(tuple(range(mask.lanes)))
        t.lines.append(f"  {name}.n = shufflevector <{lanes} x i1> {name}.m, <{lanes} x i1> poison, {picks}")
        return f"<{mask.lanes} x i1> {name}.n"
    return f"<{mask.lanes} x i1> {name}.m"


def _alignment(dtype: DType, lanes: int) -> int:
    """Return the alignment of a vector in bytes; no access is wider than 16 bytes."""
    return min(dtype.itemsize * lanes, max(16, dtype.itemsize))


def _load(t: Text, line: Line) -> None:
    align = _alignment(line.dtype, line.lanes if line.arg == "aligned" else 1)
    t.put(line, f"load {type_text(line.dtype, line.lanes)}, {t.typed(line.src[0])}, align {align}")


def _load_masked(t: Text, line: Line) -> None:
    zeros = f"{type_text(line.dtype, line.lanes)} zeroinitializer"
    arguments = [t.typed(line.src[0]), f"i32 {line.dtype.itemsize}", t.typed(line.src[1]), zeros]
    name = f"llvm.masked.load.{suffix(line.dtype, line.lanes)}.p{t.space(line.src[0])}"
    t.call(line, name, arguments)


def _addresses(t: Text, pointer: Line, index: Line, dtype: DType, register: str) -> str:
    t.lines.append(f"  {register} = getelementptr {type_text(dtype)}, {t.typed(pointer)}, {t.typed(index)}")
    return f"<{index.lanes} x {t.pointer(pointer)}> {register}"


def _gather(t: Text, line: Line) -> None:
    kind, code = type_text(line.dtype, line.lanes), suffix(line.dtype, line.lanes)
    where = _addresses(t, line.src[0], line.src[1], line.dtype, f"%p{line.id}")
    mask = read_mask(t, line.src[2], f"%m{line.id}")
    arguments = [where, f"i32 {line.dtype.itemsize}", mask, f"{kind} zeroinitializer"]
    name = f"llvm.masked.gather.{code}.v{line.lanes}p{t.space(line.src[0])}"
    t.call(line, name, arguments)


def _store(t: Text, line: Line) -> None:
    pointer, value = line.src
    align = _alignment(value.dtype, value.lanes if line.arg == "aligned" else 1)
    text = f"  store {t.typed(value)}, {t.typed(pointer)}, align {align}"
    if line.arg == "stream":
        t.through[len(t.lines)] = text
        whole = value.dtype.itemsize * value.lanes
        text = f"  store {t.typed(value)}, {t.typed(pointer)}, align {whole}, !nontemporal !0"
    t.lines.append(text)


def _store_masked(t: Text, line: Line) -> None:
    pointer, value, mask = line.src
    arguments = [t.typed(value), t.typed(pointer), f"i32 {value.dtype.itemsize}", t.typed(mask)]
    name = f"llvm.masked.store.{suffix(value.dtype, value.lanes)}.p{t.space(pointer)}"
    t.lines.append("  " + t.intrinsic("void", name, arguments))


def _scatter(t: Text, line: Line) -> None:
    pointer, index, value, mask = line.src
    where = _addresses(t, pointer, index, value.dtype, f"%p{line.id}")
    read = read_mask(t, mask, f"%m{line.id}")
    arguments = [t.typed(value), where, f"i32 {value.dtype.itemsize}", read]
    name = f"llvm.masked.scatter.{suffix(value.dtype, value.lanes)}.v{value.lanes}p{t.space(pointer)}"
    t.lines.append("  " + t.intrinsic("void", name, arguments))


def _alu(t: Text, line: Line) -> None:
    a, b = line.src
    if not t.dialect.expansions or not t.expand(line):
        t.put(line, f"{line.arg} {t.typed(a)}, {t.name(b)}")


def _cmp(t: Text, line: Line) -> None:
    assert isinstance(line.arg, tuple)
    instruction, predicate = line.arg
    t.put(line, f"{instruction} {predicate} {t.typed(line.src[0])}, {t.name(line.src[1])}")


def _select(t: Text, line: Line) -> None:
    t.put(line, "select " + ", ".join([t.typed(s) for s in line.src]))


def _call(t: Text, line: Line) -> None:
    if t.expand(line):
        return
    t.call(line, f"llvm.{line.arg}.{suffix(line.dtype, line.lanes)}", [t.typed(s) for s in line.src])


def _convert(t: Text, line: Line) -> None:
    (s,) = line.src
    narrows = line.arg == "fptrunc" and line.dtype is dtypes.float16 and s.dtype is dtypes.float32
    if t.dialect.half and narrows:
        name = f"llvm.{t.dialect.half}.{suffix(line.dtype, line.lanes)}.{suffix(s.dtype, s.lanes)}"
        t.call(line, name, [t.typed(s), 'metadata !"round.tonearest"'])
        return
    t.put(line, f"{line.arg} {t.typed(line.src[0])} to {type_text(line.dtype, line.lanes)}")


def _saturate(t: Text, line: Line) -> None:
    s = line.src[0]
    name = f"llvm.{line.arg}.sat.{suffix(line.dtype, line.lanes)}.{suffix(s.dtype, s.lanes)}"
    t.call(line, name, [t.typed(s)])


def _splat(t: Text, line: Line) -> None:
    kind = type_text(line.dtype, line.lanes)
    t.lines.append(f"  %s{line.id} = insertelement {kind} poison, {t.typed(line.src[0])}, i32 0")
    t.put(line, f"shufflevector {kind} %s{line.id}, {kind} poison, <{line.lanes} x i32> zeroinitializer")


def _shuffle(t: Text, line: Line) -> None:
    assert isinstance(line.arg, tuple)
    a, b = line.src
    t.put(line, f"shufflevector {t.typed(a)}, {t.typed(b)}, {_picks(line.arg)}")


@lru_cache(maxsize=256)
def _picks(lanes: tuple[int, ...]) -> str:
    """Return the mask of a shuffle; cached, because kernels use few different ones many times."""
    return f"<{len(lanes)} x i32> <{', '.join([f'i32 {lane}' for lane in lanes])}>"


def _vector(t: Text, line: Line) -> None:
    kind, vector = type_text(line.dtype, line.lanes), "poison"
    for n, source in enumerate(line.src):
        name = t.name(line) if n == line.lanes - 1 else f"%s{line.id}.{n}"
        t.lines.append(f"  {name} = insertelement {kind} {vector}, {t.typed(source)}, i32 {n}")
        vector = name


def _any(t: Text, line: Line) -> None:
    s = line.src[0]
    mask = read_mask(t, s, f"%m{line.id}")
    t.put(line, t.intrinsic("i1", f"llvm.vector.reduce.or.{suffix(s.dtype, s.lanes)}", [mask]))


def _extract(t: Text, line: Line) -> None:
    s = line.src[0]
    vector = read_mask(t, s, f"%m{line.id}") if s.dtype is dtypes.bool else t.typed(s)
    t.put(line, f"extractelement {vector}, i32 {line.arg}")


def _offset(t: Text, line: Line) -> None:
    assert isinstance(line.arg, DType)
    t.put(line, f"getelementptr {type_text(line.arg)}, {t.typed(line.src[0])}, {t.typed(line.src[1])}")


def _scratch(t: Text, line: Line) -> None:
    assert isinstance(line.arg, tuple)
    dtype, count = line.arg[:2]
    space = t.space(line)
    where = f", addrspace({space})" if space else ""
    t.top.append(f"  {t.name(line)} = alloca [{count} x {type_text(dtype)}], align 64{where}")


def _table(t: Text, line: Line) -> None:
    assert isinstance(line.arg, tuple)
    dtype, values = line.arg
    scalar = type_text(dtype)
    items = ", ".join([f"{scalar} {constant_text(dtype, v)}" for v in values])
    symbol = f"@table{len(t.globals)}"
    space = f"addrspace({t.space(line)}) " if t.space(line) else ""
    t.globals.append(
        f"{symbol} = private unnamed_addr {space}constant [{len(values)} x {scalar}] [{items}], align 64"
    )
    t.names[line] = symbol


def _prefetch(t: Text, line: Line) -> None:
    pointer = line.src[0]
    arguments = [t.typed(pointer), "i32 0", f"i32 {line.arg}", "i32 1"]
    t.lines.append("  " + t.intrinsic("void", f"llvm.prefetch.p{t.space(pointer)}", arguments))


def _loop(t: Text, line: Line) -> None:
    before, label = t.label, f"L{line.id}"
    t.lines.append(f"  br label %{label}")
    t.start(label)
    t.open[line] = (len(t.lines), before, [])
    t.lines.append("")


def _phi(t: Text, line: Line) -> None:
    loop = next(reversed(t.open))
    t.open[loop][2].append((len(t.lines), line))
    t.lines.append("")
    initial = t.rows.get(line.src[0])
    if initial is not None:
        t.bundle(line, len(initial))


def _endloop(t: Text, line: Line) -> None:
    loop, *following = line.src
    at, before, phis = t.open.pop(loop)
    first, end = loop.src
    t.lines.append(f"  %n{line.id} = add nsw i64 {t.name(loop)}, {loop.arg}")
    t.lines.append(f"  %c{line.id} = icmp slt i64 %n{line.id}, {t.name(end)}")
    t.lines.append(f"  br i1 %c{line.id}, label %L{loop.id}, label %D{loop.id}")
    t.lines[at] = f"  {t.name(loop)} = phi i64 [ {t.name(first)}, %{before} ], [ %n{line.id}, %{t.label} ]"
    for (position, phi), value in zip(phis, following, strict=True):
        kind, rows = type_text(phi.dtype, phi.lanes), t.rows.get(phi)
        if rows is not None:
            every = zip(rows, t.rows[phi.src[0]], t.rows[value], strict=True)
        else:
            every = zip([t.name(phi)], [t.name(phi.src[0])], [t.name(value)], strict=True)
        t.lines[position] = "\n".join(
            [f"  {name} = phi {kind} [ {x}, %{before} ], [ {y}, %{t.label} ]" for name, x, y in every]
        )
    t.start(f"D{loop.id}")


def _result(t: Text, line: Line) -> None:
    value = line.src[1]
    if value in t.rows:
        t.rows[line] = t.rows[value]
    else:
        t.names[line] = t.name(value)


def _if(t: Text, line: Line) -> None:
    t.lines.append(f"  br i1 {t.name(line.src[0])}, label %T{line.id}, label %F{line.id}")
    t.open[line] = (0, t.label, [])
    t.start(f"T{line.id}")


def _endif(t: Text, line: Line) -> None:
    head = line.src[0]
    _, before, _ = t.open.pop(head)
    t.lines.append(f"  br label %F{head.id}")
    t.names[line] = f"{before} {t.label}"
    t.start(f"F{head.id}")


def _join(t: Text, line: Line) -> None:
    before, inside = t.names[line.src[0]].split(" ")
    value, otherwise = line.src[1:]
    kind = type_text(line.dtype, line.lanes)
    t.put(line, f"phi {kind} [ {t.name(value)}, %{inside} ], [ {t.name(otherwise)}, %{before} ]")


def _number(t: Text, line: Line) -> None:
    """Add the instructions for an argument, or for the number of a workgroup or thread."""
    if isinstance(line.arg, tuple):
        number, pointers = line.arg
        t.lines += t.dialect.variable(number, pointers, t.name(line))
        return
    assert isinstance(line.arg, int)
    if line.op == "group":
        name, first = t.name(line), t.first
        t.lines += t.dialect.group(line.arg, f"{name}.all" if first else name, t.groups[line.arg])
        t.lines += [f"  {name} = sub i64 {name}.all, {first}"] * bool(first)
    else:
        read = t.dialect.pointer if line.op == "argument" else t.dialect.thread
        t.lines += read(line.arg, t.name(line))


RENDERERS: dict[str, Callable[[Text, Line], None]] = {
    "load": _load, "load_masked": _load_masked, "gather": _gather,
    "store": _store, "store_masked": _store_masked, "scatter": _scatter, "prefetch": _prefetch,
    "alu": _alu, "cmp": _cmp, "select": _select, "call": _call, "convert": _convert, "saturate": _saturate,
    "splat": _splat, "vector": _vector, "shuffle": _shuffle, "any": _any,
    "scratch": _scratch, "table": _table,
    "loop": _loop, "phi": _phi, "endloop": _endloop, "result": _result,
    "if": _if, "endif": _endif, "join": _join,
    **dict.fromkeys(("argument", "variable", "group", "thread"), _number),
    "token": lambda _t, _line: None,
    **llvm_bundles.RENDERERS,
    **llvm_device.RENDERERS,
    "fneg": lambda t, line: t.put(line, f"fneg {t.typed(line.src[0])}"),
    "freeze": lambda t, line: t.put(line, f"freeze {t.typed(line.src[0])}"),
    "offset": _offset, "extract": _extract,
}  # fmt: skip


def render(
    lines: Sequence[Line],
    name: str,
    pointers: int,
    variables: int,
    dialect: Dialect,
    *,
    groups: Dim3 = (1, 1, 1),
    threads: int = 1,
) -> str:
    """Return the IR text of a kernel, for a launch with these workgroups and threads.

    `lines` must have passed `linear.verify`. Raises `CompileError` for a line that has no text on the target.
    """
    text = Text(dialect, groups)
    if lines and lines[0].op == "part":
        functions = _parts(text, lines, name, (pointers, variables))
    else:
        functions = _function(text, lines, name, (pointers, variables))
    body = "\n".join(functions)
    absent = " ".join([name for function, name in dialect.absent.items() if f"@{function}(" not in body])
    footer = dialect.footer.replace("THREADS", str(threads)).replace("ABSENT", absent)
    return "\n".join([*text.globals, body, *text.declared, footer]) + "\n"


def _function(text: Text, lines: Sequence[Line], name: str, counts: tuple[int, int]) -> list[str]:
    """Return the text of the function of some lines, after it that of the function that it calls, if any."""
    places = streamed_places(lines)
    text.label = STREAMED if places else "entry"
    for line in lines:
        renderer = RENDERERS.get(line.op)
        if renderer is None:
            raise CompileError(f"the renderer has no text for {line.op!r}")
        renderer(text, line)
    head = text.dialect.entry(name, *counts)
    functions: list[str] = []
    if places:
        functions, text.lines = streamed_versions(text, name, head, places)
    return [head, *text.top, "\n".join(text.lines), "  ret void", "}", *functions]


def _parts(kernel: Text, lines: Sequence[Line], name: str, counts: tuple[int, int]) -> list[str]:
    """Return the text of a kernel whose workgroups call the functions of their parts, and of these.

    Inside the kernel, the functions would take the memory of all parts at once.
    """
    dialect, end = kernel.dialect, 0
    head = dialect.entry(name, *counts)
    parameters = head[head.index("(") : head.index(")") + 1]
    calls = [head, *dialect.group(0, "%number", kernel.groups[0])]
    functions: list[str] = []
    starts = [n for n, line in enumerate(lines) if line.op == "part"]
    for start, stop in pairwise([*starts, len(lines)]):
        count = lines[start].arg
        assert isinstance(count, int)
        text = Text(dialect, (count, 1, 1), first=end)
        text.globals, text.declared, text.intrinsics = kernel.globals, kernel.declared, kernel.intrinsics
        end += count
        head, *rest = _function(text, lines[start + 1 : stop], f"{name}_to{end}", counts)
        functions += [head.replace("define", "define internal", 1).replace("#0", "#0 noinline", 1), *rest]
        calls += [
            f"  %own{end} = icmp ult i64 %number, {end}",
            f"  br i1 %own{end}, label %to{end}, label %from{end}",
            f"to{end}:",
            f"  musttail call void @{name}_to{end}{parameters}",
            "  ret void",
            f"from{end}:",
        ]
    return [*calls, "  ret void", "}", *functions]
