"""Record PyTorch's values and gradients of the cases of `tests.oracles.gradients`, as test data.

    python -m tests.oracles.gradients.oracle

Run it by hand in an environment with PyTorch. It writes `tests/frontend/data/gradients.jsonl`, one line for
each case and dtype. The gradient of the result is 1 for elementwise cases, else 1, 1.5, 2, 2.5, 3, repeated.

PyTorch loses digits in narrow dtypes. Where its float64 result, rounded, differs, that result is recorded
under "closer", and either of the two is accepted.

Not here: the comparison (`compare`).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.oracles.gradients.cases import CASES
from tools.arguments import command, pytorch, reported

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.oracles.gradients.case import Case

OUT = Path(__file__).parents[3] / "tests" / "frontend" / "data" / "gradients.jsonl"
TILES = 64
"""Number of repetitions of elementwise inputs, more than a SIMD vector has."""


def _text(torch: Any, x: Any) -> list[str]:
    """Return the numbers of a tensor as their shortest exact texts."""
    if x.dtype == torch.float64:
        return [repr(v) for v in x.reshape(-1).tolist()]
    return [str(v) for v in x.to(torch.float32).reshape(-1).numpy()]


def _tensors(torch: Any, case: Case, dtype: str, wide: str) -> list[Any]:
    """Return the inputs, rounded to `dtype`, in the dtype `wide`."""
    found = []
    for data in case.inputs(dtype):
        x = torch.tensor(data)
        if x.is_floating_point():
            x = torch.tensor(data, dtype=torch.float64).to(getattr(torch, dtype)).to(getattr(torch, wide))
            x = torch.stack([x] * TILES, -1) if case.tiled else x
            x.requires_grad_()
        found.append(x)
    return found


def _seed(torch: Any, out: Any, case: Case) -> Any:
    if case.tiled:
        return torch.ones_like(out)
    return (1 + torch.arange(out.numel()).reshape(out.shape) % 5 / 2).to(out.dtype)


def _results(torch: Any, case: Case, dtype: str, wide: str) -> tuple[list[Any], list[Any]]:
    """Return the results, and the gradients of the float inputs (None for an unused input)."""
    inputs = _tensors(torch, case, dtype, wide)
    wanted = [x for x in inputs if x.requires_grad]
    result = case.theirs(torch, *inputs)
    outs = result if isinstance(result, list) else [result]
    grads = torch.autograd.grad(outs, wanted, [_seed(torch, o, case) for o in outs], allow_unused=True)
    return [_first(o.detach(), case) for o in outs], [None if g is None else _first(g, case) for g in grads]


def _first(x: Any, case: Case) -> Any:
    return x[..., 0] if case.tiled else x


def _closer(torch: Any, near: Any, wide: Any) -> dict[str, str]:
    """Return, by index, the rounded float64 results that differ from those of the dtype."""
    if near is None:
        return {}
    a, b = _text(torch, near), _text(torch, wide.to(near.dtype))
    return {str(i): y for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y and float(x) != float(y)}


def record(torch: Any, case: Case, dtype: str) -> dict[str, Any]:
    """Return the record of one case."""
    outs, grads = _results(torch, case, dtype, dtype)
    found: dict[str, Any] = {
        "case": case.name,
        "dtype": dtype,
        "results": [str(o.dtype).removeprefix("torch.") for o in outs],
        "values": [_text(torch, o) for o in outs],
        "gradients": [None if g is None else _text(torch, g) for g in grads],
    }
    if dtype != "float64":
        wide_outs, wide_grads = _results(torch, case, dtype, "float64")
        found["closer values"] = [_closer(torch, a, b) for a, b in zip(outs, wide_outs, strict=True)]
        found["closer gradients"] = [_closer(torch, a, b) for a, b in zip(grads, wide_grads, strict=True)]
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Write the records; return 0."""
    command("tests.oracles.gradients.oracle", __doc__).parse_args(argv)
    torch = pytorch()
    lines = []
    for case in CASES:
        for dtype in case.dtypes:
            try:
                lines.append(json.dumps(record(torch, case, dtype)))
            except Exception as error:
                raise SystemExit(f"{case.name} {dtype}: {error}") from error
    OUT.write_text("\n".join(lines) + "\n")
    print(f"{len(lines)} records of PyTorch {torch.__version__} in {OUT}")
    return 0


if __name__ == "__main__":
    sys.exit(reported(main))
