"""The base of layers and models: training mode, parameters by name, and the text that PyTorch prints.

Nothing is registered: the tensors and modules of a module are found by walking its attributes, lists and
dictionaries, as `nn.state` does. Objects of plain classes may therefore stand between modules.

Not here: hooks (`hooks`), parameters and buffers (`parameter`), saving (`nn.state`).
"""

# ruff: noqa: I001, FBT001, FBT002 - lists of names stand in rows; the field's signatures

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from types import NoneType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, cast

from compiler.dtype import DType, dtypes, promote
from frontend.arguments.aliases import PLACES, accepts_aliases, answer_class, by_place, check_call
from frontend.arguments.checks import element_type, whole
from frontend.arguments.conversion import flag, shown
from frontend.assignment import clear_gradient, refer
from frontend.device import Device
from frontend.evaluation import modes
from frontend.evaluation.base import THREAD
from frontend.evaluation.constants import stopped
from frontend.evaluation.gradient_state import (
    decided, give_gradients, is_parameter, listed, want, was_listed, was_marked,
)  # fmt: skip
from frontend.evaluation.plan import refuse
from frontend.later import later
from frontend.nn import state
from frontend.nn.hooks import EVERY, STATEFUL, Hooked
from frontend.nn.members import Members
from frontend.nn.parameter import PERSISTENT
from frontend.nn.state.models import BUFFERS, CALLED, COMPILED, FORWARD, HOOKS, PLAIN, parts_of
from frontend.tensor import Tensor
from hcq.errors import UsageError, UsageNameError, UsageTypeError
from hcq.names import nearest
from hcq.tables import html_table, html_text

compiled = later("frontend.capture.compiled")
hooked_states = later("frontend.nn.state.hooked")


def _is_registered(t: Any) -> bool:
    """Return whether a value is an `nn.Parameter`."""
    return isinstance(t, Tensor) and was_listed(t)


def _follow_pytorch(cls: type[Any], layer: Module) -> None:
    """Give a layer that the constructor of a class has made PyTorch's rule of parameters and buffers.

    Tensors that a program sets later are plain attributes. If its class is a program's, its tensors are
    parameters or buffers.
    """
    if type(layer).__module__.startswith("frontend."):
        if type(layer).__init__ is cls.__init__:
            layer.__dict__.setdefault(PLAIN, set())
    else:
        found = {n for n, t in vars(layer).items() if isinstance(t, Tensor) and not was_marked(t)}
        layer.__dict__.setdefault(BUFFERS, set()).update(found)


_OVERRIDDEN: Final = frozenset({"_save_to_state_dict", "_load_from_state_dict", "get_extra_state"})
"""Ways of its own that a class may have to save or load its state."""


class Listed(list[Any]):
    """A list that `next` takes, too: PyTorch's methods return iterators."""

    def __next__(self) -> Any:
        if not hasattr(self, "_rest"):
            self._rest = iter(self)
        return next(self._rest)


def _given(value: Any, kind: type, what: str) -> Any:
    """Return an argument. Raises `UsageTypeError` for one of another class."""
    if not isinstance(value, kind):
        raise UsageTypeError(f"{what}: wanted a {kind.__name__}, saw {shown(value)}")
    return value


def _named(found: list[tuple[str, Tensor]], prefix: str, *, once: bool) -> list[tuple[str, Tensor]]:
    """Return (name, tensor) with a prefix and a dot before the names; `once`: each by its first name."""
    every: dict[Any, tuple[str, Tensor]] = {}
    flag(once, "remove_duplicate")
    _given(prefix, str, "prefix")
    for name, t in found:
        every.setdefault(id(t) if once else name, (f"{prefix}.{name}" if prefix else name, t))
    return Listed(every.values())


