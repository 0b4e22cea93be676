"""Who runs when: channels take turns on a thread of their own, in an order made from the machine's seed.

Nothing runs inside the doorbell's write. A channel that waits for a semaphore is asked again when anything
moved, and every now and then, because the host may write it. Channels that wait for each other are found by
looking ahead (`waitgraph`).
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from drivers.nv.emu.engines.operation import Outcome
from drivers.nv.emu.machine.reports import ChannelError, Kind, defect
from drivers.nv.emu.machine.standstill import passed
from drivers.nv.emu.machine.waitgraph import find_deadlock
from drivers.nv.layouts.fault import RcCode
from hcq.errors import HcqError

if TYPE_CHECKING:
    from drivers.nv.emu.machine.machine import Machine
    from drivers.nv.emu.rm.objects import Channel

_ASK_AGAIN_S = 0.0005
_SLOWEST_S = 0.01
_STILL_S = 0.015
"""How long nothing but kernels has moved when waits are looked at."""
_MOST_STEPS = 6


class Scheduler:
    """The command processor of one machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._wake = threading.Condition()
        self._bells: deque[Channel] = deque()
        self._rng = random.Random(machine.rng.getrandbits(64))  # noqa: S311 - an order, not a secret
        self._thread: threading.Thread | None = None
        self._closed = False
        self._judged = False
        """Whether waits were looked at since anything moved or rang; what the host stores changes none."""
        self.last: Channel | None = None

    @property
    def running(self) -> bool:
        """Whether its thread was started and not ended."""
        return self._thread is not None

    def rung(self, channel: Channel) -> None:
        """Take note of a doorbell; returns at once."""
        channel.run.ring_bell()
        if not channel.scheduled:
            self._machine.stop(
                channel.run,
                ChannelError(
                    RcCode.PBDMA_ERROR, Kind.HOST, "the doorbell rang for a channel that is not scheduled"
                ),
            )
        with self._wake:
            self._bells.append(channel)
            self._start()
            self._wake.notify()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name="hcq nv-emu", daemon=True)
            self._thread.start()

    def wake(self) -> None:
        """Look again: something outside changed."""
        with self._wake:
            self._wake.notify()

    def close(self) -> None:
        """End the thread after the step at hand; `resume` or the next doorbell starts another."""
        with self._wake:
            thread, self._thread = self._thread, None
            self._closed = True
            self._wake.notify()
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        self._closed = False

    def resume(self) -> None:
        """Go on after `close` with what is left to run; in a forked child too, which has no other threads."""
        with self._wake:
            if any(channel.run.busy for channel in self._machine.channels):
                self._start()

    def _loop(self) -> None:
        pause = _ASK_AGAIN_S
        still_since = time.monotonic()
        while True:
            with self._wake:
                rang = bool(self._bells)
                self._bells.clear()
                if self._closed:
                    return
            with self._machine.lock:
                outcome = self._turn()
                if outcome is Outcome.PROGRESS or rang:
                    pause, still_since = _ASK_AGAIN_S, time.monotonic()
                    self._judged = False
                    continue
                if not self._judged and time.monotonic() - still_since >= _STILL_S:
                    self.judge()
            if outcome is Outcome.SLICE:
                continue
            with self._wake:
                if not self._bells and not self._closed:
                    self._wake.wait(None if outcome is Outcome.IDLE else pause)
            pause = min(pause * 2, _SLOWEST_S)

    def _turn(self) -> Outcome:
        """Let one channel run a little."""
        busy = [c for c in self._machine.channels if c.run.busy and c.runs]
        self._rng.shuffle(busy)
        for channel in busy:
            outcome = self._advance(channel)
            if outcome is not Outcome.BLOCKED:
                return outcome
        return Outcome.BLOCKED if busy else Outcome.IDLE

    def _advance(self, channel: Channel) -> Outcome:
        """Run a few steps of a channel; returns the most that they came to."""
        moved = Outcome.BLOCKED
        self.last = channel
        run = channel.run
        for _ in range(self._rng.randint(1, _MOST_STEPS)):
            try:
                outcome = run.step()
            except ChannelError as error:
                self._machine.stop(run, error)
                return Outcome.PROGRESS
            except HcqError as error:
                self._machine.stop(
                    run,
                    ChannelError(RcCode.PBDMA_ERROR, Kind.UNSUPPORTED, f"{type(error).__name__}: {error}"),
                )
                return Outcome.PROGRESS
            except Exception as error:  # noqa: BLE001 - else the thread ends, and whoever waits is told nothing
                self._machine.stop(run, defect(error))
                return Outcome.PROGRESS
            if outcome is Outcome.SLICE:
                return outcome if moved is Outcome.BLOCKED else moved
            if outcome is not Outcome.PROGRESS:
                break
            moved = outcome
            if run.yielded:
                break
        return moved

    def judge(self) -> None:
        """Look for channels that wait for each other, once a standstill: looking ahead reads whole rings.

        Called with the machine's lock. A channel that can move, or whose bell has just rung, may still
        release what others wait for: then it is too early.
        """
        busy = [c.run for c in self._machine.channels if c.run.busy and c.runs]
        if not all(run.stuck or run.computing for run in busy):
            return
        found = find_deadlock([run for run in busy if run.stuck])
        with self._wake:
            if self._bells:
                return
        self._judged = True
        if not found:
            found = {run: text for run in busy if run.stuck and (text := passed(run, self._machine.words))}
        for run, text in found.items():
            self._machine.stop(run, ChannelError(RcCode.CONTEXT_SWITCH_TIMEOUT, Kind.DEADLOCK, text))
