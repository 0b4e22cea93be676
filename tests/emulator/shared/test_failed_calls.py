"""Every system call of the driver fails in turn on the emulated kernels: typed error, nothing leaked.

Each test prints how many calls failed. Whole devices of `hcq` run on kernels that also execute the work.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from typing import TYPE_CHECKING, Any

import pytest

import hcq
from drivers.amd.driver import AmdDriver
from drivers.nv.driver import NvDriver
from drivers.nv.layouts.status import NvStatus
from emulator.amd.machine import Machines
from emulator.nv.machine import open_variant
from emulator.shared.surprises import StatusReply
from hcq.config import override
from hcq.device import Device
from hcq.driver import QueueKind
from hcq.errors import FaultKind, FaultReport, HcqError
from tests.conformance.kernels import image
from tests.limits import HANG_S
from tests.support.hooked import HookedKernel

if TYPE_CHECKING:
    from collections.abc import Callable

HOST = hcq.BufferSpec(place=hcq.Place.HOST, host_visible=True, coherent=True)
LARGE = 4 << 20
"""Bytes that get large pages."""
MACHINES = ["nv-emu", "nv-emu:sm_80+580+native", "nv-emu by status", "amd-emu", "amd-emu:gfx942"]
"""Names of devices; "by status": calls of the resource manager and UVM return a status, others no error."""
HARMLESS = ("GPU_GET_NAME_STRING", "_DMA_COPY_")
"""What may be refused: the product's name, and the copy engine beside compute."""


def kernel_of(name: str) -> HookedKernel:
    """Return the kernel of a new machine."""
    vendor, _, variant = name.removesuffix(" by status").partition(":")
    kernel = HookedKernel(open_variant(variant) if vendor == "nv-emu" else Machines()(variant))
    kernel.status = StatusReply(NvStatus.INVALID_ARGUMENT) if name.endswith(" by status") else None
    return kernel


def opened(kernel: HookedKernel, index: int = 0) -> Device:
    """Open a device as `hcq.open` does."""
    driver: Any = (
        NvDriver("nv-emu", lambda _: kernel, emulated=True)
        if hasattr(kernel.inner.machine, "clients")
        else AmdDriver("amd-emu", lambda _: kernel, lasting=False, emulated=True)
    )
    with override(ring_bytes=1 << 14):
        return Device(driver.open(index, None), emulated=True)


def worked(device: Device) -> None:
    """Check that every queue of a device works."""
    buffer = device.alloc(64, HOST)
    for number, queue in enumerate(device.queues):
        queue.submit(queue.record().fill(buffer, number)).wait(timeout_s=HANG_S)
        assert buffer.host().cast("I")[0] == number


def tell(what: str, outcomes: dict[str, int]) -> None:
    """Print the counts."""
    counts = ", ".join(f"{number} {outcome}" for outcome, number in sorted(outcomes.items()))
    print(f"{what}: {counts}")  # noqa: T201 - `pytest -s` shows it


def count(outcomes: dict[str, int], outcome: str) -> None:
    """Add one to an outcome."""
    outcomes[outcome] = outcomes.get(outcome, 0) + 1


@pytest.mark.parametrize(
    ("name", "step"),
    [
        *((name, 29) for name in MACHINES),
        *(pytest.param(name, 1, marks=pytest.mark.landing) for name in ("nv-emu", "amd-emu")),
        *(pytest.param(name, 1, marks=pytest.mark.landing) for name in ("amd-emu:gfx942", "amd-emu:gfx1151")),
        pytest.param("nv-emu:sm_80+570 by status", 3, marks=pytest.mark.landing),
        pytest.param("nv-emu:sm_120+595 by status", 3, marks=pytest.mark.landing),
    ],
)
def test_each_call_that_fails_from_open_to_close_leaves_nothing(name: str, step: int) -> None:
    def use(kernel: HookedKernel) -> None:
        with contextlib.closing(opened(kernel)) as device:
            worked(device)

    probe = kernel_of(name)
    use(probe)
    assert not probe.held()
    outcomes: dict[str, int] = {}
    for number in range(0, probe.count, step):
        kernel = kernel_of(name)
        kernel.start(number)
        try:
            use(kernel)
        except HcqError as error:
            count(outcomes, type(error).__name__)
        else:
            count(outcomes, "no error")
            silent = kernel.failed.startswith(("RM_", "UVM_", "NVOS"))
            assert not silent or any(word in kernel.failed for word in HARMLESS), kernel.failed
        assert not kernel.held(), f"call {number} ({kernel.failed}) left {kernel.held()}"
    tell(f"{name} opens, works and closes", outcomes)


