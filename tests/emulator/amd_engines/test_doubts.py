"""What works on this emulator and need not elsewhere: refused where all is checked, noted otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from drivers.amd.layouts.kfd import QueueType
from emulator.amd.reports import FindingKind
from tests.emulator.amd_engines.conftest import DATA
from tests.emulator.amd_engines.loaded import load
from tests.emulator.amd_engines.test_coherence import refused
from tests.emulator.amd_engines.test_dispatch import ACQUIRE, launch, registers
from tests.emulator.amd_engines.test_pm4 import release, wait
from tests.emulator.amd_engines.test_sdma import fence, padded

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.emulator.amd_engines.conftest import Bench

SLOT = DATA + 0x800
SYS, SNOOP = 1 << 20, 1 << 22
TRAP = 6
EVENT = 9
COUNTERS = 0x20A
ORDERED = 5
WHOLE = 0xFFFF_FFFF


def poll(value: int, *, mask: int = WHOLE, retry: int = 0xFFF) -> tuple[int, ...]:
    return (8 | ORDERED << 28 | 1 << 31, DATA, 0, value, mask, 4 | retry << 16)


@pytest.fixture
def copies(bench: Callable[..., Bench]) -> Bench:
    """A copy queue where all is checked, and an event's slot."""
    b = bench(QueueType.SDMA, checked=True)
    b.slots = range(SLOT - 8 * EVENT, SLOT + 8)
    return b


@pytest.fixture
def commands(bench: Callable[..., Bench]) -> Bench:
    """A compute queue where all is checked, and an event's slot."""
    b = bench(checked=True)
    b.slots = range(SLOT - 8 * EVENT, SLOT + 8)
    return b


def refuses(b: Bench, words: tuple[int, ...], kind: FindingKind, text: str) -> None:
    b.write(*words)
    refused(b, kind, text)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((5 | 3 << 16 | SYS, DATA, 0, 1), "SYS"),
        ((5 | 3 << 16 | SNOOP, DATA, 0, 1), "SNOOP"),
        (poll(0, mask=WHOLE - 1), "hides low bits"),
        (poll(0, retry=7), "gives up after 8 polls"),
        ((*fence(DATA, 3), *poll(0)), "every value ends it"),
        ((poll(0)[0] & ~(7 << 28), *poll(0)[1:]), "ALWAYS"),
        (fence(SLOT, EVENT), "no interrupt"),
        ((*fence(SLOT, EVENT), *fence(SLOT, EVENT), TRAP, EVENT), "no interrupt"),
        (fence(SLOT + 4, WHOLE) + fence(SLOT, WHOLE), "no interrupt"),
    ],
)
def test_doubtful_packets_of_copy_queues(copies: Bench, words: tuple[int, ...], text: str) -> None:
    refuses(copies, padded(*words), FindingKind.METHOD, text)


def test_a_wait_for_0_at_the_begin_of_a_timeline_is_advice(copies: Bench, commands: Bench) -> None:
    for b, words in ((copies, padded(*poll(0))), (commands, wait(DATA, 0))):
        b.do(*words)
        assert not b.run.busy
        assert ["every value ends it" in one for one in b.lints] == [True]


def test_a_slot_that_is_told_and_a_wait_for_low_bits_are_no_doubt(copies: Bench) -> None:
    copies.put(DATA, 1)
    copies.do(*padded(*poll(1, mask=0xFF), *fence(SLOT, EVENT), TRAP, EVENT))
    assert copies.interrupts == [(EVENT, 28)]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((*wait(DATA, 0)[:5], WHOLE - 1, 4), "hides low bits"),
        (wait(DATA, 0, 0), "ALWAYS"),
        ((*release(DATA, 3), *wait(DATA, 3), *wait(DATA, 0)), "every value ends it"),
        (release(DATA, 1, interrupt=2), "context 0"),
        (release(DATA, 1, interrupt=1, context=EVENT), "before its store has arrived"),
        (release(SLOT, EVENT), "no interrupt"),
        (registers(0x20C, 1) + registers(0x20C, 2), "COMPUTE_PGM_LO again"),
        (registers(0x20C, 1) + release(DATA, 1), "no launch used: COMPUTE_PGM_LO"),
    ],
)
def test_doubtful_packets_of_compute_queues(commands: Bench, words: tuple[int, ...], text: str) -> None:
    refuses(commands, words, FindingKind.METHOD, text)


def test_all_ones_in_a_slot_are_unsignalled(commands: Bench) -> None:
    ones = list(release(SLOT, WHOLE, select=2, interrupt=2, context=EVENT))
    ones[6] = WHOLE
    refuses(commands, tuple(ones), FindingKind.METHOD, "that is unsignalled")


@pytest.mark.parametrize("context", [EVENT + 1, 0x1000 | EVENT])
def test_an_interrupt_of_another_event_than_the_slot(copies: Bench, context: int) -> None:
    """Linux looks through all slots then, so that the event is signalled, by luck."""
    refuses(
        copies, padded(*fence(SLOT, EVENT), TRAP, context), FindingKind.METHOD, f"names event {context:#x}"
    )


def test_an_end_of_pipe_interrupt_of_another_event(commands: Bench) -> None:
    words = release(SLOT, EVENT, interrupt=2, context=EVENT + 1)
    refuses(commands, words, FindingKind.METHOD, f"slot of event {EVENT:#x}")


@pytest.mark.parametrize("name", ["gfx1100", "gfx1201"])
def test_privileged_waves_are_for_gfx11_alone(bench: Callable[..., Bench], name: str) -> None:
    b = bench(name=name, checked=True)
    kernel = load(b, name)
    words = (*ACQUIRE, *launch(kernel, rsrc1=kernel.rsrc1 | 1 << 20))
    if name == "gfx1100":
        b.do(*words)
        assert list(b.launches.values()) == [1]
    else:
        refuses(b, words, FindingKind.METHOD, "RSRC1 has PRIV")


def test_a_launch_that_counts_for_a_profiler(commands: Bench) -> None:
    words = list(launch(load(commands)))
    words[words.index(0xC0087600) + 8] = 1
    assert words[words.index(0xC0087600) + 1] + 6 == COUNTERS
    refuses(commands, tuple(words), FindingKind.METHOD, "COMPUTE_PIPELINESTAT_ENABLE is 0x1")


def test_a_grid_that_never_ends(commands: Bench) -> None:
    words = launch(load(commands), groups=(1, 0xFFFF_FFFF, 1))
    refuses(commands, words, FindingKind.METHOD, "workgroups")


def test_code_runs_behind_an_invalidation_of_the_instruction_cache(commands: Bench) -> None:
    words = launch(load(commands, invalidated=False))
    refuses(commands, words, FindingKind.COHERENCE, "GLI_INV")


def test_doubts_are_only_noted_where_not_all_is_checked(bench: Callable[..., Bench]) -> None:
    b = bench(QueueType.SDMA)
    b.put(DATA, 2)
    b.do(*padded(*poll(2, mask=WHOLE - 1), 5 | 3 << 16 | SYS, DATA, 0, 1))
    assert (b.get(DATA), len(b.lints)) == ([1], 2)
