"""An operation on a tensor that another thread realizes or writes at the same time gives the right value.

Threads change at calls: here the other thread does so at each call inside the operation in turn, so that
every order that threads could hit by luck is had for certain.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from frontend import Tensor
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

DATA = np.array([0.5, -1.5, 2.0], "f")
FULL = DATA * 3

OPERATIONS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], Any]] = {
    "method": (lambda x, _: x.square(), FULL**2),
    "method with arguments": (lambda x, _: x.clip(-1.0, high=2.0), FULL.clip(-1, 2)),
    "operator": (lambda x, _: x * x, FULL**2),
    "operator with another": (lambda x, y: x + y, FULL + DATA),
    "operator on another": (lambda x, y: y - x, DATA - FULL),
    "operator with a number": (lambda x, _: x + 0.25, FULL + 0.25),
    "operator with a varying number": (lambda x, _: x + np.float64(0.375), FULL + 0.375),
    "composite": (lambda x, y: x.lerp(y, 0.5), (FULL + DATA) / 2),
    "composite on another": (lambda x, y: (y > 0).where(x, x + 1), FULL + (DATA <= 0)),
    "indexing": (lambda x, _: x[1:], FULL[1:]),
    "assignment of it": (lambda x, y: y.assign(x), FULL),
    "replacement by it": (lambda x, y: y.replace(x), FULL),
}


READS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "numpy": lambda x, _: x.numpy(),
    "tolist": lambda x, _: x.tolist(),
}
"""Ways to read the row [3, 4, 5]."""


def disturbed(
    operation: Callable[[Tensor, Tensor], Any],
    x: Tensor,
    y: Tensor,
    at: int,
    disturb: Callable[[], object] | None = None,
) -> tuple[Any, bool]:
    """Apply the operation to x, which another thread realizes at the call of that number inside it, and y.

    With `disturb` the other thread calls that instead; only calls in the frontend count then, because waits
    make any number of calls.

    Where the operation holds a lock, the other thread comes after it. Return the result, and whether there
    were so many calls.
    """
    calls = 0
    other = threading.Thread(target=disturb or x.realize)

    def count(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        name = frame.f_globals.get("__name__", "")
        if event in {"call", "c_call"} if disturb is None else event == "call" and "frontend." in name:
            if calls == at:
                sys.setprofile(None)
                other.start()
                other.join(0.02)
            calls += 1

    sys.setprofile(count)
    try:
        result = operation(x, y)
    finally:
        sys.setprofile(None)
        if other.ident is not None:
            other.join()
    return result, calls > at


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("known", [True, False], ids=["known", "first"])
def test_operations_use_a_concurrently_realized_tensor(name: str, *, known: bool) -> None:
    operation, wanted = OPERATIONS[name]
    for at in range(200):
        x = Tensor(DATA) * 3 if known else (Tensor(DATA) + float(at)) * 3 - 3.0 * at
        found, reached = disturbed(operation, x, Tensor(DATA), at)
        assert np.allclose(found.numpy(), wanted, atol=1e-5), f"realized at call {at}"
        if not reached:
            assert at > 1
            return
    raise AssertionError("no end of calls")


@pytest.mark.parametrize("name", READS)
def test_a_row_is_read_while_another_thread_writes_another_row(name: str) -> None:
    for at in range(200):
        base, value = Tensor(np.arange(12, dtype="f").reshape(4, 3)), Tensor(np.full(3, 7, "f"))
        row = base[1]

        def write(base: Tensor = base, value: Tensor = value) -> None:
            base[3] = value

        found, reached = disturbed(READS[name], row, row, at, write)
        assert np.array_equal(found, [3.0, 4.0, 5.0]), f"written at call {at}"
        if not reached:
            assert at > 5
            return
    raise AssertionError("no end of calls")


@pytest.mark.parametrize("way", ["gradient", "backward"])
def test_gradients_of_a_concurrently_realized_root_are_correct_or_refused(way: str) -> None:
    refused = 0
    for at in range(200):
        w = Tensor(DATA, requires_grad=True)
        y = (w * w * 3 + w).sum()

        def differentiate(y: Tensor, w: Tensor) -> Tensor:
            if way == "gradient":
                return y.gradient(w)[0]
            y.backward()
            assert w.grad is not None
            return w.grad

        try:
            found, reached = disturbed(differentiate, y, w, at)
        except UsageError:  # realized before anything was looked at
            refused += 1
            reached = True
        else:
            assert np.allclose(found.numpy(), FULL * 2 + 1), f"realized at call {at}"
        if not reached:
            assert at > 10
            assert refused <= 10  # the calls that look at the arguments, and the one that answers wrong ones
            return
    raise AssertionError(f"refused {refused} of 200 times")
