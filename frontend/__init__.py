"""Lazy tensors, gradients, networks and captured functions on hardware queues.

    from frontend import Tensor
    print((Tensor([2]) + Tensor([3])).tolist())

Importing `frontend` loads neither NumPy nor a device nor the code generator. `nn`, `optim`, `TinyJit`,
`Variable`, `Function` and the two `checkpoint` functions load when first used.

Not here: queues and devices (`hcq`), kernels (`compiler`). Next: docs/way-of-a-tensor.md; `tensor`,
`evaluation`.
"""

from __future__ import annotations

import builtins
from importlib import import_module
from typing import TYPE_CHECKING, Any

from compiler.dtype import dtypes
from frontend.arguments.aliases import accepts_aliases
from frontend.device import Device
from frontend.device import DeviceName as device  # noqa: N813 - PyTorch's name
from frontend.stats import stats
from frontend.tensor import Tensor
from hcq.names import AbsentNameError

if TYPE_CHECKING:
    from frontend import nn, optim
    from frontend.autograd.checkpoint import checkpoint, checkpoint_sequential
    from frontend.autograd.function import Function
    from frontend.capture.jit import TinyJit
    from frontend.variable import Variable

__all__ = [
    "Device", "Function", "Tensor", "TinyJit", "Variable", "checkpoint", "checkpoint_sequential", "device",
    "dtypes", "nn", "optim", "stats", "tensor",
]  # fmt: skip

_PACKAGES = frozenset({
    "accelerator", "amp", "autograd", "backends", "compiler", "cuda", "distributed", "distributions", "func",
    "hub", "jit", "linalg", "llm", "nn", "onnx", "optim", "random", "special", "testing", "utils",
})  # fmt: skip


@accepts_aliases
def tensor(
    data: Any, *, dtype: Any = None, device: str | None = None, requires_grad: bool | None = None
) -> Tensor:
    """Return a tensor of a number, nested lists or an array.

    Raises `UsageError` and `UsageTypeError` as `Tensor`.
    """
    if data.__class__ is builtins.int:  # `Tensor` would take it for a size; `int` may be PyTorch's name here
        return Tensor.full((), data, dtype=dtype, device=device, requires_grad=requires_grad)
    if isinstance(data, builtins.float) and dtype is None and hasattr(data, "dtype"):
        dtype = dtypes.float64  # a number of NumPy
    return Tensor(data, dtype=dtype, device=device, requires_grad=requires_grad)


def __getattr__(name: str) -> Any:
    """Return a name that loads later. Raises `AbsentNameError`."""
    functions = import_module("frontend.functions")
    if name in _PACKAGES:
        value: Any = import_module(f"frontend.{name}")
    elif name in functions.HOMES:
        value = getattr(import_module(functions.HOMES[name]), name)
    elif name in functions.NAMES:
        value = functions.find(name)
    elif name.startswith("_foreach_") or name == "_assert":
        value = functions.private(name)
    else:
        raise AbsentNameError("module 'frontend'", name, _places)
    globals()[name] = value
    return value


def _places() -> list[tuple[str, list[str]]]:
    return [("", __dir__()), ("Tensor.", dir(Tensor)), ("nn.", dir(import_module("frontend.nn")))]


def __dir__() -> list[str]:
    return sorted({*__all__, *_PACKAGES, *import_module("frontend.functions").NAMES})
