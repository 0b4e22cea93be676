"""The neutral parts of emulated machines: scheduler, deadlocks, fences, faults, caches."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from drivers.kernel import LinuxKernel
from emulator.shared.backing import PAGE, Backing
from emulator.shared.caches import PAGE as CACHE_PAGE
from emulator.shared.caches import CacheFill, IncoherentCache
from emulator.shared.combining import EntryPart, Missing, WriteCombining
from emulator.shared.scheduler import Scheduler, StepOutcome, TurnLock
from emulator.shared.vaspace import AccessKind, Miss, VaSpace
from emulator.shared.waits import SemaphoreHistory, SemaphoreStore, find_deadlock
from tests.limits import HANG_S

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

AT = 0x1000


@dataclass(frozen=True)
class Geq:
    """A wait until a word is at least a value."""

    va: int
    payload: int
    bits: int = 64
    equality: bool = False

    def satisfied(self, value: int) -> bool:
        return value == self.payload if self.equality else value >= self.payload


@dataclass(frozen=True)
class Release:
    va: int
    payload: int


@dataclass(eq=False)
class Waiting:
    """A queue that waits; `ahead` are its later releases."""

    name: str
    waiting: Geq | None
    ahead: tuple[Release, ...] = ()
    at: str = "packet 0"


def promised(queue: Waiting) -> tuple[Release, ...]:
    return queue.ahead


def test_queues_that_release_each_other_later_are_a_deadlock() -> None:
    a = Waiting("a", Geq(AT, 1), (Release(AT + 8, 1),))
    b = Waiting("b", Geq(AT + 8, 1), (Release(AT, 1),))
    bystander = Waiting("c", Geq(AT, 1))
    found = find_deadlock([bystander, a, b], promised)
    assert found is not None
    assert set(found) == {a, b}
    assert "a does" in found[a]


def test_a_wait_without_a_future_release_is_left_to_the_host() -> None:
    assert find_deadlock([Waiting("a", Geq(AT, 2), (Release(AT, 1),))], promised) is None


def test_a_later_release_of_a_greater_value_is_not_taken_for_the_only_one() -> None:
    """On a timeline that queues share the host may still submit the value between to another queue."""
    own = Waiting("a", Geq(AT, 59), (Release(AT, 60),))
    other = Waiting("b", Geq(AT, 60), (Release(AT, 61),))
    assert find_deadlock([own], promised) is None
    assert find_deadlock([own, other], promised) is None
    assert (
        find_deadlock([Waiting("a", Geq(AT, 59), (Release(AT, 60), Release(AT, 59)))], promised) is not None
    )


def test_a_release_by_a_queue_that_waits_for_the_host_may_still_come() -> None:
    a = Waiting("a", Geq(AT, 1), (Release(AT + 8, 1),))
    b = Waiting("b", Geq(AT + 8, 1), (Release(AT, 1),))
    c = Waiting("c", Geq(AT + 16, 1), (Release(AT, 1),))
    assert find_deadlock([a, b, c], promised) is None


@pytest.mark.parametrize(
    ("wanted", "equality", "endless"), [(1, True, True), (1, False, False), (3, True, False)]
)
def test_an_equality_wait_for_a_value_that_passed_never_ends(
    wanted: int, *, equality: bool, endless: bool
) -> None:
    history = SemaphoreHistory()
    for value in (1, 2):
        history.record(SemaphoreStore(AT, value - 1, value, adds=False))
    assert history.passed(AT, Geq(AT, wanted, equality=equality), 2) is endless


@dataclass(eq=False)
class Counter:
    """A queue with some steps left, which fails at the last one or waits forever."""

    steps: int
    fails: bool = False
    waits: bool = False
    yielded: bool = False
    computing: bool = False

    @property
    def stuck(self) -> bool:
        return self.waits and not self.steps

    @property
    def busy(self) -> bool:
        return self.steps > 0 or self.waits

    def step(self) -> StepOutcome:
        if not self.steps:
            return StepOutcome.BLOCKED if self.waits else StepOutcome.IDLE
        self.steps -= 1
        if self.fails and not self.steps:
            raise ValueError("the last step")
        return StepOutcome.PROGRESS


@dataclass(eq=False)
class Machine:
    queues: list[Counter]
    lock: TurnLock = field(default_factory=TurnLock)
    ended: dict[Counter, str] = field(default_factory=dict)
    changed: threading.Event = field(default_factory=threading.Event)

    def pending(self) -> Sequence[Counter]:
        return [queue for queue in self.queues if queue.busy and queue not in self.ended]

    def runnable(self) -> list[Counter]:
        return list(self.pending())

    def failed(self, queue: Counter, error: Exception) -> None:
        self.hung(queue, str(error))

    def endless_waits(self, stuck: Sequence[Counter]) -> Mapping[Counter, str]:
        return dict.fromkeys(stuck, "nothing releases it")

    def hung(self, queue: Counter, why: str) -> None:
        self.ended[queue] = why
        self.changed.set()


def test_a_step_that_raises_stops_its_queue_and_the_scheduler_continues() -> None:
    machine = Machine([Counter(3, fails=True), Counter(5), Counter(2, waits=True)])
    scheduler = Scheduler(machine, random.Random(1), thread_name="test scheduler")
    scheduler.doorbell_rung()
    while len(machine.ended) < 2:
        machine.changed.wait()
        machine.changed.clear()
    scheduler.close()
    assert not scheduler.running
    assert [queue.steps for queue in machine.queues] == [0, 0, 0]
    assert machine.ended == {machine.queues[0]: "the last step", machine.queues[2]: "nothing releases it"}


@dataclass(eq=False)
class Gated(Machine):
    """A machine whose only queue may run once `open` is set, which no doorbell announces."""

    open: bool = False
    looked: threading.Event = field(default_factory=threading.Event)

    def runnable(self) -> list[Counter]:
        self.looked.set()
        return list(self.pending()) if self.open else []


def test_a_wake_between_an_idle_turn_and_the_sleep_after_it_is_not_lost() -> None:
    """The scheduler's lock is held while the turn ends, so that the wake comes before the sleep."""
    machine = Gated([Counter(3, fails=True)])
    scheduler = Scheduler(machine, random.Random(1), thread_name="test scheduler")
    with machine.lock:
        scheduler.doorbell_rung()
    machine.looked.wait()
    with machine.lock:
        machine.open = True
        scheduler.wake()
    machine.changed.wait(HANG_S)
    scheduler.close()
    assert machine.ended == {machine.queues[0]: "the last step"}


