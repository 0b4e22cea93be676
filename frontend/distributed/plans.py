"""Plans of a mesh: launches on each device, and the copies between them.

The expression of a tensor on a mesh is that of the whole tensor. A plan evaluates it once per set of layouts:
each node becomes one expression a device (`partition`), over numbered *memory*: parts of the plan's inputs,
values of earlier launches, and bytes received from other devices. A node has a *level*: the number of
exchanges before it. Level k of a plan is one launch on each device, followed by the k-th exchange of copies.
The queues wait for each other by points; the host submits all levels and waits for none.

What is stored in place is stored in its level, or in a later one, after all that reads the old contents.
Memory between levels is released after the last level that uses it.

Not here: kernels and their launch on one device (`frontend.evaluation.plan`). Next: `partition`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, cast

from compiler.ir.ops import Ops
from frontend.distributed.partition import Partition
from frontend.distributed.transport import DeviceCopy, MeshMembers
from frontend.evaluation.expr import join
from frontend.evaluation.launch import KernelLaunch
from frontend.evaluation.plan import LaunchPlan, plan_of, verify
from frontend.evaluation.storage import Leaf

if TYPE_CHECKING:
    import hcq
    from frontend.distributed.layout import Shape, Spread, TensorLayout
    from frontend.distributed.parts import PlannedCopy, Value


@dataclass(frozen=True, slots=True)
class DeviceLaunch:
    """One launch on one device. Memory is numbered as in `parts`."""

    device: int
    plan: LaunchPlan
    reads: tuple[int, ...]
    """The memory of each joint leaf of the plan."""
    makes: tuple[tuple[int, int], ...]
    """(output number, memory) of each output that gets new memory."""

    def run(self, memory: dict[int, hcq.Buffer]) -> None:
        """Allocate the outputs, and launch."""
        plan, outs = self.plan, {}
        alloc = plan.device.alloc_partial if plan.partial else plan.device.alloc
        given = [memory[number] for number in self.reads]
        if plan.limits is not None:
            verify(plan, tuple([Leaf(buffer) for buffer in given]))
        sizes = dict(plan.outputs)
        for n, number in self.makes:
            outs[n] = memory[number] = alloc(sizes[n])
        plan.replay([*[given[i] for i in plan.inputs], *[outs[n] for n in plan.stored]])


@dataclass(frozen=True, slots=True)
class MeshOutput:
    """An output of a plan: its layout, and the memory of each device."""

    layout: TensorLayout
    memory: tuple[int, ...]
    shape: Shape
    itemsize: int


@dataclass(frozen=True, slots=True)
class MeshSteps:
    """A plan for one set of layouts."""

    inputs: tuple[tuple[int, int, int], ...]
    """(memory, joint leaf, device) of each part of an input."""
    levels: tuple[tuple[tuple[DeviceLaunch, ...], tuple[PlannedCopy, ...]], ...]
    outputs: dict[int, MeshOutput]
    """Number of an output with new memory -> what it is."""
    dead: tuple[tuple[int, ...], ...]
    """The memory that nothing uses after each level."""


class MeshLaunch:
    """The launch of a joint plan on a mesh. It has the members of a `LaunchPlan` that realization uses."""

    limits = None
    """None: each device's plan has its own."""
    check = None
    numbers = ()
    """(): the plan of each device is fixed."""
    partial = True
    """The memory of its outputs is `Mesh.alloc_partial`: made by the launch."""

    def __init__(self, mesh: MeshMembers, key: tuple[Any, ...]) -> None:
        self.device = mesh
        parts, homes = [(key[i], key[i + 1]) for i in range(0, len(key), 3)], key[2::3]
        count = 1 + max([-1, *homes, *[i for _, leaves in parts for i in leaves]])
        self.inputs = tuple(range(count))
        self.outputs = tuple(
            [
                (n, prod(e.shape) * e.dtype.itemsize)
                for n, ((e, _), home) in enumerate(zip(parts, homes, strict=True))
                if home < 0
            ]
        )
        self.stored = tuple([n for n, _ in self.outputs])
        self._parts, self.homes = parts, homes
        """For each output the number of the memory that it is stored into; -1: new memory."""
        self._steps: dict[Any, MeshSteps] = {}

    def replay(self, given: list[Any]) -> None:
        """Launch on memory: that of `inputs`, then that of `stored`, which gets its layout and its parts.

        Raises as `steps_of`, and as launches and copies.
        """
        count = len(self.inputs)
        layouts = tuple([buffer.layout for buffer in given[:count]])
        self._run(self.steps_of(layouts), given[:count], given[count:])

    def steps_of(self, layouts: tuple[TensorLayout | None, ...]) -> MeshSteps:
        """Return the plan for the layouts of the inputs; None: memory of a store that has none yet.

        Raises `UsageError` for an operation that has no rule, and as `plan_of`.
        """
        steps = self._steps.get(layouts)
        if steps is None:
            steps = self._steps[layouts] = self._planned(layouts)
        return steps

    def _run(self, steps: MeshSteps, inputs: list[Spread], outs: list[Spread]) -> None:
        memory = {number: inputs[i].parts[d] for number, i, d in steps.inputs}
        for (launches, exchanges), dead in zip(steps.levels, steps.dead, strict=True):
            for launch in launches:
                launch.run(memory)
            for exchange in exchanges:
                if exchange.target_memory not in memory:
                    target = self.device.devices[exchange.target]
                    memory[exchange.target_memory] = target.alloc(exchange.target_bytes, label="received")
            pairs = [(x, memory[x.source_memory], memory[x.target_memory]) for x in exchanges]
            self.device.transport.run(
                [DeviceCopy(x.source, a, x.at, x.target, b, x.to, x.size, x.kept) for x, a, b in pairs]
            )
            for number in dead:
                del memory[number]
        for n, out in steps.outputs.items():
            home = self.homes[n]
            made = outs[self.stored.index(n)] if home < 0 else inputs[home]
            made.fill(out.layout, tuple([memory[i] for i in out.memory]), out.shape, out.itemsize)

    def _planned(self, layouts: Sequence[TensorLayout | None]) -> MeshSteps:
        mesh = self.device
        rules = Partition([device.name for device in mesh.devices])
        inputs = self._inputs(rules, layouts)
        values = [rules.value((e, leaves), inputs) for e, leaves in self._parts]
        values = [
            rules.placed(v, layouts[home] if home >= 0 and layouts[home] is not None else None)
            for v, home in zip(values, self.homes, strict=True)
        ]
        last = max([rules.parts.level(p) for v in values for p in v.parts], default=0)
        last = max(last, rules.parts.levels - 1)
        wanted, outputs = self._outputs(rules, values, layouts, inputs)
        levels = []
        for level in range(last + 1):
            launches = [
                _launch(mesh, d, wanted.get((level, d), []) + rules.parts.cuts(level, d))
                for d in range(len(mesh.devices))
            ]
            exchanges = rules.parts.exchanges(level)
            made, given = [[x for x in exchanges if x.kept is kept] for kept in (False, True)]
            levels.append((tuple([x for x in launches if x is not None]), tuple(made)))
            if given:  # later, as what was made is released by then
                levels.append(((), tuple(given)))
        return MeshSteps(tuple(rules.parts.given), tuple(levels), outputs, _dead(levels, outputs))

    def _inputs(self, rules: Partition, layouts: Sequence[TensorLayout | None]) -> list[Value | None]:
        """Return each joint leaf as a value; None for memory without contents."""
        kinds = self._kinds()
        return [
            None if layout is None else rules.input(i, layout, *kinds[i]) for i, layout in enumerate(layouts)
        ]

    def _kinds(self) -> dict[int, tuple[Shape, Any]]:
        """Return (shape, dtype) of each joint leaf, by its number."""
        known: dict[int, tuple[Shape, Any]] = {}
        for (e, leaves), home in zip(self._parts, self.homes, strict=True):
            for leaf, at in zip(e.params, leaves, strict=True):
                known[at] = leaf.shape, leaf.dtype
            if home >= 0:
                known[home] = e.shape, e.dtype
        return known

    def kinds_of(self, memory: Sequence[Hashable]) -> dict[Hashable, tuple[Shape, int]]:
        """Return (shape, bytes of an element) of the joint leaves, by their keys of memory."""
        return {memory[i]: (shape, dtype.itemsize) for i, (shape, dtype) in self._kinds().items()}

    def recorded(self, inputs: Sequence[Hashable], outputs: Sequence[Hashable]) -> KernelLaunch:
        """Return the launch on this memory, as a captured function records it."""
        count = len(self.inputs)
        stores = {home for home in self.homes if home >= 0} | set(range(count, count + len(self.stored)))
        memory, none = (*inputs, *outputs), (1, 1, 1)
        return KernelLaunch(cast("Any", self), none, none, memory, (), tuple(sorted(stores)), partial=True)

    def _outputs(
        self, rules: Partition, values: list[Value], layouts: Sequence[TensorLayout | None],
        inputs: list[Value | None],
    ) -> tuple[dict[tuple[int, int], list[Any]], dict[int, MeshOutput]]:  # fmt: skip
        """Return (level, device) -> outputs as (part, memory, home memory), and those with new memory."""
        wanted: dict[tuple[int, int], list[Any]] = {}
        outputs: dict[int, MeshOutput] = {}
        stores = [
            (d, part, cast("Value", inputs[home]).parts[d][1][0])
            for v, home in zip(values, self.homes, strict=True)
            if home >= 0 and layouts[home] is not None
            for d, part in enumerate(v.parts)
        ]
        for n, (v, home) in enumerate(zip(values, self.homes, strict=True)):
            if home >= 0 and layouts[home] is not None:
                continue
            numbers = []
            for d, part in enumerate(v.parts):
                if (received := rules.parts.taken(part)) is not None:
                    numbers.append(received)
                else:
                    number = rules.parts.new(rules.parts.level(part) + 1)
                    wanted.setdefault((rules.parts.level(part), d), []).append((part, number, -1))
                    numbers.append(number)
            outputs[n] = MeshOutput(v.layout, tuple(numbers), v.shape, v.dtype.itemsize)
        read = rules.parts.last_reads(
            [
                *[(level, part) for (level, _), parts in wanted.items() for part, _, _ in parts],
                *[(rules.parts.level(part), part) for _, part, _ in stores],
            ]
        )
        changed = {store for _, _, store in stores}
        for d, part, store in stores:
            level = max(rules.parts.level(part), read.get(store, 0))
            if rules.parts.level(part) < level:  # computed earlier: a copy of what another store changes
                own = join(Ops.CONTIGUOUS, None, part) if changed.intersection(part[1]) else part
                part = rules.parts.leaf_of(d, own)  # noqa: PLW2901 - as above
            wanted.setdefault((level, d), []).append((part, -1, store))
        return wanted, outputs


