"""The objects outside of a function that it depends on, found from its code before and after it runs.

The search starts at the function and follows every path of its code (`code`) to the objects that its
variables refer to now. It continues in the functions, methods and layers that these objects are or have.
Loose paths are tried on every object that was found. In code of the standard library, of installed packages
and of this package, only paths of a layer's `self` are followed. Not found: values that C code and
libraries read, files.

Not here: comparing the values later. Next: `guards`.
"""

from __future__ import annotations

import ctypes
import os
import random
import sys
import sysconfig
from array import array
from collections import deque
from collections.abc import Iterable
from contextvars import ContextVar
from functools import lru_cache, partial
from pathlib import Path as FilePath
from types import BuiltinFunctionType, CellType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any, Final, NamedTuple

from frontend.arguments.checks import Size
from frontend.capture.code import Step, names_of
from frontend.evaluation import modes
from frontend.tensor import Tensor

PLAIN: Final = frozenset({type(None), bool, int, float, complex, str, bytes, tuple, Size, frozenset})
"""Classes whose values are compared by value."""
LARGEST: Final = 1 << 16
"""The bytes of the largest array whose elements are compared at each call."""
CONTAINERS: Final = (list, tuple, dict, set, frozenset, deque)
GONE: Final = object()
"""The value of a name that does not exist."""
LOST: Final = (LookupError, AttributeError, ReferenceError, ValueError, TypeError, RuntimeError)
"""The exceptions that reading a name raises when it does not exist any more."""
_HEAP_TYPE: Final = 1 << 9
"""The flag of classes that a `class` statement made (CPython's Py_TPFLAGS_HEAPTYPE)."""
_HOUSE: Final = FilePath(__file__).parents[2]
_FOREIGN: Final = tuple(
    [sysconfig.get_path(kind) + "/" for kind in ("stdlib", "platstdlib", "purelib", "platlib")]
    + [f"{_HOUSE}/{room}/" for room in ("frontend", "hcq", "compiler", "drivers", "emulator", "interop")]
)
_EFFECTS: Final = frozenset({"print", "input", "open", "breakpoint"})
"""Functions of Python whose work is seen outside, or comes from there."""
_CLOCKS: Final = frozenset({"time", "datetime", "logging", "warnings", "secrets", "uuid", "contextvars"})
"""Modules with such functions."""
_ENTROPY: Final = frozenset({"urandom", "getrandom", "default_rng", "RandomState", "Random", "SystemRandom"})
"""What draws random numbers of the machine, or makes a generator that may have such a seed."""
_BUFFERS: Final = (bytearray, memoryview, array, *ctypes.c_int.__mro__[-2:-1])
"""Memory that can be written to; the last is the base of all values of C."""
_FORM: Final = frozenset({"shape", "dtype", "ndim", "size", "nbytes", "strides"})
"""Attributes of arrays that say nothing of their elements."""
_UNCALLED: Final = frozenset([f"__{name}__" for name in (
    "init", "post_init", "new", "del", "repr", "str", "format", "hash", "eq", "ne", "lt", "le", "gt", "ge",
    "reduce", "reduce_ex", "getstate", "setstate", "copy", "deepcopy", "replace", "setattr", "delattr",
)])  # fmt: skip
"""Methods that read all attributes of an object, and that a captured function hardly calls."""


class Read(NamedTuple):
    """One name that is read: `owner[key]`, or the attribute `key` of `owner`."""

    owner: Any
    key: Any
    item: bool
    """True: `owner[key]`; False: the attribute."""
    value: Any
    """The value when it was found."""
    text: str
    """The name in messages."""
    typed: bool
    """Whether the user's code reads it, and not a library's."""

    def now(self) -> Any:
        """Return the present value of the name, `GONE` if it does not exist."""
        try:
            return self.owner[self.key] if self.item else getattr(self.owner, self.key)
        except LOST:
            return GONE


class Held(NamedTuple):
    """A container, or the dictionary of an object's attributes, and the values that it held."""

    owner: Any
    values: tuple[Any, ...]
    text: str
    read: bool
    """Whether its contents are read, not only added to."""
    attributes: bool = False
    """Whether it is the dictionary of an object."""


@lru_cache(maxsize=4096)
def _of_user(file: str) -> bool:
    return not file.startswith(("<frozen", *_FOREIGN))


def _module_of_user(name: str) -> bool:
    file = None if name == "__main__" else getattr(sys.modules.get(name), "__file__", None)
    return name not in sys.builtin_module_names and (file is None or _of_user(file))


