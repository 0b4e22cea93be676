"""`frontend.compile`: a function that is captured anew whenever something it depends on changes.

The first call with arguments of new shapes, dtypes, devices or other values runs the function as it is, and
finds out whether a capture could repeat it. The second one captures it, later ones replay (`jit`). A capture
holds as long as its guards do: the arguments, modes, and the names that the function reads (`guards`).
Otherwise another capture that holds is used, or one more is made; `Compiled.recompilations` lists them.

A function runs as it is, without a capture, where a replay would not do the same: it reads the value of a
tensor (a condition on it, `item`, `print`), makes tensors of host data, prints, reads a clock, draws numbers
on the host, changes Python objects, keeps tensors or gradients, or returns other values than tensors. The
cause is listed. Kernels are compiled and kept in all cases. Where results carry gradients, the expression is
repeated instead of a launch (`histories`).

Not here: captures that refuse such functions (`jit`).
"""

# ruff: noqa: FBT001 - the field's signatures

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial, update_wrapper
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from frontend.arguments.conversion import shown
from frontend.capture.captured import SharedArgumentError
from frontend.capture.guards import NameWatch
from frontend.capture.jit import TinyJit, tensors_of
from frontend.containers import NUMBERS, alike, by_name, flattened, others_of
from frontend.evaluation import gradient_state as grad_state
from frontend.evaluation import modes
from frontend.evaluation.base import THREAD, KeptHistory
from frontend.evaluation.plan import CAPTURE
from frontend.evaluation.views import link_of
from frontend.later import AT_ONCE, later
from hcq.config import config
from hcq.errors import UsageError, UsageTypeError

if AT_ONCE:
    from frontend.capture import histories
    from frontend.nn import module
else:
    histories = later("frontend.capture.histories")
    module = later("frontend.nn.module")
if TYPE_CHECKING:
    from frontend.capture.histories import History
    from frontend.tensor import Tensor

LIMIT: Final = 8
"""The most recompilations of one function, as in PyTorch; further calls warn once and run the function."""


class Recompilation(NamedTuple):
    """A call that no capture fitted: its number, from 1 on, and what differed from the last capture."""

    call: int
    cause: str


@dataclass(slots=True)
class _Entry:
    """The calls with one kind of arguments, and their capture."""

    shape: Any
    """The containers of the arguments, with places of the tensors."""
    numbers: list[Any]
    tensors: list[tuple[Any, ...]]
    """(shape, dtype, device, requires_grad) of each tensor."""
    cut: bool
    """Whether gradients were off."""
    jit: TinyJit[Any, Any]
    watch: NameWatch
    plain: str = ""
    """Why the function is never captured for these arguments; "": it is."""
    again: bool = False
    """Whether the next call is examined again, as the first one may have made what later ones use."""
    writes: bool = False
    """Whether the first call assigned to a tensor."""
    written: list[int] = field(default_factory=list)
    """Indices of the arguments that the first call assigned to."""
    flows: bool = False
    """Whether gradients flow through the results: the next call makes `history`, and later ones repeat it."""
    history: History | None = None
    floats: list[weakref.ref[Tensor]] = field(default_factory=list)
    """The float tensors from outside."""
    wanted: list[bool] = field(default_factory=list)
    """requires_grad of `floats` in the first call."""
    seen: int = -1
    """`modes.CHANGES` when `wanted` was last compared."""

    def other_arguments(
        self, shape: Any, numbers: list[Any], tensors: list[tuple[Any, ...]], cut: bool
    ) -> str:
        """Return how the arguments and the mode of gradients of a call differ; "": they do not."""
        for i, (now, before) in enumerate(zip(tensors, self.tensors, strict=False)):
            if now != before:
                return f"tensor {i} was {_described(before)}, and is {_described(now)}"
        if len(tensors) != len(self.tensors) or numbers != self.numbers or not alike(shape, self.shape):
            return f"the arguments were {self.shape}, and are {shape}"
        return "" if cut is self.cut else f"gradients were {'off' if self.cut else 'on'} before"

    def changed(self) -> str:
        """Return what changed of all that the function reads from outside; "": nothing."""
        if self.seen != modes.CHANGES[0]:
            if self.wanted != self.wants():
                return "requires_grad of a tensor from outside changed"
            self.seen = modes.CHANGES[0]
        captured = self.jit.captured
        if self.plain or captured is not None:
            return "" if captured is None else captured.changed()
        return self.watch.changed() or ("" if self.history is None else self.history.changed())

    def shares(self, tensors: list[Tensor]) -> bool:
        """Return whether a capture could not take these arguments: what it assigns to is used elsewhere.

        A capture runs on copies, and finds so only after it assigned to tensors from outside.
        """
        if not self.writes:
            return False
        families = [link_of(t) or t for t in tensors]
        marks = [id(getattr(f, "family", f)) for f in families]
        outside = {id(getattr(link_of(t), "family", t)) for t in self.watch.tensors(floats=False)}
        return not outside.isdisjoint(marks) or any(marks.count(marks[i]) > 1 for i in self.written)

    def wants(self) -> list[bool]:
        """Return requires_grad of `floats` now."""
        return [t is not None and grad_state.wants(t) for t in [ref() for ref in self.floats]]


