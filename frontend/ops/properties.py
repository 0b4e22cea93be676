"""Properties of a tensor as methods, with PyTorch's names; many are the same for every tensor here.

Not here: shape, dtype and device. Next: `frontend.tensor`.
"""

from __future__ import annotations

from typing import Any

from frontend.arguments.checks import tensor
from frontend.arguments.conversion import converting, flag
from frontend.evaluation.base import T, TensorBase
from frontend.evaluation.views import is_dense, offset, others, strides
from frontend.ops import movement
from hcq.errors import UsageTypeError


@converting
def is_same_size(self: TensorBase, other: TensorBase) -> bool:
    """Return whether another tensor has the same shape. Raises `UsageTypeError` for no tensor."""
    tensor(other, "is_same_size", self)
    return self.expr.shape == other.expr.shape


def is_signed(self: TensorBase) -> bool:
    """Return whether the dtype has negative numbers: a signed integer or a float."""
    return self.expr.dtype.is_signed


def is_complex(self: TensorBase) -> bool:
    """Return False: no tensor is complex, a lazy conjugate or negation, or in pinned or shared memory."""
    del self
    return False


is_conj = is_neg = is_inference = is_pinned = is_shared = is_distributed = is_complex


def is_contiguous(self: TensorBase, *, memory_format: str = "contiguous_format") -> bool:
    """Return whether elements follow in memory in row-major order: for all tensors but some views.

    False for another `memory_format`; `UsageTypeError` for no name of one.
    """
    if not isinstance(memory_format, str):
        raise UsageTypeError(f"is_contiguous: wanted a memory format, saw {type(memory_format).__name__}")
    return memory_format == "contiguous_format" and is_dense(self)


def contiguous(self: T) -> T:
    """Return self if its elements follow in row-major order, else a copy of which they do."""
    return self if is_dense(self) else movement.contiguous(self)


def get_device(self: TensorBase) -> int:
    """Return the number of the device, 0 for "nv:0"; -1 for the host, "cpu"."""
    kind, _, which = self.expr.device.partition(":")
    return -1 if kind == "cpu" else int(which) if which.isdigit() else 0


@converting
def cuda(self: T, device: int | str | None = None, non_blocking: bool = False) -> T:  # noqa: FBT001, FBT002 - the field's signature
    """Return the value on a GPU of this machine: the first for None, number 1 for 1. Raises as `to`.

    `non_blocking` changes nothing: the host never waits.
    """
    flag(non_blocking, "cuda, non_blocking")
    return self.to(device if isinstance(device, str) else "cuda" if device is None else f"cuda:{device}")


def retain_grad(self: Any) -> None:
    """Set requires_grad, so that `backward` stores the gradient of this tensor in `grad`.

    Raises `UsageError` for a tensor that is no float.
    """
    self.requires_grad = True


def is_nonzero(self: TensorBase) -> bool:
    """Return whether the only element is not zero, computing it. Raises as `item`."""
    return bool(self.item())


def storage_offset(self: TensorBase) -> int:
    """Return the place of the first element in the memory of the tensor that this one is a view of."""
    return offset(self)


@converting
def is_set_to(self: TensorBase, tensor: TensorBase) -> bool:
    """Return whether another tensor has the same elements in the same memory, in the same order."""
    shared = self is tensor or any(self is t for t in others(tensor))
    return shared and (self.expr.shape, strides(self), offset(self)) == (
        tensor.expr.shape,
        strides(tensor),
        offset(tensor),
    )


def ndimension(self: TensorBase) -> int:
    """Return the number of axes."""
    return len(self.expr.shape)


def dim_order(self: TensorBase) -> tuple[int, ...]:
    """Return the numbers of the axes from the outermost one in memory on, by `stride`."""
    apart = strides(self)
    return tuple(sorted(range(len(apart)), key=lambda axis: -apart[axis]))


def pin_memory(self: T) -> T:
    """Return self: a device copies from all memory of the host alike."""
    return self
