"""Memory of PyTorch's tensors as tensors of the frontend, and results as PyTorch's, on cpu without a copy.

A dense tensor whose memory is aligned is used in place, in whatever order its axes lie. Others are copied:
strided and expanded ones, memory that is not aligned, and all on devices other than the host's. Results are
new memory, which PyTorch owns (`frontend.dlpack`).

Not here: which tensors are passed (`graph`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from compiler.dtype import DType, by_name
from frontend.evaluation.expr import leaf_expr
from frontend.evaluation.storage import Leaf, stored
from frontend.tensor import Tensor
from hcq.errors import UnsupportedError, UsageError

if TYPE_CHECKING:
    from frontend.device import TensorDevice

ALIGN: Final = 64
"""Bytes: the widest vector of a host. Kernels assume less; PyTorch aligns its own memory so."""


class Form(NamedTuple):
    """What a capture depends on of a tensor: shape, dtype, and the order of its axes in memory."""

    shape: tuple[int, ...]
    dtype: DType
    order: tuple[int, ...] | None
    """Axes from the outermost to the innermost; None: C order."""


def dtype_of(kind: Any) -> DType:
    """Return the dtype of PyTorch's. Raises `UnsupportedError` for one that tensors lack: complex numbers."""
    name = str(kind).removeprefix("torch.")
    try:
        return by_name(name)
    except UsageError:
        raise UnsupportedError(
            f"torch.compile: hcq has no dtype {name}\nhint: keep that part out of the compiled function"
        ) from None


def order_of(shape: Any, strides: Any) -> tuple[int, ...] | None:
    """Return the order of the axes of dense memory; None for C order, and for memory that is not dense."""
    axes = sorted(range(len(shape)), key=lambda i: (-strides[i], i))
    axes.sort(key=lambda i: bool(shape[i] == 1))  # their strides mean nothing
    step = 1
    for i in reversed(axes):
        if shape[i] != 1 and strides[i] != step:
            return None
        step *= shape[i]
    wide = [i for i in axes if shape[i] != 1]
    return None if wide == sorted(wide) else tuple(axes)


def inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    """Return the permutation that undoes `order`."""
    return tuple([order.index(i) for i in range(len(order))])


def form_of(t: Any) -> Form:
    """Return the form of a tensor of PyTorch. Raises `UnsupportedError` for one that is not dense on cpu."""
    if t.device.type != "cpu" or t.layout is not torch.strided:
        raise UnsupportedError(
            f"torch.compile: hcq wants PyTorch's tensors on cpu, saw {t.layout} on {t.device}\n"
            'hint: options={"device": ...} names the device that computes; the tensors stay on cpu'
        )
    shape = tuple(t.shape)
    return Form(shape, dtype_of(t.dtype), None if t.is_contiguous() else order_of(shape, t.stride()))


def shared(t: Any, form: Form, device: TensorDevice) -> Tensor:
    """Return a tensor with the elements of `t` in the order of its memory; see `in_order`.

    It is valid as long as `t` and its values are not changed. Raises as `hcq.Device.alloc`.
    """
    t = t.detach()
    if form.order is not None:
        t = t.permute(form.order)
    t = t.resolve_neg().contiguous()
    shape = tuple(t.shape)
    data = memoryview(t.reshape(-1).view(torch.uint8).numpy()) if t.numel() else memoryview(b"")
    if not data or not device.direct or t.data_ptr() % ALIGN:
        return Tensor.of_part(stored(data, shape, form.dtype, device.name))
    leaf = Leaf(device.hcq.host_buffer(data, label="tensor of PyTorch"))
    return Tensor.of_part((leaf_expr(shape, form.dtype, device.name), (leaf,)))


def in_order(t: Tensor, form: Form) -> Tensor:
    """Return what `shared` gave with the axes in their own order."""
    return t if form.order is None else t.permute(inverse(form.order))


def given_back(t: Tensor, order: tuple[int, ...] | None) -> Any:
    """Return a tensor of PyTorch with the memory of `t`, whose axes lie in `order`; waits for the value."""
    made = torch.from_dlpack(t)
    return made if order is None else made.permute(inverse(order))
