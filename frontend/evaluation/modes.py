"""Modes from outside that a captured function reads: training, mixed precision, requires_grad, gradients.

A replay repeats what the function did in the modes of its capture. The capture records each mode that the
function reads from outside, and a replay in another mode raises `UsageError`. A mode that the function sets
itself is not recorded when it is read later. Layers whose mode the function sets get that mode at each
replay, too.

`CHANGES` counts all changes of modes, so that a replay compares modes only after a change.

Not here: the modes (`Tensor.train`, `nn.Module.training`, `nn.amp.autocast`, `Tensor.requires_grad`), the
capture (`frontend.capture`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from compiler.dtype import DType
from frontend.arguments.checks import FLOAT
from frontend.evaluation.base import THREAD, TensorBase
from frontend.evaluation.plan import CAPTURE
from hcq.errors import UsageError

CHANGES: Final = [0]
"""A counter in a list: it grows whenever a mode may have changed."""
GRAD: Final = "grad"
"""The first item of the key of a gradient: (GRAD, id of the tensor)."""
TRAIN: Final = "Tensor.train"
"""The key of the mode of `Tensor.train`."""
MIXED: Final = "nn.amp.autocast"
"""The key of the mode of `nn.amp.autocast`."""
HOOKS: Final[list[Any]] = [None]
"""The hooks of all modules, a `frontend.nn.hooks.Hooks`; None: there were never any."""

_MODE: Final = (
    "capture one function for each mode, or reset() it; a mode that the function sets itself is that of each "
    "replay"
)
_GRADIENT: Final = (
    "set .grad to None before the call, and call backward() inside the function; or keep the gradient that "
    "was captured, and set it to zeros in place: zero_grad(set_to_none=False)"
)


@dataclass(frozen=True, slots=True)
class _Read:
    """One mode of one owner, and its value in the capture."""

    what: str
    owner: weakref.ref[Any]
    now: Callable[[Any], Any]
    """The function that reads the mode of its owner."""
    value: Any


@dataclass(slots=True)
class Modes:
    """The modes that one captured function read and set."""

    reads: dict[Hashable, _Read] = field(default_factory=dict)
    inside: list[Hashable] = field(default_factory=list)
    """The keys of modes that `with` blocks of the function have set, one for each open block."""
    own: set[Hashable] = field(default_factory=set)
    """The keys of modes that the function has set."""
    layers: dict[int, tuple[weakref.ref[Any], bool]] = field(default_factory=dict)
    """id of a layer whose mode the function set -> (layer, its last mode)."""
    cleared: list[weakref.ref[Any]] = field(default_factory=list)
    """Tensors whose gradients the function removed."""
    seen: tuple[int, DType | None] = -1, None
    """`CHANGES` and the precision of the thread when `check` last passed; -1: never."""

    def depend(self, key: Hashable, what: str, owner: Any, now: Callable[[Any], Any]) -> None:
        """Record that the function reads a mode of an owner, unless the function has set that mode itself.

        `now(owner)` is the mode; `what` names it in an error.
        """
        if key not in self.inside and key not in self.own:
            self.reads.setdefault(key, _Read(what, weakref.ref(owner), now, now(owner)))

    def changed(self) -> tuple[Hashable, str, Any, Any] | None:
        """Return (key, name, value now, value before) of a mode that is not that of the capture, else None.

        A tensor as value is "a tensor".
        """
        for key, read in self.reads.items():
            owner = read.owner()
            now = read.value if owner is None else read.now(owner)
            if now is not read.value:
                shown = ["a tensor" if hasattr(x, "expr") else x for x in (now, read.value)]
                return key, read.what, shown[0], shown[1]
        return None

    def check(self, name: str) -> None:
        """Raise `UsageError` if a mode is not that of the capture of `name`, a function.

        Then repeat its changes: set the modes of `layers`, remove the gradients of `cleared`.
        """
        changed = self.changed()
        if changed is not None:
            key, what, now, before = changed
            raise UsageError(
                f"{what} was {before} when {name} was captured, and is {now} now\nhint: "
                + (_GRADIENT if isinstance(key, tuple) and key[0] == GRAD else _MODE)
            )
        for ref, mode in self.layers.values():
            layer = ref()
            if layer is not None:
                layer.__dict__["training"] = mode
        for ref in self.cleared:
            t = ref()
            if t is not None:
                t.state.value = t.state.used = None
        self.seen = CHANGES[0], THREAD.precision


def changed(*keys: Hashable) -> None:
    """Count a change of modes. A capture under way notes that its function has set the modes of `keys`."""
    CHANGES[0] += 1
    if CAPTURE.now is not None:
        CAPTURE.now.modes.own.update(keys)


def read(key: Hashable, what: str, owner: Any, now: Callable[[Any], Any]) -> Any:
    """Return `now(owner)`, a mode; a capture under way records that its function reads it."""
    value = now(owner)
    if CAPTURE.now is not None:
        CAPTURE.now.modes.depend(key, what, owner, now)
    return value


@contextmanager
def block(key: Hashable) -> Iterator[None]:
    """Note that the `with` block sets a mode and restores it; the caller changes the mode inside."""
    modes: Modes | None = None if CAPTURE.now is None else CAPTURE.now.modes
    changed()
    if modes is not None:
        modes.inside.append(key)
    try:
        yield
    finally:
        changed()
        if modes is not None:
            modes.inside.remove(key)


class Training:
    """The attribute `training` of layers: a bool, True until it is set."""

    def __get__(self, layer: Any, kind: type) -> Any:
        return True if layer is None else read(id(layer), f"training of {type(layer).__name__}", layer, _own)

    def __set__(self, layer: Any, mode: bool) -> None:  # noqa: FBT001 - as Python calls it
        changed(id(layer))
        if CAPTURE.now is not None:
            modes: Modes = CAPTURE.now.modes
            modes.layers[id(layer)] = weakref.ref(layer), mode
        layer.__dict__["training"] = mode


def _own(layer: Any) -> bool:
    found: bool = layer.__dict__.get("training", True)
    return found


def training(tensors: type[TensorBase]) -> bool | None:
    """Return the mode of the surrounding `Tensor.train` block, None outside of one."""
    found: bool | None = read(TRAIN, f"the mode of {TRAIN}", tensors, lambda t: t.training)
    return found


def _precision(tensors: type[TensorBase]) -> DType | None:
    del tensors
    return THREAD.precision


def default_dtype(tensors: type[TensorBase]) -> DType:
    """Return the dtype of new tensors of floats, which every captured function depends on."""
    del tensors
    return FLOAT[0]


def mixed() -> DType | None:
    """Return the dtype of the surrounding `nn.amp.autocast`, None outside."""
    found: DType | None = read(MIXED, f"the dtype of {MIXED}", TensorBase, _precision)
    return found


@contextmanager
def exact() -> Iterator[None]:
    """Compute as outside of `nn.amp.autocast` inside a `with` block."""
    before, THREAD.precision = THREAD.precision, None
    try:
        yield
    finally:
        THREAD.precision = before


def lowered(*values: Any) -> tuple[Any, ...]:
    """Return float tensors of at most 32 bits in the dtype of `nn.amp.autocast`, all else unchanged."""
    dtype = mixed()
    if dtype is None:
        return values
    return tuple([v.cast(dtype) if _mixes(v) else v for v in values])


def _mixes(value: Any) -> bool:
    return hasattr(value, "expr") and value.expr.dtype.is_float and value.expr.dtype.bits <= 32
