"""Devices of the queue fuzzer that have its kernel loaded, out[x] = out[x] * 3 + a[x] + term.

Next: `queue_programs`, which launches it.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import hcq
from tests.conformance.kernels import image

if TYPE_CHECKING:
    from collections.abc import Sequence

SHARED: Final = hcq.BufferSpec(place=hcq.Place.HOST, host_visible=True, coherent=True)


class Stage:
    """Open devices, their queues, and the kernel loaded on each."""

    def __init__(self, names: Sequence[str], *, validate: bool, seed: int = 0) -> None:
        self.devices = [hcq.open(name, validate=validate, seed=seed) for name in names]
        self.queues = [queue for device in self.devices for queue in device.queues]
        self.mix = {device: device.load(image("mix", device.info)) for device in self.devices}
        self.compute = tuple(queue.kind is hcq.QueueKind.COMPUTE for queue in self.queues)

    def buffer(self, data: bytes) -> hcq.Buffer:
        """Return a buffer with this content that the host and all devices see."""
        first, *others = self.devices
        buffer = first.alloc(len(data), SHARED)
        for device in others:
            buffer.map_to(device)
        buffer.host()[:] = data
        return buffer

    def close(self) -> None:
        """Close the devices, all of them also where one raises a fault."""
        self.mix.clear()
        with ExitStack() as stack:
            for device in self.devices:
                stack.callback(device.close)
