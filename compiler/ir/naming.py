"""Names of kernels, as faults, traces and profiles show them. A name depends on the AST alone.

Not here: the keys of kernels. Next: `compiler.ir.serialize`, the text from which keys are made.
"""

from __future__ import annotations

import hashlib
from math import prod
from typing import TYPE_CHECKING

from compiler.ir.ops import CASTS, ELEMENTWISE, Ops
from compiler.ir.serialize import kernel_key, postorder

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from compiler.ir.uop import UOp

_DIGITS = 6
"""Hexadecimal digits of a digest of the kernel's text: they distinguish kernels of one role and shape."""
_MOST_ROLE, _MOST_SIZES, _MOST_DEPTH = 24, 24, 10
"""The most characters of the role, of the sizes and of the number of values; words that do not fit are
omitted."""
_MOST_WORDS = 3
"""The most operations that a name lists."""


def kernel_name(ast: UOp, text: str = "") -> str:
    """Return the entry symbol of a kernel: its role, its sizes, and a digest.

    `matmul_512x256x64_ab12cd` multiplies 512 x 64 by 64 x 256. `conv_...` sums products over several ranges.
    `softmax_64x1000_...` and `norm_...` reduce rows and use the results along them. `sum_32x10_of_7_...` adds
    7 values for each of 32 x 10 results. `exp_add_4096_...` has no reduction; its last operation is named
    first. `gather_...` loads at computed indices, `copy_...` moves or converts. `matmul_softmax_matmul_...`
    is a chain. The same kernel has the same name in every process: at most 72 lower-case letters, digits and
    underscores. `text` is the result of `kernel_key`, for callers that have it.
    """
    if ast.arg and ast.src[0].op is Ops.SINK:
        parts = _of_chain(ast)
    else:
        role, sizes, depth = _described(ast)
        parts = [_bounded(role, "_", _MOST_ROLE), _bounded(map(str, sizes), "x", _MOST_SIZES) or "1"]
        parts += ["of", depth] if depth and len(depth) <= _MOST_DEPTH else []
    return "_".join([*parts, hashlib.sha256((text or kernel_key(ast)).encode()).hexdigest()[:_DIGITS]])


def _of_chain(ast: UOp) -> list[str]:
    """Return the words for a chain: the roles of its parts, and the sizes of the last one."""
    described = [_described(part) for part in ast.src]
    roles = [role[0] for role, _, _ in described]
    return [_bounded(roles, "_", _MOST_ROLE), _bounded(map(str, described[-1][1]), "x", _MOST_SIZES)]


def _described(ast: UOp) -> tuple[list[str], list[int], str]:
    """Return the role of a kernel, its sizes, and the number of values of a plain reduction, else ""."""
    nodes = postorder((ast,))
    reduces = [node for node in nodes if node.op is Ops.REDUCE]
    inner = {number for node in reduces for number in node.arg[1]}
    ranges = {node.arg[0]: node.arg[1] for node in nodes if node.op is Ops.RANGE}
    outer = [ranges[number] for number in sorted(ranges) if number not in inner]
    role, sizes = _role(nodes, reduces, ranges, outer)
    depth = ""
    if reduces and role[0] in _KINDS.values():
        depth = str(prod(ranges[number] for number in reduces[-1].arg[1]))
    return role, sizes, depth


def _role(
    nodes: Sequence[UOp], reduces: Sequence[UOp], ranges: dict[int, int], outer: list[int]
) -> tuple[list[str], list[int]]:
    """Return the words of a kernel's role, and its sizes."""
    found = {node.op for node in nodes}
    kinds = {node.arg[0] for node in reduces}
    for node in reduces:
        if product := _product(node):
            return _matrix(product, node.arg[1], ranges, outer)
    if {Ops.MAX, Ops.ADD} <= kinds and Ops.EXP in found:
        return ["logsoftmax" if Ops.LOG in found else "softmax"], outer
    if len(reduces) > 1 and kinds == {Ops.ADD} and Ops.SQRT in found:
        return ["norm"], outer
    if kinds:
        return sorted(_KINDS[kind] for kind in kinds), outer
    words = list(dict.fromkeys(_WORDS[node.op] for node in reversed(nodes) if node.op in _WORDS))
    if Ops.INDEXOF in found:
        words.insert(0, "gather")
    return words[:_MOST_WORDS] or ["copy" if Ops.LOAD in found else "fill"], outer


def _product(reduce: UOp) -> tuple[set[int], set[int]] | None:
    """Return the ranges of each factor of a sum of products; None for any other reduction.

    A sum of squares is no sum of products here.
    """
    value = reduce.src[0]
    while value.op is Ops.CAST:
        value = value.src[0]
    if reduce.arg[0] is not Ops.ADD or value.op is not Ops.MUL:
        return None
    a, b = ({p.arg[0] for p in postorder((factor,)) if p.op is Ops.RANGE} for factor in value.src)
    over = set(reduce.arg[1])
    return (a, b) if a & over and b & over and value.src[0] is not value.src[1] else None


def _matrix(
    product: tuple[set[int], set[int]], over: Iterable[int], ranges: dict[int, int], outer: list[int]
) -> tuple[list[str], list[int]]:
    """Return role and sizes of a sum of products: batch, rows, columns and depth of a matrix product."""
    a, b = product
    depth = set(over)
    if len(depth) > 1:
        return ["conv"], [*outer, *[ranges[number] for number in sorted(depth)]]
    rows, columns, batch = sorted(a - b - depth), sorted(b - a - depth), sorted((a & b) - depth)
    sizes = [ranges[number] for number in (*batch, *rows, *columns, *sorted(depth))]
    if not rows and not columns:
        return ["dot"], sizes
    return ["matmul" if rows and columns else "matvec"], sizes


def _bounded(words: Iterable[str], between: str, most: int) -> str:
    """Join words until the next one would make the text longer than `most`."""
    text = ""
    for word in words:
        longer = f"{text}{between}{word}" if text else word
        if len(longer) > most:
            return text
        text = longer
    return text


_KINDS = {Ops.ADD: "sum", Ops.MUL: "prod", Ops.MAX: "max", Ops.MIN: "min"}
_WORDS = {op: op.lower() for op in ELEMENTWISE - CASTS}
"""The word in a name for each operation that has one."""
