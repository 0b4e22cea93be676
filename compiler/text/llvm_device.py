"""The text of operations that only GPUs have: workgroup memory, exchanges, matrix operations, copies.

Not here: all other lines (`llvm_ir`), the text that differs between targets
(`compiler.targets.shared.dialect`). Next: `llvm_ir`, whose table includes `RENDERERS`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.dtype import dtypes
from compiler.targets.shared.matrix import MatrixOp, SharedProducts
from compiler.text.llvm_text import type_text
from hcq.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Callable

    from compiler.emit.linear import Line
    from compiler.targets.shared.dialect import Staging
    from compiler.text.llvm_text import Text

_DYNAMIC, _DYNAMIC_ALIGN = "@dynamic_shared", 1024


def _shared(t: Text, line: Line) -> None:
    """Define a static array in workgroup memory."""
    assert isinstance(line.arg, tuple)
    dtype, count = line.arg[:2]
    space, symbol = t.dialect.shared_space, f"@shared{len(t.globals)}"
    t.globals.append(
        f"{symbol} = internal addrspace({space}) global [{count} x {type_text(dtype)}] undef, align 16"
    )
    if t.space(line) == space:
        t.names[line] = symbol
    else:
        t.put(line, f"addrspacecast ptr addrspace({space}) {symbol} to {t.pointer(line)}")


def _dynamic(t: Text, line: Line) -> None:
    """Define an array in the workgroup memory whose size the launch states, behind the earlier arrays."""
    assert isinstance(line.arg, tuple)
    dtype, count = line.arg[:2]
    space = t.dialect.shared_space
    t.declared[f"{_DYNAMIC} = external addrspace({space}) global [0 x i8], align {_DYNAMIC_ALIGN}"] = None
    t.lines.append(
        f"  %d{line.id} = getelementptr i8, ptr addrspace({space}) {_DYNAMIC}, i64 {t.dynamic_bytes}"
    )
    t.put(line, f"addrspacecast ptr addrspace({space}) %d{line.id} to {t.pointer(line)}")
    t.dynamic_bytes += -(-count * dtype.itemsize // _DYNAMIC_ALIGN) * _DYNAMIC_ALIGN


def _exchange(t: Text, line: Line) -> None:
    assert isinstance(line.arg, tuple)
    if t.dialect.exchange is None:
        raise CompileError(
            "wanted an exchange of registers between threads, saw a target without one; "
            "try a plan whose reductions have one thread"
        )
    t.lines += t.dialect.exchange(t.name(line), t.name(line.src[0]), *line.arg)


def _matrix(t: Text, line: Line) -> None:
    assert isinstance(line.arg, MatrixOp)
    if t.dialect.matrix is None:
        raise CompileError(
            f"wanted the matrix operation {line.arg.name}, saw a target without its text; "
            "try a plan without a matrix operation"
        )
    *words, sums = [t.name(s) for s in line.src]
    t.add(*t.dialect.matrix(line.arg, t.name(line), words, sums))


def _staging(t: Text, line: Line) -> Staging:
    if t.dialect.staging is None:
        raise CompileError(
            f"wanted the text of {line.op!r}, saw a target without asynchronous copies; "
            "try a plan whose stages have the mechanism 'vector loads'"
        )
    return t.dialect.staging


def _copy(t: Text, line: Line) -> None:
    to, origin, *size = [t.name(s) for s in line.src]
    t.add(*_staging(t, line).copy(t.name(line), to, origin, size[0] if size else ""))


def _commit(t: Text, line: Line) -> None:
    text, declared = _staging(t, line).commit
    t.add([f"  {text}"], declared)


def _wait(t: Text, line: Line) -> None:
    assert isinstance(line.arg, int)
    text, declared = _staging(t, line).wait(line.arg)
    t.add([f"  {text}"], declared)


def _issue(t: Text, line: Line) -> None:
    assert isinstance(line.arg, SharedProducts)
    left, right, sums = [t.name(s) for s in line.src]
    t.lines += _staging(t, line).issue(t.name(line), left, right, sums, line.arg)


def _settle(t: Text, line: Line) -> None:
    t.lines += _staging(t, line).settle(t.name(line), t.name(line.src[0]), line.lanes)


def _exp2(t: Text, line: Line) -> None:
    if not t.dialect.exp2:
        raise CompileError("wanted an instruction for powers of 2, saw a target without; try another plan")
    t.call(line, t.dialect.exp2, [t.typed(line.src[0])])


def _halves(t: Text, line: Line) -> None:
    # not by Dialect.half, which keeps -0: LLVM 22 has no code of it for gfx12 beyond 128 registers
    x, y = [t.typed(s) for s in line.src]
    name, kind = t.name(line), "half" if line.arg is dtypes.float16 else "bfloat"
    t.lines += [
        f"  {name}.x = insertelement <2 x float> poison, {x}, i32 0",
        f"  {name}.y = insertelement <2 x float> {name}.x, {y}, i32 1",
        f"  {name}.h = fptrunc <2 x float> {name}.y to <2 x {kind}>",
        f"  {name} = bitcast <2 x {kind}> {name}.h to i32",
    ]


def _fragments(t: Text, line: Line) -> None:
    name, address = t.name(line), t.name(line.src[0])
    t.add(*_staging(t, line).fragments(name, address, turned=bool(line.arg)))


RENDERERS: dict[str, Callable[[Text, Line], None]] = {
    "shared": _shared, "dynamic": _dynamic, "exchange": _exchange, "matrix": _matrix,
    "copy": _copy, "commit": _commit, "wait": _wait, "fragments": _fragments,
    "publish": lambda t, line: t.lines.append(f"  {_staging(t, line).publish}"),
    "issue": _issue, "settle": _settle,
    "exp2": _exp2, "halves": _halves,
    "phase": lambda t, _line: t.lines.extend([f"  {t.dialect.phase}"] if t.dialect.phase else []),
    "barrier": lambda t, _line: t.lines.append(f"  {t.dialect.barrier}"),
}  # fmt: skip
"""Operation -> the function that adds its text."""
