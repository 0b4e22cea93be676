"""Gradients switched on or off for a block or a function, under PyTorch's names.

    with no_grad():
        ...

    @inference_mode()
    def predict(x): ...

The mode holds for the whole process, as that of `Tensor.no_grad`.

Not here: which tensors want gradients (`frontend.evaluation.gradient_state`). Next: `engine`, which computes
them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ContextDecorator
from typing import Any, Final

from frontend.arguments.conversion import flag
from frontend.evaluation.trace import CUT

_WITHOUT: Final = [None]
"""`CUT` while gradients are off."""


class set_grad_enabled(ContextDecorator):  # noqa: N801 - PyTorch's name
    """Switch gradients on or off: from the call on, inside a `with` block, or in a decorated function.

    Results of operations that are called while they are off pass no gradient on. Raises `UsageTypeError` for
    a `mode` that is no bool.
    """

    def __init__(self, mode: bool) -> None:  # noqa: FBT001 - PyTorch's signature
        self._before = CUT[:]
        self._mode = flag(mode, "set_grad_enabled, mode")
        self.__enter__()

    def __enter__(self) -> None:
        CUT[:] = [] if self._mode else _WITHOUT

    def __exit__(self, *_: object) -> None:
        CUT[:] = self._before


class _Mode(ContextDecorator):
    """A mode that holds inside a `with` block or a decorated function; blocks nest."""

    enabled = False

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        """Return the mode, or `function` decorated with it where it is used without parentheses."""
        return object.__new__(cls) if function is None else cls()(function)

    def __init__(self, function: Callable[..., Any] | None = None) -> None:
        del function
        self._before: list[list[None]] = []

    def __enter__(self) -> None:
        self._before.append(CUT[:])
        CUT[:] = [] if self.enabled else _WITHOUT

    def __exit__(self, *_: object) -> None:
        CUT[:] = self._before.pop()


class no_grad(_Mode):  # noqa: N801 - PyTorch's name
    """Compute without gradients inside a `with` block or a decorated function; as `Tensor.no_grad`."""


class enable_grad(_Mode):  # noqa: N801 - PyTorch's name
    """Compute with gradients inside a `with` block or a decorated function, also within `no_grad`."""

    enabled = True


class inference_mode(_Mode):  # noqa: N801 - PyTorch's name
    """Compute without gradients, as `no_grad`. `mode=False` changes nothing.

    Unlike PyTorch's, its results may take part in later computations with gradients.
    """

    def __new__(cls, mode: Any = True) -> Any:  # noqa: FBT002 - PyTorch's signature
        """Return the mode, or `mode` decorated with it where that is a function."""
        return object.__new__(cls) if isinstance(mode, bool) else cls()(mode)

    def __init__(self, mode: Any = True) -> None:  # noqa: FBT002 - PyTorch's signature
        super().__init__()
        self._mode = flag(mode, "inference_mode, mode")

    def __enter__(self) -> None:
        self._before.append(CUT[:])
        if self._mode:
            CUT[:] = _WITHOUT


def is_grad_enabled() -> bool:
    """Return whether gradients are on: outside of every block of `no_grad`."""
    return not CUT
