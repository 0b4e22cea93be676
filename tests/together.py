"""Work of several threads at the same time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def together(work: Callable[[int], T], count: int) -> list[T]:
    """Call work(0), ..., work(count - 1), each in a thread of its own; return the results in this order.

    No call begins before all threads run. Raises what the first call that failed in this order has raised.
    """
    begin = threading.Barrier(count)

    def one(number: int) -> T:
        begin.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))
