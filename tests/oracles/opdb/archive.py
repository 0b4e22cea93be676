"""Calls of PyTorch's operator database and the answers to them as text, a line for each, compressed.

Floats among the inputs are multiples of 1/16 (`theirs.calls`, `rounded`). Of a result with more than `MOST`
elements some are kept, at places that follow from its size; of floats the numbers of float64 and PyTorch's
greatest error.

Not here: who writes it (`__main__`, `--record`), who reads it (`tests/frontend/test_operator_database.py`).
"""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tests.oracles.opdb.call import Answer, Call, Dtype, Given, Result

if TYPE_CHECKING:
    from collections.abc import Iterable

PATH: Final = Path(__file__).parents[3] / "tests" / "frontend" / "data" / "opdb.jsonl.xz"
MOST: Final = 12
STEPS: Final = 16
"""Floats are stored as so many times their value where that is a whole number."""


def _plain(v: Any) -> Any:
    """Return an argument as JSON has it: what is no number, text or list has a name."""
    if isinstance(v, Given):
        flat = v.array.reshape(-1)
        if v.dtype.startswith(("float", "bfloat")):
            steps = flat * STEPS
            whole = bool(np.isfinite(flat).all()) and bool((steps == np.round(steps)).all())
            data = steps.astype("int64").tolist() if whole else [float(f"{x:.9g}") for x in flat]
            return {"t": [v.dtype, list(v.array.shape), int(v.grad), int(whole), data]}
        return {"t": [v.dtype, list(v.array.shape), 0, 0, flat.astype("int64").tolist()]}
    if isinstance(v, Dtype):
        return {"d": v.name}
    if isinstance(v, slice):
        return {"s": [_plain(x) for x in (v.start, v.stop, v.step)]}
    if isinstance(v, tuple):
        return {"u": [_plain(x) for x in v]}
    if isinstance(v, list):
        return [_plain(x) for x in v]
    return {"e": 0} if v is ... else v


def _argument(v: Any) -> Any:
    if isinstance(v, list):
        return [_argument(x) for x in v]
    if not isinstance(v, dict):
        return v
    ((kind, data),) = v.items()
    if kind == "t":
        dtype, shape, grad, whole, numbers = data
        array = np.array(numbers, "float64" if dtype.startswith(("float", "bfloat")) else None)
        array = array / STEPS if whole else array
        stored = "float32" if dtype == "bfloat16" else dtype
        return Given(array.astype(stored).reshape(shape), dtype, grad=bool(grad))
    if kind == "d":
        return Dtype(data)
    if kind == "s":
        return slice(*[_argument(x) for x in data])
    return tuple([_argument(x) for x in data]) if kind == "u" else ...


def _places(size: int) -> Any:
    """Return which elements are kept: all, or some that are spread over a large result."""
    return None if size <= MOST else np.unique((np.arange(MOST) * 2 + 1) * size // (2 * MOST))


def _result(r: Result | None) -> Any:
    if r is None or r.values is None:
        return None if r is None else [list(r.shape), r.dtype]
    flat = np.asarray(r.values if r.truth is None else r.truth).reshape(-1)
    places = _places(flat.size)
    kept = flat if places is None else flat[places]
    if r.truth is None and flat.dtype.kind != "f":
        return [list(r.shape), r.dtype, kept.astype("int64").tolist()]
    numbers = [float(f"{x:.10g}") for x in kept]
    return [list(r.shape), r.dtype, numbers, None if r.truth is None else float(f"{r.error:.3g}")]


def _of_result(r: Any) -> Result | None:
    if r is None:
        return None
    shape, dtype, *more = r
    if not more:
        return Result(tuple(shape), dtype, None)
    places = _places(int(np.prod(shape)))
    kind = "float64" if len(more) == 2 else "bool" if dtype == "bool" else "int64"
    values = np.array(more[0], kind)
    values = values.reshape(shape) if places is None else values
    truth, error = (values, more[1]) if len(more) == 2 and more[1] is not None else (None, 0.0)
    return Result(tuple(shape), dtype, values, truth, error, places)


def line(call: Call, answer: Answer, seen: str) -> str:
    """Return a call, its answer, and the class of its outcome here when it was recorded, as one line."""
    found: dict[str, Any] = {"of": call.entry, "as": call.dtype, "args": [_plain(a) for a in call.args]}
    if call.names:
        found["names"] = {k: _plain(v) for k, v in call.names.items()}
    if answer.error:
        found["error"] = answer.error[:120]
    else:
        found["form"], found["results"] = answer.form, [_result(r) for r in answer.results]
        found["slopes"] = {n: _result(g) for n, g in answer.gradients.items()}
    if seen != "same":
        found["seen"] = seen
    return json.dumps(found, separators=(",", ":"))


def write(lines: Iterable[str]) -> int:
    """Write the archive; return its size in bytes."""
    data = lzma.compress(("\n".join(lines) + "\n").encode(), preset=9 | lzma.PRESET_EXTREME)
    PATH.write_bytes(data)
    return len(data)


def read() -> dict[str, list[tuple[Call, Answer, str]]]:
    """Return the recorded calls by entry, with PyTorch's answers and the outcome when they were recorded."""
    found: dict[str, list[tuple[Call, Answer, str]]] = {}
    for text in lzma.decompress(PATH.read_bytes()).decode().splitlines():
        call, answer = parsed(text)
        found.setdefault(call.entry, []).append((call, answer, json.loads(text).get("seen", "same")))
    return found


def parsed(text: str) -> tuple[Call, Answer]:
    """Return the call and the answer of a line."""
    r = json.loads(text)
    args = tuple([_argument(a) for a in r["args"]])
    names = {k: _argument(v) for k, v in r.get("names", {}).items()}
    call = Call(r["of"], r["as"], args, names, error=r["as"] == "error")
    results = tuple([x for x in map(_of_result, r.get("results", ())) if x is not None])
    slopes = {int(n): _of_result(g) for n, g in r.get("slopes", {}).items()}
    return call, Answer(r.get("form", ""), results, slopes, r.get("error", ""))
