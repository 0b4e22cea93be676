"""Executables: graphs encoded once, whose replays write only what changed and ring.

Each copy owns its prebuilt words and argument memory, which the device runs where they lie, and remembers
what it was bound to; it is rewritten only after its last replay is done. With every copy in flight more are
made, up to a limit; at the limit a replay waits for the oldest. Replays of one executable follow each other
in each queue; across queues replay k+1 waits for k wherever both may touch the same memory.

A copy holds on to the buffers it was bound to last, until it is bound anew, memory runs short, or `close`.
"""

from __future__ import annotations

from array import array
from contextlib import ExitStack
from typing import TYPE_CHECKING

from hcq.arguments import ARGUMENTS
from hcq.binding import check_reach, reaches, resolve
from hcq.commands import CommandBuffer, Exec, Indirect, SetSignal, Timestamp, Wait
from hcq.errors import UsageError
from hcq.memory import Buffer
from hcq.params import Param, Patch
from hcq.patchplan import Placed, compile_bind, elements
from hcq.signal import Stamp
from hcq.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hcq.binding import Value
    from hcq.commands import Command
    from hcq.device import Device
    from hcq.graph import Segment
    from hcq.queue import Queue
    from hcq.signal import Point, Signal

ARENA_BYTES = 1 << 12
"""The first argument memory of a copy; each further one is twice as large."""


class Arena:
    """Argument memory of one copy: grows by buffers, gives nothing back before the copy goes."""

    __slots__ = ("_device", "_label", "buffers")

    def __init__(self, device: Device, label: str) -> None:
        self._device = device
        self._label = label
        self.buffers: list[Buffer] = []

    def room(self, stream: Stream, size: int) -> None:
        """Give `stream` a new buffer, each twice the one before."""
        least = 2 * self.buffers[-1].size if self.buffers else ARENA_BYTES
        buffer = self._device.alloc(max(size, least), ARGUMENTS, label=f"arguments of {self._label}")
        self.buffers.append(buffer)
        stream.view, stream.base = buffer.host().cast("Q"), buffer.va
        stream.at, stream.limit = 0, buffer.size


class Launch:
    """The ring words of one segment of one copy: waits, the jump to the body, the timeline's value."""

    __slots__ = ("places", "signals", "single", "stream")

    def __init__(
        self, segment: Segment, body: Indirect | None, waits: Sequence[Signal], scratch: Stream
    ) -> None:
        queue = segment.queue
        done = Param("done")
        before = [Param(f"wait{i}") for i in range(len(waits))]
        own = queue.timeline.signal
        commands: list[Command] = [Wait(signal, param) for signal, param in zip(waits, before, strict=True)]
        commands += [body] if body is not None else []
        commands.append(SetSignal(own, done))
        words, patches, calls = encoded(queue, commands, scratch)
        self.stream = Stream(scratch.word_bits, scratch.memory)
        self.stream.words, self.stream.calls = words, calls
        self.signals = (*waits, own)
        """What the words wait for and, last, what they set: timelines change slots."""
        number = {param: i for i, param in enumerate((*before, done))}
        self.places: list[tuple[int, int, int, int, int]] = []
        """(word, bits that stay, which number, shift, lowest bit) of all that changes with each replay.

        Slot values have 31 bits: pieces above are always 0.
        """
        for patch in patches:
            if patch.target != "words":
                raise UsageError("an encoder put the value of a Wait or SetSignal into argument memory")
            if patch.expr.shift < 32:
                index = 8 * patch.offset // scratch.word_bits
                place = (index, words[index], number[patch.expr.param], patch.expr.shift, patch.lo)
                self.places.append(place)
        self.single = -1
        """The word that is the own value and nothing else, when that is all there is to fill in."""
        if len(self.places) == 1 and self.places[0][1:] == (0, 0, 0, 0):
            self.single = self.places[0][0]

    def fill(self, values: Sequence[int]) -> None:
        """Write slot values, the own one last, into the words."""
        words = self.stream.words
        for index, base, _, _, _ in self.places:
            words[index] = base
        for index, _, which, shift, lo in self.places:
            words[index] |= (values[which] >> shift) << lo


def encoded(
    queue: Queue, commands: Sequence[Command], scratch: Stream
) -> tuple[list[int], list[Patch], list[tuple[int, int, int]]]:
    """Encode into a scratch stream; return its words, patches and calls, and leave it empty."""
    try:
        queue.encode(commands, scratch)
        return scratch.words[:], scratch.patches[:], scratch.calls[:]
    finally:
        scratch.clear()


