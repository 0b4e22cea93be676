"""Record what functions of `torch.nn.functional` return.

    python -m tests.oracles.functions      # in an environment with PyTorch

Writes `tests/frontend/data/functions.json`: for each expression of `FUNCTIONS` the shape and the values of
its result. `t(2, 3)` is a float tensor of that shape, another one for each `n`; `p` the same within 0..1.

Not here: the comparison (`tests/frontend/test_functions_of_pytorch.py`), layers (`layers`).
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tests.oracles.layers import given
from tools.arguments import command, pytorch, reported

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

OUT: Final = Path(__file__).parents[2] / "tests" / "frontend" / "data" / "functions.json"
FUNCTIONS: Final = """
F.group_norm(t(2, 4, 3), 2)
F.group_norm(t(2, 4, 3), 2, t(4, n=1), t(4, n=2), 1e-3)
F.rms_norm(t(2, 3), (3,), t(3, n=1), 1e-4)
F.rms_norm(t(2, 3), (3,))
F.layer_norm(t(2, 3, 4), (3, 4), t(3, 4, n=1))
F.batch_norm(t(3, 2, 4), t(2, n=1), p(2, n=2), t(2, n=3), t(2, n=4))
F.batch_norm(t(3, 2, 4), None, None, training=True)
F.batch_norm(t(3, 2), t(2, n=1), p(2, n=2), training=True, momentum=0.3)
F.conv_transpose1d(t(1, 2, 4), t(2, 3, 3, n=1), t(3, n=2), 2, 1, 1)
F.conv_transpose3d(t(1, 1, 2, 2, 2), t(1, 2, 2, 2, 2, n=1), stride=2)
F.max_pool1d(t(1, 2, 7), 3, 2)
F.max_pool3d(t(1, 1, 4, 4, 4), 2)
F.avg_pool1d(t(1, 2, 7), 3, 2, 1)
F.avg_pool3d(t(1, 1, 4, 4, 4), 2)
F.adaptive_avg_pool2d(t(1, 2, 5, 4), (2, 3))
F.adaptive_max_pool1d(t(1, 2, 5), 2)
F.cosine_similarity(t(3, 4), t(3, 4, n=1), dim=1)
F.pairwise_distance(t(3, 4), t(3, 4, n=1), p=1)
F.unfold(t(1, 2, 3, 4), 2)
F.fold(t(1, 8, 6), (3, 4), 2)
F.pixel_shuffle(t(1, 4, 2, 3), 2)
F.pixel_unshuffle(t(1, 1, 4, 2), 2)
F.local_response_norm(t(1, 5, 3), 2)
F.embedding(whole(0, 2, 1), t(3, 4))
F.embedding(whole(0, 2, 1), t(3, 4), padding_idx=-1)
F.cross_entropy(t(3, 4), whole(0, 3, 1), p(4))
F.cross_entropy(t(3, 4), whole(0, -100, 1), weight=p(4), reduction='sum')
F.cross_entropy(t(3, 4), whole(0, 2, 1), label_smoothing=0.1)
F.nll_loss(t(3, 4), whole(0, 3, 1), p(4))
F.nll_loss(t(3, 4), whole(0, 3, 1), ignore_index=3, reduction='none')
F.binary_cross_entropy(p(3, 4), p(3, 4, n=1), p(3, 4, n=2))
F.binary_cross_entropy(p(3, 4), p(3, 4, n=1), reduction='sum')
F.binary_cross_entropy_with_logits(t(3, 4), p(3, 4, n=1), p(4, n=2), pos_weight=p(4, n=3))
F.triplet_margin_loss(t(3, 4), t(3, 4, n=1), t(3, 4, n=2))
F.triplet_margin_loss(t(3, 4), t(3, 4, n=1), t(3, 4, n=2), 0.5, 1, swap=True, reduction='none')
F.margin_ranking_loss(t(5), t(5, n=1), whole(1, -1, 1, 1, -1), 0.2)
F.cosine_embedding_loss(t(3, 4), t(3, 4, n=1), whole(1, -1, 1), 0.1)
F.gaussian_nll_loss(t(3, 4), t(3, 4, n=1), p(3, 4, n=2))
F.gaussian_nll_loss(t(3, 4), t(3, 4, n=1), p(3, 4, n=2), full=True, reduction='sum')
F.poisson_nll_loss(t(3, 4), p(3, 4, n=1) * 5, full=True)
F.poisson_nll_loss(p(3, 4), p(3, 4, n=1) * 5, log_input=False)
F.pad(t(2, 3, 4), (1, 2), "reflect")
F.pad(t(2, 3), (1, 2), "constant", 2.0)
F.pad(t(2, 3), (1, 2), value=3.0)
F.mse_loss(t(3), t(3, n=1), False)
F.mse_loss(t(3), t(3, n=1), True, False)
F.mse_loss(t(3), t(3, n=1), weight=p(3))
F.l1_loss(t(3), t(3, n=1), size_average=False)
F.l1_loss(t(3), t(3, n=1), reduction="none", weight=p(3))
F.smooth_l1_loss(t(3), t(3, n=1), None, None, "sum", 0.5)
F.huber_loss(t(3), t(3, n=1), "sum", 0.5)
F.huber_loss(t(3), t(3, n=1), weight=p(3))
F.kl_div(t(3, 4), p(3, 4), None, None, "batchmean", False)
F.kl_div(t(3, 4), t(3, 4, n=1), reduction="batchmean", log_target=True)
F.nll_loss(t(3, 4), whole(0, 3, 1), p(4), True, -100, True, "sum")
F.nll_loss(t(3, 4), whole(0, 3, 1), p(4), False, 1)
F.cross_entropy(t(3, 4), whole(0, 3, 1), None, None, -100, None, "sum", 0.1)
F.binary_cross_entropy(p(3), p(3, n=1), None, False)
F.binary_cross_entropy_with_logits(t(3), p(3), None, True, False)
F.poisson_nll_loss(t(3), p(3), True, True, False, 1e-6, True, "mean")
F.margin_ranking_loss(t(3), t(3, n=1), whole(1, -1, 1), 0.2, False)
F.cosine_embedding_loss(t(3, 4), t(3, 4, n=1), whole(1, -1, 1), 0.1, True, False)
F.triplet_margin_loss(t(3, 4), t(3, 4, n=1), t(3, 4, n=2), 1.0, 2, 1e-6, True, True, False)
F.gaussian_nll_loss(t(3), t(3, n=1), p(3), True, 1e-5, "sum")
F.softplus(t(7) * 3, 2.0, 1.0)
F.softmin(whole(1, 3, 2), 0, dtype=t(1).dtype)
F.conv2d(t(2, 5, 4), t(3, 2, 3, 2, n=1), p(3))
F.conv1d(t(2, 7), t(4, 1, 3, n=1), None, 2, 1, 1, 2)
F.conv_transpose2d(t(2, 3, 4), t(2, 3, 2, 2, n=1), stride=2)
F.interpolate(t(1, 2, 5, 6), scale_factor=1.7, recompute_scale_factor=True)
F.interpolate(t(1, 2, 5, 6), scale_factor=1.7, mode="bilinear", recompute_scale_factor=True)
F.interpolate(t(1, 2, 5, 6), (7, 4), mode="bicubic")
F.interpolate(t(1, 2, 5, 6), (7, 4), mode="bicubic", align_corners=True)
F.interpolate(t(1, 2, 5, 6), scale_factor=(0.6, 1.7), mode="bicubic")
F.interpolate(t(1, 2, 5, 6), (3, 4), mode="area")
F.adaptive_max_pool2d(t(1, 2, 5, 6), (2, 4), True)[0]
F.adaptive_max_pool2d(t(1, 2, 5, 6), (2, 4), return_indices=True)[1]
F.adaptive_max_pool3d(t(2, 3, 4, 5), (2, None, 3), True)[1]
F.adaptive_max_pool1d(t(2, 7), 3, True)[1]
F.avg_pool2d(t(1, 2, 4, 5), 2, ())
F.avg_pool2d(t(1, 2, 5, 6), (3, 2), [1], (1,), True, False, 2)
F.avg_pool3d(t(1, 2, 4, 4, 4), 2, 2, 0, False, True, 3)
F.max_pool2d(t(1, 2, 4, 5), 2, ())
F.embedding(whole(0, 2, 0), t(3, 4), None, 0.5)
F.embedding(whole(0, 2, 0), t(3, 4), -1, 0.5, 1.0, True, True)
F.pixel_shuffle(t(1, 0, 2, 2), 1)
F.pixel_unshuffle(t(1, 1, 0, 2), 1)
F.hinge_embedding_loss(t(5), whole(1, -1, 1, 0, -1), 0.5)
F.soft_margin_loss(t(5), whole(1, -1, 1, 1, -1), reduction="none")
F.multilabel_soft_margin_loss(t(3, 4), p(3, 4, n=1), p(4, n=2))
F.multilabel_soft_margin_loss(t(4), p(4, n=1), reduction="none")
F.multi_margin_loss(t(3, 4), whole(0, 3, 1))
F.multi_margin_loss(t(3, 4), whole(0, 3, 1), 2, 0.5, p(4), reduction="none")
F.multi_margin_loss(t(4), whole(2)[0])
F.channel_shuffle(t(2, 6, 2, 1), 3)
""".strip().splitlines()


def names(make: Callable[[Any], Any]) -> dict[str, Callable[..., Any]]:
    """Return what the expressions call to make tensors, given how an array becomes one."""

    def t(*shape: int, n: int = 0) -> Any:
        return make(given(shape, n))

    def p(*shape: int, n: int = 0) -> Any:
        return make((given(shape, n) * 0.45 + 0.5).astype(np.float32))

    def whole(*numbers: int) -> Any:
        return make(np.array(numbers, np.int64))

    return {"t": t, "p": p, "whole": whole}


def main(argv: Sequence[str] | None = None) -> int:
    """Write the records; return 0."""
    command("tests.oracles.functions", __doc__).parse_args(argv)
    torch = pytorch()
    space = {"F": importlib.import_module("torch.nn.functional"), **names(torch.tensor)}
    found = {}
    for text in FUNCTIONS:
        result = eval(text, space)  # noqa: S307 - this tool's own text
        values = [float(f"{v:.6g}") for v in result.reshape(-1).tolist()]
        found[text] = {"shape": list(result.shape), "values": values}
    lines = [f"{json.dumps(text)}: {json.dumps(record)}" for text, record in found.items()]
    OUT.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{len(lines)} functions of PyTorch {torch.__version__} in {OUT}")
    return 0


if __name__ == "__main__":
    sys.exit(reported(main))
