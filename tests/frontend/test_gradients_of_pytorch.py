"""Values and gradients of every differentiable method, beside what PyTorch gives at kinks, edges and ties.

`tools.gradients` says what is asked; `tools.gradients.oracle` recorded the answers.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from frontend import Tensor, dtypes
from frontend.methods import Methods
from frontend.operators import Operators
from hcq.errors import UsageError
from tools.gradients.case import LEAST, Case
from tools.gradients.cases import CASES, NO_GRADIENT

DATA = Path(__file__).parent / "data" / "gradients.jsonl"
RECORDS = {(r["case"], r["dtype"]): r for r in map(json.loads, DATA.read_text().splitlines())}
TOLERANCE = {"float64": 1e-13, "float32": 2e-6, "float16": 1e-3, "bfloat16": 8e-3}
PROBES = [(case, dtype) for case in CASES for dtype in case.dtypes]


def read(numbers: list[str], dtype: str) -> Any:
    return np.array(numbers, "float64" if dtype == "float64" else "float32").astype("float64")


def inputs_of(case: Case, dtype: str) -> list[Tensor]:
    found = []
    for data in case.inputs(dtype):
        array = np.array(data)
        if array.dtype == np.float64:
            found.append(Tensor(array, dtype="float64").cast(dtype).realize())
        else:
            found.append(Tensor(array))
    return found


def seeded(case: Case, out: Tensor) -> Tensor:
    n = int(np.prod(out.shape))
    seed = np.ones(n) if case.tiled else 1 + np.arange(n) % 5 / 2
    return Tensor(seed.reshape(out.shape), dtype="float64").cast(out.dtype)


def gradients(case: Case, outs: list[Tensor], inputs: list[Tensor]) -> list[Tensor | None]:
    if len(outs) == 1:
        root, seed = outs[0], seeded(case, outs[0])
    else:
        root, seed = sum([(o * seeded(case, o)).sum() for o in outs], Tensor(0.0, dtype=outs[0].dtype)), None
    found: list[Tensor | None] = []
    for x in inputs:
        try:
            found += root.gradient(x, gradient=seed)
        except UsageError as error:
            if "is not part of" not in str(error):
                raise
            found.append(None)
    return found


def differences(what: str, case: Case, got: Tensor, want: list[str], closer: dict[str, str]) -> list[str]:
    dtype = got.dtype.name
    found, wanted = got.cast(dtypes.float64).numpy(), read(want, dtype).reshape(got.shape)
    exact = wanted.copy()
    exact.reshape(-1)[[int(i) for i in closer]] = read(list(closer.values()), dtype)
    tolerance = case.tolerance.get(dtype, TOLERANCE[dtype])
    fine = near(case, found, wanted, tolerance) | near(case, found, exact, tolerance)
    fine |= (wanted == 0) & (np.abs(found) < LEAST[dtype])  # PyTorch flushes denormals in places
    wrong = [what + "".join([f"[{i}]" for i in at]) for at in np.argwhere(~fine)]
    return [
        f"{at}: {g!r}, PyTorch {w!r}"
        for at, g, w in zip(wrong, found[~fine], wanted[~fine], strict=True)
        if not (at.startswith(case.places) or f"{dtype} {at}".startswith(case.places))
    ]


def near(case: Case, got: Any, want: Any, tolerance: float) -> Any:
    """Whether numbers are near: by their size, of reductions by that of their row, of some cases beside 1."""
    with np.errstate(invalid="ignore", over="ignore"):
        size = np.abs(np.where(np.isfinite(want), want, 0.0))
        if case.beside_one:
            size = np.maximum(size, 1.0)
        elif not case.tiled and size.size:
            size = size.max(-1, keepdims=True)
        close = np.abs(got - want) <= tolerance * size
    return close | (got == want) | (np.isnan(got) & np.isnan(want))


@pytest.mark.parametrize(("case", "dtype"), PROBES, ids=[f"{c.name} {d}" for c, d in PROBES])
def test_values_and_gradients_are_those_of_pytorch(case: Case, dtype: str):
    want = RECORDS[case.name, dtype]
    inputs = inputs_of(case, dtype)
    result = case.ours(*inputs)
    outs = result if isinstance(result, list) else [result]
    assert [o.dtype.name for o in outs] == want["results"]
    wanting = [x for x in inputs if x.dtype.is_float]
    found = gradients(case, outs, wanting)
    none: list[dict[str, str]] = [{}] * max(len(outs), len(inputs))
    wrong = []
    closers = want.get("closer values", none)
    for i, (out, values, closer) in enumerate(zip(outs, want["values"], closers, strict=False)):
        wrong += differences(f"value {i}", case, out, values, closer)
    closers = want.get("closer gradients", none)
    for i, (g, numbers, closer) in enumerate(zip(found, want["gradients"], closers, strict=False)):
        if g is None or numbers is None:
            if (g is None) != (numbers is None):
                wrong.append(f"gradient {i}: {'none' if g is None else 'one'}, PyTorch {numbers}")
            continue
        wrong += differences(f"gradient {i}", case, g, numbers, closer)
    assert not wrong, "\n".join([str([x.tolist() for x in wanting]), *wrong])


def methods() -> list[set[str]]:
    """The names of each function that is a method, property or operator of tensors."""
    found: dict[Any, set[str]] = {}
    for cls in (Tensor, Methods, Operators):
        for name, member in vars(cls).items():
            value = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            public = not name.startswith("_") or name.endswith("__")
            if public and (member is value or inspect.isfunction(value)) and callable(value):
                found.setdefault(inspect.unwrap(value), set()).add(name)
    return list(found.values())


def test_every_differentiable_method_is_recorded():
    recorded = {case.method for case in CASES}
    unknown = [sorted(names) for names in methods() if not names & (recorded | NO_GRADIENT.keys())]
    assert not unknown, "add cases to tools/gradients and run the oracle, or give the reason in NO_GRADIENT"
    every = set().union(*methods())
    assert recorded | NO_GRADIENT.keys() <= every, "there is no such method"
    assert not recorded & NO_GRADIENT.keys()


def test_every_record_has_its_case():
    assert RECORDS.keys() == {(case.name, dtype) for case, dtype in PROBES}
    assert len(PROBES) == len(RECORDS), "two cases have one name"