class Module(Hooked):
    """A layer, or a model of layers: a subclass sets attributes and defines `forward`.

        class Net(nn.Module):
            def __init__(self):
                self.hidden, self.out = nn.Linear(4, 8), nn.Linear(8, 2)
            def forward(self, x):
                return self.out(self.hidden(x).relu())

    Float tensors are parameters unless requires_grad is False. A module that calls `super().__init__()`, as
    PyTorch's do, has PyTorch's rule instead: parameters are `nn.Parameter`s, buffers are those of
    `register_buffer`, and other tensors are plain attributes, which `state_dict` and `to` leave out.

    Modules in a plain list, dictionary or object are no part of it either; a `ModuleList` is.

    A module is in training mode at first; `eval()` ends that mode for the module and all modules inside it.
    In a `Tensor.train(mode)` block that mode is used instead. Arguments of other classes than a method or
    constructor takes raise `UsageTypeError`.
    """

    training = modes.Training()
    """Whether dropout is active and batch norms use the statistics of the batch; True at first."""
    call_super_init: ClassVar[bool] = False
    """Whether `Module.__init__` calls that of the class after it, such as of a second base."""
    _template: ClassVar[str] = ""
    """The text of the settings in `repr`, a format of the module: "p={0.p}"."""

    def __init__(self, *items: Any) -> None:
        if self.call_super_init or isinstance(self, (list, dict)):
            super().__init__(*items)
        elif items:
            raise UsageTypeError(f"{type(self).__name__}: wanted no arguments, saw {len(items)}")
        self.__dict__.setdefault(BUFFERS, set())

    def __init_subclass__(cls, **names: Any) -> None:
        super().__init_subclass__(**names)
        answer_class(cls, functools.partial(_follow_pytorch, cls))
        if not _OVERRIDDEN.isdisjoint(vars(cls)):
            STATEFUL[0] = True

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute. Raises `UsageTypeError` for what cannot stand for a parameter or module there."""
        old = self.__dict__.get(name)
        if value is not None and isinstance(old, (Tensor, Module)):
            self._check_replacement(name, old, value)
        if value.__class__ is Tensor and (persistent := value.__dict__.get(PERSISTENT)) is not None:
            self.__dict__.get(BUFFERS, set()).add(name)
            transient = self.__dict__.setdefault(state.models.TRANSIENT, set())
            (transient.discard if persistent else transient.add)(name)
        elif PLAIN in self.__dict__ and isinstance(value, Tensor):
            if _is_registered(value):
                self.__dict__[PLAIN].discard(name)
            elif name not in self.__dict__:
                self.__dict__[PLAIN].add(name)
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        """Delete an attribute. Its name is no longer that of a buffer."""
        self.__dict__.get(BUFFERS, set()).discard(name)
        super().__delattr__(name)

    def _check_replacement(self, name: str, old: Any, value: Any) -> None:
        """Raise `UsageTypeError` where a model would lose a parameter, buffer or module without a word."""
        buffers: set[str] | None = self.__dict__.get(BUFFERS)
        wanted, hint = "", ""
        if _is_registered(value):
            (buffers or set()).discard(name)
            if not _is_registered(old):
                del self.__dict__[name]  # in its place among the parameters, as in PyTorch
        elif isinstance(old, Module):
            if not (isinstance(value, Module) or (callable(value) and buffers is None)):
                wanted = "a module"
        elif buffers is not None and _is_registered(old):
            wanted, hint = "an nn.Parameter", "\nhint: copy_() writes new values into the parameter"
        elif buffers is None:
            if isinstance(value, (int, float)) and old.dtype.is_float and is_parameter(old):
                wanted = "a tensor"
        elif name in buffers and not isinstance(value, Tensor):
            wanted = "a tensor"
        if wanted:
            own = f"{type(self).__name__}.{name}"
            raise UsageTypeError(f"{own}: wanted {wanted} or None, saw {shown(value)}{hint}")

    def __call__(self, *args: Any, **names: Any) -> Any:
        """Return `forward` of the arguments. Raises `UsageTypeError` for arguments that do not fit it."""
        if CALLED not in self.__dict__ and not THREAD.cut:
            self.named_parameters()  # results have gradients from the first call on
            for module in self.modules():
                module.__dict__[CALLED] = True
        if names and not PLACES.keys().isdisjoint(names):
            args, names = by_place(self.forward, args, names)
        hooks = self.__dict__.get(HOOKS, EVERY[0])
        try:
            return self.forward(*args, **names) if hooks is None else self._hooked(hooks, args, names)
        except TypeError:
            check_call(type(self).__name__, self.forward, args, names)
            raise

    def forward(self, *args: Any, **names: Any) -> Any:  # noqa: ARG002 - a subclass uses them
        """Return the result of the module; a subclass defines it. Raises `UsageError` here."""
        near = nearest("forward", vars(type(self)).keys() - {"forward"})
        hint = f"\nhint: did you mean {near} to be forward?" if near else ""
        if isinstance(self, (list, dict)):
            hint = "\nhint: call its modules one by one, or make it a Sequential"
        raise UsageError(f"{type(self).__name__} defines no forward(){hint}")

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """Yield (dotted name, module) for this module and all modules inside it, each once.

        Without `remove_duplicate` each is yielded under all its names. Modules in `memo` are left out, and
        what is yielded is added to it. Names begin with `prefix`.
        """
        memo, seen = set() if memo is None else _given(memo, set, "named_modules, memo"), set[int]()
        flag(remove_duplicate, "named_modules, remove_duplicate")
        _given(prefix, str, "named_modules, prefix")
        waiting: list[tuple[str, Any]] = [(prefix, self)]
        while waiting:
            name, value = waiting.pop()
            if isinstance(value, (Tensor, str, bytes, int, float, type(None))):
                continue
            if isinstance(value, Module):
                if remove_duplicate and value in memo:
                    continue
                memo.add(value)
                yield name, value
            elif id(value) in seen:
                continue
            seen.add(id(value))
            inner = [(f"{name}.{k}" if name else k, v) for k, v in parts_of(value)]
            waiting += reversed(inner)

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """Yield this module and all modules inside it; see `named_modules`."""
        return (m for _, m in self.named_modules(remove_duplicate=remove_duplicate))

    def named_children(self) -> list[tuple[str, Module]]:
        """Return (name, module) for the modules that are attributes or elements of this one, each once.

        `next` takes the list, too.
        """
        every: dict[int, tuple[str, Module]] = {}
        for name, part in self._inner():
            every.setdefault(id(part), (name, part))
        return Listed(every.values())

    def _inner(self) -> list[tuple[str, Module]]:
        """Return (name, module) for the modules that are attributes or elements, under all their names."""
        return [(name, part) for name, part in parts_of(self) if isinstance(part, Module)]

    def children(self) -> list[Module]:
        """Return the modules that are attributes or elements of this one; `next` takes it, too."""
        return Listed([part for _, part in self.named_children()])

    def train(self, mode: bool = True) -> Self:
        """Set the training mode of this module and all modules inside it; return self."""
        mode = flag(mode, "train, mode")
        for m in self.modules():
            m.training = mode
        return self

    def eval(self) -> Self:
        """End the training mode of this module and all modules inside it; return self."""
        return self.train(False)

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> list[tuple[str, Tensor]]:
        """Return (name, tensor) of the float tensors that an optimiser may change, each once.

        A tensor with several names has the first of them; without `remove_duplicate` it has all. Without
        `recurse` those of inner modules are left out. Names begin with `prefix`. Undecided requires_grad
        becomes True. A tensor with requires_grad False is no parameter, unless it was returned here before: a
        parameter that a program freezes stays one. `next` takes the list, too.
        """
        every = state.models.every_tensor(self, buffered=False, recurse=flag(recurse, "recurse"))
        found = [(name, t) for name, t in every.items() if t.dtype.is_float and is_parameter(t)]
        if undecided := [t for _, t in found if decided(t) is None]:
            want(undecided, True)
        return _named([(name, listed(t)) for name, t in found], prefix, once=remove_duplicate)

    def parameters(self, recurse: bool = True) -> list[Tensor]:
        """Return the tensors that an optimiser may change, each once; see `named_parameters`."""
        return Listed([t for _, t in self.named_parameters(recurse=recurse)])

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> list[tuple[str, Tensor]]:
        """Return (name, tensor) of the tensors that are no parameters, with those that no file holds.

        Arguments are those of `named_parameters`.
        """
        changed = {id(t) for t in self.parameters(recurse)}
        every = state.models.every_tensor(self, recurse=recurse)
        found = [(name, t) for name, t in every.items() if id(t) not in changed]
        return _named(found, prefix, once=remove_duplicate)

    def buffers(self, recurse: bool = True) -> list[Tensor]:
        """Return the tensors that are no parameters, each once; see `named_buffers`."""
        return Listed([t for _, t in self.named_buffers(recurse=recurse)])

    @property
    def _parameters(self) -> Members:
        """The parameters that are attributes of this module, by name; changes change the module."""
        return Members(self, lambda: dict(self.named_parameters("", False, False)))

    @property
    def _buffers(self) -> Members:
        """The buffers that are attributes of this module, by name; changes change the module."""
        return Members(self, lambda: dict(self.named_buffers("", False, False)), self._join)

    def _join(self, name: str, value: Tensor | None) -> None:
        """Count a tensor that was set among the buffers."""
        self.__dict__.get(BUFFERS, set()).add(name)
        self.__dict__.get(PLAIN, set()).discard(name)
        if BUFFERS not in self.__dict__ and isinstance(value, Tensor):
            value.requires_grad = False

    @property
    def _modules(self) -> Members:
        """The modules that are attributes or items of this one, by name; changes change the module."""
        return Members(self, lambda: dict(self._inner()))

    def get_submodule(self, target: str) -> Module:
        """Return the module of a dotted name, "" for this one. Raises `UsageNameError` if there is none."""
        found = dict(self.named_modules()).get(_given(target, str, "get_submodule"))
        if found is None:
            raise UsageNameError(
                f"{type(self).__name__} has no module {target!r}; print it to see their names"
            )
        return found

    def get_parameter(self, target: str) -> Tensor:
        """Return the parameter of a dotted name. Raises `UsageNameError` if there is none."""
        return self._tensor_of(target, "parameter", self.parameters())

    def get_buffer(self, target: str) -> Tensor:
        """Return the buffer of a dotted name. Raises `UsageNameError` if there is none."""
        return self._tensor_of(target, "buffer", self.buffers())

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Set the module of a dotted name, with `strict` one that is there.

        Raises `UsageError` where its owner, or with `strict` the module, is missing.
        """
        owner, _, name = _given(target, str, "set_submodule, target").rpartition(".")
        if flag(strict, "set_submodule, strict"):
            self.get_submodule(target)
        if not name:
            raise UsageError(f"{type(self).__name__}.set_submodule: wanted a name, saw {target!r}")
        of = self.get_submodule(owner)
        named = isinstance(getattr(of, name, None), (Module, NoneType))
        of._check_new("set_submodule", name, module, Module, named)  # noqa: SLF001 - a module, too
        setattr(of, name, module)

    def _tensor_of(self, target: str, what: str, known: list[Tensor]) -> Tensor:
        owner, _, name = _given(target, str, f"get_{what}").rpartition(".")
        found = dict(parts_of(self.get_submodule(owner))).get(name)
        if not any(found is t for t in known):
            raise UsageNameError(
                f"{type(self).__name__} has no {what} {target!r}; print it to see its modules"
            )
        return cast("Tensor", found)

    def _check_new(self, what: str, name: str, value: Any, wanted: type, named: bool) -> None:
        """Raise `UsageNameError` for a name that cannot be registered, `UsageTypeError` for such a value."""
        used = getattr(self, _given(name, str, f"{type(self).__name__}.{what}"), None) is not None
        if not name or "." in name or (used and not named):
            text = "wanted a name without dots that the module does not use"
            raise UsageNameError(f"{type(self).__name__}.{what}: {text}, saw {shown(name)}")
        if value is not None and not isinstance(value, wanted):
            text = f"wanted a {wanted.__name__} or None, saw {shown(value)}"
            raise UsageTypeError(f"{type(self).__name__}.{what}({name!r}): {text}")

    def add_module(self, name: str, module: Module | None) -> None:
        """Set an attribute to a module or None. Raises `UsageNameError` for another attribute's name."""
        self._check_new("add_module", name, module, Module, isinstance(self.__dict__.get(name), Module))
        setattr(self, name, module)

    def register_module(self, name: str, module: Module | None) -> None:
        """Do what `add_module` does."""
        self.add_module(name, module)

    def state_dict(
        self, *, destination: dict[str, Any] | None = None, prefix: str = "", keep_vars: bool = False
    ) -> dict[str, Any]:
        """Return all tensors by name, detached, in the module's memory; see `nn.state.get_state_dict`.

        With `keep_vars` they are the module's own. Names begin with `prefix`; `destination` is a dictionary
        that they are added to. Hooks of `register_state_dict_post_hook` change the result, and a module's
        `get_extra_state` adds what it returns as "_extra_state".
        """
        flag(keep_vars, "state_dict, keep_vars")
        _given(prefix, str, "state_dict, prefix")
        own = state.get_state_dict(self, prefix.removesuffix("."))
        found: dict[str, Any] = OrderedDict((n, t if keep_vars else t.detach()) for n, t in own.items())
        if destination is not None:
            _given(destination, dict, "state_dict, destination").update(found)
            found = destination
        return hooked_states.saved(self, found, prefix, keep_vars) if STATEFUL[0] else found

    def load_state_dict(
        self, state_dict: Mapping[str, Tensor], strict: bool = True, assign: bool = False
    ) -> state.models.LoadedKeys:
        """Assign values to the tensors by name; return the missing and the unexpected names.

        Arguments and errors are those of `nn.state.load_state_dict`: with `strict`, missing and unexpected
        names raise `UsageError`.
        """
        strict, assign = flag(strict, "load_state_dict, strict"), flag(assign, "load_state_dict, assign")
        load = hooked_states.loaded if STATEFUL[0] else state.load_state_dict
        found: state.models.LoadedKeys = load(self, state_dict, strict=strict, assign=assign)
        return found

    get_extra_state: Callable[[], Any]
    """What `state_dict` holds beside tensors; a class that defines it has `set_extra_state(state)`, too."""

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        """Do nothing; what a subclass defines is called with a state that has the tensors of the module."""

    def _load_from_state_dict(self, *_args: Any) -> None:
        """Do nothing; what a subclass defines is called with the state before it is loaded, as a hook."""

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Set the attribute `name` to a tensor, which is no parameter.

        If the module did not call `super().__init__()`, its requires_grad becomes False. The state
        dictionary holds it only if it is `persistent`. Raises `UsageNameError` for another attribute's
        name, `UsageTypeError` for no tensor.
        """
        mine: set[str] | None = self.__dict__.get(BUFFERS)
        old = self.__dict__.get(name)
        named = isinstance(old, Tensor) and not old.requires_grad if mine is None else name in mine
        self._check_new("register_buffer", name, tensor, Tensor, named)
        if tensor is not None and mine is None:
            tensor.requires_grad = False
        self.__dict__.get(BUFFERS, set()).add(name)
        transient = self.__dict__.setdefault(state.models.TRANSIENT, set())
        (transient.discard if flag(persistent, "register_buffer, persistent") else transient.add)(name)
        setattr(self, name, tensor)
        self.__dict__.get(PLAIN, set()).discard(name)

    def register_parameter(self, name: str, param: Tensor | None) -> None:
        """Set an attribute to a tensor that an optimiser may change, or to None.

        Raises as `register_buffer`; a module that called `super().__init__()` takes an `nn.Parameter` alone.
        """
        old = self.__dict__.get(name)
        named = isinstance(old, Tensor) and is_parameter(old)
        self._check_new("register_parameter", name, param, Tensor, named)
        if param is not None and BUFFERS in self.__dict__ and not _is_registered(param):
            text = "wanted an nn.Parameter or None, saw a tensor"
            raise UsageTypeError(f"{type(self).__name__}.register_parameter({name!r}): {text}")
        setattr(self, name, param)
        self.__dict__.get(PLAIN, set()).discard(name)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Remove the gradients of all parameters; without `set_to_none`, set them to zeros in place."""
        for t in self.parameters():
            clear_gradient(t, set_to_none=flag(set_to_none, "zero_grad, set_to_none"))

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Set requires_grad of all parameters; return self. They stay parameters."""
        for t in self.parameters():
            t.requires_grad = requires_grad
        return self

    def _apply(self, fn: Callable[[Tensor], Tensor | None], recurse: bool = True) -> Self:
        """Replace the value of each tensor, and its gradient, by that of a function of it; return self.

        A tensor stays as it is where the function returns None.
        """
        every = list({id(t): t for t in state.models.every_tensor(self, recurse=recurse).values()}.values())
        for t, value in [(t, fn(stopped(t))) for t in every]:
            if value is not None:
                refer(t, value.realize())
                give_gradients(t, t, lambda g: g if (new := fn(stopped(g))) is None else new.realize())
        return self

    def type(self, dst_type: DType | str) -> Self:
        """Convert all tensors, integers too, to a dtype; return self."""
        return self._apply(lambda t: t.cast(dst_type))

    def to_empty(self, *, device: str, recurse: bool = True) -> Self:
        """Move the tensors to a device, with their values; return self. See `to`."""
        where = Device.named(device)
        return self._apply(lambda t: _moved(t, where, None), recurse)

    def compile(self, **options: Any) -> None:
        """Let `forward` replay captured launches; options and errors are those of `frontend.compile`."""
        self.__dict__[FORWARD] = compiled.compile(self.forward, **options)

    @accepts_aliases
    def to(
        self,
        device: str | DType | Tensor | None = None,
        dtype: DType | str | None = None,
        non_blocking: bool = False,
    ) -> Self:
        """Move all tensors to a device, and convert float tensors to a float dtype, in place; return self.

        Gradients are moved and converted, too. Make an optimiser afterwards: its state is not moved.
        Arguments are those of `Tensor.to`, and so are errors. Raises `UsageError` also for a dtype that is no
        float, and inside a captured function. So do the methods `cpu`, `cuda`, `float`, `double`, `half` and
        `bfloat16`, which call it.
        """
        flag(non_blocking, "to, non_blocking")
        refuse(f"{type(self).__name__}.to inside a captured function; move the model outside")
        name: Any = device
        if isinstance(name, Tensor):
            name, dtype = name.device, name.dtype
        elif isinstance(name, DType):
            name, dtype = None, name
        kind = element_type(dtype)
        if kind is not None and not kind.is_float:
            raise UsageTypeError(f"{type(self).__name__}.to: wanted a float dtype, saw {kind.name}")
        where = Device.named(name) if name is not None else None
        return self._apply(lambda t: _moved(t, where, kind))

    def cpu(self) -> Self:
        """Move all tensors to the host; return self."""
        return self.to("cpu")

    def cuda(self, device: int | None = None) -> Self:
        """Move all tensors to a GPU of this machine, the first for None; return self. Raises as `to`."""
        return self.to("cuda" if device is None else f"cuda:{whole(device, 'cuda, device')}")

    def float(self) -> Self:
        """Convert all floats to float32; return self."""
        return self.to(dtype="float32")

    def double(self) -> Self:
        """Convert all floats to float64; return self."""
        return self.to(dtype="float64")

    def half(self) -> Self:
        """Convert all floats to float16; return self."""
        return self.to(dtype="float16")

    def bfloat16(self) -> Self:
        """Convert all floats to bfloat16; return self."""
        return self.to(dtype="bfloat16")

    def apply(self, fn: Callable[[Module], Any]) -> Self:
        """Call a function with each module inside this one, and with this one last; return self."""
        for m in reversed(list(self.modules())):
            fn(m)
        return self

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """Return the settings as text for `repr`; a subclass defines this method or `_template`."""
        return self._template.format(self)

    def _texts(self) -> list[tuple[str, str]]:
        """Return the texts of the children by name."""
        return [(name, repr(part)) for name, part in self._inner()]

    def __repr__(self) -> str:
        inner = [f"({name}): {text}".replace("\n", "\n  ") for name, text in self._texts()]
        if not inner:
            return f"{type(self).__name__}({self.extra_repr()})"
        lines = [self.extra_repr(), *inner] if self.extra_repr() else inner
        return "\n  ".join([f"{type(self).__name__}(", *lines]) + "\n)"

    def _repr_html_(self) -> str:
        """Return a table of the tensors by name, with the number of all elements."""
        every = {id(t): (name, t) for name, t in reversed(state.get_state_dict(self).items())}
        rows = [(n, "x".join(map(str, t.shape)), t.dtype.name, t.device) for n, t in reversed(every.values())]
        count = sum([t.numel() for _, t in every.values()])
        head = html_text(f"{type(self).__name__}: {count:,} elements in {len(rows)} tensors")
        return head + html_table(("tensor", "shape", "dtype", "device"), rows)


def _moved(t: Tensor, device: str | None, dtype: DType | None) -> Tensor | None:
    """Return a tensor on another device or, if it is a float, in another dtype; None: nothing changes."""
    kind = dtype if t.dtype.is_float else None
    if device in {None, t.device} and kind in {None, t.dtype}:
        return None
    new = t if device in {None, t.device} else t.to(device)
    return new if kind is None else new.cast(kind)


if TYPE_CHECKING:

    class Layer(Module):
        """A module whose result is a tensor."""

        def __call__(self, x: Tensor, /, *args: Any, **names: Any) -> Tensor:
            """Return `forward` of the arguments, as `Module` does."""

else:
    Layer = Module


def raised(x: Tensor) -> Tensor:
    """Return a tensor of 16-bit floats as float32 inside `nn.amp.autocast`; any other x itself."""
    return x.cast("float32") if modes.mixed() is not None and x.dtype.is_float and x.dtype.bits == 16 else x


def wide(x: Tensor) -> Tensor:
    """Return a tensor of 16-bit floats as float32, any other tensor itself."""
    return x.cast("float32") if x.dtype.is_float and x.dtype.bits == 16 else x


def rounded(y: Tensor, *of: Tensor | None) -> Tensor:
    """Return y in the dtype to which the tensors `of` promote; integers count as float32, None not at all."""
    kinds = [t.dtype if t.dtype.is_float else dtypes.float32 for t in of if t is not None]
    return y.cast(functools.reduce(promote, kinds))


def in_training(layer: Module) -> bool:
    """Return the training mode of a layer: that of the surrounding `Tensor.train`, else its own."""
    mode = modes.training(Tensor)
    return layer.training if mode is None else mode


class CompiledModule(Module):
    """A module of `frontend.compile`: `forward` replays captures; all else is that of `_orig_mod`."""

    def __init__(self, module: Module, compiled: Callable[..., Any]) -> None:
        super().__init__()
        self._orig_mod = module
        self.__dict__[COMPILED] = compiled

    def __getattr__(self, name: str) -> Any:
        if name == "_orig_mod":
            raise AttributeError(name)
        return getattr(self._orig_mod if hasattr(self._orig_mod, name) else self.__dict__[COMPILED], name)

    def forward(self, *args: Any, **names: Any) -> Any:
        """Return the result of the module. Raises as the module."""
        return self.__dict__[COMPILED](*args, **names)
