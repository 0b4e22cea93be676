"""Names of kernels: what faults, traces and profiles call them. A name says nothing that the AST does not."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from compiler.ops import Ops
from compiler.text import kernel_key, postorder

if TYPE_CHECKING:
    from compiler.uop import UOp

_DIGITS = 6
"""Hexadecimal digits of the key's digest: kernels of one shape are told apart."""


def kernel_name(ast: UOp) -> str:
    """Return the entry symbol of a kernel: what it does, over which output sizes, and a digest.

    `sum_32x10_ab12cd` adds up into 32 x 10 results, `map_4096_...` only maps, `gather_...` reads at computed
    places.
    """
    nodes = postorder((ast,))
    reduces = [node for node in nodes if node.op is Ops.REDUCE]
    inner = {number for node in reduces for number in node.arg[1]}
    sizes = [str(node.arg[1]) for node in nodes if node.op is Ops.RANGE and node.arg[0] not in inner]
    kinds = sorted({_KINDS[node.arg[0]] for node in reduces})
    if not kinds:
        kinds = ["gather" if any(node.op is Ops.INDEXOF for node in nodes) else "map"]
    digest = hashlib.sha256(kernel_key(ast).encode()).hexdigest()[:_DIGITS]
    return "_".join([*kinds, "x".join(sizes) or "1", digest])


_KINDS = {Ops.ADD: "sum", Ops.MUL: "prod", Ops.MAX: "max", Ops.MIN: "min"}
