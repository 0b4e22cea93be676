"""Record PyTorch's values and gradients of programs that write in place.

Each program starts from the leaves of `leaves` and changes `y`, whose square, weighted by element, is
differentiated. It writes `tests/frontend/data/in_place.json`: y and the gradients, or the class of the error.

Not here: the comparison (`tests/frontend/test_gradients_in_place.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

LEAVES: Final[dict[str, Any]] = {
    "x": [1.0, -2.0, 3.0], "v": [5.0, 0.5], "s": 4.0, "q": [[1.0, 2.0, -1.0], [3.0, 0.5, 4.0]],
}  # fmt: skip
"""Floats with requires_grad."""


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


def record(torch: Any, text: str) -> dict[str, Any]:
    """Return the answer, or the class of the error."""
    try:
        return answer(text, torch.tensor)
    except Exception as error:  # noqa: BLE001 - whatever it raises is the answer
        return {"error": type(error).__name__}
