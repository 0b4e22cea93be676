"""PyTorch's `nn.parameter`: parameters, and tensors of lazy layers that have no shape yet.

Not here: the layers (`lazy`). Next: `module`, whose tensors these are.
"""

from __future__ import annotations

from typing import Any, NoReturn, cast

from frontend.assignment import refer
from frontend.nn.module import Parameter
from frontend.tensor import Tensor
from hcq.errors import UsageError

__all__ = ["Parameter", "UninitializedBuffer", "UninitializedParameter"]


class Uninitialized(Tensor):
    """A tensor of a lazy layer before the layer's first call, which gives it a shape."""

    __slots__ = ()

    def _none(self, *_args: Any) -> NoReturn:
        raise UsageError(
            f"{type(self).__name__}: it has no shape before the first call of its layer\n"
            "hint: call the model once with an example, and make the optimiser afterwards"
        )

    shape = property(_none)
    numel = size = __len__ = cast("Any", _none)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def materialize(self, shape: tuple[int, ...]) -> None:
        """Become a tensor of zeros of a shape, in place."""
        self.become(Tensor.zeros(*shape))

    def become(self, value: Tensor) -> None:
        """Become a tensor of the value, of this tensor's dtype and device, in place."""
        kept = value.detach().to(self.device).cast(self.dtype).realize()
        self.__class__ = Tensor  # type: ignore[assignment]  # it is one from now on
        refer(self, kept)


class UninitializedParameter(Uninitialized):
    """A parameter of a lazy layer before the layer's first call."""

    __slots__ = ()

    def __init__(self, requires_grad: bool = True, device: Any = None, dtype: Any = "float32") -> None:  # noqa: FBT001, FBT002 - the field's signature
        super().__init__([], dtype=dtype, device=device, requires_grad=requires_grad)


class UninitializedBuffer(Uninitialized):
    """A buffer of a lazy layer before the layer's first call."""

    __slots__ = ()

    def __init__(self, requires_grad: bool = False, device: Any = None, dtype: Any = "float32") -> None:  # noqa: FBT001, FBT002 - as above
        super().__init__([], dtype=dtype, device=device, requires_grad=requires_grad)
