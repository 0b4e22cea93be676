"""`python -m tests.fuzz.stress [--device cpu ...] [--submissions 5000] [--cases 1] [--first 0] [--jobs 1]`.

Threads submit random work to all queues of several devices at once: copies, fills and kernels with
random dependencies, frees of buffers in use, and callbacks. Memory must be that of the sequential execution,
every callback must be called once after its work, and the use of memory must not grow.

The sequential order is that in which the threads choose their submissions. Each waits by `after=` for the
points of earlier ones that use the same words, and their threads submit without a common lock.

Not here: random programs with checks of order and faults (`queues`).
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

import hcq
from tests.fuzz import campaign
from tests.fuzz.queue_kernels import Stage
from tests.fuzz.queue_programs import WORDS, Command, Kind, Range, apply
from tools.arguments import device_name, positive, reported

if TYPE_CHECKING:
    from collections.abc import Sequence

BUFFERS: Final = 12
WAIT_S: Final = 600.0
AHEAD: Final = 400
"""The most submissions between the oldest that is not done and the newest."""


class Chosen(NamedTuple):
    """A submission with its place in the sequential order."""

    number: int
    queue: hcq.Queue
    commands: list[Command]
    buffers: list[hcq.Buffer]
    """The buffers that are current at its place."""
    follows: list[int]
    """Earlier submissions that it waits for."""
    old: hcq.Buffer | None
    """The buffer that it frees and replaces; None: none."""


class Stress:
    """One run: `count` submissions of `threads` threads to all queues of a stage."""

    def __init__(self, seed: int, stage: Stage, count: int, threads: int) -> None:
        self.stage, self.count, self.threads = stage, count, threads
        self.random = random.Random(seed)  # noqa: S311 - programs, not secrets
        self.memory = [np.zeros(WORDS, np.uint32) for _ in range(BUFFERS)]
        self.buffers = [stage.buffer(bytes(4 * WORDS)) for _ in range(BUFFERS)]
        self.order = threading.Condition()
        """Guards everything below; chosen submissions are numbered under it."""
        self.points: dict[int, hcq.Point] = {}
        self.users: list[dict[int, bool]] = [{} for _ in range(BUFFERS)]
        """For each buffer the submissions since its last writer, and whether they write."""
        self.free_rate = 0.02
        """The part of the submissions that free a buffer."""
        self.next = 0
        self.called = Counter[int]()
        self.early: list[int] = []
        self.raised: list[BaseException] = []

    def choose(self) -> Chosen | None:
        """Number the next submission and return it; None when all are numbered."""
        with self.order:
            if self.next == self.count or self.raised:
                return None
            number, r = self.next, self.random
            self.next += 1
            index = r.randrange(len(self.stage.queues))
            kinds: list[Kind] = ["fill", "copy", "write"]
            if self.stage.compute[index]:
                kinds += ["mix", "mix"]
            dst, src = r.sample(range(BUFFERS), 2)
            frees = r.random() < self.free_rate
            commands = []
            for _ in range(1 if frees else r.randint(1, 3)):
                begin = 0 if frees else r.randrange(WORDS)
                end = WORDS if frees else r.randint(begin + 1, WORDS)
                kind: Kind = "fill" if frees else r.choice(kinds)
                end = begin + 1 if kind == "write" else end
                source = Range(src, begin, end) if kind in {"copy", "mix"} else None
                commands += [Command(kind, Range(dst, begin, end), source, r.getrandbits(32)),
                             Command("barrier")]  # fmt: skip
            apply(commands, self.memory)
            follows = set(self.users[dst]) | {n for n, writes in self.users[src].items() if writes}
            self.users[dst] = {number: True}
            self.users[src][number] = False
            old = self.buffers[dst] if frees else None
            if frees:
                self.buffers[dst] = self.stage.buffer(bytes(4 * WORDS))
            used = list(self.buffers)
            return Chosen(number, self.stage.queues[index], commands, used, sorted(follows), old)

    def work(self) -> None:
        """Submit until all are submitted; the body of each thread."""
        try:
            while (chosen := self.choose()) is not None:
                number, follows = chosen.number, chosen.follows
                with self.order:
                    self.order.wait_for(partial(self.submitted, follows))
                    if self.raised:
                        return
                    after = [self.points[n] for n in follows]
                if chosen.old is not None:
                    chosen.old.close()  # all its users are submitted, and some are not done
                point = chosen.queue.submit(self.record(chosen), after=after)
                if number % 7 == 0:
                    point.add_done_callback(partial(self.done, number))
                with self.order:
                    self.points[number] = point
                    self.order.notify_all()
                behind = self.points.get(number - AHEAD)
                if behind is not None:
                    behind.wait(timeout_s=WAIT_S)
        except BaseException as error:  # noqa: BLE001 - raised again by `run`
            with self.order:
                self.raised.append(error)
                self.order.notify_all()

    def submitted(self, numbers: list[int]) -> bool:
        """Return whether submissions were submitted, or a thread has failed. The caller holds `order`."""
        return bool(self.raised) or all(number in self.points for number in numbers)

    def record(self, chosen: Chosen) -> hcq.CommandBuffer:
        """Record commands on the buffers that were current when they were chosen."""
        queue, used = chosen.queue, chosen.buffers
        out = queue.record()

        def view(where: Range) -> hcq.Buffer:
            return used[where.buffer].view(4 * where.begin, 4 * (where.end - where.begin))

        for one in chosen.commands:
            if one.dst is None:
                out.barrier()
            elif one.kind == "fill":
                out.fill(view(one.dst), one.value)
            elif one.kind == "write":
                out.write(view(one.dst), one.value)
            elif one.src is not None and one.kind == "copy":
                out.copy(view(one.dst), view(one.src))
            elif one.src is not None:
                mix = self.stage.mix[queue.device]
                args = mix.args(view(one.dst), view(one.src), one.value)
                out.exec(mix, args, groups=(one.dst.end - one.dst.begin, 1, 1), threads=(1, 1, 1))
        return out

    def done(self, number: int, point: hcq.Point) -> None:
        """Count a callback, and note one that came before its point."""
        self.called[number] += 1
        if not point.passed():
            self.early.append(number)

    def run(self) -> None:
        """Run all threads; raise `AssertionError` for a difference, and what a thread raised."""
        threads = [threading.Thread(target=self.work, name=f"submits {n}") for n in range(self.threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.raised:
            raise self.raised[0]
        for device in self.stage.devices:
            device.sync(timeout_s=WAIT_S)
        wanted, end = len(range(0, self.count, 7)), time.monotonic() + WAIT_S
        while sum(self.called.values()) < wanted and time.monotonic() < end:
            time.sleep(0.001)
        assert sorted(self.called) == list(range(0, self.count, 7)), "a callback was not called"
        assert set(self.called.values()) <= {1}, "a callback was called twice"
        assert not self.early, f"callbacks before their points: {self.early}"
        for number, (buffer, memory) in enumerate(zip(self.buffers, self.memory, strict=True)):
            found = np.frombuffer(buffer.host(), np.uint32)
            differ = np.flatnonzero(found != memory)
            assert not len(differ), f"buffer {number}, words {differ}: {found[differ]}, not {memory[differ]}"
        for buffer in self.buffers:
            buffer.close()


def differing(first: int, count: int, names: Sequence[str], submissions: int, threads: int) -> dict[int, str]:
    """Run the seeds; return the failures by seed, growing memory among them."""
    found: dict[int, str] = {}
    stage, reserved = Stage(names, validate=False), dict[hcq.Device, int]()
    for seed in range(first, first + count):
        try:
            for part in range(2):
                Stress(2 * seed + part, stage, submissions // 2, threads).run()
                for device in stage.devices:
                    use = device.memory()
                    before = reserved.setdefault(device, use.reserved)
                    assert use.reserved <= before + (4 << 20), f"{device.name}: {before} bytes became {use}"
        except Exception as error:  # noqa: BLE001 - the work is legal, so any exception is a finding
            found[seed] = f"seed {seed}: {type(error).__name__}: {error}"
            break
    stage.close()
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool and return its exit status."""
    parser = campaign.parser("tests.fuzz.stress", __doc__, cases=1)
    parser.add_argument(
        "--device", type=device_name, action="append", metavar="NAME", help="(default 3 times cpu)"
    )
    parser.add_argument(
        "--submissions", type=positive, default=5000, metavar="N", help="a seed (default 5000)"
    )
    parser.add_argument("--threads", type=positive, default=4, metavar="N", help="that submit (default 4)")
    options = parser.parse_args(argv)
    check: Any = partial(
        differing,
        names=options.device or ["cpu"] * 3,
        submissions=options.submissions,
        threads=options.threads,
    )
    return campaign.run(check, options, f"runs of {options.submissions} submissions agree")


if __name__ == "__main__":
    sys.exit(reported(main))
