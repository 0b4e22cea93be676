"""Record PyTorch's values and gradients of the cases of `tests.oracles.gradients`, as test data.

    python -m tests.oracles.gradients.oracle [--all] [CASE ...]

Run it by hand in an environment with PyTorch. It adds lines to `tests/frontend/data/gradients.jsonl`, one for
each elementwise function of the table of methods that it lacks, and for each case of the command line, which
replaces one of its name; --all records every line again. A case is JSON with the fields of `cases.Case`:

    '{"case": "clip low", "inputs": "points", "ours": "x.clip(1)", "theirs": "x.clamp(1)", "tiled": true}'

The gradient of the result is 1 for elementwise cases, else 1, 1.5, 2, 2.5, 3, repeated.

PyTorch loses digits in narrow dtypes. Where its float64 result, rounded, differs, that result is recorded
under "closer", and either of the two is accepted.

Not here: the comparison (`compare`).
"""

from __future__ import annotations

import json
import sys
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any

from frontend.methods import METHODS
from tests.oracles.gradients.cases import CASES, DATA, Case, evaluated, read
from tools.arguments import command, pytorch, reported

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

TILES = 64
"""Number of repetitions of elementwise inputs, more than a SIMD vector has."""


def _text(torch: Any, x: Any) -> list[str]:
    """Return the numbers of a tensor as their shortest exact texts."""
    if x.dtype == torch.float64:
        return [repr(v) for v in x.reshape(-1).tolist()]
    return [str(v) for v in x.to(torch.float32).reshape(-1).numpy()]


def _tensors(torch: Any, case: Case, dtype: str, wide: str) -> dict[str, Any]:
    """Return the inputs, rounded to `dtype`, in the dtype `wide`."""
    found = {}
    for name, data in case.given(dtype).items():
        x = torch.tensor(data)
        if x.is_floating_point():
            x = torch.tensor(data, dtype=torch.float64).to(getattr(torch, dtype)).to(getattr(torch, wide))
            x = torch.stack([x] * TILES, -1) if case.tiled else x
            x.requires_grad_()
        found[name] = x
    return found


def _seed(torch: Any, out: Any, case: Case) -> Any:
    if case.tiled:
        return torch.ones_like(out)
    return (1 + torch.arange(out.numel()).reshape(out.shape) % 5 / 2).to(out.dtype)


def _results(torch: Any, case: Case, dtype: str, wide: str) -> tuple[list[Any], list[Any]]:
    """Return the results, and the gradients of the float inputs (None for an unused input)."""
    inputs = _tensors(torch, case, dtype, wide)
    wanted = [x for x in inputs.values() if x.requires_grad]
    outs = evaluated(case.theirs or case.ours, inputs, torch)
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
        "results": [str(o.dtype).removeprefix("torch.") for o in outs],
        "values": [_text(torch, o) for o in outs],
        "gradients": [None if g is None else _text(torch, g) for g in grads],
    }
    if dtype != "float64":
        wide = _results(torch, case, dtype, "float64")
        for what, near, far in zip(("values", "gradients"), (outs, grads), wide, strict=True):
            closer = [_closer(torch, a, b) for a, b in zip(near, far, strict=True)]
            found |= {f"closer {what}": closer} if any(closer) else {}
    return found


def wanted(recorded: Iterable[Case], texts: Sequence[str]) -> Iterable[Case]:
    """Return the cases of the file to be: those recorded, those of the table of methods, and those of texts.

    Of one name there is one: that of the texts, else that recorded. Those to record have no records.
    """
    found = {case.case: case for case in recorded}
    for row in METHODS:
        if (
            row.function.startswith("functions.")
            and row.differentiable
            and row.oracle
            and row.own not in found
        ):
            inputs, operands = ("points", "x") if row.operands == 1 else ("pairs", "x, y")
            ours = f"x.{row.own}({operands[3:]})"
            found[row.own] = Case(row.own, inputs, ours, f"torch.{row.own}({operands})", tiled=True)
    return (found | {case.case: case for case in map(read, texts)}).values()


def line(case: Case) -> str:
    """Return the line of a case, without fields that have their usual value."""
    usual = {f.name: f.default if f.default is not MISSING else {} for f in fields(case)}
    row = {name: getattr(case, name) for name in usual}
    return json.dumps({name: value for name, value in row.items() if value != usual[name]})


def main(argv: Sequence[str] | None = None) -> int:
    """Write the records; return 0."""
    parser = command("tests.oracles.gradients.oracle", __doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help="one to add or to replace")
    parser.add_argument("--all", action="store_true", help="record every case again")
    options, torch = parser.parse_args(argv), pytorch()
    lines = []
    for case in wanted(CASES, options.cases):
        for dtype in [name for name in case.records if options.all or case.records[name] is None]:
            try:
                case.records[dtype] = record(torch, case, dtype)
            except Exception as error:
                raise SystemExit(f"{case.case} {dtype}: {error}") from error
        lines.append(line(case))
    DATA.write_text("\n".join(lines) + "\n")
    print(f"{len(lines)} cases of PyTorch {torch.__version__} in {DATA}")
    return 0


if __name__ == "__main__":
    sys.exit(reported(main))
