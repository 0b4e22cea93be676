"""Four devices of the host for the tests of a module, and how their parts of a model are divided."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from frontend import Device
from hcq.config import override

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from frontend import nn

CPUS = ("cpu:0", "cpu:1", "cpu:2", "cpu:3")
AMDS = ("amd-emu:gfx1100+gfx1100", "amd-emu:gfx1100+gfx1100:1")
NVS = ("nv-emu:sm_90+sm_90", "nv-emu:sm_90+sm_90:1")
MIXED = ("amd-emu:gfx1100", "nv-emu:sm_90")


@pytest.fixture(autouse=True)
def four_cpus() -> Iterator[None]:
    """Four cpu devices, in each module that imports this."""
    with override(cpu_devices=4):
        yield


@pytest.fixture(scope="module", autouse=True)
def closed() -> Iterator[None]:
    """Open cpu:0 with all cores, which other modules use, and close the other devices after this module."""
    Device["cpu"].synchronize()
    yield
    for name in (*[f"cpu:{i}" for i in range(1, 8)], *AMDS, *NVS, *MIXED):
        found = Device._open.get(Device.canonical(name))
        if found is not None:
            found.synchronize()  # work that no test waited for
            found.close()


def numbers(shape: tuple[int, ...], seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape)


def whole(_net: nn.Module, _devices: Sequence[str]) -> None:
    """Data parallel: each device keeps all parameters."""


def divide_all(net: nn.Module, devices: Sequence[str]) -> None:
    """Fully sharded: each parameter is divided along its first axis."""
    for p in net.parameters():
        if p.requires_grad:
            p.shard_(devices, 0)


def same(got: Sequence[Any], want: Sequence[Any]) -> None:
    """Compare arrays of float64, within 1e-10."""
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)
