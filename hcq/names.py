"""Messages on names that do not exist: the nearest existing ones, for modules, devices, commands and options.

Every package uses these functions, so that a wrong name is answered in one way. Not here: names of arguments
(`frontend.arguments.aliases`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, TypeAlias

Places: TypeAlias = Callable[[], Iterable[tuple[str, Iterable[str]]]]


def nearest(name: str, known: Iterable[str], *, alike: float = 0.6) -> str:
    """Return the known name that differs in the case of letters alone, else the most like it, else "".

    `alike` is the least ratio of `difflib`: 1 for equal names, 0 for names without a common letter.
    """
    from difflib import get_close_matches  # noqa: PLC0415 - for messages only

    names = list(known)
    same = [one for one in names if one.lower() == name.lower()]
    return next(iter(same or get_close_matches(name, names, n=1, cutoff=alike)), "")


class AbsentNameError(AttributeError):
    """`what` has no attribute `name`; the text has a hint at a name like it.

    `places` returns pairs (prefix, names): the first place with a name like it is shown, behind its prefix.
    It is called when the text is read, as `hasattr` and imports drop most of these errors. Private names get
    no hint.
    """

    def __init__(self, what: str, name: str, places: Places) -> None:
        super().__init__(obj=None)  # with an object Python would add a hint of its own
        self._what, self._name, self._places = what, name, places

    def __str__(self) -> str:
        text = f"{self._what} has no attribute {self._name!r}"
        if not self._name.startswith("_"):
            for prefix, names in self._places():
                if near := nearest(self._name, names):
                    return f"{text}\nhint: did you mean {prefix}{near}?"
        return text

    def __reduce__(self) -> tuple[type[AttributeError], tuple[str]]:
        return AttributeError, (str(self),)


def lazy(
    package: str, every: Iterable[str], homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package, some of whose names load when they are first used.

    `homes` maps these names to their modules; a name that is the last part of its module means the module.
    `every` are all names of the package. Another name raises `AbsentNameError`.
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AbsentNameError(f"module {package!r}", name, lambda: [("", every)])
        module = import_module(homes[name])
        value = module if homes[name].endswith(f".{name}") else getattr(module, name)
        setattr(import_module(package), name, value)
        return value

    return load, lambda: sorted(every)
