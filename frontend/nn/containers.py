"""Modules that contain others, and lists and dictionaries of parameters.

Modules that are put into one are checked; tensors become parameters.

Not here: the base of modules (`module`). Next: `layers`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from itertools import groupby
from types import NoneType
from typing import Any, ClassVar, Self

from frontend.arguments.conversion import shown
from frontend.evaluation.gradient_state import listed
from frontend.nn.module import Module
from frontend.nn.parameter import Parameter
from frontend.nn.state.models import BUFFERS, NAMES, parts_of
from frontend.tensor import Tensor
from hcq.errors import UsageError, UsageIndexError, UsageNameError, UsageTypeError
from hcq.names import AbsentNameError


class _Container(Module):
    """A module that is a list or a dictionary; it equals itself alone, and is a key of dictionaries."""

    __eq__, __ne__ = object.__eq__, object.__ne__
    __hash__ = object.__hash__
    _grows: ClassVar[bool] = True
    """Whether a module that is set as an attribute is a new item."""

    def _item(self, value: Any) -> Any:
        """Return an item. Raises `UsageTypeError` for what is neither a module nor None."""
        if not isinstance(value, (Module, NoneType)):
            raise UsageTypeError(f"{type(self).__name__}: wanted modules, saw {shown(value)}")
        return value


class Items(_Container, list[Any]):  # type: ignore[misc]  # a list has no hash
    """A module that is a list. Raises `UsageTypeError` for what cannot be iterated over."""

    def __init__(self, modules: Iterable[Any] | None = None) -> None:
        found: Any = () if modules is None else modules
        if not hasattr(found, "__iter__"):
            raise UsageTypeError(f"{type(self).__name__}: wanted a list, saw {shown(modules)}")
        super().__init__([self._item(v) for v in found])

    def _item_names(self) -> list[str]:
        """Return the names of the items."""
        return [name for name, _ in parts_of(self)[: len(self)]]

    def __getattr__(self, name: str) -> Any:
        """Return an item by its name. Raises `AbsentNameError`."""
        names = self._item_names()
        if name not in names:
            raise AbsentNameError(type(self).__name__, name, lambda: [("", names), ("", dir(self))])
        return list.__getitem__(self, names.index(name))

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; one with the name of an item is the item, and a module is appended."""
        inner = BUFFERS in self.__dict__ and isinstance(value, (Tensor, Module))
        names = self._item_names() if inner else []
        if name in names:
            self[names.index(name)] = value
        elif inner and self._grows and isinstance(value, Module):
            self.add_module(name, value)
        else:
            super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        """Delete an attribute, or an item by its name; the others keep theirs."""
        names = self._item_names()
        if name in self.__dict__ or name not in names:
            super().__delattr__(name)
            return
        list.__delitem__(self, names.index(name))
        self.__dict__[NAMES] = [n for n in names if n != name]

    def append(self, value: Any) -> Self:  # type: ignore[override]  # PyTorch's return the list
        """Append an item; return the list."""
        return self.extend([value])

    def extend(self, values: Iterable[Any]) -> Self:  # type: ignore[override]  # as above
        """Append items; return the list."""
        list.extend(self, [self._item(v) for v in values])
        return self

    def insert(self, i: Any, value: Any) -> Self:  # type: ignore[override]  # as above
        """Insert an item before item i; return the list. Items have their numbers as names from then on.

        Raises `UsageIndexError` where there is no such place.
        """
        if not -len(self) <= i <= len(self):
            raise UsageIndexError(f"{type(self).__name__}.insert: there is no place {i} of {len(self)} items")
        self.__dict__.pop(NAMES, None)
        list.insert(self, i, self._item(value))
        return self

    def __setitem__(self, i: Any, value: Any) -> None:
        found = [self._item(v) for v in value] if isinstance(i, slice) else self._item(value)
        list.__setitem__(self, i, found)

    def __iadd__(self, values: Any) -> Self:  # type: ignore[misc]  # as above
        return self.extend(values)

    def add_module(self, name: str, module: Module | None) -> None:
        """Append a module under a name, or replace the one that has it.

        Raises `UsageNameError` for None, "" and the name of another attribute.
        """
        names = [n for n, _ in parts_of(self)]
        if name in names[: len(self)]:
            self[names.index(name)] = module
            return
        if module is None or not name or "." in name or name in names or name in self.__dict__:
            raise UsageNameError(
                f"{type(self).__name__}.add_module({name!r}): wanted a module and a name that is not in use"
            )
        self.__dict__[NAMES] = [*names[: len(self)], name]
        list.append(self, self._item(module))

    def __delitem__(self, i: Any) -> None:
        """Remove items; the others have their numbers as names from then on, as in PyTorch."""
        self.__dict__.pop(NAMES, None)
        list.__delitem__(self, i)

    def pop(self, i: Any = -1) -> Any:
        """Remove item i, and return it; see `del`."""
        found = self[i]
        del self[i]
        return found


