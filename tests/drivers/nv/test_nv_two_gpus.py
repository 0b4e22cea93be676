"""Two GPUs: memory that one maps of the other, signals across devices, the order of closing."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

import hcq
from drivers.nv.quirks import DEFAULT
from emulator.nv.profiles import link_of
from hcq.device import Device
from hcq.driver import BufferSpec, Place
from hcq.errors import UnsupportedError
from tests.limits import HANG_S
from tests.support.nv.recorded import RecordedKernel, driver_of
from tools.bringup.checks import REPEATS
from tools.bringup.launches import peers
from tools.bringup.nv.bench import Bench

if TYPE_CHECKING:
    from collections.abc import Iterator

HOST = BufferSpec(place=Place.HOST, host_visible=True)


def machine(link: str) -> RecordedKernel:
    """Return a machine of two GPUs that are joined by "pcie", "nvlink", or nothing ("")."""
    chips = ("sm_90", "sm_90")
    return RecordedKernel(*chips, link=link_of(chips, pcie=link == "pcie") if link else None)


@contextlib.contextmanager
def pair(link: str = "pcie", second: int = 1) -> Iterator[tuple[RecordedKernel, Device, Device]]:
    """Open the GPUs of a machine; with `second` 0 the first one twice."""
    kernel = machine(link)
    driver = driver_of(kernel)
    with Device(driver.open(0, None)) as a, Device(driver.open(second, None)) as b:
        yield kernel, a, b
    assert kernel.held() == {}
    registered, left = (named(kernel.lines, f"UVM_{what}_GPU ") for what in ("REGISTER", "UNREGISTER"))
    assert len(registered) == len(left) >= 2


def named(lines: list[str], start: str) -> list[str]:
    return [line for line in lines if line.startswith(start)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("link", ["pcie", "nvlink"])
def test_video_memory_of_a_peer_is_mapped_at_its_address(link: str):
    with pair(link) as (kernel, a, b):
        there = a.alloc(1 << 20)
        before = len(kernel.lines)
        there.map_to(b)
        a_driver: Any = a.driver
        lines, peer = kernel.lines[before:], repr(kernel.machine.gpus[0].uuid)
        calls = [line.split()[0] for line in lines if peer in line]
        assert calls == ["UVM_REGISTER_GPU", "UVM_ENABLE_PEER_ACCESS"]
        (mapped,) = named(lines, f"UVM_MAP_EXTERNAL_ALLOCATION base={there.va:#x}")
        assert f"hClient={a_driver.rm.root:#x}" in mapped
        b.copies[0].submit(b.copies[0].record().copy(b.alloc(4096), there, 4096)).wait(timeout_s=HANG_S)
        more = a.alloc(8 << 20)
        more.map_to(b)
        assert len(named(kernel.lines, "UVM_ENABLE_PEER_ACCESS")) == 1, "a GPU is made a peer once"


def test_video_memory_of_a_gpu_that_was_opened_twice_is_mapped_by_both_devices():
    with pair(second=0) as (kernel, a, b):
        there, out = a.alloc(4096), b.alloc(4096, HOST)
        before = len(kernel.lines)
        there.map_to(b)
        calls = [line.split()[0] for line in kernel.lines[before:]]
        assert calls == ["UVM_CREATE_EXTERNAL_RANGE", "UVM_MAP_EXTERNAL_ALLOCATION"]
        a.compute.submit(a.compute.record().fill(there, 7)).wait(timeout_s=HANG_S)
        b.copies[0].submit(b.copies[0].record().copy(out, there)).wait(timeout_s=HANG_S)
        assert bytes(out.host()) == bytes((7, 0, 0, 0)) * 1024


def test_video_memory_without_a_link_is_refused_with_the_way_around():
    with (
        pair("") as (_, a, b),
        pytest.raises(
            UnsupportedError,
            match=r"(?s)nv:1 cannot map .* of nv:0: UVM_ENABLE_PEER_ACCESS.*NOT_SUPPORTED.*through host",
        ),
    ):
        a.alloc(4096).map_to(b)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("link", ["", "pcie"])
def test_host_memory_of_one_is_read_by_the_other_where_no_link_is(link: str):
    with pair(link) as (kernel, a, b):
        there = a.alloc(4096, HOST)
        before = len(kernel.lines)
        there.map_to(b)
        lines = kernel.lines[before:]
        assert len(named(lines, f"UVM_MAP_EXTERNAL_ALLOCATION base={there.va:#x}")) == 1
        assert not named(lines, "UVM_ENABLE_PEER_ACCESS")


def test_memory_that_its_owner_frees_leaves_the_other_gpu():
    with pair() as (kernel, a, b):
        owner: Any = a.driver
        peer: Any = b.driver
        spaces = [file.uvm for file in kernel.inner.files.values() if file.uvm is not None]
        for spec in (BufferSpec(), HOST):
            memory = owner.alloc(2 << 20, spec)
            peer.map_peer(memory, owner)
            assert sum(memory.va in space.ranges for space in spaces) == 2
            owner.free(memory)
            assert not any(memory.va in space.ranges for space in spaces)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("owner_first", [True, False])
def test_a_peer_and_an_owner_may_close_in_any_order(owner_first: bool):  # noqa: FBT001 - a parameter of the test
    with pair() as (_, a, b):
        owner, peer = a.driver, b.driver
        peer.map_peer(owner.alloc(4096, BufferSpec()), owner)
        peer.map_peer(owner.alloc(4096, HOST), owner)
        for device in (a, b) if owner_first else (b, a):
            device.close()


class NotedLock:
    """The lock of a device, which notes whether its thread holds another one when it takes this."""

    def __init__(self, lock: Any, other: Any) -> None:
        self.lock, self.other = lock, other
        self.held: list[bool] = []

    def __enter__(self) -> bool:
        self.held.append(self.other._is_owned())
        return self.lock.__enter__()

    def __exit__(self, *error: object) -> None:
        self.lock.__exit__(*error)


def test_an_owner_that_closes_takes_the_lock_of_a_peer_alone():
    """Two GPUs that map memory of each other may close at the same time."""
    with pair() as (_, a, b):
        owner: Any = a.driver
        peer: Any = b.driver
        peer.map_peer(owner.alloc(4096, BufferSpec()), owner)
        lock = peer.shared._lock = NotedLock(peer._lock, owner._lock)
        a.close()
        assert lock.held == [False]


@pytest.mark.parametrize("index", [0, 1])
def test_video_memory_of_another_machine_is_refused(index: int):
    with pair() as (_, a, _b), pair() as (_, *others):
        with pytest.raises(UnsupportedError, match=rf"nv:{index} cannot map .* nv:0: .* emulated machines"):
            a.alloc(4096).map_to(others[index])
        a.alloc(4096, HOST).map_to(others[index])


@pytest.mark.parametrize("link", ["", "pcie", "nvlink"])
def test_the_rung_of_two_gpus_counts_in_memory_of_both(link: str):
    bench = Bench(machine(link), DEFAULT, emulate="")
    with bench.stack:
        found = peers(bench)
    if link:
        assert found == {"other GPU": 1, "kernels in turn": 2 * REPEATS}
    else:
        assert "UVM_ENABLE_PEER_ACCESS ended with" in str(found["no peers"])


def test_memory_of_another_vendor_is_refused():
    with pair() as (_, a, _b), hcq.open("cpu") as cpu:
        memory = cpu.driver.alloc(4096, BufferSpec())
        with pytest.raises(UnsupportedError, match=r"cannot map memory of cpu:0.*\n.*through host memory"):
            a.driver.map_peer(memory, cpu.driver)
        cpu.driver.free(memory)
