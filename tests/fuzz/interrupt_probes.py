"""The operations that `tests.fuzz.interrupts` interrupts, on queues and on tensors, and the check after each.

An interrupted operation must be atomic: the check accepts the values before and after it, and no others.

Not here: raising the interrupts (`interrupts`).
"""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING, Final, Protocol

import hcq
from frontend import Tensor, TinyJit
from frontend.device import LOCK, Device

if TYPE_CHECKING:
    from collections.abc import Callable

_N: Final = 64


class Probe(Protocol):
    """An operation that is interrupted, many times on the same object until a check fails."""

    def act(self) -> None:
        """Run the operation that is interrupted."""
        ...

    def check(self) -> None:
        """Use the same objects again; `AssertionError` for a wrong value."""
        ...

    def close(self) -> None:
        """Release all resources."""
        ...


def free(lock: object) -> bool:
    """Return whether no thread holds a lock; another thread tests it, because the locks are reentrant."""
    found: list[bool] = []

    def try_lock() -> None:
        got = lock.acquire(blocking=False)  # type: ignore[attr-defined]  # a lock
        found.append(got)
        if got:
            lock.release()  # type: ignore[attr-defined]  # a lock

    thread = threading.Thread(target=try_lock)
    thread.start()
    thread.join()
    return found[0]


class _Queues:
    """An open device, a buffer that is never written, and one that is."""

    def __init__(self) -> None:
        self.device = hcq.open("cpu", validate=False)
        self.queue = self.device.compute
        self.kept = self.device.alloc(_N, label="kept")
        self.out = self.device.alloc(_N, label="out")
        self.kept.host()[:] = b"\x5a" * _N
        self.turn = 0

    def check(self) -> None:
        """Check the locks, use all kinds of queues, and check the kept buffer."""
        for queue in self.device.queues:
            assert free(queue.lock), f"the lock of {queue!r} is held"
        self.device.sync()
        for queue in (self.device.compute, self.device.copies[0]):
            self.turn += 1
            out = self.device.alloc(_N)
            queue.submit(queue.record().fill(out, self.turn)).wait()
            assert out.host()[0] == self.turn % 256, f"{queue.label} wrote {out.host()[0]}"
        assert bytes(self.kept.host()) == b"\x5a" * _N, "a buffer that nothing writes changed"

    def close(self) -> None:
        """Close the device."""
        self.device.close(timeout_s=0.1)


class Submit(_Queues):
    """A submission, with a point of another queue, a parameter and a time record."""

    def act(self) -> None:
        """Submit."""
        copies = self.device.copies[0]
        point = copies.submit(copies.record().fill(self.out, 1))
        value = hcq.Param("value", 32)
        commands = self.queue.record().fill(self.out, value).timestamp(self.device.stamp())
        self.queue.submit(commands, after=[point], values={value: 7})


class Wait(_Queues):
    """A wait of the host, and a poll."""

    def act(self) -> None:
        """Submit and wait."""
        point = self.queue.submit(self.queue.record().fill(self.out, 9))
        point.done()
        point.wait()
        self.device.sync()


class Memory(_Queues):
    """Allocation and release of buffers: new and cached memory, views, dropped and closed buffers."""

    def act(self) -> None:
        """Allocate, view, drop, close."""
        one = self.device.alloc(100)
        part = one.view(8, 16)
        self.queue.submit(self.queue.record().fill(part, 3))
        one.close()
        two = [self.device.alloc(100 + self.turn % 7) for _ in range(3)]
        del two
        self.device.alloc(3 << 20)
        self.device.sweep()

    def check(self) -> None:
        """Check that no two live buffers share memory."""
        super().check()
        buffers = [self.device.alloc(100) for _ in range(32)]
        ranges = sorted((b.va, b.va + b.size) for b in (*buffers, self.kept, self.out))
        for (_, end), (start, _) in itertools.pairwise(ranges):
            assert end <= start, "two buffers share memory"


class Signals(_Queues):
    """Signals that queues and the host set."""

    def act(self) -> None:
        """Set a signal on the host; a queue waits for it and sets another."""
        gate, done = self.device.signal(host_set=True), self.device.signal()
        gate.value = 1
        self.queue.submit(self.queue.record().wait(gate, 1).signal(done, 1))
        done.wait(1)


class Close:
    """Closing of a device, a new device for each operation."""

    def __init__(self) -> None:
        self.device = hcq.open("cpu", validate=False)

    def act(self) -> None:
        """Close."""
        self.device.close()

    def check(self) -> None:
        """Close again, check that an allocation is refused, and use another device."""
        self.device.close()
        try:
            self.device.alloc(64)
        except hcq.UsageError:
            pass
        else:
            raise AssertionError("a closed device allocated memory")
        self.device = hcq.open("cpu", validate=False)
        out = self.device.alloc(64)
        self.device.compute.submit(self.device.compute.record().fill(out, 5)).wait()
        assert out.host()[0] == 5, "another device does not work"

    def close(self) -> None:
        """Close the last device."""
        self.device.close(timeout_s=0.1)


class _Replays(_Queues):
    """Replays of an executable that fills the buffer with its first parameter; `more` are the others."""

    executable: hcq.Executable
    more: tuple[hcq.Buffer, ...] = ()

    def act(self) -> None:
        """Replay."""
        self.executable.replay([self.turn % 200, *self.more])

    def check(self) -> None:
        """Replay more often than there are replay slots, and read the result."""
        super().check()
        for value in (201, 202, 203, 204, 205):
            point = self.executable.replay([value, *self.more])
        point.wait()
        assert self.out.host()[0] == 205, f"a replay gave {self.out.host()[0]}"


