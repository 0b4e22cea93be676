"""Gradients switched on or off for a block or a function, under PyTorch's names.

    with no_grad():
        ...

    @inference_mode()
    def predict(x): ...

The mode holds for all threads of the process, as that of `Tensor.no_grad`.

Not here: which tensors require gradients (`frontend.evaluation.gradient_state`). Next: `engine`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ContextDecorator
from typing import Any, Final

from frontend.arguments.conversion import flag
from frontend.evaluation.base import THREAD
from frontend.later import AT_ONCE, later

if AT_ONCE:
    from frontend.autograd import anomaly
else:
    anomaly = later("frontend.autograd.anomaly")

ANOMALY: Final = [False]
"""Whether `backward` refuses NaN."""


class set_grad_enabled(ContextDecorator):  # noqa: N801 - PyTorch's name
    """Switch gradients on or off: from the call on, inside a `with` block, or in a decorated function.

    Results of operations that are called while gradients are off pass no gradient on. Raises `UsageTypeError`
    for a `mode` that is no bool.
    """

    def __init__(self, mode: bool) -> None:  # noqa: FBT001 - PyTorch's signature
        self._before = THREAD.cut
        self._mode = flag(mode, "set_grad_enabled, mode")
        self.__enter__()

    def __enter__(self) -> None:
        THREAD.cut = not self._mode

    def __exit__(self, *_: object) -> None:
        THREAD.cut = self._before


class _Mode(ContextDecorator):
    """A mode that holds inside a `with` block or a decorated function; blocks may be nested."""

    enabled = False

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        """Return the mode; of a decorator without parentheses, return the decorated `function`."""
        return object.__new__(cls) if function is None else cls()(function)

    def __enter__(self) -> None:
        THREAD.before = (*THREAD.before, THREAD.cut)
        THREAD.cut = not self.enabled

    def __exit__(self, *_: object) -> None:
        *outer, THREAD.cut = THREAD.before
        THREAD.before = tuple(outer)


class no_grad(_Mode):  # noqa: N801 - PyTorch's name
    """Compute without gradients inside a `with` block or a decorated function; as `Tensor.no_grad`."""


class enable_grad(_Mode):  # noqa: N801 - PyTorch's name
    """Compute with gradients inside a `with` block or a decorated function, also within `no_grad`."""

    enabled = True


class inference_mode(_Mode):  # noqa: N801 - PyTorch's name
    """Compute without gradients, as `no_grad`. `mode=False` has no effect.

    Results may be used in later computations with gradients, which PyTorch refuses. Raises `UsageTypeError`
    for a mode that is neither a bool nor a function.
    """

    def __new__(cls, mode: Any = True) -> Any:  # noqa: FBT002 - PyTorch's signature
        """Return the mode; if `mode` is a function, return it decorated."""
        return object.__new__(cls) if isinstance(mode, bool) else cls()(mode)

    def __init__(self, mode: Any = True) -> None:  # noqa: FBT002 - PyTorch's signature
        super().__init__()
        self._mode = flag(mode, "inference_mode, mode")

    def __enter__(self) -> None:
        THREAD.before = (*THREAD.before, THREAD.cut)
        if self._mode:
            THREAD.cut = True


class set_detect_anomaly(ContextDecorator):  # noqa: N801 - PyTorch's name
    """Let `backward` raise `UsageError` for a gradient with NaN, which is computed and read to find out.

    The error names the operation whose gradient is the first that is not finite, and the line of the program
    that called it in the mode, unless a profiler ran already. It holds from the call on, or inside a `with`
    block. Raises `UsageTypeError` for a mode that is no bool.
    """

    def __init__(self, mode: bool, check_nan: bool = True) -> None:  # noqa: FBT001, FBT002 - PyTorch's signature
        wanted = flag(mode, "set_detect_anomaly, mode") and flag(check_nan, "set_detect_anomaly, check_nan")
        self._before, ANOMALY[0] = ANOMALY[0], wanted
        anomaly.watch(on=wanted)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        ANOMALY[0] = self._before
        anomaly.watch(on=self._before)


class detect_anomaly(set_detect_anomaly):  # noqa: N801 - PyTorch's name
    """`set_detect_anomaly(True)`."""

    def __init__(self, check_nan: bool = True) -> None:  # noqa: FBT001, FBT002 - as above
        super().__init__(True, check_nan)


def is_grad_enabled() -> bool:
    """Return whether gradients are on: no mode is set, or the innermost one switches them on."""
    return not THREAD.cut
