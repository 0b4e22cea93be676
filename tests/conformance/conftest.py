"""The devices of the conformance suite, and its fixtures.

`HCQ_CONFORMANCE` names the devices, separated by commas; without it: cpu. A device that cannot be opened here
is skipped with what was missing, except the cpu.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import pytest

import hcq
from hcq.config import config, override
from tests.conformance.kernels import image

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ONE = (1, 1, 1)
SHARED = hcq.BufferSpec(place=hcq.Place.HOST, host_visible=True, coherent=True)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run every test once for each device; those with `workers` for several numbers of workers."""
    names = config().conformance
    if "workers" in metafunc.fixturenames:
        cases = [(name, n) for name in names for n in ((0, 1, 3) if name == "cpu" else (0,))]
        metafunc.parametrize(("name", "workers"), cases, scope="session")
    elif "name" in metafunc.fixturenames:
        metafunc.parametrize("name", names, scope="session")


def opened(name: str, *, validate: bool = True, seed: int = 0) -> hcq.Device:
    """Open a device, or skip the test with what is missing."""
    try:
        return hcq.open(name, validate=validate, seed=seed)
    except (hcq.UnsupportedError, hcq.DriverError) as error:
        if name == "cpu":
            raise
        pytest.skip(f"{name} cannot be opened here: {error}")


class Lab:
    """An open device, and the operations that most tests need."""

    def __init__(self, device: hcq.Device) -> None:
        self.device = device
        self.queue = device.compute
        self.other = device.computes[-1] if len(device.computes) > 1 else device.copies[0]
        """A second queue; a compute queue where there are two."""
        self.copies = device.copies[0]
        self._programs: dict[str, hcq.Program] = {}

    def load(self, name: str) -> hcq.Program:
        """Return a kernel of the table, loaded once."""
        if name not in self._programs:
            self._programs[name] = self.device.load(image(name, self.device.info))
        return self._programs[name]

    def words(self, values: Sequence[int] | int, label: str = "") -> hcq.Buffer:
        """Return a buffer that the host sees, with these u32 in it, or so many zeros."""
        content = array("I", [0] * values if isinstance(values, int) else values)
        buffer = self.device.alloc(max(4, 4 * len(content)), SHARED, label=label)
        buffer.host()[: 4 * len(content)] = content.tobytes()
        return buffer

    def run(
        self,
        commands: hcq.CommandBuffer,
        kernel: str,
        *values: hcq.Buffer | hcq.Param | hcq.Expr | float,
        groups: tuple[hcq.Word, hcq.Word, hcq.Word] = ONE,
    ) -> hcq.CommandBuffer:
        """Record a launch."""
        program = self.load(kernel)
        return commands.exec(program, program.args(*values), groups=groups, threads=ONE)

    def close(self) -> None:
        """Close the device."""
        self._programs.clear()
        self.device.close()


def read(buffer: hcq.Buffer) -> list[int]:
    """Return a buffer's u32."""
    return buffer.host().cast("I").tolist()


@pytest.fixture
def lab(name: str) -> Iterator[Lab]:
    """A device with the validation layer on."""
    lab = Lab(opened(name))
    yield lab
    lab.close()


@pytest.fixture
def bare(name: str) -> Iterator[Lab]:
    """A device without the validation layer."""
    lab = Lab(opened(name, validate=False))
    yield lab
    lab.close()


@pytest.fixture
def narrow(name: str) -> Iterator[Lab]:
    """A device without validation, for tests that fill a ring; rings of an emulated one are the smallest."""
    with override(ring_bytes=(1 << 14) * ("emu" in name)):
        lab = Lab(opened(name, validate=False))
    yield lab
    lab.close()


@pytest.fixture
def kernels(name: str) -> None:
    """Skip a test before it begins, not at its first launch, on a device that runs no kernels."""
    with opened(name, validate=False) as device:
        image("count", device.info)


@pytest.fixture
def native(name: str) -> str:
    """The name of a device whose queues progress without Python."""
    if "emu" in name:
        pytest.skip(f"{name} is emulated in Python: its queues stand still when Python does")
    return name
