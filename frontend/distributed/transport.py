"""Transport: copies between the memory of several devices, ordered by points across their queues.

Where the target device can access the memory of the source, one of its queues copies. It waits for the source
by a point, and its later launches wait for the copy: the host waits for nothing. Where it cannot, the bytes
go through host memory in pieces: while a piece is uploaded, the next ones are downloaded.

Not here: what is copied when (`plans`). Next: `hcq.queue`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from hcq.errors import UnsupportedError
from hcq.hardware import BufferSpec, Place

if TYPE_CHECKING:
    import hcq
    from frontend.device import TensorDevice

QUEUED: Final = 256 << 10
"""Copies into one device of this many bytes or more use its copy queue, less its compute queue."""
PIECE: Final = 1 << 20
"""Bytes of one piece of a copy through host memory."""
_HOST: Final = BufferSpec(place=Place.HOST, host_visible=True, coherent=True)


@dataclass(frozen=True, slots=True)
class DeviceCopy:
    """A copy of `size` bytes between two buffers of devices with these numbers."""

    source: int
    read: hcq.Buffer
    at: int
    """The first byte that is read."""
    target: int
    written: hcq.Buffer
    to: int
    """The first byte that is written."""
    size: int
    kept: bool
    """Whether the source may be overwritten later, so that its device waits for the copy first."""


class Transport:
    """Copies between some devices. It counts the bytes that went from one device to another."""

    def __init__(self, devices: Sequence[TensorDevice]) -> None:
        self._devices = devices
        self._paths: dict[tuple[int, int], bool] = {}
        self.peer_bytes = 0
        """Bytes copied by devices from the memory of others."""
        self.staged_bytes = 0
        """Bytes copied through host memory."""

    @property
    def closed(self) -> bool:
        """Whether one of the devices is closed."""
        return any(device.hcq.closed for device in self._devices)

    def staged(self, source: int, target: int) -> bool:
        """Return whether a copy between these devices went through host memory before."""
        return self._paths.get((source, target)) is False

    def run(self, copies: Sequence[DeviceCopy]) -> None:
        """Submit copies; launches that are submitted later on the target devices see the bytes.

        Raises as `hcq.Queue.submit` and `hcq.Device.alloc`.
        """
        direct: dict[int, list[DeviceCopy]] = {}
        staged: list[DeviceCopy] = []
        for copy in [copy for copy in copies if copy.size]:
            seen = self.path(copy.source, copy.read, copy.target)
            (direct.setdefault(copy.target, []) if seen else staged).append(copy)
        # Copies of opposite directions wait for the work so far, and not for each other.
        sources = {copy.source for group in direct.values() for copy in group}
        ends = {i: self._devices[i].queue.end() for i in sorted(sources)}
        points = [self._direct(target, group, ends) for target, group in direct.items()]
        for (target, group), (queue, point) in zip(direct.items(), points, strict=True):
            self._ordered(target, group, queue, point)
        for copy in staged:
            self._staged(copy)

    def path(self, source: int, read: hcq.Buffer, target: int) -> bool:
        """Return whether a device accesses memory of another one, which is mapped for it if it can be."""
        if source == target:
            return True
        if self._paths.get((source, target)) is False:
            return False
        try:
            read.map_to(self._devices[target].hcq)
        except UnsupportedError:
            self._paths[source, target] = False
            return False
        return True

    def _direct(
        self, target: int, group: list[DeviceCopy], ends: Mapping[int, hcq.Point]
    ) -> tuple[hcq.Queue, hcq.Point]:
        """Copy on a queue of the target device, after the ends of the sources; return it, and the end."""
        device = self._devices[target]
        queue = device.queue
        if sum([copy.size for copy in group]) >= QUEUED and device.hcq.copies:
            queue = device.hcq.copies[0]
        commands = queue.record(label="from other devices")
        for copy in group:
            commands.copy(
                _part(copy.written, copy.to, copy.size), _part(copy.read, copy.at, copy.size), copy.size
            )
            if copy.source != target:
                self.peer_bytes += copy.size
        return queue, queue.submit(commands, after=[ends[i] for i in sorted({c.source for c in group})])

    def _ordered(self, target: int, group: list[DeviceCopy], queue: hcq.Queue, point: hcq.Point) -> None:
        """Let later work of the target, and of sources that may be overwritten, wait for copies."""
        for i in {copy.source for copy in group if copy.kept} | {target}:
            later = self._devices[i].queue
            if later is not queue:  # which runs in order
                later.prepend(later.record(label="after a copy"), after=[point])

    def _staged(self, copy: DeviceCopy) -> None:
        """Copy through host memory in pieces: one is uploaded while the next are downloaded."""
        source, target = self._devices[copy.source], self._devices[copy.target]
        queue = source.hcq.copies[0] if source.hcq.copies else source.queue
        staging = source.hcq.alloc(copy.size, _HOST, label="staging")
        end, pieces = source.queue.end(), []
        for at in range(0, copy.size, PIECE):
            size = min(PIECE, copy.size - at)
            commands = queue.record(label="to another device")
            commands.copy(_part(staging, at, size), _part(copy.read, copy.at + at, size), size)
            pieces.append((at, size, queue.submit(commands, after=[end])))
        for at, size, point in pieces:
            point.wait()
            target.write_into(copy.written, copy.to + at, staging.borrow()[at : at + size])
        self.staged_bytes += copy.size


def transport_from(source: TensorDevice, target: TensorDevice) -> Transport:
    """Return the copies from a device, number 0, to another one or to those of a mesh, number 1 and more."""
    found = target.paths.get(source.name)
    if isinstance(found, Transport) and not found.closed:
        return found
    made = target.paths[source.name] = Transport((source, *(target.devices or (target,))))
    return made


def copied(source: TensorDevice, buffer: hcq.Buffer, size: int, target: TensorDevice) -> hcq.Buffer | None:
    """Return new memory of a device with bytes of another one's, None where it does not see them.

    Raises as `hcq.Device.alloc` and `hcq.Queue.submit`.
    """
    transport = transport_from(source, target)
    if not transport.path(0, buffer, 1):
        return None
    made = target.alloc(size)
    transport.run([DeviceCopy(0, buffer, 0, 1, made, 0, size, True)])
    return made


def _part(buffer: hcq.Buffer, at: int, size: int) -> hcq.Buffer:
    return buffer if at == 0 and size == buffer.size else buffer.view(at, size)


class MeshMembers(Protocol):
    """What the launches of a mesh use of it."""

    devices: tuple[TensorDevice, ...]
    transport: Transport
    bucket_bytes: int