def _dead(levels: Sequence[Any], outputs: Mapping[int, MeshOutput]) -> tuple[tuple[int, ...], ...]:
    """Return for each level the memory that is used in it, in no later one, and is of no output."""
    last: dict[int, int] = {}
    for level, (launches, exchanges) in enumerate(levels):
        for launch in launches:
            last |= dict.fromkeys([*launch.reads, *[number for _, number in launch.makes]], level)
        for x in exchanges:
            last |= {x.source_memory: level, x.target_memory: level}
    kept = {number for out in outputs.values() for number in out.memory}
    dead: list[list[int]] = [[] for _ in levels]
    for number, level in last.items():
        if number not in kept:
            dead[level].append(number)
    return tuple([tuple(numbers) for numbers in dead])


def _launch(mesh: MeshMembers, device: int, wanted: list[Any]) -> DeviceLaunch | None:
    """Return the joint launch of (part, memory of the output, memory that it is stored into or -1)."""
    if not wanted:
        return None
    index: dict[int, int] = {}
    key: list[Any] = []
    makes = []
    for n, ((e, leaves), number, home) in enumerate(wanted):
        where = tuple([index.setdefault(leaf, len(index)) for leaf in leaves])
        key += (e, where, -1 if home < 0 else index.setdefault(home, len(index)))
        if home < 0:
            makes.append((n, number))
    plan = plan_of(tuple(key), mesh.devices[device], fixed=True)
    return DeviceLaunch(device, plan, tuple(index), tuple(makes))
