"""A device of each emulated AMD GPU, and launches of other compilers' kernels with NumPy arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import hcq
from tests.drivers.amd.guests import guest
from tests.limits import HANG_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Array = np.ndarray
DEVICES = {"gfx1100": "amd-emu", "gfx1201": "amd-emu:gfx1201", "gfx942": "amd-emu:gfx942"}
_HOST = hcq.BufferSpec(place=hcq.Place.HOST, host_visible=True, coherent=True)


class Runner:
    """Launches kernels of one target through the driver."""

    def __init__(self, arch: str) -> None:
        self.arch = arch
        self.device = hcq.open(DEVICES[arch])
        self._scratch = self.device.alloc(4096)

    def run(
        self,
        folder: Path,
        name: str,
        groups: tuple[int, ...],
        *values: Array | float,
        threads: tuple[int, int, int] | None = None,
    ) -> None:
        """Launch a kernel and wait; arrays are copied to the GPU before and back after."""
        found = guest(folder, name, self.arch)
        program = self.device.load(found.image)
        buffers = [self._buffer(value) if isinstance(value, np.ndarray) else None for value in values]
        given = [value if buffer is None else buffer for value, buffer in zip(values, buffers, strict=True)]
        given += [self._scratch] * (len(found.image.args) - len(given))
        grid = (*groups, 1, 1)[:3]
        commands = self.device.compute.record()
        commands.exec(program, program.args(*given), groups=grid, threads=threads or (found.threads, 1, 1))
        self.device.compute.submit(commands).wait(timeout_s=HANG_S)
        for value, buffer in zip(values, buffers, strict=True):
            if isinstance(value, np.ndarray) and buffer is not None:
                value.view("u1").reshape(-1)[:] = np.frombuffer(buffer.host()[: value.nbytes], "u1")
                buffer.close()

    def _buffer(self, array: Array) -> hcq.Buffer:
        buffer = self.device.alloc(max(array.nbytes, 4), _HOST)
        buffer.host()[: array.nbytes] = array.tobytes()
        return buffer

    def close(self) -> None:
        self.device.close()


@pytest.fixture(params=list(DEVICES))
def runner(request: pytest.FixtureRequest) -> Iterator[Runner]:
    made = Runner(request.param)
    yield made
    made.close()
