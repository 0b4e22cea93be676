"""Addresses of vectors on the host that one mask guards as a whole.

Where such a mask is false, nothing is loaded or stored, but a processor that finds no memory at the address
takes hundreds of cycles to find out that it does not matter. So the address is one in the buffer.

Not here: the values of masked elements (`test_planner`, `tests/frontend/test_movement_methods`). Next:
`compiler.emit.accesses`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from compiler.pipeline import steps
from compiler.schedule.scheduler import schedule
from compiler.targets import target_of
from frontend import Tensor
from frontend.evaluation.expr import uops

if TYPE_CHECKING:
    from compiler.emit.linear import Line


def zeros(*shape: int) -> Tensor:
    return Tensor.zeros(*shape).contiguous().realize()


def written(value: Tensor) -> list[Line]:
    """Return the lines of the last kernel of an expression, for processors with vectors of 64 bytes."""
    items = schedule(uops([(value.expr, tuple(range(len(value.leaves))))]))
    return steps(items[-1].ast, target_of("x86_64-v4")).lines


def wholly_masked(lines: list[Line]) -> list[Line]:
    """Return the vectors that are loaded under a mask of one lane."""
    return [line for line in lines if line.op == "load_masked" and line.src[1].op == "splat"]


def chosen(address: Line, mask: Line) -> bool:
    """Return whether a mask selects an address."""
    while address.op == "offset":
        pointer, index = address.src
        if index.op == "select" and index.src[0] is mask:
            return True
        address = pointer
    return False


@pytest.mark.parametrize(
    "made",
    [
        lambda: zeros(16, 64).pad((0, 0, 3, 2)),
        lambda: zeros(16, 64).flip(1).pad((0, 0, 3, 2)),
        lambda: zeros(16, 64)[Tensor([3, -1, 15, 5]).realize() + zeros(4).cast("int32")],
        lambda: zeros(16, 64).cat(zeros(9, 64)),
    ],
    ids=["pad", "flip", "gather", "cat"],
)
def test_a_row_that_is_masked_as_a_whole_is_addressed_in_its_buffer(made) -> None:  # noqa: ANN001 - a case
    found = wholly_masked(written(made()))
    assert found
    for line in found:
        (mask,) = line.src[1].src
        assert chosen(line.src[0], mask), line


def test_masked_rows_are_zeros_and_others_are_unchanged() -> None:
    values = np.arange(16 * 64, dtype=np.float32).reshape(16, 64)
    x = Tensor(values).realize()
    np.testing.assert_array_equal(
        x.flip(1).pad((0, 0, 3, 2)).numpy(), np.pad(values[:, ::-1], ((3, 2), (0, 0)))
    )
    np.testing.assert_array_equal(x.pad((5, 0, 3, 2)).numpy(), np.pad(values, ((3, 2), (5, 0))))
