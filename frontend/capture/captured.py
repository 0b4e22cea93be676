"""A captured function as one executable, and the work of a replay before and after its launch.

Not here: what a replay guarantees (`jit`), the recording (`recording`), the launch
(`frontend.evaluation.launch`).
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from frontend.assignment import root_of, write_rest
from frontend.capture.guards import shown
from frontend.containers import filled
from frontend.device import LOCK, Device, TensorDevice
from frontend.evaluation.base import EPOCH, THREAD, FamilyLink, Rebound, TensorBase
from frontend.evaluation.expr import PARAM, TensorExpr
from frontend.evaluation.gradient_state import wants
from frontend.evaluation.history import realize_beside, realize_for_reading
from frontend.evaluation.launch import KernelLaunch, assemble
from frontend.evaluation.modes import CHANGES, Modes
from frontend.evaluation.plan import verify_all
from frontend.evaluation.printing import described
from frontend.evaluation.realize import PENDING, pending
from frontend.evaluation.storage import Leaf, home_of, preserve
from frontend.evaluation.trace import become
from frontend.evaluation.views import link_of, others, owns, rederive_views, relate
from frontend.ops.random import GENERATOR
from frontend.stats import stats
from frontend.tensor import Tensor
from hcq.config import config
from hcq.errors import UsageError

if TYPE_CHECKING:
    import hcq
    from frontend.capture.guards import NameGuards
    from frontend.evaluation.limits import Checks


@dataclass(frozen=True, slots=True)
class Assembly:
    """The arguments of `frontend.evaluation.launch.assemble`, with numbers as keys of memory."""

    kernels: Sequence[KernelLaunch]
    params: Sequence[tuple[int, int]]
    fixed: Mapping[Hashable, hcq.Buffer]
    """Outside memory, by number."""
    label: str

    @classmethod
    def numbered(
        cls,
        kernels: Sequence[KernelLaunch],
        params: Sequence[tuple[Hashable, int]],
        fixed: Mapping[Hashable, hcq.Buffer],
        label: str,
    ) -> Assembly:
        """Return the same work with a number for each key, so that buffers of the capture are not kept."""
        keys: dict[Hashable, int] = {}
        for key in (*[k for k, _ in params], *fixed, *[key for kernel in kernels for key in kernel.memory]):
            keys.setdefault(key, len(keys))
        return cls(
            [k.renamed(keys) for k in kernels],
            [(keys[k], size) for k, size in params],
            {keys[k]: b for k, b in fixed.items()},
            label,
        )

    def executable(self, device: TensorDevice) -> hcq.Executable:
        """Return the executable. Raises as `hcq.Graph.compile`."""
        return assemble(device, self.kernels, self.params, self.fixed, label=self.label)


class SharedArgumentError(UsageError):
    """An argument that a captured function assigns to, and uses in another way too."""


@dataclass(slots=True)
class Captured:
    """A captured function: an executable, and the tensors and buffers around it.

    The executable takes the buffers of the arguments that it reads, then of random draws, then of outputs.
    Replays and all other changes are made under `LOCK`.
    """

    device: TensorDevice
    kernels: int
    expect: list[TensorExpr]
    """The leaf expression of each argument, which determines shape, dtype and device."""
    inputs: list[int]
    """Indices of the arguments that the executable reads, in its order."""
    draws: list[bool]
    """Whether the executable reads each random draw of the function."""
    sizes: list[int]
    """Bytes of each new output."""
    results: list[tuple[TensorExpr, int] | Tensor | int]
    """For each returned tensor: (expression, index of the output), a captured tensor, or an argument."""
    nest: Any
    """The returned container, with places instead of tensors."""
    states: list[tuple[Tensor, hcq.Buffer]]
    """(tensor, its memory) of each outside tensor that the function assigns to."""
    written: frozenset[hcq.Buffer]
    """Memory of outside tensors that the function assigns to."""
    executable: hcq.Executable | None
    """None: no kernel runs."""
    large: bool
    """Whether the executable drops its bindings after each replay, because the buffers are large."""
    assigned: list[int]
    """Indices of the arguments that are assigned to."""
    fixed: frozenset[hcq.Buffer]
    """Memory of outside tensors that the executable uses."""
    writes: bool
    """Whether anything is assigned to."""
    checks: Sequence[tuple[Checks, list[hcq.Buffer | int | None]]] = ()
    """(checks, fixed memory, indices of arguments, and None for what is not read) of validation."""
    assembly: Assembly | None = None
    """The work of the executable, from which it is written to a file; None: there is no work."""
    plain: TensorExpr | None = None
    """The expression of the returned tensor, when the function returns exactly one new tensor."""
    replaced: str = ""
    """An outside tensor that is read and has other memory since the capture; "": none."""
    partial: bool = False
    """Whether outputs may keep elements that no kernel wrote; see `KernelLaunch.partial`."""
    modes: Modes = field(default_factory=Modes)
    """The modes that the function read from outside."""
    guards: NameGuards | None = None
    """What the function read from outside; None: nothing."""
    label: str = ""
    """The label of new outputs' memory, which starts with `frontend.evaluation.storage.RESULT`."""
    relations: Sequence[Sequence[tuple[int, FamilyLink]]] = ()
    """The results that share elements; see `frontend.evaluation.views.relations`."""

    roots: Sequence[TensorBase | None] = ()
    """The tensors that views from outside were taken from, through which later writes reach the memory."""

    def __post_init__(self) -> None:
        """Mark the memory that replays assign to."""
        for t, _ in self.states:
            home_of(t.leaves[0]).replayed = True

    def run(self, tensors: Sequence[Tensor], given: list[hcq.Buffer]) -> Any:
        """Replay on `tensors`, the arguments; return the results in their containers, without waiting.

        `given` are the buffers of the arguments that the executable reads; the list is extended. Raises
        `UsageError` and the other errors of a replay of `frontend.capture.jit.TinyJit`.
        """
        if self.replaced:
            raise UsageError(
                f"{self.replaced} is used by a captured function, but was moved or replaced since\n"
                "hint: reset() the function, so that it is captured again"
            )
        if self.modes.seen != (CHANGES[0], THREAD.precision):
            self.modes.check("a function" if self.assembly is None else self.assembly.label)
        if self.guards is not None and not self.guards.hold():
            self.guards.check()
        with LOCK:
            if PENDING:
                settle()
            if self.checks and config().validate:
                self._verify(tensors)
            changed: list[Tensor] = []
            if self.writes:
                self.check_arguments(tensors)
                changed = self._guard(given)
                if self.assigned:
                    changed += self._guard_arguments(tensors, given)
            alloc = self.device.alloc_partial if self.partial else self.device.hcq.alloc
            for used in self.draws:
                words = GENERATOR.next()
                if used:
                    given.append(self.device.write_small(words))
            outs = [alloc(size, label=self.label) for size in self.sizes]
            given += outs
            if self.executable is not None:
                self.executable.replay(given)
                if self.large:
                    self.executable.forget()
            stats.kernels += self.kernels
            stats.launches += 1
            if changed:
                self._write_rest(changed)
            if self.plain is not None:
                return Tensor.of_part((self.plain, (Leaf(outs[0]),)))
            leaves = [Leaf(b) for b in outs]
            made: list[Tensor] = []
            for result in self.results:
                if isinstance(result, tuple):
                    made.append(Tensor.of_part((result[0], (leaves[result[1]],))))
                else:
                    made.append(tensors[result] if isinstance(result, int) else result)
            if self.relations:
                relate(made, self.relations)
            return filled(self.nest, made)

    def changed(self) -> str:
        """Return what changed since the capture, so that `run` would raise, as a text; "": nothing."""
        if self.replaced:
            return f"{self.replaced} was moved or replaced"
        mode = None if self.modes.seen == (CHANGES[0], THREAD.precision) else self.modes.changed()
        name = None if mode or self.guards is None or self.guards.hold() else self.guards.changed()
        if mode:
            return f"{mode[1]} was {mode[3]}, and is {mode[2]}"
        if name:
            return f"{name[0]} was {shown(name[2])}, and is {shown(name[1])}"
        gone = [t for t, b in self.states if t.expr.op is not PARAM or t.leaves[0].buffer is not b]
        return f"{described(gone[0])} was replaced" if gone else ""

    def _verify(self, tensors: Sequence[Tensor]) -> None:
        """Check indices and divisors that depend only on arguments and outside tensors, or raise."""

        def leaf(found: Any) -> Leaf:
            return tensors[found].leaves[0] if isinstance(found, int) else Leaf(found)

        verify_all([(checks, tuple(map(leaf, memory))) for checks, memory in self.checks])

    def check_arguments(self, tensors: Sequence[Tensor]) -> None:
        """Raise `SharedArgumentError` for an argument that shares memory with another use of it.

        The function may not assign to an outside tensor that is also passed in, nor to an argument that
        shares elements with another argument or with an outside tensor that the executable uses.
        """
        for i, argument in enumerate(tensors):
            link = getattr(argument, "link", None)
            for t, _ in self.states:
                if argument is t or (link is not None and _same_family(link, t)):
                    what = "" if argument is t else "shares elements with a tensor that "
                    raise SharedArgumentError(
                        f"argument {i} ({described(argument)}) {what}is also assigned to by the captured "
                        "function, from outside\n"
                        "hint: use it in one of the two ways; .clone() has the value before the call"
                    )
        for i in self.assigned:
            family = link_of(tensors[i])
            for j, other in enumerate(tensors):
                link = link_of(other)
                if i != j and (
                    other is tensors[i]
                    or (link is not None and family is not None and link.family is family.family)
                ):
                    raise SharedArgumentError(
                        f"argument {i} ({described(tensors[i])}) is assigned to by the captured function, "
                        f"and shares elements with argument {j}\nhint: pass .clone() of one of them"
                    )
            shared = [m for m in (tensors[i], *others(tensors[i])) if m.expr.op is PARAM]
            if any([m.leaves[0].buffer in self.fixed for m in shared]):  # noqa: C419 - a list is faster
                raise SharedArgumentError(
                    f"argument {i} ({described(tensors[i])}) is assigned to by the captured function, which "
                    "also uses it from outside\nhint: use it in one of the two ways"
                )

    def _guard(self, given: list[hcq.Buffer]) -> list[Tensor]:
        """Copy-on-write: preserve contents that the replay overwrites, for tensors that alias them.

        Return the written tensors that may share elements with others. Raises `UsageError` for an outside
        tensor that has other memory than at the capture.
        """
        shared: list[Tensor] = []
        for t, buffer in self.states:
            if t.expr.op is not PARAM or t.leaves[0].buffer is not buffer:
                raise UsageError(
                    f"{described(t)} is assigned to by a captured function, but was replaced "
                    "since; capture it again"
                )
            if t.used:  # otherwise nothing was built from it since the last replay
                copied = self._advance(t)
                if copied is not None:
                    given[:] = [copied if b is buffer else b for b in given]
                if t.used:
                    shared.append(t)
        if not self.written.isdisjoint(given):
            given[:] = [self.device.copied(b) if b in self.written else b for b in given]
        return shared

    def _guard_arguments(self, tensors: Sequence[Tensor], given: list[hcq.Buffer]) -> list[Tensor]:
        """Give assigned arguments memory of their own; tensors that alias the old contents get a copy.

        Return the arguments that are assigned to.
        """
        for i in self.assigned:
            t, at = tensors[i], self.inputs.index(i)
            if owns(t):
                copied = self._advance(t)
                if copied is not None:
                    given[:] = [copied if b is t.leaves[0].buffer else b for b in given]
            else:
                t.leaves = (Leaf(self.device.copied(t.leaves[0].buffer)),)
            t.recipe = Rebound(None)  # tensors built from it keep the old contents
            given[at] = t.leaves[0].buffer
        return [tensors[i] for i in self.assigned]

    def _advance(self, t: Tensor) -> hcq.Buffer | None:
        """Advance a tensor to the next version of its memory.

        Return the buffer with a copy of the old version if another tensor aliases it, else None.
        """
        home = home_of(t.leaves[0])
        before = home.current
        home.writes += 1
        if wants(t):
            t.leaves[0].of = weakref.ref(t)
        t.leaves = (home.advance(),)
        t.used = False
        rederive_views(t)
        t.used = t.used or bool(others(t))
        return preserve(before, self.device)

    def _write_rest(self, changed: list[Tensor]) -> None:
        """Write what the launch assigned to `changed` to the other tensors that share elements with them."""
        if any(link_of(t) is not None for t in changed):
            known = {*[id(t) for t, _ in self.states], *[id(t) for t in changed]}
            for t in changed:
                write_rest(t, known)


def _same_family(link: FamilyLink, t: TensorBase) -> bool:
    """Return whether a tensor shares elements with those of a link."""
    own_link = link_of(t)
    return own_link is not None and own_link.family is link.family


def own(t: TensorBase) -> None:
    """Give an outside tensor of a capture memory of its own; for a view, give it to the root.

    A tensor whose root was freed gets its own. The caller holds `LOCK`.
    """
    root = root_of(t)
    if root is not None and root is not t:
        own(root)
        return
    if owns(t):
        return
    realize_for_reading(t)
    if not owns(t):
        old = t.leaves[0]
        leaf = Leaf(Device[t.expr.device].copied(old.buffer))
        leaf.origin, leaf.known = old.origin, old.known
        become(t, t.expr, (leaf,))
        t.recipe = None
        EPOCH[0] += 1
        t.epoch = EPOCH[0]
    rederive_views(t)


def settle() -> None:
    """Compute all pending assignments, as a replay reads the memory that they are stored in."""
    realize_beside((), pending())
