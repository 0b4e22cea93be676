"""Record what PyTorch answers to the expressions of `tests.oracles`.

    python -m tests.oracles.answers [--again] [EXPRESSION ...]

Run it by hand in an environment with PyTorch. It keeps the answers that are recorded, unless `--again`, and
adds those of new expressions and of new products of `every`. It writes
`tests/frontend/data/answers.jsonl`: for each expression the shapes, dtypes and values of its results and the
gradients of its float inputs, or the error.
Results are weighted with 1, 1.5, 2, 2.5, 3, repeated, before they are differentiated.

Not here: the comparison (`compare`).
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from tests.oracles.every import EVERY
from tests.oracles.expressions import ANSWERS, EXPRESSIONS
from tests.oracles.inputs import ARRAYS, names
from tools.arguments import command, pytorch, reported

if TYPE_CHECKING:
    from collections.abc import Sequence


def _numbers(x: Any) -> list[Any]:
    wide = x.detach().double() if x.is_floating_point() else x
    found = wide.reshape(-1).tolist()
    return [float(f"{v:.9g}") for v in found] if x.is_floating_point() else found


def record(torch: Any, text: str) -> dict[str, Any]:
    """Return the record of an expression."""
    leaves = {n: torch.tensor(a, requires_grad=a.dtype.kind == "f") for n, a in ARRAYS.items()}
    given = names(lambda a: next(t for n, t in leaves.items() if ARRAYS[n] is a).clone())
    space = {"torch": torch, "F": torch.nn.functional, "inf": float("inf"), "nan": float("nan"), **given}
    torch.manual_seed(0)
    try:
        result = eval(text.replace("dtypes.", "torch."), space)  # noqa: S307 - this tool's own text
    except Exception as error:  # noqa: BLE001 - whatever PyTorch raises is the answer
        return {"of": text, "error": type(error).__name__}
    outs = list(result) if isinstance(result, (tuple, list)) else [result]
    if not all(isinstance(x, torch.Tensor) for x in outs):
        return {"of": text, "plain": repr(list(result) if isinstance(result, tuple) else result)}
    found: dict[str, Any] = {
        "of": text,
        "shapes": [list(o.shape) for o in outs],
        "dtypes": [str(o.dtype).removeprefix("torch.") for o in outs],
        "values": [_numbers(o) for o in outs],
    }
    flowing = [o for o in outs if o.requires_grad and o.numel()]
    if flowing:
        weights = [(1 + torch.arange(o.numel()).reshape(o.shape) % 5 / 2).to(o.dtype) for o in flowing]
        total = sum((o * w).sum() for o, w in zip(flowing, weights, strict=True))
        wanted = {n: t for n, t in leaves.items() if t.requires_grad}
        try:
            grads = torch.autograd.grad(total, list(wanted.values()), allow_unused=True)
        except RuntimeError:  # PyTorch has no derivative
            return found
        found["gradients"] = {n: _numbers(g) for n, g in zip(wanted, grads, strict=True) if g is not None}
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Write the records; return 0."""
    parser = command("tests.oracles.answers", __doc__)
    parser.add_argument("--again", action="store_true", help="ask again for what is recorded")
    parser.add_argument("expressions", nargs="*", metavar="EXPRESSION", help="one that is not recorded")
    options = parser.parse_args(argv)
    torch = pytorch()
    known = {json.loads(line)["of"]: line for line in ANSWERS.read_text().splitlines()}
    texts = dict.fromkeys([*EXPRESSIONS, *options.expressions, *EVERY])
    lines = [
        known[text]
        if text in known and not options.again
        else json.dumps(record(torch, text), separators=(",", ":"))
        for text in texts
    ]
    ANSWERS.write_text("\n".join(lines) + "\n")
    new = len(texts) - len(known)
    print(f"{len(lines)} answers in {ANSWERS}, {new} new ones of PyTorch {torch.__version__}")
    return 0


if __name__ == "__main__":
    sys.exit(reported(main))
