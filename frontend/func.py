"""Modules as functions of their parameters, under the name of `torch.func`.

Not here: gradients (`frontend.autograd`), modules (`frontend.nn.module`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from frontend.nn.state.models import parts_of
from frontend.tensor import Tensor
from hcq.errors import UsageError

if TYPE_CHECKING:
    from frontend.nn.module import Module


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: Mapping[str, Tensor],
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
) -> Any:
    """Return `module(*args, **kwargs)` with other tensors in place of its parameters and buffers.

    The tensors are given by the names of `named_parameters` and `named_buffers`; the module is unchanged
    afterwards. `args` is a tuple, or one argument. Not thread-safe: the module has the tensors during the
    call. Raises `UsageError` for a name that the module lacks.
    """
    owners = [(*_owner(module, name), tensor) for name, tensor in parameter_and_buffer_dicts.items()]
    before = [owner[key] for owner, key, _ in owners]
    try:
        for owner, key, tensor in owners:
            owner[key] = tensor
        return module(*(args if isinstance(args, tuple) else (args,)), **(kwargs or {}))
    finally:
        for (owner, key, _), tensor in zip(owners, before, strict=True):
            owner[key] = tensor


def _owner(module: Module, name: str) -> tuple[Any, Any]:
    """Return what holds the tensor of a dotted name, and its key there: a dictionary or list, and a key."""
    value: Any = module
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
    raise UsageError(
        f"functional_call: {type(module).__name__} has no tensor {name!r}; see named_parameters()"
    )