class Sequential(Items):
    """A list of layers, or functions of one tensor, called one after the other.

        nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))

    An `OrderedDict` gives layers by name: they are attributes, too. Raises `UsageTypeError` for a layer that
    cannot be called, and `AttributeError` for the name of no layer.
    """

    def __init__(self, *layers: Any) -> None:
        if len(layers) == 1 and isinstance(layers[0], OrderedDict):
            self.__dict__[NAMES], layers = list(layers[0]), tuple(layers[0].values())
        super().__init__(layers)

    def _item(self, value: Any) -> Any:
        """Return a layer. Raises `UsageTypeError` for what cannot be called, and for a class."""
        if not callable(value):
            hint = "\nhint: give layers one by one: Sequential(*layers)" if isinstance(value, list) else ""
            raise UsageTypeError(f"Sequential: wanted layers, saw one of type {type(value).__name__}{hint}")
        if isinstance(value, type) and issubclass(value, Module):
            name = value.__name__
            raise UsageTypeError(f"Sequential: wanted layers, saw the class {name}; make one: {name}()")
        return value

    def __getitem__(self, i: Any) -> Any:
        """Return the layer i, or a `Sequential` of a slice, in which layers keep their names.

        Raises `IndexError` if there is none.
        """
        named = isinstance(i, slice)
        return Sequential(OrderedDict(parts_of(self)[: len(self)][i])) if named else list.__getitem__(self, i)

    def __add__(self, layers: Any) -> Sequential:
        """Return a `Sequential` of these layers and others."""
        return Sequential(*self).extend(layers)

    def __mul__(self, times: Any) -> Sequential:
        """Return a `Sequential` of these layers, the same ones, so many times.

        Raises `UsageTypeError` for no whole number, `UsageError` for one below 1.
        """
        if not isinstance(times, int):
            raise UsageTypeError(f"Sequential: wanted a whole number of times, saw {shown(times)}")
        if times < 1:
            raise UsageError(f"Sequential: wanted to repeat at least once, saw {times}")
        return Sequential(*list.__mul__(self, times))

    __rmul__ = __mul__

    def forward(self, x: Any) -> Any:
        """Return x passed through each layer in turn."""
        for layer in self:
            x = layer(x)
        return x


class ModuleList(Items):
    """A list of modules, which the module that has the list calls.

    Raises `UsageTypeError` for anything but modules and None: tensors of a model stand in a `ParameterList`.
    """

    def __add__(self, modules: Any) -> ModuleList:
        """Return a `ModuleList` of these modules and others."""
        return ModuleList(self).extend(modules)

    def __getitem__(self, i: Any) -> Any:
        """Return module i, or a `ModuleList` of a slice. Raises `IndexError` if there is none."""
        found = list.__getitem__(self, i)
        return ModuleList(found) if isinstance(i, slice) else found

    def _texts(self) -> list[tuple[str, str]]:
        """Return (name, text) of the children.

        Neighbours with equal texts become one text with their count.
        """
        found: list[tuple[str, str]] = []
        for text, same in groupby(super()._texts(), lambda pair: pair[1]):
            names = [name for name, _ in same]
            several = len(names) > 1
            name = f"{names[0]}-{names[-1]}" if several else names[0]
            found.append((name, f"{len(names)} x {text}" if several else text))
        return found


