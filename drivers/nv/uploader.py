"""The driver's own copy channel, which zeroes new memory and uploads code.

Not here: how a copy is waited for (`drivers.uploader`), copies that users submit (`encode`), the channel
itself (`channel`). Next: `ring`.
"""

from __future__ import annotations

from drivers.nv import push
from drivers.uploader import Uploader


class NvUploader(Uploader):
    """Synchronous copies and fills on a copy channel; errors and arguments as of `Uploader`."""

    LATE = "the driver's copy channel did not finish"
    HINT = (
        "the doorbell did not reach the GPU, or its firmware (GSP) does not run the channel: `dmesg | grep "
        "NVRM`; `python -m tools.bringup` tries other doorbells and rings (rung 12 and on)"
    )

    def zero(self, va: int, size: int) -> None:
        """Fill `size` bytes of device memory, a multiple of 4, with zeros."""
        with self._lock:
            self._run(push.fill(va, 0, size))

    def _copy(self, target: int, source: int, size: int) -> push.Words:
        return push.copy(target, source, size)

    def _signalled(self, words: push.Words, value: int) -> push.Words:
        return (*words, *push.copy_signal(self._stage.va, value))
