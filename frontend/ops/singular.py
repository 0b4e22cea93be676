"""The steps of decompositions, and the checks that matrices are regular or positive definite.

A check computes one bool on the device, waits for it, and raises `LinAlgError`, as PyTorch. Values cannot be
read inside traced methods, gradients and captured functions: there nothing is checked.

Not here: the decompositions (`decompositions`). Next: `linalg`, products of matrices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from frontend.evaluation.base import T, TensorBase
from frontend.evaluation.history import realize_for_reading
from frontend.evaluation.plan import CAPTURE
from frontend.evaluation.printing import described
from frontend.evaluation.realize import realize_one
from frontend.evaluation.storage import Leaf
from frontend.ops.elementwise import eq, gt
from frontend.ops.linalg import diagonal
from frontend.ops.reductions import all as every
from frontend.ops.reductions import any as some
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable


class LinAlgError(UsageError):
    """A matrix is singular, or not positive definite, where a function needs one that is."""


def refuse_singular(x: TensorBase, pivots: TensorBase, what: str) -> None:
    """Raise `LinAlgError` if a pivot of the Gaussian elimination of matrices x is 0."""
    if _is_readable(pivots) and some(eq(pivots, 0.0)).item():
        raise LinAlgError(f"{what}: wanted regular matrices, saw a singular one in {described(x)}")


def refuse_indefinite(root: TensorBase, what: str) -> None:
    """Raise `LinAlgError` if a diagonal element of a Cholesky factor is not above 0."""
    if _is_readable(root) and not every(gt(diagonal(root, 0, -2, -1), 0.0)).item():
        raise LinAlgError(
            f"{what}: wanted positive definite matrices, saw one that is not, of the shape {root.expr.shape}"
        )


def _is_readable(x: TensorBase) -> bool:
    """Return whether the values of x can be read; compute x then."""
    if CAPTURE.now is not None or 0 in x.expr.shape or any(leaf.__class__ is not Leaf for leaf in x.leaves):
        return False
    realize_for_reading(x)
    return True


def stepped(x: T, step: Callable[..., T], count: int, *settings: int) -> T:
    """Return x after `count` times `step(x, *settings)`, a method without gradients with a result in memory.

    Each step is computed before the next is stated, by the same kernels, also while a function is captured,
    but not inside traces.
    """
    concrete = all(leaf.__class__ is Leaf for leaf in x.leaves)
    for _ in range(count):
        if concrete:
            realize_one(x)
        x = step(x, *settings)
    if concrete:
        realize_one(x)
    return x
