"""Tensors of modules: parameters, buffers, and those of lazy layers that have no shape yet.

Not here: the layers (`lazy`). Next: `module`, whose tensors these are.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn, cast

from frontend.arguments.aliases import accepts_aliases
from frontend.arguments.conversion import flag
from frontend.assignment import refer
from frontend.evaluation.constants import stopped
from frontend.evaluation.gradient_state import is_parameter, listed, was_marked
from frontend.tensor import Tensor
from hcq.errors import UsageError, UsageTypeError

__all__ = ["Parameter", "UninitializedBuffer", "UninitializedParameter"]

PERSISTENT: Final = "persistent"
"""The attribute of a tensor that `nn.Buffer` made: whether the state holds it."""


class _ParameterType(type):
    """The type of `Parameter`: tensors that a module listed, or with requires_grad, are its instances."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, Tensor) and is_parameter(value) and was_marked(value)


class Parameter(metaclass=_ParameterType):
    """A tensor that an optimiser may change: `Parameter(data)` is a new `Tensor`.

        self.scale = nn.Parameter(Tensor.ones(8))

    Float tensors need no wrapping: unless requires_grad is False they are parameters, too. Raises
    `UsageError` for data that is no float, unless `requires_grad` is False.
    """

    @accepts_aliases
    def __new__(cls, data: Any = (), requires_grad: bool = True) -> Any:  # noqa: FBT001, FBT002 - the field's signature
        """Return data, by default none, as a tensor with `requires_grad`."""
        found = stopped(data) if isinstance(data, Tensor) else Tensor(data)
        found.requires_grad = flag(requires_grad, "Parameter, requires_grad")
        return listed(found)


class _BufferType(type):
    """The type of `nn.Buffer`: tensors that it made are its instances."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, Tensor) and PERSISTENT in vars(value)


class ModuleBuffer(metaclass=_BufferType):
    """A tensor that becomes a buffer of the module whose attribute it is: `nn.Buffer(data)` makes one.

    The state dictionary holds it only if it is `persistent`. Its requires_grad is False.
    """

    @accepts_aliases
    def __new__(cls, data: Any = None, *, persistent: bool = True) -> Any:
        """Return data, by default an empty tensor, as a buffer."""
        found = stopped(data) if isinstance(data, Tensor) else Tensor([] if data is None else data)
        found.requires_grad = False
        vars(found)[PERSISTENT] = flag(persistent, "Buffer, persistent")
        return found


class _TensorType(type):
    """The type of `autograd.Variable`: every tensor is its instance."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, Tensor)


class TensorVariable(metaclass=_TensorType):
    """`autograd.Variable(data)` of older programs: a tensor with the memory of `data` and no graph."""

    def __new__(cls, data: Any, requires_grad: bool = False) -> Any:  # noqa: FBT001, FBT002 - PyTorch's signature
        """Return it. Raises `UsageTypeError` if `data` is no tensor."""
        if not isinstance(data, Tensor):
            raise UsageTypeError(f"Variable: wanted a tensor, saw a value of type {type(data).__name__}")
        return data.detach().requires_grad_(requires_grad)


Variable = TensorVariable


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