def test_a_scheduler_that_is_closed_on_its_own_thread_ends_with_the_turn() -> None:
    machine = Machine([Counter(1, fails=True)])
    scheduler = Scheduler(machine, random.Random(1), thread_name="test scheduler")
    closed = threading.Event()

    class Closing(Machine):
        def failed(self, queue: Counter, error: Exception) -> None:
            super().failed(queue, error)
            scheduler.close()
            closed.set()

    machine.__class__ = Closing
    scheduler.doorbell_rung()
    assert closed.wait(HANG_S)
    assert not scheduler.running
    for thread in threading.enumerate():
        if thread.name == "test scheduler":
            thread.join(HANG_S)
            assert not thread.is_alive()


@dataclass
class Ring:
    """Four slots whose entries name the packet behind them."""

    memory: list[int] = field(default_factory=lambda: [0] * 4)
    packets: dict[int, int] = field(default_factory=dict)
    put: int = 0
    slots: int = 4
    put_name: str = "wptr"
    put_combined: bool = True
    combined: bool = True

    def slot(self, number: int) -> int:
        return self.memory[number]

    def stale(self, number: int) -> int:
        del number
        return 0

    def parts(self, number: int, raw: int) -> tuple[EntryPart, ...]:
        return (EntryPart(f"the packet of entry {number}", self.packets.get(raw)),)


def submit(ring: Ring, fences: WriteCombining, *, without: str = "") -> Missing | None:
    """Write an entry, its packet and the put index, each followed by a fence except `without`."""
    ring.memory[0] = 7
    if without != "packet":
        ring.packets[7] = 1
    if without != "entry":
        fences.fence()
    ring.packets[7] = 1
    ring.put = 1
    if without != "put":
        fences.fence()
    return fences.check_doorbell(0, 1)


@pytest.mark.parametrize(
    ("without", "named"),
    [("", ""), ("packet", "the packet of entry 0"), ("entry", "ring entry 0"), ("put", "wptr 1")],
)
def test_a_missing_fence_is_named(without: str, named: str) -> None:
    ring = Ring()
    missing = submit(ring, WriteCombining(ring), without=without)
    assert (missing is not None) is bool(without)
    if missing is not None:
        assert named in missing.text
        assert missing.hazard is (without == "entry"), "the fence behind the put index covers the entry, too"


class Fault(Exception):  # noqa: N818 - what the vendor's MMU calls it
    def __init__(self, va: int, access: AccessKind, message: str, miss: Miss) -> None:
        super().__init__(message)
        self.seen = (va, access, miss)


def test_an_address_space_raises_the_error_of_its_vendor() -> None:
    space, linux = VaSpace(40, Fault), LinuxKernel()
    backing = Backing.new(linux, PAGE, "pages")
    space.add(AT, PAGE, backing, 0, writable=False)
    backing.drop()
    assert space.read(AT, 4, "a copy") == bytes(4)
    wrong = [
        (AT - 4, AccessKind.READ, Miss.UNMAPPED),
        (AT, AccessKind.WRITE, Miss.READ_ONLY),
        (1 << 40, AccessKind.ATOMIC, Miss.BEYOND),
    ]
    for va, access, miss in wrong:
        with pytest.raises(Fault) as caught:
            space.host(va, 4, access, "a copy")
        assert caught.value.seen == (va, access, miss)
    space.clear("at the end")
    assert backing.users == 0


def test_a_cache_returns_the_first_stale_byte_and_who_read_it() -> None:
    cache, fill = IncoherentCache(), CacheFill(1, "kernel a")
    cache.fill(0, CACHE_PAGE - 2, b"abcd", fill)
    assert cache.stale(0, CACHE_PAGE - 2, b"abcd") is None
    stale = cache.stale(0, CACHE_PAGE - 2, b"abXd")
    assert stale is not None
    assert (stale.va, stale.fill) == (CACHE_PAGE, fill)
    cache.drop(0, CACHE_PAGE, 1)
    assert cache.stale(0, CACHE_PAGE - 2, b"abXd") is None
