"""Record what PyTorch prints and computes for layers.

Writes `tests/frontend/data/layers.json`: for each layer there its text, the names and shapes of its state,
and its results in evaluation mode for parameters and inputs that `filled` and `given` make. A layer without
"inputs", the shapes of its inputs, is only printed; one that is added has those behind a bar: `ReLU() | 5`.

Not here: the comparison (`tests/frontend/test_layers_of_pytorch.py`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.oracles.recording import recorded


def given(shape: tuple[int, ...], n: int) -> np.ndarray[Any, Any]:
    """Return input n of a shape."""
    found: np.ndarray[Any, Any] = np.cos(np.arange(np.prod(shape)) * 0.9 + n).astype(np.float32)
    return found.reshape(shape)


def filled(shape: tuple[int, ...], n: int) -> np.ndarray[Any, Any]:
    """Return parameter n, in the order of names, of a shape."""
    found: np.ndarray[Any, Any] = np.sin(np.arange(np.prod(shape)) * 0.7 + n) * 0.6 + 0.1
    return found.reshape(shape).astype(np.float32)


def flat(value: Any) -> list[Any]:
    """Return the tensors of nested tuples, without None."""
    if isinstance(value, (tuple, list)):
        return [t for v in value for t in flat(v)]
    return [] if value is None else [value]


def record(torch: Any, text: str) -> dict[str, Any]:
    """Return the text, state and results of a layer."""
    text, bar, inputs = text.partition(" | ")
    shapes = [[int(size) for size in shape.split("x")] for shape in inputs.split()]
    if not bar:
        shapes = recorded("layers.json").get(text, {"inputs": []})["inputs"]
    layer = eval(f"nn.{text}", {"nn": torch.nn}).eval()  # noqa: S307 - this tool's own text
    with torch.no_grad():
        for n, (_, p) in enumerate(sorted(layer.named_parameters())):
            p.copy_(torch.tensor(filled(tuple(p.shape), n)))
        outs = (
            flat(layer(*[torch.tensor(given(tuple(s), n)) for n, s in enumerate(shapes)])) if shapes else []
        )
    return {
        "inputs": shapes,
        "text": repr(layer),
        "state": {name: list(t.shape) for name, t in layer.state_dict().items()},
        "shapes": [list(t.shape) for t in outs],
        "values": [[float(f"{v:.6g}") for v in t.reshape(-1).tolist()] for t in outs],
    }