def _parameter(value: Any) -> Any:
    """Return a module itself, a tensor itself as a parameter, and other data as a new `Parameter`."""
    if isinstance(value, Tensor):
        return listed(value)
    return value if isinstance(value, Module) else Parameter(value)


class ParameterList(Items):
    """A list of tensors and modules; arrays and lists of numbers become parameters.

    Raises `UsageTypeError` for values that cannot be iterated over, a tensor or a text, and as `Parameter`.
    """

    _grows = False

    def __init__(self, values: Iterable[Any] = ()) -> None:
        if isinstance(values, (Tensor, str, bytes)) or not hasattr(values, "__iter__"):
            raise UsageTypeError(f"ParameterList: wanted a list of tensors, saw {shown(values)}")
        super().__init__(values)

    def _item(self, value: Any) -> Any:
        return _parameter(value)


class Named(_Container, dict[str, Any]):  # type: ignore[misc]  # a dictionary has no hash
    """A module that is a dictionary: the names are without dots, as they are parts of names of parameters."""

    def __init__(self, modules: Mapping[str, Any] | Iterable[tuple[str, Any]] | None = None) -> None:
        super().__init__()
        self.update({} if modules is None else modules)

    def __setitem__(self, name: str, module: Any) -> None:
        """Set an item. Raises `UsageTypeError` for a name with dots, and for what cannot be an item."""
        if not isinstance(name, str) or "." in name or not name:
            raise UsageTypeError(f"{type(self).__name__}: wanted a name without dots, saw {shown(name)}")
        dict.__setitem__(self, name, self._item(module))

    add_module = __setitem__  # type: ignore[assignment]  # of an item, and with its name

    def __getattr__(self, name: str) -> Any:
        """Return an item by its name. Raises `AbsentNameError`."""
        if name in self:
            return self[name]
        raise AbsentNameError(type(self).__name__, name, lambda: [("", self), ("", dir(self))])

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; one with the name of an item is the item, and a module is a new item."""
        grows = self._grows and isinstance(value, Module)
        if BUFFERS in self.__dict__ and isinstance(value, (Tensor, Module)) and (grows or name in self):
            self[name] = value
        else:
            super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        """Delete an attribute, or an item by its name."""
        if name in self.__dict__ or name not in self:
            super().__delattr__(name)
        else:
            del self[name]

    def update(self, items: Any = (), **names: Any) -> None:  # type: ignore[override]  # one for all forms
        """Set items by name, of a mapping or of pairs. Raises `UsageTypeError` for neither."""
        try:
            found = dict(items, **names)
        except (TypeError, ValueError):
            what = f"{type(self).__name__}: wanted items by name, saw {shown(items)}"
            raise UsageTypeError(what) from None
        for name, value in found.items():
            self[name] = value

    def __ior__(self, items: Any) -> Self:  # type: ignore[misc, override]  # as above
        self.update(items)
        return self

    def setdefault(self, name: str, default: Any = None) -> Any:
        """Return the item of a name, after setting it to `default` if there is none."""
        if name not in self:
            self[name] = default
        return self[name]


class ParameterDict(Named):
    """A dictionary of tensors and modules by name; arrays and lists of numbers become parameters.

    Raises `UsageTypeError` for anything but a mapping with names as keys, and as `Parameter`.
    """

    _grows = False

    def __init__(self, parameters: Mapping[str, Any] | None = None) -> None:
        if parameters is not None and not hasattr(parameters, "items"):
            raise UsageTypeError(f"ParameterDict: wanted tensors by name, saw {shown(parameters)}")
        super().__init__(parameters)

    def _item(self, value: Any) -> Any:
        return _parameter(value)


class ModuleDict(Named):
    """A dictionary of modules, which the module that has the dictionary calls.

    `modules.name` is `modules["name"]`; an unknown name raises `AttributeError`.
    """
