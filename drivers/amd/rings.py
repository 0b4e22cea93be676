"""The rings of one GPU and their encoders, made on first use, and the scratch memory of its compute queues.

Not here: one hardware queue (`queues`), how packets lie in a ring (`ring`, `aql_ring`), the packets
(`encode`, `encode_aql`, `encode_sdma`). Next: `device`, the owner.
"""

from __future__ import annotations

import contextlib
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from drivers.amd.aql_ring import AqlRing
from drivers.amd.context import QueueContext, ScratchMemory
from drivers.amd.encode import Pm4Encoder
from drivers.amd.encode_aql import AqlEncoder
from drivers.amd.encode_sdma import SdmaEncoder
from drivers.amd.info import COMPUTE_QUEUES, COPY_QUEUES
from drivers.amd.queues import HwQueue, Packets
from drivers.amd.ring import AmdRing
from hcq.driver import QueueKind
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from drivers.amd.context import InterruptEvent
    from drivers.amd.kfd import Kfd
    from drivers.amd.memory import AmdMemories
    from drivers.amd.queues import Doorbells, QueueFacts
    from hcq.errors import FaultReport

AnyEncoder: TypeAlias = Pm4Encoder | AqlEncoder | SdmaEncoder
AnyRing: TypeAlias = AmdRing | AqlRing


