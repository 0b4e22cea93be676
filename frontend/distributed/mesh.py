"""The mesh: several devices that tensors use as one, by a name such as "cpu:0,cpu:1".

It has the members of `frontend.device.TensorDevice`. Memory that it makes from data of the host is whole on
every device. It runs no kernel itself: a launch on it is a plan (`plans`) of launches on its devices and of
copies between them.

Not here: the copies (`transport`). Next: `plans`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from math import prod
from typing import TYPE_CHECKING, Any, Final

from frontend.device import LOCK, Device, TensorDevice
from frontend.distributed.captured import MeshExecutable
from frontend.distributed.layout import WHOLE, Shape, Spread, TensorLayout, rows
from frontend.distributed.plans import MeshLaunch
from frontend.distributed.transport import QUEUED, DeviceCopy, Transport, transport_from
from frontend.evaluation.expr import leaf_expr
from frontend.evaluation.plan import CAPTURE
from frontend.evaluation.storage import Leaf, read
from hcq.errors import UsageError

if TYPE_CHECKING:
    import hcq
    from frontend.evaluation.expr import Leaves, Part, TensorExpr

MOST_RUNS: Final = 64
"""A tensor that a layout divides into more runs of bytes is placed by the host."""


class _Rings:
    """The rings of all devices as one, of which only the count of units written is read."""

    def __init__(self, devices: Sequence[TensorDevice]) -> None:
        self._devices = devices

    @property
    def ring(self) -> _Rings:
        """Itself: `mesh.queue.ring.taken`."""
        return self

    @property
    def taken(self) -> int:
        """Number of units ever written to the rings of the compute queues."""
        return sum([device.queue.ring.taken for device in self._devices])


class Mesh(TensorDevice):
    """Several open devices as one device of tensors; made by `Device["cpu:0,cpu:1"]`.

    It owns none of them. Closing one of them closes the mesh. Methods raise as those of `TensorDevice`, and
    launches as `MeshLaunch`.
    """

    def __init__(self, name: str, devices: Sequence[TensorDevice]) -> None:
        self.name = name
        self.devices = tuple(devices)
        self.direct = False
        self.transport = Transport(self.devices)
        self.bucket_bytes = QUEUED
        """The fewest bytes for each device that a captured step exchanges beside the kernels of a level."""
        self.paths: dict[str, object] = {}
        self.queue: Any = _Rings(self.devices)
        # A method by another name: a replay calls it for each result, and a method in between costs as much.
        self.alloc_partial = partial(Spread, self)  # type: ignore[method-assign, assignment]
        """Return memory that the next launch which stores into it makes, with the layout of its value."""
        self.launches: dict[Any, MeshLaunch] = {}
        """Key of a joint plan -> its launch; the oldest are dropped."""

    @property
    def closed(self) -> bool:
        """Whether one of the devices is closed."""
        return any(device.hcq.closed for device in self.devices)

    def launch_of(self, key: tuple[Any, ...]) -> MeshLaunch:
        """Return the launch of a joint plan's key, as `frontend.evaluation.plan.plan_of` does."""
        found = self.launches.get(key)
        if found is None:
            if len(self.launches) >= 1024:
                self.launches.pop(next(iter(self.launches)))
            found = self.launches[key] = MeshLaunch(self, key)
        return found

    def run_of(self, e: TensorExpr) -> Callable[[Leaves], Leaves]:
        """Return the launch of one expression, from its leaves to a tuple of the new leaf: its `run`."""
        launch = self.launch_of((e, tuple(range(e.n)), -1))

        def run(leaves: Leaves) -> Leaves:
            out = self.alloc_partial(prod(e.shape) * e.dtype.itemsize)
            given, leaf = [leaf.buffer for leaf in leaves], Leaf(out)
            launch.replay([*given, out])
            if CAPTURE.now is not None:
                CAPTURE.now.record(launch, given, [out])
                CAPTURE.now.made(leaf)
            return (leaf,)

        return run

    def assembled(
        self, work: Sequence[Any], params: Sequence[tuple[Any, int]], fixed: Mapping[Any, Any], label: str
    ) -> MeshExecutable:
        """Return the executable of launches on this mesh: see `frontend.evaluation.launch.assemble`."""
        return MeshExecutable(self, work, params, fixed, label)

    def alloc(self, nbytes: int, *, label: str = "") -> Any:
        """Return new memory with undefined contents, whole on every device. Raises as `hcq.Device.alloc`."""
        return self._whole(nbytes, [device.alloc(nbytes, label=label) for device in self.devices], label)

    def _whole(self, size: int, parts: list[hcq.Buffer], label: str = "") -> Any:
        return Spread(self, size, label).fill(WHOLE, tuple(parts), (), 1)

    def write(self, data: bytes | memoryview, *, label: str = "") -> Any:
        """Return new memory that contains `data`, whole on every device. Raises as `hcq.Device.alloc`."""
        return self._whole(len(data), [device.write(data, label=label) for device in self.devices], label)

    def write_small(self, data: bytes) -> Any:
        """Return a few bytes of memory that contain `data`, whole on every device."""
        return self._whole(len(data), [device.write_small(data) for device in self.devices])

    def write_into(self, buffer: Any, at: int, data: bytes | memoryview) -> None:
        """Copy `data` to byte `at` of memory; raises `UsageError` unless it is whole on every device."""
        if buffer.layout != WHOLE:
            raise UsageError(f"{buffer!r}: only memory that is whole on every device is written in part")
        for device, part in zip(self.devices, buffer.parts, strict=True):
            device.write_into(part, at, data)

    def part_of(self, e: TensorExpr, leaf: Leaf, layout: TensorLayout | None) -> Part:
        """Return the part of a tensor with a copy of a leaf of another device; layout None: whole.

        The queues wait for the leaf's launch; the host waits only where a layout tears the elements into more
        than `MOST_RUNS` pieces, or where a device does not see the other's memory. Raises as
        `hcq.Device.alloc`.
        """
        shape, itemsize, source = e.shape, e.dtype.itemsize, Device[e.device]
        runs = [(i, 0, 0, prod(shape) * itemsize) for i in range(len(self.devices))]
        if layout is not None:
            runs = list(islice(rows(layout, shape, itemsize), MOST_RUNS + 1))
        if source.devices or len(runs) > MOST_RUNS:
            write = self.write if layout is None else partial(self._write_divided, layout, shape, itemsize)
            made = read(e, leaf, write)
        else:
            with LOCK:  # the launch of the leaf is submitted, and its memory stays its own
                leaf.buffer.live()
                made = self._copied_from(source, leaf.buffer, layout, runs, shape, itemsize)
        return leaf_expr(shape, e.dtype, self.name), (Leaf(made),)

    def _copied_from(  # noqa: PLR0917 - internal
        self, source: TensorDevice, buffer: hcq.Buffer, layout: TensorLayout | None,
        runs: list[tuple[int, int, int, int]], shape: Shape, itemsize: int,
    ) -> Any:  # fmt: skip
        layout = layout or WHOLE
        parts = [
            device.alloc(prod(layout.shape_on(i, shape)) * itemsize) for i, device in enumerate(self.devices)
        ]
        transport_from(source, self).run(
            [DeviceCopy(0, buffer, at, i + 1, parts[i], to, size, True) for i, to, at, size in runs]
        )
        return Spread(self, prod(shape) * itemsize).fill(layout, tuple(parts), shape, itemsize)

    def _write_divided(self, layout: TensorLayout, shape: Shape, itemsize: int, data: memoryview) -> Spread:
        """Return new memory of a divided layout with `data`, the elements in row-major order."""
        sizes = [prod(layout.shape_on(i, shape)) * itemsize for i in range(len(self.devices))]
        pieces = [bytearray(size) for size in sizes]
        for number, to, at, size in rows(layout, shape, itemsize):
            pieces[number][to : to + size] = data[at : at + size]
        parts = [device.write(memoryview(p)) for device, p in zip(self.devices, pieces, strict=True)]
        return Spread(self, len(data)).fill(layout, tuple(parts), shape, itemsize)

    def read(self, buffer: Any, nbytes: int) -> memoryview:
        """Wait for all submissions so far; return the elements in row-major order."""
        if buffer.layout.axis is None:
            return self.devices[0].read(buffer.parts[0], nbytes)
        found = memoryview(bytearray(nbytes))
        parts = [
            device.read(part, prod(buffer.layout.shape_on(i, buffer.shape)) * buffer.itemsize)
            for i, (device, part) in enumerate(zip(self.devices, buffer.parts, strict=True))
        ]
        for number, at, to, size in rows(buffer.layout, buffer.shape, buffer.itemsize):
            found[to : to + size] = parts[number][at : at + size]
        return found

    def copied(self, buffer: Any) -> Any:
        """Return new memory with the same contents and layout."""
        pairs = zip(self.devices, buffer.parts, strict=True)
        return buffer.like(tuple([device.copied(part) for device, part in pairs]))

    def synchronize(self) -> None:
        """Wait until all submissions so far, to every device, are complete."""
        for device in self.devices:
            device.synchronize()

    def recover(self) -> None:
        """Recover each device that has a fault, then each that waits for it; see `TensorDevice.recover`."""
        for device in [*self.devices] * 2:  # only what recovered has lost the work that others wait for
            if device.fault() is not None:
                device.recover()

    def close(self) -> None:
        """Forget the mesh and its plans; its devices stay open."""
        self.launches.clear()
        Device.forget(self)

    def __repr__(self) -> str:
        return f"<Mesh {self.name}>"


def _close_with(name: str) -> None:
    """Close the meshes that a device which is being closed belongs to."""
    for found in list(Device.opened()):
        if isinstance(found, Mesh) and name in [device.name for device in found.devices]:
            found.close()


Device.closing.append(_close_with)
