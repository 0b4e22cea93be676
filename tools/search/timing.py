"""A sample of the time of one kernel: a batch of launches, encoded once, by the time of the processor.

Encoding hundreds of launches takes longer than small kernels do; a replay encodes nothing, so that samples of
several plans can be taken close to one another. The launches of a batch are in order, each after the effects
of the one before are visible.

Not here: the comparison of plans (`choose`).
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Self

import hcq

if TYPE_CHECKING:
    from frontend.tuning.trial import LoadedTrial, Trial

LEAST_NS = 400_000
"""The least time of a sample, where `MOST_LAUNCHES` take as long: to wake the thread takes up to 10,000."""
MOST_LAUNCHES = 800
"""The launches of a batch at most."""
POLL_S = 0.0002
"""Seconds between looks whether a batch is complete."""
GROWTH = 8
"""A batch that takes too little time has at most so many times the launches the next time."""


class Batch:
    """Launches of one kernel on the buffers of a trial; a context manager. The caller owns the trial."""

    def __init__(self, trial: Trial, kernel: LoadedTrial) -> None:
        """Encode as many launches as take `LEAST_NS`, at most `MOST_LAUNCHES`."""
        self._trial = trial
        self._kernel = kernel
        self.launches = 1
        self._executable = self._encoded()
        taken = self._replay()
        while taken < LEAST_NS and self.launches < MOST_LAUNCHES:
            wanted = math.ceil(self.launches * LEAST_NS / taken)
            self.launches = min(MOST_LAUNCHES, GROWTH * self.launches, max(self.launches + 1, wanted))
            self._executable.close()
            self._executable = self._encoded()
            taken = self._replay()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._executable.close()

    def sample(self) -> float:
        """Return the nanoseconds of one launch: the mean of a replay."""
        return self._replay() / self.launches

    def _encoded(self) -> hcq.Executable:
        graph = hcq.Graph(label="batch")
        graph.add(self._trial.device.queue, self._trial.recorded(self._kernel, self.launches))
        return graph.compile(copies=1)

    def _replay(self) -> int:
        """Return the nanoseconds of one replay."""
        begun = others_ns()
        point = self._executable.replay()
        while not point.over():  # a thread in `wait` would execute a part of the launches
            time.sleep(POLL_S)
        point.wait()
        return max(1, others_ns() - begun)


def others_ns() -> int:
    """Return the processor time of all threads but this one, which submits, in nanoseconds."""
    return time.process_time_ns() - time.thread_time_ns()