class Graph(_Replays):
    """Replays of an executable over two queues."""

    def __init__(self) -> None:
        super().__init__()
        graph = hcq.Graph(label="two")
        self.value = graph.param("value", bits=32)
        target = graph.param("target", size=_N)
        first = graph.add(self.queue, self.queue.record().fill(target, self.value, _N))
        copies = self.device.copies[0]
        graph.add(copies, copies.record().copy(self.out, target, _N), after=[first])
        self.executable = graph.compile(copies=2, limit=3)
        self.more = (self.device.alloc(_N),)


class Replay(_Replays):
    """Replays of an executable of one queue, by the prebuilt submission."""

    def __init__(self) -> None:
        super().__init__()
        graph = hcq.Graph(label="one")
        value = graph.param("value", bits=32)
        graph.add(self.queue, self.queue.record().fill(self.out, value, _N))
        self.executable = graph.compile(copies=2, limit=3)


class _Tensors:
    """Tensors on the cpu device of the process."""

    def __init__(self) -> None:
        self.turn = 0
        self.base = Tensor([float(i) for i in range(8)]).realize()
        self.expected = [float(i) for i in range(8)]

    def check(self) -> None:
        """Check the locks and an unchanged tensor, and compute a sum."""
        assert free(LOCK), "the lock of the frontend is held"
        device = Device["cpu"]
        for queue in device.hcq.queues:
            assert free(queue.lock), f"the lock of {queue!r} is held"
        assert self.base.tolist() == self.expected, f"a tensor changed to {self.base.tolist()}"
        self.turn += 1
        found = (self.base + self.turn).tolist()
        assert found == [x + self.turn for x in self.expected], f"a sum gave {found}"

    def close(self) -> None:
        """Close the device; the next probe opens it again."""
        opened = Device["cpu"]
        opened.hcq.close(timeout_s=0.1)
        opened.close()


class Realize(_Tensors):
    """An eager operation whose kernel is compiled before."""

    def act(self) -> None:
        """Compute, and read."""
        self.found = (self.base * 2.0).realize()
        self.found.tolist()

    def check(self) -> None:
        """Read the result."""
        super().check()
        assert self.found.tolist() == [2 * x for x in self.expected], f"a product is {self.found.tolist()}"


class Assign(_Tensors):
    """Assignment in place while another tensor depends on the old value."""

    def __init__(self) -> None:
        super().__init__()
        self.state = Tensor([1.0] * 4).realize()
        self.one = Tensor([1.0] * 4).realize()
        self.old = [1.0] * 4

    def act(self) -> None:
        """Change a tensor in place."""
        before = self.state.tolist()
        self.other = self.state + 0.5
        self.state.assign(self.one + self.state)
        self.state.realize()
        self.other.realize()
        assert before

    def check(self) -> None:
        """Check that the tensor has the old or the new value, and that a later assignment works."""
        super().check()
        found = self.state.tolist()
        new = [x + 1 for x in self.old]
        assert found in (self.old, new), f"assign left {found} of {self.old}"
        self.old = found
        self.state.assign(self.state * 1.0).realize()
        assert self.state.tolist() == found, "a later assign gave another value"


class InPlace(_Tensors):
    """In-place updates of three tensors, realized together."""

    def __init__(self) -> None:
        super().__init__()
        self.states = [Tensor([float(i)] * 4).realize() for i in range(3)]
        self.old = [t.tolist() for t in self.states]

    def act(self) -> None:
        """Change three tensors."""
        for t in self.states:
            t.assign(t + 1.0)
        Tensor.realize(*self.states)

    def check(self) -> None:
        """Check that each tensor has the old or the new value."""
        super().check()
        found = [t.tolist() for t in self.states]
        for seen, old in zip(found, self.old, strict=True):
            assert seen in (old, [x + 1 for x in old]), f"in place left {seen} of {old}"
        self.old = found


class Jit(_Tensors):
    """Replays of a captured function without state."""

    def __init__(self) -> None:
        super().__init__()
        self.step = TinyJit(lambda x: (x * 3.0 + 1.0).sum())
        for _ in range(3):
            self.step(self.base)

    def act(self) -> None:
        """Replay, and read."""
        self.step(self.base).tolist()

    def check(self) -> None:
        """Replay other values more often than there are replay slots, and read the result."""
        super().check()
        for k in range(10):
            found = self.step((self.base + float(k)).realize())
        wanted = sum((x + 9) * 3 + 1 for x in self.expected)
        assert found.tolist() == wanted, f"a replay gave {found.tolist()}, wanted {wanted}"


class JitState(_Tensors):
    """Replays of a captured function that assigns to a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.count = Tensor([0.0] * 4).realize()

        def step(x: Tensor) -> Tensor:
            self.count.assign(self.count + x)
            return self.count * 2.0

        self.step = TinyJit(step)
        self.one = Tensor([1.0] * 4).realize()
        for _ in range(3):
            self.step(self.one)
        self.old = self.count.tolist()[0]

    def act(self) -> None:
        """Replay."""
        self.step(self.one)

    def check(self) -> None:
        """Check that the state has the old or the new value, and that the next step is right."""
        super().check()
        found = self.count.tolist()
        assert found in ([self.old] * 4, [self.old + 1] * 4), f"a step left {found} of {self.old}"
        twice = self.step(self.one).tolist()
        assert twice == [2 * found[0] + 2] * 4, f"the next step gave {twice} after {found}"
        self.old = found[0] + 1


PROBES: Final[dict[str, Callable[[], Probe]]] = {
    "submit": Submit, "wait": Wait, "memory": Memory, "signals": Signals, "close": Close, "graph": Graph,
    "replay": Replay, "realize": Realize, "assign": Assign, "in-place": InPlace, "jit": Jit,
    "jit-state": JitState,
}  # fmt: skip