class Rings:
    """The rings and encoders of one GPU. Thread-safe: `lock` is the device's.

    `event` is raised beside signals. `name` names the device in labels and errors. `ring_bytes` is the size
    of each ring; 0: that of its kind. `fault` returns the device's fault, or None; `known` what the kernel's
    side reports where a queue does not finish.
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
        known: Callable[[int], str],
    ) -> None:
        self._kfd, self._memories, self._doorbells = kfd, memories, doorbells
        self._facts, self._event = facts, event
        self._name, self._lock, self._ring_bytes, self._fault = name, lock, ring_bytes, fault
        self._known = known
        flushes = facts.choices.hdp == "flush"
        self._fence = memories.flush_host_path if flushes else kfd.kernel.fence
        """Orders the stores of the host, before a doorbell."""
        self._service: AmdRing | None = None
        self._rings: dict[tuple[QueueKind, int], AnyRing] = {}
        self._encoders: dict[tuple[QueueKind, int], AnyEncoder] = {}
        self._scratch = tuple(
            ScratchMemory(facts.target, facts.geometry, memories, label=f"{name} compute {i}")
            for i in range(COMPUTE_QUEUES)
        )
        self.launched: deque[str] = deque(maxlen=8)
        """Names of the kernels encoded last."""

    @property
    def compute_packets(self) -> Packets:
        """The packet format of compute queues: AQL where several XCCs share the work, else PM4."""
        facts = self._facts
        aql = facts.geometry.xccs > 1 or (facts.target.compute_aql and facts.choices.single_xcc == "aql")
        return Packets.AQL if aql else Packets.PM4

    def service(self) -> AmdRing:
        """Make the driver's own copy ring, once. The caller closes it."""
        self._service = ring = self._packet_ring(Packets.SDMA, f"{self._name} service", list)
        return ring

    def ring(self, kind: QueueKind, index: int) -> AnyRing:
        """Return a ring, made on first use. Raises `UsageError` for a queue that the device does not have."""
        count = COMPUTE_QUEUES if kind is QueueKind.COMPUTE else COPY_QUEUES
        if not 0 <= index < count:
            raise UsageError(f"{self._name} has {count} {kind.value} queues, there is no number {index}")
        with self._lock:
            ring = self._rings.get((kind, index))
            if ring is None or ring.closed:
                label = f"{self._name} {kind.value} {index}"
                refresh = partial(self._new_code, kind, index)
                if kind is QueueKind.COPY:
                    ring = self._packet_ring(Packets.SDMA, label, refresh)
                elif self.compute_packets is Packets.PM4:
                    ring = self._packet_ring(Packets.PM4, label, refresh)
                else:
                    ring = self._aql_ring(index, label, refresh)
                self._rings[kind, index] = ring
            return ring

    def _packet_ring(self, packets: Packets, label: str, refresh: Callable[[], Sequence[int]]) -> AmdRing:
        queue = self._queue(packets, label)
        return AmdRing(queue, refresh=refresh, fault=self._fault, fence=self._fence, known=self._known)

    def _aql_ring(self, index: int, label: str, refresh: Callable[[], Sequence[int]]) -> AqlRing:
        queue, fence = self._queue(Packets.AQL, label), self._fence
        try:
            if self._scratch[index].backing.lane_bytes:
                queue.set_scratch(self._scratch[index].backing)
            return AqlRing(
                queue, self._memories, refresh=refresh, fault=self._fault, fence=fence, known=self._known
            )
        except BaseException:
            queue.close()
            raise

    def _queue(self, packets: Packets, label: str) -> HwQueue:
        return HwQueue(
            self._kfd,
            self._memories,
            self._doorbells,
            self._facts,
            packets,
            label=label,
            ring_bytes=self._ring_bytes or None,
        )

    def _new_code(self, kind: QueueKind, index: int) -> Sequence[int]:
        """Return the words that a ring must send before its next ones after code was loaded."""
        encoder = self.encoder(kind, index)
        return () if isinstance(encoder, SdmaEncoder) else encoder.new_code()

    def encoder(self, kind: QueueKind, index: int) -> AnyEncoder:
        """Return the encoder of one queue."""
        with self._lock:
            found = self._encoders.get((kind, index))
            if found is None:
                found = self._encoders[kind, index] = self._new_encoder(kind, index)
            return found

    def _new_encoder(self, kind: QueueKind, index: int) -> AnyEncoder:
        facts = self._facts
        if kind is QueueKind.COPY:
            return SdmaEncoder(
                QueueContext(
                    target=facts.target, geometry=facts.geometry, choices=facts.choices, event=self._event
                )
            )
        scratch = self._scratch[index]
        context = QueueContext(
            target=facts.target,
            geometry=facts.geometry,
            choices=facts.choices,
            event=self._event,
            scratch=lambda: scratch.backing,
            launched=self.launched.append,
        )
        return Pm4Encoder(context) if self.compute_packets is Packets.PM4 else AqlEncoder(context)

    def open(self) -> list[AnyRing]:
        """Return the rings that are open, the driver's own first."""
        own = [] if self._service is None else [self._service]
        return [ring for ring in (*own, *tuple(self._rings.values())) if not ring.closed]

    def need_scratch(self, lane_bytes: int) -> None:
        """Provide at least `lane_bytes` bytes of scratch for each lane of every compute queue."""
        for index, scratch in enumerate(self._scratch):
            if scratch.need(lane_bytes):
                self._set_scratch(index)

    def _set_scratch(self, index: int) -> None:
        """Give an open compute queue its current scratch memory."""
        ring, backing = self._rings.get((QueueKind.COMPUTE, index)), self._scratch[index].backing
        if backing.lane_bytes and ring is not None and not ring.closed:
            ring.queue.set_scratch(backing)

    def code_loaded(self) -> None:
        """Let each ring send the words for new code before its next ones."""
        for ring in self.open():
            ring.stale = True

    def stop(self) -> None:
        """Destroy all queues, also while kernels run; `start` makes them anew."""
        for ring in self.open():
            ring.queue.destroy()

    def start(self) -> None:
        """Give every ring a new queue, which is empty."""
        for ring in self.open():
            ring.queue.create()
            ring.attach()
        for index in range(COMPUTE_QUEUES):
            self._set_scratch(index)

    def close(self) -> None:
        """Close all rings but the driver's own; idempotent."""
        with contextlib.ExitStack() as stack:
            for ring in self._rings.values():
                stack.callback(ring.close)
