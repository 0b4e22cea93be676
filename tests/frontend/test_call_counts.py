"""Hot paths guarded by counts of Python calls, which do not depend on the machine's load."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING

from frontend import Tensor, TinyJit

if TYPE_CHECKING:
    from collections.abc import Callable


def calls_of(fn: Callable[[], object], package: str = "frontend") -> int:
    """Count Python calls of functions of one package."""
    count = 0

    def profile(frame: object, event: str, arg: object) -> None:
        nonlocal count
        if (
            event == "call"
            and f"/{package}/" in frame.f_code.co_filename
            and "/tests/" not in frame.f_code.co_filename
        ):  # type: ignore[attr-defined]
            count += 1

    gc.collect()
    gc.disable()  # what other tests left is not finalized inside
    sys.setprofile(profile)
    try:
        fn()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


def test_building_a_known_operation_is_one_call():
    a, b = Tensor([1.0, 2.0]), Tensor([3.0, 4.0])
    a + b
    assert calls_of(lambda: a + b) == 1


def test_a_known_composite_is_one_call():
    a = Tensor([1.0, 2.0])
    a.softmax()
    assert calls_of(a.softmax) == 1


def test_realizing_a_known_operation_walks_nothing():
    a, b = Tensor([1.0, 2.0]), Tensor([3.0, 4.0])
    (a + b).realize()
    assert calls_of(lambda: (a + b).realize()) <= 6  # noqa: PLW0108 - building counts too


def test_a_replay_is_a_handful_of_calls():
    f = TinyJit(lambda a, b: a + b)
    a, b = Tensor([1.0, 2.0]), Tensor([3.0, 4.0])
    for _ in range(3):
        f(a, b)
    assert calls_of(lambda: f(a, b)) <= 5
