"""Captured functions: call 1 runs, call 2 runs and is captured, later calls replay one executable.

What a replay guarantees:

- Arguments are tensors, or containers of tensors, of the shapes, dtypes and device that were captured. Other
  arguments must be equal to the captured ones; 1, 1.0 and True are different, and so are 0.0 and -0.0. The
  capture runs on copies of the tensors: two arguments are two tensors even if one tensor was passed as both,
  or is also used from outside.
- Tensors used from outside are captured by their memory: `assign` stores in place, so a replay sees later
  values, also pending ones. Tensors that the first call uses and that have no memory of their own (pending
  ones, results of operations without effect, `detach`) get memory before the capture, with the value that
  they have then. For a view, the tensor that it was taken from gets the memory.
- `assign` inside the function stores in place at each replay. Copy-on-write: tensors that alias the old
  contents get a copy first.
- An argument that is assigned to inside, directly or through a view, is the tensor of the caller: its value
  changes in place at each replay.
- A returned tensor is new memory at each call, owned by the caller, except a tensor that the function
  assigned to or was given, which is returned itself. Results that share elements with each other do so at
  each call.
- Values that the function reads from closures, globals, attributes and containers are those of the capture.
If such a name has another tensor, number or object later, the next replay raises `UsageError` (`code`,
`found`, `guards`).
- Under `HCQ_VALIDATE=1`, indices and integer divisors that come from arguments, or from outside tensors that
  are not assigned to, are checked at each replay; those computed inside only at the capture.
- Views (`frontend.evaluation.views`) of tensors that a replay assigns change with them.
- Random draws are new at each replay, and the same as without capture.
- Training modes, mixed precision, requires_grad and gradients that the function reads from outside are those
  of the capture. A replay with others raises `UsageError` (`frontend.evaluation.modes`). Gradients that the
  function removes are removed at each replay.

An operation that a replay could not repeat raises `UsageError` at the capture: reading a value, making a
tensor of host data, moving between devices, replacing an argument, keeping a computed tensor or a gradient
outside, assigning another number or tensor to a name that the function reads, drawing random numbers of the
host. Other effects of the Python code, such as printed text, are not repeated. Changes of clocks, of files,
of random numbers of the machine, and of values that C code reads are not noticed.

Arguments of another shape or dtype, such as a smaller last batch, raise `UsageError`; there is no second
capture. Pad them to one shape, or call `.fn`, the function itself.

Not here: the names that a function reads (`code`), containers (`frontend.containers`).
"""

# ruff: noqa: I001 - lists of names stand in rows

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial, update_wrapper
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar, cast

from frontend.arguments.conversion import shown
from frontend.assignment import LEAVING, root_of
from frontend.capture.captured import Captured, own, settle
from frontend.capture.recording import Capture, captured_form, refuse_leftovers, results_of
from frontend.containers import (
    NUMBERS, Placeholder, alike, by_name, filled, flattened, holds_tensors, numbers_of, others_of,
)  # fmt: skip
from frontend.device import LOCK, Device
from frontend.evaluation import gradient_state as grad_state
from frontend.evaluation.base import EPOCH, THREAD, Rebound, TensorBase
from frontend.evaluation.expr import PARAM, TensorExpr
from frontend.evaluation.history import realize_for_reading
from frontend.evaluation.modes import GRAD, default_dtype, lowered
from frontend.evaluation.plan import CAPTURE
from frontend.evaluation.printing import described
from frontend.evaluation.realize import pending, realize_many
from frontend.evaluation.refresh import recorded_uses, refresh
from frontend.evaluation.storage import Leaf
from frontend.evaluation.views import relate, relations
from frontend.later import AT_ONCE, later
from frontend.symbolic.tensor import SymbolicTensor
from frontend.tensor import Tensor
from hcq.config import config
from hcq.errors import UsageError, UsageTypeError

if AT_ONCE:
    from frontend.capture import files, guards
else:
    files = later("frontend.capture.files")
    guards = later("frontend.capture.guards")
if TYPE_CHECKING:
    from pathlib import Path

    import hcq

P = ParamSpec("P")
R = TypeVar("R")


def _only_in_file(path: str, label: str) -> Any:
    """Return a function in place of a loaded capture's Python function; calling it raises `UsageError`."""

    def function(*_args: Any, **_names: Any) -> Any:
        raise UsageError(
            f"{label or 'the function'} was loaded from {path}: the file has its kernels, not the function\n"
            "hint: call it outside of other captured functions, and do not reset() it"
        )

    function.__name__ = label or "loaded"
    return function


