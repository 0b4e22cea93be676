"""The state of a tensor, and the four methods that functions of tensors need.

No other tensor module is imported. Functions that return a tensor of the class of their argument are generic
in `T`. Functions that only read or change tensors take a `TensorBase`. Not here: the class that users see,
with all its methods (`frontend.tensor`). Next: `expr`, the expression of a tensor.
"""

from __future__ import annotations

import threading
from abc import ABCMeta, abstractmethod
from collections import deque
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Self, TypeVar

if TYPE_CHECKING:
    import weakref
    from collections.abc import Callable, Mapping

    from compiler.dtype import DType
    from frontend.evaluation.expr import Leaves, Part, TensorExpr

T = TypeVar("T", bound="TensorBase")
"""A class of tensors; the only one is `frontend.tensor.Tensor`."""
_new = object.__new__
BORROWED: Final = -1
"""The `version` of a `Rebound` whose tensor uses the memory of another tensor."""
EPOCH: Final = [1]
"""A counter in a list: it grows whenever a tensor that others were built from is realized."""
LOWERED: Final = frozenset({
    "matmul", "rmatmul", "mm", "bmm", "addmm", "addbmm", "baddbmm", "einsum", "linear", "conv2d",
    "conv_transpose2d", "prelu",
})  # fmt: skip
"""Names of the functions of tensors that compute in the dtype of `nn.amp.autocast`."""


class _ModesOfThread(threading.local):
    """The modes of the current thread; each thread begins with these."""

    depth: int = 0
    """The nesting depth of traces. Inside a trace every number is part of the structure."""
    cut: bool = False
    """Whether gradients are off: results outside traces pass no gradient on."""
    before: tuple[bool, ...] = ()
    """`cut` outside of each open block of `no_grad`, `enable_grad` and `inference_mode`."""
    precision: DType | None = None
    """The dtype of the surrounding block of `nn.amp.autocast`; None: outside, or not enabled."""
    lower: Callable[..., tuple[Any, ...]] | None = None
    """In `nn.amp.autocast` and captures: the function that casts the arguments of one of `LOWERED`."""


THREAD: Final = _ModesOfThread()


class Rebound:
    """The recipe of a tensor that was assigned to. It is not rebuilt, nor is what was built from it before.

    `home` is the memory in which the pending value will be stored, a `frontend.evaluation.storage.Home`; None
    if nothing is pending. `version` is the version of the memory's contents that the tensor had. BORROWED
    instead: the memory belongs to another tensor of the same value, and an assignment must not overwrite it.
    `kept`: an operation in place wrote the tensor, and its history is kept when its value is read; `assign`
    ends it. `first`: nothing was built from the tensor before it was assigned to. `behind`: the pending
    tensors that the value of a tensor without memory was computed from, weakly.
    """

    __slots__ = ("behind", "first", "home", "kept", "version")

    def __init__(self, home: Any, version: int = 0, *, first: bool = False) -> None:
        self.behind: list[weakref.ref[TensorBase]] = []
        self.home = home
        self.version = version
        self.kept = False
        self.first = first


class KeptHistory(Enum):
    """How much of its history a pending tensor keeps when its value is read."""

    KEPT = auto()
    """All that a gradient needs."""
    SPENT = auto()
    """Nothing, because its backward has run; a gradient that would flow through it raises an error."""
    CUT = auto()
    """Nothing, because it is a gradient that `backward` computed."""


