"""All recorded cases of differentiable methods, and the methods without a gradient.

Not here: recording (`oracle`), comparing (`compare`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from frontend import Tensor
from frontend.methods import MAKER, METHODS, SIZED_MAKER
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
    operand parameter manual_seed allclose train no_grad __index__ __format__ __pos__
    requires_grad requires_grad_ retain_grad grad gradient backward detach __copy__ __deepcopy__ __reduce__
    is_cpu is_cuda is_leaf tobytes __dir__ register_hook register_post_accumulate_grad_hook grad_fn
"""
_ANSWERED: Final = {name for text in EXPRESSIONS for name in re.findall(r"\.([a-zA-Z]\w*)", text)} - {
    c.method for c in CASES
}
NO_GRADIENT: Final[dict[str, str]] = {
    **dict.fromkeys(_ABOUT.split(), "describes a tensor, its contents or its gradients"),
    **dict.fromkeys(
        ("shard", "shard_", "replicate", "replicate_"),
        "is no method of PyTorch: tests/frontend/test_many_devices.py has its gradients",
    ),
    **{
        name: "is made of no tensor, or has values without a slope"
        for row in METHODS
        if row.kind in {MAKER, SIZED_MAKER} or not row.differentiable
        for name in row.plain + row.changing
    },
    **dict.fromkeys(
        # False: no method; of addresses another class is the home
        [n for n in sorted(_ANSWERED) if getattr(Tensor, n, False) is not False and "data_ptr" not in n],
        "is compared with PyTorch in `tests.oracles`",
    ),
}
"""The methods that are not recorded, each with the reason."""
