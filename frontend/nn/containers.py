"""Modules that contain others, and lists and dictionaries of parameters.

Not here: the base of modules (`module`). Next: `layers`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from itertools import groupby
from types import NoneType
from typing import Any, Self

from frontend.arguments.conversion import shown
from frontend.evaluation.gradient_state import listed
from frontend.nn.module import Module, Parameter
from frontend.nn.state.models import NAMES, parts_of
from frontend.tensor import Tensor
from hcq.errors import UsageError, UsageTypeError
from hcq.names import AbsentNameError


class Sequential(Module, list[Any]):
    """A list of layers, or functions of one tensor, called one after the other.

        nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))

    An `OrderedDict` gives layers by name: they are attributes, too. Raises `UsageError` for a layer that
    cannot be called, and `AttributeError` for the name of no layer.
    """

    def __init__(self, *layers: Any) -> None:
        if len(layers) == 1 and isinstance(layers[0], OrderedDict):
            self.__dict__[NAMES], layers = list(layers[0]), tuple(layers[0].values())
        wrong = next((layer for layer in layers if not callable(layer)), None)
        if wrong is not None:
            hint = "\nhint: give layers one by one: Sequential(*layers)" if isinstance(wrong, list) else ""
            raise UsageError(f"Sequential: wanted layers, saw one of type {type(wrong).__name__}{hint}")
        kind = next((one for one in layers if isinstance(one, type) and issubclass(one, Module)), None)
        if kind is not None:
            name = kind.__name__
            raise UsageError(f"Sequential: wanted layers, saw the class {name}; make one: {name}()")
        super().__init__(layers)

    def add_module(self, name: str, module: Module | None) -> None:
        """Append a module under a name. Raises `UsageError` for None and for a name that is in use."""
        names = [n for n, _ in parts_of(self)]
        if module is None or name in names:
            raise UsageError(
                f"Sequential.add_module({name!r}): wanted a module and a name that is not in use"
            )
        self.__dict__[NAMES] = [*names[: len(self)], name]
        self.append(module)

    def __getattr__(self, name: str) -> Any:
        """Return a layer by its name. Raises `AbsentNameError`."""
        names = self.__dict__.get(NAMES, ())
        if name not in names:
            raise AbsentNameError(type(self).__name__, name, lambda: [("", names), ("", dir(self))])
        return self[names.index(name)]

    def __getitem__(self, i: Any) -> Any:
        """Return the layer i, or a `Sequential` of a slice, in which layers keep their names.

        Raises `IndexError` if there is none.
        """
        named = isinstance(i, slice)
        return Sequential(OrderedDict(parts_of(self)[: len(self)][i])) if named else list.__getitem__(self, i)

    def __delitem__(self, i: Any) -> None:
        """Remove layers; the others have their numbers as names from then on, as in PyTorch."""
        self.__dict__.pop(NAMES, None)
        list.__delitem__(self, i)

    def pop(self, i: Any = -1) -> Any:
        """Remove layer i, and return it; see `del`."""
        found = self[i]
        del self[i]
        return found

    def forward(self, x: Any) -> Any:
        """Return x passed through each layer in turn."""
        for layer in self:
            x = layer(x)
        return x


class ModuleList(Module, list[Any]):
    """A list of modules, which the module that has the list calls.

    Raises `UsageTypeError` for anything but modules and None: tensors of a model stand in a `ParameterList`.
    """

    def __init__(self, modules: Iterable[Any] = ()) -> None:
        super().__init__(self._checked(modules))

    def _checked(self, modules: Iterable[Any]) -> list[Any]:
        found = list(modules)
        for one in found:
            if not isinstance(one, (Module, NoneType)):
                raise UsageTypeError(f"{type(self).__name__}: wanted modules, saw {shown(one)}")
        return found

    def append(self, module: Any) -> Self:  # type: ignore[override]  # PyTorch's returns the list
        """Append a module; return the list."""
        super().append(*self._checked([module]))
        return self

    def extend(self, modules: Iterable[Any]) -> Self:  # type: ignore[override]  # as above
        """Append modules; return the list."""
        super().extend(self._checked(modules))
        return self

    def insert(self, i: Any, module: Any) -> None:
        """Insert a module before module i."""
        super().insert(i, *self._checked([module]))

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


def _parameter(value: Any) -> Tensor:
    """Return a tensor itself as a parameter, and other data as a new `Parameter`."""
    return listed(value) if isinstance(value, Tensor) else Parameter(value)


class ParameterList(Module, list[Any]):
    """A list of tensors; arrays and lists of numbers become parameters.

    Raises `UsageTypeError` for values that cannot be iterated over, a tensor or a text, and as `Parameter`.
    """

    def __init__(self, values: Iterable[Any] = ()) -> None:
        if isinstance(values, (Tensor, str, bytes)) or not hasattr(values, "__iter__"):
            raise UsageTypeError(f"ParameterList: wanted a list of tensors, saw {shown(values)}")
        super().__init__([_parameter(v) for v in values])


class ParameterDict(Module, dict[str, Any]):
    """A dictionary of tensors by name; arrays and lists of numbers become parameters.

    Raises `UsageTypeError` for anything but a mapping with names as keys, and as `Parameter`.
    """

    def __init__(self, parameters: Mapping[str, Any] | None = None) -> None:
        given = {} if parameters is None else parameters
        if not hasattr(given, "items") or not all(isinstance(name, str) for name in given):
            raise UsageTypeError(f"ParameterDict: wanted tensors by name, saw {shown(parameters)}")
        super().__init__({name: _parameter(v) for name, v in given.items()})


class ModuleDict(Module, dict[str, Any]):
    """A dictionary of modules, which the module that has the dictionary calls.

    `modules.name` is `modules["name"]`; an unknown name raises `AttributeError`.
    """

    def __getattr__(self, name: str) -> Any:
        """Return a module by its name. Raises `AbsentNameError`."""
        if name in self:
            return self[name]
        raise AbsentNameError("ModuleDict", name, lambda: [("", self), ("", dir(self))])
