"""Captured functions: call 1 runs, call 2 runs and is captured, later calls replay one executable.

What a replay guarantees:

- Arguments are tensors (or nests of them) of the shapes, dtypes and device that were captured; other
arguments must be equal to the captured ones. At capture each tensor is replaced by a copy, so the same
tensor given twice, or also used from outside, is told apart.
- Tensors used from outside are captured by their memory: `assign` stores in place, so later values are
seen, also pending ones.
- `assign` inside stores in place at each replay; whoever still means the old contents gets a copy of them
first.
- What is returned is new memory at each call and belongs to the caller; a returned tensor that the
function assigned is itself.
- Random draws are fresh at each replay, and the same as without capture.

Whatever could not be replayed is an error at capture: asking for a value, making tensors of host data,
moving between devices, assigning to an argument, keeping a computed tensor or a gradient outside without
returning it.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from functools import partial, update_wrapper
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

from frontend import marks
from frontend.capture import Capture, Place, filled, flattened, kernels_of
from frontend.device import LOCK, Device, OpenDevice
from frontend.expr import PARAM, Expr
from frontend.launch import assemble
from frontend.ops.random import GENERATOR
from frontend.plan import CAPTURE, LARGE_BYTES
from frontend.realize import PENDING, pending, realize_many
from frontend.stats import stats
from frontend.storage import Leaf, home_of, keep
from frontend.tensor import Tensor
from hcq.config import config
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import hcq

P = ParamSpec("P")
R = TypeVar("R")
_new = object.__new__


# -- the captured form ---------------------------------------------------------------------------------
@dataclass(slots=True)
class Captured:
    """A function as one executable.

    `replay` takes the buffers of arguments, then of draws, then of outputs.
    """

    device: OpenDevice
    kernels: int
    expect: list[Expr]
    """The leaf expression of each argument: shape, dtype and device in one identity."""
    inputs: list[int]
    """The arguments that the executable reads, in its order."""
    draws: list[bool]
    """For each random draw of the function, whether the executable reads it."""
    sizes: list[int]
    """Bytes of each new output."""
    results: list[tuple[Expr, int] | Tensor | int]
    """For each returned tensor.

    Its expression and which new output; or the captured tensor itself; or which argument.
    """
    nest: Any
    states: list[tuple[Tensor, hcq.Buffer]]
    """Tensors that are assigned to, and their memory."""
    written: frozenset[hcq.Buffer]
    executable: hcq.Executable | None
    large: bool
    """Whether the executable lets go of the buffers that it was bound to at once."""
    plain: Expr | None = None
    """The expression of the one new tensor, when that is all that is returned."""

    def run(self, tensors: Sequence[Tensor], given: list[hcq.Buffer]) -> Any:
        """Replay with the buffers of the arguments."""
        with LOCK:
            if PENDING:
                _settle()
            if self.states:
                self.apart(tensors)
                self._guard(given)
            alloc = self.device.hcq.alloc
            for used in self.draws:
                words = GENERATOR.next()
                if used:
                    given.append(self.device.write_small(words))
            outs = [alloc(size) for size in self.sizes]
            given += outs
            if self.executable is not None:
                self.executable.replay(given)
                if self.large:
                    self.executable.forget()
            stats.kernels += self.kernels
            stats.launches += 1
            if self.plain is not None:
                return Tensor.of_part((self.plain, (Leaf(outs[0]),)))
            leaves = [Leaf(b) for b in outs]
            made: list[Tensor] = []
            for result in self.results:
                if isinstance(result, tuple):
                    made.append(Tensor.of_part((result[0], (leaves[result[1]],))))
                else:
                    made.append(tensors[result] if isinstance(result, int) else result)
            return filled(self.nest, made)

    def apart(self, tensors: Sequence[Tensor]) -> None:
        """Refuse an argument that the function also assigns to from outside.

        Is its old or its new value meant?
        """
        for t, _ in self.states:
            for i, argument in enumerate(tensors):
                if argument is t:
                    raise UsageError(
                        f"argument {i} ({t!r}) is also assigned to by the captured function, from outside\n"
                        "hint: use it in one of the two ways; .detach() means the value before the call"
                    )

    def _guard(self, given: list[hcq.Buffer]) -> None:
        """Keep the old contents of what is written in place for those who still mean them."""
        for t, buffer in self.states:
            if t.expr.op is not PARAM or t.leaves[0].buffer is not buffer:
                raise UsageError(
                    f"{t!r} is assigned to by a captured function, but was replaced since; capture it anew"
                )
            home = home_of(t.leaves[0])
            before = home.current
            t.leaves = (home.advance(),)
            copied = keep(before, self.device)
            if copied is not None:
                given[:] = [copied if b is buffer else b for b in given]
        if not self.written.isdisjoint(given):
            given[:] = [self.device.copied(b) if b in self.written else b for b in given]


def _settle() -> None:
    """Compute what is assigned but pending: a replay reads memory."""
    realize_many(pending())


class TinyJit(Generic[P, R]):
    """Wrap a function of tensors so that from its third call on it is one launch: see the module."""

    def __init__(self, fn: Callable[P, R]) -> None:
        self.fn = fn
        self.calls = 0
        self._args: list[Any] = []
        self._names: dict[str, Any] = {}
        self._captured: Captured | None = None
        self._simple: list[Expr] | None = None
        """The expressions of the arguments when all are plain tensors given by position."""
        self._bound: weakref.WeakKeyDictionary[object, TinyJit[Any, Any]] = weakref.WeakKeyDictionary()
        update_wrapper(self, fn)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Bind to an instance: each has a capture of its own."""
        if instance is None:
            return self
        found = self._bound.get(instance)
        if found is None:
            found = self._bound[instance] = TinyJit(partial(self.fn, weakref.proxy(instance)))
        return found

    @property
    def captured(self) -> Captured | None:
        """The captured form, None before the second call."""
        return self._captured

    def reset(self) -> None:
        """Forget the capture: the next call runs, the one after that is captured."""
        self.calls = 0
        self._captured = None
        self._simple = None

    def __call__(self, *args: P.args, **names: P.kwargs) -> R:
        """Run, capture or replay the function."""
        simple = self._simple
        if simple is not None and len(args) == len(simple) and not names and CAPTURE.now is None:
            captured: Any = self._captured
            given: list[Any] = []
            for a, e in zip(args, simple):  # noqa: B905 - of one length
                if a.__class__ is not Tensor:
                    break
                if a.expr is not e:
                    a.realize()
                    if a.expr is not e:
                        break
                given.append(a.leaves[0].buffer)
            else:
                result: R = captured.run(args, given)
                return result
        return cast("R", self._slow(args, names))

    def _slow(self, args: tuple[Any, ...], names: dict[str, Any]) -> Any:
        if CAPTURE.now is not None or not config().jit:
            return self.fn(*args, **names)
        if self._captured is not None and self._captured.device.hcq.closed:
            raise UsageError(
                f"{self!r} was captured on {self._captured.device.name}, which was closed; reset() it"
            )
        tensors: list[Tensor] = []
        shape = flattened((args, names), tensors, "", strict=False)
        self.calls += 1
        if self.calls == 1:
            return self.fn(*args, **names)
        realize_many(tensors)
        if self._captured is None:
            with LOCK:
                if self._captured is None:  # not by another thread, meanwhile
                    return self._capture(shape, tensors)
        self._check(shape, tensors)
        given = [tensors[i].leaves[0].buffer for i in self._captured.inputs]
        return self._captured.run(tensors, given)

    def _check(self, shape: Any, tensors: list[Tensor]) -> None:
        """Refuse arguments unlike the captured ones, naming the first that differs."""
        captured = self._captured
        assert captured is not None  # the caller saw to it
        if shape != self._args:
            raise UsageError(
                f"{self!r} was captured with arguments {self._args}, it was called with {shape}\n"
                "hint: a tensor may change its value from call to call; for other numbers make another"
            )
        for i, (t, e) in enumerate(zip(tensors, captured.expect, strict=True)):
            if t.expr is not e:
                raise UsageError(
                    f"argument {i} of {self!r}: captured as {e.dtype.name}{list(e.shape)} on {e.device}, "
                    f"seen {t.dtype.name}{list(t.shape)} on {t.device}"
                )

    def _capture(self, shape: Any, tensors: list[Tensor]) -> Any:
        """Run the function on copies of its arguments, watching; keep what can be replayed."""
        _settle()
        stand_ins = [
            Tensor.of_part((t.expr, (Leaf(Device[t.device].copied(t.leaves[0].buffer)),))) for t in tensors
        ]
        capture = Capture()
        before = {id(t): t.grad for t in marks.wanting()}
        CAPTURE.now = capture
        try:
            args, names = filled(shape, stand_ins)
            result = self.fn(*args, **names)
            del args, names
            returned: list[Tensor] = []
            nest = flattened(result, returned, f"{self!r} returns", strict=True)
            _settle()
            realize_many(returned)
            results = self._results(capture, stand_ins, returned)
            self._no_leftovers(capture, returned, before)
        finally:
            CAPTURE.now = None
        captured = self._assembled(capture, stand_ins, results, nest)
        captured.apart(tensors)
        self._captured, self._args = captured, shape
        simple = shape == (tuple([Place(i) for i in range(len(tensors))]), {}) and captured.inputs == list(
            range(len(tensors))
        )
        self._simple = captured.expect if simple else None
        only = captured.results[0] if nest.__class__ is Place else None
        captured.plain = only[0] if isinstance(only, tuple) else None
        return filled(
            nest,
            [
                tensors[r] if r.__class__ is int else t
                for r, t in zip(captured.results, returned, strict=True)
            ],
        )

    def _results(
        self, capture: Capture, stand_ins: list[Tensor], returned: list[Tensor]
    ) -> list[tuple[Expr, hcq.Buffer] | Tensor | int]:
        """Say of each returned tensor what it is: an argument, a captured tensor, or new memory."""
        arguments = {t.leaves[0].buffer: i for i, t in enumerate(stand_ins)}
        found: list[tuple[Expr, hcq.Buffer] | Tensor | int] = []
        for i, t in enumerate(returned):
            buffer = t.leaves[0].buffer
            if any(t is s for s in stand_ins):
                found.append(arguments[buffer])
            elif buffer in capture.states and capture.states[buffer] is t:
                found.append(t)
            elif buffer in capture.leaves:
                found.append((t.expr, buffer))
            else:
                copy = t.contiguous().realize()
                returned[i] = copy
                found.append((copy.expr, copy.leaves[0].buffer))
        return found

    def _no_leftovers(
        self, capture: Capture, returned: list[Tensor], before: dict[int, Tensor | None]
    ) -> None:
        """Refuse what was kept outside and would not be computed anew."""
        for t in marks.wanting():
            if t.grad is not None and t.grad is not before.get(id(t)):
                raise UsageError(
                    f"{self!r} leaves a gradient in {t!r}, which replays would not update\n"
                    "hint: step the optimiser inside, or return the gradient and clear .grad"
                )
        kept = {t.leaves[0] for t in returned}
        for ref in capture.leaves.values():
            leaf = ref()
            if leaf is not None and leaf not in kept and leaf.buffer not in capture.states:
                raise UsageError(
                    f"{self!r} computes a tensor ({leaf.buffer!r}) that is kept outside, "
                    "where replays would not update it\n"
                    "hint: return it, or assign it to a tensor made before"
                )

    def _assembled(
        self,
        capture: Capture,
        stand_ins: list[Tensor],
        results: list[tuple[Expr, hcq.Buffer] | Tensor | int],
        nest: Any,
    ) -> Captured:
        """Make one executable of all launches."""
        kernels = kernels_of(capture)
        arguments = [t.leaves[0].buffer for t in stand_ins]
        written = {k.memory[i] for k in kernels for i in k.stores}
        for i, b in enumerate(arguments):
            if b in written:
                raise UsageError(
                    f"{self!r} assigns to its argument {i}: the caller's tensor would not change\n"
                    "hint: return the new value, or assign to a tensor from outside"
                )
        device = self._device(capture, stand_ins)
        touched = {b for k in kernels for b in k.memory}
        inputs = [i for i, b in enumerate(arguments) if b in touched]
        draws = [b in touched for b in capture.draws]
        outputs = list(dict.fromkeys([r[1] for r in results if isinstance(r, tuple)]))
        params = [(arguments[i], stand_ins[i].nbytes() or 1) for i in inputs]
        params += [(b, 16) for b in capture.draws if b in touched]
        params += [(b, b.size) for b in outputs]
        inside = {*capture.leaves, *capture.snapshots}
        fixed = {b: cast("hcq.Buffer", b) for b in touched if not isinstance(b, tuple) and b not in inside}
        for b, _ in params:
            fixed.pop(b, None)
        executable = None
        if kernels:
            label = getattr(self.fn, "__name__", "jit")
            executable = assemble(device, kernels, params, fixed, label=label)
        return Captured(
            device=device,
            kernels=len(kernels),
            expect=[t.expr for t in stand_ins],
            inputs=inputs,
            draws=draws,
            sizes=[b.size for b in outputs],
            results=[(r[0], outputs.index(r[1])) if isinstance(r, tuple) else r for r in results],
            nest=nest,
            states=[(t, b) for b, t in capture.states.items()],
            written=frozenset(capture.states),
            executable=executable,
            large=sum([size for _, size in params]) >= LARGE_BYTES,
        )

    def _device(self, capture: Capture, stand_ins: list[Tensor]) -> OpenDevice:
        devices = {plan.device.name for plan, _, _ in capture.steps if plan is not None} | {
            t.device for t in stand_ins
        }
        if len(devices) > 1:
            raise UsageError(
                f"{self!r} uses several devices ({', '.join(sorted(devices))}); capture one function for each"
            )
        return Device[devices.pop()] if devices else Device[Device.DEFAULT]

    def __repr__(self) -> str:
        name = getattr(self.fn, "__name__", None) or repr(self.fn)
        return f"<TinyJit {name}>"