class Replica:
    """One set of encoded words and argument memory of an Executable, and what it is bound to."""

    __slots__ = (
        "bind",
        "bodies",
        "given",
        "kept",
        "launches",
        "patches",
        "plan",
        "points",
        "scratch",
        "views",
    )

    def __init__(self, executable: Executable) -> None:
        label = executable.label or "a graph"
        arenas = {device: Arena(device, label) for device in executable.devices}
        self.scratch = {d: Stream(d.info.word_bits, arena) for d, arena in arenas.items()}
        self.bodies: list[Indirect | None] = []
        self.patches: list[tuple[Segment, Patch]] = []
        """As encoded, in order."""
        words: list[Buffer] = []
        for segment in executable.segments:
            device = segment.queue.device
            text, patches, _ = encoded(segment.queue, segment.commands, self.scratch[device])
            self.patches += [(segment, patch) for patch in patches]
            body = None
            if text:
                data = array("I" if device.info.word_bits == 32 else "Q", text).tobytes()
                buffer = device.alloc((len(data) + 7) // 8 * 8, ARGUMENTS, label=f"words of {label}")
                buffer.host()[: len(data)] = data
                words.append(buffer)
                body = Indirect(buffer, len(text))
            self.bodies.append(body)
        memories = [*words, *(buffer for arena in arenas.values() for buffer in arena.buffers)]
        self.views = tuple(buffer.host().cast("Q") for buffer in memories)
        placed = [self._placed(segment, patch, memories) for segment, patch in self.patches]
        self.plan = elements(placed, executable.params, self.views)
        self.bind: Callable[[Sequence[Value], list[object], Sequence[memoryview]], None]
        self.given: list[object] = [None] * len(executable.params)
        """What the memory is bound to; None: nothing yet."""
        self.points: list[Point] = []
        """Where the last replay ends, a queue each."""
        self.kept: tuple[object, ...] = (self.given, executable.segments, *memories)
        """What a replay in flight keeps alive; `given` is changed in place, and only when no replay is."""
        self.launches: list[Launch | None] = [None] * len(executable.segments)

    def _placed(self, segment: Segment, patch: Patch, memories: list[Buffer]) -> Placed:
        offset, expr = patch.offset, patch.expr
        if patch.target == "words":
            body = self.bodies[segment.index]
            assert body is not None  # it has patches, so it has words
            return Placed(memories.index(body.buffer), offset, patch.lo, patch.width, expr)
        for i, buffer in enumerate(memories):
            if buffer.device is segment.queue.device and buffer.va <= offset < buffer.va + buffer.size:
                return Placed(i, offset - buffer.va, patch.lo, patch.width, expr)
        raise UsageError(f"an encoder patches {offset:#x}, where it has not placed anything")

    def launch(self, segment: Segment, waits: tuple[Signal, ...]) -> Launch:
        """Return the ring words of a segment that waits for these signals.

        They are made anew when a timeline changed slots.
        """
        launch = self.launches[segment.index]
        if launch is None or launch.signals != (*waits, segment.queue.timeline.signal):
            scratch = self.scratch[segment.queue.device]
            launch = Launch(segment, self.bodies[segment.index], waits, scratch)
            self.launches[segment.index] = launch
        return launch

    def unbind(self) -> None:
        """Let go of the buffers; a replay in flight keeps its list of them."""
        self.given = [None] * len(self.given)
        self.kept = (self.given, *self.kept[1:])

    def done(self) -> bool:
        """Return whether the last replay is done."""
        return all(point.passed() for point in self.points)


class Executable:
    """A compiled graph. Made by `Graph.compile`; replays may come from any thread."""

    __slots__ = (
        "__weakref__",
        "_checks",
        "_conflicts",
        "_epochs",
        "_limit",
        "_pointers",
        "_replicas",
        "_tails",
        "_turn",
        "closed",
        "devices",
        "label",
        "params",
        "queues",
        "segments",
    )

    def __init__(  # noqa: PLR0917 - made by Graph.compile alone
        self,
        label: str,
        params: tuple[Param, ...],
        segments: list[Segment],
        conflicts: set[tuple[Queue, Queue]],
        copies: int,
        limit: int,
    ) -> None:
        self.closed = False
        self.label = label
        self.params = params
        self.segments = segments
        self.queues: list[Queue] = sorted({segment.queue for segment in segments}, key=id)
        self.devices: list[Device] = list(dict.fromkeys(segment.queue.device for segment in segments))
        self._conflicts = conflicts
        self._limit = limit
        self._pointers = pointer_params(params, segments)
        self._tails: dict[Queue, Point] = {}
        """Where the last replay ends in each queue."""
        self._turn = 0
        self._replicas: list[Replica] = []
        self._checks: list[list[tuple[Patch, int]]] = [[] for _ in params]
        """Where each number lands, and how many bits it may have there."""
        with self._locked():
            for segment in segments:
                if segment.queue.watch is not None:
                    segment.commands = segment.queue.watch.reorder(segment.commands)
            for _ in range(copies):
                self._add_replica()
        self._epochs = [device.closes for device in self.devices]
        for device in self.devices:
            device.keep(self)

    def _locked(self) -> ExitStack:
        """Hold the locks of all queues, always in the same order."""
        locks = ExitStack()
        for queue in self.queues:
            locks.enter_context(queue.lock)
        return locks

    def _add_replica(self) -> Replica:
        replica = Replica(self)
        if self._replicas and self._replicas[0].plan == replica.plan:
            replica.bind = self._replicas[0].bind
        else:
            replica.bind = compile_bind(replica.plan, self.params, self._pointers, self.devices, self._check)
        if not self._replicas:
            number = {param: i for i, param in enumerate(self.params)}
            patches = [patch for _, patch in replica.patches]
            for patch, reach in zip(patches, reaches(patches), strict=True):
                self._checks[number[patch.expr.param]].append((patch, reach))
        self._replicas.append(replica)
        return replica

    def _check(self, i: int, value: object) -> None:
        """Judge the value of one parameter."""
        param = self.params[i]
        if isinstance(value, Buffer) is not self._pointers[i] and self._checks[i]:
            wanted = "a Buffer" if self._pointers[i] else "a number"
            raise UsageError(f"{param.name}: wanted {wanted}, seen {value!r}")
        for device in self.devices:
            number = resolve(param, value, device)
            if not self._pointers[i]:
                for patch, reach in self._checks[i]:
                    check_reach(patch, reach, number)

    def _bind(self, replica: Replica, given: Sequence[Value]) -> None:
        """Write what differs from what the replica is bound to."""
        try:
            replica.bind(given, replica.given, replica.views)
        except BaseException:
            replica.unbind()
            if len(given) != len(self.params):
                names = ", ".join(param.name for param in self.params)
                text = f"wanted {len(self.params)} values ({names}), {len(given)} were given"
                raise UsageError(f"replay of {self.label or 'a graph'}: {text}") from None
            for i, value in enumerate(given):
                self._check(i, value)  # says in words what the generated code tripped over
            raise

    def replay(self, given: Sequence[Value] = (), *, after: Sequence[Point] = ()) -> Point:
        """Run the graph with these values, one a parameter in the order of creation; return when it is done.

        Pointer parameters take Buffers, the others numbers. Nothing is encoded and, in a copy that is bound
        to the same values already, nothing is written. Raises before anything is sent.
        """
        segments = self.segments
        queue = segments[0].queue
        if len(segments) > 1 or after or queue.watch is not None or queue.device.trace or self.closed:
            return self._replay(given, after)
        if queue.refusal is not None:
            raise queue.refusal()
        with queue.lock:
            replica = self._next()
            if given != replica.given:
                self._bind(replica, given)
            timeline = queue.timeline
            before = timeline.last
            point = timeline.next()
            signal = point.signal
            launch = replica.launches[0]
            if launch is None or launch.signals[0] is not signal:
                launch = replica.launch(segments[0], ())
            if launch.single >= 0:
                launch.stream.words[launch.single] = point.value - signal.base
            else:
                launch.fill((point.value - signal.base,))
            queue.submit_prebuilt(launch.stream, point, before, replica.kept)
            replica.points[:] = (point,)
        return point

    def submit(self, values: Mapping[Param, Value] | None = None, *, after: Sequence[Point] = ()) -> Point:
        """Run the graph with values by parameter; the friendly way, every value is checked."""
        values = values or {}
        strangers = [param.name for param in values if param not in self.params]
        missing = [param.name for param in self.params if param not in values]
        if strangers or missing:
            raise UsageError(
                f"{self.label or 'the graph'} takes {', '.join(p.name for p in self.params) or 'nothing'}; "
                f"missing: {', '.join(missing) or 'none'}; not its own: {', '.join(strangers) or 'none'}"
            )
        given = [values[param] for param in self.params]
        for i, value in enumerate(given):
            self._check(i, value)
        return self.replay(given, after=after)

    def _next(self) -> Replica:
        """Return a replica that is not in flight. The locks are held."""
        replicas = self._replicas
        turn = self._turn + 1
        self._turn = turn = turn if turn < len(replicas) else 0
        replica = replicas[turn]
        points = replica.points
        if points and not (points[0].passed() and (len(points) == 1 or replica.done())):
            if len(replicas) < self._limit:
                self._turn = len(replicas)
                return self._add_replica()
            for point in points:
                point.wait()
        if self._epochs[0] != self.devices[0].closes or len(self._epochs) > 1:
            self._verify()
        return replica

    def _verify(self) -> None:
        """Look again at everything after something was closed."""
        epochs = [device.closes for device in self.devices]
        if epochs != self._epochs:
            for segment in self.segments:
                commands = CommandBuffer(segment.queue.kind, label=segment.label)
                commands.commands = segment.commands
                commands.verify(segment.queue.device)
            for replica in self._replicas:
                replica.unbind()
            self._epochs = epochs

    def _replay(self, given: Sequence[Value], after: Sequence[Point]) -> Point:
        """Replay over several queues, or with what the short way leaves out."""
        if self.closed:
            raise UsageError(f"{self.label or 'the executable'} is closed")
        with self._locked():
            for queue in self.queues:
                if queue.refusal is not None:
                    raise queue.refusal()
            replica = self._next()
            if given != replica.given:
                self._bind(replica, given)
            for queue in self.queues:
                others = [tail for other, tail in self._tails.items() if (queue, other) in self._conflicts]
                queue.hold([*after, *others])
            values = dict(zip(self.params, given, strict=True))
            points: list[Point] = []
            for segment in self.segments:
                points.append(self._send(replica, segment, [points[i] for i in segment.waits], values))
            self._tails = {segment.queue: points[segment.index] for segment in self.segments}
            replica.points[:] = self._tails.values()
        return points[-1]

    def _send(
        self, replica: Replica, segment: Segment, waits: list[Point], values: Mapping[Param, Value]
    ) -> Point:
        queue = segment.queue
        if queue.watch is not None:
            todo: list[Command] = [Wait(p.signal, p.value - p.signal.base) for p in waits]
            queue.watch.submission(queue, segment.label or self.label, [*todo, *segment.commands], values)
        begin, end = Stamp(), Stamp()
        if queue.device.trace:
            queue.send([Timestamp(begin)])
        before = queue.timeline.last
        point = queue.timeline.next()
        launch = replica.launch(segment, tuple(wait.signal for wait in waits))
        launch.fill([p.value - p.signal.base for p in (*waits, point)])
        queue.submit_prebuilt(launch.stream, point, before, replica.kept)
        if queue.device.trace:
            queue.send([Timestamp(end)])
            queue.device.expect_spans(queue, [(segment.label or self.label or "replay", begin, end)])
        return point

    def forget(self) -> None:
        """Let go of the buffers that idle copies are bound to: memory is short."""
        with ExitStack() as locks:
            for queue in self.queues:
                if not queue.lock.acquire(blocking=False):
                    return  # a replay is being made: its buffers are wanted
                locks.callback(queue.lock.release)
            for replica in self._replicas:
                replica.unbind()

    def close(self) -> None:
        """Let go of the copies' memory; replays in flight keep theirs until they are done."""
        if not self.closed:
            with self._locked():
                self.closed = True
                self._replicas.clear()

    def __repr__(self) -> str:
        names = ", ".join(param.name for param in self.params)
        return f"<Executable {self.label!r}({names}){' closed' if self.closed else ''}>"


def pointer_params(params: Sequence[Param], segments: Sequence[Segment]) -> list[bool]:
    """Say which parameters stand for buffers; one that also stands for a number is refused."""
    pointers: set[Param] = set()
    numbers: set[Param] = set()
    for segment in segments:
        for command in segment.commands:
            if isinstance(command, Exec):
                slots = {slot.offset for slot, _ in command.args.pointers()}
                for offset, _, expr in command.args.patches:
                    (pointers if offset in slots else numbers).add(expr.param)
            for name in ("dst", "src", "value", "size", "groups"):
                word = getattr(command, name, None)
                for one in word if isinstance(word, tuple) else (word,):
                    param = one if isinstance(one, Param) else getattr(one, "param", None)
                    if isinstance(param, Param):
                        (pointers if name in {"dst", "src"} else numbers).add(param)
    both = pointers & numbers
    if both:
        raise UsageError(f"{', '.join(param.name for param in both)}: used as a buffer and as a number")
    return [param in pointers for param in params]
