"""The cpu driver, one of its devices, and compiled test kernels."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from drivers.cpu.driver import CpuDriver
from drivers.cpu.image import HostCode, compile_object, nothing_from_outside
from drivers.cpu.link import HostImage
from drivers.cpu.native import translate
from drivers.kernel import LinuxKernel
from tests.drivers.cpu.rig import KERNELS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drivers.cpu.device import CpuDevice


@pytest.fixture(scope="module")
def driver() -> CpuDriver:
    return CpuDriver()


@pytest.fixture(scope="module")
def kernels() -> Iterator[dict[str, int]]:
    machine = os.uname().machine
    image = HostImage(compile_object(translate(KERNELS, machine)), machine)
    code = HostCode(LinuxKernel(), image, nothing_from_outside)
    yield code.address
    code.close()


@pytest.fixture
def device(driver: CpuDriver) -> Iterator[CpuDevice]:
    device = driver.open(0, None)
    yield device
    device.close()
