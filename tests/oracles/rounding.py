"""Record how far PyTorch's sixteen-bit results are from those of float64, for functions of several steps.

    python -m tests.oracles.rounding      # in an environment with PyTorch

A function of sixteen-bit floats computes in float32 and rounds once. Its inputs are rounded to the dtype
first, so that their errors do not count. `tests/frontend/data/rounding.json` has, for each expression and
dtype, the greatest and the root mean square error.

Not here: the comparison (`tests/frontend/test_rounding_of_functions.py`).
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tools.arguments import command, pytorch, reported

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

OUT: Final = Path(__file__).parents[2] / "tests" / "frontend" / "data" / "rounding.json"
DTYPES: Final = ("bfloat16", "float16")
FUNCTIONS: Final = """
F.scaled_dot_product_attention(t(2, 2, 33, 32), t(2, 2, 70, 32, n=1), t(2, 2, 70, 32, n=2))
F.scaled_dot_product_attention(t(2, 2, 64, 16), t(2, 2, 64, 16, n=1), t(2, 2, 64, 16, n=2), is_causal=True)
F.scaled_dot_product_attention(t(2, 2, 16, 16), t(2, 2, 40, 16, n=1), t(2, 2, 40, 16, n=2), t(16, 40, n=3))
F.scaled_dot_product_attention(t(1, 2, 9, 32) * 0.3, t(1, 2, 40, 32, n=1), t(1, 2, 40, 32, n=2))
F.linear(t(20, 96), t(24, 96, n=1), t(24, n=2))
F.conv2d(t(2, 8, 9, 9), t(6, 8, 3, 3, n=1), t(6, n=2), padding=1)
F.conv1d(t(2, 8, 30), t(6, 8, 3, n=1), t(6, n=2))
F.conv_transpose2d(t(2, 8, 5, 5), t(8, 6, 3, 3, n=1), t(6, n=2), stride=2)
F.layer_norm(t(20, 60), (60,), t(60, n=1), t(60, n=2))
F.group_norm(t(3, 8, 30), 4, t(8, n=1), t(8, n=2))
F.rms_norm(t(20, 60), (60,), t(60, n=1))
F.batch_norm(t(9, 8, 20), t(8, n=1), p(8), t(8, n=2), t(8, n=3))
F.batch_norm(t(9, 8, 20), None, None, t(8, n=2), t(8, n=3), training=True)
F.local_response_norm(t(3, 8, 30), 3)
F.normalize(t(30, 20))
F.cosine_similarity(t(100, 20), t(100, 20, n=1))
F.pairwise_distance(t(100, 20), t(100, 20, n=1))
F.gelu(t(900))
F.gelu(t(900), approximate='tanh')
F.silu(t(900))
F.mish(t(900))
F.softplus(t(900))
F.elu(t(900))
F.selu(t(900))
F.celu(t(900))
F.logsigmoid(t(900))
F.hardswish(t(900))
F.hardsigmoid(t(900))
F.softsign(t(900))
F.tanhshrink(t(900))
F.leaky_relu(t(900), 0.3)
F.prelu(t(3, 5, 60), t(5, n=1))
F.glu(t(30, 40))
F.softmax(t(30, 40), -1)
F.log_softmax(t(30, 40), -1)
F.avg_pool2d(t(2, 3, 12, 12), 3, 2, 1)
F.adaptive_avg_pool2d(t(2, 3, 12, 12), 5)
F.interpolate(t(2, 3, 9, 9), scale_factor=2, mode='bilinear')
F.cross_entropy(t(30, 40), whole(30, 40), reduction='none')
F.cross_entropy(t(30, 40), whole(30, 40), label_smoothing=0.1, reduction='none')
F.binary_cross_entropy_with_logits(t(900), p(900), reduction='none')
F.binary_cross_entropy(p(900), p(900, n=1), reduction='none')
F.mse_loss(t(900), t(900, n=1), reduction='none')
F.mse_loss(t(900), t(900, n=1))
F.l1_loss(t(900), t(900, n=1))
F.smooth_l1_loss(t(900), t(900, n=1), reduction='none')
F.huber_loss(t(900), t(900, n=1), reduction='none', delta=0.7)
F.kl_div(t(900), p(900), reduction='none')
F.gaussian_nll_loss(t(900), t(900, n=1), p(900), reduction='none')
F.poisson_nll_loss(t(900), p(900), reduction='none')
F.margin_ranking_loss(t(900), t(900, n=1), t(900, n=2).sign(), 0.2, reduction='none')
F.cosine_embedding_loss(t(100, 20), t(100, 20, n=1), t(100, n=2).sign(), reduction='none')
F.triplet_margin_loss(t(100, 20), t(100, 20, n=1), t(100, 20, n=2), reduction='none')
t(4, 12, 9).baddbmm(t(4, 12, 50, n=1), t(4, 50, 9, n=2), beta=0.7, alpha=1.3)
t(12, 9).addbmm(t(4, 12, 50, n=1), t(4, 50, 9, n=2), beta=0.7, alpha=1.3)
t(12, 9).addmm(t(12, 50, n=1), t(50, 9, n=2), beta=0.7, alpha=1.3)
t(12).addmv(t(12, 50, n=1), t(50, n=2), beta=0.7, alpha=1.3)
t(12, 9).addr(t(12, n=1), t(9, n=2), beta=0.7, alpha=1.3)
t(900).addcmul(t(900, n=1), t(900, n=2), value=0.7)
t(900).addcdiv(t(900, n=1), p(900, n=2), value=0.7)
t(900).lerp(t(900, n=1), 0.3)
t(30, 40).var(1)
t(30, 40).std(1)
t(30, 40).logsumexp(1)
t(30, 40).norm(2, 1)
t(30, 40).norm(3, 1)
t(30, 40).dist(t(30, 40, n=1))
t(30, 40).cumsum(1)
t(30, 40).logcumsumexp(1)
p(30, 40).cumprod(1)
t(30, 40).renorm(2, 0, 1.0)
t(12, 40).cov()
t(12, 40).corrcoef()
t(30, 3).cross(t(30, 3, n=1), 1)
t(900).hypot(t(900, n=1))
t(900).logaddexp(t(900, n=1))
t(900).xlogy(p(900))
t(900).sinc()
p(900).logit()
p(900).rsqrt()
p(900).pow(2.5)
t(900).tan()
p(900).log10()
t(900).rad2deg()
t(900).deg2rad()
t(900).logaddexp2(t(900, n=1))
t(900) * 0.3
t(900) / 0.3
0.3 / p(900)
t(900) + 0.3
0.3 - t(900)
t(900) // 0.3
t(900).add(t(900, n=1), alpha=0.3)
t(900).sub(t(900, n=1), alpha=0.3)
t(900).div(0.3, rounding_mode='trunc')
t(900).xlogy(0.3)
F.softshrink(t(900), 0.3)
""".strip().splitlines()
"""Evaluated with `F` and what `names` returns."""


def names(make: Callable[[Any], Any]) -> dict[str, Callable[..., Any]]:
    """Return what the expressions call to make tensors, given how an array of floats becomes one."""

    def t(*shape: int, n: int = 0) -> Any:
        at = np.arange(int(np.prod(shape)), dtype=np.float64)
        return make((np.sin(at * at * 0.618 + at * 0.1 + n) * 1.5).reshape(shape))

    def p(*shape: int, n: int = 0) -> Any:
        at = np.arange(int(np.prod(shape)), dtype=np.float64)
        return make((np.sin(at * at * 0.437 + at * 0.3 + n) * 0.45 + 0.5).reshape(shape))

    def whole(count: int, below: int) -> Any:
        return make(np.arange(count) * 7 % below)

    return {"t": t, "p": p, "whole": whole}


def errors(found: Any, exact: Any) -> list[float]:
    """Return the greatest and the root mean square difference."""
    off = np.asarray(found, np.float64) - exact
    return [float(f"{v:.4g}") for v in (np.abs(off).max(), np.sqrt((off * off).mean()))]


def main(argv: Sequence[str] | None = None) -> int:
    """Write the records; return 0."""
    command("tests.oracles.rounding", __doc__).parse_args(argv)
    torch = pytorch()
    functional = importlib.import_module("torch.nn.functional")
    found: dict[str, dict[str, list[float]]] = {}
    for text in FUNCTIONS:
        found[text] = {}
        for dtype in DTYPES:
            kind = getattr(torch, dtype)

            def make(a: Any, *, wide: bool, kind: Any = kind) -> Any:
                t = torch.tensor(a)
                return t.to(kind).to(torch.float64 if wide else kind) if t.is_floating_point() else t

            def value(*, wide: bool, text: str = text, make: Any = make) -> Any:
                space = {"F": functional, **names(lambda a: make(a, wide=wide))}
                return eval(text, space).double().numpy()  # noqa: S307 - this tool's own text

            found[text][dtype] = errors(value(wide=False), value(wide=True))
    lines = [f"{json.dumps(text)}: {json.dumps(record)}" for text, record in found.items()]
    OUT.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{len(lines)} functions of PyTorch {torch.__version__} in {OUT}")
    return 0


if __name__ == "__main__":
    sys.exit(reported(main))
