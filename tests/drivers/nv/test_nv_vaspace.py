"""Device addresses: below 2^40, disjoint, apart from host mappings, and all released."""

from __future__ import annotations

import errno
import itertools

import pytest

from drivers.kernel import MAP_ANONYMOUS, MAP_FIXED_NOREPLACE, MAP_PRIVATE, LinuxKernel
from drivers.nv.vaspace import FIRST, HUGE, LAST, LOCAL_WINDOW, SHARED_WINDOW, NvVaSpace
from hcq.errors import DriverError, OutOfMemoryError


class EmptyHost:
    """A kernel of a process that uses no addresses."""

    def __init__(self) -> None:
        self.taken: list[tuple[int, int]] = []
        self.asked = 0

    def mmap(self, size: int, *, va: int, flags: int, **_: object) -> None:
        assert flags & MAP_FIXED_NOREPLACE
        self.asked += 1
        if any(va < end and start < va + size for start, end in self.taken):
            raise DriverError("mmap", errno.EEXIST, "EEXIST")
        self.taken.append((va, va + size))

    def munmap(self, va: int, size: int) -> None:
        self.taken.remove((va, va + size))


# In this process other tests' devices may hold addresses, too.


def test_ranges_are_disjoint_aligned_and_reusable():
    space = NvVaSpace(LinuxKernel())
    sizes = (4096, HUGE, 3 * HUGE, 4096)
    taken = [space.reserve(size) for size in sizes]
    assert all(va % HUGE == 0 and FIRST <= va < LAST for va in taken)
    assert len(set(taken)) == 4
    for va in taken:
        space.release(va)
    assert [space.reserve(size) for size in sizes] == taken
    space.close()


def test_released_ranges_are_merged():
    host = EmptyHost()
    space = NvVaSpace(host)  # type: ignore[arg-type]  # all of a kernel that it uses
    taken = [space.reserve(size) for size in (4096, HUGE, 3 * HUGE, 4096)]
    for va in (taken[2], taken[0], taken[3], taken[1]):
        space.release(va)
    assert host.taken == []
    assert space.reserve(LAST - FIRST) == taken[0] == FIRST
    with pytest.raises(OutOfMemoryError):
        space.reserve(4096)
    space.close()
    assert host.taken == []


def test_a_range_that_the_host_uses_is_passed_over():
    host = EmptyHost()
    space = NvVaSpace(host)  # type: ignore[arg-type]  # all of a kernel that it uses
    host.mmap(4096, va=FIRST + 8192, flags=MAP_FIXED_NOREPLACE)
    assert space.reserve(HUGE) == FIRST + HUGE


def test_address_ranges_used_by_the_host_are_skipped_once():
    host = EmptyHost()
    space = NvVaSpace(host)  # type: ignore[arg-type]  # all of a kernel that it uses
    host.mmap(64 << 30, va=FIRST, flags=MAP_FIXED_NOREPLACE)
    host.asked = 0
    taken = [space.reserve(HUGE) for _ in range(10)]
    assert host.asked <= 30
    assert taken[0] >= FIRST + (64 << 30)
    assert [b - a for a, b in itertools.pairwise(taken)] == [HUGE] * 9


def test_a_skipped_hole_is_used_when_nothing_else_is_free():
    host = EmptyHost()
    space = NvVaSpace(host)  # type: ignore[arg-type]  # all of a kernel that it uses
    host.mmap(HUGE, va=FIRST, flags=MAP_FIXED_NOREPLACE)
    host.mmap(30 * HUGE, va=FIRST + 2 * HUGE, flags=MAP_FIXED_NOREPLACE)
    first = space.reserve(HUGE)
    second = space.reserve(HUGE)
    assert (first, second) == (FIRST + HUGE, FIRST + 33 * HUGE)
    rest = space.reserve(LAST - second - HUGE)
    assert rest == second + HUGE
    assert space.reserve(HUGE) == FIRST + 32 * HUGE
    with pytest.raises(OutOfMemoryError):
        space.reserve(40 * HUGE)


def test_ranges_freed_below_a_skip_are_reused():
    host = EmptyHost()
    space = NvVaSpace(host)  # type: ignore[arg-type]  # all of a kernel that it uses
    low = space.reserve(HUGE)
    host.mmap(8 * HUGE, va=low + HUGE, flags=MAP_FIXED_NOREPLACE)
    high = space.reserve(HUGE)
    assert high > low + 8 * HUGE
    space.release(low)
    assert space.reserve(HUGE) == low


def test_a_range_that_this_process_uses_is_passed_over():
    kernel = LinuxKernel()
    space = NvVaSpace(kernel)
    probe = space.reserve(HUGE)
    space.release(probe)
    kernel.mmap(4096, va=probe, flags=MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE)
    assert space.reserve(HUGE) >= probe + HUGE
    kernel.munmap(probe, 4096)
    space.close()


def test_windows_of_the_compute_engine_are_never_handed_out():
    assert SHARED_WINDOW % (1 << 32) == 0
    assert SHARED_WINDOW + (1 << 32) <= FIRST
    assert LOCAL_WINDOW + (1 << 24) <= FIRST
    assert LAST <= 1 << 40
