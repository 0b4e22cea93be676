"""The emulated GPU: channels that a scheduler thread advances in an order made from a seed, never inside a doorbell write."""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING

from drivers.nv.emu.images import Images
from drivers.nv.emu.objects import Refusal
from drivers.nv.layouts.gpfifo import WorkSubmitToken
from drivers.nv.layouts.status import NvStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivers.nv.emu.channel import Channel
    from drivers.nv.emu.profile import Profile

_POLL_S = 0.0002
"""How long the scheduler sleeps when every channel waits for memory that the host may write."""


class Gpu:
    """Memory accounting, channels, and the thread that runs them."""

    def __init__(self, profile: Profile, complain: Callable[[str], None]) -> None:
        self.profile = profile
        self.complain = complain
        self.images = Images(profile)
        self.vram_free = profile.vram_bytes
        self.order = random.Random(profile.seed)  # noqa: S311 - an order, not a secret
        self._channels: list[Channel] = []
        self._next_number = 1
        self._lock = threading.Condition()
        self._closing = False
        self._thread: threading.Thread | None = None

    def take_vram(self, size: int) -> None:
        """Account for video memory."""
        if size > self.vram_free:
            raise Refusal(
                NvStatus.NO_MEMORY, f"{size:#x} bytes of video memory, {self.vram_free:#x} are left"
            )
        self.vram_free -= size

    def give_vram(self, size: int) -> None:
        """Give video memory back."""
        self.vram_free += size

    def add(self, channel: Channel) -> None:
        """Give a channel its number; it runs once it is scheduled and rung."""
        with self._lock:
            channel.number = self._next_number
            self._next_number += 1
            self._channels.append(channel)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="nv-emu", daemon=True)
                self._thread.start()

    def remove(self, channel: Channel) -> None:
        """Forget a channel; waits until it is not being run."""
        with self._lock:
            if channel in self._channels:
                self._channels.remove(channel)
            while channel.running:
                self._lock.wait(1.0)

    def ring(self, token: int) -> None:
        """A doorbell was written: the channel looks at its GPPut later."""
        word = WorkSubmitToken.from_int(token) if token >> 23 == 0 else None
        with self._lock:
            for channel in self._channels:
                if (
                    word is not None
                    and not word.check()
                    and (channel.number, channel.runlist) == (word.CHANNEL, word.RUNLIST)
                ):
                    channel.rung = True
                    self._lock.notify_all()
                    return
        self.complain(f"doorbell: token {token:#x} is no channel's")

    def wake(self) -> None:
        """Something changed that may let a channel go on."""
        with self._lock:
            self._lock.notify_all()

    def close(self) -> None:
        """Stop the thread."""
        with self._lock:
            self._closing = True
            self._lock.notify_all()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while True:
            with self._lock:
                ready = [c for c in self._channels if c.wants_to_run()]
                if self._closing:
                    return
                if not ready:
                    self._lock.wait()
                    continue
                self.order.shuffle(ready)
                for channel in ready:
                    channel.running = True
            moved = False
            for channel in ready:
                try:
                    moved |= channel.advance(self.order.randrange(1, 24))
                finally:
                    with self._lock:
                        channel.running = False
                        self._lock.notify_all()
            if not moved:
                with self._lock:
                    if not self._closing:
                        self._lock.wait(_POLL_S)
