"""Grids of sampling positions, and images sampled at them: `affine_grid` and `grid_sample`.

A position is (x, y), or (x, y, z), from -1 to 1, the last axis of an image first. With `align_corners` -1 and
1 are the centres of the outermost elements, without it their outer edges.

Not here: resizing to a multiple (`frontend.ops.resizing`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final

from frontend.tensor import Tensor
from hcq.errors import UsageError


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:  # noqa: FBT001 - PyTorch's signature
    """Return positions (n, *sizes, rank) of an image (n, c, *sizes) moved by matrices (n, rank, rank + 1).

    Raises `UsageError` for other shapes; the rank is 2 or 3.
    """
    sizes = tuple(size)[2:]
    rank = len(sizes)
    if rank not in {2, 3} or theta.shape != (size[0], rank, rank + 1):
        raise UsageError(
            f"affine_grid: wanted {(size[0], rank, rank + 1)} for {tuple(size)}, saw {theta.shape}"
        )
    axes: list[Tensor] = []
    for k, n in enumerate(sizes):
        end = 1.0 if align_corners else 1 - 1 / n
        line = (
            Tensor.linspace(-end, end, n, dtype=theta.dtype, device=theta.device)
            if n > 1
            else theta.new_zeros(1)
        )
        axes.insert(0, line.reshape(*[n if i == k else 1 for i in range(rank)]).expand(sizes))
    points = Tensor.stack([*axes, axes[0].ones_like()], axis=-1).reshape(1, -1, rank + 1)
    return points.matmul(theta.transpose(1, 2)).reshape(size[0], *sizes, rank)


def _reflected(x: Tensor, low: float, high: float) -> Tensor:
    """Return positions reflected at both ends of low..high, as often as needed."""
    if low == high:
        return x * 0
    span = high - low
    away = (x - low).abs()
    rest = away - (away / span).floor() * span
    even = (away / span).floor() % 2 == 0
    return even.where(rest + low, high - rest)


def _inside(x: Tensor, n: int, padding: str, *, align_corners: bool) -> Tensor:
    """Return positions in elements, moved inside as `padding` says."""
    if padding == "reflection":
        x = _reflected(x, 0.0, n - 1.0) if align_corners else _reflected(x, -0.5, n - 0.5)
    return x if padding == "zeros" else x.isnan().where(0.0, x).clip(0, n - 1)  # NaN is the first element


def _linear(x: Tensor) -> list[tuple[Tensor, Tensor]]:
    low = x.floor().detach()
    return [(low, low + 1 - x), (low + 1, x - low)]


def _cubic(x: Tensor) -> list[tuple[Tensor, Tensor]]:
    low = x.floor().detach()
    t, a = x - low, -0.75
    near = [((a + 2) * d - (a + 3)) * d * d + 1 for d in (t, 1 - t)]
    far = [((a * d - 5 * a) * d + 8 * a) * d - 4 * a for d in (t + 1, 2 - t)]
    return [(low - 1, far[0]), (low, near[0]), (low + 1, near[1]), (low + 2, far[1])]


_MODES: Final[dict[str, Callable[[Tensor], list[tuple[Tensor, Any]]]]] = {
    "bilinear": _linear,
    "nearest": lambda x: [(x.round().detach(), x.sign() ** 0)],  # a gradient of zeros, as PyTorch's
    "bicubic": _cubic,
}
"""Mode -> function of positions along an axis that returns (elements, weights)."""


def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,  # noqa: FBT001 - PyTorch's signature
) -> Tensor:
    """Return an image (n, c, *sizes) at positions (n, *places, rank): (n, c, *places); the rank is 2 or 3.

    `mode` "bilinear" weighs the elements around a position, "nearest" takes one, "bicubic" weighs 16 of an
    image of rank 2. Beyond the edges are zeros, or with `padding_mode` "border" the elements at the edge,
    with "reflection" those reflected at it. Gradients flow to the image and the grid. Raises `UsageError` for
    other modes, and shapes that do not fit.
    """
    rank = input.ndim - 2
    if (
        rank not in {2, 3}
        or grid.ndim != rank + 2
        or grid.shape[0] != input.shape[0]
        or grid.shape[-1] != rank
    ):
        raise UsageError(f"grid_sample: a grid {grid.shape} does not fit an image {input.shape}")
    if (
        mode not in _MODES
        or (mode == "bicubic" and rank > 2)
        or padding_mode not in {"zeros", "border", "reflection"}
    ):
        raise UsageError(
            f"grid_sample: wanted {' or '.join(_MODES)}, and padding by zeros, border or reflection, "
            f"saw {mode!r} and {padding_mode!r}"
        )
    sizes, places = input.shape[2:], grid.shape[1:-1]
    axes, cubic = [], mode == "bicubic"
    for k, n in enumerate(sizes):
        at = grid[..., rank - 1 - k]
        at = (at + 1) / 2 * (n - 1) if align_corners else ((at + 1) * n - 1) / 2
        taps = _MODES[mode](at if cubic else _inside(at, n, padding_mode, align_corners=bool(align_corners)))
        if cubic:  # the elements are moved inside, not the position
            taps = [(_inside(e, n, padding_mode, align_corners=bool(align_corners)), w) for e, w in taps]
        axes.append([(e, (e >= 0) & (e <= n - 1), w) for e, w in taps])
    flat = input.reshape(*input.shape[:2], -1)
    found: Any = 0.0
    for corner in itertools.product(*axes):
        index: Any = 0
        weight: Any = 1.0
        known: Any = True
        for (e, inside, w), n in zip(corner, sizes, strict=True):
            index = index * n + e.clip(0, n - 1).cast("int64")
            weight, known = w * weight, inside & known
        picked = flat.gather(
            2, index.reshape(input.shape[0], 1, -1).expand(*flat.shape[:2], index[0].numel())
        )
        share = known.where(weight, 0.0).reshape(input.shape[0], 1, -1)
        found = found + picked * share.cast(input.dtype)
    if cubic or (mode == "bilinear" and padding_mode == "zeros"):  # weights of no finite position are NaN
        found = found + (grid.detach() * 0).sum(-1).reshape(input.shape[0], 1, -1).cast(input.dtype)
    result: Tensor = found.reshape(*input.shape[:2], *places)
    return result
