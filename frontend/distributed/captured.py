"""Captured launches of a mesh: one graph of commands over the queues of all its devices.

A captured function recorded launches of the mesh. For the layouts of its arguments, their plans become
*nodes*, each the kernels or the copies of one level on one device. A level that exchanges much is divided
after the kernels that make each *bucket*, whose copies run on the copy queues beside the later kernels.
Temporaries of all nodes of a device share one range of memory. A node waits for another device's node only
where it reads what that one writes, or overwrites what that one reads. At the end each device waits for the
others' reads of its memory, so later submissions to its queue may overwrite it.

Not here: what is recorded (`frontend.capture.recording`). Next: `hcq.graph`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, cast

from compiler.schedule.memory import place
from frontend.distributed.layout import WHOLE, Shape, Spread, TensorLayout
from frontend.distributed.parts import PlannedCopy, buckets
from frontend.distributed.transport import QUEUED, MeshMembers
from frontend.evaluation.launch import Hazards, KernelLaunch, lives_of
from frontend.evaluation.plan import verify_all
from frontend.evaluation.storage import Leaf
from hcq.commands import Scope
from hcq.config import config
from hcq.errors import UsageError
from hcq.graph import Graph

if TYPE_CHECKING:
    import hcq
    from frontend.distributed.plans import DeviceLaunch, MeshOutput
    from frontend.evaluation.limits import Checks
    from hcq.graph import Node as GraphNode

MOST_BUCKETS: Final = 8
"""The most buckets of one level."""
Layouts = tuple[TensorLayout | None, ...]
_LAYOUT: Final = attrgetter("layout")


@dataclass(frozen=True, slots=True)
class Copied:
    """A copy of `size` bytes from byte `at` of one memory to byte `to` of another, by their keys."""

    read: Hashable
    at: int
    written: Hashable
    to: int
    size: int


@dataclass(slots=True)
class MeshNode:
    """Work of one device: kernels, or copies from the devices `sources`."""

    device: int
    kernels: list[KernelLaunch] = field(default_factory=list)
    copies: list[Copied] = field(default_factory=list)
    sources: frozenset[int] = frozenset()
    early: bool = False
    """Whether later kernels of the level run beside the copies."""

    def touches(self) -> Iterable[tuple[Hashable, int, bool]]:
        """Yield (memory, bytes from its start, whether it is written)."""
        for kernel in self.kernels:
            for i, (key, size) in enumerate(zip(kernel.memory, kernel.sizes, strict=True)):
                yield key, size, i in kernel.stores
        for copy in self.copies:
            yield copy.read, copy.at + copy.size, False
            yield copy.written, copy.to + copy.size, True


class NodeList:
    """The nodes of recorded launches, for some layouts of their memory.

    The memory of each device is (key of the tensor's memory, device), or another key for temporaries.
    """

    def __init__(self, mesh: MeshMembers, work: Sequence[KernelLaunch], layouts: dict[Hashable, Any]) -> None:
        self.levels: list[list[list[MeshNode]]] = []
        """Groups of nodes in their order: of a group none waits for another, of a level none for a copy."""
        self.layouts = layouts
        self.outputs: dict[Hashable, MeshOutput] = {}
        """The memory that launches make -> its parts."""
        self.checks: list[tuple[Checks, tuple[Hashable, ...]]] = []
        self._mesh = mesh
        kinds: dict[Hashable, tuple[Shape, int]] = {}
        for kernel in work:
            if kernel.program is not None:
                kinds |= cast("Any", kernel.program).kinds_of(kernel.memory)
        for number, kernel in enumerate(work):
            if kernel.program is None:
                self._copy(kernel, kinds)
            else:
                self._launch(number, kernel)

    @property
    def nodes(self) -> list[MeshNode]:
        """All nodes in their order."""
        return [node for level in self.levels for group in level for node in group]

    def _copy(self, kernel: KernelLaunch, kinds: Mapping[Hashable, tuple[Shape, int]]) -> None:
        """Add the copy of a tensor's memory, part by part."""
        new, old = kernel.memory
        layout = self.layouts[new] = self.layouts[old]
        for d in range(len(self._mesh.devices)):
            size = kernel.sizes[0]
            if layout != WHOLE:
                shape, itemsize = kinds[old] if old in kinds else kinds[new]
                size = prod(layout.shape_on(d, shape)) * itemsize
            if size:
                self.levels.append([[MeshNode(d, copies=[Copied((old, d), 0, (new, d), 0, size)])]])

    def _launch(self, number: int, kernel: KernelLaunch) -> None:
        launch = cast("Any", kernel.program)
        count = len(launch.inputs)
        inputs, outs = kernel.memory[:count], kernel.memory[count:]
        steps = launch.steps_of(tuple([self.layouts.get(key) for key in inputs]))
        names: dict[int, Hashable] = {m: (inputs[i], d) for m, i, d in steps.inputs}
        for n, out in steps.outputs.items():
            home = launch.homes[n]
            key = outs[launch.stored.index(n)] if home < 0 else inputs[home]
            self.layouts[key], self.outputs[key] = out.layout, out
            names |= {m: (key, d) for d, m in enumerate(out.memory)}
        for level, (launches, exchanges) in enumerate(steps.levels):
            kernels = {one.device: self._kernels(one, names, (number, level)) for one in launches}
            ready: dict[int, int] = {}
            for one in launches:
                written = {k.memory[j]: i for i, k in enumerate(kernels[one.device], 1) for j in k.stores}
                ready |= {m: written.get(names[m], 0) for _, m in one.makes}
            self._exchange(number, kernels, [x for x in exchanges if x.size], ready, names)

    def _exchange(
        self, number: int, kernels: Mapping[int, Sequence[KernelLaunch]],
        exchanges: Sequence[PlannedCopy], ready: Mapping[int, int], names: dict[int, Hashable],
    ) -> None:  # fmt: skip
        """Add the kernels of each device in a level, and each bucket of copies after what makes it."""
        devices, total = self._mesh.devices, sum([x.size for x in exchanges])
        least = max(self._mesh.bucket_bytes * len(devices), -(-total // MOST_BUCKETS))
        if not all([device.hcq.copies for device in devices]):  # noqa: C419 - a list is faster
            least = total  # copies on a compute queue would delay its kernels
        found, done = buckets(exchanges, ready, least), dict.fromkeys(kernels, 0)
        self.levels.append(level := list[list[MeshNode]]())
        for bucket, group in enumerate(found):
            last = bucket == len(found) - 1
            for d, todo in kernels.items():
                ends = [ready.get(x.source_memory, 0) for x in group if x.source == d]
                end = len(todo) if last else max([done[d], *ends])
                if todo[done[d] : end]:
                    level.append([MeshNode(d, list(todo[done[d] : end]))])
                done[d] = end
            made: dict[int, MeshNode] = {}
            for x in group:
                node = made.setdefault(x.target, MeshNode(x.target, early=not last))
                node.sources |= {x.source}
                read, written = [
                    names.setdefault(m, (number, m, "made")) for m in (x.source_memory, x.target_memory)
                ]
                node.copies.append(Copied(read, x.at, written, x.to, x.size))
            level.append(list(made.values()))

    def _kernels(
        self, one: DeviceLaunch, names: dict[int, Hashable], at: tuple[int, int]
    ) -> list[KernelLaunch]:
        reads = [names.setdefault(m, (at[0], m, "made")) for m in one.reads]
        known: dict[Hashable, Hashable] = {("in", i): key for i, key in enumerate(reads)}
        known |= {("out", n): names.setdefault(m, (at[0], m, "made")) for n, m in one.makes}
        if one.plan.limits is not None:
            self.checks.append((one.plan.limits, tuple(reads)))
        return [
            k.renamed(known | {key: (*at, one.device, key) for key in k.memory if key not in known})
            for k in one.plan.kernels
        ]


class ForeignReads:
    """Reads of one device's memory by nodes of other devices, for which its later writes wait.

    Memory is known by its key, a temporary by its place as well: (device, first byte, byte after its last).
    """

    def __init__(self) -> None:
        self._of: dict[Hashable, list[GraphNode]] = {}
        self._begins: list[int] = []
        self._temporaries: list[tuple[int, int, Hashable]] = []
        """(first byte, byte after the last, key) of temporaries that are read, in the order of `_begins`.

        They overlap in nothing: what shares bytes with one was written after its last read.
        """

    def add(self, key: Hashable, place: tuple[int, int, int] | None, node: GraphNode) -> None:
        """Add a read of all of some memory."""
        if key not in self._of and place is not None:
            at = bisect_left(self._begins, place[1])
            self._begins.insert(at, place[1])
            self._temporaries.insert(at, (place[1], place[2], key))
        self._of.setdefault(key, []).append(node)

    def overwritten(self, key: Hashable, place: tuple[int, int, int] | None) -> list[GraphNode]:
        """Return the nodes that read memory which is written now, and forget them: the writer waits for them.

        Later work of the device is ordered after the writer.
        """
        if place is None:
            return self._of.pop(key, [])
        first = max(bisect_right(self._begins, place[1]) - 1, 0)
        last = bisect_left(self._begins, place[2])
        met = [x for x in self._temporaries[first:last] if x[1] > place[1]]
        if met:
            del self._begins[last - len(met) : last], self._temporaries[last - len(met) : last]
        return [node for _, _, other in met for node in self._of.pop(other)]

    def all(self) -> list[GraphNode]:
        """Return all nodes for which no writer waited yet."""
        return [node for nodes in self._of.values() for node in nodes]


class MeshGraph:
    """One graph of the nodes of a list, with its memory. Raises as `hcq.Graph.compile` and `Device.alloc`."""

    def __init__(
        self, mesh: MeshMembers, found: NodeList, params: Sequence[Hashable],
        fixed: Mapping[Hashable, Spread], label: str,
    ) -> None:  # fmt: skip
        self._mesh, self._label = mesh, label
        self._graph = Graph(label=label)
        self.kernels = sum([len(node.kernels) for node in found.nodes])
        self._memory: dict[Hashable, Any] = {}
        self._places: dict[Hashable, tuple[int, int, int]] = {}
        """Temporary -> (device, first byte, byte after its last)."""
        self.reads: list[tuple[int, int]] = []
        """(parameter, device) of each parameter of the graph."""
        self._numbers: dict[Hashable, int] = {}
        """Memory -> the number of its parameter."""
        self.mapped: list[tuple[int, Any]] = []
        """(parameter of the graph, device that must see its buffer)."""
        self._last: dict[int, GraphNode] = {}
        self._incoming: dict[int, list[GraphNode]] = {}
        """For each device what its next node on the compute queue waits for."""
        self._beside: list[tuple[int, GraphNode]] = []
        """(device, copies into its memory) on copy queues, for which later levels wait."""
        self._foreign = [ForeignReads() for _ in mesh.devices]
        """For each device the reads of its memory by others' nodes."""
        self._find_memory(found, params, fixed)
        for level in found.levels:
            for nodes in level:
                before = {source: self._since(source) for node in nodes for source in sorted(node.sources)}
                for node in nodes:
                    self._add(node, before)
            for d, made in self._beside:
                self._incoming.setdefault(d, []).append(made)
            self._beside.clear()
        for d, reads in enumerate(self._foreign):
            if (after := reads.all()) or d in self._incoming or not self._graph.nodes:
                self._node(d, mesh.devices[d].queue.record(label="end"), after)
        self.executable = self._graph.compile()
        outputs = [(i, found.outputs[key]) for i, key in enumerate(params) if key in found.outputs]
        count = range(len(mesh.devices))
        self.outputs = [
            (i, out, [prod(out.layout.shape_on(d, out.shape)) * out.itemsize for d in count])
            for i, out in outputs
        ]
        """(parameter, what it is, bytes of each part) of the parameters that the launches make."""
        written = {key for node in found.nodes for key, _, writes in node.touches() if writes}
        self.checks: list[tuple[Checks, list[tuple[int, int] | hcq.Buffer | None]]] = []
        place_of = {key: i for i, key in enumerate(params)}
        for limits, keys in found.checks:
            where = [self._outside(key, place_of, fixed) if key not in written else None for key in keys]
            part = limits.over([i for i, x in enumerate(where) if x is not None])
            if part is not None:
                self.checks.append((part, where))

    @staticmethod
    def _outside(
        key: Any, params: Mapping[Hashable, int], fixed: Mapping[Hashable, Spread]
    ) -> tuple[int, int] | hcq.Buffer | None:
        """Return (parameter, device) or the buffer of memory from outside; None for other memory."""
        name, device = key if len(key) == 2 else (None, 0)
        if name in fixed:
            return fixed[name].parts[device]
        return (params[name], device) if name in params else None

    def _find_memory(
        self, found: NodeList, params: Sequence[Hashable], fixed: Mapping[Hashable, Spread]
    ) -> None:
        """Give each key a buffer, a parameter of the graph, or a place in the memory of temporaries."""
        devices = self._mesh.devices
        sizes: dict[Hashable, int] = {}
        home: dict[Hashable, int] = {}
        for node in found.nodes:
            for key, size, _ in node.touches():
                sizes[key] = max(sizes.get(key, 0), size)
            for kernel in node.kernels:
                home |= dict.fromkeys(kernel.memory, node.device)
            home |= dict.fromkeys([copy.written for copy in node.copies], node.device)
        for i, name in enumerate(params):
            for d in range(len(devices)):
                if (name, d) in sizes:
                    self._memory[name, d] = self._graph.param(f"b{i} of {d}", size=sizes[name, d])
                    self._numbers[name, d] = len(self.reads)
                    self.reads.append((i, d))
        for name, spread in fixed.items():
            self._memory |= {(name, d): part for d, part in enumerate(spread.parts)}
        units, none = list[KernelLaunch](), (1, 1, 1)
        for level in found.levels:
            held = list[KernelLaunch]()
            for together in level:
                units += [kernel for node in together for kernel in node.kernels]
                copies = [copy for node in together for copy in node.copies]
                if copies:  # in one unit, so that none overwrites what another reads
                    keys = tuple([key for c in copies for key in (c.written, c.read)])
                    ends = tuple([end for c in copies for end in (c.to + c.size, c.at + c.size)])
                    held.append(KernelLaunch(None, none, none, keys, ends, ()))
                    units.append(held[-1])
            units += held  # no kernel of the level waits for a copy to overwrite what it reads or writes
        lives = lives_of(units, set(self._memory))
        for d, device in enumerate(devices):
            own = {key: life for key, life in lives.items() if home[key] == d}
            offsets, total = place(own) if own else ({}, 0)
            if not total:
                continue
            arena = device.scratch(total)
            arena.count_as_written()
            for key, at in offsets.items():
                self._memory[key] = arena.view(at, own[key][0])
                self._places[key] = d, at, at + own[key][0]

    def _node(self, device: int, commands: Any, after: Iterable[GraphNode]) -> GraphNode:
        """Add commands to the compute queue of a device, after all copies into its memory."""
        queue = self._mesh.devices[device].queue
        before = [*after, *self._incoming.pop(device, [])]
        made = self._last[device] = self._graph.add(queue, commands, after=list(dict.fromkeys(before)))
        return made

    def _since(self, device: int) -> list[GraphNode]:
        """Return the nodes after which all work of a device so far is done, also what precedes the graph."""
        if device not in self._last:
            self._node(device, self._mesh.devices[device].queue.record(label="begin"), [])
        return [self._last[device], *self._incoming.get(device, [])]

    def _add(self, node: MeshNode, before: Mapping[int, list[GraphNode]]) -> None:
        """Add a node; copies wait for what is `before` them on the devices of their sources."""
        written = [key for key, _, writes in node.touches() if writes]
        foreign = self._foreign[node.device]
        readers = [other for key in written for other in foreign.overwritten(key, self._places.get(key))]
        device = self._mesh.devices[node.device]
        if node.kernels:
            self._node(node.device, self._recorded(node), readers)
            return
        after, theirs, queue = [*readers], self._map_sources(node), device.queue
        large = sum([copy.size for copy in node.copies]) >= QUEUED and device.hcq.copies and node.sources
        if node.early or large:
            queue = device.hcq.copies[0]
        commands = queue.record(label="from other devices")
        for copy in node.copies:
            commands.copy(
                self._at(copy.written, copy.to, copy.size), self._at(copy.read, copy.at, copy.size), copy.size
            )
        for source in sorted(node.sources):
            if source != node.device or queue is not device.queue:
                after += before[source]
        if queue is device.queue:
            made = self._node(node.device, commands, after)
        else:
            after += self._since(node.device)
            made = self._graph.add(queue, commands, after=list(dict.fromkeys(after)))
            self._beside.append((node.device, made))
            # A kernel of this level may overwrite other bytes of what `readers` read.
            self._incoming.setdefault(node.device, []).extend(readers)
        for copy in theirs:
            self._foreign[self._owner(copy.read)].add(copy.read, self._places.get(copy.read), made)

    def _map_sources(self, node: MeshNode) -> list[Copied]:
        """Let the device of a node of copies see what it reads of other devices; return these copies.

        Raises `UsageError` where it cannot.
        """
        theirs = [copy for copy in node.copies if self._owner(copy.read) != node.device]
        for copy in theirs:
            peer, memory = self._mesh.devices[node.device], self._memory[copy.read]
            if self._mesh.transport.staged(self._owner(copy.read), node.device):
                source = self._mesh.devices[self._owner(copy.read)]
                raise UsageError(
                    f"{peer.name} cannot see the memory of {source.name}, and a captured function copies "
                    "nothing through host memory\nhint: call the function without TinyJit"
                )
            if hasattr(memory, "map_to"):
                memory.map_to(peer.hcq)
            else:
                self.mapped.append((self._numbers[copy.read], peer.hcq))
        return theirs

    def _owner(self, key: Any) -> int:
        """Return the device whose memory a key is."""
        found = self._places.get(key)
        return found[0] if found is not None else cast("int", key[1])

    def _at(self, key: Hashable, at: int, size: int) -> Any:
        """Return `size` bytes of memory from byte `at` on, for a command."""
        memory = self._memory[key]
        if hasattr(memory, "view"):
            return memory.view(at, size)
        return memory + at if at else memory

    def _recorded(self, node: MeshNode) -> Any:
        """Return the commands of kernels, with barriers between dependent ones."""
        used = {key: self._places[key] for k in node.kernels for key in k.memory if key in self._places}
        hazards = Hazards({key: (at, end - at) for key, (_, at, end) in used.items()})
        commands = self._mesh.devices[node.device].queue.record(label=self._label)
        for i, kernel in enumerate(node.kernels):
            if hazards.needs_barrier(kernel) and i:
                commands.barrier(Scope.DEVICE)
            program = kernel.program
            assert program is not None, "copies are nodes of their own"
            args = program.args(*[self._memory[key] for key in kernel.memory])
            commands.exec(program, args, groups=kernel.groups, threads=kernel.threads)
        return commands


class MeshExecutable:
    """Launches of a mesh as one executable; it has the members of `hcq.Executable` that captures use.

    It is assembled for the layouts that the buffers of a replay have, once for each.
    """

    def __init__(
        self, mesh: MeshMembers, work: Sequence[KernelLaunch], params: Sequence[tuple[Hashable, int]],
        fixed: Mapping[Hashable, Any], label: str,
    ) -> None:  # fmt: skip
        self._mesh, self._work, self._label = mesh, work, label
        self._params = [key for key, _ in params]
        self._fixed = fixed
        self._graphs: dict[Layouts, MeshGraph] = {}
        self._last: tuple[Layouts, MeshGraph] | None = None
        """The graph of the last replay, and its layouts."""

    def graph_for(self, layouts: Layouts) -> MeshGraph:
        """Return the graph for the layouts of the parameters; None: memory that the launches make.

        Raises `UsageError` where a device does not see the memory of another one, and as `MeshGraph`.
        """
        found = self._graphs.get(layouts)
        if found is None:
            known = {key: spread.layout for key, spread in self._fixed.items()}
            known |= {k: x for k, x in zip(self._params, layouts, strict=True) if x is not None}
            nodes = NodeList(self._mesh, self._work, known)
            made = MeshGraph(self._mesh, nodes, self._params, self._fixed, self._label)
            found = self._graphs[layouts] = made
        return found

    def replay(self, given: list[Spread]) -> None:
        """Submit to all devices. `given` has the memory of the parameters; what is made gets its parts.

        Raises as `graph_for`, `hcq.Device.alloc` and `hcq.Executable.replay`.
        """
        # Without comprehensions, each of which is a call.
        layouts = (*map(_LAYOUT, given),)
        if self._last is None or self._last[0] != layouts:
            self._last = layouts, self.graph_for(layouts)
        made = self._last[1]
        for i, out, sizes in made.outputs:
            spread, parts = given[i], []
            for device, n in zip(self._mesh.devices, sizes, strict=True):
                parts.append(device.hcq.alloc(n or 1, label=spread.label))
            spread.fill(out.layout, (*parts,), out.shape, out.itemsize)
        if made.checks and config().validate:
            self._verify(made, given)
        flat: list[Any] = []
        for i, d in made.reads:
            flat.append(given[i].parts[d])
        for n, device in made.mapped:
            flat[n].map_to(device)
        made.executable.replay(flat)

    @staticmethod
    def _verify(made: MeshGraph, given: list[Spread]) -> None:
        """Check indices and divisors from arguments and from outside tensors that are not assigned to."""
        todo = []
        for limits, where in made.checks:
            found = [given[x[0]].parts[x[1]] if isinstance(x, tuple) else x for x in where]
            todo.append((limits, tuple([Leaf(cast("Any", buffer)) for buffer in found])))
        verify_all(todo)

    def forget(self) -> None:
        """Drop the references to buffers of earlier replays."""
        for made in self._graphs.values():
            made.executable.forget()

    @property
    def nbytes(self) -> int:
        """Bytes of memory of all graphs; see `hcq.Executable.nbytes`."""
        return sum([made.executable.nbytes for made in self._graphs.values()])
