"""What a tensor keeps, and what functions of tensors may ask of one: the lowest module that knows tensors.

Functions that give a tensor of the class of their argument are written of `T`; what only reads or changes
tensors takes a `TensorBase`. Not here: the methods and their names (`frontend.tensor`), which stand above all
of those functions.
"""

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Self, TypeVar

if TYPE_CHECKING:
    import weakref

    from compiler.dtype import DType
    from frontend.expr import Expr, Leaves, Part

T = TypeVar("T", bound="TensorBase")
"""A class of tensors; there is one, `frontend.tensor.Tensor`."""
_new = object.__new__
BORROWED: Final = -1
"""The version in a `Rebound` whose memory belongs to another tensor."""
EPOCH: Final = [1]
"""Grows whenever a tensor that others were built from is realized."""


class Rebound:
    """The recipe of a tensor that was assigned to: it is never rebuilt, nor is what was built from it.

    `home` is the memory that the pending value will be stored to, a `frontend.storage.Home`, and `version`
    which version of its contents the tensor had; None when nothing is pending. BORROWED stands for the
    version of memory that belongs to another tensor of the same value: an assign does not store there.
    """

    __slots__ = ("home", "version")

    def __init__(self, home: Any, version: int = 0) -> None:
        self.home = home
        self.version = version


class Past(Enum):
    """What a pending tensor keeps of its history when its value is read."""

    KEPT = auto()
    """All that its gradient needs."""
    SPENT = auto()
    """Nothing, as its backward has run; a gradient that would flow through it is refused."""
    CUT = auto()
    """Nothing: it is a gradient that `backward` gave."""


class Gradient:
    """What a tensor that takes part in differentiation keeps.

    Whether it needs a gradient, and the gradient.
    """

    __slots__ = ("of", "past", "value", "wanted")

    def __init__(self) -> None:
        self.wanted: bool | None = None
        self.value: TensorBase | None = None
        self.of: weakref.ref[TensorBase] | None = None
        """The tensor whose backward gave the value."""
        self.past = Past.KEPT


Family = deque["weakref.ref[TensorBase]"]
"""The tensors that share elements; some may be dead (`frontend.views`)."""


class Link(NamedTuple):
    """How a tensor belongs to a family."""

    family: Family
    parent: Link | None
    """Of what the view was taken from; None for the root."""
    read: Any
    """The function that took the view; for the root, the expression of its memory."""
    args: tuple[Any, ...] = ()
    names: dict[str, Any] | None = None


class TensorBase:
    """An expression over realized leaves, and what rebuilds it."""

    __slots__ = ("__weakref__", "epoch", "expr", "leaves", "link", "recipe", "state", "used")

    expr: Expr
    leaves: Leaves
    recipe: tuple[Any, ...] | Rebound | None
    """What rebuilds a pending tensor: a function and its arguments."""
    used: bool
    """Whether others were built from it."""
    epoch: int
    state: Gradient
    link: Link
    """How it belongs to a family of views; not set before it has views or is one."""
    training: ClassVar[bool] = False
    """Whether dropout drops and batch norms learn: see `frontend.Tensor.train`."""

    @classmethod
    def of_part(cls, part: Part) -> Self:
        """Return a tensor of an expression and its leaves."""
        t = _new(cls)
        t.expr, t.leaves = part
        t.recipe = None
        t.used = False
        t.epoch = EPOCH[0]
        return t

    # -- what functions below ask of the methods above: see `frontend.tensor`
    def operand(self, value: Any) -> Any:
        """Return what stands for a value beside this tensor: a tensor on its device, or a Python number."""
        raise NotImplementedError

    def parameter(self, value: float) -> Self:
        """Return a number in a one-element buffer: it may change without another kernel."""
        raise NotImplementedError

    def to(self, device: str | DType | None) -> Self:
        """Return the value on another device: see `frontend.transfer`."""
        raise NotImplementedError

    def item(self) -> Any:
        """Return the only element as a Python number, once it is computed."""
        raise NotImplementedError
