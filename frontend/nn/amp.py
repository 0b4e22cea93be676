"""Mixed precision: layers that compute in sixteen bits, and scaled losses.

    scaler = nn.amp.GradScaler()

    @TinyJit
    def step(x, y):
        with Tensor.train():
            with nn.amp.autocast("float16"):
                loss = loss_of(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimiser)
            scaler.update()
            return loss

Parameters and moments stay float32. The device decides whether a step changes them; the host reads nothing,
so all of the step may be captured.

Not here: the layers (`layers`, `convolutions`). Next: `frontend.optim`, the optimisers.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from compiler.dtype import DType, dtypes
from frontend.arguments.checks import element_type
from frontend.arguments.conversion import flag, shown
from frontend.arguments.settings import number_within
from frontend.assignment import renew_gradient, shares_gradient
from frontend.evaluation import modes
from frontend.evaluation.base import THREAD
from frontend.evaluation.realize import realize_many
from frontend.tensor import Tensor
from hcq.errors import UsageError

if TYPE_CHECKING:
    from frontend.optim import Optimizer
    from frontend.optim.optimiser import Rule


@contextlib.contextmanager
def autocast(dtype: DType | str = dtypes.bfloat16, *, enabled: bool = True) -> Iterator[None]:
    """Inside a `with` block, products, convolutions, recurrent and attention layers compute in a dtype.

    Their inputs, weights and states are cast if they are floats of at most 32 bits; float64 stays. Norms and
    the losses of `nn` compute in float32 from 16-bit inputs, other operations in the dtype of their operands.
    With `enabled=False` layers compute as outside of such a block. The mode is that of the thread.
    Raises `UsageError` for a dtype that is not float16 or bfloat16, `UsageTypeError` for no dtype and for
    `enabled` that is no bool.
    """
    wanted = element_type(dtype)
    if wanted not in {dtypes.float16, dtypes.bfloat16}:
        raise UsageError(f"autocast: wanted float16 or bfloat16, saw {shown(dtype)}")
    with modes.block(modes.MIXED):
        before = THREAD.precision, THREAD.lower
        THREAD.precision = wanted if flag(enabled, "autocast, enabled") else None
        THREAD.lower = modes.lowered
        try:
            yield
        finally:
            THREAD.precision, THREAD.lower = before


class GradScaler:
    """Scales a loss, so that small float16 gradients are not 0, and skips steps whose gradients overflow.

    `scale(loss)` multiplies a loss by the scale. `step(optimiser)` divides the gradients by the scale, and
    updates parameters and moments only if all gradients are finite. `update()` multiplies the scale by
    `backoff_factor` after a skipped step, and by `growth_factor` after `growth_interval` steps in a row that
    were not skipped.

    The scale and the count of steps are tensors, which may be captured and saved: on `device`, and from the
    first loss on another device on that one. With `enabled=False` it only calls the optimiser. Raises
    `UsageError` unless init_scale > 0, growth_factor > 1, 0 < backoff_factor < 1 and growth_interval >= 1.
    """

    def __init__(  # noqa: PLR0917 - PyTorch's signature
        self,
        device: str | None = None,
        init_scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,  # noqa: FBT001, FBT002 - PyTorch's signature
    ) -> None:
        smallest = math.nextafter(0.0, 1.0)
        first = number_within("GradScaler, init_scale", init_scale, smallest)
        self.growth = number_within("GradScaler, growth_factor", growth_factor, math.nextafter(1.0, 2.0))
        self.backoff = number_within("GradScaler, backoff_factor", backoff_factor, smallest, 1.0)
        self.interval = int(number_within("GradScaler, growth_interval", growth_interval, 1))
        self.enabled = flag(enabled, "GradScaler, enabled")
        self.scale_ = Tensor([float(first)], device=device, requires_grad=False)
        self.good = Tensor([0.0], device=device, requires_grad=False)
        """Steps in a row that were not skipped."""
        self.found: dict[int, Tensor] = {}
        """id of each optimiser that stepped since the last `update` -> whether all gradients were finite."""
        self.unscaled: dict[int, Tensor] = {}
        """id of an optimiser whose gradients `unscale_` has divided -> whether all are finite."""

    def scale(self, outputs: Any) -> Any:
        """Return a loss, or each of a list, times the scale, in at least float32; as it is if not enabled."""
        if isinstance(outputs, (list, tuple)):
            return type(outputs)([self.scale(loss) for loss in outputs])
        if not self.enabled:
            return outputs
        if self.scale_.device != outputs.device:
            self.scale_, self.good = (t.to(outputs.device) for t in (self.scale_, self.good))
        kind = "float64" if outputs.dtype is dtypes.float64 else "float32"
        return outputs.cast(kind) * self.scale_.reshape(()).cast(kind)

    def unscale_(self, optimizer: Optimizer) -> None:
        """Divide the gradients of an optimiser by the scale before its step, so that they can be clipped.

        Raises `UsageError` when it is called twice before a step, or after one before `update`, and as
        `Optimizer.gradients`.
        """
        if not self.enabled:
            return
        if id(optimizer) in self.unscaled:
            raise UsageError("unscale_: the gradients of this optimiser were divided already; call step()")
        if id(optimizer) in self.found:
            raise UsageError("GradScaler: this optimiser has taken a step since the last update(); call it")
        inverse = 1 / self.scale_
        finite: Tensor | None = None
        for p, g in optimizer.with_gradients():
            kind = "float64" if g.dtype is dtypes.float64 else "float32"
            divided = g.cast(kind) * inverse.reshape(()).cast(kind)
            renew_gradient(p, divided.cast(p.dtype), shared=shares_gradient(p))
            all_finite = divided.isfinite().all()
            finite = all_finite if finite is None else finite & all_finite
        if finite is None:
            raise UsageError("unscale_: no parameter of this optimiser has a gradient; call backward() first")
        self.unscaled[id(optimizer)] = finite

    def step(self, optimizer: Optimizer) -> None:
        """Update the parameters, unless a gradient is infinite or NaN; see `Optimizer.step`.

        Raises as `unscale_` and `Optimizer.step`.
        """
        if not self.enabled:
            optimizer.step()
            return
        if id(optimizer) not in self.unscaled:
            self.unscale_(optimizer)
        finite = self.unscaled.pop(id(optimizer))
        if not optimizer.guarded or "step" in vars(optimizer):
            if finite.item():  # the step of a program
                optimizer.step()
        else:
            optimizer = cast("Rule", optimizer)
            optimizer.guard = finite
            try:
                optimizer.launch_step(finite)
            finally:
                optimizer.guard = None
        self.found[id(optimizer)] = finite

    def update(self, new_scale: Tensor | float | None = None) -> None:
        """Set the scale for the next step, if given to a number.

        Raises `UsageError` without a step since the last update, if none is given.
        """
        if not self.enabled:
            return
        if new_scale is not None:
            self.scale_.assign(float(new_scale)).realize()
            self.found = {}
            return
        if not self.found:
            raise UsageError("GradScaler.update: wanted a step() since the last update, there was none")
        finite, *others = self.found.values()
        for other in others:
            finite = finite & other
        self.found = {}
        good = finite.where(self.good + 1, 0.0)
        grown = good >= self.interval
        scale = finite.where(grown.where(self.scale_ * self.growth, self.scale_), self.scale_ * self.backoff)
        self.scale_.assign(scale)
        self.good.assign(grown.where(0.0, good))
        realize_many([self.scale_, self.good])

    def get_scale(self) -> float:
        """Return the scale as a number, which is read; 1.0 if not enabled."""
        return float(self.scale_.item()) if self.enabled else 1.0

    def state_dict(self) -> dict[str, Any]:
        """Return the scale, the settings and the count of steps since the last skipped one, as PyTorch does.

        Reads both from the device. Empty if not enabled.
        """
        if not self.enabled:
            return {}
        own = {name: getattr(self, f"get_{name}")() for name in _STATE}
        return {**own, "_growth_tracker": int(self.good.item())}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Set what `state_dict` returned. Raises `KeyError` for a missing item."""
        if self.enabled:
            self.growth, self.backoff, self.interval = (state_dict[name] for name in _STATE[1:])
            self.scale_.assign(state_dict["scale"])
            self.good.assign(float(state_dict["_growth_tracker"]))
            realize_many([self.scale_, self.good])

    def get_growth_factor(self) -> float:
        """Return the factor of the scale after `get_growth_interval` steps that were not skipped."""
        return self.growth

    def get_backoff_factor(self) -> float:
        """Return the factor of the scale after a skipped step."""
        return self.backoff

    def get_growth_interval(self) -> int:
        """Return the number of steps after which the scale grows."""
        return self.interval

    def set_growth_factor(self, new_factor: float) -> None:
        """Set what `get_growth_factor` returns."""
        self.growth = new_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Set what `get_backoff_factor` returns."""
        self.backoff = new_factor

    def set_growth_interval(self, new_interval: int) -> None:
        """Set what `get_growth_interval` returns."""
        self.interval = new_interval

    def is_enabled(self) -> bool:
        """Return whether the scaler does anything."""
        return self.enabled


_STATE: Final = ("scale", "growth_factor", "backoff_factor", "growth_interval")
