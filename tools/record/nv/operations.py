"""Write the kernels of tensor operations in float16 and bfloat16 that the recorder keeps.

    python -m tools.record.nv.operations     compile for sm_80, and replace them in
    tools/record/nv/programs.xz

They are elementwise operations, comparisons, casts, reductions and a product. Each is one kernel, as the
frontend schedules and the compiler lowers it. Inputs of elementwise kernels are a type's edges, numbers near
1 and pseudo-random bits. Inputs of products and sums are whole numbers, so that results are exact in every
order.

Not here: the random kernels in the same file (`tests.fuzz`). Next: `programs`, the forms of the kept kernels.
"""

# ruff: noqa: E501 - tables of operations read best on few lines

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from compiler.pipeline import steps
from compiler.schedule.scheduler import schedule
from compiler.targets import target_of
from compiler.targets.nvptx.target import ptx
from frontend import Tensor
from frontend.evaluation.expr import uops
from tools.arguments import command, reported
from tools.record.nv.programs import Program, keep, rewritten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ARCH: Final = "sm_80"
TYPES: Final = ("float16", "bfloat16")
_COUNT: Final = 192
_ROWS: Final = 8
_SIDE: Final = 32
_RESULT: Final = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "int32": "s32", "uint8": "u8", "bool": "u8", "int64": "s64"}  # fmt: skip
_UNARY: Final = (
    "neg", "abs", "relu", "sqrt", "reciprocal", "rsqrt", "exp", "log", "exp2", "log2", "sin", "cos", "tanh",
    "sigmoid", "floor", "ceil", "round", "trunc", "square", "silu", "gelu", "isnan",
)  # fmt: skip
_BINARY: Final[dict[str, Callable[[Tensor, Tensor], Tensor]]] = {
    "add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y, "div": lambda x, y: x / y,
    "maximum": lambda x, y: x.maximum(y), "minimum": lambda x, y: x.minimum(y), "less": lambda x, y: x < y,
    "equal": lambda x, y: x == y, "select": lambda x, y: (x < y).where(x, y), "multiply-add": lambda x, y: x * y + x,
}  # fmt: skip
_CASTS: Final = ("float16", "bfloat16", "float32", "int32", "uint8", "int64")
_REDUCTIONS: Final = ("sum", "amax", "amin", "mean", "prod")
_APPROXIMATE: Final = "PTX ISA 9.7.3: an approximation has an error, which one rounding to 16 bits can show"


def compiled(name: str, result: Tensor, inputs: str, words: int, *, ulp: float = 0.0) -> Program:
    """Compile a tensor that is one kernel; return its program.

    Each of its inputs has `words` u64 of the kind `inputs` (`Program.inputs`). `ulp` is the allowed
    difference; with 0 it is 1 for a kernel with an approximation. Raises `ValueError` if the tensor is not
    one kernel with one output, and as `rewritten`.
    """
    items = schedule(uops([(result.expr, tuple(range(len(result.leaves))))]))
    if len(items) != 1:
        raise ValueError(f"wanted one kernel of {name}, the scheduler made {len(items)}")
    target = target_of(ARCH)
    made = steps(items[0].ast, target)
    text = ptx(made.ir, target.machine(), 0)
    read, places = 0, []
    for access in made.arguments.access:
        places.append(("out", 0) if "w" in access else ("in", 8 * words * read))
        read += "w" not in access
    if len(places) - read != 1 or made.arguments.variables:
        raise ValueError(f"wanted one output of {name}, saw {made.arguments}")
    groups, threads = made.plan.launch()
    return Program(
        name=f"operation {name}", text=rewritten(text, places), groups=groups, threads=threads,
        type=_RESULT[result.dtype.name], count=result.numel(), inputs=inputs, words=words * max(1, read),
        shared=made.dynamic_bytes, ulp=ulp or float(".approx" in text), rule=_APPROXIMATE if ulp or ".approx" in text else "",
    )  # fmt: skip


def _leaf(type_: str, *shape: int) -> Tensor:
    return Tensor.zeros(*shape, dtype=type_).contiguous().realize()


def programs() -> Iterator[Program]:
    """Yield all programs of operations."""
    for type_ in TYPES:
        x, y = (_leaf(type_, _COUNT) for _ in range(2))
        words = _COUNT // 4
        for name in _UNARY:
            yield compiled(f"{name} of {type_}", getattr(x, name)(), type_, words)
        for name, function in _BINARY.items():
            yield compiled(f"{name} of {type_}", function(x, y), type_, words)
        for target in _CASTS:
            if target != type_:
                yield compiled(f"cast of {type_} to {target}", x.cast(target), type_, words)
        for source in ("float32", "int32"):
            wide = _leaf(source, _COUNT)
            yield compiled(f"cast of {source} to {type_}", wide.cast(type_), source, _COUNT // 2)
        table = _leaf(type_, _ROWS, _COUNT)
        for name in _REDUCTIONS:
            whole = f"whole {type_}" if name in ("sum", "mean") else type_
            yield compiled(f"{name} of rows of {type_}", getattr(table, name)(1), whole, _ROWS * words)
        a, b = (_leaf(type_, _SIDE, _SIDE) for _ in range(2))
        yield compiled(f"product of {type_}", a @ b, f"whole {type_}", _SIDE * _SIDE // 4)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    command("tools.record.nv.operations", __doc__).parse_args(argv)
    found = list(programs())
    print(f"{len(found)} operations, {keep('operation ', found):,} bytes in all")
    return 0


if __name__ == "__main__":
    sys.exit(reported(main))
