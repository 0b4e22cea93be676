"""Modules that load when one of their members is first used, as a member of a class or by a call.

    if AT_ONCE:
        from frontend import dlpack
    else:
        dlpack = later("frontend.dlpack")

    class Exchange:
        __dlpack__ = dlpack.exported      # the module loads when `Exchange.__dlpack__` is first read

The first use of a class's member replaces the member by the loaded value, so later uses cost nothing more.
Type checkers take the first branch, and know the types. A fork waits until no other thread loads a module:
the child would wait forever for the lock of an import that a thread of its parent had begun.

Not here: the table of methods (`methods`), names of packages that load later (`hcq.names`). Next: `members`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from threading import Condition, get_ident
from typing import TYPE_CHECKING, Any

from frontend.arguments.aliases import answered

AT_ONCE: bool = TYPE_CHECKING
"""False at run time: modules load when needed."""
_loading: list[int] = []
"""The identifiers of threads, one for each load in progress."""
_changed = Condition()


def _load(module: str, name: str) -> Any:
    thread = get_ident()
    with _changed:
        _loading.append(thread)
    try:
        return getattr(import_module(module), name)
    finally:
        with _changed:
            _loading.remove(thread)
            _changed.notify_all()


def _wait_for_loads() -> None:
    _changed.acquire()
    _changed.wait_for(lambda: all(thread == get_ident() for thread in _loading))


os.register_at_fork(before=_wait_for_loads, after_in_parent=_changed.release, after_in_child=_changed.release)


class Item:
    """The member `name` of a module that is not loaded yet; may be a member of one class.

    `wrap`, if given, is called with the loaded value, and its result is used instead.
    """

    __slots__ = ("module", "name", "names", "owner", "wrap")

    def __init__(self, module: str, name: str, wrap: Callable[[Any], Any] | None = None) -> None:
        self.module, self.name, self.wrap = module, name, wrap
        self.names: list[str] = []

    def load(self) -> Any:
        """Load the module, and return the member. Raises what importing the module raises."""
        value = _load(self.module, self.name)
        return value if self.wrap is None else self.wrap(value)

    def wrapped(self, wrap: Callable[[Any], Any]) -> Item:
        """Return an `Item` whose `load` returns `wrap(member)`."""
        return Item(self.module, self.name, wrap)

    def __set_name__(self, owner: type, name: str) -> None:
        self.owner = owner
        self.names.append(name)

    def __get__(self, instance: object, owner: type) -> Any:
        value = self.load()
        for name in self.names:
            setattr(self.owner, name, answered(name, value))
        return getattr(owner if instance is None else instance, self.names[0])

    def __call__(self, *args: Any, **names: Any) -> Any:
        """Load a function and call it."""
        return self.load()(*args, **names)


class _Later:
    """A module whose attributes are `Item`s until it is loaded, and then its own."""

    __slots__ = ("_module",)

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(sys.modules[self._module], name)
        except (KeyError, AttributeError):  # not loaded, or being loaded
            return Item(self._module, name)


def later(module: str) -> Any:
    """Return an object in place of a module: its attributes are `Item`s until the module is loaded."""
    return _Later(module)


def loaded(classes: Iterable[type]) -> dict[str, Any]:
    """Return name -> member of classes, without inherited ones, all loaded; a later class replaces a name."""
    found: dict[str, Any] = {}
    for cls in classes:
        for member in list(vars(cls).values()):
            if isinstance(member, Item):
                member.__get__(None, cls)
        found.update(vars(cls))
    return found
