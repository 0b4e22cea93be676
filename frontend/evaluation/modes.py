"""Modes from outside that a captured function reads: training, mixed precision, gradients and their wants.

A replay repeats what the function did in the modes of its capture. The capture records each mode that is read
from outside, and a replay in another one raises `UsageError`. A mode that the function sets itself is none
from outside; the modes of layers that it sets are set by each replay, too.

`CHANGES` counts all changes, so that a replay looks at the modes only after one.

Not here: the modes (`Tensor.train`, `nn.Module.training`, `nn.amp.autocast`, `Tensor.requires_grad`), the
capture (`frontend.capture`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from frontend.evaluation.base import TensorBase
from frontend.evaluation.plan import CAPTURE
from hcq.errors import UsageError

CHANGES: Final = [0]
"""One number: it grows whenever a mode may have changed."""
GRAD: Final = "grad"
"""Starts the keys of gradients: (GRAD, id of the tensor)."""
TRAIN: Final = "Tensor.train"
MIXED: Final = "nn.amp.autocast"


_MODE: Final = (
    "capture one function for each mode, or reset() it; a mode that the function sets itself is that of each "
    "replay"
)
_GRADIENT: Final = "set .grad to None before the call, and call backward() inside the function"


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
    """The modes that a `with` block of the function holds, one for each block."""
    own: set[Hashable] = field(default_factory=set)
    """The modes that the function set, which later reads are not from outside."""
    layers: dict[int, tuple[weakref.ref[Any], bool]] = field(default_factory=dict)
    """Layers whose mode the function set, and the last one."""
    cleared: list[weakref.ref[Any]] = field(default_factory=list)
    """Tensors whose gradients the function removed."""
    seen: int = -1
    """`CHANGES` when the modes were last those of the capture."""

    def depend(self, key: Hashable, what: str, owner: Any, now: Callable[[Any], Any]) -> None:
        """Record a mode of an owner, unless the function has set it itself."""
        if key not in self.inside and key not in self.own:
            self.reads.setdefault(key, _Read(what, weakref.ref(owner), now, now(owner)))

    def check(self, name: str) -> None:
        """Raise `UsageError` if a mode is not that of the capture of `name`; set those of layers."""
        for key, read in self.reads.items():
            owner = read.owner()
            if owner is None:
                continue
            now = read.now(owner)
            if now is not read.value:
                before, now = ("a tensor" if hasattr(x, "expr") else x for x in (read.value, now))
                raise UsageError(
                    f"{read.what} was {before} when {name} was captured, and is {now} now\nhint: "
                    + (_GRADIENT if isinstance(key, tuple) and key[0] == GRAD else _MODE)
                )
        for ref, mode in self.layers.values():
            layer = ref()
            if layer is not None:
                layer.__dict__["training"] = mode
        for ref in self.cleared:
            t = ref()
            if t is not None:
                t.state.value = None
        self.seen = CHANGES[0]


def changed(*keys: Hashable) -> None:
    """Count a change of modes; a function that is being captured has set those of `keys` itself."""
    CHANGES[0] += 1
    if CAPTURE.now is not None:
        CAPTURE.now.modes.own.update(keys)


def read(key: Hashable, what: str, owner: Any, now: Callable[[Any], Any]) -> Any:
    """Return a mode of an owner, and record it if a function that is being captured reads it from outside."""
    value = now(owner)
    if CAPTURE.now is not None:
        CAPTURE.now.modes.depend(key, what, owner, now)
    return value


@contextmanager
def block(key: Hashable) -> Iterator[None]:
    """Hold a mode inside a `with` block, which sets it first and restores it afterwards."""
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


def _of_class(tensors: type[TensorBase]) -> bool | None:
    return tensors.training


def training(tensors: type[TensorBase]) -> bool | None:
    """Return the mode of the surrounding `Tensor.train`, None outside."""
    found: bool | None = read(TRAIN, f"the mode of {TRAIN}", tensors, _of_class)
    return found
