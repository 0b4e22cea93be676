"""The rings and encoders of one GPU, created on first use, and the scratch memory of its compute queues.

Not here: one hardware queue (`queues`), writing a ring (`ring`, `aql_ring`), encoding (`encode`,
`encode_aql`, `encode_sdma`). Next: `device`, the owner.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from drivers.amd.aql_ring import AqlRing
from drivers.amd.context import InterruptEvent, QueueContext, ScratchMemory
from drivers.amd.encode import Pm4Encoder
from drivers.amd.encode_aql import AqlEncoder
from drivers.amd.encode_sdma import SdmaEncoder
from drivers.amd.kfd import Kfd
from drivers.amd.memory import AmdMemories
from drivers.amd.queues import Doorbells, HwQueue, Packets, QueueFacts
from drivers.amd.ring import AmdRing, RingHooks
from drivers.shared.driver import QUEUES, check_queue
from hcq.driver import QueueKind
from hcq.errors import FaultReport

AnyEncoder: TypeAlias = Pm4Encoder | AqlEncoder | SdmaEncoder
AnyRing: TypeAlias = AmdRing | AqlRing


class Rings:
    """The rings and encoders of one GPU. Thread-safe: `lock` is the device's.

    `event` is raised after each signal. `name` names the device in labels and errors. `ring_bytes` is the
    size of each ring; 0: the default of its kind. `fault` returns the device's fault, or None. `reports`
    returns the kernel driver's reports on a queue, given its id, that does not finish. Methods that create a
    queue or memory raise `OutOfMemoryError` or `DriverError` if the kernel refuses it.
    """

    def __init__(
        self,
        kfd: Kfd,
        memories: AmdMemories,
        doorbells: Doorbells,
        facts: QueueFacts,
        event: InterruptEvent,
        *,
        name: str,
        lock: AbstractContextManager[bool],
        ring_bytes: int,
        fault: Callable[[], FaultReport | None],
        reports: Callable[[int], str],
    ) -> None:
        self._kfd, self._memories, self._doorbells = kfd, memories, doorbells
        self._facts, self._event = facts, event
        self._name, self._lock, self._ring_bytes, self._fault = name, lock, ring_bytes, fault
        self._reports = reports
        flushes = facts.choices.hdp == "flush"
        self._fence = memories.flush_host_path if flushes else kfd.kernel.fence
        """Orders the host's stores before a doorbell."""
        self._service: AnyRing | None = None
        self._rings: dict[tuple[QueueKind, int], AnyRing] = {}
        self._encoders: dict[tuple[QueueKind, int], AnyEncoder] = {}
        self._scratch = tuple(
            ScratchMemory(facts.target, facts.geometry, memories, label=f"{name} compute {i}")
            for i in range(QUEUES[QueueKind.COMPUTE])
        )
        self.launched: deque[str] = deque(maxlen=8)
        """Names of the kernels that were encoded last, the oldest first."""

    @property
    def compute_packets(self) -> Packets:
        """The packet format of compute queues: AQL if several XCCs share the work, else PM4.

        The quirk single_xcc="aql" selects AQL for targets that may have several XCCs.
        """
        facts = self._facts
        aql = facts.geometry.xccs > 1 or (facts.target.compute_aql and facts.choices.single_xcc == "aql")
        return Packets.AQL if aql else Packets.PM4

    def service(self) -> AnyRing:
        """Create the driver's own copy ring, once. The caller closes it."""
        self._service = ring = self._new_ring(Packets.SDMA, f"{self._name} service", list)
        return ring

    def ring(self, kind: QueueKind, index: int) -> AnyRing:
        """Return the ring of a queue, created on first use. Raises `UsageError` if there is no such queue."""
        check_queue(self._name, kind, index)
        with self._lock:
            ring = self._rings.get((kind, index))
            if ring is None or ring.closed:
                label = f"{self._name} {kind.value} {index}"
                refresh = partial(self._new_code, kind, index)
                packets = Packets.SDMA if kind is QueueKind.COPY else self.compute_packets
                ring = self._rings[kind, index] = self._new_ring(packets, label, refresh, index)
            return ring

    def _new_ring(
        self, packets: Packets, label: str, refresh: Callable[[], Sequence[int]], index: int = 0
    ) -> AnyRing:
        queue = HwQueue(
            self._kfd,
            self._memories,
            self._doorbells,
            self._facts,
            packets,
            label=label,
            ring_bytes=self._ring_bytes or None,
        )
        hooks = RingHooks(refresh=refresh, fault=self._fault, fence=self._fence, reports=self._reports)
        if packets is not Packets.AQL:
            return AmdRing(queue, hooks)
        try:
            if self._scratch[index].backing.lane_bytes:
                queue.set_scratch(self._scratch[index].backing)
            return AqlRing(queue, self._memories, hooks)
        except BaseException:
            queue.close()
            raise

    def _new_code(self, kind: QueueKind, index: int) -> Sequence[int]:
        """Return the words that a ring must send after code was loaded, before its next words."""
        encoder = self.encoder(kind, index)
        return () if isinstance(encoder, SdmaEncoder) else encoder.new_code()

    def encoder(self, kind: QueueKind, index: int) -> AnyEncoder:
        """Return the encoder of a queue, created on first use."""
        with self._lock:
            found = self._encoders.get((kind, index))
            if found is None:
                found = self._encoders[kind, index] = self._new_encoder(kind, index)
            return found

    def _new_encoder(self, kind: QueueKind, index: int) -> AnyEncoder:
        if kind is QueueKind.COPY:
            return SdmaEncoder(self.context(self._event))
        scratch = self._scratch[index]
        context = replace(
            self.context(self._event), scratch=lambda: scratch.backing, launched=self.launched.append
        )
        return Pm4Encoder(context) if self.compute_packets is Packets.PM4 else AqlEncoder(context)

    def context(self, event: InterruptEvent | None = None) -> QueueContext:
        """Return the data for encoders of copy queues."""
        facts = self._facts
        return QueueContext(target=facts.target, geometry=facts.geometry, choices=facts.choices, event=event)

    def open(self) -> list[AnyRing]:
        """Return the open rings, the driver's own first."""
        own = [] if self._service is None else [self._service]
        return [ring for ring in (*own, *tuple(self._rings.values())) if not ring.closed]

    def need_scratch(self, lane_bytes: int) -> None:
        """Provide at least `lane_bytes` bytes of scratch for each lane of every compute queue.

        Raises `UnsupportedError` for more bytes than the registers can hold.
        """
        for index, scratch in enumerate(self._scratch):
            if scratch.need(lane_bytes):
                self._set_scratch(index)

    def _set_scratch(self, index: int) -> None:
        """Give an open compute queue its current scratch memory."""
        ring, backing = self._rings.get((QueueKind.COMPUTE, index)), self._scratch[index].backing
        if backing.lane_bytes and ring is not None and not ring.closed:
            ring.queue.set_scratch(backing)

    def code_loaded(self) -> None:
        """Make each ring send the words for new code before its next words."""
        for ring in self.open():
            ring.stale = True

    def stop(self) -> None:
        """Destroy all hardware queues, even if kernels run; `start` creates new ones."""
        for ring in self.open():
            ring.queue.destroy()

    def start(self) -> None:
        """Give every ring a new, empty hardware queue."""
        for ring in self.open():
            ring.queue.create()
            ring.attach()
        for index in range(QUEUES[QueueKind.COMPUTE]):
            self._set_scratch(index)

    def close(self) -> None:
        """Close all rings except the driver's own; idempotent."""
        with contextlib.ExitStack() as stack:
            for ring in self._rings.values():
                stack.callback(ring.close)