def is_array(value: Any) -> bool:
    """Return whether a value is an array of numbers, or other memory that can be written to."""
    if value.__class__.__module__ == "numpy":
        return getattr(value, "ndim", 0) > 0 and hasattr(value, "tobytes")
    return isinstance(value, _BUFFERS)


def bytes_of(memory: Any) -> bytes:
    """Return the elements of what `is_array`."""
    return memory.tobytes() if hasattr(memory, "tobytes") else bytes(memoryview(memory))


def _class_of_user(kind: type) -> bool:
    """Return whether the user's code made a class; code that runs without a module makes it in `builtins`."""
    made_by_code = bool(kind.__flags__ & _HEAP_TYPE)
    return made_by_code and (kind.__module__ == "builtins" or _module_of_user(kind.__module__))


def values_of(owner: Any) -> Iterable[Any]:
    """Return the elements of a container: values and then keys of a dictionary, an array as one tuple."""
    if is_array(owner):
        return (tuple(owner.ravel().tolist()) if hasattr(owner, "ravel") else bytes_of(owner),)
    return [*owner.values(), *owner] if isinstance(owner, dict) else owner


def _attributes(value: Any) -> dict[str, Any] | None:
    found = getattr(value, "__dict__", None)
    return found if isinstance(found, dict) else None


def _in_class(value: Any, name: str) -> Any:
    return next((c.__dict__[name] for c in value.__class__.__mro__ if name in c.__dict__), GONE)


def _is_capture(value: Any) -> bool:
    """Return whether a value is a `TinyJit` or a `Compiled`, which calls its function."""
    return value.__class__.__module__ in {"frontend.capture.jit", "frontend.capture.compiled"}


def _contents(cell: CellType | None) -> Any:
    """Return the value of a closure cell, `GONE` if there is none."""
    try:
        return GONE if cell is None else cell.cell_contents
    except ValueError:
        return GONE


def _acts(name: str, steps: tuple[Step, ...], names: dict[str, Any]) -> bool:
    """Return whether a path of a global leads to one of `_EFFECTS` or `_ENTROPY`, or into `_CLOCKS`."""
    value = names.get(name, GONE)
    if value is GONE:
        return name in _EFFECTS
    for _, key in steps:
        if not isinstance(value, ModuleType) or value.__name__ in _CLOCKS or key not in vars(value):
            break
        value = vars(value)[key]
    home = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    top = home.partition(".")[0] if isinstance(home, str) else ""
    draws = top in {"posix", "random", "numpy"} and getattr(value, "__name__", "") in _ENTROPY
    return top in _CLOCKS or draws


