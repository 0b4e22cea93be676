"""Special functions under the names of `torch.special`, of each element unless they take an axis.

Most are functions of the module `frontend` under another name, and raise as these. Not here: the functions
themselves (`frontend.ops.special`). Next: `frontend.functions`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from frontend import functions
from frontend.arguments.aliases import named_at
from frontend.arguments.conversion import shown
from frontend.evaluation.constants import ruled
from frontend.ops.elementwise import agree
from frontend.ops.functions import xlogy
from frontend.ops.special import bessel
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
    return ruled("entr", (x < 0).where(-math.inf, 0.0 - xlogy(x, x)), x)


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


def _bessel(name: str, order: int, text: str) -> Callable[[Tensor], Tensor]:
    def function(x: Tensor) -> Tensor:
        found = bessel(x.double(), order, scaled=name[-1] == "e")
        return found.cast(x.dtype if x.dtype.is_float else "float32")

    function.__name__, function.__doc__ = name, f"Return the modified Bessel function of order {order}{text}."
    return function


i0e, i1e, i1 = _bessel("i0e", 0, ", scaled"), _bessel("i1e", 1, ", scaled"), _bessel("i1", 1, "")


def erfcx(x: Tensor) -> Tensor:
    """Return exp(x**2) erfc(x), which does not vanish for great x."""
    wide = x.double()
    far, near = wide.maximum(3.0), wide.minimum(3.0)
    tail = far
    for n in range(40, 0, -1):  # the continued fraction of erfc
        tail = far + n / 2 / tail
    found = (wide > 3).where(1 / (tail * math.sqrt(math.pi)), near.square().exp() * near.erfc())
    return found.cast(x.dtype if x.dtype.is_float else "float32")


def log_ndtr(x: Tensor) -> Tensor:
    """Return the logarithm of `ndtr`, also where that vanishes."""
    wide = x.double()
    low, high = wide.minimum(-1.0) * -math.sqrt(0.5), wide.maximum(-1.0) * math.sqrt(0.5)
    found = (wide < -1).where((erfcx(low) / 2).log() - low * low, (high.erfc() / -2).log1p())
    return found.cast(x.dtype if x.dtype.is_float else "float32")


globals().update({name: named_at(__name__, name, functions.find(of)) for name, of in RENAMED.items()})


def __dir__() -> list[str]:
    return sorted({*RENAMED, "entr", "erfcx", "i0e", "i1", "i1e", "log_ndtr", "ndtr", "ndtri", "xlog1py"})
