"""The Python operators of tensors.

`a + b` is `a.add(b)`. `a += b` assigns the sum to `a` in place. Comparisons are elementwise, and hashing is
by identity. Only `Tensor` inherits from this class.

Not here: the methods behind the operators (`frontend.ops`, listed in `methods`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from frontend.assignment import in_place
from frontend.later import AT_ONCE, all_later, later
from frontend.ops import division, elementwise, functions, indexing
from frontend.tensor_base import T, TensorBase
from frontend.views import BACK

if AT_ONCE:
    from frontend import ufuncs
    from frontend.ops import linalg, powers, writing
else:
    globals().update(all_later("frontend.ops", "linalg powers writing"))
    ufuncs = later("frontend.ufuncs")


def _put(parent: T, value: T, key: Any) -> T:
    """Return what a tensor becomes when its view of a key is written."""
    found: T = writing.written(parent, key, value)
    return found


BACK[indexing.item] = _put


class Operators(TensorBase):
    """The operators of `Tensor`."""

    __slots__ = ()

    __add__ = __radd__ = elementwise.add
    __sub__ = elementwise.sub
    __rsub__ = elementwise.rsub
    __mul__ = __rmul__ = elementwise.mul
    __truediv__ = division.true_div
    __rtruediv__ = division.rdiv
    __floordiv__ = division.floordiv
    __rfloordiv__ = division.rfloordiv
    __mod__ = division.mod
    __rmod__ = division.rmod
    __pow__ = powers.pow
    __rpow__ = powers.rpow
    __matmul__ = linalg.matmul
    __rmatmul__ = linalg.rmatmul
    __and__ = __rand__ = elementwise.bitwise_and
    __or__ = __ror__ = elementwise.bitwise_or
    __xor__ = __rxor__ = elementwise.bitwise_xor
    __lshift__ = elementwise.lshift
    __rlshift__ = elementwise.rlshift
    __rshift__ = elementwise.rshift
    __rrshift__ = elementwise.rrshift
    __neg__ = elementwise.neg
    __pos__ = elementwise.pos
    __invert__ = elementwise.invert
    __abs__ = functions.abs
    __lt__ = elementwise.lt
    __gt__ = elementwise.gt
    __le__ = elementwise.le
    __ge__ = elementwise.ge
    if TYPE_CHECKING:  # for an alias type checkers would use the bool result of `object`

        def __eq__(self, other: object) -> Self: ...  # type: ignore[override]  # elementwise
        def __ne__(self, other: object) -> Self: ...  # type: ignore[override]  # as above
    else:
        __eq__ = elementwise.eq
        __ne__ = elementwise.ne
    __hash__ = object.__hash__
    __getitem__ = indexing.getitem
    __setitem__ = writing.setitem
    __array_priority__ = 100.0
    __array_ufunc__ = ufuncs.applied

    __iadd__ = in_place(elementwise.add)
    __isub__ = in_place(elementwise.sub)
    __imul__ = in_place(elementwise.mul)
    __itruediv__ = in_place(division.true_div)
    __ifloordiv__ = in_place(division.floordiv)
    __imod__ = in_place(division.mod)
    __ipow__ = in_place(powers.pow)
    __iand__ = in_place(elementwise.bitwise_and)
    __ior__ = in_place(elementwise.bitwise_or)
    __ixor__ = in_place(elementwise.bitwise_xor)
    __ilshift__ = in_place(elementwise.lshift)
    __irshift__ = in_place(elementwise.rshift)
    __imatmul__ = in_place(linalg.matmul)
