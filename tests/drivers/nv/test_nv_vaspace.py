"""Device addresses: below 2^40, never twice, never where the host is, all given back."""

from __future__ import annotations

from drivers.kernel import MAP_ANONYMOUS, MAP_FIXED_NOREPLACE, MAP_PRIVATE, LinuxKernel
from drivers.nv.vaspace import FIRST, HUGE, LAST, LOCAL_WINDOW, SHARED_WINDOW, VaSpace


def test_ranges_are_apart_aligned_and_come_back():
    space = VaSpace(LinuxKernel())
    taken = [space.take(size) for size in (4096, HUGE, 3 * HUGE, 4096)]
    assert all(va % HUGE == 0 and FIRST <= va < LAST for va in taken)
    assert len(set(taken)) == 4
    for va in taken:
        space.give_back(va)
    again = space.take(LAST - FIRST >> 4)
    assert again == taken[0]
    space.close()


def test_a_range_that_the_host_uses_is_passed_over():
    kernel = LinuxKernel()
    space = VaSpace(kernel)
    probe = space.take(HUGE)
    space.give_back(probe)
    kernel.mmap(4096, va=probe, flags=MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE)
    assert space.take(HUGE) == probe + HUGE
    kernel.munmap(probe, 4096)
    space.close()


def test_windows_of_the_compute_engine_are_never_handed_out():
    assert SHARED_WINDOW % (1 << 32) == 0
    assert SHARED_WINDOW + (1 << 32) <= FIRST
    assert LOCAL_WINDOW + (1 << 24) <= FIRST
    assert LAST <= 1 << 40
