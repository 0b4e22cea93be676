"""Layouts: how the elements of a tensor lie on the devices of a mesh, and the memory that has them.

Not here: what operations do with layouts (`rules`). Next: `mesh`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any, Final, Self

from hcq.errors import HcqError, UsageError

if TYPE_CHECKING:
    import hcq

Shape = tuple[int, ...]
Bounds = tuple[tuple[int, int], ...]
"""For each device, in order, the first index that it has along the divided axis, and the one after its
last."""


@dataclass(frozen=True, slots=True)
class TensorLayout:
    """Where the elements of a tensor lie: whole on each device, or divided along an axis.

    With `pending`, a reduction such as "ADD", each device has a tensor of the whole shape, and the value is
    their reduction in the order of the devices. No memory of a tensor has such a layout.
    """

    axis: int | None = None
    """The divided axis; None: every device has all elements."""
    bounds: Bounds = ()
    pending: str | None = None

    def shape_on(self, device: int, shape: Shape) -> Shape:
        """Return the shape of the part that the device of this number has of a tensor of `shape`."""
        if self.axis is None:
            return shape
        begin, end = self.bounds[device]
        return (*shape[: self.axis], end - begin, *shape[self.axis + 1 :])


WHOLE: Final = TensorLayout()


def even(size: int, count: int) -> Bounds:
    """Return bounds that divide `size` elements over `count` devices; the first ones get one element more."""
    each, more = divmod(size, count)
    ends = [each * i + min(i, more) for i in range(count + 1)]
    return tuple(pairwise(ends))


def rows(layout: TensorLayout, shape: Shape, itemsize: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield (device, byte in its part, byte in the whole, bytes) of each run of a divided tensor."""
    assert layout.axis is not None, layout
    inner = prod(shape[layout.axis + 1 :]) * itemsize
    for number, (begin, end) in enumerate(layout.bounds):
        run = (end - begin) * inner
        for i in range(prod(shape[: layout.axis]) if run else 0):
            yield number, i * run, (i * shape[layout.axis] + begin) * inner, run


class Spread:
    """The memory of a tensor on a mesh: one buffer a device.

    It has the members of a `Buffer` that tensors use. Without a layout it is memory that the next launch
    which stores into it makes.
    """

    __slots__ = ("__weakref__", "device", "itemsize", "label", "layout", "parts", "shape", "size")

    def __init__(self, mesh: Any, size: int, label: str = "") -> None:
        self.device = mesh
        self.size = size
        """Bytes of the whole tensor."""
        self.label = label
        self.layout: TensorLayout | None = None
        self.parts: tuple[hcq.Buffer, ...] = ()
        self.shape: Shape = ()
        self.itemsize = 1

    def fill(self, layout: TensorLayout, parts: tuple[hcq.Buffer, ...], shape: Shape, itemsize: int) -> Self:
        """Set the memory of every device; return self."""
        self.layout, self.parts, self.shape, self.itemsize = layout, parts, shape, itemsize
        return self

    def like(self, parts: tuple[hcq.Buffer, ...]) -> Spread:
        """Return other memory of the same layout."""
        made = Spread(self.device, self.size, self.label)
        made.layout, made.parts, made.shape, made.itemsize = self.layout, parts, self.shape, self.itemsize
        return made

    def view(self, offset: int) -> Spread:
        """Return the same memory as an object of its own; `offset` is 0."""
        assert offset == 0, offset
        return self.like(tuple([part.view(0) for part in self.parts]))

    def live(self) -> None:
        """Raise as `hcq.Buffer.live` for the part of any device."""
        for part in self.parts:
            part.live()

    def close(self, *, reason: Callable[[], HcqError] | None = None) -> None:
        """Close the buffer of each device; see `hcq.Buffer.close`."""
        for part in self.parts:
            part.close(reason=reason)

    def count_as_written(self) -> None:
        """Count all bytes as written; see `hcq.Buffer.count_as_written`."""
        for part in self.parts:
            part.count_as_written()

    @property
    def closed(self) -> bool:
        """Whether the buffer of any device was closed."""
        return any(part.closed for part in self.parts)

    @property
    def lost(self) -> bool:
        """Whether a fault of any device lost its part."""
        return any(part.lost for part in self.parts)

    @property
    def in_view(self) -> bool:
        """False: no view of the host's is ever made of it."""
        return False

    def host(self) -> memoryview:
        """Raise `UsageError`: the elements lie in several places."""
        raise UsageError(
            f"a tensor on {self.device.name} has no single memory that another library could use in place\n"
            "hint: .numpy() copies it, .to('cpu') moves it to one device"
        )

    borrow = host

    def __repr__(self) -> str:
        return f"<Spread of {self.size} bytes on {self.device.name}, {self.layout}>"
