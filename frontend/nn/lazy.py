"""Layers whose input size is that of their first call: `LazyLinear(10)`, `LazyConv2d(8, 3)`, ...

Until then their tensors have no shape (`UninitializedParameter`); the first call, or `load_state_dict`, gives
them one, in place, and the layer becomes one of the class without `Lazy`. They are made from one table.

Not here: the layers themselves (`layers`, `convolutions`, `normalisation`).
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final

from frontend.evaluation.gradient_state import decided
from frontend.nn import convolutions, layers, normalisation
from frontend.nn.checks import layer_input
from frontend.nn.parameter import Uninitialized, UninitializedBuffer, UninitializedParameter
from frontend.ops.random import GENERATOR
from frontend.tensor import Tensor
from hcq.errors import UsageError

if TYPE_CHECKING:
    from frontend.nn.module import Module


def _lazy(name: str, base: type[Module], size: str, axis: int, **defaults: Any) -> type[Module]:
    """Return the lazy form of a layer whose first setting is `size`, axis `axis` of its input."""
    _, _, *settings = inspect.signature(base.__init__).parameters.values()
    changed = [p.replace(default=defaults.get(p.name, p.default)) for p in settings]
    signature = inspect.Signature(changed)

    def __init__(self: Any, *args: Any, **names: Any) -> None:  # noqa: N807 - of the class below
        self._given = args, defaults | names
        known = dict(zip([p.name for p in settings], args, strict=False)) | names
        place = GENERATOR.place
        base.__init__(self, known.get("groups", 1), *args, **self._given[1])
        GENERATOR.place = place
        for key, t in list(vars(self).items()):
            if isinstance(t, Tensor) and t.ndim:
                kind: Any = UninitializedBuffer if decided(t) is False else UninitializedParameter
                setattr(self, key, kind(dtype=t.dtype, device=t.device))
        setattr(self, size, 0)

    def initialize_parameters(self: Any, x: Any) -> None:
        """Give the tensors their shapes and first values, from an input; become an ordinary layer."""
        shape, rank = layer_input(self, x).shape, getattr(base, "rank", None)
        if len(shape) < max(1, axis + 1) or (rank and len(shape) not in {rank + 1, rank + 2}):
            wanted = f"{rank + 1} or {rank + 2}" if rank else f"at least {max(1, axis + 1)}"
            raise UsageError(f"{name}: wanted an input of {wanted} axes, saw the shape {shape}")
        args, names = self._given
        fresh: Any = base(shape[axis], *args, **names)
        for key, t in vars(fresh).items():
            if isinstance(own := getattr(self, key), Uninitialized):
                own.become(t)
        setattr(self, size, shape[axis])
        del self._given
        self.__class__ = base

    def forward(self: Any, x: Any) -> Any:
        """Return the result of the layer, which becomes an ordinary one first."""
        self.initialize_parameters(x)
        return self.forward(x)

    def has_uninitialized_params(self: Any) -> bool:
        """Return whether a tensor has no shape yet."""
        return any(isinstance(t, Uninitialized) for t in vars(self).values())

    members = (__init__, initialize_parameters, forward, has_uninitialized_params)
    doc = f"`{base.__name__}` with `{size}` of its first input; until then its tensors have no shape."
    fields = {"__doc__": doc, "__module__": __name__, "__signature__": signature}
    return type(name, (base,), fields | {fn.__name__: fn for fn in members})


_KINDS: Final[Any] = (
    ("Conv", convolutions, "in_channels", 0, {}),
    ("ConvTranspose", convolutions, "in_channels", 0, {}),
    ("BatchNorm", normalisation, "num_features", 1, {}),
    ("InstanceNorm", normalisation, "num_features", 1, {"affine": True, "track_running_stats": True}),
)
LAZY: Final = {
    "LazyLinear": _lazy("LazyLinear", layers.Linear, "in_features", -1),
    **{
        (name := f"Lazy{kind}{n}d"): _lazy(name, getattr(home, name[4:]), size, axis or -n - 1, **more)
        for kind, home, size, axis, more in _KINDS
        for n in (1, 2, 3)
    },
}
globals().update(LAZY)
