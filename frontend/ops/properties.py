"""Small methods of PyTorch's: tensors made like another, limits of one side, and what holds here for all.

All tensors are of real numbers: `conj`, `real` and `adjoint` are those of real numbers.

Not here: other creation methods (`creation`), limits of both sides (`elementwise`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from compiler.dtype import DType, dtypes
from frontend.arguments.checks import element_type, tensor
from frontend.arguments.conversion import converting, flag
from frontend.evaluation.base import T, TensorBase
from frontend.evaluation.constants import Number, constant
from frontend.evaluation.trace import method
from frontend.ops import creation
from frontend.ops.elementwise import clip
from frontend.ops.gather_scatter import nonzero
from frontend.ops.movement import transpose
from hcq.errors import UsageError


def _made(make: Callable[..., Any], like: T, *args: Any, dtype: DType | str | None, device: str | None) -> T:
    e = like.expr
    where = e.device if device is None else device
    made: T = make(like.__class__, *args, dtype=element_type(dtype) or e.dtype, device=where)
    return made


def new_zeros(
    self: T, *shape: int | Sequence[int], dtype: DType | str | None = None, device: str | None = None
) -> T:
    """Return zeros of a shape in the dtype and on the device of self."""
    return _made(creation.zeros, self, *shape, dtype=dtype, device=device)


def new_ones(
    self: T, *shape: int | Sequence[int], dtype: DType | str | None = None, device: str | None = None
) -> T:
    """Return ones of a shape in the dtype and on the device of self."""
    return _made(creation.ones, self, *shape, dtype=dtype, device=device)


def new_empty(
    self: T, *shape: int | Sequence[int], dtype: DType | str | None = None, device: str | None = None
) -> T:
    """Return a realized tensor with undefined contents in the dtype and on the device of self."""
    return _made(creation.empty, self, *shape, dtype=dtype, device=device)


@converting
def new_full(
    self: T,
    shape: int | Sequence[int],
    fill_value: float,
    *,
    dtype: DType | str | None = None,
    device: str | None = None,
) -> T:
    """Return one number in a shape, in the dtype and on the device of self."""
    return _made(creation.full, self, shape, fill_value, dtype=dtype, device=device)


def new_tensor(
    self: T,
    data: Any,
    *,
    dtype: DType | str | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> T:
    """Return a tensor of host data in the dtype and on the device of self."""
    make: Any = self.__class__
    where = self.expr.device if device is None else device
    found = element_type(dtype) or self.expr.dtype
    wanted = flag(requires_grad, "new_tensor, requires_grad") or None
    made: T = make(data, dtype=found, device=where, requires_grad=wanted)
    return made


@converting
def clamp_min(self: T, low: T | Number) -> T:
    """Return values limited from below; see `clip`."""
    return clip(self, low, None)


@converting
def clamp_max(self: T, high: T | Number) -> T:
    """Return values limited from above; see `clip`."""
    return clip(self, None, high)


def argwhere(self: T) -> T:
    """Return the coordinates (int32) of elements that are not zero, a row each; see `nonzero`."""
    found: Any = nonzero(self)
    made: T = found
    return made


@converting
def nonzero_static(self: T, *, size: int | None = None, fill_value: int = -1) -> T:
    """Return `size` rows of coordinates (int32); see `nonzero`. Raises `UsageError` without a size."""
    if size is None:
        raise UsageError("nonzero_static: wanted size=, the number of rows; nonzero() counts them")
    found: Any = nonzero(self, size=size, fill_value=fill_value)
    made: T = found
    return made


@converting
def is_same_size(self: TensorBase, other: TensorBase) -> bool:
    """Return whether another tensor has the same shape."""
    tensor(other, "is_same_size", self)
    return self.expr.shape == other.expr.shape


def is_signed(self: TensorBase) -> bool:
    """Return whether the dtype has negative numbers."""
    return self.expr.dtype.kind in {"int", "float"}


def is_complex(self: TensorBase) -> bool:
    """Return False: no tensor is complex, a lazy conjugate, or in pinned or shared memory."""
    del self
    return False


is_conj = is_neg = is_inference = is_pinned = is_shared = is_complex


def is_contiguous(self: TensorBase) -> bool:
    """Return True: a tensor is read in row-major order, and `view` takes every shape of its size."""
    del self
    return True


def get_device(self: TensorBase) -> int:
    """Return the number of the device, 0 for "nv:0"; -1 for the host, "cpu"."""
    kind, _, which = self.expr.device.partition(":")
    return -1 if kind == "cpu" else int(which) if which.isdigit() else 0


@converting
def cuda(self: T, device: int | str | None = None) -> T:
    """Return the value on an NVIDIA GPU: `to("nv")`, or `to("nv:1")` for the number 1."""
    if isinstance(device, str):
        return self.to(device.replace("cuda", "nv"))
    return self.to("nv" if device is None else f"nv:{device}")


def retain_grad(self: Any) -> None:
    """Keep the gradient that `backward` computes of this tensor, in `grad`: sets requires_grad."""
    self.requires_grad = True


def is_nonzero(self: TensorBase) -> bool:
    """Return whether the only element is not zero. Computes it."""
    return bool(self.item())


@method
def conj(self: T) -> T:
    """Return self: numbers are real."""
    return self


@method
def isreal(self: T) -> T:
    """Return true for every element: numbers are real."""
    return constant(self, True, dtypes.bool, self.expr.shape)


def adjoint(self: T) -> T:
    """Return the last two axes swapped. A view."""
    if len(self.expr.shape) < 2:
        raise UsageError(f"adjoint: wanted at least two axes, saw the shape {self.expr.shape}")
    return transpose(self, -2, -1)


def ndimension(self: TensorBase) -> int:
    """Return the number of axes."""
    return len(self.expr.shape)
