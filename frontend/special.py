"""Special functions under the names of `torch.special`, of each element unless they take an axis.

Most are functions of the module `frontend` under another name, and raise as these. Not here: the functions
themselves (`frontend.ops.special`). Next: `frontend.functions`.
"""

from __future__ import annotations

import math
from typing import Any, Final

from frontend import functions
from frontend.arguments.aliases import named_at
from frontend.arguments.conversion import shown
from frontend.evaluation.constants import ruled
from frontend.ops.elementwise import agree
from frontend.ops.functions import xlogy
from frontend.tensor import Tensor
from hcq.errors import UsageTypeError

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
    """Return the number x with `ndtr(x) == p`; inf for 1, -inf for 0, NaN outside of 0 to 1.

    Newton's method for the logarithm in the tails, from formula 26.2.23 of Abramowitz and Stegun.
    """
    x = p.double()
    share = x.minimum(1 - x)
    outer = (share > 0) & (share < 0.1)
    q = outer.where(share, 0.1)
    t = (q.log() * -2).sqrt()
    z = t - ((0.010328 * t + 0.802853) * t + 2.515517) / (((0.001308 * t + 0.189269) * t + 1.432788) * t + 1)
    for _ in range(3):
        beyond = ndtr(-z)
        z = z + (beyond / q).log() * beyond * (z * z / 2).exp() * math.sqrt(2 * math.pi)
    found = outer.where((x < 0.5).where(-z, z), (2 * x - 1).erfinv() * math.sqrt(2))
    return ruled("ndtri", found.cast(p.dtype if p.dtype.is_float else "float32"), p)


def xlog1py(x: Any, y: Any) -> Tensor:
    """Return x log(1 + y), 0 where x is 0 unless y is NaN. Raises `UsageTypeError` for two numbers."""
    if not isinstance(x, Tensor) and not isinstance(y, Tensor):
        raise UsageTypeError(f"xlog1py: wanted a tensor, saw {shown(x)} and {shown(y)}")
    x = x if isinstance(x, Tensor) else Tensor.full((), x, device=y.device)
    a, b = agree("xlog1py", x, y, floats=True)
    found: Tensor = ruled("xlog1py", a * ((a == 0) & ~b.isnan()).where(0.0, b).log1p(), a, b)
    return found


globals().update({name: named_at(__name__, name, functions.find(of)) for name, of in RENAMED.items()})


def __dir__() -> list[str]:
    return sorted({*RENAMED, "entr", "ndtr", "ndtri", "xlog1py"})
