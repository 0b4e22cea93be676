"""One test over many small cases: every case runs, and the failure lists each case that failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def check_each(cases: Iterable[tuple[Any, ...]], check: Callable[..., object]) -> None:
    """Call `check(*case)` for every case; raise one AssertionError that names the cases that failed it."""
    failed, count = [], 0
    for case in cases:
        count += 1
        try:
            check(*case)
        except AssertionError as error:
            failed.append(f"{case}: {error}")
    assert count, "no case"
    assert not failed, f"{len(failed)} of {count} cases:\n" + "\n".join(failed)
