"""All recorded cases of differentiable methods, and the methods without a gradient.

Not here: recording (`oracle`), comparing (`compare`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from frontend import Tensor
from frontend.ops import functions
from tests.oracles.expressions import EXPRESSIONS
from tests.oracles.gradients import movement, networks, numbers, pairs, reductions, stores

if TYPE_CHECKING:
    from tests.oracles.gradients.case import Case

CASES: Final[tuple[Case, ...]] = (
    *numbers.CASES,
    *pairs.CASES,
    *reductions.CASES,
    *movement.CASES,
    *networks.CASES,
    *stores.CASES,
)

_ABOUT: Final = """
    shape dtype device ndim is_realized numel nbytes size is_floating_point __len__ __repr__ __hash__ __init__
    realize data numpy tolist item __iter__ __contains__ __bool__ __float__ __int__ __array__
    operand parameter manual_seed allclose train no_grad __index__ __format__ __array_ufunc__ __pos__
    requires_grad requires_grad_ retain_grad grad gradient backward detach __copy__ __deepcopy__ __reduce__
    is_cpu is_cuda cuda
"""
_MADE: Final = """
    full zeros ones empty arange linspace eye rand randn randint uniform normal scaled_uniform glorot_uniform
    kaiming_uniform kaiming_normal from_url new_empty full_like zeros_like ones_like rand_like randn_like
"""
_INTEGERS: Final = """
    bitwise_and bitwise_or bitwise_xor bitwise_not lshift rshift __rlshift__ __rrshift__
    __iand__ __ior__ __ixor__ __ilshift__ __irshift__ lt gt le ge eq ne isclose any all
    argmax argmin argsort count_nonzero one_hot bitcast int long bool
"""
_ANSWERED: Final = {name for text in EXPRESSIONS for name in re.findall(r"\.([a-zA-Z]\w*)", text)} - {
    c.method for c in CASES
}
NO_GRADIENT: Final[dict[str, str]] = {
    **dict.fromkeys(_ABOUT.split(), "describes a tensor, its contents or its gradients"),
    **dict.fromkeys(_MADE.split(), "creates a tensor without differentiable inputs"),
    **dict.fromkeys([row.method.__name__ for row in functions.ROWS if row.predicate], "returns bools"),
    **dict.fromkeys(_INTEGERS.split(), "takes or returns integers, bools or bits"),
    **dict.fromkeys(
        [n for n in sorted(_ANSWERED) if getattr(Tensor, n, False) is not False],  # False: no method
        "is compared with PyTorch in `tests.oracles`",
    ),
}
"""The methods that are not recorded, each with the reason."""
