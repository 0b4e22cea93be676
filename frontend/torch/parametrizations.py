"""Weights of a given norm: PyTorch's `nn.utils.parametrizations`.

Sources: Salimans & Kingma 2016 (arXiv 1602.07868) for `WeightNorm`, Miyato et al. 2018 (arXiv 1802.05957) for
`SpectralNorm`. Not here: what a parametrization is (`parametrize`). Next: `frontend.nn.utils`, older ones.
"""

from __future__ import annotations

from typing import Final

from frontend.arguments.checks import axis_of, whole
from frontend.arguments.settings import number_within
from frontend.evaluation.realize import realize_many
from frontend.nn.module import Module, in_training, wide
from frontend.tensor import Tensor
from frontend.torch.parametrize import register_parametrization
from hcq.errors import UsageError

_FIRST: Final = 15  # power iterations before the first ordinary ones, as measured of PyTorch 2.13


class WeightNorm(Module):
    """The function (g, v) -> g * v / |v|, with one Euclidean norm for each index of the axis `dim`.

    v has the shape of the weight; g too, with size 1 along all other axes. With `dim` None or -1 there is one
    norm, of all elements, and g is a scalar: -1 is PyTorch's sign for None, not the last axis.
    """

    def __init__(self, dim: int | None) -> None:
        self.dim = dim

    def forward(self, g: Tensor, v: Tensor) -> Tensor:
        """Return the weight, of v's shape and dtype; NaN where a norm is 0."""
        return v * (g / self._lengths(v))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return g and v of a weight. Raises `UsageIndexError` if it has no axis `dim`."""
        return self._lengths(weight), weight

    def _lengths(self, v: Tensor) -> Tensor:
        if self.dim is None or self.dim == -1:
            return wide(v).square().sum().sqrt().cast(v.dtype)
        rows = wide(v).movedim(axis_of(self.dim, v.shape, "weight_norm"), 0).reshape(v.shape[self.dim], -1)
        shape = [n if axis == self.dim % v.ndim else 1 for axis, n in enumerate(v.shape)]
        return rows.square().sum(1).sqrt().reshape(shape).cast(v.dtype)


class SpectralNorm(Module):
    """The function weight -> weight / s, s its greatest singular value as a matrix.

    The matrix has the axis `dim` of the weight as rows. The buffers `_u`, (rows,), and `_v`, (columns,), are
    estimates of the singular vectors: s = _u @ matrix @ _v. A call in training mode improves them first; the
    new values are pending. Gradients treat them as constants. A vector is divided by its norm and has none.
    Norms below `eps` count as `eps`. Raises `UsageError` for settings below 1 iteration and eps 0.
    """

    _u: Tensor
    _v: Tensor

    def __init__(self, weight: Tensor, n_power_iterations: int, dim: int, eps: float) -> None:
        super().__init__()
        self.dim = axis_of(dim, weight.shape, "spectral_norm")
        self.n_power_iterations = whole(n_power_iterations, "spectral_norm, n_power_iterations")
        number_within("spectral_norm, n_power_iterations", self.n_power_iterations, 1)
        self.eps = number_within("spectral_norm, eps", eps, 0.0)
        if weight.ndim > 1:
            matrix = self._rows(weight.detach())
            for name, size in zip(("_u", "_v"), matrix.shape, strict=True):
                self.register_buffer(name, Tensor.randn(size, dtype=matrix.dtype, device=matrix.device))
            self._iterate(matrix, _FIRST + self.n_power_iterations)
            realize_many([self._u, self._v])

    def forward(self, weight: Tensor) -> Tensor:
        """Return the divided weight, of the same shape and dtype."""
        if weight.ndim == 1:
            return self._unit(weight)
        matrix = self._rows(weight)
        if in_training(self):
            self._iterate(matrix.detach(), self.n_power_iterations)
        return weight / (self._u.detach() * (matrix @ self._v.detach())).sum()

    def _rows(self, weight: Tensor) -> Tensor:
        return weight.movedim(self.dim, 0).reshape(weight.shape[self.dim], -1)

    def _unit(self, vector: Tensor) -> Tensor:
        return vector / vector.square().sum().sqrt().maximum(self.eps)

    def _iterate(self, matrix: Tensor, times: int) -> None:
        """Assign to the buffers what power iterations make of them: first `_u` of `_v`, then `_v` of `_u`."""
        u, v = self._u.detach(), self._v.detach()
        for _ in range(times):
            u = self._unit(matrix @ v)
            v = self._unit(u @ matrix)
        self._u.assign(u)
        self._v.assign(v)


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Make a parameter the `WeightNorm` of two, `original0`, g, and `original1`, v; return the module.

    Raises as `register_parametrization`.
    """
    return register_parametrization(module, name, WeightNorm(dim))


def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Module:
    """Make a parameter the `SpectralNorm` of `original`; `dim` None: 1 of transposed convolutions, else 0.

    Return the module. Raises `UsageError` if it has no tensor `name`, and as `register_parametrization`.
    """
    axis = int("ConvTranspose" in type(module).__name__) if dim is None else dim
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise UsageError(f"spectral_norm: {type(module).__name__} has no tensor {name!r}")
    return register_parametrization(module, name, SpectralNorm(weight, n_power_iterations, axis, eps))
