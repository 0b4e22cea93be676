"""Graphs: command buffers for several queues and the order between them, encoded once and replayed often.

    graph = hcq.Graph(label="step")
    x = graph.param("x", size=4096)
    node = graph.add(device.compute, device.compute.record().exec(...))
    executable = graph.compile()
    executable.replay([buffer]).wait()

Nodes of one queue run in the order they were added, each after the effects of the one before; between queues
only `after=` orders. See `hcq.replay.executable` for what a replay does.

Not here: replays and their memory (`hcq.replay.executable`), the commands (`commands`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.commands import Barrier, Scope
from hcq.errors import UsageError
from hcq.memory import Buffer
from hcq.params import Param
from hcq.replay.executable import Executable
from hcq.replay.segment import Segment
from hcq.uncopied import refuse_copy

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hcq.commandbuffer import CommandBuffer
    from hcq.commands import Command, Pointer
    from hcq.queue import Queue

__all__ = ["Executable", "Graph", "Node", "Segment"]


class Node:
    """One command buffer in a graph. Made by `Graph.add`."""

    __slots__ = ("after", "commands", "index", "queue")

    def __init__(self, index: int, queue: Queue, commands: CommandBuffer, after: tuple[Node, ...]) -> None:
        self.index = index
        self.queue = queue
        self.commands = commands
        self.after = after

    def __repr__(self) -> str:
        return f"<Node {self.index} {self.commands.label!r} on {self.queue.label}>"


class Graph:
    """Command buffers for several queues, and the order between them. Recording touches no hardware.

    Nodes of one queue run in the order added, each after the effects of the one before are visible; nodes of
    different queues only as `after=` orders them. `compile` encodes what was added so far; the graph may grow
    and be compiled again. It keeps its command buffers, and what they use, alive.

    Not thread-safe: one thread records; the `Executable` may be used by many.

    `param` and `add` raise nothing but `UsageError`. See the module's docstring for an example.
    """

    __reduce__ = refuse_copy

    def __init__(self, *, label: str = "") -> None:
        self.label = label
        self.params: list[Param] = []
        self.nodes: list[Node] = []

    def param(self, name: str, *, bits: int = 64, signed: bool = False, size: int = 0) -> Param:
        """Return a parameter of the graph, given at each replay: a number, or a buffer.

        `bits` and `signed` bound a number; a buffer has at least `size` bytes. Replays take values in the
        order of these calls; `name` is for errors.
        """
        param = Param(name, bits, signed, size)
        self.params.append(param)
        return param

    def add(self, queue: Queue, commands: CommandBuffer, *, after: Sequence[Node] = ()) -> Node:
        """Add a command buffer, to run on `queue` after its earlier nodes and the nodes given.

        Raises `UsageError` for a list of another kind of queue, a node of another graph, and a closed or
        invisible buffer. The commands are read at `compile`: do not record more into them.
        """
        if commands.kind is not queue.kind:
            raise UsageError(
                f"{commands!r} was added for {queue!r}\nhint: record it with that queue's record()"
            )
        if isinstance(after, Node):  # type: ignore[unreachable]  # by who has no type checker
            raise UsageError(f"after= takes a list of nodes, not {after!r}\nhint: after=[node]")
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
        """Encode the graph for `copies` replays in flight at first, and up to `limit` on demand.

        Raises `UsageError` for a graph without nodes, `copies` or `limit` out of range, a Param that is not
        the graph's own, and one that is used both as a buffer and as a number; `OutOfMemoryError` for the
        memory of the copies; `UnsupportedError` for a command that a device has no words for.
        """
        if not self.nodes:
            raise UsageError(f"the graph {self.label!r} has no nodes; add() command buffers first")
        if not 1 <= copies <= limit:
            raise UsageError(f"copies={copies}, limit={limit}: wanted 1 <= copies <= limit")
        pointers, numbers = opened([command for node in self.nodes for command in node.commands.commands])
        strangers = (pointers | numbers).difference(self.params)
        if strangers:
            names = ", ".join(sorted(param.name for param in strangers))
            raise UsageError(
                f"the graph {self.label!r} uses parameters that are not its own: {names}\n"
                "hint: make them with its param()"
            )
        both = pointers & numbers
        if both:
            raise UsageError(f"{', '.join(param.name for param in both)}: used as a buffer and as a number")
        segments = segment(self.nodes)
        return Executable(
            self.label, tuple(self.params), pointers, segments, conflicts(segments), copies, limit
        )


def segment(nodes: Sequence[Node]) -> list[Segment]:
    """Cut the nodes into segments; every wait is for an earlier one, and the last joins all queues."""
    ends = {id(before) for node in nodes for before in node.after if before.queue is not node.queue}
    segments: list[Segment] = []
    of_node: dict[int, int] = {}
    running: dict[Queue, Segment | None] = {}
    for node in nodes:
        cross = {of_node[before.index] for before in node.after if before.queue is not node.queue}
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
    last = {seg.queue: seg.index for seg in segments}
    if len(last) > 1:
        home = nodes[-1].queue
        waits = sorted(index for queue, index in last.items() if queue is not home)
        segments.append(Segment(home, len(segments), "join", waits=waits))
    return segments


def conflicts(segments: Sequence[Segment]) -> set[tuple[Queue, Queue]]:
    """Return the pairs of queues that may touch the same memory, one of them writing."""
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


def opened(commands: Iterable[Command]) -> tuple[set[Param], set[Param]]:
    """Return the parameters that stand for buffers in some commands, and those that stand for numbers."""
    pointers: set[Param] = set()
    numbers: set[Param] = set()
    for command in commands:
        for touch in command.touches():
            pointer = touch.pointer
            if not isinstance(pointer, Buffer):
                pointers.add(pointer if isinstance(pointer, Param) else pointer.param)
        for expr in command.open_numbers():
            numbers.add(expr.param)
    return pointers, numbers
