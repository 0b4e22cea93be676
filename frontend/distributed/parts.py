"""The memory of a plan of a mesh, and the values that are computed from it.

Memory is numbered: parts of the plan's inputs, values of earlier launches, bytes received from other devices.
Not here: what an operation does (`rules`). Next: `partition`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from compiler.dtype import DType, dtypes
from compiler.ir.ops import Ops
from frontend.evaluation.expr import CONV, PARAM, Part, inside, join, leaf_expr
from frontend.primitives.gather_scatter import LAST_INDEX, SEGMENT_SUM, TAKE_ALONG_AXIS

if TYPE_CHECKING:
    from frontend.distributed.layout import Shape, TensorLayout

HEAVY: Final = frozenset({Ops.REDUCE, Ops.GATHER, CONV, TAKE_ALONG_AXIS, SEGMENT_SUM, LAST_INDEX})
"""Operations whose values are kept in memory instead of being computed again in a later level."""


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A node on all devices. `shape` is that of the whole; parts of a pending one may have a wider dtype."""

    layout: TensorLayout
    parts: tuple[Part, ...]
    """The expression of each device, over numbers of memory (`Parts`)."""
    shape: Shape
    dtype: DType
    repeats: Value | None = None
    """The divided value of which this is an expansion."""


@dataclass(frozen=True, slots=True)
class PlannedCopy:
    """A copy between the memories of two devices, by their numbers."""

    source: int
    source_memory: int
    at: int
    target: int
    target_memory: int
    to: int
    size: int
    target_bytes: int
    """Bytes of the whole target memory, which the first copy into it allocates."""
    kept: bool


class Parts:
    """The memory of a plan: numbers, the level at which each is available, what computes or copies it."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self.given: list[tuple[int, int, int]] = []
        """(memory, joint leaf, device) of the inputs."""
        self.levels = 1
        """Number of levels that hold something."""
        self._level: list[int] = []
        self._inputs: set[int] = set()
        self._cut: dict[tuple[int, Part], int] = {}
        self._cuts: dict[tuple[int, int], list[tuple[Part, int, int]]] = {}
        self._exchanges: dict[int, list[PlannedCopy]] = {}
        self._heavy: dict[Any, bool] = {}
        self._received: dict[int, int] = {}
        """Memory that copies write -> its bytes."""
        self._sent: set[int] = set()

    def new(self, level: int) -> int:
        """Return a new number of memory, which is available from a level on."""
        self._level.append(level)
        self.levels = max(self.levels, level)
        return len(self._level) - 1

    def input(self, leaf: int, device: int) -> int:
        """Return the memory of a device's part of a joint leaf."""
        number = self.new(0)
        self._inputs.add(number)
        self.given.append((number, leaf, device))
        return number

    def level(self, part: Part) -> int:
        """Return the level in which a part can be computed."""
        return max([self._level[i] for i in part[1]], default=0)

    def cuts(self, level: int, device: int) -> list[tuple[Part, int, int]]:
        """Return the intermediate outputs (part, memory, -1) of a level on a device."""
        return self._cuts.get((level, device), [])

    def exchanges(self, level: int) -> list[PlannedCopy]:
        """Return the copies after a level."""
        return self._exchanges.get(level, [])

    def cut(self, device: int, part: Part) -> tuple[int, int]:
        """Return (memory, level) with the elements of a part, row-major: computed in its level if needed."""
        level = self.level(part)
        e, leaves = _unmoved(part)
        if e.op is PARAM:
            return leaves[0], level
        found = self._cut.get((device, (e, leaves)))
        if found is None:
            found = self._cut[device, (e, leaves)] = self.new(level + 1)
            self._cuts.setdefault((level, device), []).append(((e, leaves), found, -1))
        return found, level

    def leaf_of(self, device: int, part: Part) -> Part:
        """Return a part as memory that is computed in its level."""
        number, _ = self.cut(device, part)
        return leaf_expr(part[0].shape, part[0].dtype, self.names[device]), (number,)

    def kept(self, device: int, part: Part) -> Part:
        """Return a part with what it repeats, permutes or reshapes as memory of its level."""
        e = part[0]
        if e.op in {Ops.EXPAND, Ops.PERMUTE, Ops.RESHAPE}:
            return join(e.op, e.arg, self.kept(device, inside(part)))
        return part if e.op is PARAM else self.leaf_of(device, part)

    def taken(self, part: Part) -> int | None:
        """Return the memory of a part that is all that copies wrote into it, and is read by no other device.

        The caller becomes its owner; another call for it returns None.
        """
        e, leaves = _unmoved(part)
        if e.op is not PARAM or leaves[0] in self._sent or not self._received.pop(leaves[0], 0):
            return None
        return int(leaves[0])

    def last_reads(self, parts: Sequence[tuple[int, Part]]) -> dict[int, int]:
        """Return for each memory the first level in which nothing of earlier levels is left to read it.

        It is read by `parts`, each in its level, by the intermediate outputs, and by copies.
        """
        found: dict[int, int] = {}
        cuts = [(level, part) for (level, _), made in self._cuts.items() for part, _, _ in made]
        reads = [(level, i) for level, part in (*parts, *cuts) for i in part[1]]
        reads += [(level + 1, x.source_memory) for level, made in self._exchanges.items() for x in made]
        for level, number in reads:
            found[number] = max(found.get(number, 0), level)
        return found

    def heavy(self, part: Part) -> bool:
        """Return whether an expression contains an operation of `HEAVY`."""
        e = part[0]
        found = self._heavy.get(e)
        if found is None:
            found = self._heavy[e] = e.op in HEAVY or any([self.heavy((s, ())) for s in e.src])  # noqa: C419
        return found

    def copy(
        self, level: int, source: tuple[int, int, int], target: tuple[int, int, int, int], size: int
    ) -> None:
        """Add a copy after a level.

        `source` is (device, memory, byte), `target` (device, memory, bytes of the memory, byte).
        """
        self.levels = max(self.levels, level + 2)
        self._received[target[1]] = target[2]
        self._sent.add(source[1])
        self._exchanges.setdefault(level, []).append(
            PlannedCopy(*source, target[0], target[1], target[3], size, target[2], source[1] in self._inputs)
        )


def buckets(
    exchanges: Iterable[PlannedCopy], ready: Mapping[int, int], least: int
) -> list[list[PlannedCopy]]:
    """Divide copies by the number of kernels after which their source is `ready`, which defaults to 0.

    A bucket has `least` bytes or more, but for the last one, and all copies that are ready together.
    """
    found: list[list[PlannedCopy]] = [[]]
    size = at = 0
    for copy in sorted(exchanges, key=lambda x: ready.get(x.source_memory, 0)):
        if size >= least and ready.get(copy.source_memory, 0) > at:
            found.append([])
            size = 0
        found[-1].append(copy)
        size, at = size + copy.size, ready.get(copy.source_memory, 0)
    return found


def summed_in(op: str, dtype: DType) -> DType:
    """Return the dtype in which contributions are added or multiplied: float32 for 16-bit floats."""
    return dtypes.float32 if dtype.is_float and dtype.bits == 16 and op in {Ops.ADD, Ops.MUL} else dtype


def _unmoved(part: Part) -> Part:
    """Return the part without operations that change its shape and no order of elements."""
    while part[0].op is Ops.RESHAPE or (part[0].op is Ops.PERMUTE and _in_order(part[0])):
        part = inside(part)
    return part


def _in_order(e: Any) -> bool:
    """Return whether a permutation moves axes of one element only."""
    long = [axis for axis in e.arg if e.src[0].shape[axis] != 1]
    return long == sorted(long)
