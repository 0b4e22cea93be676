"""Record PyTorch's values and gradients of programs that write in place.

    python -m tests.oracles.in_place      # in an environment with PyTorch

Each program starts from the leaves of `leaves` and changes `y`, whose square, weighted by element, is
differentiated. It writes `tests/frontend/data/in_place.json`: y and the gradients, or the class of the error.

Not here: the comparison (`tests/frontend/test_gradients_in_place.py`).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tools.arguments import command, pytorch, reported

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

OUT: Final = Path(__file__).parents[2] / "tests" / "frontend" / "data" / "in_place.json"
LEAVES: Final[dict[str, Any]] = {
    "x": [1.0, -2.0, 3.0], "v": [5.0, 0.5], "s": 4.0, "q": [[1.0, 2.0, -1.0], [3.0, 0.5, 4.0]],
}  # fmt: skip
"""Floats with requires_grad."""
PROGRAMS: Final = """
y = x * 2; y[1] = 7.0
y = x * 2; y[1] = s
y = x * 2; y[1:] = v * 3
y = x * 2; y[::2] = v
y = x * 2; y[y > 1] = 0.5
y = x * 2; y[T([2, 0])] = v
y = x * 2; y[T([-1, 0])] += v
y = x * 2; y[T([True, False, True])] = v
y = q * 1; y[:, 1] = v; y[0, 2:] = s
y = q * 1; y[T([1, 0]), T([0, 2])] = v
y = q * 1; y[T([0, 1])] = y[T([1, 0])] * 2
y = q * 1; y[0] = y[1].clone() * x
y = q * 1; y[...] = x
y = q * 1; y[1, None] = x[None]
y = x * 2; y[0] += x[1] * x[2]
y = x * 1; y[1:] = y[:-1] * 2
y = x * 2; y.index_put_((T([2, 0]),), v)
y = x * 2; y.index_put_((T([2, 2]),), v, accumulate=True)
y = x * 2; y.scatter_(0, T([2, 0]), v)
y = x * 2; y.scatter_(0, T([2, 0]), 3.0)
y = x * 2; y.scatter_add_(0, T([0, 0]), v)
y = x * 2; y.scatter_reduce_(0, T([0, 1]), v, 'sum')
y = x * 2; y.masked_fill_(T([True, False, True]), 3.0)
y = x * 2; y.masked_fill_(T([True, False, True]), s)
y = x * 2; y.masked_scatter_(T([True, False, True]), v)
y = x * 2; y.index_add_(0, T([2, 2]), v, alpha=2)
y = x * 2; y.index_copy_(0, T([2, 0]), v)
y = x * 2; y.index_fill_(0, T([2, 0]), 4.0)
y = x * 2; y.put_(T([1, 0]), v)
y = x * 2; y.add_(x, alpha=3); y += x
y = x * 2; y.mul_(x).mul_(x)
y = x * 2; y.div_(x); y.sub_(x)
y = x * 2; y.lerp_(x * x, 0.25)
y = x * 2; y.addcmul_(x, x, value=0.5)
y = x * 2; y.relu_(); y = y - 1
y = x * 2; y.clamp_(-1, 1)
y = x * 2; y.pow_(3)
y = q * 1; y.tril_(); y.cumsum_(1)
y = x * 2; y[1:].mul_(5)
y = q * 1; y.t()[0] = v
y = q * 1; y.view(3, 2)[1] = v
y = q * 1; y.view(6)[1:5].view(2, 2)[1].mul_(v)
y = q * 1; y.diagonal().mul_(10)
y = q * 1; y.flip(0); y.transpose(0, 1)[1:, 0].zero_()
y = q * 1; z = y[1:]; y.mul_(2); y[0] = z[0]
y = q * 1; z = y[0]; y[0].mul_(x); y = y + z
y = T([0.0, 0.0, 0.0]); y[1:] = v * 3
y = T([1.0, 1.0, 1.0]); y.add_(x); y.mul_(x)
y = T([[0.0, 0.0, 0.0]] * 3); y[0] = x; y[1] = x * 2; y[2] = y[0].clone() * y[1].clone()
y = T([[1.0, 2.0, 1.0], [1.0, 2.0, 3.0]]); y.copy_(x)
y = x * 1; y.copy_(x.detach() * x)
y = x + 0; x.detach(); y.zero_(); y = y + x
y = (x * 1).unsqueeze(1).expand(3, 2); y.mul_(2)
x.add_(1); y = x
x += 1; y = x
x[0] = 1; y = x
x.zero_(); y = x
x[1:].mul_(2); y = x
q.view(6)[0] = 2; y = q
q.t().copy_(q.t()); y = q
x.uniform_(); y = x
x.relu_(); y = x
y = x * 2; x.mul_(2)
""".strip().splitlines()


def leaves(tensor: Callable[..., Any]) -> dict[str, Any]:
    """Return the leaves as tensors."""
    return {n: tensor(value, requires_grad=True) for n, value in LEAVES.items()}


def answer(text: str, tensor: Callable[..., Any]) -> dict[str, Any]:
    """Return the values of `y` and the gradients of the leaves after a program. Raises what it raises."""
    given = leaves(tensor)
    space = {"T": tensor, **given}
    exec(text, space)  # noqa: S102 - this module's own text
    y = space["y"]
    weights = tensor([float(i % 5 - 2) for i in range(y.numel())]).reshape(y.shape)
    (y * y * weights).sum().backward()
    return {
        "y": y.detach().tolist(),
        "gradients": {n: t.grad.tolist() for n, t in given.items() if t.grad is not None},
    }


def record(text: str, tensor: Callable[..., Any]) -> dict[str, Any]:
    """Return the answer, or the class of the error."""
    try:
        return answer(text, tensor)
    except Exception as error:  # noqa: BLE001 - whatever it raises is the answer
        return {"error": type(error).__name__}


def main(argv: Sequence[str] | None = None) -> int:
    """Write the records; return 0."""
    command("tests.oracles.in_place", __doc__).parse_args(argv)
    torch = pytorch()
    OUT.write_text(json.dumps({text: record(text, torch.tensor) for text in PROGRAMS}, indent=0) + "\n")
    print(f"{len(PROGRAMS)} answers of PyTorch {torch.__version__} in {OUT}")
    return 0


if __name__ == "__main__":
    sys.exit(reported(main))
