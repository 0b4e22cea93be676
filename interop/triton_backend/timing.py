"""Timing for Triton: events with device times, and estimates from counters on emulated GPUs.

Not here: timing of other programs (`hcq.profile`). Next: `hcq.counters`.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any, Final

from hcq.counters import counting
from hcq.errors import UnsupportedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hcq.counters import Counters
    from hcq.device import Device
    from hcq.signal import Point, Stamp

_TIE: Final = 1e-3
"""Weight of the sum of an estimate's parts, added to its time to order kernels of equal time."""


class Event:
    """A time on the device's first compute queue, between the launches before and after `record`."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._stamp: Stamp | None = None
        self._point: Point | None = None

    def record(self, stream: object = None) -> None:  # noqa: ARG002 - PyTorch's signature
        """Submit a command that writes the device time; a second call replaces the first."""
        self._stamp = self._device.stamp()
        queue = self._device.compute
        self._point = queue.submit(queue.record(label="event").timestamp(self._stamp))

    def synchronize(self) -> None:
        """Wait until the device has written the time; return at once if nothing was recorded."""
        if self._point is not None:
            self._point.wait()

    def ticks(self) -> int:
        """Wait for the device time; return it in ticks of `Device.clock`.

        Raises `UsageError` if the event was not recorded.
        """
        if self._stamp is None:
            raise UsageError("the event was not recorded; call record() first")
        self.synchronize()
        return self._stamp.ticks

    def elapsed_time(self, end: Event) -> float:
        """Return the milliseconds from this event to `end`, at least one tick. Raises as `ticks`."""
        clock = self._device.clock()
        return max(1, end.ticks() - self.ticks()) * 1000.0 / clock.hz


class DeviceInterface:
    """The part of `torch.cuda` that Triton's benchmarks use."""

    def __init__(self, device: Device, number: int) -> None:
        self._device = device
        self._number = number

    def Event(self, *, enable_timing: bool = True) -> Event:  # noqa: ARG002, N802 - PyTorch's names
        """Return a new event."""
        return Event(self._device)

    def synchronize(self, device: object = None) -> None:  # noqa: ARG002 - PyTorch's signature
        """Wait for all work."""
        self._device.sync()

    def current_device(self) -> int:
        """Return the number of the device."""
        return self._number


def bench(
    device: Device,
    call: Callable[[], object],
    *,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
    **_: object,
) -> Any:
    """Return the milliseconds of `call` on an emulated GPU, estimated from its counters (`estimated`).

    `call` is called twice. The result is a list with one value for each of `quantiles`; without quantiles it
    depends on `return_mode` as in `triton.testing.do_bench`: "mean", "min", "max", "median" give a number,
    "all" a list, and another one raises `KeyError`. Other options have no effect. Raises as `estimated` and
    `hcq.counting`, and what `call` raises.
    """
    call()  # compiles, and allocates memory that later calls reuse
    with counting(device) as counted:
        call()
    times = [estimated(counted)]
    if quantiles is not None:
        ordered = sorted(times)
        return [ordered[min(len(ordered) - 1, int(q * len(ordered)))] for q in quantiles]
    modes: dict[str, Callable[[list[float]], Any]] = {
        "all": list, "min": min, "max": max, "mean": statistics.fmean, "median": statistics.median
    }  # fmt: skip
    return modes[return_mode](times)


def estimated(counted: Counters) -> float:
    """Return the estimated milliseconds of all counted launches.

    It is the sum of the least times that the kernels take at the published rates of the first GPU listed for
    their architecture. Of kernels with the same least time, the one whose parts have the smaller sum is a
    little faster. The estimate orders kernels; it does not predict measured times. Raises `UnsupportedError`
    for an architecture without published rates.
    """
    total = 0.0
    for kernel in counted:
        if not kernel.estimates:
            raise UnsupportedError(f"kernel {kernel.kernel}: no rates of a GPU are listed for {kernel.arch}")
        one = kernel.estimates[0]
        total += one.seconds + _TIE * sum(one.parts.values())
    return total * 1000.0
