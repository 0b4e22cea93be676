"""The tensors that the expressions use, by name: contiguous or not, of sizes 0 and 1, odd, reversed, scalar.

Not here: the expressions (`expressions`).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

_ODD: Final = (np.sin(np.arange(35) * 1.7) * 3).reshape(5, 7).astype("float32")

ARRAYS: Final[dict[str, Any]] = {
    "a": np.array([[0.5, -1.25, 2.0, 0.75], [-4.0, 0.25, 1.5, -0.5], [3.0, -2.5, 0.125, 1.0]], "float32"),
    "b": np.array([1.5, -0.5, 2.0, 0.25], "float32"),
    "u": np.array([0.1, 0.5, 0.9, 0.3], "float32"),
    "s": np.array(1.5, "float32"),
    "one": np.array([[2.5]], "float32"),
    "e": np.zeros((0, 3), "float32"),
    "z": np.zeros((2, 0), "float32"),
    "odd": _ODD,
    "h": np.array([1.5, -2.0, 0.25], "float16"),
    "d": np.array([1.5, -2.0, 0.25]),
    "i": np.array([[3, -1, 2, 0], [5, 2, -7, 1], [0, 4, 4, -2]], "int32"),
    "j": np.array([2, 3, -2, 5], "int32"),
    "k": np.array([[0, 2, 1, 0], [1, 0, 2, 2]], "int64"),
    "v": np.array([2, 0, 1], "int64"),
    "t": np.array([[1, 2], [200, 7]], "uint8"),
    "n8": np.array([1, -3, 100], "int8"),
    "m": np.array([[True, False, True, True], [False, False, True, False], [True, True, False, False]]),
    "w": np.array([True, False, True]),
    "img": (np.cos(np.arange(2 * 3 * 5 * 6) * 0.9) * 2).reshape(2, 3, 5, 6).astype("float32"),
    "ker": (np.sin(np.arange(4 * 3 * 3 * 3) * 0.5)).reshape(4, 3, 3, 3).astype("float32"),
    "sq": np.array([[4.0, 1.0, 0.5], [1.0, 3.0, -1.0], [0.5, -1.0, 2.0]], "float32"),
}
"""Name -> array. `nc` and `neg` are made from `odd`: its transpose, and its rows in reverse order."""
MADE: Final = {"nc": "odd.transpose(0, 1)", "neg": "odd.flip(0)", "part": "odd[1:4, ::3]"}


def names(make: Any) -> dict[str, Any]:
    """Return the inputs by name; `make` turns an array into a tensor."""
    found = {name: make(array) for name, array in ARRAYS.items()}
    for name, text in MADE.items():
        found[name] = eval(text, {}, found)  # noqa: S307 - this file's own text
    return found
