"""Anomaly mode: the line of the program whose operation gives a gradient that is not finite.

While the mode is on, a profile function of the thread (`sys.setprofile`) notes where the program called the
function that made a tensor. A profiler that runs already is left alone, and then no line is known. Lines are
forgotten after a `backward` that spends its history: they keep the memory of tensors.

Not here: the check of gradients (`engine`), the mode's name (`grad_modes`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from frontend.evaluation.base import TensorBase
from frontend.evaluation.history import Node, between, sources

if TYPE_CHECKING:
    from types import FrameType

_LINES: Final[dict[Node, str]] = {}
"""Node of a tensor -> "file:line" of the call that made it."""
_HERE: Final = str(Path(__file__).parents[1])


def watch(*, on: bool) -> None:
    """Note lines from now on in this thread, or stop and forget them."""
    if on and sys.getprofile() is None:
        sys.setprofile(_note)
    elif not on:
        forget()
        if sys.getprofile() is _note:
            sys.setprofile(None)


def forget() -> None:
    """Forget all lines."""
    _LINES.clear()


def _note(frame: FrameType, event: str, made: Any) -> None:
    caller = frame.f_back
    if event == "return" and caller is not None and isinstance(made, TensorBase):
        file = caller.f_code.co_filename
        if not file.startswith(_HERE) and hasattr(made, "expr"):
            _LINES.setdefault((made.expr, made.leaves), f"{file}:{caller.f_lineno}")


def origin(root: Node, wanted: set[Node], gradients: Any) -> str:
    """Return a text that names the operation whose gradient is not finite, and its line.

    `gradients(nodes)` are the gradients of nodes, None where none flows.
    """
    order = between(root, wanted)
    found: Sequence[Any] = gradients(order)
    bad = [n for n, g in zip(order, found, strict=True) if g is not None and not g.isfinite().all().item()]
    if not bad or bad[0] == root:
        return "the gradient of the result itself is not finite" if bad else "its operation was not found"
    user = next(u for u in reversed(order) if bad[0] in sources(u))
    lines = [_LINES[n] for n in order if n in _LINES and (n == user or user in between(n, {user}))]
    where = f"computed in {lines[-1]}" if lines else "of no known line: compute it inside of the mode"
    return f"the first gradient that is not finite is that of the source of {user[0].op}, {where}"
