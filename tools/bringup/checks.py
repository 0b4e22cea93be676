"""The checks of a rung that all vendors share: results, repeated runs, late stores, and time limits.

Not here: the parts of a driver that a rung uses. Next: `tools.bringup.launches`, what rungs with kernels
share.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hcq.errors import HcqError, SignalTimeout
from hcq.idle import LOOK_S, STANDSTILL_S, Standstill

if TYPE_CHECKING:
    from collections.abc import Callable

    from hcq.signal import Point

Facts = dict[str, object]
SIGNAL_S: Final = 1.0
"""Time limit of a semaphore, in seconds."""
WORK_S: Final = 5.0
"""Time limit of a submission to a real GPU, in seconds."""
REPEATS: Final = 20
"""Runs of an operation that must all succeed. One success is no evidence: on Hopper a quarter to a third of
a raw client's copies failed if CPU and GPU addresses differed (`docs/sources.md`)."""
_GIVE_UP: Final = 3
"""Number of failures that end the repeats."""
LATE_S: Final = 1.0
"""Seconds within which a store must become visible after a release that does not order it."""
EMULATED_PATIENCE: Final = 20.0
"""Factor of all time limits on an emulated GPU, whose speed depends on the load of the host."""


class RungError(HcqError):
    """A rung observed a wrong result."""


def wait_while_threads_work(
    point: Point, *, still: Callable[[], float] | None = None, elapsed: Callable[[], float] = time.monotonic
) -> None:
    """Wait for a point; raise `SignalTimeout` when no other thread of this process has worked for some time.

    The time is `STANDSTILL_S`. `still` returns the seconds since another thread was seen to work; the default
    is `Standstill`. The error has the seconds of the whole wait, by the clock `elapsed`.
    """
    clock, begun = still or Standstill(), elapsed()
    while True:
        try:
            point.wait(timeout_s=LOOK_S)
        except SignalTimeout as error:
            if clock() > STANDSTILL_S:
                waited = elapsed() - begun
                text = point.signal.device.stuck_on(point.signal, point.value, waited)
                raise SignalTimeout(text, point=point, seen=error.seen, waited_s=waited) from None
        else:
            return


@dataclass(kw_only=True)
class Checks:
    """Checks of a rung's results. In a dry run, which computes nothing, `check` does not compare.

    The bench of each vendor inherits from it, so that a rung has a single argument.
    """

    dry: bool = False
    emulate: str | None = None
    """The variant of the emulated GPU; None for a real GPU. Child processes use the same variant. On an
    emulated GPU rungs take small sizes."""
    signal_s: float = SIGNAL_S
    """Time limit of a semaphore in seconds, before the factor `patience`."""
    clock: Callable[[], float] = field(default=time.perf_counter)
    """The clock of `arrival`, in seconds."""

    @property
    def patience(self) -> float:
        """The factor of all time limits."""
        return 1.0 if self.emulate is None else EMULATED_PATIENCE

    def wait(self, point: Point, *, times: float = 1.0) -> None:
        """Wait for a submission, at most `times` * `WORK_S`; without a real GPU as long as threads work.

        Raises `SignalTimeout`, or `DeviceFault` if the GPU reports a fault.
        """
        if self.emulate is None and not self.dry:
            point.wait(timeout_s=times * WORK_S)
        else:
            wait_while_threads_work(point)

    def check(self, condition: bool, text: str) -> None:  # noqa: FBT001 - as in an assertion
        """Raise `RungError` unless `condition` holds; in a dry run check nothing."""
        if not condition and not self.dry:
            raise RungError(text)

    @property
    def repeats(self) -> int:
        """The number of runs of `repeat`: 2 in a dry run, which computes nothing."""
        return 2 if self.dry else REPEATS

    def repeat(self, what: str, once: Callable[[int], None]) -> int:
        """Call `once` with 1, 2, ... up to `repeats`; return the number of calls.

        Raises `RungError` at the end if a call raised one; the third failure ends the calls.
        """
        failed: list[str] = []
        number = 0
        while number < self.repeats and len(failed) < _GIVE_UP:
            number += 1
            try:
                once(number)
            except RungError as error:
                failed.append(f"repeat {number}: {error}")
        if failed:
            texts = "\n".join(failed)
            raise RungError(f"{what}: {len(failed)} of {number} repeats failed\n{texts}")
        return number

    def arrival(self, read: Callable[[], object], want: object) -> float | None:
        """Poll until `read` returns `want`; return the seconds: 0.0 if the first read did.

        Return None after `LATE_S` seconds, and in a dry run after the first read that differs. On an emulated
        GPU the seconds count only while none of its threads works.
        """
        start, still = self.clock(), None if self.emulate is None else Standstill()
        waited = 0.0
        while read() != want:
            waited = self.clock() - start
            if self.dry or (still() if still is not None else waited) > LATE_S:
                return None
            if still is not None:
                time.sleep(LOOK_S)
        return waited

    def waiting(self) -> Callable[[], str]:
        """Return a function that returns "after N s" once a wait is over its limit of N seconds, else "".

        The limit is `signal_s`. On an emulated GPU it is `STANDSTILL_S`, in which none of its threads works.
        """
        start, still = time.perf_counter(), None if self.emulate is None else Standstill()
        limit_s = self.signal_s if still is None else STANDSTILL_S

        def over() -> str:
            passed = time.perf_counter() - start if still is None else still()
            return f"after {limit_s} s" if passed > limit_s else ""

        return over
