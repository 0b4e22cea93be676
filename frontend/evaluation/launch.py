"""Assembly of kernels into one executable: memory for temporaries, barriers between dependent kernels.

Memory is named by keys, which may be any hashable values. A key is a parameter, whose buffer is given at each
replay, or a fixed buffer, or else a temporary of the launch.

Not here: which kernels (`plan`), offsets of temporaries (`compiler.schedule.memory`). Next: `hcq.graph`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from compiler.schedule.memory import place

if TYPE_CHECKING:
    import hcq
    from frontend.device import TensorDevice


@dataclass(frozen=True, slots=True)
class KernelLaunch:
    """One kernel launch, with its memory by key. Without a program it copies `memory[1]` to `memory[0]`."""

    program: hcq.Program | None
    """On a mesh, a `frontend.distributed.plans.MeshLaunch` with the memory of whole tensors."""
    groups: tuple[int, int, int]
    threads: tuple[int, int, int]
    memory: tuple[Hashable, ...]
    """A key for each pointer argument."""
    sizes: tuple[int, ...]
    """The least number of bytes of each key's memory; for a copy, both are the bytes to copy."""
    stores: tuple[int, ...]
    """Indices of the arguments that are written."""
    origin: tuple[Any, int] | None = None
    """(structure of its plan, from which it can be scheduled again, or text of its AST.

    Number in the plan).
    """
    partial: bool = False
    """Whether it may leave elements beyond a symbolic size unwritten, which others load and discard."""

    def renamed(self, names: Mapping[Hashable, Hashable]) -> KernelLaunch:
        """Return the launch with keys replaced by `names`; a key that is not there stays."""
        memory = tuple([names.get(key, key) for key in self.memory])
        return replace(self, memory=memory)


def lives_of(kernels: Sequence[KernelLaunch], known: set[Hashable]) -> dict[Hashable, tuple[int, int, int]]:
    """Return (bytes, first kernel, last kernel) of every temporary."""
    lives: dict[Hashable, tuple[int, int, int]] = {}
    for i, kernel in enumerate(kernels):
        for key, size in zip(kernel.memory, kernel.sizes, strict=True):
            if key not in known:
                most, first, _ = lives.get(key, (0, i, i))
                lives[key] = (max(most, size), first, i)
    return lives


class Hazards:
    """The keys that kernels read and wrote since the last barrier, to find where a barrier is needed."""

    def __init__(self, places: Mapping[Hashable, tuple[int, int]]) -> None:
        self._places = places
        self._read: set[Any] = set()
        self._written: set[Any] = set()

    def needs_barrier(self, kernel: KernelLaunch) -> bool:
        """Add a kernel; return whether a barrier must precede it."""
        written = [kernel.memory[i] for i in kernel.stores]
        read = [key for i, key in enumerate(kernel.memory) if i not in kernel.stores]
        clash = any(self._overlaps(k, self._written) for k in kernel.memory) or any(
            self._overlaps(k, self._read) for k in written
        )
        if clash:
            self._read.clear()
            self._written.clear()
        self._read.update(read)
        self._written.update(written)
        return clash

    def _overlaps(self, key: Hashable, others: set[Any]) -> bool:
        if key in others:
            return True
        place = self._places.get(key)
        if place is None:
            return False
        at, size = place
        for other in others:
            there = self._places.get(other)
            if there is not None and there[0] < at + size and at < there[0] + there[1]:
                return True
        return False


def assemble(
    device: TensorDevice,
    kernels: Sequence[KernelLaunch],
    params: Sequence[tuple[Hashable, int]],
    fixed: Mapping[Hashable, hcq.Buffer],
    *,
    label: str,
) -> hcq.Executable:
    """Return the executable of kernels in their order. A replay gives it one buffer for each of `params`.

    `params` are (key, least number of bytes). `fixed` has the buffers of other keys; the remaining keys are
    temporaries in the device's scratch memory. `label` names the executable in errors and traces. Raises as
    `hcq.Graph.compile`, and as `hcq.Device.alloc` for temporaries. On a mesh, kernels are launches of the
    mesh, and the result is a `frontend.distributed.captured.MeshExecutable`.
    """
    if device.devices:
        return cast("hcq.Executable", cast("Any", device).assembled(kernels, params, fixed, label))
    from hcq.commands import Scope  # noqa: PLC0415 - nothing of the queue layer before the first launch
    from hcq.graph import Graph  # noqa: PLC0415 - the same

    graph = Graph(label=label)
    memory: dict[Hashable, Any] = dict(fixed)
    for i, (key, size) in enumerate(params):
        memory[key] = graph.param(f"b{i}", size=size)
    lives = lives_of(kernels, set(memory))
    offsets, total = place(lives) if lives else ({}, 0)
    if total:
        arena = device.scratch(total)
        if any([kernel.partial for kernel in kernels]):  # noqa: C419 - a list is faster
            arena.count_as_written()
        for key, at in offsets.items():
            memory[key] = arena.view(at, lives[key][0])
    hazards = Hazards({key: (at, lives[key][0]) for key, at in offsets.items()})
    commands = device.queue.record(label=label)
    for i, kernel in enumerate(kernels):
        if hazards.needs_barrier(kernel) and i:
            commands.barrier(Scope.DEVICE)  # the end of the submission releases to the host and to others
        if kernel.program is None:
            commands.copy(memory[kernel.memory[0]], memory[kernel.memory[1]], kernel.sizes[0])
            continue
        args = kernel.program.args(*[memory[key] for key in kernel.memory])
        commands.exec(kernel.program, args, groups=kernel.groups, threads=kernel.threads)
    graph.add(device.queue, commands)
    return graph.compile()