class GradientState:
    """The gradient state of a tensor: whether it requires a gradient, and the gradient."""

    __slots__ = ("after", "group", "hooks", "of", "parameter", "past", "used", "value", "wanted")

    def __init__(self) -> None:
        self.wanted: bool | None = None
        """requires_grad; None: never set."""
        self.parameter = False
        """Whether a module has listed it as a parameter; it stays one when it is frozen."""
        self.value: TensorBase | None = None
        """The gradient for the next step of an optimiser; None: there is none."""
        self.used: TensorBase | None = None
        """The gradient of the last step, which `grad` returns until there is another."""
        self.of: weakref.ref[TensorBase] | None = None
        """The tensor whose backward computed `value`; None: it was set otherwise."""
        self.past = KeptHistory.KEPT
        self.hooks: dict[int, Callable[[Any], Any]] = {}
        """What `backward` calls with the gradient, by number of registration."""
        self.after: dict[int, Callable[[Any], Any]] = {}
        """What `backward` calls with the tensor once its gradient was added."""
        self.group: list[weakref.ref[TensorBase]] = []
        """The gradients of one `backward` with its tensor, computed together when the host reads one."""


Family = deque["weakref.ref[TensorBase]"]
"""Weak references to the tensors that share elements (`frontend.evaluation.views`)."""


class FamilyLink(NamedTuple):
    """The membership of a tensor in a family."""

    family: Family
    parent: FamilyLink | None
    """The link of the tensor that the view was taken from; None for the root."""
    read: Any
    """The function that took the view; for the root, the expression of its memory."""
    args: tuple[Any, ...] = ()
    """Further positional arguments of `read`; `names` are the named ones."""
    names: dict[str, Any] | None = None


INTERNAL: Final = frozenset({
    *("epoch", "expr", "leaves", "link", "of_part", "operand", "parameter", "reached", "recipe"),
    *("state", "symbolic_rules", "training", "used"),
})  # fmt: skip
"""Members that only functions of tensors use, and that `dir` does not list."""


class _Listed(ABCMeta):
    """The metaclass of tensors, whose `dir` lists only members for users."""

    def __dir__(cls) -> list[str]:
        return [name for name in super().__dir__() if name not in INTERNAL]


class TensorBase(metaclass=_Listed):
    """The state of a tensor: an expression, the realized leaves that it is over, and its recipe."""

    __slots__ = ("__weakref__", "epoch", "expr", "leaves", "link", "reached", "recipe", "state", "used")

    expr: TensorExpr
    leaves: Leaves
    recipe: tuple[Any, ...] | Rebound | None
    """A function and its arguments, which rebuild a pending tensor; None: it is not rebuilt."""
    used: bool
    """Whether other tensors were built from it."""
    epoch: int
    """The `EPOCH` in which the expression was last known to be current; 0 inside a trace."""
    reached: bool
    """Set once a value that is computed from it was read while it was pending (`history`); else unset."""
    state: GradientState
    link: FamilyLink
    """Its membership in a family of views; unset for a tensor that has no views and is none."""
    symbolic_rules: ClassVar[Mapping[str, Callable[..., Any]]]
    """Name of a method -> its rule for arguments with symbolic sizes; see `frontend.symbolic`."""
    training: ClassVar[bool | None] = None
    """The mode inside `frontend.Tensor.train`; None outside, where layers have their own."""

    @classmethod
    def of_part(cls, part: Part) -> Self:
        """Return a tensor of an expression and its leaves, without a recipe."""
        t = _new(cls)
        t.expr, t.leaves = part
        t.recipe = None
        t.used = False
        t.epoch = EPOCH[0]
        return t

    def __dir__(self) -> list[str]:
        return dir(type(self))

    @abstractmethod
    def operand(self, value: Any) -> Any:
        """Return a value as the other operand of this tensor: a tensor on its device, or a Python number."""

    @abstractmethod
    def parameter(self, value: float, dtype: DType | None = None) -> Self:
        """Return a number as a tensor of shape () in memory, so that other numbers use the same kernel."""

    @abstractmethod
    def to(self, device: str | DType | TensorBase | None = None, dtype: DType | str | None = None) -> Self:
        """Return the value on another device; arguments and errors are those of `frontend.transfer.to`."""

    @abstractmethod
    def item(self) -> Any:
        """Return the only element as a Python number; see `frontend.tensor.Tensor.item`."""
