"""The tensors of a model by name, found by walking attributes.

The tensors of an optimiser are attributes, too, and are found in the same way.

Not here: parameters alone (`nn.Module.parameters`). Next: `safetensors`, `checkpoints`, `gguf`, the files.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from frontend.arguments.conversion import shown
from frontend.evaluation.gradient_state import decided, is_parameter, listed, marked
from frontend.evaluation.realize import realize_many
from frontend.tensor import Tensor
from hcq.errors import UsageError, UsageTypeError

HOOKS: Final = "_hooks"
"""The attribute with the hooks of a module, which is no part of it."""
NAMES: Final = "_names"
"""The attribute with the names of the first elements of a list of modules."""
BUFFERS: Final = "_buffer_names"
"""The attribute of a module that called `Module.__init__` with the names of its buffers."""
COMPILED: Final = "_compiled"
"""The attribute with the `frontend.capture.compiled.Compiled` of a compiled module."""
CALLED: Final = "_called"
"""The attribute of a module whose parameters are decided: it was called, or was in one that was."""
FORWARD: Final = "forward"
"""The attribute with the `forward` of a module that was compiled in place."""
PLAIN: Final = "_plain"
"""The attribute of a layer with the names of tensors that a program set later, which are no part of it."""
PRIVATE: Final = frozenset({HOOKS, NAMES, BUFFERS, COMPILED, CALLED, FORWARD, PLAIN})
TRANSIENT: Final = "_transient"
"""The attribute with the names of the buffers of a module that are no part of its state."""


def get_state_dict(model: Any, prefix: str = "") -> dict[str, Tensor]:
    """Return the tensors of an object by name: attributes, list items and dictionary values, joined by dots.

    The tensors are those of the object, not copies. Names begin with `prefix` and a dot, unless it is "". A
    tensor or module that occurs twice has two names, another object is walked once. Plain lists,
    dictionaries and objects of a module that called `super().__init__()` are left out, as in PyTorch.

        get_state_dict(Linear(2, 3))      # {"weight": ..., "bias": ...}
    """
    found: dict[str, Tensor] = {}
    _walk(model, prefix, found, set())
    return found


def every_tensor(model: Any, *, buffered: bool = True, recurse: bool = True) -> dict[str, Tensor]:
    """Return the tensors of `get_state_dict` and the buffers that are no part of the state (`TRANSIENT`).

    Without `buffered` no registered buffers of modules are among them (`BUFFERS`). Without `recurse` those of
    the modules inside a module are left out.
    """
    found: dict[str, Tensor] = {}
    _walk(model, "", found, set(), transient=buffered, buffered=buffered, recurse=recurse)
    return found


def is_module(value: Any) -> bool:
    """Return whether a value is an `nn.Module`."""
    return hasattr(type(value), "register_buffer")


def parts_of(value: Any) -> list[tuple[str, Any]]:
    """Return (name, value) of the list items, dictionary values and attributes of a value.

    Items of a list have the names in its attribute `NAMES`, and beyond these their numbers. Of a module that
    has `BUFFERS` only attributes that are modules and tensors are parts.
    """
    attributes, found = getattr(value, "__dict__", {}), []
    if isinstance(value, dict):
        found = [(str(k), v) for k, v in value.items()]
    elif isinstance(value, (list, tuple)):
        names = attributes.get(NAMES, ())
        found = [(names[i] if i < len(names) else str(i), v) for i, v in enumerate(value)]
    every, left_out = BUFFERS not in attributes, PRIVATE.union(attributes.get(PLAIN, ()))
    return found + [
        (name, part)
        for name, part in attributes.items()
        if name not in left_out and (every or isinstance(part, Tensor) or is_module(part))
    ]


def _walk(
    value: Any,
    name: str,
    found: dict[str, Tensor],
    seen: set[int],
    *,
    transient: bool = False,
    registered: bool = False,
    buffered: bool = True,
    recurse: bool = True,
) -> None:
    """Add the tensors of a value to `found`; `registered`: parameters alone, and modules in containers.

    Without `buffered` the registered buffers of modules are left out, without `recurse` inner modules.
    """
    if isinstance(value, Tensor):
        if not registered or (hasattr(value, "state") and value.state.parameter):
            found[name] = value
        return
    module = is_module(value)
    if id(value) in seen or (registered and not module and not isinstance(value, (list, tuple, dict))):
        return
    seen.add(id(value))
    attributes = getattr(value, "__dict__", {})
    passing = () if transient else attributes.get(TRANSIENT, ())
    buffers = attributes.get(BUFFERS)
    parts = [p for p in parts_of(value) if p[0] not in passing]
    for key, part in sorted(parts, key=lambda p: _place(p, buffers or ())):
        inner = (buffers is not None and key not in buffers) if module else registered
        full = f"{name}.{key}" if name else key
        left_out = not buffered and buffers and key in buffers and isinstance(part, Tensor)
        if not left_out and (recurse or not is_module(part)):
            rest = {"transient": transient, "buffered": buffered, "recurse": recurse}
            _walk(part, full, found, seen, registered=inner, **rest)
    if module or isinstance(value, (list, tuple, dict)):
        seen.discard(id(value))  # they have further names; a circle ends


def _place(part: tuple[str, Any], buffers: Collection[str]) -> int:
    """Return the order of an attribute, as in PyTorch: parameters, then buffers, then what has tensors."""
    name, value = part
    if not isinstance(value, Tensor):
        return 2
    return 0 if name not in buffers and is_parameter(value) and value.dtype.is_float else 1


def get_parameters(model: Any) -> list[Tensor]:
    """Return all tensors of an object, each once, in the order of `get_state_dict`."""
    return list({id(t): t for t in get_state_dict(model).values()}.values())


class LoadedKeys(NamedTuple):
    """The names of a state that did not fit: those that it lacked, and those that the object lacks."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"LoadedKeys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


