"""Special functions under the names of `torch.special`, of each element unless they take an axis.

Most are functions of the module `frontend` under another name, and raise as these. Not here: the functions
themselves (`frontend.ops.special`). Next: `frontend.functions`.
"""

from __future__ import annotations

import math
from typing import Final

from frontend import functions
from frontend.evaluation.constants import ruled
from frontend.ops.elementwise import agree
from frontend.ops.functions import xlogy
from frontend.tensor import Tensor

RENAMED: Final = {
    "expit": "sigmoid", "gammaln": "lgamma", "multigammaln": "mvlgamma", "psi": "digamma",
    **{
        name: name
        for name in (
            "digamma", "erf", "erfc", "erfinv", "exp2", "expm1", "i0", "log1p", "log_softmax", "logit",
            "logsumexp", "polygamma", "round", "sinc", "softmax", "xlogy",
        )
    },
}  # fmt: skip
"""Name of `torch.special` -> function of the module `frontend`."""


def entr(x: Tensor) -> Tensor:
    """Return -x log(x), 0 where x is 0, -inf where it is negative."""
    x = x if x.expr.dtype.is_float else x.float()
    return ruled("entr", (x < 0).where(-math.inf, -xlogy(x, x)), x)


def ndtr(x: Tensor) -> Tensor:
    """Return the probability that a number of the normal distribution is at most x."""
    return (x * -math.sqrt(0.5)).erfc() / 2


def ndtri(p: Tensor) -> Tensor:
    """Return the number x with `ndtr(x) == p`; inf for 1, -inf for 0, NaN outside of 0 to 1."""
    return (2 * p - 1).erfinv() * math.sqrt(2)


def xlog1py(x: Tensor, y: Tensor) -> Tensor:
    """Return x log(1 + y), 0 where x is 0 unless y is NaN."""
    x = x if isinstance(x, Tensor) else Tensor.full((), x, device=y.device)
    a, b = agree("xlog1py", x, y, floats=True)
    return ruled("xlog1py", a * ((a == 0) & (b <= -1)).where(0.0, b).log1p(), a, b)


globals().update({name: functions.find(function) for name, function in RENAMED.items()})


def __dir__() -> list[str]:
    return sorted({*RENAMED, "entr", "ndtr", "ndtri", "xlog1py"})
