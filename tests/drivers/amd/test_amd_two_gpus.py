"""Two GPUs, and two devices on one: what they share, signals and memory across them, the order of closing."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from drivers.amd.layouts.kfd import MemFlags
from drivers.amd.quirks import DEFAULT
from drivers.kernel import MAP_ANONYMOUS, MAP_SHARED
from hcq.device import Device
from hcq.driver import BufferSpec
from hcq.errors import UnsupportedError, UsageError
from tests.drivers.amd.opened import HOST, driver_of, emulated, opened
from tools.bringup.amd.bench import Bench
from tools.bringup.checks import REPEATS
from tools.bringup.launches import peers

if TYPE_CHECKING:
    from tests.support.hooked import HookedKernel

PAIR = ("gfx1100", "gfx1100")


def test_memory_that_the_hardware_does_not_share_is_refused_with_the_way_around():
    kernel = emulated(*PAIR, peers=False)
    driver = driver_of(kernel)
    with Device(driver.open(0, None)) as a, Device(driver.open(1, None)) as b:
        there = a.alloc(4096)
        with pytest.raises(
            UnsupportedError, match=r"(?s)amd:1 cannot reach the video memory of amd:0.*through host"
        ):
            there.map_to(b)
        a.alloc(4096, HOST).map_to(b)
    assert kernel.held() == {}


def user_pointers(kernel: HookedKernel) -> list[Any]:
    """Return the allocations that show memory of this process."""
    every = [one for gpu in kernel.machine.gpus for one in gpu.handles.values()]
    return [one for one in every if one.flags & MemFlags.USERPTR]


def test_devices_of_two_machines_share_nothing():
    first, second = emulated(), emulated()
    with contextlib.closing(opened(first)) as a, contextlib.closing(opened(second)) as b:
        memory = a.alloc(4096, HOST)
        with pytest.raises(UnsupportedError, match="one process share memory"):
            b.map_peer(memory, a)
    assert first.held() == second.held() == {}


@pytest.mark.parametrize("owner_first", [True, False])
def test_a_peer_and_an_owner_may_close_in_any_order(owner_first: bool):  # noqa: FBT001 - a parameter of the test
    kernel = emulated(*PAIR)
    driver = driver_of(kernel)
    owner, peer = driver.open(0, None), driver.open(1, None)
    peer.map_peer(owner.alloc(4096, BufferSpec()), owner)
    for device in (owner, peer) if owner_first else (peer, owner):
        device.close()
    assert kernel.held() == {}


def test_memory_freed_by_its_owner_leaves_every_gpu():
    kernel = emulated(*PAIR)
    driver = driver_of(kernel)
    with contextlib.closing(driver.open(0, None)) as owner, contextlib.closing(driver.open(1, None)) as peer:
        memory = owner.alloc(4096, BufferSpec())
        peer.map_peer(memory, owner)
        owner.free(memory)
        with pytest.raises(UsageError, match="was not allocated by amd:0"):
            owner.free(memory)
    assert kernel.held() == {}


@pytest.mark.parametrize("linked", [True, False])
def test_the_rung_of_two_gpus_counts_in_memory_of_both(linked: bool):  # noqa: FBT001 - a parameter of the test
    bench = Bench(emulated(*PAIR, peers=linked), DEFAULT, index=1, emulate="")
    with bench.stack:
        found = peers(bench)
    if linked:
        assert found == {"other GPU": 0, "kernels in turn": 2 * REPEATS}
    else:
        assert "no link between them" in str(found["no peers"])


def test_all_gpus_are_tied_before_exceptions_of_queues_are_asked_for():
    kernel = emulated("gfx1100", "gfx1030", "gfx1201")
    driver = driver_of(kernel)
    with contextlib.closing(driver.open(0, None)), contextlib.closing(driver.open(2, None)):
        pass
    names = [call for call in kernel.calls if call.startswith(("ACQUIRE", "RUNTIME"))]
    assert names == ["ACQUIRE_VM", "ACQUIRE_VM", "RUNTIME_ENABLE"]
    assert kernel.held() == {}


def test_two_devices_of_one_gpu_share_its_descriptor_and_host_memory():
    kernel = emulated()
    driver = driver_of(kernel)
    host = kernel.mmap(65536, flags=MAP_SHARED | MAP_ANONYMOUS)
    with contextlib.closing(driver.open(0, None)) as a, contextlib.closing(driver.open(0, None)) as b:
        for device in (a, b):
            device.map_host(host.va, 65536)
        shown = user_pointers(kernel)
        assert len(shown) == 1
        a.unmap_host(host.va, 65536)
        assert shown[0].mapped, "the other device sees it still"
        b.unmap_host(host.va, 65536)
        assert not shown[0].mapped
    assert kernel.calls.count("ACQUIRE_VM") == 1
    kernel.munmap(host.va, 65536)
    assert kernel.held() == {}


def test_host_memory_is_mapped_once_into_each_gpu():
    kernel = emulated(*PAIR)
    driver = driver_of(kernel)
    host = kernel.mmap(65536, flags=MAP_SHARED | MAP_ANONYMOUS)
    with contextlib.closing(driver.open(0, None)) as a, contextlib.closing(driver.open(1, None)) as b:
        for device in (a, b):
            device.map_host(host.va, 65536)
        (shown,) = user_pointers(kernel)
        first, second = kernel.machine.gpus
        assert (shown.mapped, shown.backing.host, shown.va) == ({first, second}, host.va, host.va)
        a.unmap_host(host.va, 65536)
        assert shown.mapped == {second}
        with pytest.raises(UsageError, match="not mapped into"):
            a.unmap_host(host.va, 65536)
        with pytest.raises(UsageError, match="whole pages"):
            a.map_host(host.va + 1, 4096)
    kernel.munmap(host.va, 65536)
    assert kernel.held() == {}
