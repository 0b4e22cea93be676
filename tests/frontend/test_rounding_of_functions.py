"""Functions of several steps of sixteen-bit floats are as near to float64 as PyTorch's: they round once.

`tools.answers.rounding` lists them and recorded PyTorch's errors.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from frontend import Tensor
from frontend.nn import functional as F  # noqa: N812 - the field's name
from tools.answers.rounding import DTYPES, FUNCTIONS, errors, names

RECORDS = json.loads((Path(__file__).parent / "data" / "rounding.json").read_text())
RATIO = 1.3
OF_ATTENTION = 1.5
"""Its weights are rounded after they are divided by their sum, PyTorch's before, where the greatest is 1."""


def value(text: str, dtype: str, *, wide: bool) -> Any:
    def make(array: Any) -> Tensor:
        t = Tensor(array)
        return (t.cast(dtype).cast("float64") if wide else t.cast(dtype)) if t.dtype.is_float else t

    found = eval(text, {"F": F, **names(make)})
    return found.cast("float64").numpy()


@pytest.mark.sampled(9)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("text", FUNCTIONS)
def test_errors_are_no_greater_than_those_of_pytorch(text: str, dtype: str):
    got = errors(value(text, dtype, wide=False), value(text, dtype, wide=True))
    for what, ours, theirs in zip(("greatest", "root mean square"), got, RECORDS[text][dtype], strict=True):
        most = OF_ATTENTION if "attention" in text else RATIO
        assert ours <= most * theirs, f"{what} error {ours}, PyTorch {theirs}"


def test_every_function_is_recorded():
    assert list(RECORDS) == FUNCTIONS