def _described(key: tuple[Any, ...]) -> str:
    shape, dtype, device, wanted = key
    return f"{dtype.name}{list(shape)} on {device}{' with requires_grad' if wanted else ''}"


def _flows(t: Tensor) -> bool:
    """Return whether a later `backward` could go through a result."""
    return t.requires_grad and grad_state.state_of(t).past is not KeptHistory.SPENT


class Compiled:
    """A function that replays captures of itself; made by `frontend.compile`.

    `fn` is the function itself, `recompilations` the list of calls that no capture fitted, but the first.
    `plain` is why the function is never captured for the last arguments that were new; "": it is. `reset()`
    drops all captures. Threads: as `TinyJit`.
    """

    def __init__(self, fn: Callable[..., Any], *, fullgraph: bool = False, limit: int = LIMIT) -> None:
        self.fn, self.fullgraph, self.limit = fn, fullgraph, limit
        self.recompilations: list[Recompilation] = []
        self.calls = 0
        self._warned = False
        self._entries: list[_Entry] = []
        """The last used one first."""
        self._bound: weakref.WeakKeyDictionary[object, Compiled] = weakref.WeakKeyDictionary()
        update_wrapper(self, fn, updated=())

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Return the compiled method of an instance, which has its own captures; on the class, self."""
        if instance is None:
            return self
        if instance not in self._bound:
            function = partial(self.fn, weakref.proxy(instance))
            self._bound[instance] = Compiled(function, fullgraph=self.fullgraph, limit=self.limit)
        return self._bound[instance]

    def __reduce__(self) -> Any:
        """Return how a copy is made: of a copy of the function, without captures."""
        return partial(type(self), fullgraph=self.fullgraph, limit=self.limit), (self.fn,)

    @property
    def plain(self) -> str:
        """Why the last used kind of arguments is never captured; "": it is."""
        return self._entries[0].plain if self._entries else ""

    def reset(self) -> None:
        """Drop all captures and the list of recompilations."""
        self.calls, self._warned, self._entries, self.recompilations = 0, False, [], []

    def __call__(self, *args: Any, **names: Any) -> Any:
        """Run, capture or replay the function; return its result.

        Raises the errors of the function; with `fullgraph`, `UsageError` where it cannot be captured. A
        `UsageError` of `TinyJit` is raised by a capture whose call did what the first call had not done.
        """
        if CAPTURE.now is not None or CAPTURE.notes is not None or not config().jit:
            return self.fn(*args, **names)
        self.calls += 1
        tensors: list[Tensor] = []
        known: dict[Any, Any] = {}
        try:
            shape = flattened((args, by_name(self.fn, names)), tensors, "", strict=False, known=known)
        except UsageError as error:  # an array of another library
            return self._plainly(str(error), args, names)
        keys = [(t.shape, t.dtype, t.device, t.requires_grad) for t in tensors]
        key = {"shape": shape, "numbers": known.get(NUMBERS, []), "tensors": keys, "cut": THREAD.cut}
        others = changed = ""
        for at, entry in enumerate(self._entries):
            other = entry.other_arguments(**key)
            differs = other or entry.changed()
            if not differs:
                if at:
                    self._entries.insert(0, self._entries.pop(at))
                return self._repeated(entry, tensors, args, names)
            others, changed = others or other, changed or ("" if other else differs)
        cause = changed or others
        if cause and len(self.recompilations) >= self.limit:
            if not self._warned:
                self._warned = True
                warnings.warn(
                    f"{self!r} was compiled anew {self.limit} times, and runs without a capture where none "
                    f"fits; now {cause}\nhint: pass what changes as a tensor",
                    stacklevel=2,
                )
            return self.fn(*args, **names)
        if cause:
            self.recompilations.append(Recompilation(self.calls, cause))
        return self._first(key, tensors, args, names)

    def _repeated(self, entry: _Entry, tensors: list[Tensor], args: Any, names: Any) -> Any:
        captured = entry.jit.captured
        if entry.again:
            self._entries.remove(entry)
            key = {name: getattr(entry, name) for name in ("shape", "numbers", "tensors", "cut")}
            return self._first(key, tensors, args, names, last=True)
        if captured is not None and captured.writes:
            try:
                captured.check_arguments(tensors)
            except SharedArgumentError:  # this call is computed plainly
                return self.fn(*args, **names)
        if entry.plain or (captured is None and not entry.flows and entry.shares(tensors)):
            return self.fn(*args, **names)
        if not entry.flows:
            try:
                return entry.jit(*args, **names)
            except SharedArgumentError:  # found by a capture
                entry.jit = TinyJit(self.fn)
                return entry.jit(*args, **names)
        if entry.history is not None:
            return entry.history.run(tensors)
        result, entry.history, entry.plain = histories.record(
            self.fn, entry.shape, tensors, entry.watch.tensors(floats=False)
        )
        entry.plain = entry.plain or entry.watch.effect()
        return result

    def _plainly(self, cause: str, args: Any, names: Any) -> Any:
        if self.fullgraph:
            raise UsageError(f"{self!r} cannot be captured: {cause}")
        return self.fn(*args, **names)

    def _first(
        self, key: dict[str, Any], tensors: list[Tensor], args: Any, names: Any, *, last: bool = False
    ) -> Any:
        """Run the function as it is, and make the entry of such calls; `last`: it does not run so again."""
        watch = NameWatch(self.fn, others_of((args, names)), who=repr(self))
        entry = _Entry(**key, jit=TinyJit(self.fn), watch=watch)
        before = {id(t): grad_state.grad_of(t) for t in grad_state.wanting()}
        writes, parts = histories.assigned(), enumerate([(t, t.expr, t.recipe) for t in tensors])
        notes: list[str] = []
        CAPTURE.notes = notes
        try:
            result = entry.jit(*args, **names)
        finally:
            CAPTURE.notes = None
        entry.plain = notes[0] if notes else self._cause(entry, result, before)
        entry.written = [i for i, (t, e, recipe) in parts if t.expr is not e or t.recipe is not recipe]
        assigns = not histories.same_assignments(writes)
        entry.writes = assigns or bool(entry.written)
        if not entry.plain and entry.flows and assigns:
            entry.plain = histories.ASSIGNS
        if not entry.plain and entry.flows:
            new = [t for t in grad_state.wanting() if id(t) not in before]
            entry.plain = histories.HOOKS if new else ""
            # A layer that is called for the first time decides about its parameters, and never again.
            entry.again = bool(new) and not last and all(grad_state.was_listed(t) for t in new)
        if not entry.plain:
            entry.plain = watch.effect()
            entry.again = bool(entry.plain) and not last
        entry.floats = [weakref.ref(t) for t in watch.tensors()]
        entry.wanted = entry.wants()
        if entry.plain and self.fullgraph and not entry.again:
            raise UsageError(f"{self!r} cannot be captured: {entry.plain}")
        self._entries.insert(0, entry)
        return result

    def _cause(self, entry: _Entry, result: Any, before: dict[int, Any]) -> str:
        """Return why a call that just ran could not be captured; "": it could."""
        try:
            flattened(result, [], f"{self!r} returns", strict=True)
        except UsageError as error:
            return str(error)
        flows = any(wanted for *_, wanted in entry.tensors) or any(_flows(t) for t in tensors_of(result))
        entry.flows = flows and not entry.cut
        left = [t for t in grad_state.wanting() if grad_state.grad_of(t) is not before.get(id(t))]
        return "it leaves gradients" if any(grad_state.grad_of(t) is not None for t in left) else ""

    def __repr__(self) -> str:
        function = self.fn.func if isinstance(self.fn, partial) else self.fn
        return f"<compiled {getattr(function, '__name__', type(function).__name__)}>"


def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Any = None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
) -> Any:
    """Return a function or a module whose calls replay captured launches; without `model`, a decorator.

    `fullgraph` raises `UsageError` where the function cannot be captured; else it runs as it is then. Of
    `options`, "recompile_limit" is the most recompilations, 8 without it. `disable` returns the model itself.
    `dynamic`, `backend` and `mode` have no effect: each shape is compiled for itself. A module becomes one
    with the attribute `_orig_mod`, through which all else is read. Raises `UsageTypeError` for no function.
    """
    if model is None:
        return partial(compile, fullgraph=fullgraph, options=options, disable=disable)
    del dynamic, backend, mode
    if not callable(model):
        raise UsageTypeError(f"compile: wanted a function or a module, saw {shown(model)}")
    if disable:
        return model
    made = Compiled(model, fullgraph=fullgraph, limit=(options or {}).get("recompile_limit", LIMIT))
    return module.CompiledModule(model, made) if hasattr(type(model), "register_buffer") else made
