"""Dtypes of results against those of PyTorch in `promotion.txt`; exact comparison of integers."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from frontend import Tensor, dtypes, tensor

if TYPE_CHECKING:
    from collections.abc import Callable

NAMES = {
    "b1": "bool", "i1": "int8", "i2": "int16", "i4": "int32", "i8": "int64", "u1": "uint8", "f2": "float16",
    "bf": "bfloat16", "f4": "float32", "f8": "float64",
}  # fmt: skip
OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "div": operator.truediv,
    "pow": operator.pow,
    "maximum": lambda a, b: a.maximum(b),
    "where": lambda a, b: (a >= 0).where(a, b),
    "eq": operator.eq,
}
PYTHON = {"True": True, "2": 2, "2.5": 2.5}
COLUMNS, *ROWS = [
    line.split()
    for line in (Path(__file__).with_name("promotion.txt")).read_text().splitlines()
    if line[:1] != "#"
]


def operand(text: str) -> Any:
    if text in PYTHON:
        return PYTHON[text]
    name, _, axes = text.partition("[")
    return Tensor.ones(*((3,) if axes == "3]" else ()), dtype=NAMES[name])


@pytest.mark.sampled(5)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(row[:2]))
def test_results_have_the_dtypes_of_pytorch(row: list[str]):
    name, first, *wanted = row
    for second, code in zip(COLUMNS[1:], wanted, strict=True):
        if code == "--" or (name == "pow" and first[:2] == "b1"):  # ours multiplies bools as int64
            continue
        got = OPERATIONS[name](operand(first), operand(second)).dtype.name
        assert got == NAMES[code], (name, first, second)


def test_a_scalar_tensor_does_not_widen_in_its_category():
    half = Tensor([1.0, 2.0], dtype="float16")
    assert (half * Tensor(0.5)).dtype is dtypes.float16
    assert (half * Tensor(0.5, dtype="float64")).dtype is dtypes.float16
    assert (Tensor([1], dtype="int8") + tensor(1)).dtype is dtypes.int8
    assert Tensor([True]).where(half[:1], Tensor(0.0)).dtype is dtypes.float16
    assert (half == Tensor(0.1)).dtype is dtypes.bool
    assert (half[:1] + Tensor([1.0])).dtype is dtypes.float32
    assert (Tensor([1]) + Tensor([1], dtype="uint32")).dtype is dtypes.int64


def test_a_filled_mask_keeps_the_dtype():
    mask = Tensor([True, False, True])
    got = Tensor([1, 2, 3]).masked_fill(mask, 7.9)
    assert got.dtype is dtypes.int64
    assert got.tolist() == [7, 2, 7]
    got = Tensor([1, 2, 3]).masked_fill(mask, Tensor(7.9))
    assert (got.dtype, got.tolist()) == (dtypes.int64, [7, 2, 7])


EDGES = (0, 1, 127, 128, 255, (1 << 31) - 1, 1 << 31, 1 << 53, (1 << 53) + 1, (1 << 63) - 1)
SIGNED = (*EDGES, -1, -128, -(1 << 31), -(1 << 53) - 1, -(1 << 63))
UNSIGNED = (*EDGES, 1 << 63, (1 << 64) - 1)


@pytest.mark.parametrize("name", ["lt", "le", "gt", "ge", "eq", "ne"])
@pytest.mark.parametrize("swap", [False, True])
def test_signed_and_unsigned_integers_are_compared_exactly(name: str, swap: bool):  # noqa: FBT001 - a parameter of the test
    compare = getattr(operator, name)
    sides = [np.array(SIGNED, np.int64), np.array(UNSIGNED, np.uint64)]
    a, b = sides[::-1] if swap else sides
    want = [[compare(int(x), int(y)) for y in b] for x in a]
    assert compare(Tensor(a).reshape(-1, 1), Tensor(b)).tolist() == want
