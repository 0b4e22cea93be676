"""The drivers' own copy channels: a call waits for the GPU for a limited CPU time, of an injected clock."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from drivers.amd.context import Geometry, QueueContext
from drivers.amd.encode_sdma import SdmaEncoder
from drivers.amd.layouts.chips import CHIPS
from drivers.nv import push
from drivers.shared.uploader import MEMORY_BYTES, Uploader
from hcq.errors import BringUpError

if TYPE_CHECKING:
    from collections.abc import Callable

VENDORS = ("amd", "nv")


class Gpu:
    """A ring and memory of a GPU that finishes a submission when its `looks`-th look at the clock is made."""

    def __init__(self, looks: float, seconds: Callable[[int], float]) -> None:
        self._looks, self._seconds = looks, seconds
        self.looked = 0
        self.slot: Any = None
        self.clocks = 0
        self.words: tuple[int, ...] = ()

    def make(self) -> Callable[[], float]:
        self.clocks += 1
        return self.clock

    def clock(self) -> float:
        self.looked += 1
        if self.looked >= self._looks:
            self.slot[0] = 1  # the number of the first submission
        return self._seconds(self.looked)

    def send(self, words: tuple[int, ...], /) -> None:
        self.words = words

    def stuck(self) -> str:
        return "nothing was read"

    def close(self) -> None:
        pass


def free(_: object) -> None:
    """Free nothing."""


def no_fault() -> None:
    """Return no report."""


def uploader(vendor: str, gpu: Gpu) -> Any:
    gpu.slot = (stage := memoryview(bytearray(MEMORY_BYTES)))[:4].cast("I")
    memory = SimpleNamespace(va=1 << 32, view=stage)
    if vendor == "nv":
        return Uploader(gpu, memory, free, no_fault, push.UPLOADS, clock=gpu.make)
    context = QueueContext(target=CHIPS["gfx1100"], geometry=Geometry(compute_units=1, engines=1))
    return Uploader(gpu, memory, free, no_fault, SdmaEncoder(context).uploads(), clock=gpu.make)


@pytest.mark.parametrize("vendor", VENDORS)
def test_an_upload_waits_while_no_cpu_time_passes(vendor: str) -> None:
    gpu = Gpu(1000, lambda _: 0.0)
    uploader(vendor, gpu).upload(1 << 20, b"code")
    assert gpu.looked == 1000
    assert gpu.words


@pytest.mark.parametrize("vendor", VENDORS)
def test_an_upload_that_nothing_ends_is_an_error(vendor: str) -> None:
    gpu = Gpu(float("inf"), float)
    with pytest.raises(BringUpError, match="nothing was read"):
        uploader(vendor, gpu).upload(1 << 20, b"code")
    assert (gpu.clocks, gpu.looked) == (1, 21)  # each second until more than 20 have passed