def priority(device: Device) -> object:
    old = device.compute.priority
    try:
        device.compute.priority = 2
    except HcqError:
        assert device.compute.priority == old
        raise
    device.compute.priority = 0
    return None


def exported(device: Device) -> object:
    """Export memory that this device cannot share."""
    with device.alloc(LARGE) as buffer:
        return device.export(buffer.chunk.allocation)


def imported(device: Device) -> object:
    """Import memory of another process, which no GPU can."""
    fd = os.memfd_create("memory of another process")
    try:
        return device.import_buffer(fd)
    finally:
        os.close(fd)


def signals(device: Device) -> object:
    """Shared signals: their pages are mapped into the device until it closes."""
    return device.signal(shared=True)


def carried(device: Device) -> object:
    """A submission that is larger than the ring, whose words lie in a buffer of their own."""
    queue, buffer = device.copies[0], device.alloc(64, HOST)
    commands = queue.record()
    for _ in range(queue.most_words // 4):
        commands.fill(buffer, 1)
    return queue.submit(commands)


def kept(device: Device, size: int, spec: hcq.BufferSpec) -> object:
    with device.alloc(size, spec):
        return None


def recovered(device: Device) -> object:
    """A recovery: what fails leaves the device faulted, and it may be repeated."""
    if device.refusal is None:
        device.faulted(FaultReport(device=device.name, kind=FaultKind.HANG, message="a test"))
    try:
        device.recover()
    except HcqError:
        with pytest.raises(hcq.DeviceFault):
            device.alloc(64)
        raise
    return None


def trimmed(device: Device) -> object:
    kept(device, LARGE, HOST)
    return device.trim()


def queues(device: Device) -> object:
    """Rings that the device has not made yet."""
    return device.driver.ring(QueueKind.COMPUTE, 1), device.driver.ring(QueueKind.COPY, 1)


PARTS: dict[str, Callable[[Device], object]] = {
    "large pages": lambda device: kept(device, LARGE, hcq.BufferSpec()),
    "visible memory": lambda device: kept(device, LARGE, hcq.BufferSpec(host_visible=True)),
    "host memory": lambda device: kept(device, LARGE, HOST),
    "trim": trimmed,
    "queues": queues,
    "priority": priority,
    "export": exported,
    "import": imported,
    "shared signal": signals,
    "program": lambda device: device.load(image("affine", device.info)),
    "large submission": carried,
    "clock": lambda device: device.clock(),
    "recover": recovered,
}
FREES = ("FREE", "UNMAP")
"""Calls of the driver that give memory back: what the kernel does not take back is held until the close."""


def driven(kernel: HookedKernel, device: Device, part: str) -> dict[str, int]:
    """Fail each call of a part in turn, until none is left; return the number of calls by their outcome.

    What fails raises a typed error and leaves the device as it was, but for what the kernel refused to free.
    A call that was made again, because memory was short, and one that is not needed, raise nothing.
    """
    outcomes: dict[str, int] = {}
    for number in itertools.count():
        if device.refusal is None:
            device.trim()
        before = kernel.held()
        kernel.start(number)
        try:
            PARTS[part](device)
        except HcqError as error:
            kernel.fail_at = None
            if not kernel.failed:  # what the device does not have
                assert isinstance(error, hcq.UnsupportedError), error  # noqa: PT017 - others failed before
                count(outcomes, "refused")
                return outcomes
            count(outcomes, type(error).__name__)
            if part not in {"trim", "recover"} and not any(word in str(error) for word in FREES):
                device.trim()
                assert kernel.held() == before, f"call {number} ({kernel.failed}) left something"
        else:
            kernel.fail_at = None
            if not kernel.failed:
                return outcomes
            count(outcomes, "no error")
    return outcomes


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", MACHINES)
def test_each_call_that_fails_on_an_open_device_leaves_it_as_it_was(name: str, part: str) -> None:
    kernel = kernel_of(name)
    with contextlib.closing(opened(kernel)) as device:
        outcomes = driven(kernel, device, part)
        if device.refusal is not None:
            device.recover()
        worked(device)
    assert not kernel.held()
    tell(f"{part} of {name}", outcomes)
