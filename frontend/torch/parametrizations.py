"""Weights with a norm: PyTorch's `nn.utils.parametrizations`, and the older functions of `nn.utils`.

Not here: the mechanism (`parametrize`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from frontend.arguments.checks import axis_of
from frontend.arguments.settings import number_within
from frontend.nn.module import Module, Parameter, in_training
from frontend.nn.state.models import BUFFERS, TRANSIENT
from frontend.tensor import Tensor
from frontend.torch.parametrize import register_parametrization
from hcq.errors import UsageError


class WeightNorm(Module):
    """The weight of a magnitude g and a direction v: g * v / norm(v), the norm over all axes but one."""

    def __init__(self, dim: int | None) -> None:
        self.dim = dim

    def _norm(self, v: Tensor) -> Tensor:
        kept = None if self.dim in {None, -1} else axis_of(self.dim, v.shape, "weight_norm, dim")
        axes = tuple([i for i in range(v.ndim) if i != kept])
        return v.norm() if kept is None else v.square().sum(axes, keepdim=True).sqrt()

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return the magnitude and the direction of a weight."""
        return self._norm(weight), weight

    def forward(self, g: Tensor, v: Tensor) -> Tensor:
        """Return the weight."""
        return v * (g / self._norm(v))


class SpectralNorm(Module):
    """A weight, as a matrix whose rows are axis `dim`, divided by its greatest singular value.

    Vectors `_u` and `_v` that approach the singular vectors are buffers; each call in training mode improves
    them by `n_power_iterations` steps.
    """

    _u: Tensor
    _v: Tensor

    def __init__(self, weight: Tensor, n_power_iterations: int, dim: int, eps: float) -> None:
        super().__init__()
        self.dim = axis_of(dim, weight.shape, "spectral_norm, dim")
        self.steps = int(number_within("spectral_norm, n_power_iterations", n_power_iterations, 1))
        self.eps = number_within("spectral_norm, eps", eps, 0.0)
        if weight.ndim > 1:
            matrix = self._matrix(weight)
            for name, n in zip(("_u", "_v"), matrix.shape, strict=True):
                start = Tensor.randn(n, dtype=weight.dtype, device=weight.device)
                self.register_buffer(name, start.normalize(2, 0, self.eps).realize())
            self._improve(matrix, 15)

    def _matrix(self, weight: Tensor) -> Tensor:
        return weight.movedim(self.dim, 0).flatten(1)

    def _improve(self, matrix: Tensor, steps: int) -> None:
        with Tensor.no_grad():
            u, v = self._u, self._v
            for _ in range(steps):
                u = (matrix @ v).normalize(2, 0, self.eps)
                v = (matrix.T @ u).normalize(2, 0, self.eps)
            self._u.assign(u)
            self._v.assign(v)
            Tensor.realize(self._u, self._v)

    def forward(self, weight: Tensor) -> Tensor:
        """Return the weight with the norm 1."""
        if weight.ndim == 1:
            return weight.normalize(2, 0, self.eps)
        matrix = self._matrix(weight)
        if in_training(self):
            self._improve(matrix, self.steps)
        found: Tensor = weight / (self._u.clone() * (matrix @ self._v.clone())).sum()
        return found


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Give a weight a magnitude and a direction as parameters; return the module.

    The norm is over all axes but `dim`, for None over all. Raises as `register_parametrization`.
    """
    return register_parametrization(module, name, WeightNorm(dim))


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int = 0
) -> Module:
    """Divide a weight by an estimate of its greatest singular value; return the module."""
    return register_parametrization(
        module, name, SpectralNorm(getattr(module, name), n_power_iterations, dim, eps)
    )


def by_hook(module: Module, name: str, parts: dict[str, Tensor], compute: Callable[..., Tensor]) -> Module:
    """Replace a parameter by others, from which it is computed before each `forward`; return the module.

    `compute` has the values of `parts` as arguments. Their names, which follow `name` and "_", and the hook
    are for `unhook`.
    """
    own: Any = module
    own.__dict__.pop(name)
    for part, value in parts.items():
        setattr(own, f"{name}_{part}", Parameter(value.detach()))
    own.__dict__.setdefault(TRANSIENT, set()).add(name)
    if BUFFERS in own.__dict__:
        own.__dict__[BUFFERS].add(name)

    def renew(_module: Module, _args: Any) -> None:
        setattr(own, name, compute(*[getattr(own, f"{name}_{part}") for part in parts]))

    renew(module, ())
    handle = module.register_forward_pre_hook(renew)
    own.__dict__.setdefault("_renewed", {})[name] = (handle, list(parts))
    return module


def unhook(module: Module, name: str = "weight") -> Module:
    """Undo `by_hook`: the parameter is an ordinary one of its present value; return the module.

    Raises `UsageError` for a parameter that is not computed.
    """
    own: Any = module
    if name not in own.__dict__.get("_renewed", {}):
        raise UsageError(f"{type(module).__name__}: {name!r} has no norm to remove")
    handle, parts = own.__dict__["_renewed"].pop(name)
    handle.remove()
    value = getattr(own, name)
    for part in (*parts, "u", "v"):  # with the vectors of a spectral norm
        own.__dict__.pop(f"{name}_{part}", None)
    own.__dict__[TRANSIENT].discard(name)
    setattr(own, name, Parameter(value.detach().clone().realize()))
    return module