class Search:
    """One search, from a function and the values of its arguments that are no tensors; made by `__init__`."""

    def __init__(self, function: Any, arguments: Any = ()) -> None:
        self.reads: dict[tuple[int, Any], Read] = {}
        """(id of the owner, key) -> the name."""
        self.held: dict[int, Held] = {}
        """id of a container -> its elements."""
        self.bound: list[Read] = []
        """Outside variables that the code assigns to, with their values."""
        self.iterators: list[str] = []
        """The names of iterators and open files, which the code can only advance."""
        self.large: list[str] = []
        """The names of arrays with more bytes than `LARGEST`."""
        self.sources: list[Any] = []
        """Generators of random numbers of the host."""
        self.effects: list[str] = []
        """The names of functions that print, read files or clocks, or draw random numbers of the machine."""
        self._objects: dict[int, tuple[Any, str]] = {}
        self._loose: dict[tuple[tuple[Step, ...], bool], bool] = {}
        """(steps, contents) of loose paths -> whether code of the user has them."""
        self._done: dict[tuple[int, ...], Any] = {}
        """Keys of finished steps, made of ids of objects -> these objects, so that no id is used again."""
        self._waiting: deque[tuple[FunctionType, Any, str]] = deque()
        self._meet(function, "")
        for value in arguments.values() if isinstance(arguments, dict) else arguments:
            self._meet(value, "an argument")
        while self._waiting:
            self._enter(*self._waiting.popleft())

    def _once(self, what: str, *objects: Any) -> bool:
        key = (hash(what), *map(id, objects))
        return self._done.setdefault(key, objects) is objects

    def _call(self, function: Any, owner: Any, text: str) -> None:
        """Enter a function later; `owner` is the value of its first argument, None if that is unknown."""
        if self._once("call", function, _attributes(owner) or owner):
            self._waiting.append((function, owner, text))

    def _enter(self, function: FunctionType, owner: Any, text: str) -> None:
        code, first = function.__code__, owner
        names, typed = names_of(code), _of_user(code.co_filename)
        if not typed and not hasattr(owner.__class__, "forward"):
            owner = None  # objects of libraries are not guarded
        cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
        for kind, name, steps, contents in names.paths:
            if typed and kind == "global" and _acts(name, steps, function.__globals__):
                self.effects.append(".".join([name, *[str(key) for _, key in steps]]))
            whole = typed and names.dynamic
            if kind == "local" and owner is not None:
                self._follow(owner, steps, text, contents=contents, typed=typed)
            elif kind in {"local", "loose"} and (typed or owner is not None):
                self._try_everywhere(steps, contents=contents, typed=typed)
            elif kind == "cell":
                cell = cells.get(name)
                self._variable(
                    cell, "cell_contents", name, steps, contents=contents, typed=typed, whole=whole
                )
            elif name in function.__globals__:
                names_there = function.__globals__
                self._variable(names_there, name, name, steps, contents=contents, typed=typed, whole=whole)
        for kind, name in names.stores if typed else ():
            where = cells.get(name) if kind == "cell" else function.__globals__
            read = Read(
                where, name if kind == "global" else "cell_contents", kind == "global", None, name, True
            )
            self.bound.append(read._replace(value=read.now()))
            self._hold_nested(read.now(), name)
        attributes = _attributes(owner) if names.dynamic and not isinstance(owner, type) else None
        asked = [path.steps[:1] for path in names.paths if path.kind == "loose" and attributes is not None]
        for steps in (*asked, *[(("attr", name),) for name in attributes or ()]):
            self._follow(owner, steps, text, contents=True, typed=False)
        if "super" in code.co_names and owner is not None:
            for path in names.paths:
                for c in owner.__class__.__mro__ if path.steps else ():
                    self._meet_method(c.__dict__.get(path.steps[0][1]), owner, text)
        for inner in (getattr(function, "__wrapped__", None), *map(_contents, cells.values())):
            if isinstance(inner, FunctionType):  # what a decorator wraps has the same first argument
                self._call(inner, first, text)
        for value in function.__defaults__ or ():
            self._meet(value, f"a default of {function.__name__}")

    def _variable(
        self,
        where: Any,
        key: str,
        name: str,
        steps: tuple[Step, ...],
        *,
        contents: bool,
        typed: bool,
        whole: bool,
    ) -> None:
        """Follow a path of a closure cell, or of a global; `whole`: all attributes at its end are read."""
        item = isinstance(where, dict)
        value = where[key] if item else _contents(where)
        if value is GONE or not typed:
            return
        if contents or steps:
            self._read(where, key, value, name, item=item, typed=typed)
        self._follow(value, steps, name, contents=contents, typed=typed, whole=whole)

    def _try_everywhere(self, steps: tuple[Step, ...], *, contents: bool, typed: bool) -> None:
        while steps:
            if (steps, contents) not in self._loose:
                self._loose[steps, contents] = typed
                for value, text in list(self._objects.values()):
                    self._follow(value, steps, text, contents=contents, typed=typed, sure=False)
            if steps[0][0] != "item":
                return
            steps = steps[1:]  # an object that a container among the arguments holds is met without it

    def _follow(
        self,
        value: Any,
        steps: tuple[Step, ...],
        text: str,
        *,
        contents: bool,
        typed: bool,
        sure: bool = True,
        whole: bool = False,
    ) -> None:
        """Follow a path from a value, and meet all values on it.

        `sure` is false for a loose path, which may belong to another object: then a missing attribute is
        nothing that the function depends on.
        """
        for at, (kind, key) in enumerate(steps):
            if value.__class__ is Tensor:
                return
            self._meet(value, text, contents=False)
            found = (
                self._item(value, key, text, typed=typed)
                if kind == "item"
                else self._attribute(value, key, text, typed=typed, sure=sure)
            )
            sure = True
            if found is None:
                if kind == "item":
                    self._meet(value, text, contents=contents)
                elif isinstance(value, CONTAINERS) or (is_array(value) and key not in _FORM):
                    self._meet(value, text)  # a method that reads elements
                elif _in_class(value, "__getattr__") is not GONE:  # it may take it of another object
                    self._try_everywhere(steps[at:], contents=contents, typed=typed)
                return
            value, text = found
        self._meet(value, text, contents=contents)
        own = _attributes(value) if whole and not isinstance(value, (ModuleType, type, Tensor)) else None
        if own is not None:
            self._hold(own, text, read=True)

    def _item(self, value: Any, key: Any, text: str, *, typed: bool) -> tuple[Any, str] | None:
        if not isinstance(value, (list, tuple, dict)):
            return None
        try:
            found = value[key]
        except (LookupError, TypeError):
            return None
        text = f"{text}[{key!r}]"
        if not isinstance(value, tuple) and not isinstance(key, slice):
            self._read(value, key, found, text, item=True, typed=typed)
        return found, text

    def _attribute(
        self, value: Any, name: str, text: str, *, typed: bool, sure: bool = True
    ) -> tuple[Any, str] | None:
        """Return (value, text) of an attribute that is data; None for a method, or if there is none.

        A missing attribute is recorded as `GONE` where it is `sure` that the path belongs to this object.
        """
        if isinstance(value, ModuleType):
            if value is os and name in {"environ", "getenv"}:
                self._meet(os.environ, text)
            if not _module_of_user(value.__name__) or name not in vars(value):
                return None
            found = vars(value)[name]
            self._read(vars(value), name, found, f"{text}.{name}", item=True, typed=typed)
            return found, f"{text}.{name}"
        inside, own = _in_class(value, name), _attributes(value)
        text = f"{text}.{name}" if text else name
        if name == "__dict__" and own is not None and typed:
            return own, text
        if isinstance(value, type):
            inside = next((vars(c)[name] for c in value.__mro__ if name in vars(c)), GONE)
            if hasattr(inside, "__get__") and _class_of_user(value):
                self._method(inside, value, name, text, typed=typed)
            if inside is GONE or hasattr(inside, "__get__") or not _class_of_user(value):
                return None
        elif isinstance(inside, MemberDescriptorType):
            found = getattr(value, name, None)
            self._read(value, name, found, text, item=False, typed=typed)
            return found, text
        elif own is not None and name in own and not hasattr(inside, "__set__"):
            self._read(own, name, own[name], text, item=True, typed=typed)
            return own[name], text
        elif inside is GONE or hasattr(inside, "__get__"):
            self._method(inside, value, name, text, typed=typed)
            shadowed = inside is GONE or (typed and not hasattr(inside, "__set__"))
            if shadowed and own is not None and sure:
                self._read(own, name, GONE, text, item=True, typed=typed)
            return None
        self._read(value, name, inside, text, item=False, typed=typed)
        return inside, text

    def _method(self, inside: Any, owner: Any, name: str, text: str, *, typed: bool) -> None:
        """Enter a method, and record which function it is where the user's code may replace it."""
        self._meet_method(
            inside,
            None if isinstance(inside, FunctionType) and isinstance(owner, type) else owner,
            text.rpartition(".")[0],
        )
        kind = owner if isinstance(owner, type) else owner.__class__
        if typed and inside is not GONE and not isinstance(inside, classmethod) and _class_of_user(kind):
            self._read(kind, name, getattr(kind, name, GONE), text, item=False, typed=typed)

    def _meet_method(self, inside: Any, owner: Any, text: str) -> None:
        """Enter the member of a class: a method, a property's getter, or the function of a `TinyJit`."""
        if isinstance(inside, property):
            inside = inside.fget
        if isinstance(inside, (staticmethod, classmethod)):
            kind = owner if isinstance(owner, type) else owner.__class__
            owner, inside = (None if isinstance(inside, staticmethod) else kind), inside.__func__
        if isinstance(inside, FunctionType):
            self._call(inside, owner, text)
        elif _is_capture(inside):
            self._call(inside.fn, owner, text) if isinstance(inside.fn, FunctionType) else None
        elif _class_of_user(inside.__class__):  # a descriptor
            self._meet_method(_in_class(inside, "__get__"), inside, text)

    def _read(self, owner: Any, key: Any, value: Any, text: str, *, item: bool, typed: bool) -> None:
        if isinstance(value, (ModuleType, type, BuiltinFunctionType)):
            return
        before = self.reads.get((id(owner), key))
        if before is None or (typed and not before.typed):
            self.reads[id(owner), key] = Read(owner, key, item, value, text, typed)

    def _hold(self, owner: Any, text: str, *, read: bool) -> None:
        before = self.held.get(id(owner))
        if before is None or (read and not before.read):
            self.held[id(owner)] = Held(owner, tuple(values_of(owner)), text, read)

    def _hold_nested(self, value: Any, text: str) -> None:
        """Record a container and the containers in it, of which none need be read."""
        if isinstance(value, CONTAINERS) and self._once("nested", value):
            self._hold(value, text, read=False)
            for key, part in list(value.items() if isinstance(value, dict) else enumerate(value)):
                self._hold_nested(part, f"{text}[{key!r}]")

    def _meet(self, value: Any, text: str, *, contents: bool = True) -> None:
        """Meet a value: enter functions and methods, and meet the elements of containers and objects.

        `contents`: whether the elements of a container are read.
        """
        try:
            kind = value.__class__
        except ReferenceError:  # a weak reference whose object is gone
            return
        if kind is Tensor or (kind in PLAIN and not value) or kind in {str, bytes, int, float, bool}:
            return
        if value is os.environ or value is os.getenv:
            self._hold(vars(os.environ)["_data"], "os.environ", read=True)
            return
        if isinstance(value, FunctionType):
            self._call(value, None, text)
        elif isinstance(value, MethodType):
            self._meet(value.__self__, text or "self", contents=False)
            self._call(value.__func__, value.__self__, text or "self")
        elif isinstance(value, partial):
            if isinstance(value.func, FunctionType) and value.args:
                self._meet(value.args[0], "self", contents=False)
                self._call(value.func, value.args[0], "self")
            else:
                self._meet(value.func, text)
            for part in (*value.args, *value.keywords.values()):
                self._meet(part, "an argument of partial")
        elif isinstance(value, BuiltinFunctionType):
            self._meet(
                None if isinstance(value.__self__, ModuleType) else value.__self__, text, contents=False
            )
        elif isinstance(value, type):
            if _class_of_user(value):
                for name in ("__init__", "forward", "__call__"):
                    self._meet_method(value.__dict__.get(name), None, text)
        elif hasattr(kind, "__next__") and not _class_of_user(kind):
            self.iterators.append(text)
        elif is_array(value):
            if getattr(value, "nbytes", 0) > LARGEST:
                self.large.append(text) if contents else None
            else:
                self._hold(value, text, read=contents)
        elif not isinstance(value, ModuleType):
            if isinstance(value, CONTAINERS) and self._once(f"contents {contents}", value):
                if not isinstance(value, (tuple, frozenset)):
                    self._hold(value, text, read=contents)
                each = value.items() if isinstance(value, dict) else enumerate(value)
                for key, part in list(each):
                    self._meet(part, f"{text}[{key!r}]", contents=contents)
            if kind.__module__ == "builtins" and not _class_of_user(kind):
                return
            self._meet_object(value, text)

    def _meet_object(self, value: Any, text: str) -> None:
        kind, own = value.__class__, _attributes(value)
        key = id(value if own is None else own)
        if key in self._objects:
            return
        if isinstance(value, (random.SystemRandom, ContextVar)):
            self.effects.append(text)
        elif isinstance(value, random.Random) or any(
            c.__module__.startswith("numpy.random") for c in kind.__mro__
        ):
            self.sources.append(value)
        if _is_capture(value):
            self._meet(value.fn, text)
            return
        layer = hasattr(kind, "forward")
        if own is not None and "param_groups" in own:  # an optimiser
            for name in getattr(kind, "moments", ()):
                self._hold(own[name], f"{text}.{name}", read=True)
        if not layer and kind.__module__.startswith(("frontend.", "hcq.")):
            return
        self._objects[key] = value, text
        if own is not None:
            self.held.setdefault(key, Held(own, tuple(values_of(own)), text, False, True))
            for name, part in list(own.items()):
                self._hold_nested(part, f"{text}.{name}")
        for hooks in (modes.HOOKS[0], (own or {}).get("_hooks")) if layer else ():
            self._meet(vars(hooks) if hooks is not None else None, f"{text}.hooks")
        if layer and own is not None:
            self._hold(modes.HOOKS, "the hooks of all modules", read=True)
            for name in ("_hooks", "forward"):
                self._read(own, name, own.get(name, GONE), f"{text}.{name}", item=True, typed=False)
        for (steps, contents), typed in list(self._loose.items()):
            self._follow(value, steps, text, contents=contents, typed=typed, sure=False)
        for name in ("forward", "__call__") if layer else ():
            self._meet_method(_in_class(value, name), value, text)
        for c in kind.__mro__:
            for name, method in vars(c).items() if _class_of_user(c) else ():
                if name.startswith("__") and name not in _UNCALLED:
                    self._meet_method(method, value, text)
