"""Sets of values under the names of `torch.distributions.constraints`: of parameters, and of supports.

`check(value)` returns bools of the batch's shape. Bounds are numbers or tensors.

Not here: who checks (`distributions.Distribution`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from frontend.tensor import Tensor
from frontend.torch.linalg import cholesky_ex

__all__ = [
    "Constraint", "boolean", "dependent", "dependent_property", "greater_than", "greater_than_eq",
    "half_open_interval", "independent", "integer_interval", "interval", "is_dependent", "less_than",
    "lower_cholesky", "lower_triangular", "nonnegative", "nonnegative_integer", "one_hot", "positive",
    "positive_definite", "positive_integer", "real", "real_vector", "simplex", "square", "symmetric",
    "unit_interval",
]  # fmt: skip


class Constraint:
    """A set of numbers, or of arrays of `event_dim` axes, with a text that follows "wanted"."""

    is_discrete = False
    event_dim = 0

    def __init__(
        self, text: str = "", check: Any = None, *, is_discrete: bool = False, event_dim: int = 0
    ) -> None:
        self.text, self.is_discrete, self.event_dim = text, is_discrete, event_dim
        self._check: Callable[[Any], Any] | None = check

    def check(self, value: Any) -> Any:
        """Return for each array of a tensor whether it is in the set.

        Raises `NotImplementedError` in a subclass that does not define it.
        """
        if self._check is None:
            raise NotImplementedError(f"{self!r}: no check")
        return self._check(value)

    def __repr__(self) -> str:
        return self.text or type(self).__name__


class _Dependent(Constraint):
    """A set that follows from parameters of the distribution, and is not checked."""

    def __call__(self, *, is_discrete: bool = False, event_dim: int = 0) -> _Dependent:
        return _Dependent("values by other parameters", is_discrete=is_discrete, event_dim=event_dim)


class dependent_property(property):  # noqa: N801 - PyTorch's name
    """A property of a distribution that is a constraint, also with settings: `@dependent_property(...)`."""

    def __init__(self, fn: Any = None, *, is_discrete: bool = False, event_dim: int = 0) -> None:
        super().__init__(fn)
        self.is_discrete, self.event_dim = is_discrete, event_dim

    def __call__(self, fn: Any) -> dependent_property:
        """Return the property of a function."""
        return dependent_property(fn, is_discrete=self.is_discrete, event_dim=self.event_dim)


def is_dependent(constraint: Any) -> bool:
    """Return whether a constraint follows from parameters of its distribution."""
    return isinstance(constraint, (_Dependent, dependent_property))


def _whole(v: Any) -> Any:
    return v % 1 == 0


def _between(text: str, check: Callable[..., Any], *, is_discrete: bool = False) -> Callable[..., Constraint]:
    """Return the function of bounds that returns the set of numbers within them."""

    def function(*bounds: Any) -> Constraint:
        return Constraint(text.format(*bounds), lambda v: check(v, *bounds), is_discrete=is_discrete)

    function.__doc__ = f"Return the {text.format('a bound', 'another one')}."
    return function


greater_than = _between("values greater than {}", lambda v, low: v > low)
greater_than_eq = _between("values of at least {}", lambda v, low: v >= low)
less_than = _between("values less than {}", lambda v, high: v < high)
interval = _between("values in [{}, {}]", lambda v, low, high: (v >= low) & (v <= high))
half_open_interval = _between("values in [{}, {})", lambda v, low, high: (v >= low) & (v < high))
integer_interval = _between(
    "whole numbers in [{}, {}]", lambda v, low, high: _whole(v) & (v >= low) & (v <= high), is_discrete=True
)


def independent(base: Any, axes: int) -> Constraint:
    """Return the arrays all of whose elements along the last axes are in a set."""
    return Constraint(
        str(base),
        lambda v: base.check(v).all(tuple(range(-axes, 0))) if axes else base.check(v),
        is_discrete=base.is_discrete,
        event_dim=base.event_dim + axes,
    )


def _vectors(text: str, check: Any, *, is_discrete: bool = False, axes: int = 1) -> Constraint:
    return Constraint(text, check, is_discrete=is_discrete, event_dim=axes)


def _triangular(v: Any) -> Any:
    return (v.tril() == v).all((-2, -1))


def _symmetric(v: Any) -> Any:
    return v.isclose(v.mT, atol=1e-6).all((-2, -1))


dependent: Final = _Dependent("values by other parameters")
boolean: Final = Constraint("0 or 1", lambda v: (v == 0) | (v == 1), is_discrete=True)
real: Final = Constraint("numbers", lambda v: v == v)  # noqa: PLR0124 - no NaN
positive: Final = greater_than(0.0)
nonnegative: Final = greater_than_eq(0.0)
unit_interval: Final = interval(0.0, 1.0)
nonnegative_integer: Final = Constraint(
    "whole numbers of at least 0", lambda v: _whole(v) & (v >= 0), is_discrete=True
)
positive_integer: Final = Constraint(
    "whole numbers above 0", lambda v: _whole(v) & (v >= 1), is_discrete=True
)
real_vector: Final = independent(real, 1)
simplex: Final = _vectors(
    "shares of at least 0 with the sum 1", lambda v: (v >= 0).all(-1) & ((v.sum(-1) - 1).abs() < 1e-6)
)
one_hot: Final = _vectors(
    "a single 1 among zeros", lambda v: ((v == 0) | (v == 1)).all(-1) & (v.sum(-1) == 1), is_discrete=True
)
lower_triangular: Final = _vectors("lower triangular matrices", _triangular, axes=2)
lower_cholesky: Final = _vectors(
    "lower triangular matrices with a positive diagonal",
    lambda v: _triangular(v) & (v.diagonal(0, -2, -1) > 0).all(-1),
    axes=2,
)
square: Final = _vectors(
    "square matrices", lambda v: Tensor.full(v.shape[:-2], v.shape[-1] == v.shape[-2]), axes=2
)
symmetric: Final = _vectors("symmetric matrices", _symmetric, axes=2)
positive_definite: Final = _vectors(
    "symmetric positive definite matrices", lambda v: _symmetric(v) & (cholesky_ex(v).info == 0), axes=2
)
