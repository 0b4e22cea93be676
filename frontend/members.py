"""`Methods`, the base class of `Tensor` with the methods of the table `methods.METHODS`.

A function whose module is loaded becomes a member itself. Any other function is an `Item`, which loads the
module when it is first used. Type checkers read `tensor_methods.pyi` instead.

Not here: the table (`methods`), modules that load later (`later`). Next: `tensor`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cached_property, wraps
from types import MethodType
from typing import Any, Concatenate, Final, Generic, ParamSpec

from frontend.arguments.aliases import accepts_aliases
from frontend.assignment import in_place
from frontend.evaluation.base import T
from frontend.evaluation.trace import has_variable
from frontend.later import Item, later
from frontend.methods import FALSE, MAKER, METHODS, RESHAPING, SIZED_MAKER, STATIC, MethodRow

P = ParamSpec("P")
_rules = later("frontend.symbolic.rules")
_strides = later("frontend.torch.strides")


def sized(fn: Callable[Concatenate[type[Any], P], Any]) -> Callable[Concatenate[type[Any], P], Any]:
    """Decorate a function that makes a tensor of a shape: it accepts bound variables as sizes."""

    @wraps(fn)
    def call(cls: type[Any], /, *args: P.args, **names: P.kwargs) -> Any:
        if has_variable(args):
            return _rules.made_with(fn, cls, args, names)
        return fn(cls, *args, **names)

    return call


class Maker(Generic[P]):
    """A class method whose result has the class that it is called on, also for type checkers.

    With `takes_variables` it accepts bound variables as sizes.
    """

    def __init__(
        self, fn: Callable[Concatenate[type[Any], P], Any], *, takes_variables: bool = False
    ) -> None:
        self._fn: Any = fn
        self._takes_variables = takes_variables

    @cached_property
    def __func__(self) -> Callable[Concatenate[type[Any], P], Any]:
        """The function, whose first argument is the class."""
        fn: Any = self._fn.load() if isinstance(self._fn, Item) else self._fn
        return accepts_aliases(sized(fn) if self._takes_variables else fn)

    def __get__(self, instance: object, owner: type[T]) -> Callable[P, T]:
        return MethodType(self.__func__, owner)


def members_of(row: MethodRow) -> Iterator[tuple[str, Any]]:
    """Yield (name, member) for each method of a row."""
    module, _, name = row.function.rpartition(".")
    home = f"frontend.{module}" if "." in module else f"frontend.ops.{module}"
    known = home in sys.modules and row.kind != RESHAPING  # those need a module that imports others
    fn: Any = getattr(sys.modules[home], name) if known else Item(home, name)
    member = fn
    if row.kind in {MAKER, SIZED_MAKER}:
        member = Maker(fn, takes_variables=row.kind == SIZED_MAKER)
    elif row.kind == STATIC:
        member = fn.wrapped(staticmethod) if isinstance(fn, Item) else staticmethod(fn)
    yield from dict.fromkeys(row.plain, member).items()
    if row.changing:
        change = _strides.reshaping if row.kind == RESHAPING else in_place
        changing = fn.wrapped(change) if isinstance(fn, Item) else change(fn)
        yield from dict.fromkeys(row.changing, changing).items()


def _class_of_methods() -> type:
    """Return a class with the methods of the table."""
    members: dict[str, Any] = {
        "__slots__": (),
        "__hash__": object.__hash__,
        "__module__": __name__,
        "__doc__": "The methods of `Tensor` that `frontend.ops` implements.",
        "symbolic_rules": _rules.RULES,
        **dict.fromkeys(FALSE, False),
    }
    for row in METHODS:
        members.update(members_of(row))
    members.update({name: _unless_none(members[name], is_other) for name, is_other in _OTHER.items()})
    return type("Methods", (), members)


_OTHER: Final = {"__eq__": False, "__ne__": True}
"""Operator -> its result for None, as in PyTorch: no tensor is None."""


def _unless_none(fn: Any, is_other: bool) -> Any:  # noqa: FBT001 - internal
    """Return a comparison whose result for None is `is_other`."""

    @wraps(fn)
    def call(x: Any, other: Any) -> Any:
        return is_other if other is None else fn(x, other)

    return call


Methods: Final = _class_of_methods()
