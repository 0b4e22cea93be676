"""An open device without a GPU, and the work that its host time is measured with: launches and replays.

What a GPU would write is written by `finish`, outside the measured time, so each submission finds the
previous one completed and retires it.

Not here: the devices of the vendors (`nv`, `amd`).
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, Self, cast

from drivers.kernel import view_at
from hcq.graph import Graph

if TYPE_CHECKING:
    from collections.abc import Callable

    from hcq.device import Device
    from hcq.program import Program
    from hcq.signal import Point

KERNELS: Final = 256
_SHAPE: Final[Any] = {"groups": (4, 1, 1), "threads": (128, 1, 1)}
_IN_FLIGHT: Final = 3
"""Number of input sets that replays with changed inputs use in turn."""


deaf: Final = cast("Callable[[int], None]", operator.index)
"""A doorbell that nothing hears, at no cost of Python."""


class FinishedDevice(ABC):
    """An open device whose first compute queue executes nothing. It owns the device and closes it."""

    def __init__(self, device: Device, program: Program) -> None:
        """Measure with a program of two pointers and an integer."""
        self.device, self.program = device, program
        self._last: Point | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()
        self.device.close()

    @abstractmethod
    def take(self) -> None:
        """Write into the ring's memory that the GPU has taken all that was submitted."""

    def finish(self) -> None:
        """Write what a GPU writes after the last submission: its signal, and how far the ring is taken."""
        if self._last is not None:
            view_at(self._last.signal.va, 8).cast("Q")[0] = self._last.value - self._last.signal.base
            self.take()

    def launcher(self) -> Callable[[], None]:
        """Return a function that submits one launch with new arguments."""
        queue, program = self.device.compute, self.program
        out, x = self.device.alloc(4096), self.device.alloc(4096)

        def submit() -> None:
            args = program.args(out, x, 5)
            self._last = queue.submit(queue.record().exec(program, args, **_SHAPE))

        return submit

    def replayer(self, kernels: int = KERNELS, *, changed: bool) -> Callable[[], None]:
        """Return a function that replays a graph of kernels with one input each, all changed or none."""
        graph, queue, out = Graph(), self.device.compute, self.device.alloc(4096)
        commands = queue.record()
        for i in range(kernels):
            commands.exec(self.program, self.program.args(out, graph.param(f"input{i}"), 5), **_SHAPE)
        graph.add(queue, commands)
        executable = graph.compile()
        sets = [
            [self.device.alloc(4096) for _ in range(kernels)] for _ in range(_IN_FLIGHT if changed else 1)
        ]
        turn = 0

        def submit() -> None:
            nonlocal turn
            turn = (turn + 1) % len(sets)
            self._last = executable.replay(sets[turn])

        return submit