def tensors_of(value: Any) -> list[Tensor]:
    """Return the tensors of nested containers."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, SymbolicTensor):
        return tensors_of(value.whole)
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [t for part in parts for t in tensors_of(part)]


_EVERY: Final[weakref.WeakSet[TinyJit[Any, Any]]] = weakref.WeakSet()
"""All captured functions."""


def _leaving(t: TensorBase, buffer: hcq.Buffer) -> None:
    """Mark the captured functions that use the memory which a tensor leaves; the caller holds `LOCK`."""
    for function in list(_EVERY):
        captured = function.captured
        if captured is not None and buffer in captured.fixed:
            captured.replaced = described(t)


LEAVING.append(_leaving)


class TinyJit(Generic[P, R]):
    """A function of tensors that runs as one launch from its third call on.

    Call 1 runs the function. Call 2 runs and captures it. Later calls replay the captured launches on the
    memory of their arguments, and run no Python code of the function. A wrapped method has one capture for
    each instance. With JIT=0 every call runs the function.

        @TinyJit
        def step(x: Tensor, y: Tensor) -> Tensor:
            loss = model(x).cross_entropy(y)
            loss.backward()
            optimiser.step()
            return loss

    Arguments: tensors, containers of tensors, and other values, which must equal the captured ones. The
    shapes, dtypes and device are those of the second call.

    Results: tensors, containers of tensors, or None. A returned tensor is new memory that the caller owns,
    except one that was given or assigned to.

    State: outside tensors are used by their memory, so a replay sees their current values; names must hold
    the tensors, numbers and objects that they held at the capture. `assign` inside the function, as by an
    optimiser, stores in place at each replay; copy-on-write preserves aliased contents. Random draws are new
    at each replay. The module lists all guarantees.

    Order and waiting: a replay is submitted to the device's first compute queue, and the call returns while
    the device works. Reading a result waits.

    Ownership: the capture keeps the programs and outside memory that it uses until `reset` or the last
    reference. `fn` is the function itself, `captured` the captured form.

    Threads: captures, and submissions of replays, of one process run one at a time (`frontend.device.LOCK`).

    Raises, besides the errors of the function:
    - `UsageError` at the capture, for what a replay could not repeat: reading a value, host data, another
      device, a deep copy, a returned value that is no tensor, a replaced argument, a computed tensor or
      gradient kept outside, an argument that is also assigned to from outside, an iterator or random numbers
      of the host, a name that is read and assigned to, launches on several devices.
    - `UsageError` at a replay, for arguments whose shape, dtype, device, or other values differ from the
      captured ones, for another training mode, autocast or requires_grad, for an outside tensor that was
      replaced, for a closure cell, global, attribute or item that holds another tensor, number or object than
      at the capture, and for a closed device.
    - `UsageIndexError` or `UsageZeroDivisionError` under `HCQ_VALIDATE=1`, for an invalid index or divisor.
    - `OutOfMemoryError` when there is no memory for the results; `DeviceFault` after a fault. After
      `hcq.Device.recover` the capture can be replayed.
    """

    def __init__(self, fn: Callable[P, R]) -> None:
        if not callable(fn):
            raise UsageTypeError(f"TinyJit: wanted a function, saw {shown(fn)}\nhint: @TinyJit above its def")
        self.fn = fn
        self.calls = 0
        """Calls since it was made or reset; 2 or more: it is captured. Simple replays do not count."""
        self._args: list[Any] = []
        self._numbers: list[Any] = []
        self._objects = False
        """Whether an argument is an object that has tensors: such an argument is compared by identity."""
        self._captured: Captured | None = None
        self._outside: list[weakref.ref[TensorBase]] = []
        """Tensors that the first call used and that existed before."""
        self._returned: list[weakref.ref[Tensor]] = []
        """Tensors that the first call returned. One that the second call returns again is from outside."""
        self._simple: list[TensorExpr] | None = None
        """The expressions of the arguments if all are positional tensors that the executable reads."""
        self.loaded = False
        """Whether the capture was loaded from a file, which has no Python function."""
        self.state: dict[str, Tensor] = {}
        """The named tensors that a loaded function uses from outside."""
        self._bound: weakref.WeakKeyDictionary[object, TinyJit[Any, Any]] = weakref.WeakKeyDictionary()
        update_wrapper(self, fn)
        _EVERY.add(self)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Return the `TinyJit` of an instance, which has its own capture; on the class, self."""
        if instance is None:
            return self
        found = self._bound.get(instance)
        if found is None:
            found = self._bound[instance] = TinyJit(partial(self.fn, weakref.proxy(instance)))
        return found

    @property
    def captured(self) -> Captured | None:
        """The captured form; None before the second call."""
        return self._captured

    def save(self, path: str | Path, *, state: Mapping[str, Tensor] | None = None) -> None:
        """Write the captured form to a file: kernels, their order, and the outside memory that they use.

        `state` names outside tensors, as `model.state_dict()` does. For a named tensor `load` can
        use another tensor. Raises `UsageError` before the second call, for results that share elements, and
        for an argument or a result that is neither a tensor, a number, a text, None nor a container of them;
        `OSError` when the file cannot be written. The format: `frontend.capture.files`.
        """
        if self._captured is None:
            raise UsageError(f"{self!r} is not captured yet: call it twice, then save it")
        files.save(path, self._captured, self._args, state or {})

    @classmethod
    def load(
        cls, path: str | Path, *, device: str | None = None, state: Mapping[str, Tensor] | None = None
    ) -> TinyJit[Any, Any]:
        """Return the captured function of a file; each call replays it, the first call included.

        `device` is that of the capture by default, and must be of its architecture. `state` has a tensor for
        each named tensor of the file; without it, the tensors are made from the file. The attribute `state`
        of the result has the named tensors. The file has no Python function: calling `fn`, and a call inside
        another capture, raise `UsageError`. JIT=0 changes nothing.

        Kernels of a file run on the device: load only files that you trust. Reading runs no code of the file.
        Raises `UsageError` for a file that is malformed, of another version or another architecture, and for
        a tensor of `state` that is missing or has another shape, dtype or device; `OSError` when the file
        cannot be read.
        """
        captured, args, named = files.load(path, device, state)
        work = captured.assembly
        made: TinyJit[Any, Any] = cls(_only_in_file(str(path), "" if work is None else work.label))
        made.calls, made.loaded, made.state = 2, True, named
        made._replays(captured, args)
        return made

    def reset(self) -> None:
        """Drop the capture. The next call runs the function, the one after that captures it."""
        self.calls = 0
        self._captured = None
        self._simple = None
        self._outside, self._returned = [], []

    def __call__(self, *args: P.args, **names: P.kwargs) -> R:
        """Run, capture or replay the function; return its result. The device may still be working.

        Raises as listed in the class.
        """
        simple = self._simple
        if simple is not None and len(args) == len(simple) and not names and CAPTURE.now is None:
            captured: Any = self._captured
            given: list[Any] = []
            for a, e in zip(args, simple):  # noqa: B905 - of one length
                if a.__class__ is not Tensor:
                    break
                if a.expr is not e:
                    realize_for_reading(a)
                    if a.expr is not e:
                        break
                given.append(a.leaves[0].buffer)
            else:
                result: R = captured.run(args, given)
                return result
        return cast("R", self._slow(args, names))

    def _slow(self, args: tuple[Any, ...], names: dict[str, Any]) -> Any:
        if CAPTURE.now is not None or not (config().jit or self.loaded):
            return self.fn(*args, **names)
        if self._captured is not None and self._captured.device.closed:
            raise UsageError(
                f"{self!r} was captured on {self._captured.device.name}, which was closed; reset() it"
            )
        tensors: list[Tensor] = []
        known: dict[Any, Any] = {}
        shape = flattened((args, by_name(self.fn, names)), tensors, "", strict=False, known=known)
        self.calls += 1
        if self.calls == 1:
            return self._first(args, names, tensors)
        if grad_state.anyone():
            for t in tensors:
                realize_for_reading(t)
        realize_many(tensors)
        if self._captured is None:
            with LOCK:
                if self._captured is None:  # another thread may have captured it
                    return self._capture(shape, tensors)
        self._check(shape, tensors, known.get(NUMBERS, []))
        given = [tensors[i].leaves[0].buffer for i in self._captured.inputs]
        return self._captured.run(tensors, given)

    def _first(self, args: tuple[Any, ...], names: dict[str, Any], tensors: list[Tensor]) -> Any:
        """Run the function for the first time, and record the outside tensors that it uses."""
        with LOCK:
            EPOCH[0] += 1
        with recorded_uses() as uses:
            result = self.fn(*args, **names)
            with LOCK:
                returned = tensors_of(result)
                for t in returned:
                    refresh(t)  # records what a pending result is built from
        self._returned = [weakref.ref(t) for t in returned]
        arguments = {id(t) for t in tensors}
        self._outside = [use for use in uses if id(use()) not in arguments]
        return result

    def _check(self, shape: Any, tensors: list[Tensor], numbers: list[Any]) -> None:
        """Raise `UsageError` for arguments that differ from the captured ones, naming the first."""
        captured = self._captured
        assert captured is not None  # checked by the caller
        equal = not self._objects and shape == self._args and numbers == self._numbers
        if not equal and not alike(shape, self._args):
            raise UsageError(
                f"{self!r} was captured with arguments {self._args}, it was called with {shape}\n"
                "hint: only values of tensors may change between calls; use another TinyJit for other numbers"
            )
        for i, (t, e) in enumerate(zip(tensors, captured.expect, strict=True)):
            if t.expr is not e:
                raise UsageError(
                    f"argument {i} of {self!r}: captured as {e.dtype.name}{list(e.shape)} on {e.device}, "
                    f"seen {t.dtype.name}{list(t.shape)} on {t.device}\n"
                    "hint: a capture is for one shape; pad a smaller last batch, leave it out, or give it to "
                    ".fn, the function that was captured"
                )

    def _capture(self, shape: Any, tensors: list[Tensor]) -> Any:
        """Run the function on copies of its arguments and record it; make the captured form."""
        settle()
        uses = [use() for use in self._outside]
        outside: list[tuple[TensorBase, TensorBase | None]]
        outside = [(t, root_of(t)) for t in uses if t is not None]
        for t, _ in outside:  # pending values may be all that keeps a root alive
            own(t)
        self._outside = []
        stand_ins = [
            Tensor.of_part((t.expr, (Leaf(Device[t.device].copied(t.leaves[0].buffer)),))) for t in tensors
        ]
        given = [t.leaves[0].buffer for t in stand_ins]
        capture = Capture()
        before = {id(t): grad_state.grad_of(t) for t in grad_state.wanting()}
        for g in before.values():
            if g is not None:  # backward inside adds to its memory
                own(g)
        capture.modes.depend("default dtype", "the default dtype", Tensor, default_dtype)
        CAPTURE.now = capture
        lower, THREAD.lower = THREAD.lower, lowered
        try:
            args, names = filled(shape, stand_ins)
            watch = guards.NameWatch(self.fn, others_of((args, names)), who=repr(self))
            result = self.fn(*args, **names)
            returned: list[Tensor] = []
            sizes: dict[Any, Any] = {}
            nest = flattened(result, returned, f"{self!r} returns", strict=True, known=sizes)
            sizes.pop(NUMBERS, None)
            outside += self._own_returned(capture, stand_ins, returned)
            realize_many([*pending(), *returned])
            for i, (t, b) in enumerate(zip(stand_ins, given, strict=True)):
                if t.expr.op is not PARAM or t.leaves[0].buffer is not b:
                    raise UsageError(
                        f"{self!r} replaces its argument {i}: the caller's tensor would not change\n"
                        "hint: return the new value, or assign it"
                    )
            capture.relations = relations(returned)
            results = results_of(capture, stand_ins, returned, frozenset(sizes.values()))
            del result, args, names
            capture.guards = watch.guards()
            mine = [t for t in grad_state.wanting() if (GRAD, id(t)) in capture.modes.own]
            capture.modes.cleared = [weakref.ref(t) for t in mine if grad_state.grad_of(t) is None]
            if any(isinstance(key, tuple) and key[0] == "requires_grad" for key in capture.modes.reads):
                for t in watch.tensors():  # a gradient would flow to those that require one later
                    grad_state.depend(capture.modes, t)
            refuse_leftovers(capture, stand_ins, returned, before, who=repr(self))
        finally:
            CAPTURE.now = None
            THREAD.lower = lower
        label = getattr(self.fn, "__name__", "jit")
        captured = captured_form(capture, stand_ins, results, nest, who=repr(self), label=label)
        captured.roots = [root for t, root in outside if root is not t]
        captured.check_arguments(tensors)
        for i in captured.assigned:
            tensors[i].assign(stand_ins[i]).realize()
        self._replays(captured, shape)
        made = [
            tensors[r] if r.__class__ is int else t for r, t in zip(captured.results, returned, strict=True)
        ]
        relate(made, capture.relations)
        return filled(nest, made)

    def _own_returned(
        self, capture: Capture, stand_ins: list[Tensor], returned: list[Tensor]
    ) -> Sequence[tuple[TensorBase, TensorBase | None]]:
        """Give returned tensors from outside memory, of which replays return copies; return all roots."""
        before = {id(ref()) for ref in self._returned} - {id(None), *map(id, stand_ins)}
        self._returned, outside = [], [(t, root_of(t)) for t in returned if id(t) in before]
        CAPTURE.now = None
        try:
            for t, _ in outside:
                if t.expr.op is PARAM or t.recipe.__class__ is not Rebound:
                    own(t)
        finally:
            CAPTURE.now = capture
        return outside

    def _replays(self, captured: Captured, shape: Any) -> None:
        """Replay a captured form from now on, for arguments of the given containers."""
        count = len(captured.expect)
        simple = shape == (tuple([Placeholder(i) for i in range(count)]), {})
        only = captured.results[0] if captured.nest.__class__ is Placeholder else None
        captured.plain = only[0] if isinstance(only, tuple) else None
        self._captured, self._args, self._numbers = captured, shape, numbers_of(shape)
        self._objects = any(map(holds_tensors, others_of(shape)))
        self._simple = captured.expect if simple and captured.inputs == list(range(count)) else None

    def __repr__(self) -> str:
        function = self.fn.func if isinstance(self.fn, partial) else self.fn
        return f"<TinyJit {getattr(function, '__name__', type(function).__name__)}>"