def owner_of(model: Any, name: str) -> tuple[Any, Any]:
    """Return what holds the tensor of a dotted name, and its key there: a dictionary or list, and a key.

    Raises `UsageError` where there is none.
    """
    value: Any = model
    *path, last = name.split(".")
    for part in path:
        value = dict(parts_of(value)).get(part)
    holders: list[tuple[Any, Any]] = [(getattr(value, "__dict__", {}), last)]
    if isinstance(value, dict):
        holders.insert(0, (value, last))
    if isinstance(value, list) and last.isdigit() and int(last) < len(value):
        holders.insert(0, (value, int(last)))
    for holder, key in holders:
        if (isinstance(holder, list) or key in holder) and isinstance(holder[key], Tensor):
            return holder, key
    raise UsageError(f"{type(model).__name__} has no tensor {name!r}; see named_parameters()")


def load_state_dict(
    model: Any, state: Mapping[str, Tensor], *, strict: bool = True, assign: bool = False
) -> LoadedKeys:
    """Assign values to the tensors of an object by name, in place; return the names that did not fit.

    Values are cast to the dtype and moved to the device of their target, and computed. Without `strict`,
    missing and unknown names are left out. Counts of batches may be missing, as in PyTorch: older files and
    copies of dictionaries lack them. With `assign` the object has the values themselves, of their dtypes and
    devices; parameters keep their requires_grad. Raises `UsageError` for missing and unknown names with
    `strict`, and for a value of another shape; `UsageTypeError` for no mapping and a value that is no tensor.
    Nothing is assigned then.
    """
    if not hasattr(state, "items"):
        hint = "frontend.load(path) reads them from a file; model.state_dict() are those of a model"
        raise UsageTypeError(f"load_state_dict: wanted tensors by name, saw {shown(state)}\nhint: {hint}")
    own = get_state_dict(model)
    missing = [n for n in own if n not in state and n.rpartition(".")[2] != "num_batches_tracked"]
    extra = [n for n in state if n not in own]
    if strict and (missing or extra):
        raise UsageError(f"load_state_dict: missing {missing or 'nothing'}, unknown {extra or 'nothing'}")
    pairs = [(name, t, state[name]) for name, t in own.items() if name in state]
    for name, t, value in pairs:
        if not isinstance(value, Tensor):
            raise UsageTypeError(
                f"load_state_dict: {name} is {shown(value)}, no tensor\nhint: Tensor(value) makes one"
            )
        if not hasattr(t, "materialize") and t.shape != value.shape:
            raise UsageError(f"load_state_dict: {name} has the shape {t.shape}, the value has {value.shape}")
    if assign:
        for name, t, value in pairs:
            holder, key = owner_of(model, name)
            new = marked(value.detach(), decided(t) if value.dtype.is_float else None)
            holder[key] = listed(new) if is_parameter(t) and t.dtype.is_float else new
        return LoadedKeys(missing, extra)
    for _, t, value in pairs:
        if hasattr(t, "materialize"):  # a lazy layer's, before its first call
            t.materialize(value.shape)
        t.assign(value.detach().to(t.device).cast(t.dtype))
    realize_many([t for _, t, _ in pairs])
    return LoadedKeys(missing, extra)
