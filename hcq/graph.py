"""Graphs: command buffers for several queues and the order between them, encoded once, replayed many times.

    graph = hcq.Graph(label="step")
    x = graph.param("x", size=4096)
    node = graph.add(device.compute, device.compute.record().exec(...))
    executable = graph.compile()
    executable.replay([buffer]).wait()

Nodes of one queue run in the order in which they were added, each after the effects of the previous one are
visible. Between queues only `after=` gives order.

Not here: replays and their memory (`hcq.replay.executable`), the commands (`commands`). Next:
`hcq.replay.slot`, the parts of a graph that one submission runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.commandbuffer import CommandBuffer
from hcq.commands import Barrier, Scope, opened
from hcq.errors import UsageError, UsageTypeError, refuse_copy
from hcq.memory import Buffer
from hcq.params import Param
from hcq.replay.executable import Executable
from hcq.replay.slot import Segment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hcq.commands import Pointer
    from hcq.queue import Queue

__all__ = ["Executable", "Graph", "Node", "Segment"]


class Node:
    """One command buffer in a graph. Made by `Graph.add`, and passed to `after=` of the same graph."""

    __slots__ = ("after", "commands", "index", "queue")

    def __init__(self, index: int, queue: Queue, commands: CommandBuffer, after: tuple[Node, ...]) -> None:
        self.index = index
        self.queue = queue
        self.commands = commands
        self.after = after

    def __repr__(self) -> str:
        return f"<Node {self.index} {self.commands.label!r} on {self.queue.label}>"


class Graph:
    """Command buffers for several queues, and the order between them. `label` names it in errors and traces.

    Order: nodes of one queue run in the order in which they were added, each after the effects of the
    previous one are visible. Nodes of different queues are ordered only by `after=`.

    `compile` encodes the nodes added so far. The graph may be extended and compiled again; executables that
    exist do not change.

    Ownership: the graph keeps its command buffers alive, and through them buffers, programs and signals.
    Recording does not access a device, and there is nothing to close.

    Threads: not thread-safe. One thread records; any thread may use an `Executable`.

    Errors: `param` and `add` raise only `UsageError`, and leave the graph as it was; for `compile` see there.
    A graph cannot be copied or pickled (`UsageTypeError`).

        graph = hcq.Graph(label="step")
        image = graph.param("image", size=4096)
        upload = graph.add(copies, copies.record().copy(buffer, image))
        launch = compute.record().exec(program, args, groups=(1, 1, 1), threads=(64, 1, 1))
        graph.add(compute, launch, after=[upload])
        step = graph.compile()
        step.replay([staging]).wait()
    """

    __reduce__ = refuse_copy

    def __init__(self, *, label: str = "") -> None:
        self.label = label
        self.params: list[Param] = []
        self.nodes: list[Node] = []

    def param(self, name: str, *, bits: int = 64, signed: bool = False, size: int = 0) -> Param:
        """Return a new parameter, whose value is given at each replay: a number, or a buffer.

        A number must fit `bits` bits, with a sign if `signed`; a buffer must have at least `size` bytes.
        Replays take values in the order of these calls. `name` appears in errors. Raises as `Param`.
        """
        param = Param(name, bits, signed, size)
        self.params.append(param)
        return param

    def add(self, queue: Queue, commands: CommandBuffer, *, after: Sequence[Node] = ()) -> Node:
        """Add a command buffer that runs on `queue`, after its earlier nodes and the nodes of `after`.

        The commands are read at `compile`; do not record into them afterwards. Raises `UsageError` for
        commands of another kind of queue, `after` that is no sequence of this graph's nodes, a closed buffer
        or program, and a buffer that the device cannot access; `UsageTypeError` for another class. A buffer
        that was closed with `reason=` raises that error.
        """
        if not isinstance(commands, CommandBuffer) or not hasattr(queue, "submit"):
            raise UsageTypeError(
                f"wanted a queue and a command buffer, seen {queue!r} and {commands!r}\n"
                "hint: graph.add(device.compute, device.compute.record())"
            )
        if commands.kind is not queue.kind:
            raise UsageError(
                f"{commands!r} was added for {queue!r}\nhint: record it with that queue's record()"
            )
        if not isinstance(after, (list, tuple)) or not all(isinstance(node, Node) for node in after):
            raise UsageTypeError(f"after= takes a list of nodes, not {after!r}\nhint: after=[node]")
        for node in after:
            if node.index >= len(self.nodes) or self.nodes[node.index] is not node:
                raise UsageError(
                    f"{node!r} belongs to another graph; after= takes what add() of this one returned"
                )
        commands.verify(queue.device)
        node = Node(len(self.nodes), queue, commands, tuple(after))
        self.nodes.append(node)
        return node

    def compile(self, *, copies: int = 2, limit: int = 8) -> Executable:
        """Encode the graph and return its executable, with memory for `copies` replays in flight.

        When more are in flight it grows, up to `limit` copies; at the limit a replay waits.

        Raises `UsageError` for a graph without nodes, `copies` or `limit` out of range, a Param of another
        graph, one that is used both as a buffer and as a number, and a closed device; `OutOfMemoryError` when
        there is no memory for the copies; `UnsupportedError` for a command that an encoder does not support;
        `DeviceFault` after a fault of a device.
        """
        if not self.nodes:
            raise UsageError(f"the graph {self.label!r} has no nodes; add() command buffers first")
        if not isinstance(copies, int) or not isinstance(limit, int) or not 1 <= copies <= limit:
            raise UsageError(f"copies={copies}, limit={limit}: wanted 1 <= copies <= limit")
        pointers, numbers = opened([command for node in self.nodes for command in node.commands.commands])
        unknown = (pointers.keys() | numbers).difference(self.params)
        if unknown:
            names = ", ".join(sorted(param.name for param in unknown))
            raise UsageError(
                f"the graph {self.label!r} uses parameters that are not its own: {names}\n"
                "hint: make them with its param()"
            )
        both = pointers.keys() & numbers
        if both:
            raise UsageError(f"{', '.join(param.name for param in both)}: used as a buffer and as a number")
        segments = segment(self.nodes)
        return Executable(
            self.label, tuple(self.params), pointers, segments, conflicts(segments), copies, limit
        )


def segment(nodes: Sequence[Node]) -> list[Segment]:
    """Divide the nodes into segments, in an order in which each waits only for earlier ones.

    A segment ends at a node that another queue waits for, and begins at a node that waits for another queue.
    Waits that others imply are left out. With several queues the last segment waits for the last one of each.
    """
    needed, clocks = needed_waits(nodes)
    ends = {id(before) for waits in needed for before in waits}
    segments: list[Segment] = []
    of_node: dict[int, int] = {}
    running: dict[Queue, Segment | None] = {}
    for node in nodes:
        cross = {of_node[before.index] for before in needed[node.index]}
        current = running.get(node.queue)
        if current is None or cross:
            current = Segment(node.queue, len(segments), node.commands.label, waits=sorted(cross))
            segments.append(current)
            running[node.queue] = current
        elif current.commands:
            current.commands.append(Barrier(Scope.DEVICE))
        current.commands += node.commands.commands
        of_node[node.index] = current.index
        if id(node) in ends:
            running[node.queue] = None
    home, last = nodes[-1].queue, {node.queue: node for node in nodes}
    waits = sorted(
        of_node[node.index] for queue, node in last.items() if clocks[-1].get(queue, -1) < node.index
    )
    if waits or segments[-1].queue is not home:
        segments.append(Segment(home, len(segments), "join", waits=waits))
    return segments


def needed_waits(nodes: Sequence[Node]) -> tuple[list[list[Node]], list[dict[Queue, int]]]:
    """Return for each node the nodes of other queues that it must wait for, and what is complete when it is.

    A wait is left out if an earlier node of the queue, or another wait, implies it. Another device implies
    nothing about the queues of a node's own device: only a wait in its queue orders what its engines cache.
    The second list has for each node the index of the last complete node of each queue.
    """
    needed: list[list[Node]] = []
    clocks: list[dict[Queue, int]] = []
    newest: dict[Queue, dict[Queue, int]] = {}
    for node in nodes:
        clock, waits = dict(newest.get(node.queue, {})), list[Node]()
        for before in sorted(node.after, key=lambda one: -one.index):
            if before.queue is not node.queue and clock.get(before.queue, -1) < before.index:
                waits.append(before)
                theirs = before.queue.device
                for queue, index in clocks[before.index].items():
                    if theirs is node.queue.device or queue.device is theirs:
                        clock[queue] = max(index, clock.get(queue, -1))
        clock[node.queue] = node.index
        newest[node.queue] = clock
        needed.append(waits)
        clocks.append(clock)
    return needed, clocks


def conflicts(segments: Sequence[Segment]) -> set[tuple[Queue, Queue]]:
    """Return the pairs of queues that may access the same memory, at least one of them writing."""
    if len({seg.queue for seg in segments}) == 1:
        return set()
    touched: dict[Queue, list[tuple[Buffer | None, bool]]] = {}
    for seg in segments:
        entry = touched.setdefault(seg.queue, [])
        for command in seg.commands:
            used = [touch for touch in command.touches() if touch.access != "x"]
            entry += [(_root(touch.pointer), "w" in touch.access) for touch in used]
    return {
        (one, other)
        for one, first in touched.items()
        for other, second in touched.items()
        if one is not other
        and any(
            (a is None or b is None or a is b) and (writes_a or writes_b)
            for a, writes_a in first
            for b, writes_b in second
        )
    }


def _root(pointer: Pointer) -> Buffer | None:
    return (pointer.root or pointer) if isinstance(pointer, Buffer) else None
